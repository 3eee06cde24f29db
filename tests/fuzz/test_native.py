"""The C of the compiled core under sanitizers: a short run, failing allocations, and that a fault is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fuzz.__main__ import main
from tests.fuzz.native import harness

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        harness.compiler() is None, reason="neither gcc nor cc has the sanitizers for address, undefined"
    ),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return harness.built(tmp_path_factory.mktemp("harness"))


def test_no_input_breaks_the_core(program: str) -> None:
    assert harness.fault([program], [file.read_bytes() for file in harness.TARGET.corpus]) == ""
    assert harness.fault([program], harness.generated(2_000, 9309)) == ""


def test_no_failing_allocation_breaks_the_core_or_leaks(program: str) -> None:
    assert harness.fault([program, "--failures"], [file.read_bytes() for file in harness.TARGET.corpus]) == ""
    assert harness.fault([program, "--failures"], harness.generated(500, 9309)) == ""


@pytest.mark.parametrize(
    ("name", "line", "broken"),
    [
        ("scan.c", "while (at < text.length && !is", "while (at <= text.length && !is"),  # reads beyond the end
        ("scan.c", "if (is_named && row->starts", "if (is_named && !row->starts"),  # ends a group too early
        ("scan.c", "free(rows);\n    }\n    return more;", "}\n    return more;"),  # leaks if an allocation fails
        ("rules.c", "octets += 3 * PO_PATH_ROOM", "octets += PO_PATH_ROOM"),  # too little room for a form
        (
            "rules.c",
            "form < form_count && !po_rules_allow",
            "form < form_count && po_rules_allow",
        ),  # allows by the bound
    ],
)
def test_a_fault_in_the_core_is_found_and_its_input_is_kept(
    name: str,
    line: str,
    broken: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sources = tmp_path / "sources"
    shutil.copytree(harness.SOURCES, sources)
    code = (sources / name).read_text(encoding="utf-8")
    assert code.count(line) == 1
    (sources / name).write_text(code.replace(line, broken), encoding="utf-8")
    monkeypatch.setattr(harness, "SOURCES", sources)
    assert main(["native", "--seconds", "60", "--output", str(tmp_path / "run")]) == 1
    kept = next((tmp_path / "run" / "native" / "findings").iterdir())
    assert f"reproduce: python -m tests.fuzz native {kept}" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="harness"):
        main(["native", str(kept)])
