"""What a crawl reports: pages, progress, failures and its final counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from politesse._text import counted, printable
from politesse.errors import PolitesseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.origin import StrOrURL

Item = TypeVar("Item")


class RunningCrawl(Protocol):
    """What the queue reports to the crawl that is under way."""

    def admit(self, url: str) -> bool:
        """Return whether a URL that is put is new; otherwise it is ignored."""

    def note_refusal(self, url: str) -> None:
        """Report that a URL was refused."""


class PageFailed(PolitesseError):
    """A crawl gives up a URL because of what its server answered.

    >>> print(PageFailed("https://example.com/a", 503, "was answered with 503 five times"))
    https://example.com/a was answered with 503 five times

    Attributes:
        url: the URL.
        status: of the last answer.
        problem: why it is given up, as a phrase.
    """

    def __init__(self, url: str, status: int, problem: str) -> None:
        super().__init__(f"{printable(url)} {printable(problem)}")
        self.url = url
        self.status = status
        self.problem = problem

    def __reduce__(self) -> tuple[type[PageFailed], tuple[str, int, str]]:
        return type(self), (self.url, self.status, self.problem)


@dataclass(frozen=True, slots=True)
class CrawlPage(Generic[Item]):
    """A page that a crawl hands to ``handle``, with its response.

    Attributes:
        url: as it was requested; links are relative to it.
        item: as it was put; None if there was none.
        hops: the URLs that redirected here, the first one first.
        attempt: how often the URL was requested; 1 unless it was answered with 429 or 503 before.

    Example:
        >>> page = CrawlPage("https://example.com/a/", None, (), 1, lambda base, link, item, priority: link == "b")
        >>> page.put("b"), page.put("mailto:us@example.com")
        (True, False)
    """

    url: str
    item: Item | None
    hops: tuple[str, ...]
    attempt: int
    _put: Callable[[str, StrOrURL | None, Item | None, float], bool] = field(repr=False, compare=False)

    def put(self, link: StrOrURL | None, item: Item | None = None, priority: float = 0) -> bool:
        """Queue what a link of this page refers to, if it is new. Never waits.

        Args:
            link: absolute, or relative to ``url``; a fragment is dropped. What is no http(s) URL (``mailto:``,
                ``javascript:``) is counted as ``bad_links``, and so is None, as parsers return for a missing attribute.
            item: handed out with the page.
            priority: lower goes first, within the host.

        Returns:
            Whether it was queued. False: it was seen before, is no http(s) URL, or the queue is closed.

        Raises:
            TypeError: ``link`` is neither a str nor a yarl.URL nor None, or ``priority`` neither an int nor a float.
            ValueError: ``priority`` is NaN.
            ClosedError: the gatekeeper is closed.
            WrongEventLoop: it is called in a thread; parse there, and put in ``handle``.
            Exception: what ``seen`` raises; it ends the crawl.
        """
        return self._put(self.url, link, item, priority)


@dataclass(frozen=True, slots=True)
class CrawlProgress:
    """How far a crawl is. Each URL that was queued is in one of the first seven counts.

    Attributes:
        pages: how many pages were handled.
        failed: how many URLs failed: no answer, an answer of 429 or 503 to the last attempt, a redirect that cannot be
            followed, or a ``handle`` that raised.
        redirects: how many answers were redirects.
        disallowed: how many URLs were refused by robots.txt, or by a policy.
        given_up: how many URLs were given up because of the state of their site, which ``on_disallowed`` gets as well:
            robots.txt was unreachable, or a wait was too long.
        queued: how many URLs wait.
        under_way: how many URLs are being requested or handled.
        retried: how many requests were repeated after an answer of 429 or 503.
        bad_links: how many links were no http(s) URLs.
        hosts: at how many hosts URLs wait.
        last_url: the URL that was finished last.
        elapsed_s: for how many seconds the crawl has run.

    Example:
        >>> CrawlProgress(pages=2, queued=1, hosts=1, last_url="https://example.com/a", elapsed_s=2.5).pages
        2
    """

    pages: int = 0
    failed: int = 0
    redirects: int = 0
    disallowed: int = 0
    given_up: int = 0
    queued: int = 0
    under_way: int = 0
    retried: int = 0
    bad_links: int = 0
    hosts: int = 0
    last_url: str = ""
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CrawlReport:
    """What a crawl has done.

    Attributes:
        pages: how many pages were handled.
        failed: as in CrawlProgress, like the other counts.
        redirects: see there.
        disallowed: see there.
        given_up: see there.
        retried: see there.
        bad_links: see there.
        left: how many URLs are left in the queue.
        elapsed_s: how many seconds it took.

    Example:
        >>> print(CrawlReport(pages=30, failed=1, redirects=2, disallowed=7, given_up=2, left=0, elapsed_s=41.25))
        30 pages, 1 failed, 2 redirects, 7 disallowed, 2 given up, 0 left, in 41.2 s
    """

    pages: int = 0
    failed: int = 0
    redirects: int = 0
    disallowed: int = 0
    given_up: int = 0
    retried: int = 0
    bad_links: int = 0
    left: int = 0
    elapsed_s: float = 0.0

    def __str__(self) -> str:
        bad_links = f", {counted(self.bad_links, 'bad link')}" if self.bad_links else ""
        return (
            f"{self.pages} pages, {self.failed} failed, {self.redirects} redirects, {self.disallowed} disallowed, "
            f"{self.given_up} given up, {self.left} left{bad_links}, in {self.elapsed_s:.1f} s"
        )
