import json
from pathlib import Path

import pytest

from politesse.robots.lint import CODES
from tests.tools.cli.command import Origin, politesse, serving

CLEAN = "User-agent: *\nDisallow: /a\n"
RISKY = "User-agent: *\nDisallow: /a\nDisallow: /a\n"
WRONG = "Disallow: /a\nUser-agent: *\nDisallow: b\n"


def write(directory: Path, text: str | bytes) -> str:
    path = directory / f"robots-{len(list(directory.iterdir()))}.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


@pytest.mark.parametrize(("text", "code"), [("", 0), (CLEAN, 0), (RISKY, 0), (WRONG, 1)])
async def test_only_errors_exit_1(tmp_path: Path, text: str, code: int) -> None:
    assert (await politesse("lint", write(tmp_path, text))).code == code


async def test_findings_are_reported_by_file_line_and_column(tmp_path: Path) -> None:
    wrong, risky = write(tmp_path, WRONG), write(tmp_path, RISKY)
    done = await politesse("lint", wrong, risky)
    assert done.code == 1
    told = done.out.splitlines()
    assert [line.partition(": ")[0] for line in told] == [f"{wrong}:1:1", f"{wrong}:3:11", f"{risky}:3:11"]
    assert told[1].endswith("[no-leading-slash]")
    assert " error: " in told[1]
    assert " warning: " in told[2]
    assert done.err == "errors: 2, warnings: 1, notes: 0\n"


async def test_json_has_its_documented_keys(tmp_path: Path) -> None:
    path = write(tmp_path, WRONG)
    done = await politesse("lint", "--json", path)
    told = [json.loads(line) for line in done.out.splitlines()]
    assert [list(one) for one in told] == [["file", "line", "column", "severity", "code", "message"]] * 2
    assert (told[1]["file"], told[1]["line"], told[1]["column"]) == (path, 3, 11)
    assert (told[1]["severity"], told[1]["code"]) == ("error", "no-leading-slash")
    assert (done.code, done.err) == (1, "")


async def test_unreadable_source_exits_2_and_the_others_are_read(tmp_path: Path) -> None:
    done = await politesse("lint", "example.com", str(tmp_path), "http://", "-", stdin=WRONG.encode())
    assert done.code == 2
    assert [line[:13] for line in done.out.splitlines()] == ["-:1:1: error:", "-:3:11: error"]
    assert done.err.count("politesse: ") == 3
    assert "example.com: no such file; for the robots.txt of a site, write https://example.com\n" in done.err


async def test_url_stands_for_the_robots_txt_of_its_site() -> None:
    async with serving(Origin(WRONG)) as origin:
        done = await politesse("lint", f"{origin.base}/some/page?x")
    assert done.code == 1
    assert done.out.startswith(f"{origin.base}/robots.txt:1:1: error: ")
    assert [request.path for request in origin.requests] == ["/robots.txt"]


async def test_file_that_is_too_long_is_reported() -> None:
    async with serving(Origin(CLEAN + "# a comment\n" * 60_000 + "Disallow: /b\n")) as origin:
        done = await politesse("lint", origin.base)
    assert done.code == 1
    assert "[rules-cut-off]" in done.out


@pytest.mark.parametrize(("status", "why"), [(404, "there is no robots.txt"), (503, "unreachable"), (429, "429")])
async def test_site_without_a_file_exits_2(status: int, why: str) -> None:
    async with serving(Origin(CLEAN, status=status)) as origin:
        done = await politesse("lint", origin.base)
    assert (done.code, done.out) == (2, "")
    assert why in done.err


async def test_dialect_says_what_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, "User-agent: *\n\nDisallow: /a\n")
    assert (await politesse("lint", path)).code == 0
    assert (await politesse("lint", "--dialect", "koster-1994", path)).code == 1
    assert (await politesse("lint", "--dialect", "koster", path)).code == 2


async def test_file_steers_neither_the_terminal_nor_rich(tmp_path: Path) -> None:
    path = write(tmp_path, "User-agent: *\nDisallow: [bold]:smile:\u009b31m\u202e\n")
    done = await politesse("lint", path, FORCE_COLOR="1")
    assert r"[bold]:smile:\x9b31m\u202e" in done.out
    assert "\u202e" not in done.out


async def test_codes_are_listed_with_their_meaning() -> None:
    done = await politesse("lint", "--codes")
    listed = [line.split(maxsplit=2) for line in done.out.splitlines()]
    assert done.code == 0
    assert [tuple(row) for row in listed] == [(name, *code) for name, code in CODES.items()]
