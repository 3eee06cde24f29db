"""Each guide does what it says: ``pytest tests/campaigns/guides/test_guides.py -k pacing`` runs one."""

import asyncio
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

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
@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
async def test_guide_runs_as_written(guide: Path, tmp_path: Path) -> None:
    if missing := [name for name in NEEDED.get(guide.name, ()) if find_spec(name) is None]:
        pytest.skip(f"{' and '.join(missing)} not installed; .ci/run installs them")
    if guide.name == "browsers.md":
        chromium()
    found = await findings(guide.name, TEXTS[guide.name], tmp_path)
    assert not found, "\n\n".join(found)


@pytest.mark.full
@pytest.mark.realtime
@pytest.mark.skipif(find_spec("niquests") is None, reason="niquests not installed; .ci/run installs it")
async def test_recipe_of_the_guide_to_threads_suits_niquests(tmp_path: Path) -> None:
    before, line, after = TEXTS["threads.md"].partition("from curl_cffi import requests")
    assert line
    found = await findings("threads.md", f"{before}import niquests as requests{after}", tmp_path)
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_guide_opens_with_a_title_a_sentence_and_code_that_prints(guide: Path) -> None:
    title, blank, sentence, *_ = TEXTS[guide.name].splitlines()
    assert title.startswith("# ")
    assert (blank, sentence[:1].isupper() or sentence.startswith("`")) == ("", True)
    first = next(block for block in blocks_of(guide.name, TEXTS[guide.name]) if block.language == "python")
    assert first.text is not None


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_links_of_a_guide_lead_to_guides(guide: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", TEXTS[guide.name], flags=re.DOTALL | re.MULTILINE)
    links = [link for link in LINK.findall(prose) if not link.startswith(("https://", "http://"))]
    assert [link for link in links if link and link not in {path.name for path in GUIDES}] == []


def test_topics_are_the_guides() -> None:
    assert sorted(TOPICS) == sorted(path.stem for path in GUIDES)


# The test that the guide to testing shows finds a crawler that ignores robots.txt, and no fault with a polite one.


GUIDE: Final = (Path(__file__).parents[3] / "src/politesse/guides/testing.md").read_text()
CRAWLER: Final = """
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


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("mode", "outcome"), [("report", "2 failed, 1 passed"), pytest.param("enforce", "3 passed", marks=pytest.mark.full)]
)
async def test_example_of_the_guide_to_testing(mode: str, outcome: str, tmp_path: Path) -> None:
    [example] = re.findall(r"^```py\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
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
