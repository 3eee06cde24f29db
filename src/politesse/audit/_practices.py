"""The crawler best practices (draft-illyes-webbotauth-cbcp) that a log can show."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from politesse.audit._requests import Request

_ERRORS_IN_A_ROW: Final = 3
_MAX_SHARE: Final = 0.1
_ENOUGH: Final = 20  # requests of a host before a share of them means something
_MAX_PAGES: Final = 10_000  # of a host, whose repetition is noticed
_READS: Final = frozenset({"GET", "HEAD"})


class Practice(StrEnum):
    """The practices that a crawler lacks."""

    NO_URL = "User-Agent without the URL of a page about the crawler"
    NO_BACK_OFF = "page requested too soon after three server errors in a row"
    METHODS = "methods other than GET and HEAD are frequent"
    NO_CACHE = "pages are often fetched again, and never with a condition"


class HostPractices:
    """Judges the practices of a crawler at a host.

    Args:
        back_off_s: the least time until the next page after three server errors in a row.
    """

    def __init__(self, back_off_s: float) -> None:
        self._back_off_s = back_off_s
        self._errors = 0
        self._ended = 0.0
        self._conditional = self._unnamed = False
        self._pages: set[int] = set()
        self._shares: dict[Practice, tuple[int, Request]] = {}

    def judge(self, request: Request) -> Iterator[tuple[Practice, str, float]]:
        """Yield the practice, the detail and the missing seconds of each fault of a request."""
        exchange, agent = request.exchange, request.exchange.agent
        if agent is not None and "://" not in agent and not self._unnamed:
            self._unnamed = True  # told once for a host
            yield Practice.NO_URL, f"{agent!r:.100}", 0.0
        gap_s = exchange.started - self._ended
        if self._errors >= _ERRORS_IN_A_ROW and gap_s < self._back_off_s:
            yield Practice.NO_BACK_OFF, f"{gap_s:.3f} s after, not {self._back_off_s:g}", self._back_off_s - gap_s
        self._errors = self._errors + 1 if exchange.status // 100 == 5 else 0  # noqa: PLR2004 - RFC 9110 15.6
        self._ended = exchange.ended
        self._conditional = self._conditional or exchange.status == 304  # noqa: PLR2004 - Not Modified
        if request.method not in _READS:
            self._count(Practice.METHODS, request)
        elif exchange.status == 200:  # noqa: PLR2004 - OK
            page = hash(exchange.url)
            if page in self._pages:
                self._count(Practice.NO_CACHE, request)
            elif len(self._pages) < _MAX_PAGES:
                self._pages.add(page)

    def conclude(self, requests: int) -> Iterator[tuple[Practice, Request, str]]:
        """Yield the practice, an example and the detail of each fault that only all requests of the host show."""
        for practice, (count, example) in self._shares.items():
            excused = practice is Practice.NO_CACHE and self._conditional
            if requests >= _ENOUGH and count > _MAX_SHARE * requests and not excused:
                yield practice, example, f"{count:,} of {requests:,} requests"

    def _count(self, practice: Practice, request: Request) -> None:
        count, example = self._shares.get(practice, (0, request))
        self._shares[practice] = count + 1, example
