"""Ctrl-C and SIGTERM: the first one ends the command in order, the second one at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self

if sys.platform != "win32":
    import termios

if TYPE_CHECKING:
    from types import FrameType, TracebackType

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_BY_SIGNAL: Final = 128  # what a shell adds to the number of a signal that ended a program
_ECHO_S: Final = 0.2  # a program such as timeout passes the Ctrl-C on that the terminal has sent already
_SHOW_CURSOR: Final = b"\x1b[?25h"


class Interrupts:
    """Cancels the current task at the first SIGINT or SIGTERM, and ends the process at the second.

    A second one within 0.2 s counts as the same. Meanwhile a Ctrl-C does not discard what was written to the terminal:
    half a frame of a live table, without its control sequences, would be left.
    A context manager, entered by the task that is to be cancelled. Outside of the main thread, where Python handles no
    signals, it does nothing.
    """

    def __init__(self) -> None:
        self._received = 0
        self._received_mono = 0.0
        self._terminal: list[Any] | None = None
        self._previous: dict[int, signal.Handlers | None] = {}

    @property
    def exit_code(self) -> int | None:
        """What the command exits with: 130 after SIGINT, 143 after SIGTERM; None without a signal."""
        return _BY_SIGNAL + self._received if self._received else None

    def __enter__(self) -> Self:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()

        def interrupt(number: int, _: FrameType | None) -> None:
            now_mono = time.monotonic()
            if self._received and now_mono - self._received_mono > _ECHO_S:
                self._restore_terminal()
                _end_now(_BY_SIGNAL + number)
            if self._received:
                return
            self._received, self._received_mono = number, now_mono
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)

        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._previous[number] = signal.signal(number, interrupt)  # type: ignore[assignment]
            self._keep_output()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self._restore_terminal()
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _keep_output(self) -> None:
        if sys.platform != "win32" and _is_ours():
            self._terminal = termios.tcgetattr(sys.stderr)
            kept = termios.tcgetattr(sys.stderr)
            kept[3] |= termios.NOFLSH
            termios.tcsetattr(sys.stderr, termios.TCSANOW, kept)

    def _restore_terminal(self) -> None:
        if sys.platform != "win32" and self._terminal is not None and _is_ours():
            termios.tcsetattr(sys.stderr, termios.TCSANOW, self._terminal)


def _is_ours() -> bool:
    """Return whether this process may change the terminal of standard error: in the background it would be stopped."""
    if sys.platform == "win32" or not sys.stderr.isatty():
        return False
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:  # not the terminal that controls this process
        return False


def _end_now(code: int) -> None:
    """End the process without waiting for anything; a live table has hidden the cursor."""
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), _SHOW_CURSOR)
    os._exit(code)
