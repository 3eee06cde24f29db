"""The weight of rule sets, beside the memory that tracemalloc sees; and copies, which mean what the originals mean."""

import copy
import gc
import json
import pickle
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any, Final, TypeVar

import pytest
from hypothesis import given, settings

from benchmarks.generator import generate
from politesse._gate.usage import Reserved, _weight_bytes
from politesse.page.tdmrep import parse_tdmrep
from politesse.robots import IMPLEMENTATION, Dialect, RobotsTxt, RuleSet
from politesse.robots.native import NativeRuleSet
from tests.rules.properties.strategies import DIALECT_GROUPS, Case
from tests.support.programs import run_code
from tests.support.pure_robots import pure_robots
from tests.support.tiers import first_of

MAX_BYTES: Final = 200 * 1024
Parse = Callable[[bytes, Dialect], RobotsTxt]
each_implementation: Final = pytest.mark.parametrize(
    "parse",
    [
        pytest.param(pure_robots, id="python"),
        pytest.param(
            RobotsTxt.parse,
            id="native",
            marks=pytest.mark.skipif(IMPLEMENTATION == "python", reason="there is no compiled core"),
        ),
    ],
)
HOSTILE: Final[dict[str, Callable[[int], str]]] = {
    "all kinds": lambda place: list(HOSTILE.values())[1 + place % (len(HOSTILE) - 1)](place) if place < 200 else "#\n",
    "empty comments": lambda _: "Comment:\n",
    "rates of a time of day": lambda place: (
        f"Request-rate:{300 + place}/{1 + place} {clock(place)}-{clock(place + 90)}\n"
    ),
    "tiny rules": "Disallow:/{}\n".format,
    "tiny allows": "Allow:/{}\n".format,
    "tiny anchored rules": "Disallow:/{}$\n".format,
    "tiny wildcards": "Disallow:/*{}\n".format,
    "tiny wildcards with heads": "Disallow:/{}/*a\n".format,
    "tiny rules without a colon": "disallow /{}\n".format,
    "escaped rules": "Disallow:/%41é{}\n".format,
    "rules cut within an escape": "Disallow:/{}*%4*\n".format,
    "rules that end within an escape": "Disallow:/{}%4\n".format,
    "groups for everybody": "User-agent:*\nDisallow:/{}\n".format,
    "long rules": lambda place: f"Disallow:/{place}{'a' * 5_000}\n",
    "one long rule": lambda place: f"{'' if place else 'Disallow:/'}{'a' * 5_000}",
    "one long rule in Cyrillic": lambda place: f"{'' if place else 'Disallow:/'}{'я' * 5_000}",
    "rules of many stars": lambda place: f"Disallow:/{place}{'*abcd' * 500}\n",
    "one rule of many stars": lambda place: f"{'' if place else 'Disallow:/'}{'*abcd' * 500}",
    "rules of odd names": lambda place: f"DiSaLlo{'wW'[place % 2]}:/{place}\n",
    "rules of index pages": "Allow:/{}/index.html\n".format,
    "comments": "Comment:{}\n".format,
    "one comment of wide characters": lambda place: f"{'' if place else 'Comment:'}{'😀' * 500}",
    "rates": "Request-rate:1/{}\n".format,
    "rates of many documents": lambda place: f"Request-rate:{300 + place}/{1 + place}\n",
    "visit times": "Visit-time:0000-2359\n".format,
    "different visit times": lambda place: f"Visit-time:{clock(place)}-{clock(place + 90)}\n",
    "sitemaps": "Sitemap:/{}\n".format,
    "empty sitemaps": lambda _: "Sitemap:\n",
    "sitemaps in Cyrillic": "Sitemap:/я{}\n".format,
    "one sitemap of wide characters": lambda place: f"{'' if place else 'Sitemap:/'}{'😀' * 500}",
    "usage preferences": "Content-Usage:/{} train-ai=n\n".format,
    "few usage preferences": lambda place: f"Content-Usage:/{place} train-ai=n\n" if place < 40 else f"#{'x' * 999}\n",
    "empty usage preferences": lambda _: "Content-Usage:\n",
    "usage preferences for stars": "Content-Usage:/*{}*%4* train-ai=n,search=n\n".format,
    "usage preferences for long paths": lambda place: f"Content-Usage:/{place}{'a' * 5_000} train-ai=n\n",
    "usage preferences for escaped paths": lambda place: f"Content-Usage:/{place}{'<' * 5_000} train-ai=n\n",
    "usage preferences for wide characters": lambda place: f"Content-Usage:/{place}{'😀' * 1_250}* train-ai=n\n",
    "usage preferences for many stars": lambda place: f"Content-Usage:/{place}{'*ab' * 1_000} train-ai=n\n",
    "signals": "Content-Signal:ai-train=no,search=yes,ai-input=no,x{}\n".format,
    "empty signals": lambda _: "Content-Signal:\n",
    "licenses": "License:https://h.example/{}\n".format,
}
WITHOUT_WEIGHT: Final[dict[str, Callable[[int], str]]] = {
    "delays": "Crawl-delay:{}\n".format,
    "user-agents": "User-agent:a{}\n".format,
    "parameters": "Clean-param:a{} /\n".format,
    "unknown fields": "Field{}:a\n".format,
    "no fields": "{}\n".format,
    "rules of nobody": "Disallow:a{}\n".format,
}
RULES: Final[dict[str, Callable[[int], str]]] = {
    "literals": "Disallow:/{}\nAllow:/{}a\n".replace("{}", "{0}").format,
    "stars": "Disallow:/*{}\n".format,
    "anchors": "Disallow:/{}$\n".format,
    "escapes": "Disallow:/%41é{}\n".format,
    "URLs": "Disallow:http://h.example/{}\nDisallow:/{}\n".replace("{}", "{0}").format,
}


