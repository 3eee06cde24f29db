"""A queue that hands out only URLs whose host is ready, so that no worker ever waits for one host.

The way through this folder::

    queue.py        PoliteQueue: checks what is put, and waits for room
    dispatch.py     hands out and refuses: the theory of operation is there
      hosts.py      the heaps of URLs, by host and origin
      prefetch.py   fetches robots.txt ahead, and again after a deferral
      patience.py   how long a site is waited for
      denied.py     finds URLs that are denied before their turn
      refusals.py   counts and passes on what is refused
      stalls.py     logs that nothing moves
      waiting.py    a FIFO of tasks
    taking.py       ``PoliteQueue.turn``: takes a turn on entering, ends it on leaving
    journal.py      keeps what was put for the next run: the theory of operation is there
      journal_file.py  its tables in an SQLite file
    results.py      what the methods of the queue return and raise
    crawl.py        ``PoliteQueue.crawl``: the loop over the queue
      clients.py    aiohttp and httpx, seen alike
      links.py      links, normal forms, ``seen``
      reports.py    what a crawl reports
"""

from __future__ import annotations

import asyncio
import inspect
import math
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from politesse._checks import check_least, check_priority, check_wait, wrong_type
from politesse._gate.view import AgentView, agent_of
from politesse._pacing.held import current_task, in_turn
from politesse._text import counted
from politesse.errors import ConfigurationError, InvalidURL, StoreError
from politesse.origin import Origin, url_text
from politesse.queue.clients import client_of
from politesse.queue.crawl import Crawl, CrawlOptions
from politesse.queue.dispatch import Dispatcher
from politesse.queue.patience import Limits
from politesse.queue.results import QueueClosed, QueueStatistics, check_in_loop
from politesse.queue.stalls import StallWatch, named
from politesse.queue.taking import TakingTurn
from politesse.verdict import Verdict, utc

if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable, Mapping
    from types import TracebackType

    from politesse.origin import StrOrURL
    from politesse.queue.clients import AiohttpStyle, HttpxStyle
    from politesse.queue.hosts import HostQueue
    from politesse.queue.journal import JournalFile
    from politesse.queue.links import Seen
    from politesse.queue.reports import CrawlPage, CrawlProgress, CrawlReport

Item = TypeVar("Item")
Response = TypeVar("Response")

_DEPRECATED: Final = "max_deferrals= is deprecated: give max_unreachable_s= and max_wait_s=, in seconds"


