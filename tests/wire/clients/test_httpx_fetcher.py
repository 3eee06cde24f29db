"""The fetcher over httpx of the guide on clients keeps what the port promises."""

import gzip
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from multidict import CIMultiDict

from politesse import Gatekeeper, Origin, Reason
from politesse.ports import MAX_BODY_BYTES, FaultKind, Fetcher, FetchFault, FetchRequest, FetchResponse, Validators
from tests.support.sites import ROBOTS, UA, Server

GUIDE = (Path(__file__).parents[3] / "src/politesse/guides/clients.md").read_text()


def over_httpx(timeout_s: float = 30) -> Fetcher:
    """Return one of the guide's class, with another timeout: everything of that program before the use of it."""
    [block] = [code for code in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if "class OverHttpx" in code]
    names: dict[str, Callable[[str], Fetcher]] = {}
    code = block.partition("\nasync def main")[0].replace("timeout(30)", f"timeout({timeout_s})")
    exec(code, names)  # noqa: S102 - our own guide
    return names["OverHttpx"](UA)


@dataclass
class Site(Server):
    """A server that answers requests for robots.txt as the test says."""

    headers: Mapping[str, str] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    status: int = 200
    body: bytes = ROBOTS.encode()
    endless: bool = False
    breaks_off: bool = False
    silent: bool = False
    written: int = 0

    async def respond(self, request: web.Request) -> web.StreamResponse:
        if request.path in self.redirects:
            location = self.redirects[request.path]
            return web.Response(status=301, headers={"Location": location, "Set-Cookie": "a=b; Path=/"})
        if self.silent:
            await self.go_on.wait()
        if not (self.endless or self.breaks_off):
            return web.Response(status=self.status, body=self.body, headers=self.headers)
        response = web.StreamResponse(headers={} if self.endless else {"Content-Length": "1000"})
        await response.prepare(request)
        while True:
            await response.write(self.body)
            self.written += len(self.body)
            if self.breaks_off:
                assert request.transport is not None
                request.transport.close()
                return response

    def ask(self, max_redirects: int = 5, validators: Validators | None = None) -> FetchRequest:
        return FetchRequest(Origin.of(self.base), max_redirects, validators)


@pytest.fixture
def site_class() -> type[Site]:
    return Site


@pytest.fixture
async def fetcher() -> AsyncIterator[Fetcher]:
    fetcher = over_httpx()
    yield fetcher
    await fetcher.aclose()


async def response_of(fetcher: Fetcher, request: FetchRequest) -> FetchResponse:
    result = await fetcher.fetch(request)
    assert isinstance(result, FetchResponse), result
    return result


async def fault_of(fetcher: Fetcher, request: FetchRequest) -> tuple[FaultKind, str]:
    result = await fetcher.fetch(request)
    assert isinstance(result, FetchFault), result
    return result.kind, result.final_url


@pytest.mark.clause("RFC 9110 5.3")
async def test_file_comes_as_it_is(site: Site, fetcher: Fetcher) -> None:
    site.headers = CIMultiDict([("ETag", '"one"'), ("Retry-After", "2"), ("retry-after", "2814")])
    response = await response_of(fetcher, site.ask())
    assert (response.status, response.final_url, response.body) == (200, f"{site.base}/robots.txt", ROBOTS.encode())
    assert (response.headers["etag"], response.headers["retry-after"]) == ('"one"', "2, 2814")  # lines are joined
    assert (response.truncated, response.conditional) == (False, False)
    assert (site.seen[0].headers["User-Agent"], site.seen[0].headers["Accept-Encoding"]) == (UA, "gzip")
    site.headers, site.body = {"Content-Encoding": "gzip"}, gzip.compress(site.body)
    assert b"Disallow: /private" in (await response_of(fetcher, site.ask())).body


async def test_status_is_an_answer_and_no_error(site: Site, fetcher: Fetcher) -> None:
    site.headers = {"Retry-After": "7", "Content-Encoding": "gzip"}  # of a page nobody reads
    for status in (401, 404, 410, 429, 500, 503):
        site.status = status
        response = await response_of(fetcher, site.ask())
        assert (response.status, response.headers["retry-after"], response.body) == (status, "7", b"")


