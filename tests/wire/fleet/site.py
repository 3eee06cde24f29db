"""A site that stamps each request as it comes and as it is answered: the one observer of a fleet."""

import asyncio
import time
from collections.abc import Iterable
from typing import Self

from tests.wire.fleet.crawls import Host, Visit


class ObservedSite:
    """Serves lines: ``HOST WORKER SENT`` is a request, answered with a status; ``noted HOST`` notes a refusal."""

    def __init__(self, hosts: Iterable[Host]) -> None:
        self._hosts = {host.name: host for host in hosts}
        self._counts = dict.fromkeys(self._hosts, 0)
        self._refusals: dict[str, Visit] = {}
        self.visits: list[Visit] = []
        self.port = 0
        self._serving: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def since(self, mono: float) -> list[Visit]:
        """Return the requests that came after a time."""
        return [visit for visit in self.visits if visit.start_mono > mono]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        # Not in the task: one that is cancelled before its first step does nothing.
        serving.add_done_callback(lambda _: writer.close())
        self._serving.append(serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                word, rest, *sent = line.decode().split()
                if sent:
                    status = await self._answer(self._hosts[word], int(rest), float(sent[0]))
                    writer.write(b"%d\n" % status)
                elif rest in self._refusals:
                    self._refusals[rest].noted_mono = time.monotonic()
        except ConnectionError:
            pass  # the worker was killed

    async def _answer(self, host: Host, worker: int, sent_mono: float) -> int:
        visit = Visit(host.name, worker, sent_mono, time.monotonic())
        self.visits.append(visit)
        self._counts[host.name] += 1
        await asyncio.sleep(host.response_s)
        visit.end_mono = time.monotonic()
        if not host.refuses_every or self._counts[host.name] % host.refuses_every:
            return 200
        visit.refused = True
        self._refusals[host.name] = visit
        return 429
