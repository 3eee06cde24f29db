"""The ports between politesse and the outside: protocols, and the values that they exchange."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from politesse.origin import Origin

__all__ = [
    "MAX_BODY_BYTES",
    "FaultKind",
    "FetchFault",
    "FetchRequest",
    "FetchResponse",
    "FetchResult",
    "Fetcher",
    "Lease",
    "LeaseHeld",
    "LeasingStore",
    "Resolver",
    "Signer",
    "Store",
    "UpdatingStore",
    "Validators",
    "VersionedRecord",
]

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
    """The fetcher must not connect to the address."""
    TLS = "tls"
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"
    """The response is not valid HTTP."""
    TRUNCATED = "truncated"
    """The body is shorter than announced, or has no announced end and ended in an error."""
    ENCODING = "encoding"
    """The content encoding is unknown, broken, or was not requested."""
    REDIRECT_LIMIT = "redirect-limit"
    """The limit of redirects is reached, or the redirects form a loop."""
    REDIRECT_TARGET = "redirect-target"
    """A redirect without a valid http(s) target, or to a target that must not be fetched."""
    HOST_CLOSED = "host-closed"
    """The host is closed by an earlier 429 or 503, so no request was sent."""
    INTERNAL = "internal"
    """The fetcher itself failed."""


@dataclass(frozen=True, slots=True)
class Validators:
    """The validators of a copy, for conditional requests to the URL of the copy and no other URL.

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
        max_redirects: how many redirects the fetcher has to follow itself, because it has not reported the target of a
            redirect before; else 0. The next redirect is a REDIRECT_LIMIT fault.
        validators: the validators of the present copy, or None for an unconditional request.
        path: the path and query of the file; starts with ``/`` and is sent unchanged.
        redirected: whether an earlier request was redirected here from another host or a public address; private
            addresses are then refused.
        first_url: the first URL of the chain of redirects that led here; empty without redirects.
        last: whether this is the last hop, so that a further redirect exceeds the limit.
        refresh: whether this request renews a copy, and that copy has permitted requests to the site until now.
        signature: the headers that sign this request, or None; send them to ``url``, not to the target of a redirect.
        url: the URL of the file.
    """

    origin: Origin
    max_redirects: int
    validators: Validators | None = None
    path: str = "/robots.txt"
    redirected: bool = False
    first_url: str = ""
    last: bool = False
    refresh: bool = False
    signature: Mapping[str, str] | None = field(default=None, hash=False)
    url: str = field(init=False, repr=False, compare=False)  # made once, because each request reads it several times

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", self.origin.text + self.path)  # the class is frozen


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """A response with any status.

    >>> FetchResponse(200, "https://example.com/robots.txt", body=b"User-agent: *").truncated
    False

    Attributes:
        status: the HTTP status of the last hop.
        final_url: the URL of the last hop.
        headers: the headers of the last hop; names in lower case. Several lines of one header are joined with commas,
            in order (RFC 9110 5.3).
        body: the decoded body, up to the fetcher's limit; a cut body ends with a complete line.
        truncated: whether the body was longer than the limit.
        conditional: whether the last hop was requested with validators, so that a 304 has a meaning.
        age_s: the age of the answer in seconds, if it was fetched for another origin; 0 for a new answer.
        closed_s: for how long its host is closed after a refusal, in seconds; set by the gate.
    """

    status: int
    final_url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    truncated: bool = False
    conditional: bool = False
    age_s: float = 0.0
    closed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FetchFault:
    """A fetch without a usable response.

    >>> FetchFault(FaultKind.DNS, "no such host", "https://example.com/robots.txt").kind
    <FaultKind.DNS: 'dns'>

    Attributes:
        kind: the kind of the fault.
        detail: a phrase that describes the failure.
        final_url: the URL of the hop that failed.
        status: the status of that hop, or None without a response.
        retry_after_s: in how many seconds to try again, or None if unknown.
        location: for a REDIRECT_LIMIT, the target of the redirect that was not followed; empty for a loop, or if the
            fetcher does not report it.
        private: whether the redirecting server has a private address, or None if unknown.
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
    """Makes one request for robots.txt, or for another file at a well-known path, with any HTTP client.

    A fetcher makes one hop, and follows no redirect. It bounds time and size, sends no cookies and no credentials, and
    returns faults instead of raising them. Any exception closes the site.

    The gate follows redirects: it calls the fetcher with ``max_redirects=0`` for each hop, once the host of that hop
    may be requested, and continues with the ``location`` of the REDIRECT_LIMIT. So a fetcher should report
    ``location``. The time limit of the fetcher applies to the first hop; all later hops share the rest of 30 seconds,
    or of ``FetchOptions.total_timeout_s``. Without ``location``, the gate calls the fetcher once more, which then
    follows up to ``max_redirects`` itself, even to hosts that are closed. A REDIRECT_LIMIT without ``location`` allows
    a site only if ``final`` is true, or if that second call returned it.

    A redirect from a public address must not lead to a private address. A fetcher that knows addresses reports
    ``private`` for the redirecting hop, and refuses private addresses for a request that is ``redirected``.
    """

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Make one request."""

    async def aclose(self) -> None:
        """Close all connections."""


class Store(Protocol):
    """Keeps one record under each key, and may drop any record at any time.

    Keys are text, in any script and up to some hundred characters. The key of a robots.txt is its origin, such as
    ``https://example.com``. The key for the demands of a host, such as a Retry-After, is ``pace/SCOPE/NAME``, for
    example ``pace/host/example.com`` or ``pace/address/192.0.2.1``. A gate writes such records only to stores that may
    outlive the process, not to a MemoryStore. Records are opaque: a record contains its version, key and digest.

    A method that fails raises StoreError. A gate has up to a thousand calls under way, and cancels a call after
    ``CacheOptions.store_timeout_s``. A store that is late, or fails three consecutive times, is paused for a while.
    """

    async def get(self, key: str, /) -> bytes | None:
        """Return the record, or None."""

    async def put(self, key: str, record: bytes, /) -> None:
        """Keep a record, in place of an earlier record."""

    async def delete(self, key: str, /) -> None:
        """Delete a record if it exists."""

    async def aclose(self) -> None:
        """Close files and connections."""


@runtime_checkable
class UpdatingStore(Store, Protocol):
    """A Store that changes a record in one step, so that no record of another process is lost.

    A gate uses ``update`` if its store has this method; otherwise the gate gets the record and puts the new record.
    """

    async def update(self, key: str, change: Callable[[bytes | None], bytes], /) -> None:
        """Replace the record by the result of ``change``.

        From the call of ``change`` until ``update`` returns, no other record is put under the key.

        Args:
            key: the key of the record.
            change: takes the record, or None, and returns the new record. The store may call it more than once, and in
                another thread while the store is locked, so it must be quick and have no side effects. If it raises an
                error, the record does not change, and the caller gets the error.

        Raises:
            StoreError: the record could not be read or written.
        """


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to fetch a file for all processes that share a store. A lease expires unless it is renewed.

    >>> Lease("0001799999999999", lasts_s=5.0).lasts_s
    5.0

    Attributes:
        token: a fencing token; as text, greater than the token of each earlier lease of the key.
        lasts_s: seconds from the grant or the last renewal to the end.
    """

    token: str
    lasts_s: float


