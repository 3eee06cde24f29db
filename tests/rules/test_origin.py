"""The origin of a URL, and what is requested of it, from text or from a yarl.URL."""

import copy
import gc
import pickle
import re
import tracemalloc
import unicodedata
from typing import Final

import pytest
from yarl import URL

from politesse import Dialect, Gatekeeper, PoliteQueue, Reason, RobotsTxt, Turn
from politesse.errors import ConfigurationError, InvalidURL, PolitesseError
from politesse.origin import MAX_URL_LENGTH, Origin, StrOrURL, split
from politesse.page import PageDirectives, followable_links, parse_tdmrep, response_usage, tdmrep_usage
from politesse.robotrules import RobotRules, RobotRulesAnswer
from politesse.robots.explain import explain
from politesse.testing import ScriptedFetcher

ORIGINS: Final = {
    "https://www.example.com/a?b#c": "https://www.example.com",
    "HTTP://WWW.Example.COM/A?B": "http://www.example.com",
    "http://www.bar.com:8001/": "http://www.bar.com:8001",
    "https://212.96.82.21/": "https://212.96.82.21",
    # The default port of its scheme is no part of an origin.
    "https://example.com:443/x": "https://example.com",
    "http://example.com:80/": "http://example.com",
    "http://example.com:443/": "http://example.com:443",
    "https://example.com:80/": "https://example.com:80",
    "http://h:/x": "http://h",
    "https://h:": "https://h",
    "http://h:080/": "http://h",
    "http://h:0/": "http://h:0",
    "http://h:000/": "http://h:0",
    "http://h:0000000000000000065535/": "http://h:65535",
}
# The hosts of URLs, each with the host of the request.
HOSTS: Final = {
    "www.exämple.com": "www.xn--exmple-cua.com",
    "WWW.EXÄMPLE.COM": "www.xn--exmple-cua.com",
    "www.exa\u0308mple.com": "www.xn--exmple-cua.com",
    "WWW.XN--EXMPLE-CUA.COM": "www.xn--exmple-cua.com",
    "exämple.com.": "xn--exmple-cua.com.",
    "exämple\u3002com": "xn--exmple-cua.com",
    "日本語.jp": "xn--wgv71a119e.jp",
    "faß.de": "xn--fa-hia.de",  # IDNA 2008: no longer "fass"
    "FAß.DE": "xn--fa-hia.de",  # mapped by UTS 46 first
    "☃.net": "xn--n3h.net",  # a symbol: IDNA 2003
    "\uff25\uff38\uff21\uff2d\uff30\uff2c\uff25.com": "example.com",
    "\uff11\uff12\uff17.0.0.1": "127.0.0.1",
    # RFC 3986 3.2.2: a registered name may be written with escapes; they are decoded once, as UTF-8, before IDNA.
    "www.m%C3%BCnich.com": "www.xn--mnich-kva.com",
    "EX%41MPLE%2ecom": "example.com",
    "%C3%BC%41.de": "xn--a-dha.de",
    "fa%C3%9F.de": "xn--fa-hia.de",
    "%EF%BC%A5xample%E3%80%82com": "example.com",
    "%31%32%37.0.0.1": "127.0.0.1",
    "example.com%2E": "example.com.",
    # RFC 5952: one form for each IPv6 address.
    "[2001:DB8:0:0::1]": "[2001:db8::1]",
    "[2001:0db8:0000:0000:0000:0000:0000:0001]": "[2001:db8::1]",
    "[::]": "[::]",
    "[::ffff:192.0.2.1]": "[::ffff:192.0.2.1]",
    "[::FFFF:C000:201]": "[::ffff:192.0.2.1]",
    "[64:ff9b::192.0.2.33]": "[64:ff9b::c000:221]",
    "[1:0:0:2:0:0:0:3]": "[1:0:0:2::3]",
}
UNCHANGED: Final = [
    *("1.example", "123.com", "0x7f.com", "a1", "1a", "0xg", "a" * 63, ".".join(["a" * 63] * 3 + ["a" * 61])),
    *("a_b", "_", "-", "a-", "xn--", "localhost", "localhost."),
]

