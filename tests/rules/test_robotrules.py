"""The interface of WWW::RobotRules: its manual, its tests, and what "HTTP: The Definitive Guide" says of it."""

import json
from typing import Any

import pytest

from politesse.errors import ConfigurationError, InvalidURL
from politesse.robotrules import RobotRules, RobotRulesAnswer

JOE = "http://www.joes-hardware.com"
MARY = "http://www.marys-antiques.com"


ALLOWED, DENIED, UNKNOWN = RobotRulesAnswer.ALLOWED, RobotRulesAnswer.DENIED, RobotRulesAnswer.UNKNOWN


def answers(rules: RobotRules, site: str, *paths: str) -> list[RobotRulesAnswer]:
    return [rules.allowed(site + path) for path in paths]


class Time:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def test_the_user_agent_of_a_browser_is_named_mozilla_as_in_perl() -> None:
    for exact in (False, True):
        rules = RobotRules("Mozilla/5.0 (compatible; FooBot/1.0)", perl_exact=exact)
        rules.parse("http://h/robots.txt", "User-agent: mozilla\nDisallow: /m\n\nUser-agent: FooBot\nDisallow: /f\n")
        assert rules.agent() == "Mozilla"
        assert answers(rules, "http://h", "/m", "/f") == [DENIED, ALLOWED]


def test_all_records_for_every_agent_are_added_up_as_in_perl() -> None:
    rules = RobotRules("FooBot/1.0", perl_exact=True)
    rules.parse("http://h/robots.txt", "User-agent: *\nDisallow: /x\n\nUser-agent: *\nDisallow: /y\n")
    assert rules.rules("http://h/") == ["/x", "/y"]
    assert rules.allowed("http://h/y") is DENIED


def test_only_allowed_is_true() -> None:
    values = {answer.name: (int(answer), bool(answer)) for answer in RobotRulesAnswer}
    assert values == {"ALLOWED": (1, True), "DENIED": (0, False), "UNKNOWN": (-1, False)}


def test_a_name_is_its_first_word_without_a_version() -> None:
    names = {
        "SuperRobot/1.0": "SuperRobot",
        "FooBot": "FooBot",
        "FooBot/1.2 [http://foobot.int; foo@bot.int]": "FooBot",
        "  MOMspider/1.0 libwww": "MOMspider",
    }
    assert {name: RobotRules(name).agent() for name in names} == names


def test_a_name_without_a_word_is_refused() -> None:
    for name in ("", "  ", "/1.0"):
        with pytest.raises(ConfigurationError, match="name"):
            RobotRules(name)


def test_sites_are_kept_apart() -> None:
    for exact in (False, True):
        rules = RobotRules("SuperRobot/1.0", perl_exact=exact)
        rules.parse(f"{JOE}/robots.txt", "User-agent: *\nDisallow: /tools\n")
        rules.parse(f"{MARY}/robots.txt", b"User-agent: *\nDisallow: /private\n")
        assert answers(rules, JOE, "/tools/x", "/private") == [DENIED, ALLOWED]
        assert answers(rules, MARY, "/tools/x", "/private") == [ALLOWED, DENIED]
        assert rules.allowed("http://elsewhere.example/") is UNKNOWN


def test_a_port_and_a_scheme_are_sites_of_their_own() -> None:
    rules = RobotRules("x")
    rules.parse("http://www.sn.no:8080/robots.txt", "User-agent: *\nDisallow: /\n")
    assert rules.allowed("http://www.sn.no:8080/x") is DENIED
    assert rules.allowed("http://www.sn.no/x") is UNKNOWN
    assert rules.allowed("https://www.sn.no:8080/x") is UNKNOWN


def test_parsing_again_replaces_the_rules() -> None:
    for exact in (False, True):
        rules = RobotRules("x", perl_exact=exact)
        rules.parse(f"{JOE}/robots.txt", "User-agent: *\nDisallow: /\n")
        rules.parse(f"{JOE}/robots.txt", "")
        assert answers(rules, JOE, "/x") == [ALLOWED]
        assert rules.rules(JOE) == []


def test_stale_rules_answer_unknown() -> None:
    clock = Time()
    rules = RobotRules("x", clock=clock)
    rules.parse(f"{JOE}/robots.txt", "", clock.now + 1)
    assert rules.allowed(f"{JOE}/x") is ALLOWED
    clock.now += 2
    assert rules.allowed(f"{JOE}/x") is UNKNOWN
    rules.parse(f"{JOE}/robots.txt", "")
    assert rules.fresh_until(JOE) == clock.now + 86_400
    assert rules.fresh_until(JOE, clock.now - 1) == clock.now + 86_400
    assert rules.allowed(f"{JOE}/x") is UNKNOWN


def test_url_that_is_not_http_is_allowed() -> None:
    for url in ("ftp://x/", "mailto:x@example.com", "news:comp.lang.perl", "x/y", ""):
        assert RobotRules("x").allowed(url) is ALLOWED, url


def test_url_without_a_site_is_an_error() -> None:
    rules = RobotRules("x")
    for url in ("http://", "https://[::1", "http:///x"):
        with pytest.raises(InvalidURL):
            rules.allowed(url)
        with pytest.raises(InvalidURL):
            rules.parse(url, "")


