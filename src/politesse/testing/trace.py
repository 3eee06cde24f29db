"""``assert_polite`` checks whether the requests of a crawler were polite."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from politesse._base.constants import DAY_S
from politesse._judge import Promises, TraceJudge, token_finder
from politesse.errors import ConfigurationError
from politesse.origin import Origin, split
from politesse.testing._literal import LiteralRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from politesse._judge import Exchange

_MAX_SHOWN: Final = 50
_TOKEN: Final = re.compile(r"[A-Za-z0-9_.-]+")


def assert_polite(
    trace: Iterable[Exchange],
    robots: Mapping[str, str | bytes],
    *,
    agent: str,
    min_delay_s: float = 0.0,
    slack_s: float = 0.0,
    user_agent: str | None = None,
    min_refetch_s: float = 54.0,
    max_age_s: float = DAY_S,
) -> None:
    r"""Raise AssertionError with all violations unless a crawl was polite.

    A page may be requested only if a usable robots.txt of its origin was fetched before. A robots.txt is usable if it
    was not answered by 429 or 5xx, and is at most ``max_age_s`` old. The page must be allowed, and be requested within
    the Visit-time. The request must keep the pace of the host after the previous page, and must not overlap another
    request for a page of the host. Until a Retry-After is over, the host must get no request at all, not even for
    robots.txt.

    Requests for robots.txt need not wait for pages. Two requests for the same robots.txt must be ``min_refetch_s``
    apart. Requests for robots.txt to one host, including redirect targets, must come one at a time. After the first two
    in a minute, they must be ``min_delay_s`` apart. An exchange that ends before its start is a violation, because the
    log is wrong.

    The rules are read literally, as in RFC 9309, without any code of politesse's parser.

    Example:
        >>> from politesse.testing import Exchange, assert_polite
        >>> robots = {"http://b.test": "User-agent: *\nCrawl-delay: 5\n"}
        >>> trace = [
        ...     Exchange("http://b.test/robots.txt", started=0.0, ended=0.2),
        ...     Exchange("http://b.test/a", started=5.2, ended=5.9),
        ...     Exchange("http://b.test/b", started=6.9, ended=7.5),
        ... ]
        >>> assert_polite(trace[:2], robots, agent="ExampleBot")
        >>> assert_polite(trace, robots, agent="ExampleBot")
        Traceback (most recent call last):
        AssertionError: 1 violation:
        page requested too soon after the request before: http://b.test/b (1.0000 s after its end, not 5 (crawl-delay))

    Args:
        trace: all requests of the crawl, in any order.
        robots: the robots.txt of each origin, such as ``"https://example.com"``, in any spelling; an origin without a
            robots.txt has no restrictions.
        agent: the product token that the crawler obeys, or a User-Agent string that begins with it.
        min_delay_s: the pause that the crawler promises for a host that states no pace, in seconds; 0 or more.
        slack_s: the tolerance for errors of the clocks in the log, in seconds; 0 or more.
        user_agent: the product token that the requests state, if it differs from ``agent``. Each exchange with a
            User-Agent in the log has to name this token.
        min_refetch_s: the least time between two requests for a robots.txt, in seconds; 0 or more. The default is 90 %
            of a minute, because politesse by default keeps each copy or failure for at least a minute.
        max_age_s: the longest time that a robots.txt may be used, in seconds; 0 or more. The default is 24 hours (RFC
            9309 2.4).

    Raises:
        AssertionError: the trace is empty, or holds violations.
        ConfigurationError: an agent is not a product token, a key of ``robots`` is not an origin or occurs twice, or a
            number is out of range.
        InvalidURL: a key or the URL of an exchange is not an absolute http(s) URL.
    """
    token = _token("agent", agent)
    stated = token if user_agent is None else _token("user_agent", user_agent)
    promises = Promises(
        min_delay_s=min_delay_s,
        min_refetch_s=min_refetch_s,
        max_age_s=max_age_s,
        slack_s=slack_s,
        wall_slack_s=slack_s,
        agent=token_finder([stated]),
    )
    exchanges = list(trace)
    if not exchanges:
        raise AssertionError("the trace is empty: it proves nothing")
    judge = TraceJudge(_rules(robots, token).get, promises)
    exchanges.sort(key=lambda exchange: exchange.started)
    violations = [violation for exchange in exchanges for violation in judge.judge(exchange)]
    if violations:
        count = len(violations)
        shown = [str(violation) for violation in violations[:_MAX_SHOWN]]
        more = [f"and {count - _MAX_SHOWN} more"] if count > _MAX_SHOWN else []
        raise AssertionError("\n".join([f"{count} violation{'s' if count > 1 else ''}:", *shown, *more]))


def _token(name: str, agent: str) -> str:
    """Return the product token with which an agent begins."""
    found = _TOKEN.match(agent)
    if found is None or found[0].lower() == "mozilla":
        raise ConfigurationError(f"{name}={agent!r:.100}: give the crawler's product token, as in 'ExampleBot'")
    return found[0]


def _rules(robots: Mapping[str, str | bytes], token: str) -> dict[Origin, LiteralRules]:
    rules: dict[Origin, LiteralRules] = {}
    for key, body in robots.items():
        origin, target = split(key)
        if target not in {"/", "/robots.txt"}:
            raise ConfigurationError(f"robots[{key!r:.200}]: give an origin, as in {str(origin)!r}")
        if origin in rules:
            raise ConfigurationError(f"robots[{key!r:.200}]: {origin} stands there twice")
        rules[origin] = LiteralRules(body, token)
    return rules
