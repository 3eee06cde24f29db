"""Dates as servers write them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def http_date(value: str) -> float | None:
    """Return an HTTP date in any of its three forms (RFC 9110 5.6.7) as Unix time; None where it is none."""
    if not value or len(value) > 64 or not value.isascii():  # noqa: PLR2004 - the longest form has 33 characters
        return None
    try:
        date = parsedate_to_datetime(value)
        # RFC 9110 5.6.7: an HTTP date is in UTC, with or without saying so.
        return (date.replace(tzinfo=UTC) if date.tzinfo is None else date).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def iso_date(value: str) -> float | None:
    """Return a date in ISO 8601, in UTC unless it says otherwise, as Unix time; None where it is none."""
    if len(value) > 64 or not value.isascii():  # noqa: PLR2004 - the longest form has 35 characters
        return None
    try:
        date = datetime.fromisoformat(value.strip())
        return (date.replace(tzinfo=UTC) if date.tzinfo is None else date).timestamp()
    except (ValueError, OverflowError):
        return None
