"""Remote text, made fit for a terminal or a log."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return remote text with every character escaped that could steer a terminal or forge a log line.

    RFC 9309 3: what a robots.txt says is untrusted.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
