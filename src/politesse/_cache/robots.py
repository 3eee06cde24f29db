"""The robots.txt of every origin, asked for once, kept while it holds, asked for again behind the questions.

An Entry is what is known about one origin now, ready for decisions: it names the moments, on both clocks, from which it
is asked for again behind the questions, and from which it holds no longer. Whoever needs an origin that has
no valid entry waits for its flight: one task of the cache's own, shared by all who wait. A waiter that is cancelled
leaves the flight as it is.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import OrderedDict
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakValueDictionary

from politesse._cache.codec import decode, encode
from politesse._cache.entry import Entry
from politesse._cache.outcome import CLOCK_SKEW_S, Moment, Record, Standing, advance, is_closed, reckoned, standing
from politesse._cache.reading import ReadingThreads
from politesse._cache.revalidation import revalidate
from politesse._cache.single_flight import Flight, Flights
from politesse._constants import DAY_S
from politesse._pacing.pace import PACES_HELD, longest_stated_s
from politesse._tasks import ends_within, is_ended_from_outside
from politesse.clock import run_of
from politesse.errors import ClosedError, StoreError
from politesse.events import ComponentFailed, Event
from politesse.ports import FaultKind, FetchFault, FetchRequest
from politesse.robots import RobotsTxt
from politesse.stores.memory import MemoryStore
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine

    from politesse._cache.options import CacheOptions
    from politesse.clock import Clock
    from politesse.events import Publisher
    from politesse.origin import Origin
    from politesse.ports import Fetcher, FetchResult, Store
    from politesse.robots import Dialect, RuleSet
    from politesse.verdict import Source

Result = TypeVar("Result")

_PARSE_IN_THREAD_BYTES: Final = 8 * 1024  # 5 ms at worst (thousands of lines, URLs as rules): more would be felt


@dataclass(frozen=True, slots=True)
class RobotsFetched(Event):
    """robots.txt was asked for.

    Attributes:
        origin: whose.
        status: of the answer, None where there was none.
        fault: what went wrong, as a phrase, or empty.
        elapsed_s: how long it took, redirects and the wait for a place included.
        source: what holds now.
    """

    origin: Origin
    status: int | None
    fault: str
    elapsed_s: float
    source: Source


class _StoreIsLate(StoreError):
    """It took longer than ``store_timeout_s``."""


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
        reading: threads for large files, those of other keepers of files included; closed with the cache.
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
        self.reading = ReadingThreads()
        self._fetcher = fetcher
        self._store = store
        self._dialect = dialect
        self._max_bytes = options.max_entries_bytes
        self._policy = options.policy(dialect)
        self._clock = clock
        self._run = run_of(clock)
        self._foremost: Moment | None = None
        self._publisher = publisher
        self._jitter = jitter
        self._weight_bytes = 0
        self._flights: Flights[_Flight] = Flights()
        self._rule_sets: WeakValueDictionary[tuple[bytes, str], RuleSet] = WeakValueDictionary()
        self._store_timeout_s = options.store_timeout_s
        self._store_work: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._ending: list[asyncio.Task[None]] | None = None

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
        now_mono, now_wall = self._clock.monotonic(), self._clock.wall()
        if not entry.holds(now_mono, now_wall):
            return None
        entry.set_back(now_mono, now_wall)
        if entry.is_due(now_mono, now_wall):
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
            await self._in_store(self._store.delete(str(origin)))
        except StoreError as error:
            self._publisher.publish(ComponentFailed(origin, "store", error))

    def shut(self) -> None:
        """Answer nothing more, without waiting: pending and later questions raise ClosedError. Then call ``aclose``."""
        if not self._closed:
            self._closed = True
            self._ending = self._flights.close("the gatekeeper was closed while robots.txt was asked for")
            self.entries.clear()
            self._weight_bytes = 0

    async def aclose(self) -> None:
        """End all flights, then close the fetcher and the store, whatever happens on the way."""
        self.shut()
        ending, self._ending = self._ending, None
        if ending is None:
            return
        async with AsyncExitStack() as closing:  # the last one first
            closing.push_async_callback(self._close_store)
            closing.push_async_callback(self._fetcher.aclose)
            await asyncio.gather(*ending, return_exceptions=True)
            self.reading.close()

    async def _close_store(self) -> None:
        if self._store_work:
            ending = asyncio.gather(*self._store_work, return_exceptions=True)
            await ends_within(self._clock, self._store_timeout_s, ending)
        try:
            await self._in_store(self._store.aclose())
        except _StoreIsLate as error:
            self._publisher.publish(ComponentFailed(None, "store", error))

    async def _in_store(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return what the store answers; raises what it raises, and StoreError if it takes too long.

        A task of its own, so that a store that does not obey a cancellation holds up nobody. What it raises that is no
        Exception comes as a RuntimeError: a CancelledError of the store's own must not cancel those who wait.
        """
        if type(self._store) is MemoryStore:  # no subclass: of this one it is known that it never waits
            return await work
        task = asyncio.get_running_loop().create_task(work)
        self._store_work.add(task)
        task.add_done_callback(self._store_work.discard)
        if not await ends_within(self._clock, self._store_timeout_s, task):
            raise _StoreIsLate(f"the store took longer than store_timeout_s={self._store_timeout_s:g}")
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None or isinstance(error, Exception):
            return task.result()
        raise RuntimeError(f"the store raised {error!r}") from error

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
        task = asyncio.current_task()
        try:
            record, held, at_mono = await self._find(origin, flight, refresh=refresh)
            entry = await self._build(origin, record, held, at_mono, flight.agents)
            if record.copy is None:
                entry = self._kept_rather(entry)
        except BaseException as error:
            if is_ended_from_outside(error, task):
                raise
            # Whatever broke, those who wait get a verdict: the site is closed. They were not cancelled.
            self._land(origin, flight, self._closed_entry(origin, error))
            self._publisher.publish(ComponentFailed(origin, "cache", error))
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise  # asyncio raises these out of the event loop: they stop the program
        else:
            self._land(origin, flight, entry)

    def _land(self, origin: Origin, flight: _Flight, entry: Entry) -> None:
        self._keep(entry)
        self._flights.end(str(origin), flight)
        flight.land(entry)

    async def _find(self, origin: Origin, flight: _Flight, *, refresh: bool) -> tuple[Record, Standing, float]:
        """Return what is known about ``origin``, and when that was judged; asks if the store cannot tell."""
        record = await self._load(origin)
        if flight.forgotten:
            record = None
        if record is None:
            record = self._remembered(origin)  # the store forgot it, and the backoff must go on all the same
        if record is not None and not refresh:
            now = self._now()
            record = self._reckoned(record, now)
            held = standing(record, origin.robots_url, now.wall, self._policy)
            if held is not None:
                return record, held, now.mono
        return await self._ask(origin, record)

    async def _ask(self, origin: Origin, record: Record | None) -> tuple[Record, Standing, float]:
        validators = None if record is None else record.validators
        request = FetchRequest(origin, self._dialect.traits.outcomes.max_redirects, validators)
        started_mono = self._clock.monotonic()
        result = await revalidate(partial(fetch_guarded, self._fetcher, publisher=self._publisher), request)
        now = self._now()
        record = None if record is None else self._reckoned(record, now)
        record = replace(advance(record, result, now.wall, self._policy, self._jitter()), moment=now)
        held = self._held(origin, record, now.wall)
        await self._save(origin, record)
        closed = isinstance(result, FetchFault) and result.kind is FaultKind.HOST_CLOSED
        if not (closed and result.final_url == request.url):  # there nobody was asked
            self.fetches += 1
            self._publisher.publish(
                RobotsFetched(origin, result.status, held.source.fault, now.mono - started_mono, held.source)
            )
        return record, held, now.mono

    def _now(self) -> Moment:
        return Moment(self._run, self._clock.wall(), self._clock.monotonic())

    def _reckoned(self, record: Record, now: Moment) -> Record:
        """Return a record as old as it is by the clock that says more."""
        if record.moment is not None and record.moment.run == self._run:
            return reckoned(record, now)
        # How much time a record of another process has seen our monotonic clock does not tell. But the copy may be
        # older than it seems by as much as our wall clock is behind what it, or whoever dated such a copy, has shown.
        # Not so its trouble: that would have us ask sooner.
        ahead = now
        if record.copy is not None and now.wall < record.copy.confirmed_wall <= now.wall + CLOCK_SKEW_S:
            ahead = replace(now, wall=record.copy.confirmed_wall)
        if self._foremost is None or ahead.wall - ahead.mono > self._foremost.wall - self._foremost.mono:
            self._foremost = ahead
        aged = reckoned(replace(record, moment=self._foremost), now)
        return replace(aged, trouble=record.trouble, moment=now)

    def _remembered(self, origin: Origin) -> Record | None:
        """Return what the entry of ``origin`` knows of trouble."""
        known = self.entries.get(str(origin))
        if known is None or known.trouble is None:
            return None
        return Record(None, known.trouble, Moment(self._run, known.confirmed_wall, known.confirmed_mono))

    async def _load(self, origin: Origin) -> Record | None:
        try:
            kept = await self._in_store(self._store.get(str(origin)))
            return None if kept is None else decode(kept)
        except StoreError as error:
            self._publisher.publish(ComponentFailed(origin, "store", error))
            return None

    async def _save(self, origin: Origin, record: Record) -> None:
        try:
            await self._in_store(self._store.put(str(origin), encode(record)))
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
                compiled = await self.reading.run(lambda: _compile(body, self._dialect, origin, missing))
            else:
                compiled = _compile(body, self._dialect, origin, missing)
            for agent, rule_set in compiled.items():
                rules[agent] = self._rule_sets[digest, agent] = rule_set
        return rules

    def _closed_entry(self, origin: Origin, error: BaseException) -> Entry:
        now = self._now()
        record = self._remembered(origin)
        record = None if record is None else self._reckoned(record, now)
        fault = FetchFault(FaultKind.INTERNAL, f"the cache failed with {error!r:.200}", origin.robots_url)
        record = advance(record, fault, now.wall, self._policy, self._jitter())
        return Entry(origin, self._held(origin, record, now.wall), record.trouble, {}, now.mono)

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
        now = self._now()
        if entry.trouble is not None and is_closed(entry.trouble, now.wall, self._policy):
            return entry
        known.set_back(now.mono, now.wall)
        ends_mono, ends_wall, not_before = known.deadline_mono, known.deadline_wall, known.source.not_before
        if source.result is AccessResult.TOO_MANY_REQUESTS:
            fresh_until_wall = known.source.fresh_until_wall
            ends_mono = min(ends_mono, now.mono + (fresh_until_wall - now.wall))
            ends_wall, not_before = min(ends_wall, fresh_until_wall), source.not_before
        elif source.result is not AccessResult.UNREACHABLE:
            return entry
        if now.mono >= ends_mono or now.wall >= ends_wall:
            return entry
        known.trouble = entry.trouble
        known.deadline_mono, known.deadline_wall = ends_mono, ends_wall
        known.refresh_mono, known.refresh_wall = min(entry.deadline_mono, ends_mono), ends_wall
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
    """Ask once; whatever the fetcher raises is a fault, told as ComponentFailed; but what stops a program passes."""
    try:
        return await fetcher.fetch(request)
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        if is_ended_from_outside(error, asyncio.current_task()):
            raise
        # A user's fetcher may raise anything, a CancelledError of its own too, and all of it closes the gate.
        publisher.publish(ComponentFailed(request.origin, "fetcher", error))
        return FetchFault(FaultKind.INTERNAL, f"the fetcher raised {error!r:.200}", request.url)


def _for_its_pace(held: Standing, rules: Collection[RuleSet]) -> Standing:
    """Let a copy hold until a turn at the pace that it asks for can come, though for a day at most (RFC 9309 2.4).

    Else it would have run out whenever the turn has come, and no page would ever be requested. From the end of its own
    lifetime on it is asked for again behind the questions.
    """
    paced_until = held.at_wall + PACES_HELD * longest_stated_s(rules)
    until_wall = min(paced_until, held.source.fetched_wall + DAY_S)
    return held if until_wall <= held.until_wall else replace(held, until_wall=until_wall)


def _compile(body: bytes, dialect: Dialect, origin: Origin, agents: frozenset[str]) -> dict[str, RuleSet]:
    robots = RobotsTxt.parse(body, dialect, origin=origin)
    return {agent: robots.rules_for(agent.split(",")) for agent in agents}
