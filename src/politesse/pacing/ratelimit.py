"""RateLimit headers: how much of a quota is left, and for how long. Pure.

Three forms are in the field: ``RateLimit: "name";r=50;t=30`` (draft-ietf-httpapi-ratelimit-headers from -08),
``RateLimit: limit=100, remaining=50, reset=30`` (from -03), and the fields ``RateLimit-Remaining`` and
``RateLimit-Reset`` (before, and with ``X-`` in front), whose reset some servers give as a Unix time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_MEMBER = re.compile(r"(?:^|[;,\s])(r|t|remaining|reset)\s*=\s*([0-9]{1,15})(?=$|[;,\s])")
_NUMBER = re.compile(r"[0-9]{1,15}")
_NAMES: Final = frozenset({"ratelimit", "ratelimit-remaining", "x-ratelimit-remaining"})
_UNIX_TIMES_FROM: Final = 1_000_000_000
_MAX_FIELD: Final = 1024


def remaining_quota(headers: Mapping[str, str], now_wall: float) -> tuple[float, float] | None:
    """Return the requests that are left and the seconds until the quota is renewed; None where nothing says so.

    Of several quotas the one with the least time per request left: the slowest binds. What cannot be read is ignored.
    """
    if _NAMES.isdisjoint(headers):
        return None  # nearly every answer
    quotas = [
        quota
        for quota in (_policies(headers.get("ratelimit", "")) + [_fields(headers, prefix) for prefix in ("", "x-")])
        if quota is not None
    ]
    quotas = [(remaining, _relative(reset, now_wall)) for remaining, reset in quotas]
    return max(quotas, key=lambda quota: quota[1] / max(quota[0], 0.5), default=None)


def _policies(value: str) -> list[tuple[float, float] | None]:
    """One quota for each list member of the structured form; one in all for the form with names."""
    value = value[:_MAX_FIELD]
    members = value.split(",") if ";" in value else [value]
    return [_quota(dict(_MEMBER.findall(member))) for member in members]


def _quota(pairs: dict[str, str]) -> tuple[float, float] | None:
    remaining, reset = pairs.get("r", pairs.get("remaining")), pairs.get("t", pairs.get("reset"))
    return None if remaining is None or reset is None else (float(remaining), float(reset))


def _fields(headers: Mapping[str, str], prefix: str) -> tuple[float, float] | None:
    pairs = {name: headers.get(f"{prefix}ratelimit-{name}", "").strip() for name in ("remaining", "reset")}
    return _quota(pairs) if all(_NUMBER.fullmatch(value) for value in pairs.values()) else None


def _relative(reset: float, now_wall: float) -> float:
    return max(0.0, reset - now_wall) if reset >= _UNIX_TIMES_FROM else reset
