"""The arithmetic of ``python -m benchmarks fleet --simulate``, and that its gaps are counted rightly."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from benchmarks import __main__ as runner
from benchmarks.fleet import _gaps_of_queue, _short, _summed
from benchmarks.fleet_model.crawl import CLOSED, IDLE, IN_FLIGHT, KEPT_S, LONG_URL, Costs, Crawl, demand
from benchmarks.fleet_model.simulation import simulate

from politesse._pacing.fleet.scripts import Script

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.fleet_model.simulation import Order

pytestmark = pytest.mark.weekly

# One host in two has one page, few have ten; nothing closes.
CRAWL = Crawl(pages_s=100.0, hosts=200_000, interval_s=2.0, most_pages=10, closed=0.0)
COSTS = Costs(
    server="Redis 0",
    script_us=20.0,
    trip_us=30.0,
    close_us=40.0,
    idle_share=0.0,
    client_us=200.0,
    bytes_in=250.0,
    bytes_out=100.0,
    keys={
        state + ending: size + more
        for state, size in ((IN_FLIGHT, 300.0), (IDLE, 200.0), (CLOSED, 400.0))
        for ending, more in (("", 0.0), (LONG_URL, 600.0))
    },
    record_bytes=1_000.0,
    record_us=100.0,
)


def test_keys_are_kept_for_as_long_as_the_scripts_keep_them() -> None:
    assert f"local KEPT = {KEPT_S:.0f} * 1000000 " in Script.RESERVE.source


def test_pages_of_a_host_follow_the_power_law_up_to_the_cut() -> None:
    random = Random(1)
    drawn = [CRAWL.draw_pages(random) for _ in range(20_000)]
    assert (min(drawn), max(drawn)) == (1, 10)
    assert drawn.count(1) / drawn.count(2) == pytest.approx(2**1.8, rel=0.05)
    assert sum(drawn) / len(drawn) == pytest.approx(CRAWL.mean_pages, rel=0.02)
    assert drawn.count(1) / len(drawn) == pytest.approx(CRAWL.share_up_to(1), rel=0.02)
    assert CRAWL.share_up_to(10) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("order", "keys"), [("hosts that are due first", CRAWL.keys_back_to_back), ("new hosts first", CRAWL.keys_apart)]
)
def test_simulated_crawl_holds_as_many_keys_as_littles_law_says(order: Order, keys: float) -> None:
    course = simulate(CRAWL, order, sample=0.5, seed=1)
    assert course.pages == pytest.approx(CRAWL.hosts * CRAWL.mean_pages, rel=0.02)
    found = course.mean_keys if order == "hosts that are due first" else course.most_keys
    assert found == pytest.approx(keys, rel=0.03)


def test_keys_are_those_of_the_hosts_that_live() -> None:
    # 100 hosts a second, each with one page of 1 s, whose key is kept for 10 s: 1,100 keys, of which 100 are in flight.
    crawl = replace(CRAWL, most_pages=1, kept_s=10.0, response_s=1.0)
    assert (crawl.mean_pages, crawl.hosts_s, crawl.in_flight) == (1.0, 100.0, 100.0)
    assert crawl.keys_back_to_back == crawl.keys_apart == 1_100.0
    # One in ten closes for 60 s, and keeps its key for 50 s longer.
    closing = replace(crawl, closed=0.1, closed_s=60.0)
    assert (closing.closed_keys, closing.keys_back_to_back) == (600.0, 1_600.0)
    # Their robots.txt are kept for longer than the crawl lasts, or not.
    assert (crawl.records(60.0), crawl.records(1e6)) == (6_000.0, 200_000.0)
    # A crawl of fewer hosts than that has a key for each.
    assert replace(crawl, hosts=500).keys_apart == 500.0


def test_memory_is_that_of_each_state() -> None:
    crawl = replace(CRAWL, most_pages=1, kept_s=10.0, closed=0.1, closed_s=60.0)
    keys = crawl.keys_back_to_back  # 100 in flight, 600 closed, 900 that are kept
    short, long = (demand(crawl, COSTS, keys, scripts_a_trip=1.0, long_urls=long) for long in (False, True))
    assert short.memory_bytes == 100 * 300 + 600 * 400 + 900 * 200
    assert long.memory_bytes == short.memory_bytes + 1_600 * 600
    assert short.scripts_s == 2 * 100 + 10
    assert short.cpu == pytest.approx((200 * 20 + 10 * 40 + 210 * 30) / 1e6)


def test_scripts_that_share_a_round_trip_share_its_cost() -> None:
    found = demand(CRAWL, COSTS, 0.0, scripts_a_trip=3.0, long_urls=False)
    assert found.cpu == pytest.approx(200.0 * (20.0 + 10.0) / 1e6)


@pytest.mark.parametrize(
    ("cpu_share", "memory", "nodes"), [(0.5, 1e12, 1), (0.005, 1e12, 2), (0.5, 1e6, 13), (0.001, 1e6, 13)]
)
def test_primaries_are_those_that_processor_and_memory_need(cpu_share: float, memory: float, nodes: int) -> None:
    found = demand(CRAWL, COSTS, 60_600.0, scripts_a_trip=1.0, long_urls=False)
    assert found.cpu == pytest.approx(0.01)
    assert found.memory_bytes == 100 * 300 + 60_500 * 200
    assert found.nodes(cpu_share, memory) == nodes


def test_gaps_are_counted_over_all_processes() -> None:
    parts = [
        {"trips": 6, "cpu_s": 0.3, "starts": {"a": [0.5, 2.0, 4.0], "b": [3.0]}, "from": 1.0, "to": 5.0},
        {"trips": 4, "cpu_s": 0.1, "starts": {"a": [2.9, 5.5]}, "from": 1.0, "to": 5.0},
    ]
    found = _summed(json.loads(json.dumps(parts)), 12, 0.6)
    assert list(found.gaps) == pytest.approx([0.9, 1.1])
    assert (_short(found.gaps, 1.0), _short(found.gaps, 0.85)) == (0.5, 0.0)
    assert (found.trips, found.scripts) == (2.5, 2.0)  # of 4 permits in the time that all measured, and of 6 ever
    assert found.cpu_us == pytest.approx(0.4e6 / 4)
    assert found.server_us == pytest.approx(0.6e6 / 6)
    assert found.rate == pytest.approx(2 / 2.0)


@pytest.mark.realtime
@pytest.mark.timeout(120)
def test_simulation_measures_predicts_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runner.main(["fleet", "--simulate", "--quick", "--rounds", "1", "--json", str(tmp_path / "out.json")])
    printed = capsys.readouterr().out
    for title in ("bytes of memory a host", "simulated page by page", "2 scripts a page", "against a real crawl"):
        assert title in printed
    figures = {one["name"]: one["value"] for one in json.loads((tmp_path / "out.json").read_text())["figures"]}
    assert figures["fleet/memory, in flight"] < figures["fleet/memory, in flight, URLs of 100 octets"]
    assert all(figures[f"fleet/model, {name}"] > 0.0 for name in ("keys", "scripts", "server", "network"))


@pytest.mark.realtime
async def test_a_queue_keeps_its_pace_with_redis_20_ms_away() -> None:
    gaps = await _gaps_of_queue(10)
    assert len(gaps) == 180
    assert min(gaps) >= 1.0
