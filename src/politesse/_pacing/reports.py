"""How pacers publish the headers that they do not obey."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from politesse._pacing.held_long import LONG_S
from politesse._pacing.slot import NEVER
from politesse.events import HeaderOverruled, HostClosed, HostOpened, LongWait, TurnExpired
from politesse.verdict import Bound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from politesse._pacing.backoff import Overruled
    from politesse._pacing.held_long import Held
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

    def closed(self, slot: Slot, now_mono: float, now_wall: float, url: str = "", status: int | None = None) -> None:
        """Publish that a host is closed, by an answer if there is a status; not again with about the same end."""
        bearing = slot.bearing
        if bearing is None or bearing.closed_until_wall <= now_wall:
            return
        closed_s, bound_by = bearing.closed_until_wall - now_wall, bearing.closed_by
        if now_mono + closed_s - slot.closed_mono < _SAME_S:
            return
        slot.closed_mono = now_mono + closed_s
        url = "" if status is None else url
        self.publish(HostClosed(slot.host, bearing.closed_until_wall, bound_by, closed_s, url, status))
        if slot.head is not None and closed_s > LONG_S:
            self.waits(slot, slot.head, closed_s, bound_by)

    def opened(self, slot: Slot) -> None:
        """Publish that a host that was closed has granted a turn again."""
        slot.closed_mono = NEVER
        self.publish(HostOpened(slot.host))

    def expire(self, permit: Held, now_mono: float) -> None:
        """End a permit that was held for too long, and publish it; unless it has ended."""
        if permit.under_way:
            permit.expire()
            self.publish(TurnExpired(permit.host, permit.url, now_mono - permit.started_mono))

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

    def held(self, slot: Slot, now_mono: float) -> float | None:
        """Publish a long wait for a host that is held for long; return when to look again if it is not long yet."""
        holder = slot.holder
        head = slot.head
        if holder is None or holder.started_mono + LONG_S > now_mono or head is None or not slot.is_full:
            return None
        if head.joined_mono + LONG_S > now_mono:
            return head.joined_mono + LONG_S
        self.waits(slot, head, now_mono - head.joined_mono, Bound.IN_FLIGHT)
        return None
