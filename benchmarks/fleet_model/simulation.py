"""The crawl page by page: which host is next, and which keys live meanwhile. Deterministic, by its seed.

It is a sample: a share of the hosts at that share of the rate, which changes no host's own course. As in a real
frontier the rate falls at the end, when only hosts with many pages remain, each at its pace.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from benchmarks.fleet_model.crawl import Crawl

Order = Literal["hosts that are due first", "new hosts first"]

_STEP_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Course:
    """The results, at the full size of the crawl.

    Attributes:
        pages: all that were requested.
        full_rate_s: for how long the crawl kept its rate: until no page was due and no host was new.
        mean_keys: keys that lived at once, on average from the time on at which the first keys had expired until
            ``full_rate_s``.
        most_keys: the most at once.
    """

    pages: float
    full_rate_s: float
    mean_keys: float
    most_keys: float


class _Keys:
    """Counts keys that live, minute by minute."""

    def __init__(self) -> None:
        self._changes: dict[int, int] = {}

    def add(self, begun_s: float, ended_s: float) -> None:
        for moment_s, change in ((begun_s, 1), (ended_s, -1)):
            step = int(moment_s / _STEP_S) + 1  # alive at the next full minute
            self._changes[step] = self._changes.get(step, 0) + change

    def living(self) -> list[int]:
        """Return how many live at each full minute."""
        return list(accumulate(self._changes.get(step, 0) for step in range(max(self._changes) + 1)))


def simulate(crawl: Crawl, order: Order, *, sample: float, seed: int) -> Course:
    """Request all pages of the share ``sample`` of the hosts, at that share of the rate."""
    random, keys = Random(seed), _Keys()
    new = (crawl.draw_pages(random) for _ in range(round(crawl.hosts * sample)))
    following: int | None = next(new)
    due: list[tuple[float, int, float, float]] = []  # when, pages that are left, its key's birth, its key's end
    now_s, pages, full_rate_s = 0.0, 0, 0.0
    while due or following is not None:
        is_due = bool(due) and due[0][0] <= now_s
        if following is not None and (order == "new hosts first" or not is_due):
            left, begun_s, end_s = following, now_s, now_s
            following = next(new, None)
        else:
            if not is_due:
                full_rate_s = full_rate_s or now_s
                now_s = due[0][0]
            _, left, begun_s, end_s = heappop(due)
        if end_s < now_s:
            keys.add(begun_s, end_s)
            begun_s = now_s
        closes_s = crawl.closed_s if left == 1 and random.random() < crawl.closed else 0.0
        end_s = now_s + crawl.response_s + max(crawl.kept_s, closes_s)
        if left > 1:
            heappush(due, (now_s + crawl.spacing_s, left - 1, begun_s, end_s))
        else:
            keys.add(begun_s, end_s)
        pages += 1
        now_s += 1.0 / (crawl.pages_s * sample)
    living = keys.living()
    full_rate_s = full_rate_s or now_s
    steady = living[int(2.0 * crawl.kept_s / _STEP_S) : int(full_rate_s / _STEP_S)] or living
    return Course(pages / sample, full_rate_s, sum(steady) / len(steady) / sample, max(living) / sample)
