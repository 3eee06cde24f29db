"""A request and its answer, as a server or a crawler logs them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer in the log of a server or a crawler.

    Example:
        >>> from politesse.testing import Exchange
        >>> Exchange("https://example.com/busy", started=10.0, ended=10.5, status=429, retry_after_s=60).status
        429

    Attributes:
        url: the requested URL, of a page or a robots.txt.
        started: when the request began, as Unix time.
        ended: when its answer had been read, as Unix time; infinite for a request under way.
        status: the status of the answer; 0 if it is unknown or missing.
        retry_after_s: the seconds of its Retry-After, or None.
        agent: the User-Agent of the request, or None if it was not logged.
        location: the Location of the answer, or None.
    """

    url: str
    started: float
    ended: float
    status: int = 200
    retry_after_s: float | None = None
    agent: str | None = None
    location: str | None = None
