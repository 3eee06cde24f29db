"""The simulated web: sites whose robots.txt and pages change, the clients that request them, and a flaky store."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from politesse.errors import StoreError
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResponse, FetchResult
from politesse.testing import ManualClock

if TYPE_CHECKING:
    from tests.model.judge import Judge

PATHS: Final = ("/", "/a", "/b?q=1", "/c/d", "/private/e", "/private/ok/f", "/g.pdf", "/h/")
FAULTS: Final = (FaultKind.TIMEOUT, FaultKind.CONNECT, FaultKind.TRUNCATED, FaultKind.PROTOCOL)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a request. ``status`` is 0 if the connection fails."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    head_s: float = 0.0
    body_s: float = 0.0


@dataclass(slots=True, eq=False)
class Exchange:
    """A request that has arrived, and its answer."""

    url: str
    origin: str
    host: str
    target: str
    agent: str
    started: float
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    ended: float | None = None
    why: str = ""  # which caller made the request; of a hop, the first URL
    gate: str = ""  # which gate fetches a robots.txt
    interval_s: float = 0.0  # the pause that it had to keep


def split(url: str) -> tuple[str, str, str]:
    """Return the origin, the paced host and the target of a URL of this web."""
    scheme, _, rest = url.partition("://")
    authority, slash, target = rest.partition("/")
    return f"{scheme}://{authority}", authority.partition(":")[0], slash + target or "/"


class Site:
    """An origin whose answers are drawn; ``temper`` says how often its pages fail."""

    def __init__(self, lots: Random, origin: str, agents: list[str]) -> None:
        self.lots = lots
        self.origin = origin
        self.agents = agents
        self.temper = lots.choice((0.0, 0.0, 0.1, 0.3))
        self.slow_s = lots.choice((0.0, 0.2, 2.0))
        self.robots = Answer(404)
        self.change()

    def change(self) -> None:
        """Draw another robots.txt, or another failure in its place."""
        lots = self.lots
        head_s = lots.choice((0.0, 0.1, self.slow_s, 3.0))
        kind = lots.choice(("rules",) * 6 + ("404", "403", "503", "500", "429", "fault", "redirect"))
        headers = {}
        if lots.random() < 0.5:
            headers["cache-control"] = f"max-age={lots.choice((5, 60, 90, 300, 4000, 86400))}"
        if kind == "rules":
            if lots.random() < 0.3:
                headers["etag"] = f'"{lots.randrange(1000)}"'
            self.robots = Answer(200, headers, self.file(), head_s)
        elif kind in {"503", "429"} and lots.random() < 0.5:
            self.robots = Answer(int(kind), {"retry-after": str(lots.choice((3, 45, 200)))}, head_s=head_s)
        elif kind == "fault":
            self.robots = Answer(0, head_s=head_s)
        elif kind == "redirect":
            self.robots = Answer(301, {"location": f"{lots.choice(self.targets)}"}, head_s=head_s)
        else:
            self.robots = Answer(int(kind), headers, head_s=head_s)

    targets: tuple[str, ...] = ("/moved.txt",)

    def file(self) -> bytes:
        """Draw a robots.txt."""
        lots, lines = self.lots, []
        for agent in lots.sample(["*", *self.agents, "OtherBot"], lots.choice((1, 1, 2))):
            lines += [f"User-agent: {agent}"]
            rules = ("Disallow: /private", "Allow: /private/ok", "Disallow: /*.pdf$", "Disallow:", "Disallow: /b?q")
            lines += lots.sample(rules, lots.randint(1, 3)) if lots.random() < 0.9 else ["Disallow: /"]
            if lots.random() < 0.35:
                lines += [f"Crawl-delay: {lots.choice((0, 0.5, 2, 5, 20, 400))}"]
            if lots.random() < 0.1:
                lines += ["Content-Usage: train-ai=n"]
        if lots.random() < 0.2:
            lines += [f"Sitemap: {self.origin}/sitemap.xml"]
        return "\n".join(lines).encode()

    def page(self, links: list[str]) -> Answer:
        """Draw the answer to a request for a page."""
        lots, headers = self.lots, {}
        status, head_s = 200, lots.choice((0.0, 0.05, self.slow_s))
        if lots.random() < self.temper:
            status = lots.choice((404, 403, 301, 302, 503, 429, 500, 502, 0, 200, 402))
            if status in {301, 302}:
                headers["Location"] = lots.choice(links)
            elif status in {503, 429} and lots.random() < 0.6:
                headers["Retry-After"] = str(lots.choice((1, 15, 60, 700)))
            elif status == 200:
                headers |= {"X-RateLimit-Remaining": lots.choice(("0", "0.0", "2")), "X-RateLimit-Reset": "30"}
            elif status == 402:
                headers |= lots.choice(({}, {"Crawler-Price": "USD 1"}, {"CF-Mitigated": "challenge"}))
        return Answer(status, headers, b"page", head_s, lots.choice((0.0, 0.0, 0.3)))

    def sitemap(self, links: list[str]) -> Answer:
        """Draw a sitemap of this site."""
        own = [f"<url><loc>{link}</loc></url>" for link in links if split(link)[0] == self.origin]
        body = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">' + "".join(own) + "</urlset>"
        return Answer(200 if self.lots.random() < 0.8 else 404, {}, body.encode(), 0.1)


class World:
    """All sites, and the log of the requests to them."""

    def __init__(self, lots: Random, clock: ManualClock, judge: "Judge", agents: list[str]) -> None:
        self.lots = lots
        self.clock = clock
        self.judge = judge
        names = [f"{letter}.example" for letter in "abcde"[: lots.randint(1, 5)]]
        origins = [f"https://{name}" for name in names]
        origins += [
            f"{scheme}{name}{port}" for name in names for scheme, port in (("http://", ""), ("https://", ":8443"))
        ]
        chosen = origins[: len(names)] + lots.sample(origins[len(names) :], lots.randint(0, len(names)))
        self.sites = {origin: Site(lots, origin, agents) for origin in chosen}
        for site in self.sites.values():
            others = [f"{origin}/robots.txt" for origin in chosen if origin != site.origin]
            site.targets = ("/moved.txt", *others[:2])
        self.hosts = sorted({split(origin)[1] for origin in chosen})
        self.numbers = 0

    def links(self) -> list[str]:
        """Draw some URLs of this web, most of them new."""
        found = []
        for _ in range(self.lots.randint(0, 3)):
            self.numbers += self.lots.random() < 0.8
            path = self.lots.choice(PATHS)
            mark = "&" if "?" in path else "?"
            found.append(f"{self.lots.choice(list(self.sites))}{path}{mark}n={self.numbers}")
        return found

    def url(self) -> str:
        """Draw a new URL."""
        self.numbers += 1
        path = self.lots.choice(PATHS)
        return f"{self.lots.choice(list(self.sites))}{path}{'&' if '?' in path else '?'}n={self.numbers}"

    def exchange(self, url: str, agent: str, why: str = "") -> Exchange:
        origin, host, target = split(url)
        return Exchange(url, origin, host, target, agent, self.clock.monotonic(), why=why)

    def get(self, url: str, agent: str, why: str = "", *, since: float | None = None, exempt: bool = False) -> "Page":
        """Return the request of a page, as a context manager. ``since`` is when the caller asked for its turn."""
        return Page(self, url, agent, why, since, exempt=exempt)


class WebFetcher:
    """Requests robots.txt for a gate, one hop at a time."""

    def __init__(self, world: World, gate: str) -> None:
        self.world, self.gate = world, gate

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        try:
            return await self._fetch(request)
        except Exception as error:  # the gate would take it as a fault of the site
            self.world.judge.find(f"the model has failed with {error!r}")
            raise

    async def _fetch(self, request: FetchRequest) -> FetchResult:
        world = self.world
        exchange = world.exchange(request.url, "robots.txt", request.first_url)
        exchange.gate = self.gate
        site = world.sites[exchange.origin]
        answer = site.robots
        if request.path != "/robots.txt":
            answer = Answer(200, {}, b"User-agent: *\nDisallow: /private/\n", 0.1)
        world.judge.fetch_starts(exchange)
        try:
            await world.clock.sleep(answer.head_s)
        except BaseException:
            world.judge.fetch_ends(exchange, None)
            raise
        exchange.status, exchange.headers = answer.status or None, answer.headers
        etag = answer.headers.get("etag")
        if etag and request.validators is not None and request.validators.etag == etag:
            exchange.status = 304
        world.judge.fetch_ends(exchange, answer)
        if not answer.status:
            return FetchFault(world.lots.choice(FAULTS), "drawn", request.url)
        if answer.status == 301:
            location = answer.headers["location"]
            location = exchange.origin + location if location.startswith("/") else location
            detail = "more than 0 redirects"
            return FetchFault(FaultKind.REDIRECT_LIMIT, detail, request.url, 301, location=location, private=False)
        if exchange.status == 304:
            return FetchResponse(304, request.url, answer.headers, conditional=True)
        return FetchResponse(answer.status, request.url, answer.headers, answer.body)

    async def aclose(self) -> None:
        pass


class Failed(Exception):
    """The connection failed."""


@dataclass(slots=True)
class Connection:
    """Calls back when the whole answer was read, or the connection is closed, as aiohttp's connection does."""

    callbacks: list[Callable[[], None]] = field(default_factory=list)

    def add_callback(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)