def clock(minute: int) -> str:
    """Return a time of day as in Visit-time."""
    return f"{minute // 60 % 24:02}{minute % 60:02}"


def filled(head: str, line: Callable[[int], str]) -> bytes:
    """Return a file of as many lines as its crawler reads."""
    lines, size = [head], 0
    while size < MAX_BYTES:
        lines.append(line(len(lines) - 1))
        size += len(lines[-1].encode())
    return "".join(lines).encode()


def weighed(parse: Parse, bodies: Sequence[bytes], dialect: Dialect = Dialect.RFC9309) -> tuple[int, int]:
    """Return the weight of rule sets, and the memory that they take once they have decided."""
    warm = b"User-agent: *\nDisallow: /\nContent-Usage: train-ai=n\nRequest-rate: 1/5 0000-1200"
    _used(parse(warm, dialect))
    gc.collect()
    tracemalloc.start()
    kept = [_used(parse(body, dialect)) for body in bodies]
    gc.collect()
    taken_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    # tracemalloc sees no C; test_native holds the octets that the core states against malloc.
    taken_bytes += sum(rules._rules.octets() for rules in kept if isinstance(rules, NativeRuleSet))
    return sum(rules.weight_bytes for rules in kept), taken_bytes


def _used(robots: RobotsTxt) -> RuleSet:
    rules = robots.rules_for("examplebot")
    if rules.site_usage is not None:
        rules.site_usage.usage("/")
    return rules


@each_implementation
@pytest.mark.full
def test_weight_of_ordinary_files_is_the_memory_that_they_take(parse: Parse) -> None:
    weight_bytes, taken_bytes = weighed(parse, list(generate(500, 9309)))
    assert 0.85 < weight_bytes / taken_bytes < 1.15


@each_implementation
@pytest.mark.parametrize("made_of", first_of(1, HOSTILE))
def test_weight_of_a_hostile_file_is_hardly_less_than_its_memory(made_of: str, parse: Parse) -> None:
    weight_bytes, taken_bytes = weighed(parse, [filled("User-agent: *\n", HOSTILE[made_of])])
    assert 0.9 < weight_bytes / taken_bytes < 3


@each_implementation
@pytest.mark.full
@pytest.mark.parametrize("made_of", WITHOUT_WEIGHT)
def test_lines_that_are_not_kept_weigh_nothing(made_of: str, parse: Parse) -> None:
    body = filled("User-agent: *\n", WITHOUT_WEIGHT[made_of])[:20_000]
    weight_bytes, taken_bytes = weighed(parse, [body] * 100)  # beside what else is made meanwhile, once
    assert taken_bytes < 100 * 1_000
    assert 0.7 < weight_bytes / taken_bytes < 1.3


