"""The codes of diagnostics, and a report that keeps a limited number of diagnostics for each code."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from politesse._base.text import printable

_MAX_QUOTED: Final = 80  # a quoted text is cut to this many characters


class Severity(StrEnum):
    """How serious a finding is."""

    ERROR = "error"
    """The file has another effect than its text suggests."""
    WARNING = "warning"
    """The file has the expected effect, but at a risk, or other parsers read it differently."""
    NOTE = "note"
    """The finding may be useful to know."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding.

    Attributes:
        line: line number, from 1.
        column: the column in characters, from 1; each octet that is not UTF-8 counts as a character.
        severity: severity of the code.
        code: one of CODES; codes do not change between releases.
        message: a sentence, in which text of the file is quoted, cut and made printable.
    """

    line: int
    column: int
    severity: Severity
    code: str
    message: str


class Code(NamedTuple):
    """The meaning of a code.

    Attributes:
        severity: how serious the finding is.
        meaning: the finding, as a sentence.
    """

    severity: Severity
    meaning: str


_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

CODES: Final[dict[str, Code]] = {
    # The file as a whole.
    "looks-like-html": Code(_ERROR, "The file is a web page."),
    "rules-cut-off": Code(_ERROR, "Rules stand beyond 500 KiB, which crawlers need not read (RFC 9309 2.5)."),
    "file-too-long": Code(_WARNING, "The file is longer than 500 KiB; no rule was found beyond."),
    "byte-order-mark": Code(_WARNING, "The file starts with a byte order mark, which some parsers take for text."),
    "transcoded": Code(_WARNING, "The file is UTF-16 or UTF-32; it has to be UTF-8 (RFC 9309 2.2)."),
    "bare-cr": Code(_WARNING, "A line ends at a CR without LF, which some parsers do not see."),
    "odd-line-end": Code(_WARNING, "NEL, U+2028 or U+2029, at which some parsers end the line; it does not end here."),
    "too-many-rules": Code(_WARNING, "More than 2,048 rules; Yandex reads no more."),
    # Lines.
    "mid-file-bom": Code(_ERROR, "A byte order mark in the middle of the file; most parsers lose its line."),
    "odd-blank": Code(_WARNING, "A no-break space around a field or value; most parsers lose the line."),
    "not-utf-8": Code(_ERROR, "Octets that are not UTF-8, or were lost in a conversion: no browser sends them."),
    "control-character": Code(_ERROR, "A control character: the line binds nobody."),
    "lost-line": Code(_ERROR, "A line that was probably meant as a rule or user-agent line is not read as one."),
    "before-any-group": Code(_ERROR, "A rule or directive before the first user-agent line: nobody's."),
    "outside-group": Code(_ERROR, "A rule or directive behind a blank line that ended its record: nobody's."),
    "names-nobody": Code(_ERROR, "A user-agent line without a product token."),
    "invalid-value": Code(_ERROR, "A directive with an invalid value: ignored."),
    "misplaced-version": Code(_ERROR, "A Robot-version that does not follow the user-agent lines at once: ignored."),
    "line-cut": Code(_ERROR, "A line that is longer than the dialect reads; the rest of it is lost."),
    "no-leading-slash": Code(_ERROR, "A path that starts with neither / nor, where there are wildcards, *: no match."),
    "matches-nothing": Code(_ERROR, "A rule that can match no URL in this dialect."),
    "misspelled-field": Code(_WARNING, "A misspelled field that is read as the right one; others may not."),
    "missing-colon": Code(_WARNING, "A line without a colon, read as if it were there; others do not."),
    "no-separator": Code(_WARNING, "A line without a colon: it says nothing."),
    "unknown-field": Code(_WARNING, "A field that nobody is known to read."),
    "other-dialect": Code(_WARNING, "A field that other dialects read, and this one does not."),
    "foreign-field": Code(_NOTE, "A field that some crawlers read, and none of the dialects here."),
    "empty-allow": Code(_WARNING, "An Allow without a path: it says nothing."),
    "name-cut": Code(_WARNING, "A user-agent line of which only the first part is read."),
    "comment-in-path": Code(_WARNING, "A # right behind a path: the path ends there; to match #, write %23."),
    "blank-in-path": Code(_WARNING, "A path with a blank inside: one path, not two, and some parsers cut it."),
    "escaped-reserved": Code(_WARNING, "%24, %26, %2A or %2F, which some parsers take for $, &, * and /."),
    "long-rule": Code(_WARNING, "A path of more than 1,024 characters; Yandex does not read it."),
    "relative-sitemap": Code(_WARNING, "A Sitemap that is no absolute http(s) URL."),
    # Groups.
    "group-ignored": Code(_ERROR, "A group for a crawler that obeys another one instead."),
    "several-star-groups": Code(_WARNING, "A further group for everybody; merged here, others obey the first only."),
    "several-groups": Code(_WARNING, "A further group for the same crawler; merged here, others obey the first only."),
    "empty-group": Code(_WARNING, "A group without rules: the crawlers named there may request everything."),
    "blank-line-in-group": Code(_WARNING, "A blank line inside a group; some parsers end the group there."),
    "field-between-agents": Code(_WARNING, "Another field between user-agent lines; some parsers split the group."),
    # Rules.
    "never-wins": Code(_WARNING, "A rule that never decides: wherever it matches, another one goes before it."),
    "dialects-disagree": Code(_WARNING, "A rule on which dialects disagree, with a path on which they do."),
    # Lint itself.
    "capped": Code(_NOTE, "There may be more than was looked for or listed."),
}
"""All codes."""


def shown(text: str) -> str:
    """Return text of the file for a message: quoted, printable, and cut."""
    cut = printable(text[:_MAX_QUOTED])
    return f'"{cut}"' if len(text) <= _MAX_QUOTED else f'"{cut}..."'


class Report:
    """Collects diagnostics up to a limit for each code, and counts the diagnostics beyond the limit.

    Args:
        most: number of diagnostics to keep for each code; positive.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: list[Diagnostic] = []
        self._count: Counter[str] = Counter()
        self._given_up: dict[str, str] = {}

    def add(self, code: str, message: str, line: int = 1, column: int = 1) -> None:
        """Add one diagnostic, unless its code has reached the limit."""
        self._count[code] += 1
        if self._count[code] <= self._most:
            self._found.append(Diagnostic(line, column, CODES[code].severity, code, message))

    def is_full(self, code: str) -> bool:
        """Whether ``code`` has reached the limit, so that further checks are useless."""
        return self._count[code] >= self._most

    def give_up(self, code: str, why: str) -> None:
        """Record that the check for ``code`` has stopped early."""
        self._given_up[code] = why

    def finish(self, last_line: int) -> list[Diagnostic]:
        """Return all diagnostics in the order of the file, followed by notes on missing diagnostics."""
        found = sorted(self._found, key=lambda one: (one.line, one.column))
        for code, count in self._count.items():
            if count > self._most:
                found.append(_capped(last_line, f"{count - self._most} more of {code} are not listed"))
        found += [_capped(last_line, f"{code}: {why}") for code, why in self._given_up.items()]
        return found


def _capped(line: int, message: str) -> Diagnostic:
    return Diagnostic(line, 1, CODES["capped"].severity, "capped", message)
