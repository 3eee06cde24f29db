"""The counts of a crawl, for its report and for ``on_progress``, and a record of each finished URL."""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from politesse._base.checks import wrong_type
from politesse._base.text import public_url
from politesse.queue._crawl_results import CrawlProgress, CrawlReport
from politesse.queue._results import is_given_up
from politesse.verdict import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from politesse._gate.turn import Turn
    from politesse.clock import Clock
    from politesse.queue._crawl_results import CrawlPage
    from politesse.queue._dispatch import Dispatcher
    from politesse.queue._hosts import QueuedUrl
    from politesse.queue._web import Answer, CrawlOptions
    from politesse.verdict import Verdict

    Write = Callable[[dict[str, Any]], object]

Item = TypeVar("Item")

_OUTCOMES: Final = {"pages": "page", "redirects": "redirect", "sitemaps": "sitemap", "failed": "failed"}


@dataclass(slots=True, eq=False)
class Visit(Generic[Item]):
    """The visit of a URL in a turn.

    Attributes:
        queued: the URL.
        page: the same URL, as the program sees it.
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
            if not self._record(record | more_of_handle | record):  # the members of ``record`` come first, and win
                return False
        self.settle(count, visit.queued.url)
        return True

    def note_refusal(self, verdict: Verdict) -> None:
        """Record a URL that was refused, and report progress; the queue has counted it."""
        rule, source = verdict.rule, verdict.source
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
