"""What a gate keeps in its store: the records of files, and the states of hosts.

    ``encode``, ``decode``, and the same of states    the format of the values in a store
    GuardedStore                                      a store whose late or failed calls harm nothing
    StoredRecords                                     the records of files, with or without leases
    StoredHosts                                       the pace that hosts have asked for

The format. A value is a version, a digest of the content, and the content. The content of a file's record is
compressed: a JSON head, a line feed, and the file. The content of a host's state is JSON. The version changes when
earlier releases of politesse must not read the new content. A reader ignores unknown fields, which a later version has
added. A missing field gets its default value. The field is missing if an earlier version did not know the field, or if
the writer left out the default value.

The guard. A call that takes longer than ``timeout_s`` fails. Without a pause, each new origin would wait for
a store that hangs. So the store is paused after a late call, and after three consecutive failures of any kind. Each
pause is twice as long as the last, until a call succeeds:

    answering --late, or the third failure in a row--> paused, for ``timeout_s`` at first, at most five minutes
    paused --pause is over--> on trial: one call is made, and no other before its end
    on trial --success--> answering
    on trial --failure--> paused, for twice as long

A call during a pause fails at once with StorePaused. A call that began before the pause and fails during the pause
raises StorePaused, too. StorePaused is not published, because the failure that began the pause was published, with the
length of the pause. So a store that hangs is reported once, even if many calls wait for it.

At most a thousand calls are under way. The other calls wait in order. The time limit of a call begins when the call
begins, so a call is not late because the store is busy. If the event loop was blocked when the limit ended, the call
gets the same time once more, because the answer may have arrived meanwhile.

An exception other than a StoreError is a bug of the store. The caller gets the exception, and no pause begins.

The records of files. The cache loads a record before a fetch, and saves a record after the fetch. In a store that
several processes share, one process at a time gets the lease to fetch a file. One call asks for the record and its
lease:

    the store returns        this process
    the record               judges the record; if it is not usable, asks again for a lease or a newer record
    a lease                  fetches, and puts the answer (or failure) under the lease, which then ends
    another holds the lease  asks again soon, until it gets a record or a lease
    an error                 fetches without a lease, as with any other store that fails
    no record in time        fetches without a lease after ``max_wait_s``

So a site gets one request from all processes, and a second request only if the first process was killed.

A waiter asks again after 10 ms. Each further wait is longer by half, up to a quarter of a second. The waiter also
asks when the lease ends. So the waiter gets the record with a delay of at most a third of the fetch time, and asks at
most ten times a second. Each wait varies by a fifth, so that several processes ask at different times.

A lease is renewed when a third of its time is over. One timer and one call renew all leases of this process.

A write or delete that fails leaves an older record in the store. Until a later call succeeds, a record of that origin
counts only if it is newer than the failed call. The next call that succeeds, and the close, first delete such records,
so that another process does not find them either. If more than ``_MAX_DOUBTED`` calls have failed, the oldest is
dropped, and no record of any origin counts that is older than the dropped call.

The states of hosts. A state is kept under the key ``pace/SCOPE/HOST``. To note a state, a turn only adds an entry to a
dict. The first note starts a task, which writes the notes and ends when no note is left. So a single turn is written at
once, and under load only the last state of each host is written. The close of the store waits for the task.

If a write fails, the next note of the host writes the newer state. A closed host gets no new notes, so its state is
written again after ``_RETRY_S``, or when the store is about to close.

Several processes may share a store. So a write merges the new state with the stored state, to keep a closure that
another process has stored. An UpdatingStore merges both states in one step, in its own thread. In any other store, a
closure is lost if another process stores it between the read and the write.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import zlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import partial
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple

from politesse._base.constants import PACE_KEYS
from politesse._cache.outcome import Copy, DefiniteAnswer, Moment, Record, Trouble, is_before
from politesse._pacing.host_state import BackoffRecord, HostState, joined
from politesse.clock import Clock, ends_within
from politesse.errors import ClosedError, StoreError
from politesse.events import ComponentFailed, Publisher
from politesse.ports import MAX_BODY_BYTES, Lease, LeasingStore, Store, UpdatingStore, VersionedRecord
from politesse.stores.memory import MemoryStore, SharedMemoryStore
from politesse.verdict import AccessResult, Bound

if TYPE_CHECKING:
    from politesse.clock import Timer
    from politesse.origin import Origin

Args = TypeVarTuple("Args")
Result = TypeVar("Result")

# The format

Part = TypeVar("Part", DefiniteAnswer, Trouble, Moment, HostState, BackoffRecord)

_RECORD: Final = b"politesse/3 "
_STATE: Final = b"politesse-pace/1 "
_DIGEST_BYTES: Final = 16
_MAX_HEAD_BYTES: Final = 1024 * 1024  # real heads are far shorter
_ENUMS: Final = {"AccessResult": AccessResult, "Bound": Bound}
_JSON: Final = json.JSONEncoder(separators=(",", ":"))


def encode(record: Record, key: str) -> bytes:
    """Return ``record`` as octets that contain its key, so that ``decode`` rejects them under any other key."""
    answer, trouble, moment, body = record
    head = {"copy": _stored(answer), "trouble": _stored(trouble), "moment": _stored(moment), "key": key}
    return framed(_RECORD, zlib.compress(b"%b\n%b" % (_JSON.encode(head).encode(), body), zlib.Z_BEST_SPEED))


def decode(data: object, key: str) -> Record:
    """Return the record in ``data``, the value of ``key`` in a store.

    Raises:
        StoreError: ``data`` is damaged, has another version, or contains another key.
    """
    with _damage():
        decoder = zlib.decompressobj()
        plain = decoder.decompress(_unframed(_RECORD, data), _MAX_HEAD_BYTES + MAX_BODY_BYTES)
        if not decoder.eof:
            raise ValueError("the content is cut off, or too long")
        text, _, body = plain.partition(b"\n")
        head = _head(text, key)
        answer = _part(DefiniteAnswer, head["copy"])
        return Record(answer, _part(Trouble, head["trouble"]), _part(Moment, head["moment"]), body)


def encode_state(state: HostState, key: str) -> bytes:
    """Return ``state`` as octets that contain its key, so that ``decode_state`` rejects them under any other key."""
    return framed(_STATE, json.dumps(asdict(state) | {"key": key}).encode())


def decode_state(data: object, key: str) -> HostState:
    """Return the state in ``data``, the value of the host ``key`` in a store.

    Raises:
        StoreError: ``data`` is damaged, has another version, or belongs to another host.
    """
    with _damage():
        head = _head(_unframed(_STATE, data), key)
        state = _part(HostState, head, answers=_part(BackoffRecord, head.get("answers")))
        if state is None:
            raise ValueError("no state")
        return state


def framed(version: bytes, content: bytes) -> bytes:
    """Return the version, the digest of ``content``, and ``content``, joined."""
    return version + _digest(content) + content


def _unframed(version: bytes, data: object) -> bytes:
    """Return the content of ``data``, without version and digest.

    Raises:
        StoreError: ``data`` is not bytes, is damaged, or has another version.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise StoreError(f"a stored record is {data!r:.100}: a store returns bytes, or None")
    octets = bytes(data)
    if not octets.startswith(version):
        problem = f"starts with {octets[:16]!r}, not with {version!r}"
        raise StoreError(f"a stored record {problem}: another version wrote it")
    digest, content = octets[len(version) :][:_DIGEST_BYTES], octets[len(version) + _DIGEST_BYTES :]
    if digest != _digest(content):
        raise StoreError("a stored record is damaged: its digest is another")
    return content


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


