"""Measures the cost of the scripts on a real server: each is called with the arguments of a real fleet."""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.corpus import load
from benchmarks.fleet_model.crawl import CLOSED, IDLE, IN_FLIGHT, LISTPACK, LONG_URL, Costs
from benchmarks.fleet_model.server import running
from benchmarks.fleet_peers import pacer_at
from benchmarks.fleet_worker import RoundTrips
from benchmarks.origins import Bodies, NumberedFetcher, url_of
from politesse import Gatekeeper, PacingOptions
from politesse._pacing.fleet.options import FleetOptions
from politesse._pacing.fleet.wire import wire_to
from politesse._pacing.hosts import TurnRequest
from politesse.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from benchmarks.fleet_model.server import Observed, Readings
    from benchmarks.settings import Settings
    from politesse._pacing.hosts import Hosts, Permit

_SHORT, _LONG = 40, 100
"""Octets of a URL."""

_LARGER_LISTPACKS: Final = ("--hash-max-ziplist-value", "512")
"""All versions know the old name."""

_MEMBERS: Final = 3
_TASKS: Final = 200
_IDLE_S: Final = 2.0
_PATIENCE_S: Final = 120.0
_PAUSE_S: Final = 0.003
"""The server sleeps meanwhile: a server with little to do has to be woken in each round trip, which costs time."""

_RECORD_SCRIPTS: Final = 2
"""One takes the lease, one puts the record."""


class Flow(NamedTuple):
    """Permits that were taken and ended, for one of them.

    Attributes:
        server_us: processor time of the server a script.
        trips: round trips a script.
        client_us: processor time of the client a permit.
        bytes_in: that the server received, a script.
        bytes_out: that it sent.
    """

    server_us: float
    trips: float
    client_us: float
    bytes_in: float
    bytes_out: float


