"""The rules of an audit: a site's expectations at each time, and the best practices that a log can show.

The expectations come from the copies of a site's robots.txt, as ``politesse.robots`` reads them. The practices come
from draft-illyes-webbotauth-cbcp.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from politesse.errors import InvalidURL
from politesse.ledger import LedgerReader
from politesse.origin import Origin
from politesse.robots import RobotsTxt
from politesse.robots.crawl_directives import next_open
from politesse.verdict import CLOSED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from politesse.audit._audit import AuditOptions
    from politesse.audit._requests import Request
    from politesse.robots import RuleSet
    from politesse.robots.crawl_directives import Timetable

    File = tuple[float, RobotsTxt | None]

ALWAYS: Final = float("-inf")
_UNREACHABLE: Final = RobotsTxt.parse(b"User-agent: *\nDisallow: /").rules_for("*")
_ERRORS_IN_A_ROW: Final = 3
_MAX_SHARE: Final = 0.1
_ENOUGH: Final = 20  # at hosts with fewer requests, shares of the requests are not judged
_MAX_PAGES: Final = 10_000  # how many pages of a host are remembered, to notice repetitions
_READS: Final = frozenset({"GET", "HEAD"})


def files_of(options: AuditOptions) -> dict[Origin, list[File]]:
    """Return the copies of each robots.txt with their times, in order. A copy is None if the site was unreachable.

    Raises:
        InvalidURL: a key of ``options.robots`` is not an origin.
        StoreError: the ledger cannot be read.
    """
    files: dict[Origin, list[File]] = {}
    if options.ledger is not None:
        with LedgerReader(options.ledger) as ledger:
            for one in ledger.snapshots():
                robots = None if one.result in CLOSED else RobotsTxt.parse(one.body, origin=one.origin)
                files.setdefault(one.origin, []).append((one.recorded_wall, robots))
    return files | {Origin.of(url): [(ALWAYS, RobotsTxt.parse(body))] for url, body in options.robots.items()}


class Copies:
    """The expectations of a site, for the judge of traces.

    A time in the log is not exact, so several copies may have been in force. A request is against the rules only if all
    of these copies forbid it.

    Args:
        files: pairs in order: the time from which a copy is in force, and the copy. The copy is None if the site was
            unreachable.
        agent: the product token of the crawler.
        slack_s: the possible error of the times of the requests, in seconds.
    """

    def __init__(self, files: Sequence[File], agent: str, slack_s: float) -> None:
        self._times = [since for since, _ in files]
        self._rules = [_UNREACHABLE if robots is None else robots.rules_for(agent) for _, robots in files]
        self._slack_s = slack_s

    def _in_force(self, wall: float) -> Sequence[RuleSet]:
        """Return the copies that may have been in force; empty at a time before the first copy."""
        first = bisect_right(self._times, wall - self._slack_s) - 1
        return self._rules[first : bisect_right(self._times, wall + self._slack_s)] if first >= 0 else ()

    def against(self, target: str, wall: float) -> str | None:
        """See ``Expectation``."""
        found = [_against(rules, target) for rules in self._in_force(wall)]
        return found[-1] if found and None not in found else None

    def interval(self, wall: float) -> tuple[float, str]:
        """See ``Expectation``."""
        return min([_interval(rules, wall) for rules in self._in_force(wall)], default=(0.0, ""))

    def open_at(self, wall: float) -> bool:
        """See ``Expectation``."""
        copies = self._in_force(wall)
        return not copies or any([_is_open(one.timetable, wall) for one in copies])  # noqa: C419 - faster


def _against(rules: RuleSet, target: str) -> str | None:
    if rules is _UNREACHABLE:
        return "robots.txt was unreachable"  # RFC 9309 2.3.1.4
    with suppress(InvalidURL):  # clients send such a target in different ways
        match = rules.match(target)
        if not match.allowed:
            return match.reason.value if match.rule is None else f"line {match.rule.line}: {match.rule}"
    return None


def _is_open(timetable: Timetable, wall: float) -> bool:
    return not timetable.is_timed or next_open(timetable.open_minutes, wall) <= wall


def _interval(rules: RuleSet, wall: float) -> tuple[float, str]:
    delay_s, rate_s = rules.crawl_delay or 0.0, rules.timetable.interval_s(wall)
    return (rate_s, "request-rate") if rate_s > delay_s else (delay_s, "crawl-delay")


class Practice(StrEnum):
    """The practices that a crawler may lack."""

    NO_URL = "User-Agent without the URL of a page about the crawler"
    NO_BACK_OFF = "page requested too soon after three server errors in a row"
    METHODS = "methods other than GET and HEAD are frequent"
    NO_CACHE = "pages are often fetched again, and never with a condition"


class HostPractices:
    """Judges the practices of a crawler at a host.

    Args:
        back_off_s: the least time until the next page after three server errors in a row.
    """

    def __init__(self, back_off_s: float) -> None:
        self._back_off_s = back_off_s
        self._errors = 0
        self._ended = 0.0
        self._conditional = self._unnamed = False
        self._pages: set[int] = set()
        self._shares: dict[Practice, tuple[int, Request]] = {}

    def judge(self, request: Request) -> Iterator[tuple[Practice, str, float]]:
        """Yield the practice, the detail and the missing seconds of each fault of a request."""
        exchange, agent = request.exchange, request.exchange.agent
        if agent is not None and "://" not in agent and not self._unnamed:
            self._unnamed = True  # reported once for a host
            yield Practice.NO_URL, f"{agent!r:.100}", 0.0
        gap_s = exchange.started - self._ended
        if self._errors >= _ERRORS_IN_A_ROW and gap_s < self._back_off_s:
            yield Practice.NO_BACK_OFF, f"{gap_s:.3f} s after, not {self._back_off_s:g}", self._back_off_s - gap_s
        self._errors = self._errors + 1 if exchange.status // 100 == 5 else 0  # noqa: PLR2004 - RFC 9110 15.6
        self._ended = exchange.ended
        self._conditional = self._conditional or exchange.status == 304  # noqa: PLR2004 - Not Modified
        if request.method not in _READS:
            self._count(Practice.METHODS, request)
        elif exchange.status == 200:  # noqa: PLR2004 - OK
            page = hash(exchange.url)
            if page in self._pages:
                self._count(Practice.NO_CACHE, request)
            elif len(self._pages) < _MAX_PAGES:
                self._pages.add(page)

    def conclude(self, requests: int) -> Iterator[tuple[Practice, Request, str]]:
        """Yield the practice, an example and the detail of each fault that only all requests together show."""
        for practice, (count, example) in self._shares.items():
            excused = practice is Practice.NO_CACHE and self._conditional
            if requests >= _ENOUGH and count > _MAX_SHARE * requests and not excused:
                yield practice, example, f"{count:,} of {requests:,} requests"

    def _count(self, practice: Practice, request: Request) -> None:
        count, example = self._shares.get(practice, (0, request))
        self._shares[practice] = count + 1, example
