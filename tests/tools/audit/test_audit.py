"""The audit: what it finds in a log, which requests count, and which logs prove nothing."""

import gzip
import random
import sys
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from benchmarks.audit import options_of
from benchmarks.audit_log import planted_log
from politesse.audit import Audit, AuditOptions, LogError
from politesse.errors import ConfigurationError, StoreError
from politesse.ledger import Snapshot
from politesse.origin import Origin
from politesse.verdict import AccessResult
from tests.support.ledgers import write_ledger
from tests.support.violations import FORBIDDEN, GAP, REFETCHED, STALE
from tests.tools.audit.conftest import ROBOTS, SENT, SITE, Judge, combined

UNREADABLE = "lines that cannot be read"
CLOCK = "times that the clock was set back (times before and after are not compared)"
LINES = [combined(0, "/robots.txt"), combined(10, "/private/a"), combined(20, "/b")]


def test_all_planted_violations_are_found_and_none_is_invented(tmp_path: Path) -> None:
    log = planted_log(8_000, 8)
    (tmp_path / "log").write_text("\n".join(log.lines))
    audit = Audit(options_of(log.robots))
    found = Counter((one.kind, one.url) for one in audit.findings([tmp_path / "log"]))
    assert (found - log.planted, log.planted - found) == (Counter(), Counter())
    assert {kind for kind, _ in found} == {kind for kind, _ in log.planted}
    assert (audit.counts()["lines"], audit.counts()[UNREADABLE]) == (8_000, 8)


def test_requests_of_other_agents_do_not_count(judge: Judge) -> None:
    others = [
        combined(1, "/private", agent=agent) for agent in ("NotExampleBot/1", "ExampleBot-Image/1", "curl/8", "-")
    ]
    audit, found = judge(*others, combined(2, "/private", agent="Mozilla/5.0 (compatible; exampleBOT/2; +https://x)"))
    assert found == [(FORBIDDEN, "/private")]
    assert (audit.counts()["lines"], audit.counts()["requests"]) == (5, 1)


def test_worst_comes_first_by_agent_and_host(judge: Judge, tmp_path: Path) -> None:
    def line(second: float, host: str, agent: str, target: str) -> str:
        return f'{1_800_000_000 + second:.3f} {host} "GET {target} HTTP/1.1" 200 "{agent}"'

    options = {"format": '$msec $host "$request" $status "$http_user_agent"', "agents": ("A", "B"), "site": None}
    robots = {f"https://{host}.test": ROBOTS for host in "xy"}
    lines = [line(0, "x.test", "A", "/"), line(1, "x.test", "B", "/private"), line(2, "y.test", "A", "/")]
    lines += [line(3, "y.test", "A", "/private"), line(8.1, "y.test", "A", "/"), line(9.2, "y.test", "A", "/")]
    audit, _ = judge(*lines, **options, robots=robots)
    assert [(host.agent, host.host, host.found, host.requests) for host in audit.hosts()] == [
        ("A", "y.test", 3, 4),
        ("B", "x.test", 1, 1),
        ("A", "x.test", 0, 1),
    ]
    worst = audit.hosts()[0].worst(GAP)
    assert [(round(one.missing_s, 3), one.place) for one in worst] == [
        (4.0, f"{tmp_path}/access.log:4"),
        (3.9, f"{tmp_path}/access.log:6"),
    ]


def test_whole_seconds_prove_no_gap_of_less_than_a_second(judge: Judge) -> None:
    for second, found in ((3, [GAP]), (4, []), (5, [])):
        audit, kinds = judge(combined(0, "/a"), combined(second, "/b"))
        assert [kind for kind, _ in kinds] == found
        assert any(note.startswith("logs with whole seconds") for note in audit.notes())


def test_start_of_a_long_request_puts_it_before_shorter_ones(judge: Judge) -> None:
    template = '$msec "$request" $status $request_time "$http_user_agent"'
    lines = [
        f'{at}.500 "GET {target} HTTP/1.1" 200 {lasts}.000 "ExampleBot"'
        for at, target, lasts in ((1_800_000_010, "/b", 1), (1_800_000_012, "/a", 12))
    ]
    _, found = judge(*lines, format=template)
    assert found == [("page requested while another request was under way", "/b")]


def test_concurrent_requests_without_a_pace_are_no_violation(judge: Judge) -> None:
    lines = [combined(0, f"/{n}") for n in range(5)]
    assert judge(*lines, robots={SITE: ""})[1] == []
    assert len(judge(*lines, robots={SITE: ""}, min_delay_s=3)[1]) == 4


