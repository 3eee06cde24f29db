"""Which rows may match a target: a look at the text of each, for a question before tables are built."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Final

from politesse._text import BLANKS
from politesse.robots.pattern import is_plain_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.robots.line import FieldRow

# A letter or digit behind a slash stands for itself in every normal form, that of a pattern and that of a target.
_USUAL_STARTS: Final = frozenset(f" /{character}" for character in string.ascii_letters + string.digits)
_LENGTH: Final = len(" /x")


def rows_that_may_match(rows: Sequence[FieldRow], target: str) -> list[FieldRow]:
    """Return the rows but those that start with a slash and another letter than the target, or hold what it does not.

    >>> from politesse.robots.line import FieldName
    >>> name = FieldName("Disallow", "disallow")
    >>> rows = [(1, name, " /a/b"), (2, name, " /c"), (3, name, " /*.pdf"), (4, name, " /")]
    >>> [number for number, _, _ in rows_that_may_match(rows, "/a/b?d")]
    [1, 4]
    """
    own = f" {target[:2]}"
    few = [row for row in rows if (start := row[2][:_LENGTH]) not in _USUAL_STARTS or start == own]
    return [row for row in few if _may_match(row[2].strip(BLANKS), target)]


def _may_match(value: str, target: str) -> bool:
    """Whether a target in normal form holds all literal pieces of a pattern; True if that is not in normal form."""
    if is_plain_pattern(value) is None:
        return True
    return all(piece in target for piece in value.removesuffix("$").split("*"))
