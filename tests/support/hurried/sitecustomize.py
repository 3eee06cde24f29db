"""Lets a Python process live faster than the machine: it waits less, and sees the seconds that it would have waited.

Python imports this module when it starts, if its folder is in PYTHONPATH. All processes that share the environment
share the clocks, so a time that one of them stores is in no other's future.
"""

from __future__ import annotations

import os
import selectors
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_RATE = float(os.environ["HURRIED_RATE"])
_sleep, _select = time.sleep, selectors.DefaultSelector.select


def _faster(clock: Callable[[], float], start: float) -> Callable[[], float]:
    return lambda: start + _RATE * (clock() - start)


def _hurried_sleep(seconds: float) -> None:
    _sleep(seconds / _RATE)


def _hurried_select(
    selector: selectors.DefaultSelector, timeout: float | None = None
) -> list[tuple[selectors.SelectorKey, int]]:
    return _select(selector, None if timeout is None else timeout / _RATE)


time.time = _faster(time.time, float(os.environ["HURRIED_WALL"]))
time.monotonic = _faster(time.monotonic, float(os.environ["HURRIED_MONO"]))
time.sleep = _hurried_sleep  # type: ignore[assignment]  # it is called with floats
selectors.DefaultSelector.select = _hurried_select  # type: ignore[assignment, method-assign]  # event loops wait in it
