"""Where the standards permit more than one answer: what else is right beside what ``Fault`` says, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from politesse.ports import FaultKind
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from politesse.testing import Fault

Opened = tuple[bool, bool]
"""Whether page and private page are open."""

EVERYTHING: Final[Opened] = (True, True)
BY_THE_FILE: Final[Opened] = (True, False)
NOTHING: Final[Opened] = (False, False)

_ALSO_RIGHT: Final[Mapping[str, frozenset[Opened]]] = {
    # A 206 that nobody asked for may hold all of the file, and an answer to a retry is an answer.
    "status-206": frozenset({BY_THE_FILE}),
    "5xx-flapping": frozenset({BY_THE_FILE}),
    # No standard says what a 304 means to who has no copy.
    "status-304-unasked": frozenset({EVERYTHING}),
    # RFC 9112 6.3: a user agent MAY discard what comes after the end, and what comes before says nothing.
    "content-length-too-short": frozenset({EVERYTHING}),
    # RFC 9110 8.4 permits a list of codings, and does not forbid to read what was labelled wrongly.
    "gzip-in-gzip": frozenset({BY_THE_FILE}),
    "gzip-that-is-none": frozenset({BY_THE_FILE}),
    # RFC 9309 2.3.1.5: what can be parsed of a file MUST be used.
    "gzip-cut": frozenset({BY_THE_FILE}),
    # RFC 9309 2.3: the file is UTF-8. What is not need not be read, and may be guessed.
    "utf-16": frozenset({EVERYTHING}),
    "utf-16-without-mark": frozenset({BY_THE_FILE}),
}


def right(fault: Fault) -> frozenset[Opened]:
    """Return all answers that the standards permit."""
    also = _ALSO_RIGHT.get(fault.name, frozenset())
    if fault.result is AccessResult.TOO_MANY_REQUESTS:
        also |= {EVERYTHING}  # RFC 9309 2.3.1.3 knows no exception for 429; RFC 6585 4 only says to wait
    elif fault.kind is FaultKind.REDIRECT_TARGET:
        also |= {EVERYTHING}  # RFC 9309 2.3.1.2 does not say where a redirect may lead
    elif fault.kind is FaultKind.REDIRECT_LIMIT:
        also |= {NOTHING, BY_THE_FILE}  # RFC 9309 2.3.1.2: at least five, and after them MAY, not MUST
    return also | {(fault.allows_page, fault.allows_private)}
