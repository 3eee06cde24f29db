"""A judge of what a crawler has requested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from politesse._constants import ROBOTS_TXT
from politesse._pacing.pace import PacingOptions, stated_pace, visit_from
from politesse.origin import split
from politesse.robots import RobotsTxt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from politesse.robots import RuleSet


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer, as a server or a crawler has logged it.

    Attributes:
        url: what was requested, robots.txt included.
        started: when it was, as Unix time.
        ended: when its answer had been read, as Unix time.
        status: of the answer.
        retry_after_s: what its Retry-After asked for, in seconds; None where it had none.
    """

    url: str
    started: float
    ended: float
    status: int = 200
    retry_after_s: float | None = None


def assert_polite(
    trace: Iterable[Exchange],
    robots: Mapping[str, str | bytes],
    *,
    agent: str,
    min_delay_s: float = 0.0,
    slack_s: float = 0.0,
) -> None:
    """Raise AssertionError, naming every violation, unless a crawl was polite.

    Nothing is requested of an origin before its robots.txt; nothing that is disallowed; no two requests of a host at
    once; none sooner after the one before than its pace asks for; and none before a Retry-After is over. Requests for
    robots.txt itself need not wait.

    Args:
        trace: all requests of the crawl, in whatever order.
        robots: the robots.txt of each origin, as in ``"https://example.com"``; an origin without one restricts nothing.
        agent: the product token that the crawler obeys.
        min_delay_s: the pause that it promises where a host asks for none.
        slack_s: by how much the clocks that logged may be off.
    """
    rules = {origin: RobotsTxt.parse(body).rules_for(agent) for origin, body in robots.items()}
    options = PacingOptions(min_delay_s=min_delay_s)
    violations: list[str] = []
    asked: set[str] = set()
    hosts: dict[str, list[tuple[Exchange, str]]] = {}
    for exchange in sorted(trace, key=lambda exchange: exchange.started):
        origin, target = split(exchange.url)
        if target == ROBOTS_TXT:
            asked.add(str(origin))
        elif str(origin) not in asked:
            violations.append(f"{exchange.url} was requested before {origin.robots_url}")
        if str(origin) in rules and not (match := rules[str(origin)].match(exchange.url)):
            violations.append(f"{exchange.url} was requested against line {match.rule and match.rule.line}")
        hosts.setdefault(origin.pacing_host, []).append((exchange, str(origin)))
    for exchanges in hosts.values():
        violations += _too_soon(exchanges, rules, options, slack_s)
    if violations:
        raise AssertionError(f"{len(violations)} violations:\n" + "\n".join(violations))


def _too_soon(
    exchanges: list[tuple[Exchange, str]], rules: Mapping[str, RuleSet], options: PacingOptions, slack_s: float
) -> list[str]:
    said = [rules[origin] for origin in {origin for _, origin in exchanges} if origin in rules]
    violations = []
    ended = closed_until = float("-inf")
    for exchange, _ in exchanges:
        if split(exchange.url)[1] != ROBOTS_TXT:
            pace = stated_pace(said, ended, options) if ended > float("-inf") else None
            soonest = ended + (0.0 if pace is None else pace.interval_s)
            if exchange.started < soonest - slack_s and pace is not None:
                gap = f"{exchange.started - ended:.3f} s after the request before"
                violations.append(f"{exchange.url} came {gap}, not {pace.interval_s:g} ({pace.bound_by})")
            if exchange.started < closed_until - slack_s:
                violations.append(f"{exchange.url} came {closed_until - exchange.started:.3f} s before Retry-After")
            if visit_from(said, exchange.started) > exchange.started + slack_s:
                violations.append(f"{exchange.url} came outside the Visit-time")
        ended = max(ended, exchange.ended)
        if exchange.status in {429, 503} and exchange.retry_after_s is not None:
            closed_until = max(closed_until, exchange.ended + exchange.retry_after_s)
    return violations
