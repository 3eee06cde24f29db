"""``politesse crawl`` in a terminal: a table of the hosts that changes while the crawl runs."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from politesse.cli.progress import cut_middle, head_lines
from politesse.queue import CrawlProgress
from politesse.verdict import AccessResult, utc

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from rich.console import Console

    from politesse import Gatekeeper, PoliteQueue
    from politesse.cli.crawl_records import CrawlRecords
    from politesse.status import HostStatus

_FRAME_S: Final = 0.25
_HOSTS_EVERY_S: Final = 0.5
_MAX_SHARE: Final = 0.05  # of the time, for looking through the hosts
_OTHER_LINES: Final = 8  # head, column titles, blank lines, hosts that are not shown, and the one of the cursor
_GAP: Final = 2
_QUEUED: Final = 7
_PACE: Final = 8
_WORD: Final = 8
_TROUBLE: Final = frozenset({AccessResult.UNREACHABLE, AccessResult.TOO_MANY_REQUESTS})
_SLOW_S: Final = 5.0


class CrawlView:
    """The live table of a crawl; it fits into the terminal, and no line is wider.

    A host keeps its row as long as it has URLs, so that the rows stay where they are.

    Args:
        console: a terminal.
        gate: knows the paces.
        queue: knows what waits.
        records: knows what was finished last.
    """

    def __init__(self, console: Console, gate: Gatekeeper, queue: PoliteQueue[str], records: CrawlRecords) -> None:
        self._console = console
        self._gate = gate
        self._queue = queue
        self._records = records
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
        """Show the table while the block runs."""
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
            await asyncio.sleep(_FRAME_S)

    def frame(self) -> Group:
        """Return the table as it is now."""
        width, height = self._console.size
        room = max(height - _OTHER_LINES, 0)
        recent = min(room // 3, 10)
        self._look(room - recent)
        head = head_lines(self._progress, time.monotonic() - self._started_mono, width)
        hidden = len(self._waiting.keys() - set(self._rows))
        more = Text(f"and {hidden:,} more hosts" if hidden > 0 else "", style="dim")
        return Group(*head, Text(), self._host_table(width), more, Text(), *self._last(recent, width))

    def _look(self, rows: int) -> None:
        """Update what is known of the hosts, if it is not too soon, and choose those of the rows."""
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
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold", width=width)
        table.add_column("host", width=name, no_wrap=True, overflow="crop")
        table.add_column("queued", width=_QUEUED, justify="right", no_wrap=True, overflow="crop")
        table.add_column("pace", width=_PACE, justify="right", no_wrap=True, overflow="crop")
        table.add_column("state", width=state, no_wrap=True, overflow="ellipsis")
        for host in self._rows:
            status = self._hosts.get(host)
            trouble, doing = ("", "") if status is None else (_trouble(status), _doing(status))
            table.add_row(
                Text(cut_middle(host, name)),
                f"{self._waiting.get(host, 0):,}",
                "" if status is None else f"{round(status.interval_s, 2):,g} s",
                Text(trouble or doing, style="yellow" if trouble else ""),
            )
        return table

    def _last(self, lines: int, width: int) -> Sequence[Text]:
        last = list(self._records.recent)[:lines]
        room = width - _WORD - _GAP - _GAP  # the terminal writes ^C after the last line
        return [Text(f"{word:>{_WORD}}  {cut_middle(url, room)}", no_wrap=True) for word, url in last]


def _trouble(status: HostStatus) -> str:
    """Return what closes a host, or one of its ports, and until when; empty if it is open."""
    for robots in status.robots:
        if robots.result in _TROUBLE and robots.next_fetch is not None and not robots.fetching:
            answer = "no answer" if robots.status is None else robots.status
            port = "" if all(one.result in _TROUBLE for one in status.robots) else f":{robots.origin.port} "
            return f"{port}robots.txt {answer}, until {_time(robots.next_fetch)}"
    if status.closed_until is not None:
        return f"closed until {_time(status.closed_until)}, {status.closed_by}"
    return ""


def _doing(status: HostStatus) -> str:
    if any(robots.fetching for robots in status.robots):
        return "robots.txt is being fetched"
    if status.in_flight:
        return f"no answer for {status.held_s:.0f} s" if status.held_s > _SLOW_S else "a request is under way"
    return f"waits for its pace, {status.bound_by}"


def _time(wall: float) -> str:
    """Return a Unix time as the time of day in UTC; with the date if it is not soon."""
    text = utc(wall)
    return text if wall - time.time() > 12 * 3_600 else text.partition("T")[2]