class PoliteQueue(Generic[Item]):
    r"""URLs in, turns out: each as soon as its host is ready, the hosts taking turns.

    Within a host the lowest priority goes first, and of the same priority what was put first. A URL that may not be
    requested is passed to ``on_disallowed`` and counts as done; it waits for no interval. If robots.txt is unreachable,
    or was answered with 429, the URLs of its origin are kept until robots.txt may be fetched again. They are given up,
    which is to be refused as well, if that would be too late: see ``max_unreachable_s`` and ``max_wait_s``. If the name
    of the host is not found, that is at once. The queue belongs to one event loop. Its tasks end with their fetches, at
    the latest when the gate is closed.

    Args:
        gate: grants the turns. Callers of ``gate.turn`` for the same host go first.
        maxsize: how many URLs may wait at each host before the ``put`` of a producer waits; 0 for any number. Turns
            under way do not count. Within a turn (in child tasks, too), and in a task that has taken a turn of this
            queue, ``put`` never waits and adds beyond it: the task would wait for itself.
        on_disallowed: called with the item, or the URL if there is no item, and the verdict, by the worker that finds
            the URL disallowed. If it raises, that worker's ``turn`` raises. The reason of the verdict is WAIT_TOO_LONG
            for what was given up because of ``max_wait_s``; its note names what bound the wait, and until when.
        max_unreachable_s: for how many seconds after the first failure in a row robots.txt is fetched again while it is
            unreachable, counted from when the queue was made at the earliest; 0 or more; None for no limit.
        max_wait_s: for how many seconds at a stretch a site may make its pages wait: by a Retry-After, a 429 to
            robots.txt, a Visit-time, or an interval that is longer. The time that a URL waits for others does not
            count, nor does the crawler's own ``min_delay_s``. 0 or more; None for no limit.
        max_deferrals: deprecated. How often in a row robots.txt is waited for, in place of the seconds; 0 or more.
        max_asking: how many robots.txt are fetched at once, not counting those that are slow to answer; positive.
        journal: a file that keeps what was put until it has ended, so that the next run goes on with it: a path, or
            ``"sqlite:///crawl.db"``. It may be the file of the gate's store. None for no file.

    With a journal, ``put`` returns when the URL is in the file. A URL ends with its turn, or when it is refused; one
    whose turn is broken off by the end of its task or of the process is handed out again by the next run, and what has
    ended is not. A ``put`` of what an earlier run has put is ignored, so a program that was killed goes on if it is
    just started again; a worker may put again what this run has handed out. Items must be what JSON holds: None, str,
    numbers, bool, lists, and dicts with str as keys; a tuple, which would come back as a list, is refused. The file is
    read at the first use, by one queue at a time. It is closed with the gatekeeper, or by ``aclose``.

    Raises:
        ConfigurationError: for invalid options; for a ``journal`` that is no file of politesse, or cannot be opened.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper, PoliteQueue
        >>> from politesse.testing import ManualClock, ScriptedFetcher
        >>> async def main() -> None:
        ...     agent, clock = "ExampleBot/1.0 (+https://example.com/bot)", ManualClock(autojump=True)
        ...     fetcher = ScriptedFetcher({"https://a.example": "User-agent: *\nDisallow: /private"})
        ...     async with Gatekeeper(agent, fetcher=fetcher, clock=clock) as gate:
        ...         queue = PoliteQueue(gate, on_disallowed=lambda url, verdict: print(url, verdict.reason))
        ...         for path in ("/1", "/private", "/2"):
        ...             await queue.put(f"https://a.example{path}")
        ...         for _ in range(2):
        ...             async with queue.turn() as turn:
        ...                 print(turn.url, round(clock.monotonic()))  # request it here
        >>> asyncio.run(main())
        https://a.example/private disallow-rule
        https://a.example/1 1
        https://a.example/2 2
    """

    def __init__(
        self,
        gate: AgentView,
        *,
        maxsize: int = 0,
        on_disallowed: Callable[[Item | str, Verdict], object] | None = None,
        max_unreachable_s: float | None = 300.0,
        max_wait_s: float | None = 3600.0,
        max_deferrals: int | None = None,
        max_asking: int = 100,
        journal: str | os.PathLike[str] | None = None,
    ) -> None:
        _check_objects(gate, on_disallowed)
        check_least("maxsize", maxsize, 0)
        check_least("max_asking", max_asking, 1)
        check_wait("max_wait_s", max_wait_s)
        check_wait("max_unreachable_s", max_unreachable_s)
        if max_deferrals is not None:
            check_least("max_deferrals", max_deferrals, 0)
            warnings.warn(_DEPRECATED, DeprecationWarning, stacklevel=2)
        self._gate = gate
        self._agent = agent_of(gate)
        self._maxsize = maxsize
        limits = Limits(
            math.inf if max_unreachable_s is None else max_unreachable_s,
            math.inf if max_wait_s is None else max_wait_s,
            max_deferrals,
        )
        self._stalls = StallWatch(self._agent.clock, self.__repr__)
        journal_file = None if journal is None else _journal_file(journal)
        self._dispatcher: Dispatcher[Item] = Dispatcher(
            self._agent, on_disallowed, self._stalls, limits, max_asking, journal_file
        )

    async def __aenter__(self) -> Self:
        await self._dispatcher.ready()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Accept and hand out no more URLs, and close the journal: what was put and has not ended is in it.

        Pending and later calls raise QueueClosed; ``left`` returns what was not done. To hand out all that was put
        first, ``close`` the queue and ``join`` it. The close of the gatekeeper does the same.
        """
        await self._dispatcher.aclose()

    async def put(self, url: StrOrURL, item: Item | None = None, priority: float = 0) -> None:
        """Queue ``url``; a producer waits first if there is no room at its host (see ``maxsize``).

        Args:
            url: what to request.
            item: handed out with it.
            priority: lower goes first, within the host; an int or a float.

        Raises:
            TypeError: for a ``url`` that is neither a str nor a yarl.URL, a ``priority`` of another type, or an
                ``item`` that a journal cannot keep.
            ValueError: for a ``priority`` that is NaN; with a journal, for an int of more than 64 bits.
            InvalidURL: for a URL that cannot be requested.
            QueueClosed: if the queue is closed, before the call or during it.
            ClosedError: if the gatekeeper is closed.
            StoreError: if the journal cannot be read or written, or another queue uses it; nothing more is handed out
                then. If the call is cancelled as it waits for the journal, the URL may be queued.
            WrongEventLoop: if the gatekeeper belongs to another event loop, or none is running, as in a thread.
        """
        url = url_text(url)
        origin = self._checked_origin(url, priority)
        journal = self._dispatcher.journal
        if journal is not None:
            journal.check(item, priority)
            self._check_open(origin)
            await journal.ready()
            if journal.ignores(url, by_worker=self._is_consumer()):
                return
        while (host := self._full_host(origin)) is not None:
            try:
                with self._stalls:
                    await host.putters.wait()
            finally:
                self._dispatcher.forget_if_idle(host)
        if not self._is_seen(url):
            self._dispatcher.add(origin, url, item, priority)
        await self._dispatcher.flush()

    def put_nowait(self, url: StrOrURL, item: Item | None = None, priority: float = 0) -> None:
        """Queue ``url`` if there is room at its host, or the caller is a consumer (see ``maxsize``).

        A journal gets it soon after, and must have been read: by ``async with queue``, or any method that waits.

        Raises:
            asyncio.QueueFull: if there is no room, for a producer.
            ConfigurationError: if the journal was not read yet.
            TypeError, ValueError, InvalidURL, QueueClosed, ClosedError, StoreError, WrongEventLoop: as ``put`` does.
        """
        url = url_text(url)
        origin = self._checked_origin(url, priority)
        journal = self._dispatcher.journal
        if journal is not None:
            journal.check(item, priority)
            self._check_open(origin)
            journal.check_open()
            if journal.ignores(url, by_worker=self._is_consumer()):
                return
        if self._full_host(origin) is not None:
            raise asyncio.QueueFull(f"{self._maxsize} URLs wait at {origin.pacing_host} already")
        if not self._is_seen(url):
            self._dispatcher.add(origin, url, item, priority)

    def turn(self) -> TakingTurn[Item]:
        """Wait until some host is ready, and hold a turn there while the block runs.

        The pause to the next request counts from the end of the block. However the block ends, the URL is done then:
        put it again to retry it. (A journal keeps it for the next run if the block ends with its task: by a
        cancellation, KeyboardInterrupt or SystemExit.) The turn covers one hop, and the integrations use it; see
        ``AgentView.turn``.

        Raises:
            QueueClosed: if the queue is closed and empty.
            TurnHeld: if this task holds the turns of all hosts that have URLs: it would wait for itself.
            ClosedError: if the gatekeeper is closed.
            StoreError: if the journal cannot be read or written, or another queue uses it.
            WrongEventLoop: if the gatekeeper belongs to another event loop.
        """
        return TakingTurn(self._dispatcher)

    async def crawl(
        self,
        web: AiohttpStyle[Response] | HttpxStyle[Response],
        handle: Callable[[CrawlPage[Item], Response], Awaitable[object]],
        *,
        workers: int = 20,
        seen: Seen | None = None,
        max_pages: int | None = None,
        on_progress: Callable[[CrawlProgress], object] | None = None,
        on_error: Callable[[CrawlPage[Item], BaseException], object] | None = None,
        stop_on_error: bool = False,
    ) -> CrawlReport:
        """Request every URL of the queue, hand each page to ``handle``, and follow the links that it puts.

        Each URL is requested once, in a turn of its host, by a GET request with the timeouts of ``web``. A redirect is
        not followed at once: its target is queued with the same item, after at most 10 hops, unless it was seen. An
        answer of 429 or 503 closes its host, and the URL is requested again later, at most 5 times in all; it is given
        up as any other URL if its host is closed for longer than ``max_wait_s`` of the queue. Every other answer is a
        page, whatever its status.

        URLs count as one if their normal forms are equal (RFC 3986 6.2.2 and 6.2.3, by yarl): scheme and host in lower
        case, no default port, escapes decoded where that is safe, dot segments resolved, ``/`` for an empty path, no
        fragment, no empty query. The order of a query and a trailing slash matter. The normal form is only compared;
        the request has the URL as it was put.

        It ends when every URL is done, ``handle`` included, or after ``max_pages``. It does not wait for tasks that
        ``handle`` has started: what they put after the end stays in the queue, for another crawl. If it is cancelled,
        or ends with an error, URLs under way go back into the queue, the log says how many are left, and a later crawl
        with the same ``seen`` goes on with them; with a journal, so does the same program when it is started again.

        Args:
            web: a PoliteSession of the same gatekeeper, an ``aiohttp.ClientSession``, or an ``httpx.AsyncClient``. It
                is not closed. Without a User-Agent of its own it sends that of the gate.
            handle: an asynchronous function of a CrawlPage and the response, as ``web`` gives it. It holds its host
                until the response is read to its end, or it returns. The body of an httpx response has been read. What
                it raises is logged with the URL, and passed to ``on_error``.
            workers: how many URLs are under way at once, each at another host; positive.
            seen: the URLs that are not to be requested, to which those of this crawl are added: a set, or any object
                with ``__contains__`` and ``add``, in their normal form. By default a set of digests; with a journal,
                it has those of earlier runs. ``put`` of a URL that was seen is ignored while the crawl runs; URLs that
                were put before it are requested.
            max_pages: how many pages are handed to ``handle`` at most; None for any number.
            on_progress: called whenever a URL is finished or refused; must not block.
            on_error: called with a page, and what ``handle`` or the request raised, or PageFailed.
            stop_on_error: whether the first error of ``handle`` ends the crawl and is raised.

        Raises:
            ConfigurationError: an argument is invalid, ``web`` belongs to another gatekeeper, or the queue is being
                crawled already; a ConfigurationTypeError if an argument has the wrong type.
            ClosedError: the gatekeeper or ``web`` was closed.
            StoreError: the journal cannot be read or written, or another queue uses it.
            Exception: what ``seen``, ``on_progress``, ``on_error`` or ``on_disallowed`` raises, and, if
                ``stop_on_error``, what ``handle`` raises.

        Example:
            >>> import asyncio
            >>> from politesse import Gatekeeper, PoliteQueue
            >>> from politesse.testing import ScriptedFetcher
            >>> import httpx
            >>> async def handle(page, response):
            ...     print(page.url, response.status_code, [page.put(link) for link in ("/", "/b", "mailto:us")])
            >>> async def main() -> None:
            ...     site = httpx.MockTransport(lambda request: httpx.Response(200))
            ...     agent = "ExampleBot/1.0 (+https://example.com/bot)"
            ...     async with Gatekeeper(agent, fetcher=ScriptedFetcher()) as gate:
            ...         queue = PoliteQueue(gate)
            ...         await queue.put("https://a.example/")
            ...         async with httpx.AsyncClient(transport=site) as web:
            ...             report = await queue.crawl(web, handle, max_pages=1)
            ...         print(report.pages, report.left, report.bad_links)
            >>> asyncio.run(main())
            https://a.example/ 200 [False, True, False]
            1 1 1
        """
        dispatcher = self._dispatcher
        if dispatcher.crawl is not None:
            raise ConfigurationError(f"{self!r} is being crawled: wait for the end of that crawl, or use another queue")
        options = CrawlOptions(workers, seen, max_pages, on_progress, on_error, stop_on_error)
        dispatcher.crawl = crawl = Crawl(self._agent, dispatcher, client_of(web, self._gate), handle, options)
        try:
            report = await crawl.run()
            await dispatcher.flush()
        except BaseException:
            with suppress(StoreError):  # the log has it; what ended the crawl passes
                await dispatcher.flush()
            raise
        finally:
            dispatcher.crawl = None
        return report

    async def join(self) -> None:
        """Wait until every URL that was put is done.

        Raises:
            ClosedError: if the gatekeeper is closed before that.
            StoreError: if the journal cannot be read or written, or another queue uses it.
            WrongEventLoop: if the gatekeeper belongs to another event loop.
        """
        self._agent.check_loop()
        await self._dispatcher.join()

    def close(self) -> None:
        """Accept no more URLs.

        Queued URLs are still handed out, deferred ones too, or given up; then ``turn`` raises QueueClosed. Close the
        gate to stop; ``left`` returns what was not done.
        """
        self._dispatcher.close()

    def qsize(self) -> int:
        """Return how many URLs wait; turns under way do not count."""
        return self._dispatcher.size

    def sizes(self) -> dict[str, int]:
        """Return how many URLs wait at each pacing host."""
        return {key: host.size for key, host in self._dispatcher.hosts.items() if host.size}

    def left(self) -> list[tuple[str, Item | None, float]]:
        """Return what waits, in the order of ``put``: the URL, item and priority of each, as they were put.

        Turns under way do not count. Also when the queue or the gatekeeper is closed.

        Example:
            >>> import asyncio
            >>> from politesse import Gatekeeper, PoliteQueue
            >>> from politesse.testing import ScriptedFetcher
            >>> async def main() -> None:
            ...     agent = "ExampleBot/1.0 (+https://example.com/bot)"
            ...     async with Gatekeeper(agent, fetcher=ScriptedFetcher()) as gate:
            ...         queue = PoliteQueue(gate)
            ...         await queue.put("https://a.example/1", item="one")
            ...     print(queue.left())
            >>> asyncio.run(main())
            [('https://a.example/1', 'one', 0)]
        """
        return [(queued.url, queued.item, queued.priority) for queued in self._dispatcher.left()]

    def deferred(self) -> Mapping[Origin, float]:
        """Return the origins whose robots.txt is waited for, and the Unix times at which it is fetched again."""
        return self._dispatcher.deferred()

    def statistics(self) -> QueueStatistics:
        """Return what the queue holds now."""
        return self._dispatcher.statistics()

    def __repr__(self) -> str:
        held = self.statistics()
        origins = str(next(iter(self.deferred()))) if held.deferred == 1 else counted(held.deferred, "origin")
        until = held.deferred_until_wall
        deferred = "" if until is None else f", {origins} deferred until {utc(until)}"
        resumed = f", {held.resumed:,} resumed" if held.resumed else ""
        closed = ", closed" if self._dispatcher.closed else ""
        return (
            f"<PoliteQueue: {held.queued:,} queued at {counted(held.hosts, 'host')}{named(self._dispatcher.hosts)}, "
            f"{held.ready:,} ready, {held.under_way:,} under way{named(self._dispatcher.under_way.values())}, "
            f"{counted(held.waiting, 'worker')} waiting{self._waiting_puts()}{deferred}{resumed}{closed}>"
        )

    def _waiting_puts(self) -> str:
        """Return how many calls of ``put`` wait for room, as words."""
        waiting = {key: len(host.putters) for key, host in self._dispatcher.hosts.items() if host.putters}
        puts = sum(waiting.values())
        return f", {puts} {'put waits' if puts == 1 else 'puts wait'} for room{named(waiting)}" if puts else ""

    def _checked_origin(self, url: str, priority: float) -> Origin:
        """Return the origin of ``url``; raise InvalidURL now if the gate would raise it later."""
        check_priority(priority)
        try:
            url.encode()
        except UnicodeEncodeError:
            raise InvalidURL(url, "holds a lone surrogate, which has no UTF-8 form") from None
        return self._agent.checked_origin(url)

    def _full_host(self, origin: Origin) -> HostQueue[Item] | None:
        """Return the host if there is no room at it; raise if nothing can be put at all."""
        self._check_open(origin)
        host = self._dispatcher.hosts.get(origin.pacing_host)
        if host is None or not 0 < self._maxsize <= host.size or self._is_consumer():
            return None
        return host

    def _check_open(self, origin: Origin) -> None:
        """Raise if nothing can be put."""
        check_in_loop()
        self._dispatcher.raise_failure()
        if self._dispatcher.closed:
            raise QueueClosed(f"a URL of {origin} was put after the queue was closed")

    def _is_consumer(self) -> bool:
        """Return whether this task has taken a turn of this queue, or the code runs within a turn."""
        return in_turn() or current_task() in self._dispatcher.consumers

    def _is_seen(self, url: str) -> bool:
        """Return whether a crawl is under way that has seen ``url``; otherwise it counts as seen from now on."""
        crawl = self._dispatcher.crawl
        return crawl is not None and not crawl.admit(url)


def _journal_file(journal: str | os.PathLike[str]) -> JournalFile:
    from politesse.queue.journal_file import SqliteJournal  # noqa: PLC0415 - loads sqlite3, which most do not need

    return SqliteJournal(journal)


def _check_objects(gate: object, on_disallowed: object) -> None:
    if not isinstance(gate, AgentView):
        raise wrong_type("gate", gate, "a Gatekeeper or the result of its agent()")
    if on_disallowed is not None and (not callable(on_disallowed) or inspect.iscoroutinefunction(on_disallowed)):
        raise wrong_type("on_disallowed", on_disallowed, "a function that is not asynchronous")