@dataclass(frozen=True, slots=True)
class LeaseHeld:
    """Another process holds the lease.

    >>> LeaseHeld(left_s=1.5).left_s
    1.5

    Attributes:
        left_s: seconds until the lease ends, unless it is renewed.
    """

    left_s: float


@dataclass(frozen=True, slots=True)
class VersionedRecord:
    """A record, and its version.

    >>> VersionedRecord("0001799999999999", b"record").record
    b'record'

    Attributes:
        version: not empty, and different for each record that is put under a key.
        record: the record.
    """

    version: str
    record: bytes


@runtime_checkable
class LeasingStore(Store, Protocol):
    """A Store that several processes share; one process at a time gets the lease to fetch a file.

    A gate uses these methods if its store has all of them. The gate fetches a robots.txt under the lease of its key and
    puts the answer, or the failure, with that lease. Meanwhile the other processes wait for the record. The leases of a
    killed process end by themselves. If a call fails, the gate fetches without a lease. If such a store outlives the
    process, a gate without a fleet raises ConfigurationError, unless it has ``PacingOptions(scope="process")``.
    """

    async def get_or_lease(self, key: str, version: str, /) -> VersionedRecord | Lease | LeaseHeld:
        """Return the record if its version is new; otherwise a lease, or a LeaseHeld if another process has the lease.

        No record is put between the reading of the record and the grant of the lease.

        Args:
            key: the key of the record.
            version: the version that the caller has read, or empty.

        Raises:
            StoreError: the store cannot answer now.
        """

    async def renew(self, leases: Mapping[str, Lease], /) -> None:
        """Renew each lease for its full time, unless another process has taken it over. ``leases`` maps keys to leases.

        Raises:
            StoreError: some leases may not have been renewed.
        """

    async def put_leased(self, key: str, record: bytes, lease: Lease, /) -> bool:
        """Keep a record and end its lease; if there is a later lease or record, only return False."""

    async def release(self, key: str, lease: Lease, /) -> None:
        """End a lease without storing a record, unless another process has taken it over."""


class Resolver(Protocol):
    """Looks up the addresses of a host name."""

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        """Return IPv4 and IPv6 addresses as text, in the order to try.

        Raises:
            OSError: the name has no address, or the lookup failed.
        """


class Signer(Protocol):
    """Signs requests, as ``politesse.signing.WebBotAuth`` does.

    A gate signs its own requests for robots.txt and other files. The integrations of aiohttp, httpx, requests and
    Scrapy sign each request that they send for the gate.
    """

    def sign(self, method: str, url: str, demand: str = "", /) -> Mapping[str, str]:
        """Return the headers that sign a request; empty if the request is not to be signed.

        Args:
            method: the method of the request.
            url: the URL, as it is sent.
            demand: the Accept-Signature that the signature is to satisfy; empty if there is none.

        Raises:
            ConfigurationError: there is no valid key.
        """

    def heeds(self, url: str, demand: str, sent: Mapping[str, str], /) -> bool:
        """Return whether to repeat a refused request with a signature that satisfies ``demand``.

        Args:
            url: the URL of the request.
            demand: the Accept-Signature of the answer.
            sent: the headers that signed the refused request; empty if it was not signed.
        """
