"""What is wrong about the requests of one log: found in what the server saw, by the server's own clock.

How the gaps are measured. A crawler counts its pause from the moment at which it has seen the end of an answer, and a
request reaches the server after the crawler has decided to make it. The server stamps the end of a request before the
last octet of the answer is written, so before any client can have seen it, and the start when the request has come.
Both stamps make the gap longer than the pause that was kept, never shorter: so a gap that is too short is the crawler's
doing, and nothing has to be allowed for but the ticks of the clock. What writing an answer takes, well below a
millisecond, could go unseen.

A request for robots.txt waits for no pause, so the gap before it tells nothing. The pause after it is the whole one:
what robots.txt asks for counts from the moment at which it was got. A file that is the robots.txt of another origin, by
a redirect, is a request on that origin's behalf; it neither waits nor is waited for here.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from politesse.cli.demo.server import ROBOTS_TXT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from politesse.cli.demo.server import Hit

# A reading is behind by less than a tick, so a pause is wrong by less than that, once where the crawler keeps it and
# once where the server measures it.
TICKS_S: Final = 2 * time.get_clock_info("monotonic").resolution
# A Retry-After is waited for by the wall clock, which may be slewed meanwhile; the servers have a monotonic one.
WALL_SLACK_S: Final = 0.05
OK: Final = 200
_CLOSING: Final = frozenset({None, 429, 503})
_NEVER: Final = float("inf")
_LONG_AGO: Final = float("-inf")


class Kind(StrEnum):
    """What can be wrong about a request."""

    FORBIDDEN = "forbidden page requested"
    BEFORE_ROBOTS = "page requested before robots.txt was asked for"
    WHILE_CLOSED = "page requested before robots.txt was got"
    RETRIED_EARLY = "robots.txt asked for before a Retry-After was over"
    RETRY_AFTER = "page requested before a Retry-After was over"
    OVERLAP = "page requested while another one was under way"
    GAP = "page requested too soon after the request before"
    UNKNOWN = "requested, though nothing links to it"


@dataclass(frozen=True, slots=True)
class Violation:
    """A request that should not have been made.

    Attributes:
        kind: what is wrong about it.
        url: what was requested.
        detail: the rule that forbids it, or the gap and the pace; empty where there is no more to say.
    """

    kind: Kind
    url: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.url}{self.detail and f' ({self.detail})'}"


def gaps_s(log: Sequence[Hit]) -> dict[Hit, float]:
    """Return the gap before each page request, in seconds.

    It counts from the end of the request before; it is negative where that was still under way, infinitely so where it
    is under way now, and infinite for the first one.

    Args:
        log: of one server, by start.
    """
    found: dict[Hit, float] = {}
    page_ended_mono = _LONG_AGO
    robots_ended_mono: list[float] = []
    for hit in log:
        if hit.target == ROBOTS_TXT and hit.ended_mono is not None:
            robots_ended_mono.append(hit.ended_mono)
        elif hit.page is not None:
            # A robots.txt that was under way at the time may be fetched beside the pages.
            over_mono = [ended_mono for ended_mono in robots_ended_mono if ended_mono <= hit.started_mono]
            found[hit] = hit.started_mono - max(page_ended_mono, *over_mono, _LONG_AGO)
            if hit.status is not None:  # of a request that gets no answer the server cannot tell when it was given up
                page_ended_mono = max(page_ended_mono, _NEVER if hit.ended_mono is None else hit.ended_mono)
    return found


def violations(log: Sequence[Hit], address: str, pace_s: float) -> Iterator[Violation]:
    """Yield what is wrong about the requests of one log, in their order; a request may be wrong in several ways.

    Args:
        log: by start.
        address: scheme, host and port of the server.
        pace_s: the pause that has to be kept, in seconds.
    """
    gap_s, told_to_wait = gaps_s(log), _told_to_wait(log)
    asked = False
    open_mono = _NEVER
    for hit in log:
        url = address + hit.target
        if hit.target == ROBOTS_TXT:
            asked = True
            if hit.status not in _CLOSING and hit.ended_mono is not None:
                open_mono = min(open_mono, hit.ended_mono)
            if hit in told_to_wait:
                yield Violation(Kind.RETRIED_EARLY, url)
        elif hit.page is not None:
            if hit.started_mono < open_mono:
                yield Violation(Kind.WHILE_CLOSED if asked else Kind.BEFORE_ROBOTS, url)
            if hit in told_to_wait:
                yield Violation(Kind.RETRY_AFTER, url)
            if hit.page.forbidden:
                yield Violation(Kind.FORBIDDEN, url, hit.page.rule)
            yield from _hurry(url, gap_s[hit], pace_s)
        elif hit.status != OK:
            yield Violation(Kind.UNKNOWN, url)


def _told_to_wait(log: Sequence[Hit]) -> set[Hit]:
    """Return the requests that came before the Retry-After of an earlier answer was over."""
    found = set()
    not_before_mono = _LONG_AGO
    for hit in log:
        if hit.started_mono < not_before_mono - WALL_SLACK_S:
            found.add(hit)
        if hit.retry_after_s is not None and hit.ended_mono is not None:
            not_before_mono = max(not_before_mono, hit.ended_mono + hit.retry_after_s)
    return found


def _hurry(url: str, gap_s: float, pace_s: float) -> Iterator[Violation]:
    if gap_s < 0:
        yield Violation(Kind.OVERLAP, url)
    elif gap_s < pace_s - TICKS_S:
        yield Violation(Kind.GAP, url, f"{1000 * gap_s:.1f} ms of {1000 * pace_s:g}")
