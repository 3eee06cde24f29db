"""A server on loopback that answers octet by octet, as well or as badly as a test wants, and writes down what came."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from politesse._constants import ROBOTS_TXT
from politesse.testing.trace import Exchange

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from politesse.testing.faults import Fault

LOOPBACK: Final = "127.0.0.1"
PAGE: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 14\r\nConnection: close\r\n\r\n<p>a page</p>\n"
)
"""What every page answers unless told otherwise."""

_MAX_HEAD: Final = 64 * 1024
_FILLING: Final = 4  # connections that nobody accepts: more than the shortest queue of any system holds
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER of no seconds: closing sends a RST


@dataclass(slots=True)
class _Logged:
    """A request in the log; it ends when the last of its answer is about to be written: then a client may see it."""

    url: str = ""
    started: float = 0.0
    ended: float | None = None
    status: int = 0
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A request that is to be answered, and the means to do it.

    Attributes:
        method: as in ``GET``.
        target: path and query.
        headers: names in lower case.
        number: how often this target has been asked for, this time included.
        reader: what else the client sends.
        writer: to the client.
        logged: what the server writes down about it.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    number: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    logged: _Logged = field(default_factory=_Logged)

    async def send(self, *pieces: bytes) -> None:
        """Write some octets, and wait until the client has taken in most of them."""
        for piece in pieces:
            self.logged.ended = time.time()
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)  # drain waits for nothing while the client keeps up, and this may have no end

    async def silence(self) -> None:
        """Say nothing until the client has gone."""
        while await self.reader.read(_MAX_HEAD):
            pass

    def reset(self) -> None:
        """Break the connection off with a RST."""
        self.logged.ended = time.time()
        if not self.writer.transport.is_closing():  # else the client has gone already
            self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.writer.transport.abort()


Handler = Callable[[Call], Awaitable[None]]
Answer = bytes | Handler
"""What a target answers: octets, head included; or what writes them, until it returns or the client goes."""


class HostileServer:
    """An HTTP/1.1 server whose robots.txt is as ``fault`` has it, and whose pages are pages.

    Each connection has one answer, and is closed after it. What was asked is in ``log``, so that a test can tell what a
    crawler requested, and when::

        async with HostileServer(FAULTS["drips-body"]) as server, Gatekeeper(user_agent) as gate:
            assert not await gate.check(server.url("/page"))
        assert server.pages == []

    Args:
        fault: what becomes of a request for robots.txt; one of ``FAULTS``, or of your own.
        answers: by target, what else is not a page.
        address: where to listen; any of 127.0.0.0/8.
        every_page: what a page answers.

    Attributes:
        open_connections: how many there are now.
    """

    def __init__(
        self,
        fault: Fault,
        answers: Mapping[str, Answer] | None = None,
        *,
        address: str = LOOPBACK,
        every_page: Answer = PAGE,
    ) -> None:
        self.open_connections = 0
        self._log: list[_Logged] = []
        self._fault = fault
        self._answers = {ROBOTS_TXT: fault.robots, **fault.hops, **(answers or {})}
        self._every_page = every_page
        self._address = address
        self._port = 0
        self._asked: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._queue: list[socket.socket] = []

    @property
    def origin(self) -> str:
        """As in ``http://127.0.0.1:8081``."""
        scheme = "http" if self._fault.certificate is None else "https"
        return f"{scheme}://{self._fault.host or self._address}:{self._port}"

    @property
    def address(self) -> str:
        """Where it listens."""
        return self._address

    @property
    def log(self) -> list[Exchange]:
        """Every request so far, in the order in which they came.

        One ends when the last of its answer was about to be written, so that no client can have seen its end before;
        one without an answer when the connection does, or now. 0 is the status of an answer that is not told octet by
        octet beforehand.
        """
        now = time.time()
        return [
            Exchange(one.url, one.started, now if one.ended is None else one.ended, one.status, one.retry_after_s)
            for one in self._log
        ]

    @property
    def pages(self) -> list[str]:
        """The targets that were requested, but robots.txt and where its redirects lead, in order."""
        return [target for exchange in self.log if (target := self._target(exchange)) not in self._robots_targets]

    @property
    def robots_requests(self) -> int:
        """How often robots.txt was requested."""
        return self._asked[ROBOTS_TXT]

    def url(self, target: str = ROBOTS_TXT) -> str:
        """Return an URL of this server."""
        return self.origin + target

    async def __aenter__(self) -> Self:
        if not self._fault.listens:
            with socket.socket() as unused:
                unused.bind((self._address, 0))
                self._port = unused.getsockname()[1]
        elif not self._fault.accepts:
            self._port = await self._fill_queue()
        else:
            context = None if self._fault.certificate is None else self._fault.certificate()
            self._server = await asyncio.start_server(
                self._accept, self._address, 0, ssl=context, limit=_MAX_HEAD, backlog=1024
            )
            self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for waiting in self._queue:
            waiting.close()
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def __repr__(self) -> str:
        return f"<HostileServer {self._fault.name} at {self.origin}: {len(self._log)} requests>"

    @property
    def _robots_targets(self) -> set[str]:
        return {ROBOTS_TXT, *self._fault.hops}

    def _target(self, exchange: Exchange) -> str:
        return exchange.url.removeprefix(self.origin)

    async def _fill_queue(self) -> int:
        """Listen, and connect until the queue of connections that nobody has accepted is full; return the port."""
        listening = socket.socket()
        listening.bind((self._address, 0))
        listening.listen(0)
        self._queue.append(listening)
        for _ in range(_FILLING):
            filling = socket.socket()
            filling.setblocking(False)  # noqa: FBT003 - as it is called
            with suppress(BlockingIOError):
                filling.connect(listening.getsockname())
            self._queue.append(filling)
        await asyncio.sleep(0.02)  # loopback is quick, but not instantaneous
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
        started = time.time()
        method, target, headers = _parse(head)
        self._asked[target] += 1
        logged = _Logged(self.url(target), started)
        self._log.append(logged)
        call = Call(method, target, headers, self._asked[target], reader, writer, logged)
        answer = self._answers.get(target, self._every_page)
        try:
            if isinstance(answer, bytes):
                logged.status, logged.retry_after_s = _said(answer)
                await call.send(answer)
            else:
                await answer(call)
        finally:
            if logged.ended is None:
                logged.ended = time.time()
        if not writer.transport.is_closing():
            writer.write_eof() if writer.can_write_eof() else writer.close()
            await call.silence()


def _parse(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ", 2)
    fields = (line.partition(":") for line in lines)
    return method, target, {name.lower(): value.strip() for name, _, value in fields}


def _said(answer: bytes) -> tuple[int, float | None]:
    """Return the status of an answer, and the seconds that its Retry-After asks for."""
    first, *lines = answer.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    status = first.split(" ")[1:2]
    for line in lines:
        name, _, value = line.partition(":")
        if name.lower() == "retry-after" and value.strip().isdigit():
            return int(status[0]), float(value)
    return (int(status[0]) if status and status[0].isdigit() else 0), None
