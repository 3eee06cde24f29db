"""SIGINT and SIGTERM: the first one ends the work in order, a second one at once.

Theory of operation. The handlers are those of the module ``signal``, which run even while a handler of a page keeps the
event loop busy. If the program has handlers of the event loop for the same signals, the loop would call these as well,
so they are set aside during the block. Another thread may get a signal, as that of a journal. Python then calls the
handler only when the main thread runs, so each signal wakes the event loop.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from politesse._base.tasks import signal_handlers
from politesse.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from types import FrameType

_SIGNALS: Final[tuple[int, ...]] = (signal.SIGINT, signal.SIGTERM)
_ECHO_S: Final = 0.2  # programs such as timeout send SIGINT again after the terminal's; within this time it is ignored


@dataclass(eq=False, repr=False)
class SignalStop:
    """Ends the work of a block at SIGINT or SIGTERM.

    The first signal of the block also counts as the first signal of an outer block with an ``end``.

    Args:
        stop: called in the event loop with the number of the first signal.
        end: called with each later signal; None for the earlier handler of that signal, if there is one.

    Attributes:
        received: the number of the first signal; 0 before it.
    """

    _stop: Callable[[int], object]
    _end: Callable[[int, FrameType | None], None] | None = None
    received: int = field(default=0, init=False)
    _received_mono: float = field(default=0.0, init=False)
    _outer: SignalStop | None = field(default=None, init=False)
    _earlier: Mapping[int, Any] = field(default_factory=dict, init=False)

    @contextmanager
    def block(self) -> Generator[None, None, None]:
        """Handle the signals during the block.

        Raises:
            ConfigurationError: this is not the main thread, or a block without an ``end`` handles the signals already.
        """
        outer, self._loop = getattr(signal.getsignal(signal.SIGINT), "__self__", None), asyncio.get_running_loop()
        if isinstance(outer, SignalStop):
            self._outer = outer
        if not gets_signals() or (self._outer is not None and self._outer._end is None):  # noqa: SLF001 - of this class
            why = "another crawl of this process does so" if gets_signals() else "only the main thread gets signals"
            raise ConfigurationError(f"stop_on_signals=True: {why}; in a handler of your own, call stop() of the queue")
        of_loop = signal_handlers(self._loop)
        set_aside = {number: of_loop.pop(number) for number in _SIGNALS if number in of_loop}
        try:
            with handled(self._handle) as self._earlier, _waking(self._loop):
                yield
        finally:
            of_loop.update(set_aside)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now_mono = time.monotonic()
        if not self.received:
            self._note(number, now_mono)
            self._loop.call_soon_threadsafe(self._stop, number)
        elif now_mono - self._received_mono > _ECHO_S:
            handler = self._end or self._earlier.get(number)
            if callable(handler):
                handler(number, frame)

    def _note(self, number: int, now_mono: float) -> None:
        self.received, self._received_mono = number, now_mono
        if self._outer is not None:
            self._outer._note(number, now_mono)  # noqa: SLF001 - of this class


@contextmanager
def _waking(loop: asyncio.AbstractEventLoop) -> Generator[None, None, None]:
    """Let each signal wake the event loop during the block, unless something is woken already."""
    readable, woken = socket.socketpair()
    with readable, woken:
        readable.settimeout(0)
        woken.settimeout(0)
        earlier = signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        if earlier != -1:  # the event loop has handlers of its own
            signal.set_wakeup_fd(earlier)
            yield
            return
        try:
            loop.add_reader(readable, readable.recv, 4096)
            yield
        finally:
            loop.remove_reader(readable)
            later = signal.set_wakeup_fd(-1)
            if later != woken.fileno():  # the program has added handlers to the event loop meanwhile
                signal.set_wakeup_fd(later)


@contextmanager
def handled(handler: Any) -> Generator[Mapping[int, Any], None, None]:  # noqa: ANN401 - a handler of the module signal
    """Let ``handler`` handle the signals during the block, if this thread gets them, and yield the earlier handlers."""
    earlier = {number: signal.signal(number, handler) for number in _SIGNALS} if gets_signals() else {}
    try:
        yield earlier
    finally:
        for number, one in earlier.items():
            signal.signal(number, one)


def gets_signals() -> bool:
    """Return whether this thread gets signals."""
    return threading.current_thread() is threading.main_thread()
