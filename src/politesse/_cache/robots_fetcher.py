"""Fetching robots.txt politely: no request is sent to a closed host, and every request counts at its host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from politesse._cache.fetching import follow
from politesse.errors import InvalidURL
from politesse.origin import Origin
from politesse.ports import FaultKind, Fetcher, FetchFault, FetchRequest, FetchResponse, FetchResult, Pacer

if TYPE_CHECKING:
    from politesse._cache.admission import Admission
    from politesse.clock import Clock

_SERVICE_UNAVAILABLE: Final = 503


class _Spent:
    """The time that one fetch has taken so far; waiting for places does not count.

    Attributes:
        seconds: that of all requests that have ended.
        started_mono: when the last request started.
    """

    __slots__ = ("seconds", "started_mono")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.started_mono = 0.0


class PacedFetcher:
    """Fetches robots.txt within the pace of its host: it waits for no interval, but its requests are counted.

    It follows redirects itself, and every hop counts at its own host. robots.txt is not fetched from a closed host
    either. A host that answers 429, or 503 to a redirect or with Retry-After, is closed from then on.

    Args:
        fetcher: makes the requests, one for each hop.
        pacer: knows which hosts are closed, and counts the requests.
        clock: the clocks.
        admission: says how many requests may be under way.
        total_timeout_s: how many seconds a redirected fetch may take; its first hop has the time limit of the fetcher.
    """

    def __init__(
        self, fetcher: Fetcher, pacer: Pacer, clock: Clock, *, admission: Admission, total_timeout_s: float
    ) -> None:
        self._fetcher = fetcher
        self._pacer = pacer
        self._clock = clock
        self._admission = admission
        self._total_timeout_s = total_timeout_s

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Fetch, unless the host of a hop is closed."""
        spent = _Spent()
        result = await follow(request, lambda hop: self._ask(hop, spent, is_limited=bool(hop.first_url)))
        if result is None:  # the fetcher does not report where a redirect leads, so it has to follow them all itself
            result = await self._ask(request, spent, is_limited=True)
        return result

    async def aclose(self) -> None:
        """Close the fetcher within."""
        await self._fetcher.aclose()

    async def _ask(self, hop: FetchRequest, spent: _Spent, *, is_limited: bool) -> FetchResult:
        """Make one request, and add the seconds for which it was under way to those of the fetch."""
        spent.started_mono = self._clock.monotonic()
        limit_s = max(0.0, self._total_timeout_s - spent.seconds) if is_limited else None
        # This check is made outside: if it takes a lookup of the address, no place is held meanwhile.
        result: FetchResult | None = await self._closed(hop)
        if result is None:
            starts_at_once = self._admission.is_free(hop.origin.pacing_host)
            result = await self._admission.run(hop, lambda: self._fetch(hop, spent, is_checked=starts_at_once), limit_s)
        spent.seconds += self._clock.monotonic() - spent.started_mono
        return result

    async def _closed(self, hop: FetchRequest) -> FetchFault | None:
        host = hop.origin.pacing_host
        closed_until_wall = await self._pacer.closed_until(host)
        if closed_until_wall is None:
            return None
        detail = f"no request is sent to {host} until it opens again"
        wait_s = closed_until_wall - self._clock.wall()
        return FetchFault(FaultKind.HOST_CLOSED, detail, hop.url, retry_after_s=wait_s)

    async def _fetch(self, hop: FetchRequest, spent: _Spent, *, is_checked: bool) -> FetchResult:
        """Make one request, and count it at its host before another one to that host is admitted."""
        if not is_checked and (closed := await self._closed(hop)) is not None:
            return closed  # it was closed while a place was waited for
        spent.started_mono = started_mono = self._clock.monotonic()
        host, last = hop.origin.pacing_host, hop.origin
        status, headers = None, None
        try:
            result = await self._fetcher.fetch(hop)
            if result.final_url != hop.url:  # parsing it would cost as much as the rest of this method
                last = _origin(result.final_url) or last
            if isinstance(result, FetchResponse) and _speaks_for_host(hop, result, last.pacing_host):
                status, headers = result.status, result.headers
            return result
        finally:
            if last.pacing_host != host:
                # The fetcher has followed a redirect itself: both hosts have answered a request.
                self._pacer.count_fetch(host, str(hop.origin))
            elapsed_s = self._clock.monotonic() - started_mono
            self._pacer.count_fetch(last.pacing_host, str(last), status, headers, elapsed_s)


def _speaks_for_host(hop: FetchRequest, result: FetchResponse, host: str) -> bool:
    """Return whether a status may close the whole host: False only for a bare 503 from the host of the robots.txt.

    A bare 503 of the origin itself is in the table of outcomes: it closes that origin, unless a copy serves, and says
    nothing of the other ports. Behind a redirect there is no such entry: many origins may lead to the same host.
    """
    if result.status != _SERVICE_UNAVAILABLE or "retry-after" in result.headers:
        return True
    return host != Origin.of(hop.first_url or hop.url).pacing_host


def _origin(url: str) -> Origin | None:
    try:
        return Origin.of(url)
    except InvalidURL:  # a redirect to a URL without an origin
        return None
