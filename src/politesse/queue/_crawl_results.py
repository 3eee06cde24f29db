"""The results of crawls: pages, counts and errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic

from politesse._base.text import counted, printable, public_url
from politesse.errors import PolitesseError
from politesse.queue._results import Item

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.origin import StrOrURL


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
        given_up: how many URLs were given up because robots.txt was unreachable, a wait was too long, or the site
            refuses this crawler. The crawl passes these URLs to ``on_disallowed``, too.
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
class CrawlReport(CrawlCounts):
    """The result of a crawl: its counts, and how many URLs are left.

    Attributes:
        left: how many URLs the queue still has.
        first_error: the URL, the type and the message of the first error of ``handle``; empty for none. Each error is
            logged with its traceback, and passed to ``on_error``.

    Example:
        >>> print(CrawlReport(pages=30, failed=1, redirects=2, disallowed=7, given_up=2, left=0, elapsed_s=41.25))
        30 pages, 1 failed, 2 redirects, 7 disallowed, 2 given up, 0 left, in 41.2 s
    """

    left: int = 0
    first_error: str = ""

    def __str__(self) -> str:
        skipped = f", {self.skipped:,} skipped" if self.skipped else ""
        bad_links = f", {counted(self.bad_links, 'bad link')}" if self.bad_links else ""
        first_error = f"; first error of handle: {self.first_error}" if self.first_error else ""
        return f"{finished_words(self)}, {self.left:,} left{skipped}{bad_links}, in {self.elapsed_s:.1f} s{first_error}"


def finished_words(counts: CrawlCounts) -> str:
    """Return the counts of the finished URLs in words."""
    sitemaps = f", {counted(counts.sitemaps, 'sitemap')}" if counts.sitemaps else ""
    return (
        f"{counted(counts.pages, 'page')}, {counts.failed:,} failed, {counted(counts.redirects, 'redirect')}, "
        f"{counts.disallowed:,} disallowed, {counts.given_up:,} given up{sitemaps}"
    )
