"""What a pacer is asked and what it answers: the protocol Pacer, and the types of its arguments and results."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from politesse.robots import RuleSet
    from politesse.status import HostStatus
    from politesse.verdict import Bound, NotYet


class TurnRequest(NamedTuple):
    """A request that wants to start. Each turn makes a TurnRequest; a named tuple is cheap to make.

    Attributes:
        host: the host name under which the request is paced, in lower case, without scheme, port and trailing dot.
        origin: the origin of the URL, as text.
        agent: the product tokens whose rules apply, the most specific first, joined by commas.
        pace: the statements of the robots.txt of ``origin`` for ``agent``. If it is None, the earlier statements stay
            in force.
        url: the URL, which is shown to requests that wait for this request; empty if it is unknown.
        min_delay_s: the shortest interval before this request that the gate permits. Gates with different values may
            share a pacer.
        check_lines: a function that raises an error if the request must not wait. A pacer of several scopes calls the
            function before the request waits, once the pacer knows the keys of all scopes. Other pacers never call it.
    """

    host: str
    origin: str
    agent: str
    pace: RuleSet | None = None
    url: str = ""
    min_delay_s: float = 0.0
    check_lines: Callable[[], None] | None = None


class PacedLine(NamedTuple):
    """A line in which requests wait for a turn: the line of one host, or of all hosts at one address or in one domain.

    Attributes:
        pacer: the pacer that has the line; gates that share a pacer name the same object.
        key: the key of the line in the pacer.
        max_concurrent: how many requests may be under way at once.
    """

    pacer: object
    key: str
    max_concurrent: int


class Permit(Protocol):
    """Permission to make one request now.

    A permit ends once: by ``end`` or ``give_back``, or because it was held for ``PacingOptions.max_turn_s``. Later
    calls have no effect.
    """

    @property
    def waited(self) -> bool:
        """Whether the request had to wait for the permit."""

    @property
    def under_way(self) -> bool:
        """Whether the permit has not ended."""

    def observe(self, status: int, headers: Mapping[str, str], /) -> None:
        """Record the answer while the request is under way. Has no effect after the end.

        Args:
            status: the HTTP status.
            headers: the headers, names in lower case.
        """

    def end(self) -> None:
        """End the request: with ``max_concurrent=1``, the interval before the next request counts from now."""

    def give_back(self) -> None:
        """End the permit without a request: the host was not contacted, so the interval does not begin again."""


class FetchPermit(Protocol):
    """Permission to request a robots.txt once; ``end`` or ``give_back`` ends the permit."""

    def end(
        self, status: int | None = None, headers: Mapping[str, str] | None = None, elapsed_s: float = 0.0, /
    ) -> None:
        """End the request.

        Args:
            status: the HTTP status; 429 and 503 close the host. Pass None if there was no answer. Also pass None for a
                503 without Retry-After from the origin itself, not from the target of a redirect: such a 503 disallows
                only that origin.
            headers: the headers of the answer, names in lower case.
            elapsed_s: the response time in seconds.
        """

    def give_back(self) -> None:
        """End the permit without a request."""

    def opened(self) -> None:
        """Let the next page of the host wait for one interval from now; called after ``end``.

        Call this if the robots.txt opened its site. A refresh of the robots.txt of an open site does not restart the
        interval: a page that is due stays due, even if the robots.txt is refreshed often.
        """


class Pacer(Protocol):
    """Decides when the next request to each host may start. Belongs to one event loop.

    A request names its host. The pacer decides whether it spaces requests by host, address or domain. An implementation
    may have to ask a server. Only ``try_start`` never waits: it returns a NotYet if it would have to ask.
    """

    @property
    def waiting(self) -> int:
        """How many requests wait for a permit."""

    @property
    def in_flight(self) -> int:
        """How many permits have not ended."""

    def try_start(self, request: TurnRequest, /) -> Permit | NotYet:
        """Return a permit, or a NotYet with the time to ask again. Never waits; raises ClosedError."""

    async def try_starts(self, requests: Sequence[TurnRequest], /) -> Sequence[Permit | NotYet]:
        """Return a permit or a NotYet for each of ``requests``, in order: a NotYet if no permit is free now.

        The call may wait for answers of a server, and reserves no later start. All granted permits may be used at the
        same time. If the caller is cancelled, no permit is lost.

        Raises:
            ClosedError: if the pacer is closed.
            WrongEventLoop: in another event loop than the first use.
        """

    async def start(
        self, request: TurnRequest, max_wait_s: float | None = None, instead_of: Permit | None = None, /
    ) -> Permit:
        """Wait in line for a permit: requests and callbacks of ``when_ready`` are served first come, first served.

        Args:
            request: the request.
            max_wait_s: the longest wait in seconds, or None for no limit.
            instead_of: a permit that the caller has given back; the request takes the place of this permit in the line.

        Raises:
            TooFar: if no permit comes within ``max_wait_s`` seconds; raised at once if that is certain.
            ClosedError: if the pacer is closed.
            WrongEventLoop: in another event loop than the first use.
        """

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        """Call ``callback`` once when ``request`` is first in line and may start, or when the pacer closes.

        Call ``try_start`` for the same host and agent in the callback, or within 50 ms; for this time the callback
        keeps its place at the head of the line. Raises ClosedError and WrongEventLoop.
        """

    def close_host(self, host: str, until_wall: float, bound_by: Bound, /) -> None:
        """Let no request start at ``host`` before the Unix time ``until_wall``, waiting requests included."""

    async def closed_until(self, host: str, /) -> float | None:
        """Return the Unix time until which ``host`` is closed, or None if it is open."""

    def known_closing(self, host: str, /) -> float | None:
        """Return the Unix time until which ``host`` is closed, as far as this process knows; or None. Never waits."""

    async def start_fetch(self, request: TurnRequest, /, *, made: bool = False) -> FetchPermit:
        """Wait in line to request a robots.txt; with ``made``, do not wait, because the request was made already.

        A request for robots.txt waits for other requests for robots.txt, but not for pages or their interval. A host
        gets one request for robots.txt at a time. Two such requests in a minute need no pause; the minimum delay
        applies between further requests. If the host is closed, the caller has to wait until the host opens.

        Raises:
            ClosedError: if the pacer is closed.
        """

    def hosts(self) -> Mapping[str, HostStatus]:
        """Return a mapping from the names of busy hosts to their states. Idle hosts may be missing. Changes nothing."""

    def closings(self) -> Mapping[Bound, int]:
        """Return how many hosts are closed now, by the reason of the closure. Any thread may call this."""

    def lines(self, host: str, /) -> Iterable[PacedLine]:
        """Return the lines in which a request to ``host`` waits, if they are known. Changes nothing."""

    def set_limits(self, host: str, min_delay_s: float | None, max_concurrent: int | None, /) -> None:
        """Set the limits of ``host`` from now on. If a limit is None, the options apply. Raises ConfigurationError."""

    async def aclose(self) -> None:
        """Raise ClosedError in all waiting tasks, and call the callbacks of ``when_ready``. May be called twice."""
