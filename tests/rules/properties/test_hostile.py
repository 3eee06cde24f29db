"""Content and URLs that were made to break a parser.

How long they may take is for the benchmarks to hold. What would take a quadratic parser hours never ends here.
"""

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from politesse.errors import InvalidURL
from politesse.origin import MAX_URL_LENGTH, Origin
from politesse.robots import Dialect, RobotsTxt, RuleSet
from tests.support.tiers import first_of

SITE: Final = Origin.of("https://example.com")
BY_PREFIX: Final = [Dialect.KOSTER_1994, Dialect.KOSTER_1996, Dialect.PERL]
WITH_STARS: Final = [dialect for dialect in Dialect if dialect not in BY_PREFIX]
DIALECTS = st.sampled_from(Dialect)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)  # lone surrogates and control characters too
PIECES: Final = (
    *("User-agent: *\n", "User-agent: a\r", "user-agent", "Disallow: ", "Allow:/", "Crawl-delay:", "*", "$"),
    *("Request-rate: ", "Visit-time: 0600", "-0845", "1/5m ", "Comment: ", "Sitemap:", "%", "%2", "\r\n"),
    *("Robot-version: 2.0.0\n", "http://example.com/", "//", "index.html", "disallowed", "\n\n"),
    *("\ufeff", "\u2028", "\0", "\ud800", "\udce9", "<html>", "#", ":", "disallow /a\n"),
)
FILES = st.lists(
    st.one_of(st.sampled_from(PIECES), st.text(st.characters(exclude_categories=()), max_size=8)), max_size=40
).map("".join)
BODIES = st.binary(max_size=400) | ANY_TEXT | FILES | FILES.map(lambda text: text.encode("utf-8", "surrogatepass"))
SAID: Final = b"User-agent: *\nDisallow: /a\nDisallow: /*b$\nAllow: /c*d\nDisallow: http://h.example/e\n"
RULES: Final = {dialect: RobotsTxt.parse(SAID, dialect).rules_for("ExampleBot") for dialect in Dialect}
STARTS: Final = ("", "/", "//", "http://", str(SITE), "http://h.example/", "http://h:80?", "http://u@h/", "ftp://h/")


@settings(max_examples=4_000)
@given(BODIES, DIALECTS)
def test_nothing_makes_the_parser_raise(body: bytes | str, dialect: Dialect) -> None:
    robots = RobotsTxt.parse(body, dialect, origin=SITE)
    numbers = [line.number for line in robots.lines]
    assert numbers == sorted(set(numbers))
    for agent in ("*", "a", "", "ExampleBot/1.0"):
        rules = robots.rules_for(agent)
        assert rules.match("/robots.txt").allowed
        assert rules.match("https://example.com/a?b=c") == rules.match("/a?b=c")


@settings(max_examples=4_000)
@given(st.tuples(st.sampled_from(STARTS), ANY_TEXT).map("".join), DIALECTS)
def test_any_string_raises_nothing_but_invalid_url(url: str, dialect: Dialect) -> None:
    try:
        match = RULES[dialect].match(url)
        assert match.allowed or (match.rule is not None and not match.rule.allow)
    except InvalidURL:
        pass


def read(dialect: Dialect, *rules: str) -> RuleSet:
    version = ["Robot-version: 2.0.0"] if dialect is Dialect.CONNER_2 else []
    return RobotsTxt.parse("\n".join(["User-agent: *", *version, *rules]), dialect, origin=SITE).rules_for("ExampleBot")


