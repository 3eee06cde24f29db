"""How pacers publish the headers that they do not obey."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from politesse._pacing.under_way import LONG_S
from politesse.events import HeaderOverruled, HostClosed, HostOpened, LongWait, TurnExpired
from politesse.verdict import Bound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from politesse._pacing.backoff import Overruled
    from politesse._pacing.slot import Slot, Waiter
    from politesse.events import Publisher

_SAME_S: Final = 1.0  # requests that were under way together are refused one after the other: that is one closing


class Reports:
    """Publishes what a pacer finds out about its hosts, nothing twice.

    Args:
        publisher: receives the events.
    """

    def __init__(self, publisher: Publisher) -> None:
        self.publish = publisher.publish

    def overruled(self, host: str, headers: Iterable[Overruled]) -> None:
        """Publish the headers of an answer of ``host`` that are not obeyed as they stand."""
        for header in headers:
            self.publish(HeaderOverruled(host, header.field, header.value, header.applied_s))

    def closed(self, slot: Slot, before_wall: float, now_wall: float) -> None:
        """Publish that a host is closed, unless it was closed for about as long before.

        Args:
            slot: the host.
            before_wall: until when it was closed before.
            now_wall: the Unix time.
        """
        bearing = slot.bearing
        if bearing is None or bearing.closed_until_wall <= max(now_wall, before_wall):
            return
        until_wall, bound_by = bearing.closed_until_wall, bearing.closed_by
        if slot.is_closed and before_wall > now_wall and until_wall - before_wall < _SAME_S:
            return
        slot.is_closed = True
        self.publish(HostClosed(slot.host, until_wall, bound_by, until_wall - now_wall))
        if slot.waiters and until_wall - now_wall > LONG_S:
            self.waits(slot, next(iter(slot.waiters)), until_wall - now_wall, bound_by)

    def opened(self, slot: Slot) -> None:
        """Publish that a host that was closed has granted a turn again."""
        slot.is_closed = False
        self.publish(HostOpened(slot.host))

    def expired(self, host: str, url: str, held_s: float) -> None:
        """Publish that a turn has expired."""
        self.publish(TurnExpired(host, url, held_s))

    def waits(self, slot: Slot, waiter: Waiter, wait_s: float, bound_by: Bound) -> None:
        """Publish a long wait, once for each cause: until a waiter of the host has had its turn within LONG_S again."""
        if slot.long_wait is not bound_by:
            slot.long_wait = bound_by
            self.publish(LongWait(slot.host, waiter.url, wait_s, bound_by, slot.held_by))

    def waited(self, slot: Slot, waiter: Waiter, waited_s: float) -> None:
        """Publish that a waiter has had its turn after a long wait in line, if no other cause is published."""
        if waited_s <= LONG_S:
            slot.long_wait = None
        elif slot.long_wait is None:
            self.waits(slot, waiter, waited_s, Bound.QUEUE)