@pytest.mark.full
@pytest.mark.parametrize("made_of", RULES)
@pytest.mark.parametrize("dialect", Dialect)
def test_weight_of_rules_in_each_dialect_is_hardly_less_than_their_memory(dialect: Dialect, made_of: str) -> None:
    head = "User-agent: *\nRobot-version: 2.0.0\n" if dialect is Dialect.CONNER_2 else "User-agent: *\n"
    weight_bytes, taken_bytes = weighed(pure_robots, [filled(head, RULES[made_of])], dialect)
    assert 0.9 < weight_bytes / taken_bytes < 3


@each_implementation
def test_rules_of_one_agent_do_not_keep_the_rest_of_the_file(parse: Parse) -> None:
    others = "".join(f"User-agent: bot{number}\nDisallow: /{number}\n# {'x' * 400}\n" for number in range(500))
    body = f"{others}User-agent: *\nDisallow: /private\n".encode()
    assert len(body) > 200_000
    weight_bytes, taken_bytes = weighed(parse, [body] * 50)
    assert 0.5 < weight_bytes / taken_bytes < 2
    assert weight_bytes < 50 * 2_000


def test_weight_of_a_tdmrep_json_is_hardly_less_than_its_memory() -> None:
    for location, number in (
        ("/{}", 200),
        ("/{}*{}", 200),
        ("/{}" + 500 * "*ab", 20),
        ("/{}" + 500 * "<", 20),
        ("/{}" + 300 * "😀", 20),
    ):
        entries = [{"location": location.replace("{}", str(n)), "tdm-reservation": 1} for n in range(number)]
        body = json.dumps(entries, ensure_ascii=False).encode()
        parse_tdmrep(body)
        gc.collect()
        tracemalloc.start()
        reserved = Reserved(parse_tdmrep(body))
        gc.collect()
        taken_bytes = len(body) + tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert reserved.doc.locations
        assert _weight_bytes((body, reserved)) > 0.9 * taken_bytes, location[:9]


T = TypeVar("T")


def pickled(given: T, protocol: int | None = None) -> T:
    """Return a copy by pickle."""
    copied: T = pickle.loads(pickle.dumps(given, protocol))  # noqa: S301 - these are our own octets
    return copied


COPIES: Final = (pickled, partial(pickled, protocol=2), copy.deepcopy, copy.copy)
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


def meaning(rules: RuleSet, targets: Iterable[str]) -> list[object]:
    """Return what a rule set says."""
    stated = [getattr(rules, name) for name in ("rules", "crawl_delay", "request_rates", "visit_times", "comments")]
    times = [(rules.timetable.interval_s(hour * 3_600.0), rules.timetable.is_timed) for hour in (0, 13)]
    answers = [(rules.match(target), rules.allowed(target), rules.usage(target)) for target in targets]
    return [repr(rules), len(rules), rules.sitemap_lines.lines, stated, times, answers]


def test_copies_mean_what_their_originals_mean() -> None:
    for dialect in Dialect:
        for parse in (pure_robots, RobotsTxt.parse):
            robots = parse(FILE, dialect)
            for copied in COPIES:
                _hold_copies(robots, copied)


def _hold_copies(robots: RobotsTxt, copied: Callable[[Any], Any]) -> None:
    for agent in ("examplebot", "other"):
        rules = robots.rules_for(agent)
        for given_rules in (rules, copied(rules)):  # before and after the preferences are compiled
            again = copied(given_rules)
            assert isinstance(again, type(rules))
            assert again.weight_bytes == pytest.approx(rules.weight_bytes, rel=0.2)
            assert meaning(again, TARGETS) == meaning(rules, TARGETS)
    for given_file in (robots, copied(robots)):
        again_file = copied(given_file)
        assert repr(again_file.lines) == repr(robots.lines)
        assert (again_file.quirks, again_file.sitemaps) == (robots.quirks, robots.sitemaps)
        assert meaning(again_file.rules_for("examplebot"), TARGETS) == meaning(robots.rules_for("examplebot"), TARGETS)
    assert copied(robots.clean_params).canonical("/bc?a=1&b=2") == robots.clean_params.canonical("/bc?a=1&b=2")


@settings(max_examples=300)
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


@pytest.mark.full
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
