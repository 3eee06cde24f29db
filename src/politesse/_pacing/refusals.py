"""What the status and the headers of an answer to a page mean for its host. Pure; the one table of refusals.

    answer                                                means    what follows (``backoff.py``)
    429, 502, 503, 504                                    BUSY     the host is closed for the backoff
    any other 5xx                                         ERROR    the delay doubles; the third in a row counts as BUSY
    any status with ``cf-mitigated: challenge``           REFUSED  the host is closed for ``refused_min_s``, doubled
    402 with ``crawler-price``                            REFUSED  the same
    401, 403                                              DENIED   the tenth without a success (``refused_after``), and
                                                                   each one after it, counts as REFUSED
    2xx, 304                                              SUCCESS  halves the backoff; ends a row of DENIED
    any other status                                      OTHER    halves the backoff

A redirect is no success: a host may redirect every page, and deny the target. Most sites deny some pages, so single
answers of 401 and 403 close no host. A challenge, such as a CAPTCHA, asks whether a person is there. It is never
evaded: the host gets no request while it is closed. ``Retry-After`` counts with every status.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from politesse._base.text import printable
from politesse._http.ratelimit import QUOTA_FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping

_PRICE: Final = "crawler-price"
_MITIGATED: Final = "cf-mitigated"
_AUTHENTICATE: Final = "www-authenticate"

PACE_HEADERS: Final = QUOTA_FIELDS | {"retry-after", _PRICE, _MITIGATED, _AUTHENTICATE}
"""The headers that may slow or close a host, in lower case; an answer without them needs no further reading."""

BUSY_STATUSES: Final = frozenset({429, 502, 503, 504})
"""The statuses by which a host says that it has too much to do now."""

_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500
_DENIALS: Final = frozenset({401, 403})
_PAYMENT_REQUIRED: Final = 402
_SUCCESSES: Final = frozenset({*range(200, 300), 304})
_SERVER_ERRORS: Final = range(_SERVER_ERROR, 600)
_MAX_VALUE: Final = 100


class Meaning(Enum):
    """What an answer means for its host; see the table of the module."""

    SUCCESS = auto()
    OTHER = auto()
    ERROR = auto()
    BUSY = auto()
    DENIED = auto()
    REFUSED = auto()


def meaning_of(status: int, headers: Mapping[str, str]) -> Meaning:
    """Return the meaning of an answer; the names of ``headers`` are in lower case."""
    if headers and (_is_challenge(headers) or (status == _PAYMENT_REQUIRED and _PRICE in headers)):
        return Meaning.REFUSED
    if status in _SUCCESSES:
        return Meaning.SUCCESS
    if status in BUSY_STATUSES:
        return Meaning.BUSY
    if status in _DENIALS:
        return Meaning.DENIED
    return Meaning.ERROR if status in _SERVER_ERRORS else Meaning.OTHER


def is_served(status: int) -> bool:
    """Return whether the server did the work that was asked for, so that the response time counts."""
    return status < _SERVER_ERROR and status != _TOO_MANY


def may_close(status: int, headers: Mapping[str, str]) -> bool:
    """Return whether an answer may close its host, by itself or after others."""
    return meaning_of(status, headers) not in (Meaning.SUCCESS, Meaning.OTHER) or not PACE_HEADERS.isdisjoint(headers)


def described_refusal(status: int, headers: Mapping[str, str]) -> str:
    """Return what an answer says about its refusal, such as ``402, crawler-price: USD 0.01``."""
    words = [str(status)]
    if _is_challenge(headers):
        words.append(f"{_MITIGATED}: challenge")
    if _PRICE in headers:
        words.append(f"{_PRICE}: {_shown(headers[_PRICE])}")
    if (license_ := headers.get(_AUTHENTICATE, "")).lower().startswith("license"):
        words.append(f"WWW-Authenticate: {_shown(license_)}")
    return ", ".join(words)


def _is_challenge(headers: Mapping[str, str]) -> bool:
    return headers.get(_MITIGATED, "").strip().lower() == "challenge"


def _shown(value: str) -> str:
    return printable(value[:_MAX_VALUE])
