"""Makes the links of README absolute, as PyPI needs them: ``python .docs/absolute_links.py TAG`` changes the file."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

_REPOSITORY: Final = "https://github.com/politesse/politesse"


def absolute(text: str, tag: str) -> str:
    """Return the text with links to the files of a tag. A picture needs the file itself, not the page about it."""
    return re.sub(
        r"(!?)(\[[^\]]*\]\()(?!https?:|#)",
        lambda link: f"{link[0]}{_REPOSITORY}/{'raw' if link[1] else 'blob'}/{tag}/",
        text,
    )


if __name__ == "__main__":
    readme = Path("README.md")
    readme.write_text(absolute(readme.read_text(encoding="utf-8"), sys.argv[1]), encoding="utf-8")
