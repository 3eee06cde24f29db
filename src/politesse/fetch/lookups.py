"""Looking up host names in threads of their own, so that names which never resolve hold nobody else up.

getaddrinfo blocks its thread, for half a minute and more where a name server does not answer, and cannot be ended. In
the executor of the event loop, which has a handful of threads, eight such names keep all others waiting. Here each
lookup has a thread to itself, and a name is looked up once at a time: all who ask for it meanwhile share the answer.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_THREADS: Final = 256

_Outcome = list[str] | Exception


class _Caller:
    """Somebody who waits for a lookup, in an event loop.

    Attributes:
        begun: done once a thread is at it.
        found: the addresses.
    """

    __slots__ = ("begun", "found", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[None] = self.loop.create_future()
        self.found: asyncio.Future[list[str]] = self.loop.create_future()

    def begin(self) -> None:
        if not self.begun.done():
            self.begun.set_result(None)

    def finish(self, outcome: _Outcome) -> None:
        if self.found.done():  # it has given up
            return
        if isinstance(outcome, Exception):
            self.found.set_exception(outcome)
            self.found.exception()  # it may give up before it looks, and then nobody is to be warned
        else:
            self.found.set_result(outcome)


class _Lookup:
    """A name, and those who wait for its addresses; ``runs`` once a thread is at it."""

    __slots__ = ("callers", "host", "runs")

    def __init__(self, host: str) -> None:
        self.host = host
        self.callers: list[_Caller] = []
        self.runs = False


class Lookups:
    """Asks the system for addresses, each name in a thread of its own.

    Threads are made when they are needed and end with their work. They are daemons, so that none keeps the interpreter
    from ending. Beyond ``max_threads`` lookups wait for a thread, first come first served; one that nobody waits for
    any more leaves the queue. A lookup that hangs keeps its thread until the system gives up, even if all who wanted it
    have gone. May be used from several event loops.

    Args:
        max_threads: how many lookups may be under way at once; positive.
    """

    def __init__(self, max_threads: int = MAX_THREADS) -> None:
        self._lock = threading.Lock()
        self._max_threads = max_threads
        self._threads = 0
        self._lookups: dict[str, _Lookup] = {}
        self._queue: OrderedDict[str, _Lookup] = OrderedDict()

    async def addresses(self, host: str, limit_s: float | None = None) -> tuple[Sequence[str], float]:
        """Return the addresses of ``host``, and how many seconds it took to find them once a thread was at it.

        Args:
            host: a name.
            limit_s: how long that may take; waiting for a thread does not count.

        Raises:
            OSError: there is no such name, or no thread to be had; TimeoutError beyond ``limit_s``.
            UnicodeError: it is no name.
        """
        caller = _Caller()
        lookup = self._join(host, caller)
        try:
            await caller.begun
            began = caller.loop.time()
            async with asyncio.timeout(limit_s):
                return await caller.found, caller.loop.time() - began
        finally:
            self._leave(lookup, caller)

    def _join(self, host: str, caller: _Caller) -> _Lookup:
        with self._lock:
            lookup = self._lookups.get(host)
            if lookup is None:
                lookup = _Lookup(host)
                if not self._start(lookup):
                    self._queue[host] = lookup
                self._lookups[host] = lookup
            lookup.callers.append(caller)
            if lookup.runs:
                caller.begin()
        return lookup

    def _leave(self, lookup: _Lookup, caller: _Caller) -> None:
        with self._lock:
            lookup.callers.remove(caller)
            if not lookup.callers and not lookup.runs:
                del self._queue[lookup.host], self._lookups[lookup.host]

    def _start(self, lookup: _Lookup) -> bool:
        """Give a lookup a thread, if there is one to be had."""
        if self._threads >= self._max_threads:
            return False
        try:
            threading.Thread(target=self._work, args=(lookup,), name="politesse-dns", daemon=True).start()
        except RuntimeError as error:  # the system has no more of them
            if not self._threads:
                raise OSError(f"no thread to look up {lookup.host} in: {error}") from error
            return False
        self._threads += 1
        lookup.runs = True
        return True

    def _work(self, first: _Lookup) -> None:
        """Look up one name, and then others, as long as any wait. Runs in a thread."""
        lookup: _Lookup | None = first
        while lookup is not None:
            outcome: _Outcome
            try:
                outcome = _ask_system(lookup.host)
            except Exception as error:  # noqa: BLE001 - it is raised again where it is waited for
                outcome = error
            lookup = self._finish(lookup, outcome)

    def _finish(self, lookup: _Lookup, outcome: _Outcome) -> _Lookup | None:
        """Hand the outcome to all who wait; return the lookup that the thread goes on with."""
        following: _Lookup | None = None
        with self._lock:
            del self._lookups[lookup.host]
            for caller in lookup.callers:
                _tell(caller, outcome)
            if self._queue:
                _, following = self._queue.popitem(last=False)
                following.runs = True
                for caller in following.callers:
                    _tell(caller)
            else:
                self._threads -= 1
        return following


def _tell(caller: _Caller, outcome: _Outcome | None = None) -> None:
    """Have a caller told, in its own event loop, that its lookup begins or what it came to."""
    with suppress(RuntimeError):  # that loop is closed, and nobody waits
        if outcome is None:
            caller.loop.call_soon_threadsafe(caller.begin)
        else:
            caller.loop.call_soon_threadsafe(caller.finish, outcome)


def _ask_system(host: str) -> list[str]:
    """Return the addresses of ``host`` in the order of RFC 6724; blocks."""
    # As aiohttp does: no family that this machine has no address of. On some systems that leaves nothing of localhost.
    flags = 0 if host.rstrip(".").lower() == "localhost" else socket.AI_ADDRCONFIG
    found = []
    for family, _, _, _, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags):
        if family == socket.AF_INET:
            found.append(str(address[0]))
        elif family == socket.AF_INET6:
            text = str(address[0])
            if len(address) == 4 and address[3] and "%" not in text:  # noqa: PLR2004 - RFC 4007 11: its scope
                text = socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]
            found.append(text)
    return found
