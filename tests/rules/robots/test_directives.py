"""The values of Crawl-delay, Request-rate, Visit-time, Sitemap and Clean-param."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse.origin import split
from politesse.robots import Dialect, RejectedSitemap, RequestRate, RobotsTxt, TimeWindow
from politesse.robots.crawl_directives import parse_crawl_delay, parse_request_rate, parse_visit_time
from politesse.robots.other_records import MAX_REJECTED

MORNING: Final = TimeWindow(360, 525)
NIGHT: Final = TimeWindow(1020, 299)

NO_DELAYS: Final = [
    *("", "-1", "+1", "soon", "NaN", "nan", "inf", "Infinity", "1e3", "0x10", "1_000", "5s", "5 s", "1,5", "1 2"),
    *(".", "1.2.3", "\u0665", "²", "5\n", "5\x00"),
    *("31536001", "9999999999", "10000000000", "9" * 100_000, "0." + "1" * 21),
]
DELAYS: Final = {
    "5": 5.0,
    "0": 0.0,
    "0.5": 0.5,
    ".5": 0.5,
    "5.": 5.0,
    "007": 7.0,
    "31536000": 31_536_000.0,  # a year
    **dict.fromkeys(NO_DELAYS),
}
NO_RATES: Final = [
    *("", "/", "9/banana", "banana/9", "9", "9/", "/9", "0/60", "5/0", "5/0m", "-1/5", "1/-5", "1.5/60", "1/1.5"),
    *("1/5w", "1/5ms", "1//5", "1/5/6", "1/5 0600"),
    *("1/5 0600-", "1/5 2542-3199", "1/5 0600-2400", "1/5m0600-0845", "1/5 always", "10000000000/1"),
    *("1/10000000000", "1/366d", "1/5 0600-0845 x", "\u0665/\u0666"),
]
RATES: Final = {
    "10/60": RequestRate(10, 60),
    "20/1h": RequestRate(20, 3600),
    "3/2d": RequestRate(3, 172_800),
    "1/365d": RequestRate(1, 31_536_000),
    **dict.fromkeys(("1/5", "1/5s", "1/5S", "1 / 5"), RequestRate(1, 5)),
    "1/1M": RequestRate(1, 60),
    "1/1H": RequestRate(1, 3600),
    "1/1D": RequestRate(1, 86_400),
    "1\t/ 10 m": RequestRate(1, 600),
    "007/010": RequestRate(7, 10),
    "1/10m 1700-0459": RequestRate(1, 600, NIGHT),
    **dict.fromkeys(("1/10m 0600-0845", "1/10m\t0600 - 0845", "1/10m 0600 0845"), RequestRate(1, 600, MORNING)),
    **dict.fromkeys(NO_RATES),
}
NO_WINDOWS: Final = [
    *("", "0600", "06000845", "0600-", "-0845", "600-845", "06:00-08:45", "0600--0845", "0600-0845x"),
    *("0600-0845-0900", "2400-0100", "2542-3199", "0060-0100", "0000-0160", "0000-2400", "٠٦٠٠-٠٨٤٥"),
    *("0600-0845 UTC", "0600\u20130845"),
]
WINDOWS: Final = {
    **dict.fromkeys(("0600-0845", "0600 0845", "0600\t0845", "0600 - 0845", "0600 \t-  0845", "0600   0845"), MORNING),
    "0000-2359": TimeWindow(0, 1439),
    "1700-0459": NIGHT,
    "1200-1200": TimeWindow(720, 720),
    **dict.fromkeys(NO_WINDOWS),
}
# Of an invalid URL a part of the message.
REJECTED: Final = {
    "": "is empty",
    "/sitemap.xml": "is not an absolute URL",
    "sitemap.xml": "is not an absolute URL",
    "//h/sitemap.xml": "is not an absolute URL",
    "ftp://h/s.xml": "has the scheme 'ftp'",
    "https:///s.xml": "names no host",
    "https://h:port/s.xml": "is not a number",
    "https://h/a https://h/b": "holds a blank",
    "https://h\\@evil/": "holds a blank or a backslash",
    "https://h/\x1b[2J": "control character",
    "https://h/\udcfc.xml": "UTF-8",
}
BOOK: Final = "https://example.com/some_dir/get_book.pl"
CLEAN: Final = {
    # Yandex Webmaster, "Clean-param directive"
    ("Clean-param: ref /some_dir/get_book.pl", f"{BOOK}?ref=site_1&book_id=123"): f"{BOOK}?book_id=123",
    ("Clean-param: ref /some_dir/get_book.pl", f"{BOOK}?book_id=123"): f"{BOOK}?book_id=123",
    ("Clean-param: ref /other", f"{BOOK}?ref=site_1&book_id=123"): f"{BOOK}?ref=site_1&book_id=123",
    ("Clean-param: sid&sort /forum/*.php", "/forum/topic.php?sid=1&t=8&sort=d"): "/forum/topic.php?t=8",
    ("clean-PARAM: sid", "https://example.com/?sid=1"): "https://example.com/",
    ("Clean-param: sid", "https://example.com?sid=1&a"): "https://example.com?a",
    ("Clean-param: sid", "/a?SID=1"): "/a?SID=1",
    ("Clean-param: sid", "/a?x=sid&sidx=2"): "/a?x=sid&sidx=2",
    ("Clean-param: sid", "/a?sid#b?sid=1"): "/a#b?sid=1",
    ("Clean-param: sid", "/a"): "/a",
    ("Clean-param:", "/a?sid=1"): "/a?sid=1",
    ("Clean-param: & /a", "/a?=1&sid=1"): "/a?=1&sid=1",
}


def test_crawl_delay_is_seconds_with_fractions() -> None:
    assert {value: parse_crawl_delay(value) for value in DELAYS} == DELAYS


@pytest.mark.clause("Conner 2.0, Request-rate")
def test_request_rate_is_documents_per_period_perhaps_within_a_window() -> None:
    assert {value: parse_request_rate(value) for value in RATES} == RATES


@pytest.mark.clause("Conner 2.0, Visit-time")
def test_visit_time_is_a_window_of_minutes() -> None:
    assert {value: parse_visit_time(value) for value in WINDOWS} == WINDOWS


def test_interval_is_the_mean_time_between_two_starts() -> None:
    assert RequestRate(10, 60).interval_s == 6.0
    assert RequestRate(3, 1).interval_s == pytest.approx(1 / 3)


def test_window_contains_its_first_and_its_last_minute() -> None:
    for window, inside in ((MORNING, {*range(360, 526)}), (NIGHT, {*range(1020, 1440), *range(300)})):
        for second in (0, 59.999):
            assert {minute for minute in range(1440) if window.contains(minute * 60 + second)} == inside


def test_window_is_the_same_on_every_day() -> None:
    for day in (0, 1, 20_000, -1):
        noon = day * 86_400 + 43_200.0
        inside = [TimeWindow(720, 720).contains(noon + second) for second in (-1, 0, 59, 60)]
        assert inside == [False, True, True, False], day


def test_window_is_printed_as_a_file_writes_it() -> None:
    assert (str(MORNING), str(TimeWindow(1439, 0))) == ("0600-0845", "2359-0000")


def test_blanks_in_a_directive_cost_no_more_than_their_number() -> None:
    blanks = " " * 500_000  # quadratic, this would take an hour
    assert parse_visit_time(f"0600{blanks}x") is None
    assert parse_request_rate(f"1/1{blanks}x") is None


def check(*lines: str) -> tuple[tuple[str, ...], tuple[RejectedSitemap, ...]]:
    body = "\n".join(lines).encode("utf-8", "surrogateescape")
    return RobotsTxt.parse(body).rules_for("anybody").sitemap_lines.check()


@pytest.mark.clause("sitemaps.org, Submitting your Sitemap, robots.txt")
def test_sitemaps_of_any_group_and_host_are_listed_in_order() -> None:
    lines = (
        *("SITEMAP: https://h/S.xml", "user-agent: a", "sitemap : https://other.example/ü.xml.gz?a=b", "Disallow: /"),
        *("Sitemap: http://h:8080 # a comment", "user-agent: b", "site-map: https://h/no.xml", "Sitemap /4.xml"),
        *("Sitemap: https://h/S.xml", "Sitemap: https://h/s.xml"),
    )
    urls = ("https://h/S.xml", "https://other.example/ü.xml.gz?a=b", "http://h:8080", "https://h/s.xml")
    assert check(*lines)[0] == urls
    assert RobotsTxt.parse("\n".join(lines)).sitemaps == [*urls[:3], "/4.xml", *urls[::3]]


def test_invalid_url_is_omitted_and_reported() -> None:
    for value, problem in REJECTED.items():
        urls, [rejected] = check("User-agent: *", f"Sitemap: {value}", "Sitemap: https://h/s.xml")
        assert urls == ("https://h/s.xml",), value
        assert (rejected.line, rejected.value) == (2, value)
        assert problem in rejected.problem, value


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


def test_parameters_that_do_not_matter_are_left_out() -> None:
    def canonical(line: str, url: str) -> str:
        return RobotsTxt.parse(f"User-agent: *\nDisallow: /x\n{line}\n").clean_params.canonical(url)

    assert {(line, url): canonical(line, url) for line, url in CLEAN} == CLEAN


def test_lines_of_clean_param_add_up_and_stand_anywhere() -> None:
    body = "Clean-param: a /x\nUser-agent: *\nClean-param: b /\nDisallow:\nClean-param: c&d /x/y\n"
    params = RobotsTxt.parse(body).clean_params
    assert len(params) == 3
    expected = {"/x/y?a&b&c&d&e": "/x/y?e", "/x?a&b&c&d&e": "/x?c&d&e", "/z?a&b&c&d&e": "/z?a&c&d&e"}
    assert {url: params.canonical(url) for url in expected} == expected


def test_clean_param_restricts_nothing_and_is_read_in_every_dialect() -> None:
    for dialect in Dialect:
        robots = RobotsTxt.parse("User-agent: *\nClean-param: ref /a\nDisallow: /b\n", dialect)
        assert robots.rules_for("ExampleBot").allowed("/a?ref=1"), dialect
        assert robots.clean_params.canonical("/a?ref=1") == "/a", dialect
