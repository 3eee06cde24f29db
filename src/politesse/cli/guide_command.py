"""``politesse guide``: the guides that are shipped with the package."""

from __future__ import annotations

import difflib
import os
import pydoc
import re
import shlex
import shutil
import signal
from importlib.resources import files
from typing import Annotated, Final

import typer
from rich.text import Text

from politesse.cli.console import output, say

TOPICS: Final = (
    "asking",
    "pacing",
    "crawling",
    "moving",
    "restarts",
    "aiohttp",
    "httpx",
    "scrapy",
    "crawlee",
    "browsers",
    "threads",
    "agents",
    "fleet",
    "fleet-arithmetic",
    "frontier",
    "jobs",
    "clients",
    "pages",
    "dialects",
    "private-addresses",
    "testing",
    "audit",
    "refusals",
    "report-mode",
    "ledger",
    "operating",
    "watch",
    "settings",
    "upgrades",
    "signing",
    "metrics",
)
"""The guides in the order for a newcomer."""

_LESS: Final = "FRX"  # git's options for less: a short text is not paged, and the text stays on the screen
_FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_SECTION_LINK = re.compile(r"\[([^\]]+)\]\(#[^)]*\)")
_GUIDE_LINK = re.compile(r"(\(?)\[([^\]]+)\]\(([a-z-]+)\.md(?:#[^)]*)?\)(\)?)")


def guide(
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help="One of the topics; without, list them.")] = None,
) -> None:
    """Show a guide, or list the guides.

    Each guide has one topic, with programs to copy. A guide is Markdown. A guide that is longer than the terminal is
    shown by the program in $PAGER (by default less).
    """
    out = output()
    if topic is None:
        widest = max(map(len, TOPICS))
        for name in TOPICS:
            title = _read(name).partition("\n")[0].removeprefix("# ")
            say(out, f"{name:{widest}}  {title}")
        return
    if topic not in TOPICS:
        similar = " or ".join(difflib.get_close_matches(topic.lower(), TOPICS))
        nearest = f"Did you mean {similar}? " if similar else ""
        raise typer.BadParameter(f"There is no guide {topic!r}. {nearest}`politesse guide` lists all topics.")
    text = _with_commands(_read(topic))
    command = shlex.split(os.environ.get("PAGER") or "less")
    fits = text.count("\n") < out.height
    if fits or not out.is_terminal or out.is_dumb_terminal or shutil.which(command[0]) is None:
        out.print(Text(text), soft_wrap=True, end="")
        return
    os.environ.setdefault("LESS", _LESS)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # pydoc ignores the KeyboardInterrupt until the pager ends
    pydoc.pager(text)


def _read(topic: str) -> str:
    return (files("politesse") / "guides" / f"{topic}.md").read_text(encoding="utf-8")


def _with_commands(text: str) -> str:
    """Return a guide in which each link to another guide also names the command that shows that guide.

    A link to a section of the same guide is replaced by its label.
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
