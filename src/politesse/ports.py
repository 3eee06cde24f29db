"""What the cache asks of the world outside: protocols, and the small values that they pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from politesse.origin import Origin


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
