"""The server of all hosts, in a process of its own, and its counts of requests."""

from __future__ import annotations

import asyncio
import re
import resource
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from benchmarks.loopback import AnsweringProtocol, process_running
from benchmarks.many_hosts.web import FORBIDDEN, Size, Web

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

_REQUEST: Final = re.compile(rb"GET (\S+) HTTP/1\.1\r\n(?:[^\r]+\r\n)*?Host: site(\d+)(\S+)(?:\r\n|$)", re.IGNORECASE)
_ANSWER: Final = b"HTTP/1.1 %b\r\nContent-Type: text/%b; charset=utf-8\r\nContent-Length: %d\r\n\r\n%b"
_CONNECTIONS_EACH: Final = 2  # one that is kept, one for robots.txt
_SPARE_FILES: Final = 200


@dataclass(slots=True)
class Counts:
    """The requests that the server received since the last report.

    Attributes:
        pages: how many pages.
        robots: how many robots.txt files.
        forbidden: how many forbidden pages.
        least_gap_s: the shortest time from an answer to the next request at the same host.
    """

    pages: int = 0
    robots: int = 0
    forbidden: int = 0
    least_gap_s: float = float("inf")
    answered: dict[bytes, float] = field(default_factory=dict, repr=False)


class Server:
    """Attributes:
    port: on 127.0.0.1, of all hosts.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.port: int = pipe.recv()

    def counts(self) -> Counts:
        """Return the counts since the last call."""
        self._pipe.send(None)
        counts: Counts = self._pipe.recv()
        return counts


@contextmanager
def serving(size: Size, seed: int) -> Iterator[Server]:
    """Serve while the block runs."""
    permit_open_files(_CONNECTIONS_EACH * size.hosts + _SPARE_FILES)
    with process_running(_serve, size, seed) as pipe:
        yield Server(pipe)


def permit_open_files(count: int) -> None:
    """Let this process and its children open so many files: crawlers keep a connection for each host.

    Raises:
        SystemExit: the system does not permit it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY not in (soft, hard) and hard < count:
        raise SystemExit(f"crawl: {count:,} open files are needed and {hard:,} permitted; give fewer --hosts")
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def _serve(there: Connection, size: Size, seed: int) -> None:
    permit_open_files(_CONNECTIONS_EACH * size.hosts + _SPARE_FILES)
    asyncio.run(_listen(there, Web(size, seed)))


async def _listen(there: Connection, web: Web) -> None:
    loop = asyncio.get_running_loop()
    counting = _Counting(web)
    server = await loop.create_server(lambda: AnsweringProtocol(counting.answer), "127.0.0.1", 0, backlog=1_000)

    def report() -> None:
        there.recv()
        there.send(counting.counts)
        counting.counts = Counts()

    loop.add_reader(there.fileno(), report)
    there.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


class _Counting:
    """Answers requests, and counts them."""

    def __init__(self, web: Web) -> None:
        self._web = web
        self.counts = Counts()

    def answer(self, request: bytes) -> bytes:
        found = _REQUEST.match(request)
        if found is None:
            return _ANSWER % (b"400 Bad Request", b"plain", 0, b"")
        path, number, end = found[1].decode(), int(found[2]), found[3].decode()
        counts, name = self.counts, found[2] + found[3]
        gap_s = time.monotonic() - counts.answered.get(name, float("-inf"))
        counts.least_gap_s = min(counts.least_gap_s, gap_s)
        if path == "/robots.txt":
            counts.robots += 1
            body = self._web.robots(number, end)
            answer = _ANSWER % (b"200 OK", b"plain", len(body), body)
        elif (page := self._web.page(number, end, path)) is not None:
            counts.forbidden += path == FORBIDDEN
            counts.pages += path != FORBIDDEN
            answer = _ANSWER % (b"200 OK", b"html", len(page), page)
        else:
            answer = _ANSWER % (b"404 Not Found", b"plain", 0, b"")
        counts.answered[name] = time.monotonic()
        return answer
