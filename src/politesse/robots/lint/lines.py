"""Checks single lines, and the file as text."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from politesse._base.text import BLANKS
from politesse.robots.agents import EVERYBODY
from politesse.robots.dialect import Dialect
from politesse.robots.lexer import CONTROL_IN_ROW, split_rows
from politesse.robots.line import Line, Quirk
from politesse.robots.lint.diagnostics import Report, shown

if TYPE_CHECKING:
    from politesse.robots.document import RobotsTxt

_BOM: Final = "\ufeff"
_NO_BREAK_SPACE = re.compile("[\u00a0\udca0]")
_NOT_UTF_8 = re.compile("[\udc80-\udcff\ufffd]")
_ODD_LINE_END = re.compile("[\x85\u2028\u2029]")
_BARE_CR = re.compile(r"\r(?!\n|\Z)")
_RESERVED_ESCAPE = re.compile(r"%(?:24|26|2[AaFf])")
_URL = re.compile(r"https?://[^/?#\s]", re.IGNORECASE)
_MAX_YANDEX_CHARACTERS: Final = 1_024
_MAX_YANDEX_RULES: Final = 2_048

# Fields that some crawlers read, or that were once proposed. They do not count as misspellings of other fields.
_FOREIGN_FIELDS: Final = frozenset(
    {"cache-delay", "clean-param", "host", "indexpage", "noarchive", "nofollow", "noindex", "request-delay"}
)
_EVERY_FIELD: Final = frozenset().union(*(dialect.traits.syntax.fields for dialect in Dialect))
_MAX_NAME: Final = 30
_MAX_NAMES: Final = 5_000
_ALIKE: Final = 0.75


class Rows:
    """The rows of a file as written, to find the columns of diagnostics."""

    def __init__(self, text: str, rows: list[str]) -> None:
        self.text = text
        self.all = rows

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, number: int) -> str:
        """Return the row of a line, counted from 1."""
        return self.all[number - 1]

    def of_name(self, line: Line) -> int:
        """Return the column of the field name."""
        row = self[line.number]
        return len(row) - len(row.lstrip(BLANKS)) + 1

    def of_value(self, line: Line) -> int:
        """Return the column at which the value starts; for an empty value, the column after the colon."""
        row = self[line.number].partition("#")[0]
        name, colon, value = row.partition(":")
        if not colon:
            return row.find(line.value, self.of_name(line) - 1 + len(line.name)) + 1
        return len(name) + 2 + (len(value) - len(value.lstrip(BLANKS)) if line.value else 0)

    def of_first(self, pattern: re.Pattern[str], line: Line) -> int | None:
        """Return the column of the first match before the comment, or None."""
        row = self[line.number]
        matched = pattern.search(row, 0, row.index("#") if "#" in row else len(row))
        return None if matched is None else matched.start() + 1


def check_text(robots: RobotsTxt, rows: Rows, report: Report) -> None:
    """Report lines that other parsers misread because of the encoding or the line ends."""
    if Quirk.BYTE_ORDER_MARK in robots.quirks:
        report.add("byte-order-mark", "the file starts with a byte order mark; some parsers do not see the first line")
    if Quirk.TRANSCODED in robots.quirks:
        report.add("transcoded", "the file is UTF-16 or UTF-32; save it as UTF-8, others read nothing of it")
    if (matched := _BARE_CR.search(rows.text)) is not None:
        number = len(split_rows(rows.text[: matched.start()]))
        report.add("bare-cr", "the line ends at a CR without LF; some parsers read on", number, len(rows[number]) + 1)
    if _ODD_LINE_END.search(rows.text) is not None:
        for number in range(1, len(rows) + 1):
            for odd in _ODD_LINE_END.finditer(rows[number]):
                message = f"U+{ord(odd[0]):04X} does not end the line; some parsers end it here"
                report.add("odd-line-end", message, number, odd.start() + 1)


def check_lines(robots: RobotsTxt, rows: Rows, report: Report) -> None:
    """Report the faults of each single line."""
    fields = _Fields(robots, report)
    rules = robots.dialect.traits.grouping.rules
    for line in robots.lines:
        _check_characters(line, rows, report)
        for quirk in line.quirks:
            _report_quirk(quirk, line, rows, report)
        if Quirk.NO_SEPARATOR in line.quirks or line.field not in fields.known:
            fields.report_unknown(line, rows)
        elif line.field == "user-agent":
            _check_name(robots, line, rows, report)
        elif line.field in rules:
            _check_path(line, rows, report)
        elif line.field == "sitemap" and _URL.match(line.value) is None:
            message = f"{shown(line.value)} is no absolute URL; crawlers need not resolve it"
            report.add("relative-sitemap", message, line.number, rows.of_value(line))
    if fields.left_out:
        report.give_up("lost-line", f"only the first {_MAX_NAMES} unknown names were compared with those of fields")
    paths = [line for line in robots.lines if line.field in rules and line.value]
    if len(paths) > _MAX_YANDEX_RULES:
        over = paths[_MAX_YANDEX_RULES]
        message = f"the first of {len(paths) - _MAX_YANDEX_RULES} rules that Yandex does not read"
        report.add("too-many-rules", message, over.number, rows.of_name(over))


def _check_characters(line: Line, rows: Rows, report: Report) -> None:
    row = rows[line.number]
    if row.isascii():
        return
    if (column := rows.of_first(_NOT_UTF_8, line)) is not None:
        message = f"{shown(row[column - 1 :])} is not UTF-8 from here on; no URL of a browser holds such octets"
        report.add("not-utf-8", message, line.number, column)
    if _BOM in row.partition("#")[0]:
        if line.name.replace(_BOM, "") or line.value:
            message = "a byte order mark; parsers that take it for text lose the line"
            report.add("mid-file-bom", message, line.number, row.index(_BOM) + 1)
    elif Quirk.ODD_BLANK in line.quirks and (column := rows.of_first(_NO_BREAK_SPACE, line)) is not None:
        message = "a no-break space is read as a blank; parsers that take it for text lose the line"
        report.add("odd-blank", message, line.number, column)


def _report_quirk(quirk: Quirk, line: Line, rows: Rows, report: Report) -> None:
    words = _WORDS.get(quirk)
    if words is None:
        return  # another check reports this quirk, or it is reported for the whole file
    code, at_value, message = words
    column = rows.of_value(line) if at_value else rows.of_name(line)
    if quirk is Quirk.CONTROL_CHARACTER:
        column = rows.of_first(CONTROL_IN_ROW, line) or column
    message = message.format(field=line.field, name=shown(line.name), value=shown(line.value))
    if quirk is Quirk.NO_LEADING_SLASH and _URL.match(line.value) is not None:
        message = f"{shown(line.value)} is a URL; give its path only, from the slash on"
    report.add(code, message, line.number, column)


# Maps a quirk to the code, to whether the diagnostic points to the value, and to the message.
_WORDS: Final[dict[Quirk, tuple[str, bool, str]]] = {
    Quirk.MISSPELLED_FIELD: ("misspelled-field", False, "{name} is read as {field}; other parsers ignore the line"),
    Quirk.MISSING_COLON: ("missing-colon", True, "no colon behind {name}; other parsers ignore the line"),
    Quirk.CONTROL_CHARACTER: ("control-character", False, "a control character: the line is ignored"),
    Quirk.BEFORE_ANY_GROUP: ("before-any-group", False, "{field} before the first user-agent line is nobody's"),
    Quirk.OUTSIDE_GROUP: ("outside-group", False, "{field} behind the blank line that ended its group is nobody's"),
    Quirk.NO_LEADING_SLASH: ("no-leading-slash", True, "{value} matches nothing; a path starts with a slash"),
    Quirk.EMPTY_ALLOW: ("empty-allow", True, "an Allow without a path says nothing; to allow everything, write /"),
    Quirk.NAMES_NOBODY: ("names-nobody", True, "{value} has no product token; what follows binds nobody by it"),
    Quirk.INVALID_VALUE: ("invalid-value", True, "{value} is no value of {field}; the line is ignored"),
    Quirk.MISPLACED_VERSION: (
        "misplaced-version",
        False,
        "a Robot-version follows user-agent lines at once: ignored",
    ),
    Quirk.LINE_CUT: ("line-cut", False, "the line is longer than this dialect reads, the rest of it is lost"),
}


class _Fields:
    """Reports fields that the dialect does not read, and suggests known fields with a similar name."""

    def __init__(self, robots: RobotsTxt, report: Report) -> None:
        self.known = robots.dialect.traits.syntax.fields
        self._dialect = robots.dialect
        self._needed = robots.dialect.traits.grouping.rules | {"user-agent"}
        self._report = report
        self._alike: dict[str, str | None] = {}
        self.left_out = False

    def report_unknown(self, line: Line, rows: Rows) -> None:
        """Report a line that the dialect does not read, with the field that was probably meant."""
        found = self._found(line)
        if found is not None:
            self._report.add(*found, line.number, rows.of_name(line))

    def _found(self, line: Line) -> tuple[str, str] | None:
        """Return the code and the message, or None for a row that is only a byte order mark."""
        name = shown(line.name)
        if not line.field:
            word, _, value = line.name.replace("\t", " ").lower().partition(" ")
            # The value must look like a path, because "allow robots to come in" is prose.
            if value.strip().startswith(("/", EVERYBODY)) and (meant := self._meant(word)) in self._needed:
                return "lost-line", f"{name} has no colon, and is not read as {meant}"
            return ("no-separator", f"{name} says nothing: it has no colon") if line.name.strip(_BOM) else None
        if line.field in _EVERY_FIELD:
            return "other-dialect", f"{line.field} means nothing in the dialect {self._dialect.value}"
        if line.field in _FOREIGN_FIELDS:
            return "foreign-field", f"{line.field} is read by some crawlers only"
        meant = self._meant(line.field)
        if meant in self._needed:
            return "lost-line", f"{name} is not read; did you mean {meant}?"
        hint = "" if meant is None else f"; did you mean {meant}?"
        return "unknown-field", f"{name} is no field that is known{hint}"

    def _meant(self, name: str) -> str | None:
        if name not in self._alike:
            if len(self._alike) >= _MAX_NAMES:
                self.left_out = True
                return None
            self._alike[name] = _most_alike(name, self.known)
        return self._alike[name]


def _most_alike(name: str, fields: frozenset[str]) -> str | None:
    plain = re.sub(r"[\s_-]+", "-", name.strip(f"{_BOM} \t-"))
    if len(plain) > _MAX_NAME:
        return None
    close = get_close_matches(plain, sorted(fields), n=1, cutoff=_ALIKE)
    return close[0] if close else None


def _check_name(robots: RobotsTxt, line: Line, rows: Rows, report: Report) -> None:
    name = robots.dialect.traits.grouping.name(line.value)
    if name and name != line.value.lower():
        whose = "everybody" if name == EVERYBODY else shown(name)
        report.add("name-cut", f"{shown(line.value)} is read as {whose}", line.number, rows.of_value(line))


def _check_path(line: Line, rows: Rows, report: Report) -> None:
    row, column = rows[line.number], rows.of_value(line)
    path, hash_sign, _ = row.partition("#")
    if hash_sign and line.value and path[-1:] not in BLANKS:
        message = f"the path ends before the #, at {shown(line.value)}; a # in a path is %23"
        report.add("comment-in-path", message, line.number, len(path) + 1)
    for blank in BLANKS:
        if blank in line.value:
            message = f"{shown(line.value)} is one path with a blank inside; write %20, or one path on a line"
            report.add("blank-in-path", message, line.number, column + line.value.index(blank))
            break
    if (escape := _RESERVED_ESCAPE.search(line.value)) is not None:
        message = f"{escape[0]} is not {chr(int(escape[0][1:], 16))}, and some parsers take it for that"
        report.add("escaped-reserved", message, line.number, column + escape.start())
    if len(line.value) > _MAX_YANDEX_CHARACTERS:
        report.add("long-rule", f"a path of {len(line.value)} characters; Yandex reads 1,024", line.number, column)
