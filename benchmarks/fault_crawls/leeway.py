"""The faults for which the standards permit more than one answer: the other answers, and the reason."""

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
    # An unrequested 206 may hold all of the file, and an answer to a retry is an answer.
    "status-206": frozenset({BY_THE_FILE}),
    "5xx-flapping": frozenset({BY_THE_FILE}),
    # No standard defines a 304 for a client without a copy.
    "status-304-unasked": frozenset({EVERYTHING}),
    # RFC 9112 6.3: a user agent MAY discard octets after the end; octets before the response have no rule.
    "content-length-too-short": frozenset({EVERYTHING}),
    # RFC 9110 8.4 permits a list of codings, and does not forbid to read a body with a wrong label.
    "gzip-in-gzip": frozenset({BY_THE_FILE}),
    "gzip-that-is-none": frozenset({BY_THE_FILE}),
    # RFC 9309 2.3.1.5: the parsable part of a file MUST be used.
    "gzip-cut": frozenset({BY_THE_FILE}),
    # RFC 9309 2.3: the file is UTF-8. Other octets need not be read, and their meaning may be guessed.
    "utf-16": frozenset({EVERYTHING}),
    "utf-16-without-mark": frozenset({BY_THE_FILE}),
}


def right(fault: Fault) -> frozenset[Opened]:
    """Return all answers that the standards permit."""
    also = _ALSO_RIGHT.get(fault.name, frozenset())
    if fault.result is AccessResult.TOO_MANY_REQUESTS:
        also |= {EVERYTHING}  # RFC 9309 2.3.1.3 knows no exception for 429; RFC 6585 4 only says to wait
    elif fault.kind is FaultKind.REDIRECT_TARGET:
        also |= {EVERYTHING}  # RFC 9309 2.3.1.2 does not restrict the target of a redirect
    elif fault.kind is FaultKind.REDIRECT_LIMIT:
        also |= {NOTHING, BY_THE_FILE}  # RFC 9309 2.3.1.2: at least five, and after them MAY, not MUST
    return also | {(fault.allows_page, fault.allows_private)}
