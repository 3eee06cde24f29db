"""How long an HTTP answer holds: RFC 9111 for a private cache, as far as a robots.txt needs it. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from politesse._http.dates import http_date

if TYPE_CHECKING:
    from collections.abc import Mapping

# RFC 9111 5.2: a token, and for some a value, quoted or not. The values of other directives are matched to be passed
# over. Constant, linear: 64 KiB, as much as headers may take, are read in about 5 ms at the most.
_VALUE: Final = r"=[ \t]*(?:\"([^\"]*)\"|([^ \t,]*))"
_DIRECTIVE = re.compile(
    rf"(?<![A-Za-z0-9_-])(max-age|no-cache|no-store)(?![A-Za-z0-9_-])(?:[ \t]*{_VALUE})?|{_VALUE}",
    re.ASCII | re.IGNORECASE,
)
_SECONDS = re.compile(r"[0-9]{1,10}")
_FOREVER_S: Final = 9_999_999_999.0


def freshness_lifetime_s(headers: Mapping[str, str], received_wall: float) -> float | None:
    """Return for how many seconds from now on the answer is fresh; None where its headers do not say.

    ``headers`` have lower-case names. RFC 9111 4.2.1: ``max-age`` before ``Expires`` less ``Date``; 5.2.2:
    ``no-store`` and ``no-cache`` are 0; 4.2.3: the age is taken off. 0 or negative where it is stale already.
    ``s-maxage`` speaks to shared caches, which this is not.
    """
    directives = cache_control(headers.get("cache-control", ""))
    if "no-store" in directives or "no-cache" in directives:
        return 0.0
    lifetime = _max_age(directives)
    if lifetime is None and "expires" in headers:
        expires = http_date(headers["expires"])
        if expires is None:
            return 0.0  # RFC 9111 5.3: an invalid date, "0" above all, is in the past
        lifetime = expires - dated_wall(headers, received_wall)
    if lifetime is None:
        return None
    age, _, _ = headers.get("age", "").partition(",")  # RFC 9111 5.1: of several the first
    # RFC 9111 4.2.3: a cache that says nothing of an age shows it by an old Date all the same.
    apparent_age = max(0.0, received_wall - dated_wall(headers, received_wall))
    return lifetime - max(apparent_age, _seconds(age) or 0.0)


def retry_after_s(headers: Mapping[str, str], now_wall: float) -> float | None:
    """Return the seconds that ``Retry-After`` asks to wait, 0 or more; None where it is absent or unreadable.

    RFC 9110 10.2.3: seconds or a date. A date is one of the server's clock, so it counts from the answer's ``Date``.
    """
    value = headers.get("retry-after", "").strip()
    seconds = _seconds(value)
    if seconds is not None:
        return seconds
    date = http_date(value)
    return None if date is None else max(0.0, date - dated_wall(headers, now_wall))


def dated_wall(headers: Mapping[str, str], received_wall: float) -> float:
    """Return when an answer was made, by the server's clock; ``received_wall`` where it does not say."""
    date = http_date(headers.get("date", ""))
    return received_wall if date is None else date


def cache_control(value: str) -> dict[str, str]:
    """Return what a ``Cache-Control`` field says of max-age, no-cache and no-store: their values, the first of each.

    Names are in lower case; a value is empty where there is none.
    """
    directives: dict[str, str] = {}
    for directive in _DIRECTIVE.finditer(value):
        if directive[1]:  # else the value of another
            directives.setdefault(directive[1].lower(), directive[2] or directive[3] or "")
    return directives


def _max_age(directives: dict[str, str]) -> float | None:
    if "max-age" not in directives:
        return None
    # RFC 9111 4.2.1: freshness information that is invalid is read as stale.
    return _seconds(directives["max-age"]) or 0.0


def _seconds(value: str) -> float | None:
    value = value.strip()
    if not (value.isascii() and value.isdigit()):
        return None
    # RFC 9111 1.2.2: a number too large to hold stands for a very long time.
    return float(value) if _SECONDS.fullmatch(value) is not None else _FOREVER_S
