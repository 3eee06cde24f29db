"""The events that politesse publishes to its subscribers.

This module defines all events; optional integrations define their own.

The ``host`` of an event is the paced host: the host name under which requests are paced, in lower case and without
scheme and port, or the address or registered domain if addresses or domains are paced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from politesse._base.publisher import Event, Publisher

if TYPE_CHECKING:
    from politesse.origin import Origin
    from politesse.verdict import Bound, FileOutcome, Refusal, Source, Verdict

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
    "TurnGranted",
]


@dataclass(frozen=True, slots=True)
class ComponentFailed(Event):
    """A component, such as a store, raised an unexpected exception, or took too long. A failure never allows a request.

    >>> ComponentFailed(None, "store", TimeoutError("did not close in 5 s"))
    ComponentFailed(origin=None, component='store', error=TimeoutError('did not close in 5 s'))

    Attributes:
        origin: the origin in question; None if the failure does not concern a single origin.
        component: ``"cache"``, ``"fetcher"``, ``"files"`` (not robots.txt), ``"ledger"``, ``"pacer"`` or ``"store"``.
        error: the exception that was raised.
    """

    origin: Origin | None
    component: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class Decided(Event):
    """A verdict was given.

    >>> import asyncio
    >>> from politesse import Gatekeeper
    >>> from politesse.testing import ScriptedFetcher
    >>> async def watch():
    ...     async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=ScriptedFetcher()) as gate:
    ...         gate.subscribe(lambda event: isinstance(event, Decided) and print(event.verdict.reason))
    ...         await gate.check("https://example.com/")
    >>> asyncio.run(watch())
    unavailable

    Attributes:
        verdict: the verdict.
    """

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class MatchingBounded(Event):
    """A decision reached the bound on its matching work. The rules that were not compared count against the URL.

    Each Disallow of these rules counts as matching, and no Allow does. Only hostile files reach the bound.

    >>> from politesse.verdict import Match, Reason, Verdict
    >>> match = Match(Reason.DISALLOW_RULE, bound_reached=True)
    >>> MatchingBounded(Verdict("https://example.com/", "examplebot", False, match)).verdict.match.bound_reached
    True

    Attributes:
        verdict: the verdict.
    """

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class RobotsFetched(Event):
    """A fetch of robots.txt has ended, with or without success.

    >>> from politesse import Origin
    >>> from politesse.verdict import AccessResult, Source
    >>> url = "https://a.example/robots.txt"
    >>> source = Source(url, AccessResult.UNAVAILABLE, 404, url, 1_800_000_000.0, 1_800_086_400.0)
    >>> RobotsFetched(Origin.of(url), 404, "", 0.2, source).source.result
    <AccessResult.UNAVAILABLE: 'unavailable'>

    Attributes:
        origin: the origin of the file.
        status: the HTTP status, or None without an answer.
        fault: a phrase that describes the failure, or empty.
        elapsed_s: seconds that the fetch took, including redirects and the wait for its start.
        source: the copy or the failure on which verdicts are now based.
        truncated: whether the fetcher cut the file, so that its last lines are missing.
    """

    origin: Origin
    status: int | None
    fault: str
    elapsed_s: float
    source: Source
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class SiteFileFetched(Event):
    """A fetch of a file other than robots.txt has ended, with or without success.

    Attributes:
        url: the URL of the file.
        status: the HTTP status, or None without an answer.
        fault: a phrase that describes the failure, or empty.
        outcome: the outcome from now on; FOUND also if an older copy is still used.

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
    """An answer or an exhausted quota closes a host: no request to the host starts before it opens again.

    >>> from politesse import Bound
    >>> HostClosed("example.com", until_wall=1_800_000_000.0, bound_by=Bound.RETRY_AFTER, closed_s=30.0).closed_s
    30.0

    Attributes:
        host: the paced host.
        until_wall: the Unix time at which the host opens.
        bound_by: RETRY_AFTER, BACKOFF, RATE_LIMIT or REFUSED.
        closed_s: seconds from now until the host opens.
        url: the URL of the page or robots.txt whose answer closed the host, or empty.
        status: the status of that answer, or None.
        refusal: how often the host has refused this crawler, if these refusals closed the host; else None.
    """

    host: str
    until_wall: float
    bound_by: Bound
    closed_s: float
    url: str = ""
    status: int | None = None
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class HostOpened(Event):
    """A host that was closed has granted a turn again, or nobody has asked for it until its pace was over.

    >>> HostOpened("example.com").host
    'example.com'

    Attributes:
        host: the paced host.
    """

    host: str


