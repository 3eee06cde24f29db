"""What Scrapy's response to a request for robots.txt contains: header fields, body, and whether its status settles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse._http.body import BoundedBody
from politesse.fetch.options import MIN_BODY_BYTES
from politesse.robots.lexer import cut_at_line_end

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy.http import Headers, Response


def header_texts(headers: Headers) -> dict[str, str]:
    """Return the first value of each name, in lower case; Cache-Control combined (RFC 9110 5.3)."""
    texts = {
        name.decode("latin-1").lower(): [value.decode("utf-8", "surrogateescape") for value in headers.getlist(name)]
        for name in headers
    }
    return {
        name: ", ".join(values) if name == "cache-control" else values[0] for name, values in texts.items() if values
    }


def settles(status: int) -> bool:
    """Return whether a status decides what may be crawled; 206 is part of a file, 429 says nothing about it."""
    return status // 100 in {2, 4} and status not in {206, 429}


def decoded_body(response: Response, headers: Mapping[str, str]) -> tuple[bytes, bool]:
    """Return the body, decoded unless a middleware has done so, and whether it was cut; raises BodyError."""
    if "download_stopped" in response.flags:
        return cut_at_line_end(response.body, min(MIN_BODY_BYTES, len(response.body))), True
    empty = response.status == 204 or not response.body  # noqa: PLR2004
    body = BoundedBody("" if empty else headers.get("content-encoding", ""), MIN_BODY_BYTES)
    body.feed(response.body)
    return body.finish()
