"""The results of queues and crawls: turns, pages, counts, losses and errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from politesse._base.text import counted, printable, public_url, shortened
from politesse.errors import ClosedError, PolitesseError, WrongEventLoop
from politesse.origin import Origin
from politesse.verdict import WORDS, Bound, Reason, Verdict, utc

if TYPE_CHECKING:
    from collections.abc import Callable

    import typing_extensions  # type checkers have it without the package, and it knows the default of PEP 696

    from politesse._gate.turn import Turn
    from politesse._http.fields import Headers
    from politesse.origin import StrOrURL

    Item = typing_extensions.TypeVar("Item", default=Any)
else:
    Item = TypeVar("Item")

MAX_LOSSES: Final = 1_000


class PageFailed(PolitesseError):
    """A crawl gives up a URL because of the answer of its server.

    >>> print(PageFailed("https://example.com/a", 503, "was answered with 503 five times"))
    https://example.com/a was answered with 503 five times

    Attributes:
        url: the URL.
        status: the status of the last answer.
        problem: the reason to give up, as a phrase.
    """

    def __init__(self, url: str, status: int, problem: str) -> None:
        self.url: str = public_url(url)
        super().__init__(f"{printable(self.url)} {printable(problem)}")
        self.status = status
        self.problem = problem


@dataclass(frozen=True, slots=True)
class CrawlPage(Generic[Item]):
    """A page that a crawl hands to ``handle`` with its response, or a sitemap file that is passed to ``on_error``.

    Attributes:
        url: the URL that was requested; links are relative to it.
        item: the item that was put with the URL, or None.
        hops: the URLs that redirected here, in the order of the redirects.
        attempt: how many times the URL was requested; more than 1 only after an answer of 429, 502, 503 or 504.
        depth: how many links the crawl followed to this page from a URL that the program has put; 0 for that URL. A
            redirect does not count as a link.
        is_sitemap: whether the URL is a sitemap file; see ``PoliteQueue.put_sitemaps``.

    Example:
        >>> page = CrawlPage("https://example.com/a/", None, (), 1, 0, lambda page, link, item, priority: link == "b")
        >>> page.put("b"), page.put("mailto:us@example.com")
        (True, False)
    """

    url: str
    item: Item | None
    hops: tuple[str, ...]
    attempt: int
    depth: int
    _put: Callable[[CrawlPage[Item], StrOrURL | None, Item | None, float], bool] = field(repr=False, compare=False)
    is_sitemap: bool = False

    def put(self, link: StrOrURL | None, item: Item | None = None, priority: float = 0) -> bool:
        """Queue the target of a link on this page, if it is new. Never waits.

        Args:
            link: a URL, absolute or relative to ``url``; a fragment is dropped. A URL of another scheme, such as
                ``mailto:`` or ``javascript:``, is ignored. A link that is not a valid URL is counted in ``bad_links``,
                and so is None, which parsers return for a missing attribute.
            item: an object that is handed out with the page.
            priority: within a host, lower numbers go first.

        Returns:
            Whether the URL was queued. False if the URL was seen before or is not an http(s) URL, if the options of the
            crawl leave it out, or if the queue is closed.

        Raises:
            TypeError: ``link`` is neither a str nor a yarl.URL nor None, or ``priority`` neither an int nor a float.
            ValueError: ``priority`` is NaN.
            ClosedError: the gatekeeper is closed.
            WrongEventLoop: ``put`` is called in a thread. Parse the page in the thread, and call ``put`` in ``handle``.
            Exception: any error of ``seen``; it ends the crawl.
        """
        return self._put(self, link, item, priority)


@dataclass(frozen=True, slots=True)
class CrawlCounts:
    """The counts of a crawl.

    Attributes:
        pages: how many pages were handled.
        failed: how many URLs failed: no answer, an answer of 429, 502, 503 or 504 to the last attempt, a redirect that
            cannot be followed, or a ``handle`` that raised.
        redirects: how many answers were redirects.
        disallowed: how many URLs were refused by robots.txt, or by a policy.
        given_up: how many URLs were given up because robots.txt was unreachable, a wait was too long, the site refuses
            this crawler, or by ``PoliteQueue.give_up``. The crawl passes these URLs to ``on_disallowed``, too.
        retried: how many requests were repeated after an answer of 429, 502, 503 or 504.
        bad_links: how many links were invalid URLs; links with other schemes than http(s) are not counted.
        skipped: how many links, redirects and URLs were left out because of ``depth``, ``allow``, ``deny`` or
            ``max_pages_per_host``, or by ``since`` of ``put_sitemaps``.
        sitemaps: how many sitemap files were read; they are not counted as pages.
        elapsed_s: how long the crawl has run, in seconds.
    """

    pages: int = 0
    failed: int = 0
    redirects: int = 0
    disallowed: int = 0
    given_up: int = 0
    retried: int = 0
    bad_links: int = 0
    skipped: int = 0
    sitemaps: int = 0
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CrawlProgress(CrawlCounts):
    """The progress of a crawl: ``pages``, ``failed`` and the other counts of CrawlReport, and the state of the queue.

    Attributes:
        queued: how many URLs wait.
        under_way: how many URLs are being requested or handled.
        hosts: at how many hosts URLs wait.
        max_pages: the ``max_pages`` of the crawl.
        last_url: the URL that was finished last.

    Example:
        >>> CrawlProgress(pages=2, queued=1, hosts=1, last_url="https://example.com/a", elapsed_s=2.5).pages
        2
    """

    queued: int = 0
    under_way: int = 0
    hosts: int = 0
    max_pages: int | None = None
    last_url: str = ""


@dataclass(frozen=True, slots=True)
class Loss:
    """URLs of a site that a crawl has not requested because of the site, or of ``PoliteQueue.give_up``.

    Attributes:
        host: the paced host: its name without scheme and port.
        left: how many URLs were given up, or are left.
        reason: the Reason of the verdict by which the URLs were given up, or by which they wait for robots.txt; or the
            Bound that has closed the host, where the URLs are left.
        detail: more about the reason, for example an answer of the site; may be empty.
        since: the Unix time since which the site has made the crawl wait, or has been given up.

    Example:
        >>> print(Loss("a.example", 31, Reason.REFUSED, "refused 3 times in a row: 403", 1_800_000_000.0))
        a.example: 31 URLs, the site refuses this crawler: refused 3 times in a row: 403; since 2027-01-15T08:00:00Z
    """

    host: str
    left: int
    reason: Reason | Bound
    detail: str
    since: float

    @property
    def why(self) -> str:
        """The reason in words, with the detail and the time."""
        words = WORDS[self.reason] if isinstance(self.reason, Reason) else f"the host is closed, by {self.reason}"
        return printable(f"{words}{': ' if self.detail else ''}{self.detail}; since {utc(self.since)}")

    def __str__(self) -> str:
        return f"{printable(self.host)}: {counted(self.left, 'URL')}, {self.why}"


def lost_by(verdict: Verdict, since_wall: float, left: int = 1) -> Loss:
    """Return the loss of URLs that a verdict denies; ``since_wall`` counts unless the verdict knows the time."""
    source, detail = verdict.source, verdict.note
    if source is not None:
        since_wall = since_wall if source.failing_since_wall is None else source.failing_since_wall
        detail = detail or source.fault
    if verdict.reason is Reason.GIVEN_UP:
        since_wall = verdict.decided_wall
    return Loss(Origin.of(verdict.url).pacing_host, left, verdict.reason, shortened(detail), since_wall)


@dataclass(frozen=True, slots=True)
class CrawlReport(CrawlCounts):
    """The result of a crawl: its counts, and how many URLs are left.

    Attributes:
        left: how many URLs the queue still has.
        first_error: the URL, the type and the message of the first error of ``handle``; empty for none. Each error is
            logged with its traceback, and passed to ``on_error``.
        losses: the sites whose URLs were given up, and the sites that are closed at the end while URLs are left there;
            those with the most URLs first. There are at most 1,000 rows; of the sites that were given up, the first
            1,000 may have one. A site has a row for each reason.
        lost: how many URLs are lost in all, also at sites without a row.
        stopped_by: ``"stop"``, ``"max_time_s"``, ``"SIGINT"`` or ``"SIGTERM"`` if this has ended the crawl before its
            other URLs were requested; else empty.
        notes: the last 1,000 lines of ``PoliteQueue.note`` during the crawl, the oldest first, each with its time.

    Example:
        >>> print(CrawlReport(pages=30, failed=1, redirects=2, disallowed=7, given_up=2, left=0, elapsed_s=41.25))
        30 pages, 1 failed, 2 redirects, 7 disallowed, 2 given up, 0 left, in 41.2 s
    """

    left: int = 0
    first_error: str = ""
    losses: tuple[Loss, ...] = ()
    lost: int = 0
    stopped_by: str = ""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        skipped = f", {self.skipped:,} skipped" if self.skipped else ""
        bad_links = f", {counted(self.bad_links, 'bad link')}" if self.bad_links else ""
        is_cut = sum(loss.left for loss in self.losses) < self.lost
        sites = counted(len({loss.host for loss in self.losses}), "site")
        lost = f", {self.lost:,} lost at {'more than ' if is_cut else ''}{sites}" if self.losses else ""
        first_error = f"; first error of handle: {self.first_error}" if self.first_error else ""
        left = f"{self.left:,} left{lost}{skipped}{bad_links}"
        return f"{finished_words(self)}, {left}, in {self.elapsed_s:.1f} s{first_error}"


def finished_words(counts: CrawlCounts) -> str:
    """Return the counts of the finished URLs in words."""
    sitemaps = f", {counted(counts.sitemaps, 'sitemap')}" if counts.sitemaps else ""
    return (
        f"{counted(counts.pages, 'page')}, {counts.failed:,} failed, {counted(counts.redirects, 'redirect')}, "
        f"{counts.disallowed:,} disallowed, {counts.given_up:,} given up{sitemaps}"
    )


_GIVING_UP: Final = {
    Reason.UNREACHABLE,
    Reason.TOO_MANY_REQUESTS,
    Reason.USAGE_UNKNOWN,
    Reason.WAIT_TOO_LONG,
    Reason.REFUSED,
    Reason.GIVEN_UP,
}


class QueueClosed(ClosedError):
    """The queue was closed: ``put`` accepts no more URLs, and ``turn`` has no more URLs to hand out.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper, PoliteQueue
        >>> from politesse.testing import ScriptedFetcher
        >>> async def main() -> None:
        ...     async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=ScriptedFetcher()) as gate:
        ...         queue = PoliteQueue(gate)
        ...         queue.close()
        ...         try:
        ...             await queue.put("https://a.example/")
        ...         except QueueClosed as error:
        ...             print(error)
        >>> asyncio.run(main())
        a URL of https://a.example was put after the queue was closed
    """


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """A snapshot of the counts of a queue.

    Attributes:
        queued: how many URLs wait.
        hosts: at how many hosts URLs wait.
        ready: how many hosts stand in the line of ready hosts, including hosts that are given up.
        asking: the number of origins whose robots.txt is being fetched.
        deferred: how many origins wait until their robots.txt, which was unreachable or answered with 429, is fetched
            again.
        under_way: how many turns are under way.
        waiting: how many workers wait for a turn.
        refused: how many URLs were disallowed, or given up.
        given_up: how many of the refused URLs were given up; see CrawlReport.
        deferred_until_wall: the Unix time at which the first deferral ends; None without a deferral.
        resumed: how many URLs the journal held when it was read; 0 without a journal, and before the first use.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper, PoliteQueue
        >>> from politesse.testing import ManualClock, ScriptedFetcher
        >>> async def main() -> None:
        ...     agent = "ExampleBot/1.0 (+https://example.com/bot)"
        ...     async with Gatekeeper(agent, fetcher=ScriptedFetcher(), clock=ManualClock()) as gate:
        ...         await gate.check("https://a.example/")
        ...         queue = PoliteQueue(gate)
        ...         for url in ("https://a.example/1", "https://a.example/2", "https://b.example/1"):
        ...             await queue.put(url)
        ...         statistics = queue.statistics()
        ...         print(statistics.queued, statistics.hosts, statistics.asking)
        >>> asyncio.run(main())
        3 2 1
    """

    queued: int
    hosts: int
    ready: int
    asking: int
    deferred: int
    under_way: int
    waiting: int
    refused: int
    given_up: int = 0
    deferred_until_wall: float | None = None
    resumed: int = 0


class QueuedTurn(Generic[Item]):
    """Permission to make one request now, with the item that was put.

    Attributes:
        url: the URL that may be requested now.
        item: the item that was put with the URL, or None.
        verdict: why the request is allowed.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper, PoliteQueue
        >>> from politesse.testing import ManualClock, ScriptedFetcher
        >>> async def main() -> None:
        ...     agent, clock = "ExampleBot/1.0 (+https://example.com/bot)", ManualClock(autojump=True)
        ...     async with Gatekeeper(agent, fetcher=ScriptedFetcher(), clock=clock) as gate:
        ...         queue = PoliteQueue(gate)
        ...         await queue.put("https://a.example/page", item={"depth": 1})
        ...         async with queue.turn() as turn:
        ...             print(turn.url, turn.item, turn.verdict.allowed)
        ...             turn.observe(200, {"Content-Type": "text/html"})  # what your client received
        >>> asyncio.run(main())
        https://a.example/page {'depth': 1} True
    """

    __slots__ = ("_turn", "item", "url", "verdict")

    def __init__(self, turn: Turn, item: Item | None) -> None:
        self.url: str = turn.url
        self.item: Item | None = item
        self.verdict: Verdict = turn.verdict
        self._turn = turn

    def observe(self, status: int, headers: Headers | None = None) -> None:
        """Report the response as soon as its headers have come, because they set the pace; see ``Turn.observe``.

        Args:
            status: the HTTP status.
            headers: the headers of the response, in the type of your HTTP client.
        """
        self._turn.observe(status, headers)

    def __repr__(self) -> str:
        return f"<QueuedTurn of {self._turn!r}>"


def is_given_up(verdict: Verdict) -> bool:
    """Return whether a URL was given up, and is not disallowed by a rule."""
    return verdict.reason in _GIVING_UP


def outside_of_loop() -> WrongEventLoop:
    """Return the error of a put outside of any event loop, for example in a thread: a queue is not thread-safe."""
    return WrongEventLoop(
        "a URL is put outside of the event loop of the queue: in a thread, use loop.call_soon_threadsafe"
    )
