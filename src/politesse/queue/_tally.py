"""The counts of a crawl: for its report, and for ``on_progress``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from politesse.queue._crawl_results import CrawlProgress, CrawlReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.clock import Clock
    from politesse.queue._dispatch import Dispatcher
    from politesse.queue._web import CrawlOptions


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

    def settle(self, count: str, url: str) -> None:
        """Count a URL, and report progress."""
        self.counts[count] += 1
        self.show_progress(url)

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
            last_url=url,
            elapsed_s=self._elapsed_s,
            **self._counted(),
        )
        try:
            self._options.on_progress(progress)
        except Exception as error:  # noqa: BLE001 - ends the crawl
            self._end(error)

    def report(self) -> CrawlReport:
        """Return the result of the crawl."""
        left, elapsed_s = self._dispatcher.size, self._elapsed_s
        return CrawlReport(left=left, elapsed_s=elapsed_s, first_error=self.first_error, **self._counted())

    @property
    def _elapsed_s(self) -> float:
        return self._clock.monotonic() - self._started_mono

    def _counted(self) -> dict[str, int]:
        """Return the counts that CrawlProgress and CrawlReport share."""
        given_up = self._dispatcher.given_up - self._given_up_before
        disallowed = self._dispatcher.refused - self._refused_before - given_up
        return {**self.counts, "disallowed": disallowed, "given_up": given_up}
