"""The fetcher over httpx of the guide on clients keeps what the port promises."""

import asyncio
import gzip
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from politesse import Gatekeeper, Origin, Reason
from politesse.ports import MAX_BODY_BYTES, FaultKind, Fetcher, FetchRequest, Validators
from tests.support.ports import free_port
from tests.support.sites import UA
from tests.wire.fetch.servers import FILE, HEAD, Server, endless, faulted, gzipped, responded, response, silence

GUIDE = (Path(__file__).parents[3] / "src/politesse/guides/clients.md").read_text()
ROBOTS = "/robots.txt"


def over_httpx(timeout_s: float = 30) -> Fetcher:
    """Return one of the guide's class, with another timeout: everything of that program before the use of it."""
    [block] = [code for code in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if "class OverHttpx" in code]
    names: dict[str, Callable[[str], Fetcher]] = {}
    code = block.partition("\nasync def main")[0].replace("timeout(30)", f"timeout({timeout_s})")
    exec(code, names)  # noqa: S102 - our own guide
    return names["OverHttpx"](UA)


@pytest.fixture
async def fetcher() -> AsyncIterator[Fetcher]:
    fetcher = over_httpx()
    yield fetcher
    await fetcher.aclose()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(response(200, FILE)) as server:
        yield server


@pytest.mark.clause("RFC 9110 5.3")
async def test_file_comes_as_it_is(server: Server, fetcher: Fetcher) -> None:
    answer = response(200, FILE, ETag='"one"', Retry_After="2")
    server.answers[ROBOTS] = answer.replace(b"\r\n\r\n", b"\r\nretry-after: 2814\r\n\r\n", 1)
    result = responded(await fetcher.fetch(FetchRequest(server.origin(), 5)))
    assert (result.status, result.final_url, result.body) == (200, server.url(), FILE)
    assert (result.headers["etag"], result.headers["retry-after"]) == ('"one"', "2, 2814")  # lines are joined
    assert (result.truncated, result.conditional) == (False, False)
    sent = server.requests[0].headers
    assert (sent["user-agent"], sent["accept-encoding"]) == (UA, "gzip")
    server.answers[ROBOTS] = gzipped(gzip.compress(FILE))
    assert responded(await fetcher.fetch(FetchRequest(server.origin(), 5))).body == FILE


async def test_status_is_an_answer_and_no_error(server: Server, fetcher: Fetcher) -> None:
    for status in (401, 404, 410, 429, 500, 503):
        server.answers[ROBOTS] = response(status, b"nobody reads it", Retry_After="7", Content_Encoding="gzip")
        result = responded(await fetcher.fetch(FetchRequest(server.origin(), 5)))
        assert (result.status, result.headers["retry-after"], result.body) == (status, "7", b"")


async def test_redirects_are_followed_as_far_as_the_request_says_without_cookies_and_credentials(
    server: Server, fetcher: Fetcher
) -> None:
    away = server.url("/2", host="user:word@localhost")
    server.answers |= {
        ROBOTS: response(301, Location="/1", Set_Cookie="a=b; Path=/"),
        "/1": response(301, Location=away, Set_Cookie="a=b; Path=/"),
        "/2": response(301, Location="3"),
        "/3": response(200, FILE),
    }
    for limit in (3, 3):
        result = responded(await fetcher.fetch(FetchRequest(server.origin(), limit)))
        assert (result.final_url, result.body) == (server.url("/3", host="localhost"), FILE)
    fault = faulted(await fetcher.fetch(FetchRequest(server.origin(), 2)))
    assert (fault.kind, fault.final_url) == (FaultKind.REDIRECT_LIMIT, server.url("/2", host="localhost"))
    assert [request.target for request in server.requests] == [*[ROBOTS, "/1", "/2", "/3"] * 2, ROBOTS, "/1", "/2"]
    assert not any({"cookie", "authorization"} & request.headers.keys() for request in server.requests)


async def test_redirect_to_what_is_no_http_url_is_a_fault_that_closes_the_gate(
    server: Server, fetcher: Fetcher
) -> None:
    for location in ("ftp://example.com/", "http://1/", ""):
        server.answers[ROBOTS] = response(301, Location=location)
        fault = faulted(await fetcher.fetch(FetchRequest(server.origin(), 5)))
        assert fault.kind is FaultKind.REDIRECT_TARGET, location
    async with Gatekeeper(UA, fetcher=fetcher) as gate:
        assert (await gate.check(server.url("/page"))).reason is Reason.UNREACHABLE


async def test_validators_are_sent_to_their_own_url_alone(server: Server, fetcher: Fetcher) -> None:
    file, date = server.url("/file", host="localhost"), "Sun, 06 Nov 1994 08:49:37 GMT"
    server.answers |= {ROBOTS: response(301, Location=file), "/file": response(304)}
    for validators, sent in (
        (Validators(file, '"one"', ""), {"if-none-match": '"one"'}),
        (Validators(file, "", date), {"if-modified-since": date}),
        (Validators(server.url("/elsewhere"), '"one"', ""), {}),
    ):
        result = responded(await fetcher.fetch(FetchRequest(server.origin(), 5, validators)))
        assert (result.status, result.conditional) == (304, bool(sent))
        conditions = [
            {name: value for name, value in request.headers.items() if name.startswith("if-")}
            for request in server.requests[-2:]
        ]
        assert conditions == [{}, sent]


async def test_endless_body_is_cut_behind_a_line_and_not_read_on(server: Server, fetcher: Fetcher) -> None:
    server.answers[ROBOTS] = endless(HEAD + b"\r\n", b"Disallow: /a\n" * 80_000)
    result = responded(await fetcher.fetch(FetchRequest(server.origin(), 5)))
    assert (result.truncated, result.body) == (True, b"Disallow: /a\n" * (MAX_BODY_BYTES // 13))
    async with asyncio.timeout(10):
        await server.closed_by_client.wait()


@pytest.mark.realtime
async def test_unreadable_or_missing_body_is_a_fault(server: Server, fetcher: Fetcher) -> None:
    for answer, kind in (
        (gzipped(FILE), FaultKind.ENCODING),
        (response(200, FILE, Content_Encoding="br"), FaultKind.ENCODING),
        (response(200, FILE, length=1_000), FaultKind.CONNECT),
    ):
        server.answers[ROBOTS] = answer
        assert faulted(await fetcher.fetch(FetchRequest(server.origin(), 5))).kind is kind
    nobody = FetchRequest(Origin.of(f"http://127.0.0.1:{free_port()}"), 5)
    assert faulted(await fetcher.fetch(nobody)).kind is FaultKind.CONNECT
    server.answers[ROBOTS] = silence
    hasty = over_httpx(timeout_s=0.2)
    fault = faulted(await hasty.fetch(FetchRequest(server.origin(), 5)))
    assert (fault.kind, fault.final_url) == (FaultKind.TIMEOUT, server.url())
    await hasty.aclose()
