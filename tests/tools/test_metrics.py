import asyncio
import gc
import importlib
import json
import re
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

import politesse
from politesse import ConfigurationError, Gatekeeper, HostPolicy, Origin, Reason, Verdict, events
from politesse.ledger import Ledger, LedgerOptions
from politesse.metrics import GateMetrics, dashboard
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.verdict import AccessResult, Bound, Match, Source
from tests.support.scripted import UA

SITE = "https://example.com"
URL = f"{SITE}/robots.txt"
VERDICT = Verdict(f"{SITE}/a", "examplebot", allowed=False, match=Match(Reason.DISALLOW_RULE))

Samples = dict[str, float]


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher({SITE: "User-agent: *\nCrawl-delay: 5\nDisallow: /private"})


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def watched(gate: Gatekeeper, registry: CollectorRegistry) -> Gatekeeper:
    GateMetrics(registry).watch(gate, "g")
    return gate


def scraped(registry: CollectorRegistry) -> Samples:
    """Return the samples of a scrape; a sample of the gate ``g`` has the other labels only."""
    samples: Samples = {}
    for family in parse(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if (name, value) != ("gate", "g")}
            samples[sample.name + "".join(f" {name}={value}" for name, value in sorted(labels.items()))] = sample.value
    return samples


def changes(before: Samples, after: Samples) -> Samples:
    assert before.keys() == after.keys()
    return {name: figure - before[name] for name, figure in after.items() if figure > before[name]}


def fetched(result: AccessResult, fault: str = "", *, truncated: bool = False) -> events.RobotsFetched:
    source = Source(URL, result, 200, URL, 1_800_000_000.0, 1_800_086_400.0)
    return events.RobotsFetched(Origin.of(SITE), 200, fault, 0.1, source, truncated)


COUNTED: list[tuple[events.Event, str]] = [
    (events.Decided(VERDICT), "decisions_total reason=disallow-rule"),
    (events.TurnExpired("example.com", URL, 600.0), "turns_expired_total"),
    (events.TurnDropped("example.com", URL), "turns_dropped_total"),
    (events.LongWait("example.com", URL, 61.0, Bound.CRAWL_DELAY, ""), "long_waits_total by=crawl-delay"),
    (events.HostClosed("example.com", 1.0, Bound.REFUSED, 1.0), "host_closings_total by=refused"),
    (fetched(AccessResult.UNAVAILABLE), "robots_fetches_total result=unavailable"),
    (fetched(AccessResult.SUCCESSFUL, "timeout"), "robots_faults_total, robots_fetches_total result=successful"),
    (
        fetched(AccessResult.SUCCESSFUL, truncated=True),
        "robots_fetches_total result=successful, robots_truncated_total",
    ),
    (events.MatchingBounded(VERDICT), "matching_bounded_total"),
    (events.LongDelay(Origin.of(SITE), 3_600.0, "cap"), "long_delays_total done=cap"),
    (events.HeaderOverruled("example.com", "retry-after", "soon", 60.0), "headers_overruled_total field=retry-after"),
    (events.AddressNotFound("example.com", "no such host"), "addresses_not_found_total"),
    (events.ComponentFailed(None, "store", OSError()), "failures_total component=store"),
    (events.FleetAway("redis://localhost", "refused"), "fleet_away, fleet_losses_total"),
]


async def test_event_adds_one_to_the_counters_that_it_is_named_for(
    watched: Gatekeeper, registry: CollectorRegistry
) -> None:
    for event, counted in COUNTED:
        before = scraped(registry)
        watched.publish(event)
        assert changes(before, scraped(registry)) == {f"politesse_{name}": 1.0 for name in counted.split(", ")}
    before = scraped(registry)
    watched.publish(events.FleetBack("redis://localhost", 2.0))
    assert changes(before, scraped(registry)) == {}


async def test_wait_of_a_turn_falls_into_its_bucket(watched: Gatekeeper, registry: CollectorRegistry) -> None:
    for waited_s in (0.0, 2.0, 2.5, 4_000.0):
        watched.publish(events.TurnGranted(VERDICT, waited_s))
    name = "politesse_turn_wait_seconds"
    samples = scraped(registry)
    buckets = {le: samples[f"{name}_bucket le={le}"] for le in ("0.01", "1.0", "2.0", "5.0", "3600.0", "+Inf")}
    assert buckets == {"0.01": 1, "1.0": 1, "2.0": 2, "5.0": 3, "3600.0": 3, "+Inf": 4}
    assert (samples[f"{name}_count"], samples[f"{name}_sum"]) == (4, 4_004.5)
    async with watched.turn(f"{SITE}/a"):
        pass
    assert scraped(registry)[f"{name}_sum"] == 4_009.5