def measure(settings: Settings) -> Costs:
    """Measure all costs."""
    hosts = settings.size(8_000, 400)
    with running() as server:
        name = server.name
        keys = asyncio.run(_key_bytes(server, hosts, _SHORT))
        idle_share, flows, close_us = asyncio.run(_flows(server, max(100, hosts // 4), max(1, settings.rounds // 5)))
    with running() as server:
        keys |= {f"{state}{LONG_URL}": size for state, size in asyncio.run(_key_bytes(server, hosts, _LONG)).items()}
    with running() as server:
        record_bytes, record_us = asyncio.run(_record(server, settings))
    with running(*_LARGER_LISTPACKS) as server:
        larger = asyncio.run(_key_bytes(server, hosts, _LONG))
        keys |= {f"{state}{LONG_URL}{LISTPACK}": size for state, size in larger.items()}
    alone, together = ([flow[tasks] for flow in flows] for tasks in (1, _TASKS))
    trip_us = median(
        (one.server_us - many.server_us) / (one.trips - many.trips) for one, many in zip(alone, together, strict=True)
    )
    script_us = median(many.server_us - many.trips * trip_us for many in together)
    return Costs(
        server=name,
        script_us=script_us,
        trip_us=trip_us,
        close_us=close_us,
        idle_share=idle_share,
        client_us=median(one.client_us for one in alone),
        bytes_in=median(one.bytes_in for one in alone),
        bytes_out=median(one.bytes_out for one in alone),
        keys=keys,
        record_bytes=record_bytes,
        record_us=record_us,
    )


async def _key_bytes(server: Observed, hosts: int, octets: int) -> dict[str, float]:
    """Return the memory of a key in each state."""
    members = [_pacer(server, f"{octets}:") for _ in range(_MEMBERS)]
    try:
        for number, pacer in enumerate(members):
            await _connect(pacer, f"first{number}.example")
        before, found = server.read(), {}
        for state, status in ((IDLE, 200), (CLOSED, 429)):
            begun = server.read()
            permits = [
                permit
                for number, pacer in enumerate(members)
                async for permit in _started(
                    pacer, [f"host{at}.{state}{number}.example" for at in range(hosts)], octets
                )
            ]
            if state == IDLE:
                found[IN_FLIGHT] = _each(server.read(), before)
            for permit in permits:
                permit.observe(status, {"Retry-After": "3600"})
                permit.end()
            await _settled(server, begun.scripts + 2 * len(permits))
            found[state] = _each(server.read(), begun)
    finally:
        for pacer in members:
            await pacer.aclose()
    return found


async def _connect(pacer: Hosts, host: str) -> None:
    permit = await pacer.start(_request(host, _SHORT))
    permit.end()


def _each(now: Readings, before: Readings) -> float:
    added = now.since(before)
    return added.memory / added.keys


async def _settled(server: Observed, scripts: int) -> None:
    """Wait until so many scripts have run, and no more arrive; raises TimeoutError."""
    before = -1
    async with asyncio.timeout(_PATIENCE_S):
        while not before == (now := server.read().scripts) >= scripts:
            before = now
            await asyncio.sleep(0.3)


async def _record(server: Observed, settings: Settings) -> tuple[float, float]:
    """Return the memory of a robots.txt in a RedisStore, and the processor time of the server to get it there."""
    bodies, origins = Bodies(load(settings)), settings.size(5_000, 100)
    store = RedisStore(server.url)
    fetcher, pacing = NumberedFetcher(bodies), PacingOptions(scope="process")
    async with Gatekeeper("ExampleBot/1.0", fetcher=fetcher, store=store, pacing=pacing) as gate:
        await gate.check(url_of(origins))
        before = server.read()
        await gate.check_batch(map(url_of, range(origins)))
        await _settled(server, before.scripts + _RECORD_SCRIPTS * origins)
        scripts = server.read().since(before)
        server.delete("*pace/*")  # a store keeps them for gates without a fleet only
        added = server.read().since(before)
    return added.memory / added.keys, _RECORD_SCRIPTS * 1e6 * scripts.cpu_s / scripts.scripts


async def _flows(server: Observed, hosts: int, rounds: int) -> tuple[float, list[dict[int, Flow]], float]:
    """Return the share of a processor that an idle server takes, what flows cost, and a closing."""
    before = server.read()
    await asyncio.sleep(_IDLE_S)
    idle_share = server.read().since(before).cpu_s / _IDLE_S
    pacer, trips, flows = _pacer(server, "flow:"), RoundTrips(), []
    closings = []
    try:
        await _connect(pacer, "first.example")
        for number in range(rounds):
            flows.append(
                {
                    tasks: await _flow(server, pacer, trips, tasks, [f"{at}.{tasks}.{number}" for at in range(hosts)])
                    for tasks in (1, _TASKS)
                }
            )
            closings.append(await _closing_us(server, pacer, [f"closed{at}.{number}" for at in range(hosts)]))
    finally:
        await pacer.aclose()
    return idle_share, flows, median(closings)


async def _flow(server: Observed, pacer: Hosts, trips: RoundTrips, tasks: int, hosts: Sequence[str]) -> Flow:
    left = iter(hosts)

    async def visit() -> None:
        for host in left:
            permit = await pacer.start(_request(host, _SHORT))
            permit.observe(200, {})
            permit.end()
            if tasks == 1:
                await asyncio.sleep(_PAUSE_S)

    before, trips.count, began_s = server.read(), 0, time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(visit())
    client_s = time.process_time() - began_s
    await _settled(server, before.scripts + 2 * len(hosts))
    added = server.read().since(before)
    return Flow(
        1e6 * added.cpu_s / added.scripts,
        trips.count / added.scripts,
        1e6 * client_s / len(hosts),
        added.bytes_in / added.scripts,
        added.bytes_out / added.scripts,
    )


async def _closing_us(server: Observed, pacer: Hosts, hosts: Sequence[str]) -> float:
    """Return the processor time of a closing: the additional cost of a permit whose answer is 429."""
    took = []
    for status in (200, 429):
        named = [f"{host}.{status}" for host in hosts]
        permits = [permit async for permit in _started(pacer, named, _SHORT)]
        before = server.read()
        for permit in permits:
            permit.observe(status, {"Retry-After": "3600"})
            permit.end()
        await _settled(server, before.scripts + len(permits))
        took.append(server.read().since(before).cpu_s)
    return max(0.0, 1e6 * (took[1] - took[0]) / len(hosts))


def _pacer(server: Observed, prefix: str) -> Hosts:
    pacer = pacer_at(wire_to(server.url), 1.0, FleetOptions(prefix=f"politesse:{prefix}", lease_s=3_600.0))
    if pacer.fleet is not None:
        pacer.fleet.first_lease_s = 3_600.0  # no lease is renewed meanwhile
    return pacer


def _request(host: str, octets: int) -> TurnRequest:
    return TurnRequest(host, host, "ExampleBot", None, f"https://{host}/".ljust(octets, "a"))


async def _started(pacer: Hosts, hosts: Sequence[str], octets: int) -> AsyncIterator[Permit]:
    for at in range(0, len(hosts), _TASKS):
        for permit in await asyncio.gather(*(pacer.start(_request(host, octets)) for host in hosts[at : at + _TASKS])):
            yield permit
