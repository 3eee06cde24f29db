"""Reads RateLimit headers: the rest of a quota, and the end of its window. Pure.

Servers use three forms: ``RateLimit: "name";r=50;t=30`` with ``RateLimit-Policy: "name";q=100;w=60``
(draft-ietf-httpapi-ratelimit-headers from -08), ``RateLimit: limit=100, remaining=50, reset=30`` with
``RateLimit-Policy: 100;w=60`` (from -03), and the fields ``RateLimit-Remaining`` and ``RateLimit-Reset`` (earlier
drafts, and with the prefix ``X-``). Some servers send a Unix time as the reset, in seconds or milliseconds. Decimals
count. Where a header has several readings, such as ``0, 99``, the slowest counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from politesse._http.freshness import dated_wall, decimal, readings

_PARAMETER = re.compile(r"(?:^|[;,\s])(r|t|q|w|remaining|reset)\s*=\s*([0-9]{1,15}(?:\.[0-9]{0,15})?)(?=$|[;,\s])")
_TIMES: Final = frozenset({"t", "w", "reset"})
_RESET = re.compile(r"([0-9]{1,15}(?:\.[0-9]{0,15})?)[ \t]*(s|ms)?")
_UNIT = re.compile(r";\s*qu\s*=\s*\"?([^\";,\s]*)")
_POLICY: Final = "ratelimit-policy"
QUOTA_FIELDS: Final = frozenset({"ratelimit", _POLICY, "ratelimit-remaining", "x-ratelimit-remaining"})
"""The headers about a quota, in lower case."""
_UNIX_TIMES_FROM: Final = 1_000_000_000
_UNIX_TIMES_IN_MS_FROM: Final = 1_000_000_000_000
_MAX_FIELD: Final = 1024


def quota_fields(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the headers about a quota."""
    return tuple(name for name in headers if name in QUOTA_FIELDS)


def remaining_quota(headers: Mapping[str, str], now_wall: float) -> tuple[float, float] | None:
    """Return the remaining requests and the seconds until the quota is renewed; None if no header states them.

    Of several quotas, the result is the slowest: the quota with the most time per remaining request. A policy without a
    RateLimit member counts as a full quota. Invalid values are ignored.
    """
    policies = _members(headers.get(_POLICY, ""))
    limits = _members(headers.get("ratelimit", ""))
    windows = dict(sorted((name, policy["w"]) for name, policy in policies if "w" in policy))  # the longest of a name
    limited = {name for name, _ in limits}
    quotas = [
        *(_limit(limit, windows.get(name)) for name, limit in limits),
        *(_policy(name, policy) for name, policy in policies if name not in limited),
        *(_fields(headers, prefix, now_wall) for prefix in ("", "x-")),
    ]
    return max(filter(None, quotas), key=lambda quota: quota[1] / max(quota[0], 0.5), default=None)


def _members(value: str) -> list[tuple[str, dict[str, float]]]:
    """Return the name and the parameters of each list member; a value without semicolons is one nameless member."""
    if len(value) > _MAX_FIELD:
        value = value[:_MAX_FIELD].rpartition(",")[0]  # a member that is cut could be misread
    if ";" not in value:
        return [("", _parameters(value))] if value else []
    members = []
    for member in value.split(","):
        unit = _UNIT.search(member)
        if unit is None or unit[1] == "requests":  # other units are octets, or concurrent requests
            name, _, _ = member.partition(";")
            members.append((name.strip().strip('"'), _parameters(member)))
    return members


def _parameters(member: str) -> dict[str, float]:
    """Return the parameters of a member; if one is repeated, the slowest."""
    numbers: dict[str, float] = {}
    for name, digits in _PARAMETER.findall(member):
        slower = max if name in _TIMES else min
        numbers[name] = slower(float(digits), numbers.get(name, float(digits)))
    return numbers


def _limit(limit: dict[str, float], window_s: float | None) -> tuple[float, float] | None:
    remaining = limit.get("r", limit.get("remaining"))
    reset_s = limit.get("t", limit.get("reset", window_s))  # the policy's window is the upper bound
    return None if remaining is None or reset_s is None else (remaining, reset_s)


def _policy(name: str, policy: dict[str, float]) -> tuple[float, float] | None:
    quota, window_s = policy.get("q", decimal(name)), policy.get("w")
    return None if window_s is None or quota is None else (quota, window_s)


def _fields(headers: Mapping[str, str], prefix: str, now_wall: float) -> tuple[float, float] | None:
    remaining, resets = (headers.get(f"{prefix}ratelimit-{name}", "") for name in ("remaining", "reset"))
    quotas, resets_s = readings(remaining, decimal), readings(resets, _reset_s)
    # A Unix time is by the server's clock.
    left_s = [reset - dated_wall(headers, now_wall) if reset >= _UNIX_TIMES_FROM else reset for reset in resets_s]
    return (min(quotas), max(0.0, *left_s)) if quotas and left_s else None


def _reset_s(text: str) -> float | None:
    """Return a reset in seconds, which may be a Unix time; None if it is unreadable."""
    found = _RESET.fullmatch(text.strip())
    if found is None:
        return None
    in_ms = found[2] == "ms" or float(found[1]) >= _UNIX_TIMES_IN_MS_FROM
    return float(found[1]) / 1_000 if in_ms else float(found[1])
