"""Each benchmark runs and reports; what it crawls is checked; and answers are compared before anything is timed."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks import __main__ as runner
from benchmarks import clients, crawl, faults, fleet, plot, scrapy
from benchmarks.agreement import Compared, Disagreement, compare
from benchmarks.budgets import BUDGETS, against_budgets
from benchmarks.corpus import RobotsFile
from benchmarks.engines import ENGINES, POLITESSE, PROTEGO
from benchmarks.fault_crawls import leeway
from benchmarks.fault_crawls.peers import PEERS
from benchmarks.fault_crawls.peers import POLITESSE as POLITE_CRAWL
from benchmarks.fault_crawls.run import Outcome
from benchmarks.faults import Judgement
from benchmarks.figures import Series, figure
from benchmarks.fleet_model.crawl import KEPT_S
from benchmarks.fleet_model.crawl import Crawl as ModelCrawl
from benchmarks.fleet_model.simulation import simulate
from benchmarks.many_hosts import memory
from benchmarks.many_hosts.serving import Counts, Server, permit_open_files, serving
from benchmarks.many_hosts.web import Size
from benchmarks.settings import Settings
from benchmarks.urls import UrlKind, fresh_urls, kind_of
from politesse._pacing.fleet.messages import Script
from politesse.testing import FAULTS
from tests.support.violations import BEFORE_ROBOTS, FORBIDDEN, OVERLAP

pytestmark = [pytest.mark.weekly, pytest.mark.realtime]

BODY = b"User-agent: *\nDisallow: /private/\nDisallow: /*?sort=\nAllow: /private/terms\nDisallow: /caf%C3%A9/\n"
FILE = RobotsFile.of("www.example.com", BODY)
SIZE: Final = Size(hosts=30, pages_each=3, page_bytes=500)

# What each benchmark prints, and its figures that have a budget.
PRINTED = {
    "decide": ("decide: all peers, mixed URLs", ["decide/mixed"]),
    "peek": ("peek: mixed URLs", ["peek/each", "peek/mixed"]),
    "parse": ("parse: up to 1 kB", ["parse/all files"]),
    "turn": ("turn: 50 tasks waiting", ["turn/waiting"]),
    "session": ("session: processor time of the client, workers: 20", ["session/added", "session/crawl"]),
    "cold": ("cold: unseen origins", ["cold/GETs", "cold/Protego.parse"]),
    "memory": ("memory: 400 cached origins", ["memory/origin"]),
    "stalls": ("hostile: the longest stall", ["stalls/longest"]),
    "stores": ("stores: reads from 100 tasks", []),
    "ledger": ("ledger: a decision on a cached origin", ["ledger/caller"]),
    "signing": ("signing: one request", []),
    "watch": ("watch: a crawl of 20 hosts", ["watch/watched by three", "watch/longest step"]),
    "growth": ("growth: in one doubling of origins", []),
    "fleet": ("fleet: 5 hosts", ["fleet/rate", "fleet/queue", "fleet/least gap"]),
    "members": ("fleet: 8 members on", ["members/idle"]),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(SIZE, 9309) as served:
        yield served


@pytest.mark.parametrize("name", PRINTED)
def test_benchmark_runs_and_prints_its_table(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    title, budgets = PRINTED[name]
    runner.main([name, "--quick", "--rounds", "1", "--json", str(tmp_path / "out.json")])
    printed = capsys.readouterr().out
    assert title in printed
    results = json.loads((tmp_path / "out.json").read_text())
    names = {one["name"] for one in results["figures"]}
    assert names >= set(budgets)
    assert names & set(BUDGETS) == {one["name"] for one in results["figures"] if "budget" in one}
    for budget in budgets:
        assert BUDGETS[budget].label in printed
    assert ("missed: " in printed) == bool(budgets)
    assert any(title in text for text in results["text"])


def test_all_means_every_benchmark_but_those_on_request_and_a_wrong_argument_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    on_request = {"audit", "clients", "faults", "scrapy"}
    assert set(runner._names(["all"])) == set(runner._names([])) == set(runner.BENCHMARKS) - on_request
    assert runner._names(["peek", "decide"]) == ["decide", "peek"]
    assert {name.partition("/")[0] for name in BUDGETS} <= set(runner._names(["all"]))
    for arguments, message in (
        (["nothing"], "no benchmark is called nothing"),
        (["--rounds", "0"], "--rounds is 0; give 1 or more"),
        (["--origins", "0"], "--origins is 0; give 1 or more"),
        (["--corpus", "/nowhere"], "--corpus is /nowhere, which is no directory"),
        (["--json", "/nowhere/file.json"], "whose directory does not exist"),
    ):
        with pytest.raises(SystemExit) as ended:
            runner.main(arguments)
        assert ended.value.code == 2
        assert message in capsys.readouterr().err


# The clients, the crawls and the faults.


@pytest.mark.parametrize("client", clients.CLIENTS)
def test_each_client_fetches_every_allowed_page_and_breaks_no_rule(client: str) -> None:
    if client == "playwright" and not clients.is_installed(client):
        pytest.skip("Chromium is not installed")
    crawled = asyncio.run(clients.crawl(client, 60, polite=True))
    assert crawled.ended, crawled.errors
    assert not crawled.wrong
    assert (crawled.missed, crawled.served > 40) == (0, True)


def test_a_client_without_politesse_is_seen_to_break_rules() -> None:
    crawled = asyncio.run(clients.crawl("aiohttp", 60, polite=False))
    assert crawled.ended, crawled.errors
    assert {FORBIDDEN, BEFORE_ROBOTS, OVERLAP} <= crawled.wrong.keys()


@pytest.mark.parametrize("name", crawl.CRAWLERS)
def test_every_crawler_finds_every_page_once(name: str, server: Server) -> None:
    crawler = crawl.CRAWLERS[name]
    label = name.translate({ord(character): None for character in " ,()"})
    asyncio.run(crawler.crawl(SIZE.starts(f".{label.lower()}.example:{server.port}"), 5))
    crawl.checked(SIZE, server.counts(), obeys=crawler.obeys)


def test_crawl_that_requested_something_else_or_has_too_few_files_is_an_error() -> None:
    for counts, obeys in (
        (Counts(pages=90, robots=0), True),
        (Counts(pages=90, robots=30, forbidden=1), True),
        (Counts(pages=89, robots=30), True),
        (Counts(pages=91, robots=30), True),
        (Counts(pages=90), False),
    ):
        with pytest.raises(RuntimeError, match="were to be"):
            crawl.checked(SIZE, counts, obeys=obeys)
    with pytest.raises(SystemExit, match="give fewer --hosts"):
        permit_open_files(10**9)


def test_report_of_crawls_compares_all_crawlers_and_shows_the_pace() -> None:
    heading, costs, paced = crawl.run(Settings(corpus=None, rounds=1, seed=9309, hosts=3))
    assert "3 hosts of 3 pages, 20 at a time" in heading
    assert [name for name in crawl.CRAWLERS if name not in costs] == []
    pause_s = next(line for line in paced.splitlines() if "1 s a host" in line).split()[-1]
    assert float(pause_s) >= 1.0


@pytest.mark.parametrize("forgets", [False, True])
def test_memory_is_sampled_ten_times(server: Server, *, forgets: bool) -> None:
    samples = memory.measured(server.port, SIZE, forgets=forgets)
    server.counts()
    assert [sample.pages for sample in samples] == list(range(9, 91, 9))
    assert all(sample.traced_bytes > 0 for sample in samples)
    text = memory.report("a seen", [memory.Sample(10, 1_000_000, 2_000_000), memory.Sample(30, 1_002_000, 2_004_000)])
    assert "octets for each URL more: 100 traced, 200 resident" in text
    assert memory.SIZE.pages == 100_000


@pytest.mark.parametrize("name", scrapy.CRAWLS)
def test_every_crawl_of_scrapy_fetches_every_page_once(name: str, server: Server) -> None:
    cpu_s, wall_s = scrapy.crawl(name, 0, SIZE, server)
    assert cpu_s > 0
    assert wall_s > 0


HANDFUL: Final = ["no-content-length", "status-404", "status-500", "reset-in-body", "redirect-to-data", "429-seconds"]


def test_politesse_requests_what_each_of_a_handful_of_faults_leaves_open_and_nothing_else() -> None:
    # They all end by themselves: a loaded machine only takes longer.
    chosen = [FAULTS[name] for name in HANDFUL]
    crawled: dict[str, Any] = asyncio.run(faults.crawl([POLITE_CRAWL], chosen, timeout_s=30.0, limit_s=90.0))
    for fault in chosen:
        done = crawled[fault.name]["politesse"]
        open_pages = {"/page": fault.allows_page, "/private": fault.allows_private}
        assert done.seen == {page for page, is_open in open_pages.items() if is_open}
        assert done.opened == (fault.allows_page, fault.allows_private)
        assert done.ended, done.errors
        assert done.deferred == (fault.name == "429-seconds")


def test_what_a_crawler_did_is_held_against_the_standards() -> None:
    rows = [
        ("status-500", False, False, True, Judgement.RIGHT),
        ("status-500", True, False, True, Judgement.OPENS),
        ("status-404", True, True, True, Judgement.RIGHT),
        ("status-404", True, False, True, Judgement.CLOSES),
        ("no-content-length", True, True, True, Judgement.OPENS),
        ("no-content-length", False, True, True, Judgement.OPENS),
        ("no-content-length", False, False, True, Judgement.CLOSES),
        ("429-seconds", True, True, True, Judgement.RIGHT),
        ("429-seconds", True, False, True, Judgement.OPENS),
        ("redirect-chain-of-6", True, False, True, Judgement.RIGHT),
        ("never-answers", False, False, False, Judgement.ENDS_BADLY),
        ("never-answers", True, True, False, Judgement.OPENS),
    ]
    for name, page, private, ended, judgement in rows:
        done = Outcome(page, private, frozenset(), False, 1, 0.1 if ended else None, 0.0, False, "")  # noqa: FBT003
        assert faults.judge(FAULTS[name], done) is judgement, (name, page, private)
    for fault in FAULTS.values():
        assert (fault.allows_page, fault.allows_private) in leeway.right(fault)
    for prefix in {prefix for peer in PEERS for names in peer.notes for prefix in names} | set(leeway._ALSO_RIGHT):
        assert any(name.startswith(prefix) for name in FAULTS), prefix
    kinds = ("link-local-6", "metadata", "multicast", "private", "translated-loopback")
    # Nothing that is shown leads off the machine.
    assert FAULTS.keys() - faults.shown().keys() == {f"redirect-to-{kind}-from-public" for kind in kinds}


# The fleet.


def test_gaps_are_counted_over_all_processes() -> None:
    parts = [
        {"trips": 6, "cpu_s": 0.3, "starts": {"a": [0.5, 2.0, 4.0], "b": [3.0]}, "from": 1.0, "to": 5.0},
        {"trips": 4, "cpu_s": 0.1, "starts": {"a": [2.9, 5.5]}, "from": 1.0, "to": 5.0},
    ]
    found = fleet._summed(json.loads(json.dumps(parts)), 12, 0.6)
    assert list(found.gaps) == pytest.approx([0.9, 1.1])
    assert (fleet._short(found.gaps, 1.0), fleet._short(found.gaps, 0.85)) == (0.5, 0.0)
    assert (found.trips, found.scripts) == (2.5, 2.0)  # of 4 permits in the time that all measured, and of 6 ever
    assert (found.cpu_us, found.server_us, found.rate) == pytest.approx((0.4e6 / 4, 0.6e6 / 6, 2 / 2.0))


def test_simulated_crawl_holds_as_many_keys_as_littles_law_says() -> None:
    assert f"local KEPT = {KEPT_S:.0f} * 1000000 " in Script.STEP.source
    # One host in two has one page, few have ten; nothing closes.
    crawled = ModelCrawl(pages_s=100.0, hosts=200_000, interval_s=2.0, most_pages=10, closed=0.0)
    back_to_back = simulate(crawled, "hosts that are due first", sample=0.5, seed=1)
    apart = simulate(crawled, "new hosts first", sample=0.5, seed=1)
    assert back_to_back.mean_keys == pytest.approx(crawled.keys_back_to_back, rel=0.03)
    assert apart.most_keys == pytest.approx(crawled.keys_apart, rel=0.03)
    assert back_to_back.pages == pytest.approx(crawled.hosts * crawled.mean_pages, rel=0.02)


@pytest.mark.timeout(120)
def test_simulation_measures_predicts_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runner.main(["fleet", "--simulate", "--quick", "--rounds", "1", "--json", str(tmp_path / "out.json")])
    printed = capsys.readouterr().out
    for title in ("bytes of memory a host", "simulated page by page", "2 scripts a page", "against a real crawl"):
        assert title in printed
    figures = {one["name"]: one["value"] for one in json.loads((tmp_path / "out.json").read_text())["figures"]}
    assert figures["fleet/memory, in flight"] < figures["fleet/memory, in flight, URLs of 100 octets"]
    assert all(figures[f"fleet/model, {name}"] > 0.0 for name in ("keys", "scripts", "server", "network"))


async def test_a_queue_keeps_its_pace_with_redis_20_ms_away() -> None:
    gaps = await fleet._gaps_of_queue(10)
    assert len(gaps) == 180
    assert min(gaps) >= 1.0


# Answers are compared first.


def _answer(file: RobotsFile, url: str, *, politesse: bool, protego: bool) -> Compared:
    allowed = {engine.name: politesse for engine in ENGINES}
    return Compared(file, url, allowed | {POLITESSE.name: politesse, PROTEGO.name: protego})


def test_answer_that_differs_for_no_known_reason_is_an_error_that_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, politesse, differs_from in (
        ("/private/a", True, "the literal reading"),
        ("/public", False, "the literal reading"),
        ("/private/a", False, "Protego"),
        ("/public", True, "Protego"),
    ):
        answer = _answer(FILE, f"https://{FILE.host}{path}", politesse=politesse, protego=not politesse)
        with pytest.raises(Disagreement, match=f"politesse and {differs_from} differ"):
            compare([answer])

    def disagree(_: Settings) -> list[str]:
        raise Disagreement("one says no")

    monkeypatch.setattr(runner, "BENCHMARKS", {"decide": disagree, "peek": lambda _: ["not reached"]})
    with pytest.raises(SystemExit, match="benchmarks: one says no; the run ends here"):
        runner.main(["decide", "peek"])
    assert "not reached" not in capsys.readouterr().out


def test_known_differences_of_protego_are_named_and_explain_no_other() -> None:
    two = b"User-agent: A\nSitemap: /x\nRequest-rate: 1/5\nUser-agent: *\r\nNoindex: /\nUser-agent: B\nDisallow: /"
    stars = b"User-agent: *\nAllow: /*.js*****\nDisallow: /private\n"
    for body, path, reason in (
        (b"User-agent: *\nDisallow: *=\n", "/page/member%3Duser", "decodes escapes of reserved"),
        (b"User-agent: *\nDisallow: /*?q=*\nAllow: *.xml*\n", "/a.xml?q=1", "as the three octets of their escapes"),
        (b"User-agent: *\nCrawl-delay: 2\n\nUser-agent: B\nDisallow: /a\n", "/a", "starts another group after"),
        (two, "/a", "starts another group after"),
        (stars, "/private/a.js", "counts each of several stars"),
        (b"User-agent: *\nDisallow: /soci\xe9t\xe9\n", "/soci%E9t%E9", "lacks the octets that are not UTF-8"),
        ("User-agent: *\nCrawl-delay: 2\nUser-agent: A\nDisallow: /a\n".encode("utf-16"), "/a", "starts another group"),
    ):
        file = RobotsFile.of("www.example.com", body)
        url = f"https://{file.host}{path}"
        politesse, protego = POLITESSE.judge(file)([url])[0], PROTEGO.judge(file)([url])[0]
        assert politesse != protego, path
        assert reason in compare([_answer(file, url, politesse=politesse, protego=protego)])
    # Protego agrees with politesse on these files, so the opposite answer has no reason, whatever lint reports.
    for body, path in (
        (b"User-agent: A\nCrawl-delay: 2\nUser-agent: *\nDisallow: /a\n", "/a"),
        (b"User-agent: *\nSitemap: /x\nHost: a\nUser-agent: A\nDisallow: /a\n", "/a"),
        (stars, "/private/a"),
        ("User-agent: *\nDisallow: /a\n".encode("utf-16"), "/a"),
    ):
        file = RobotsFile.of("www.example.com", body)
        url = f"https://{file.host}{path}"
        assert POLITESSE.judge(file)([url]) == PROTEGO.judge(file)([url]) == [False]
        with pytest.raises(Disagreement, match="politesse and Protego differ"):
            compare([_answer(file, url, politesse=False, protego=True)])


def test_leniencies_of_politesse_are_named() -> None:
    for rule, reason in (
        (b"Dissallow: /private/", "reads misspelled names of Disallow"),
        (b"Disallow /private/ # secret", "reads two words without a colon"),
        (b"disalow /private/", "reads misspelled names of Disallow and reads two words without a colon"),
        (b"Disallow: /private/\nAllow: /private/a\x01", "ignores lines with control characters"),
        (b"Disallow: /*a%*", "lets a pattern end within an escape"),
        ("\ufeffUser-agent: *\nDisallow: /private/".encode("utf-16-le"), "reads UTF-16 and UTF-32"),
        ("\ufeffUser-agent: *\nDisallow: /private/".encode("utf-32-le"), "reads UTF-16 and UTF-32"),
    ):
        file = RobotsFile.of("www.example.com", rule if b"\0" in rule else b"User-agent: *\n" + rule + b"\n")
        url = f"https://{file.host}/private/a%01"
        assert POLITESSE.judge(file)([url]) == [False]
        assert reason in compare([_answer(file, url, politesse=False, protego=False)])


# What is measured, and how.


def test_urls_have_the_shares_of_the_web_and_never_come_twice() -> None:
    rounds = [fresh_urls(FILE, 9309, number) for number in range(200)]
    urls = [url for some in rounds for url in some]
    assert len(set(urls)) == len(urls) == 4_000
    assert 0.22 < sum("?" in url for url in urls) / len(urls) < 0.28
    assert 0.08 < sum(kind_of(url) is UrlKind.ESCAPES for url in urls) / len(urls) < 0.12
    assert any(not url.isascii() for url in urls)
    # Some meet rules of the file, wildcards and escapes included, and most do not.
    assert 0.2 < POLITESSE.judge(FILE)(urls).count(False) / len(urls) < 0.8
    assert fresh_urls(FILE, 9309, 7) == rounds[7]


def test_figures_are_compared_with_their_budgets_and_plotted(tmp_path: Path) -> None:
    for name, value, verdict in (
        ("fleet/least gap", 0.9, "MISSED"),
        ("fleet/least gap", 1.0, "met"),
        ("turn/waiting", 1.6, "MISSED"),
        ("turn/waiting", 1.5, "met"),
    ):
        text = against_budgets([figure(name, [value]), figure("other/one", [1.0])])
        assert text is not None
        assert verdict in text
        assert text.endswith(f"missed: {BUDGETS[name].label if verdict == 'MISSED' else 'none'}")
    series = Series("growth/rules, us", "rules", "us", ((10, 1.0), (20, 1.5)))
    drawn = plot.draw(tmp_path, ["a text", figure("peek/mixed", [2.0, 3.0]), figure("turn/waiting", [2.0]), series])
    assert [path.name for path in drawn] == ["budgets.png", "peek.png", "turn.png", "growth-rules.png"]
    assert all(re.match(rb"\x89PNG", path.read_bytes()) for path in drawn)
