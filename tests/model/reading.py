"""A literal reading of robots.txt for an agent, and of the headers that set times. Shares no code with the library."""

from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Final

from tests.rules.properties.reference import USER_AGENT, decide, fields, groups, name_on_line, records_for

DAY_S: Final = 86_400.0


def _token(body: bytes, tokens: Sequence[str]) -> bytes:
    """RFC 9309 2.2.1: the first token of the agent that a group names; the groups for everybody otherwise."""
    named = {name for names, _ in groups(body) for name in names}
    return next((token.encode() for token in tokens if token.lower().encode() in named), b"*")


@cache
def permits(body: bytes, tokens: tuple[str, ...], target: str) -> bool:
    """Return whether a robots.txt allows a target."""
    return decide(records_for(body, _token(body, tokens)), target.encode()).allowed


@cache
def stated(body: bytes, tokens: tuple[str, ...], wanted: bytes) -> tuple[bytes, ...]:
    """Return the values of a field in the groups of an agent."""
    token, names, ruled, found = _token(body, tokens).lower(), set[bytes](), False, []
    for _, field, value in fields(body):
        if field in USER_AGENT:
            names = {name_on_line(value)} | (set() if ruled else names)
            ruled = False
        elif field == wanted and token in names:
            found.append(value)
        ruled = ruled or field in {b"allow", b"disallow"}
    return tuple(found)


def delay_s(body: bytes, tokens: tuple[str, ...]) -> float:
    """Return the Crawl-delay for an agent; 0 for none."""
    return max(map(float, stated(body, tokens, b"crawl-delay")), default=0.0)


def forbids_training(body: bytes, tokens: tuple[str, ...]) -> bool:
    """Return whether the groups of an agent disallow the training of models."""
    return b"train-ai=n" in stated(body, tokens, b"content-usage")


def quota(headers: Mapping[str, str]) -> tuple[float, float] | None:
    """Return the remaining requests and the seconds for them."""
    if "x-ratelimit-remaining" not in headers:
        return None
    return float(headers["x-ratelimit-remaining"]), float(headers["x-ratelimit-reset"])


def lifetime_s(headers: Mapping[str, str]) -> float:
    """Return how long an answer is fresh: ``max-age`` less ``Age``, at least a minute, at most a day."""
    stated = headers.get("cache-control", "")
    if "max-age=" not in stated:
        return DAY_S
    return min(max(60.0, float(stated.partition("max-age=")[2]) - float(headers.get("age", "0"))), DAY_S)


def retry_after_s(headers: Mapping[str, str], wall: float) -> float:
    """Return the seconds of a ``Retry-After``, which is a number or a date; 0 for none."""
    value = headers.get("retry-after", "")
    if value.isdigit():
        return float(value)
    dated = parsedate_to_datetime(headers["date"]).timestamp() if "date" in headers else wall
    return max(0.0, parsedate_to_datetime(value).timestamp() - dated) if value else 0.0
