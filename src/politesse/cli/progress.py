"""The progress of a crawl: a bar for ``PoliteQueue.crawl``, and the table of hosts of ``politesse crawl``."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Final, Self

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from politesse._base.text import counted, printable
from politesse.cli.console import errors, say
from politesse.queue import CrawlProgress
from politesse.queue._results import finished_words
from politesse.verdict import CLOSED, Bound, utc

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence

    from politesse._gate.gatekeeper import Gatekeeper
    from politesse.queue import PoliteQueue
    from politesse.status import HostStatus

_LINE_EVERY_S: Final = 5.0
_FRAMES_PER_S: Final = 4
_HOSTS_EVERY_S: Final = 0.5
_MAX_SHARE: Final = 0.05  # reading the hosts takes at most this share of the time
_OTHER_LINES: Final = 8  # lines for head, column titles, blank lines, count of hidden hosts and cursor
_GAP: Final = 2
_QUEUED: Final = 7
_PACE: Final = 8
_WORD: Final = 10
_SLOW_S: Final = 5.0
LONG_S: Final = 60.0  # if the URLs of a host need this time or more, the output shows the time


class CrawlBar:
    """Shows the progress of a crawl: pass a CrawlBar as ``on_progress``. Needs the extra ``cli``.

    In a terminal a CrawlBar updates four lines: a bar of the finished URLs among all URLs, the count of each outcome,
    the queue, and the last URL. If the output is not a terminal, a CrawlBar prints a line every five seconds. The last
    state stays when the block ends. ::

        with CrawlBar() as bar:
            await queue.crawl(web, handle, on_progress=bar)

    Args:
        console: a console of rich; standard error by default.

    Example:
        >>> from rich.console import Console
        >>> from politesse.queue import CrawlProgress
        >>> with CrawlBar(Console(width=100, force_terminal=False)) as bar:
        ...     bar(CrawlProgress(pages=30, redirects=2, queued=7, hosts=3, elapsed_s=10.0))
        30 pages, 0 failed, 2 redirects, 0 disallowed, 0 given up; 7 queued at 3 hosts, 0 under way, 3.0 pages/s
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = errors() if console is None else console
        self._progress = CrawlProgress()
        self._printed = self._progress
        self._started_mono = self._printed_mono = time.monotonic()
        self._live = Live(
            get_renderable=self._rendered, console=self._console, refresh_per_second=_FRAMES_PER_S, transient=False
        )

    def __call__(self, progress: CrawlProgress) -> None:
        """Show this progress."""
        self._progress = progress
        if not self._console.is_terminal and time.monotonic() - self._printed_mono >= _LINE_EVERY_S:
            self._print()

    def __enter__(self) -> Self:
        self._started_mono = self._printed_mono = time.monotonic()
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()
        elif self._progress is not self._printed:
            self._print()

    def _print(self) -> None:
        self._printed, self._printed_mono = self._progress, time.monotonic()
        self._console.print(Text(f"{finished_words(self._progress)}; {_open(self._progress)}"), soft_wrap=True)

    def _rendered(self) -> RenderableType:
        elapsed_s = time.monotonic() - self._started_mono
        return Group(
            *head_lines(self._progress, elapsed_s, self._console.width), shown_line(self._progress.last_url, "dim")
        )


def head_lines(progress: CrawlProgress, elapsed_s: float, width: int) -> list[RenderableType]:
    """Return three lines of at most ``width`` cells: a bar with the time, the finished URLs, and the waiting URLs."""
    others = progress.failed + progress.redirects + progress.disallowed + progress.given_up + progress.sitemaps
    done = progress.pages + others
    known = done + progress.queued + progress.under_way
    if progress.max_pages is not None:
        known = min(known, max(progress.max_pages, progress.pages) + others)
    minutes, seconds = divmod(int(elapsed_s), 60)
    text = f" {done:,} of {counted(known, 'URL')}  {minutes}:{seconds:02}"
    bar = Table.grid(padding=0)
    room = width - cell_len(text)
    if room > 0:
        bar.add_row(ProgressBar(total=max(known, 1), completed=done, width=room), text)
    else:
        bar.add_row(Text(text.strip(), no_wrap=True, overflow="ellipsis"))
    counts = (Text(line, no_wrap=True, overflow="ellipsis") for line in (finished_words(progress), _open(progress)))
    return [bar, *counts]


