"""``politesse guide``: the guides that are shipped with the package, as text for a terminal or a pipe."""

from __future__ import annotations

import difflib
import os
import pydoc
import re
import shlex
import shutil
import signal
from importlib.resources import files
from typing import TYPE_CHECKING, ClassVar, Final

from rich.markdown import CodeBlock, Markdown, TableElement
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.theme import Theme

from politesse.cli.console import plain, say
from politesse.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.markdown import MarkdownElement

TOPICS: Final = (
    "asking",
    "pacing",
    "crawling",
    "restarts",
    "aiohttp",
    "httpx",
    "scrapy",
    "fleet",
    "fleet-arithmetic",
    "frontier",
    "clients",
    "pages",
    "dialects",
    "private-addresses",
    "testing",
    "report-mode",
    "operating",
)
"""In the order in which a newcomer reads them."""

_WIDEST: Final = 100  # longer lines of prose are hard to read
_LESS: Final = "FRX"  # as git: no pager for a short text, colours, and the text stays on the screen
_THEME: Final = Theme({"markdown.code": "bold cyan"})  # rich's own is on black, in a white terminal too
_FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_SECTION_LINK = re.compile(r"\[([^\]]+)\]\(#[^)]*\)")
_GUIDE_LINK = re.compile(r"(\(?)\[([^\]]+)\]\(([a-z-]+)\.md(?:#[^)]*)?\)(\)?)")


def print_topics(out: Console) -> None:
    """Print each topic with the title of its guide."""
    widest = max(map(len, TOPICS))
    for topic in TOPICS:
        title = _read(topic).partition("\n")[0].removeprefix("# ")
        say(out, f"{topic:{widest}}  {title}")


def print_guide(topic: str, out: Console) -> None:
    """Print a guide: formatted in a terminal, with a pager if it is longer than the screen; else as Markdown.

    Raises:
        ConfigurationError: no guide has that name.
    """
    if topic not in TOPICS:
        similar = " or ".join(difflib.get_close_matches(topic.lower(), TOPICS))
        nearest = f"Did you mean {similar}? " if similar else ""
        raise ConfigurationError(f"There is no guide {topic!r}. {nearest}`politesse guide` lists all topics.")
    text = _with_commands(_read(topic))
    if not out.is_terminal:
        out.print(plain(text), soft_wrap=True, end="")
        return
    with out.use_theme(_THEME), out.capture() as capture:
        out.print(_Guide(text, hyperlinks=False), width=min(out.width, _WIDEST), crop=False)
    formatted = capture.get()
    command = shlex.split(os.environ.get("PAGER") or "less")
    if formatted.count("\n") < out.height or out.is_dumb_terminal or shutil.which(command[0]) is None:
        out.file.write(formatted)
        return
    os.environ.setdefault("LESS", _LESS)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C is for the pager, and pydoc waits for its end
    pydoc.pager(formatted)


def _read(topic: str) -> str:
    return (files("politesse") / "guides" / f"{topic}.md").read_text(encoding="utf-8")


def _with_commands(text: str) -> str:
    """Return a guide that names, beside the label of a link to another guide, the command that shows it.

    A link to a section of the same guide becomes its label.
    """
    parts = _FENCED.split(text)
    parts[::2] = (_GUIDE_LINK.sub(_as_command, _SECTION_LINK.sub(r"\1", prose)) for prose in parts[::2])
    return "".join(parts)


def _as_command(link: re.Match[str]) -> str:
    opening, label, topic, closing = link.groups()
    command = f"`politesse guide {topic}`"
    if opening and closing and label.strip("`").lower() == topic:
        return f"({command})"
    return f"{opening}{label} ({command}){closing}"


class _Code(CodeBlock):
    """A block of code from column 0, without spaces at the ends of its lines: it can be copied and pasted as it is."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render it below a line with its language."""
        yield Rule(self.lexer_name, align="left", style="dim")
        code = Syntax("", self.lexer_name, theme="ansi_dark").highlight(str(self.text))
        code.rstrip()
        code.no_wrap, code.overflow = True, "ignore"
        yield code
        yield Rule(style="dim")


class _Cells(TableElement):
    """A table whose long words go on in the next line; rich would cut them off."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render it with columns that fold."""
        for table in super().__rich_console__(console, options):
            if isinstance(table, Table):
                for column in table.columns:
                    column.overflow = "fold"
            yield table


class _Guide(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Cells,
    }
