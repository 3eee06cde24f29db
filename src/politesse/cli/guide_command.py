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
from typing import TYPE_CHECKING, Final

from politesse.cli.console import plain, say
from politesse.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console

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
    "signing",
    "metrics",
)
"""The guides in the order for a newcomer."""

_LESS: Final = "FRX"  # git's options for less: a short text is not paged, and the text stays on the screen
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
    """Print a guide as Markdown, in a pager if it is longer than the screen of a terminal.

    Raises:
        ConfigurationError: no guide has that name.
    """
    if topic not in TOPICS:
        similar = " or ".join(difflib.get_close_matches(topic.lower(), TOPICS))
        nearest = f"Did you mean {similar}? " if similar else ""
        raise ConfigurationError(f"There is no guide {topic!r}. {nearest}`politesse guide` lists all topics.")
    text = _with_commands(_read(topic))
    command = shlex.split(os.environ.get("PAGER") or "less")
    fits = text.count("\n") < out.height
    if fits or not out.is_terminal or out.is_dumb_terminal or shutil.which(command[0]) is None:
        out.print(plain(text), soft_wrap=True, end="")
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
