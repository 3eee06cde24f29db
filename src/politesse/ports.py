"""The ports between the rooms and to the world outside: protocols, and the small values that they pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from politesse.origin import Origin
    from politesse.verdict import Bound, NotYet


MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""The largest file that any setting lets in."""


class FaultKind(StrEnum):
    """Why there is no usable answer."""

    DNS = "dns"
    CONNECT = "connect"
    ADDRESS = "address"
    """The address must not be connected to."""
    TLS = "tls"
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"
    """What came is not HTTP."""
    TRUNCATED = "truncated"
    """The body ended before its announced end; or nothing announced one, and it ended in an error."""
    ENCODING = "encoding"
    """The content encoding is unknown, broken, or was not asked for."""
    REDIRECT_LIMIT = "redirect-limit"
    """More redirects than are followed, or a loop."""
    REDIRECT_TARGET = "redirect-target"
    """A redirect without a usable http(s) target, or to one that must not be followed."""
    HOST_CLOSED = "host-closed"
    """The host has asked to be left alone, so it was not asked."""
    INTERNAL = "internal"
    """The fetcher itself failed."""


@dataclass(frozen=True, slots=True)
class Validators:
    """What makes a request conditional; valid for the URL that the copy came from and no other.

    Attributes:
        url: that URL.
        etag: the ETag as received, or empty.
        last_modified: the Last-Modified as received, or empty.
    """

    url: str
    etag: str
    last_modified: str


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Ask for a file of ``origin``: its robots.txt, unless another is named.

    Attributes:
        origin: whose.
        max_redirects: how many redirects to follow; one more is a REDIRECT_LIMIT fault.
        validators: of the copy at hand, or None to ask without condition.
        path: which file, its query included; starts with ``/`` and is sent as it is.
        redirected: whether a redirect has sent us here, in a request before this one, from another host or a public
            address: then what no redirect may reach, a private address above all, is not to be asked.
        first_url: the URL that was to be fetched, where redirects have led from there to here; else empty.
        last: whether this is the last hop: a redirect of its answer is one too many.
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
        """What to ask for."""
        return f"{self.origin}{self.path}"


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """An answer, whatever its status.

    Attributes:
        status: the HTTP status of the last hop.
        final_url: the URL of the last hop.
        headers: of the last hop, names in lower case, the first of each name.
        body: decoded; at most the fetcher's limit, its unfinished last line dropped.
        truncated: whether the body was longer than the limit.
        conditional: whether the last hop was asked with validators, so that a 304 means something.
    """

    status: int
    final_url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    truncated: bool = False
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class FetchFault:
    """No usable answer.

    Attributes:
        kind: the sort of fault.
        detail: what happened, as a phrase for people.
        final_url: the URL of the hop that failed.
        status: of that hop, where one came.
        retry_after_s: in how many seconds to ask again, where that is known.
        location: of a REDIRECT_LIMIT, the URL that the redirect which was not followed leads to; empty for a loop, or
            where the fetcher does not tell.
        private: whether what redirected us is at a private address; None where that is not known.
        final: of a REDIRECT_LIMIT, that it would be the same if more redirects were followed.
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
    """Fetches robots.txt, and other files that a site keeps at a well-known path, over any HTTP client.

    It bounds time and size, sends no cookies and no credentials, and returns faults instead of raising them. Whatever
    it raises all the same closes the gate.

    The gate follows redirects: it makes a request with ``max_redirects=0`` for each hop, once the host of that hop may
    be asked, and takes ``location`` of the REDIRECT_LIMIT for the next one. The time limit of the fetcher holds for the
    first hop; all later ones have what that leaves of 30 seconds, or of ``FetchOptions.total_timeout_s``. So a fetcher
    has to tell the ``location``. One that does not is asked once more, to follow up to ``max_redirects`` itself and
    check each hop: what it follows is asked without regard to the hosts on the way. A REDIRECT_LIMIT without
    ``location`` does not open a site unless it is ``final``, or the answer to such a second request.

    A redirect from a public address may not lead to a private one. Who can see addresses says ``private`` of the hop
    that redirects, and refuses private addresses to a request that is ``redirected``.
    """

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Ask once."""

    async def aclose(self) -> None:
        """Let go of connections."""


class Store(Protocol):
    """Keeps records, by origin. It may forget any of them at any time."""

    async def get(self, key: str, /) -> bytes | None:
        """Return the record, or None; raises StoreError."""

    async def put(self, key: str, record: bytes, /) -> None:
        """Keep a record in place of the one before; raises StoreError."""

    async def delete(self, key: str, /) -> None:
        """Forget a record, if there is one; raises StoreError."""

    async def aclose(self) -> None:
        """Let go of files and connections."""


class Resolver(Protocol):
    """Finds the addresses of a host name."""

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        """Return IPv4 and IPv6 addresses as text, in the order to try; raises OSError."""


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
    """

    host: str
    origin: str
    agent: str
    pace: StatedPace | None = None


class Permit(Protocol):
    """Permission to make one request now. It ends once: by ``end`` or ``give_back``, whichever comes first."""

    @property
    def waited(self) -> bool:
        """Whether it was granted later than it was requested."""

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

    def set_limits(self, host: str, min_delay_s: float | None, max_concurrent: int | None, /) -> None:
        """Pace ``host`` by its own limits from now on; None for those of the options. Raises ConfigurationError."""

    async def aclose(self) -> None:
        """Raise ClosedError in all that waits, and call the callbacks of ``when_ready``. Calling it twice is fine."""
