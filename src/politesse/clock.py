"""Time as an argument: wall time is stored, monotonic time sets the pace, and no function mixes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from secrets import token_hex
from typing import Any, Final, Protocol

_STALL_S: Final = 0.05  # if a timer is later than this, the event loop was blocked


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call; has no effect after the call."""


class Clock(Protocol):
    """The only source of time for all parts of politesse with I/O or state.

    A clock may have an attribute ``run``, a string that names the run of its monotonic clock: only readings of the same
    run can be compared.
    """

    def wall(self) -> float:
        """Return the Unix time in seconds; it may jump in either direction."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment; never decreases."""

    async def sleep(self, delay_s: float, /) -> None:
        """Wait for ``delay_s`` seconds; return at once if ``delay_s`` is not positive."""

    def call_later(self, delay_s: float, callback: Callable[[], None], /) -> Timer:
        """Call ``callback`` from the event loop in ``delay_s`` seconds, perhaps a little early or late."""


class SystemClock:
    """The clocks of the machine and of the running event loop.

    >>> SystemClock().monotonic() >= 0
    True

    Attributes:
        run: a name for this process; in another process the monotonic clock may count from another moment.
    """

    run: Final = token_hex(8)

    # These are the functions of the time module, because a method would add a call to each decision.
    wall: staticmethod[[], float] = staticmethod(time.time)
    monotonic: staticmethod[[], float] = staticmethod(time.monotonic)
    sleep: staticmethod[[float], Coroutine[object, object, None]] = staticmethod(asyncio.sleep)

    def call_later(self, delay_s: float, callback: Callable[[], None], /) -> Timer:
        """Call ``callback`` from the running event loop in ``delay_s`` seconds."""
        return asyncio.get_running_loop().call_later(delay_s, callback)

    def __repr__(self) -> str:
        return "SystemClock()"


def run_of(clock: Clock) -> str:
    """Return the name of the run of a monotonic clock; for a clock without ``run``, a new random name."""
    run: str | None = getattr(clock, "run", None)
    return token_hex(8) if run is None else run


async def ends_within(
    clock: Clock, limit_s: float, work: asyncio.Future[Any], *, again_after_stall: bool = False
) -> bool:
    """Wait for ``work`` to end; return False if it takes longer than ``limit_s`` seconds by ``clock``.

    Late work is cancelled. If the caller is cancelled, the work is cancelled, too. The function does not wait for the
    end of cancelled work, which may ignore the cancellation.

    Args:
        clock: measures the limit.
        limit_s: how long the work may take.
        work: the future to wait for.
        again_after_stall: whether the limit begins again, once, if the event loop was blocked when the limit ended. A
            blocked event loop may not have started the work yet, or may not have noticed its end.
    """
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer: Timer

    def end(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    def look() -> None:
        nonlocal timer
        if clock.monotonic() - due_mono > _STALL_S and not over.done():
            timer = clock.call_later(limit_s, end)
        else:
            end()

    due_mono = clock.monotonic() + limit_s
    timer = clock.call_later(limit_s, look if again_after_stall else end)
    work.add_done_callback(end)
    work.add_done_callback(_ignore_error)  # a caller that is cancelled now does not retrieve an error
    try:
        await over
    finally:
        timer.cancel()
        if not work.done():
            work.cancel()
    return work.done()


def _ignore_error(work: asyncio.Future[Any]) -> None:
    """Retrieve an error that no code awaits; otherwise asyncio logs it as never retrieved."""
    if not work.cancelled():
        work.exception()
