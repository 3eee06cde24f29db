"""Other well-known files than robots.txt, such as data.txt, and the sitemaps that a robots.txt lists.

``SiteFiles`` keeps the files in memory. Their content does not decide whether a site may be crawled. ``PageFetcher``
fetches them as politely as pages, with a check and a turn for each hop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from politesse._cache.cache import FileCache
from politesse._cache.fetching import Admission, fault_of_fetcher, is_challenge, signed, with_closure
from politesse._http.redirects import follow
from politesse._http.signing import RequestSignature
from politesse._sites.data_txt import DataRecord, DataTxt
from politesse.errors import Disallowed, PolitesseError
from politesse.events import SiteFileFetched
from politesse.page.encoding import decoded
from politesse.page.html import is_html
from politesse.ports import FaultKind, Fetcher, FetchFault, FetchRequest, FetchResponse, FetchResult
from politesse.robots.other_records import SitemapLines
from politesse.verdict import UNDECIDED, AccessResult, FileOutcome, Source, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from politesse._cache.cache import Flight
    from politesse._cache.outcome import Copy
    from politesse._cache.records import ReadingThreads
    from politesse._pacing.shared import GateShare
    from politesse._sites.data_txt import FieldNames
    from politesse.clock import Clock
    from politesse.events import Publisher
    from politesse.origin import Origin
    from politesse.ports import Signer
    from politesse.robots import RejectedSitemap

_SNIFFED_BYTES: Final = 4_096
# Larger files are read in threads, because they would block the event loop for milliseconds.
_READ_IN_THREAD_BYTES: Final = 8 * 1024
_CHECK_IN_THREAD_BYTES: Final = 4 * 1024
_MAX_DETAIL: Final = 300  # the detail of a fault is cut to this many characters


@dataclass(frozen=True, slots=True)
class SiteFile:
    """A file of a site, or the reason why there is none. The content is untrusted.

    Attributes:
        url: the URL of the file.
        outcome: the outcome of the fetch.
        body: the file, decoded from its content encoding; empty unless FOUND.
        truncated: whether the body was longer than the fetcher's limit, so that its last lines are missing.
        status: the HTTP status; after too many redirects, the status of the last redirect; None without an answer.
        final_url: the URL of the answer, after redirects.
        fault: the failure, as a phrase; else empty. If the outcome is FOUND, a non-empty ``fault`` is the reason why
            ``body`` is an older copy.
        age_s: seconds since the answer came, or was last confirmed by a 304.
        not_before: for RETRY, the Unix time before which the file is not fetched again; None if unknown.
        verdict: the verdict of the gate that denied the request; else None.
        content_type: the Content-Type header; empty unless FOUND.

    >>> SiteFile("https://example.com/data.txt", FileOutcome.FOUND, b"<!doctype html><title>404").is_web_page
    True
    """

    url: str
    outcome: FileOutcome
    body: bytes = b""
    truncated: bool = False
    status: int | None = None
    final_url: str = ""
    fault: str = ""
    age_s: float = 0.0
    not_before: float | None = None
    verdict: Verdict | None = None
    content_type: str = ""

    @property
    def is_web_page(self) -> bool:
        """Whether the server sent a web page in place of the file, judged by media type or first characters."""
        start = decoded(self.body[:_SNIFFED_BYTES])[0].lstrip("\ufeff\0 \t\n\f\r")
        return start.startswith("<") or is_html(self.body, self.content_type)


class SiteFiles(FileCache):
    """Keeps files by their URL, in memory only; see FileCache.

    The fetcher fetches files as politely as pages, and is not closed with the cache. If the fetcher raises Disallowed,
    the cache keeps no copy. The publisher receives SiteFileFetched and ComponentFailed.
    """

    what = "a file of a site"
    component = "files"
    refusals: ClassVar[tuple[type[Exception], ...]] = (PolitesseError,)

    async def get(self, origin: Origin, path: str) -> SiteFile:
        """Return the file of ``origin`` at ``path``; fetch it if necessary.

        Near the end of its lifetime a copy is fetched again in the background.

        Raises:
            ClosedError: if the cache is closed, also if it is closed during the fetch.
            WrongEventLoop: if the file is being fetched in another event loop.
            PolitesseError: the fetcher refuses to fetch.
        """
        return self._file(await self.entry(origin.text + path, origin, path))

    def ask_ahead(self, origin: Origin, path: str) -> None:
        """Start to fetch a file that is unknown or due, and do not wait for it."""
        key = origin.text + path
        if not self._closed and self.valid(key) is None:
            self._flight(key, origin, path)

    def peek(self, origin: Origin, path: str, *, late_s: float = 0.0) -> SiteFile | None:
        """Return the file of ``origin`` at ``path``; None if the file must be fetched first.

        A file still counts for ``late_s`` seconds beyond its lifetime; a failure counts only during its lifetime.
        """
        copy = self.held(origin.text + path)
        if copy is None:
            return None
        now_mono, now_wall = self._clock.monotonic(), self._clock.wall()
        if not copy.holds(now_mono, now_wall):
            # The deadline is not extended by more than the age of the copy.
            late_s = 0.0 if copy.trouble is not None else min(late_s, copy.age_s(now_mono, now_wall))
            if not copy.holds(now_mono - late_s, now_wall - late_s):
                return None
        copy.set_back(now_mono, now_wall)
        copy.used = True
        return self._file(copy)

    def forget(self, origin: Origin) -> None:
        """Drop the files of ``origin``."""
        for key in [key for key in self.entries if key.startswith(f"{origin}/")]:
            self._drop(key)

    def _file(self, copy: Copy) -> SiteFile:
        source, outcome = copy.source, _OUTCOMES[copy.result]
        found = copy.answer if outcome is FileOutcome.FOUND else None
        return SiteFile(
            url=source.robots_url,
            outcome=outcome,
            body=b"" if found is None else copy.body or b"",
            truncated=found is not None and found.cut_bytes is not None,
            status=source.status,
            final_url=source.final_url,
            fault=source.fault,
            age_s=max(0.0, copy.age_s(self._clock.monotonic(), self._clock.wall())),
            not_before=source.not_before if outcome is FileOutcome.RETRY else None,
            content_type="" if found is None else found.content_type,
        )

    def _publish(self, flight: Flight, result: FetchResult, source: Source, elapsed_s: float) -> None:
        del flight, elapsed_s
        self._publisher.publish(
            SiteFileFetched(source.robots_url, result.status, source.fault, _OUTCOMES[source.result])
        )


_OUTCOMES: Final = {
    AccessResult.SUCCESSFUL: FileOutcome.FOUND,
    AccessResult.UNAVAILABLE: FileOutcome.UNKNOWN,
    AccessResult.UNREACHABLE: FileOutcome.RETRY,
    AccessResult.TOO_MANY_REQUESTS: FileOutcome.RETRY,
}


@dataclass(frozen=True, slots=True)
class DataTxtAnswer:
    """The answer of a site to a request for data.txt.

    Attributes:
        file: the result of the fetch.
        content: the parsed file; empty unless the file was FOUND.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper
        >>> from politesse.testing import ManualClock, ScriptedFetcher
        >>> site = ScriptedFetcher({"https://example.com/data.txt": 404})
        >>> clock = ManualClock(autojump=True)
        >>> async def ask():
        ...     async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=site, clock=clock) as gate:
        ...         answer = await gate.datatxt("https://example.com")
        ...         print(answer.outcome, answer.status)
        >>> asyncio.run(ask())
        unknown 404
    """

    file: SiteFile
    content: DataTxt

    @property
    def outcome(self) -> FileOutcome:
        """Whether the site has a data.txt. UNKNOWN does not mean that the site has no datasets."""
        return self.file.outcome

    @property
    def status(self) -> int | None:
        """The HTTP status of the answer; None if there was no answer."""
        return self.file.status

    @property
    def records(self) -> tuple[DataRecord, ...]:
        """The records, in the order of the file."""
        return self.content.records

    @property
    def text(self) -> str:
        """The text of the file, safe to print."""
        return self.content.text


@dataclass(frozen=True, slots=True)
class Sitemaps:
    """The sitemaps that a robots.txt lists. Sitemaps may be on any host: check each URL before you request it.

    Attributes:
        urls: absolute http(s) URLs as written, in the order of the file, each once.
        rejected: the first hundred Sitemap lines without such a URL.
        source: the copy of robots.txt, or the reason why there is none; None if robots.txt was not needed.
        verdict: the verdict of a host policy, if it prevented the fetch of robots.txt; else None.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper
        >>> from politesse.testing import ScriptedFetcher
        >>> site = ScriptedFetcher({"https://example.com": "Sitemap: https://example.com/sitemap.xml"})
        >>> async def ask():
        ...     async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=site) as gate:
        ...         return await gate.sitemaps("https://example.com")
        >>> asyncio.run(ask()).urls
        ('https://example.com/sitemap.xml',)
    """

    urls: tuple[str, ...] = ()
    rejected: tuple[RejectedSitemap, ...] = ()
    source: Source | None = None
    verdict: Verdict | None = None

    @property
    def known(self) -> bool:
        """Whether the list is complete, because robots.txt was read, or the site has no robots.txt."""
        return self.source is not None and self.source.result in {AccessResult.SUCCESSFUL, AccessResult.UNAVAILABLE}


async def read_data_txt(file: SiteFile, reading: ReadingThreads, fields: FieldNames | None) -> DataTxtAnswer:
    """Parse a data.txt, in a thread if it is large."""
    if file.outcome is FileOutcome.FOUND and file.is_web_page:
        fault = "a web page was sent in its place"
        file = replace(file, outcome=FileOutcome.UNKNOWN, body=b"", truncated=False, content_type="", fault=fault)
    large = len(file.body) > _READ_IN_THREAD_BYTES
    return DataTxtAnswer(file, await reading.run(partial(DataTxt.parse, file.body, fields=fields), is_large=large))


async def read_sitemaps(copy: Copy, reading: ReadingThreads, agent: str) -> Sitemaps:
    """Return the sitemaps that the robots.txt of ``copy`` lists; the copy must have an answer for ``agent``."""
    rules = copy.rules.get(agent)
    lines = SitemapLines("") if rules is None else rules.sitemap_lines
    urls, rejected = await reading.run(lines.check, is_large=lines.weight_bytes > _CHECK_IN_THREAD_BYTES)
    return Sitemaps(urls, rejected, copy.source)


def denied_file(url: str, verdict: Verdict) -> SiteFile:
    """Return the result for a file that ``verdict`` denies."""
    undecided = verdict.reason in UNDECIDED
    return SiteFile(
        url=url,
        outcome=FileOutcome.RETRY if undecided else FileOutcome.DISALLOWED,
        fault=str(verdict),
        not_before=verdict.not_before if undecided else None,
        verdict=verdict,
    )


class OpenTurn(Protocol):
    """The turn of a request, as ``PageFetcher`` uses it: a context manager that ends it."""

    def observe(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        """Record an answer."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Crawler(Protocol):
    """Who requests the files: an agent of the gate."""

    @property
    def pacer(self) -> GateShare:
        """The pace of the hosts."""

    @property
    def clock(self) -> Clock:
        """The clocks."""

    async def take_turn(self, url: str) -> OpenTurn:
        """Wait for a turn; raises Disallowed."""


