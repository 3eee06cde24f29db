"""Logs that a queue is stalled: something waits, but for a minute no URL was put, handed out, done or refused.

Theory of operation. There is one timer, and only while something waits. It runs out a minute after the last progress,
or after the first wait since that; a progress moves the time, not the timer, which is set again when it runs out too
early. A stall is logged once: the timer is set again only after progress. So an idle queue costs nothing.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Final

from politesse._text import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import TracebackType

    from politesse.clock import Clock, Timer

_LOGGER: Final = logging.getLogger("politesse.queue")

_STALL_S: Final = 60.0
_MAX_NAMED: Final = 3
_MAX_SHOWN: Final = 200  # characters of a URL


class StallWatch:
    """Watches a queue while something waits in it: each wait is a ``with`` block.

    Args:
        clock: the gate's clock.
        describe: returns what the queue holds, and what waits.
    """

    __slots__ = ("_clock", "_describe", "_is_logged", "_since_mono", "_timer", "_waiting")

    def __init__(self, clock: Clock, describe: Callable[[], str]) -> None:
        self._clock = clock
        self._describe = describe
        self._waiting = 0
        self._since_mono: float | None = None
        self._timer: Timer | None = None
        self._is_logged = False

    def note_progress(self) -> None:
        """Count the time without progress from now on; from the next wait on if nothing waits."""
        self._is_logged = False
        self._since_mono = None
        if self._waiting:
            self._watch()

    def __enter__(self) -> None:
        self._waiting += 1
        self._watch()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._waiting -= 1
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        now_mono = self._clock.monotonic()
        if self._since_mono is None:
            self._since_mono = now_mono
        if self._timer is None and not self._is_logged:
            self._timer = self._clock.call_later(self._since_mono + _STALL_S - now_mono, self._look)

    def _look(self) -> None:
        self._timer = None
        now_mono = self._clock.monotonic()
        since_mono = now_mono if self._since_mono is None else self._since_mono
        if now_mono - since_mono < _STALL_S:
            self._watch()
            return
        self._is_logged = True
        if _LOGGER.isEnabledFor(logging.INFO):
            _LOGGER.info("no progress for %.0f s: %s", now_mono - since_mono, self._describe())


def named(names: Collection[str]) -> str:
    """Return up to three names in brackets, escaped and shortened; nothing if there are none.

    >>> named(["a.example", "b.example"])
    ' (a.example, b.example)'
    """
    shown = [shortened(name, _MAX_SHOWN) for name in islice(names, _MAX_NAMED)]
    more = ["..."] if len(names) > _MAX_NAMED else []
    return f" ({', '.join(shown + more)})" if shown else ""
