"""README runs as written, leads to each guide, and promises nothing that does not work yet."""

import asyncio
import re
import subprocess
import sys
import tomllib
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from typing import Final

import pytest

from politesse.cli.guide_command import TOPICS
from politesse.testing import Fault, HostileServer
from politesse.testing.hostile import response
from tests.support.guides import blocks_of, findings
from tests.support.modules import HOMES

LINK: Final = r"\]\(([^)]+)\)"
ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text()
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.realtime
@pytest.mark.timeout(300)
async def test_readme_runs_as_written(tmp_path: Path) -> None:
    found = await findings("README.md", README, tmp_path)
    assert not found, "\n\n".join(found)


def test_shortest_program_comes_after_its_server_and_before_what_replaces_two_clients() -> None:
    blocks = [block for block in blocks_of("README.md", README) if "pip install" not in block.code]
    server, program, text, httpx, scrapy = blocks
    assert (program.is_program, program.text, server.is_server) == (True, text.code, True)
    assert (httpx.is_paste, scrapy.file) == (True, "spider.py")


@pytest.mark.realtime
async def test_spider_requests_the_page_and_says_that_the_other_is_forbidden(tmp_path: Path) -> None:
    [spider] = [block.code for block in blocks_of("README.md", README) if block.file == "spider.py"]
    [command] = re.findall(r"`\.venv/bin/(scrapy runspider spider\.py)` logs `(.*?)` once", README)
    async with HostileServer(
        Fault(name="none", robots=response(200, b"User-agent: *\nDisallow: /private\n"))
    ) as server:
        (tmp_path / "spider.py").write_text(spider.replace("http://localhost:8000", server.origin))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *command[0].split()), cwd=tmp_path, stdout=PIPE, stderr=STDOUT
        )
        printed = (await process.communicate())[0].decode()
        assert server.pages == ["/"]
    assert (process.returncode, printed.count(command[1])) == (0, 1), printed
    assert f"\n200 {server.origin}/\n" in printed


def test_first_screen_has_the_demo_and_its_picture_and_the_rest_is_short() -> None:
    lines = README.splitlines()
    assert any("politesse demo" in line for line in lines[:25])
    assert any("](.docs/pages/demo.svg)" in line for line in lines[:10])
    assert any(line.endswith("pytest -n auto") for line in lines)
    assert len(lines) <= 110


def test_each_guide_is_linked_and_each_link_leads_somewhere() -> None:
    links = re.findall(r"\[([^\]]*)\]\(([^)]+)\)", README)
    project = {target for _, target in links if target.startswith((".github/", ".docs/pages/"))}
    assert {target for _, target in links} - project == {f"src/politesse/guides/{topic}.md" for topic in TOPICS}
    assert all(target.endswith(f"/{label}.md") for label, target in links if target != ".docs/pages/demo.svg")
    assert all((ROOT / target).is_file() for target in project)


def test_links_of_the_pages_of_the_site_lead_to_files_of_the_repository_too() -> None:
    pages = list((ROOT / ".docs/pages").glob("*.md"))
    links = [(page.name, link) for page in pages for link in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text())]
    missing = [one for one in links if not (ROOT / ".docs/pages" / one[1]).is_file()]
    assert missing == [("policy.md", "../../reference/politesse.md")]  # the site makes this page from docstrings


def test_links_of_the_package_on_pypi_lead_to_the_files_of_its_tag(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(README)
    subprocess.run([sys.executable, ROOT / ".docs/absolute_links.py", "v1"], check=True, cwd=tmp_path)  # noqa: S603 - our own program
    changed = (tmp_path / "README.md").read_text()
    links = re.findall(LINK, README)
    pages = [f"https://github.com/politesse/politesse/blob/v1/{target}" for target in links]
    assert ".docs/pages/demo.svg" in links
    assert re.findall(LINK, changed) == [one.replace("blob", "raw") if one.endswith(".svg") else one for one in pages]


def test_install_lines_work_from_a_checkout() -> None:
    installed = re.findall(r"pip install ([^`\n&]+)", README)
    assert installed
    assert [line for line in installed if not re.fullmatch(r"(-q -e )?('\.\[[a-z,]+\]'|\.)", line.strip())] == []


def test_extras_and_dependencies_in_readme_are_those_of_the_project() -> None:
    [extras] = re.findall(r"The extras are (.*?)\.\s", README, re.DOTALL)
    named = set(re.findall(r"`(\w+)`", extras))
    assert named == set(PROJECT["optional-dependencies"]) - {"all", "bench", "guides", "test"}  # those for developers
    [sentence] = re.findall(r"installs politesse with ([^;]*);", README)
    assert re.findall(r"[\w-]{4,}", sentence) == [re.split(r"\W*>", one)[0] for one in PROJECT["dependencies"]]


def test_public_modules_in_the_policy_are_those_that_there_are() -> None:
    policy = (ROOT / ".docs/pages/policy.md").read_text()
    [sentence] = re.findall(r"The others are in\s(.*?)\.\n", policy, re.DOTALL)
    assert {
        "politesse." + name.removeprefix("politesse.").lstrip(".") for name in re.findall(r"`([^`]+)`", sentence)
    } == {*HOMES[1:]}
