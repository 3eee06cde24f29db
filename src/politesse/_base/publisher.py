"""The base of all events, and their publisher, which logs them and calls the subscribers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from politesse._base.text import printable_traceback, shortened

logger = logging.getLogger("politesse")

_MAX_EVENT: Final = 1_000  # the log shortens an event to this many characters


class Event:
    """The base of all events.

    >>> from politesse.events import RobotsFetched
    >>> issubclass(RobotsFetched, Event)
    True
    """

    __slots__ = ()


class Publisher:
    """Writes events to a log, and calls its subscribers in the order in which they subscribed.

    A subscriber is a plain function and must not block. If a subscriber raises an error, the error is logged with its
    traceback, and the other subscribers are still called. Such an error does not change a decision of the gate. A
    CancelledError is logged like any other error, because a plain function cannot be cancelled. KeyboardInterrupt and
    SystemExit are raised, and stop the program.

    Args:
        log: called with each event of this publisher, or None.

    Attributes:
        subscribers: the subscribers, in order.
        lost: how many calls of a subscriber or of the log have raised an error.

    >>> from politesse.events import ComponentFailed
    >>> publisher = Publisher()
    >>> unsubscribe = publisher.subscribe(print)
    >>> publisher.publish(ComponentFailed(None, "store", TimeoutError()))
    ComponentFailed(origin=None, component='store', error=TimeoutError())
    >>> unsubscribe()
    """

    __slots__ = ("_log", "lost", "subscribers")

    def __init__(self, log: Callable[[Event], None] | None = None) -> None:
        self._log = () if log is None else (log,)
        self.subscribers: tuple[Callable[[Event], None], ...] = ()
        self.lost: int = 0

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``subscriber`` with every event from now on; the returned function unsubscribes it."""
        self.subscribers = (*self.subscribers, subscriber)

        def unsubscribe() -> None:
            remaining = list(self.subscribers)
            if subscriber in remaining:
                remaining.remove(subscriber)
            self.subscribers = tuple(remaining)

        return unsubscribe

    def forward(self, event: Event) -> None:
        """Call every subscriber with an event that another publisher has logged."""
        self.publish(event, logs=False)

    def publish(self, event: Event, *, logs: bool = True) -> None:
        """Log ``event`` if it ``logs``, and hand it to every subscriber."""
        for subscriber in (*self._log, *self.subscribers) if logs else self.subscribers:
            try:
                subscriber(event)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - foreign code: logged in full, and the gate goes on
                self.lost += 1
                shown = shortened(repr(event), _MAX_EVENT), printable_traceback(error)
                logger.error("a subscriber failed on %s\n%s", *shown)  # noqa: TRY400 - exc_info is not printable