@contextmanager
def _damage() -> Iterator[None]:
    """Raise a StoreError for content that cannot be read."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, zlib.error) as error:
        raise StoreError(f"a stored record is damaged: {error!r:.200}") from error


def _head(text: bytes, key: str) -> dict[str, Any]:
    head: dict[str, Any] = json.loads(text)
    if head["key"] != key:
        raise StoreError(f"the record of {key} is one of {head['key']!r:.200}")
    return head


def _stored(part: DefiniteAnswer | Trouble | Moment | None) -> dict[str, object] | None:
    """Return those fields of ``part`` that do not have their default values."""
    if part is None:
        return None
    return {one.name: value for one in fields(part) if (value := getattr(part, one.name)) is not one.default}


def _part(kind: type[Part], stored: dict[str, Any] | None, **given: object) -> Part | None:
    """Return a part of a record, from its stored fields and the ``given`` fields."""
    if stored is None:
        return None
    values: dict[str, Any] = dict(given)
    for one in fields(kind):
        if one.name in given:
            continue
        if one.name in stored:
            values[one.name] = _checked(str(one.type), stored[one.name])
        elif one.default is MISSING:
            raise ValueError(f"{kind.__name__} without {one.name}")
    return kind(**values)


def _checked(kind: str, value: object) -> object:
    """Return a stored value if it has the type of its field."""
    if (enum := _ENUMS.get(kind)) is not None:
        return enum(str(value))
    of, _, optional = kind.partition(" | ")
    right = optional == "None" if value is None else type(value).__name__ in {of, "int" if of == "float" else of}
    if not right or (isinstance(value, int | float) and not isfinite(value)):
        raise TypeError(f"{value!r:.100} instead of {kind}")
    return value


# The guard

_CALLS_AT_ONCE: Final = 1_000  # SqliteStore accepts this many calls at once
_FAILURES: Final = 3
_LONGEST_PAUSE_S: Final = 300.0


class StorePaused(Exception):
    """The store is paused after a failure, or closed."""


class _StoreLate(StoreError):
    """The call took longer than ``store_timeout_s``."""


class GuardedStore:
    """A store with time limits and pauses; see the module. Belongs to one event loop.

    Args:
        store: closed with this object.
        timeout_s: the time limit of a call.
        clock: measures the time of a call.

    Attributes:
        store: the store; use ``call`` for its methods.
        leasing: the store, if it is a LeasingStore.
        outlives: whether the records may outlive this process.
        closing: whether ``aclose`` was called; pending work may still call the store.
        before_close: called when ``aclose`` is called, to start the last work.
        closed: whether the store is closed.
    """

    def __init__(self, store: Store, *, timeout_s: float, clock: Clock) -> None:
        self.store: Store = store
        self._timeout_s = timeout_s
        self._clock = clock
        self._updating = store if isinstance(store, UpdatingStore) else None
        # The stores in memory never wait, but their subclasses may wait.
        self.outlives: bool = type(store) not in {MemoryStore, SharedMemoryStore}
        self.leasing: LeasingStore | None = store if isinstance(store, LeasingStore) else None
        self.closing: bool = False
        self.before_close: list[Callable[[], None]] = []
        self.closed: bool = False
        self._places = asyncio.Semaphore(_CALLS_AT_ONCE)
        self._pending: set[asyncio.Task[Any]] = set()
        self._failures = 0
        self._pauses = 0  # the number of consecutive pauses
        self._until_mono = 0.0
        self._on_trial = False

    async def update(self, key: str, change: Callable[[bytes | None], bytes]) -> None:
        """Replace a record by ``change(record)``. Raises the same errors as ``call``.

        Args:
            key: the key of the record.
            change: see UpdatingStore. If the store has no ``update``, a record is lost if another process puts it
                between the read and the write.
        """
        if self._updating is not None:
            await self.call(self._updating.update, key, change)
        else:
            await self.call(self._get_and_put, key, change, calls=2)

    def run(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Run work in a task; ``aclose`` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    async def aclose(self) -> StoreError | None:
        """Wait for pending work within the time limit, then close the store; raises the errors of its ``aclose``.

        Returns:
            None, or an error if the store does not close in time.
        """
        self.closing = True
        for callback in self.before_close:
            callback()
        if self._pending:
            await ends_within(self._clock, self._timeout_s, asyncio.ensure_future(self._end_pending()))
        self.closed = True
        for task in self._pending:
            task.cancel()
        try:
            await self._limited(self.store.aclose())
        except _StoreLate as error:
            return error
        return None

    async def _end_pending(self) -> None:
        """Wait until no work is pending; work may call the store again."""
        while self._pending:
            await asyncio.wait(set(self._pending))

    async def _get_and_put(self, key: str, change: Callable[[bytes | None], bytes]) -> None:
        await self.store.put(key, change(await self.store.get(key)))

    async def call(
        self, method: Callable[[*Args], Coroutine[Any, Any, Result]], *args: *Args, calls: int = 1
    ) -> Result:
        """Return the result of a method of the store, or of ``method``, which calls the store ``calls`` times.

        Raises:
            StoreError: if the call fails, or does not end in time.
            StorePaused: if the store was not called, because it is paused.
            RuntimeError: if the store raises a BaseException.
        """
        if not self.outlives:
            return await method(*args)
        async with self._places:
            if self.closed:
                raise StorePaused("the store is closed")
            if trial := self._pauses > 0:
                self._try()
            try:
                result = await self._limited(method(*args), calls)
            except StoreError as error:
                pause_s = self._pause_after(error)
                if pause_s is None:
                    raise
                raise StoreError(f"{error}; the store is paused for {pause_s:g} s") from error
            finally:
                if trial:
                    self._on_trial = False
            self._failures = self._pauses = 0
            return result

    def _try(self) -> None:
        """Begin the trial after a pause; raises StorePaused during the pause and during another trial."""
        left_s = self._until_mono - self._clock.monotonic()
        if left_s > 0.0 or self._on_trial:
            raise StorePaused(f"the store is paused after a failure, for {max(0.0, left_s):.0f} s more")
        self._on_trial = True

    def _pause_after(self, error: StoreError) -> float | None:
        """Count a failure; return the seconds of the pause that begins now, or None.

        Raises:
            StorePaused: the call began before the present pause; the failure that began the pause was reported.
        """
        self._failures += 1
        now_mono = self._clock.monotonic()
        if now_mono < self._until_mono:
            raise StorePaused(str(error)) from error
        if not (isinstance(error, _StoreLate) or self._pauses or self._failures >= _FAILURES):
            return None
        # The exponent is bounded, so that a store that fails for days does not overflow.
        pause_s = min(self._timeout_s * 2.0 ** min(self._pauses, 32), max(_LONGEST_PAUSE_S, self._timeout_s))
        self._pauses += 1
        self._until_mono = now_mono + pause_s
        return pause_s

    async def _limited(self, work: Coroutine[Any, Any, Result], calls: int = 1) -> Result:
        """Return the result of ``work``, which makes ``calls`` calls; raises _StoreLate after their time limit.

        The call runs in a separate task, so that a store that ignores a cancellation does not delay the caller. A
        BaseException of the store is raised as a RuntimeError: the store's own CancelledError must not cancel the
        waiters.
        """
        if not self.outlives:
            return await work
        task = self.run(work)
        if not await ends_within(self._clock, calls * self._timeout_s, task, again_after_stall=True):
            raise _StoreLate(f"the store took longer than store_timeout_s={self._timeout_s:g}")
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None or isinstance(error, Exception):
            return task.result()
        raise RuntimeError(f"the store raised {error!r}") from error


# The records of files

LARGE_OCTETS: Final = 64 * 1024
"""More octets are compressed, unpacked and digested in a thread: the event loop would stop for over a millisecond."""

_THREADS: Final = 2  # two threads, so that the largest file does not delay the next file
_LARGE_PACKED_OCTETS: Final = 4 * 1024  # zlib unpacks this many octets to at most 4 MiB, in 3 ms
_FIRST_WAIT_S: Final = 0.01
_LONGEST_WAIT_S: Final = 0.25
_LONGER: Final = 1.5
_SPREAD: Final = 0.2
_SOON_S: Final = 0.03  # after the end of a lease, its waiters ask within this time, one after the other
_RENEWED_AFTER: Final = 1 / 3
_MAX_DOUBTED: Final = 10_000


class ReadingThreads:
    """Threads for reading large files, so that the event loop is not blocked.

    The gate has its own threads, because slow DNS lookups may occupy all threads of the event loop's executor. The
    threads start with the first large file.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="politesse-reading")
        self._closed = False

    async def run(self, read: Callable[[], Result], *, is_large: bool) -> Result:
        """Return the result of ``read``, which runs in a thread if its input ``is_large``; raises its exceptions.

        Raises:
            ClosedError: if a large input comes after the close.
        """
        if not is_large:
            return read()
        if self._closed:
            raise ClosedError("a large file was to be read after the gatekeeper was closed")
        return await asyncio.get_running_loop().run_in_executor(self._executor, read)

    def close(self) -> None:
        """Accept no more files. Waiting files are still read."""
        self._closed = True
        self._executor.shutdown(wait=False)