def test_an_empty_rule_forbids_nothing() -> None:
    for exact in (False, True):
        rules = RobotRules("x", perl_exact=exact)
        rules.parse(f"{JOE}/robots.txt", "User-agent: *\nDisallow:\nDisallow: /a\n")
        assert rules.allowed(f"{JOE}/a") is ALLOWED


def test_changing_the_name_drops_all_rules() -> None:
    rules = RobotRules("One/1.0")
    rules.parse(f"{JOE}/robots.txt", "")
    assert rules.agent("One/2.0") == "One"
    assert rules.allowed(f"{JOE}/x") is ALLOWED
    assert rules.agent("Other") == "One"
    assert rules.agent() == "Other"
    assert rules.allowed(f"{JOE}/x") is UNKNOWN


def test_a_user_agent_line_matches_if_it_is_a_part_of_the_name() -> None:
    mine = {
        ("MomSpiderJr/1.0", "MOMspider"): True,
        ("SvartEnk", "SvartEnke1"): False,
        ("SvartEnke1", "svartenk"): True,
        ("Spambot", "bot"): True,
        ("FooBot", "FooBot/1.2"): False,
    }
    assert {(robot, line): RobotRules(robot).is_me(line) for robot, line in mine} == mine


def test_visits_are_counted_by_site() -> None:
    clock = Time()
    rules = RobotRules("x", clock=clock)
    assert (rules.no_visits("h:80"), rules.last_visit("h:80")) == (0, None)
    rules.visit("h:80")
    rules.visit("http://h/page", clock.now + 5)
    rules.visit("h:443")
    assert (rules.no_visits("h:80"), rules.last_visit("h:80")) == (2, clock.now + 5)
    assert rules.no_visits("https://h") == 1
    assert rules.allowed("http://h/") is UNKNOWN  # visited, but nothing is known


def test_rules_are_parsed_or_pushed_extended_and_cleared() -> None:
    for parsed in (False, True):
        clock = Time()
        rules = RobotRules("x", clock=clock)
        if parsed:
            rules.parse(f"{JOE}/robots.txt", "User-agent: *\nDisallow: /a\nAllow: /b/c\nDisallow: /b\n")
        else:
            rules.push_rules(JOE, "/a", "Allow: /b/c", "/b")
            assert answers(rules, JOE, "/a") == [UNKNOWN]
            rules.fresh_until(JOE, clock.now + 60)
        assert answers(rules, JOE, "/a", "/b/c", "/b", "/c") == [DENIED, ALLOWED, DENIED, ALLOWED]
        rules.push_rules(JOE, "/c")
        assert answers(rules, JOE, "/c") == [DENIED]
        assert rules.rules(JOE) == ["/a", "Allow: /b/c", "/b", "/c"]
        rules.clear_rules(JOE)
        assert rules.rules(JOE) == []
        assert answers(rules, JOE, "/a") == [ALLOWED]


def test_a_rule_that_is_more_than_a_path_is_refused() -> None:
    rules = RobotRules("x")
    for rule in ("/a\nDisallow: /", "/a\r", "/a # b", "/\u2028"):
        with pytest.raises(ConfigurationError, match="give a path"):
            rules.push_rules(JOE, "/before", rule)
        assert rules.rules(JOE) == [], rule


def test_a_dump_is_loaded_as_it_was() -> None:
    for exact in (False, True):
        clock = Time()
        rules = RobotRules("One/1.0", perl_exact=exact, clock=clock)
        rules.parse(f"{MARY}/robots.txt", "User-agent: *\nAllow: /a/b\nDisallow: /a\nDisallow: /%7Ea\n")
        rules.visit(MARY)
        rules.push_rules("https://[2001:db8::1]:8443", "/caf\u00e9")
        again = RobotRules.load(rules.dump(), clock=clock)
        assert (again.dump(), repr(again)) == (rules.dump(), repr(rules))
        paths = ("/", "/a", "/a/b", "/~a")
        assert answers(again, MARY, *paths) == answers(rules, MARY, *paths)


def damaged(**changes: object) -> str:
    told: dict[str, Any] = json.loads(RobotRules("One").dump())
    return json.dumps(told | changes)


def test_malformed_dump_is_refused() -> None:
    site: dict[str, object] = {"rules": [], "fresh_until": None, "visits": 0, "last_visit": None}
    for changes in ({"rules": [1]}, {"fresh_until": "soon"}, {"visits": 0.5}):
        with pytest.raises(ConfigurationError):
            RobotRules.load(damaged(sites={"http://h": site | changes}))
    assert RobotRules.load(damaged(sites={"http://h": site})).agent() == "One"
    for dumped in (
        *("", "garbage", "[]", "1", "{}", "[" * 100_000, damaged(version=2), damaged(agent=""), damaged(agent=5)),
        *(
            damaged(perl_exact="no"),
            damaged(sites=[]),
            damaged(sites={"mailto:x": {}}),
            damaged(sites={"http://h": {}}),
        ),
    ):
        with pytest.raises(ConfigurationError):
            RobotRules.load(dumped)
