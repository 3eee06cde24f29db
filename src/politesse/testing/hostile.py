"""A server on loopback that answers exactly as a test wants, well or badly, and logs the requests."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final, Self

from politesse._base.constants import ROBOTS_TXT
from politesse._judge import Exchange
from politesse.testing.answers import LOOPBACK, MAX_HEAD_BYTES, Call, Logged, Reply, now

if TYPE_CHECKING:
    from collections.abc import Mapping

    from politesse.testing.faults import Fault

PAGE: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 14\r\nConnection: close\r\n\r\n<p>a page</p>\n"
)
"""The default answer of every page."""

_FILLING: Final = 4  # no connection is accepted, and this many fill the shortest queue of any system


class HostileServer:
    r"""An HTTP/1.1 server with a robots.txt that has a ``fault``, and with ordinary pages.

    Each connection gets one answer, and is then closed. ``log`` holds every request, so a test sees the URLs and the
    times of the requests::

        async with HostileServer(FAULTS["drips-body"]) as server, Gatekeeper(user_agent) as gate:
            assert not await gate.check(server.url("/page"))
        assert server.pages == []

    Example:
        >>> from politesse.testing import FAULTS
        >>> server = HostileServer(FAULTS["status-503"], {"/moved": b"HTTP/1.1 302 Found\r\nLocation: /page\r\n\r\n"})
        >>> server.pages, server.robots_requests
        ([], 0)

    Args:
        fault: the fault of robots.txt; one of ``FAULTS``, or your own Fault.
        answers: maps each target that is not an ordinary page to its reply.
        address: the address to listen at, in 127.0.0.0/8.
        every_page: the reply to a request for any ordinary page.

    Attributes:
        open_connections: the number of open connections.
        address: the address at which the server listens.

    Raises:
        ConfigurationError: on entry, if the fault has a certificate and trustme is not installed.
    """

    def __init__(
        self,
        fault: Fault,
        answers: Mapping[str, Reply] | None = None,
        *,
        address: str = LOOPBACK,
        every_page: Reply = PAGE,
    ) -> None:
        self.open_connections: int = 0
        self._log: list[Logged] = []
        self._fault = fault
        self._answers = {ROBOTS_TXT: fault.robots, **fault.hops, **(answers or {})}
        self._every_page = every_page
        self.address = address
        self._port = 0
        self._asked: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._sockets: list[socket.socket] = []

    @property
    def origin(self) -> str:
        """The origin of the server, such as ``http://127.0.0.1:8081``."""
        scheme = "http" if self._fault.certificate is None else "https"
        return f"{scheme}://{self._fault.host or self.address}:{self._port}"

    @property
    def log(self) -> list[Exchange]:
        """Every request so far, in the order in which they came.

        An exchange ends just before the last piece of its answer is written, so no client can have seen the end
        earlier. An exchange without an answer ends when the connection ends, or now if the connection is still open.
        The status is 0 if no status line was sent in one piece.
        """
        until = now()
        return [replace(one.exchange, ended=min(one.exchange.ended, until)) for one in self._log]

    @property
    def pages(self) -> list[str]:
        """The requested targets in order, without robots.txt and the targets of its redirects."""
        targets = [one.exchange.url.removeprefix(self.origin) for one in self._log]
        return [target for target in targets if target != ROBOTS_TXT and target not in self._fault.hops]

    @property
    def robots_requests(self) -> int:
        """How many times robots.txt was requested."""
        return self._asked[ROBOTS_TXT]

    def url(self, target: str = ROBOTS_TXT) -> str:
        """Return a URL of this server."""
        return self.origin + target

    async def __aenter__(self) -> Self:
        if not self._fault.listens:
            self._port = self._bound().getsockname()[1]  # until the end, so that nobody else listens there
        elif not self._fault.accepts:
            self._port = await self._fill_queue()
        else:
            context = None if self._fault.certificate is None else self._fault.certificate()
            self._server = await asyncio.start_server(
                self._accept, self.address, 0, ssl=context, limit=MAX_HEAD_BYTES, backlog=1024
            )
            self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        for held in self._sockets:
            held.close()
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def __repr__(self) -> str:
        return f"<HostileServer {self._fault.name} at {self.origin}: {len(self._log)} requests>"

    def _bound(self) -> socket.socket:
        """Return a socket that keeps a port until the end of the server."""
        bound = socket.socket()
        try:
            bound.bind((self.address, 0))
        except OSError:
            bound.close()
            raise
        self._sockets.append(bound)
        return bound

    async def _fill_queue(self) -> int:
        """Listen, and connect until the queue of connections is full; return the port."""
        listening = self._bound()
        listening.listen(0)
        for _ in range(_FILLING):
            filling = socket.socket()
            filling.setblocking(False)  # noqa: FBT003 - as it is called
            with suppress(BlockingIOError):
                filling.connect(listening.getsockname())
            self._sockets.append(filling)
        await asyncio.sleep(0.02)  # connecting on loopback is quick, but not instantaneous
        return int(listening.getsockname()[1])

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_connections += 1
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            await self._answer(head, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client has gone
        finally:
            writer.transport.abort()
            self.open_connections -= 1

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        started = now()
        method, target, headers = _parse(head)
        self._asked[target] += 1
        logged = Logged(Exchange(self.url(target), started, inf, status=0, agent=headers.get("user-agent")))
        self._log.append(logged)
        call = Call(method, target, headers, self._asked[target], reader, writer, logged)
        answer = self._answers.get(target, self._every_page)
        try:
            if isinstance(answer, bytes):
                await call.send(answer)
            else:
                await answer(call)
        finally:
            if logged.exchange.ended == inf:
                logged.end()
        if not writer.transport.is_closing():
            writer.write_eof() if writer.can_write_eof() else writer.close()
            await call.silence()


def _parse(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ", 2)
    fields = (line.partition(":") for line in lines)
    return method, target, {name.lower(): value.strip() for name, _, value in fields}
