"""What reviewers and fuzzers found once; each stays found."""

from __future__ import annotations

import unicodedata

import pytest
from yarl import URL

from politesse import Gatekeeper, InvalidURL
from politesse.origin import split
from politesse.robots import RobotsTxt
from politesse.robots.directives import parse_request_rate, parse_visit_time
from politesse.testing import ScriptedFetcher

UA = "ExampleBot/1.0 (+https://example.com/bot)"


def test_blanks_in_a_directive_cost_no_more_than_their_number() -> None:
    blanks = " " * 500_000  # quadratic, this would take an hour
    assert parse_visit_time(f"0600{blanks}x") is None
    assert parse_request_rate(f"1/1{blanks}x") is None


@pytest.mark.parametrize(
    ("host", "known_as"),
    [
        ("\u00ad" * 244 + "example.com.evil.org", "example.com.evil.org"),
        (
            ".".join([unicodedata.normalize("NFD", "각" * 20)] * 4) + ".example.com.evil.org",
            ".".join([("각" * 20).encode("idna").decode()] * 4) + ".example.com.evil.org",
        ),
    ],
)
def test_long_host_is_never_cut_to_another(host: str, known_as: str) -> None:
    assert split(f"http://{host}/")[0].host == known_as


def test_host_of_absurd_length_is_refused() -> None:
    with pytest.raises(InvalidURL, match="characters"):
        split("http://" + "각" * 2_000 + "/")


@pytest.mark.parametrize("host", ["good.example\\@evil.example", "good.example\\.evil.example", "\\example.com"])
def test_backslash_before_the_path_is_refused(host: str) -> None:
    with pytest.raises(InvalidURL, match="backslash"):
        split(f"http://{host}/")


def test_undecodable_octets_in_a_text_body_are_the_octets_that_they_were() -> None:
    rules = RobotsTxt.parse(b"User-agent: *\nDisallow: /caf\xe9".decode("utf-8", "surrogateescape")).rules_for("x")
    assert not rules.allowed("/caf%E9")


def test_lone_surrogate_in_a_url_is_refused() -> None:
    with pytest.raises(InvalidURL, match="surrogate"):
        RobotsTxt.parse("User-agent: *\nDisallow: /x").rules_for("x").allowed("/caf\udce9")


def test_sitemap_with_a_control_character_is_not_handed_on() -> None:
    assert RobotsTxt.parse("Sitemap: https://h/a\x1b[2J\nSitemap: https://h/b").sitemaps == ["https://h/b"]


@pytest.mark.parametrize("url", ["https://example.com/a\nb", "https://example.com/a\udce9"])
async def test_error_names_the_whole_url_that_was_given(url: str) -> None:
    async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate:
        await gate.check("https://example.com/")
        with pytest.raises(InvalidURL) as caught:
            gate.peek(url)
    assert caught.value.url == url


@pytest.mark.parametrize(("written", "sent"), [("/a?", "/a"), ("/a%26b", "/a&b")])
def test_urls_that_aiohttp_rewrites_are_judged_as_sent_when_asked_through_yarl(written: str, sent: str) -> None:
    rules = RobotsTxt.parse(f"User-agent: *\nDisallow: {sent}$\n").rules_for("x")
    assert rules.allowed(f"https://example.com{written}")
    assert not rules.allowed(str(URL(f"https://example.com{written}")))
