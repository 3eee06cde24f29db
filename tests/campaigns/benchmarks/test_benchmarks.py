"""That every benchmark runs and reports, that answers are compared first, and how figures stand to their targets."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from benchmarks import __main__ as runner
from benchmarks import plot
from benchmarks.agreement import Compared, Disagreement, compare
from benchmarks.budgets import BUDGETS, against_budgets
from benchmarks.corpus import RobotsFile
from benchmarks.engines import ENGINES, POLITESSE, PROTEGO
from benchmarks.figures import Series, figure
from benchmarks.origins import Bodies
from benchmarks.timing import Task, interleave_parts
from benchmarks.urls import UrlKind, fresh_urls, kind_of

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.figures import Reported
    from benchmarks.settings import Settings

pytestmark = pytest.mark.weekly

BODY = b"User-agent: *\nDisallow: /private/\nDisallow: /*?sort=\nAllow: /private/terms\nDisallow: /caf%C3%A9/\n"
FILE = RobotsFile.of("www.example.com", BODY)

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
    "growth": ("growth: in one doubling of origins", []),
    "fleet": ("fleet: 5 hosts", ["fleet/rate", "fleet/queue", "fleet/least gap"]),
}


@pytest.mark.realtime
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


def test_all_means_every_benchmark_but_those_on_request() -> None:
    on_request = {"audit", "clients", "faults", "scrapy"}
    assert set(runner._names(["all"])) == set(runner._names([])) == set(runner.BENCHMARKS) - on_request
    assert runner._names(["peek", "decide"]) == ["decide", "peek"]
    assert {name.partition("/")[0] for name in BUDGETS} <= set(runner._names(["all"]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "no benchmark is called nothing"),
        (["--rounds", "0"], "--rounds is 0; give 1 or more"),
        (["--origins", "0"], "--origins is 0; give 1 or more"),
        (["--corpus", "/nowhere"], "--corpus is /nowhere, which is no directory"),
        (["--json", "/nowhere/file.json"], "whose directory does not exist"),
    ],
)
def test_wrong_argument_is_refused_before_anything_runs(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        runner.main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_disagreement_ends_the_run_with_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def disagree(_: Settings) -> list[str]:
        raise Disagreement("one says no")

    monkeypatch.setattr(runner, "BENCHMARKS", {"decide": disagree, "peek": lambda _: ["not reached"]})
    with pytest.raises(SystemExit) as ended:
        runner.main(["decide", "peek"])
    assert ended.value.code == "benchmarks: one says no; the run ends here"
    assert "not reached" not in capsys.readouterr().out


def _answer(file: RobotsFile, url: str, *, politesse: bool, protego: bool) -> Compared:
    allowed = {engine.name: politesse for engine in ENGINES}
    return Compared(file, url, allowed | {POLITESSE.name: politesse, PROTEGO.name: protego})


@pytest.mark.parametrize(
    ("path", "politesse", "protego", "differs_from"),
    [
        ("/private/a", True, False, "the literal reading"),
        ("/public", False, True, "the literal reading"),
        ("/private/a", False, True, "Protego"),
        ("/public", True, False, "Protego"),
    ],
)
def test_answer_that_differs_for_no_known_reason_is_an_error(
    path: str, differs_from: str, *, politesse: bool, protego: bool
) -> None:
    answer = _answer(FILE, f"https://{FILE.host}{path}", politesse=politesse, protego=protego)
    with pytest.raises(Disagreement, match=f"politesse and {differs_from} differ"):
        compare([answer])


@pytest.mark.parametrize(
    ("body", "path", "reason"),
    [
        (b"User-agent: *\nDisallow: *=\n", "/page/member%3Duser", "decodes escapes of reserved"),
        (b"User-agent: *\nDisallow: /*?q=*\nAllow: *.xml*\n", "/a.xml?q=1", "as the three octets of their escapes"),
        (b"User-agent: *\nCrawl-delay: 2\n\nUser-agent: Other\nDisallow: /a\n", "/a", "starts another group after"),
        (
            b"User-agent: A\nSitemap: /x\nRequest-rate: 1/5\nUser-agent: *\r\nNoindex: /\nUser-agent: B\nDisallow: /",
            "/a",
            "starts another group after",
        ),
        (b"User-agent: *\nAllow: /*.js*****\nDisallow: /private\n", "/private/a.js", "counts each of several stars"),
        (b"User-agent: *\nDisallow: /soci\xe9t\xe9\n", "/soci%E9t%E9", "lacks the octets that are not UTF-8"),
        ("User-agent: *\nCrawl-delay: 2\nUser-agent: A\nDisallow: /a\n".encode("utf-16"), "/a", "starts another group"),
    ],
)
def test_known_differences_of_protego_are_named(body: bytes, path: str, reason: str) -> None:
    file = RobotsFile.of("www.example.com", body)
    url = f"https://{file.host}{path}"
    politesse, protego = POLITESSE.judge(file)([url])[0], PROTEGO.judge(file)([url])[0]
    assert politesse != protego
    assert reason in compare([_answer(file, url, politesse=politesse, protego=protego)])


@pytest.mark.parametrize(
    ("body", "path"),
    [
        # Protego agrees with politesse on these files, so the opposite answer has no reason, whatever lint reports.
        (b"User-agent: A\nCrawl-delay: 2\nUser-agent: *\nDisallow: /a\n", "/a"),
        (b"User-agent: *\nSitemap: /x\nHost: a\nUser-agent: A\nDisallow: /a\n", "/a"),
        (b"User-agent: *\nAllow: /*.js*****\nDisallow: /private\n", "/private/a"),
        ("User-agent: *\nDisallow: /a\n".encode("utf-16"), "/a"),
    ],
)
def test_difference_that_its_reason_does_not_explain_is_an_error(body: bytes, path: str) -> None:
    file = RobotsFile.of("www.example.com", body)
    url = f"https://{file.host}{path}"
    assert POLITESSE.judge(file)([url]) == PROTEGO.judge(file)([url]) == [False]
    with pytest.raises(Disagreement, match="politesse and Protego differ"):
        compare([_answer(file, url, politesse=False, protego=True)])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_file_in_another_encoding_is_a_leniency_of_politesse(encoding: str) -> None:
    file = RobotsFile.of("www.example.com", "User-agent: *\nDisallow: /a\n".encode(encoding))
    answer = _answer(file, f"https://{file.host}/a", politesse=False, protego=False)
    assert "reads UTF-16 and UTF-32" in compare([answer])


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (b"Dissallow: /private/", "reads misspelled names of Disallow"),
        (b"Disallow /private/ # secret", "reads two words without a colon"),
        (b"disalow /private/", "reads misspelled names of Disallow and reads two words without a colon"),
        (b"Disallow: /private/\nAllow: /private/a\x01", "ignores lines with control characters"),
        (b"Disallow: /*a%*", "lets a pattern end within an escape"),
    ],
)
def test_leniencies_of_politesse_are_named(rule: bytes, reason: str) -> None:
    file = RobotsFile.of("www.example.com", b"User-agent: *\n" + rule + b"\n")
    url = f"https://{file.host}/private/a\x01".replace("\x01", "%01")
    assert POLITESSE.judge(file)([url]) == [False]
    assert reason in compare([_answer(file, url, politesse=False, protego=False)])


def test_urls_have_the_shares_of_the_web_and_never_come_twice() -> None:
    rounds = [fresh_urls(FILE, 9309, number) for number in range(200)]
    urls = [url for some in rounds for url in some]
    assert len(set(urls)) == len(urls) == 4_000
    assert 0.22 < sum("?" in url for url in urls) / len(urls) < 0.28
    assert 0.08 < sum(kind_of(url) is UrlKind.ESCAPES for url in urls) / len(urls) < 0.12
    assert any(not url.isascii() for url in urls)
    # Some meet rules of the file, wildcards and escapes included, and most do not.
    allowed = POLITESSE.judge(FILE)(urls)
    assert 0.2 < allowed.count(False) / len(urls) < 0.8
    assert fresh_urls(FILE, 9309, 7) == rounds[7]


def test_parts_are_taken_together_by_their_operations() -> None:
    parts = interleave_parts(
        lambda _: {("a", 1): Task(lambda: None, 1), ("a", 2): Task(lambda: None, 3), ("b", 1): Task(lambda: None, 1)}, 2
    )
    assert {key: len(pairs) for key, pairs in parts.taken.items()} == {("a", 1): 2, ("a", 2): 2, ("b", 1): 2}
    parts.taken[("a", 1)] = {1: (1.0, 1), 2: (3.0, 1)}
    parts.taken[("a", 2)] = {1: (7.0, 3), 2: (9.0, 3)}
    assert parts.samples().seconds["a"] == [2.0, 3.0]
    assert parts.samples(lambda part: part == 2).seconds == {"a": [7 / 3, 3.0]}


def test_a_round_may_lack_a_part() -> None:
    parts = interleave_parts(
        lambda number: {("a", part): Task(lambda: None, 1) for part in (1, 2) if part == 1 or number == 2}, 3
    )
    assert len(parts.samples().seconds["a"]) == 3
    assert len(parts.samples(lambda part: part == 2).seconds["a"]) == 1


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [
        ("fleet/least gap", 0.9, "MISSED"),
        ("fleet/least gap", 1.0, "met"),
        ("turn/waiting", 1.6, "MISSED"),
        ("turn/waiting", 1.5, "met"),
    ],
)
def test_figure_is_compared_with_its_budget(name: str, value: float, verdict: str) -> None:
    text = against_budgets([figure(name, [value]), figure("other/one", [1.0])])
    assert text is not None
    assert verdict in text
    assert text.endswith(f"missed: {BUDGETS[name].label if verdict == 'MISSED' else 'none'}")


def test_bodies_share_the_rules_that_files_of_the_corpus_share_and_no_others() -> None:
    files = [
        RobotsFile.of("a.example", b"User-agent: *\nDisallow: /common/\nDisallow: /own/ # mine\nDisallow:\n"),
        RobotsFile.of("b.example", b"User-agent: *\nDisallow: /common/\n"),
    ]
    bodies = Bodies(files)
    assert [bodies.body(number) for number in (0, 1)] == [file.body for file in files]
    assert bodies.body(6) == b"User-agent: *\nDisallow: /common/\nDisallow: /3-own/ # mine\nDisallow:\n\n# 6\n"


def test_plots_are_drawn_of_what_was_measured(tmp_path: Path) -> None:
    reported: list[Reported] = [
        "a text",
        figure("peek/mixed", [2.0, 3.0]),
        figure("turn/waiting", [2.0]),
        Series("growth/rules, us", "rules", "us", ((10, 1.0), (20, 1.5))),
    ]
    drawn = plot.draw(tmp_path, reported)
    assert [path.name for path in drawn] == ["budgets.png", "peek.png", "turn.png", "growth-rules.png"]
    assert all(re.match(rb"\x89PNG", path.read_bytes()) for path in drawn)
