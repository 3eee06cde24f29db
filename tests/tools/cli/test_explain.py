import json
from pathlib import Path

import pytest

from politesse.robots import Dialect
from tests.tools.cli.command import Origin, politesse, serving

ROBOTS = "# rules\nUser-agent: FooBot\nDisallow: /\n\nUser-agent: *\nDisallow: /a\nAllow: /a/b\nDisallow: /c\n"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "robots.txt"
    path.write_text(ROBOTS)
    return str(path)


async def test_file_is_shown_with_numbers_and_marks(file: str) -> None:
    done = await politesse("explain", "https://example.com/a/b/c", "--file", file)
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
    assert "allowed: https://example.com/a/b/c" in done.out
    assert "line 7, 'Allow: /a/b'" in done.out
    assert "of 2 matches: the longest rule that matches decides" in done.out


@pytest.mark.parametrize(
    ("robots", "dialect", "shown"),
    [
        ("User agent: *\n", "rfc9309", "| 1  User agent: *   <- read as user-agent"),
        ("User-agent: *\nDissallow: /a\n", "rfc9309", "| 2  Dissallow: /a   <- read as disallow"),
        (
            "User-agent: *\nDisallow:\nDisallow: /b\n",
            "koster-1996",
            "> 2  Disallow:   <- decides: later rules are not tried",
        ),
    ],
)
async def test_line_with_an_effect_has_a_remark(robots: str, dialect: str, shown: str) -> None:
    done = await politesse("explain", "https://e.com/b", "--file", "-", "--dialect", dialect, stdin=robots.encode())
    assert done.code == 0
    assert shown in done.out.splitlines()


async def test_all_dialects_print_a_line_each_and_mark_those_that_differ(file: str) -> None:
    done = await politesse("explain", "https://example.com/a/b", "--file", file, "--all-dialects")
    told = {line[2:].split()[0]: line for line in done.out.splitlines()}
    assert done.code == 0
    assert told.keys() == {dialect.value for dialect in Dialect}
    # The first match decides, or there is no Allow.
    assert {name for name, line in told.items() if line.startswith("*")} == {
        "koster-1996",
        "koster-1994",
        "conner-2",
        "perl",
    }
    assert told["koster-1996"].endswith("disallowed  line 6, Disallow: /a")
    other = await politesse("explain", "https://example.com/a/b", "--file", file, "--all-dialects", "--dialect", "perl")
    assert (other.code, other.out.splitlines()[0].split()) == (
        1,
        ["perl", "disallowed", "line", "6,", "Disallow:", "/a"],
    )


async def test_json_has_the_keys_of_check_and_five_more(file: str) -> None:
    done = await politesse("explain", "https://example.com/a/b", "--file", file, "--json")
    told = json.loads(done.out)
    assert list(told)[-5:] == ["dialect", "groups", "matches", "usage", "licenses"]
    assert (told["dialect"], told["allowed"], told["rule"]["line"]) == ("rfc9309", True, 7)
    assert told["groups"] == [{"agents": ["*"], "lines": [5, 6, 7, 8]}]
    assert [(one["line"], one["length"]) for one in told["matches"]] == [(6, 2), (7, 4)]


async def test_robots_txt_is_fetched_once_for_all_dialects() -> None:
    async with serving(Origin(ROBOTS)) as origin:
        done = await politesse("explain", f"{origin.base}/a/b", "--all-dialects")
    assert done.code == 0
    assert len(done.out.splitlines()) == len(Dialect)
    assert [request.path for request in origin.requests] == ["/robots.txt"]


@pytest.mark.parametrize(
    ("status", "code", "why"),
    [(404, 0, "there is no robots.txt"), (403, 0, "there is no robots.txt"), (503, 2, "unreachable"), (429, 2, "429")],
)
async def test_status_that_decides_is_explained(status: int, code: int, why: str) -> None:
    async with serving(Origin(ROBOTS, status=status)) as origin:
        done = await politesse("explain", f"{origin.base}/a")
    assert done.code == code
    assert why in done.out
    assert "User-agent" not in done.out


@pytest.mark.parametrize(
    "arguments", [("no url",), ("https://e.com/", "--file", "/missing"), ("https://e.com/", "--agent", "")]
)
async def test_undecided_verdict_exits_2(arguments: tuple[str, ...]) -> None:
    done = await politesse("explain", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err


async def test_file_steers_neither_the_terminal_nor_rich() -> None:
    hostile = "User-agent: *\nDisallow: /[bold]:smile:\u009b31m\u202e\n" + "#" * 5_000
    done = await politesse("explain", "https://e.com/", "--file", "-", stdin=hostile.encode(), FORCE_COLOR="1")
    assert r"/[bold]:smile:\x9b31m\u202e" in done.out
    assert "\u202e" not in done.out
    assert max(map(len, done.out.splitlines())) < 250


PREFERENCES = (
    "License: https://rsl.example/l.xml\nUser-agent: *\nDisallow: /private\n"
    "Content-Signal: search=yes\nContent-Usage: train-ai=n\n"
)


async def test_usage_preferences_and_licenses_are_reported_beside_the_answer(tmp_path: Path) -> None:
    file = tmp_path / "robots.txt"
    file.write_text(PREFERENCES)
    done = await politesse("explain", "https://example.com/a", "--file", str(file))
    assert (done.code, done.err) == (0, "")
    assert "| 5  Content-Usage: train-ai=n\n" in done.out
    assert done.out.endswith(
        "  usage preferences:\n"
        "    search: allowed\n"
        "      by robots.txt line 4: Content-Signal: search=yes\n"
        "    ai-train: disallowed\n"
        "      by robots.txt line 5: Content-Usage: train-ai=n\n"
        "    license: https://rsl.example/l.xml (robots.txt line 1: License: https://rsl.example/l.xml)\n"
    )
    denied = await politesse("explain", "https://example.com/private", "--file", str(file))
    assert denied.code == 1
    assert "usage preferences" not in denied.out
