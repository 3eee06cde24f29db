"""What is wrong with a robots.txt, or risky about it: a second consumer of lexer and document. Pure.

::

    lines         the text, and each line by itself
    groups        who obeys which group, and where others end one
    rules         rules that match nothing, or never win
    disagreement  rules on which the dialects disagree
    diagnostics   the codes, and what is told of each

Time and memory are bounded: at most 500 KiB are looked at, so many diagnostics of each code are kept, and what compares
rules with rules stops after a fixed number of comparisons and says so.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from politesse.robots.dialect import Dialect
from politesse.robots.document import RobotsTxt
from politesse.robots.lexer import cut_at_line_end, decode, octets_of, split_rows
from politesse.robots.line import Quirk
from politesse.robots.lint.diagnostics import CODES, Code, Diagnostic, Report, Severity
from politesse.robots.lint.disagreement import check_disagreement
from politesse.robots.lint.groups import check_groups, check_versions
from politesse.robots.lint.lines import Rows, check_lines, check_text
from politesse.robots.lint.rules import check_rules

if TYPE_CHECKING:
    from politesse.origin import Origin

__all__ = ["CODES", "MAX_OCTETS", "Code", "Diagnostic", "Severity", "lint"]

MAX_OCTETS: Final = 500 * 1024
"""How much of a file is looked at: what every crawler has to read (RFC 9309 2.5)."""

_RULE = re.compile(rb"(?:^|[\r\n])[ \t]*(?:dis)?allow[ \t]*:", re.IGNORECASE)


def lint(
    body: bytes | str,
    dialect: Dialect = Dialect.RFC9309,
    *,
    origin: Origin | None = None,
    most_per_code: int = 100,
) -> list[Diagnostic]:
    """Tell what is wrong with a robots.txt under ``dialect``, and what others would misread.

    Args:
        body: the file.
        dialect: how it is meant to be read.
        origin: the site that it speaks for, as in ``RobotsTxt.parse``.
        most_per_code: how many diagnostics of each code to return; positive. How many more there are, or that more were
            not looked for, the last ones tell, with the code ``capped``.

    Returns:
        Diagnostics in the order of the file. Never raises on content.
    """
    octets = octets_of(body) if isinstance(body, str) else body
    report = Report(most_per_code)
    head = octets if len(octets) <= MAX_OCTETS else cut_at_line_end(octets, MAX_OCTETS)
    text, _ = decode(head, None)
    rows = Rows(text, split_rows(text))
    if len(octets) > MAX_OCTETS:
        _tell_of_the_rest(octets, len(head), len(rows), report)
    robots = RobotsTxt.parse(head, dialect, origin=origin)
    if Quirk.LOOKS_LIKE_HTML in robots.quirks:
        report.add("looks-like-html", "this is a web page, not a robots.txt: send text/plain, or status 404")
    if robots.groups or Quirk.LOOKS_LIKE_HTML not in robots.quirks:  # what else is wrong with a web page helps nobody
        check_text(robots, rows, report)
        check_lines(robots, rows, report)
        check_groups(robots, rows, report)
        check_versions(robots, rows, report, head)
        check_rules(robots, rows, report)
        check_disagreement(robots, rows, report, head)
    return report.finish(len(rows))


def _tell_of_the_rest(octets: bytes, read: int, last_line: int, report: Report) -> None:
    # Of UTF-16, every other octet is a NUL.
    rule = _RULE.search(b"\n" + octets[read:].replace(b"\0", b""))
    if rule is None:
        report.add("file-too-long", f"{len(octets)} octets; crawlers need not read what follows", last_line)
    else:
        report.add("rules-cut-off", f"rules follow that crawlers need not read: {len(octets)} octets", last_line)
