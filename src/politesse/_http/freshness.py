"""Calculates the freshness of a response for a private cache (RFC 9111), and parses dates. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from politesse.ports import FetchResponse, FetchResult, Validators

# RFC 9111 5.2: a directive is a token, and may have a value, quoted or not. The pattern also matches the values of
# other directives, to skip them. The time is linear: 64 KiB, the limit of all headers, take at most about 5 ms.
_VALUE: Final = r"=[ \t]*(?:\"([^\"]*)\"|([^ \t,]*))"
_DIRECTIVE = re.compile(
    rf"(?<![A-Za-z0-9_-])(max-age|no-cache|no-store)(?![A-Za-z0-9_-])(?:[ \t]*{_VALUE})?|{_VALUE}",
    re.ASCII | re.IGNORECASE,
)
_SECONDS = re.compile(r"[0-9]{1,10}")
_DECIMAL = re.compile(r"[0-9]+(?:\.[0-9]*)?")
# The comma within an HTTP date is followed by a day and a month; any other comma separates two values.
_COMMA = re.compile(r",(?![ \t]*[0-9]{1,2}[ -][A-Za-z])")
_MAX_VALUES: Final = 16
_FOREVER_S: Final = 9_999_999_999.0
_MAX_DATE: Final = 64  # the longest HTTP date has 33 characters, the longest ISO 8601 date 35


def freshness_lifetime_s(headers: Mapping[str, str], received_wall: float) -> float | None:
    """Return how long the response is still fresh, in seconds; None if its headers do not state this.

    The names of ``headers`` are in lower case. RFC 9111 4.2.1: ``max-age`` has precedence over ``Expires`` minus
    ``Date``. RFC 9111 5.2.2: ``no-store`` and ``no-cache`` mean 0. RFC 9111 4.2.3: the age is subtracted. The result is
    0 or negative for a stale response. ``s-maxage`` applies to shared caches only, and is ignored.
    """
    directives = cache_control(headers["cache-control"]) if "cache-control" in headers else {}
    if "no-store" in directives or "no-cache" in directives:
        return 0.0
    if "max-age" in directives:
        lifetime = _seconds(directives["max-age"]) or 0.0  # RFC 9111 4.2.1: invalid freshness information means stale
    elif "expires" in headers:
        expires = readings(headers["expires"], http_date)
        if not expires:
            return 0.0  # RFC 9111 5.3: an invalid date, "0" in particular, is in the past
        lifetime = expires[0] - dated_wall(headers, received_wall)  # RFC 9111 4.2.1: the first of several counts
    else:
        return None
    age, _, _ = headers.get("age", "").partition(",")  # RFC 9111 5.1: the first of several values counts
    # RFC 9111 4.2.3: without an Age header, the apparent age follows from Date.
    apparent_age = max(0.0, received_wall - dated_wall(headers, received_wall))
    return lifetime - max(apparent_age, _seconds(age) or 0.0)


def retry_after_s(headers: Mapping[str, str], now_wall: float) -> float | None:
    """Return the seconds to wait by ``Retry-After``, 0 or more; None if the header is absent or invalid.

    RFC 9110 10.2.3: the value is seconds or a date. A date is by the server's clock, so it is compared with the
    response's ``Date``. Decimals count, and the longest of several waits.
    """
    value = headers.get("retry-after", "")
    dates = readings(value, http_date)
    waits = [*readings(value, decimal), *(max(0.0, date - dated_wall(headers, now_wall)) for date in dates)]
    return max(waits, default=None)


def dated_wall(headers: Mapping[str, str], received_wall: float) -> float:
    """Return the ``Date`` of a response, by the server's clock; ``received_wall`` if the header is missing.

    The earliest of several dates counts, because it makes waits longer and copies older.
    """
    return min(readings(headers.get("date", ""), http_date), default=received_wall)


def readings(value: str, read: Callable[[str], float | None]) -> list[float]:
    """Return each value of a field that should have one value, such as ``2814, 2``; skip the unreadable ones."""
    found = map(read, _COMMA.split(value, _MAX_VALUES)) if value else ()
    return [reading for reading in found if reading is not None]


def decimal(text: str) -> float | None:
    """Return a number with or without decimals; None if it is invalid."""
    text = text.strip()
    return min(float(text), _FOREVER_S) if _DECIMAL.fullmatch(text) is not None else None


def varies_by(headers: Mapping[str, str], name: str) -> bool:
    """Return whether ``Vary`` names a request header, or ``*`` for all headers (RFC 9110 12.5.5)."""
    named = {item.strip().lower() for item in headers.get("vary", "").split(",")}
    return not named.isdisjoint({name, "*"})


def names_another(result: FetchResult, validators: Validators) -> bool:
    """Return whether an answer is a 304 whose validators differ from ``validators``, which the request has sent.

    RFC 9111 4.3.4: a 304 with a validator updates only the response that has this validator. Entity tags are compared
    as RFC 9110 8.8.3.2 does for If-None-Match (weak comparison): a server that compresses dynamically makes a strong
    tag weak. If the request could not send the tag back unchanged, the tag counts as different. If the 304 has no
    entity tag, Last-Modified is compared, because some servers answer 304 after an older version has replaced the file.
    """
    if not (isinstance(result, FetchResponse) and result.status == HTTPStatus.NOT_MODIFIED and result.conditional):
        return False
    etag, modified = result.headers.get("etag", ""), result.headers.get("last-modified", "")
    if etag:
        return etag.removeprefix("W/") != validators.etag.removeprefix("W/")
    return bool(modified and validators.last_modified) and modified != validators.last_modified


def cache_control(value: str) -> dict[str, str]:
    """Return the max-age, no-cache and no-store of a ``Cache-Control`` field: the first value of each.

    Names are in lower case; a missing value is empty.
    """
    directives: dict[str, str] = {}
    for directive in _DIRECTIVE.finditer(value):
        if directive[1]:  # otherwise this is the value of another directive
            directives.setdefault(directive[1].lower(), directive[2] or directive[3] or "")
    return directives


def _seconds(value: str) -> float | None:
    value = value.strip()
    if not (value.isascii() and value.isdigit()):
        return None
    # RFC 9111 1.2.2: a number that overflows counts as the largest number.
    return float(value) if _SECONDS.fullmatch(value) is not None else _FOREVER_S


def http_date(value: str) -> float | None:
    """Return an HTTP date in any of its three forms (RFC 9110 5.6.7) as Unix time; None if it is invalid."""
    return _unix_time(parsedate_to_datetime, value)


def iso_date(value: str) -> float | None:
    """Return an ISO 8601 date as Unix time, in UTC if it names no zone; None if it is invalid."""
    return _unix_time(lambda text: datetime.fromisoformat(text.strip()), value)


def _unix_time(parse: Callable[[str], datetime], value: str) -> float | None:
    if not value or len(value) > _MAX_DATE or not value.isascii():
        return None
    try:
        date = parse(value)
        # RFC 9110 5.6.7: an HTTP date is in UTC, even without a zone.
        return (date.replace(tzinfo=UTC) if date.tzinfo is None else date).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
