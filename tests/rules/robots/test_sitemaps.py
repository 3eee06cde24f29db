from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse.origin import split
from politesse.robots import RejectedSitemap, RobotsTxt
from politesse.robots.other_records import MAX_REJECTED

SITEMAP = "sitemaps.org, Submitting your Sitemap, robots.txt"


def check(*lines: str | bytes) -> tuple[tuple[str, ...], tuple[RejectedSitemap, ...]]:
    body = b"\n".join(line.encode() if isinstance(line, str) else line for line in lines)
    return RobotsTxt.parse(body).rules_for("anybody").sitemap_lines.check()


@pytest.mark.clause(SITEMAP)
def test_sitemaps_of_any_group_and_host_are_listed_in_order() -> None:
    urls, rejected = check(
        "SITEMAP: https://h/S.xml",
        "User-agent: a",
        "sitemap : https://other.example/ü.xml.gz?a=b",
        "Disallow: /",
        "Sitemap: http://h:8080 # the last",
    )
    assert urls == ("https://h/S.xml", "https://other.example/ü.xml.gz?a=b", "http://h:8080")
    assert rejected == ()


def test_repeated_sitemap_is_listed_once_at_its_first_place() -> None:
    assert check("Sitemap: https://h/a", "Sitemap: https://h/b", "Sitemap: https://h/a")[0] == (
        "https://h/a",
        "https://h/b",
    )
    assert check("Sitemap: https://h/a", "Sitemap: https://h/A")[0] == ("https://h/a", "https://h/A")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "is empty"),
        ("/sitemap.xml", "is not an absolute URL"),
        ("sitemap.xml", "is not an absolute URL"),
        ("//h/sitemap.xml", "is not an absolute URL"),
        ("ftp://h/s.xml", "has the scheme 'ftp'"),
        ("https:///s.xml", "names no host"),
        ("https://h:port/s.xml", "is not a number"),
        ("https://h/a https://h/b", "holds a blank"),
        ("https://h\\@evil/", "holds a blank or a backslash"),
        ("https://h/\x1b[2J", "control character"),
    ],
)
def test_invalid_url_is_omitted_and_reported(value: str, problem: str) -> None:
    urls, [rejected] = check("User-agent: *", f"Sitemap: {value}", "Sitemap: https://h/s.xml")
    assert urls == ("https://h/s.xml",)
    assert (rejected.line, rejected.value) == (2, value)
    assert problem in rejected.problem


def test_octets_that_are_not_utf8_are_left_out_and_reported() -> None:
    urls, [rejected] = check(b"Sitemap: https://h/\xfc.xml")
    assert urls == ()
    assert "UTF-8" in rejected.problem


def test_no_more_lines_are_reported_than_anybody_reads() -> None:
    urls, rejected = check(*(f"Sitemap: /{number}" for number in range(1_000)), "Sitemap: https://h/s.xml")
    assert urls == ("https://h/s.xml",)
    assert [one.line for one in rejected] == list(range(1, MAX_REJECTED + 1))


def test_weight_follows_the_values_and_is_zero_without_lines() -> None:
    many = RobotsTxt.parse("".join(f"Sitemap: https://h/{number:04}\n" for number in range(1_000)))
    none = RobotsTxt.parse("User-agent: *\n").rules_for("x")
    assert (none.sitemap_lines.lines, none.sitemap_lines.weight_bytes) == ((), 0)
    assert many.rules_for("x").weight_bytes - none.weight_bytes >= 1_000 * len("https://h/0000")


HOSTILE = st.text(alphabet=st.sampled_from("https://aé.☃:8 @[]%#?\\\x00\x85\xad\u200d\ud800"), max_size=60)


@given(st.lists(HOSTILE.map("https://".__add__) | HOSTILE | st.text(max_size=60), max_size=5))
def test_no_value_raises_and_every_url_is_valid(values: list[str]) -> None:
    robots = RobotsTxt.parse("".join(f"Sitemap: {value}\n" for value in values))
    urls, rejected = robots.rules_for("x").sitemap_lines.check()
    assert len(urls) + len(rejected) == len({line.value for line in robots.lines if line.field == "sitemap"})
    for url in urls:
        split(url)
        url.encode()
    assert set(urls) <= set(robots.sitemaps)


def test_sitemap_with_a_control_character_is_not_handed_on() -> None:
    assert RobotsTxt.parse("Sitemap: https://h/a\x1b[2J\nSitemap: https://h/b").sitemaps == ["https://h/b"]
