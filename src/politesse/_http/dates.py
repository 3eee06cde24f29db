"""Parses the dates of servers. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_LENGTH: Final = 64  # the longest form of an HTTP date has 33 characters, that of ISO 8601 35


def http_date(value: str) -> float | None:
    """Return an HTTP date in any of its three forms (RFC 9110 5.6.7) as Unix time; None if it is invalid."""
    return _unix_time(parsedate_to_datetime, value)


def iso_date(value: str) -> float | None:
    """Return an ISO 8601 date as Unix time, in UTC if it names no zone; None if it is invalid."""
    return _unix_time(lambda text: datetime.fromisoformat(text.strip()), value)


def _unix_time(parse: Callable[[str], datetime], value: str) -> float | None:
    if not value or len(value) > _MAX_LENGTH or not value.isascii():
        return None
    try:
        date = parse(value)
        # RFC 9110 5.6.7: an HTTP date is in UTC, whether it says so or not.
        return (date.replace(tzinfo=UTC) if date.tzinfo is None else date).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
