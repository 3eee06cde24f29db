"""The directives of a page, read from an aiohttp response."""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse.errors import ConfigurationError
from politesse.integrations._request import content_codings, headers_alone, may_have_page
from politesse.page import PageDirectives

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from politesse._gate.view import AgentView


async def page_directives(response: ClientResponse, gate: AgentView) -> PageDirectives:
    """Return the directives for the crawler of ``gate`` in the headers of ``response`` and in the METAs of its HTML.

    The function takes any response of aiohttp, from any session; call it before the response is released. If the body
    may be HTML, ``response.read()`` reads and keeps it, so ``text()`` works afterwards. The turn of the response ends
    with that read. For HEAD, 204, 304, redirects (including ``response.history``) and other media types, only the
    headers are read.

    Without ``auto_decompress`` a compressed body is not read, and the result is ``truncated``; aiohttp 3.12 does not
    report that a body is compressed, so the METAs are missed. If you decode or stream bodies yourself, pass your octets
    to ``PageDirectives.from_response(response.headers, octets, gate.identity.tokens)``.

    Args:
        response: a response of aiohttp; repeated headers are combined.
        gate: a Gatekeeper or one of its views. Its product tokens select the directives that count, beside the
            directives for all crawlers.

    Raises:
        aiohttp.ClientError: the body cannot be read, or the response was released before.
        TimeoutError: the body does not come within the request's timeout.
        ConfigurationError: part of the body was read from ``response.content`` before.
        ImportError: the page has a META, and the extra ``html`` is not installed.
    """
    headers, tokens = response.headers, gate.identity.tokens
    if not may_have_page(response.method, response.status, headers):
        return PageDirectives.from_response(headers, None, tokens)
    body = await response.read()
    if len(body) < response.content.total_bytes:
        raise ConfigurationError(
            f"page_directives({str(response.url)!r:.200}): part of the body was read from response.content before; "
            "call it earlier, or pass the whole body to PageDirectives.from_response"
        )
    # This count is None if aiohttp does not decompress the body; old versions of aiohttp have no such count.
    compressed = getattr(response.content, "total_compressed_bytes", 0) is None and content_codings(headers)
    if body and compressed:
        return headers_alone(headers, tokens)
    return PageDirectives.from_response(headers, body, tokens)
