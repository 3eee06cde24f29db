"""Processes that fork or are killed, the clocks of the machine, and servers that are silent."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import uvloop

from politesse import Gatekeeper, PacingOptions, PoliteQueue
from politesse.testing import ScriptedFetcher
from tests.support.programs import numbers_until_killed, started
from tests.support.redis_servers import RedisServer
from tests.support.sites import UA, Site
from tests.support.tiers import first_of
from tests.wire.clients.programs import INTERVAL_S, URL, gate_of

pytestmark = pytest.mark.realtime

# What is made before a fork has an identity of its own in each child, or raises an error that says what to do


async def reports(*parts: tuple[str, object, int]) -> list[list[Any]]:
    """Return what the two children of each part report; the last of its values is whether it was used before."""
    arguments = [str(value) for part in parts for value in part]
    process = await started("wire.clients.programs", "forked", *arguments, options=(), stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60.0):
        printed, _ = await process.communicate()
    found = [json.loads(line) for line in printed.splitlines()]
    assert len(found) == 2 * len(parts)
    return [found[place : place + 2] for place in range(0, len(found), 2)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("kinds", first_of(1, [("sqlite", "fleet"), ("redis", "gate")]))
async def test_what_is_made_before_a_fork_serves_each_child_unless_it_was_used(
    redis_server: RedisServer, tmp_path: Path, kinds: tuple[str, str]
) -> None:
    store, gate = kinds
    place, journal = redis_server.url if store == "redis" else tmp_path / "robots.db", tmp_path / "urls.db"
    redis = redis_server.url if gate == "fleet" else ""
    unused_store, used_store, unused_queue, used_queue, used_gate = await reports(
        *((store, place, used) for used in (0, 1)),
        *(("queue", journal, 0), ("queue", tmp_path / "used.db", 1), (gate, redis, 1)),
    )
    assert unused_store == ["ok", "ok"]
    assert all("StoreError" in one and "before the fork" in one for one in used_store), used_store
    spans = sorted(one for one in unused_queue if isinstance(one, list))
    errors = [one for one in unused_queue if isinstance(one, str)]
    assert all("StoreError" in one and "one queue at a time" in one for one in errors), errors
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans)), spans
    for one in used_queue + used_gate:
        assert "WrongEventLoop: " in one
        assert "create one for each event loop" in one


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
async def test_gates_of_a_fleet_that_are_made_before_a_fork_keep_one_pace(redis_server: RedisServer) -> None:
    await asyncio.sleep(max(0.0, 1.5 - redis_server.age_s))
    [[one, other]] = await reports(("fleet", redis_server.url, 0))
    assert isinstance(one, list), one
    assert isinstance(other, list), other
    spans = sorted([*one, *other])
    assert len(spans) == 8
    assert all(later[0] - earlier[1] >= INTERVAL_S for earlier, later in pairwise(spans)), spans


# A process that is killed


async def test_url_whose_put_has_returned_is_in_the_journal_of_a_process_that_is_killed(tmp_path: Path) -> None:
    path, said = str(tmp_path / "urls.db"), set[int]()
    for after in (1, 40, 400):
        process = await started(
            "wire.clients.programs", "putting", path, str(len(said)), stdout=asyncio.subprocess.PIPE
        )
        said |= set(await numbers_until_killed(process, after))
    async with gate_of(0.0) as gate, PoliteQueue[None](gate, journal=path) as queue:
        urls = [url for url, *_ in queue.left()]
    assert len(set(urls)) == len(urls)
    assert {f"{URL}{number}" for number in said} <= set(urls)


# The pacer on the clocks of the machine, under the event loops that crawlers use


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_no_gap_is_under_the_interval(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    interval_s, trace = 0.05, {f"host{number}.example": list[tuple[float, float]]() for number in range(20)}

    async def work(gate: Gatekeeper, number: int) -> None:
        for visit in range(10):
            host = f"host{(number + 7 * visit) % len(trace)}.example"
            async with gate.turn(f"https://{host}/") as turn:
                started_mono = time.monotonic()
                await asyncio.sleep(0.001 * (number % 3))
                turn.observe(200)
                trace[host].append((started_mono, time.monotonic()))

    async def crawl() -> None:
        pacing = PacingOptions(min_delay_s=interval_s, adaptive_factor=0.0)
        async with Gatekeeper(UA, fetcher=ScriptedFetcher(), pacing=pacing) as gate:
            await asyncio.gather(*(work(gate, number) for number in range(40)))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(crawl())
    assert sum(map(len, trace.values())) == 400
    gaps = [later[0] - earlier[1] for requests in trace.values() for earlier, later in pairwise(requests)]
    assert min(gaps) >= interval_s


# Servers that accept connections and never answer


@pytest.mark.skipif(sys.platform == "darwin", reason="loopback has one address there")
async def test_servers_that_never_answer_do_not_hold_up_a_healthy_one(site: Site) -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(stall, "0.0.0.0", 0, backlog=2_000)  # noqa: S104 - each address of loopback
    port = server.sockets[0].getsockname()[1]
    async with server, Gatekeeper(UA) as gate:
        asking = asyncio.ensure_future(gate.check_batch([f"http://127.1.0.{n}:{port}/page" for n in range(1, 251)]))
        await asyncio.sleep(0)
        assert await gate.check(f"{site.base}/page")
        assert not asking.done()
        asking.cancel()
