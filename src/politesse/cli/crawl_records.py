"""``politesse crawl --out``: writes one JSON object for each URL of the crawl, as soon as the URL is finished."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, deque
from contextlib import asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from politesse._base.text import described, printable
from politesse.cli.console import STANDARD, OutputWriter, descriptor, record_of, write_all
from politesse.errors import ConfigurationError
from politesse.origin import Origin
from politesse.queue import CrawlPage, CrawlProgress, PageFailed
from politesse.queue._results import is_given_up
from politesse.verdict import Reason

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from aiohttp import ClientResponse
    from yarl import URL

    from politesse import AgentView, PoliteSession, Verdict
    from politesse.integrations.warc import WarcFile

_RECENT: Final = 10


@dataclass(slots=True)
class Visit:
    """The present or last request of a worker.

    Attributes:
        started_wall: the Unix time of its start.
        started_mono: the monotonic time of its start.
        status: the status of the answer, or None before the answer.
        location: the Location header of the answer.
        recorded: the page or the URL of the written record, or None.
    """

    started_wall: float = field(default_factory=time.time)
    started_mono: float = field(default_factory=time.monotonic)
    status: int | None = None
    location: str | None = None
    recorded: object = None


CURRENT_VISIT: Final[ContextVar[Visit]] = ContextVar("CURRENT_VISIT")
"""The visit of this task: each worker of a crawl has its own task, and requests and reports one URL at a time."""

_NO_VISIT: Final = Visit(recorded="none")


class RecordFile:
    """A file of records. Each record is written before the crawl continues, so a killed process loses no record."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def add(self, octets: bytes, /) -> None:
        """Write octets; raises OSError."""
        write_all(self._fd, octets)

    async def make_room(self) -> None:
        """Return at once, because no octets are pending."""

    flush = make_room


class CrawlRecords:
    """Writes one record of each URL, and counts the records.

    ::

        outcome       "page", "redirect", "sitemap", "failed", "disallowed", "given-up", "refused", "left"; each has url
        page          status, content_type, bytes, truncated, hops, attempt, depth, started, elapsed_s, links, queued
        redirect      status, location, started, elapsed_s
        sitemap       status, started, elapsed_s
        failed        error, status, hops, attempt, depth, started, elapsed_s
        disallowed    reason (a value of politesse.Reason), rule {line, field, value}, robots_url, note
        given-up      the same as disallowed: its robots.txt was unreachable, or a wait was too long
        refused       the same as disallowed: its site refuses this crawler, and note says how
        left          only url: the crawl ended before the URL was requested

    Args:
        file: gets the records, or None.

    Attributes:
        counts: the records by outcome.
        denied: the URLs of ``watched`` that were disallowed, given up or refused.
        refusals: maps each host that refuses this crawler to the words of its refusal.
        first_failure: the first URL that has failed, and why; empty if none has.
        watched: URLs whose refusal matters.
        recent: the last outcomes, the newest first: a word and a URL.
    """

    def __init__(self, file: RecordFile | OutputWriter | None, watched: Iterable[str] = ()) -> None:
        self._file = file
        self._redirects = self._sitemaps = 0
        self._error: OSError | None = None
        self.counts: Counter[str] = Counter()
        self.watched: frozenset[str] = frozenset(watched)
        self.denied: list[str] = []
        self.first_failure: str = ""
        self.refusals: dict[str, str] = {}
        self.recent: deque[tuple[str, str]] = deque(maxlen=_RECENT)

    async def make_room(self) -> None:
        """Wait for a slow reader of the records; raises OSError."""
        if self._file is not None:
            await self._file.make_room()

    async def flush(self) -> None:
        """Wait until everything is written; raises OSError."""
        if self._file is not None:
            await self._file.flush()

    def add_page(self, page: CrawlPage[str], content: Mapping[str, object], links: int, queued: int) -> None:
        """Record a page, with the number of octets that were read and whether the page has more."""
        more = _request(page) | _times(_current(page))
        self._add("page", page.url, str(content["status"]), **content, **more, links=links, queued=queued)

    async def add_to(self, archive: WarcFile, response: ClientResponse, body: bytes, *, truncated: bool) -> None:
        """Keep a page; an OSError ends the crawl, as that of a record."""
        try:
            await archive.add(response, body, truncated=truncated)
        except OSError as error:
            self._error = error
            raise

    def add_failure(self, page: CrawlPage[str], error: BaseException) -> None:
        """Record a URL that has failed: the ``on_error`` of a crawl."""
        if CURRENT_VISIT.get(_NO_VISIT).recorded is page:
            return  # the page was handled, but its response could not be closed
        visit = _current(page)
        text = error.problem if isinstance(error, PageFailed) else described(error)
        self.first_failure = self.first_failure or f"{printable(page.url):.200} {text}"
        self._add("failed", page.url, "failed", error=text, status=visit.status, **_request(page), **_times(visit))

    def add_refusal(self, _: object, verdict: Verdict) -> None:
        """Record a URL that may not be requested, or was given up: the ``on_disallowed`` of a queue."""
        rule, source = verdict.rule, verdict.source
        if verdict.url in self.watched:
            self.denied.append(verdict.url)
        outcome = "given-up" if is_given_up(verdict) else "disallowed"
        if verdict.reason is Reason.REFUSED:
            outcome = "refused"
            self.refusals[Origin.of(verdict.url).pacing_host] = verdict.note
        self._add(
            outcome,
            verdict.url,
            outcome.replace("-", " "),
            reason=verdict.reason,
            rule=None if rule is None else record_of(rule, "line field value"),
            robots_url=None if source is None else source.robots_url,
            note=verdict.note or ("" if source is None else source.fault),
        )

    def note_progress(self, progress: CrawlProgress) -> None:
        """Record the last finished URL if it was a redirect or a sitemap, which only ``on_progress`` reports.

        Raises:
            OSError: this record or an earlier record could not be written. This method raises the error, because an
                error of ``on_progress`` ends the crawl, and an error of ``handle`` does not.
        """
        if self._error is not None:
            raise self._error
        if progress.redirects > self._redirects:
            self._redirects = progress.redirects
            visit = _current(progress.last_url)
            answer = {"status": visit.status, "location": visit.location}
            self._add("redirect", progress.last_url, str(visit.status), **answer, **_times(visit))
        if progress.sitemaps > self._sitemaps:
            self._sitemaps = progress.sitemaps
            visit = _current(progress.last_url)
            self._add("sitemap", progress.last_url, "sitemap", status=visit.status, **_times(visit))

    def add_left(self, url: str) -> None:
        """Record a URL that the crawl has not requested."""
        self._add("left", url, "left")

    def _add(self, outcome: str, url: str, word: str, **more: object) -> None:
        if self._file is not None:
            try:
                self._file.add(json.dumps({"url": url, "outcome": outcome, **more}).encode() + b"\n")
            except OSError as error:
                self._error = error
                raise
        self.counts[outcome] += 1
        self.recent.appendleft((word, url))


