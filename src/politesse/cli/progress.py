"""A progress bar for ``PoliteQueue.crawl``, and its parts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from politesse._text import printable
from politesse.cli.console import errors
from politesse.queue import CrawlProgress

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import RenderableType

_LINE_EVERY_S: Final = 5.0
_FRAMES_PER_S: Final = 4
_CUT: Final = "..."


class CrawlBar:
    """Shows how far a crawl is: pass it as ``on_progress``. Needs the extra ``cli``.

    In a terminal it keeps four lines up to date: a bar of the URLs that are finished among those that are known, what
    has become of them, what is queued, and the URL that was finished last. Elsewhere it prints a line every five
    seconds. The last state stays when the block ends. ::

        with CrawlBar() as bar:
            await queue.crawl(web, handle, on_progress=bar)

    Args:
        console: of rich; standard error by default.

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

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()
        elif self._progress is not self._printed:
            self._print()

    def _print(self) -> None:
        self._printed, self._printed_mono = self._progress, time.monotonic()
        self._console.print(Text(words(self._progress)), soft_wrap=True)

    def _rendered(self) -> RenderableType:
        elapsed_s = time.monotonic() - self._started_mono
        width = self._console.width
        return Group(
            *head_lines(self._progress, elapsed_s, width), Text(cut_middle(self._progress.last_url, width), style="dim")
        )


def words(progress: CrawlProgress) -> str:
    """Return a progress as one line of text."""
    return f"{_finished(progress)}; {_open(progress)}"


def head_lines(progress: CrawlProgress, elapsed_s: float, width: int) -> list[RenderableType]:
    """Return three lines of at most ``width`` cells: a bar with the time, what is finished, and what is not."""
    done = progress.pages + progress.failed + progress.redirects + progress.disallowed + progress.given_up
    known = done + progress.queued + progress.under_way
    minutes, seconds = divmod(int(elapsed_s), 60)
    text = f" {done:,} of {known:,} URLs  {minutes}:{seconds:02}"
    bar = Table.grid(padding=0)
    room = width - cell_len(text)
    if room > 0:
        bar.add_row(ProgressBar(total=max(known, 1), completed=done, width=room), text)
    else:
        bar.add_row(Text(text.strip(), no_wrap=True, overflow="ellipsis"))
    counts = (Text(line, no_wrap=True, overflow="ellipsis") for line in (_finished(progress), _open(progress)))
    return [bar, *counts]


def _finished(progress: CrawlProgress) -> str:
    return (
        f"{progress.pages:,} pages, {progress.failed:,} failed, {progress.redirects:,} redirects, "
        f"{progress.disallowed:,} disallowed, {progress.given_up:,} given up"
    )


def _open(progress: CrawlProgress) -> str:
    rate = progress.pages / progress.elapsed_s if progress.elapsed_s > 0 else 0.0
    return (
        f"{progress.queued:,} queued at {progress.hosts:,} hosts, {progress.under_way:,} under way, {rate:.1f} pages/s"
    )


def cut_middle(text: str, width: int) -> str:
    """Return remote text escaped, and without its middle if it is wider than ``width`` cells.

    >>> cut_middle("https://example.com/a/long/path", 20)
    'https://e...ong/path'
    """
    shown = printable(text)
    if cell_len(shown) <= width:
        return shown
    if width <= len(_CUT):
        return _CUT[:width]
    room = width - len(_CUT)
    tail = shown[len(shown) - room // 2 :]
    while cell_len(tail) > room // 2:
        tail = tail[1:]
    return set_cell_size(shown, room - room // 2) + _CUT + tail
