"""The test that the guide to testing shows finds a crawler that ignores robots.txt, and no fault with a polite one."""

import asyncio
import re
import sys
from pathlib import Path
from typing import Final

import pytest

GUIDE: Final = (Path(__file__).parents[2] / "src/politesse/guides/testing.md").read_text()
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
    options = ["-o", "asyncio_mode=auto", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestDeprecationWarning"]
    chosen = ["-k", "gzip-cut or status-503 or status-404"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", *options, *chosen, "test_example.py"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed = (await process.communicate())[0].decode()
    assert outcome in printed, printed
