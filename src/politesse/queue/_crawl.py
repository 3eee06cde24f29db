"""The loop that most crawlers write: take a turn, request its URL, handle the page, queue its links.

Theory of operation. Each worker takes a turn from the queue. If the host has had ``max_pages_per_host`` pages, the
worker skips the URL, and gives the turn back. If visits under way may take the last places, it waits for one of them,
and queues the URL again (``_visit_or_wait``). Otherwise it settles the URL within the turn, in one of four ways:

- a redirect: the target is queued as a separate URL, so that no worker waits for a turn at the other host;
- 429, 502, 503 or 504: the host is closed, and the URL is queued again; it has failed after ``_MAX_ATTEMPTS`` attempts;
- no answer, or a redirect that cannot be followed: the URL has failed;
- any other answer: ``handle`` gets the page, within the turn. When ``handle`` returns, the URL is done; if it raises,
  the URL has failed. But if the URL is marked as a sitemap file, the crawl queues the URLs of the file (``_sitemaps``).

The crawl ends when ``join`` returns, or all workers have ended. Links and targets are queued before the turn of their
page ends, so ``join`` does not return too soon. A worker ends when the queue is closed and empty, after a stop (by the
program, ``max_time_s`` or a signal), or when the number of workers exceeds the number of pages that ``max_pages`` still
permits. So ``handle`` never gets more than ``max_pages`` pages.

A crawl that is cancelled, or ends with an error, cancels its workers. If a worker is cancelled before its page is done,
it queues the URL again. Only ``admit`` lets new URLs in: it looks each URL up in ``seen``. A URL that is queued again
skips ``admit``. A worker catches every error of a URL, so the TaskGroup never fails.

Each finished URL is counted, for the report and for ``on_progress``, and recorded in ``out``. An error of a function of
the program other than ``handle`` ends the crawl.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import Counter, deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from heapq import nlargest
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

from politesse._base.checks import check_least, check_priority, check_types, wrong_type
from politesse._base.tasks import is_ended_with_task, running_loop
from politesse._base.text import counted, described, printable, printable_traceback, public_url
from politesse._pacing.refusals import BUSY_STATUSES
from politesse.errors import ClosedError, InvalidURL, StoreError
from politesse.origin import MAX_URL_LENGTH, Origin, StrOrURL, url_text
from politesse.queue._dispatch import TimeSlice
from politesse.queue._hosts import LOGGER, Trail
from politesse.queue._results import (
    MAX_LOSSES,
    CrawlPage,
    CrawlProgress,
    CrawlReport,
    Loss,
    PageFailed,
    QueueClosed,
    is_given_up,
    lost_by,
    outside_of_loop,
)
from politesse.queue._sitemaps import SitemapReader
from politesse.queue._web import (
    SeenUrls,
    check_callback,
    check_handle,
    has_other_scheme,
    is_plain_path,
    normal_form,
    resolved_link,
    resolved_location,
)
from politesse.verdict import Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from politesse._gate.turn import Turn
    from politesse._gate.view import AgentView
    from politesse.queue._dispatch import Dispatcher
    from politesse.queue._hosts import QueuedUrl
    from politesse.queue._web import CrawlClient, Limits, Seen
    from politesse.verdict import Bound, Verdict

    Write = Callable[[dict[str, Any]], object]


Item = TypeVar("Item")
Response = TypeVar("Response")

_MAX_HOPS: Final = 10
_MAX_ATTEMPTS: Final = 5
_MAX_NOTES: Final = 1_000
_BATCH: Final = 500  # hosts that are looked at in one step
_MAX_PATH: Final = MAX_URL_LENGTH - 300  # with it, the URL of any site is short enough


@dataclass(slots=True, eq=False, repr=False)
class Crawl(Generic[Item, Response]):
    """One crawl of a queue.

    Args:
        agent: the agent of the queue.
        dispatcher: the dispatcher of the queue.
        client: makes the requests.
        limits: the limits of the crawl.
        out: gets each record; None for no records.
        handle, workers, given_seen, max_pages, on_progress, on_error, stop_on_error: see ``PoliteQueue.crawl``.

    Attributes:
        counts: the counts, by the names of CrawlCounts.
        stopped_by: see CrawlReport; no more requests begin unless it is empty.
        notes: the last lines of ``PoliteQueue.note``.
        time_slice: the time that all sitemap files together may take in one round of the event loop.

    Raises:
        ConfigurationError: an argument is invalid.
    """

    agent: AgentView
    dispatcher: Dispatcher[Item]
    client: CrawlClient[Response]
    limits: Limits
    out: Write | None
    handle: Callable[[CrawlPage[Item], Response], Awaitable[object]]
    workers: int
    given_seen: Seen | None
    max_pages: int | None
    on_progress: Callable[[CrawlProgress], object] | None
    on_error: Callable[[CrawlPage[Item], BaseException], object] | None
    stop_on_error: bool
    counts: Counter[str] = field(default_factory=Counter, init=False)
    stopped_by: str = field(default="", init=False)
    notes: deque[str] = field(default_factory=partial(deque, maxlen=_MAX_NOTES), init=False)
    time_slice: TimeSlice = field(default_factory=TimeSlice, init=False)
    _seen: Seen = field(init=False)
    _started_mono: float = field(init=False)
    _places: float = field(default=inf, init=False)  # how many more pages ``max_pages`` permits
    _first_error: str = field(default="", init=False)
    _losses: dict[tuple[str, Reason | Bound], Loss] = field(default_factory=dict, init=False)
    _lost: int = field(default=0, init=False)
    # By host: held while a sitemap file is read.
    _files: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary, init=False)
    _idle: set[asyncio.Task[object] | None] = field(default_factory=set, init=False)  # workers that wait for a turn
    _over: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _error: BaseException | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        check_handle(self.handle)
        check_least("workers", self.workers, 1)
        if self.max_pages is not None:
            check_least("max_pages", self.max_pages, 1)
            self._places = self.max_pages
        check_callback("on_progress", self.on_progress)
        check_callback("on_error", self.on_error)
        check_callback("out", self.out)
        seen, journal = self.given_seen, self.dispatcher.journal
        if seen is not None and not (hasattr(seen, "__contains__") and hasattr(seen, "add")):
            raise wrong_type("seen", seen, "a set, or an object with __contains__ and add")
        check_types({"stop_on_error": (self.stop_on_error, bool)}, required=True)
        self._seen = seen if seen is not None else SeenUrls() if journal is None else journal.seen
        self._started_mono = self.agent.clock.monotonic()

    async def run(self) -> CrawlReport:
        """Crawl until the end. Raises the same errors as ``PoliteQueue.crawl``."""
        if self.client.is_closed:
            raise ClosedError(self._closed_message())
        await self.dispatcher.ready()
        journal = self.dispatcher.journal
        for queued in self.dispatcher.left():
            # The ``seen`` of the journal has the URLs of earlier runs already.
            if journal is None or self._seen is not journal.seen or not journal.is_resumed(queued):
                self._seen.add(normal_form(queued.url))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._work(), name=f"crawl: worker {n}") for n in range(self.workers)]
                tasks.append(group.create_task(self._wait_for_end(), name="crawl: end"))
                if self.limits.max_time_s is not None:
                    tasks.append(group.create_task(self._stop_in_time(self.limits.max_time_s), name="crawl: time"))
                try:
                    await self._over.wait()
                finally:
                    self._over.set()  # this ends workers whose clients turn the cancellation into a timeout
                for task in tasks:
                    task.cancel()
        except BaseException as error:
            self._log_end(error)
            raise
        if self._error is not None:
            self._log_end(self._error)
            raise self._error
        await self.dispatcher.refuse_given_up()
        await self._add_left()
        return CrawlReport(
            left=self.dispatcher.size,
            elapsed_s=self._elapsed_s,
            first_error=self._first_error,
            losses=tuple(nlargest(MAX_LOSSES, self._losses.values(), key=attrgetter("left"))),
            lost=self._lost,
            notes=tuple(self.notes),
            stopped_by=self.stopped_by,
            **self.counts,
        )

    async def _add_left(self) -> None:
        """Add what is left at closed hosts to the losses."""
        for number, host in enumerate(list(self.dispatcher.hosts.values())):
            if not number % _BATCH:
                await asyncio.sleep(0)
            for loss in self.dispatcher.left_at(host):
                self._lose(loss, inf)

    def _lose(self, loss: Loss, most: float) -> None:
        """Add URLs to the losses; a site has a row for each reason, if there are fewer than ``most`` rows."""
        self._lost += loss.left
        key = loss.host, loss.reason
        row = self._losses.get(key)
        if row is not None:
            self._losses[key] = replace(row, left=row.left + loss.left)
        elif len(self._losses) < most:
            self._losses[key] = loss

    def admit(self, url: str) -> bool:
        """Return whether a URL is new, and mark it as seen. An error of ``seen`` is raised, and ends the crawl."""
        form = normal_form(url)
        if isinstance(self._seen, SeenUrls):
            return self._seen.is_new(form)
        try:
            if is_new := form not in self._seen:
                self._seen.add(form)
        except BaseException as error:
            self._end(error)
            raise
        return is_new

    async def _wait_for_end(self) -> None:
        try:
            # A loop, because a URL may be put after the last one has ended, and before this task resumes.
            while self.dispatcher.size or self.dispatcher.under_way:
                await self.dispatcher.join()
        except (ClosedError, StoreError) as error:
            self._end(error)
        self._over.set()

    async def _work(self) -> None:
        worker = asyncio.current_task()
        self.dispatcher.consumers.add(worker)
        try:
            while not self._over.is_set() and not self.stopped_by and self.workers <= self._places:
                self._idle.add(worker)  # ``stop`` may cancel it
                try:
                    turn, queued = await self.dispatcher.take()
                finally:
                    self._idle.discard(worker)
                try:
                    with turn:
                        if self.limits.places is not None and self.limits.is_full(queued.origin_queue.origin):
                            turn.give_back()
                            self._count("skipped", queued.url)
                        else:
                            await self._visit_or_wait(turn, queued)
                finally:
                    self.dispatcher.note_end(turn, queued)
        except QueueClosed:
            pass  # the queue is closed and empty
        except Exception as error:  # noqa: BLE001 - ClosedError, or an error of on_disallowed: ends the crawl
            self._end(error)
        finally:
            self.workers -= 1
            if not self.workers:
                self._over.set()

    async def _stop_in_time(self, max_time_s: float) -> None:
        await self.agent.clock.sleep(max_time_s)
        self.stop("max_time_s")

    def stop(self, by: str) -> None:
        """Begin no more requests, and end the workers that wait for a turn."""
        self.stopped_by = self.stopped_by or by
        for worker in filter(None, self._idle):
            worker.cancel()

    async def _visit_or_wait(self, turn: Turn, queued: QueuedUrl[Item]) -> None:
        """Visit a URL; if visits under way may leave no room for it, wait for one of them, then queue the URL again.

        A page waits while the visits under way may become all pages that ``max_pages_per_host`` still permits. A
        sitemap file waits while a worker reads another file of the same host: the turn of a file may end with the
        response, before all URLs of the file are queued. A turn that has waited is given back, because the host may
        have been closed meanwhile.
        """
        if self.stopped_by:  # a function that the program gave has called ``stop`` within ``take``
            turn.give_back()
            self._put_back(queued)
            return
        room: asyncio.Lock | asyncio.Semaphore | None = None
        if queued.trail.sitemap is not None:
            room = self._files.setdefault(queued.origin_queue.host.key, asyncio.Lock())
        elif self.limits.places is not None:
            room = self.limits.places[queued.origin_queue.host.key]
        if room is not None and room.locked():
            try:
                async with room:
                    pass
            finally:
                turn.give_back()
                self._put_back(queued)
            return
        hops, attempt, depth, mark = queued.trail
        put = partial(self._offer, queued.origin_queue.origin)
        page = CrawlPage(queued.url, queued.item, hops, attempt, depth, put, is_sitemap=mark is not None)
        visit = Visit(queued, page, turn, self.agent.clock.wall(), self.agent.clock.monotonic())
        if room is not None:
            await room.acquire()  # does not wait: the room was not locked above, in the same step
        try:
            await self._visit(visit)
        finally:
            if room is not None and not visit.is_handed:  # a page keeps its place, of which there are only so many
                room.release()

    async def _visit(self, visit: Visit[Item]) -> None:
        """Request the URL of a turn and settle the URL in one of the four ways that the module lists."""
        queued, page, turn = visit.queued, visit.page, visit.turn
        mark = queued.trail.sitemap
        try:
            async with self.client.request(turn) as response:
                visit.status, visit.target = await self.client.observe(turn, response, is_file=page.is_sitemap)
                is_final = visit.target is None and visit.status not in BUSY_STATUSES
                if is_final and mark is not None:
                    async with self.client.body(response) as body:
                        parts = self.agent, self.dispatcher, self.limits, self.admit, self.counts, self.time_slice
                        await SitemapReader(*parts, queued, mark).read(visit.status, body)
                elif is_final:
                    visit.is_handed = True
                    self._places -= 1
                    if self.limits.places is not None:
                        self.limits.note_page(queued.origin_queue.origin)
                    visit.result = await self.handle(page, response)
                visit.is_done = True
            if is_final:
                self._settle("pages" if visit.is_handed else "sitemaps", visit)
            else:
                self._follow_up(visit, visit.status)
        except BaseException as error:  # noqa: BLE001 - raised again, reported, or the end of the crawl
            self._broken_off(error, visit)

    def _settle(self, count: str, visit: Visit[Item], **more: object) -> None:
        """Count and record the URL of a visit; a URL whose record cannot be written is queued again."""
        page = visit.page
        if self.out is not None:
            now_mono, started = self.agent.clock.monotonic(), datetime.fromtimestamp(visit.started_wall, UTC)
            ended_mono = now_mono if visit.turn.ended_mono is None else visit.turn.ended_mono
            record = {
                "url": public_url(page.url),
                "outcome": _OUTCOMES[count],
                "status": visit.status,
                "hops": [public_url(hop) for hop in page.hops],
                "attempt": page.attempt,
                "depth": page.depth,
                "started": started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "request_s": round(ended_mono - visit.started_mono, 3),
                "elapsed_s": round(now_mono - visit.started_mono, 3),
                **more,
            }
            more_of_handle = visit.result if isinstance(visit.result, dict) else {}
            # ``record`` twice: its members come first, and replace members of ``handle`` with the same names.
            if not self._call(self.out, record | more_of_handle | record):
                self._put_back(visit.queued)
                return
        self._count(count, page.url)

    def note_refusal(self, verdict: Verdict, progress_wall: float) -> None:
        """Count and record a URL that was refused; its host had made its last progress at ``progress_wall``."""
        outcome = "disallowed"
        if is_given_up(verdict):
            outcome = "refused" if verdict.reason is Reason.REFUSED else "given-up"
            self._lose(lost_by(verdict, progress_wall), MAX_LOSSES)
        if self.out is not None:
            rule, source = verdict.rule, verdict.source
            line = None if rule is None else {"line": rule.line, "field": rule.field, "value": f"{rule.value:.200}"}
            record = {
                "url": verdict.url,
                "outcome": outcome,
                "reason": verdict.reason,
                "rule": line,
                "robots_url": None if source is None else source.robots_url,
                "note": verdict.note or ("" if source is None else source.fault),
            }
            self._call(self.out, record)
        self._count("disallowed" if outcome == "disallowed" else "given_up", verdict.url, within_turn=False)

    def _count(self, count: str, url: str, *, within_turn: bool = True) -> None:
        """Count a URL, and report progress. The URL of the present turn no longer counts as under way."""
        self.counts[count] += 1
        if self.on_progress is not None:
            progress = CrawlProgress(
                queued=self.dispatcher.size,
                under_way=len(self.dispatcher.under_way) - within_turn,
                hosts=len(self.dispatcher.hosts),
                max_pages=self.max_pages,
                last_url=public_url(url),
                elapsed_s=self._elapsed_s,
                **self.counts,
            )
            self._call(self.on_progress, progress)

    @property
    def _elapsed_s(self) -> float:
        return self.agent.clock.monotonic() - self._started_mono

    def _call(self, function: Callable[..., object], *given: object) -> bool:
        """Call a function of the program; an error of the function ends the crawl. Return whether there was none."""
        try:
            function(*given)
        except Exception as error:  # noqa: BLE001 - ends the crawl
            self._end(error)
            return False
        return True

    def _broken_off(self, error: BaseException, visit: Visit[Item]) -> None:
        """Settle a URL whose visit raised an error; an error that ends the worker is raised again."""
        queued = visit.queued
        if is_ended_with_task(error, asyncio.current_task()):
            if visit.is_handed and visit.is_done:  # the worker was cancelled while it closed the response
                self._settle("pages", visit)
            else:
                self._put_back(queued)
            raise error
        is_closed = self.client.is_closed or self.agent.state.closing is None
        if error is self._error:  # an error of ``seen``
            self._put_back(queued)
        # After the call of ``handle``, a ClosedError may be about any other object of the program.
        elif is_closed or (isinstance(error, ClosedError) and not visit.is_handed):
            self._put_back(queued)
            closed = ClosedError(self._closed_message())
            closed.__cause__ = error
            self._end(closed)
        else:
            self._fail(visit, error)

    def _follow_up(self, visit: Visit[Item], status: int) -> None:
        """Queue the target of a redirect, or another attempt. If neither is possible, the URL has failed."""
        queued, problem = visit.queued, ""
        if visit.target is None:
            if queued.trail.attempt < _MAX_ATTEMPTS:
                self._put_back(queued, queued.trail.attempt + 1)
                self._count("retried", queued.url)
            else:
                problem = f"was answered with {status} to {queued.trail.attempt} attempts"
        elif (target := resolved_location(queued.url, visit.target)) is None:
            problem = f"redirects to {public_url(visit.target)!r:.100}, which is no http(s) URL"
        elif target == queued.url:
            problem = f"redirects to itself with {status}, as sites do that want a cookie first"
        elif len(queued.trail.hops) >= _MAX_HOPS:
            problem = f"is the end of {_MAX_HOPS} redirects, and redirects again"
        elif not visit.page.is_sitemap and not self.limits.follow(target, queued.trail.depth):
            self.counts["skipped"] += 1
            self._settle("redirects", visit, location=public_url(visit.target))
        else:
            # Servers redirect between spellings of a URL; in a crawl both spellings are the same URL.
            if normal_form(target) == normal_form(queued.url) or self.admit(target):
                trail = queued.trail._replace(hops=(*queued.trail.hops, queued.url), attempt=1)
                self.dispatcher.add(Origin.of(target), target, queued.item, queued.priority, trail, instead_of=queued)
            self._settle("redirects", visit, location=public_url(visit.target))
        if problem:
            self._fail(visit, PageFailed(queued.url, status, problem))

    def _offer(
        self, site: Origin, page: CrawlPage[Item], link: StrOrURL | None, item: Item | None, priority: float
    ) -> bool:
        """Queue the target of a link on a page of ``site``; see ``CrawlPage.put``."""
        if priority != 0:  # the default needs no check
            check_priority(priority)
        if self.dispatcher.journal is not None:
            self.dispatcher.journal.check(item, priority)
        text = link if isinstance(link, str) else "" if link is None else url_text(link, "link")
        is_of_site = is_plain_path(text) and len(text) <= _MAX_PATH and page.url.startswith(f"{site.text}/")
        url = site.text + text if is_of_site else None if link is None else resolved_link(page.url, text)
        if url is not None:
            with suppress(InvalidURL):
                origin = site if is_of_site else self.agent.checked_origin(url)
                if running_loop() is None:
                    raise outside_of_loop()
                if self.limits.restrict_links and not self.limits.follow(url, page.depth + 1):
                    self.counts["skipped"] += 1
                elif not self.dispatcher.closed and self.admit(url):
                    self.dispatcher.add(origin, url, item, priority, Trail(depth=page.depth + 1))
                    return True
                return False
        self.counts["bad_links"] += not has_other_scheme(text)
        return False

    def _put_back(self, queued: QueuedUrl[Item], attempt: int | None = None) -> None:
        """Queue a URL again unchanged, or as another attempt."""
        trail = queued.trail if attempt is None else queued.trail._replace(attempt=attempt)
        origin = queued.origin_queue.origin
        self.dispatcher.add(origin, queued.url, queued.item, queued.priority, trail, instead_of=queued)

    def _fail(self, visit: Visit[Item], error: BaseException) -> None:
        """Count, record and report a URL that has failed."""
        page, url = visit.page, printable(public_url(visit.page.url))
        if visit.is_handed:
            self._first_error = self._first_error or f"{url}: {described(error)}"
            LOGGER.error("handle failed on %s\n%s", url, printable_traceback(error))
        else:
            LOGGER.log(logging.WARNING if page.is_sitemap else logging.INFO, "%s failed: %s", url, described(error))
        ends_crawl = visit.is_handed and self.stop_on_error
        if self.on_error is not None and not self._call(self.on_error, page, error):
            ends_crawl = True
        if ends_crawl:
            self._end(error)
        if self.dispatcher.journal is not None:
            # The next run repeats a page that ended the crawl, and other failed pages only with ``retry_failed``.
            self.dispatcher.journal.keep(visit.queued, as_failed=not ends_crawl)
        self._settle("failed", visit, error=error.problem if isinstance(error, PageFailed) else described(error))

    def _end(self, error: BaseException) -> None:
        """End the crawl with an error, unless an earlier error has ended it."""
        if self._error is None:
            self._error = error
        self._over.set()

    def _log_end(self, error: BaseException) -> None:
        left, hosts = counted(self.dispatcher.size, "URL"), counted(len(self.dispatcher.hosts), "host")
        end = "cancelled" if isinstance(error, asyncio.CancelledError) else f"ended by {type(error).__name__}"
        message = f"the crawl was {end}; {left} left at {hosts}"
        error.add_note(message)  # a traceback then shows the message, even without logging
        LOGGER.warning("%s", message)

    def _closed_message(self) -> str:
        whose = "the session of the crawl is" if self.client.is_closed else "the gatekeeper was"
        return f"{whose} closed, with {self.dispatcher.size} URLs queued"


_OUTCOMES: Final = {"pages": "page", "redirects": "redirect", "sitemaps": "sitemap", "failed": "failed"}


@dataclass(slots=True, eq=False)
class Visit(Generic[Item]):
    """The visit of a URL in a turn.

    Attributes:
        page: the URL of ``queued``, as the program sees it.
        turn: its turn, which may end before ``handle``.
        started_wall: the Unix time of the request.
        started_mono: the monotonic time of the request.
        status: the status of the answer; None before the answer has come.
        target: the Location of a redirect; None for any other answer.
        result: the result of ``handle``; a dict adds its members to the record.
        is_handed: whether ``handle`` was called.
        is_done: whether the answer has been handled.
    """

    queued: QueuedUrl[Item]
    page: CrawlPage[Item]
    turn: Turn
    started_wall: float
    started_mono: float
    status: int | None = None
    target: str | None = None
    result: object = None
    is_handed: bool = False
    is_done: bool = False


@contextmanager
def record_writer(out: str | os.PathLike[str] | Write | None) -> Generator[Write | None, None, None]:
    """Return the function that writes each record: ``out`` itself, or a function that appends to this file.

    Raises:
        ConfigurationError: ``out`` is neither a path nor a function.
        OSError: the file cannot be opened.
    """
    if out is None or callable(out):
        yield out
        return
    if not isinstance(out, str | os.PathLike):
        raise wrong_type("out", out, "the path of a file, or a function that is not asynchronous")
    with Path(out).open("ab") as file:

        def write(record: dict[str, Any]) -> None:
            file.write(json.dumps(record).encode() + b"\n")
            file.flush()

        yield write