@dataclass(eq=False, repr=False)
class StoredRecords:
    """Keeps records in a store. A StoreError is published as ComponentFailed; the cache goes on without the store.

    While the store is paused, no record is read or kept, and only a failed delete is published. Any other error of a
    store is raised.

    Args:
        store: closed with this object; in a LeasingStore, files are fetched under leases.
        reading: threads that encode and decode large records, so that the event loop goes on.
        publisher: receives ComponentFailed.
        max_wait_s: how long to wait for the record of another process.
        clock: measures this wait.
    """

    _store: GuardedStore
    _reading: ReadingThreads
    _publisher: Publisher
    _max_wait_s: float
    _clock: Clock
    _doubted: OrderedDict[Origin, Moment | None] = field(default_factory=OrderedDict, init=False)  # the failed changes
    _dropped: Moment | None = field(default=None, init=False)  # the moment of the newest dropped change
    _repeating: asyncio.Task[None] | None = field(default=None, init=False)
    _held: dict[str, Lease] = field(default_factory=dict, init=False)
    _renewal: Timer | None = field(default=None, init=False)

    async def load(
        self, origin: Origin, accept: Callable[[Record], Copy | None]
    ) -> tuple[Record | None, Copy | None, Lease | None]:
        """Return the record of ``origin``, None if no record can be read.

        With a LeasingStore, also return the copy that ``accept`` makes of the record, or the lease under which to fetch
        a new one, or neither after ``max_wait_s``. ``save`` or ``release`` ends the lease.
        """
        if self._store.leasing is None:
            stored = await self._call(origin, self._store.call(self._store.store.get, origin.text))
            return None if stored is None else await self._decoded(stored, origin), None, None
        key, version, record = origin.text, "", None
        wait_s, end_mono = _FIRST_WAIT_S, self._clock.monotonic() + self._max_wait_s
        while True:
            asking = self._store.call(self._store.leasing.get_or_lease, key, version)
            found = await self._call(origin, asking)
            if isinstance(found, Lease):
                self._hold(key, found)
                return record, None, found
            if isinstance(found, VersionedRecord) and found.version != version:
                version = found.version
                record = await self._decoded(found.record, origin)
                accepted = None if record is None else accept(record)
                if accepted is not None:
                    return record, accepted, None
                continue
            if found is None or self._clock.monotonic() >= end_mono:
                return record, None, None
            jitter = random.random()  # noqa: S311 - it only spreads the calls
            left_s = wait_s if isinstance(found, VersionedRecord) else found.left_s + jitter * _SOON_S
            await self._clock.sleep(min(wait_s * (1.0 + _SPREAD * jitter), left_s))
            wait_s = min(_LONGER * wait_s, _LONGEST_WAIT_S)

    async def save(self, origin: Origin, record: Record, lease: Lease | None) -> None:
        """Replace the record of ``origin``, and end the lease; a newer record of a process that took it over stays."""
        key, large = origin.text, len(record.body) > LARGE_OCTETS
        octets = await self._reading.run(partial(encode, record, key), is_large=large)
        putting: Coroutine[Any, Any, object]
        if lease is None or self._store.leasing is None:
            putting = self._store.call(self._store.store.put, key, octets)
        else:
            self._drop(key)
            putting = self._store.call(self._store.leasing.put_leased, key, octets, lease)
        await self._call(origin, self._change(origin, record.moment, putting))

    def release(self, origin: Origin, lease: Lease) -> None:
        """End a lease without storing a record, in the background."""
        if self._store.leasing is not None:
            self._drop(origin.text)
            releasing = self._store.call(self._store.leasing.release, origin.text, lease)
            self._store.run(self._call(origin, releasing))

    async def delete(self, origin: Origin, moment: Moment) -> None:
        """Delete the record of ``origin`` at ``moment``."""
        self._doubt(origin, moment)  # a load during the call must not bring the record back
        try:
            await self._change(origin, moment, self._store.call(self._store.store.delete, origin.text))
        except StorePaused as error:
            self._publish(origin, StoreError(f"{origin} is kept: {error}"))
        except StoreError as error:
            self._publish(origin, error)

    async def aclose(self) -> None:
        """Wait for pending calls within the time limit, then close the store; raises the errors of its ``aclose``."""
        self._repeat_soon()
        if (error := await self._store.aclose()) is not None:
            self._publish(None, error)

    async def _call(self, origin: Origin | None, call: Coroutine[Any, Any, Result]) -> Result | None:
        """Return the result of a call of the store; if it raises a StoreError, publish the error and return None."""
        try:
            return await call
        except StorePaused:
            return None
        except StoreError as error:
            self._publish(origin, error)
            return None

    async def _change(self, origin: Origin, moment: Moment | None, call: Coroutine[Any, Any, object]) -> None:
        """Make a call that changes the record of ``origin``; raises its errors."""
        try:
            await call
        except BaseException:
            self._doubt(origin, moment)
            raise
        if self._doubted:
            if not is_before(moment, self._doubted.get(origin)):  # a change that began later may have failed meanwhile
                self._doubted.pop(origin, None)
            self._repeat_soon()

    def _doubt(self, origin: Origin, moment: Moment | None) -> None:
        """Note a failed change: older records of ``origin`` count no more."""
        if not is_before(moment, self._doubted.get(origin)):  # a change that began later may have failed before
            self._doubted[origin] = moment
        self._doubted.move_to_end(origin)
        if len(self._doubted) > _MAX_DOUBTED:
            _, self._dropped = self._doubted.popitem(last=False)

    def _repeat_soon(self) -> None:
        if self._doubted and (self._repeating is None or self._repeating.done()):
            self._repeating = self._store.run(self._repeat())

    async def _repeat(self) -> None:
        """Delete the records that a failed change has left, until a call fails."""
        try:
            while self._doubted:
                origin, moment = next(iter(self._doubted.items()))
                await self._store.call(self._store.store.delete, origin.text)
                if self._doubted.get(origin) is moment:
                    del self._doubted[origin]
        except StorePaused:
            pass  # the failure before the pause was published
        except Exception as error:  # noqa: BLE001 - a user's store may raise any exception
            self._publisher.publish(ComponentFailed(None, "store", error))

    async def _decoded(self, stored: object, origin: Origin) -> Record | None:
        """Return a record from the store, or None if it does not count; if it is damaged, publish the error."""
        decoding = partial(decode, stored, origin.text)
        large = isinstance(stored, bytes) and len(stored) > _LARGE_PACKED_OCTETS
        try:
            record = await self._reading.run(decoding, is_large=large)
        except StoreError as error:
            self._publish(origin, error)
            return None
        failed = self._doubted.get(origin, self._dropped)
        return record if failed is None or is_before(failed, record.moment) else None

    def _publish(self, origin: Origin | None, error: StoreError) -> None:
        self._publisher.publish(ComponentFailed(origin, "store", error))

    def _hold(self, key: str, lease: Lease) -> None:
        self._held[key] = lease
        if self._renewal is None:
            self._renewal = self._clock.call_later(_RENEWED_AFTER * lease.lasts_s, self._renew_soon)

    def _drop(self, key: str) -> None:
        self._held.pop(key, None)
        if not self._held and self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None

    def _renew_soon(self) -> None:
        self._renewal = None
        self._store.run(self._renew())

    async def _renew(self) -> None:
        if self._store.leasing is not None:
            await self._call(None, self._store.call(self._store.leasing.renew, dict(self._held)))
        if self._held and self._renewal is None:
            lasts_s = min(lease.lasts_s for lease in self._held.values())
            self._renewal = self._clock.call_later(_RENEWED_AFTER * lasts_s, self._renew_soon)


