"""The rules of one agent as texts, for a first question before tables are built: many sites are asked about once.

A look at the text of each row finds those that may match a target. In most files there is none, or one. The texts are
packed: rows as they are read take more memory than the tables do.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Final

from politesse._memory import memory_of
from politesse._text import BLANKS
from politesse.robots.pattern import is_plain_pattern
from politesse.robots.prefixes import flat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.robots.line import FieldRow

# A letter or digit behind a slash stands for itself in every normal form, that of a pattern and that of a target.
_USUAL_STARTS: Final = frozenset(f"/{character}" for character in string.ascii_letters + string.digits)
_LENGTH: Final = len("/x")

# Only rules within these wait. At these, their wildcards take less than a third of the budget of a decision, and their
# tables, which a second question builds on the event loop, at most 2 ms.
_MOST_ROWS: Final = 500
_MOST_OCTETS: Final = 16 * 1024
_MOST_SPECIAL_A_ROW: Final = 2
_MOST_PERCENT_SIGNS: Final = 50
_USUAL_OCTETS: Final = f"{string.ascii_letters}{string.digits}/._-?=&\n".encode()

# What the tables of a file will take, fitted to those of 570 real files: 0.85 to 2.4 times as much, 1.13 times all
# together; 0.6 times for the worst of hostile files.
_FEW: Final = 8  # from here on, the patterns are packed
_TABLES_BYTES: Final = 540
_TABLES_BYTES_OF_FEW: Final = 320
_RULE_BYTES: Final = 8
_RULE_BYTES_OF_FEW: Final = 65
_WILDCARDS_BYTES: Final = 600
_SPECIAL_BYTES: Final = {"*": 100, "$": 75, "%": 90}


class WaitingRows:
    """Rows whose tables are not built yet.

    >>> from politesse.robots.line import FieldName
    >>> name = FieldName("Disallow", "disallow")
    >>> rows = WaitingRows([(1, name, " /a/b"), (2, name, " /c"), (3, name, " /*.pdf"), (4, name, " /")])
    >>> [number for number, _, _ in rows.that_may_match("/a/b?d")]
    [1, 4]

    Args:
        rows: in the order of the file.
    """

    __slots__ = ("_names", "_numbers", "_text")

    def __init__(self, rows: Sequence[FieldRow]) -> None:
        self._numbers = flat([row[0] for row in rows])
        self._names = tuple([row[1] for row in rows])
        self._text = "\n".join([row[2].strip(BLANKS) for row in rows])

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def may_wait(self) -> bool:
        """Whether a first question needs no tables: the rules are not too many, and of the usual kinds."""
        rows, text = len(self), self._text
        if rows > _MOST_ROWS or len(text) > _MOST_OCTETS or not text.isascii() or text.count("%") > _MOST_PERCENT_SIGNS:
            return False
        return len(text.encode().translate(None, _USUAL_OCTETS)) <= _MOST_SPECIAL_A_ROW * rows

    @property
    def weight_bytes(self) -> int:
        """Approximate memory that the rules take, the tables that a second question builds included."""
        rows, text = len(self), self._text
        if not rows:
            return memory_of((self,))
        tables = _TABLES_BYTES if rows >= _FEW else _TABLES_BYTES_OF_FEW + _RULE_BYTES_OF_FEW * rows
        special = sum([each * text.count(character) for character, each in _SPECIAL_BYTES.items()])
        return tables + _RULE_BYTES * rows + len(text) + special + (_WILDCARDS_BYTES if "*" in text else 0)

    def rows(self) -> list[FieldRow]:
        """Return the rows."""
        return list(zip(self._numbers, self._names, self._text.split("\n"), strict=False))

    def that_may_match(self, target: str) -> list[FieldRow]:
        """Return the rows but those that start with another letter than a target, or hold what it does not.

        The target is in normal form.
        """
        own = target[:_LENGTH]
        return [
            (self._numbers[place], self._names[place], value)
            for place, value in enumerate(self._text.split("\n"))
            if value and ((start := value[:_LENGTH]) not in _USUAL_STARTS or start == own) and _may_match(value, target)
        ]


def _may_match(value: str, target: str) -> bool:
    """Whether a target in normal form holds all literal pieces of a pattern; True if that is not in normal form."""
    return is_plain_pattern(value) is None or all(piece in target for piece in value.removesuffix("$").split("*"))
