"""The compiled core beside the reference in Python: the same answers; and the memory that it states."""

from __future__ import annotations

import ctypes
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from subprocess import CompletedProcess
from threading import Barrier
from typing import TYPE_CHECKING, Final

import pytest
from benchmarks.corpus import RobotsFile
from benchmarks.generator import generate
from benchmarks.urls import fresh_urls

from politesse.errors import InvalidURL
from politesse.robots import IMPLEMENTATION, Dialect, RobotsTxt, RuleSet, native
from tests.support.programs import run_code
from tests.support.pure_robots import pure_robots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.robots.dialect import Traits
    from politesse.robots.other_records import OtherRecords

compiled: Final = pytest.mark.skipif(IMPLEMENTATION == "python", reason="there is no compiled core")
MANY: Final = 2_500
NATIVE: Final = (Dialect.RFC9309, Dialect.GOOGLE, Dialect.KOSTER_2019)


def run(code: str, pure: str) -> CompletedProcess[str]:
    return run_code(code, check=False, settings={"POLITESSE_PURE": pure})


def test_environment_chooses_the_implementation() -> None:
    show = "import politesse.robots; print(politesse.robots.IMPLEMENTATION)"
    assert run(show, "1").stdout == "python\n"
    is_built = find_spec("politesse._native._core") is not None
    assert run(show, "0").stdout == ("native\n" if is_built else "python\n")
    wrong = run(show, "yes")
    assert wrong.returncode == 1
    assert "POLITESSE_PURE='yes': 1 has the rules of robots.txt decided in Python, 0 does not" in wrong.stderr


@compiled
@pytest.mark.parametrize("dialect", NATIVE)
def test_generated_files_mean_the_same_to_both(dialect: Dialect) -> None:
    for number, body in enumerate(generate(40, 9309)):
        pure, native = pure_robots(body, dialect), RobotsTxt.parse(body, dialect)
        assert (native.sitemaps, native.quirks, native.licenses) == (pure.sitemaps, pure.quirks, pure.licenses)
        assert list(map(repr, native.lines)) == list(map(repr, pure.lines))
        for agent in ("ExampleBot", "Googlebot/2.1"):
            rules, expected = native.rules_for(agent), pure.rules_for(agent)
            assert rules.rules == expected.rules
            assert (len(rules), repr(rules), rules.timetable.is_timed) == (
                len(expected),
                repr(expected),
                expected.timetable.is_timed,
            )
            for url in fresh_urls(RobotsFile.of(f"www.site{number}.example", body), 9309, number):
                assert rules.match(url) == expected.match(url), url
                assert rules.allowed(url) is expected.allowed(url), url


@compiled
@pytest.mark.parametrize(
    "body",
    [
        "User-agent: *\r\rDisallow: /a\r\n\nAllow /a/b\ruseragent: x\n disallow\t/c",
        b"\xef\xbb\xbfUser-agent: *\nDisallow:\xc2\xa0/a\xa0\nDisallow: /\xe9\nDisallow: /b\x00c\nAllow: /b # \x00",
        "User-agent: *\nDisallow: /a%4\nDisallow: /%c3*%2\nAllow: *%\nDisallow: /%%41*x%5$\nDisallow: /**$",
        "User-agent: *\nAllow: /*/index.html\nDisallow: /*/$\nAllow: /a/index.htm\nDisallow: /a/$\nALLOW: /A$b*$",
        "dissallow: /x\nUser-agent: *\nSite-map: /s\nDisallowed: /y\nallowance: /y/z\nDisallow\nDisallow a b",
        "User-agent: *\nDisallow: /" + "a" * 20_000 + "*b\nAllow: /" + "a" * 16_700,
    ],
)
def test_odd_files_mean_the_same_to_both(body: str | bytes) -> None:
    targets = ["/", "/a", "/a%4F", "/a%254", "/%C3%A9", "/%c3", "/é", "/b", "/a/", "/x/", "/x", "/y/z", "/c", "/A$b"]
    targets += ["//", "/robots.txt", "/%72obots.txt", "/a/../c"]
    targets += ["/%2e%2E/c", "/?a=%2F", "/b%2Fc?x#y", "/" + "a" * 16_690]
    for dialect in NATIVE:
        native, pure = RobotsTxt.parse(body, dialect).rules_for("x"), pure_robots(body, dialect).rules_for("x")
        assert native.rules == pure.rules
        for target in targets:
            assert native.match(target) == pure.match(target), (dialect, target)
            assert native.match(f"https://h.example{target}") == pure.match(target), (dialect, target)


