"""The compiled core beside the reference in Python: the same answers; and the memory that it states."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Barrier
from typing import Final

import pytest

import politesse
from benchmarks.corpus import RobotsFile
from benchmarks.generator import generate
from benchmarks.urls import fresh_urls
from politesse.errors import InvalidURL
from politesse.robots import IMPLEMENTATION, Dialect, Quirk, RobotsTxt, RuleSet, native
from politesse.robots.dialect import Traits
from politesse.robots.native import NativeRuleSet
from politesse.robots.other_records import OtherRecords
from tests.support.examples import examples
from tests.support.programs import run_code
from tests.support.pure_robots import pure_robots
from tests.support.tiers import first_of

PACKAGE: Final = Path(politesse.__file__).parent
COMPILER: Final = shutil.which("gcc") or shutil.which("cc")
compiled: Final = pytest.mark.skipif(IMPLEMENTATION == "python", reason="there is no compiled core")
built: Final = pytest.mark.skipif(
    IMPLEMENTATION == "python" or COMPILER is None, reason="there is no core, or no C compiler"
)
MANY: Final = 2_500
SHOW: Final = "import politesse.robots; print(politesse.robots.IMPLEMENTATION)"
NATIVE: Final = (Dialect.RFC9309, Dialect.GOOGLE, Dialect.KOSTER_2019)


def test_environment_chooses_the_implementation() -> None:
    is_built = find_spec("politesse._native._core") is not None
    shown = {pure: run_code(SHOW, check=False, settings={"POLITESSE_PURE": pure}) for pure in ("1", "0", "yes")}
    assert [shown[pure].stdout for pure in "10"] == ["python\n", "native\n" if is_built else "python\n"]
    wrong = shown["yes"]
    assert wrong.returncode == 1
    assert "POLITESSE_PURE='yes': 1 has the rules of robots.txt decided in Python, 0 does not" in wrong.stderr


@compiled
def test_generated_files_mean_the_same_to_both() -> None:
    for number, body in enumerate(generate(examples(240), 9309)):
        dialect = NATIVE[number % len(NATIVE)]
        pure, native = pure_robots(body, dialect), RobotsTxt.parse(body, dialect)
        assert (native.sitemaps, native.quirks, native.licenses) == (pure.sitemaps, pure.quirks, pure.licenses)
        assert list(map(repr, native.lines)) == list(map(repr, pure.lines))
        for agent in ("ExampleBot", "Googlebot/2.1"):
            rules, expected = native.rules_for(agent), pure.rules_for(agent)
            assert rules.rules == expected.rules
            assert (len(rules), repr(rules)) == (len(expected), repr(expected))
            assert rules.timetable.is_timed == expected.timetable.is_timed
            for url in fresh_urls(RobotsFile.of(f"www.site{number}.example", body), 9309, number):
                assert rules.match(url) == expected.match(url), url
                assert rules.allowed(url) is expected.allowed(url), url


ODD_FILES: Final[list[str | bytes]] = [
    "User-agent: *\r\rDisallow: /a\r\n\nAllow /a/b\ruseragent: x\n disallow\t/c",
    b"\xef\xbb\xbfUser-agent: *\nDisallow:\xc2\xa0/a\xa0\nDisallow: /\xe9\nDisallow: /b\x00c\nAllow: /b # \x00",
    "User-agent: *\nDisallow: /a%4\nDisallow: /%c3*%2\nAllow: *%\nDisallow: /%%41*x%5$\nDisallow: /**$",
    "User-agent: *\nAllow: /*/index.html\nDisallow: /*/$\nAllow: /a/index.htm\nDisallow: /a/$\nALLOW: /A$b*$",
    "dissallow: /x\nUser-agent: *\nSite-map: /s\nDisallowed: /y\nallowance: /y/z\nDisallow\nDisallow a b",
    "User-agent: *\nDisallow: /" + "a" * 20_000 + "*b\nAllow: /" + "a" * 16_700,
]


@compiled
def test_odd_files_mean_the_same_to_both() -> None:
    targets = ["/", "/a", "/a%4F", "/a%254", "/%C3%A9", "/%c3", "/é", "/b", "/a/", "/x/", "/x", "/y/z", "/c", "/A$b"]
    targets += ["//", "/robots.txt", "/%72obots.txt", "/a/../c"]
    targets += ["/%2e%2E/c", "/?a=%2F", "/b%2Fc?x#y", "/" + "a" * 16_690]
    for body in ODD_FILES:
        for dialect in NATIVE:
            native, pure = RobotsTxt.parse(body, dialect).rules_for("x"), pure_robots(body, dialect).rules_for("x")
            assert native.rules == pure.rules
            for target in targets:
                assert native.match(target) == pure.match(target), (dialect, target)
                assert native.match(f"https://h.example{target}") == pure.match(target), (dialect, target)


@compiled
def test_a_number_that_is_of_no_rule_is_an_error() -> None:
    rules = RobotsTxt.parse("User-agent: *\nDisallow: /a").rules_for("x")
    assert isinstance(rules, NativeRuleSet)
    for number in (400, 10**9, -4):
        with pytest.raises((IndexError, OverflowError)):
            rules.rule_at(number)


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


def test_lines_about_usage_are_those_of_the_file_with_all_their_quirks() -> None:
    body = "Content-Signal: search=no\nUser-agent: *\nContent-Usage train-ai=n\nContent-Usage:\xa0search=y\nDisallow:"
    for robots in RobotsTxt.parse(body), pure_robots(body):
        found = robots.usage_lines_for("x")
        assert [(line.number, line.quirks) for line in found] == [
            (3, (Quirk.MISSING_COLON,)),
            (4, (Quirk.ODD_BLANK,)),
            (1, ()),
        ]
        assert found == [robots.lines[number] for number in (2, 3, 0)]


@pytest.mark.parametrize("dialect", first_of(1, NATIVE))
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
    targets = [f"/{number}%4F{'a' * number}x{number}?%2F" for number in range(0, 1_500, 25)]
    targets += ["/é7", "/robots.txt", "/a\n"]
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
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="this C library tells no allocations")
def test_the_core_takes_the_memory_that_it_states() -> None:
    for row in ("Disallow:/{}", "Disallow:/{}$", "Allow:/*{}", "Disallow:/%41é{}", "Allow:/{}*%4*"):
        robots = RobotsTxt.parse("User-agent: *\n" + "\n".join(row.format(number) for number in range(3_000)))
        robots.rules_for("x")
        before = _allocated_bytes()
        kept = [robots.rules_for("x") for _ in range(20)]
        taken = _allocated_bytes() - before
        assert sum(rules.weight_bytes for rules in kept) == pytest.approx(taken, rel=0.1), row
        del kept  # or its memory would be given back while that of the next row is measured


_FIELDS: Final = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _MallInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS.split()]


def _allocated_bytes() -> int:
    """Return the octets that are allocated by malloc, as glibc tells."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _MallInfo
    told = mallinfo2()
    return int(told.uordblks) + int(told.hblkhd)


