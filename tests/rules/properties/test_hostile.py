"""Content and URLs that were made to break a parser."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from politesse.errors import InvalidURL
from politesse.origin import MAX_URL_LENGTH, Origin, split
from politesse.robots import Dialect, RobotsTxt

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)  # lone surrogates and control characters too
FILES = st.lists(
    st.one_of(
        st.sampled_from(
            (
                *(
                    "User-agent: *\n",
                    "User-agent: a\r",
                    "user-agent",
                    "Disallow: ",
                    "Allow:/",
                    "Crawl-delay:",
                    "*",
                    "$",
                ),
                *("Request-rate: ", "Visit-time: 0600", "-0845", "1/5m ", "Comment: ", "Sitemap:", "%", "%2", "\r\n"),
                *("Robot-version: 2.0.0\n", "http://example.com/", "//", "index.html", "disallowed", "\n\n"),
                *("\ufeff", "\u2028", "\0", "\ud800", "\udce9", "<html>", "#", ":", "disallow /a\n"),
            )
        ),
        st.text(st.characters(exclude_categories=()), max_size=8),
    ),
    max_size=40,
).map("".join)


DIALECTS = st.sampled_from(Dialect)


def _read(body: bytes | str, dialect: Dialect) -> None:
    robots = RobotsTxt.parse(body, dialect, origin=Origin.of("https://example.com"))
    numbers = [line.number for line in robots.lines]
    assert numbers == sorted(set(numbers))
    for agent in ("*", "a", "", "ExampleBot/1.0"):
        rules = robots.rules_for(agent)
        assert rules.match("/robots.txt").allowed
        assert rules.match("https://example.com/a?b=c") == rules.match("/a?b=c")


@settings(max_examples=3_000, deadline=None)
@given(st.one_of(st.binary(max_size=400), FILES.map(lambda text: text.encode("utf-8", "surrogatepass"))), DIALECTS)
def test_no_octets_make_the_parser_raise(body: bytes, dialect: Dialect) -> None:
    _read(body, dialect)


@settings(max_examples=3_000, deadline=None)
@given(st.one_of(ANY_TEXT, FILES), DIALECTS)
def test_no_text_makes_the_parser_raise(body: str, dialect: Dialect) -> None:
    _read(body, dialect)


SAID = b"User-agent: *\nDisallow: /a\nDisallow: /*b$\nAllow: /c*d\nDisallow: http://h.example/e\n"
RULES = {dialect: RobotsTxt.parse(SAID, dialect).rules_for("ExampleBot") for dialect in Dialect}
STARTS = (
    "",
    "/",
    "//",
    "http://",
    "https://example.com",
    "http://h.example/",
    "http://h:80?",
    "http://u@h/",
    "ftp://h/",
)
URLS = st.tuples(st.sampled_from(STARTS), ANY_TEXT).map("".join)


@settings(max_examples=5_000, deadline=None)
@given(URLS)
def test_splitting_any_string_raises_nothing_but_invalid_url(url: str) -> None:
    try:
        origin, target = split(url)
    except InvalidURL:
        return
    assert origin.scheme in {"http", "https"}
    assert 0 <= origin.port <= 65535
    assert target.startswith("/")
    assert "#" not in target


@settings(max_examples=5_000, deadline=None)
@given(URLS, DIALECTS)
def test_matching_any_string_raises_nothing_but_invalid_url(url: str, dialect: Dialect) -> None:
    try:
        match = RULES[dialect].match(url)
    except InvalidURL:
        return
    assert match.allowed or (match.rule is not None and not match.rule.allow)


def _allowed(body: bytes | str, target: str, agent: str = "ExampleBot") -> bool:
    return RobotsTxt.parse(body).rules_for(agent).allowed(target)


# How long these may take is for the benchmarks to hold. What would take a quadratic parser hours never ends here.


def test_a_line_of_a_megabyte_is_one_rule() -> None:
    body = f"User-agent: *\nDisallow: /{'a' * 1_000_000}\nDisallow: /b"
    rules = RobotsTxt.parse(body).rules_for("ExampleBot")
    assert len(rules) == 2
    assert rules.allowed("/" + "a" * (MAX_URL_LENGTH - 1))
    assert not rules.allowed("/b")


def test_a_rule_as_long_as_the_longest_target_is_compared() -> None:
    path = "/" + "a" * (MAX_URL_LENGTH - 1)
    assert not _allowed(f"User-agent: *\nDisallow: {path}", path)
    assert _allowed(f"User-agent: *\nDisallow: {path}", path[:-1])


def test_a_megabyte_without_a_line_end_or_colon_states_nothing() -> None:
    for junk in ("a", " ", "*", "\0", "a ", "\t", "#", "%", "é"):
        body = junk * 1_000_000 + "\nUser-agent: *\nDisallow: /a"
        assert [line.number for line in RobotsTxt.parse(body).lines if line.field] == [2, 3], junk
        assert not _allowed(body, "/a"), junk


def test_a_megabyte_of_colons_is_one_line_of_no_field() -> None:
    robots = RobotsTxt.parse(":" * 1_000_000 + "\nUser-agent: *\nDisallow: /a")
    assert [(line.number, line.field) for line in robots.lines] == [(1, ""), (2, "user-agent"), (3, "disallow")]


def test_a_megabyte_of_line_ends_is_counted() -> None:
    robots = RobotsTxt.parse("\r\n" * 500_000 + "User-agent: *\rDisallow: /a")
    assert [line.number for line in robots.lines] == [500_001, 500_002]


@pytest.mark.full
def test_a_hundred_thousand_groups_for_one_agent_are_merged() -> None:
    body = "".join(f"User-agent: ExampleBot\nDisallow: /{number}/\n" for number in range(100_000))
    rules = RobotsTxt.parse(body).rules_for("ExampleBot")
    assert [rules.allowed(f"/{number}/x") for number in (0, 50_000, 99_999, 100_000)] == [False, False, False, True]


@pytest.mark.full
def test_a_hundred_thousand_groups_for_as_many_agents_are_kept_apart() -> None:
    body = "".join(f"User-agent: bot-{number}\nDisallow: /{number}/\n" for number in range(100_000))
    robots = RobotsTxt.parse(body)
    assert len(robots.groups) == 100_000
    rules = robots.rules_for("bot-99999")
    assert not rules.allowed("/99999/")
    assert rules.allowed("/99998/")


@pytest.mark.full
def test_a_hundred_thousand_agents_share_one_group() -> None:
    agents = "".join(f"User-agent: bot-{number}\nCrawl-delay: {100_000 - number}\n" for number in range(100_000))
    robots = RobotsTxt.parse(agents + "Disallow: /a")
    assert len(robots.groups) == 1
    for number in (0, 50_000, 99_999):
        rules = robots.rules_for(f"bot-{number}")
        assert not rules.allowed("/a")
        assert rules.crawl_delay == 100_000 - number  # the largest of those that stand below the agent's line


def test_a_hundred_thousand_nested_prefixes_are_distinguished() -> None:
    # A thousand chains of a hundred prefixes, each of which encloses the next, turn by turn Disallow and Allow.
    body = "User-agent: *\n" + "".join(
        f"{('Disallow', 'Allow')[length % 2]}: /{chain}/{'a' * length}\n"
        for chain in range(1_000)
        for length in range(100)
    )
    rules = RobotsTxt.parse(body).rules_for("ExampleBot")
    for length in (0, 1, 50, 99):
        match = rules.match(f"/999/{'a' * length}b")
        assert match.rule is not None
        assert match.rule.value == f"/999/{'a' * length}"
        assert match.allowed is bool(length % 2)


def test_a_chain_of_a_thousand_nested_prefixes_is_walked_to_its_root() -> None:
    body = "User-agent: *\n" + "".join(f"Disallow: /{'a' * length}\n" for length in range(1, 1_000))
    match = RobotsTxt.parse(body).rules_for("ExampleBot").match("/a" + "b" * 1_000)
    assert match.rule is not None
    assert match.rule.value == "/a"


def test_half_a_million_rules_of_one_octet_are_one_rule() -> None:
    rules = RobotsTxt.parse("User-agent: *\n" + "Disallow:/\n" * 500_000).rules_for("ExampleBot")
    assert len(rules) == 1
    assert not rules.allowed("/a")


def test_a_target_of_the_longest_length_is_judged() -> None:
    rules = RobotsTxt.parse("User-agent: *\nDisallow: /*b$\nDisallow: /x\n").rules_for("ExampleBot")
    room = MAX_URL_LENGTH - 8
    assert rules.allowed("/" + "a" * room)
    assert not rules.allowed("/" + "%61" * (room // 3) + "b")
    assert rules.allowed("/" + "../" * (room // 3) + "a")
    assert not rules.allowed("/a" + "/.." * (room // 3) + "/x")
