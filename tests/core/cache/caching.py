"""A cache with everything around it that its tests want to see."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from politesse import CacheOptions
from politesse._cache.codec import decode, encode
from politesse._cache.guarded_store import GuardedStore
from politesse._cache.record import Copy, Record
from politesse._cache.robots import Entry, RobotsCache
from politesse.events import ComponentFailed, Event, Publisher, RobotsFetched
from politesse.origin import Origin
from politesse.ports import Fetcher, FetchResponse, Store
from politesse.robots import Dialect
from politesse.stores.memory import MemoryStore
from politesse.testing import Answer, ManualClock, ScriptedFetcher
from politesse.verdict import AccessResult

DAY = 86_400.0
HOUR = 3_600.0
FILE = "User-agent: *\nDisallow: /private\n\nUser-agent: otherbot\nDisallow: /\n"
SITE = "https://example.com"
BOT = "examplebot"
OTHER = "otherbot"


class Bench:
    """A cache with everything around it that a test wants to see."""

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
        options = options or CacheOptions()
        self.scripted = ScriptedFetcher(answers)
        self.store = MemoryStore() if store is None else store
        self.events: list[Event] = []
        publisher = Publisher()
        publisher.subscribe(self.events.append)
        self.cache = RobotsCache(
            fetcher or self.scripted,
            GuardedStore(self.store, timeout_s=options.store_timeout_s, clock=self.clock),
            dialect=Dialect.RFC9309,
            policy=options.policy(Dialect.RFC9309),
            clock=self.clock,
            publisher=publisher,
            jitter=lambda: 0.0,
        )

    async def ask(self, site: str = SITE, agent: str = BOT) -> Entry:
        return await self.cache.entry(Origin.of(site), agent)

    def start(self, site: str = SITE, agent: str = BOT) -> asyncio.Task[Entry]:
        return asyncio.create_task(self.ask(site, agent))

    def fetched(self) -> list[RobotsFetched]:
        return [event for event in self.events if isinstance(event, RobotsFetched)]

    def failures(self) -> list[ComponentFailed]:
        return [event for event in self.events if isinstance(event, ComponentFailed)]


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
        await bench.cache.aclose()
    assert asyncio.all_tasks() == before


def file(body: str = FILE, **headers: str) -> FetchResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return FetchResponse(200, f"{SITE}/robots.txt", named, body.encode())


def not_modified(**headers: str) -> FetchResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return FetchResponse(304, f"{SITE}/robots.txt", named, conditional=True)


def status(status: int, **headers: str) -> FetchResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return FetchResponse(status, f"{SITE}/robots.txt", named)


async def stored(store: Store) -> Record:
    """Return the record of SITE in a store."""
    kept = await store.get(SITE)
    assert kept is not None
    return decode(kept, SITE)


async def store_copy(store: Store, url: str, etag: str, confirmed_wall: float) -> None:
    """Put a copy of FILE for SITE into a store."""
    copy = Copy(AccessResult.SUCCESSFUL, 200, url, FILE.encode(), etag, "", confirmed_wall, DAY)
    await store.put(SITE, encode(Record(copy, None), SITE))


def site_number(number: int) -> str:
    return f"https://host{number}.example"