# One binary of the compiled core serves all versions of Python: whichever headers built it, wherever it is loaded.

# Each call leaves the references of the objects that it returns as they were. Some versions of the headers take no
# reference of None, True and False, which die in Python 3.11 if they are released too often.
COUNTED: Final = r"""
import sys
from politesse.robots import IMPLEMENTATION, Dialect, RobotsTxt

assert IMPLEMENTATION == "native"
body = "User-agent: *\nDisallow: /a\nAllow: /é*b$\nSitemap: /s\nCrawl-delay: 5\nContent-Usage: train-ai=n\n"
shared = (None, True, False, "", (), body, Dialect.RFC9309)
for _ in range(3):
    before = list(map(sys.getrefcount, shared))
    for _ in range(5_000):
        robots = RobotsTxt.parse(body)
        rules = robots.rules_for("x")
        answers = rules.allowed("/a"), rules.allowed("/b"), rules.allowed("/./c"), rules.match("/a"), rules.rules
        answers = len(rules), rules.weight_bytes, robots.sitemaps, rules.match("/é/../éb"), robots.binding("x")
        del robots, rules, answers
    after = list(map(sys.getrefcount, shared))
assert all(abs(one - other) < 100 for one, other in zip(before, after)), (before, after)
print("ok")
"""

ISOLATED: Final = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
code = f"import sys; sys.path.insert(0, {sys.argv[1]!r}); from politesse._native import core; core.Dialect"
interpreters.run_string(interpreters.create(), code)
if sys.version_info >= (3, 13):
    problem = interpreters.run_string(interpreters.create("isolated"), code)
    assert problem is None, problem.formatted
