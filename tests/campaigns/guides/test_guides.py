"""Each guide does what it says: ``pytest -m full tests/campaigns/guides/test_guides.py -k pacing`` runs one."""

import asyncio
import re
import sys
import textwrap
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from politesse.cli.guide_command import TOPICS
from tests.support.guides import blocks_of, findings
from tests.wire.clients.browsers import chromium

ROOT = Path(__file__).parents[3]
GUIDES = sorted((ROOT / "src/politesse/guides").glob("*.md"))
TEXTS = {path.name: path.read_text() for path in GUIDES}
NEEDED = {"agents.md": ("mcp", "langchain_core"), "jobs.md": ("celery", "arq", "distributed")}
"""The libraries of a guide that the extra ``test`` lacks, because they are large; ``.ci/run`` installs them."""

LINK = re.compile(r"\]\(([^)#\s]*)(?:#[^)]*)?\)")


@pytest.mark.full
@pytest.mark.realtime
@pytest.mark.timeout(300)
@pytest.mark.parametrize("guide", TEXTS)
async def test_guide_runs_as_written(guide: str, tmp_path: Path) -> None:
    if missing := [name for name in NEEDED.get(guide, ()) if find_spec(name) is None]:
        pytest.skip(f"{' and '.join(missing)} not installed; .ci/run installs them")
    if guide == "browsers.md":
        chromium()
    found = await findings(guide, TEXTS[guide], tmp_path)
    assert not found, "\n\n".join(found)


@pytest.mark.full
@pytest.mark.realtime
@pytest.mark.skipif(find_spec("niquests") is None, reason="niquests not installed; .ci/run installs it")
async def test_recipe_of_the_guide_to_threads_suits_niquests(tmp_path: Path) -> None:
    before, line, after = TEXTS["threads.md"].partition("from curl_cffi import requests")
    assert line
    found = await findings("threads.md", f"{before}import niquests as requests{after}", tmp_path)
    assert not found, "\n\n".join(found)


def test_each_topic_is_a_guide_that_opens_with_a_title_a_sentence_and_code_that_prints() -> None:
    assert sorted(TOPICS) == sorted(path.stem for path in GUIDES)
    assert [name for name, text in TEXTS.items() if not re.match(r"# .*\n\n[A-Z`]", text)] == []
    first = {name: next(b for b in blocks_of(name, text) if b.language == "python") for name, text in TEXTS.items()}
    assert [name for name, block in first.items() if block.text is None] == []


def test_links_of_a_guide_lead_to_guides() -> None:
    proses = {name: re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE) for name, text in TEXTS.items()}
    links = [(name, link) for name, prose in proses.items() for link in LINK.findall(prose) if link]
    assert [one for one in links if not one[1].startswith(("https://", "http://")) and one[1] not in TEXTS] == []


