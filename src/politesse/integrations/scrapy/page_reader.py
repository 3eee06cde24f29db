"""The directives of a page, read from a Scrapy response."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from politesse._text import printable
from politesse.integrations._response import content_codings, headers_alone, may_have_page
from politesse.page import PageDirectives
from politesse.page.headers import header_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy import Request
    from scrapy.http import Response

logger = logging.getLogger(__name__)

PAGE: Final = "politesse_page"
"""The key of a response's PageDirectives in its meta."""

_CUT: Final = frozenset({"dataloss", "download_stopped", "partial"})
"""The flags of a response whose body is incomplete."""


class PageReader:
    """Reads responses, and logs once if METAs cannot be read."""

    def __init__(self) -> None:
        self._warned = False

    def read(self, request: Request, response: Response, tokens: Sequence[str]) -> PageDirectives:
        """Return what ``response`` says to the crawler with these tokens; never raises, whatever its content is."""
        headers = header_pairs(response.headers)
        if not response.body or not may_have_page(request.method, response.status, headers):
            return PageDirectives.from_response(headers, None, tokens)
        if content_codings(headers):
            return headers_alone(headers, tokens)  # HttpCompressionMiddleware removes the header when it decodes
        try:
            page = PageDirectives.from_response(headers, response.body, tokens)
        except ImportError as error:
            self._warn(error)
            return headers_alone(headers, tokens)
        return page if _CUT.isdisjoint(response.flags) else replace(page, truncated=True)

    def _warn(self, error: ImportError) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "The METAs of pages are not read, and meta[%r] has only the directives of the headers: %s. "
                "POLITESSE_PAGE_DIRECTIVES = False turns it off.",
                PAGE,
                printable(str(error)),
            )
