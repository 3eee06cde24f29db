"""The loop that most crawlers write: take a turn, request its URL, handle the page, queue what it links to.

Theory of operation. Each worker takes a turn from the queue and settles its URL within the turn, in one of four ways:

- a redirect: its target is queued as a URL of its own, so that no worker waits for the turn of the other host;
- 429 or 503: the URL is queued again, as a further attempt. The answer has closed its host, so it waits there;
- no answer, or an answer that cannot be followed: the URL has failed;
- any other answer: the page is handed to ``handle``, within the turn. It is done, or has failed, when that returns.

What a URL leads to is queued before its turn ends, so the queue is not done as long as more may come: the crawl ends
when ``join`` does. It also ends when the workers do: a worker ends when the queue is closed and empty, or when there
are more workers than pages that ``max_pages`` still permits. So the limit is exact, and no worker waits for it.

A crawl that is cancelled, or ends with an error, cancels its workers. A worker that is cancelled before its page is
done queues the URL again as it was. New URLs enter by ``admit`` alone, which asks ``seen``; what is queued again was
admitted before. A worker catches all that a URL can raise, so the group of tasks never fails.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from politesse._checks import check_number, check_priority, check_types, wrong_type
from politesse._http.redirects import REDIRECTS
from politesse._tasks import is_ended_with_task
from politesse._text import counted, described, printable, printable_traceback
from politesse.errors import ClosedError, ConfigurationError, InvalidURL, StoreError
from politesse.origin import Origin, url_text
from politesse.queue.links import SeenUrls, normal_form, resolved_link, resolved_location
from politesse.queue.reports import CrawlPage, CrawlProgress, CrawlReport, PageFailed
from politesse.queue.results import QueueClosed, check_in_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from politesse._gate.agent import Agent
    from politesse._pacing.held import Turn
    from politesse.origin import StrOrURL
    from politesse.queue.clients import Answer, CrawlClient
    from politesse.queue.dispatch import Dispatcher
    from politesse.queue.hosts import QueuedUrl
    from politesse.queue.links import Seen

Item = TypeVar("Item")
Response = TypeVar("Response")

logger = logging.getLogger("politesse.queue")

_HANDLE: Final = "an asynchronous function of a page and a response"
_MAX_HOPS: Final = 10
_MAX_ATTEMPTS: Final = 5
_COME_AGAIN: Final = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class CrawlOptions(Generic[Item]):
    """The options of a crawl; see ``PoliteQueue.crawl``.

    Raises:
        ConfigurationError: an option has an invalid value.
    """

    workers: int
    seen: Seen | None
    max_pages: int | None
    on_progress: Callable[[CrawlProgress], object] | None
    on_error: Callable[[CrawlPage[Item], BaseException], object] | None
    stop_on_error: bool

    def __post_init__(self) -> None:
        for name in ("workers", "max_pages"):
            value = getattr(self, name)
            if value is None and name == "max_pages":
                continue
            check_number(name, value, "a whole number, at least 1", whole=True)
            if value < 1:
                raise ConfigurationError(f"{name}={value}: give a whole number, at least 1")
        for name in ("on_progress", "on_error"):
            callback: object = getattr(self, name)
            if callback is not None and (not callable(callback) or inspect.iscoroutinefunction(callback)):
                raise wrong_type(name, callback, "a function that is not asynchronous")
        if self.seen is not None and not (hasattr(self.seen, "__contains__") and hasattr(self.seen, "add")):
            raise wrong_type("seen", self.seen, "a set, or an object with __contains__ and add")
        check_types({"stop_on_error": (self.stop_on_error, bool)}, required=True)


class Crawl(Generic[Item, Response]):
    """One crawl of a queue.

    Args:
        agent: of the queue.
        dispatcher: of the queue.
        client: makes the requests.
        handle: called with each page and its response.
        options: see there.

    Raises:
        ConfigurationTypeError: ``handle`` is not asynchronous, or does not take two arguments.
    """

    def __init__(
        self,
        agent: Agent,
        dispatcher: Dispatcher[Item],
        client: CrawlClient[Response],
        handle: Callable[[CrawlPage[Item], Response], Awaitable[object]],
        options: CrawlOptions[Item],
    ) -> None:
        call = getattr(handle, "__call__", None)  # noqa: B004 - of an object: its method is asynchronous
        if not inspect.iscoroutinefunction(handle) and not inspect.iscoroutinefunction(call):
            raise wrong_type("handle", handle, _HANDLE)
        try:
            inspect.signature(handle).bind(None, None)
        except TypeError:
            raise wrong_type("handle", handle, _HANDLE) from None
        self._agent = agent
        self._dispatcher = dispatcher
        self._client = client
        self._handle = handle
        self._options = options
        journal = dispatcher.journal
        kept_seen = SeenUrls() if journal is None else journal.seen
        self._seen: Seen = kept_seen if options.seen is None else options.seen
        self._workers = options.workers if options.max_pages is None else min(options.workers, options.max_pages)
        self._started_mono = self._agent.clock.monotonic()
        self._refused_before, self._given_up_before = dispatcher.refusals.count, dispatcher.refusals.given_up
        self._pages = self._failed = self._redirects = self._retried = self._bad_links = 0
        self._handed = 0
        self._over = asyncio.Event()
        self._error: BaseException | None = None

    async def run(self) -> CrawlReport:
        """Crawl until it is over; raises what ``PoliteQueue.crawl`` says."""
        if self._client.closed:
            raise ClosedError(self._closed_message())
        await self._dispatcher.ready()
        journal = self._dispatcher.journal
        for queued in self._dispatcher.left():
            if journal is None or self._seen is not journal.seen or not journal.is_resumed(queued):
                self._seen.add(normal_form(queued.url))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._work(), name=f"crawl: worker {n}") for n in range(self._workers)]
                tasks.append(group.create_task(self._wait_for_end(), name="crawl: end"))
                await self._over.wait()
                for task in tasks:
                    task.cancel()
        except BaseException as error:
            self._log_end(error)
            raise
        if self._error is not None:
            self._log_end(self._error)
            raise self._error
        return self._report()

    def admit(self, url: str) -> bool:
        """Return whether a URL is new, and note it as seen. What ``seen`` raises ends the crawl, and is raised."""
        form = normal_form(url)
        if self._ask_seen(self._seen.__contains__, form):
            return False
        self._ask_seen(self._seen.add, form)
        return True

    def _ask_seen(self, method: Callable[[str], object], form: str) -> object:
        """Return what a method of ``seen`` returns; end the crawl with what it raises."""
        try:
            return method(form)
        except BaseException as error:
            self._end(error)
            raise

    def note_refusal(self, url: str) -> None:
        """Report that a URL was refused."""
        self._show_progress(url, within_turn=False)

    async def _wait_for_end(self) -> None:
        try:
            while self._dispatcher.size or self._dispatcher.under_way:
                await self._dispatcher.join()
        except (ClosedError, StoreError) as error:
            self._end(error)
        self._over.set()

    async def _work(self) -> None:
        try:
            while not self._over.is_set() and not self._is_superfluous():
                turn, queued = await self._dispatcher.take()
                try:
                    with turn:
                        await self._visit(turn, queued)
                finally:
                    self._dispatcher.note_end(turn, queued)
        except QueueClosed:
            pass  # closed, and empty
        except Exception as error:  # noqa: BLE001 - ClosedError, or what on_disallowed raised: ends the crawl
            self._end(error)
        finally:
            self._workers -= 1
            if not self._workers:
                self._over.set()

    def _is_superfluous(self) -> bool:
        """Return whether there are more workers than pages may still be handed out."""
        return self._options.max_pages is not None and self._workers > self._options.max_pages - self._handed

    async def _visit(self, turn: Turn, queued: QueuedUrl[Item]) -> None:
        """Request the URL of a turn and settle it, as the theory of operation lists it."""
        page = CrawlPage(queued.url, queued.item, queued.hops, queued.attempt, self._offer)
        is_handed = is_done = False
        try:
            async with self._client.request(turn) as answer:
                is_page = not self._is_redirect(answer) and answer.status not in _COME_AGAIN
                if is_page:
                    self._handed += 1
                    is_handed = True
                    await self._handle(page, answer.response)
                is_done = True
            if not is_page:
                self._follow_up(queued, page, answer)
        except BaseException as error:  # noqa: BLE001 - raised again, reported, or the end of the crawl
            self._broken_off(error, queued, page, is_handed=is_handed, is_done=is_done)
        else:
            if is_page:
                self._pages += 1
                self._show_progress(page.url)

    def _broken_off(
        self, error: BaseException, queued: QueuedUrl[Item], page: CrawlPage[Item], *, is_handed: bool, is_done: bool
    ) -> None:
        """Settle a URL whose visit raised; raise on what ends the worker."""
        if is_ended_with_task(error, asyncio.current_task()):
            if is_handed and is_done:
                self._pages += 1  # cancelled while the response was closed
            else:
                self._put_back(queued)
            raise error
        if error is self._error:  # of ``seen``
            self._put_back(queued)
        elif self._is_closed() or (isinstance(error, ClosedError) and not is_handed):
            self._put_back(queued)
            closed = ClosedError(self._closed_message())
            closed.__cause__ = error
            self._end(closed)
        else:
            self._fail(page, error, by_handle=is_handed)

    @staticmethod
    def _is_redirect(answer: Answer[Response]) -> bool:
        return answer.status in REDIRECTS and answer.location is not None

    def _follow_up(self, queued: QueuedUrl[Item], page: CrawlPage[Item], answer: Answer[Response]) -> None:
        """Queue the target of a redirect, or another attempt; a URL that allows neither has failed."""
        status, problem = answer.status, ""
        if answer.location is None or not self._is_redirect(answer):
            if queued.attempt >= _MAX_ATTEMPTS:
                problem = f"was answered with {status} to {queued.attempt} attempts"
            else:
                self._retried += 1
                self._put_back(queued, queued.attempt + 1)
        elif (target := resolved_location(queued.url, answer.location)) is None:
            problem = f"redirects to {answer.location!r:.100}, which is no http(s) URL"
        elif target == queued.url:
            problem = f"redirects to itself with {status}, as sites do that want a cookie first"
        elif len(queued.hops) >= _MAX_HOPS:
            problem = f"is the end of {_MAX_HOPS} redirects, and redirects again"
        else:
            self._redirect(queued, target)
        if problem:
            self._fail(page, PageFailed(queued.url, status, problem), by_handle=False)
        else:
            self._show_progress(queued.url)

    def _redirect(self, queued: QueuedUrl[Item], target: str) -> None:
        # Servers redirect from one spelling of a URL to another: as URLs of a crawl the two are the same.
        respelt = normal_form(target) == normal_form(queued.url)
        if respelt or self.admit(target):
            hops = (*queued.hops, queued.url)
            origin = Origin.of(target)
            self._dispatcher.add(origin, target, queued.item, queued.priority, hops, instead_of=queued)
        self._redirects += 1

    def _offer(self, base: str, link: StrOrURL | None, item: Item | None, priority: float) -> bool:
        """Queue what a link refers to; see ``CrawlPage.put``."""
        check_priority(priority)
        if self._dispatcher.journal is not None:
            self._dispatcher.journal.check(item, priority)
        url = None if link is None else resolved_link(base, url_text(link, "link"))
        if url is not None:
            form = normal_form(url)
            if self._ask_seen(self._seen.__contains__, form):
                return False  # most links of a page: what was seen was checked
            with suppress(InvalidURL):
                origin = self._agent.checked_origin(url)
                check_in_loop()
                if self._dispatcher.closed:
                    return False
                self._ask_seen(self._seen.add, form)
                self._dispatcher.add(origin, url, item, priority)
                return True
        self._bad_links += 1
        return False

    def _put_back(self, queued: QueuedUrl[Item], attempt: int | None = None) -> None:
        """Queue a URL again as it was, or as another attempt."""
        origin, attempt = queued.origin_queue.origin, attempt or queued.attempt
        self._dispatcher.add(origin, queued.url, queued.item, queued.priority, queued.hops, attempt, instead_of=queued)

    def _fail(self, page: CrawlPage[Item], error: BaseException, *, by_handle: bool) -> None:
        """Count and report a URL that has failed."""
        self._failed += 1
        if by_handle:
            shown = printable(page.url), printable_traceback(error)
            logger.error("handle failed on %s\n%s", *shown)
        else:
            logger.info("%s failed: %s", printable(page.url), described(error))
        if self._options.on_error is not None:
            try:
                self._options.on_error(page, error)
            except Exception as failure:  # noqa: BLE001 - ends the crawl
                self._end(failure)
        if by_handle and self._options.stop_on_error:
            self._end(error)
        self._show_progress(page.url)

    def _end(self, error: BaseException) -> None:
        """End the crawl with an error, unless another one was first."""
        if self._error is None:
            self._error = error
        self._over.set()

    def _log_end(self, error: BaseException) -> None:
        left, hosts = counted(self._dispatcher.size, "URL"), counted(len(self._dispatcher.hosts), "host")
        end = "cancelled" if isinstance(error, asyncio.CancelledError) else f"ended by {type(error).__name__}"
        logger.warning("the crawl was %s; %s left at %s", end, left, hosts)

    def _is_closed(self) -> bool:
        return self._client.closed or self._agent.state.closing is None

    def _closed_message(self) -> str:
        what = "the session of the crawl is" if self._client.closed else "the gatekeeper was"
        return f"{what} closed, with {self._dispatcher.size} URLs queued"

    def _show_progress(self, url: str, *, within_turn: bool = True) -> None:
        """Report progress; a URL that is finished just now is under way no more, though its turn has not ended."""
        if self._options.on_progress is None:
            return
        progress = CrawlProgress(
            pages=self._pages,
            failed=self._failed,
            redirects=self._redirects,
            disallowed=self._disallowed,
            given_up=self._given_up,
            queued=self._dispatcher.size,
            under_way=len(self._dispatcher.under_way) - within_turn,
            retried=self._retried,
            bad_links=self._bad_links,
            hosts=len(self._dispatcher.hosts),
            last_url=url,
            elapsed_s=self._agent.clock.monotonic() - self._started_mono,
        )
        try:
            self._options.on_progress(progress)
        except Exception as error:  # noqa: BLE001 - ends the crawl
            self._end(error)

    @property
    def _given_up(self) -> int:
        return self._dispatcher.refusals.given_up - self._given_up_before

    @property
    def _disallowed(self) -> int:
        return self._dispatcher.refusals.count - self._refused_before - self._given_up

    def _report(self) -> CrawlReport:
        return CrawlReport(
            pages=self._pages,
            failed=self._failed,
            redirects=self._redirects,
            disallowed=self._disallowed,
            given_up=self._given_up,
            retried=self._retried,
            bad_links=self._bad_links,
            left=self._dispatcher.size,
            elapsed_s=self._agent.clock.monotonic() - self._started_mono,
        )
