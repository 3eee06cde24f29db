"""The entry of a file in the cache, and the flight that renews the entry.

A flight is one task, such as the fetch of a file, and all waiters for the result of the task. The task belongs to the
owner of the flights: cancelling a waiter does not end the task.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from politesse._base.constants import AGREE_S
from politesse._base.reasons import CLOSED
from politesse.errors import ClosedError, WrongEventLoop
from politesse.ports import FetchResponse
from politesse.verdict import AccessResult, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from politesse._cache.outcome import Standing
    from politesse._cache.record import Copy, Moment, Record, Trouble
    from politesse.origin import Origin
    from politesse.ports import FetchResult, Lease

    Kept: TypeAlias = Callable[[Source, bytes, Mapping[str, str]], None]

Result = TypeVar("Result")

# Measured with tracemalloc in CPython 3.11. The first number is for an entry in its dicts, without the strings of its
# source. The second number is for a record without its body.
_ENTRY_BYTES: Final = 765
_RECORD_BYTES: Final = 300
_STR_BYTES: Final = 49


class FileEntry:
    """The copy of a file, or the reason why there is none, with deadlines on both clocks.

    A deadline is over as soon as one of the clocks has reached it. A wall clock may be set back, and a monotonic clock
    may stop while the machine sleeps. Only the wait for the next attempt uses the monotonic clock alone, so that a wall
    clock that jumps ahead does not cause an early fetch.

    Attributes:
        origin: origin of the file.
        path: path of the file.
        source: the copy, or the reason why there is none.
        record: the record that the next attempt uses if the store has no record; or None.
        confirmed_mono: when the source was fetched or last confirmed. ``source.fetched_wall`` is the same moment on the
            wall clock.
        refresh_mono: from this moment on, a lookup starts a refresh; at the latest ``deadline_mono``.
        refresh_wall: the same moment, on the wall clock.
        deadline_mono: when the entry stops being valid.
        deadline_wall: the same moment, on the wall clock; infinite for an entry that closes its site.
        used: second-chance bit of the eviction, set on every hit.
        known: the moment of the record behind the entry; older records of the store no longer count. None if unknown.
    """

    __slots__ = (
        "__weakref__",
        "confirmed_mono",
        "deadline_mono",
        "deadline_wall",
        "known",
        "origin",
        "path",
        "record",
        "refresh_mono",
        "refresh_wall",
        "source",
        "used",
    )

    def __init__(self, origin: Origin, path: str, held: Standing, record: Record | None, at_mono: float) -> None:
        self.origin: Origin = origin
        self.path: str = path
        self.source: Source = held.source
        self.record: Record | None = record
        self.used: bool = False
        self.known: Moment | None = None
        # Both clocks were read at the same moment.
        self.confirmed_mono: float = at_mono - (held.at_wall - held.source.fetched_wall)
        self.deadline_mono: float = at_mono + (held.until_wall - held.at_wall)
        self.deadline_wall: float = inf if held.source.result in CLOSED else held.until_wall
        self.refresh_mono: float = min(at_mono + (held.refresh_wall - held.at_wall), self.deadline_mono)
        self.refresh_wall: float = (
            self.deadline_wall if self.trouble is not None else min(held.refresh_wall, self.deadline_wall)
        )

    @property
    def trouble(self) -> Trouble | None:
        """The failures since the last definite answer; the next attempt continues their count."""
        return None if self.record is None else self.record.trouble

    @property
    def own_bytes(self) -> int:
        """About how much memory the entry takes, without the rules that it shares with other entries."""
        record, source = self.record, self.source
        size = _ENTRY_BYTES + len(source.robots_url) + len(source.fault)
        if source.final_url is not source.robots_url:
            size += _STR_BYTES + len(source.final_url)
        if record is not None:
            size += _RECORD_BYTES + (0 if record.copy is None else len(record.copy.body))
        return size

    def retain(self) -> int:
        """Count the entry as kept; return about how many more bytes the cache now takes."""
        return self.own_bytes

    def release(self) -> int:
        """Count the entry as dropped; return about how many bytes become free."""
        return self.own_bytes

    def holds(self, now_mono: float, now_wall: float) -> bool:
        """Return whether the entry is still valid."""
        return now_mono < self.deadline_mono and now_wall < self.deadline_wall

    def is_due(self, now_mono: float, now_wall: float) -> bool:
        """Return whether the file is to be fetched again."""
        return now_mono >= self.refresh_mono or now_wall >= self.refresh_wall

    def due_in_s(self, now_mono: float, now_wall: float) -> float:
        """Return in how many seconds the file is to be fetched again; 0 if the fetch is due."""
        return max(0.0, min(self.refresh_mono - now_mono, self.refresh_wall - now_wall))

    def age_s(self, now_mono: float, now_wall: float) -> float:
        """Return the seconds since the source was fetched or last confirmed."""
        return max(now_mono - self.confirmed_mono, now_wall - self.source.fetched_wall)

    def set_back(self, now_mono: float, now_wall: float) -> bool:
        """Return whether the wall clock was set back; if so, move the wall times of the entry back by the same time."""
        source = self.source
        by_s = (now_mono - self.confirmed_mono) - (now_wall - source.fetched_wall)
        if by_s < AGREE_S:
            return False
        moved = replace(
            source,
            fetched_wall=source.fetched_wall - by_s,
            fresh_until_wall=source.fresh_until_wall - by_s,
            not_before=None if source.not_before is None else source.not_before - by_s,
            failing_since_wall=None if source.failing_since_wall is None else source.failing_since_wall - by_s,
        )
        self.set_source(moved)
        self.refresh_wall -= by_s
        self.deadline_wall -= by_s
        return True

    def set_source(self, source: Source) -> None:
        """Replace the source. Each change of the source goes through this method."""
        self.source = source

    def answers(self, agent: str) -> bool:
        """Return whether the entry has an answer for ``agent``; a subclass may need the rules of this agent."""
        del agent
        return True

    @property
    def agents(self) -> frozenset[str]:
        """The agents whose answers a fetch has to renew."""
        return frozenset()


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False, repr=False)
class Flight(Generic[Result]):
    """A piece of work and the waiters for its result, in the running event loop.

    Attributes:
        task: the work; None until it has started.
    """

    _result: asyncio.Future[Result] = field(default_factory=_future, init=False)
    # The waiters in the order of their calls. A cancelled waiter is removed quickly, and the other waiters go on.
    _waiters: dict[asyncio.Future[None], None] = field(default_factory=dict, init=False)
    task: asyncio.Task[None] | None = field(default=None, init=False)

    async def wait(self) -> Result:
        """Return the result.

        Raises:
            ClosedError: if the owner of the flight was closed meanwhile.
            WrongEventLoop: if another event loop is running.
            Exception: the work failed.
        """
        loop, result = asyncio.get_running_loop(), self._result
        if result.get_loop() is not loop:
            raise WrongEventLoop
        if not result.done():
            waiter = loop.create_future()
            self._waiters[waiter] = None
            try:
                await waiter
            finally:
                del self._waiters[waiter]
        return result.result()

    def set_result(self, result: Result) -> None:
        """Give ``result`` to all waiters, unless the flight already has a result or an error."""
        if not self._result.done():
            self._result.set_result(result)
            self._wake()

    def set_error(self, error: BaseException, *, expected: bool = True) -> None:
        """Raise ``error`` in all waiters, unless the flight already has a result or an error.

        If the error is not ``expected`` and there are no waiters, asyncio logs it.
        """
        if not self._result.done():
            self._result.set_exception(error)
            if expected:
                self._result.exception()  # asyncio does not log a retrieved error
            self._wake()

    def cancel(self) -> None:
        """Cancel all waiters, unless the flight already has a result or an error."""
        self._result.cancel()
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


FlightKind = TypeVar("FlightKind", bound=Flight[Any])


class Flights(dict[str, FlightKind]):
    """Maps keys to the flights whose work is under way."""

    __slots__ = ()

    def start(self, key: str, flight: FlightKind, work: Coroutine[object, object, None], name: str) -> FlightKind:
        """Start ``work``, which sets the result of ``flight``. The end of the work, or ``end``, removes the flight."""
        self[key] = flight

        def ended(task: asyncio.Task[None]) -> None:
            # A callback does this, because if a task is cancelled before its first step, none of its own code runs.
            self.end(key, flight)
            error = None if task.cancelled() else task.exception()
            if error is None:
                flight.cancel()  # if there is no result, the event loop is being closed
            else:
                flight.set_error(error, expected=False)

        # The context is empty: the work outlives its first caller, and must not hold the caller's turns.
        flight.task = asyncio.get_running_loop().create_task(work, name=name, context=Context())
        flight.task.add_done_callback(ended)
        return flight

    def end(self, key: str, flight: FlightKind) -> None:
        """Remove ``flight``; called before the flight gets its result, because a waiter may start the next flight."""
        if self.get(key) is flight:
            del self[key]

    def close(self, message: str) -> list[asyncio.Task[None]]:
        """Raise ClosedError in all waiters, and cancel all work; return the tasks that have not ended."""
        tasks = []
        for flight in self.values():
            flight.set_error(ClosedError(message))
            if flight.task is not None:
                flight.task.cancel()
                tasks.append(flight.task)
        return tasks


EntryKind = TypeVar("EntryKind", bound=FileEntry)


@dataclass(slots=True, eq=False, repr=False)
class FileFlight(Flight[EntryKind]):
    """The renewal of a file.

    Attributes:
        key: key of the file.
        origin: origin of the file.
        path: path of the file.
        url: URL of the file.
        before: the entry at the start of the flight, or None.
        refreshes: whether ``before`` is still valid; a stored record then ends the flight only if the record is newer.
        agents: the agents that the new entry must answer.
        forgotten: whether ``forget`` was called during the flight, so that the record in the store no longer counts.
        lease: the lease under which the file is fetched, or None.
        copy: the copy in the record of the new entry, or None.
        known: the moment of the record of the new entry, as in the store; see FileEntry.
        answer: the answer to the fetch; None without a fetch.
    """

    key: str
    origin: Origin
    path: str
    url: str
    before: EntryKind | None
    agents: set[str]
    refreshes: bool
    forgotten: bool = False
    lease: Lease | None = None
    copy: Copy | None = None
    known: Moment | None = None
    answer: FetchResult | None = None

    def tell(self, kept: Kept, source: Source) -> None:
        """Call ``kept`` with the source of the new entry, its file, and the headers of the answer."""
        copy, answer, is_file = self.copy, self.answer, source.result is AccessResult.SUCCESSFUL
        if is_file and copy is None:
            return  # the store has lost the file; ``kept`` was called when the file was new
        headers = {}
        if copy is not None:
            headers = {"etag": copy.etag, "last-modified": copy.last_modified, "content-type": copy.content_type}
        if isinstance(answer, FetchResponse) and answer.status in {source.status, HTTPStatus.NOT_MODIFIED}:
            headers |= answer.headers
        kept(source, copy.body if is_file and copy is not None else b"", headers)


class Judged(NamedTuple):
    """A record and its meaning at a moment.

    Attributes:
        record: the record from which the next attempt continues.
        standing: the meaning of the record, and the wall time of the moment.
        at_mono: the monotonic time of the moment.
    """

    record: Record
    standing: Standing
    at_mono: float
