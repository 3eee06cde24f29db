"""The interface of WWW::RobotRules: its manual, its tests, and what "HTTP: The Definitive Guide" says of it."""

import json
from typing import Any

import pytest

from politesse.errors import ConfigurationError, InvalidURL
from politesse.robotrules import RobotRules, RobotRulesAnswer

JOE = "http://www.joes-hardware.com"
MARY = "http://www.marys-antiques.com"


class Time:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("exact", [False, True])
def test_the_user_agent_of_a_browser_is_named_mozilla_as_in_perl(*, exact: bool) -> None:
    rules = RobotRules("Mozilla/5.0 (compatible; FooBot/1.0)", perl_exact=exact)
    rules.parse("http://h/robots.txt", "User-agent: mozilla\nDisallow: /m\n\nUser-agent: FooBot\nDisallow: /f\n")
    assert rules.agent() == "Mozilla"
    assert rules.allowed("http://h/m") is RobotRulesAnswer.DENIED
    assert rules.allowed("http://h/f") is RobotRulesAnswer.ALLOWED


def test_all_records_for_every_agent_are_added_up_as_in_perl() -> None:
    rules = RobotRules("FooBot/1.0", perl_exact=True)
    rules.parse("http://h/robots.txt", "User-agent: *\nDisallow: /x\n\nUser-agent: *\nDisallow: /y\n")
    assert rules.rules("http://h/") == ["/x", "/y"]
    assert rules.allowed("http://h/y") is RobotRulesAnswer.DENIED


def test_only_allowed_is_true() -> None:
    assert {answer.name: (int(answer), bool(answer)) for answer in RobotRulesAnswer} == {
        "ALLOWED": (1, True),
        "DENIED": (0, False),
        "UNKNOWN": (-1, False),
    }


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("SuperRobot/1.0", "SuperRobot"),
        ("FooBot", "FooBot"),
        ("FooBot/1.2", "FooBot"),
        ("FooBot/1.2 [http://foobot.int; foo@bot.int]", "FooBot"),
        ("  MOMspider/1.0 libwww", "MOMspider"),
    ],
)
def test_a_name_is_its_first_word_without_a_version(name: str, short: str) -> None:
    assert RobotRules(name).agent() == short


@pytest.mark.parametrize("name", ["", "  ", "/1.0"])
def test_a_name_without_a_word_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="name"):
        RobotRules(name)


@pytest.mark.parametrize("exact", [False, True])
def test_sites_are_kept_apart(*, exact: bool) -> None:
    rules = RobotRules("SuperRobot/1.0", perl_exact=exact)
    rules.parse(f"{JOE}/robots.txt", "User-agent: *\nDisallow: /tools\n")
    rules.parse(f"{MARY}/robots.txt", b"User-agent: *\nDisallow: /private\n")
    assert rules.allowed(f"{JOE}/tools/x") is RobotRulesAnswer.DENIED
    assert rules.allowed(f"{JOE}/private") is RobotRulesAnswer.ALLOWED
    assert rules.allowed(f"{MARY}/private") is RobotRulesAnswer.DENIED
    assert rules.allowed(f"{MARY}/tools/x") is RobotRulesAnswer.ALLOWED
    assert rules.allowed("http://elsewhere.example/") is RobotRulesAnswer.UNKNOWN


def test_a_port_and_a_scheme_are_sites_of_their_own() -> None:
    rules = RobotRules("x")
    rules.parse("http://www.sn.no:8080/robots.txt", "User-agent: *\nDisallow: /\n")
    assert rules.allowed("http://www.sn.no:8080/x") is RobotRulesAnswer.DENIED
    assert rules.allowed("http://www.sn.no/x") is RobotRulesAnswer.UNKNOWN
    assert rules.allowed("https://www.sn.no:8080/x") is RobotRulesAnswer.UNKNOWN


@pytest.mark.parametrize("exact", [False, True])
def test_parsing_again_replaces_the_rules(*, exact: bool) -> None:
    rules = RobotRules("x", perl_exact=exact)
    rules.parse(f"{JOE}/robots.txt", "User-agent: *\nDisallow: /\n")
    rules.parse(f"{JOE}/robots.txt", "")
    assert rules.allowed(f"{JOE}/x") is RobotRulesAnswer.ALLOWED
    assert rules.rules(JOE) == []


def test_stale_rules_answer_unknown() -> None:
    clock = Time()
    rules = RobotRules("x", clock=clock)
    rules.parse(f"{JOE}/robots.txt", "", clock.now + 1)
    assert rules.allowed(f"{JOE}/x") is RobotRulesAnswer.ALLOWED
    clock.now += 2
    assert rules.allowed(f"{JOE}/x") is RobotRulesAnswer.UNKNOWN
    rules.parse(f"{JOE}/robots.txt", "")
    assert rules.fresh_until(JOE) == clock.now + 86_400
    assert rules.fresh_until(JOE, clock.now - 1) == clock.now + 86_400
    assert rules.allowed(f"{JOE}/x") is RobotRulesAnswer.UNKNOWN


@pytest.mark.parametrize("url", ["ftp://x/", "mailto:x@example.com", "news:comp.lang.perl", "x/y", ""])
def test_url_that_is_not_http_is_allowed(url: str) -> None:
    assert RobotRules("x").allowed(url) is RobotRulesAnswer.ALLOWED


@pytest.mark.parametrize("url", ["http://", "https://[::1", "http:///x"])
def test_url_without_a_site_is_an_error(url: str) -> None:
    rules = RobotRules("x")
    with pytest.raises(InvalidURL):
        rules.allowed(url)
    with pytest.raises(InvalidURL):
        rules.parse(url, "")


