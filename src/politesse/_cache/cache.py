"""One cache for the files that sites keep at well-known paths: robots.txt, data.txt, tdmrep.json.

Theory of operation. A file is known by its key, and for each key there is at most one entry and at most one flight (one
task that loads or fetches, shared by all waiters). Three things can be true of a key:

    entry       question                                  renewal
    holds       answered at once                          starts a flight behind the answer, once it is due
    expired     waits for the flight, which starts        goes on from the record of the store, or of the entry
    unknown     waits for the flight, which starts        goes on from the record of the store, if there is one

A flight passes through these steps, and ends in a new entry whatever happens on the way:

    load -> the record still stands for something --------------------+
      |                                                               v
      +---> fetch -> ``advance`` (table of outcomes) -> save -> make the entry -> keep it, evict others -> answer
      |       |                                                       ^
      |       +-> refused: raised in all waiters, nothing is kept     |
      +-------------> any other exception: the outcome of a fault of kind INTERNAL, and ComponentFailed

- Cancelling a waiter does not end the flight. Only ``shut`` does: it raises ClosedError in all waiters.
- Waiters get the entry of the flight that they waited for even if its lifetime is over already.
- ``forget`` drops the entry. A flight under way goes on, but takes no record from the store any more.
- If other processes share the store and it leases, loading waits while one of them fetches the file (see
  ``leased_records``), and a refresh takes what another one has fetched meanwhile.
- Entries are bounded by bytes. Eviction is second chance: a hit sets ``used`` and moves nothing.

What differs from one kind of file to the other is in the last methods of FileCache, which its subclasses define: where
a record is kept, how a file is fetched, by which policy it is judged, what an entry is made of.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeVar

from politesse._cache.entry import FileEntry
from politesse._cache.fetching import internal_fault, revalidate
from politesse._cache.outcome import AccessPolicy, Standing, advance, standing
from politesse._cache.record import Moment, Reckoning, Record
from politesse._cache.single_flight import Flight, Flights
from politesse._tasks import is_ended_from_outside
from politesse.clock import Clock, run_of
from politesse.errors import ClosedError
from politesse.events import ComponentFailed, Publisher
from politesse.ports import Fetcher, FetchRequest, FetchResult

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from politesse.origin import Origin
    from politesse.ports import Lease
    from politesse.verdict import Source

EntryKind = TypeVar("EntryKind", bound=FileEntry)


class FileFlight(Flight[EntryKind]):
    """One renewal of one file.

    Attributes:
        key: of the file.
        origin: whose.
        path: which file.
        url: its URL.
        before: the entry at its start, if there was one.
        refreshes: whether the entry still serves, so that only what is newer than it will do.
        agents: whose questions the entry has to answer.
        forgotten: whether the file was forgotten since: the record in the store no longer counts.
        found: the record of the store, if it was judged to do when it was loaded.
        lease: under which the file is fetched; None for none.
    """

    __slots__ = ("agents", "before", "forgotten", "found", "key", "lease", "origin", "path", "refreshes", "url")

    def __init__(self, key: str, origin: Origin, path: str, before: EntryKind | None, *, refreshes: bool) -> None:
        super().__init__()
        self.key = key
        self.origin = origin
        self.path = path
        self.url = f"{origin}{path}"
        self.before = before
        self.agents = set() if before is None else {*before.agents}
        self.refreshes = refreshes
        self.forgotten = False
        self.found: Judged | None = None
        self.lease: Lease | None = None


class Judged(NamedTuple):
    """A record, and what it stood for when it was judged.

    Attributes:
        record: what the next attempt goes on from.
        standing: what it stands for.
        at_mono: when it was judged; its wall time is in the standing.
    """

    record: Record
    standing: Standing
    at_mono: float


class FileCache(ABC, Generic[EntryKind]):
    """See the module. Not thread-safe: it belongs to one event loop.

    Args:
        fetcher: makes the requests.
        policy: judges the answers.
        max_bytes: about how much memory the entries may take.
        clock: both clocks.
        publisher: receives ComponentFailed, and the events of the kind of file.
        jitter: returns 0 to 1, to spread retries.

    Attributes:
        entries: by key. The hot path reads it; only the cache changes it.
        weight_bytes: about how much memory the entries take; likewise.
    """

    what: ClassVar[str]
    """The kind of file, in words."""

    component: ClassVar[str]
    """The name of this cache in ComponentFailed."""

    refusals: ClassVar[tuple[type[Exception], ...]] = ()
    """What a fetch raises instead of fetching; raised in all waiters and not kept."""

    def __init__(
        self,
        fetcher: Fetcher,
        policy: AccessPolicy,
        max_bytes: int,
        clock: Clock,
        publisher: Publisher,
        jitter: Callable[[], float],
    ) -> None:
        self.entries: OrderedDict[str, EntryKind] = OrderedDict()
        self._fetcher = fetcher
        self._policy = policy
        self._max_bytes = max_bytes
        self._clock = clock
        self._run_id = run_of(clock)
        self._reckoning = Reckoning(self._run_id)
        self._publisher = publisher
        self._jitter = jitter
        self.weight_bytes = 0
        self._flights: Flights[FileFlight[EntryKind]] = Flights()
        self._closed = False
        self._ending: list[asyncio.Task[None]] | None = None

    @property
    def in_flight(self) -> int:
        """How many files are being loaded or fetched."""
        return len(self._flights)

    @property
    def being_fetched(self) -> dict[str, Origin]:
        """The origins whose files are being loaded or fetched, by key."""
        return {flight.key: flight.origin for flight in self._flights}

    def valid(self, key: str) -> EntryKind | None:
        """Return the entry of a key if it holds now; start a refresh behind it if that is due."""
        entry = self.entries.get(key)
        if entry is None:
            return None
        now_mono, now_wall = self._clock.monotonic(), self._clock.wall()
        if not entry.holds(now_mono, now_wall):
            return None
        entry.set_back(now_mono, now_wall)
        if entry.is_due(now_mono, now_wall):
            self._refresh_behind(key, entry)
        entry.used = True
        return entry

    def shut(self) -> None:
        """Answer nothing more, without waiting: pending and later questions raise ClosedError. Then call ``aclose``."""
        if not self._closed:
            self._closed = True
            self._ending = self._flights.close(f"the gatekeeper was closed while {self.what} was fetched")
            self.entries.clear()
            self.weight_bytes = 0

    async def aclose(self) -> None:
        """End all flights, then close what the cache owns, whatever happens on the way."""
        self.shut()
        ending, self._ending = self._ending, None
        if ending is not None:
            async with AsyncExitStack() as closing:  # the last one first
                self._close_owned_with(closing)
                await asyncio.gather(*ending, return_exceptions=True)

    async def _get(self, origin: Origin, path: str, agent: str = "") -> EntryKind:
        """Return a valid entry of a file that answers ``agent``; load or fetch it if need be."""
        key = self._key(origin, path)
        while True:
            if self._closed:
                raise ClosedError(f"{origin}{path} was requested after the gatekeeper was closed")
            entry = self.valid(key)
            if entry is not None and entry.answers(agent):
                return entry
            renewed = await self._flight(origin, path, agent).wait()
            if renewed.answers(agent):
                return renewed  # even if its lifetime is over already: it was fetched for this question

    def _flight(self, origin: Origin, path: str, agent: str) -> FileFlight[EntryKind]:
        """Return the flight of a file, with one agent more; start it if there is none."""
        flight = self._flights.get(self._key(origin, path)) or self._start(origin, path)
        flight.agents.add(agent)
        return flight

    def _drop(self, key: str) -> None:
        """Forget one file."""
        if (entry := self.entries.pop(key, None)) is not None:
            self.weight_bytes -= entry.let_go()
        if (flight := self._flights.get(key)) is not None:
            flight.forgotten = True

    def _refresh_behind(self, key: str, entry: EntryKind) -> None:
        if self._flights.get(key) is not None or self._closed:
            return
        try:
            self._start(entry.origin, entry.path, refresh=True)
        except RuntimeError:
            return  # called from outside the event loop: the next question from inside starts it

    def _start(self, origin: Origin, path: str, *, refresh: bool = False) -> FileFlight[EntryKind]:
        key = self._key(origin, path)
        flight = FileFlight(key, origin, path, self.entries.get(key), refreshes=refresh)
        return self._flights.start(key, flight, self._run(flight), f"{path[1:]} of {origin}")

    async def _run(self, flight: FileFlight[EntryKind]) -> None:
        task = asyncio.current_task()
        try:
            entry = await self._renewed(flight)
        except self.refusals as error:
            self._flights.end(flight.key, flight)
            flight.set_error(error)
        except BaseException as error:
            if is_ended_from_outside(error, task):
                raise
            # Whatever failed, the waiters get an answer, that of a fault. They were not cancelled.
            self._finish(flight, self._failed_entry(flight, error))
            self._publisher.publish(ComponentFailed(flight.origin, self.component, error))
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise  # asyncio raises these out of the event loop: they stop the program
        else:
            self._finish(flight, entry)
        finally:
            if flight.lease is not None:
                self._let_go(flight.origin, flight.lease)

    def _finish(self, flight: FileFlight[EntryKind], entry: EntryKind) -> None:
        self._keep(flight.key, entry)
        self._flights.end(flight.key, flight)
        flight.set_result(entry)

    async def _renewed(self, flight: FileFlight[EntryKind]) -> EntryKind:
        """Return an entry made of the record at hand; of a new answer, if that stands for nothing or for a refresh."""
        record, policy = await self._load(flight), self._policy
        found = flight.found
        if found is None and record is not None and not flight.refreshes:
            found = self._judged(flight, record)
        if found is not None:
            return await self._entry_of(flight, found, None)
        validators = None if record is None else record.validators
        request = FetchRequest(flight.origin, policy.outcomes.max_redirects, validators, flight.path)
        started_mono = self._clock.monotonic()
        answer = await (self._fetch(request) if validators is None else revalidate(self._fetch, request))
        judged = self._advanced(flight, record, answer)
        await self._save(flight, judged.record)
        self._publish(flight, answer, judged.standing.source, judged.at_mono - started_mono)
        return await self._entry_of(flight, judged, answer)

    def _judged(self, flight: FileFlight[EntryKind], record: Record) -> Judged | None:
        """Return what a record stands for now; None for nothing."""
        now = self._now()
        record = self._reckoning.reckoned(record, now)
        held = standing(record, flight.url, now.wall, self._policy)
        return None if held is None else Judged(record, held, now.mono)

    def _failed_entry(self, flight: FileFlight[EntryKind], error: BaseException) -> EntryKind:
        fault = internal_fault("the cache", error, flight.url)
        return self._entry_of_failure(flight, self._advanced(flight, self._remembered(flight), fault))

    def _advanced(self, flight: FileFlight[EntryKind], record: Record | None, answer: FetchResult) -> Judged:
        """Return the record after an answer."""
        now, policy = self._now(), self._policy
        record = None if record is None else self._reckoning.reckoned(record, now)
        record = advance(record, answer, now.wall, policy, self._jitter())
        record = Record(record.copy, record.trouble, now)
        held = standing(record, flight.url, now.wall, policy)
        if held is None:
            raise AssertionError(f"{record} stands for nothing")  # each row of ``advance`` holds for some time
        return Judged(record, held, now.mono)

    def _remembered(self, flight: FileFlight[EntryKind]) -> Record | None:
        """Return the record of the entry that the flight renews."""
        return None if flight.before is None or flight.forgotten else flight.before.record

    def _now(self) -> Moment:
        """Return a reading of both clocks."""
        return Moment(self._run_id, self._clock.wall(), self._clock.monotonic())

    def _keep(self, key: str, entry: EntryKind) -> None:
        """Replace the entry of a key; evict others, the least recently used first, while all are too large."""
        if self._closed:
            return
        if (before := self.entries.pop(key, None)) is not None:
            self.weight_bytes -= before.let_go()
        self.weight_bytes += entry.take_up()
        self.entries[key] = entry
        while self.weight_bytes > self._max_bytes and len(self.entries) > 1:
            # Second chance: an entry that was used since it was last passed is passed once more.
            oldest_key, oldest = self.entries.popitem(last=False)
            if oldest.used or oldest is entry:
                oldest.used = False
                self.entries[oldest_key] = oldest
            else:
                self.weight_bytes -= oldest.let_go()

    # Hooks for the kinds of files.

    def _key(self, origin: Origin, path: str) -> str:
        return f"{origin}{path}"

    async def _load(self, flight: FileFlight[EntryKind]) -> Record | None:
        """Return the record to go on from, if there is one."""
        return self._remembered(flight)

    async def _save(self, flight: FileFlight[EntryKind], record: Record) -> None:
        """Keep a new record elsewhere than in its entry."""

    def _let_go(self, origin: Origin, lease: Lease) -> None:
        """End a lease under which no record was kept."""

    def _fetch(self, request: FetchRequest) -> Coroutine[object, object, FetchResult]:
        """Return what makes one request; awaited, it may raise one of ``refusals``."""
        return self._fetcher.fetch(request)

    def _close_owned_with(self, closing: AsyncExitStack) -> None:
        """Have ``closing`` close what the cache owns."""

    @abstractmethod
    def _publish(self, flight: FileFlight[EntryKind], answer: FetchResult, source: Source, elapsed_s: float) -> None:
        """Publish that the file was fetched, and what holds now."""

    @abstractmethod
    async def _entry_of(self, flight: FileFlight[EntryKind], judged: Judged, answer: FetchResult | None) -> EntryKind:
        """Return the entry of a record; ``answer`` is the one that has just come, if one has."""

    @abstractmethod
    def _entry_of_failure(self, flight: FileFlight[EntryKind], judged: Judged) -> EntryKind:
        """Return the entry of a record whose last answer is an internal fault. It must not raise."""
