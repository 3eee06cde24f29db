"""Metrics of gatekeepers for Prometheus, and a Grafana dashboard of them; needs the extra ``metrics``.

::

    prometheus_client.start_http_server(9100)
    metrics = GateMetrics()
    metrics.watch(gate)

Theory of operation. ``_METRICS`` lists all metrics. GateMetrics subscribes to the events of each gate and counts them,
and reads the other figures from the gate at each scrape. A scrape may run in any thread. So it reads plain numbers, and
copies a dict in one step before it reads the values. Two figures need a loop over the hosts: the number of closed
hosts, and the age of the oldest copy. No label names a host, so the number of series depends on the number of gates
only.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from math import nan
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias
from weakref import ref

from politesse import events
from politesse._base.checks import check_types
from politesse._base.text import needing
from politesse._gate.gatekeeper import Gatekeeper
from politesse._http.ratelimit import QUOTA_FIELDS
from politesse.errors import ConfigurationError
from politesse.verdict import CLOSINGS, AccessResult, Bound, Reason

with needing("politesse.metrics", "metrics"):
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from prometheus_client.core import Metric

    from politesse._gate.state import GateState

    Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

__all__ = ["GateMetrics", "dashboard"]

_BUCKETS_S: Final = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
_CLOSINGS: Final = tuple(sorted(CLOSINGS))
_FETCHED: Final = events.RobotsFetched
_DONE: Final = ("obey", "cap", "skip")
_FIELDS: Final = ("retry-after", *sorted(QUOTA_FIELDS))
_PARTS: Final = ("cache", "fetcher", "files", "ledger", "pacer", "store")
_UNITS: Final = {"total": "cps", "seconds": "s", "bytes": "bytes"}  # as Grafana names them; cps: counts per second
_WAIT: Final = "politesse_turn_wait_seconds"
_AWAY: Final = "politesse_fleet_away"
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}


@dataclass(frozen=True, slots=True)
class _Row:
    """A metric.

    Attributes:
        name: the name in Prometheus, with the unit; ``_total`` makes it a counter.
        text: a sentence that explains the metric.
        event: the event that is counted, or None.
        by: the attribute of the event that has the value of the label. Without a label, an event counts only if this
            attribute is true; the default attribute is always true.
        label: the name of the other label, beside ``gate``, or empty.
        values: the values of the label; each has a series from the start.
        read: returns the figures of a gate by the value of the label; None for a figure from events.
    """

    name: str
    text: str
    event: type[events.Event] | None = None
    by: str = "__class__"
    label: str = ""
    values: Iterable[str] = ("",)
    read: Callable[[GateState], Mapping[str, float]] | None = None

    @property
    def labels(self) -> list[str]:
        """The names of the labels."""
        return ["gate", self.label] if self.label else ["gate"]

    def family(self) -> Family:
        """Return the metric without samples."""
        if self.name == _WAIT:
            return HistogramMetricFamily(self.name, self.text, labels=self.labels)
        kind = CounterMetricFamily if self.name.endswith("_total") else GaugeMetricFamily
        return kind(self.name, self.text, labels=self.labels)

    def panel(self, place: int) -> dict[str, object]:
        """Return the panel of this metric at a place in a Grafana dashboard with two columns."""
        unit, chosen, labels = _UNITS.get(self.name.rpartition("_")[2], "short"), '{gate=~"$gate"}', self.labels
        query = f"sum by ({', '.join(labels)}) ({self.name}{chosen})"
        if self.name == _WAIT:
            query = f"histogram_quantile(0.95, sum by (gate, le) (rate({_WAIT}_bucket{chosen}[$__rate_interval])))"
        elif self.name.endswith("_timestamp_seconds"):
            query = f"time() - min by (gate) ({self.name}{chosen})"
        elif self.name.endswith("_total"):
            query = f"sum by ({', '.join(labels)}) (rate({self.name}{chosen}[$__rate_interval]))"
        return {
            "type": "timeseries",
            "title": self.text.rstrip("."),
            "datasource": _SOURCE,
            "gridPos": {"x": place % 2 * 12, "y": place // 2 * 8, "w": 12, "h": 8},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": [{"expr": query, "legendFormat": " ".join(f"{{{{{label}}}}}" for label in labels)}],
        }


def _closed(state: GateState) -> dict[str, float]:
    closings = state.pacer.closings()
    return {bound: closings.get(bound, 0) for bound in _CLOSINGS}


def _dropped(state: GateState) -> dict[str, float]:
    return {"": 0 if state.ledger is None else state.ledger.dropped}


def _oldest(state: GateState) -> dict[str, float]:
    entries = list(state.cache.entries.values())
    return {"": min(map(attrgetter("confirmed_wall"), entries), default=nan)}


_METRICS: Final = (
    _Row("politesse_decisions_total", "Decisions.", events.Decided, "verdict.match.reason", "reason", Reason),
    _Row(_WAIT, "How long callers waited for a turn."),
    _Row("politesse_turns_open", "Turns under way.", read=lambda state: {"": state.pacer.in_flight}),
    _Row("politesse_turns_waiting", "Callers that wait for a turn.", read=lambda state: {"": state.pacer.waiting}),
    _Row("politesse_turns_expired_total", "Turns that reached max_turn_s.", events.TurnExpired),
    _Row("politesse_turns_dropped_total", "Turns that were dropped before their end.", events.TurnDropped),
    _Row("politesse_long_waits_total", "Long waits, by their limit.", events.LongWait, "bound_by", "by", Bound),
    _Row("politesse_hosts_closed", "Hosts that get no request now.", label="by", values=_CLOSINGS, read=_closed),
    _Row("politesse_host_closings_total", "Closings of hosts.", events.HostClosed, "bound_by", "by", _CLOSINGS),
    _Row("politesse_robots_fetches_total", "Fetches of robots.txt.", _FETCHED, "source.result", "result", AccessResult),
    _Row("politesse_robots_faults_total", "Failed fetches of robots.txt.", _FETCHED, "fault"),
    _Row("politesse_robots_truncated_total", "Files robots.txt that were cut.", _FETCHED, "truncated"),
    _Row("politesse_robots_fetching", "Fetches under way.", read=lambda state: {"": len(state.cache.flights)}),
    _Row("politesse_cache_origins", "Origins in the cache.", read=lambda state: {"": len(state.cache.entries)}),
    _Row("politesse_cache_bytes", "Memory of the cache, about.", read=lambda state: {"": state.cache.weight_bytes}),
    _Row("politesse_cache_oldest_timestamp_seconds", "When the oldest copy was fetched or confirmed.", read=_oldest),
    _Row("politesse_matching_bounded_total", "Decisions that reached the bound on work.", events.MatchingBounded),
    _Row("politesse_long_delays_total", "Turns at too slow sites.", events.LongDelay, "done", "done", _DONE),
    _Row("politesse_headers_overruled_total", "Unusable headers.", events.HeaderOverruled, "field", "field", _FIELDS),
    _Row("politesse_addresses_not_found_total", "Lookups without an address.", events.AddressNotFound),
    _Row("politesse_failures_total", "Exceptions.", events.ComponentFailed, "component", "component", _PARTS),
    _Row("politesse_events_lost_total", "Failures of subscribers.", read=lambda state: {"": state.publisher.lost}),
    _Row("politesse_ledger_dropped_total", "Rows that the ledger dropped.", read=_dropped),
    _Row("politesse_fleet_losses_total", "Losses of the Redis of the fleet.", events.FleetAway),
    _Row(_AWAY, "1 while the Redis of the fleet is away."),
)
_ROWS_OF: Final = {
    event: [(row, attrgetter(row.by)) for row in _METRICS if row.event is event]
    for event in {row.event for row in _METRICS}
}


@dataclass(slots=True, eq=False)
class _Watched:
    """A gate, and the figures from its events.

    Attributes:
        name: the value of the label ``gate``.
        state: the gate, unless the program has dropped it.
        counts: the counts by the name of the metric and the value of the label.
        waits: how many waits fell into each bucket.
        waited_s: the sum of all waits, in seconds.
    """

    name: str
    state: ref[GateState]
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    waits: list[int] = field(default_factory=lambda: [0] * (len(_BUCKETS_S) + 1))
    waited_s: float = 0.0

    def note(self, event: events.Event) -> None:
        """Count an event."""
        for row, value_of in _ROWS_OF.get(type(event), ()):
            value = value_of(event)
            if row.label or value:
                self.counts[row.name, value if row.label else ""] += 1
        if isinstance(event, events.TurnGranted):
            self.waits[bisect_left(_BUCKETS_S, event.waited_s)] += 1
            self.waited_s += event.waited_s
        elif isinstance(event, events.FleetAway | events.FleetBack):
            self.counts[_AWAY, ""] = int(isinstance(event, events.FleetAway))

    def add_to(self, family: Family, row: _Row, state: GateState) -> None:
        """Add the samples of this gate to a metric."""
        if isinstance(family, HistogramMetricFamily):
            buckets = zip((*map(str, _BUCKETS_S), "+Inf"), accumulate(self.waits), strict=True)
            family.add_metric([self.name], list(buckets), self.waited_s)
            return
        figures = None if row.read is None else row.read(state)
        for value in row.values:
            figure = self.counts[row.name, value] if figures is None else figures[value]
            family.add_metric([self.name, value][: len(row.labels)], figure)


class GateMetrics(Collector):
    """The metrics of all gatekeepers of a process, for one registry of Prometheus.

    A closed gate keeps its last figures until the program drops the gate. Gates of an event loop share their hosts, so
    each gate reports the turns and closings of all these gates.

    Args:
        registry: the registry, which calls ``collect`` at each scrape.

    Raises:
        ConfigurationError: the registry has a GateMetrics already.

    Example:
        >>> import asyncio
        >>> from prometheus_client import CollectorRegistry
        >>> from politesse import Gatekeeper
        >>> from politesse.testing import ScriptedFetcher
        >>> async def count():
        ...     registry = CollectorRegistry()
        ...     metrics = GateMetrics(registry)
        ...     async with Gatekeeper("ExampleBot/1.0", fetcher=ScriptedFetcher()) as gate:
        ...         metrics.watch(gate)
        ...         await gate.check("https://example.com/")
        ...     series = {"gate": "examplebot", "reason": "unavailable"}
        ...     return registry.get_sample_value("politesse_decisions_total", series)
        >>> asyncio.run(count())
        1
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        check_types({"registry": (registry, CollectorRegistry)}, required=True)
        self._watched: dict[str, _Watched] = {}
        try:
            registry.register(self)
        except ValueError as error:
            problem = "this registry has these metrics already: make one GateMetrics, and call its watch for each gate"
            raise ConfigurationError(f"{problem} ({error})") from error

    def watch(self, gate: Gatekeeper, name: str = "") -> None:
        """Count the events of a gate from now on.

        Args:
            gate: the gate.
            name: the value of the label ``gate``; by default the product tokens of the gate.

        Raises:
            ConfigurationError: another open gate has this name.
            ClosedError: the gate is closed.
        """
        check_types({"gate": (gate, Gatekeeper), "name": (name, str)}, required=True)
        watched = _Watched(name or gate.name, ref(gate.state))
        alive = {known: other for known, other in self._watched.items() if other.state() is not None}
        state = alive[watched.name].state() if watched.name in alive else None
        if state is not None and state.closing is not None:
            raise ConfigurationError(f"a gate named {watched.name!r} is watched already: give this gate another name=")
        gate.subscribe(watched.note)
        self._watched = alive | {watched.name: watched}

    def describe(self) -> Iterator[Metric]:
        """Return all metrics without samples."""
        return (row.family() for row in _METRICS)

    def collect(self) -> Iterator[Metric]:
        """Return all metrics, with the samples of all gates."""
        gates = [(watched, watched.state()) for watched in self._watched.values()]
        for row in _METRICS:
            family = row.family()
            for watched, state in gates:
                if state is not None:
                    watched.add_to(family, row, state)
            yield family


def dashboard() -> str:
    """Return a Grafana dashboard with a panel for each metric, as JSON to import.

    >>> import json
    >>> json.loads(dashboard())["title"]
    'politesse'
    """
    panels = [row.panel(place) for place, row in enumerate(_METRICS)]
    gates = {"type": "query", "query": f"label_values({_METRICS[0].name}, gate)", "refresh": 2}
    variables = [
        {"name": "source", "type": "datasource", "query": "prometheus"},
        {"name": "gate", "datasource": _SOURCE, "includeAll": True, "multi": True} | gates,
    ]
    whole = {"title": "politesse", "uid": "politesse", "schemaVersion": 39, "panels": panels}
    return json.dumps(whole | {"templating": {"list": variables}}, indent=1)
