"""The caches of the files that sites keep at well-known paths: robots.txt here, the others in ``files``.

Theory of operation. A file has a key. Each key has at most one Copy and at most one flight: a task that loads or
fetches the file, and the futures of all who wait for it. A key is in one of these states:

    copy        a lookup                                  the renewal of the copy
    valid       is answered at once                       starts after the answer, once it is due
    expired     waits for the flight, which starts        starts from the record of the store, or of the copy
    unknown     waits for the flight, which starts        starts from the record of the store, if any

A flight passes through these steps. It ends in a new copy, unless the request is refused:

    load -> the copy is still usable ------------------------------------+
      |                                                                  v
      +---> fetch -> ``advance`` (table of outcomes) -> save -> read the rules -> keep it, evict others -> answer
      |       |                                                                   ^
      |       +-> refused: raised in all waiters, no copy is kept                 |
      +-> any other exception, at any step: a fault of kind INTERNAL, and ComponentFailed

- Cancelling a waiter does not end the flight. ``shut`` ends all flights, and raises ClosedError in all waiters.
- Waiters get the copy of their flight even if its lifetime is over already.
- ``forget`` drops the copy. A flight under way goes on, but ignores the record in the store from then on. If its answer
  has come already, it fetches once more.
- A record of the store is used only if it is not older than the copy: the store may have lost a write.
- If several processes share a LeasingStore, a load waits while another process fetches the file (see ``records``), and
  a refresh uses a record that another process has stored meanwhile.
- The body of a robots.txt is kept in memory only if it is needed again and no store has it: see ``keeps_bodies``. An
  agent whose rules were not read from a dropped body causes one new fetch of the origin. A file that comes from a store
  during a 429 keeps its body until its rules are read, because the store may fail before that.
- The total size of the copies is limited. The eviction is "second chance": a hit only sets ``used``, and does not move
  the copy. As long as a task or a queue holds an evicted copy, it is found again. So each of many waiters goes on, even
  if the cache has room for one copy only. Without a store, the copies that were evicted last are held for a while, or
  many sites in a cache that is too small would be fetched again and again, each before the last copy was used.

Each kind of file has a subclass of FileCache. The subclass overrides the hooks at the end of FileCache: how to read a
file, which events to publish, what to close with the cache.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from contextlib import AsyncExitStack, suppress
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias
from weakref import WeakValueDictionary

from politesse._base.constants import ROBOTS_TXT
from politesse._base.tasks import is_ended_from_outside
from politesse._cache.fetching import internal_fault
from politesse._cache.outcome import (
    NO_RULES,
    ClockCorrection,
    Copy,
    FileRules,
    Moment,
    Record,
    advance,
    as_read,
    compile_rules,
    is_before,
    judged,
    was_open,
)
from politesse._cache.records import LARGE_OCTETS, ReadingThreads, StoredRecords
from politesse._http.freshness import names_another
from politesse.clock import Clock, run_of
from politesse.errors import ClosedError, WrongEventLoop
from politesse.events import ComponentFailed, Publisher, RobotsFetched
from politesse.ports import FaultKind, Fetcher, FetchFault, FetchRequest, FetchResponse, FetchResult
from politesse.verdict import AccessResult, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from politesse._cache.options import AccessPolicy
    from politesse.origin import Origin
    from politesse.ports import Lease
    from politesse.robots import Dialect

    Kept: TypeAlias = Callable[[Source, bytes, Mapping[str, str]], None]


_NOT_DUE_S: Final = 1.0  # a refresh ignores a stored record that is due within this time, because clocks differ
_LINGERING_BYTES: Final = 1024 * 1024  # limits the evicted copies that are held, some hundred of usual size
_PARSE_IN_THREAD_BYTES: Final = 4 * 1024  # a file of this size is parsed in 3 ms at worst


@dataclass(slots=True, eq=False, repr=False)
class Flight:
    """The renewal of a file: one task, and all who wait for it. The task belongs to the cache, not to a waiter.

    Attributes:
        before: the copy at the start of the flight; without facts if there was none.
        refreshes: whether ``before`` is still valid; a stored record then ends the flight only if the record is newer.
        agents: the agents that the new copy must answer.
        forgotten: whether ``forget`` was called during the flight, so that the record in the store no longer counts.
        outdated: whether ``forget`` was called since the answer came, so that the answer no longer counts either.
        lease: the lease under which the file is fetched, or None.
        result: the answer to the fetch; None without a fetch.
        waiters: the futures of all who wait, in order.
    """

    key: str
    origin: Origin
    before: Copy
    refreshes: bool
    agents: set[str]
    loop: asyncio.AbstractEventLoop
    task: asyncio.Task[None] | None = None
    forgotten: bool = False
    outdated: bool = False
    lease: Lease | None = None
    result: FetchResult | None = None
    waiters: dict[asyncio.Future[Copy], None] = field(default_factory=dict)

    def end(self, result: Copy | BaseException) -> None:
        """Give the new copy or an error to all waiters."""
        waiters, self.waiters = self.waiters, {}
        for waiter in waiters:
            if waiter.done():  # its task is cancelled
                continue
            if isinstance(result, BaseException):
                waiter.set_exception(result)
            else:
                waiter.set_result(result)


@dataclass(eq=False, repr=False)
class FileCache(ABC):
    """Keeps the copies of files; see the module. Not thread-safe: a cache belongs to one event loop.

    Args:
        fetcher: makes the requests.
        policy: judges the answers.
        max_bytes: about how much memory the copies may take.
        clock: the wall clock and the monotonic clock.
        publisher: receives ComponentFailed, and the events about this kind of file.
        records: keeps records beside the copies, and is closed with the cache; or None.

    Attributes:
        entries: maps keys to copies. The hot path reads this dict; only the cache changes it.
        weight_bytes: about how much memory the copies take; only the cache changes it.
        flights: maps the keys of files that are being loaded or fetched to their flights; only the cache changes it.
        keeps_bodies: whether the copies keep their files in memory.
        kept: called with the source of each new copy, its file and the headers of the answer; or None.
    """

    what: ClassVar[str]
    """The kind of file, in words."""

    component: ClassVar[str]
    """The name of this cache in ComponentFailed."""

    refusals: ClassVar[tuple[type[Exception], ...]] = ()
    """The exceptions with which a fetcher refuses to fetch. All waiters raise them, and no copy is made."""

    _fetcher: Fetcher
    _policy: AccessPolicy
    _max_bytes: int
    _clock: Clock
    _publisher: Publisher
    _records: StoredRecords | None = None
    keeps_bodies: bool = True
    _jitter: Callable[[], float] = field(default=random.random, init=False)  # 0 to 1, spreads retries
    entries: OrderedDict[str, Copy] = field(default_factory=OrderedDict, init=False)
    weight_bytes: int = field(default=0, init=False)
    kept: Kept | None = field(default=None, init=False)
    _run_id: str = field(init=False)
    _clocks: ClockCorrection = field(init=False)
    _evicted: WeakValueDictionary[str, Copy] = field(default_factory=WeakValueDictionary, init=False)
    # The copies that were evicted last, with their sizes.
    _lingering: deque[tuple[Copy, int]] = field(default_factory=deque, init=False)
    _lingering_bytes: int = field(default=0, init=False)
    flights: dict[str, Flight] = field(default_factory=dict, init=False)
    # The agent of the last question; a refresh reads the first file of a site for it.
    _agent: str = field(default="", init=False)
    _closed: bool = field(default=False, init=False)
    _ending: list[asyncio.Task[None]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._run_id = run_of(self._clock)
        self._clocks = ClockCorrection(self._now())

    def held(self, key: str) -> Copy | None:
        """Return the copy of a key, or an evicted copy that a task or a queue still holds."""
        return self.entries.get(key) or self._evicted.get(key)

    def valid(self, key: str) -> Copy | None:
        """Return the copy of a key if it is valid now; start a refresh in the background if one is due."""
        copy = self.entries.get(key) or self._evicted.get(key)  # as ``held``, without the call
        if copy is None:
            return None
        now_mono, now_wall = self._clock.monotonic(), self._clock.wall()
        if not copy.holds(now_mono, now_wall):
            return None
        copy.set_back(now_mono, now_wall)
        if copy.is_due(now_mono, now_wall) and key not in self.flights and not self._closed:
            with suppress(RuntimeError):  # no event loop is running; the next lookup in the loop starts the refresh
                self._flight(key, copy.origin, copy.path, refreshes=True)
        copy.used = True
        return copy

    def keep_bodies(self) -> None:
        """Keep the files of later fetches in memory, unless a store keeps them, because further agents may ask."""
        self.keeps_bodies = self._records is None

    def shut(self) -> None:
        """Stop answering at once: waiting and later calls raise ClosedError. Afterwards call ``aclose``."""
        if self._closed:
            return
        self._closed, self._ending = True, []
        for flight in self.flights.values():
            flight.end(ClosedError(f"the gatekeeper was closed while {self.what} was fetched"))
            if flight.task is not None:
                flight.task.cancel()
                self._ending.append(flight.task)
        self.entries.clear()
        self._evicted.clear()
        self._lingering.clear()
        self.weight_bytes = self._lingering_bytes = 0

    async def aclose(self) -> None:
        """End all flights, then close all owned parts, even if a part raises an error."""
        self.shut()
        ending, self._ending = self._ending, None
        if ending is not None:
            async with AsyncExitStack() as closing:  # the stack closes the last part first
                if self._records is not None:
                    closing.push_async_callback(self._records.aclose)
                self._close_owned_with(closing)
                await asyncio.gather(*ending, return_exceptions=True)

    async def entry(self, key: str, origin: Origin, path: str, agent: str = "") -> Copy:
        """Return the valid copy of a file, with an answer for ``agent``; load or fetch the file if necessary.

        Raises:
            ClosedError: if the cache is closed, also if it is closed during the fetch.
            WrongEventLoop: if the file is being fetched in another event loop.
            Exception: one of ``refusals``.
        """
        while True:
            if self._closed:
                raise ClosedError(f"{origin}{path} was requested after the gatekeeper was closed")
            copy = self.valid(key)
            if copy is not None and copy.answers(agent):
                return copy
            # A loop: a flight that was under way already may end in a copy without the rules of this agent.
            flight, loop = self._flight(key, origin, path, agent), asyncio.get_running_loop()
            if flight.loop is not loop:
                raise WrongEventLoop
            waiter: asyncio.Future[Copy] = loop.create_future()
            flight.waiters[waiter] = None
            try:
                copy = await waiter
            finally:
                flight.waiters.pop(waiter, None)
            if copy.answers(agent):
                return copy  # made for this call, so it is used even if its lifetime is over

    def _flight(self, key: str, origin: Origin, path: str, agent: str = "", *, refreshes: bool = False) -> Flight:
        """Return the flight of a file, and start it if necessary; its new copy will have an answer for ``agent``."""
        flight = self.flights.get(key)
        if flight is None:
            loop = asyncio.get_running_loop()
            before = self.entries.get(key) or self._evicted.get(key) or Copy(origin, path, NO_RULES, NO_RULES)
            flight = self.flights[key] = Flight(key, origin, before, refreshes, {*before.file}, loop)
            # The context is empty: the work outlives its first caller, and must not hold the caller's turns.
            # No task factory makes the task, because an eager task could end before the caller waits for it.
            name = f"{path[1:]} of {origin.text}"
            flight.task = asyncio.Task(self._run(flight), loop=loop, name=name, context=Context())
            # If a task is cancelled before its first step, none of its own code runs.
            flight.task.add_done_callback(partial(self._ended, flight))
        if agent:
            flight.agents.add(agent)
            self._agent = agent
            if len(flight.agents) > 1:
                self.keep_bodies()
        return flight

    def _ended(self, flight: Flight, task: asyncio.Task[None]) -> None:
        """End a flight whose task has ended without a copy, because the event loop is being closed or of an error."""
        if self.flights.get(flight.key) is flight:
            del self.flights[flight.key]
        if task.cancelled():
            flight.end(asyncio.CancelledError())
        elif flight.waiters and (error := task.exception()) is not None:  # without waiters, asyncio logs the error
            flight.end(error)

    def _drop(self, key: str) -> None:
        """Forget one file."""
        if (copy := self.entries.pop(key, None)) is not None:
            self.weight_bytes -= copy.own_bytes + copy.file.release()
        self._evicted.pop(key, None)
        if (flight := self.flights.get(key)) is not None:
            flight.forgotten = flight.outdated = True

    async def _run(self, flight: Flight) -> None:
        try:
            copy = await self._renewed(flight)
            while flight.outdated:
                copy = await self._renewed(flight)
        except self.refusals as error:
            del self.flights[flight.key]
            flight.end(error)
        except BaseException as error:
            if is_ended_from_outside(error, asyncio.current_task()):
                raise
            # A part has failed, and the task was not cancelled from outside. The waiters get a fault as the answer. No
            # older copy serves, because a newer file may have been lost.
            fault = internal_fault("the cache", error, flight.origin.text + flight.before.path)
            known = self._remembered(flight)
            known = known.changed(None, known.trouble, known.moment)
            self._finish(flight, self._advanced(known, fault))
            self._publisher.publish(ComponentFailed(flight.origin, self.component, error))
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise  # asyncio raises these exceptions out of the event loop, to stop the program
        else:
            self._finish(flight, copy)
        finally:
            if flight.lease is not None and self._records is not None:
                self._records.release(flight.origin, flight.lease)

    async def _renewed(self, flight: Flight) -> Copy:
        """Return the copy of the stored record, or of a new answer if the record is useless or a refresh is due."""
        known, usable = self._remembered(flight), None
        if self._records is not None:
            record, usable, flight.lease = await self._records.load(flight.origin, partial(self._accepted, flight))
            stored = None if record is None else self._usable(flight, record)
            known = stored or self._remembered(flight)  # even if the store has lost the record, the backoff continues
        if usable is None and not flight.refreshes and (known.answer is not None or known.trouble is not None):
            usable = self._judged(known)  # a copy that is still valid is read once more, for a further agent
        flight.outdated = False
        if usable is not None:
            return await self._read(flight, usable)
        # A store gets the file with its answer, so an answer whose file is lost is not confirmed.
        validators, refresh = None, flight.refreshes
        if known.answer is not None and (known.body is not None or (self._records is None and known.file)):
            validators = known.validators
        if known.answer is not None or flight.before.answer is not None:
            refresh = refresh or self._was_open(flight, known)
        request = FetchRequest(flight.origin, 0, validators, known.path, refresh=refresh)
        started_mono = self._clock.monotonic()
        result = await self._fetcher.fetch(request)
        if validators is not None and names_another(result, validators):  # the 304 is about a file other than the copy
            result = await self._fetcher.fetch(replace(request, validators=None))
            if isinstance(result, FetchResponse):
                result = replace(result, conditional=False)  # a 304 to this request must not confirm the copy
        flight.result, flight.outdated = result, False
        if flight.forgotten and self._policy.meaning_of(result) is not None:
            known = self._remembered(flight)  # the forgotten copy serves only if the answer confirms it
        copy = self._advanced(known, result)
        fetched_mono = self._clock.monotonic()
        if self._records is not None:
            await self._records.save(flight.origin, copy.record, flight.lease)
            flight.lease = None  # ended by ``save``; only a flight that fails before releases it in ``_run``
        self._publish(flight, result, copy.source, fetched_mono - started_mono)
        return await self._read(flight, copy)

    def _finish(self, flight: Flight, copy: Copy) -> None:
        """Keep the copy of a flight in place of the earlier copy, and give it to all waiters."""
        key, body = flight.key, copy.body
        if not self.keeps_bodies and (copy.file or copy.answer is None):
            copy.body = None  # before the copy is weighed; a file that was only read from a store may serve later
        if not self._closed:
            self._evicted.pop(key, None)
            if (before := self.entries.pop(key, None)) is not None:
                self.weight_bytes -= before.own_bytes + before.file.release()
            self.weight_bytes += copy.own_bytes + copy.file.retain()
            self.entries[key] = copy
            if self.weight_bytes > self._max_bytes:
                self._evict(copy)
        del self.flights[key]  # before the flight ends, because a waiter may start the next flight
        if self.kept is not None:
            _tell(self.kept, copy, body, flight.result)
        flight.end(copy)

    def _accepted(self, flight: Flight, record: Record) -> Copy | None:
        """Return the copy of a record from the store, or None if the file must be fetched."""
        known = self._usable(flight, record)
        copy = None if known is None else self._judged(known)
        if copy is None or not flight.refreshes:
            return copy
        # Another process may have refreshed the record.
        return copy if copy.refresh_mono > self._clock.monotonic() + _NOT_DUE_S else None

    def _usable(self, flight: Flight, record: Record) -> Copy | None:
        """Return a copy of the usable facts of a record from the store; None if the copy in memory is newer."""
        if flight.forgotten or is_before(record.moment, flight.before.known):
            return None
        copy = as_read(Copy.of_record(flight.origin, flight.before.path, record), self._policy)
        return None if copy.answer is None and copy.trouble is None else copy

    def _remembered(self, flight: Flight) -> Copy:
        """Return the copy that the flight renews, without its answer if not all agents can be answered by it."""
        before = flight.before
        if flight.forgotten:
            return Copy(flight.origin, before.path, NO_RULES, NO_RULES)
        is_file = before.answer is not None and before.answer.result is AccessResult.SUCCESSFUL
        if not is_file or before.body is not None or (before.file and flight.agents <= before.file.keys()):
            return before
        return before.changed(None, before.trouble, before.moment)

    def _judged(self, copy: Copy) -> Copy | None:
        """Return a copy with its present meaning; None if the file must be fetched."""
        now = self._now()
        return judged(self._clocks.corrected(copy, now), now, self._policy)

    def _was_open(self, flight: Flight, known: Copy) -> bool:
        """Return whether a copy, of the store or in memory, permitted requests for pages."""
        for copy in (known, None if flight.forgotten else flight.before):
            if copy is not None and copy.answer is not None:
                now = self._now()
                if was_open(self._clocks.corrected(copy, now), now.wall, self._policy):
                    return True
        return False

    def _advanced(self, known: Copy, result: FetchResult) -> Copy:
        """Return the copy after an answer."""
        now = self._now()
        if known.moment is not None:
            known = self._clocks.corrected(known, now)
        return advance(known, result, now, self._policy, self._jitter())

    def _now(self) -> Moment:
        """Return a reading of both clocks."""
        return Moment(self._run_id, self._clock.wall(), self._clock.monotonic())

    def _evict(self, newest: Copy) -> None:
        """While all copies together are too large, evict the least recently used, but never the newest."""
        while self.weight_bytes > self._max_bytes and len(self.entries) > 1:
            # Second chance: a copy that was used since the last check is skipped once.
            oldest_key, oldest = self.entries.popitem(last=False)
            if oldest.used or oldest is newest:
                oldest.used = False
                self.entries[oldest_key] = oldest
            else:
                self._evicted[oldest_key] = oldest
                size = oldest.own_bytes + oldest.file.release()
                self.weight_bytes -= size
                if self._records is None:  # a store has the file, and needs no new fetch
                    self._lingering.append((oldest, size))
                    self._lingering_bytes += size
        while self._lingering_bytes > _LINGERING_BYTES:
            self._lingering_bytes -= self._lingering.popleft()[1]

    # Hooks for the kinds of files.

    async def _read(self, flight: Flight, copy: Copy) -> Copy:
        """Return a copy whose file is read."""
        del flight
        return copy

    @abstractmethod
    def _publish(self, flight: Flight, result: FetchResult, source: Source, elapsed_s: float) -> None:
        """Publish that the file was fetched, and the new source."""

    def _close_owned_with(self, closing: AsyncExitStack) -> None:
        """Add the parts that the cache owns to ``closing``."""
        del closing


def _tell(kept: Kept, copy: Copy, body: bytes | None, result: FetchResult | None) -> None:
    """Call ``kept`` with the source of a new copy, its file, and the headers of the answer."""
    answer, source, is_file = copy.answer, copy.source, copy.result is AccessResult.SUCCESSFUL
    if is_file and body is None:
        return  # the store has lost the file; ``kept`` was called when the file was new
    headers = {}
    if answer is not None:
        headers = {"etag": answer.etag, "last-modified": answer.last_modified, "content-type": answer.content_type}
    if isinstance(result, FetchResponse) and result.status in {source.status, HTTPStatus.NOT_MODIFIED}:
        headers |= result.headers
    kept(source, body if is_file and body is not None else b"", headers)


@dataclass(eq=False, repr=False, kw_only=True)
class RobotsCache(FileCache):
    """Keeps the robots.txt of each origin, as compiled rules; see FileCache.

    An agent is named by its product tokens, the most specific first, joined by commas.

    Args:
        dialect: how to read files.
        reading: threads for large files, which other readers share; closed with the cache, as its fetcher is.

    Attributes:
        fetches: how many times robots.txt was fetched.
    """

    what = "robots.txt"
    component = "cache"
    dialect: Dialect
    reading: ReadingThreads
    fetches: int = field(default=0, init=False)
    weight_bytes: int = field(default=0, init=False)  # as in FileCache; ``_read`` adds the rules of new agents
    # By the digests of the files in the cache; all origins with a file share its rules.
    _file_rules: dict[bytes, FileRules] = field(default_factory=dict, init=False)
    _of_site: bool = field(init=False)  # whether the rules of a file depend on its site

    def __post_init__(self) -> None:
        super().__post_init__()
        self._of_site = self.dialect.traits.matching.of_site

    def ask_ahead(self, origin: Origin, agent: str) -> None:
        """Start to make a copy that answers ``agent``, and do not wait for it."""
        if not self._closed:
            self._flight(origin.text, origin, ROBOTS_TXT, agent)

    def shut(self) -> None:
        """Stop answering at once, and drop the rules of all files."""
        super().shut()
        self._file_rules.clear()

    async def forget(self, origin: Origin) -> None:
        """Drop the record of ``origin``: the next lookup fetches robots.txt, or joins a fetch in progress."""
        self._drop(origin.text)
        if self._records is not None:
            await self._records.delete(origin, self._now())

    def _publish(self, flight: Flight, result: FetchResult, source: Source, elapsed_s: float) -> None:
        closed = isinstance(result, FetchFault) and result.kind is FaultKind.HOST_CLOSED
        # A host that is closed got no request, so there is no fetch to count, unless a redirect led to that host.
        if not (closed and result.final_url == source.robots_url):
            self.fetches += 1
            truncated = isinstance(result, FetchResponse) and result.truncated
            fetched = RobotsFetched(flight.origin, result.status, source.fault, elapsed_s, source, truncated)
            self._publisher.publish(fetched)

    async def _read(self, flight: Flight, copy: Copy) -> Copy:
        """Return the copy with the rules of its file, for the agents of the flight and perhaps others."""
        if copy.result is not AccessResult.SUCCESSFUL:
            return copy
        body, agents = copy.body, flight.agents or {self._agent}
        if body is not None and not agents <= copy.file.keys():
            if len(body) > LARGE_OCTETS:
                digest = await self.reading.run(lambda: sha256(body).digest(), is_large=True)
            else:
                digest = sha256(body).digest()
            if self._of_site:  # other origins must not share the rules of this file
                digest += flight.origin.text.encode()
            rules = self._file_rules.get(digest)
            if rules is None:
                rules = FileRules(digest, self._file_rules, len(body))
            if missing := agents - rules.keys():
                # A thread gets a copy of ``rules``, because other flights may add agents meanwhile.
                compiling = partial(compile_rules, body, self.dialect, flight.origin, missing, dict(rules))
                large = len(body) * len(missing) > _PARSE_IN_THREAD_BYTES
                compiled = await self.reading.run(compiling, is_large=large)
                # Not ``+= rules.add(await ...)``, which would read the weight before the wait; other flights change it.
                self.weight_bytes += rules.add(compiled)
            copy.file = rules
        copy.rules = copy.file
        return copy

    def _close_owned_with(self, closing: AsyncExitStack) -> None:
        closing.push_async_callback(self._fetcher.aclose)
        closing.callback(self.reading.close)
