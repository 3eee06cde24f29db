"""What becomes of a crawl whose fleet has lost its Redis: it waits, and gives up after ``POLITESSE_MAX_WAIT``.

Nothing starts while the Redis is away. When that lasts for too long all sites are given up, as one is that stays closed
(closures.py): with JOBDIR their requests stay in the queue, otherwise each ends in its errback. If the Redis comes back
while the spider is still open, all go on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from politesse._text import printable
from politesse.events import Event, FleetAway, FleetBack
from politesse.verdict import Bound, NotYet

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.clock import Clock, Timer

logger = logging.getLogger(__name__)


class FleetAbsence:
    """Whether the Redis of the fleet is away, and whether it is still waited for.

    Args:
        clock: the gate's clock.
        max_wait_s: after how many seconds it is given up.
        rested: called with each host that was held up, when the Redis is back.

    Attributes:
        answer: the answer to all requests, once it is given up; None before that, and when it is back.
    """

    def __init__(self, clock: Clock, max_wait_s: float, rested: Callable[[str], None]) -> None:
        self._clock = clock
        self._max_wait_s = max_wait_s
        self._rested = rested
        self._timer: Timer | None = None
        self._held_up: set[str] = set()
        self.answer: NotYet | None = None

    def heard(self, event: Event) -> None:
        """Receive an event of the gate."""
        match event:
            case FleetAway(server, error):
                self.note(f"{server}: {error}")
            case FleetBack():
                self.close()
                self.answer = None
                held_up, self._held_up = self._held_up, set()
                for host in held_up:
                    self._rested(host)
            case _:
                pass

    def note(self, why: str) -> None:
        """Note that the Redis is away; a spider that is opened meanwhile receives no event of that."""
        if self._timer is None and self.answer is None:
            self._timer = self._clock.call_later(self._max_wait_s, lambda: self._give_up(why))

    def holds_up(self, host: str) -> bool:
        """Return whether no request of a host is handed out, because the Redis was given up."""
        if self.answer is None:
            return False
        self._held_up.add(host)
        return True

    def close(self) -> None:
        """Wait no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self, why: str) -> None:
        self._timer = None
        self.answer = NotYet(self._clock.wall(), Bound.FLEET)
        logger.error(
            "All sites are given up, unless the Redis of the fleet comes back while the spider is open: it has been "
            "away for %g s, as POLITESSE_MAX_WAIT permits (%s)",
            self._max_wait_s,
            printable(why),
        )