def test_an_empty_rule_forbids_nothing() -> None:
    for exact in (False, True):
        rules = RobotRules("x", perl_exact=exact)
        rules.parse(f"{JOE}/robots.txt", "User-agent: *\nDisallow:\nDisallow: /a\n")
        assert rules.allowed(f"{JOE}/a") is RobotRulesAnswer.ALLOWED


def test_changing_the_name_drops_all_rules() -> None:
    rules = RobotRules("One/1.0")
    rules.parse(f"{JOE}/robots.txt", "")
    assert rules.agent("One/2.0") == "One"
    assert rules.allowed(f"{JOE}/x") is RobotRulesAnswer.ALLOWED
    assert rules.agent("Other") == "One"
    assert rules.agent() == "Other"
    assert rules.allowed(f"{JOE}/x") is RobotRulesAnswer.UNKNOWN


@pytest.mark.parametrize(
    ("robot", "line", "mine"),
    [
        ("MomSpiderJr/1.0", "MOMspider", True),
        ("SvartEnk", "SvartEnke1", False),
        ("SvartEnke1", "svartenk", True),
        ("Spambot", "bot", True),
        ("FooBot", "FooBot/1.2", False),
    ],
)
def test_a_user_agent_line_matches_if_it_is_a_part_of_the_name(robot: str, line: str, *, mine: bool) -> None:
    assert RobotRules(robot).is_me(line) is mine


def test_visits_are_counted_by_site() -> None:
    clock = Time()
    rules = RobotRules("x", clock=clock)
    assert (rules.no_visits("h:80"), rules.last_visit("h:80")) == (0, None)
    rules.visit("h:80")
    rules.visit("http://h/page", clock.now + 5)
    rules.visit("h:443")
    assert (rules.no_visits("h:80"), rules.last_visit("h:80")) == (2, clock.now + 5)
    assert rules.no_visits("https://h") == 1
    assert rules.allowed("http://h/") is RobotRulesAnswer.UNKNOWN  # visited, but nothing is known


@pytest.mark.parametrize("parsed", [False, True])
def test_rules_are_parsed_or_pushed_extended_and_cleared(*, parsed: bool) -> None:
    clock = Time()
    rules = RobotRules("x", clock=clock)
    if parsed:
        rules.parse(f"{JOE}/robots.txt", "User-agent: *\nDisallow: /a\nAllow: /b/c\nDisallow: /b\n")
    else:
        rules.push_rules(JOE, "/a", "Allow: /b/c", "/b")
        assert rules.allowed(f"{JOE}/a") is RobotRulesAnswer.UNKNOWN
        rules.fresh_until(JOE, clock.now + 60)
    assert [rules.allowed(JOE + path) for path in ("/a", "/b/c", "/b", "/c")] == [
        RobotRulesAnswer.DENIED,
        RobotRulesAnswer.ALLOWED,
        RobotRulesAnswer.DENIED,
        RobotRulesAnswer.ALLOWED,
    ]
    rules.push_rules(JOE, "/c")
    assert rules.allowed(f"{JOE}/c") is RobotRulesAnswer.DENIED
    assert rules.rules(JOE) == ["/a", "Allow: /b/c", "/b", "/c"]
    rules.clear_rules(JOE)
    assert rules.rules(JOE) == []
    assert rules.allowed(f"{JOE}/a") is RobotRulesAnswer.ALLOWED


@pytest.mark.parametrize("rule", ["/a\nDisallow: /", "/a\r", "/a # b", "/\u2028"])
def test_a_rule_that_is_more_than_a_path_is_refused(rule: str) -> None:
    rules = RobotRules("x")
    with pytest.raises(ConfigurationError, match="give a path"):
        rules.push_rules(JOE, "/before", rule)
    assert rules.rules(JOE) == []


@pytest.mark.parametrize("exact", [False, True])
def test_a_dump_is_loaded_as_it_was(*, exact: bool) -> None:
    clock = Time()
    rules = RobotRules("One/1.0", perl_exact=exact, clock=clock)
    rules.parse(f"{MARY}/robots.txt", "User-agent: *\nAllow: /a/b\nDisallow: /a\nDisallow: /%7Ea\n")
    rules.visit(MARY)
    rules.push_rules("https://[2001:db8::1]:8443", "/caf\u00e9")
    again = RobotRules.load(rules.dump(), clock=clock)
    assert again.dump() == rules.dump()
    assert repr(again) == repr(rules)
    for path in ("/", "/a", "/a/b", "/~a"):
        assert again.allowed(MARY + path) is rules.allowed(MARY + path)


def damaged(**changes: object) -> str:
    told: dict[str, Any] = json.loads(RobotRules("One").dump())
    return json.dumps(told | changes)


@pytest.mark.parametrize(
    "dumped",
    [
        "",
        "garbage",
        "[]",
        "1",
        "{}",
        "[" * 100_000,
        damaged(version=2),
        damaged(agent=""),
        damaged(agent=5),
        damaged(perl_exact="no"),
        damaged(sites=[]),
        damaged(sites={"mailto:x": {}}),
        damaged(sites={"http://h": {}}),
        damaged(sites={"http://h": {"rules": [1], "fresh_until": None, "visits": 0, "last_visit": None}}),
        damaged(sites={"http://h": {"rules": [], "fresh_until": "soon", "visits": 0, "last_visit": None}}),
        damaged(sites={"http://h": {"rules": [], "fresh_until": None, "visits": 0.5, "last_visit": None}}),
    ],
)
def test_malformed_dump_is_refused(dumped: str) -> None:
    with pytest.raises(ConfigurationError):
        RobotRules.load(dumped)