class Page:
    """The request of a page and its response, in the manner of aiohttp and of httpx."""

    def __init__(self, world: World, url: str, agent: str, why: str, since: float | None, *, exempt: bool) -> None:
        self.world, self.url, self.agent, self.why, self.since, self.exempt = world, url, agent, why, since, exempt
        self.connection: Connection | None = None
        self.status = self.status_code = 0
        self.headers: Mapping[str, str] = {}

    async def __aenter__(self) -> Self:
        world = self.world
        self.exchange = exchange = world.exchange(self.url, self.agent, self.why)
        site = world.sites[exchange.origin]
        world.judge.page_starts(exchange, self.since, exempt=self.exempt)
        links = world.links() or [world.url()]
        is_sitemap = exchange.target == "/sitemap.xml"
        self.answer = answer = site.sitemap(links) if is_sitemap else site.page(links)
        try:
            await world.clock.sleep(answer.head_s)
        except BaseException:
            world.judge.page_ends(exchange)
            raise
        if not answer.status:
            world.judge.page_ends(exchange)
            raise Failed(self.url)
        exchange.status, exchange.headers = answer.status, answer.headers
        self.status = self.status_code = answer.status
        self.headers = answer.headers
        world.judge.page_answers(exchange)
        self.connection = Connection()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    async def aread(self) -> bytes:
        await self.world.clock.sleep(self.answer.body_s)
        self.close()
        return self.answer.body

    read = aread

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        yield await self.aread()

    iter_any = aiter_bytes

    @property
    def content(self) -> Self:
        return self

    def close(self) -> None:
        if self.exchange.ended is None:
            self.world.judge.page_ends(self.exchange)
            if self.connection is not None:
                for callback in self.connection.callbacks:
                    callback()