# By a part of the message: what is invalid in place of the authority.
INVALID_AUTHORITIES: Final = {
    "not within 0 to 65535": ["h:65536", "h:100000", f"h:{'9' * 5_000}", "[::1]:65536"],
    "not a number": [
        *("h:x", "h:-1", "h:+80", "h:8 0", "h: 80", "h:8_0", "h:80a", "h:0x50", "h:٨٠", "h:²", "h:80:80", "h::"),
        "[::1]:x",
    ],
    "no A-label form|no server can have": [
        *("é" + "a" * 70 + ".com", "é..com", "\u3002", "\u00ad", "a\uff0fb", "é b", "\ud800", "a\udce9"),
        *("a b", " h", "h ", "a..b", ".", "..", ".a", "a..", "*", "a,b", "a;b", "a&b", "a=b", "a+b", "a!b", "a'b"),
        *("a(b)", "a~b", "a$b", "a|b", "a<b", 'a"b', "a^b", "a`b", "a{b}", "]", "a]", "a" * 64),
        *("a%2Fb", "a%5Cb", "a%40b", "a%3A80", "a%3Fb", "a%23b", "a%25b", "a%2561b", "a%20b", "a%00b", "a%0Ab"),
        *("a%", "a%6", "a%zz.b", "a%EF%BC%85%36%31b", "a%E2%84%80b", "%2E", "%5B::1%5D", "%"),
        *(".".join(["a" * 63] * 3 + ["a" * 62]) + ".", ".".join(["a" * 63] * 4) + ".a"),
    ],
    "whose escapes are not UTF-8": ["m%FCnich.com", "%ED%A0%80.b"],
    "which is partly escaped": ["ü%41.de", "ex%6Aé", "é%41"],
    # Clients that follow WHATWG URL would connect to an address that the text does not show.
    "write an IPv4 address as four numbers": [
        *("2130706433", "0", "0x7f000001", "0X7F.1", "0x", "127.1", "1.2.3", "017700000001", "0177.0.0.1"),
        *("256.1.1.1", "1.2.3.4.5", "01.2.3.4", "example.1", "example.0x1f", "1.2.3.4.", "example.1.", "%30x7f.1"),
        *("1.2.3%2E", "2001:db8::1"),
    ],
    "has an IPv6 literal that is not closed|is not an address": [
        *("[::1", "[]", "[::1]x", "[::1]80", "[::1:]", "[:::1]", "[12345::]", "[1.2.3.4]", "[example.com]", "[v1.x]"),
        "[",
    ],
    "network interface": ["[fe80::1%eth0]", "[fe80::1%25eth0]"],
    "backslash": ["good.example\\@evil.example", "good.example\\evil.example", "\\example.com"],
    "names no host": ["", "@", "user@", ":80", "::1"],
    "characters, which no server can have": ["각" * 2_000],
}
INVALID_URLS: Final = {
    "not an absolute URL": [
        *("", "/", "/x", "//h/x", "h", "h/x", "example.com", "http:", "http:/h", "http:h", "://h", " http://h/"),
        *("1http://h", "\\\\h", "mailto:x@y", "data:,x", "javascript:alert(1)", "about:blank"),
    ],
    "names no host": ["http://", "http:///x", "http://?a", "http://#"],
    r"has the scheme '(ftp|file|ws|httpx|http\+unix)'; robots.txt applies": [
        *("ftp://h/x", "file://h/x", "ws://h/x", "httpx://h/x", "http+unix://h"),
    ],
}


def problem(url: str) -> str:
    """Return why a URL is invalid, or nothing."""
    try:
        split(url)
    except InvalidURL as error:
        return error.problem
    return ""


