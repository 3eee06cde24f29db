"""The reference that ``python -m pdoc`` makes of the docstrings."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.modules import HOMES

PUBLIC: Final = [
    *HOMES,
    "politesse.clock",
    "politesse.integrations.aiohttp",
    "politesse.integrations.crawlee",
    "politesse.integrations.httpx",
    "politesse.integrations.httpx2",
    "politesse.integrations.playwright",
    "politesse.integrations.requests",
    "politesse.integrations.scrapy",
    "politesse.origin",
    "politesse.ports",
    "politesse.robotrules",
]


@pytest.mark.full
def test_reference_of_the_public_modules_is_made_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "pdoc", "-d", "google", *PUBLIC, "-o", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    assert (done.returncode, done.stderr) == (0, "")
    pages = {
        path.relative_to(tmp_path).with_suffix("").as_posix().replace("/", ".") for path in tmp_path.rglob("*.html")
    }
    assert pages == {"index", *PUBLIC}