class AiohttpStyleWeb:
    """A client with the methods that a crawl calls of an aiohttp session."""

    closed = False

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name

    def get(self, url: object, *, allow_redirects: bool, headers: Mapping[str, str]) -> Page:
        assert not allow_redirects
        return self.world.get(str(url), headers["User-Agent"], self.name)


class HttpxStyleWeb:
    """A client with the methods that a crawl calls of an httpx client."""

    is_closed = False

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name

    def stream(self, method: str, url: str, *, follow_redirects: bool, headers: Mapping[str, str]) -> Page:
        assert (method, follow_redirects) == ("GET", False)
        return self.world.get(url, headers["User-Agent"], self.name)

    async def aclose(self) -> None:
        pass


class FlakyStore:
    """A store whose calls may be late or fail for a while."""

    def __init__(self, lots: Random, clock: ManualClock) -> None:
        self.lots, self.clock = lots, clock
        self.records: dict[str, bytes] = {}
        self.failing: set[str] = set()
        self.late_s = 0.0

    def __repr__(self) -> str:
        return f"<FlakyStore: {len(self.records)} records>"

    def change(self) -> None:
        """Draw which calls fail from now on, and how late the others are."""
        self.failing = set(
            self.lots.choice(((), (), ("put",), ("get",), ("delete",), ("put", "delete"), ("get", "put", "delete")))
        )
        self.late_s = self.lots.choice((0.0, 0.0, 0.0, 0.5, 7.0))

    async def _call(self, what: str, key: str) -> None:
        await (self.clock.sleep(self.late_s) if self.late_s else asyncio.sleep(0))
        if what in self.failing:
            raise StoreError(f"{what} of {key} fails")

    async def get(self, key: str, /) -> bytes | None:
        await self._call("get", key)
        return self.records.get(key)

    async def put(self, key: str, record: bytes, /) -> None:
        await self._call("put", key)
        self.records[key] = record

    async def delete(self, key: str, /) -> None:
        await self._call("delete", key)
        self.records.pop(key, None)

    async def aclose(self) -> None:
        pass
