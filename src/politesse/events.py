"""Events: a layer publishes what happened, and subscribers are called. No layer knows its subscribers.

All events are defined here, except that of an optional integration, which is defined there.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from politesse._text import printable_traceback, shortened

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.origin import Origin
    from politesse.verdict import Bound, FileOutcome, Source, Verdict

__all__ = [
    "AddressNotFound",
    "ComponentFailed",
    "Decided",
    "Event",
    "FleetAway",
    "FleetBack",
    "HeaderOverruled",
    "HostClosed",
    "HostOpened",
    "LongDelay",
    "LongWait",
    "MatchingBounded",
    "Publisher",
    "RobotsFetched",
    "SiteFileFetched",
    "TurnDropped",
    "TurnExpired",
]

logger = logging.getLogger("politesse")

_MAX_EVENT: Final = 1_000  # characters of an event in the log


class Event:
    """The base of all events. Those of this library are defined here, whichever layer publishes them.

    >>> from politesse.events import Event, RobotsFetched
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
        origin: the origin in question; None for a store that does not close in time, or fails on what a host asked for.
        component: ``"fetcher"``, ``"store"``, ``"cache"``, or ``"files"`` for files beside robots.txt.
        error: the exception that was raised.
    """

    origin: Origin | None
    component: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class Decided(Event):
    """A verdict was given.

    Attributes:
        verdict: the verdict.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper
        >>> from politesse.events import Decided
        >>> from politesse.testing import ScriptedFetcher
        >>> async def watch():
        ...     async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=ScriptedFetcher()) as gate:
        ...         gate.subscribe(lambda event: isinstance(event, Decided) and print(event.verdict.reason))
        ...         await gate.check("https://example.com/")
        >>> asyncio.run(watch())
        unavailable
    """

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class MatchingBounded(Event):
    """The bound on the matching work of one decision was reached: rules that were not compared count against the URL.

    A Disallow among them counts as matching, an Allow as not. Only files that are made to be slow reach the bound.

    Attributes:
        verdict: the verdict.

    Example:
        >>> from politesse import Reason, Verdict
        >>> from politesse.events import MatchingBounded
        >>> from politesse.verdict import Match
        >>> match = Match(Reason.DISALLOW_RULE, bound_reached=True)
        >>> MatchingBounded(Verdict("https://example.com/", "examplebot", False, match)).verdict.match.bound_reached
        True
    """

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class RobotsFetched(Event):
    """robots.txt was fetched, or could not be.

    Attributes:
        origin: whose.
        status: of the answer, None where there was none.
        fault: what went wrong, as a phrase, or empty.
        elapsed_s: how long it took, redirects and the wait for a place included.
        source: what holds now.
        truncated: whether the file is longer than the fetcher reads, so that its last lines are missing.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper
        >>> from politesse.testing import ScriptedFetcher
        >>> def show(event) -> None:
        ...     if isinstance(event, RobotsFetched):
        ...         print(event.origin, event.status, event.source.result)
        >>> async def main() -> None:
        ...     async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=ScriptedFetcher()) as gate:
        ...         gate.subscribe(show)
        ...         await gate.check("https://a.example/")
        >>> asyncio.run(main())
        https://a.example 404 unavailable
    """

    origin: Origin
    status: int | None
    fault: str
    elapsed_s: float
    source: Source
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class SiteFileFetched(Event):
    """A file of a site, not its robots.txt, was fetched, or could not be.

    Attributes:
        url: which.
        status: of the answer, None where there was none.
        fault: what went wrong, as a phrase, or empty.
        outcome: what holds now.

    >>> from politesse.sites import FileOutcome
    >>> event = SiteFileFetched("https://example.com/data.txt", 404, "", FileOutcome.UNKNOWN)
    >>> print(event.url, event.status, event.outcome)
    https://example.com/data.txt 404 unknown
    """

    url: str
    status: int | None
    fault: str
    outcome: FileOutcome


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
        url: the URL, or the robots.txt, whose answer has closed it; empty if it was closed by something else.
        status: of that answer; None for none.
    """

    host: str
    until_wall: float
    bound_by: Bound
    closed_s: float
    url: str = ""
    status: int | None = None


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


