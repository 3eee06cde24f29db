"""Events: a layer publishes what happened, and subscribers are called. No layer knows its subscribers."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from politesse._text import printable, printable_traceback

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.origin import Origin

logger = logging.getLogger("politesse")


class Event:
    """The base of all events. Each layer defines those that it emits.

    >>> from politesse import Event, RobotsFetched
    >>> issubclass(RobotsFetched, Event)
    True
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ComponentFailed(Event):
    """A fetcher, a store or a parser raised an unexpected exception, or took too long. It never opens the gate.

    >>> ComponentFailed(None, "store", TimeoutError("did not close in 5 s"))
    ComponentFailed(origin=None, component='store', error=TimeoutError('did not close in 5 s'))

    Attributes:
        origin: the origin in question; None for a store that does not close in time.
        component: ``"fetcher"``, ``"store"``, ``"cache"``, or ``"files"`` for files beside robots.txt.
        error: the exception that was raised.
    """

    origin: Origin | None
    component: str
    error: BaseException


class Publisher:
    """Calls its subscribers in the order in which they subscribed.

    A subscriber is a plain function and must not block. One that raises is logged with its traceback; the other
    subscribers are called all the same, and the decision stands. A CancelledError is logged like any other error,
    because a plain function cannot be cancelled. KeyboardInterrupt and SystemExit pass, and stop the program.

    >>> publisher = Publisher()
    >>> unsubscribe = publisher.subscribe(print)
    >>> publisher.publish(ComponentFailed(None, "store", TimeoutError()))
    ComponentFailed(origin=None, component='store', error=TimeoutError())
    >>> unsubscribe()
    """

    __slots__ = ("subscribers",)

    def __init__(self) -> None:
        self.subscribers: tuple[Callable[[Event], None], ...] = ()

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``subscriber`` with every event from now on; the returned function unsubscribes it."""
        self.subscribers = (*self.subscribers, subscriber)

        def unsubscribe() -> None:
            remaining = list(self.subscribers)
            if subscriber in remaining:
                remaining.remove(subscriber)
            self.subscribers = tuple(remaining)

        return unsubscribe

    def publish(self, event: Event) -> None:
        """Hand ``event`` to every subscriber."""
        for subscriber in self.subscribers:
            try:
                subscriber(event)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - foreign code: logged in full, and the gate goes on
                shown = printable(repr(event)), printable_traceback(error)
                logger.error("a subscriber failed on %s\n%s", *shown)  # noqa: TRY400 - exc_info is not printable
