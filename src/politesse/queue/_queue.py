"""PoliteQueue: the methods for users. Its dispatcher takes URLs and hands them out, a Crawl requests them."""

from __future__ import annotations

import signal
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Self, TypeVar

from politesse._base.checks import AsyncOnly, check_least, check_types, check_wait, wrong_type
from politesse._base.text import shortened
from politesse._gate.view import AgentView
from politesse.errors import ConfigurationError, StoreError
from politesse.origin import paced_host
from politesse.queue._crawl import Crawl, record_writer
from politesse.queue._dispatch import Dispatcher, QueueTurn, described, statistics_of
from politesse.queue._hosts import LOGGER
from politesse.queue._results import Item, QueueStatistics
from politesse.queue._signals import SignalStop
from politesse.queue._sitemaps import put_sitemaps
from politesse.queue._web import AiohttpStyle, HttpxStyle, Limits, Seen, check_callback, client_of
from politesse.verdict import utc

if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from datetime import datetime

    from politesse.origin import Origin, StrOrURL
    from politesse.queue._results import CrawlPage, CrawlProgress, CrawlReport
    from politesse.verdict import Verdict

Response = TypeVar("Response")

_MAX_NOTE: Final = 500


class PoliteQueue(AsyncOnly, Generic[Item]):
    r"""A queue of URLs. Workers take turns from it; each turn is handed out as soon as its host is ready.

    Ready hosts are served one after the other. Within a host, the URL with the lowest ``priority`` goes first; at equal
    priority, the URL that was put first. A disallowed URL is passed to ``on_disallowed`` without a wait, and counts as
    done. If robots.txt is unreachable, or was answered with 429, the queue keeps the URLs of its origin until
    robots.txt may be fetched again. If robots.txt stays in this state for too long (``max_unreachable_s``,
    ``max_wait_s``), or if the host name is not found, the queue gives the URLs up and refuses them. The queue belongs
    to one event loop. The tasks of the queue end when the gate is closed.

    Args:
        gate: grants the turns. All tasks and queues wait for a host in one line, first come, first served.
        maxsize: how many URLs may wait at each host; 0 for any number. At that number ``put`` waits for room. Turns
            under way do not count. A consumer never waits, because only consumers make room. Consumers are: code within
            a turn, its child tasks, and any task that has taken a turn of this queue.
        on_disallowed: called when a worker finds a URL disallowed. The first argument is the item, or the URL if it has
            no item; the second argument is the verdict. If ``on_disallowed`` raises an error, the ``turn`` of that
            worker raises it. If ``max_wait_s`` is exceeded, the reason is WAIT_TOO_LONG; the note of the verdict names
            the cause and the end of the wait. If the site refuses this crawler, the reason is REFUSED; the note quotes
            the answer.
        max_unreachable_s: for how many seconds the queue retries an unreachable robots.txt; 0 or more; None for no
            limit. The time counts from the first of the consecutive failures, or from the creation of the queue if that
            is later.
        max_wait_s: how long a site may make its pages wait without a break, in seconds; 0 or more; None for no limit.
            A site makes pages wait by a Retry-After, a 429 to robots.txt, a Visit-time, or a longer interval. The wait
            for other URLs and the crawler's own ``min_delay_s`` do not count.
        max_refusals: a site is given up once it has refused this crawler this many times in a row; 1 or more. The first
            refusal closes the site for 15 minutes, and each further refusal for twice as long as the last
            (``PacingOptions.refused_min_s``).
        journal: a file that keeps each URL until it is done, so that the next run continues: a path, or
            ``"sqlite:///crawl.db"``. The file of the gate's store may also hold the journal. None for no file.
        retry_failed: whether to request again what failed in the crawls of earlier runs with this journal.

    With a journal, ``put`` returns when the URL is in the file. A URL leaves the file when its turn ends, or when it is
    refused. If the task or the process ends during the turn, the next run hands the URL out again, and so it does with
    a page whose ``handle`` raised the error that ended the crawl. ``put`` ignores a URL that an earlier run has put, so
    a killed program continues when you start it again. A worker may put a URL again if this run has handed the URL out.
    The file stores items as JSON: None, str, numbers, bool, lists, or dicts with
    str as keys. Only one queue at a time can use the file. The file is closed by ``aclose``, or when the gatekeeper
    is closed.

    Raises:
        ConfigurationError: for invalid options; for a ``journal`` that is not a file of politesse, or cannot be opened.

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
        max_refusals: int = 3,
        journal: str | os.PathLike[str] | None = None,
        retry_failed: bool = False,
    ) -> None:
        given: object = gate
        if not isinstance(given, AgentView):
            raise wrong_type("gate", gate, "a Gatekeeper or the result of its agent()")
        check_callback("on_disallowed", on_disallowed)
        check_least("maxsize", maxsize, 0)
        check_wait("max_wait_s", max_wait_s)
        check_wait("max_unreachable_s", max_unreachable_s)
        check_least("max_refusals", max_refusals, 1)
        check_types({"retry_failed": (retry_failed, bool)}, required=True)
        if retry_failed and journal is None:
            raise ConfigurationError("retry_failed=True needs a journal, which knows the URLs that failed")
        self._gate = gate
        self._dispatcher: Dispatcher[Item] = Dispatcher(
            gate, on_disallowed, max_unreachable_s, max_wait_s, max_refusals, journal, retry_failed, maxsize
        )
        self._crawl: Crawl[Item, Any] | None = None

    async def __aenter__(self) -> Self:
        await self._dispatcher.ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop accepting and handing out URLs, and close the journal, which keeps the remaining URLs.

        Calls that are waiting, and later calls, raise QueueClosed. To hand out all queued URLs first, call ``close``
        and then ``join``. Closing the gatekeeper closes the queue as well.
        """
        await self._dispatcher.aclose()

    async def put(self, url: StrOrURL, item: Item | None = None, priority: float = 0) -> None:
        """Queue ``url``. A producer waits while the host of ``url`` has no room (see ``maxsize``).

        Args:
            url: the URL to request.
            item: an object that is handed out with the URL.
            priority: an int or a float; within a host, lower numbers go first.

        Raises:
            TypeError, ValueError: for arguments of other types, a ``priority`` that is NaN, and an item or a priority
                that a journal cannot keep.
            InvalidURL: for a URL that cannot be requested.
            QueueClosed: if the queue is closed, before the call or during it.
            ClosedError: if the gatekeeper is closed.
            StoreError: if the journal cannot be read or written, or another queue uses it. The queue then hands out no
                more URLs. If the call is cancelled while it waits for the journal, the URL may be queued.
            WrongEventLoop: if the gatekeeper belongs to another event loop, or no event loop runs.
        """
        await self._dispatcher.put(url, item, priority)

    def put_nowait(self, url: StrOrURL, item: Item | None = None, priority: float = 0) -> None:
        """Queue ``url`` if there is room at its host, or the caller is a consumer (see ``maxsize``).

        The URL is written to the journal soon afterwards. With a journal, call this method within ``async with queue``,
        which reads the journal first.

        Raises:
            asyncio.QueueFull: if the host has no room, and the caller is not a consumer.
            ConfigurationError: if the journal was not read yet.
            TypeError, ValueError, InvalidURL, QueueClosed, ClosedError, StoreError, WrongEventLoop: see ``put``.
        """
        self._dispatcher.put_nowait(url, item, priority)

    async def put_sitemaps(
        self, url: StrOrURL, *, since: datetime | None = None, item: Item | None = None, priority: float = 0
    ) -> int:
        """Queue sitemap files; ``crawl`` reads each file, and queues its URLs.

        Any other consumer gets the URL of each file, and has to read the file itself.

        A file may be a sitemap or an index in XML, a list of URLs in text, RSS 2.0 or Atom, and may be compressed with
        gzip. A file may list URLs below its own folder. The sitemaps of an origin, and the files in their indexes, may
        also list all URLs of that origin. The crawl refuses other URLs, and logs how many (WARNING). It reads at most
        50,000 entries and 52,428,800 octets of a file (https://www.sitemaps.org/protocol.html).

        The files of a host come after its pages, and are not counted as pages. A URL of a file has the depth 0, unless
        a link has led to it before. ``maxsize`` does not limit the URLs of files. If a file cannot be read, or only in
        part, the crawl counts it as failed, logs it (WARNING), and passes PageFailed to ``on_error``. A missing
        ``/sitemap.xml`` is not a failure.

        Args:
            url: an origin, or the URL of a file. For an origin, the sitemaps that its robots.txt lists are queued, or
                its ``/sitemap.xml`` if robots.txt lists no sitemap.
            since: entries that were last changed before this time are skipped; the time needs a zone. An entry without
                a readable date is not skipped.
            item: an object that is handed out with each URL.
            priority: the priority of each URL; see ``put``.

        Returns:
            How many files were queued.

        Raises:
            ConfigurationError: ``since`` is not a datetime with a zone.
            TypeError, ValueError, InvalidURL, QueueClosed, ClosedError, StoreError, WrongEventLoop: see ``put``.
        """
        return await put_sitemaps(self._gate, self._dispatcher, url, since, item, priority)

    def turn(self) -> QueueTurn[Item]:
        """Wait until a host is ready, and hold a turn there during the block: ``async with queue.turn()``.

        The pause before the next request counts from the end of the block. The URL is then done, even after an error:
        to retry it, put it again. (If the block ends because its task ends, a journal keeps the URL for the next run.)
        The turn covers one hop. The clients of the integrations make the request in this turn; see ``AgentView.turn``.

        Raises:
            QueueClosed: if the queue is closed and empty.
            TurnHeld: if this task holds the turns of all hosts that have URLs, so that it would wait for itself.
            RuntimeError: if the returned object is entered again.
            ClosedError, StoreError, WrongEventLoop: see ``put``.
        """
        return QueueTurn(self._dispatcher)

    async def crawl(  # noqa: PLR0913 - the options of a crawl
        self,
        web: AiohttpStyle[Response] | HttpxStyle[Response],
        handle: Callable[[CrawlPage[Item], Response], Awaitable[object]],
        *,
        workers: int = 20,
        seen: Seen | None = None,
        max_pages: int | None = None,
        depth: int | None = None,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] = (),
        max_pages_per_host: int | None = None,
        max_time_s: float | None = None,
        out: str | os.PathLike[str] | Callable[[dict[str, Any]], object] | None = None,
        on_progress: Callable[[CrawlProgress], object] | None = None,
        on_error: Callable[[CrawlPage[Item], BaseException], object] | None = None,
        stop_on_error: bool = False,
        stop_on_signals: bool = False,
    ) -> CrawlReport:
        """Request every URL of the queue, hand each page to ``handle``, and follow the links that ``handle`` puts.

        Each URL is requested once, in a turn of its host, by GET with the timeouts of ``web``. The target of a redirect
        is queued with the same item, unless it was seen or is the 11th hop. After 429, 502, 503 or 504, the crawl
        requests the URL again later, within the queue's ``max_wait_s``; it requests a URL at most 5 times. Every other
        answer is a page.

        The crawl ends when every URL is done and every call of ``handle`` has returned, or when a limit is reached.
        URLs that are put after the end stay in the queue. If the crawl is cancelled, or ends with an error, URLs under
        way go back into the queue, and the log says how many remain. A later crawl with the same ``seen``, or with the
        journal, continues with these URLs.

        Args:
            web: a PoliteSession of the same gatekeeper, an ``aiohttp.ClientSession``, or an ``AsyncClient`` of httpx or
                httpx2. If it has no User-Agent of its own, it sends the gate's. The crawl does not close it.
            handle: an asynchronous function, called with a CrawlPage and the response of ``web``; the body of an httpx
                response has been read before, whatever its length. The turn ends when the response has been read, or
                ``handle`` returns. Errors of ``handle`` are logged with the URL, and passed to ``on_error``.
            workers: how many URLs are under way at once; positive.
            seen: a set, or another Seen, with the normal forms of URLs that the crawl and ``put`` ignore. The crawl
                adds its own URLs. The default is a set of digests; with a journal, this set has the URLs of earlier
                runs.
            max_pages: how many pages ``handle`` gets at most; None for any number.
            depth: how many links the crawl follows at most from a URL of the queue to a page; None for any number.
            allow: if given, the crawl follows links and redirects only to URLs that match one of these patterns. A
                pattern is a host (``"example.com"``), a domain with all its hosts (``".example.com"``), a path as in
                robots.txt (``"/docs/*.html$"``), or a host with a path (``"example.com/docs/"``).
            deny: the crawl follows no links or redirects to URLs that match one of these patterns.
            max_pages_per_host: how many pages of a host ``handle`` gets at most. Further URLs of the host count as
                ``skipped``.
            max_time_s: after this many seconds, no more requests begin. The pages under way are finished.
            out: a file, to which the crawl appends a record of each finished URL as a line of JSON; or a function that
                gets each record as a dict. A record has ``url``, ``outcome`` ("page", "redirect", "sitemap", "failed",
                "disallowed", "given-up" or "refused"), ``status``, ``hops``, ``attempt``, ``depth``, ``started`` (UTC),
                ``request_s`` (until the end of the turn), ``elapsed_s`` (until the end of ``handle``), and a
                ``location`` or an ``error``. The record of a page also has the members of a dict that ``handle``
                returns. The record of a URL that was not requested has ``reason``, ``rule``, ``robots_url`` and
                ``note``.
            on_progress: called whenever a URL is finished or refused; must not block.
            on_error: called with a page and its error: an error of ``handle`` or of the request, or PageFailed.
            stop_on_error: whether the first error of ``handle`` ends the crawl and is raised. The journal then keeps
                the page for the next run.
            stop_on_signals: whether the first SIGINT or SIGTERM ends the crawl as ``stop`` does. A second signal after
                more than 0.2 s goes to the handler that the program had before the crawl. By default, a second SIGINT
                ends the program as Ctrl-C does, and a second SIGTERM does nothing. After the crawl, the program has its
                handlers back.

        Raises:
            ConfigurationError: an argument is invalid, ``web`` belongs to another gatekeeper, or a crawl is running;
                or ``stop_on_signals=True`` outside of the main thread, or beside another such crawl of the process.
            ClosedError: the gatekeeper or ``web`` was closed.
            StoreError: the journal cannot be read or written, or another queue uses it.
            OSError: ``out`` cannot be opened or written.
            Exception: an error of ``seen``, ``out``, ``on_progress``, ``on_error`` or ``on_disallowed``; see also
                ``stop_on_error``.
        """
        dispatcher = self._dispatcher
        if self._crawl is not None:
            raise ConfigurationError(f"{self!r} is being crawled: wait for the end of that crawl, or use another queue")
        limits = Limits(depth, allow, deny, max_pages_per_host, max_time_s)
        check_types({"stop_on_signals": (stop_on_signals, bool)}, required=True)
        stopping = SignalStop(self._end_by_signal)
        with record_writer(out) as write, stopping.block() if stop_on_signals else nullcontext():
            client = client_of(web, self._gate)
            given = handle, workers, seen, max_pages, on_progress, on_error, stop_on_error
            crawl = self._crawl = Crawl(self._gate, dispatcher, client, limits, write, *given)
            dispatcher.admit, dispatcher.note_refusal = crawl.admit, crawl.note_refusal
            try:
                report = await crawl.run()
                await dispatcher.flush()
            except BaseException:
                with suppress(StoreError):  # the StoreError is logged; the error of the crawl is raised
                    await dispatcher.flush()
                raise
            finally:
                self._crawl = dispatcher.admit = dispatcher.note_refusal = None
            if stopping.received and not report.stopped_by:  # the signal came during the last step
                report = replace(report, stopped_by=signal.Signals(stopping.received).name)
        return report

    def _end_by_signal(self, number: int) -> None:
        if self._crawl is not None:
            name = signal.Signals(number).name
            self._crawl.stop(name)
            self.note(f"{name}: no more requests begin, and the pages under way are finished")

    async def join(self) -> None:
        """Wait until every URL that was put is done; for ClosedError, StoreError, WrongEventLoop see ``put``."""
        self._gate.state.check_loop()
        await self._dispatcher.join()

    def close(self) -> None:
        """Accept no more URLs. Queued URLs are still handed out, or given up; then ``turn`` raises QueueClosed."""
        self._dispatcher.close()

    def pause(self) -> None:
        """Hand out no more URLs until ``resume``. Requests that are under way go on, and URLs may be put.

        Meanwhile, the queue fetches no robots.txt, but it still refuses URLs that are known to be disallowed. The time
        of the pause counts for ``max_time_s`` of a crawl, but not for ``max_wait_s`` and ``max_unreachable_s``.
        """
        self._gate.state.check_loop()
        self._dispatcher.is_paused = True

    def resume(self) -> None:
        """End the pause."""
        self._gate.state.check_loop()
        self._dispatcher.resume()

    @property
    def is_paused(self) -> bool:
        """Whether the queue is paused."""
        return self._dispatcher.is_paused

    def stop(self) -> None:
        """Let the running crawl begin no more requests, finish the pages that are under way, and return its report.

        The other URLs stay in the queue, and a later crawl continues with them. Without a crawl, nothing happens.
        """
        self._gate.state.check_loop()
        if self._crawl is not None:
            self._crawl.stop("stop")

    @property
    def is_stopping(self) -> bool:
        """Whether a crawl is running that begins no more requests, because of ``stop``, ``max_time_s`` or a signal."""
        return self._crawl is not None and bool(self._crawl.stopped_by)

    def give_up(self, host: str, reason: str) -> int:
        """Refuse all URLs that wait at a host, in the journal as well.

        Workers pass these URLs to ``on_disallowed``, and a crawl counts them as ``given_up``. The reason of the verdict
        is GIVEN_UP; its note is ``reason``. Requests that are under way go on. URLs that are put later are requested;
        ``Gatekeeper.set_policy`` with ``HostPolicy(deny=True)`` refuses those, too.

        Args:
            host: the name or address of the host, without scheme and port.
            reason: a phrase.

        Returns:
            How many URLs wait at the host, and are refused.

        Raises:
            InvalidURL: ``host`` is not the name or address of a host.
            TypeError: an argument is not a str.
            ConfigurationError: the journal was not read yet; see ``put_nowait``.
        """
        self._gate.state.check_loop()
        check_types({"reason": (reason, str)}, required=True)
        if self._dispatcher.journal is not None:
            self._dispatcher.journal.check_open()
        return self._dispatcher.give_up(paced_host(host), shortened(reason))

    def note(self, text: str) -> None:
        """Log a text (WARNING), and add it to the ``notes`` of the running crawl with the time (UTC).

        Args:
            text: at most 500 characters of it are kept.
        """
        check_types({"text": (text, str)}, required=True)
        line = shortened(text, _MAX_NOTE)
        LOGGER.warning("%s", line)
        if self._crawl is not None:
            self._crawl.notes.append(f"{utc(self._gate.clock.wall())} {line}")

    def qsize(self, host: str | None = None) -> int:
        """Return how many URLs wait, at all hosts or at one of those that ``sizes`` names; turns do not count."""
        if host is None:
            return self._dispatcher.size
        queue = self._dispatcher.hosts.get(host)
        return 0 if queue is None else queue.size

    def sizes(self) -> dict[str, int]:
        """Return how many URLs wait at each host. The host is named without scheme and port."""
        return {key: host.size for key, host in self._dispatcher.hosts.items() if host.size}

    def left(self) -> list[tuple[str, Item | None, float]]:
        """Return each waiting URL with its item and priority, in the order of ``put``.

        URLs with a turn under way are left out. The queue may be closed.
        """
        return [(queued.url, queued.item, queued.priority) for queued in self._dispatcher.left()]

    def deferred(self) -> Mapping[Origin, float]:
        """Return the origins that wait for their robots.txt, with the Unix time at which it is fetched again."""
        return self._dispatcher.robots.deferred

    def statistics(self) -> QueueStatistics:
        """Return the current counts."""
        return statistics_of(self._dispatcher)

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report the mistake

        def __aiter__(self) -> NoReturn:
            raise TypeError(
                "a queue needs 'async with queue.turn() as turn' for each page, or 'await queue.crawl(...)'"
            )

    def __repr__(self) -> str:
        return described(self._dispatcher)
