"""A large crawl, and its load on Redis, by arithmetic: pure.

How many pages a crawl takes of a host follows a power law that is cut off. Huberman and Adamic (Growth dynamics of the
World-Wide Web, Nature 401, 1999) found that the share of sites with n pages falls as n to the power of -1.65 to -1.9;
1.8 lies within. The cut is the crawler's own: no crawl takes all of a host that makes up pages without end.

The number of keys is by Little's law: as many as begin in a second, times the seconds for which each lives. The key of
a host lives from its first reservation until ``kept_s`` after the last script about it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from politesse._pacing.fleet.options import FleetOptions

if TYPE_CHECKING:
    from random import Random

KEPT_S: Final = 600.0
"""For how many seconds a key outlives the last script about it: KEPT in ``state.lua``."""


@dataclass(frozen=True)
class Crawl:
    """A crawl that requests the pages of a host one after the other.

    Attributes:
        pages_s: pages a second, of all processes.
        hosts: how many hosts.
        interval_s: from the end of a request to the start of the next, without slack.
        response_s: how long a request takes.
        exponent: of the power law of pages per host.
        most_pages: that are taken of a host.
        closed: the share of hosts that close once, by 429 or 503.
        closed_s: for how long they close.
        kept_s: for how long a key outlives the last script about it.
    """

    pages_s: float = 10_000.0
    hosts: int = 100_000_000
    interval_s: float = 5.0
    response_s: float = 1.0
    exponent: float = 1.8
    most_pages: int = 10_000
    closed: float = 0.01
    closed_s: float = 3_600.0
    kept_s: float = KEPT_S

    @cached_property
    def _shares(self) -> list[float]:
        """The share of hosts with at most n pages, from n = 1 on."""
        weights = [n**-self.exponent for n in range(1, self.most_pages + 1)]
        whole = math.fsum(weights)
        return [share / whole for share in accumulate(weights)]

    @cached_property
    def mean_pages(self) -> float:
        """Pages of a host, on average."""
        weights = [n**-self.exponent for n in range(1, self.most_pages + 1)]
        return math.fsum(n * weight for n, weight in enumerate(weights, 1)) / math.fsum(weights)

    def draw_pages(self, random: Random) -> int:
        """Draw how many pages a host has."""
        return min(bisect_left(self._shares, random.random()), self.most_pages - 1) + 1

    def share_up_to(self, pages: int) -> float:
        """Return the share of hosts that have at most so many pages."""
        return self._shares[min(pages, self.most_pages) - 1]

    @property
    def spacing_s(self) -> float:
        """From the start of a request to the start of the next at its host."""
        return self.response_s + self.interval_s + FleetOptions().spacing_s(self.interval_s)

    @property
    def hosts_s(self) -> float:
        """Hosts that begin in a second."""
        return self.pages_s / self.mean_pages

    @property
    def lasts_s(self) -> float:
        """How long the crawl takes, if it keeps its rate to the end."""
        return self.hosts / self.hosts_s

    def records(self, kept_s: float) -> float:
        """Return how many robots.txt a RedisStore holds at the end, if it keeps each for so long."""
        return min(float(self.hosts), self.hosts_s * kept_s)

    @property
    def in_flight(self) -> float:
        """Requests that are under way."""
        return self.pages_s * self.response_s

    @property
    def closed_keys(self) -> float:
        """Keys of hosts that are closed."""
        return self.hosts_s * self.closed * self.closed_s

    @property
    def _longer(self) -> float:
        """Keys that live because their host is closed for longer than a key is kept."""
        return self.hosts_s * self.closed * max(0.0, self.closed_s - self.kept_s)

    @property
    def keys_back_to_back(self) -> float:
        """Keys that live at once, if the pages of a host are requested as soon as its pace allows."""
        visit_s = (self.mean_pages - 1.0) * self.spacing_s + self.response_s
        return self.hosts_s * (visit_s + self.kept_s) + self._longer

    @property
    def keys_apart(self) -> float:
        """Keys that live at once, if each host rests for longer than ``kept_s`` after each of its pages."""
        return min(self.pages_s * (self.response_s + self.kept_s), self.hosts) + self._longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The measured cost of the scripts.

    Attributes:
        server: the server that was measured, with its version.
        script_us: processor time of the server for a wish and an end, half of each, without the costs below.
        trip_us: processor time of the server to be woken, to read a write of a client and to answer it.
        close_us: the same as ``script_us``, of a closing.
        idle_share: of a processor that the server takes when nothing happens.
        client_us: processor time of the client for a permit.
        bytes_in: that the server receives for a script, without the headers of TCP and IP.
        bytes_out: that it sends.
        keys: bytes of memory a key, by its state.
        record_bytes: of memory that a robots.txt takes in a RedisStore.
        record_us: processor time of the server for a robots.txt that is fetched: lease, record and answer.
    """

    server: str
    script_us: float
    trip_us: float
    close_us: float
    idle_share: float
    client_us: float
    bytes_in: float
    bytes_out: float
    keys: dict[str, float]
    record_bytes: float
    record_us: float


IN_FLIGHT: Final = "in flight"
IDLE: Final = "kept"
CLOSED: Final = "closed"
LONG_URL: Final = ", URLs of 100 octets"
LISTPACK: Final = ", the same, larger listpacks"

_AHEAD_S: Final = 2.0
"""An interval that is longer than this takes two scripts a page: one asks for the start, one tells the end."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The load of a crawl on all servers together.

    Attributes:
        scripts_s: scripts a second.
        cpu: processors that are busy.
        memory_bytes: of the keys.
        network_bytes_s: in both directions.
        client_cpu: processors that the clients take to pace.
    """

    scripts_s: float
    cpu: float
    memory_bytes: float
    network_bytes_s: float
    client_cpu: float

    def nodes(self, cpu_share: float, memory_bytes: float) -> int:
        """Return how many primaries are needed, of which each gives so much of its processor and memory."""
        return max(1, math.ceil(self.cpu / cpu_share), math.ceil(self.memory_bytes / memory_bytes))


def demand(crawl: Crawl, costs: Costs, keys: float, *, scripts_a_trip: float, long_urls: bool) -> Demand:
    """Return the load of a crawl on Redis while ``keys`` keys live."""
    closings_s = crawl.hosts_s * crawl.closed
    permits_s = crawl.pages_s + (crawl.pages_s if crawl.interval_s > _AHEAD_S else crawl.hosts_s)
    scripts_s = permits_s + closings_s
    cpu_us = permits_s * costs.script_us + closings_s * costs.close_us + scripts_s / scripts_a_trip * costs.trip_us
    ending = LONG_URL if long_urls else ""
    closed = crawl.closed_keys
    memory = (
        crawl.in_flight * costs.keys[IN_FLIGHT + ending]
        + closed * costs.keys[CLOSED + ending]
        + max(0.0, keys - closed - crawl.in_flight) * costs.keys[IDLE + ending]
    )
    return Demand(
        scripts_s,
        cpu_us / 1e6 + costs.idle_share,
        memory,
        scripts_s * (costs.bytes_in + costs.bytes_out),
        crawl.pages_s * costs.client_us / 1e6,
    )