def test_robots_txt_lives_at_the_root_of_scheme_host_and_port() -> None:
    assert {url: str(Origin.of(url)) for url in ORIGINS} == {url: split(url)[0].text for url in ORIGINS} == ORIGINS
    assert {url: Origin.of(url).robots_url for url in ORIGINS} == {
        url: f"{origin}/robots.txt" for url, origin in ORIGINS.items()
    }


def test_host_is_that_of_the_request() -> None:
    hosts = HOSTS | {host: host for host in UNCHANGED}
    assert {written: Origin.of(f"http://{written}:81/x").host for written in hosts} == hosts
    for written, host in hosts.items():
        assert Origin.of(f"http://us%40er@{written}/%61").robots_url == f"http://{host}/robots.txt"


def test_authority_that_no_server_can_have_is_invalid() -> None:
    for expected, authorities in INVALID_AUTHORITIES.items():
        told = {authority: problem(f"http://{authority}/") for authority in authorities}
        assert {authority: one for authority, one in told.items() if not re.search(expected, one)} == {}


def test_text_that_is_no_url_of_a_site_is_invalid() -> None:
    for expected, urls in INVALID_URLS.items():
        assert {url: problem(url) for url in urls if not re.search(expected, problem(url))} == {}


def test_an_origin_has_the_default_port_of_its_scheme() -> None:
    assert [Origin.of(f"{scheme}://h/").port for scheme in ("http", "https")] == [80, 443]


def test_scheme_subdomain_parent_port_and_dot_are_other_origins() -> None:
    for other in (
        *("http://example.com/", "https://other.example.com/", "https://com/", "https://example.com:8181/"),
        *("https://example.com./", "https://exämple.com/"),
    ):
        assert Origin.of(other) != Origin.of("https://example.com/"), other


def test_pacing_host_has_neither_scheme_nor_port_nor_dot() -> None:
    hosts = {Origin.of(url).pacing_host for url in ("https://example.com:8443/", "http://example.com./")}
    assert hosts == {"example.com"}
    assert Origin.of("http://[::1]:8080/").pacing_host == "[::1]"


def test_userinfo_is_dropped() -> None:
    for userinfo in ("", "user@", "user:pw@", "@", ":@", "us%40er@", "a@b@", "good.example:80@", "[::1]@", "é:é@"):
        assert split(f"http://{userinfo}h:81/x") == (Origin("http", "h", 81), "/x"), userinfo


def test_at_sign_after_the_authority_is_no_userinfo() -> None:
    assert split("http://h/@evil.example/") == (Origin("http", "h", 80), "/@evil.example/")
    assert split("http://h?@evil.example/") == (Origin("http", "h", 80), "/?@evil.example/")
    assert split("http://h#@evil.example/") == (Origin("http", "h", 80), "/")


def test_control_character_is_invalid_anywhere() -> None:
    for place in (
        *("{}http://h/", "ht{}tp://h/", "http://h{}.example/", "http://h:8{}0/", "http://h/a{}b", "http://h/a#b{}"),
        "http://h/{}",
    ):
        for control in (*map(chr, range(0x20)), "\x7f"):
            assert "control character" in problem(place.format(control)), (place, control)


def test_target_is_path_and_query_as_written() -> None:
    targets = {
        "http://h": "/",
        "http://h/": "/",
        "http://h?a": "/?a",
        "http://h?": "/?",
        "http://h#f": "/",
        "http://h/a/b?c=d#f": "/a/b?c=d",
        "http://h/a;b#c": "/a;b",
        "http://h/a#b?c": "/a",
        "http://h/a?b?c": "/a?b?c",
        "http://h/a#b#c": "/a",
        "http://h//a//b": "//a//b",
        "http://h/a/../b": "/a/../b",
        "http://h/%7Ea b/é\\": "/%7Ea b/é\\",
        "http://h/a://b": "/a://b",
        "http://h?a/b": "/?a/b",
        "http://h/a\u2028b\x85c": "/a\u2028b\x85c",
    }
    assert {url: split(url) for url in targets} == {
        url: (Origin("http", "h", 80), target) for url, target in targets.items()
    }


