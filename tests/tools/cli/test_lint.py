"""``politesse lint``, ``diff`` and ``explain``: what they say of a robots.txt in a file, at a site or in a pipe."""

from pathlib import Path

import pytest

from politesse.clock import SystemClock
from politesse.robots import Dialect
from politesse.robots.lint import CODES
from tests.tools.cli.command import Origin, politesse, serving

CLEAN = "User-agent: *\nDisallow: /a\n"
RISKY = "User-agent: *\nDisallow: /a\nDisallow: /a\n"
WRONG = "Disallow: /a\nUser-agent: *\nDisallow: b\n"
BEFORE = "User-agent: *\nDisallow: /a\nDisallow: /b\n\nUser-agent: Bot\nCrawl-delay: 5\n"
AFTER = "User-agent: *\nDisallow: /a\nAllow: /b\n\nUser-agent: Bot\nCrawl-delay: 10\n"
ROBOTS = "# rules\nUser-agent: FooBot\nDisallow: /\n\nUser-agent: *\nDisallow: /a\nAllow: /a/b\nDisallow: /c\n"
PAGE = "https://example.com/a/b"


def write(directory: Path, text: str) -> str:
    path = directory / f"robots-{len(list(directory.iterdir()))}.txt"
    path.write_text(text)
    return str(path)


@pytest.fixture
def before(tmp_path: Path) -> str:
    return write(tmp_path, BEFORE)


@pytest.fixture
def after(tmp_path: Path) -> str:
    return write(tmp_path, AFTER)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return write(tmp_path, ROBOTS)


# lint


async def test_only_errors_exit_1_and_the_dialect_says_what_is_an_error(tmp_path: Path) -> None:
    divided = "User-agent: *\n\nDisallow: /a\n"
    for text, dialect, code in (
        ("", "rfc9309", 0),
        (CLEAN, "rfc9309", 0),
        (RISKY, "rfc9309", 0),
        (WRONG, "rfc9309", 1),
        (divided, "rfc9309", 0),
        (divided, "koster-1994", 1),
        (divided, "koster", 2),
    ):
        done = await politesse("lint", "--dialect", dialect, write(tmp_path, text))
        assert done.code == code, (text, dialect)


async def test_findings_are_reported_by_file_line_and_column(tmp_path: Path) -> None:
    wrong, risky = write(tmp_path, WRONG), write(tmp_path, RISKY)
    done = await politesse("lint", wrong, risky)
    told = done.out.splitlines()
    assert [line.partition(": ")[0] for line in told] == [f"{wrong}:1:1", f"{wrong}:3:11", f"{risky}:3:11"]
    assert told[1].endswith("[no-leading-slash]")
    assert (" error: " in told[1], " warning: " in told[2]) == (True, True)
    assert (done.code, done.err) == (1, "errors: 2, warnings: 1, notes: 0\n")


async def test_json_of_lint_has_its_documented_keys(tmp_path: Path) -> None:
    path = write(tmp_path, WRONG)
    done = await politesse("lint", "--json", path)
    told = done.records
    assert [list(one) for one in told] == [["file", "line", "column", "severity", "code", "message"]] * 2
    assert list(told[1].values())[:5] == [path, 3, 11, "error", "no-leading-slash"]
    assert (done.code, done.err) == (1, "")


async def test_unreadable_source_of_lint_exits_2_and_the_others_are_read(tmp_path: Path) -> None:
    done = await politesse("lint", "example.com", str(tmp_path), "http://", "-", stdin=WRONG.encode())
    assert done.code == 2
    assert [line[:13] for line in done.out.splitlines()] == ["-:1:1: error:", "-:3:11: error"]
    assert done.err.count("politesse: ") == 3
    assert "example.com: no such file; for the robots.txt of a site, write https://example.com\n" in done.err


async def test_url_stands_for_the_robots_txt_of_its_site() -> None:
    async with serving(Origin(WRONG)) as origin:
        done = await politesse("lint", f"{origin.base}/some/page?x")
        assert (done.code, origin.paths) == (1, ["/robots.txt"])
        assert done.out.startswith(f"{origin.base}/robots.txt:1:1: error: ")
        origin.robots = CLEAN + "# a comment\n" * 60_000 + "Disallow: /b\n"  # too long
        done = await politesse("lint", origin.base)
        assert (done.code, "[rules-cut-off]" in done.out) == (1, True)
        for status, why in ((404, "there is no robots.txt"), (503, "unreachable"), (429, "429")):
            origin.status = status
            done = await politesse("lint", origin.base)
            assert (done.code, done.out, why in done.err) == (2, "", True), status


async def test_codes_are_listed_with_their_meaning() -> None:
    done = await politesse("lint", "--codes")
    listed = [line.split(maxsplit=2) for line in done.out.splitlines()]
    assert done.code == 0
    assert [tuple(row) for row in listed] == [(name, *code) for name, code in CODES.items()]


