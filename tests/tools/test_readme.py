"""README runs as written, leads to each guide, and promises nothing that does not work yet."""

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

from politesse.cli.guide_command import TOPICS
from tests.support.guides import blocks_of, findings
from tests.support.modules import HOMES

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text()
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.realtime
@pytest.mark.timeout(300)
async def test_readme_runs_as_written(tmp_path: Path) -> None:
    found = await findings("README.md", README, tmp_path)
    assert not found, "\n\n".join(found)


def test_shortest_program_comes_first_with_its_output_and_its_server() -> None:
    blocks = [block for block in blocks_of("README.md", README) if block.language != "py"]
    program, text, server = [block for block in blocks if "pip install" not in block.code]
    assert (program.is_program, program.text, server.is_server) == (True, text.code, True)


def test_first_screen_has_the_two_commands_and_the_rest_is_short() -> None:
    lines = README.splitlines()
    assert any("politesse demo" in line for line in lines[:25])
    assert any(line.endswith("pytest -n auto") for line in lines[:25])
    assert len(lines) < 140


def test_each_guide_is_linked_and_each_link_leads_somewhere() -> None:
    links = re.findall(r"\[([^\]]*)\]\(([^)]+)\)", README)
    project = {target for _, target in links if target.startswith(".github/")}
    assert {target for _, target in links} - project == {f"src/politesse/guides/{topic}.md" for topic in TOPICS}
    assert all(target.endswith(f"/{label}.md") for label, target in links)
    assert all((ROOT / target).is_file() for target in project)


def test_install_lines_work_from_a_checkout() -> None:
    installed = re.findall(r"pip install ([^`\n&]+)", README)
    assert installed
    assert [line for line in installed if not re.fullmatch(r"(-q -e )?('\.\[[a-z,]+\]'|\.)", line.strip())] == []


def test_extras_and_dependencies_in_readme_are_those_of_the_project() -> None:
    table = README.partition("| extra | adds |")[2].partition("\n\n")[0]
    named = {name for row in re.findall(r"^\| (.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert named == set(PROJECT["optional-dependencies"]) - {"all", "bench", "guides", "test"}  # those for developers
    [sentence] = re.findall(r"installs politesse with ([^;]*);", README)
    assert re.findall(r"[\w-]{4,}", sentence) == [re.split(r"\W*>", one)[0] for one in PROJECT["dependencies"]]


def test_public_modules_in_readme_are_those_that_there_are() -> None:
    [sentence] = re.findall(r"The others are in (.*?)\.\n", README, re.DOTALL)
    assert {
        "politesse." + name.removeprefix("politesse.").lstrip(".") for name in re.findall(r"`([^`]+)`", sentence)
    } == {*HOMES[1:]}