@dataclass(frozen=True, slots=True)
class LongDelay(Event):
    """A turn was requested at a site whose Crawl-delay or Request-rate is longer than ``max_crawl_delay_s``.

    Attributes:
        origin: the site.
        delay_s: the delay that it states, in seconds.
        done: ``"obey"``, ``"cap"`` or ``"skip"``.

    Example:
        >>> from politesse import Origin
        >>> from politesse.events import LongDelay
        >>> LongDelay(Origin.of("https://example.com"), delay_s=3_600.0, done="skip").done
        'skip'
    """

    origin: Origin
    delay_s: float
    done: str


@dataclass(frozen=True, slots=True)
class HeaderOverruled(Event):
    """A Retry-After or RateLimit header is not obeyed as it stands: it is unreadable, too short or too long.

    >>> HeaderOverruled("example.com", "retry-after", "soon", 60.0).applied_s
    60.0

    Attributes:
        host: the pacing host that sent it.
        field: its name, in lower case.
        value: at most 100 characters of it, printable.
        applied_s: how long the host is left alone instead, in seconds; None where it changes nothing.
    """

    host: str
    field: str
    value: str
    applied_s: float | None


@dataclass(frozen=True, slots=True)
class AddressNotFound(Event):
    """No address was found for a host that is paced by its address; it is paced by its name for a minute.

    >>> AddressNotFound("example.com", "OSError: no such host").host
    'example.com'

    Attributes:
        host: its name.
        error: what the resolver reports.
    """

    host: str
    error: str


@dataclass(frozen=True, slots=True)
class FleetAway(Event):
    """The Redis of the fleet is away: no request starts until it is back.

    >>> FleetAway("redis://localhost:6379/0", "ConnectionError: refused").server
    'redis://localhost:6379/0'

    Attributes:
        server: its address, without a password.
        error: what is wrong with it.
    """

    server: str
    error: str


@dataclass(frozen=True, slots=True)
class FleetBack(Event):
    """The Redis of the fleet is back; each host waits out its interval once.

    >>> FleetBack("redis://localhost:6379/0", away_s=2.0).away_s
    2.0

    Attributes:
        server: its address, without a password.
        away_s: for how many seconds it was away.
    """

    server: str
    away_s: float


class Publisher:
    """Writes events to a log, and calls its subscribers in the order in which they subscribed.

    A subscriber is a plain function and must not block. One that raises is logged with its traceback; the other
    subscribers are called all the same, and the decision stands. A CancelledError is logged like any other error,
    because a plain function cannot be cancelled. KeyboardInterrupt and SystemExit pass, and stop the program.

    Args:
        log: called with each event that is published here; None for no log.

    >>> publisher = Publisher()
    >>> unsubscribe = publisher.subscribe(print)
    >>> publisher.publish(ComponentFailed(None, "store", TimeoutError()))
    ComponentFailed(origin=None, component='store', error=TimeoutError())
    >>> unsubscribe()
    """

    __slots__ = ("_log", "subscribers")

    def __init__(self, log: Callable[[Event], None] | None = None) -> None:
        self._log = () if log is None else (log,)
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
        """Log ``event``, and hand it to every subscriber."""
        self._call(event, (*self._log, *self.subscribers))

    def forward(self, event: Event) -> None:
        """Hand an event that another publisher has logged to every subscriber."""
        self._call(event, self.subscribers)

    def _call(self, event: Event, subscribers: tuple[Callable[[Event], None], ...]) -> None:
        for subscriber in subscribers:
            try:
                subscriber(event)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - foreign code: logged in full, and the gate goes on
                shown = shortened(repr(event), _MAX_EVENT), printable_traceback(error)
                logger.error("a subscriber failed on %s\n%s", *shown)  # noqa: TRY400 - exc_info is not printable
