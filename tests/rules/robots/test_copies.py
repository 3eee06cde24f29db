"""Copies of files and rules, as process pools and disk caches make them, mean what the originals mean."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final, TypeVar

import pytest
from benchmarks.corpus import RobotsFile
from benchmarks.generator import generate
from benchmarks.urls import fresh_urls
from hypothesis import given, settings

from politesse import Origin
from politesse.robots import Dialect, RobotsTxt, RuleSet
from tests.rules.properties.strategies import DIALECT_GROUPS, Case
from tests.support.programs import run_code
from tests.support.pure_robots import pure_robots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


T = TypeVar("T")


def pickled(given: T, protocol: int | None = None) -> T:
    """Return a copy by pickle."""
    copied: T = pickle.loads(pickle.dumps(given, protocol))  # noqa: S301 - these are our own octets
    return copied


COPIES: Final = {
    "pickle": pickled,
    "second pickle protocol": partial(pickled, protocol=2),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}
FILE: Final = b"""\xef\xbb\xbf\xef\xbb\xbf# comment
User-agent: *

Disallow: /a*b$ # why
DISALLOW:/\xe9
Disallow:\xc2\xa0/n\xc2\xa0
Allow: /\xc3\xa9/index.html
allow /two
allow: /%4*x
Dissallow: /private
Disallow: /a*b$
Disallow:
Allow: /c\x00
Crawl-delay: 5
Crawl-delay: 7
Request-rate: 1/5 0000-1200
Visit-time: 0100-2300
Comment: hi
Comment:
Sitemap: /s
Content-Usage: /x* train-ai=n
Content-Usage: /y search=n
Content-Usage: /%4 search=n
Content-Signal: ai-train=no
License: https://h.example/l
Clean-param: a /b*
User-agent: other
Disallow: /
"""
TARGETS: Final = ("/", "/axb", "/%E9", "/é/index.html", "/é/", "/two", "/%4Fx", "/%254x", "/private", "/c", "/x", "/n")

each_copy: Final = pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
each_dialect: Final = pytest.mark.parametrize("dialect", Dialect)
each_implementation: Final = pytest.mark.parametrize("parse", [pure_robots, RobotsTxt.parse], ids=["python", "built"])


def meaning(rules: RuleSet, targets: Iterable[str]) -> list[object]:
    """Return what a rule set says."""
    stated = [getattr(rules, name) for name in ("rules", "crawl_delay", "request_rates", "visit_times", "comments")]
    times = [(rules.timetable.interval_s(hour * 3_600.0), rules.timetable.is_timed) for hour in (0, 13)]
    answers = [(rules.match(target), rules.allowed(target), rules.usage(target)) for target in targets]
    return [repr(rules), len(rules), rules.sitemap_lines.lines, stated, times, answers]


@each_copy
@each_implementation
@each_dialect
def test_copies_mean_what_their_originals_mean(
    dialect: Dialect, parse: Callable[[bytes, Dialect], RobotsTxt], copied: Callable[[object], object]
) -> None:
    robots = parse(FILE, dialect)
    for agent in ("examplebot", "other"):
        rules = robots.rules_for(agent)
        for given_rules in (rules, copied(rules)):  # before and after the preferences are compiled
            assert isinstance(given_rules, RuleSet)
            again = copied(given_rules)
            assert isinstance(again, type(rules))
            assert again.weight_bytes == pytest.approx(rules.weight_bytes, rel=0.2)
            assert meaning(again, TARGETS) == meaning(rules, TARGETS)
    for given_file in (robots, copied(robots)):
        assert isinstance(given_file, RobotsTxt)
        again_file = copied(given_file)
        assert isinstance(again_file, RobotsTxt)
        assert repr(again_file.lines) == repr(robots.lines)
        assert (again_file.quirks, again_file.sitemaps) == (robots.quirks, robots.sitemaps)
        assert meaning(again_file.rules_for("examplebot"), TARGETS) == meaning(robots.rules_for("examplebot"), TARGETS)
    params = copied(robots.clean_params)
    assert params.canonical("/bc?a=1&b=2") == robots.clean_params.canonical("/bc?a=1&b=2")  # type: ignore[attr-defined]


@each_dialect
def test_copies_of_generated_files_mean_what_their_originals_mean(dialect: Dialect) -> None:
    for number, body in enumerate(generate(25, 9309)):
        rules = RobotsTxt.parse(body, dialect, origin=Origin.of("https://h.example")).rules_for("ExampleBot")
        again = pickled(rules)
        urls = fresh_urls(RobotsFile.of(f"www.site{number}.example", body), 9309, number)
        assert meaning(again, urls) == meaning(rules, urls)


@settings(max_examples=300, deadline=None)
@given(DIALECT_GROUPS)
def test_copies_of_drawn_files_mean_what_their_originals_mean(case: Case) -> None:
    for dialect in (Dialect.RFC9309, Dialect.GOOGLE, Dialect.KOSTER_2019):
        robots = RobotsTxt.parse(case.robots_txt, dialect)
        for rules in (robots.rules_for("x"), robots.rules_for("nobody")):
            again = pickled(rules)
            assert again.rules == rules.rules
            assert [again.match(target) for target in case.targets] == [rules.match(target) for target in case.targets]


def decided(rules: RuleSet, target: str) -> bool:
    return rules.allowed(target)


def test_rules_go_to_the_processes_of_a_pool() -> None:
    rules = RobotsTxt.parse(FILE).rules_for("examplebot")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(decided, [rules] * len(TARGETS), TARGETS)) == [rules.allowed(target) for target in TARGETS]


def test_a_copy_decides_in_a_process_without_the_core() -> None:
    rules = RobotsTxt.parse(FILE).rules_for("examplebot")
    load = (
        "import pickle, sys; rules = pickle.loads(bytes.fromhex(sys.argv[1])); print(rules.rules, rules.match('/axb'))"
    )
    shown = run_code(load, pickle.dumps(rules).hex(), settings={"POLITESSE_PURE": "1"}).stdout
    assert shown == f"{rules.rules} {rules.match('/axb')}\n"