async def test_a_file_steers_neither_the_terminal_nor_rich(tmp_path: Path, before: str) -> None:
    hostile, shown = "User-agent: *\nDisallow: [bold]:smile:\u009b31m\u202e\n", r"[bold]:smile:\x9b31m\u202e"
    linted = await politesse("lint", write(tmp_path, hostile), FORCE_COLOR="1")
    path = write(tmp_path, hostile.replace(" [", " /[") + "#" * 5_000)
    explained = await politesse("explain", "https://e.com/", "--file", path, FORCE_COLOR="1")
    for done in (linted, explained):
        assert (shown in done.out, "\u202e" in done.out) == (True, False)
    assert max(map(len, explained.out.splitlines())) < 250
    path = write(tmp_path, "User-agent: *\nDisallow: /\u009b2J\nSitemap: https://a.example/\u202ex\n")
    done = await politesse("diff", before, path)
    assert done.code == 1
    assert all(line.isprintable() for line in done.out.splitlines())


# diff


async def test_changes_are_shown_by_crawler_and_exit_1(before: str, after: str) -> None:
    done = await politesse("diff", before, after)
    rules = "*:\n  ! Disallow: /b (line 3) -> Allow: /b (line 3)\n"
    assert (done.code, done.out, done.err) == (1, f"{rules}bot:\n  ! crawl-delay: 5 -> 10\n", "")
    assert (await politesse("diff", before, after, "--agent", "*")).out == rules
    assert (await politesse("diff", before, after, "--agent", "Other/1.0")).out == rules.replace("*", "other")


async def test_equal_effect_exits_0(tmp_path: Path, before: str) -> None:
    for more in ("", "# a comment\nDisallow: /a/b\n"):
        other = write(tmp_path, BEFORE.replace("Disallow: /b\n", f"Disallow: /b\n{more}"))
        done = await politesse("diff", before, other)
        assert (done.code, done.out.splitlines()[-1]) == (0, "equal in effect")
        assert ("(no effect)" in done.out) is bool(more)


async def test_diff_reads_sites_and_standard_input_and_names_what_cannot_be_read(before: str) -> None:
    async with serving(Origin(BEFORE)) as origin:
        done = await politesse("diff", f"{origin.base}/page", "-", stdin=AFTER.encode())
        assert (done.code, done.out.count("!")) == (1, 2)
        origin.status = 503
        done = await politesse("diff", before, origin.base)
        assert (done.code, done.out, f"politesse: {origin.base}: " in done.err) == (2, "", True)
    assert "no such file" in (await politesse("diff", "example.com", before)).err
    for options, problem in {
        ("-", "-"): "standard input (-) can be read only once",
        ("-", before, "--urls", "-"): "standard input (-) can be read only once",
        (before, "-", "--urls", "-"): "standard input (-) can be read only once",
        ("a", "b", "--agent", "Mozilla/5.0"): "give the product token of a crawler",
        ("a", "b", "--urls", "/missing"): "No such file",
    }.items():
        done = await politesse("diff", *options)
        assert (done.code, problem in done.problem) == (2, True), problem


async def test_urls_of_a_list_with_other_answers_are_shown(tmp_path: Path, before: str, after: str) -> None:
    urls = write(tmp_path, "# urls\nhttps://a.example/b/x\nmailto:us\n\nhttps://a.example/a\n")
    done = await politesse("diff", before, after, "--agent", "other", "--urls", urls)
    assert done.code == 2
    assert done.out.splitlines()[2:] == [
        "other:",
        "  ! https://a.example/b/x: disallowed, Disallow: /b (line 3) -> allowed, Allow: /b (line 3)",
    ]
    assert "'mailto:us' is not an absolute URL" in done.err
    done = await politesse("diff", before, after, "--urls", "-", stdin=b"https://a.example/b/x\n")
    assert (done.code, done.out.splitlines()[-2]) == (1, "*:")


async def test_json_of_diff_has_its_documented_keys(before: str, after: str) -> None:
    [rule, directive] = (await politesse("diff", "--json", before, after)).records
    assert list(rule) == ["kind", "agents", "subject", "before", "after", "has_effect", "times"]
    texts = [{"text": "Disallow: /b", "line": 3}, {"text": "Allow: /b", "line": 3}]
    assert list(rule.values()) == ["rule", ["*"], "/b", *texts, True, 1]
    assert (directive["kind"], directive["agents"], directive["subject"]) == ("directive", ["bot"], "crawl-delay")


# explain


