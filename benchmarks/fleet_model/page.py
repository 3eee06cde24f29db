"""The page of arithmetic: what was measured, the crawl, what it asks of Redis, and how far a real one is from that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from benchmarks.figures import figure
from benchmarks.fleet_model.costs import measure
from benchmarks.fleet_model.crawl import CLOSED, IDLE, IN_FLIGHT, LISTPACK, LONG_URL, Crawl, demand
from benchmarks.fleet_model.simulation import simulate
from benchmarks.fleet_model.trial import PROCESSES, SMALL, trial
from benchmarks.table import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.figures import Reported
    from benchmarks.fleet_model.crawl import Costs
    from benchmarks.fleet_model.simulation import Course, Order
    from benchmarks.settings import Settings

_ORDERS: Final[tuple[Order, ...]] = ("hosts that are due first", "new hosts first")
_CPU_SHARE: Final = 0.5
_NODE_BYTES: Final = 8 * 2**30
_PAGES_A_PROCESS: Final = 100.0
_CONNECTIONS_A_PROCESS: Final = 2
_SCRIPTS_A_TRIP: Final = 10.0
_MIB: Final = 2**20
_DAY_S: Final = 86_400.0
_RECORD_DAYS: Final = (1, 31)
"""For how many days RedisStore keeps a robots.txt: as long as it answers for without revalidation, and by default."""


def run(settings: Settings) -> Iterator[Reported]:
    """Yield the page."""
    crawl = Crawl() if not settings.quick else Crawl(pages_s=1_000.0, hosts=1_000_000, most_pages=100)
    costs = measure(settings)
    yield from _costs(costs)
    courses = {
        order: simulate(crawl, order, sample=settings.size(4, 1) / 1_000, seed=settings.seed) for order in _ORDERS
    }
    yield _crawl(crawl, courses)
    yield from _demand(crawl, costs, courses)
    yield from _records(crawl, costs)
    yield from _check(settings, costs)


def _costs(costs: Costs) -> Iterator[Reported]:
    states = (IN_FLIGHT, IDLE, CLOSED)
    endings = {
        "": "URLs of 40 octets",
        LONG_URL: "URLs of 100 octets",
        LONG_URL + LISTPACK: "URLs of 100 octets, hash-max-listpack-value 512",
    }
    rows = [(name, *(f"{costs.keys[state + ending]:,.0f}" for state in states)) for ending, name in endings.items()]
    yield table(f"fleet: bytes of memory a host, {costs.server}", ("", *states), rows)
    lines = [
        ("a script, of a wish and of an end", f"{costs.script_us:.1f} us"),
        ("a round trip that wakes the server", f"{costs.trip_us:.1f} us"),
        ("a closing", f"{costs.close_us:.1f} us"),
        ("nothing", f"{100 * costs.idle_share:.2f} % of a processor"),
        ("a permit, in the client", f"{costs.client_us:.0f} us"),
    ]
    yield table(f"fleet: processor time, {costs.server}", ("", ""), lines)
    yield figure("fleet/script", [costs.script_us], "us")
    yield figure("fleet/trip", [costs.trip_us], "us")
    yield figure("fleet/bytes a script", [costs.bytes_in + costs.bytes_out], "B")
    for state in states:
        for ending in endings:
            yield figure(f"fleet/memory, {state}{ending}", [costs.keys[state + ending]], "B")


def _crawl(crawl: Crawl, courses: Mapping[Order, Course]) -> str:
    title = (
        f"fleet: {crawl.hosts:,} hosts, {crawl.pages_s:,.0f} pages a second; simulated page by page\n"
        f"pages a host: a power law of exponent {crawl.exponent:g}, at most {crawl.most_pages:,}; "
        f"on average {crawl.mean_pages:.1f}, {100 * crawl.share_up_to(1):.0f} % have one\n"
        f"{crawl.interval_s:g} s from the end of a request of {crawl.response_s:g} s to the next; "
        f"{100 * crawl.closed:g} % of hosts close for {crawl.closed_s / 60:.0f} min; "
        f"a key is kept for {crawl.kept_s / 60:.0f} min"
    )
    predicted = dict(zip(_ORDERS, (crawl.keys_back_to_back, crawl.keys_apart), strict=True))
    rows = [
        (
            order,
            f"{course.pages / 1e6:,.0f} M",
            f"{course.full_rate_s / 3600:.1f}",
            f"{course.mean_keys:,.0f}",
            f"{course.most_keys:,.0f}",
            f"{predicted[order]:,.0f}",
        )
        for order, course in courses.items()
    ]
    header = ("", "pages", "hours at\nfull rate", "keys,\nmean", "keys,\nmost", "keys, by\nLittle's law")
    return table(title, header, rows)


def _demand(crawl: Crawl, costs: Costs, courses: Mapping[Order, Course]) -> Iterator[Reported]:
    processes = crawl.pages_s / _PAGES_A_PROCESS
    rows = []
    for order, course in courses.items():
        for long_urls in (False, True):
            found, busy = (
                demand(crawl, costs, course.most_keys, scripts_a_trip=number, long_urls=long_urls)
                for number in (1.0, _SCRIPTS_A_TRIP)
            )
            nodes = found.nodes(_CPU_SHARE, _NODE_BYTES)
            rows.append(
                (
                    f"{order}{LONG_URL if long_urls else ''}",
                    f"{found.scripts_s:,.0f}",
                    f"{found.cpu:.2f}",
                    f"{busy.cpu:.2f}",
                    f"{found.memory_bytes / _MIB:,.0f}",
                    f"{8 * found.network_bytes_s / 1e6:,.0f}",
                    str(nodes),
                    f"{processes * (nodes + 1):,.0f}" if nodes > 1 else f"{processes * _CONNECTIONS_A_PROCESS:,.0f}",
                    f"{found.client_cpu:.1f}",
                )
            )
            ending = ", long URLs" if long_urls else ""
            yield figure(f"fleet/cluster memory, {order}{ending}", [found.memory_bytes / _MIB], "MiB")
            yield figure(f"fleet/cluster processors, {order}{ending}", [found.cpu], "processors")
            yield figure(f"fleet/nodes, {order}{ending}", [nodes], "nodes")
    header = (
        "at the most keys",
        "scripts\na second",
        "processors,\nRedis",
        f"{_SCRIPTS_A_TRIP:g} scripts\na round trip",
        "memory,\nMiB",
        "Mbit/s",
        "primaries",
        "connec-\ntions",
        "processors,\nclients",
    )
    title = (
        "fleet: each script by a round trip of its own that wakes the server\n"
        f"a primary gives {100 * _CPU_SHARE:.0f} % of a processor and {_NODE_BYTES / 2**30:g} GiB; "
        f"{processes:,.0f} processes, {_PAGES_A_PROCESS:g} pages a second each,\n"
        "with a connection to each primary"
    )
    yield table(title, header, rows)


def _records(crawl: Crawl, costs: Costs) -> Iterator[Reported]:
    rows = [
        (
            f"{days:g} days" if days > 1 else "a day",
            f"{crawl.records(days * _DAY_S):,.0f}",
            f"{crawl.records(days * _DAY_S) * costs.record_bytes / 2**30:,.1f}",
            f"{crawl.hosts_s * costs.record_us / 1e6:.2f}",
        )
        for days in _RECORD_DAYS
    ]
    title = (
        f"fleet: robots.txt in a RedisStore, {costs.record_bytes:,.0f} bytes each; "
        f"{crawl.hosts_s:,.0f} new hosts a second"
    )
    yield table(title, ("kept for", "records\nat the end", "memory,\nGiB", "processors,\nRedis"), rows)
    yield figure("fleet/record", [costs.record_bytes], "B")


def _check(settings: Settings, costs: Costs) -> Iterator[Reported]:
    found = trial(settings, costs)
    names = ("keys that live", "scripts a second", "% of a processor, server", "kB a second")
    scales = (1.0, 1.0, 100.0, 1e-3)
    rows = [
        (name, f"{scale * one.predicted:,.1f}", f"{scale * one.measured:,.1f}", f"{100 * one.error:+.1f} %")
        for name, scale, one in zip(names, scales, found, strict=True)
    ]
    small = SMALL if not settings.quick else replace(SMALL, pages_s=60.0)
    title = (
        f"fleet: the same arithmetic against a real crawl: {PROCESSES} processes, {small.pages_s:g} pages a second, "
        f"keys kept for some seconds"
    )
    yield table(title, ("", "predicted", "measured", "error"), rows)
    for name, one in zip(("keys", "scripts", "server", "network"), found, strict=True):
        yield figure(f"fleet/model, {name}", [one.predicted / one.measured])
