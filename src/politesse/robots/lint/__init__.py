"""Finds faults and risks of a robots.txt, from the results of ``lexer`` and ``document``. Pure.

::

    lines         checks the text, and each single line
    groups        checks which crawler obeys which group, and where other parsers end groups
    rules         finds rules that match no target, or never win
    disagreement  finds rules on which the dialects disagree
    diagnostics   has the codes, and the report

Time and memory are bounded. At most 500 KiB are read. A limited number of diagnostics is kept for each code. A check
that compares rules with each other stops after a fixed number of comparisons, and reports that it has stopped.
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
from politesse.robots.lint.groups import check_groups
from politesse.robots.lint.lines import Rows, check_lines, check_text
from politesse.robots.lint.rules import check_rules

if TYPE_CHECKING:
    from politesse.origin import Origin

__all__ = ["CODES", "MAX_OCTETS", "Code", "Diagnostic", "Severity", "lint"]

MAX_OCTETS: Final = 500 * 1024
"""How many octets of a file are read: every crawler has to read at least 500 KiB (RFC 9309 2.5)."""

_RULE = re.compile(rb"(?:^|[\r\n])[ \t]*(?:dis)?allow[ \t]*:", re.IGNORECASE)


def lint(
    body: bytes | str,
    dialect: Dialect = Dialect.RFC9309,
    *,
    origin: Origin | None = None,
    most_per_code: int = 100,
) -> list[Diagnostic]:
    r"""Report the faults of a robots.txt under ``dialect``, and lines that other parsers would misread.

    >>> [(found.line, found.code) for found in lint("User-agent: *\nDisallow: private")]
    [(2, 'no-leading-slash')]

    Args:
        body: the file.
        dialect: dialect of the file.
        origin: the origin of the file, as in ``RobotsTxt.parse``.
        most_per_code: the most diagnostics to return for each code; positive. If a file has or may have more
            diagnostics of a code, one more diagnostic with the code ``capped`` says so.

    Returns:
        Diagnostics in the order of the file. Never raises on content.
    """
    octets = octets_of(body) if isinstance(body, str) else body
    report = Report(most_per_code)
    head = octets if len(octets) <= MAX_OCTETS else cut_at_line_end(octets, MAX_OCTETS)
    text, _ = decode(head, None)
    rows = Rows(text, split_rows(text))
    if len(octets) > MAX_OCTETS:
        _report_rest(octets, len(head), len(rows), report)
    robots = RobotsTxt.parse(head, dialect, origin=origin)
    if Quirk.LOOKS_LIKE_HTML in robots.quirks:
        report.add("looks-like-html", "this is a web page, not a robots.txt: send text/plain, or status 404")
    if robots.groups or Quirk.LOOKS_LIKE_HTML not in robots.quirks:  # for a web page, further diagnostics are useless
        check_text(robots, rows, report)
        check_lines(robots, rows, report)
        check_groups(robots, rows, report)
        check_rules(robots, rows, report)
        check_disagreement(robots, rows, report, head)
    return report.finish(len(rows))


def _report_rest(octets: bytes, read: int, last_line: int, report: Report) -> None:
    # NULs are dropped, because in UTF-16 every other octet of ASCII text is NUL.
    rule = _RULE.search(b"\n" + octets[read:].replace(b"\0", b""))
    if rule is None:
        report.add("file-too-long", f"{len(octets)} octets; crawlers need not read what follows", last_line)
    else:
        report.add("rules-cut-off", f"rules follow that crawlers need not read: {len(octets)} octets", last_line)