async def test_gauges_show_turns_closed_hosts_and_the_cache(
    watched: Gatekeeper, registry: CollectorRegistry, clock: ManualClock
) -> None:
    fetched_wall = clock.wall()
    await watched.check(f"{SITE}/a")
    await watched.check("https://b.example/")
    await clock.sleep(10.0)
    turn = await watched.take_turn(f"{SITE}/a")
    waiting = asyncio.create_task(watched.take_turn(f"{SITE}/b"))
    await asyncio.sleep(0)
    samples = scraped(registry)
    assert (samples["politesse_turns_open"], samples["politesse_turns_waiting"]) == (1, 1)
    assert (samples["politesse_cache_origins"], samples["politesse_robots_fetching"]) == (2, 0)
    assert samples["politesse_cache_bytes"] == watched.statistics().entries_bytes > 0
    assert samples["politesse_cache_oldest_timestamp_seconds"] == fetched_wall
    waiting.cancel()
    await asyncio.wait({waiting})
    turn.observe(402, {"crawler-price": "USD 1"})
    turn.end()
    samples = scraped(registry)
    assert (samples["politesse_turns_open"], samples["politesse_turns_waiting"]) == (0, 0)
    assert (samples["politesse_hosts_closed by=refused"], samples["politesse_hosts_closed by=backoff"]) == (1, 0)


async def test_fleet_that_is_back_is_not_away(watched: Gatekeeper, registry: CollectorRegistry) -> None:
    watched.publish(events.FleetAway("redis://localhost", "refused"))
    watched.publish(events.FleetAway("redis://localhost", "it has lost data"))
    watched.publish(events.FleetBack("redis://localhost", 2.0))
    samples = scraped(registry)
    assert (samples["politesse_fleet_away"], samples["politesse_fleet_losses_total"]) == (0, 2)


async def test_event_that_a_subscriber_fails_on_is_counted_as_lost(
    watched: Gatekeeper, registry: CollectorRegistry
) -> None:
    def fail(event: events.Event) -> None:
        raise ValueError(event)

    watched.subscribe(fail)
    watched.publish(events.FleetBack("redis://localhost", 2.0))
    assert scraped(registry)["politesse_events_lost_total"] == 1


async def test_rows_that_the_ledger_drops_are_counted(tmp_path: Path, registry: CollectorRegistry) -> None:
    sites = {f"https://{number}.example": "#" * 10_000 for number in range(10)}
    ledger = Ledger(tmp_path / "ledger.db", LedgerOptions(max_queued_rows=1))
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(sites), ledger=ledger) as gate:
        GateMetrics(registry).watch(gate, "g")
        assert scraped(registry)["politesse_ledger_dropped_total"] == 0
        await gate.check_batch(f"{site}/" for site in sites)
        await ledger.flush()
        assert scraped(registry)["politesse_ledger_dropped_total"] == ledger.dropped > 0


async def test_in_report_mode_decisions_have_the_reason_that_would_apply(
    fetcher: ScriptedFetcher, registry: CollectorRegistry
) -> None:
    async with Gatekeeper(UA, fetcher=fetcher, mode="report") as gate:
        GateMetrics(registry).watch(gate, "g")
        assert await gate.check(f"{SITE}/private")
    assert scraped(registry)["politesse_decisions_total reason=disallow-rule"] == 1


async def test_exposition_is_read_by_both_parsers_of_prometheus(
    watched: Gatekeeper, registry: CollectorRegistry
) -> None:
    await watched.check(f"{SITE}/a")
    plain = {family.name: family for family in parse(generate_latest(registry).decode())}
    openmetrics = parse_openmetrics(generate_openmetrics(registry).decode())  # type: ignore[no-untyped-call]
    strict = {family.name: family for family in openmetrics}
    assert len(strict) == len(plain)
    for name, family in strict.items():
        assert family.documentation
        assert name.startswith("politesse_")
        assert family.samples


