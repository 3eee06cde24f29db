"""Looks up host names in separate threads, so that names which never resolve do not delay others.

Theory of operation. getaddrinfo blocks its thread, for half a minute and more if a name server does not answer, and
cannot be cancelled. The executor of the event loop has few threads, so eight such names would block all others there.
Here each lookup has its own thread. A name is looked up once at a time: concurrent callers share the result.
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

_WITHOUT_SCOPE: Final = 3  # the parts of an IPv6 socket address before its scope: host, port, flow

_Outcome = list[str] | Exception


class _Caller:
    """A caller in some event loop that waits for a lookup.

    Attributes:
        begun: done when a thread has started the lookup.
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
        if self.found.done():  # the caller was cancelled, or its time is over
            return
        if isinstance(outcome, Exception):
            self.found.set_exception(outcome)
            self.found.exception()  # mark it as retrieved: a cancelled caller never awaits it
        else:
            self.found.set_result(outcome)


class _Lookup:
    """A name and the callers that wait for its addresses; ``runs`` once a thread has started it."""

    __slots__ = ("callers", "host", "runs")

    def __init__(self, host: str) -> None:
        self.host = host
        self.callers: list[_Caller] = []
        self.runs = False


class Lookups:
    """Looks up addresses by the system's resolver, each name in its own thread.

    Threads are started on demand and end with their work. They are daemons, so that none delays the exit of the
    interpreter. Lookups beyond ``max_threads`` wait in a queue, first in, first out; one without callers leaves the
    queue. A hanging lookup occupies its thread until the system gives up, even without callers. Several event loops may
    share an instance.

    Args:
        max_threads: the largest number of concurrent lookups; positive.
    """

    def __init__(self, max_threads: int = MAX_THREADS) -> None:
        self._lock = threading.Lock()
        self._max_threads = max_threads
        self._threads = 0
        self._lookups: dict[str, _Lookup] = {}
        self._queue: OrderedDict[str, _Lookup] = OrderedDict()

    async def addresses(self, host: str, limit_s: float | None = None) -> tuple[Sequence[str], float]:
        """Return the addresses of ``host``, and the seconds that the lookup took.

        Args:
            host: a name.
            limit_s: the most seconds that the lookup may take. Waiting for a thread does not count.

        Raises:
            OSError: the name does not exist, or the system has no threads left; TimeoutError after ``limit_s``.
            UnicodeError: ``host`` is not a valid name.
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
        """Start a lookup if a thread is available; return whether it has started."""
        if self._threads >= self._max_threads:
            return False
        try:
            threading.Thread(target=self._work, args=(lookup,), name="politesse-dns", daemon=True).start()
        except RuntimeError as error:  # the system has no threads left
            if not self._threads:
                raise OSError(f"no thread is available to look up {lookup.host}: {error}") from error
            return False
        self._threads += 1
        lookup.runs = True
        return True

    def _work(self, first: _Lookup) -> None:
        """Look up one name, and then those in the queue. Runs in a thread."""
        lookup: _Lookup | None = first
        while lookup is not None:
            outcome: _Outcome
            try:
                outcome = _ask_system(lookup.host)
            except Exception as error:  # noqa: BLE001 - raised again in each caller
                outcome = error
            lookup = self._finish(lookup, outcome)

    def _finish(self, lookup: _Lookup, outcome: _Outcome) -> _Lookup | None:
        """Pass the outcome to all callers; return the next lookup for this thread."""
        following: _Lookup | None = None
        with self._lock:
            del self._lookups[lookup.host]
            for caller in lookup.callers:
                _notify(caller, outcome)
            if self._queue:
                _, following = self._queue.popitem(last=False)
                following.runs = True
                for caller in following.callers:
                    _notify(caller)
            else:
                self._threads -= 1
        return following


def _notify(caller: _Caller, outcome: _Outcome | None = None) -> None:
    """Report the start of a lookup, or its outcome, to a caller in its own event loop."""
    with suppress(RuntimeError):  # that loop is closed, so the caller is gone
        if outcome is None:
            caller.loop.call_soon_threadsafe(caller.begin)
        else:
            caller.loop.call_soon_threadsafe(caller.finish, outcome)


def _ask_system(host: str) -> list[str]:
    """Return the addresses of ``host`` in the order of RFC 6724; blocks."""
    # As in aiohttp: only families of which this machine has an address. On some systems localhost has none then.
    flags = 0 if host.rstrip(".").lower() == "localhost" else socket.AI_ADDRCONFIG
    found = []
    for family, _, _, _, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags):
        if family == socket.AF_INET:
            found.append(str(address[0]))
        elif family == socket.AF_INET6:
            text = str(address[0])
            scope_id = address[3] if len(address) > _WITHOUT_SCOPE else 0
            if scope_id and "%" not in text:  # RFC 4007 11: <address>%<zone>
                text = socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]
            found.append(text)
    return found
