"""The reference that ``python -m pdoc`` makes of the docstrings."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.modules import HOMES

if TYPE_CHECKING:
    from pathlib import Path

PUBLIC: Final = [
    *HOMES,
    "politesse.clock",
    "politesse.integrations.aiohttp",
    "politesse.integrations.httpx",
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
