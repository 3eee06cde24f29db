"""Crawls by several processes, as one site sees them: what they are told to do, and what they must not have done."""

import asyncio
import json
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Self


@dataclass(frozen=True, slots=True)
class Host:
    """A host of the site.

    Attributes:
        name: of the host.
        interval_s: the least time between two requests.
        response_s: how long each answer takes.
        max_concurrent: how many requests may be under way at once.
        refuses_every: each so-many-th request is answered with 429; 0 for none.
    """

    name: str
    interval_s: float
    response_s: float
    max_concurrent: int = 1
    refuses_every: int = 0


@dataclass(frozen=True, slots=True)
class Crawl:
    """What one worker does.

    Attributes:
        redis_url: where the fleet meets.
        prefix: of its keys.
        site_port: where the site listens.
        hosts: what is requested, by ``tasks`` loops each.
        tasks: how many requests to a host wait at once.
        backoff_s: for how long a 429 closes a host.
        lease_s: of the fleet.
        wall_offset_s: by how much the wall clock of this worker is wrong.
        is_blind: whether this worker does not notice that Redis has lost data.
    """

    redis_url: str
    prefix: str
    site_port: int
    hosts: tuple[Host, ...]
    tasks: int = 2
    backoff_s: float = 1.0
    lease_s: float = 5.0
    wall_offset_s: float = 0.0
    is_blind: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Self:
        fields = json.loads(text)
        hosts = tuple(Host(**host) for host in fields.pop("hosts"))
        return cls(hosts=hosts, **fields)


@dataclass(slots=True)
class Visit:
    """One request as the site has seen it.

    Attributes:
        host: which.
        worker: who made it.
        sent_mono: when the worker had its permit.
        start_mono: when it came.
        end_mono: when it was answered; infinite if it is not yet.
        refused: whether with 429.
        noted_mono: when the worker said that all know of the refusal; infinite for never.
    """

    host: str
    worker: int
    sent_mono: float
    start_mono: float
    end_mono: float = float("inf")
    refused: bool = False
    noted_mono: float = float("inf")


def violations(visits: Iterable[Visit], hosts: Iterable[Host], backoff_s: float) -> Iterator[str]:
    """Yield what was impolite."""
    by_host: dict[str, list[Visit]] = {host.name: [] for host in hosts}
    for visit in visits:
        by_host[visit.host].append(visit)
    for host in hosts:
        line = sorted(by_host[host.name], key=lambda visit: visit.start_mono)
        yield from _too_close(host, line)
        yield from _too_many(host, line)
        yield from _after_refusals(host, line, backoff_s)


def _too_close(host: Host, line: list[Visit]) -> Iterator[str]:
    # All run on one machine, and so by one monotonic clock. From start to start the permits are compared: how long each
    # request is on its way to a busy site is not up to the pacer, and may well differ by more than the slack.
    is_alone = host.max_concurrent == 1
    if not is_alone:
        line = sorted(line, key=lambda visit: visit.sent_mono)
    for one, other in pairwise(line):
        gap_s = other.start_mono - one.end_mono if is_alone else other.sent_mono - one.sent_mono
        if gap_s < host.interval_s:
            what = "overlap" if gap_s < 0 else "gap"
            yield f"{what} at {host.name}: {gap_s:.4f} s, not {host.interval_s} s, by {one.worker} and {other.worker}"


def _too_many(host: Host, line: list[Visit]) -> Iterator[str]:
    for place, visit in enumerate(line):
        at_once = 1 + sum(1 for earlier in line[:place] if earlier.end_mono > visit.start_mono)
        if at_once > host.max_concurrent:
            yield f"{at_once} at once at {host.name}, not {host.max_concurrent}"


def _after_refusals(host: Host, line: list[Visit], backoff_s: float) -> Iterator[str]:
    for refusal in line:
        # Alone, the refused request keeps all others away until its worker has closed the host; beside others, what is
        # on its way when the refusal is noted may still arrive.
        since_mono = refusal.end_mono if host.max_concurrent == 1 else refusal.noted_mono
        for visit in line:
            if refusal.refused and since_mono < visit.start_mono < refusal.end_mono + backoff_s:
                yield f"{host.name} was asked {visit.start_mono - refusal.end_mono:.4f} s after its 429"


class ObservedSite:
    """A site that stamps each request as it comes and as it is answered: the one observer of a fleet.

    Serves lines: ``HOST WORKER SENT`` is a request, answered with a status; ``noted HOST`` notes a refusal.
    """

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
        serving = asyncio.create_task(self._serve(reader, writer))
        # Not in the task: one that is cancelled before its first step does nothing.
        serving.add_done_callback(lambda _: writer.close())
        self._serving.append(serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):  # the worker was killed
            while line := await reader.readline():
                word, rest, *sent = line.decode().split()
                if sent:
                    status = await self._answer(self._hosts[word], int(rest), float(sent[0]))
                    writer.write(b"%d\n" % status)
                elif rest in self._refusals:
                    self._refusals[rest].noted_mono = time.monotonic()

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