def test_policy_states_the_lower_bounds_and_the_pythons_of_the_project() -> None:
    policy = (ROOT / ".docs/pages/policy.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stated = {row[0]: row[1:] for row in re.findall(r"^\| `(.+)` \| (.+) \| (.+) \|$", policy, re.MULTILINE)}
    extras = project["optional-dependencies"]
    bounds = dict.fromkeys(project["dependencies"], "always")
    for extra in extras.keys() - {"all", "bench", "docs", "guides", "test"}:
        bounds |= {one: f"extra `{extra}`" for one in extras[extra] if not one.startswith("politesse")}
    assert {library: bound for library, (bound, _) in stated.items()} == dict(
        one.partition(";")[0].split(">=") for one in bounds
    )
    assert [one for one, need in bounds.items() if not stated[one.split(">=")[0]][1].startswith(need)] == []
    named = {version for row in re.findall(r"^\| (3[\d., ]+) \|", policy, re.MULTILINE) for version in row.split(", ")}
    assert named == {each.rpartition(" ")[2] for each in project["classifiers"] if ":: Python :: 3." in each}


CRAWLER = """
from politesse import Disallowed, PacingOptions, Gatekeeper, PoliteSession

async def crawl(urls):
    pacing = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0)
    gate = Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", pacing=pacing, mode=MODE)
    async with gate, PoliteSession(gate) as web:
        for url in urls:
            try:
                async with web.get(url) as response:
                    await response.read()
            except Disallowed:
                pass
"""


@pytest.mark.full
@pytest.mark.realtime
@pytest.mark.parametrize(("mode", "outcome"), [("report", "2 failed, 1 passed"), ("enforce", "3 passed")])
async def test_example_of_the_guide_to_testing_finds_a_crawler_that_ignores_robots_txt_and_no_fault_with_a_polite_one(
    mode: str, outcome: str, tmp_path: Path
) -> None:
    [example] = re.findall(r"^```py\n(.*?)^```", TEXTS["testing.md"], re.DOTALL | re.MULTILINE)
    (tmp_path / "test_example.py").write_text(example)
    (tmp_path / "my_crawler.py").write_text(CRAWLER.replace("MODE", repr(mode)))
    # The plugin of LangSmith, which comes with the guides' libraries, is slow to load.
    plugins = ["-p", "no:cacheprovider", "-p", "no:langsmith_plugin"]
    options = ["-o", "asyncio_mode=auto", *plugins, "-W", "ignore::pytest.PytestDeprecationWarning"]
    chosen = ["-k", "gzip-cut or status-503 or status-404"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", *options, *chosen, "test_example.py"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed = (await process.communicate())[0].decode()
    assert outcome in printed, printed


# These tests find what is wrong with a guide.


def fenced(language: str, code: str) -> str:
    return f"```{language}\n{textwrap.dedent(code).strip()}\n```\n"


async def wrong(folder: Path, *blocks: str, patience_s: float = 30.0) -> list[str]:
    return await findings("bad.md", "\n".join(blocks), folder, patience_s=patience_s)


async def test_block_of_a_wrong_form_is_found(tmp_path: Path) -> None:
    messages = {
        fenced("", "1"): "a block of the language ''",
        fenced("text", "1"): "text that no block prints",
        fenced("py", "ADDONS = {"): "'{' was never closed",
        fenced("json", "{"): "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        fenced("py", f"A = {'1' * 76}"): "80 columns, more than 76",
    }
    found = {block: await wrong(tmp_path, block) for block in messages}
    assert found == {block: [f"bad.md:2: {message}"] for block, message in messages.items()}


@pytest.mark.full
@pytest.mark.realtime
async def test_fault_of_a_program_is_found_at_its_line(tmp_path: Path) -> None:
    for number, (start, named, *codes) in enumerate(
        [
            ("bad.md:5: ", "unexpected indent", "def one():\n    number = 1\n\n    return number"),
            ("bad.md:4: ", "SyntaxError", "for number in range(2):\n    number\nprint(1)"),
            ("bad.md:7: ", "ZeroDivisionError", "import math", "math.pi\nmath.tau / 0"),
            ("bad.md:3: ", "says '4', the console '3\\n'", "1 + 1  # 2\n1 + 2  # 4\n1 + 3  # 4, of course"),
            ("bad.md:2: it ends with 1 and ", "TypeError", "import asyncio\nasyncio.run(asyncio.sleep())"),
            ("bad.md:2: it ends with 1 and ", "UserWarning", 'import warnings\nwarnings.warn("old")  # asyncio.run()'),
        ]
    ):
        (tmp_path / f"{number}").mkdir()
        [found] = await wrong(tmp_path / f"{number}", *(fenced("python", code) for code in codes))
        assert found.startswith(start), found
        assert named in found


@pytest.mark.full
@pytest.mark.realtime
async def test_a_hang_or_a_server_that_does_not_start_is_found(tmp_path: Path) -> None:
    hangs = {
        fenced("python", "await asyncio.Event().wait()\n1 / 0"): "bad.md:2: it hangs",
        fenced("python", "import asyncio\nasyncio.run(asyncio.Event().wait())"): "bad.md:2: it hangs after ",
        fenced("sh", "sleep 60"): "bad.md:2: it hangs after ",
        fenced("sh", "python3 -m http.server 8000 --wrong"): "bad.md:2: the server does not answer: usage",
    }
    for block, start in hangs.items():
        [found] = await wrong(tmp_path, block, patience_s=3)
        assert found.startswith(start), found


@pytest.mark.full
@pytest.mark.realtime
async def test_wrong_output_is_found(tmp_path: Path) -> None:
    for block in (
        fenced("python", "import asyncio\nprint(1)\nasyncio.run(asyncio.sleep(0))"),
        fenced("python", "import asyncio\nprint(1)"),
        fenced("python", "await asyncio.sleep(0, 1)"),
        fenced("sh", "echo 1; echo 2; echo 3"),
    ):
        [found] = await wrong(tmp_path, block, fenced("text", "2"))
        assert found.startswith("bad.md:2: the guide shows\n2\nand it prints\n1\n")
