import json
from pathlib import Path

import pytest

from tests.tools.cli.command import Origin, politesse, serving

BEFORE = "User-agent: *\nDisallow: /a\nDisallow: /b\n\nUser-agent: Bot\nCrawl-delay: 5\n"
AFTER = "User-agent: *\nDisallow: /a\nAllow: /b\n\nUser-agent: Bot\nCrawl-delay: 10\n"


@pytest.fixture
def before(tmp_path: Path) -> str:
    path = tmp_path / "before.txt"
    path.write_text(BEFORE)
    return str(path)


@pytest.fixture
def after(tmp_path: Path) -> str:
    path = tmp_path / "after.txt"
    path.write_text(AFTER)
    return str(path)


async def test_changes_are_shown_by_crawler_and_exit_1(before: str, after: str) -> None:
    done = await politesse("diff", before, after)
    rules = "*:\n  ! Disallow: /b (line 3) -> Allow: /b (line 3)\n"
    assert (done.code, done.out, done.err) == (1, f"{rules}bot:\n  ! crawl-delay: 5 -> 10\n", "")
    assert (await politesse("diff", before, after, "--agent", "*")).out == rules
    assert (await politesse("diff", before, after, "--agent", "Other/1.0")).out == rules.replace("*", "other")


@pytest.mark.parametrize("more", ["", "# a comment\nDisallow: /a/b\n"])
async def test_equal_effect_exits_0(tmp_path: Path, before: str, more: str) -> None:
    other = tmp_path / "other.txt"
    other.write_text(BEFORE.replace("Disallow: /b\n", f"Disallow: /b\n{more}"))
    done = await politesse("diff", before, str(other))
    assert (done.code, done.out.splitlines()[-1]) == (0, "equal in effect")
    assert ("(no effect)" in done.out) is bool(more)


async def test_url_stands_for_the_robots_txt_of_its_site_and_dash_for_standard_input() -> None:
    async with serving(Origin(BEFORE)) as origin:
        done = await politesse("diff", f"{origin.base}/page", "-", stdin=AFTER.encode())
    assert (done.code, done.out.count("!")) == (1, 2)


async def test_urls_of_a_list_with_other_answers_are_shown(tmp_path: Path, before: str, after: str) -> None:
    urls = tmp_path / "urls.txt"
    urls.write_text("# urls\nhttps://a.example/b/x\nmailto:us\n\nhttps://a.example/a\n")
    done = await politesse("diff", before, after, "--agent", "other", "--urls", str(urls))
    assert done.code == 2
    assert done.out.splitlines()[2:] == [
        "other:",
        "  ! https://a.example/b/x: disallowed, Disallow: /b (line 3) -> allowed, Allow: /b (line 3)",
    ]
    assert "'mailto:us' is not an absolute URL" in done.err
    done = await politesse("diff", before, after, "--urls", "-", stdin=b"https://a.example/b/x\n")
    assert (done.code, done.out.splitlines()[-2]) == (1, "*:")


async def test_json_has_its_documented_keys(before: str, after: str) -> None:
    done = await politesse("diff", "--json", before, after)
    [rule, directive] = [json.loads(line) for line in done.out.splitlines()]
    assert rule == {
        "kind": "rule",
        "agents": ["*"],
        "subject": "/b",
        "before": {"text": "Disallow: /b", "line": 3},
        "after": {"text": "Allow: /b", "line": 3},
        "has_effect": True,
        "times": 1,
    }
    assert (directive["kind"], directive["agents"], directive["subject"]) == ("directive", ["bot"], "crawl-delay")


async def test_source_that_cannot_be_read_exits_2(before: str) -> None:
    async with serving(Origin(status=503)) as origin:
        done = await politesse("diff", before, origin.base)
    assert (done.code, done.out) == (2, "")
    assert f"politesse: {origin.base}: " in done.err
    assert "no such file" in (await politesse("diff", "example.com", before)).err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("-", "-"), "standard input (-) can be read only once"),
        (("a", "b", "--agent", "Mozilla/5.0"), "give the product token of a crawler"),
        (("a", "b", "--urls", "/missing"), "No such file"),
    ],
)
async def test_invalid_option_is_refused(options: tuple[str, ...], problem: str) -> None:
    done = await politesse("diff", *options)
    assert done.code == 2
    assert problem in " ".join(done.err.replace("│", " ").split())


async def test_file_cannot_steer_the_terminal(tmp_path: Path, before: str) -> None:
    hostile = tmp_path / "hostile.txt"
    hostile.write_bytes(b"User-agent: *\nDisallow: /\xc2\x9b2J\nSitemap: https://a.example/\xe2\x80\xaex\n")
    done = await politesse("diff", before, str(hostile))
    assert done.code == 1
    assert all(line.isprintable() for line in done.out.splitlines())
