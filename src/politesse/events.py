"""How a layer tells what happened: events are published, subscribers are called, nothing below knows them."""

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
    """The base of all events; every layer defines those that it emits."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ComponentFailed(Event):
    """A fetcher, a store or a parser raised what it should not, or took too long. It never opens the gate.

    Attributes:
        origin: the origin that was asked about; None for a store that does not close in time.
        component: ``"fetcher"``, ``"store"``, ``"cache"``, or ``"files"`` for files beside robots.txt.
        error: what it raised.
    """

    origin: Origin | None
    component: str
    error: BaseException


class Publisher:
    """Calls its subscribers in the order in which they came.

    A subscriber is a plain function and must not block. One that raises is logged with its traceback and
    harms neither the others nor the decision that the event tells of. A CancelledError is an error like any other
    there: a function cannot be cancelled. KeyboardInterrupt and SystemExit pass, and stop the program.
    """

    __slots__ = ("subscribers",)

    def __init__(self) -> None:
        self.subscribers: tuple[Callable[[Event], None], ...] = ()

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``subscriber`` with every event from now on; the returned function ends it."""
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
            except BaseException as error:  # noqa: BLE001 - somebody else's code: told in full, and the gate goes on
                told = printable(repr(event)), printable_traceback(error)
                logger.error("a subscriber failed on %s\n%s", *told)  # noqa: TRY400 - exc_info is not printable
