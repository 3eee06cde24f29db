"""What hosts have asked for, kept in the store beside the records of robots.txt.

Theory of operation. A state is kept under the key ``pace/SCOPE/HOST``. A note costs a turn one entry in a dict. One
task writes what was noted: it starts with the first note, takes all that came meanwhile at once, and ends when nothing
is left. So one turn is written at once, and under load only the last state of each host is. The close of the store
waits for that task.

A state that cannot be written is written with the next note of its host. A closed host has none for a while, so its
state is written again after ``_RETRY_S``.

Several processes may have one store. So a state is joined with the one that it replaces: a closure that another process
has noted is kept on. Where the store is an UpdatingStore that is one step, made in its own thread, so that is given a
state that was taken before. In another store, a closure that is noted between the two is lost.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import fields
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from politesse._cache.framing import framed, unframed
from politesse._cache.guarded_store import StoreLeftAlone
from politesse._constants import PACE_KEYS
from politesse._pacing.backoff import Answers
from politesse._pacing.host_state import HostState, joined
from politesse.errors import StoreError
from politesse.events import ComponentFailed, Publisher
from politesse.verdict import Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from politesse._cache.guarded_store import GuardedStore
    from politesse.clock import Clock, Timer

_VERSION: Final = b"politesse-pace/1 "
_CONTENT_AT: Final = len(framed(_VERSION, b""))
_AT_ONCE: Final = 100  # hosts that are written together
_STATE: Final = tuple(field.name for field in fields(HostState))
_ANSWERS: Final = tuple(field.name for field in fields(Answers))
_RETRY_S: Final = 30.0
_MAX_UNWRITTEN: Final = 10_000


class StoredHosts:
    """Keeps the states of the hosts, addresses or domains of one scope; see ``HostMemory``.

    Args:
        scope: ``"host"``, ``"address"`` or ``"domain"``.
        store: where.
        clock: its timer.
        publisher: receives ComponentFailed.
    """

    def __init__(self, scope: str, store: GuardedStore, *, clock: Clock, publisher: Publisher) -> None:
        self._prefix = f"{PACE_KEYS}{scope}/"
        self._store = store
        self._clock = clock
        self._publisher = publisher
        self._unwritten: dict[str, Callable[[], HostState]] = {}  # of closed hosts
        self._retry: Timer | None = None
        self._noted: dict[str, Callable[[], HostState]] = {}
        self._writer: asyncio.Task[None] | None = None

    async def recall(self, key: str, /) -> HostState | None:
        """Return the state of a host; None if it has none.

        Raises:
            StoreError: if it cannot be read; that is published, unless the store is left alone.
        """
        if (take := self._noted.get(key)) is not None:
            return take()
        try:
            return await self._load(key)
        except StoreLeftAlone as error:
            raise StoreError(f"what {key} asked for is not read: {error}") from error
        except Exception as error:
            # A store of the user may raise anything. The host counts as asked just now.
            self._publisher.publish(ComponentFailed(None, "store", error))
            raise StoreError(f"what {key} asked for cannot be read") from error

    def note(self, key: str, take: Callable[[], HostState], /) -> None:
        """Have the state of a host kept that ``take`` returns. After the close of the store it is dropped."""
        if self._store.closed:
            return
        self._noted[key] = take
        if self._writer is None:
            self._writer = self._store.run(self._write())
            self._writer.add_done_callback(self._end_writer)  # one that is cancelled before its first step ends here

    async def _load(self, key: str) -> HostState | None:
        kept = await self._store.get(self._prefix + key)
        return None if kept is None else decode_state(kept, key)

    async def _write(self) -> None:
        """Write until nothing is noted."""
        try:
            while self._noted:
                batch = {key: self._noted.pop(key) for key in list(islice(self._noted, _AT_ONCE))}
                if len(batch) == 1:  # at an idle crawl it mostly is: that saves a task
                    for key, take in batch.items():
                        await self._replace(key, take)
                else:
                    await asyncio.gather(*(self._replace(key, take) for key, take in batch.items()))
        finally:
            self._writer = None

    def _end_writer(self, writer: asyncio.Task[None]) -> None:
        if self._writer is writer:
            self._writer = None

    async def _replace(self, key: str, take: Callable[[], HostState]) -> None:
        """Write the state of a host; what cannot be written is published."""
        try:
            state = take()  # here: the store may join it in another thread
            await self._store.update(self._prefix + key, lambda kept: _joined(key, state, kept))
        except StoreLeftAlone:
            self._write_later(key, take)
        except Exception as error:  # noqa: BLE001 - as in ``recall``
            self._publisher.publish(ComponentFailed(None, "store", error))
            self._write_later(key, take)

    def _write_later(self, key: str, take: Callable[[], HostState]) -> None:
        """Have the state of a closed host written again later: no request may come to note it."""
        answers = take().answers
        if answers is None or not answers.binds or len(self._unwritten) >= _MAX_UNWRITTEN:
            return
        self._unwritten[key] = take
        if self._retry is None:
            self._retry = self._clock.call_later(_RETRY_S, self._note_unwritten)

    def _note_unwritten(self) -> None:
        self._retry = None
        unwritten, self._unwritten = self._unwritten, {}
        for key, take in unwritten.items():
            self.note(key, self._noted.get(key, take))


def _joined(key: str, state: HostState, kept: bytes | None) -> bytes:
    """Return the octets of a state, with what another process has noted in those that it is to replace."""
    # Our own mostly, which is not decoded: that would be two thirds of the time that a state takes here.
    own_start = b'{"noted_by": "%b"' % state.noted_by.encode()
    is_own = isinstance(kept, bytes) and kept.startswith(own_start, _CONTENT_AT)
    if kept is not None and not is_own:
        try:
            theirs = decode_state(kept, key)
        except StoreError:
            pass  # ``recall`` publishes that
        else:
            state = joined(state, theirs, state.since_s(theirs))
    return encode_state(state, key)


def encode_state(state: HostState, key: str) -> bytes:
    """Return ``state`` as octets, bound to the host."""
    # Not by ``asdict``, which copies each value: a fifth of the time of a note.
    stored: dict[str, object] = {name: getattr(state, name) for name in _STATE}
    stored["key"] = key
    if state.answers is not None:
        stored["answers"] = {name: getattr(state.answers, name) for name in _ANSWERS}
    return framed(_VERSION, json.dumps(stored).encode())


def decode_state(data: object, key: str) -> HostState:
    """Return the state that ``data`` holds; fields that it does not know are ignored.

    Raises:
        StoreError: if it is damaged, of another version, or that of another host.
    """
    _, content = unframed((_VERSION,), data)
    try:
        stored = json.loads(content)
        if stored["key"] != key:
            raise StoreError(f"the state of {key} is one of {stored['key']!r:.200}")
        asked_s, answers = stored["asked_s"], stored["answers"]
        return HostState(
            noted_by=str(stored["noted_by"]),
            run=str(stored["run"]),
            wall=_number(stored["wall"]),
            mono=_number(stored["mono"]),
            asked_s=None if asked_s is None else max(0.0, _number(asked_s)),
            under_way=bool(stored["under_way"]),
            answers=None if answers is None else _answers(answers),
            answers_s=_number(stored["answers_s"]),
        )
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
        raise StoreError(f"a stored state of a host is damaged: {error!r:.200}") from error


def _answers(stored: Mapping[str, Any]) -> Answers:
    return Answers(
        closed_s=_number(stored["closed_s"]),
        closed_by=Bound(stored["closed_by"]),
        backoff_s=max(0.0, _number(stored["backoff_s"])),
        fetch_backoff_s=max(0.0, _number(stored["fetch_backoff_s"])),
        refused_s=_number(stored["refused_s"]),
        latency_s=max(0.0, _number(stored["latency_s"])),
        retrieval_s=max(0.0, _number(stored["retrieval_s"])),
        answered=bool(stored["answered"]),
        quota_interval_s=max(0.0, _number(stored["quota_interval_s"])),
        quota_s=_number(stored["quota_s"]),
    )


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise TypeError(f"{value!r:.100} instead of a number")
    return float(value)
