"""The rules of an agent as texts, for a first question without tables: many sites get only one question.

A look at the text of each row finds those that may match a target. Most files have at most one. The texts are
packed: rows as they are read take more memory than the tables do.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Final

from politesse.robots.memory import flat, memory_of
from politesse.robots.pattern import is_plain_pattern
from politesse.robots.rule_table import bytes_of_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.robots.line import FieldRow

# A letter or digit after a slash is the same in every normal form of a pattern or a target.
_USUAL_STARTS: Final = frozenset(f"/{character}" for character in string.ascii_letters + string.digits)
_LENGTH: Final = len("/x")

# Rules wait for their tables only within these limits. At the limits, matching the wildcards takes less than a third
# of the budget of a decision. The second question builds the tables on the event loop, in at most 2 ms.
_MOST_ROWS: Final = 500
_MOST_OCTETS: Final = 16 * 1024
_MOST_SPECIAL_A_ROW: Final = 2
_MOST_PERCENT_SIGNS: Final = 50
_USUAL_OCTETS: Final = f"{string.ascii_letters}{string.digits}/._-?=&\n".encode()

# Estimates of the memory of a file's tables, fitted to generated files. Over all these files, the estimate is 1.2
# times the real memory. For the worst hostile files it is hardly below the real memory.
_FEW: Final = 8  # from here on, the patterns are packed
_TABLES_BYTES: Final = 540
_TABLES_BYTES_OF_FEW: Final = 320
_RULE_BYTES: Final = 8
_RULE_BYTES_OF_FEW: Final = 65
_WILDCARDS_BYTES: Final = 600
_SPECIAL_BYTES: Final = {"*": 320, "$": 115, "%": 200}


class WaitingRows:
    """Rows whose tables are not built yet.

    >>> from politesse.robots.line import FieldName
    >>> name = FieldName("Disallow", "disallow")
    >>> rows = WaitingRows([(1, name, "/a/b"), (2, name, "/c"), (3, name, "/*.pdf"), (4, name, "/")])
    >>> [number for number, _, _ in rows.that_may_match("/a/b?d")]
    [1, 4]

    Args:
        rows: in the order of the file.
    """

    __slots__ = ("_names", "_numbers", "_text")

    def __init__(self, rows: Sequence[FieldRow]) -> None:
        self._numbers = flat([row[0] for row in rows])
        self._names = tuple([row[1] for row in rows])
        self._text = "\n".join([row[2] for row in rows])

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
        names = bytes_of_names({id(name): name for name in self._names}.values())
        return (
            tables
            + _RULE_BYTES * rows
            + len(text)
            + special
            + names
            + (_WILDCARDS_BYTES if "*" in text or "%" in text else 0)
        )

    def rows(self) -> list[FieldRow]:
        """Return the rows."""
        return list(zip(self._numbers, self._names, self._text.split("\n"), strict=False))

    def that_may_match(self, target: str) -> list[FieldRow]:
        """Return the rows that may match a target: by their first letter, and by their literal pieces.

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
