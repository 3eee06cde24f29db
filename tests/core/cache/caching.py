"""The cache of a gate, with everything around it that its tests want to see."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from politesse import CacheOptions, Gatekeeper, PacingOptions
from politesse.events import ComponentFailed, Event, RobotsFetched
from politesse.options import SharedPacer
from politesse.origin import Origin
from politesse.ports import Fetcher, FetchResponse, Store
from politesse.testing import Answer, ManualClock, ScriptedFetcher

DAY = 86_400.0
HOUR = 3_600.0
FILE = "User-agent: *\nDisallow: /private\n\nUser-agent: otherbot\nDisallow: /\n"
NEW_FILE = "User-agent: *\nDisallow: /new\n"
SITE = "https://example.com"
UA = "ExampleBot/1.0 (+https://example.com/bot)"
BOT = "examplebot"
OTHER = "otherbot"


class Bench:
    """A gate of a process of its own; its waits have no jitter."""

    usual_store: ClassVar[Callable[[], Store | None]] = staticmethod(lambda: None)

    def __init__(
        self,
        answers: dict[str, Answer | list[Answer]] | None = None,
        *,
        fetcher: Fetcher | None = None,
        store: Store | None = None,
        options: CacheOptions | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.scripted = ScriptedFetcher(answers)
        self.store: Any = Bench.usual_store() if store is None else store
        self.events: list[Event] = []
        pacer = SharedPacer(PacingOptions(scope="process"), clock=self.clock)
        fetcher = fetcher or self.scripted
        self.gate = Gatekeeper(UA, fetcher=fetcher, store=self.store, clock=self.clock, cache=options, pacer=pacer)
        self.gate.subscribe(self.events.append)
        self.cache = self.gate.state.cache
        self.cache._jitter = lambda: 0.0

    # The entry of the cache is Any, for its type has no public name.
    async def ask(self, site: str = SITE, agent: str = BOT) -> Any:
        return await self.cache.entry(Origin.of(site), agent)

    def start(self, site: str = SITE, agent: str = BOT) -> asyncio.Task[Any]:
        return asyncio.create_task(self.ask(site, agent))

    async def ask_after(self, seconds: float) -> Any:
        """Ask, and let what that begins in the background end."""
        self.clock.advance(seconds)
        entry = await self.ask()
        for _ in range(5):
            await asyncio.sleep(0)
        return entry

    def fetched(self) -> list[RobotsFetched]:
        return [event for event in self.events if isinstance(event, RobotsFetched)]

    def failures(self) -> list[ComponentFailed]:
        """Those that concern SITE; the records of its host may fail, too."""
        failures = [event for event in self.events if isinstance(event, ComponentFailed)]
        return [failure for failure in failures if failure.origin == Origin.of(SITE)]


@asynccontextmanager
async def caching(
    answers: dict[str, Answer | list[Answer]] | None = None,
    *,
    fetcher: Fetcher | None = None,
    store: Store | None = None,
    options: CacheOptions | None = None,
    clock: ManualClock | None = None,
) -> AsyncIterator[Bench]:
    before = asyncio.all_tasks()
    bench = Bench(answers, fetcher=fetcher, store=store, options=options, clock=clock)
    try:
        yield bench
    finally:
        await bench.gate.aclose()
    assert asyncio.all_tasks() == before


def file(body: str = FILE, **headers: str) -> FetchResponse:
    return status(200, body, **headers)


def not_modified(**headers: str) -> FetchResponse:
    return FetchResponse(304, f"{SITE}/robots.txt", _named(headers), conditional=True)


def status(status: int, body: str = "", **headers: str) -> FetchResponse:
    return FetchResponse(status, f"{SITE}/robots.txt", _named(headers), body.encode())


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


async def is_kept(store: Store, body: str = FILE) -> bool:
    """Tell whether the next gate finds a file of SITE in a store."""
    async with caching(store=store) as bench:
        entry = await bench.ask()
        return not bench.scripted.requests and entry.rules[BOT].allowed("/private") == ("/private" not in body)


def site_number(number: int) -> str:
    return f"https://host{number}.example"
