"""The runner: its command line, its findings and its output."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

from tests.fuzz.__main__ import main
from tests.fuzz.campaign import fuzz
from tests.fuzz.target import CORPUS
from tests.fuzz.targets import TARGETS

PYPROJECT: Final = Path(__file__).parents[2] / "pyproject.toml"


def atheris_is_installed_here() -> bool:
    """Return whether the extra ``test`` installs atheris for this interpreter and platform."""
    extra = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]["test"]
    (atheris,) = (needed for needed in map(Requirement, extra) if needed.name == "atheris")
    return atheris.marker is None or atheris.marker.evaluate()


# If the extra has atheris for this platform, a missing atheris fails the tests.
fuzzes = pytest.mark.skipif(not atheris_is_installed_here(), reason="the extra 'test' has no atheris for this platform")

BROKEN = """
from tests.fuzz.target import Target

def check(octets):
    assert not octets.startswith(b"F")

TARGET = Target("broken", check, (b"F",), 16)
"""


def test_an_input_is_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    file = CORPUS / "document" / "empty"
    assert main(["document", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: holds\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["documents"], "neither a target nor a file: documents"),
        ([str(CORPUS / "document" / "empty")], "name one target"),
        (["document", "urls", str(CORPUS / "document" / "empty")], "name one target"),
        (["document", "--seconds", "0"], "--seconds is 0"),
    ],
)
def test_a_command_line_that_cannot_be_meant_is_refused(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert told in capsys.readouterr().err


def test_without_atheris_nothing_is_fuzzed_but_inputs_are_tried_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "atheris", None)
    with pytest.raises(SystemExit):
        main(["document"])
    assert "fuzzing needs atheris" in capsys.readouterr().err
    assert main(["document", str(CORPUS / "document" / "empty")]) == 0


@fuzzes
def test_a_fault_is_found_and_its_input_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken_target.py").write_text(BROKEN, encoding="ascii")
    monkeypatch.syspath_prepend(tmp_path)
    target = importlib.import_module("broken_target").TARGET
    outcome = fuzz(target, 20, tmp_path / "direct")
    assert outcome.failed
    (finding,) = outcome.findings
    assert finding.read_bytes().startswith(b"F")
    monkeypatch.setitem(TARGETS, "broken", target)
    assert main(["broken", "--seconds", "20", "--output", str(tmp_path / "run")]) == 1
    told = capsys.readouterr().out
    (finding,) = (tmp_path / "run" / "broken" / "findings").iterdir()
    assert f"reproduce: python -m tests.fuzz broken {finding}" in told
    with pytest.raises(AssertionError):
        main(["broken", str(finding)])


@fuzzes
@pytest.mark.weekly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.fuzz is None])
def test_fuzzing_finds_nothing(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--seconds", "30", "--output", str(tmp_path)]) == 0, capsys.readouterr().out
    assert any((tmp_path / name / "corpus").iterdir()), "nothing new was tried"
