"""What of a response is looked at, whichever client it came by."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict
from scrapy.http import Headers

from politesse.integrations._response import content_codings, headers_alone, may_have_page

HTML = {"content-type": "text/html"}


@pytest.mark.parametrize("status", [200, 203, 300, 403, 404, 410, 503])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_body_of_html_is_looked_at_whatever_the_status(method: str, status: int) -> None:
    assert may_have_page(method, status, HTML)


@pytest.mark.parametrize("status", [204, 304, 301, 302, 303, 307, 308])
def test_where_there_is_no_page_headers_say_all(status: int) -> None:
    assert not may_have_page("GET", status, HTML)


def test_head_has_no_body() -> None:
    assert not may_have_page("HEAD", 200, HTML)


def test_media_type_decides_whether_the_body_is_read() -> None:
    assert may_have_page("GET", 200, {})
    assert may_have_page("GET", 200, Headers({"Content-Type": "text/html"}))
    assert not may_have_page("GET", 200, Headers({"Content-Type": "image/gif"}))


def test_content_codings_of_all_lines_are_named() -> None:
    headers = CIMultiDict([("Content-Encoding", "GZIP, br"), ("content-encoding", " compress "), ("Via", "gzip")])
    assert content_codings(headers) == {"gzip", "br", "compress"}
    assert content_codings({"Content-Encoding": "identity"}) == set()
    assert content_codings(Headers({"Content-Encoding": ["gzip", "br"]})) == {"gzip", "br"}
    assert content_codings({}) == set()


def test_headers_alone_are_a_part_of_what_is_said() -> None:
    page = headers_alone({"X-Robots-Tag": "noindex, otherbot: nofollow"}, ("examplebot",))
    assert [one.name for one in page.statements] == ["noindex"]
    assert page.truncated
