"""The requests of AiohttpFetcher, and the headers of its responses."""

import asyncio
import gc
from pathlib import Path

import aiohttp
import pytest

from politesse import FetchOptions
from politesse.fetch import AiohttpFetcher
from politesse.ports import FaultKind, FetchRequest, Validators
from tests.support.ports import free_port
from tests.wire.fetch.fetching import HEAD, PUBLIC, UA, faulted, fetch_from, responded
from tests.wire.fetch.servers import FILE, Answer, Names, Server, endless, response, silence


async def test_request_has_the_user_agent_and_no_other_identification() -> None:
    async with Server(response(200, FILE)) as server:
        await fetch_from(server, FetchOptions(from_address="bot@example.com"))
        (request,) = server.requests
    assert (request.method, request.target) == ("GET", "/robots.txt")
    assert request.headers.pop("host") == f"127.0.0.1:{server.port}"
    assert request.headers.pop("user-agent") == UA
    assert request.headers.pop("from") == "bot@example.com"
    assert request.headers.pop("accept-encoding") == "gzip, deflate"
    assert request.headers.pop("accept").startswith("text/plain")
    assert request.headers.pop("connection") == "close"
    assert request.headers == {}


async def test_a_cookie_is_neither_kept_nor_sent() -> None:
    answers: dict[str, Answer] = {
        "/robots.txt": response(302, Location="/r", Set_Cookie="id=42; Path=/"),
        "/r": response(200, FILE, Set_Cookie="id=43; Path=/"),
    }
    async with Server(answers) as server:
        fetcher = AiohttpFetcher(UA, resolver=Names("site.example"))
        for _ in range(2):
            await fetcher.fetch(FetchRequest(server.origin("site.example"), 5))
        assert len(server.requests) == 4
        assert [request for request in server.requests if "cookie" in request.headers] == []


async def test_netrc_and_proxies_of_the_environment_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login crawler password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with Server(response(200, FILE)) as server:
        assert responded(await fetch_from(server)).body == FILE
        assert "authorization" not in server.requests[0].headers


async def test_each_fetch_has_a_connection_of_its_own_and_closes_it() -> None:
    async with Server(response(200, FILE)) as server:
        fetcher = AiohttpFetcher(UA)
        for _ in range(3):
            server.closed_by_client.clear()
            await fetcher.fetch(FetchRequest(server.origin(), 5))
            async with asyncio.timeout(5):
                await server.closed_by_client.wait()
        assert len(server.requests) == 3


@pytest.mark.parametrize("answer", [silence, endless(HEAD + b"\r\n", b"#", pause_s=0.001)], ids=["head", "body"])
async def test_a_fetch_that_is_cancelled_raises_that_and_closes_its_connection(answer: Answer) -> None:
    async with Server(answer) as server:
        task = asyncio.create_task(fetch_from(server))
        async with asyncio.timeout(5):
            while not server.requests:
                await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(5):
            await server.closed_by_client.wait()


@pytest.mark.clause("RFC 9110 5.3")
async def test_headers_come_back_in_lower_case_and_their_lines_joined() -> None:
    answer = (
        b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETAG: "x"\r\nLast-Modified: then\r\nExpires: first\r\n'
        b"expires: second\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
        b"Cache-Control: public\r\nCACHE-CONTROL: max-age=60\r\nAge: 5\r\n\r\n"
    )
    async with Server(answer) as server:
        headers = responded(await fetch_from(server)).headers
    assert headers["etag"] == '"x"'
    assert headers["last-modified"] == "then"
    assert headers["expires"] == "first, second"
    assert headers["age"] == "5"
    assert headers["cache-control"] == "public, max-age=60"
    assert headers["set-cookie"] == "a=1"  # RFC 9110 5.3: its lines cannot be joined


