"""The parts that all integrations share: checks of requests, and of responses."""

from pathlib import Path

import pytest
from multidict import CIMultiDict
from scrapy.http import Headers

from politesse import (
    CacheOptions,
    ConfigurationError,
    FetchOptions,
    Gatekeeper,
    InvalidURL,
    PacingOptions,
    PoliteSession,
)
from politesse.integrations._request import (
    check_gate,
    check_sent,
    content_codings,
    headers_alone,
    may_have_page,
    other_site,
)

URL = "https://example.com/page"
UA = "ExampleBot/1.0 (+https://example.com/bot)"


@pytest.mark.parametrize("path", ["/a/../b", "/.", "/a/%2e%2E", "/a/.%2e/b", "/a/%2E/"])
def test_path_with_dot_segments_is_refused(path: str) -> None:
    with pytest.raises(InvalidURL, match="would be sent with dot segments; resolve them first"):
        check_sent(f"https://example.com{path}", path, ())


@pytest.mark.parametrize("path", ["", "/", "/a..b/.c", "/a%2Fb", "/%20"])
def test_path_without_dot_segments_is_sent(path: str) -> None:
    check_sent(f"https://example.com{path}", path, ("EXAMPLE.com:443",))


def test_host_header_of_another_site_is_refused() -> None:
    with pytest.raises(InvalidURL, match=r"Host header 'other\.example': the rules of that site would apply"):
        check_sent(URL, "/page", ("example.com", "other.example"))


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ((), None),
        (("example.com",), None),
        (("example.com:443", "EXAMPLE.COM"), None),
        (("example.com:8443",), "example.com:8443"),
        (("example.com", "other.example"), "other.example"),
        (("user@example.com",), "user@example.com"),
        (("example.com/x",), "example.com/x"),
        (("",), ""),
    ],
)
def test_first_host_header_of_another_site_is_found(hosts: tuple[str, ...], expected: str | None) -> None:
    assert other_site(URL, hosts) == expected
    assert other_site(URL, hosts, "example.com") == expected


async def test_anything_but_a_gate_is_refused() -> None:
    async with Gatekeeper(UA) as gate:
        check_gate(gate, "Client")
        check_gate(gate.agent(tokens="ExampleBot"), "Client")
    with pytest.raises(ConfigurationError, match=r"Client\(42\): give a Gatekeeper"):
        check_gate(42, "Client")


async def test_session_without_a_name_says_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match=r"PoliteSession\(\): .*PoliteSession\('ExampleBot/1\.0 .*'\)"):
        PoliteSession()


async def test_options_of_the_gate_need_a_user_agent() -> None:
    async with Gatekeeper(UA) as gate:
        for options in ({"fleet": "redis://localhost"}, {"store": "robots.db"}, {"pacing": PacingOptions()}):
            with pytest.raises(ConfigurationError, match=f"{next(iter(options))}=: give it to the Gatekeeper"):
                PoliteSession(gate, **options)


async def test_options_of_the_gate_work_as_for_a_gatekeeper(tmp_path: Path) -> None:
    pacing, cache, fetch = PacingOptions(min_delay_s=7.0), CacheOptions(), FetchOptions(max_body_bytes=600_000)
    path = tmp_path / "robots.db"
    async with PoliteSession(UA, store=path, pacing=pacing, cache=cache, fetch=fetch) as web:
        assert not await web.gate.check("http://127.0.0.1:1/")  # nobody listens there
        assert web.gate.hosts()["127.0.0.1"].interval_s == 7.0
    assert path.exists()
    with pytest.raises(ConfigurationError, match="cache=5: give a CacheOptions"):
        PoliteSession(UA, cache=5)  # type: ignore[arg-type]


async def test_session_without_a_gate_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"PoliteSession\(None\): give a User-Agent, a Gatekeeper"):
        PoliteSession(None)  # type: ignore[arg-type]


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
