"""``politesse lint``: what is wrong with a robots.txt."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from politesse._text import printable
from politesse.cli.console import plain
from politesse.cli.gate_options import MAX_READ_BYTES, GateOptions, OneFetch, read_file
from politesse.errors import InvalidURL
from politesse.origin import Origin
from politesse.robots.lint import CODES, Severity, lint
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from politesse import Dialect

_URL = re.compile(r"https?://", re.IGNORECASE)
_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold"}


async def lint_all(
    options: GateOptions, sources: Sequence[str], dialect: Dialect, out: Console, err: Console, *, as_json: bool
) -> int:
    """Print what is wrong with files and sites in their order, and return the exit code.

    With ``as_json`` each diagnostic is one object on one line::

        file      as it was given; for a site the URL of its robots.txt
        line      from 1
        column    from 1, in characters
        severity  "error", "warning" or "note"
        code      as --codes lists it
        message   a sentence
    """
    counts: Counter[Severity] = Counter()
    unread = False
    for source in sources:
        try:
            name, body, origin = await _read(options, source, dialect)
        except (OSError, InvalidURL, _NoFileError) as error:
            err.print(plain(f"politesse: {printable(source)}: {printable(_reason(error))}", "red"), soft_wrap=True)
            unread = True
            continue
        for found in lint(body, dialect, origin=origin):
            counts[found.severity] += 1
            if as_json:
                out.print(plain(json.dumps({"file": name} | asdict(found))), soft_wrap=True)
                continue
            line = plain(f"{printable(name)}:{found.line}:{found.column}: ")
            line.append(f"{found.severity}:", _STYLES[found.severity])
            line.append(f" {found.message} [{found.code}]")
            out.print(line, soft_wrap=True)
    if not as_json:
        err.print(plain(", ".join(f"{severity}s: {counts[severity]}" for severity in Severity)))
    if unread:
        return 2
    return 1 if counts[Severity.ERROR] else 0


def print_codes(out: Console) -> None:
    """Print every code with its severity and meaning."""
    widest = max(map(len, CODES))
    for name, code in CODES.items():
        out.print(plain(f"{name:{widest}}  {code.severity:7}  {code.meaning}"), soft_wrap=True)


class _NoFileError(Exception):
    """The site has no readable robots.txt."""


async def _read(options: GateOptions, source: str, dialect: Dialect) -> tuple[str, bytes, Origin | None]:
    if _URL.match(source) is None:
        return source, read_file(source), None
    origin = Origin.of(source)
    fetch = OneFetch(options, max_body_bytes=MAX_READ_BYTES)
    async with options.gate(fetch, dialect) as gate:
        verdict = await gate.check(f"{origin}/")
    answer = verdict.source
    if answer is None or answer.result is not AccessResult.SUCCESSFUL:
        raise _NoFileError(verdict.explain().partition("reason: ")[2].partition("\n")[0])
    return origin.robots_url, fetch.body, origin


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
