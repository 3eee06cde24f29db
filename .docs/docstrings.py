"""Reads the docstrings of the package as Markdown: blocks after ``::``, and sessions of the interpreter."""

from __future__ import annotations

import ast
import re
from textwrap import dedent
from typing import Any, Final

import griffe

_BLOCK: Final = re.compile(r"^(?P<lead>.*?)::\n\n(?P<code>(?:(?: {4}.*)?\n)*(?: {4}.*(?:\n|\Z)))", re.MULTILINE)
_SESSION: Final = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
_PRIVATE: Final = re.compile(r"^_\w+(\.py|/)? ", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Converts each docstring before griffe parses its sections."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Convert the docstring of an object below the package."""
        _convert(obj)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Convert the docstring of the package itself."""
        _convert(pkg)


def _convert(obj: griffe.Object) -> None:
    if obj.docstring is not None:
        text = _SESSION.sub(r"```pycon\n\g<0>\n```", _BLOCK.sub(_fenced, obj.docstring.value))
        obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)


def _fenced(block: re.Match[str]) -> str:
    """Return a block as a fenced block, without its paragraphs about private modules."""
    paragraphs = dedent(block["code"]).strip("\n").split("\n\n")
    code = "\n\n".join(part for part in paragraphs if not _PRIVATE.search(part))
    if not code:
        return ""
    lead = block["lead"].rstrip()
    return f"{lead and lead + ':'}\n\n```{_language(code)}\n{code}\n```\n"


def _language(code: str) -> str:
    try:
        ast.parse(f"async def program():\n{re.sub('^', '    ', code, flags=re.MULTILINE)}")
    except SyntaxError:
        return "text"
    return "python"