def _unpickled(origin: Origin) -> Origin:
    again: Origin = pickle.loads(pickle.dumps(origin))  # noqa: S301 - our own octets
    return again


def test_a_copy_of_an_origin_has_its_text_and_its_pacing_host() -> None:
    origin = Origin.of("https://www.example.com.:8443/page")
    for copied in (copy.copy, copy.deepcopy, _unpickled):
        again = copied(origin)
        assert again == origin
        assert again.text == str(origin) == "https://www.example.com.:8443"
        assert again.pacing_host == "www.example.com"


def test_an_origin_is_split_off_a_known_one_as_off_an_unknown_one() -> None:
    for _ in range(2):
        assert split("https://known.example/a?b#c") == (Origin("https", "known.example", 443), "/a?b")
        assert split("https://known.example?x=/y") == (Origin("https", "known.example", 443), "/?x=/y")
        assert split("https://user:secret@known.example:443/") == (Origin("https", "known.example", 443), "/")
        with pytest.raises(InvalidURL, match="control character"):
            split("https://known.example/\x7f")


def test_equal_origins_are_one_key() -> None:
    urls = ("HTTP://Example.com:80/a", "http://example.com/b")
    assert set(map(Origin.of, urls)) == {Origin("http", "example.com", 80)}


def test_error_names_url_and_problem_and_is_a_value_error() -> None:
    with pytest.raises(InvalidURL) as caught:
        split("ftp://h/x")
    assert caught.value.url == "ftp://h/x"
    assert str(caught.value) == f"'ftp://h/x' {caught.value.problem}"
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, PolitesseError)
    assert not isinstance(caught.value, ConfigurationError)


def test_error_survives_a_pickle() -> None:
    error = InvalidURL("x://y", "is odd")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own octets
    assert isinstance(again, InvalidURL)
    assert (again.url, again.problem, str(again)) == (error.url, error.problem, str(error))


def test_error_message_stays_short_and_escapes_the_url() -> None:
    with pytest.raises(InvalidURL) as caught:
        split("http://h/\x1b[2J" + "a" * 100_000)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_url_of_the_longest_length_is_split_and_a_longer_one_refused() -> None:
    longest = "http://h/" + "a" * (MAX_URL_LENGTH - 9)
    assert len(split(longest)[1]) == MAX_URL_LENGTH - 8
    with pytest.raises(InvalidURL, match="has 20481 characters"):
        split(longest + "a")


def test_long_host_is_never_cut_to_another() -> None:
    label, evil = "각" * 20, "example.com.evil.org"
    long = ".".join([unicodedata.normalize("NFD", label)] * 4)
    assert split("http://" + "\u00ad" * 244 + f"{evil}/")[0].host == evil
    assert split(f"http://{long}.{evil}/")[0].host == ".".join([label.encode("idna").decode()] * 4 + [evil])


def test_urls_with_passwords_are_not_kept() -> None:
    Origin.of("https://user:secret@example.com/page")
    gc.collect()
    tracemalloc.start()
    try:
        before_bytes = tracemalloc.get_traced_memory()[0]
        for number in range(2_000):
            assert Origin.of(f"https://user:secret{number}@example.com/page").host == "example.com"
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before_bytes < 40_000
    finally:
        tracemalloc.stop()


# A yarl.URL is taken wherever a URL is, and judged as the text that clients send.
ROBOTS = "User-agent: *\nDisallow: /%C3%A4\nContent-Usage: train-ai=n\nSitemap: https://a.test/map.xml"
HUMAN = URL("https://a.test/ä?q=ö#part")
SENT = "https://a.test/%C3%A4?q=%C3%B6#part"
OPEN = URL("https://a.test/open")


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher({"https://a.test": ROBOTS, "https://xn--mller-kva.test": ROBOTS})


