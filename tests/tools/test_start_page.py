"""The start page of the site: its crawler runs as written, and passes the strict modes of two type checkers."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.guides import blocks_of, findings

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / ".docs/pages/index.md").read_text(encoding="utf-8")
CHECKERS: Final = {
    "mypy": ["mypy", "--strict", "--config-file="],
    "pyright": ["pyright", "--pythonpath", sys.executable],
}


@pytest.mark.realtime
async def test_start_page_runs_as_written(tmp_path: Path) -> None:
    found = await findings("index.md", PAGE, tmp_path)
    assert not found, "\n\n".join(found)


@pytest.mark.full
@pytest.mark.parametrize("checker", CHECKERS)
def test_crawler_passes_a_strict_type_checker_as_a_file_of_its_user(checker: str, tmp_path: Path) -> None:
    [crawler] = [block.code for block in blocks_of("index.md", PAGE) if block.is_program]
    (tmp_path / "crawler.py").write_text(crawler)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict"}))
    # pyright does not read the .pth file of an editable installation.
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")} if checker == "pyright" else None
    command = [sys.executable, "-m", *CHECKERS[checker], "crawler.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)  # noqa: S603 - our own command
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"no issues found|0 errors, 0 warnings", done.stdout)