def test_log_that_begins_in_mid_crawl_proves_no_page_before_robots_txt(judge: Judge) -> None:
    lines = [combined(0, "/a"), combined(10, "/robots.txt", 503), combined(30, "/b")]
    assert judge(*lines)[1] == []
    assert [kind for kind, _ in judge(*lines, is_whole=True)[1]] == [
        "page requested before robots.txt",
        "page requested without a usable robots.txt",
    ]


def test_robots_txt_that_is_asked_too_often_or_too_seldom_is_found(judge: Judge) -> None:
    assert judge(combined(0, "/robots.txt"), combined(30, "/robots.txt"))[1] == [(REFETCHED, "/robots.txt")]
    next_days = [combined(20, "/a").replace("26/Nov", day) for day in ("27/Nov", "28/Nov")]
    assert judge(combined(0, "/robots.txt"), *next_days)[1] == [(STALE, "/a"), (STALE, "/a")]


def test_copy_of_robots_txt_at_the_edge_of_a_visit_time_is_judged_by_the_clock_of_the_log(judge: Judge) -> None:
    robots = {SITE: "User-agent: *\nVisit-time: 0600-1000\n"}
    found = judge(combined(59, "/a"), combined(60, "/b"), combined(62, "/c"), robots=robots)[1]
    assert [path for _, path in found] == ["/b", "/c"]


def test_copy_of_a_ledger_that_was_in_force_decides(judge: Judge, tmp_path: Path) -> None:
    origin, at = Origin.of(SITE), 1_795_687_200.0  # 10:00:00

    def copy(second: int, body: bytes | None) -> Snapshot:
        digest, result = (
            ("", AccessResult.UNREACHABLE) if body is None else (sha256(body).hexdigest(), AccessResult.SUCCESSFUL)
        )
        wall = at + second
        return Snapshot(origin, origin.robots_url, result, None, SITE, wall, digest, body or b"", recorded_wall=wall)

    closed, slow = b"User-agent: *\nDisallow: /a", b"User-agent: *\nCrawl-delay: 20\nVisit-time: 0600-1002\n"
    write_ledger(tmp_path / "ledger.db", [copy(10, closed), copy(40, slow), copy(200, None), copy(300, b"")])
    given = {"ledger": tmp_path / "ledger.db", "robots": {}}
    seconds = (5, 10, 20, 30, 40, 60, 70, 185, 250, 310)
    audit, _ = judge(*(combined(second, "/a") for second in seconds), **given)
    [host] = audit.hosts()
    found = sorted((one.started_wall - at, one.kind, one.detail) for kind in host.kinds for one in host.worst(kind))
    # At 10 s and 40 s, another copy may have been in force in the same second.
    assert found == [
        (20, FORBIDDEN, "line 2: Disallow: /a"),
        (30, FORBIDDEN, "line 2: Disallow: /a"),
        (70, GAP, "10.0000 s after its end, not 20 (crawl-delay)"),
        (185, "page requested outside the Visit-time", ""),
        (250, FORBIDDEN, "robots.txt was unreachable"),
    ]
    with pytest.raises(StoreError, match="no ledger"):
        judge(combined(0, "/a"), ledger=tmp_path / "none.db")


PACKED: dict[str, Any] = {"access.log.gz": gzip.compress, "access.log.zst": zstd.compress}


