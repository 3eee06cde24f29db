"""The expectations of a site at each time, by the production rules and the copies of its robots.txt."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from politesse.errors import InvalidURL
from politesse.ledger import LedgerReader
from politesse.origin import Origin
from politesse.robots import RobotsTxt
from politesse.robots.timetable import next_open
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse.audit._audit import AuditOptions
    from politesse.robots import RuleSet
    from politesse.robots.timetable import Timetable

    File = tuple[float, RobotsTxt | None]

ALWAYS: Final = float("-inf")
_UNDECIDED: Final = frozenset({AccessResult.UNREACHABLE, AccessResult.TOO_MANY_REQUESTS})
_UNREACHABLE: Final = RobotsTxt.parse(b"User-agent: *\nDisallow: /").rules_for("*")


def files_of(options: AuditOptions) -> dict[Origin, list[File]]:
    """Return the copies of each robots.txt with their times, in order; None for a site that was unreachable.

    Raises:
        InvalidURL: a key of ``options.robots`` is no origin.
        StoreError: the ledger cannot be read.
    """
    files: dict[Origin, list[File]] = {}
    if options.ledger is not None:
        with LedgerReader(options.ledger) as ledger:
            for one in ledger.snapshots():
                robots = None if one.result in _UNDECIDED else RobotsTxt.parse(one.body, origin=one.origin)
                files.setdefault(one.origin, []).append((one.recorded_wall, robots))
    return files | {Origin.of(url): [(ALWAYS, RobotsTxt.parse(body))] for url, body in options.robots.items()}


class Copies:
    """The expectations of a site, for the judge of traces.

    A time in the log is not exact, so several copies may have been in force. A request is against the rules only if all
    of these copies forbid it.

    Args:
        files: the times from which the copies are in force, in order, and the copies; None if a site without a copy was
            unreachable.
        agent: the product token of the crawler.
        slack_s: how exact the times of the requests are.
    """

    def __init__(self, files: Sequence[File], agent: str, slack_s: float) -> None:
        self._times = [since for since, _ in files]
        self._rules = [_UNREACHABLE if robots is None else robots.rules_for(agent) for _, robots in files]
        self._slack_s = slack_s

    def _in_force(self, wall: float) -> Sequence[RuleSet]:
        """Return the copies that may have been in force; empty if none is known for the whole time."""
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
