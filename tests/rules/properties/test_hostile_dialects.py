"""The bounds of every dialect. What would take longer than pattern octets times URL octets never ends here."""

import pytest

from politesse.errors import InvalidURL
from politesse.origin import MAX_URL_LENGTH, Origin
from politesse.robots import Dialect, RobotsTxt, RuleSet
from tests.support.tiers import first_of

SITE = Origin.of("https://example.com")
BY_PREFIX = [Dialect.KOSTER_1994, Dialect.KOSTER_1996, Dialect.PERL]
WITH_STARS = [Dialect.RFC9309, Dialect.GOOGLE, Dialect.KOSTER_2019, Dialect.CONNER_2]
every_dialect = pytest.mark.parametrize("dialect", Dialect)


def read(dialect: Dialect, *rules: str, agent: str = "*", name: str = "ExampleBot") -> RuleSet:
    version = ["Robot-version: 2.0.0"] if dialect is Dialect.CONNER_2 else []
    body = "\n".join([f"User-agent: {agent}", *version, *rules])
    return RobotsTxt.parse(body, dialect, origin=SITE).rules_for(name)


@every_dialect
def test_half_a_megabyte_of_any_one_character_is_read(dialect: Dialect) -> None:
    for junk in ("a", " ", "*", ":", "#", "%", "?", "/", "\r", "\r\n", "é", "//", "..", "a:", "\0"):
        body = junk * (500_000 // len(junk.encode())) + "\nUser-agent: *\nDisallow: /a\n"
        rules = RobotsTxt.parse(body, dialect, origin=SITE).rules_for("x")
        assert not rules.allowed("/a"), junk


@every_dialect
def test_a_path_of_half_a_megabyte_is_compared(dialect: Dialect) -> None:
    longest = "/" + "a" * (MAX_URL_LENGTH - 1)
    rules = read(dialect, f"Disallow: /{'a' * 400_000}", f"Disallow: {longest}", "Disallow: /b")
    assert not rules.allowed(longest)
    assert not rules.allowed("/b")
    assert rules.allowed("/" + "a" * 10_000)


@pytest.mark.parametrize("dialect", first_of(1, Dialect))
def test_tens_of_thousands_of_rules_are_tried(dialect: Dialect) -> None:
    star = "*" if dialect is Dialect.CONNER_2 else ""
    rules = read(dialect, *(f"Disallow: /{number}/{star}" for number in range(20_000)))
    assert [rules.allowed(f"/{number}/x") for number in (0, 10_000, 19_999, 20_000)] == [False, False, False, True]


@pytest.mark.parametrize("dialect", first_of(1, Dialect))
def test_thousands_of_groups_are_kept_apart(dialect: Dialect) -> None:
    body = "\n".join(f"User-agent: bot-{number:05}-x\nDisallow: /{number}\n" for number in range(12_000))
    robots = RobotsTxt.parse(body, dialect, origin=SITE)
    assert len(robots.groups) == 12_000
    name = "bot-11999-x"
    if dialect is Dialect.GOOGLE:
        assert len(robots.groups[0].agents) == 1  # all of them are "bot-"
        name = "bot-"
    assert not robots.rules_for(name).allowed("/11999")
    assert robots.rules_for("other").allowed("/11999")


@pytest.mark.parametrize("dialect", first_of(1, Dialect))
def test_thousands_of_agents_share_a_group(dialect: Dialect) -> None:
    agents = "".join(f"User-agent: {'a' * (number % 7)}{number:05}\n" for number in range(20_000))
    robots = RobotsTxt.parse(agents + "User-agent: mine\nDisallow: /a", dialect, origin=SITE)
    assert len(robots.groups) == 1
    assert not robots.rules_for("mine").allowed("/a")


@pytest.mark.parametrize("dialect", WITH_STARS)
def test_hundreds_of_stars_are_matched_without_backtracking(dialect: Dialect) -> None:
    end = "" if dialect is Dialect.CONNER_2 else "$"  # there a pattern has to match the whole of a target anyway
    stars = "*a" * 200
    rules = read(dialect, f"Disallow: /{stars}b{end}", f"Disallow: {stars}c*d{end}")
    assert rules.allowed("/" + "a" * 8_192)
    assert rules.allowed("/" + "a" * 8_192 + "cda")
    assert not rules.allowed("/" + "a" * 8_192 + "b")
    assert not rules.allowed("/" + "a" * 8_192 + "c/d")


@pytest.mark.parametrize("dialect", WITH_STARS)
def test_thousands_of_stars_in_a_row_are_one(dialect: Dialect) -> None:
    rules = read(dialect, f"Disallow: /a{'*' * 10_000}b")
    assert not rules.allowed("/ab")
    assert not rules.allowed("/a" + "c" * 8_192 + "b")
    assert rules.allowed("/a" + "c" * 8_192)


@pytest.mark.parametrize("dialect", WITH_STARS)
def test_patterns_of_stars_alone_match_everything(dialect: Dialect) -> None:
    for stars in ("*", "**", "*" * 10_000, "/*"):
        assert not read(dialect, f"Disallow: {stars}").allowed("/a"), stars


@pytest.mark.parametrize("dialect", BY_PREFIX)
def test_nested_prefixes_cost_no_more_than_their_octets(dialect: Dialect) -> None:
    rules = read(dialect, *(f"Disallow: /{'a' * length}b" for length in range(900)))
    assert rules.allowed("/" + "a" * 10_000)
    assert not rules.allowed("/" + "a" * 899 + "b")


@every_dialect
def test_a_target_of_the_longest_length_is_judged(dialect: Dialect) -> None:
    rules = read(dialect, "Disallow: /x", "Disallow: /y*" if dialect is Dialect.CONNER_2 else "Disallow: /y")
    room = MAX_URL_LENGTH - 8
    assert rules.allowed("/" + "a" * room)
    assert rules.allowed("/" + "%61" * (room // 3))
    assert rules.allowed("/" + "%2e%2e/" * (room // 7) + "a")
    assert not rules.allowed("/a" + "/%2E%2e" * (room // 7) + "/x")
    assert not rules.allowed("/y?" + "é" * (room // 6))


@every_dialect
@pytest.mark.parametrize(
    "target",
    [
        *("/" + "a" * MAX_URL_LENGTH, "/?" + "a/" * 500_000, "/" + "../" * 300_000, "/" + "%2e%2e/" * 140_000 + "a"),
        *("/" + "é" * 3_500, "/y?" + "é" * 300_000, "/?" + "%c3" * 7_000),
    ],
    ids=["plain", "megabyte", "dots", "escaped dots", "grows when escaped", "megabyte when escaped", "escapes"],
)
def test_a_target_longer_than_servers_accept_is_refused(dialect: Dialect, target: str) -> None:
    rules = read(dialect, "Disallow: /x")
    for url in (target, f"https://example.com{target}"):
        for ask in (rules.match, rules.allowed):
            with pytest.raises(InvalidURL, match="are more than servers take"):
                ask(url)


def test_thousands_of_rules_that_are_urls_are_read_for_one_site() -> None:
    body = "User-agent: *\n" + "".join(f"Disallow: http://host{number}.example/a\n" for number in range(10_000))
    rules = RobotsTxt.parse(body, Dialect.PERL).rules_for("x")
    assert not rules.allowed("http://host9999.example/a")
    assert rules.allowed("http://host10000.example/a")
    assert len(RobotsTxt.parse(body, Dialect.PERL, origin=Origin.of("http://host7.example")).rules_for("x")) == 1
