"""Draws README's picture of the demo: ``.venv/bin/python .docs/demo.py`` crawls, and writes ``.docs/pages/demo.svg``.

rich exports the output once in light and once in dark colours. The dark ones follow ``prefers-color-scheme``, so that
one file suits both. The picture names no font of another server: as an image, it could not load it.
"""

from __future__ import annotations

import asyncio
import io
import re
from pathlib import Path
from typing import Final

from rich.color import Color
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from politesse.cli.demo import run

PICTURE: Final = Path(__file__).with_name("pages") / "demo.svg"
COMMAND: Final = "$ politesse demo"
GAP: Final = " ..."
"""Stands for the lines of the crawl between the first two and the last."""

_PAGES: Final = 3_000  # as the command
_COLUMNS: Final = 80
_TICK: Final = re.compile(r"\d+\.\d s: ")


def _theme(paper: str, ink: str, red: str, green: str) -> TerminalTheme:
    """Return a theme of the colours that the demo uses."""
    background, foreground, *colours = (Color.parse(colour).get_truecolor() for colour in (paper, ink, red, green))
    return TerminalTheme(background, foreground, [foreground, *colours, *[foreground] * 5])


_LIGHT: Final = _theme("#f6f8fa", "#1f2328", "#cf222e", "#116329")
_DARK: Final = _theme("#161b22", "#e6edf3", "#ff7b72", "#56d364")
_FORMAT: Final = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>The output of politesse demo</title>
<style>
.screen {{ fill: #f6f8fa; }}
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
{styles}
@media (prefers-color-scheme: dark) {{
.screen {{ fill: #161b22; }}
DARK
}}
</style>
<rect class="screen" width="100%" height="100%" rx="8"/>
<g class="{unique_id}-matrix" transform="translate({terminal_x}, 22)">
{matrix}
</g>
</svg>
"""


def shown(output: str) -> list[str]:
    """Return the lines of the picture: the command, and its output without most lines of the crawl."""
    lines = output.splitlines()
    ticks = [place for place, line in enumerate(lines) if _TICK.search(line)]
    return [COMMAND, *lines[: ticks[2]], GAP, *lines[ticks[-1] :]]


def drawn(output: str) -> str:
    """Return the picture of an output with its ANSI codes."""
    console = Console(file=io.StringIO(), record=True, width=_COLUMNS)
    for line in shown(output):
        console.print(Text.from_ansi(line))
    # The colours of both themes belong to the same classes, in the order in which they occur.
    styles = console.export_svg(title="", theme=_DARK, clear=False, code_format="{styles}", unique_id="demo")
    dark = styles.replace("{", "{{").replace("}", "}}")
    code_format = _FORMAT.replace("DARK", dark)
    svg = console.export_svg(title="", theme=_LIGHT, code_format=code_format, unique_id="demo")
    # Each line ends with an element for the line break; no text is longer than its line.
    return re.sub(r"<text [^>]*>\n</text>| clip-path=\"[^\"]*\"", "", svg).replace("</text><text", "</text>\n<text")


def main() -> None:
    """Run the demo, and draw its output."""
    output = Console(file=io.StringIO(), record=True, width=_COLUMNS, force_terminal=True, color_system="standard")
    code = asyncio.run(run(output, _PAGES))
    text = output.export_text(styles=True)
    if code:
        raise SystemExit(f"The demo has failed, and {PICTURE} is as before:\n{text}")
    PICTURE.write_text(drawn(text), encoding="utf-8")
    print(PICTURE)  # noqa: T201 - the name of the file


if __name__ == "__main__":
    main()
