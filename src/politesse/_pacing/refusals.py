"""What an answer to a page means for its host, by status and headers. Pure; the time is an argument.

    answer                                                means    what follows (``demand.py``)
    429, 502, 503, 504                                    BUSY     the host is closed for the backoff
    any other 5xx                                         ERROR    the delay doubles; the third in a row counts as BUSY
    any status with a challenge: ``cf-mitigated:          REFUSED  the host is closed for ``refused_min_s``, doubled
    challenge``, or ``x-amzn-waf-action: challenge`` or
    ``captcha``
    402 with ``crawler-price``                            REFUSED  the same
    401, 403                                              DENIED   each counts as REFUSED from the tenth without a
                                                                   success on (``refused_after``), or while an earlier
                                                                   refusal is remembered
    2xx, 304                                              SUCCESS  halves the backoff; the count of DENIED restarts
    any other status                                      OTHER    halves the backoff

A redirect does not count as SUCCESS: a host may redirect every page, and deny the target. Most sites deny some pages,
so single answers of 401 and 403 do not close the host. A challenge, such as a CAPTCHA, tests whether a person makes the
request. politesse never evades a challenge: a closed host gets no request. A ``Retry-After`` closes the host, whatever
the status is.

``meaning_of`` and ``Demand`` implement this table, the only one for pages. For answers to robots.txt, see
``FETCH_CLOSING`` (``demand.py``) and ``_cache/outcome.py``; ``challenge_of`` finds the challenges in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from politesse._base.text import printable
from politesse._http.ratelimit import QUOTA_FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping

_PRICE: Final = "crawler-price"
# Cloudflare, "Detect a Challenge Page response"; AWS WAF, "CAPTCHA and Challenge actions".
CHALLENGES: Final = {
    "cf-mitigated": frozenset({"challenge"}),
    "x-amzn-waf-action": frozenset({"challenge", "captcha"}),
}
"""The headers that may be a challenge, in lower case, and their values that are one."""

_AUTHENTICATE: Final = "www-authenticate"

PACE_HEADERS: Final = QUOTA_FIELDS | {"retry-after", _PRICE, *CHALLENGES, _AUTHENTICATE}
"""The headers that may slow or close a host, in lower case; an answer without them needs no further reading."""

BUSY_STATUSES: Final = frozenset({429, 502, 503, 504})
"""The statuses of an answer that means BUSY."""

_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500
_DENIALS: Final = frozenset({401, 403})
_PAYMENT_REQUIRED: Final = 402
_SUCCESSES: Final = frozenset({*range(200, 300), 304})
_SERVER_ERRORS: Final = range(_SERVER_ERROR, 600)

PLAIN: Final = frozenset(range(100, _SERVER_ERROR)) - _DENIALS - {_TOO_MANY}
"""The statuses of answers that leave a host as it is unless its headers, or an earlier answer, say otherwise."""

_MAX_VALUE: Final = 100


class Meaning(Enum):
    """The meaning of an answer for its host; see the table of the module."""

    SUCCESS = auto()
    OTHER = auto()
    ERROR = auto()
    BUSY = auto()
    DENIED = auto()
    REFUSED = auto()


def meaning_of(status: int, headers: Mapping[str, str]) -> Meaning:
    """Return the meaning of an answer; the names of ``headers`` are in lower case."""
    if headers and (challenge_of(headers) or (status == _PAYMENT_REQUIRED and _PRICE in headers)):
        return Meaning.REFUSED
    if status in _SUCCESSES:
        return Meaning.SUCCESS
    if status in BUSY_STATUSES:
        return Meaning.BUSY
    if status in _DENIALS:
        return Meaning.DENIED
    return Meaning.ERROR if status in _SERVER_ERRORS else Meaning.OTHER


@dataclass(frozen=True, slots=True)
class IgnoredHeader:
    """A header that is not obeyed literally, because its value is unreadable, too short or too long.

    Attributes:
        field: the name of the header, in lower case.
        value: the first 100 characters of its value, printable.
        applied_s: the time that is applied in place of the value, in seconds, or None if the header has no effect.
        asked_s: the time for which the value asks, in seconds, or None if it is unreadable.
    """

    field: str
    value: str
    applied_s: float | None
    asked_s: float | None = None


def is_served(status: int) -> bool:
    """Return whether the server has processed the request, so that the response time counts."""
    return status < _SERVER_ERROR and status != _TOO_MANY


def described_refusal(status: int, headers: Mapping[str, str]) -> str:
    """Return the status and the headers by which an answer refuses, such as ``402, crawler-price: USD 0.01``."""
    words = [str(status)]
    if challenge := challenge_of(headers):
        words.append(challenge)
    if _PRICE in headers:
        words.append(f"{_PRICE}: {shown(headers[_PRICE])}")
    if (license_ := headers.get(_AUTHENTICATE, "")).lower().startswith("license"):
        words.append(f"WWW-Authenticate: {shown(license_)}")
    return ", ".join(words)


def challenge_of(headers: Mapping[str, str]) -> str:
    """Return the header by which an answer is a challenge, such as ``cf-mitigated: challenge``; empty if it is none."""
    for name, challenges in CHALLENGES.items():
        for action in headers.get(name, "").split(","):
            if action.strip().lower() in challenges:
                return f"{name}: {action.strip().lower()}"
    return ""


def shown(value: str) -> str:
    """Return the first 100 characters of the value of a header, printable."""
    return printable(value[:_MAX_VALUE])