async def test_redirects_are_followed_as_far_as_the_request_says(site: Site, other: Site, fetcher: Fetcher) -> None:
    site.redirects = {"/robots.txt": "/1", "/1": f"{other.base}/2"}
    other.redirects = {"/2": "3"}
    response = await response_of(fetcher, site.ask(max_redirects=3))
    assert (response.final_url, response.body) == (f"{other.base}/3", ROBOTS.encode())
    assert await fault_of(fetcher, site.ask(max_redirects=2)) == (FaultKind.REDIRECT_LIMIT, f"{other.base}/2")
    assert other.paths == ["/2", "/3", "/2"]


async def test_neither_cookies_nor_credentials_are_sent(site: Site, other: Site, fetcher: Fetcher) -> None:
    site.redirects = {"/robots.txt": "/1", "/1": other.base.replace("http://", "http://user:word@") + "/2"}
    other.redirects = {"/2": f"{site.base}/3"}
    await response_of(fetcher, site.ask())
    await response_of(fetcher, site.ask())
    assert site.paths == ["/robots.txt", "/1", "/3"] * 2
    for request in site.seen + other.seen:
        assert {"Cookie", "Authorization"}.isdisjoint(request.headers)


async def test_redirect_to_what_is_no_http_url_is_a_fault(site: Site, fetcher: Fetcher) -> None:
    urls = [
        "ftp://example.com/",
        "ws://127.0.0.1:9/",
        "https://[::1",
        "http://1/",
        "mailto:us",
        "http://",
        "http:",
        "//",
    ]
    for location in (*urls, ""):
        site.redirects = {"/robots.txt": location}
        assert (await fault_of(fetcher, site.ask()))[0] is FaultKind.REDIRECT_TARGET, location
    async with Gatekeeper(UA, fetcher=fetcher) as gate:
        assert (await gate.check(f"{site.base}/page")).reason is Reason.UNREACHABLE


async def test_validators_are_sent_to_their_own_url_alone(site: Site, other: Site, fetcher: Fetcher) -> None:
    site.redirects, other.status = {"/robots.txt": f"{other.base}/file"}, 304
    date, fields = "Sun, 06 Nov 1994 08:49:37 GMT", ("If-None-Match", "If-Modified-Since")
    for validators, sent in (
        (Validators(f"{other.base}/file", '"one"', ""), ['"one"', None]),
        (Validators(f"{other.base}/file", "", date), [None, date]),
        (Validators(f"{site.base}/elsewhere", '"one"', ""), [None, None]),
    ):
        response = await response_of(fetcher, site.ask(validators=validators))
        assert (response.status, response.conditional) == (304, sent != [None, None])
        assert [other.seen[-1].headers.get(name) for name in fields] == sent
        assert set(fields).isdisjoint(site.seen[-1].headers)


async def test_endless_body_is_cut_behind_a_line(site: Site, fetcher: Fetcher) -> None:
    site.endless, site.body = True, b"Disallow: /a\n" * 80_000
    response = await response_of(fetcher, site.ask())
    assert response.truncated
    assert response.body == b"Disallow: /a\n" * (MAX_BODY_BYTES // 13)
    assert MAX_BODY_BYTES - len(site.body) < site.written < 2 * MAX_BODY_BYTES


@pytest.mark.realtime
async def test_unreadable_or_missing_body_is_a_fault(site: Site, fetcher: Fetcher, unused_tcp_port: int) -> None:
    for encoding in ("gzip", "br"):
        site.headers = {"Content-Encoding": encoding}
        assert (await fault_of(fetcher, site.ask()))[0] is FaultKind.ENCODING
    site.breaks_off = True
    assert (await fault_of(fetcher, site.ask()))[0] is FaultKind.CONNECT
    nobody = FetchRequest(Origin.of(f"http://127.0.0.1:{unused_tcp_port}"), 5)
    assert (await fault_of(fetcher, nobody))[0] is FaultKind.CONNECT
    site.silent = True
    hasty = over_httpx(timeout_s=0.2)
    assert await fault_of(hasty, site.ask()) == (FaultKind.TIMEOUT, f"{site.base}/robots.txt")
    await hasty.aclose()


async def test_gate_goes_by_it_and_closes_it(site: Site) -> None:
    async with Gatekeeper(UA, fetcher=over_httpx()) as gate:
        assert (await gate.check(f"{site.base}/private")).reason is Reason.DISALLOW_RULE
        assert await gate.check(f"{site.base}/page")
    assert site.paths == ["/robots.txt"]