def test_packed_log_is_read_and_a_truncated_log_ends_with_an_error_after_all_good_lines(
    judge: Judge, tmp_path: Path
) -> None:
    rng = random.Random(1)
    lines = [combined(10 * n, f"/private/{rng.randbytes(200).hex()}") for n in range(3_000)]
    for name, pack in PACKED.items():
        assert judge(pack("\n".join(LINES).encode()), name=name)[1] == [(FORBIDDEN, "/private/a")]
        octets = pack("\n".join(lines).encode())
        (tmp_path / name).write_bytes(octets[: len(octets) // 2])
        audit = Audit(AuditOptions(agents=("ExampleBot",), site=SITE, robots={SITE: ROBOTS}))
        with pytest.raises(LogError, match="truncated: it ends within its packed data"):
            list(audit.findings([tmp_path / name]))
        # Half of the lines are good, but for those in a block of 128 KiB, which zstd unpacks as a whole.
        assert audit.hosts()[0].kinds[FORBIDDEN] == audit.counts()["lines"] == pytest.approx(1_500, abs=250)


def test_damaged_gzip_is_an_error(tmp_path: Path) -> None:
    octets = bytearray(gzip.compress("\n".join(LINES * 1_000).encode()))
    octets[len(octets) // 2] ^= 0xFF
    (tmp_path / "log.gz").write_bytes(octets)
    with pytest.raises(LogError, match="is damaged"):
        list(Audit(AuditOptions(agents=("ExampleBot",), site=SITE)).findings([tmp_path / "log.gz"]))


def test_zstd_without_its_package_names_the_extra(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    with pytest.raises(ConfigurationError, match=r"\.\[zstd\]"):
        judge(zstd.compress(b"x"))


GARBAGE = {
    "no line": "garbage",
    "binary": b"\x00\xff\xfe\n",
    "no request": combined(5, "/a").replace("GET /a HTTP/1.1", r"\x16\x03\x01"),
    "no such zone": combined(5, "/a").replace("+0000", "+9900"),
    "no such year": combined(5, "/a").replace("2026", "0026"),
    "no such month": combined(5, "/a").replace("Nov", "Nox"),
    "no such day": combined(5, "/a").replace("26/", "31/"),
    "long": b'"' + b"x" * 65_535,
}


def test_garbage_is_counted_with_an_example(judge: Judge) -> None:
    for kind, garbage in GARBAGE.items():
        audit, found = judge(*LINES[:2], garbage, LINES[2])
        assert (found, audit.counts()[UNREADABLE]) == ([(FORBIDDEN, "/private/a")], 1), kind
        assert any("access.log:3: " in note for note in audit.notes()), kind


def test_rest_of_a_long_line_is_no_line(judge: Judge) -> None:
    audit, found = judge(LINES[0], b'"' + b"x" * 65_535, combined(5, "/private/x"), LINES[1])
    assert found == [(FORBIDDEN, "/private/a")]
    assert audit.counts()["lines"] == 3


def test_clock_that_is_set_back_is_counted_and_not_compared(judge: Judge) -> None:
    back = combined(0, "/private").replace("26/Nov", "25/Nov")
    audit, found = judge(combined(5, "/a"), back, combined(12, "/b"), combined(13, "/c"))
    assert found == [(FORBIDDEN, "/private"), (GAP, "/c")]
    assert audit.counts()[CLOCK] == 1
    assert any("access.log:2, from 2026-11-26T10:00:05Z to 2026-11-25T10:00:00Z" in note for note in audit.notes())


def test_log_that_proves_nothing_is_an_error(judge: Judge) -> None:
    problems: dict[str, list[str]] = {
        "is empty: it proves nothing": [],
        "none of its first 2 lines has the format, as 'x y'. Give json, combined": ["x y", "z"],
        "no request by ExampleBot in 2 lines.*'curl/8'": [combined(0, "/", agent="curl/8"), "x"],
    }
    for problem, lines in problems.items():
        with pytest.raises(LogError, match=problem):
            judge(*lines)
    with pytest.raises(LogError, match="--site"):  # these lines name no host
        judge(*LINES, site=None)


def test_log_that_is_missing_or_given_twice_is_an_error(tmp_path: Path) -> None:
    audit = Audit(AuditOptions(agents=("ExampleBot",), site=SITE))
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(LogError, match="cannot be read"):
            list(audit.findings([path]))
    (tmp_path / "log").write_text("\n".join(LINES))
    (tmp_path / "link").symlink_to("log")
    with pytest.raises(LogError, match="given twice"):
        list(audit.findings([tmp_path / "log", tmp_path / "link"]))


def test_logs_of_several_servers_are_judged_together(tmp_path: Path) -> None:
    for name, chosen in (("two", LINES[1::2]), ("one", [*LINES[::2], combined(21, "/c")])):
        (tmp_path / name).write_text("\n".join(chosen))
    audit = Audit(AuditOptions(agents=("ExampleBot",), site=SITE, robots={SITE: ROBOTS}))
    found = [one.url for one in audit.findings([tmp_path / "two", tmp_path / "one"])]
    assert found == [f"{SITE}/private/a", f"{SITE}/c"]
    assert CLOCK not in audit.counts()


def test_invalid_options_are_refused() -> None:
    problems: dict[str, dict[str, Any]] = {
        "number of agents": {"agents": ()},
        r"Mozilla.*product token": {"agents": ("Mozilla/5.0 (ExampleBot)",)},
        r"\*.*product token": {"agents": ("*",)},
        "min_delay_s": {"min_delay_s": -1},
        "cbcp": {"profile": "best"},
        "example.com": {"site": "example.com"},
        "ftp": {"robots": {"ftp://x": ""}},
    }
    for problem, options in problems.items():
        with pytest.raises(ValueError, match=problem):
            Audit(AuditOptions(**{"agents": ("ExampleBot",), **options}))


OPENAI = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)"
BLAMED = {  # by the User-Agent that was sent
    "DuckDuckBot/1.1; (+http://duckduckgo.com/duckduckbot.html)": "DuckDuckBot",
    OPENAI: "GPTBot",
    "Mozilla/5.0 (compatible;PetalBot;+https://webmaster.petalsearch.com/site/petalbot)": "PetalBot",
    "Mozilla/5.0 (Linux; Android 5.0) (compatible; Bytespider; spider-feedback@bytedance.com)": "Bytespider",
    "Mozilla/5.0+(compatible;+bingbot/2.0;++http://www.bing.com/bingbot.htm)": "bingbot",
    "ExampleBot/1.0+https://bot.example/": "ExampleBot",
    r"\x22ExampleBot/1.0\x22": "ExampleBot",
}
ADDRESSES = {
    "DuckDuckBot-Https/1.1; (+https://duckduckgo.com/duckduckbot)": "DuckDuckBot",
    "Mozilla/5.0 (compatible; OAI-SearchBot/1.0; +https://openai.com/searchbot)": "SearchBot",
    "OtherBot/1.0 (+HTTPS://bot.example/?from=ExampleBot)": "ExampleBot",
    "OtherBot/1.0 (bot.example/ExampleBot)": "ExampleBot",
    "OtherBot/1.0 (ExampleBot@bot.example, abuse@ExampleBot.example)": "ExampleBot",
}


def test_crawler_is_found_by_the_product_token_in_its_user_agent(judge: Judge) -> None:
    for sent, agent in BLAMED.items():
        assert judge(combined(0, "/private", agent=sent), agents=(agent,))[1] == [(FORBIDDEN, "/private")], sent


def test_crawler_is_not_blamed_for_the_address_of_another_crawler(judge: Judge) -> None:
    for sent, agent in ADDRESSES.items():
        audit, found = judge(combined(0, "/private", agent=sent), combined(9, "/a", agent=agent), agents=(agent,))
        assert (found, audit.counts()["requests"]) == ([], 1), sent


# The practices of the profile cbcp.

PAGES = [combined(10 * n, f"/{n % 20}") for n in range(40)]
ERRORS = [combined(100 * n, f"/e{n}", 500) for n in range(3)]


def kinds(judge: Judge, *lines: str) -> list[str]:
    return [kind for kind, _ in judge(*lines, profile="cbcp")[1]]


def test_pages_that_are_fetched_again_without_a_condition_are_a_fault_if_asked(judge: Judge) -> None:
    assert kinds(judge, *PAGES) == ["pages are often fetched again, and never with a condition"]
    assert kinds(judge, *PAGES, combined(400, "/1", 304)) == []
    assert kinds(judge, *PAGES[:20]) == []
    assert judge(*PAGES)[1] == []


def test_methods_other_than_get_and_head_are_a_fault_if_frequent(judge: Judge) -> None:
    posts = [line.replace("GET", "POST") for line in PAGES[:3]]
    assert kinds(judge, *posts, *PAGES[3:20]) == ["methods other than GET and HEAD are frequent"]
    assert kinds(judge, *posts[:2], *PAGES[2:20]) == []


def test_page_soon_after_three_server_errors_is_a_fault(judge: Judge) -> None:
    for second, found in ((205, ["page requested too soon after three server errors in a row"]), (215, [])):
        assert kinds(judge, *ERRORS, combined(second, "/")) == found
        assert kinds(judge, ERRORS[0], combined(90, "/ok"), *ERRORS[1:], combined(second, "/")) == []


def test_user_agent_without_a_url_is_a_fault_told_once_for_a_host(judge: Judge) -> None:
    assert SENT.endswith("(+https://bot.example/)")
    bare = [line.replace(SENT, "ExampleBot/1.0") for line in PAGES[:3]]
    assert kinds(judge, *bare) == ["User-Agent without the URL of a page about the crawler"]
