"""The command that draws and judges mutants, with a module of a few lines."""

import json
from pathlib import Path

import pytest

from tests.mutants.__main__ import main

SOURCE = '''"""A docstring with 1 and 2."""
from typing import TYPE_CHECKING

import json

LEAST = 18


def is_adult(age: int = 18) -> bool:
    return age >= LEAST


def name(age: int) -> str:
    """Return 1 word."""
    return "adult" if is_adult(age) else "child"
'''
TESTS = """from people import is_adult

def test_other() -> None:
    assert True

def test_age() -> None:
    assert is_adult(18)
    assert not is_adult(17)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "src/people.py").write_text(SOURCE)
    (tmp_path / "tests/test_people.py").write_text(TESTS)
    return tmp_path


def _mutants(project: Path, command: str) -> list[dict[str, str]]:
    main(command.split(), project, project / "list")
    return [json.loads(line) for line in (project / "list").read_text().splitlines()]


def test_a_seed_draws_the_same_lines_again(project: Path) -> None:
    drawn = _mutants(project, "draw --seed 1 --number 3")
    assert drawn == _mutants(project, "draw --seed 1 --number 3")
    assert drawn != _mutants(project, "draw --seed 2 --number 3")


def test_each_line_of_code_that_can_be_broken_is_drawn_once(project: Path) -> None:
    lines = [mutant["before"] for mutant in _mutants(project, "draw --number 9")]
    code = ["LEAST = 18", "def is_adult(age: int = 18) -> bool:", "return age >= LEAST"]
    assert sorted(lines) == sorted([*code, 'return "adult" if is_adult(age) else "child"'])


@pytest.mark.full  # it starts pytest four times
def test_a_mutant_is_caught_by_the_test_that_runs_its_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = {"path": "src/people.py", "function": "is_adult", "before": "return age >= LEAST"}
    mutants = [known | {"after": "return age > LEAST"}, known | {"after": "return LEAST <= age"}]
    gone = known | {"before": "return 1", "after": "return 2"}
    (project / "list").write_text("\n".join(map(json.dumps, [*mutants, gone])))
    caught, equivalent, _ = _mutants(project, "judge")
    assert (caught["tier"], caught["test"]) == ("quick", "tests/test_people.py::test_age")
    assert (equivalent["tier"], equivalent["test"]) == ("quick", "")
    assert "1 caught by quick\n    1 gone\n    1 survived quick" in capsys.readouterr().out.replace("     ", "    ")
    assert (project / "src/people.py").read_text() == SOURCE