def _open(progress: CrawlProgress) -> str:
    rate = progress.pages / progress.elapsed_s if progress.elapsed_s > 0 else 0.0
    hosts = counted(progress.hosts, "host")
    return f"{progress.queued:,} queued at {hosts}, {progress.under_way:,} under way, {rate:.1f} pages/s"


def host_table(width: int) -> Table:
    """Return a table without columns."""
    return Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold", width=width)


def shown_line(text: str, style: str = "") -> Text:
    """Return remote text, escaped, in one line that ends with an ellipsis if it is too long."""
    return Text(printable(text), style, no_wrap=True, overflow="ellipsis")


class CrawlView:
    """The live table of a crawl, which fits into the terminal.

    A host keeps its row as long as it has URLs.

    Args:
        console: a terminal.
        gate: reports the state of each host.
        queue: counts the URLs of each host.
        recent: the last outcomes, the newest first, each as a word and a URL.
    """

    def __init__(
        self, console: Console, gate: Gatekeeper, queue: PoliteQueue[str], recent: Iterable[tuple[str, str]]
    ) -> None:
        self._console = console
        self._gate = gate
        self._queue = queue
        self._recent = recent
        now = queue.statistics()
        self._progress = CrawlProgress(queued=now.queued, hosts=now.hosts)
        self._started_mono = time.monotonic()
        self._looked_mono = -_HOSTS_EVERY_S
        self._pause_s = 0.0
        self._waiting: dict[str, int] = {}
        self._hosts: Mapping[str, HostStatus] = {}
        self._rows: list[str] = []

    def __call__(self, progress: CrawlProgress) -> None:
        """Show this progress with the next frame."""
        self._progress = progress

    @asynccontextmanager
    async def shown(self) -> AsyncGenerator[CrawlView, None]:
        """Show the table during the block."""
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            frames = asyncio.create_task(self._draw(live))
            try:
                yield self
            finally:
                frames.cancel()
                with suppress(asyncio.CancelledError):
                    await frames

    async def _draw(self, live: Live) -> None:
        while True:
            live.update(self.frame(), refresh=True)
            await asyncio.sleep(1 / _FRAMES_PER_S)

    def frame(self) -> Group:
        """Return the present table."""
        width, height = self._console.size
        room = max(height - _OTHER_LINES, 0)
        recent = min(room // 3, 10)
        self._look(room - recent)
        head = head_lines(self._progress, time.monotonic() - self._started_mono, width)
        hidden = len(self._waiting.keys() - set(self._rows))
        more = Text(f"and {hidden:,} more hosts" if hidden > 0 else "", style="dim")
        return Group(*head, Text(), self._host_table(width), more, Text(), *self._last(recent, width))

    def _look(self, rows: int) -> None:
        """Choose the hosts of the rows; first read the state of all hosts, unless it was read a short time ago."""
        now_mono = time.monotonic()
        if now_mono - self._looked_mono >= self._pause_s:
            self._waiting = self._queue.sizes()
            self._hosts = self._gate.hosts()
            self._looked_mono = time.monotonic()
            self._pause_s = max(_HOSTS_EVERY_S, (self._looked_mono - now_mono) / _MAX_SHARE)
        active = [host for host in self._rows if self._waiting.get(host) or self._is_busy(host)]
        others = sorted((host for host in self._waiting if host not in active), key=self._relevance)
        self._rows = [*active, *others][:rows]

    def _relevance(self, host: str) -> tuple[bool, int, str]:
        status = self._hosts.get(host)
        is_closed = status is not None and bool(_trouble(status))
        return not is_closed, -self._waiting.get(host, 0), host

    def _is_busy(self, host: str) -> bool:
        status = self._hosts.get(host)
        return status is not None and (status.in_flight > 0 or any(robots.fetching for robots in status.robots))

    def _host_table(self, width: int) -> Table:
        name = max(min(width * 11 // 40, 40), 1)
        state = max(width - name - _QUEUED - _PACE - 3 * _GAP, 1)
        table = host_table(width)
        table.add_column("host", width=name, no_wrap=True, overflow="ellipsis")
        table.add_column("queued", width=_QUEUED, justify="right", no_wrap=True, overflow="crop")
        table.add_column("pace", width=_PACE, justify="right", no_wrap=True, overflow="crop")
        table.add_column("state", width=state, no_wrap=True, overflow="ellipsis")
        for host in self._rows:
            status = self._hosts.get(host)
            waiting = self._waiting.get(host, 0)
            trouble, doing = ("", "") if status is None else (_trouble(status), _doing(status, waiting))
            table.add_row(
                shown_line(host),
                f"{waiting:,}",
                "" if status is None else f"{round(status.interval_s, 2):,g} s",
                Text(trouble or doing, style="yellow" if trouble else ""),
            )
        return table

    def _last(self, lines: int, width: int) -> Sequence[Text]:
        last = [shown_line(f"{word:>{_WORD}}  {url}") for word, url in islice(self._recent, lines)]
        for line in last:
            line.truncate(width - _GAP, overflow="ellipsis")  # leaves room for the ^C of the terminal
        return last


def rough(seconds: float) -> str:
    """Return a duration in one unit, as in ``45 s``, ``12 min``, ``3.5 h`` and ``20 days``."""
    for limit_s, unit_s, unit in ((90, 1, "s"), (5_400, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit_s:
            return f"{seconds / unit_s:.{2 if seconds < 10 * unit_s else 3}g} {unit}"
    return f"{seconds / 86_400:,.0f} days"


def _trouble(status: HostStatus) -> str:
    """Return why and until when a host or one of its origins is closed; empty if all are open."""
    for robots in status.robots:
        if robots.result in CLOSED and robots.next_fetch is not None and not robots.fetching:
            answer = "no answer" if robots.status is None else robots.status
            port = "" if all(one.result in CLOSED for one in status.robots) else f":{robots.origin.port} "
            return f"{port}robots.txt {answer}, until {_time(robots.next_fetch)}"
    if status.closed_until is not None:
        why = status.refusal if status.closed_by is Bound.REFUSED else status.closed_by
        return f"closed until {_time(status.closed_until)}, {why}"
    return ""


def _doing(status: HostStatus, waiting: int) -> str:
    if any(robots.fetching for robots in status.robots):
        return "robots.txt is being fetched"
    if status.in_flight:
        return f"no answer for {status.held_s:.0f} s" if status.held_s > _SLOW_S else "a request is under way"
    needs_s = waiting * status.interval_s
    return f"waits for its pace, {status.bound_by}" + (f"; needs {rough(needs_s)}" if needs_s >= LONG_S else "")


def _time(wall: float) -> str:
    """Return a Unix time as the time of day in UTC; with the date if the time is more than 12 hours away."""
    text = utc(wall)
    return text if wall - time.time() > 12 * 3_600 else text.partition("T")[2]


class _Notes(logging.Handler):
    """Prints the first line of each log record, whose values are already escaped."""

    def __init__(self, console: Console, level: int) -> None:
        super().__init__(level)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        say(self._console, record.getMessage().partition("\n")[0])


@asynccontextmanager
async def bar_with_notes(console: Console) -> AsyncGenerator[CrawlBar, None]:
    """Show a bar, or a line every few seconds, and each host that closes or opens."""
    with notes_of("politesse.cache", "politesse.pacing", console=console, level=logging.INFO), CrawlBar(console) as bar:
        yield bar


@contextmanager
def notes_of(*names: str, console: Console, level: int) -> Generator[None, None, None]:
    """Print the log records of these loggers, from this level on, during the block."""
    notes = _Notes(console, level)
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(level)
        logger.addHandler(notes)
    try:
        yield
    finally:
        for logger, earlier in levels.items():
            logger.removeHandler(notes)
            logger.setLevel(earlier)
