"""Remote text, made fit for a terminal or a log."""

from __future__ import annotations

import re
import traceback
from typing import Final

BLANKS: Final = " \t"
"""SP and HTAB: the only blanks of RFC 9309 2.2 and RFC 9110 5.6.3."""

CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
"""A control character of ASCII."""


def printable(text: str) -> str:
    """Return remote text with every character escaped that could steer a terminal or forge a log line.

    RFC 9309 3: what a robots.txt says is untrusted.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def printable_traceback(error: BaseException) -> str:
    """Return the traceback of ``error`` fit for a log, instead of ``exc_info``, which shows its words as they are.

    They may be remote text. Each line is indented, so that none can pass for a log line of its own.
    """
    lines = "".join(traceback.format_exception(error)).split("\n")
    return "\n".join(f"  {printable(line)}" for line in lines if line)
