"""One request and its answer, as a log has them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer, as a server or a crawler has logged it.

    Example:
        >>> Exchange("https://example.com/busy", started=10.0, ended=10.5, status=429, retry_after_s=60).status
        429

    Attributes:
        url: the URL that was requested, robots.txt included.
        started: when the request began, as Unix time.
        ended: when its answer had been read, as Unix time; infinite while it is under way.
        status: of the answer; 0 where it is not known, or there was none.
        retry_after_s: the seconds that its Retry-After states; None without one.
        agent: the User-Agent of the request; None where it was not logged.
        location: the Location of the answer; None without one, or where it was not logged.
    """

    url: str
    started: float
    ended: float
    status: int = 200
    retry_after_s: float | None = None
    agent: str | None = None
    location: str | None = None