async def test_two_gates_have_their_own_figures(watched: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    async with Gatekeeper("Other/1.0", fetcher=fetcher) as other:
        metrics = GateMetrics(CollectorRegistry())
        metrics.watch(other)
        metrics.watch(watched, "g")
        await other.check(f"{SITE}/a")
        await watched.check(f"{SITE}/a")
        await watched.check(f"{SITE}/private")
        families = list(metrics.collect())
    samples = [sample for family in families for sample in family.samples if sample.name.endswith("decisions_total")]
    seen = {(sample.labels["gate"], sample.labels["reason"]): sample.value for sample in samples if sample.value}
    assert seen == {("other", "no-rule"): 1, ("g", "no-rule"): 1, ("g", "disallow-rule"): 1}
    assert len({family.name for family in families}) == len(families)


async def test_name_of_an_open_gate_is_refused_and_that_of_a_closed_gate_is_free(
    fetcher: ScriptedFetcher, registry: CollectorRegistry
) -> None:
    metrics, first, second = GateMetrics(registry), Gatekeeper(UA, fetcher=fetcher), Gatekeeper(UA, fetcher=fetcher)
    metrics.watch(first, "g")
    with pytest.raises(ConfigurationError, match=r"a gate named 'g' is watched already: give this gate another name="):
        metrics.watch(second, "g")
    await first.check(f"{SITE}/a")
    await first.aclose()
    assert scraped(registry)["politesse_decisions_total reason=no-rule"] == 1
    metrics.watch(second, "g")
    assert scraped(registry)["politesse_decisions_total reason=no-rule"] == 0
    await second.aclose()


def test_second_metrics_of_a_registry_are_refused(registry: CollectorRegistry) -> None:
    metrics = GateMetrics(registry)
    with pytest.raises(ConfigurationError, match="make one GateMetrics, and call its watch for each gate"):
        GateMetrics(registry)
    assert list(metrics.collect())


async def test_dropped_gate_has_no_series(fetcher: ScriptedFetcher, registry: CollectorRegistry) -> None:
    gate = Gatekeeper(UA, fetcher=fetcher)
    GateMetrics(registry).watch(gate)
    await gate.check(f"{SITE}/a")
    await gate.aclose()
    assert scraped(registry)
    del gate
    gc.collect()
    assert scraped(registry) == {}


async def _crawl(gate: Gatekeeper, hosts: int) -> None:
    gate.set_policy("h0.example", HostPolicy(deny=True))
    for number in range(hosts):
        await gate.check(f"https://h{number}.example/private")
        turn = gate.try_turn(f"https://h{number}.example/") if number else None
        if turn:
            turn.observe(503 if number % 2 else 200)
            turn.end()


async def test_hosts_add_no_series(registry: CollectorRegistry) -> None:
    async with Gatekeeper(UA, fetcher=ScriptedFetcher(), clock=ManualClock()) as gate:
        GateMetrics(registry).watch(gate, "g")
        before = scraped(registry)
        await _crawl(gate, 100)
        after = scraped(registry)
    assert before.keys() == after.keys()
    assert after["politesse_cache_origins"] == 99


async def test_scrapes_in_other_threads_meet_a_crawl(watched: Gatekeeper, registry: CollectorRegistry) -> None:
    failures: list[BaseException] = []
    done = threading.Event()

    def scrape() -> None:
        try:
            while not done.is_set():
                generate_latest(registry)
        except BaseException as error:  # noqa: BLE001 - the test shows it
            failures.append(error)

    threads = [threading.Thread(target=scrape) for _ in range(2)]
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        await _crawl(watched, 100)
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(usual_s)
    assert failures == []


def test_dashboard_names_only_metrics_that_exist_and_all_of_them(registry: CollectorRegistry) -> None:
    families = {family.name: family.type for family in GateMetrics(registry).collect()}
    suffix = {"counter": "_total", "histogram": "_bucket", "gauge": ""}
    board = json.loads(dashboard())
    named = [re.findall(r"politesse_\w+", target["expr"]) for panel in board["panels"] for target in panel["targets"]]
    assert named == [[name + suffix[kind]] for name, kind in families.items()]
    [source, gates] = board["templating"]["list"]
    assert (source["type"], gates["query"]) == ("datasource", "label_values(politesse_decisions_total, gate)")


def test_panels_rate_counters_and_have_the_units_of_the_names() -> None:
    panels = json.loads(dashboard())["panels"]
    shown = {panel["targets"][0]["expr"]: panel["fieldConfig"]["defaults"]["unit"] for panel in panels}
    chosen = '{gate=~"$gate"}'
    assert shown[f"sum by (gate, reason) (rate(politesse_decisions_total{chosen}[$__rate_interval]))"] == "cps"
    assert shown[f"sum by (gate) (politesse_cache_bytes{chosen})"] == "bytes"
    assert shown[f"time() - min by (gate) (politesse_cache_oldest_timestamp_seconds{chosen})"] == "s"
    buckets = f"rate(politesse_turn_wait_seconds_bucket{chosen}[$__rate_interval])"
    assert shown[f"histogram_quantile(0.95, sum by (gate, le) ({buckets}))"] == "s"


async def test_wrong_type_is_refused(gate: Gatekeeper) -> None:
    metrics, wrong = GateMetrics(CollectorRegistry()), cast("Any", "wrong")
    with pytest.raises(ConfigurationError, match="gate="):
        metrics.watch(wrong)
    with pytest.raises(ConfigurationError, match="name=5"):
        metrics.watch(gate, cast("Any", 5))
    with pytest.raises(ConfigurationError, match="registry="):
        GateMetrics(wrong)


def test_without_prometheus_client_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "politesse.metrics")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(
        ImportError, match=r"politesse.metrics needs the extra 'metrics'.*pip install '\.\[metrics\]'"
    ) as raised:
        importlib.import_module("politesse.metrics")
    assert raised.value.name == "prometheus_client"


def test_guide_lists_the_metrics_and_their_labels(registry: CollectorRegistry) -> None:
    guide = (Path(politesse.__path__[0]) / "guides/metrics.md").read_text()
    rows = re.findall(r"^\| (`politesse_.*?) \| (.*?) ?\| ", guide, re.MULTILINE)
    listed = {name: labels.strip("`") for names, labels in rows for name in names.replace("`", "").split(", ")}
    gate = Gatekeeper(UA, fetcher=ScriptedFetcher())
    GateMetrics(registry).watch(gate)
    samples = [sample for family in registry.collect() for sample in family.samples]
    exposed = {
        re.sub("_(bucket|sum|count)$", "", sample.name): sample.labels.keys() - {"gate"} for sample in samples[::-1]
    }
    assert {name: {label} - {""} for name, label in listed.items()} == exposed
    assert f"about {round(len(samples), -1)} series" in guide
