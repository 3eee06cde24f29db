"""The freshness of an HTTP response: the part of RFC 9111 that a private cache of robots.txt needs. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from politesse._http.dates import http_date

if TYPE_CHECKING:
    from collections.abc import Mapping

# RFC 9111 5.2: a token, and for some a value, quoted or not. The values of other directives are matched to be skipped.
# Linear: 64 KiB, the limit of all headers, take at most about 5 ms.
_VALUE: Final = r"=[ \t]*(?:\"([^\"]*)\"|([^ \t,]*))"
_DIRECTIVE = re.compile(
    rf"(?<![A-Za-z0-9_-])(max-age|no-cache|no-store)(?![A-Za-z0-9_-])(?:[ \t]*{_VALUE})?|{_VALUE}",
    re.ASCII | re.IGNORECASE,
)
_SECONDS = re.compile(r"[0-9]{1,10}")
_FOREVER_S: Final = 9_999_999_999.0


def freshness_lifetime_s(headers: Mapping[str, str], received_wall: float) -> float | None:
    """Return for how many more seconds the response is fresh; None if its headers do not say.

    The names of ``headers`` are in lower case. RFC 9111 4.2.1: ``max-age`` has precedence over ``Expires`` minus
    ``Date``; 5.2.2: ``no-store`` and ``no-cache`` mean 0; 4.2.3: the age is subtracted. The result is 0 or negative for
    a stale response. ``s-maxage`` applies to shared caches only, and is ignored.
    """
    directives = cache_control(headers.get("cache-control", ""))
    if "no-store" in directives or "no-cache" in directives:
        return 0.0
    lifetime = _max_age(directives)
    if lifetime is None and "expires" in headers:
        expires = http_date(headers["expires"])
        if expires is None:
            return 0.0  # RFC 9111 5.3: an invalid date, "0" in particular, is in the past
        lifetime = expires - dated_wall(headers, received_wall)
    if lifetime is None:
        return None
    age, _, _ = headers.get("age", "").partition(",")  # RFC 9111 5.1: the first of several counts
    # RFC 9111 4.2.3: without an Age header, the apparent age follows from Date.
    apparent_age = max(0.0, received_wall - dated_wall(headers, received_wall))
    return lifetime - max(apparent_age, _seconds(age) or 0.0)


def retry_after_s(headers: Mapping[str, str], now_wall: float) -> float | None:
    """Return the seconds to wait by ``Retry-After``, 0 or more; None if it is absent or invalid.

    RFC 9110 10.2.3: seconds or a date. A date is on the server's clock, so it is relative to the response's ``Date``.
    """
    value = headers.get("retry-after", "").strip()
    seconds = _seconds(value)
    if seconds is not None:
        return seconds
    date = http_date(value)
    return None if date is None else max(0.0, date - dated_wall(headers, now_wall))


def dated_wall(headers: Mapping[str, str], received_wall: float) -> float:
    """Return the ``Date`` of a response, by the server's clock; ``received_wall`` if there is none."""
    date = http_date(headers.get("date", ""))
    return received_wall if date is None else date


def cache_control(value: str) -> dict[str, str]:
    """Return the max-age, no-cache and no-store of a ``Cache-Control`` field: the first value of each.

    Names are in lower case; a missing value is empty.
    """
    directives: dict[str, str] = {}
    for directive in _DIRECTIVE.finditer(value):
        if directive[1]:  # otherwise it is the value of another directive
            directives.setdefault(directive[1].lower(), directive[2] or directive[3] or "")
    return directives


def _max_age(directives: dict[str, str]) -> float | None:
    if "max-age" not in directives:
        return None
    # RFC 9111 4.2.1: invalid freshness information means stale.
    return _seconds(directives["max-age"]) or 0.0


def _seconds(value: str) -> float | None:
    value = value.strip()
    if not (value.isascii() and value.isdigit()):
        return None
    # RFC 9111 1.2.2: an overflowing number stands for the largest one.
    return float(value) if _SECONDS.fullmatch(value) is not None else _FOREVER_S
