"""The robots.txt of every origin, asked for once, kept while it holds, asked for again behind the questions.

An Entry is what is known about one origin now, ready for decisions: it names the moments, on the monotonic clock, from
which it is asked for again behind the questions, and from which it holds no longer. Whoever needs an origin that has
no valid entry waits for its flight: one task of the cache's own, shared by all who wait. A waiter that is cancelled
leaves the flight as it is.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from politesse.access.entry import Entry
from politesse.access.flights import Flight, Flights
from politesse.access.outcome import Record, Standing, advance, is_closed, standing
from politesse.errors import ClosedError, StoreError
from politesse.events import ComponentFailed, Event
from politesse.pacing.pace import PACES_HELD, longest_stated_s
from politesse.ports import FaultKind, FetchFault, FetchRequest
from politesse.robots import RobotsTxt
from politesse.stores.record import decode, encode
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from politesse.access.options import CacheOptions
    from politesse.clock import Clock
    from politesse.events import Publisher
    from politesse.origin import Origin
    from politesse.ports import Fetcher, FetchResult, Store
    from politesse.robots import Dialect, RuleSet
    from politesse.verdict import Source

_DAY_S: Final = 86_400.0
_PARSE_IN_THREAD_BYTES: Final = 8 * 1024  # 5 ms at worst (thousands of lines, URLs as rules): more would be felt


@dataclass(frozen=True, slots=True)
class RobotsFetched(Event):
    """robots.txt was asked for.

    Attributes:
        origin: whose.
        status: of the answer, None where there was none.
        fault: what went wrong, as a phrase, or empty.
        elapsed_s: how long it took.
        source: what holds now.
    """

    origin: Origin
    status: int | None
    fault: str
    elapsed_s: float
    source: Source


class _Flight(Flight[Entry]):
    """One request for one robots.txt, and those who wait for it."""

    __slots__ = ("agents", "forgotten")

    def __init__(self, agents: set[str]) -> None:
        super().__init__()
        self.agents = agents
        self.forgotten = False  # from now on what the store holds is of no use


class RobotsCache:
    """See the module. Not thread-safe: it belongs to one event loop.

    An agent is named by its product tokens, the most specific first, joined by commas.

    Args:
        fetcher: asks for robots.txt; closed with the cache.
        store: keeps records; closed with the cache.
        dialect: how files and statuses are read.
        options: see CacheOptions.
        clock: both clocks.
        publisher: receives RobotsFetched and ComponentFailed.
        jitter: returns 0 to 1, to spread retries.

    Attributes:
        entries: by origin as text. The hot path reads it; nobody else writes it.
        fetches: how often robots.txt was asked for.
        normalise: brings a request target to the form that the rules compare.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        store: Store,
        *,
        dialect: Dialect,
        options: CacheOptions,
        clock: Clock,
        publisher: Publisher,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.entries: OrderedDict[str, Entry] = OrderedDict()
        self.fetches = 0
        self.normalise = dialect.traits.matching.normalise_target
        self._fetcher = fetcher
        self._store = store
        self._dialect = dialect
        self._max_bytes = options.max_entries_bytes
        self._policy = options.policy(dialect)
        self._clock = clock
        self._publisher = publisher
        self._jitter = jitter
        self._weight_bytes = 0
        self._flights: Flights[_Flight] = Flights()
        self._rule_sets: WeakValueDictionary[tuple[bytes, str], RuleSet] = WeakValueDictionary()
        self._slots = asyncio.Semaphore(options.max_concurrent_fetches)
        self._closed = False
        self._closing: asyncio.Future[None] | None = None

    @property
    def in_flight(self) -> int:
        """How many origins are being asked."""
        return len(self._flights)

    @property
    def weight_bytes(self) -> int:
        """About how much memory the entries take."""
        return self._weight_bytes

    def valid(self, key: str) -> Entry | None:
        """Return the entry of an origin if it holds now; has it asked for again behind, if that is due."""
        entry = self.entries.get(key)
        if entry is None:
            return None
        now_mono = self._clock.monotonic()
        if now_mono >= entry.deadline_mono:
            return None
        if now_mono >= entry.refresh_mono:
            self._refresh_behind(entry)
        entry.used = True
        return entry

    async def entry(self, origin: Origin, agent: str) -> Entry:
        """Return a valid entry of ``origin`` that answers ``agent``, asking for robots.txt if need be.

        Raises ClosedError, WrongEventLoop.
        """
        key = str(origin)
        while True:
            if self._closed:
                raise ClosedError(f"robots.txt of {origin} was asked about after the gatekeeper was closed")
            entry = self.valid(key)
            if entry is not None and entry.answers(agent):
                return entry
            flight = self._flights.get(key) or self._take_off(origin, agent)
            flight.agents.add(agent)
            landed = await flight.wait()
            if landed.answers(agent):
                # Good for this question even if its lifetime is over already: it was got for it.
                return landed

    def ask_ahead(self, origin: Origin, agent: str) -> None:
        """Have an entry made that answers ``agent``, without waiting for it."""
        if not self._closed:
            (self._flights.get(str(origin)) or self._take_off(origin, agent)).agents.add(agent)

    async def forget(self, origin: Origin) -> None:
        """Drop what is known about ``origin``: the next question asks for its robots.txt, or waits for who does."""
        entry = self.entries.pop(str(origin), None)
        if entry is not None:
            self._weight_bytes -= entry.weight_bytes
        if (flight := self._flights.get(str(origin))) is not None:
            flight.forgotten = True
        try:
            await self._store.delete(str(origin))
        except StoreError as error:
            self._publisher.publish(ComponentFailed(origin, "store", error))

    async def aclose(self) -> None:
        """End all flights; whoever waits for one gets ClosedError. Closes the fetcher and the store."""
        if self._closing is None:
            self._closed = True
            tasks = self._flights.close("the gatekeeper was closed while robots.txt was asked for")
            self._closing = asyncio.ensure_future(self._close(tasks))
        await asyncio.shield(self._closing)  # who gives up waiting for it does not leave it half done

    async def _close(self, tasks: list[asyncio.Task[None]]) -> None:
        await asyncio.gather(*tasks, return_exceptions=True)
        self.entries.clear()
        self._weight_bytes = 0
        try:
            await self._fetcher.aclose()
        finally:
            await self._store.aclose()

    def _refresh_behind(self, entry: Entry) -> None:
        if self._flights.get(str(entry.origin)) is not None or self._closed:
            return
        try:
            self._take_off(entry.origin, refresh=True)
        except RuntimeError:
            return  # asked from outside the event loop: the next question from inside starts it

    def _take_off(self, origin: Origin, agent: str | None = None, *, refresh: bool = False) -> _Flight:
        known = self.entries.get(str(origin))
        agents = set() if known is None else set(known.rules)
        flight = _Flight(agents if agent is None else agents | {agent})
        work = self._fly(origin, flight, refresh=refresh)
        return self._flights.take_off(str(origin), flight, work, f"robots.txt of {origin}")

    async def _fly(self, origin: Origin, flight: _Flight, *, refresh: bool) -> None:
        try:
            record, held, at_mono = await self._find(origin, flight, refresh=refresh)
            entry = await self._build(origin, record, held, at_mono, flight.agents)
            if record.copy is None:
                entry = self._kept_rather(entry)
        except Exception as error:  # noqa: BLE001 - whatever broke, those who wait are told that the gate is closed
            self._publisher.publish(ComponentFailed(origin, "cache", error))
            entry = self._closed_entry(origin, error)
        self._keep(entry)
        self._flights.end(str(origin), flight)
        flight.land(entry)

    async def _find(self, origin: Origin, flight: _Flight, *, refresh: bool) -> tuple[Record, Standing, float]:
        """Return what is known about ``origin``, and when that was judged; asks if the store cannot tell."""
        record = await self._load(origin)
        if flight.forgotten:
            record = None
        known = self.entries.get(str(origin))
        if record is None and known is not None and known.trouble is not None:
            record = Record(None, known.trouble)  # the store forgot it, and the backoff must go on all the same
        if record is not None and not refresh:
            at_mono = self._clock.monotonic()
            held = standing(record, origin.robots_url, self._clock.wall(), self._policy)
            if held is not None:
                return record, held, at_mono
        return await self._ask(origin, record)

    async def _ask(self, origin: Origin, record: Record | None) -> tuple[Record, Standing, float]:
        validators = None if record is None else record.validators
        request = FetchRequest(origin, self._dialect.traits.outcomes.max_redirects, validators)
        async with self._slots:
            started_mono = self._clock.monotonic()
            result = await fetch_guarded(self._fetcher, request, self._publisher)
            at_mono = self._clock.monotonic()
        now_wall = self._clock.wall()
        record = advance(record, result, now_wall, self._policy, self._jitter())
        held = self._held(origin, record, now_wall)
        await self._save(origin, record)
        if not (isinstance(result, FetchFault) and result.kind is FaultKind.HOST_CLOSED):  # there nobody was asked
            self.fetches += 1
            self._publisher.publish(
                RobotsFetched(origin, result.status, held.source.fault, at_mono - started_mono, held.source)
            )
        return record, held, at_mono

    async def _load(self, origin: Origin) -> Record | None:
        try:
            kept = await self._store.get(str(origin))
            return None if kept is None else decode(kept)
        except StoreError as error:
            self._publisher.publish(ComponentFailed(origin, "store", error))
            return None

    async def _save(self, origin: Origin, record: Record) -> None:
        try:
            await self._store.put(str(origin), encode(record))
        except StoreError as error:
            self._publisher.publish(ComponentFailed(origin, "store", error))

    async def _build(self, origin: Origin, record: Record, held: Standing, at_mono: float, agents: set[str]) -> Entry:
        rules: dict[str, RuleSet] = {}
        if held.source.result is AccessResult.SUCCESSFUL and record.copy is not None:
            rules = await self._rules(record.copy.body, origin, frozenset(agents))
            held = held if record.trouble is not None else _for_its_pace(held, rules.values())
        return Entry(origin, held, record.trouble, rules, at_mono)

    async def _rules(self, body: bytes, origin: Origin, agents: frozenset[str]) -> dict[str, RuleSet]:
        """Return the rules of ``agents``, those of another origin with the same file where there are any."""
        digest = hashlib.blake2b(body, digest_size=16).digest()
        if self._dialect.traits.matching.of_site:
            digest += str(origin).encode()  # there the same file says something else to another site
        shared = {agent: self._rule_sets.get((digest, agent)) for agent in agents}
        rules = {agent: rule_set for agent, rule_set in shared.items() if rule_set is not None}
        missing = agents - rules.keys()
        if missing:
            if len(body) * len(missing) > _PARSE_IN_THREAD_BYTES:
                compiled = await asyncio.to_thread(_compile, body, self._dialect, origin, missing)
            else:
                compiled = _compile(body, self._dialect, origin, missing)
            for agent, rule_set in compiled.items():
                rules[agent] = self._rule_sets[digest, agent] = rule_set
        return rules

    def _closed_entry(self, origin: Origin, error: Exception) -> Entry:
        known = self.entries.get(str(origin))
        record = None if known is None else Record(None, known.trouble)
        fault = FetchFault(FaultKind.INTERNAL, f"the cache failed with {error!r:.200}", origin.robots_url)
        now_wall = self._clock.wall()
        record = advance(record, fault, now_wall, self._policy, self._jitter())
        return Entry(origin, self._held(origin, record, now_wall), record.trouble, {}, self._clock.monotonic())

    def _held(self, origin: Origin, record: Record, now_wall: float) -> Standing:
        """Return what a record stands for at the moment it was made: never nothing."""
        held = standing(record, origin.robots_url, now_wall, self._policy)
        if held is None:
            raise AssertionError(f"{record} stands for nothing")
        return held

    def _kept_rather(self, entry: Entry) -> Entry:
        """Return the copy that trouble is to replace, if it may serve on: the store forgot it, but we have it still.

        As in the table of outcomes: while robots.txt is unreachable until its deadline, after a 429 while it is fresh.
        """
        known, source = self.entries.get(str(entry.origin)), entry.source
        if known is None or known.source.result is not AccessResult.SUCCESSFUL:
            return entry
        if entry.trouble is not None and is_closed(entry.trouble, self._clock.wall(), self._policy):
            return entry
        now_mono = self._clock.monotonic()
        deadline_mono, not_before = known.deadline_mono, known.source.not_before
        if source.result is AccessResult.TOO_MANY_REQUESTS:
            fresh_for_s = known.source.fresh_until_wall - self._clock.wall()
            deadline_mono, not_before = min(deadline_mono, now_mono + fresh_for_s), source.not_before
        elif source.result is not AccessResult.UNREACHABLE:
            return entry
        if now_mono >= deadline_mono:
            return entry
        known.trouble = entry.trouble
        known.deadline_mono = deadline_mono
        known.refresh_mono = min(entry.deadline_mono, deadline_mono)
        known.source = replace(known.source, fault=source.fault, not_before=not_before)
        return known

    def _keep(self, entry: Entry) -> None:
        """Put ``entry`` in place of the one before; let go of others, the least recently used first, if need be."""
        if self._closed:
            return
        before = self.entries.pop(str(entry.origin), None)
        self._weight_bytes += entry.weight_bytes - (0 if before is None else before.weight_bytes)
        self.entries[str(entry.origin)] = entry
        while self._weight_bytes > self._max_bytes and len(self.entries) > 1:
            # Second chance: one that was used since it was last passed is passed once more.
            key, oldest = self.entries.popitem(last=False)
            if oldest.used or oldest is entry:
                oldest.used = False
                self.entries[key] = oldest
            else:
                self._weight_bytes -= oldest.weight_bytes


