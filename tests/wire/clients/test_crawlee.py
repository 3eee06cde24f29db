"""Real crawls of Crawlee through ``politesse.integrations.crawlee``, judged by the logs of the servers."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from crawlee import ConcurrencySettings, Request, crawlers
from crawlee.crawlers import (
    BasicCrawler,
    BasicCrawlingContext,
    FileDownloadCrawler,
    FileDownloadCrawlingContext,
    HttpCrawler,
)
from crawlee.errors import HttpClientStatusCodeError
from crawlee.http_clients import HttpClient, HttpxHttpClient, ImpitHttpClient
from crawlee.storages import RequestQueue

from politesse import ClosedError, ConfigurationError, Disallowed, Gatekeeper, PacingOptions, Reason, Verdict
from politesse.errors import TurnHeld, WrongEventLoop
from politesse.integrations.aiohttp import PoliteSession
from politesse.integrations.crawlee import PoliteHttpClient, PoliteRequestManager
from politesse.testing import Exchange, ManualClock, ScriptedFetcher
from tests.support.sites import UA, Site, serving, slow_gate, turns, until
from tests.support.tasks import apart
from tests.support.tiers import first_of
from tests.wire.clients.browsers import HtmlSite, chromium
from tests.wire.clients.clients import judge, use_memory

pytestmark = pytest.mark.realtime

LINKS = "".join(f'<a href="{path}">x</a>' for path in ("/a", "/b", "/private/a", "/c", "/x/../private/b"))
BRIEF: dict[str, Any] = {"request_handler_timeout": timedelta(seconds=10), "max_request_retries": 0}


@dataclass
class Linked(Site):
    """A server whose first page has links, and whose page /busy is refused for a second, once."""

    busy: int = 0
    busy_status: int = 429
    robots_status: int = 200

    async def respond(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/robots.txt" and self.robots_status != 200:
            return web.Response(status=self.robots_status)
        return await super().respond(request)

    async def page(self, request: web.Request) -> web.Response:
        if request.path == "/busy" and self.busy:
            self.busy -= 1
            return web.Response(status=self.busy_status, headers={"Retry-After": "1"})
        return web.Response(text=f"<html><body>{LINKS}</body></html>", content_type="text/html")

    def trace(self) -> list[Exchange]:
        return [
            replace(exchange, retry_after_s=1.0) if exchange.status in {429, 503} else exchange
            for exchange in super().trace()
        ]


@pytest.fixture
def site_class() -> type[Site]:
    return Linked


class Refused(list[tuple[str, Reason]]):
    """The requests that were refused."""

    def note(self, request: Request, verdict: Verdict) -> None:
        assert isinstance(request, Request)
        self.append((request.url, verdict.reason))


@pytest.fixture
def refused() -> Refused:
    return Refused()


@pytest.fixture(scope="module", autouse=True)
def _storage() -> None:
    use_memory()


@pytest.fixture
async def queue(request: pytest.FixtureRequest) -> AsyncIterator[RequestQueue]:
    queue = await RequestQueue.open(alias=re.sub(r"[^a-z0-9]", "-", request.node.name))
    yield queue
    await queue.drop()


@pytest.fixture
async def manager(gate: Gatekeeper, queue: RequestQueue, refused: Refused) -> AsyncIterator[PoliteRequestManager]:
    async with PoliteRequestManager(gate, queue, on_disallowed=refused.note) as manager:
        yield manager


def sender() -> ImpitHttpClient:
    return ImpitHttpClient(follow_redirects=False)


def crawler_of(
    kind: Callable[..., Any],
    manager: PoliteRequestManager,
    client: HttpClient | None = None,
    handler: Callable[[Any], Awaitable[None]] | None = None,
    **options: Any,
) -> Any:
    """Return a crawler with its pages in ``crawler.pages``, and its failed requests in ``crawler.failed``."""
    options["http_client"] = PoliteHttpClient(manager, sender()) if client is None else client
    options["concurrency_settings"] = ConcurrencySettings(desired_concurrency=5, max_concurrency=5)
    crawler = kind(request_manager=manager, configure_logging=False, **options)
    crawler.pages, crawler.failed = [], []

    async def handle(context: Any) -> None:
        if handler is not None:
            await handler(context)
        crawler.pages.append(context.request.loaded_url or context.request.url)
        if hasattr(context, "enqueue_links"):
            await context.enqueue_links(strategy="all")

    async def fail(context: Any, error: Exception) -> None:
        crawler.failed.append((context.request.url, context.request.retry_count, type(error)))

    crawler.router.default_handler(handle)
    crawler.failed_request_handler(fail)
    return crawler


@pytest.mark.parametrize("kind", first_of(1, ["ParselCrawler", "BeautifulSoupCrawler"]))
async def test_crawl_is_polite_and_complete(site: Linked, queue: RequestQueue, refused: Refused, kind: str) -> None:
    async with slow_gate(0.1) as gate, PoliteRequestManager(gate, queue, on_disallowed=refused.note) as manager:
        crawler = crawler_of(getattr(crawlers, kind), manager)
        await crawler.run([f"{site.base}/"])
    assert sorted(site.pages) == ["/", "/a", "/b", "/c"]
    assert sorted(refused) == [(f"{site.base}/private/{name}", Reason.DISALLOW_RULE) for name in ("a", "b")]
    judge(site, min_delay_s=0.1)
    assert (len(crawler.pages), crawler.failed, await queue.is_finished()) == (4, [], True)


@pytest.mark.full
async def test_httpx_client_has_the_gates_user_agent(
    site: Linked, other: Linked, manager: PoliteRequestManager
) -> None:
    client = PoliteHttpClient(manager, HttpxHttpClient(follow_redirects=False))
    crawler = crawler_of(HttpCrawler, manager, client)
    wanted = [f"{base}/{number}" for base in (site.base, other.base) for number in range(5)]
    await crawler.run(wanted)
    assert sorted(crawler.pages) == sorted(wanted)
    judge(site, other)


def brief(**options: Any) -> Gatekeeper:
    return Gatekeeper(UA, pacing=PacingOptions(min_delay_s=0.0, adaptive_factor=0.0, backoff_min_s=1.0, **options))


@pytest.mark.full
@pytest.mark.parametrize("status", [429, 503])
async def test_retry_waits_while_other_hosts_go_on(
    site: Linked, other: Linked, queue: RequestQueue, status: int
) -> None:
    site.busy, site.busy_status = 1, status
    async with brief() as gate, PoliteRequestManager(gate, queue) as manager:
        crawler = crawler_of(HttpCrawler, manager)
        await crawler.run([f"{site.base}/busy", *(f"{other.base}/{number}" for number in range(3))])
    assert (site.pages, len(crawler.pages), crawler.failed) == (["/busy", "/busy"], 4, [])
    refusal, answer = (seen for seen in site.seen if seen.path == "/busy")
    assert answer.started - refusal.ended >= 1.0
    assert max(seen.ended for seen in other.seen) < answer.started
    judge(site, other)


@pytest.mark.full
async def test_redirect_is_followed_in_turns_if_permitted(site: Linked, other: Linked, queue: RequestQueue) -> None:
    site.redirects |= {"/hidden": (301, "/private/page"), "/loop": (302, "/loop")}
    site.redirects["/moved"] = (302, f"{other.base}/here")
    other.redirects["/here"] = (308, "/there")
    async with slow_gate(0.1) as gate, PoliteRequestManager(gate, queue) as manager:
        crawler = crawler_of(HttpCrawler, manager)
        await crawler.run([f"{site.base}/moved", f"{site.base}/hidden", f"{site.base}/loop"])
        assert turns(gate) == 0
    assert crawler.pages == [f"{other.base}/there"]
    assert sorted(crawler.failed) == [
        (f"{site.base}/hidden", 0, Disallowed),
        (f"{site.base}/loop", 0, HttpClientStatusCodeError),
    ]
    assert sorted(site.pages) == ["/hidden", *["/loop"] * 11, "/moved"]
    assert other.pages == ["/here", "/there"]
    judge(site, other, min_delay_s=0.1)


async def test_client_that_follows_redirects_is_an_error_that_says_what_to_pass_and_sends_no_more(
    site: Linked, other: Linked, gate: Gatekeeper
) -> None:
    site.redirects["/moved"] = (302, "/target")
    client = PoliteHttpClient(gate, ImpitHttpClient())
    for url in (f"{site.base}/moved", f"{other.base}/page"):
        with pytest.raises(ConfigurationError, match=r"give ImpitHttpClient\(follow_redirects=False\)$"):
            await client.send_request(url)
    assert (site.pages, other.pages) == (["/moved", "/target"], [])


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (FileDownloadCrawler, 403),
        *(pytest.param(HttpCrawler, status, marks=pytest.mark.full) for status in (401, 403)),
    ],
)
async def test_refusal_is_not_evaded_by_another_session(
    site: Linked, manager: PoliteRequestManager, kind: Callable[..., Any], status: int
) -> None:
    site.busy, site.busy_status = 10, status
    site.redirects["/hidden"] = (301, "/private/page")
    options: dict[str, Any] = {"stream": True} if kind is FileDownloadCrawler else {}
    crawler = crawler_of(kind, manager, **options)
    await crawler.run([f"{site.base}/busy", f"{site.base}/hidden"])
    assert sorted(site.pages) == ["/busy", "/hidden"]
    failed = sorted((url, retries) for url, retries, _ in crawler.failed)
    assert failed == [(f"{site.base}/busy", 0), (f"{site.base}/hidden", 0)]


@pytest.mark.full
async def test_site_that_refuses_or_has_a_long_wait_is_given_up(
    site: Linked, other: Linked, queue: RequestQueue, refused: Refused
) -> None:
    site.busy, site.busy_status, other.robots_status = 10, 403, 503
    limits: dict[str, Any] = {"max_refusals": 1, "max_wait_s": 5.0}
    async for slow in serving(Linked(), address="127.0.0.2", host="127.0.0.2"):
        async with (
            brief(refused_after=1) as gate,
            PoliteRequestManager(gate, queue, on_disallowed=refused.note, **limits) as manager,
        ):
            crawler = crawler_of(HttpCrawler, manager, max_request_retries=0)
            urls = [f"{site.base}/busy", f"{site.base}/a", f"{other.base}/b", f"{slow.base}/429", f"{slow.base}/a"]
            await crawler.run(urls)
        assert (site.pages, other.pages, slow.pages) == (["/busy"], [], ["/429"])
        reasons = [Reason.REFUSED, Reason.UNREACHABLE, Reason.WAIT_TOO_LONG, Reason.WAIT_TOO_LONG]
        assert sorted(refused) == sorted(zip(urls[1:], reasons, strict=True))


@pytest.mark.full
async def test_crawl_ends_with_closed_error_when_the_gate_is_closed(site: Linked, queue: RequestQueue) -> None:
    gate = slow_gate(60.0)
    manager = PoliteRequestManager(gate, queue)
    running = apart(crawler_of(HttpCrawler, manager).run([f"{site.base}/{number}" for number in range(3)]))
    await until(lambda: len(site.seen) > 0)
    await gate.aclose()
    with pytest.raises(ClosedError):
        await running
    await manager.aclose()
    assert not await queue.is_empty()


# The manager


async def fetched(manager: PoliteRequestManager) -> Request:
    async with asyncio.timeout(10):
        while True:
            request = None if await manager.is_empty() else await manager.fetch_next_request()
            if request is not None:
                return request
            await asyncio.sleep(0.001)


@pytest.mark.full
async def test_stop_loses_no_request(site: Linked, gate: Gatekeeper, queue: RequestQueue, refused: Refused) -> None:
    urls = {f"{site.base}/{number}" for number in range(20)} | {f"{site.base}/private/{number}" for number in range(3)}
    await queue.add_requests(sorted(urls))
    done: set[str] = set()
    async with PoliteRequestManager(gate, queue, on_disallowed=refused.note) as manager:
        for _ in range(4):
            request = await fetched(manager)
            assert await manager.fetch_next_request() is None  # one request at a time to a host
            done.add(request.url)
            await manager.mark_request_as_handled(request)
        handed_out = await fetched(manager)  # handed out, and never handled
        assert turns(gate) == 1
    assert (turns(gate), handed_out.url in done) == (0, False)
    left = set()
    while (next_one := await queue.fetch_next_request()) is not None:
        left.add(next_one.url)
    assert left == urls - done - {url for url, _ in refused}
    assert all("private" in url for url, _ in refused)


@pytest.mark.full
async def test_reclaimed_request_waits_for_its_next_turn(site: Linked, queue: RequestQueue) -> None:
    clock = ManualClock()
    fetcher, pacing = ScriptedFetcher({site.base: 404}), PacingOptions(min_delay_s=60.0, adaptive_factor=0.0)
    async with (
        Gatekeeper(UA, pacing=pacing, clock=clock, fetcher=fetcher) as gate,
        PoliteRequestManager(gate, queue) as manager,
    ):
        await manager.add_request(f"{site.base}/a")
        while (request := await manager.fetch_next_request()) is None:
            clock.advance(1.0)
            await asyncio.sleep(0)
        await manager.reclaim_request(request)
        clock.advance(59.0)
        await asyncio.sleep(0)
        assert (await manager.fetch_next_request(), await manager.is_finished()) == (None, False)
        clock.advance(1.5)
        await asyncio.sleep(0)
        again = await manager.fetch_next_request()
        assert again is not None
        turn = manager.turn_of(again)
        assert turn is not None
        with turn:  # the task holds it already
            assert repr(turn) == f"<Turn {site.base}/a: under way>"
        await manager.mark_request_as_handled(again)
        assert await manager.is_finished()


def test_manager_serves_the_event_loop_of_its_gate_alone() -> None:
    async def made() -> PoliteRequestManager:
        gate = Gatekeeper(UA, fetcher=ScriptedFetcher())
        manager = PoliteRequestManager(gate, await RequestQueue.open(alias="of one loop"))
        assert await manager.fetch_next_request() is None
        await gate.check("https://a.example/")
        return manager

    async def used(manager: PoliteRequestManager) -> None:
        for use in (manager.fetch_next_request, manager.is_empty, manager.is_finished):
            with pytest.raises(WrongEventLoop):
                await use()

    manager = asyncio.run(made())
    asyncio.run(used(manager))


@pytest.mark.full
async def test_purge_and_drop_forget_the_requests_that_were_read(site: Linked, gate: Gatekeeper) -> None:
    manager = PoliteRequestManager(gate, await RequestQueue.open(alias="purged"))
    for forget in (manager.purge, manager.drop):
        await manager.add_requests([f"{site.base}/a", f"{site.base}/b"])
        assert (await manager.get_total_count(), await manager.get_handled_count()) == (2, 0)
        await fetched(manager)
        assert not await manager.is_finished()
        await forget()
        assert turns(gate) == 0
    assert await PoliteRequestManager(gate, await RequestQueue.open(alias="purged")).is_finished()


@pytest.mark.full
async def test_manager_alone_paces_a_crawler_with_another_client(site: Linked, queue: RequestQueue) -> None:
    starts: list[float] = []
    async with slow_gate(0.2) as gate, PoliteRequestManager(gate, queue) as manager:
        crawler = BasicCrawler(request_manager=manager, configure_logging=False)

        @crawler.router.default_handler
        async def handle(context: BasicCrawlingContext) -> None:
            starts.append(asyncio.get_running_loop().time())

        await crawler.run([f"{site.base}/{name}" for name in ("1", "2", "private", "3")])
    assert len(starts) == 3
    assert all(later - earlier >= 0.2 for earlier, later in itertools.pairwise(starts))


# The client


@pytest.mark.full
async def test_requests_of_handlers_are_judged_and_have_turns(site: Linked, gate: Gatekeeper) -> None:
    site.redirects["/moved"] = (303, "/page")
    client = PoliteHttpClient(gate, sender())
    response = await client.send_request(f"{site.base}/moved", method="POST", payload=b"x", headers={"X-Key": "y"})
    assert (response.status_code, turns(gate)) == (200, 0)
    assert [(seen.method, seen.body) for seen in site.seen[1:]] == [("POST", "x"), ("GET", "")]
    with pytest.raises(Disallowed):
        await client.send_request(f"{site.base}/x/../private")
    async with client.stream(f"{site.base}/page") as streamed:
        assert turns(gate) == 1
        with pytest.raises(TurnHeld):
            await client.send_request(f"{site.base}/other")
        assert b"".join([part async for part in streamed.read_stream()])
    assert turns(gate) == 0
    with pytest.raises(Disallowed):
        async with client.stream(f"{site.base}/private"):
            pass
    assert site.pages == ["/moved", "/page", "/page"]


@pytest.mark.full
async def test_credentials_do_not_go_to_another_origin(site: Linked, other: Linked, gate: Gatekeeper) -> None:
    site.redirects["/moved"] = (302, f"{other.base}/page")
    headers = {"Authorization": "Basic eDp5", "Cookie": "a=b", "X-Key": "kept"}
    await PoliteHttpClient(gate, sender()).send_request(f"{site.base}/moved", headers=headers)
    sent = [{name: seen.headers.get(name) for name in headers} for seen in (site.seen[-1], other.seen[-1])]
    assert sent == [headers, {"Authorization": None, "Cookie": None, "X-Key": "kept"}]


@pytest.mark.full
async def test_request_is_judged_for_the_crawler_it_states(site: Linked, manager: PoliteRequestManager) -> None:
    site.robots = "User-agent: *\nAllow: /\n\nUser-agent: OtherBot\nDisallow: /a\n"
    headers = {"User-Agent": "OtherBot/1.0"}
    crawler = crawler_of(HttpCrawler, manager)
    await crawler.run([Request.from_url(f"{site.base}{path}", headers=headers) for path in ("/a", "/b")])
    assert crawler.failed == [(f"{site.base}/a", 0, Disallowed)]
    pages = [(seen.path, seen.headers["User-Agent"]) for seen in site.seen if seen.path != "/robots.txt"]
    assert pages == [("/b", "OtherBot/1.0")]


# The turn of a request, in the task that handles the request


@pytest.mark.parametrize("sends_by", ["client", "stream", "PoliteSession"])
async def test_handler_requests_its_own_page_in_the_turn_of_the_manager(
    site: Linked, gate: Gatekeeper, manager: PoliteRequestManager, sends_by: str
) -> None:
    client = PoliteHttpClient(manager, sender())
    async with PoliteSession(gate) as session:

        async def handle(context: BasicCrawlingContext) -> None:
            assert turns(gate) == 1
            if sends_by == "client":
                status = (await context.send_request(context.request.url)).status_code
            elif sends_by == "stream":
                async with client.stream(context.request.url) as response:
                    status = response.status_code
            else:
                async with session.get(context.request.url) as answer:
                    status = answer.status
            assert (status, turns(gate)) == (200, 0)
            await context.send_request(f"{site.base}/b")

        crawler = crawler_of(BasicCrawler, manager, client, handle, **BRIEF)
        await crawler.run([f"{site.base}/a", f"{site.base}/c"])
    assert sorted(crawler.pages) == [f"{site.base}/a", f"{site.base}/c"]
    assert sorted(site.pages) == ["/a", "/b", "/b", "/c"]
    judge(site)


async def test_download_streams_in_its_turn(site: Linked, gate: Gatekeeper, manager: PoliteRequestManager) -> None:
    async def handle(context: FileDownloadCrawlingContext) -> None:
        assert turns(gate) == 1
        with pytest.raises(TurnHeld):
            await context.send_request(f"{site.base}/b")
        assert LINKS in b"".join([part async for part in context.http_response.read_stream()]).decode()

    timeout = timedelta(seconds=10)
    crawler = crawler_of(FileDownloadCrawler, manager, None, handle, stream=True, navigation_timeout=timeout, **BRIEF)
    await crawler.run([f"{site.base}/a", f"{site.base}/c"])
    assert sorted(crawler.pages) == [f"{site.base}/a", f"{site.base}/c"]
    assert sorted(site.pages) == ["/a", "/c"]
    judge(site)


@pytest.mark.parametrize("path", ["/login", "/a", "/moved"])
async def test_hook_may_request_a_page(site: Linked, other: Linked, manager: PoliteRequestManager, path: str) -> None:
    site.redirects["/moved"] = (302, f"{other.base}/back")
    other.redirects["/back"] = (302, f"{site.base}/login")
    crawler = crawler_of(HttpCrawler, manager, navigation_timeout=timedelta(seconds=10), **BRIEF)

    async def log_in(context: BasicCrawlingContext) -> None:
        assert (await context.send_request(f"{site.base}{path}")).status_code == 200

    crawler.pre_navigation_hook(log_in)
    await crawler.run([f"{site.base}/a", f"{site.base}/c"])
    assert (sorted(crawler.pages), crawler.failed) == ([f"{site.base}/a", f"{site.base}/c"], [])
    assert sorted(site.pages) == sorted(["/a", "/c", *[path, path], *["/login"] * (2 if path == "/moved" else 0)])
    judge(site)


async def test_task_that_fetches_a_request_holds_its_turn_and_others_wait_for_it(
    site: Linked, other: Linked, gate: Gatekeeper, manager: PoliteRequestManager
) -> None:
    client = PoliteHttpClient(manager, sender())
    for path, pages in (("/a", ["/a"]), ("/b", ["/a", "/b"])):
        await manager.add_request(f"{site.base}{path}")
        request = await fetched(manager)
        assert (await client.send_request(request.url)).status_code == 200
        assert (site.pages, turns(gate)) == (pages, 0)
        await manager.mark_request_as_handled(request)

    async def handle_another() -> None:
        await manager.mark_request_as_handled(await fetched(manager))
        await client.send_request(f"{site.base}/d")

    await manager.add_request(f"{site.base}/c")
    handled = await apart(fetched(manager))  # its handler requests the page by a client of its own
    await manager.add_request(f"{other.base}/a")
    another = apart(handle_another())
    await until(lambda: gate.statistics().waiting == 1)
    assert site.pages == ["/a", "/b"]
    await manager.mark_request_as_handled(handled)
    await another
    assert site.pages == ["/a", "/b", "/d"]


async def test_arguments_of_the_wrong_type_are_refused(gate: Gatekeeper, queue: RequestQueue) -> None:
    wrong: Any = UA
    with pytest.raises(ConfigurationError, match="PoliteRequestManager"):
        PoliteRequestManager(wrong, queue)
    with pytest.raises(ConfigurationError, match="inner="):
        PoliteRequestManager(gate, wrong)
    with pytest.raises(ConfigurationError, match="PoliteHttpClient"):
        PoliteHttpClient(wrong, sender())
    with pytest.raises(ConfigurationError, match="client="):
        PoliteHttpClient(gate, wrong)


# PlaywrightCrawler with the polite request manager and polite pages


GUIDE = (Path(__file__).parents[3] / "src/politesse/guides/crawlee.md").read_text()


@pytest.mark.full
@pytest.mark.parametrize("site_class", [HtmlSite])
async def test_browser_crawler_of_the_guide_uses_turns_of_the_manager_and_paces_what_its_handlers_request(
    site: HtmlSite, other: HtmlSite, queue: RequestQueue
) -> None:
    [code] = [block for block in re.findall(r"```py\n(.*?)```", GUIDE, re.DOTALL) if "def browser_crawler" in block]
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - our own guide
    launch = {"executable_path": chromium(), "chromium_sandbox": False}
    options: dict[str, Any] = {"browser_launch_options": launch, "max_request_retries": 0, "configure_logging": False}
    names["PlaywrightCrawler"] = partial(crawlers.PlaywrightCrawler, **options)
    site.html["/"] = "".join(f"<a href={path}>x</a>" for path in ("/a", "/moved", "/private/a", "/hidden"))
    site.redirects |= {"/moved": (302, f"{other.base}/b"), "/hidden": (302, "/private/b")}
    pages: list[tuple[str | None, str]] = []
    failed: list[tuple[str, type[Exception]]] = []
    refused: list[str] = []

    async def ask(context: Any) -> None:
        if context.request.url == f"{site.base}/a":
            for url in (f"{site.base}/api", f"{other.base}/api"):
                assert (await context.send_request(url)).status_code == 200
            try:
                await context.send_request(f"{site.base}/private/api")
            except Disallowed as error:
                refused.append(error.verdict.url)

    async def handle(context: Any) -> None:
        pages.append((context.request.loaded_url, await context.page.title()))
        await ask(context)
        await context.enqueue_links(strategy="all")

    async def fail(context: Any, error: Exception) -> None:
        failed.append((context.request.url, type(error)))

    async with slow_gate(0.2) as gate, PoliteRequestManager(gate, queue) as manager:
        crawler = names["browser_crawler"](manager)
        crawler.pre_navigation_hook(ask)
        crawler.router.default_handler(handle)
        crawler.failed_request_handler(fail)
        await crawler.run([Request.from_url(f"{site.base}/", headers={"X-Test": "of the request"})])
        assert turns(gate) == 0
    assert sorted(pages) == sorted([(f"{site.base}/", "/"), (f"{site.base}/a", "/a"), (f"{other.base}/b", "/b")])
    assert failed == [(f"{site.base}/hidden", Disallowed)]
    assert refused == [f"{site.base}/private/api"] * 2
    assert sorted(site.pages) == ["/", "/a", "/api", "/api", "/hidden", "/moved"]
    assert sorted(other.pages) == ["/api", "/api", "/b"]
    judge(site, other, min_delay_s=0.2)
