"""A server whose pages say something to crawlers, for the tests of what the integrations read of them."""

import gzip
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from politesse.page import PageDirectives
from tests.support.sites import Site

HEAD: Final = '<meta name="robots" content="nofollow">'
PADDING: Final = "<!-- " + "so that its octets come in pieces " * 4_000 + " -->"


@dataclass
class Answer:
    """What the server says of one path.

    Attributes:
        head: of its HTML.
        tags: the lines of X-Robots-Tag.
        content_type: None for none.
        coding: ``gzip`` to compress it, anything else only names it.
        status: with 302, a Location is sent that leads to ``/page``.
    """

    head: str = HEAD
    tags: Sequence[str] = ("noindex",)
    content_type: str | None = "text/html"
    coding: str = ""
    status: int = 200

    def response(self) -> web.Response:
        body = f"<!DOCTYPE html><html><head>{self.head}{PADDING}</head><body>the page</body></html>".encode()
        response = web.Response(status=self.status, body=gzip.compress(body) if self.coding == "gzip" else body)
        if self.content_type is None:
            # aiohttp sends application/octet-stream where nothing is set.
            response.headers["Content-Type"] = "*/*"
        else:
            response.headers["Content-Type"] = self.content_type
        for tag in self.tags:
            response.headers.add("X-Robots-Tag", tag)
        if self.coding:
            response.headers["Content-Encoding"] = self.coding
        if self.status == 302:
            response.headers["Location"] = "/page"
        return response


@dataclass
class Pages(Site):
    """A server on loopback; a path that is not among ``answers`` has the usual answer."""

    answers: dict[str, Answer] = field(default_factory=dict)

    async def page(self, request: web.Request) -> web.Response:
        return self.answers.get(request.path, Answer()).response()


def said(page: PageDirectives) -> list[tuple[str, int, str]]:
    """Return where each directive stands, and which it is."""
    return [(one.field, one.number, one.name) for one in page.statements]


HEADER: Final = ("X-Robots-Tag", 1, "noindex")
BOTH: Final = [HEADER, ("META robots", 1, "nofollow")]
