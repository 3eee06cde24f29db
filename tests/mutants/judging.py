"""Judges mutants: runs the tests in a copy of the checkout that has one line broken. The checkout is never changed.

All tests run once with unbroken lines, each of which notes the tests that run it. A mutant is judged by these tests.
"""

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Final

from tests.mutants.drawing import Mutant

# ``full`` has what ``.ci/run`` runs beyond ``quick``.
_BEYOND: Final = "(full or hypothesis) and not weekly"
TIERS: Final = {"quick": (), "full": ("-m", _BEYOND, "--hypothesis-profile", "full")}
FIRST: Final = 10  # so many of the tests that run the fewest mutants come first: they are quick, and likely to fail
LIMIT_S: Final = 3600

_NOTED: Final = """import os
seen = set()
def note(place):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if test and (place, test) not in seen:
        seen.add((place, test))
        with open({path!r}, "a") as file:
            file.write(f"{{place}}\\t{{test}}\\n")
"""


class Judge:
    """Runs the tests of one tier. A mutant is named by its place in the list."""

    def __init__(self, root: Path, mutants: Sequence[Mutant], tier: str) -> None:
        self._root = root
        self._mutants = mutants
        self._tier = tier
        self._tests: dict[str, set[str]] = {"": set()}  # the tests that run the line; without a place: tests that fail
        for note in self._notes().read_text().splitlines():
            self._tests.setdefault(note.partition("\t")[0], set()).add(note.partition("\t")[2])
        self._width = Counter(test for tests in self._tests.values() for test in tests)

    def judge(self, places: Sequence[int], jobs: int) -> Iterator[Mutant]:
        """Judge mutants, those of few tests first; yield each once its test is known."""
        places = sorted(places, key=lambda place: (self._is_outside(place), len(self._tests.get(str(place), ()))))
        pool = ThreadPoolExecutor(jobs)
        try:
            for place, test in zip(places, pool.map(self._failing, places), strict=True):
                self._mutants[place].tier, self._mutants[place].test = self._tier, test
                yield self._mutants[place]
        finally:
            pool.shutdown(cancel_futures=True)

    def _failing(self, place: int) -> str:
        """Return the first test that fails with the mutant, or an empty string."""
        mutant = self._mutants[place]
        tests = sorted(self._tests.get(str(place), set()) - self._tests[""], key=lambda test: (self._width[test], test))
        examples = {test.partition("[")[0]: test for test in reversed(tests)}  # one of each function
        first = [test for test in tests if examples[test.partition("[")[0]] == test][:FIRST]
        batches = [first, [test for test in tests if test not in first]]
        with self._copy() as copy:
            source = (copy / mutant.path).read_text()
            (copy / mutant.path).write_text(mutant.applied(source) or source)
            if self._is_outside(place):
                batches.append([f"--deselect={test}" for test in self._tests[""]] or ["tests"])  # any may depend on it
            return next(
                (failed[0] for batch in batches if batch and (failed := self._failed(copy, ["-x", *batch]))), ""
            )

    def _is_outside(self, place: int) -> bool:
        """Return whether the line is outside functions."""
        source = (self._root / self._mutants[place].path).read_text()
        return not _in_functions(ast.parse(source), self._mutants[place].place(source) or 0)

    def _notes(self) -> Path:
        """Return the file that says which tests run each line; make it if there is none for the code as it is."""
        content = hashlib.sha256(repr([(mutant.path, mutant.before) for mutant in self._mutants]).encode())
        for file in sorted(path for path in self._root.rglob("*.py") if ".venv" not in path.parts):
            content.update(file.read_bytes())
        notes = self._root / ".pytest_cache" / f"mutants-{self._tier}-{content.hexdigest()[:16]}.tsv"
        if notes.exists():
            return notes
        with self._copy() as copy:
            noted = copy / "noted.tsv"
            noted.touch()
            (copy / "src/noted_lines.py").write_text(_NOTED.format(path=str(noted)))
            for path in {mutant.path for mutant in self._mutants}:
                here = {place: mutant for place, mutant in enumerate(self._mutants) if mutant.path == path}
                (copy / path).write_text(_noting((copy / path).read_text(), here))
            failed, runs = self._failed(copy, []), noted.read_text()
        with self._copy() as copy:  # a test may fail because of the notes
            failed = self._failed(copy, failed) if failed else []
        notes.parent.mkdir(exist_ok=True)
        notes.write_text(runs + "".join(f"\t{test}\n" for test in failed))
        return notes

    @contextmanager
    def _copy(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            copy = Path(folder) / self._root.name
            shutil.copytree(self._root, copy, ignore=shutil.ignore_patterns(".git", ".venv", ".*_cache"))
            yield copy

    def _failed(self, copy: Path, arguments: Sequence[str]) -> list[str]:
        """Run tests in a copy; return those that failed."""
        (copy / "arguments").write_text("\n".join([*TIERS[self._tier], *arguments]))
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "-n", "0", "@arguments"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(copy / "src"), str(copy)])}
        environment.pop("PYTEST_CURRENT_TEST", None)
        try:
            done = subprocess.run(  # noqa: S603 - our own command
                command, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired:
            return [f"the tests take more than {LIMIT_S} s"]
        if "ERROR: not found" in done.stderr or "unrecognized arguments" in done.stderr:
            raise RuntimeError(done.stderr)
        if done.returncode in {0, 5}:  # 5: the tier has none of these tests
            return []
        output = f"{done.stdout}\n{done.stderr}"  # the second alternative is of tests/conftest.py
        failed = re.findall(
            r"^(?:(?:FAILED|ERROR) |(?=.* still runs))(\S.*?)(?: - .*| still runs.*)?$", output, re.MULTILINE
        )
        return failed or output.strip().splitlines()[-1:] or [f"the tests ended with code {done.returncode}"]


def _noting(source: str, mutants: dict[int, Mutant]) -> str:
    """Return the source with a call before the statement of each mutant, which notes the test that runs it.

    A line outside functions is noted by all functions of its module.
    """
    tree = ast.parse(source)
    for place, mutant in mutants.items():
        note = ast.Expr(ast.parse(f"__import__('noted_lines').note({place})", mode="eval").body)
        if around := _in_functions(tree, mutant.place(source) or 0):
            body, statement = around[-1]
            body.insert(body.index(statement), note)
            continue
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                function.body.insert(int(ast.get_docstring(function) is not None), note)
    return ast.unparse(ast.fix_missing_locations(tree))


def _in_functions(tree: ast.Module, place: int) -> list[tuple[list[ast.stmt], ast.stmt]]:
    """Return the statements of functions around a line, each with its list; the innermost comes last."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    bodies = [body for node in functions for part in ast.walk(node) for _, body in ast.iter_fields(part)]
    return [
        (body, item)
        for body in bodies
        if isinstance(body, list)
        for item in body
        if isinstance(item, ast.stmt) and getattr(item, "lineno", inf) <= place + 1 <= (item.end_lineno or 0)
    ]