async def fetch_guarded(fetcher: Fetcher, request: FetchRequest, publisher: Publisher) -> FetchResult:
    """Ask once; whatever the fetcher raises is a fault, told as ComponentFailed."""
    try:
        return await fetcher.fetch(request)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Nobody cancelled us: it is the fetcher's own, and those who wait were not cancelled either.
        return FetchFault(FaultKind.INTERNAL, f"the fetcher raised {error!r}", request.url)
    except Exception as error:  # noqa: BLE001 - a user's fetcher may raise anything, and all of it closes the gate
        publisher.publish(ComponentFailed(request.origin, "fetcher", error))
        return FetchFault(FaultKind.INTERNAL, f"the fetcher raised {error!r:.200}", request.url)


def _for_its_pace(held: Standing, rules: Collection[RuleSet]) -> Standing:
    """Let a copy hold until a turn at the pace that it asks for can come, though for a day at most (RFC 9309 2.4).

    Else it would have run out whenever the turn has come, and no page would ever be requested. From the end of its own
    lifetime on it is asked for again behind the questions.
    """
    paced_until = held.at_wall + PACES_HELD * longest_stated_s(rules)
    until_wall = min(paced_until, held.source.fetched_wall + _DAY_S)
    return held if until_wall <= held.until_wall else replace(held, until_wall=until_wall)


def _compile(body: bytes, dialect: Dialect, origin: Origin, agents: frozenset[str]) -> dict[str, RuleSet]:
    robots = RobotsTxt.parse(body, dialect, origin=origin)
    return {agent: robots.rules_for(agent.split(",")) for agent in agents}
