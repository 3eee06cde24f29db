"""Reads RateLimit headers: the rest of a quota, and the end of its window. Pure.

Servers use three forms: ``RateLimit: "name";r=50;t=30`` with ``RateLimit-Policy: "name";q=100;w=60``
(draft-ietf-httpapi-ratelimit-headers from -08), ``RateLimit: limit=100, remaining=50, reset=30`` with
``RateLimit-Policy: 100;w=60`` (from -03), and the fields ``RateLimit-Remaining`` and ``RateLimit-Reset`` (earlier
drafts, and with the prefix ``X-``). Some servers send a Unix time as the reset.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from politesse._http.freshness import dated_wall

_PARAMETER = re.compile(r"(?:^|[;,\s])(r|t|q|w|remaining|reset)\s*=\s*([0-9]{1,15})(?=$|[;,\s])")
_NUMBER = re.compile(r"[0-9]{1,15}")
_UNIT = re.compile(r";\s*qu\s*=\s*\"?([^\";,\s]*)")
_POLICY: Final = "ratelimit-policy"
QUOTA_FIELDS: Final = frozenset({"ratelimit", _POLICY, "ratelimit-remaining", "x-ratelimit-remaining"})
"""The headers about a quota, in lower case."""
_UNIX_TIMES_FROM: Final = 1_000_000_000
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
    quotas = [
        *(_limit(limit, policies.get(name, {})) for name, limit in limits.items()),
        *(_policy(name, policy) for name, policy in policies.items() if name not in limits),
        *(_fields(headers, prefix, now_wall) for prefix in ("", "x-")),
    ]
    return max(filter(None, quotas), key=lambda quota: quota[1] / max(quota[0], 0.5), default=None)


def _members(value: str) -> dict[str, dict[str, str]]:
    """Return the parameters of each list member by its name; a value without semicolons is one nameless member."""
    value = value[:_MAX_FIELD]
    if ";" not in value:
        return {"": dict(_PARAMETER.findall(value))} if value else {}
    members: dict[str, dict[str, str]] = {}
    for member in value.split(","):
        unit = _UNIT.search(member)
        if unit is None or unit[1] == "requests":  # other units are octets, or concurrent requests
            name, _, _ = member.partition(";")
            members[name.strip().strip('"')] = dict(_PARAMETER.findall(member))
    return members


def _limit(limit: dict[str, str], policy: dict[str, str]) -> tuple[float, float] | None:
    remaining = limit.get("r", limit.get("remaining"))
    reset = limit.get("t", limit.get("reset", policy.get("w")))  # the policy's window is the upper bound
    return None if remaining is None or reset is None else (float(remaining), float(reset))


def _policy(name: str, policy: dict[str, str]) -> tuple[float, float] | None:
    quota, window = policy.get("q", name), policy.get("w")
    return None if window is None or _NUMBER.fullmatch(quota) is None else (float(quota), float(window))


def _fields(headers: Mapping[str, str], prefix: str, now_wall: float) -> tuple[float, float] | None:
    remaining, reset = (headers.get(f"{prefix}ratelimit-{name}", "").strip() for name in ("remaining", "reset"))
    if _NUMBER.fullmatch(remaining) is None or _NUMBER.fullmatch(reset) is None:
        return None
    reset_s = float(reset)
    if reset_s >= _UNIX_TIMES_FROM:
        reset_s = max(0.0, reset_s - dated_wall(headers, now_wall))  # the reset is a Unix time by the server's clock
    return float(remaining), reset_s