async def test_verdict_is_on_the_text_that_is_sent(gate: Gatekeeper) -> None:
    sent = {
        HUMAN: SENT.removesuffix("#part"),
        URL("https://a.test/ä", encoded=True): "https://a.test/ä",
        URL("https://müller.test/ä"): "https://xn--mller-kva.test/%C3%A4",
    }
    for url, text in [*sent.items()] * 2:  # before and after the file is known
        verdict = await gate.check(url)
        assert (verdict.url, verdict.reason) == (text, Reason.DISALLOW_RULE)
        assert type(verdict.url) is str


async def test_turns_are_taken_for_a_url_and_name_its_text(gate: Gatekeeper) -> None:
    async with gate.turn(OPEN) as turn:
        assert turn.url == "https://a.test/open"
    with await gate.take_turn(HUMAN, exempt="by agreement") as turn:
        assert turn.url == SENT
    with await gate.take_turn(OPEN):
        pass
    assert not isinstance(gate.try_turn(OPEN), Turn)  # in the interval


async def test_other_methods_take_a_url(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    assert (await gate.sitemaps(OPEN)).urls == ("https://a.test/map.xml",)
    usage = await gate.usage(OPEN)
    assert usage is not None
    assert usage.preference("ai-train") == "disallowed"
    assert (await gate.datatxt(OPEN)).status == 404
    assert gate.peek(OPEN)
    assert not gate.peek(HUMAN)
    await gate.forget(OPEN)
    assert gate.peek(OPEN) is None
    await gate.check(OPEN)
    assert fetcher.count("https://a.test") == 2


async def test_batch_and_filter_mix_text_and_urls(gate: Gatekeeper) -> None:
    given: list[StrOrURL] = [OPEN, "https://a.test/%C3%A4", HUMAN]
    assert [bool(verdict) for verdict in await gate.check_batch(given)] == [True, False, False]
    assert {str(item): bool(verdict) async for item, verdict in gate.filter(given)} == {
        str(OPEN): True,
        "https://a.test/%C3%A4": False,
        SENT: False,
    }
    assert [bool(verdict) async for _, verdict in gate.filter([(1, HUMAN)], key=lambda item: item[1])] == [False]


async def test_queue_hands_out_the_text(gate: Gatekeeper) -> None:
    queue: PoliteQueue[None] = PoliteQueue(gate)
    await queue.put(OPEN)
    queue.put_nowait(OPEN / "next")
    for expected in ("https://a.test/open", "https://a.test/open/next"):
        async with queue.turn() as turn:
            assert turn.url == expected


def test_rules_of_every_dialect_take_a_url() -> None:
    url = URL("https://a.test/a")
    for dialect in Dialect:
        robots = RobotsTxt.parse("User-agent: *\nDisallow: /a", dialect)
        rules = robots.rules_for("examplebot")
        assert (rules.allowed(url), rules.match(url).allowed, rules.usage(url)) == (False, False, None), dialect
        assert rules.allowed(OPEN), dialect
        assert not explain(robots, url, "examplebot").match, dialect


def test_functions_over_texts_take_a_url() -> None:
    assert Origin.of(URL("https://müller.test")) == Origin.given(URL("https://müller.test/a"))
    params = RobotsTxt.parse("Clean-param: sid").clean_params
    assert params.canonical(URL("https://a.test/?sid=1")) == "https://a.test/"
    assert tdmrep_usage(parse_tdmrep(b'[{"location": "/", "tdm-reservation": 1}]'), OPEN).preference("tdm")
    headers = {"Link": '</license>; rel="license"'}
    [terms] = response_usage(headers, PageDirectives.from_response(headers, None), OPEN).licenses
    assert terms.url == "https://a.test/license"
    assert followable_links(b'<a href="b">b</a>', HUMAN) == ["https://a.test/b"]
    rules = RobotRules("ExampleBot/1.0")
    rules.parse(URL("https://a.test/robots.txt"), ROBOTS)
    assert rules.allowed(HUMAN) is RobotRulesAnswer.DENIED
    rules.visit(OPEN)
    assert rules.no_visits(URL("https://a.test/")) == 1
