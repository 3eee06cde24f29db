"""Publishes each event about a host once: closures, openings, long waits, headers that are not obeyed literally."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from politesse._pacing.marks import NEVER
from politesse.events import HeaderOverruled, HostClosed, HostOpened, LongWait, Publisher
from politesse.verdict import Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from politesse._pacing.hosts import Host, LocalPermit
    from politesse._pacing.refusals import IgnoredHeader
    from politesse.events import Event

LONG_S: Final = 60.0
"""A wait in line that takes longer than this many seconds is published."""

HELD_S: Final = 5.0
"""After this many seconds, a permit counts as held for long if other requests wait for its end."""

_STALL_S: Final = 1.0  # if a check is late by more than this, the event loop was blocked
_SAME_S: Final = 1.0  # a closure is not published again if its end moves by less than this


class Reports:
    """Publishes each event about a host once.

    Args:
        publisher: receives the events.
    """

    def __init__(self, publisher: Publisher) -> None:
        self.publish: Callable[[Event], None] = publisher.publish
        self._stalled_mono = NEVER

    def overruled(self, host: str, headers: Iterable[IgnoredHeader]) -> None:
        """Publish the headers of an answer that are not obeyed literally."""
        for header in headers:
            self.publish(HeaderOverruled(host, header.field, header.value, header.applied_s, header.asked_s))

    def closed(self, host: Host, now_mono: float, now_wall: float, url: str = "", status: int | None = None) -> None:
        """Publish that a host is closed, unless a closure with about the same end was published."""
        closed_until_mono, bound_by = host.demand.closing
        if closed_until_mono <= now_mono or closed_until_mono - host.closed_mono < _SAME_S:
            return
        # Rounded, because the difference of two times may lack a part of a microsecond of a closure of 900 s.
        closed_s, host.closed_mono = round(closed_until_mono - now_mono, 6), closed_until_mono
        url = "" if status is None else url
        refusal = host.demand.refusal(host.options) if bound_by is Bound.REFUSED else None
        self.publish(HostClosed(host.name, now_wall + closed_s, bound_by, closed_s, url, status, refusal))
        if host.head is not None and closed_s > LONG_S:
            self.waits(host, host.head, closed_s, bound_by)

    def opened(self, host: Host) -> None:
        """Publish that a host that was closed is open again."""
        host.closed_mono = NEVER
        self.publish(HostOpened(host.name))

    def waits(self, host: Host, waiter: LocalPermit, wait_s: float, bound_by: Bound) -> None:
        """Publish a long wait, unless the last wait that was published for the host has the same cause."""
        if host.long_wait is not bound_by:
            host.long_wait = bound_by
            holder = host.holder
            held_by = "" if holder is None else holder.url
            self.publish(LongWait(host.name, waiter.url, wait_s, bound_by, held_by))

    def waited(self, host: Host, waiter: LocalPermit, waited_s: float) -> None:
        """Publish a long wait at its end if none was published before. After a short wait, forget the last cause."""
        if waited_s <= (HELD_S if host.long_wait is Bound.IN_FLIGHT else LONG_S):
            host.long_wait = None
        elif host.long_wait is None:
            self.waits(host, waiter, waited_s, Bound.QUEUE)

    def held(self, host: Host, now_mono: float) -> float | None:
        """Publish a wait of HELD_S for a held permit. If the wait is shorter so far, return when to check again.

        While a program blocks its event loop, its requests cannot end. So the time counts from the end of the block;
        otherwise the wait at every host would be published after the block.
        """
        head, holder = host.head, host.holder
        if head is None or holder is None:
            return None
        due_mono = max(holder.started_mono, head.joined_mono, self._stalled_mono) + HELD_S
        if now_mono >= due_mono + _STALL_S and now_mono >= self._stalled_mono + HELD_S + _STALL_S:
            self._stalled_mono = now_mono
            return now_mono + HELD_S
        if now_mono < due_mono:
            return due_mono
        self.waits(host, head, now_mono - head.joined_mono, Bound.IN_FLIGHT)
        return None
