"""What a page says to crawlers itself, of a response as Scrapy has it."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from politesse._text import printable
from politesse.integrations.pages import content_codings, headers_alone, may_have_page
from politesse.page import PageDirectives

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy import Request
    from scrapy.http import Response

logger = logging.getLogger(__name__)

PAGE: Final = "politesse_page"
"""In the meta of a response: its PageDirectives."""

_CUT: Final = frozenset({"dataloss", "download_stopped", "partial"})
"""The flags of a response whose body is not whole."""


class PageReader:
    """Reads responses; tells once where it cannot."""

    def __init__(self) -> None:
        self._told = False

    def read(self, request: Request, response: Response, tokens: Sequence[str]) -> PageDirectives:
        """Return what ``response`` says to the crawler with these tokens; never raises on its content."""
        headers = response.headers
        if not response.body or not may_have_page(request.method, response.status, headers):
            return PageDirectives.from_response(headers, None, tokens)
        if content_codings(headers):
            return headers_alone(headers, tokens)  # HttpCompressionMiddleware takes the header away when it decodes
        try:
            page = PageDirectives.from_response(headers, response.body, tokens)
        except ImportError as error:
            self._tell(error)
            return headers_alone(headers, tokens)
        return page if _CUT.isdisjoint(response.flags) else replace(page, truncated=True)

    def _tell(self, error: ImportError) -> None:
        if not self._told:
            self._told = True
            logger.warning(
                "The METAs of pages are not read, and meta[%r] tells what the headers say alone: %s. "
                "POLITESSE_PAGE_DIRECTIVES = False reads nothing.",
                PAGE,
                printable(str(error)),
            )
