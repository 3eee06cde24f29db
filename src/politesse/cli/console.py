"""The consoles that the commands write to."""

from __future__ import annotations

import io
import sys

from rich.console import Console
from rich.text import Text

_WIDTH_UNSEEN = 100  # of output that is no terminal; rich would fold it at 80
BROKEN_PIPE = 141
"""The exit code that a shell shows for a program that ended because its output was closed: 128 and SIGPIPE."""


class _PipeConsole(Console):
    """A console that ends the program quietly when its output is closed."""

    def on_broken_pipe(self) -> None:
        """Exit as ``cat`` does."""
        self.quiet = True
        abandon_output()
        sys.exit(BROKEN_PIPE)


def output() -> Console:
    """Return a console on standard output."""
    return _console(stderr=False)


def errors() -> Console:
    """Return a console on standard error."""
    return _console(stderr=True)


def plain(text: str, style: str = "") -> Text:
    """Return text that rich prints literally: markup and emoji codes of a remote server have no effect."""
    return Text(text, style=style)


def abandon_output() -> None:
    """Drop the buffered output: it could not be written, and a second failure at exit would change the exit code."""
    sys.stdout = io.StringIO()


def _console(*, stderr: bool) -> Console:
    console = _PipeConsole(stderr=stderr)
    if not console.is_terminal:
        console.width = _WIDTH_UNSEEN
    return console
