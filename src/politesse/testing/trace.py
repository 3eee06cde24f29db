"""``assert_polite`` checks whether the requests of a crawler were polite.

The module reads robots.txt literally, and shares no code with the parser, the matcher and the pacing that it judges,
because shared errors would stay hidden. It is slow, keeps no state between calls, and reads one dialect: RFC 9309 with
the directives for pace and time (Crawl-delay, and Request-rate and Visit-time of Conner 2.0). A percent sign that is
not the start of an escape is read as ``%25``.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from string import ascii_letters, digits
from typing import TYPE_CHECKING, Final

from politesse._base.constants import DAY_S
from politesse._judge import Promises, TraceJudge, token_finder
from politesse.errors import ConfigurationError
from politesse.origin import Origin, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from politesse._judge import Exchange

_UNRESERVED: Final = frozenset(ascii_letters + digits + "-._~")  # RFC 3986 2.3
_GEN_DELIMS: Final = frozenset(":/?[]@")  # RFC 3986 2.2, without "#", which starts a fragment
_RAW: Final = _UNRESERVED | _GEN_DELIMS | frozenset("!&'()+,;=")  # "*" and "$" are only literal as %2A and %24
_OCTET: Final = re.compile(r"%([0-9A-Fa-f]{2})|.", re.DOTALL)
_NAME: Final = re.compile(r"\*(?=[ \t]|$)|[A-Za-z0-9_.-]*")
_USER_AGENT: Final = frozenset({"user-agent", "useragent", "user agent"})
_RULES: Final = frozenset({"allow", "disallow"})
_DELAY: Final = re.compile(r"[0-9]{1,10}(?:\.[0-9]{0,20})?|\.[0-9]{1,20}")
_TIME: Final = r"(?:[01][0-9]|2[0-3])[0-5][0-9]"
_WINDOW: Final = rf"({_TIME})[ \t]*(?:-|[ \t])[ \t]*({_TIME})"
_VISIT: Final = re.compile(_WINDOW)
_RATE: Final = re.compile(
    rf"(0*[1-9][0-9]{{0,9}})[ \t]*/[ \t]*(0*[1-9][0-9]{{0,9}})[ \t]*([smhdSMHD]?)(?:[ \t]+{_WINDOW})?"
)
# The byte order marks of all encodings, and the part of the UTF-8 mark that some editors leave. Only ASCII is compared,
# so the text after a mark is read as Latin-1.
_MARKS: Final = (
    *(codecs.BOM_UTF8, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    *(codecs.BOM_UTF8[:2], codecs.BOM_UTF8[:1]),
)
_UNIT_S: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_YEAR_S: Final = 365 * 86_400  # a longer interval is invalid

_Window = tuple[str, str]


class LiteralRules:
    """The rules of a robots.txt for a crawler.

    Args:
        body: the file.
        token: the product token of the crawler.
    """

    def __init__(self, body: str | bytes, token: str) -> None:
        self._rules: list[tuple[int, bool, str]] = []
        self._intervals: list[tuple[float, str, _Window | None]] = []
        self._visits: list[_Window] = []
        records = list(_records(body))
        # RFC 9309 2.2.1: the groups that name the crawler, merged; without such groups, the groups of "*".
        named = any(token.lower() in names for names, *_ in records)
        for names, number, field, value in records:
            if (token.lower() if named else "*") in names:
                self._add(number, field, value)

    def _add(self, number: int, field: str, value: str) -> None:
        if field in _RULES and value[:1] in {"/", "*"}:
            self._rules.append((number, field == "allow", value))
        elif field == "crawl-delay" and _DELAY.fullmatch(value) and float(value) <= _YEAR_S:
            self._intervals.append((float(value), field, None))
        elif field == "request-rate" and (rate := _RATE.fullmatch(value)):
            interval_s = int(rate[2]) * _UNIT_S[rate[3].lower()] / int(rate[1])
            if interval_s <= _YEAR_S:
                self._intervals.append((interval_s, field, (rate[4], rate[5]) if rate[4] else None))
        elif field == "visit-time" and (visit := _VISIT.fullmatch(value)):
            self._visits.append((visit[1], visit[2]))

    def against(self, target: str, wall: float = 0.0) -> str | None:  # noqa: ARG002 - the file does not change
        """Return the rule that forbids a request target, or None."""
        compared = _normal_target(target, _UNRESERVED | _GEN_DELIMS)
        if compared == "/robots.txt":
            return None  # RFC 9309 2.2.2: robots.txt is always allowed
        # If a star of a pattern matches up to the query, the rest of the pattern was normalised as a path. So such a
        # pattern is also compared with a query that is normalised as a path.
        written = _normal_target(target, _UNRESERVED)
        # RFC 9309 2.2.2: the most specific match has the most octets; of equivalent rules the Allow decides.
        found = [
            (len(pattern), allow, number, path)
            for number, allow, path in self._rules
            if _matches(pattern := _normal_pattern(path), compared) or ("*" in pattern and _matches(pattern, written))
        ]
        _, allow, number, path = max(found, default=(0, True, 0, ""), key=lambda rule: rule[:2])
        return None if allow else f"against line {number}: Disallow: {path:.100}"

    def interval(self, wall: float) -> tuple[float, str]:
        """Return the longest interval that applies at a Unix time, in seconds, and the directive that states it."""
        held = [(interval_s, field) for interval_s, field, window in self._intervals if _within(window, wall)]
        return max(held, default=(0.0, ""), key=lambda stated: stated[0])

    def open_at(self, wall: float) -> bool:
        """Return whether the Visit-times permit a visit at a Unix time."""
        return not self._visits or any(_within(window, wall) for window in self._visits)


def _records(body: str | bytes) -> Iterator[tuple[tuple[str, ...], int, str, str]]:
    """Yield the names of the group, line number, field and value of every line with a field."""
    octets = body.encode() if isinstance(body, str) else body
    mark = next((mark for mark in _MARKS if octets.startswith(mark)), b"")
    text = octets.removeprefix(mark).decode("latin-1")
    names: tuple[str, ...] = ()
    ruled = False
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        name, colon, value = line.partition("#")[0].partition(":")
        field, value = name.strip(" \t").lower(), value.strip(" \t")
        if colon and field in _USER_AGENT and (found := _NAME.match(value)):
            # RFC 9309 2.2.1: a user-agent line after a rule begins a new group.
            names, ruled = (() if ruled else names) + (found[0].lower(),), False
        ruled = ruled or (bool(colon) and field in _RULES)
        if colon:
            yield names, number, field, value


def _escaped(octets: str, plain: frozenset[str]) -> str:
    """Return octets in normal form: an escape is decoded if its character is in ``plain`` (RFC 9309 2.2.2)."""

    def one(found: re.Match[str]) -> str:
        octet = chr(int(found[1], 16)) if found[1] else found[0]
        return octet if octet in (plain if found[1] else _RAW) else f"%{ord(octet):02X}"

    return _OCTET.sub(one, octets)


def _normal_target(target: str, plain_in_query: frozenset[str]) -> str:
    path, question, query = target.encode().decode("latin-1").partition("?")
    kept: list[str] = []
    # RFC 3986 5.2.4: dot segments are removed.
    segments = _escaped(path, _UNRESERVED).split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1:] in (["."], [".."]):
        kept.append("")
    return "/" + "/".join(kept) + question + _escaped(query, plain_in_query)


def _normal_pattern(path: str) -> str:
    """Return a pattern in normal form; each ``*``, and a ``$`` at the end, stay special characters."""
    end = "$" if path.endswith("$") else ""
    before, question, after = path.removesuffix(end).partition("?")
    sides = ((before, _UNRESERVED), (after, _UNRESERVED | _GEN_DELIMS))
    first, second = ("*".join(_escaped(part, plain) for part in side.split("*")) for side, plain in sides)
    return re.sub(r"\*+", "*", first + question + second) + end


def _matches(pattern: str, target: str) -> bool:
    """Return whether a pattern matches a target from its first octet. Each part matches at its first possible place."""
    first, *parts = pattern.removesuffix("$").split("*")
    if pattern.endswith("$"):
        last = parts.pop() if parts else ""
        if "*" not in pattern:
            return target == first
        if not target.endswith(last) or len(target) < len(first) + len(last):
            return False
        target = target.removesuffix(last)
    if not target.startswith(first):
        return False
    place = len(first)
    for part in parts:
        place = target.find(part, place)
        if place < 0:
            return False
        place += len(part)
    return True


def _within(window: _Window | None, wall: float) -> bool:
    """Return whether a Unix time is in a window, in UTC. A window may cross midnight; None means the whole day."""
    if window is None:
        return True
    minute = int(wall % 86_400) // 60
    now, (first, last) = f"{minute // 60:02}{minute % 60:02}", window
    return first <= now <= last if first <= last else now >= first or now <= last


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
