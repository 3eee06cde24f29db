"""The expectations of a site at each time, by the production rules and the copies of its robots.txt."""

from __future__ import annotations

from bisect import bisect_right
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

    Copy = tuple[float, RuleSet | None]

ALWAYS: Final = float("-inf")
UNDECIDED_RESULTS: Final = frozenset({AccessResult.UNREACHABLE, AccessResult.TOO_MANY_REQUESTS})


def copies_of(options: AuditOptions) -> dict[tuple[str, Origin], list[Copy]]:
    """Return the copies of each robots.txt for each audited crawler, in the order of their times.

    Raises:
        InvalidURL: a key of ``options.robots`` is no origin.
        StoreError: the ledger cannot be read.
    """
    copies: dict[tuple[str, Origin], list[Copy]] = {}
    if options.ledger is not None:
        with LedgerReader(options.ledger) as ledger:
            for one in ledger.snapshots():
                robots = None if one.result in UNDECIDED_RESULTS else RobotsTxt.parse(one.body, origin=one.origin)
                for agent in options.agents:
                    copy = one.recorded_wall, None if robots is None else robots.rules_for(agent)
                    copies.setdefault((agent, one.origin), []).append(copy)
    for url, body in options.robots.items():
        for agent in options.agents:
            copies[agent, Origin.of(url)] = [(ALWAYS, RobotsTxt.parse(body).rules_for(agent))]
    return copies


class Copies:
    """The expectations of a site, for the judge of traces.

    A time in the log is not exact, so several copies may have been in force. A request is against the rules only if all
    of these copies forbid it.

    Args:
        copies: the times from which the copies are in force, in order, and their rules; None if a site without a copy
            was unreachable.
        slack_s: how exact the times of the requests are.
    """

    def __init__(self, copies: Sequence[Copy], slack_s: float) -> None:
        self._times = [since for since, _ in copies]
        self._rules = [rules for _, rules in copies]
        self._slack_s = slack_s

    def _in_force(self, wall: float) -> Sequence[RuleSet | None]:
        """Return the copies that may have been in force; empty if none is known for the whole time."""
        if len(self._times) == 1 and self._times[0] == ALWAYS:
            return self._rules
        first = bisect_right(self._times, wall - self._slack_s) - 1
        return self._rules[first : bisect_right(self._times, wall + self._slack_s)] if first >= 0 else ()

    def against(self, target: str, wall: float) -> str | None:
        """See ``Expectation``."""
        found = None
        for rules in self._in_force(wall):
            found = _against(rules, target)
            if found is None:
                break
        return found

    def interval(self, wall: float) -> tuple[float, str]:
        """See ``Expectation``."""
        return min([_interval(rules, wall) for rules in self._in_force(wall)], default=(0.0, ""))

    def open_at(self, wall: float) -> bool:
        """See ``Expectation``."""
        copies = self._in_force(wall)
        return not copies or any([one is None or _is_open(one.timetable, wall) for one in copies])  # noqa: C419 - faster


def _against(rules: RuleSet | None, target: str) -> str | None:
    if rules is None:
        return "robots.txt was unreachable"  # RFC 9309 2.3.1.4
    try:
        match = rules.match(target)
    except InvalidURL:  # clients send such a target in different ways
        return None
    if match.allowed:
        return None
    return match.reason.value if match.rule is None else f"line {match.rule.line}: {match.rule}"


def _is_open(timetable: Timetable, wall: float) -> bool:
    return not timetable.is_timed or next_open(timetable.open_minutes, wall) <= wall


def _interval(rules: RuleSet | None, wall: float) -> tuple[float, str]:
    if rules is None:
        return 0.0, ""
    delay_s, rate_s = rules.crawl_delay or 0.0, rules.timetable.interval_s(wall)
    return (rate_s, "request-rate") if rate_s > delay_s else (delay_s, "crawl-delay")