def _current(finished: object) -> Visit:
    """Return the visit that ends now; a new visit if its request never began."""
    visit = CURRENT_VISIT.get(_NO_VISIT)
    if visit.recorded is not None:
        visit = Visit()
    visit.recorded = finished
    return visit


def _request(page: CrawlPage[str]) -> dict[str, Any]:
    return {"hops": page.hops, "attempt": page.attempt, "depth": page.depth}


def _times(visit: Visit) -> dict[str, Any]:
    elapsed_s = time.monotonic() - visit.started_mono
    started = datetime.fromtimestamp(visit.started_wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return {"started": f"{started[:-3]}Z", "elapsed_s": round(elapsed_s, 3)}


class TimedSession:
    """The session of a crawl: notes the start and the answer of each request."""

    def __init__(self, web: PoliteSession) -> None:
        self._web = web
        self.gate: AgentView = web.gate

    @property
    def closed(self) -> bool:
        """Whether the session is closed."""
        return self._web.closed

    @asynccontextmanager
    async def get(self, url: URL, **options: Any) -> AsyncGenerator[ClientResponse, None]:  # noqa: ANN401
        """Request a URL with the session, and note the times."""
        visit = Visit()
        CURRENT_VISIT.set(visit)
        async with self._web.get(url, **options) as response:
            visit.status, visit.location = response.status, response.headers.get("Location")
            yield response


def archive_of(path: Path | None) -> AbstractAsyncContextManager[WarcFile | None]:
    """Return the new archive of the pages, or no archive.

    Raises:
        ConfigurationError: the file exists, or the extra ``warc`` is missing.
        OSError: the file cannot be created.
    """
    if path is None:
        return nullcontext()
    try:
        from politesse.integrations.warc import WarcFile  # noqa: PLC0415 - needs an extra
    except ImportError as error:
        raise ConfigurationError(str(error)) from error
    return WarcFile(path)


@contextmanager
def opened(path: Path | None, *, append: bool = False) -> Generator[RecordFile | OutputWriter | None, None, None]:
    """Open the file of the records, ``-`` for standard output; empty it unless ``append``; raises OSError."""
    if path is None:
        yield None
    elif str(path) == STANDARD:
        writer = OutputWriter(descriptor(sys.stdout))
        try:
            yield writer
        finally:
            writer.close()
    else:
        with path.open("ab" if append else "wb", buffering=0) as file:
            yield RecordFile(file.fileno())