@dataclass(frozen=True, slots=True, eq=False)
class PageFetcher:
    """A Fetcher that treats a file as a page: each hop of a redirect is checked, and waits for a turn at its host.

    ``fetch`` raises Disallowed if the first hop may not be requested, and returns a fault if a later hop may not be
    requested.

    Args:
        crawler: checks permission for a URL, and waits for the turn of its host.
        fetcher: makes a request for each hop; not closed with this object.
        admission: limits the requests under way; waiting for a turn does not count.
        publisher: receives ComponentFailed when the fetcher raises.
        signer: signs the requests; None for no signature.
        max_redirects: how many redirects to follow.
    """

    crawler: Crawler
    fetcher: Fetcher
    admission: Admission
    publisher: Publisher
    signer: Signer | None
    max_redirects: int

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Fetch once, with all redirects."""
        # If the target is unknown, the fetcher must not follow redirects itself, because the gate has not permitted
        # them.
        unnamed = "a redirect, and the fetcher does not name its target"
        result = await follow(request, await self._ask(request), self.max_redirects, self._ask)
        result = result or FetchFault(FaultKind.REDIRECT_TARGET, unnamed, request.url)
        return await with_closure(result, self.crawler.pacer, self.crawler.clock)

    async def aclose(self) -> None:
        """Do nothing: the owner of the fetcher closes it."""

    async def _ask(self, hop: FetchRequest) -> FetchResult:
        """Return the answer to one hop; raise Disallowed if the first hop is not permitted."""
        try:
            result = await self._request(hop, RequestSignature(self.signer, "GET", hop.url))
        except Disallowed as error:
            if not hop.first_url:
                raise
            detail = f"a redirect to a URL that may not be requested: {error}"
            return FetchFault(FaultKind.REDIRECT_TARGET, detail[:_MAX_DETAIL], hop.url)
        if isinstance(result, FetchFault) and result.private:
            return replace(result, private=None)  # a page must not lead to a private address of another host
        return result

    async def _request(self, hop: FetchRequest, signature: RequestSignature) -> FetchResult:
        """Make one request in its turn, and repeat it once if the answer asks for a signature."""
        with await self.crawler.take_turn(hop.url) as turn:
            result = await self.admission.run(hop.url, lambda _: self._send(signed(hop, signature)))
            if not is_challenge(result, signature):
                if result.status is not None:
                    turn.observe(result.status, result.headers if isinstance(result, FetchResponse) else None)
                return result
        return await self._request(hop, signature)

    async def _send(self, request: FetchRequest) -> FetchResult:
        try:
            return await self.fetcher.fetch(request)
        except BaseException as error:  # noqa: BLE001 - a user's fetcher may raise any exception
            return fault_of_fetcher(error, request, self.publisher)
