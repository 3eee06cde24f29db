"""The runner, what it finds, and the C of the compiled core under sanitizers."""

import importlib
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

from tests.fuzz import native
from tests.fuzz.__main__ import TARGETS, main
from tests.fuzz.campaign import fuzz
from tests.fuzz.target import CORPUS

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


def test_a_command_line_that_cannot_be_meant_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(CORPUS / "document" / "empty")
    monkeypatch.setitem(sys.modules, "atheris", None)
    for arguments, told in (
        (["documents"], "neither a target nor a file: documents"),
        ([file], "name one target"),
        (["document", "urls", file], "name one target"),
        (["document", "--seconds", "0"], "--seconds is 0"),
        (["document"], "fuzzing needs atheris"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        assert told in capsys.readouterr().err
    assert main(["document", file]) == 0  # inputs are tried without it


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


# The core.


sanitized = pytest.mark.skipif(native.compiler() is None, reason="neither gcc nor cc has the sanitizers it needs")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return native.built(tmp_path_factory.mktemp("harness"))


@pytest.mark.full
@sanitized
def test_no_input_breaks_the_core(program: str) -> None:
    assert native.fault([program], [file.read_bytes() for file in native.TARGET.corpus]) == ""
    assert native.fault([program], native.generated(2_000, 9309)) == ""


@pytest.mark.full
@sanitized
def test_no_failing_allocation_breaks_the_core_or_leaks(program: str) -> None:
    assert native.fault([program, "--failures"], [file.read_bytes() for file in native.TARGET.corpus]) == ""
    assert native.fault([program, "--failures"], native.generated(500, 9309)) == ""


@pytest.mark.full
@sanitized
@pytest.mark.parametrize(
    "broken",
    [
        ("scan.c", "while (at < text.length && !is", "while (at <= text.length && !is"),  # reads beyond the end
        ("scan.c", "if (is_named && row->starts", "if (is_named && !row->starts"),  # ends a group too early
        ("scan.c", "free(rows);\n    }\n    return more;", "}\n    return more;"),  # leaks if an allocation fails
        ("rules.c", "octets += 3 * PO_PATH_ROOM", "octets += PO_PATH_ROOM"),  # too little room for a form
        ("rules.c", "form < form_count && !po_rules_allow", "form < form_count && po_rules_allow"),  # by the bound
    ],
)
def test_a_fault_in_the_core_is_found_and_its_input_is_kept(
    broken: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, line, instead = broken
    sources = tmp_path / "sources"
    shutil.copytree(native.SOURCES, sources)
    code = (sources / name).read_text(encoding="utf-8")
    assert code.count(line) == 1
    (sources / name).write_text(code.replace(line, instead), encoding="utf-8")
    monkeypatch.setattr(native, "SOURCES", sources)
    assert main(["native", "--seconds", "60", "--output", str(tmp_path / "run")]) == 1
    kept = next((tmp_path / "run" / "native" / "findings").iterdir())
    assert f"reproduce: python -m tests.fuzz native {kept}" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="harness"):
        main(["native", str(kept)])
