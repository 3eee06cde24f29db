"""The loop that most crawlers write: take a turn, request its URL, handle the page, queue its links.

Theory of operation. Each worker takes a turn from the queue. If the host has had ``max_pages_per_host`` pages, the
worker skips the URL, and gives the turn back. Otherwise the worker settles the URL within the turn, in one of four
ways:

- a redirect: the target is queued as a separate URL, so that no worker waits for a turn at the other host;
- 429, 502, 503 or 504: the host is closed, and the URL is queued again; it has failed after ``_MAX_ATTEMPTS`` attempts;
- no answer, or a redirect that cannot be followed: the URL has failed;
- any other answer: ``handle`` gets the page, within the turn. When ``handle`` returns, the URL is done; if it raises,
  the URL has failed. But if the URL is marked as a sitemap file, the crawl queues the URLs of the file (``_sitemaps``).

The crawl ends when ``join`` returns, or all workers have ended. Links and targets are queued before the turn of their
page ends, so ``join`` does not return too soon. A worker ends when the queue is closed and empty, when ``max_time_s``
is over, or when the number of workers exceeds the number of pages that ``max_pages`` still permits. So ``handle`` never
gets more than ``max_pages`` pages.

A crawl that is cancelled, or ends with an error, cancels its workers. If a worker is cancelled before its page is done,
it queues the URL again. Only ``admit`` lets new URLs in: it looks each URL up in ``seen``. A URL that is queued again
skips ``admit``. A worker catches every error of a URL, so the TaskGroup never fails.

``RunningCounts`` counts for the report and for ``on_progress``, and records each finished URL.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import Counter, deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

from politesse._base.checks import check_priority, wrong_type
from politesse._base.tasks import is_ended_with_task, running_loop
from politesse._base.text import counted, described, printable, printable_traceback, public_url
from politesse._pacing.refusals import BUSY_STATUSES
from politesse.errors import ClosedError, InvalidURL, StoreError
from politesse.origin import MAX_URL_LENGTH, Origin, StrOrURL, url_text
from politesse.queue._hosts import Trail
from politesse.queue._losses import Losses, lost_by
from politesse.queue._results import (
    CrawlPage,
    CrawlProgress,
    CrawlReport,
    PageFailed,
    QueueClosed,
    is_given_up,
    outside_of_loop,
)
from politesse.queue._sitemaps import SitemapReader
from politesse.queue._web import (
    SeenUrls,
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
    from politesse.clock import Clock
    from politesse.queue._dispatch import Dispatcher
    from politesse.queue._hosts import QueuedUrl
    from politesse.queue._web import Answer, CrawlClient, CrawlOptions, Seen
    from politesse.verdict import Verdict

    Write = Callable[[dict[str, Any]], object]


Item = TypeVar("Item")
Response = TypeVar("Response")

logger = logging.getLogger("politesse.queue")

_MAX_HOPS: Final = 10
_MAX_ATTEMPTS: Final = 5
_MAX_NOTES: Final = 1_000
_BATCH: Final = 500  # hosts that are looked at in one step
_MAX_PATH: Final = MAX_URL_LENGTH - 300  # with it, the URL of any site is short enough


class Crawl(Generic[Item, Response]):
    """One crawl of a queue.

    Args:
        agent: the agent of the queue.
        dispatcher: the dispatcher of the queue.
        client: makes the requests.
        handle: called with each page and its response.
        options: see CrawlOptions.

    Attributes:
        tally: counts and records the URLs.
        stopped_by: see CrawlReport; no more requests begin unless it is empty.
        notes: the last lines of ``PoliteQueue.note``.
    """

    def __init__(
        self,
        agent: AgentView,
        dispatcher: Dispatcher[Item],
        client: CrawlClient[Response],
        handle: Callable[[CrawlPage[Item], Response], Awaitable[object]],
        options: CrawlOptions[Item],
    ) -> None:
        check_handle(handle)
        options.check()
        self._agent = agent
        self._dispatcher = dispatcher
        self._client = client
        self._handle = handle
        self._options = options
        journal = dispatcher.journal
        kept_seen = SeenUrls() if journal is None else journal.seen
        self._seen: Seen = kept_seen if options.seen is None else options.seen
        self._max_pages = inf if options.max_pages is None else options.max_pages
        self._limits = options.limits
        self._workers = int(min(options.workers, self._max_pages))
        self.tally = RunningCounts(dispatcher, options, agent.clock, self._end)
        self._sitemaps = SitemapReader(agent, dispatcher, self._limits, self.admit, self.tally.counts)
        self._files: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by host: held during a read
        self._handed = 0
        self.notes: deque[str] = deque(maxlen=_MAX_NOTES)
        self._idle: set[asyncio.Task[object] | None] = set()  # the workers that wait for a turn
        self.stopped_by: str = ""
        self._over = asyncio.Event()
        self._error: BaseException | None = None

    async def run(self) -> CrawlReport:
        """Crawl until the end. Raises the same errors as ``PoliteQueue.crawl``."""
        if self._client.is_closed:
            raise ClosedError(self._closed_message())
        await self._dispatcher.ready()
        journal = self._dispatcher.journal
        for queued in self._dispatcher.left():
            # The ``seen`` of the journal has the URLs of earlier runs already.
            if journal is None or self._seen is not journal.seen or not journal.is_resumed(queued):
                self._seen.add(normal_form(queued.url))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._work(), name=f"crawl: worker {n}") for n in range(self._workers)]
                tasks.append(group.create_task(self._wait_for_end(), name="crawl: end"))
                if self._limits.max_time_s is not None:
                    tasks.append(group.create_task(self._stop_in_time(self._limits.max_time_s), name="crawl: time"))
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
        await self._dispatcher.refuse_given_up()
        await self._add_left()
        return replace(self.tally.report(), notes=tuple(self.notes), stopped_by=self.stopped_by)

    async def _add_left(self) -> None:
        """Add what is left at closed hosts to the losses."""
        for number, host in enumerate(list(self._dispatcher.hosts.values())):
            if not number % _BATCH:
                await asyncio.sleep(0)
            for loss in self._dispatcher.left_at(host):
                self.tally.losses.leave(loss)

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
            while self._dispatcher.size or self._dispatcher.under_way:
                await self._dispatcher.join()
        except (ClosedError, StoreError) as error:
            self._end(error)
        self._over.set()

    async def _work(self) -> None:
        worker = asyncio.current_task()
        self._dispatcher.consumers.add(worker)
        try:
            while not self._over.is_set() and not self.stopped_by and self._workers <= self._max_pages - self._handed:
                self._idle.add(worker)  # ``stop`` may cancel it
                try:
                    turn, queued = await self._dispatcher.take()
                finally:
                    self._idle.discard(worker)
                try:
                    with turn:
                        if self._limits.places is not None and self._limits.is_full(queued.origin_queue.origin):
                            turn.give_back()
                            self.tally.settle("skipped", queued.url)
                        else:
                            await self._visit_or_wait(turn, queued)
                finally:
                    self._dispatcher.note_end(turn, queued)
        except QueueClosed:
            pass  # the queue is closed and empty
        except Exception as error:  # noqa: BLE001 - ClosedError, or an error of on_disallowed: ends the crawl
            self._end(error)
        finally:
            self._workers -= 1
            if not self._workers:
                self._over.set()

    async def _stop_in_time(self, max_time_s: float) -> None:
        await self._agent.clock.sleep(max_time_s)
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
        elif self._limits.places is not None:
            room = self._limits.places[queued.origin_queue.host.key]
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
        visit = Visit(queued, page, turn, self._agent.clock.wall(), self._agent.clock.monotonic())
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
            async with self._client.request(turn) as response:
                visit.answer = answer = await self._client.observe(turn, response, is_file=page.is_sitemap)
                is_final = answer.target is None and answer.status not in BUSY_STATUSES
                if is_final and mark is not None:
                    async with self._client.body(response) as body:
                        await self._sitemaps.read(queued, mark, answer.status, body)
                elif is_final:
                    visit.is_handed = True
                    self._handed += 1
                    if self._limits.places is not None:
                        self._limits.note_page(queued.origin_queue.origin)
                    visit.result = await self._handle(page, response)
                visit.is_done = True
            if is_final:
                self._settle("pages" if visit.is_handed else "sitemaps", visit)
            else:
                self._follow_up(visit, answer)
        except BaseException as error:  # noqa: BLE001 - raised again, reported, or the end of the crawl
            self._broken_off(error, visit)

    def _settle(self, count: str, visit: Visit[Item], **more: object) -> None:
        """Settle a visit; a URL whose record cannot be written is queued again."""
        if not self.tally.settle_visit(count, visit, **more):
            self._put_back(visit.queued)

    def _broken_off(self, error: BaseException, visit: Visit[Item]) -> None:
        """Settle a URL whose visit raised an error; an error that ends the worker is raised again."""
        queued = visit.queued
        if is_ended_with_task(error, asyncio.current_task()):
            if visit.is_handed and visit.is_done:  # the worker was cancelled while it closed the response
                self._settle("pages", visit)
            else:
                self._put_back(queued)
            raise error
        is_closed = self._client.is_closed or self._agent.state.closing is None
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

    def _follow_up(self, visit: Visit[Item], answer: Answer) -> None:
        """Queue the target of a redirect, or another attempt. If neither is possible, the URL has failed."""
        queued, problem = visit.queued, ""
        if answer.target is None:
            if queued.trail.attempt < _MAX_ATTEMPTS:
                self._put_back(queued, queued.trail.attempt + 1)
                self.tally.settle("retried", queued.url)
            else:
                problem = f"was answered with {answer.status} to {queued.trail.attempt} attempts"
        elif (target := resolved_location(queued.url, answer.target)) is None:
            problem = f"redirects to {public_url(answer.target)!r:.100}, which is no http(s) URL"
        elif target == queued.url:
            problem = f"redirects to itself with {answer.status}, as sites do that want a cookie first"
        elif len(queued.trail.hops) >= _MAX_HOPS:
            problem = f"is the end of {_MAX_HOPS} redirects, and redirects again"
        elif not visit.page.is_sitemap and not self._limits.follow(target, queued.trail.depth):
            self.tally.counts["skipped"] += 1
            self._settle("redirects", visit, location=public_url(answer.target))
        else:
            # Servers redirect between spellings of a URL; in a crawl both spellings are the same URL.
            if normal_form(target) == normal_form(queued.url) or self.admit(target):
                trail = queued.trail._replace(hops=(*queued.trail.hops, queued.url), attempt=1)
                self._dispatcher.add(Origin.of(target), target, queued.item, queued.priority, trail, instead_of=queued)
            self._settle("redirects", visit, location=public_url(answer.target))
        if problem:
            self._fail(visit, PageFailed(queued.url, answer.status, problem))

    def _offer(
        self, site: Origin, page: CrawlPage[Item], link: StrOrURL | None, item: Item | None, priority: float
    ) -> bool:
        """Queue the target of a link on a page of ``site``; see ``CrawlPage.put``."""
        if priority != 0:  # the default needs no check
            check_priority(priority)
        if self._dispatcher.journal is not None:
            self._dispatcher.journal.check(item, priority)
        text = link if isinstance(link, str) else "" if link is None else url_text(link, "link")
        is_of_site = is_plain_path(text) and len(text) <= _MAX_PATH and page.url.startswith(f"{site.text}/")
        url = site.text + text if is_of_site else None if link is None else resolved_link(page.url, text)
        if url is not None:
            with suppress(InvalidURL):
                origin = site if is_of_site else self._agent.checked_origin(url)
                if running_loop() is None:
                    raise outside_of_loop()
                if self._limits.restrict_links and not self._limits.follow(url, page.depth + 1):
                    self.tally.counts["skipped"] += 1
                elif not self._dispatcher.closed and self.admit(url):
                    self._dispatcher.add(origin, url, item, priority, Trail(depth=page.depth + 1))
                    return True
                return False
        self.tally.counts["bad_links"] += not has_other_scheme(text)
        return False

    def _put_back(self, queued: QueuedUrl[Item], attempt: int | None = None) -> None:
        """Queue a URL again unchanged, or as another attempt."""
        trail = queued.trail if attempt is None else queued.trail._replace(attempt=attempt)
        origin = queued.origin_queue.origin
        self._dispatcher.add(origin, queued.url, queued.item, queued.priority, trail, instead_of=queued)

    def _fail(self, visit: Visit[Item], error: BaseException) -> None:
        """Count, record and report a URL that has failed."""
        page, url = visit.page, printable(public_url(visit.page.url))
        if visit.is_handed:
            self.tally.first_error = self.tally.first_error or f"{url}: {described(error)}"
            logger.error("handle failed on %s\n%s", url, printable_traceback(error))
        else:
            logger.log(logging.WARNING if page.is_sitemap else logging.INFO, "%s failed: %s", url, described(error))
        ends_crawl = visit.is_handed and self._options.stop_on_error
        if self._options.on_error is not None:
            try:
                self._options.on_error(page, error)
            except Exception as failure:  # noqa: BLE001 - ends the crawl
                self._end(failure)
                ends_crawl = True
        if ends_crawl:
            self._end(error)
        if self._dispatcher.journal is not None:
            # The next run repeats a page that ended the crawl, and other failed pages only with ``retry_failed``.
            self._dispatcher.journal.keep(visit.queued, as_failed=not ends_crawl)
        self._settle("failed", visit, error=error.problem if isinstance(error, PageFailed) else described(error))

    def _end(self, error: BaseException) -> None:
        """End the crawl with an error, unless an earlier error has ended it."""
        if self._error is None:
            self._error = error
        self._over.set()

    def _log_end(self, error: BaseException) -> None:
        left, hosts = counted(self._dispatcher.size, "URL"), counted(len(self._dispatcher.hosts), "host")
        end = "cancelled" if isinstance(error, asyncio.CancelledError) else f"ended by {type(error).__name__}"
        message = f"the crawl was {end}; {left} left at {hosts}"
        error.add_note(message)  # a traceback then shows the message, even without logging
        logger.warning("%s", message)

    def _closed_message(self) -> str:
        whose = "the session of the crawl is" if self._client.is_closed else "the gatekeeper was"
        return f"{whose} closed, with {self._dispatcher.size} URLs queued"


_OUTCOMES: Final = {"pages": "page", "redirects": "redirect", "sitemaps": "sitemap", "failed": "failed"}


@dataclass(slots=True, eq=False)
class Visit(Generic[Item]):
    """The visit of a URL in a turn.

    Attributes:
        page: the URL of ``queued``, as the program sees it.
        turn: its turn, which may end before ``handle``.
        started_wall: the Unix time of the request.
        started_mono: the monotonic time of the request.
        answer: the answer, or None before the answer has come.
        result: the result of ``handle``; a dict adds its members to the record.
        is_handed: whether ``handle`` was called.
        is_done: whether the answer has been handled.
    """

    queued: QueuedUrl[Item]
    page: CrawlPage[Item]
    turn: Turn
    started_wall: float
    started_mono: float
    answer: Answer | None = None
    result: object = None
    is_handed: bool = False
    is_done: bool = False


class RunningCounts:
    """The counts of one crawl.

    Args:
        dispatcher: the dispatcher of the queue.
        options: the options of the crawl.
        clock: the gate's clock.
        end: called with an error of ``on_progress``, which ends the crawl.

    Attributes:
        counts: the counts, by the names of CrawlCounts.
        first_error: see CrawlReport.
        losses: the URLs that were given up, and that are left at closed hosts.
    """

    def __init__(
        self, dispatcher: Dispatcher[Any], options: CrawlOptions[Any], clock: Clock, end: Callable[[Exception], None]
    ) -> None:
        self._dispatcher = dispatcher
        self._options = options
        self._clock = clock
        self._end = end
        self._started_mono = clock.monotonic()
        self._refused_before, self._given_up_before = dispatcher.refused, dispatcher.given_up
        self.counts: Counter[str] = Counter()
        self.first_error = ""
        self.losses = Losses()

    def settle(self, count: str, url: str) -> None:
        """Count a URL, and report progress."""
        self.counts[count] += 1
        if self._options.on_progress is not None:
            self.show_progress(url)

    def settle_visit(self, count: str, visit: Visit[Any], **more: object) -> bool:
        """Count and record the URL of a visit, and report progress; return False if no record could be written."""
        page, answer = visit.page, visit.answer
        if self._options.out is not None:
            now_mono, started = self._clock.monotonic(), datetime.fromtimestamp(visit.started_wall, UTC)
            ended_mono = now_mono if visit.turn.ended_mono is None else visit.turn.ended_mono
            record = {
                "url": public_url(page.url),
                "outcome": _OUTCOMES[count],
                "status": None if answer is None else answer.status,
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
            if not self._record(record | more_of_handle | record):
                return False
        self.settle(count, visit.queued.url)
        return True

    def note_refusal(self, verdict: Verdict, progress_wall: float) -> None:
        """Record a URL that was refused, and report progress; the queue has counted it."""
        rule, source = verdict.rule, verdict.source
        if is_given_up(verdict):
            self.losses.give_up(lost_by(verdict, progress_wall))
        if self._options.out is not None:
            line = None if rule is None else {"line": rule.line, "field": rule.field, "value": f"{rule.value:.200}"}
            outcome = "given-up" if is_given_up(verdict) else "disallowed"
            self._record(
                {
                    "url": verdict.url,
                    "outcome": "refused" if verdict.reason is Reason.REFUSED else outcome,
                    "reason": verdict.reason,
                    "rule": line,
                    "robots_url": None if source is None else source.robots_url,
                    "note": verdict.note or ("" if source is None else source.fault),
                }
            )
        self.show_progress(verdict.url, within_turn=False)

    def _record(self, record: dict[str, Any]) -> bool:
        """Write a record. If that fails, end the crawl and return False."""
        try:
            if self._options.out is not None:
                self._options.out(record)
        except Exception as error:  # noqa: BLE001 - ends the crawl
            self._end(error)
            return False
        return True

    def show_progress(self, url: str, *, within_turn: bool = True) -> None:
        """Report progress. A URL that has just finished is no longer under way, though its turn has not ended."""
        if self._options.on_progress is None:
            return
        queue = self._dispatcher
        progress = CrawlProgress(
            queued=queue.size,
            under_way=len(queue.under_way) - within_turn,
            hosts=len(queue.hosts),
            max_pages=self._options.max_pages,
            last_url=public_url(url),
            elapsed_s=self._elapsed_s,
            **self._counted(),
        )
        try:
            self._options.on_progress(progress)
        except Exception as error:  # noqa: BLE001 - ends the crawl
            self._end(error)

    def report(self) -> CrawlReport:
        """Return the result of the crawl, without what belongs to the crawl itself: ``notes`` and ``stopped_by``."""
        more: dict[str, Any] = {"losses": self.losses.rows(), "lost": self.losses.total, **self._counted()}
        return CrawlReport(left=self._dispatcher.size, elapsed_s=self._elapsed_s, first_error=self.first_error, **more)

    @property
    def _elapsed_s(self) -> float:
        return self._clock.monotonic() - self._started_mono

    def _counted(self) -> dict[str, int]:
        """Return the counts that CrawlProgress and CrawlReport share."""
        given_up = self._dispatcher.given_up - self._given_up_before
        disallowed = self._dispatcher.refused - self._refused_before - given_up
        return {**self.counts, "disallowed": disallowed, "given_up": given_up}


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
