"""Counts the work of a piece of code: the calls of functions of politesse that it makes, never seconds.

A call is counted when a function starts, and when a coroutine or a generator goes on. Comprehensions do not count,
because they are functions of their own in Python 3.11 only. Functions of other packages, builtins and
``politesse.testing`` do not count either. So the numbers are the same on every machine and every supported Python.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import politesse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_PACKAGE = str(Path(politesse.__file__).parent)
_TESTING = str(Path(_PACKAGE, "testing"))
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Count the calls that this thread makes while the block runs, by function."""
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_ours = code.co_filename.startswith(_PACKAGE) and not code.co_filename.startswith(_TESTING)
        if event == "call" and is_ours and code.co_name not in _COMPREHENSIONS:
            calls[code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def assert_work(calls: Counter[str], operations: int, *, calls_each: int) -> None:
    """Assert that each of several operations has made about ``calls_each`` calls: half as many more is too much.

    Far fewer are too few as well: then the number has to be lowered, or it would let the work double unnoticed.
    """
    each = calls.total() / operations
    most = "\n".join(f"{number / operations:6.2f} {name}" for name, number in calls.most_common(40))
    assert 0.67 * calls_each < each < 1.5 * calls_each, f"{each:.1f} calls each, where {calls_each} are known:\n{most}"