# The states of hosts

_HOSTS_AT_ONCE: Final = 100  # this many hosts are written together
_RETRY_S: Final = 30.0
_MAX_UNWRITTEN: Final = 10_000


class StoredHosts:
    """Keeps the states of the hosts, addresses or domains of a scope; see ``HostMemory``.

    Args:
        scope: ``"host"``, ``"address"`` or ``"domain"``.
        store: keeps the states.
        clock: starts the timer for later attempts.
        publisher: receives ComponentFailed.
    """

    def __init__(self, scope: str, store: GuardedStore, *, clock: Clock, publisher: Publisher) -> None:
        self._prefix = f"{PACE_KEYS}{scope}/"
        self._store = store
        self._clock = clock
        self._publisher = publisher
        self._unwritten: dict[str, Callable[[], HostState]] = {}  # the states of closed hosts that could not be written
        self._retry: Timer | None = None
        self._noted: dict[str, Callable[[], HostState]] = {}
        self._writer: asyncio.Task[None] | None = None
        store.before_close.append(self._note_unwritten)

    async def recall(self, key: str, /) -> HostState | None:
        """Return the state of a host; None if the store has no state of the host.

        Raises:
            StoreError: the state cannot be read; the error is published unless the store is paused.
        """
        if (take := self._noted.get(key)) is not None:
            return take()
        try:
            kept = await self._store.call(self._store.store.get, self._prefix + key)
            return None if kept is None else decode_state(kept, key)
        except StorePaused as error:
            raise StoreError(f"what {key} asked for is not read: {error}") from error
        except Exception as error:
            # A user's store may raise any exception. The host then counts as requested just now.
            self._publisher.publish(ComponentFailed(None, "store", error))
            raise StoreError(f"what {key} asked for cannot be read") from error

    def note(self, key: str, take: Callable[[], HostState], /) -> None:
        """Keep the state that ``take`` returns for a host. After the close of the store the state is dropped."""
        if self._store.closed:
            return
        self._noted[key] = take
        if self._writer is None or self._writer.done():
            self._writer = self._store.run(self._write())

    async def _write(self) -> None:
        """Write until no note is left."""
        while self._noted:
            batch = {key: self._noted.pop(key) for key in list(islice(self._noted, _HOSTS_AT_ONCE))}
            await asyncio.gather(*(self._replace(key, take) for key, take in batch.items()))

    async def _replace(self, key: str, take: Callable[[], HostState]) -> None:
        """Write the state of a host; publish an error."""
        try:
            state = take()  # taken here, because the store may call the lambda in another thread
            await self._store.update(self._prefix + key, lambda kept: _joined(key, state, kept))
        except StorePaused:
            self._write_later(key, take)
        except Exception as error:  # noqa: BLE001 - as in ``recall``
            self._publisher.publish(ComponentFailed(None, "store", error))
            self._write_later(key, take)

    def _write_later(self, key: str, take: Callable[[], HostState]) -> None:
        """Write the state of a closed host later, because no request may note the state before the host opens."""
        answers = take().answers
        if self._store.closing or answers is None or not answers.binds or len(self._unwritten) >= _MAX_UNWRITTEN:
            return
        self._unwritten[key] = take
        if self._retry is None:
            self._retry = self._clock.call_later(_RETRY_S, self._note_unwritten)

    def _note_unwritten(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._retry = None
        unwritten, self._unwritten = self._unwritten, {}
        for key, take in unwritten.items():
            self.note(key, self._noted.get(key, take))


def _joined(key: str, state: HostState, kept: bytes | None) -> bytes:
    """Return the octets of a state, merged with the stored state if another process has noted it."""
    if kept is not None:
        with suppress(StoreError):  # ``recall`` publishes this error
            theirs = decode_state(kept, key)
            if theirs.noted_by != state.noted_by:
                state = joined(state, theirs, state.since_s(theirs))
    return encode_state(state, key)