async def test_file_is_shown_with_numbers_and_marks(file: str) -> None:
    done = await politesse("explain", f"{PAGE}/c", "--file", file)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[:8] == [
        "  1  # rules",
        "  2  User-agent: FooBot",
        "  3  Disallow: /",
        "  4",
        "| 5  User-agent: *",
        "* 6  Disallow: /a   <- matches, length 2",
        "> 7  Allow: /a/b   <- decides, length 4",
        "| 8  Disallow: /c",
    ]
    for words in (f"allowed: {PAGE}/c", "line 7, 'Allow: /a/b'", "of 2 matches: the longest rule that matches decides"):
        assert words in done.out


async def test_line_with_an_effect_has_a_remark() -> None:
    for robots, dialect, shown in (
        ("User agent: *\n", "rfc9309", "| 1  User agent: *   <- read as user-agent"),
        ("User-agent: *\nDissallow: /a\n", "rfc9309", "| 2  Dissallow: /a   <- read as disallow"),
        (
            "User-agent: *\nDisallow:\nDisallow: /b\n",
            "koster-1996",
            "> 2  Disallow:   <- decides: later rules are not tried",
        ),
    ):
        done = await politesse("explain", "https://e.com/b", "--file", "-", "--dialect", dialect, stdin=robots.encode())
        assert (done.code, shown in done.out.splitlines()) == (0, True), shown


async def test_all_dialects_print_a_line_each_and_mark_those_that_differ(file: str) -> None:
    done = await politesse("explain", PAGE, "--file", file, "--all-dialects")
    told = {line[2:].split()[0]: line for line in done.out.splitlines()}
    assert done.code == 0
    assert told.keys() == {dialect.value for dialect in Dialect}
    # The first match decides, or there is no Allow.
    differ = {name for name, line in told.items() if line.startswith("*")}
    assert differ == {"koster-1996", "koster-1994", "conner-2", "perl"}
    assert told["koster-1996"].endswith("disallowed  line 6, Disallow: /a")
    other = await politesse("explain", PAGE, "--file", file, "--all-dialects", "--dialect", "perl")
    assert (other.code, " ".join(other.out.splitlines()[0].split())) == (1, "perl disallowed line 6, Disallow: /a")


async def test_json_of_explain_has_the_keys_of_check_and_five_more(file: str) -> None:
    [told] = (await politesse("explain", PAGE, "--file", file, "--json")).records
    assert list(told)[-5:] == ["dialect", "groups", "matches", "usage", "licenses"]
    assert (told["dialect"], told["allowed"], told["rule"]["line"]) == ("rfc9309", True, 7)
    assert told["groups"] == [{"agents": ["*"], "lines": [5, 6, 7, 8]}]
    assert [(one["line"], one["length"]) for one in told["matches"]] == [(6, 2), (7, 4)]


async def test_robots_txt_is_fetched_once_for_all_dialects_and_a_status_that_decides_is_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    async def sleep(_: SystemClock, seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(SystemClock, "sleep", sleep)
    async with serving(Origin(ROBOTS)) as origin:
        done = await politesse("explain", f"{origin.base}/a/b", "--all-dialects")
        assert (done.code, len(done.out.splitlines()), origin.paths) == (0, len(Dialect), ["/robots.txt"])
        none = "there is no robots.txt"
        for status, code, why in ((404, 0, none), (403, 0, none), (503, 2, "unreachable"), (429, 2, "429")):
            origin.status = status
            done = await politesse("explain", f"{origin.base}/a")
            assert (done.code, why in done.out, "User-agent" in done.out) == (code, True, False), status
    assert waits == []


async def test_undecided_verdict_exits_2() -> None:
    for arguments in (("no url",), ("https://e.com/", "--file", "/missing"), ("https://e.com/", "--agent", "")):
        done = await politesse("explain", *arguments)
        assert (done.code, done.out, done.err == "") == (2, "", False), arguments


async def test_usage_preferences_and_licenses_are_reported_beside_the_answer(tmp_path: Path) -> None:
    license_ = "License: https://rsl.example/l.xml"
    statements = "Content-Signal: search=yes\nContent-Usage: train-ai=n"
    file = write(tmp_path, f"{license_}\nUser-agent: *\nDisallow: /private\n{statements}\n")
    done = await politesse("explain", "https://example.com/a", "--file", file)
    assert (done.code, done.err) == (0, "")
    assert "| 5  Content-Usage: train-ai=n\n" in done.out
    assert done.out.endswith(
        "  usage preferences:\n"
        "    search: allowed\n"
        "      by robots.txt line 4: Content-Signal: search=yes\n"
        "    ai-train: disallowed\n"
        "      by robots.txt line 5: Content-Usage: train-ai=n\n"
        f"    license: https://rsl.example/l.xml (robots.txt line 1: {license_})\n"
    )
    denied = await politesse("explain", "https://example.com/private", "--file", file)
    assert (denied.code, "usage preferences" in denied.out) == (1, False)
