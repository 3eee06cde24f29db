"""The port of a pacer: its requests, permits and reports of hosts. ``politesse.ports`` exports these names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from politesse.verdict import Bound, NotYet


class StatedTimes(Protocol):
    """What a robots.txt states about times of day, in UTC. ``politesse.robots`` has the implementation."""

    @property
    def is_timed(self) -> bool:
        """Whether the time of day matters."""

    @property
    def longest_s(self) -> float:
        """The longest interval of all Request-rates, at any time of day, in seconds; 0 for none."""

    @property
    def open_minutes(self) -> int:
        """The minutes of the day at which a visit is permitted, as bits, midnight the lowest."""

    def interval_s(self, wall: float, /) -> float:
        """Return the interval of the slowest Request-rate in force at a Unix time, in seconds; 0 for none."""

    def next_change(self, wall: float, /) -> float:
        """Return the Unix time at which the next window of a Request-rate begins or ends; infinite for never."""


class StatedPace(Protocol):
    """What the robots.txt of one origin states about pace for one agent. A RuleSet is one."""

    @property
    def crawl_delay(self) -> float | None:
        """The Crawl-delay in seconds; None for none."""

    @property
    def request_rates(self) -> Sequence[object]:
        """The Request-rates; empty for none."""

    @property
    def timetable(self) -> StatedTimes:
        """The Request-rates and Visit-times by time of day."""


class TurnRequest(NamedTuple):
    """One request that wants to start. A named tuple, because one is made for each turn.

    Attributes:
        host: the pacing host, without scheme and port.
        origin: the origin of the URL, as text.
        agent: the product tokens whose rules apply, the most specific first, joined by commas.
        pace: what the robots.txt of ``origin`` states for ``agent``. None if it is unknown: what was stated before
            then stays in force.
        url: what is to be requested, to name it to others that wait for it; empty if that is unknown.
    """

    host: str
    origin: str
    agent: str
    pace: StatedPace | None = None
    url: str = ""


# Tools that read its annotations look for their names in this module.
TurnRequest.__new__.__module__ = __name__


@dataclass(frozen=True, slots=True)
class HostPace:
    """What a pacer knows of one busy host, at one moment.

    >>> from politesse import Bound
    >>> pace = HostPace("example.com", 10.0, Bound.CRAWL_DELAY, 1_800_000_010.0, waiting=3)
    >>> pace.interval_s, pace.waiting, pace.closed_until_wall
    (10.0, 3, None)

    Attributes:
        host: the pacing host; an address or a registered domain where the pacer goes by those.
        interval_s: the interval between two requests that is in force now, in seconds. Where robots.txt states
            another pace for each agent: that of the agent whose next request may start last.
        bound_by: what sets that interval.
        not_before_wall: the Unix time from which the next request may start, of that agent. Others that wait, or are
            under way, may come first.
        closed_until_wall: the Unix time until which the host is closed; None if it is open.
        closed_by: RETRY_AFTER, BACKOFF or RATE_LIMIT; None if it is open.
        waiting: how many requests wait.
        in_flight: how many requests are under way.
        held_by: the URL of the request that has been under way for longest; empty for none, or if it is unknown.
        held_s: for how many seconds that has been under way; 0 for none.
        fleet_wait: what the first request that waits here waits for in the fleet: the end of a request of another
            process (IN_FLIGHT, with its URL), its own start, or the Redis of the fleet (FLEET). None for nothing, and
            without a fleet.
    """

    host: str
    interval_s: float
    bound_by: Bound
    not_before_wall: float
    closed_until_wall: float | None = None
    closed_by: Bound | None = None
    waiting: int = 0
    in_flight: int = 0
    held_by: str = ""
    held_s: float = 0.0
    fleet_wait: NotYet | None = None


class PacedLine(NamedTuple):
    """A line in which requests wait for a turn: of a host, or of all that share its address or domain.

    Attributes:
        pacer: the pacer that keeps it; one object for all gates that share it.
        key: its name there.
        max_concurrent: how many requests may be under way at once.
    """

    pacer: object
    key: str
    max_concurrent: int


class Permit(Protocol):
    """Permission to make one request now.

    It ends once: by ``end`` or ``give_back``, or because it was held for ``PacingOptions.max_turn_s``, whichever comes
    first. What is called after that has no effect.
    """

    @property
    def waited(self) -> bool:
        """Whether it was granted later than it was requested."""

    @property
    def under_way(self) -> bool:
        """Whether it has not ended."""

    def observe(self, status: int, headers: Mapping[str, str], /) -> None:
        """Record the answer while the request is under way. Has no effect after the end.

        Args:
            status: the HTTP status.
            headers: the headers, names in lower case.
        """

    def end(self) -> None:
        """End the request: the interval before the next one counts from now."""

    def give_back(self) -> None:
        """End without a request: the host was not contacted, and its interval is as it was before."""


class Pacer(Protocol):
    """Says when the next request to each host may start. Belongs to one event loop.

    A host is given by name; what is paced together (a host, an address, a domain) is up to the pacer. An implementation
    may have to wait for a server: only ``try_start`` answers at once, with NotYet where it cannot know.
    """

    @property
    def waiting(self) -> int:
        """How many requests wait for a permit."""

    @property
    def in_flight(self) -> int:
        """How many permits have not ended."""

    @property
    def reserving_s(self) -> float:
        """How long it takes to reserve a start at a server, in seconds, as far as is known; 0 where none is asked."""

    def try_start(self, request: TurnRequest, /) -> Permit | NotYet:
        """Return a permit, or when there may be one. Never waits; raises ClosedError."""

    async def try_starts(self, requests: Sequence[TurnRequest], /) -> Sequence[Permit | NotYet]:
        """Return, in the order of ``requests``, the permits that there are now, and when there may be the others.

        It waits for one answer of a server at the most, which gives them all, and reserves nothing for later. No more
        permits are granted than may be used at once. A caller that is cancelled gets none, and none is lost.

        Raises:
            ClosedError: if the pacer is closed.
            WrongEventLoop: in another event loop than that of the first use.
        """

    async def start(self, request: TurnRequest, max_wait_s: float | None = None, /) -> Permit:
        """Wait in line for a permit.

        Raises:
            TooFar: if none comes within ``max_wait_s`` seconds; at once where that is known.
            ClosedError: if the pacer is closed.
            WrongEventLoop: in another event loop than that of the first use.
        """

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        """Call ``callback`` once, from the event loop, when ``request`` may start and nothing waits; or at the close.

        Call ``try_start`` from the callback, or soon after it: where a server is asked, a start was reserved there for
        the callback, and is given back when it is late. Raises ClosedError and WrongEventLoop.
        """

    def when_near(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        """Call ``callback`` once, when ``when_ready`` should be called, so that a start is reserved when it is due.

        It reserves nothing. Where no server is asked it is ``when_ready``. Raises ClosedError and WrongEventLoop.
        """

    def close_host(self, host: str, until_wall: float, bound_by: Bound, /) -> None:
        """Let nothing start at ``host`` before the Unix time ``until_wall``; requests that wait included."""

    async def closed_until(self, host: str, /) -> float | None:
        """Return the Unix time until which ``host`` is closed; None if it is open."""

    def count_fetch(
        self,
        host: str,
        origin: str,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        elapsed_s: float = 0.0,
        /,
    ) -> None:
        """Count a robots.txt that was fetched without a permit.

        The first one of an origin counts as a request to its host. A refresh does not restart an interval that a page
        has waited for: a page that is due stays due, however short a time robots.txt holds.

        Args:
            host: the pacing host.
            origin: the origin whose robots.txt was fetched, as text.
            status: the HTTP status; 429 and 503 close the host. None for no answer.
            headers: the headers of the answer, names in lower case.
            elapsed_s: how long the answer took, in seconds.
        """

    def hosts(self) -> Mapping[str, HostPace]:
        """Return what is known here of each busy host, by its name; an idle host may be missing. Changes nothing."""

    def lines(self, host: str, /) -> Iterable[PacedLine]:
        """Return the lines in which a request to ``host`` waits, as far as they are known. Changes nothing."""

    def set_limits(self, host: str, min_delay_s: float | None, max_concurrent: int | None, /) -> None:
        """Pace ``host`` by its own limits from now on; None for those of the options. Raises ConfigurationError."""

    async def aclose(self) -> None:
        """Raise ClosedError in all that waits, and call the callbacks of ``when_ready``. Calling it twice is fine."""
