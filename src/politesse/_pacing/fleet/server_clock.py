"""Whether the clock of a server runs as the monotonic clock of this process does. Pure; times are arguments.

Theory of operation. Redis has the time of the wall clock of its machine only, and somebody may set that. A clock that
is set forward lets intervals and leases end early. So each reading is compared with those before: the server has read
its clock after the question was sent, and before the answer came. That bounds the offset between the two clocks:

    offset - at most: at - sent_mono    offset - at least: at - received_mono

The bounds are kept, the narrowest of all readings, and widened by what two good clocks may drift apart meanwhile. A
reading whose bounds lie beyond them has been made by a clock that was set.
"""

from __future__ import annotations

from typing import Final

_DRIFT: Final = 0.001  # twice what a crystal, or ntpd as it adjusts a clock, differs by at the most
_TOLERANCE_S: Final = 0.05  # as much as a start may be late by its slack


class ServerClock:
    """The offset between the clock of one server and the monotonic clock of this process."""

    __slots__ = ("_least_s", "_most_s", "_read_mono")

    def __init__(self) -> None:
        self._least_s = self._most_s = 0.0
        self._read_mono: float | None = None

    def jump_s(self, at_us: int, sent_mono: float, received_mono: float) -> float:
        """Return by how many seconds the clock has been set since the readings before, negative for back; 0 for not.

        Args:
            at_us: what the clock showed, in microseconds.
            sent_mono: when the question was sent; minus infinity if that is unknown.
            received_mono: when the answer came.
        """
        least_s, most_s = at_us / 1e6 - received_mono, at_us / 1e6 - sent_mono
        if self._read_mono is None:
            self._least_s, self._most_s, self._read_mono = least_s, most_s, received_mono
            return 0.0
        drift_s = _DRIFT * max(0.0, received_mono - self._read_mono)
        known_least_s, known_most_s = self._least_s - drift_s, self._most_s + drift_s
        if least_s > known_most_s + _TOLERANCE_S:
            return least_s - known_most_s
        if most_s < known_least_s - _TOLERANCE_S:
            return most_s - known_least_s
        least_s, most_s = max(least_s, known_least_s), min(most_s, known_most_s)
        if least_s <= most_s:
            self._least_s, self._most_s, self._read_mono = least_s, most_s, received_mono
        return 0.0


class ServerClocks:
    """The clocks of one server, or of the nodes of a cluster."""

    def __init__(self) -> None:
        self._by_number: dict[int, ServerClock] = {}

    def clear(self) -> None:
        """Forget all readings: these are other clocks from now on."""
        self._by_number.clear()

    def jump_s(self, number: int, at_us: int, sent_mono: float, received_mono: float) -> float:
        """Return by how many seconds the clock of this number has been set; see ``ServerClock``."""
        clock = self._by_number.get(number)
        if clock is None:
            clock = self._by_number[number] = ServerClock()
        return clock.jump_s(at_us, sent_mono, received_mono)
