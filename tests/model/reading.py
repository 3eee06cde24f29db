"""A literal reading of robots.txt for an agent, and of the headers that set times. Shares no code with the library."""

from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Final

from tests.property.reference import USER_AGENT, decide, fields, groups, name_on_line, records_for

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
def delay_s(body: bytes, tokens: tuple[str, ...]) -> float:
    """Return the Crawl-delay for an agent; 0 for none."""
    token, names, ruled, found = _token(body, tokens).lower(), set[bytes](), False, 0.0
    for _, field, value in fields(body):
        if field in USER_AGENT:
            names = ({name_on_line(value)} | names) if not ruled else {name_on_line(value)}
            ruled = False
        elif field in {b"allow", b"disallow"}:
            ruled = True
        elif field == b"crawl-delay" and token in names:
            found = max(found, float(value))
    return found


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
