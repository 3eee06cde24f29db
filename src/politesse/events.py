"""Events: a layer publishes what happened, and subscribers are called. No layer knows its subscribers."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from politesse._text import printable, printable_traceback

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.origin import Origin
    from politesse.verdict import Bound

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


@dataclass(frozen=True, slots=True)
class HostClosed(Event):
    """A host is closed by a 429, a 503, or an exhausted quota: no request to it starts before it opens again.

    >>> from politesse import Bound
    >>> HostClosed("example.com", until_wall=1_800_000_000.0, bound_by=Bound.RETRY_AFTER, closed_s=30.0).closed_s
    30.0

    Attributes:
        host: the pacing host.
        until_wall: the Unix time at which it opens.
        bound_by: RETRY_AFTER, BACKOFF or RATE_LIMIT.
        closed_s: for how many seconds from now.
    """

    host: str
    until_wall: float
    bound_by: Bound
    closed_s: float


@dataclass(frozen=True, slots=True)
class HostOpened(Event):
    """A host that was closed has granted a turn again.

    >>> HostOpened("example.com").host
    'example.com'

    Attributes:
        host: the pacing host.
    """

    host: str


@dataclass(frozen=True, slots=True)
class LongWait(Event):
    """A request waits for its turn for longer than a minute, or will have to.

    >>> from politesse import Bound
    >>> LongWait("example.com", "https://example.com/2", 60.0, Bound.IN_FLIGHT, "https://example.com/1").held_by
    'https://example.com/1'

    Attributes:
        host: the pacing host.
        url: what is to be requested.
        wait_s: for how many seconds it has waited, or will wait, whichever is longer.
        bound_by: what binds it.
        held_by: the URL whose request is under way and holds the host; empty for none.
    """

    host: str
    url: str
    wait_s: float
    bound_by: Bound
    held_by: str


@dataclass(frozen=True, slots=True)
class TurnExpired(Event):
    """A turn was held for ``max_turn_s``. It has ended, and its host serves the next request.

    >>> TurnExpired("example.com", "https://example.com/hangs", held_s=600.0).held_s
    600.0

    Attributes:
        host: the pacing host.
        url: the URL of the turn.
        held_s: for how many seconds it was held.
    """

    host: str
    url: str
    held_s: float


@dataclass(frozen=True, slots=True)
class TurnDropped(Event):
    """A turn, or a response with its turn, was garbage collected before its end. Its host has been given back.

    >>> TurnDropped("example.com", "https://example.com/forgotten").url
    'https://example.com/forgotten'

    Attributes:
        host: the pacing host.
        url: the URL of the turn.
    """

    host: str
    url: str


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
