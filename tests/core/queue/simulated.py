"""A client of httpx's kind whose web the test writes, for crawls in simulated time."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from politesse.queue import CrawlPage, CrawlReport
from politesse.testing import ManualClock
from tests.core.queue.crawl import A, AnyQueue


@dataclass(frozen=True, slots=True)
class Reply:
    """A response.

    Attributes:
        links: what a handler may put.
        body: what a crawl reads of a sitemap file, in chunks of ``chunk_octets``.
        breaks_off: what the client raises at the end of the body.
    """

    status_code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    links: Sequence[object] = ()
    body: bytes = b""
    chunk_octets: int = 1_000
    breaks_off: Exception | None = None

    async def aread(self) -> bytes:
        assert not self.body, "a body is read as a stream"
        return b""

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.body), self.chunk_octets):
            yield self.body[start : start + self.chunk_octets]
        if self.breaks_off is not None:
            raise self.breaks_off


def moved(location: str, status: int = 301) -> Reply:
    return Reply(status, {"Location": location})


Replies = Reply | Exception | Sequence[Reply | Exception]


class SimulatedWeb:
    """An ``httpx.AsyncClient`` as far as a crawl uses it.

    Args:
        replies: by URL: a reply, an exception to raise, or a sequence, the last of which is repeated; or a function of
            the URL. Any other URL is an empty page.
        took_s: how long each request takes.
    """

    def __init__(
        self,
        replies: Mapping[str, Replies] | Callable[[str], Replies] | None = None,
        clock: ManualClock | None = None,
        took_s: float = 0.0,
    ) -> None:
        self.replies = replies or {}
        self.requests: Counter[str] = Counter()
        self.is_closed = False
        self._clock = clock
        self._took_s = took_s

    @property
    def urls(self) -> list[str]:
        return list(self.requests)

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, *, follow_redirects: bool, headers: Mapping[str, str]
    ) -> AsyncIterator[Reply]:
        assert (method, follow_redirects) == ("GET", False)
        if self.is_closed:
            raise RuntimeError("Cannot send a request, as the client has been closed.")
        self.requests[url] += 1
        if self._clock is not None and self._took_s:
            await self._clock.sleep(self._took_s)
        reply = self.replies(url) if callable(self.replies) else self.replies.get(url, Reply())
        if isinstance(reply, Sequence):
            reply = reply[min(self.requests[url], len(reply)) - 1]
        if isinstance(reply, Exception):
            raise reply
        yield reply

    async def aclose(self) -> None:
        self.is_closed = True


async def crawled(queue: AnyQueue, web: SimulatedWeb, handle: Any, **options: Any) -> CrawlReport:
    """Crawl from the front page of A."""
    await queue.put(f"{A}/")
    return await queue.crawl(web, handle, **options)


async def follow_links(page: CrawlPage[object], reply: Reply) -> None:
    for link in reply.links:
        page.put(link)  # type: ignore[arg-type] # links of a page may be anything


@dataclass
class Pages:
    """A handler that records its pages and follows their links."""

    handled: list[CrawlPage[object]] = field(default_factory=list)

    async def __call__(self, page: CrawlPage[object], reply: Reply) -> None:
        self.handled.append(page)
        await follow_links(page, reply)

    @property
    def urls(self) -> list[str]:
        return [page.url for page in self.handled]


@dataclass
class Errors:
    """An ``on_error`` that records its calls."""

    seen: list[tuple[str, BaseException]] = field(default_factory=list)

    def __call__(self, page: CrawlPage[object], error: BaseException) -> None:
        self.seen.append((page.url, error))

    @property
    def texts(self) -> list[str]:
        return [str(error) for _, error in self.seen]
