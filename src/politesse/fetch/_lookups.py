"""Looks up host names in separate threads, so that names that never resolve do not delay other names.

Theory of operation. getaddrinfo blocks its thread, for half a minute and more if a name server does not answer, and
cannot be cancelled. The executor of the event loop has few threads, so a few such names would block the lookups of all
other names. Here each lookup has its own thread. Concurrent callers of a name share one lookup and its result.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final

_MAX_THREADS: Final = 256

_WITHOUT_SCOPE: Final = 3  # the parts of an IPv6 socket address before its scope: host, port, flow


class _Lookup:
    """A name that is looked up.

    The futures of a lookup cannot be cancelled: each caller waits through a future of its own event loop.

    Attributes:
        callers: how many callers wait.
        begun: a future that is done once a thread has started the lookup.
        found: a future with the addresses.
    """

    __slots__ = ("begun", "callers", "found", "host")

    def __init__(self, host: str) -> None:
        self.host = host
        self.callers = 0
        self.begun: Future[None] = Future()
        self.found: Future[list[str]] = Future()
        self.begun.set_running_or_notify_cancel()
        self.found.set_running_or_notify_cancel()


class SystemResolver:
    """The system's resolver: getaddrinfo, with a separate thread for each name.

    Concurrent callers of a name share one lookup. At most 256 names are looked up at once. Other names wait
    in a queue, first in, first out; a name without callers leaves the queue. Names that never resolve delay other names
    only if they occupy all threads. A hanging lookup occupies its thread until the system gives up, even without
    callers. The threads are daemons, so they do not delay the exit of the interpreter. Several event loops may share an
    instance.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = 0
        self._lookups: dict[str, _Lookup] = {}
        self._queue: OrderedDict[str, _Lookup] = OrderedDict()

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        """Return the addresses of ``host``.

        Raises:
            OSError: ``host`` has no addresses, or the lookup failed.
        """
        del port
        return await self.look_up(host, None)

    async def look_up(self, host: str, limit_s: float | None) -> Sequence[str]:
        """Return the addresses of ``host``.

        Args:
            host: a name.
            limit_s: the time limit of the lookup, in seconds. Waiting for a thread does not count.

        Raises:
            OSError: the name does not exist, or the system has no threads left; TimeoutError after ``limit_s``.
            UnicodeError: ``host`` is not a valid name.
        """
        lookup = self._join(host)
        try:
            if not lookup.begun.done():
                await asyncio.wrap_future(lookup.begun)
            async with asyncio.timeout(limit_s):
                return await asyncio.wrap_future(lookup.found)
        finally:
            self._leave(lookup)

    def _join(self, host: str) -> _Lookup:
        with self._lock:
            lookup = self._lookups.get(host)
            if lookup is None:
                lookup = _Lookup(host)
                if not self._start(lookup):
                    self._queue[host] = lookup
                self._lookups[host] = lookup
            lookup.callers += 1
        return lookup

    def _leave(self, lookup: _Lookup) -> None:
        with self._lock:
            lookup.callers -= 1
            if not lookup.callers and not lookup.begun.done():
                del self._queue[lookup.host], self._lookups[lookup.host]

    def _start(self, lookup: _Lookup) -> bool:
        """Start a lookup if a thread is available; return whether it has started."""
        if self._threads >= _MAX_THREADS:
            return False
        try:
            threading.Thread(target=self._work, args=(lookup,), name="politesse-dns", daemon=True).start()
        except RuntimeError as error:  # the system has no threads left
            if not self._threads:
                raise OSError(f"no thread is available to look up {lookup.host}: {error}") from error
            return False
        self._threads += 1
        lookup.begun.set_result(None)
        return True

    def _work(self, first: _Lookup) -> None:
        """Look up a name, and then the names in the queue. Runs in a thread."""
        lookup: _Lookup | None = first
        while lookup is not None:
            try:
                found = _ask_system(lookup.host)
            except Exception as error:  # noqa: BLE001 - raised again in each caller
                following = self._finish(lookup)
                lookup.found.set_exception(error)
            else:
                following = self._finish(lookup)
                lookup.found.set_result(found)
            lookup = following

    def _finish(self, lookup: _Lookup) -> _Lookup | None:
        """Remove a lookup that has ended; return the next lookup from the queue, or None if this thread is to end."""
        with self._lock:
            del self._lookups[lookup.host]
            if not self._queue:
                self._threads -= 1
                return None
            _, following = self._queue.popitem(last=False)
            following.begun.set_result(None)
            return following


def _ask_system(host: str) -> list[str]:
    """Return the addresses of ``host`` in the order of RFC 6724; blocks."""
    # AI_ADDRCONFIG selects the address families that this machine uses, as in aiohttp. On some systems, localhost
    # cannot be resolved with this flag.
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
