"""A cache for the files that sites keep at well-known paths: robots.txt, data.txt, tdmrep.json.

Theory of operation. A file has a key. Each key has at most one entry and at most one flight: a task that loads or
fetches the file, shared by all waiters. A key is in one of three states:

    entry       a lookup                                  the renewal of the entry
    valid       is answered at once                       starts after the answer, once it is due
    expired     waits for the flight, which starts        starts from the record of the store, or of the entry
    unknown     waits for the flight, which starts        starts from the record of the store, if any

A flight passes through these steps. It ends in a new entry, unless the request is refused:

    load -> the record is still usable -------------------------------+
      |                                                               v
      +---> fetch -> ``advance`` (table of outcomes) -> save -> make the entry -> keep it, evict others -> answer
      |       |                                                       ^
      |       +-> refused: raised in all waiters, no entry is kept     |
      +-------------> any other exception: the outcome of a fault of kind INTERNAL, and ComponentFailed

- Cancelling a waiter does not end the flight. ``shut`` ends all flights, and raises ClosedError in all waiters.
- Waiters get the entry of their flight even if the lifetime of the entry is over already.
- ``forget`` drops the entry. A flight under way goes on, but ignores the record in the store from then on.
- A record of the store is used only if it is not older than the record of the entry: the store may have lost a write.
- If several processes share a LeasingStore, a load waits while another process fetches the file (see ``records``), and
  a refresh uses a record that another process has stored meanwhile.
- The total size of the entries is limited. The eviction is "second chance": a hit only sets ``used``, and does not move
  the entry. As long as a task or a queue holds an evicted entry, it is found again. So each of many waiters goes on,
  even if the cache has room for one entry only.

Each kind of file has a subclass of FileCache. The subclass overrides the hooks at the end of FileCache: how to fetch a
file, which events to publish, how to make an entry.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections import OrderedDict
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Generic
from weakref import WeakValueDictionary

from politesse._base.tasks import is_ended_from_outside
from politesse._cache.entry import EntryKind, FileFlight, Flights, Judged
from politesse._cache.fetching import internal_fault
from politesse._cache.outcome import advance, as_read, standing, was_open
from politesse._cache.record import ClockCorrection, Moment, Record, is_before
from politesse._cache.records import Records
from politesse._http.freshness import names_another
from politesse.clock import Clock, run_of
from politesse.errors import ClosedError
from politesse.events import ComponentFailed, Publisher
from politesse.ports import Fetcher, FetchRequest, FetchResponse, FetchResult
from politesse.verdict import AccessResult, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from politesse._cache.entry import Kept
    from politesse._cache.options import AccessPolicy
    from politesse.origin import Origin


_OPEN: Final = frozenset({AccessResult.SUCCESSFUL, AccessResult.UNAVAILABLE})
_NOT_DUE_S: Final = 1.0  # a refresh ignores a stored record that is due within this time, because clocks differ


class FileCache(ABC, Generic[EntryKind]):
    """Keeps the entries of files; see the module. Not thread-safe: a cache belongs to one event loop.

    Args:
        fetcher: makes the requests.
        policy: judges the answers.
        max_bytes: about how much memory the entries may take.
        clock: the wall clock and the monotonic clock.
        publisher: receives ComponentFailed, and the events about this kind of file.
        jitter: returns a number from 0 to 1, which spreads retries.
        records: keeps records beside the entries; closed with the cache.

    Attributes:
        entries: maps keys to entries. The hot path reads this dict; only the cache changes it.
        weight_bytes: about how much memory the entries take; only the cache changes it.
        kept: called with the source of each new entry, its file and the headers of the answer; or None.
    """

    what: ClassVar[str]
    """The kind of file, in words."""

    component: ClassVar[str]
    """The name of this cache in ComponentFailed."""

    refusals: ClassVar[tuple[type[Exception], ...]] = ()
    """The exceptions with which a fetcher refuses to fetch. All waiters raise them, and no entry is made."""

    def __init__(
        self,
        fetcher: Fetcher,
        policy: AccessPolicy,
        max_bytes: int,
        clock: Clock,
        publisher: Publisher,
        jitter: Callable[[], float] = random.random,
        records: Records | None = None,
    ) -> None:
        self.entries: OrderedDict[str, EntryKind] = OrderedDict()
        self._evicted: WeakValueDictionary[str, EntryKind] = WeakValueDictionary()
        self._fetcher = fetcher
        self._policy = policy
        self._max_bytes = max_bytes
        self._clock = clock
        self._run_id = run_of(clock)
        self._clocks = ClockCorrection(self._now())
        self._publisher = publisher
        self._jitter = jitter
        self._records = records or Records()
        self.weight_bytes: int = 0
        self.kept: Kept | None = None
        self._flights: Flights[FileFlight[EntryKind]] = Flights()
        self._closed = False
        self._ending: list[asyncio.Task[None]] | None = None

    @property
    def in_flight(self) -> int:
        """How many files are being loaded or fetched."""
        return len(self._flights)

    @property
    def being_fetched(self) -> dict[str, Origin]:
        """A mapping from the keys of files that are being loaded or fetched to their origins."""
        return {flight.key: flight.origin for flight in self._flights.values()}

    def held(self, key: str) -> EntryKind | None:
        """Return the entry of a key, or an evicted entry that a task or a queue still holds."""
        return self.entries.get(key) or self._evicted.get(key)

    def valid(self, key: str) -> EntryKind | None:
        """Return the entry of a key if it is valid now; start a refresh in the background if one is due."""
        entry = self.held(key)
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
        """Stop answering at once: waiting and later calls raise ClosedError. Afterwards call ``aclose``."""
        if not self._closed:
            self._closed = True
            self._ending = self._flights.close(f"the gatekeeper was closed while {self.what} was fetched")
            self.entries.clear()
            self._evicted.clear()
            self.weight_bytes = 0

    async def aclose(self) -> None:
        """End all flights, then close all owned parts, even if a part raises an error."""
        self.shut()
        ending, self._ending = self._ending, None
        if ending is not None:
            async with AsyncExitStack() as closing:  # the stack closes the last part first
                closing.push_async_callback(self._records.aclose)
                self._close_owned_with(closing)
                await asyncio.gather(*ending, return_exceptions=True)

    async def _get(self, origin: Origin, path: str, agent: str = "") -> EntryKind:
        """Return the valid entry of a file, with an answer for ``agent``; load or fetch the file if necessary."""
        key = self._key(origin, path)
        while True:
            if self._closed:
                raise ClosedError(f"{origin}{path} was requested after the gatekeeper was closed")
            entry = self.valid(key)
            if entry is not None and entry.answers(agent):
                return entry
            renewed = await self._flight(key, origin, path, agent).wait()
            if renewed.answers(agent):
                return renewed  # made for this call, so it is used even if its lifetime is over

    def _flight(self, key: str, origin: Origin, path: str, agent: str) -> FileFlight[EntryKind]:
        """Return the flight of a file, and start it if necessary; its new entry will have an answer for ``agent``."""
        flight = self._flights.get(key) or self._start(key, origin, path)
        flight.agents.add(agent)
        return flight

    def _drop(self, key: str) -> None:
        """Forget one file."""
        if (entry := self.entries.pop(key, None)) is not None:
            self.weight_bytes -= entry.release()
        self._evicted.pop(key, None)
        if (flight := self._flights.get(key)) is not None:
            flight.forgotten = True

    def _refresh_behind(self, key: str, entry: EntryKind) -> None:
        if self._flights.get(key) is not None or self._closed:
            return
        try:
            self._start(key, entry.origin, entry.path, refresh=True)
        except RuntimeError:
            return  # no event loop is running; the next lookup in the loop starts the refresh

    def _start(self, key: str, origin: Origin, path: str, *, refresh: bool = False) -> FileFlight[EntryKind]:
        before = self.held(key)
        agents = set() if before is None else {*before.agents}
        flight = FileFlight(key, origin, path, origin.text + path, before, agents, refresh)
        return self._flights.start(key, flight, self._run(flight), f"{path[1:]} of {origin.text}")

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
            # A part has failed, and the task was not cancelled from outside. The waiters get a fault as the answer.
            fault = internal_fault("the cache", error, flight.url)
            failure = self._advanced(flight, self._remembered(flight), fault)
            self._finish(flight, self._entry_of_failure(flight, failure))
            self._publisher.publish(ComponentFailed(flight.origin, self.component, error))
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise  # asyncio raises these exceptions out of the event loop, to stop the program
        else:
            self._finish(flight, entry)
        finally:
            if flight.lease is not None:
                self._records.release(flight.origin, flight.lease)

    def _finish(self, flight: FileFlight[EntryKind], entry: EntryKind) -> None:
        entry.known = flight.known
        self._keep(flight.key, entry)
        self._flights.end(flight.key, flight)
        if self.kept is not None:
            flight.tell(self.kept, entry.source)
        flight.set_result(entry)

    async def _renewed(self, flight: FileFlight[EntryKind]) -> EntryKind:
        """Return the entry of the stored record, or of a new answer if the record is useless or a refresh is due."""
        record, known = await self._load(flight)
        if known is not None:
            flight.copy = known.record.copy
            return await self._entry_of(flight, known)
        validators = None if record is None else record.validators
        request = FetchRequest(
            flight.origin,
            self._policy.outcomes.max_redirects,
            validators,
            flight.path,
            refresh=flight.refreshes or self._was_open(flight, record),
        )
        started_mono = self._clock.monotonic()
        answer = await self._fetch(request)
        if validators is not None and names_another(answer, validators):  # the 304 is about a file other than the copy
            answer = await self._fetch(replace(request, validators=None))
            if isinstance(answer, FetchResponse):
                answer = replace(answer, conditional=False)  # a 304 to this request must not confirm the copy
        judged = self._advanced(flight, record, answer)
        flight.copy, flight.answer = judged.record.copy, answer
        await self._records.save(flight.origin, judged.record, flight.lease)
        flight.lease = None
        self._publish(flight, answer, judged.standing.source, judged.at_mono - started_mono)
        return await self._entry_of(flight, judged)

    async def _load(self, flight: FileFlight[EntryKind]) -> tuple[Record | None, Judged | None]:
        """Return the record from which to continue, and its judgement if no fetch is needed."""
        loaded = await self._records.load(flight.origin, partial(self._accepted, flight))
        flight.lease, known = loaded.lease, loaded.judged
        record = None if loaded.record is None else self._usable(flight, loaded.record)
        if record is None:
            record = self._remembered(flight)  # even if the store has lost the record, the backoff continues
        if known is None and record is not None and not flight.refreshes:
            known = self._judged(flight, record)
        return record, known

    def _accepted(self, flight: FileFlight[EntryKind], record: Record) -> Judged | None:
        """Return the judgement on a record from the store, or None if the file must be fetched."""
        usable = self._usable(flight, record)
        judged = None if usable is None else self._judged(flight, usable)
        if judged is None or not flight.refreshes:
            return judged
        held = judged.standing  # another process may have refreshed the record
        return judged if held.refresh_wall > held.at_wall + _NOT_DUE_S else None

    def _usable(self, flight: FileFlight[EntryKind], record: Record) -> Record | None:
        """Return the usable parts of a record from the store; None if the entry in memory is newer."""
        known = None if flight.before is None else flight.before.known
        if flight.forgotten or is_before(record.moment, known):
            return None
        return as_read(record, self._policy)

    def _judged(self, flight: FileFlight[EntryKind], record: Record) -> Judged | None:
        """Return a record with its present meaning; None if the file must be fetched."""
        now, flight.known = self._now(), record.moment
        record = self._clocks.corrected(record, now)
        held = standing(record, flight.url, now.wall, self._policy)
        return None if held is None else Judged(record, held, now.mono)

    def _was_open(self, flight: FileFlight[EntryKind], record: Record | None) -> bool:
        """Return whether a record, or an entry whose record the store has lost, permitted requests for pages."""
        if record is None:
            return flight.before is not None and not flight.forgotten and flight.before.source.result in _OPEN
        now = self._now()
        return was_open(self._clocks.corrected(record, now), now.wall, self._policy)

    def _advanced(self, flight: FileFlight[EntryKind], record: Record | None, answer: FetchResult) -> Judged:
        """Return the record that the answer has changed, with its present meaning."""
        now, policy = self._now(), self._policy
        record = None if record is None else self._clocks.corrected(record, now)
        record = advance(record, answer, now.wall, policy, self._jitter())
        record, flight.known = record._replace(moment=now), now
        held = standing(record, flight.url, now.wall, policy)
        if held is None:
            raise AssertionError(f"{record} stands for nothing")  # ``advance`` never returns such a record
        return Judged(record, held, now.mono)

    def _remembered(self, flight: FileFlight[EntryKind]) -> Record | None:
        """Return the record of the entry that the flight renews."""
        return None if flight.before is None or flight.forgotten else flight.before.record

    def _now(self) -> Moment:
        """Return a reading of both clocks."""
        return Moment(self._run_id, self._clock.wall(), self._clock.monotonic())

    def _keep(self, key: str, entry: EntryKind) -> None:
        """Replace the entry of a key; while all entries together are too large, evict the least recently used."""
        if self._closed:
            return
        self._evicted.pop(key, None)
        if (before := self.entries.pop(key, None)) is not None:
            self.weight_bytes -= before.release()
        self.weight_bytes += entry.retain()
        self.entries[key] = entry
        while self.weight_bytes > self._max_bytes and len(self.entries) > 1:
            # Second chance: an entry that was used since the last check is skipped once.
            oldest_key, oldest = self.entries.popitem(last=False)
            if oldest.used or oldest is entry:
                oldest.used = False
                self.entries[oldest_key] = oldest
            else:
                self.weight_bytes -= oldest.release()
                self._evicted[oldest_key] = oldest

    # Hooks for the kinds of files.

    def _key(self, origin: Origin, path: str) -> str:
        return origin.text + path

    def _fetch(self, request: FetchRequest) -> Coroutine[object, object, FetchResult]:
        """Make a request; raises one of ``refusals`` if the request is not permitted."""
        return self._fetcher.fetch(request)

    def _close_owned_with(self, closing: AsyncExitStack) -> None:
        """Add the parts that the cache owns to ``closing``."""

    @abstractmethod
    def _publish(self, flight: FileFlight[EntryKind], answer: FetchResult, source: Source, elapsed_s: float) -> None:
        """Publish that the file was fetched, and the new source."""

    async def _entry_of(self, flight: FileFlight[EntryKind], judged: Judged) -> EntryKind:
        """Return the entry for a record with its present meaning; by default, the entry of an internal fault."""
        return self._entry_of_failure(flight, judged)

    @abstractmethod
    def _entry_of_failure(self, flight: FileFlight[EntryKind], judged: Judged) -> EntryKind:
        """Return the entry for a record with its present meaning, after an internal fault; must not raise an error."""