print("ok")
"""


@cache
def newest_python() -> str:
    """Return the newest Python with headers that is on PATH or in pyenv, as .ci/other_pythons finds them."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for minor in (15, 14, 13, 12):
        on_path = [shutil.which(f"python3.{minor}", path=folder) for folder in os.get_exec_path()]
        for candidate in [*filter(None, on_path), *map(str, versions.glob(f"3.{minor}.*/bin/python"))]:
            if (headers(candidate) / "Python.h").exists():
                return candidate
    pytest.skip("no later Python is here")


def headers(python: str) -> Path:
    """Return the folder of the headers of a Python."""
    found = run(python, "-c", "import sysconfig; print(sysconfig.get_path('include'))", check=False)
    return Path(found.stdout.strip() or "nowhere")


def run(*command: str, check: bool = True, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    ended = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)  # noqa: S603
    assert ended.returncode == 0 or not check, (ended.returncode, ended.stderr[-3_000:])
    return ended


def build(python: str, directory: Path) -> Path:
    """Build the core with the headers of a Python, in a copy of the package; return the folder of the copy."""
    copied = directory / "politesse"
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    sources, binary = sorted(map(str, (copied / "_native").glob("*.c"))), copied / "_native" / "_core.abi3.so"
    strict = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror")
    # The headers of Python are included as those of the system: their own warnings are not ours.
    run(str(COMPILER), *strict, "-O2", "-shared", "-fPIC", f"-isystem{headers(python)}", *sources, "-o", str(binary))
    return directory


@built
@pytest.mark.full
def test_a_core_that_a_later_python_built_counts_the_references_of_this_one(tmp_path: Path) -> None:
    folder = build(newest_python(), tmp_path)
    assert run(sys.executable, "-c", COUNTED, PYTHONPATH=str(folder)).stdout == "ok\n"


@built
@pytest.mark.full
def test_a_core_loads_in_subinterpreters_with_a_gil_of_their_own(tmp_path: Path) -> None:
    folder = build(sys.executable, tmp_path)
    assert run(newest_python(), "-c", ISOLATED, str(folder)).stdout == "ok\n"
    assert run(sys.executable, "-c", ISOLATED, str(folder)).stdout == "ok\n"


def test_a_core_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "politesse", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "politesse" / "_native" / "_core.abi3.so").write_bytes(b"of another machine")
    ended = run(sys.executable, "-c", SHOW, PYTHONPATH=str(tmp_path), POLITESSE_PURE="0")
    assert ended.stdout == "python\n"
    assert "RuntimeWarning: the rules of robots.txt are decided in Python, slowly: " in ended.stderr


def test_the_binding_counts_references_by_functions_only() -> None:
    macro = r"\bPy_(?:X?INCREF|X?DECREF|X?NewRef|CLEAR|X?SETREF|RETURN_\w+)\b"
    sources = {path.name: path.read_text("utf-8") for path in PACKAGE.glob("_native/*.c")}
    assert {name: re.findall(macro, source) for name, source in sources.items()} == {name: [] for name in sources}
    assert sources