@pytest.mark.clause("RFC 9111 4.3.1")
@pytest.mark.parametrize(
    ("etag", "last_modified", "sent"),
    [
        ('"x"', "", {"if-none-match": '"x"'}),
        ('W/"x"', "", {"if-none-match": 'W/"x"'}),
        ("", "Sun, 06 Nov 1994 08:49:37 GMT", {"if-modified-since": "Sun, 06 Nov 1994 08:49:37 GMT"}),
        ('"x"', "then", {"if-none-match": '"x"', "if-modified-since": "then"}),
    ],
)
async def test_validators_are_sent_to_the_url_that_the_copy_came_from(
    etag: str, last_modified: str, sent: dict[str, str]
) -> None:
    async with Server(response(304, ETag='"y"')) as server:
        result = responded(await fetch_from(server, validators=Validators(server.url(), etag, last_modified)))
        assert (result.status, result.conditional) == (304, True)
        assert result.headers["etag"] == '"y"'
        headers = server.requests[0].headers
        assert {name: value for name, value in headers.items() if name.startswith("if-")} == sent


@pytest.mark.parametrize("copy_came_from", ["/elsewhere", "/robots.txt?v=1", "/"])
async def test_validators_are_not_sent_to_another_url(copy_came_from: str) -> None:
    async with Server(response(200, FILE)) as server:
        validators = Validators(server.url(copy_came_from), '"x"', "then")
        result = responded(await fetch_from(server, validators=validators))
        assert result.conditional is False
        assert [name for name in server.requests[0].headers if name.startswith("if-")] == []


async def test_behind_a_redirect_only_the_hop_that_the_copy_came_from_is_conditional() -> None:
    answers: dict[str, Answer] = {
        "/robots.txt": response(302, Location="/a"),
        "/a": response(302, Location="/b"),
        "/b": response(304),
    }
    async with Server(answers) as server:
        result = responded(await fetch_from(server, validators=Validators(server.url("/b"), '"x"', "")))
        assert (result.status, result.conditional) == (304, True)
        assert ["if-none-match" in request.headers for request in server.requests] == [False, False, True]


# All fetches share a client session, and do not disturb each other.


async def test_fetches_at_the_same_time_are_each_checked_by_their_own_guard() -> None:
    names = Names("inside.example", **{"mixed.example": (PUBLIC, "127.0.0.1")})
    async with Server(response(200, FILE)) as server:
        fetcher = AiohttpFetcher(UA, resolver=names)
        inside = server.origin("inside.example")
        redirected = FetchRequest(inside, 0, redirected=True)
        results = await asyncio.gather(*(fetcher.fetch(one) for one in [redirected, FetchRequest(inside, 0)] * 10))
        assert {faulted(result).kind for result in results[::2]} == {FaultKind.REDIRECT_TARGET}
        assert {responded(result).body for result in results[1::2]} == {FILE}
        assert len(server.requests) == 10
        await fetcher.aclose()


async def test_more_than_a_hundred_fetches_are_under_way_at_once() -> None:
    async with Server(silence) as server:
        fetcher = AiohttpFetcher(UA)
        tasks = [asyncio.create_task(fetcher.fetch(FetchRequest(server.origin(), 0))) for _ in range(130)]
        async with asyncio.timeout(20):
            while len(server.requests) < 130:
                await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await fetcher.aclose()


async def test_closing_ends_the_fetches_under_way_and_a_later_one_connects_again() -> None:
    async with Server(silence) as silent, Server(response(200, FILE)) as server:
        fetcher = AiohttpFetcher(UA)
        pending = asyncio.create_task(fetcher.fetch(FetchRequest(silent.origin(), 0)))
        while not silent.requests:
            await asyncio.sleep(0.001)
        await fetcher.aclose()
        faulted(await pending)
        assert responded(await fetcher.fetch(FetchRequest(server.origin(), 0))).body == FILE
        await fetcher.aclose()


@pytest.mark.parametrize("borrowed", [False, True], ids=["own connector", "borrowed connector"])
async def test_a_fetcher_that_nobody_closed_warns_of_nothing(borrowed: bool) -> None:  # noqa: FBT001
    async with aiohttp.ClientSession() as session, Server(response(200, FILE)) as server:
        fetcher = AiohttpFetcher(UA, session=session if borrowed else None)
        responded(await fetcher.fetch(FetchRequest(server.origin(), 0)))
        del fetcher
        gc.collect()  # a ResourceWarning would fail the test


def test_one_fetcher_serves_one_event_loop_after_another() -> None:
    fetcher = AiohttpFetcher(UA)

    async def fetch() -> bytes:
        async with Server(response(200, FILE)) as server:
            return responded(await fetcher.fetch(FetchRequest(server.origin(), 0))).body

    assert [asyncio.run(fetch()) for _ in range(3)] == [FILE] * 3
