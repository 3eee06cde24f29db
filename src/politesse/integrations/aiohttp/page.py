"""What a page that aiohttp has got says to crawlers itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse.errors import ConfigurationError
from politesse.integrations.pages import content_codings, headers_alone, may_have_page
from politesse.page import PageDirectives

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from politesse._gate.gatekeeper import AgentView


async def page_directives(response: ClientResponse, gate: AgentView) -> PageDirectives:
    """Return what ``response`` says to the crawler of ``gate``, in its headers and in the METAs of its HTML.

    For any response of aiohttp, whatever session it came by; a page that was denied has none. Call it before the
    response is released. The body is read where it may be HTML, by ``response.read()``, which keeps it: ``text()`` and
    the like work afterwards. All of it is read, as aiohttp does, and that ends the response's turn. Of HEAD, 204, 304
    and redirects, as those in ``response.history``, and of other media types only the headers are read.

    Without ``auto_decompress`` a compressed body is not read, and the result is ``truncated``; older aiohttps, as 3.12,
    do not tell that it is compressed, and then its METAs are missed. Whoever decodes bodies himself, or streams them,
    hands what he has to ``PageDirectives.from_response(response.headers, octets, gate.identity.tokens)``.

    Args:
        response: of aiohttp; its repeated headers are combined.
        gate: a Gatekeeper or one of its views: what names any of its product tokens counts, beside what names nobody.

    Raises:
        aiohttp.ClientError: what reading the body raises, and where the response was released before.
        TimeoutError: where the body does not come within the request's timeout.
        ConfigurationError: where some of the body was read from ``response.content`` before.
        ImportError: where there is a META to read, and the extra ``html`` is missing.
    """
    headers, tokens = response.headers, gate.identity.tokens
    if not may_have_page(response.method, response.status, headers):
        return PageDirectives.from_response(headers, None, tokens)
    body = await response.read()
    if len(body) < response.content.total_bytes:
        raise ConfigurationError(
            f"page_directives({str(response.url)!r:.200}): some of its body was read from response.content before; "
            "call it earlier, or hand what was read to PageDirectives.from_response"
        )
    # Counted where aiohttp decompresses; older ones count nothing.
    compressed = getattr(response.content, "total_compressed_bytes", 0) is None and content_codings(headers)
    if body and compressed:
        return headers_alone(headers, tokens)
    return PageDirectives.from_response(headers, body, tokens)