def test_half_a_megabyte_of_any_one_character_is_read() -> None:
    for junk in ("a", " ", "*", ":", "#", "%", "?", "/", "\r", "\r\n", "é", "//", "..", "a:", "\0", "a ", "\t"):
        body = junk * (500_000 // len(junk.encode())) + "\nUser-agent: *\nDisallow: /a\n"
        robots = RobotsTxt.parse(body)
        assert [line.field for line in robots.lines if line.field][-2:] == ["user-agent", "disallow"], junk
        assert not robots.rules_for("x").allowed("/a"), junk
        for dialect in Dialect:
            rules = RobotsTxt.parse(body[-50_000:], dialect, origin=SITE).rules_for("x")
            assert not rules.allowed("/a"), (junk, dialect)


def test_a_megabyte_of_line_ends_is_counted() -> None:
    robots = RobotsTxt.parse("\r\n" * 500_000 + "User-agent: *\rDisallow: /a")
    assert [line.number for line in robots.lines] == [500_001, 500_002]


def test_a_path_of_half_a_megabyte_is_compared() -> None:
    longest = "/" + "a" * (MAX_URL_LENGTH - 1)
    for dialect in Dialect:
        rules = read(dialect, f"Disallow: /{'a' * 400_000}", f"Disallow: {longest}", "Disallow: /b")
        answers = [rules.allowed(target) for target in (longest, "/" + "a" * 10_000, "/b")]
        assert answers == [False, True, False], dialect
        cuts = dialect is Dialect.GOOGLE  # both long lines are cut to one
        assert (len(rules), rules.allowed(longest[:-1])) == ((2, False) if cuts else (3, True)), dialect


@pytest.mark.parametrize("dialect", first_of(1, Dialect))
def test_tens_of_thousands_of_rules_are_tried(dialect: Dialect) -> None:
    star = "*" if dialect is Dialect.CONNER_2 else ""
    rules = read(dialect, *(f"Disallow: /{number}/{star}" for number in range(20_000)))
    assert [rules.allowed(f"/{number}/x") for number in (0, 10_000, 19_999, 20_000)] == [False, False, False, True]


@pytest.mark.parametrize("dialect", first_of(1, Dialect))
def test_thousands_of_groups_are_kept_apart(dialect: Dialect) -> None:
    body = "\n".join(f"User-agent: bot-{number:05}-x\nDisallow: /{number}\n" for number in range(6_000))
    robots = RobotsTxt.parse(body, dialect, origin=SITE)
    assert len(robots.groups) == 6_000
    name = "bot-05999-x"
    if dialect is Dialect.GOOGLE:
        assert len(robots.groups[0].agents) == 1  # all of them are "bot-"
        name = "bot-"
    rules = robots.rules_for(name)
    assert [rules.allowed(target) for target in ("/5999", "/5998")] == [False, dialect is not Dialect.GOOGLE]
    assert robots.rules_for("other").allowed("/5999")


@pytest.mark.parametrize("dialect", first_of(1, Dialect))
def test_thousands_of_agents_share_a_group(dialect: Dialect) -> None:
    agents = "".join(f"User-agent: {'a' * (number % 7)}{number:05}\n" for number in range(20_000))
    robots = RobotsTxt.parse(agents + "User-agent: mine\nDisallow: /a", dialect, origin=SITE)
    assert len(robots.groups) == 1
    assert not robots.rules_for("mine").allowed("/a")


@pytest.mark.full
def test_a_hundred_thousand_groups_for_one_agent_are_merged() -> None:
    body = "".join(f"User-agent: ExampleBot\nDisallow: /{number}/\n" for number in range(100_000))
    rules = RobotsTxt.parse(body).rules_for("ExampleBot")
    assert [rules.allowed(f"/{number}/x") for number in (0, 50_000, 99_999, 100_000)] == [False, False, False, True]


def test_tens_of_thousands_of_nested_prefixes_are_distinguished() -> None:
    # Hundreds of chains of a hundred prefixes, each of which encloses the next, turn by turn Disallow and Allow.
    pairs = ((chain, length) for chain in range(200) for length in range(100))
    lines = (f"{('Disallow', 'Allow')[length % 2]}: /{chain}/{'a' * length}\n" for chain, length in pairs)
    rules = RobotsTxt.parse("User-agent: *\n" + "".join(lines)).rules_for("ExampleBot")
    for length in (0, 1, 50, 99):
        match = rules.match(f"/199/{'a' * length}b")
        assert match.rule is not None
        assert (match.rule.value, match.allowed) == (f"/199/{'a' * length}", bool(length % 2))


def test_a_chain_of_a_thousand_nested_prefixes_is_walked_to_its_root() -> None:
    body = "User-agent: *\n" + "".join(f"Disallow: /{'a' * length}\n" for length in range(1, 1_000))
    match = RobotsTxt.parse(body).rules_for("ExampleBot").match("/a" + "b" * 1_000)
    assert match.rule is not None
    assert match.rule.value == "/a"


def test_nested_prefixes_cost_no_more_than_their_octets() -> None:
    for dialect in BY_PREFIX:
        rules = read(dialect, *(f"Disallow: /{'a' * length}b" for length in range(900)))
        assert rules.allowed("/" + "a" * 10_000), dialect
        assert not rules.allowed("/" + "a" * 899 + "b"), dialect


def test_half_a_million_rules_of_one_octet_are_one_rule() -> None:
    rules = RobotsTxt.parse("User-agent: *\n" + "Disallow:/\n" * 500_000).rules_for("ExampleBot")
    assert len(rules) == 1
    assert not rules.allowed("/a")


@pytest.mark.clause("RFC 9309 3")
def test_hundreds_of_stars_are_matched_without_backtracking() -> None:
    for dialect in WITH_STARS:
        end = "" if dialect is Dialect.CONNER_2 else "$"  # there a pattern has to match the whole of a target anyway
        rules = read(dialect, f"Disallow: /{'*a' * 200}b{end}", f"Disallow: {'*a' * 200}c*d{end}")
        answers = {rest: rules.allowed("/" + "a" * 8_192 + rest) for rest in ("", "cda", "b", "c/d")}
        assert answers == {"": True, "cda": True, "b": False, "c/d": False}, dialect


def test_thousands_of_stars_in_a_row_are_one() -> None:
    for dialect in WITH_STARS:
        rules = read(dialect, f"Disallow: /a{'*' * 10_000}b")
        assert not rules.allowed("/ab"), dialect
        assert not rules.allowed("/a" + "c" * 8_192 + "b"), dialect
        assert rules.allowed("/a" + "c" * 8_192), dialect
        for stars in ("*", "**", "*" * 10_000, "/*"):
            assert not read(dialect, f"Disallow: {stars}").allowed("/a"), (dialect, stars)


def test_a_target_of_the_longest_length_is_judged() -> None:
    room = MAX_URL_LENGTH - 8
    for dialect in Dialect:
        rules = read(dialect, "Disallow: /x", "Disallow: /y*" if dialect is Dialect.CONNER_2 else "Disallow: /y")
        assert rules.allowed("/" + "a" * room), dialect
        assert rules.allowed("/" + "%61" * (room // 3)), dialect
        assert rules.allowed("/" + "%2e%2e/" * (room // 7) + "a"), dialect
        assert not rules.allowed("/a" + "/%2E%2e" * (room // 7) + "/x"), dialect
        assert not rules.allowed("/a" + "/.." * (room // 3) + "/x"), dialect
        assert not rules.allowed("/y?" + "é" * (room // 6)), dialect
    assert not read(Dialect.RFC9309, "Disallow: /*b$").allowed("/" + "%61" * (room // 3) + "b")


def test_a_target_longer_than_servers_accept_is_refused() -> None:
    targets = {
        "plain": "/" + "a" * MAX_URL_LENGTH,
        "megabyte": "/?" + "a/" * 500_000,
        "dots": "/" + "../" * 300_000,
        "escaped dots": "/" + "%2e%2e/" * 140_000 + "a",
        "grows when escaped": "/" + "é" * 3_500,
        "megabyte when escaped": "/y?" + "é" * 300_000,
        "escapes": "/?" + "%c3" * 7_000,
    }
    for dialect in Dialect:
        rules, whole = read(dialect, "Disallow: /x"), dialect is Dialect.RFC9309
        for name, target in targets.items():
            if not whole and "megabyte" in name:
                continue  # what a dialect escapes or resolves is what may differ
            for url in (target, f"https://example.com{target}")[: 2 if whole else 1]:
                for ask in (rules.match, rules.allowed):
                    with pytest.raises(InvalidURL, match="are more than servers take"):
                        assert ask(url), (dialect, name)


def test_thousands_of_rules_that_are_urls_are_read_for_one_site() -> None:
    body = "User-agent: *\n" + "".join(f"Disallow: http://host{number}.example/a\n" for number in range(10_000))
    rules = RobotsTxt.parse(body, Dialect.PERL).rules_for("x")
    assert not rules.allowed("http://host9999.example/a")
    assert rules.allowed("http://host10000.example/a")
    assert len(RobotsTxt.parse(body, Dialect.PERL, origin=Origin.of("http://host7.example")).rules_for("x")) == 1
