"""Crawls by several processes, as one site sees them: what they are told to do, and what they must not have done."""

import json
from collections.abc import Iterable, Iterator
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
        sabotage: which of the pacer's checks is left out; empty for none.
    """

    redis_url: str
    prefix: str
    site_port: int
    hosts: tuple[Host, ...]
    tasks: int = 2
    backoff_s: float = 1.0
    lease_s: float = 5.0
    wall_offset_s: float = 0.0
    sabotage: str = ""

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


def least_margin_s(visits: Iterable[Visit], hosts: Iterable[Host]) -> float:
    """Return by how much the least gap of any host was longer than its interval, from end to start, in seconds."""
    alone = {host.name: host.interval_s for host in hosts if host.max_concurrent == 1}
    line = sorted((visit for visit in visits if visit.host in alone), key=lambda visit: (visit.host, visit.start_mono))
    pairs = ((one, other) for one, other in pairwise(line) if one.host == other.host)
    return min(other.start_mono - one.end_mono - alone[one.host] for one, other in pairs)


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
