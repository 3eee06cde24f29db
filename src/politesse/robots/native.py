"""Reads files by the compiled core (``politesse._native``), if it is built and serves their dialect.

The core finds the rows. Their groups and directives are read as the reference reads them, in which a run of rules
stands as one row. The core compiles the rules of a crawler from such runs.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from politesse._native import core
from politesse.origin import MAX_URL_LENGTH
from politesse.robots import budget
from politesse.robots.lexer import drop_odd_blanks, octets_of, split_rows
from politesse.robots.line import FieldName
from politesse.robots.outline import Outline
from politesse.robots.pattern import PLAIN, match_form
from politesse.robots.rule_sets.native import NativeRuleSet
from politesse.robots.rule_table import ALLOW

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from politesse._native import _core
    from politesse.robots.dialect import Dialect, Traits
    from politesse.robots.line import FieldRow
    from politesse.robots.rule_sets.base import Directives
    from politesse.robots.traits import Syntax

IMPLEMENTATION: Final = "python" if core is None else "native"
"""``native`` if the compiled core decides, in the dialects that it serves; else ``python``."""

_RULES: Final = FieldName("", "disallow")
_FIELD, _ALLOW, _DISALLOW = 1, 2, 3  # as in _native/scan.h


class NativeFile:
    """A file that the compiled core reads.

    Args:
        file: its rows.
        traits: of its dialect.

    Attributes:
        outline: its groups. A row of its rules stands for a run of rules.
    """

    def __init__(self, file: _core.File, traits: Traits) -> None:
        self._file = file
        self._traits = traits
        rows = file.rows()
        control = [line for line, _, _, has_control in rows if has_control]
        self.outline = Outline(traits.syntax, traits.grouping, control)
        self.outline.read(_fields(rows, traits.syntax))

    def rule_set(self, rows: Sequence[FieldRow], directives: Directives) -> NativeRuleSet:
        """Return the rules in some rows of the outline."""
        return NativeRuleSet(self._file.rules([row[0] for row in rows]), directives, self._traits.matching)


def native_file(octets: bytes, dialect: Dialect) -> NativeFile | None:
    """Return a file as the compiled core reads it, or None if it does not serve the dialect."""
    made = _dialect(dialect)
    return None if made is None else NativeFile(made.scan(_plain(octets, dialect.traits.syntax)), dialect.traits)


def _fields(rows: list[tuple[int, str | None, str, bool]], syntax: Syntax) -> Iterator[FieldRow]:
    usual = syntax.usual_names
    for line, spelling, value, _ in rows:
        yield line, _RULES if spelling is None else usual.get(spelling) or syntax.name_of(spelling), value


def _plain(octets: bytes, syntax: Syntax) -> bytes:
    """Return a file with its odd blanks as spaces. Few files have any."""
    if not syntax.odd_blanks or (b"\xa0" not in octets and b"\xef\xbb\xbf" not in octets):
        return octets
    text = octets.decode("utf-8", "surrogateescape")
    rows = split_rows(text)
    return octets_of("\n".join(rows)) if drop_odd_blanks(text, rows, syntax) else octets


@cache
def _dialect(dialect: Dialect) -> _core.Dialect | None:
    """Return a dialect for the compiled core, from the tables of the reference."""
    matching, syntax, form = dialect.traits.matching, dialect.traits.syntax, dialect.traits.matching.form
    if core is None or form is None:
        return None

    def forms_of(value: str) -> tuple[str, str]:
        pattern = matching.normalise_pattern(value)
        return pattern, match_form(pattern)

    names = dict.fromkeys(syntax.fields, "") | dict(syntax.misspelled_fields)
    made: _core.Dialect = core.Dialect(
        plain=_table(PLAIN),
        kept=_table(form.kept),
        decoded_in_path=_table(form.decoded_in_path),
        decoded_in_query=_table(form.decoded_in_query),
        query_as_written=form.query_as_written,
        escaped_dots=form.escaped_dots,
        most_octets=MAX_URL_LENGTH,
        work=budget.WORK,
        names=tuple((name, _kind(field or name)) for name, field in names.items()),
        starts=tuple((start, _kind(field)) for start, field in syntax.field_starts.items()),
        missing_colon=syntax.missing_colon,
        most_line_octets=syntax.max_line_octets or 0,
        forms_of=forms_of,
        implied_allow=matching.implied_allow,
    )
    return made


def _table(octets: Collection[int]) -> bytes:
    return bytes(octet in octets for octet in range(256))


def _kind(field: str) -> int:
    return {ALLOW: _ALLOW, "disallow": _DISALLOW}.get(field, _FIELD)
