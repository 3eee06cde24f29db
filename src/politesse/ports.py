"""The ports between politesse and the outside: protocols, and the values that they exchange."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from politesse.origin import Origin
    from politesse.verdict import Bound, NotYet


MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""The largest value of any setting for the size of a file, in octets."""


class FaultKind(StrEnum):
    """Why a fetch has no usable response.

    >>> FaultKind.TLS
    <FaultKind.TLS: 'tls'>
    """

    DNS = "dns"
    CONNECT = "connect"
    ADDRESS = "address"
    """The address must not be connected to."""
    TLS = "tls"
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"
    """The response is not valid HTTP."""
    TRUNCATED = "truncated"
    """The body is shorter than announced, or has no announced end and ended in an error."""
    ENCODING = "encoding"
    """The content encoding is unknown, broken, or was not requested."""
    REDIRECT_LIMIT = "redirect-limit"
    """More redirects than are followed, or a loop."""
    REDIRECT_TARGET = "redirect-target"
    """A redirect without a valid http(s) target, or to a target that must not be fetched."""
    HOST_CLOSED = "host-closed"
    """The host is closed by an earlier 429 or 503, so no request was sent."""
    INTERNAL = "internal"
    """The fetcher itself failed."""


@dataclass(frozen=True, slots=True)
class Validators:
    """The validators of a copy, for a conditional request to the URL that it came from, and to no other.

    >>> Validators("https://example.com/robots.txt", etag='"v1"', last_modified="").etag
    '"v1"'

    Attributes:
        url: the URL of the copy.
        etag: the ETag as received, or empty.
        last_modified: the Last-Modified as received, or empty.
    """

    url: str
    etag: str
    last_modified: str


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A request for a file of ``origin``, which is robots.txt by default.

    >>> from politesse import Origin
    >>> FetchRequest(Origin.of("https://example.com"), max_redirects=5).url
    'https://example.com/robots.txt'

    Attributes:
        origin: the origin of the file.
        max_redirects: how many redirects to follow; one more is a REDIRECT_LIMIT fault.
        validators: of the present copy, or None for an unconditional request.
        path: path and query of the file; starts with ``/`` and is sent unchanged.
        redirected: True if a redirect from another host or a public address led here, in an earlier request; private
            addresses are then refused.
        first_url: the URL before the redirects that led here; empty without redirects.
        last: whether this is the last hop: a further redirect exceeds the limit.
    """

    origin: Origin
    max_redirects: int
    validators: Validators | None = None
    path: str = "/robots.txt"
    redirected: bool = False
    first_url: str = ""
    last: bool = False

    @property
    def url(self) -> str:
        """The URL of the file."""
        return f"{self.origin}{self.path}"


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """A response with any status.

    >>> FetchResponse(200, "https://example.com/robots.txt", body=b"User-agent: *").truncated
    False

    Attributes:
        status: the HTTP status of the last hop.
        final_url: the URL of the last hop.
        headers: of the last hop; names in lower case, the first line of each name.
        body: decoded, up to the fetcher's limit; a cut body ends with a complete line.
        truncated: whether the body was longer than the limit.
        conditional: whether the last hop was requested with validators, so that a 304 has a meaning.
    """

    status: int
    final_url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    truncated: bool = False
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class FetchFault:
    """A fetch without a usable response.

    >>> FetchFault(FaultKind.DNS, "no such host", "https://example.com/robots.txt").kind
    <FaultKind.DNS: 'dns'>

    Attributes:
        kind: the kind of the fault.
        detail: what happened, as a phrase for people.
        final_url: the URL of the hop that failed.
        status: of that hop; None without a response.
        retry_after_s: in how many seconds to try again; None if unknown.
        location: for a REDIRECT_LIMIT, the target of the redirect that was not followed; empty for a loop, or if the
            fetcher does not report it.
        private: whether the redirecting server has a private address; None if unknown.
        final: for a REDIRECT_LIMIT, whether following more redirects would give the same result.
    """

    kind: FaultKind
    detail: str
    final_url: str
    status: int | None = None
    retry_after_s: float | None = None
    location: str = ""
    private: bool | None = None
    final: bool = False


FetchResult = FetchResponse | FetchFault


class Fetcher(Protocol):
    """Fetches robots.txt, and other files at well-known paths, with any HTTP client.

    A fetcher bounds time and size, sends no cookies and no credentials, and returns faults instead of raising them. Any
    exception closes the gate.

    The gate follows redirects: it makes a request with ``max_redirects=0`` for each hop, once the host of that hop may
    be requested, and continues with the ``location`` of the REDIRECT_LIMIT. So a fetcher should report ``location``.
    The time limit of the fetcher applies to the first hop; the later ones share the rest of 30 seconds, or of
    ``FetchOptions.total_timeout_s``. If ``location`` is missing, the fetcher is called once more, to follow up to
    ``max_redirects`` itself and check each hop; closed hosts on the way are not respected then. A REDIRECT_LIMIT
    without ``location`` allows a site only if it is ``final``, or the result of that second call.

    A redirect from a public address must not lead to a private one. A fetcher that knows addresses reports ``private``
    for the redirecting hop, and refuses private addresses for a request that is ``redirected``.
    """

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Make one request."""

    async def aclose(self) -> None:
        """Close all connections."""


class Store(Protocol):
    """Keeps records by origin. It may drop any record at any time."""

    async def get(self, key: str, /) -> bytes | None:
        """Return the record, or None.

        Raises:
            StoreError: the record could not be read.
        """

    async def put(self, key: str, record: bytes, /) -> None:
        """Keep a record, replacing an earlier one.

        Raises:
            StoreError: the record could not be written.
        """

    async def delete(self, key: str, /) -> None:
        """Delete a record if there is one.

        Raises:
            StoreError: the record could not be deleted.
        """

    async def aclose(self) -> None:
        """Close files and connections."""


class Resolver(Protocol):
    """Looks up the addresses of a host name."""

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        """Return IPv4 and IPv6 addresses as text, in the order to try.

        Raises:
            OSError: the name has no address, or the lookup failed.
        """


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

    def try_start(self, request: TurnRequest, /) -> Permit | NotYet:
        """Return a permit, or when there may be one. Never waits; raises ClosedError."""

    async def start(self, request: TurnRequest, max_wait_s: float | None = None, /) -> Permit:
        """Wait in line for a permit.

        Raises:
            TooFar: if none comes within ``max_wait_s`` seconds; at once where that is known.
            ClosedError: if the pacer is closed.
            WrongEventLoop: in another event loop than that of the first use.
        """

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        """Call ``callback`` once, from the event loop, when ``request`` may start and nothing waits; or at the close.

        It reserves nothing: call ``try_start`` from the callback. Raises ClosedError and WrongEventLoop.
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