@dataclass(frozen=True, slots=True)
class TurnGranted(Event):
    """A caller got a turn; this event is not logged.

    >>> from politesse.verdict import Match, Reason, Verdict
    >>> verdict = Verdict("https://example.com/", "examplebot", True, Match(Reason.NO_RULE))
    >>> TurnGranted(verdict, waited_s=1.5).waited_s
    1.5

    Attributes:
        verdict: the verdict on the URL of the turn.
        waited_s: the seconds that the caller waited. For ``gate.turn`` this includes the fetch of robots.txt; for
            ``queue.turn`` it is the wait for a URL of any host. 0 for ``try_turn`` and ``try_turns``, which never wait.
    """

    verdict: Verdict
    waited_s: float


@dataclass(frozen=True, slots=True)
class LongWait(Event):
    """A request has to wait for longer than a minute, or has waited for five seconds while another turn holds its host.

    >>> from politesse import Bound
    >>> LongWait("example.com", "https://example.com/2", 60.0, Bound.IN_FLIGHT, "https://example.com/1").held_by
    'https://example.com/1'

    Attributes:
        host: the paced host.
        url: the URL of the request that waits.
        wait_s: the seconds that the request has waited, or will wait if that is longer.
        bound_by: the limit that causes the wait.
        held_by: the URL of the request that holds the host, or empty.
    """

    host: str
    url: str
    wait_s: float
    bound_by: Bound
    held_by: str


@dataclass(frozen=True, slots=True)
class TurnExpired(Event):
    """A turn was held for ``max_turn_s`` and has ended, so the next request to its host may start.

    >>> TurnExpired("example.com", "https://example.com/hangs", held_s=600.0).held_s
    600.0

    Attributes:
        host: the paced host.
        url: the URL of the turn.
        held_s: how long the turn was held, in seconds.
    """

    host: str
    url: str
    held_s: float


@dataclass(frozen=True, slots=True)
class TurnDropped(Event):
    """A turn, or a response with its turn, was garbage collected before its end. The turn was ended.

    >>> TurnDropped("example.com", "https://example.com/forgotten").url
    'https://example.com/forgotten'

    Attributes:
        host: the name of the host.
        url: the URL of the turn.
    """

    host: str
    url: str


@dataclass(frozen=True, slots=True)
class LongDelay(Event):
    """A turn was requested at a site whose Crawl-delay or Request-rate is longer than ``max_crawl_delay_s``.

    >>> from politesse import Origin
    >>> LongDelay(Origin.of("https://example.com"), delay_s=3_600.0, done="skip").done
    'skip'

    Attributes:
        origin: the site.
        delay_s: the delay that the site states, in seconds.
        done: how the gate treats the delay: ``"obey"``, ``"cap"`` or ``"skip"``.
    """

    origin: Origin
    delay_s: float
    done: str


@dataclass(frozen=True, slots=True)
class HeaderOverruled(Event):
    """A Retry-After or RateLimit header is not obeyed literally: its value is unreadable, too short or too long.

    >>> HeaderOverruled("example.com", "retry-after", "soon", 60.0).applied_s
    60.0

    Attributes:
        host: the paced host that sent the header.
        field: the name of the header, in lower case.
        value: the first 100 characters of its value, printable.
        applied_s: seconds without a request to the host, instead of the value; None if the header has no effect.
        asked_s: the seconds for which the value asks; None if it is unreadable.
    """

    host: str
    field: str
    value: str
    applied_s: float | None
    asked_s: float | None = None


@dataclass(frozen=True, slots=True)
class AddressNotFound(Event):
    """No address was found for a host that is paced by its address; the host is paced by its name for a minute.

    >>> AddressNotFound("example.com", "OSError: no such host").host
    'example.com'

    Attributes:
        host: the name of the host.
        error: the error of the resolver.
    """

    host: str
    error: str


@dataclass(frozen=True, slots=True)
class FleetAway(Event):
    """The Redis of the fleet is away: no request starts until it is back.

    >>> FleetAway("redis://localhost:6379/0", "ConnectionError: refused").server
    'redis://localhost:6379/0'

    Attributes:
        server: the address of the Redis, without a password.
        error: the error of the last call.
    """

    server: str
    error: str


@dataclass(frozen=True, slots=True)
class FleetBack(Event):
    """The Redis of the fleet is back; each host first waits for one interval.

    >>> FleetBack("redis://localhost:6379/0", away_s=2.0).away_s
    2.0

    Attributes:
        server: the address of the Redis, without a password.
        away_s: how long the Redis was away, in seconds.
    """

    server: str
    away_s: float
