"""Time as an argument: wall time is stored, monotonic time paces, and no function mixes them."""

from __future__ import annotations

import asyncio
import time
from secrets import token_hex
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Call it off; without effect if it has come."""


class Clock(Protocol):
    """What the impure parts of politesse know of time.

    It may name, as a text ``run``, the run of its monotonic clock: readings that bear the same name can be compared.
    """

    def wall(self) -> float:
        """Return the Unix time in seconds; it may jump."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment; it never goes back."""

    async def sleep(self, delay_s: float, /) -> None:
        """Wait for ``delay_s`` seconds; return at once if that is not positive."""

    def call_later(self, delay_s: float, callback: Callable[[], None], /) -> Timer:
        """Call ``callback`` from the event loop in ``delay_s`` seconds; it may come a little early or late."""


class SystemClock:
    """The clocks of the machine and of the running event loop.

    Attributes:
        run: names this process: elsewhere the monotonic clock may count from another moment.
    """

    run: Final = token_hex(8)

    # Bare functions of the time module: a bound method of ours would cost another call per decision.
    wall = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(asyncio.sleep)

    def call_later(self, delay_s: float, callback: Callable[[], None], /) -> Timer:
        """Call ``callback`` from the running event loop in ``delay_s`` seconds."""
        return asyncio.get_running_loop().call_later(delay_s, callback)

    def __repr__(self) -> str:
        return "SystemClock()"


def run_of(clock: Clock) -> str:
    """Return the name of the run of a monotonic clock; of one that has no name, a name that nobody else knows."""
    run: str | None = getattr(clock, "run", None)
    return token_hex(8) if run is None else run