@compiled
def test_other_threads_run_while_a_file_of_many_records_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "Comment: 0\nUser-agent: *\n" + "".join(
        f"Comment: {number}\nSitemap: /{number}\nContent-Usage: train-ai={'yn'[number % 2]}\n" for number in range(MANY)
    )
    steps: list[int] = []

    def added(rows: Sequence[tuple[int, str, str, bool, bool]], others: OtherRecords, traits: Traits) -> None:
        steps.append(len(rows))
        add(rows, others, traits)

    add = native._add
    monkeypatch.setattr(native, "_add", added)
    rules, expected = RobotsTxt.parse(body).rules_for("x"), pure_robots(body).rules_for("x")
    assert (rules.comments, rules.usage("/")) == (expected.comments, expected.usage("/"))
    assert sum(steps) == 1 + 2 * MANY
    assert max(steps) == 1_000  # the core holds the GIL while it makes as many objects


@pytest.mark.parametrize("dialect", NATIVE)
def test_rules_that_are_dropped_leave_no_memory_behind(dialect: Dialect) -> None:
    rows = (f"Disallow: /{number}\nAllow: /é{number}/index.html\nAllow: /%4{number}*$\n" for number in range(100))
    robots = RobotsTxt.parse("User-agent: *\n" + "".join(rows), dialect)
    rules = robots.rules_for("x")

    def octets_left() -> int:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(20):
            robots.rules_for("x")
            rules.match("/é1/?%2F")
            rules.rules  # noqa: B018 - made on demand
        after, _ = tracemalloc.get_traced_memory()
        return after - before

    tracemalloc.start()
    try:
        octets_left()  # fills caches
        # Another thread, as of pytest-xdist, may take memory meanwhile; a leak takes memory each time.
        assert min(octets_left() for _ in range(3)) < 20 * 100  # less than an octet for each rule
    finally:
        tracemalloc.stop()


def test_eight_threads_at_once_get_the_answers_of_one() -> None:
    body = "User-agent: *\n" + "".join(
        f"Disallow: /{number}*%4*x{number}$\nAllow: /é{number}\n" for number in range(1_500)
    )
    targets = [f"/{number}%4F{'a' * number}x{number}?%2F" for number in range(0, 1_500, 25)] + [
        "/é7",
        "/robots.txt",
        "/a\n",
    ]
    robots = RobotsTxt.parse(body)
    one, barrier = robots.rules_for("x"), Barrier(8)

    def ask(_: int) -> list[list[str]]:
        barrier.wait(30)
        read_again = RobotsTxt.parse(body).rules_for("x")
        return [[answer(rules, target) for target in targets] for rules in (one, robots.rules_for("x"), read_again)]

    def answer(rules: RuleSet, target: str) -> str:
        try:
            return f"{rules.match(target)!r} {rules.allowed(target)}"
        except InvalidURL as error:
            return str(error)

    reference = pure_robots(body).rules_for("x")
    expected = [answer(reference, target) for target in targets]
    with ThreadPoolExecutor(8) as threads:
        for answers in threads.map(ask, range(8)):
            assert answers == [expected] * 3


@compiled
@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="this C library does not tell what is allocated"
)
@pytest.mark.parametrize("row", ["Disallow:/{}", "Disallow:/{}$", "Allow:/*{}", "Disallow:/%41é{}", "Allow:/{}*%4*"])
def test_the_core_takes_the_memory_that_it_states(row: str) -> None:
    robots = RobotsTxt.parse("User-agent: *\n" + "\n".join(row.format(number) for number in range(3_000)))
    robots.rules_for("x")
    before = _allocated_bytes()
    kept = [robots.rules_for("x") for _ in range(20)]
    assert sum(rules.weight_bytes for rules in kept) == pytest.approx(_allocated_bytes() - before, rel=0.1)


_FIELDS: Final = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _MallInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS.split()]


def _allocated_bytes() -> int:
    """Return the octets that are allocated by malloc, as glibc tells."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _MallInfo
    told = mallinfo2()
    return int(told.uordblks) + int(told.hblkhd)
