"""Where the command writes to."""

from __future__ import annotations

import io
import sys

from rich.console import Console
from rich.text import Text

_WIDTH_UNSEEN = 100  # of what nobody looks at, or looks at later; rich would fold it at 80
BROKEN_PIPE = 141
"""The exit code that a shell shows for a program that ended because nobody read its output: 128 and SIGPIPE."""


class _PipeConsole(Console):
    """A console that ends the program quietly where nobody reads any more."""

    def on_broken_pipe(self) -> None:
        """Leave as ``cat`` would."""
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
    """Return text that rich takes as it is: no markup, no emoji codes, whatever a remote server wrote."""
    return Text(text, style=style)


def abandon_output() -> None:
    """Forget what is still buffered: it could not be written, and trying again at exit would spoil the exit code."""
    sys.stdout = io.StringIO()


def _console(*, stderr: bool) -> Console:
    console = _PipeConsole(stderr=stderr)
    if not console.is_terminal:
        console.width = _WIDTH_UNSEEN
    return console
