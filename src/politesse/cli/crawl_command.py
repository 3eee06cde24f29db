"""``politesse crawl``: follows the links of pages, in the turns of their hosts."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
import warnings
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from politesse import Gatekeeper, PoliteQueue, PoliteSession, __version__
from politesse._gate.identity import Identity
from politesse._text import counted, printable
from politesse.cli.console import BROKEN_PIPE, plain
from politesse.cli.crawl_records import CURRENT_VISIT, STANDARD_OUTPUT, CrawlRecords, PageContent, Visit, opened
from politesse.cli.crawl_view import CrawlView
from politesse.cli.interrupts import Interrupts
from politesse.cli.progress import CrawlBar
from politesse.cli.streams import descriptor
from politesse.errors import ConfigurationError, PolitesseWarning, StoreError
from politesse.origin import Origin
from politesse.page import followable_links, may_be_html
from politesse.page.html import MAX_BYTES
from politesse.queue.links import normal_form

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from rich.console import Console
    from yarl import URL

    from politesse import AgentView
    from politesse.cli.gate_options import GateOptions
    from politesse.queue import CrawlPage, CrawlProgress

    Shown = Callable[[CrawlProgress], None]

CRAWLER: Final = f"politesse/{__version__} (crawl)"
DEFAULT_MAX_PAGES: Final = 1_000
_ERRORS: Final = 400  # and above: such a page says nothing about its site
_START: Final = ""  # the item of a URL to start from; a link has its host, which its redirects keep
_BATCH: Final = 100
_LAST_WRITE_S: Final = 1.0
_HOST_LOGS: Final = (logging.getLogger("politesse.cache"), logging.getLogger("politesse.pacing"))
"""The loggers of what closes a host, and until when."""


@dataclass(frozen=True, slots=True)
class CrawlPlan:
    """What to crawl.

    Attributes:
        urls: where it starts; each once.
        options: the product token, and the timeout of each request.
        user_agent: sent with each request.
        same_host: whether only links to the hosts of ``urls`` are followed, and to those that ``urls`` redirect to.
        max_pages: how many pages are requested at most; None for any number.
        workers: how many hosts are requested at once.
        out: where the records are written to, ``-`` for standard output; None for none.
        journal: the file that keeps the URLs for the next run; None for none.
        goes_on: whether the journal is that of an earlier run.
    """

    urls: tuple[str, ...]
    options: GateOptions
    user_agent: str
    same_host: bool
    max_pages: int | None
    workers: int
    out: Path | None
    journal: Path | None
    goes_on: bool

    @classmethod
    def of(  # noqa: PLR0913 - the options of the command
        cls,
        urls: Sequence[str],
        options: GateOptions,
        user_agent: str,
        *,
        same_host: bool,
        max_pages: int | None,
        workers: int,
        out: Path | None,
        journal: Path | None = None,
        resume: Path | None = None,
    ) -> CrawlPlan:
        """Return a checked plan, with a limit of pages where the crawl could roam the web.

        Raises:
            InvalidURL: one of the URLs cannot be crawled.
            ConfigurationError: the User-Agent cannot be sent; there is nothing to start from; or the journal is given
                twice, or is to be resumed and missing.
        """
        if journal is not None and resume is not None:
            raise ConfigurationError("--journal and --resume name the same file: give one of them")
        if resume is not None and not resume.exists():
            raise ConfigurationError(f"--resume {resume}: there is no such file; --journal begins one")
        if not urls and resume is None:
            raise ConfigurationError(
                "Missing argument URL: give one to start from, or --resume with the journal of an earlier crawl"
            )
        journal = journal or resume
        distinct = {normal_form(url): url for url in reversed(urls)}
        for url in urls:
            Origin.of(url)
        with warnings.catch_warnings(action="ignore", category=PolitesseWarning):  # as for the other commands
            Identity.of(user_agent)
        if max_pages is None and not same_host:
            max_pages = DEFAULT_MAX_PAGES
        return cls(
            tuple(reversed(distinct.values())),
            options,
            user_agent,
            same_host,
            max_pages,
            workers,
            out,
            journal,
            goes_on=journal is not None and journal.exists(),
        )

    def gate(self) -> Gatekeeper:
        """Return a gate that sends the User-Agent."""
        with warnings.catch_warnings(action="ignore", category=PolitesseWarning):
            options = self.options
            return Gatekeeper(self.user_agent, fetch=options.fetch_options(), store=options.store, fleet=options.fleet)


async def crawl_urls(plan: CrawlPlan, err: Console) -> int:
    """Crawl, print a summary to ``err``, and return the exit code; raises OSError if ``plan.out`` cannot be opened."""
    with opened(plan.out, append=plan.goes_on) as file, Interrupts() as interrupts:
        records = CrawlRecords(file, plan.urls)
        run = CrawlRun(plan, err, records)
        try:
            await run.crawl()
            await run.record_left()
            code = 1 if records.counts["failed"] or records.counts["given-up"] or records.refused else 0
        except asyncio.CancelledError:
            task, by_signal = asyncio.current_task(), interrupts.exit_code
            if by_signal is None or task is None:
                raise
            task.uncancel()
            code, run.ending = by_signal, "interrupted"
            with suppress(OSError):  # also TimeoutError: nobody reads the output
                async with asyncio.timeout(_LAST_WRITE_S):
                    await run.record_left()
        except BrokenPipeError:
            code, run.ending = BROKEN_PIPE, "stopped, because the output was closed"
        except (OSError, StoreError, ConfigurationError) as error:
            code, run.ending = 2, f"stopped by an error: {printable(str(error))}"
        err.print(plain(run.summary()), soft_wrap=True)
        return code


class CrawlRun:
    """One crawl at the command line.

    Args:
        plan: what to crawl.
        err: shows the progress.
        records: gets a record of each URL.

    Attributes:
        ending: why the crawl has ended, if not because all is done.
    """

    def __init__(self, plan: CrawlPlan, err: Console, records: CrawlRecords) -> None:
        self._plan = plan
        self._err = err
        self._records = records
        self._hosts = {Origin.of(url).host for url in plan.urls}
        self._left = list(plan.urls)  # what was recorded is removed
        self._left_hosts = len({Origin.of(url).pacing_host for url in plan.urls})
        self._started_mono = time.monotonic()
        self.ending = ""

    async def crawl(self) -> None:
        """Crawl to the end; raises the OSError of a record that cannot be written."""
        records, plan = self._records, self._plan
        async with plan.gate() as gate:
            queue: PoliteQueue[str] = PoliteQueue(gate, on_disallowed=records.add_refusal, journal=plan.journal)
            # One connection for each worker, and no cookies: each page is requested as by a new visitor.
            session = PoliteSession(
                gate,
                timeout=aiohttp.ClientTimeout(total=plan.options.timeout_s),
                connector=aiohttp.TCPConnector(limit=plan.workers),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            async with session as web, queue:
                try:
                    for url in plan.urls:
                        await queue.put(url, item=_START)
                    self._add_hosts(queue)
                    async with self._shown(gate, queue) as show:

                        def note(progress: CrawlProgress) -> None:
                            records.note_progress(progress)
                            show(progress)

                        await queue.crawl(
                            _TimedSession(web),
                            self._handle,
                            workers=plan.workers,
                            max_pages=plan.max_pages,
                            on_progress=note,
                            on_error=records.add_failure,
                        )
                finally:
                    self._left = [url for url, *_ in queue.left()]
                    self._left_hosts = len(queue.sizes())
        if self._left:
            self.ending = f"stopped at --max-pages {plan.max_pages}"

    def _add_hosts(self, queue: PoliteQueue[str]) -> None:
        """Add the hosts that an earlier run has followed links to, or start URLs were redirected to."""
        for url, item, _ in queue.left():
            host = Origin.of(url).host
            if item in {_START, host}:
                self._hosts.add(host)

    async def record_left(self) -> None:
        """Record the URLs that are left, unless that was done, or a journal keeps them; raises OSError."""
        while self._left and self._plan.journal is None:
            self._records.add_left(self._left.pop())
        await self._records.flush()

    def summary(self) -> str:
        """Return what has become of the URLs: one line, and one more if some are left or it ended early."""
        counts = self._records.counts
        left = counts["left"] + len(self._left)
        elapsed_s = time.monotonic() - self._started_mono
        refused = f"{counts['disallowed']:,} disallowed, {counts['given-up']:,} given up"
        others = f"{counts['failed']:,} failed, {counts['redirect']:,} redirects, {refused}"
        lines = [f"{counts['page']:,} pages, {others} in {elapsed_s:.1f} s"]
        if left:
            lines.append(f"{counted(left, 'URL')} left at {counted(self._left_hosts, 'host')}; {self.ending}")
            if self._plan.journal is not None:
                same_host = " --same-host" if self._plan.same_host else ""
                lines.append(f"go on with: politesse crawl{same_host} --resume {self._plan.journal}")
        elif self.ending:
            lines.append(self.ending)
        return "\n".join(lines)

    def _shown(self, gate: Gatekeeper, queue: PoliteQueue[str]) -> AbstractAsyncContextManager[Shown]:
        """Return what shows the progress: a table in a terminal, lines elsewhere.

        With records on standard output, a table would disturb those who see both: one bar, or nothing, is shown.
        """
        to_output = self._plan.out is not None and str(self._plan.out) == STANDARD_OUTPUT
        if to_output and os.isatty(descriptor(sys.stdout)):
            return nullcontext(_show_nothing)
        if to_output or not self._err.is_terminal:
            return _bar(self._err)
        return CrawlView(self._err, gate, queue, self._records).shown()

    async def _handle(self, page: CrawlPage[str], response: aiohttp.ClientResponse) -> None:
        """Queue the links of a page, and record it as the last step: if that is not reached, the page is left."""
        await self._records.make_room()
        body = await _read_html(response)
        if page.item == _START:
            self._hosts.add(Origin.of(page.url).host)  # a start URL was redirected here
        links = await self._links(page.url, response, body) if body and response.status < _ERRORS else []
        queued = 0
        for number, link in enumerate(links):
            if not number % _BATCH:
                await asyncio.sleep(0)  # thousands of links must not delay the other pages
            host = Origin.of(link).host
            queued += (not self._plan.same_host or host in self._hosts) and page.put(link, item=host)
        content = PageContent(
            response.status,
            response.headers.get("Content-Type", ""),
            None if body is None else min(len(body), MAX_BYTES),
            truncated=body is not None and len(body) > MAX_BYTES,
            links=len(links),
            queued=queued,
        )
        self._records.add_page(page, content)

    async def _links(self, url: str, response: aiohttp.ClientResponse, body: bytes) -> list[str]:
        """Return the links of a page; in a thread, because a hostile page takes a second."""
        headers, token = list(response.headers.items()), self._plan.options.token
        return await asyncio.to_thread(followable_links, body[:MAX_BYTES], url, headers=headers, token=token)


class _TimedSession:
    """The session of a crawl: notes when each request began, and what its answer was."""

    def __init__(self, web: PoliteSession) -> None:
        self._web = web

    @property
    def closed(self) -> bool:
        return self._web.closed

    @property
    def gate(self) -> AgentView:
        return self._web.gate

    @asynccontextmanager
    async def get(self, url: URL, **options: Any) -> AsyncGenerator[aiohttp.ClientResponse, None]:  # noqa: ANN401
        visit = Visit()
        CURRENT_VISIT.set(visit)
        async with self._web.get(url, **options) as response:
            visit.status, visit.location = response.status, response.headers.get("Location")
            yield response


async def _read_html(response: aiohttp.ClientResponse) -> bytes | None:
    """Return the body, at most one octet more than is read for links; None if it is no HTML."""
    types = ", ".join(response.headers.getall("Content-Type", ()))
    if not may_be_html(types):
        return None
    body = bytearray()
    while len(body) <= MAX_BYTES and (octets := await response.content.readany()):
        body += octets
    return bytes(body)


class _Notes(logging.Handler):
    """Prints the first line of each log record; the values in it are escaped already."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(plain(record.getMessage().partition("\n")[0]), soft_wrap=True)


@asynccontextmanager
async def _bar(console: Console) -> AsyncGenerator[Shown, None]:
    """Show one bar, or a line now and then, and each host that closes and opens."""
    notes = _Notes(console)
    levels = {logger: logger.level for logger in _HOST_LOGS}
    for logger in _HOST_LOGS:
        logger.setLevel(logging.INFO)
        logger.addHandler(notes)
    try:
        with CrawlBar(console) as bar:
            yield bar
    finally:
        for logger, level in levels.items():
            logger.removeHandler(notes)
            logger.setLevel(level)


def _show_nothing(_: CrawlProgress) -> None:
    pass
