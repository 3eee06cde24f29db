"""The requests of AiohttpFetcher, its redirects, the headers of its responses, and the session of its fetches."""

import asyncio
import gc
from pathlib import Path

import aiohttp
import pytest

from politesse import FetchOptions, Gatekeeper, Reason
from politesse.fetch import AiohttpFetcher
from politesse.ports import FaultKind, FetchRequest, Validators
from tests.support.ports import free_port
from tests.support.sites import EAGER, UA
from tests.wire.fetch.servers import (
    FILE,
    HEAD,
    PUBLIC,
    Answer,
    Names,
    Request,
    Server,
    borrowed,
    endless,
    faulted,
    fetch_from,
    responded,
    response,
    silence,
)


async def test_request_has_the_user_agent_and_no_other_identification() -> None:
    async with Server(response(200, FILE)) as server:
        await fetch_from(server, FetchOptions(from_address="bot@example.com"))
        (request,) = server.requests
    assert (request.method, request.target) == ("GET", "/robots.txt")
    assert request.headers.pop("accept").startswith("text/plain")
    assert request.headers == {
        "host": f"127.0.0.1:{server.port}",
        "user-agent": UA,
        "from": "bot@example.com",
        "accept-encoding": "gzip, deflate",
        "connection": "close",
    }


async def test_file_is_requested_by_its_path_and_query() -> None:
    async with Server({"/data.txt?v=2": response(200, FILE)}) as server:
        request = FetchRequest(server.origin(), 5, path="/data.txt?v=2")
        result = responded(await AiohttpFetcher(UA).fetch(request))
        assert (result.status, result.body, result.final_url) == (200, FILE, server.url("/data.txt?v=2"))
        assert [asked.target for asked in server.requests] == ["/data.txt?v=2"]


async def test_cookie_is_neither_kept_nor_sent() -> None:
    answers: dict[str, Answer] = {
        "/robots.txt": response(302, Location="/r", Set_Cookie="id=42; Path=/"),
        "/r": response(200, FILE, Set_Cookie="id=43; Path=/"),
    }
    async with Server(answers) as server:
        fetcher = AiohttpFetcher(UA, resolver=Names("site.example"))
        for path in ["/robots.txt", "/r"] * 2:
            await fetcher.fetch(FetchRequest(server.origin("site.example"), 0, path=path))
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
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with Server(response(200, FILE)) as server:
        assert responded(await fetch_from(server)).body == FILE
        assert "authorization" not in server.requests[0].headers


@pytest.mark.clause("RFC 9110 5.3")
async def test_headers_come_back_in_lower_case_and_their_lines_joined() -> None:
    answer = (
        b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETAG: "x"\r\nLast-Modified: then\r\nExpires: first\r\n'
        b"expires: second\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
        b"Cache-Control: public\r\nCACHE-CONTROL: max-age=60\r\nAge: 5\r\n\r\n"
    )
    async with Server(answer) as server:
        headers = responded(await fetch_from(server)).headers
    assert dict(headers) == {
        "content-length": "0",
        "etag": '"x"',
        "last-modified": "then",
        "expires": "first, second",
        "age": "5",
        "cache-control": "public, max-age=60",
        "set-cookie": "a=1",  # RFC 9110 5.3: its lines cannot be joined
    }


@pytest.mark.clause("RFC 9111 4.3.1")
async def test_validators_are_sent_to_the_url_that_the_copy_came_from_and_to_no_other() -> None:
    then = "Sun, 06 Nov 1994 08:49:37 GMT"
    rows = {
        ("/robots.txt", '"x"', ""): {"if-none-match": '"x"'},
        ("/robots.txt", 'W/"x"', ""): {"if-none-match": 'W/"x"'},
        ("/robots.txt", "", then): {"if-modified-since": then},
        ("/robots.txt", '"x"', "then"): {"if-none-match": '"x"', "if-modified-since": "then"},
        ("/elsewhere", '"x"', "then"): {},
        ("/robots.txt?v=1", '"x"', "then"): {},
        ("/", '"x"', "then"): {},
    }
    sent = {}
    async with Server(response(304, ETag='"y"')) as server:
        for row, conditions in rows.items():
            target, etag, modified = row
            result = responded(await fetch_from(server, validators=Validators(server.url(target), etag, modified)))
            assert (result.status, result.conditional, result.headers["etag"]) == (304, conditions != {}, '"y"')
            headers = server.requests[-1].headers
            sent[row] = {name: value for name, value in headers.items() if name.startswith("if-")}
    assert sent == rows


async def test_only_the_hop_or_the_file_that_the_copy_came_from_is_conditional() -> None:
    answers: dict[str, Answer] = {
        "/robots.txt": response(302, Location="/a"),
        "/a": response(302, Location="/b"),
        "/b": response(304),
        "/data.txt": response(304),
    }
    async with Server(answers) as server:
        result = responded(await fetch_from(server, validators=Validators(server.url("/b"), '"x"', "")))
        assert (result.status, result.conditional) == (304, True)
        data = FetchRequest(server.origin(), 5, Validators(server.url("/data.txt"), '"1"', ""), "/data.txt")
        result = responded(await AiohttpFetcher(UA).fetch(data))
        assert (result.status, result.conditional) == (304, True)
        assert [request.headers.get("if-none-match") for request in server.requests] == [None, None, '"x"', '"1"']


# Redirects: their number, their targets, and the authority that they bind


async def test_redirect_is_left_to_the_caller_who_is_told_its_target() -> None:
    async with Server({"/robots.txt": response(302, Location="/r"), "/r": response(200, FILE)}) as server:
        for limit in (0, 5):
            fault = faulted(await AiohttpFetcher(UA).fetch(FetchRequest(server.origin(), limit)))
            assert (fault.kind, fault.status) == (FaultKind.REDIRECT_LIMIT, 302)
            assert (fault.location, fault.private, fault.final) == (server.url("/r"), True, False)
        assert [request.target for request in server.requests] == ["/robots.txt"] * 2


@pytest.mark.clause("RFC 9309 2.3.1.2")
async def test_fifth_redirect_is_followed_and_its_body_is_that_of_the_first_authority() -> None:
    hosts = [f"host{number}.example" for number in range(6)]
    targets = ["/robots.txt", *(f"/moved-{number}" for number in range(1, 6))]
    async with Server({"/moved-5": response(200, FILE)}) as server:
        for here, there, host in zip(targets, targets[1:], hosts[1:], strict=False):
            server.answers[here] = response(301, Location=server.url(there, host=host))
        result = responded(await fetch_from(server, host=hosts[0], resolver=Names(*hosts)))
        assert (result.body, result.final_url) == (FILE, server.url("/moved-5", host=hosts[5]))
        asked = [(request.host, request.target) for request in server.requests]
        assert asked == [(f"{host}:{server.port}", target) for host, target in zip(hosts, targets, strict=True)]


@pytest.mark.clause("RFC 9309 2.3.1.2")
async def test_file_behind_a_redirect_binds_the_first_authority_and_no_other() -> None:
    names = Names("first.example", "second.example")
    answers: dict[str, Answer] = {"/rules": response(200, FILE), "second.example/robots.txt": response(200)}
    async with Server(answers) as server, Gatekeeper(UA, fetcher=AiohttpFetcher(UA, resolver=names)) as gate:
        rules = server.url("/rules", host="second.example")
        answers["first.example/robots.txt"] = response(308, Location=rules)
        verdict = await gate.check(server.url("/private", host="first.example"))
        assert verdict.reason is Reason.DISALLOW_RULE
        assert verdict.source is not None
        assert verdict.source.robots_url == server.url(host="first.example")
        assert verdict.source.final_url == rules
        assert (await gate.check(server.url("/private", host="second.example"))).reason is Reason.NO_RULE


@pytest.mark.clause("RFC 9309 2.3.1.2")
async def test_sixth_redirect_is_not_requested() -> None:
    answers: dict[str, Answer] = {"/robots.txt": response(302, Location="/1")}
    answers |= {f"/{number}": response(302, Location=f"/{number + 1}") for number in range(1, 9)}
    async with Server(answers) as server:
        fault = faulted(await fetch_from(server))
        assert (fault.kind, fault.final_url) == (FaultKind.REDIRECT_LIMIT, server.url("/5"))
        assert [request.target for request in server.requests] == ["/robots.txt", "/1", "/2", "/3", "/4", "/5"]


async def test_redirect_from_a_public_to_a_private_address_is_refused_before_it_is_connected_to() -> None:
    names = Names("inside.example", **{"public.example": ("127.0.0.1", PUBLIC)})
    for host in ("127.0.0.1", "inside.example", "[::1]"):
        async with Server({"/secret": response(200)}) as server:
            server.answers["/robots.txt"] = response(302, Location=server.url("/secret", host=host))
            fault = faulted(await fetch_from(server, host="public.example", resolver=names))
            assert fault.kind is FaultKind.REDIRECT_TARGET, host
            assert "private" in fault.detail
            async with Gatekeeper(UA, fetcher=AiohttpFetcher(UA, resolver=names), pacing=EAGER) as gate:
                verdict = await gate.check(server.url("/public", host="public.example"))
                assert verdict.reason is Reason.UNREACHABLE, host
            assert [request.target for request in server.requests] == ["/robots.txt", "/robots.txt"]


async def test_name_that_turns_private_between_two_hops_is_refused() -> None:
    names = Names(**{"rebound.example": ("127.0.0.1", PUBLIC)})

    async def rebind(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        names.addresses["rebound.example"] = ("127.0.0.1",)
        writer.write(response(302, Location="/secret"))

    async with Server({"/robots.txt": rebind, "/secret": response(200)}) as server:
        fault = faulted(await fetch_from(server, host="rebound.example", resolver=names))
        assert fault.kind is FaultKind.REDIRECT_TARGET
        assert [request.target for request in server.requests] == ["/robots.txt"]
        assert names.asked == ["rebound.example"] * 2, "each hop is resolved anew"


# A fetch that goes on after a redirect of another request


async def test_where_another_host_has_redirected_to_must_be_public() -> None:
    names = Names("site.example")
    async with Server({"/data.txt": response(200, FILE)}) as server:
        for number, host in enumerate(("127.0.0.1", "site.example")):
            request = FetchRequest(server.origin(host), 0, path="/data.txt", redirected=True)
            fault = faulted(await AiohttpFetcher(UA, resolver=names).fetch(request))
            assert fault.kind is FaultKind.REDIRECT_TARGET, host
            assert len(server.requests) == number
            lenient = AiohttpFetcher(UA, FetchOptions(private_addresses="allow"), resolver=names)
            assert responded(await lenient.fetch(request)).body == FILE


async def test_over_a_borrowed_connector_nothing_is_asked_where_another_host_has_redirected_to() -> None:
    async with Server({"/data.txt": response(200, FILE)}) as server, aiohttp.ClientSession() as session:
        request = FetchRequest(server.origin("localhost"), 0, path="/data.txt", redirected=True)
        fault = faulted(await AiohttpFetcher(UA, session=session).fetch(request))
        assert fault.kind is FaultKind.REDIRECT_TARGET
        assert "unguarded_redirects" in fault.detail
        assert server.requests == []
        unguarded = AiohttpFetcher(UA, FetchOptions(unguarded_redirects=True), session=session)
        assert responded(await unguarded.fetch(request)).body == FILE


# All fetches share a client session, and do not disturb each other.


async def test_each_fetch_has_a_connection_of_its_own_and_closes_it() -> None:
    async with Server(response(200, FILE)) as server, asyncio.timeout(5):
        fetcher = AiohttpFetcher(UA)
        for _ in range(3):
            server.closed_by_client.clear()
            await fetcher.fetch(FetchRequest(server.origin(), 5))
            await server.closed_by_client.wait()
        assert len(server.requests) == 3


async def test_fetch_that_is_cancelled_raises_that_and_closes_its_connection() -> None:
    for answer in (silence, endless(HEAD + b"\r\n", b"#", pause_s=0.001)):
        async with Server(answer) as server, asyncio.timeout(5):
            task = asyncio.create_task(fetch_from(server))
            while not server.requests:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.closed_by_client.wait()


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


@pytest.mark.parametrize("is_borrowed", [False, True], ids=["own connector", "borrowed connector"])
async def test_fetcher_that_nobody_closed_warns_of_nothing(*, is_borrowed: bool) -> None:
    async with borrowed(is_borrowed=is_borrowed) as session, Server(response(200, FILE)) as server:
        fetcher = AiohttpFetcher(UA, session=session)
        responded(await fetcher.fetch(FetchRequest(server.origin(), 0)))
        del fetcher
        gc.collect()  # a ResourceWarning would fail the test


def test_one_fetcher_serves_one_event_loop_after_another() -> None:
    fetcher = AiohttpFetcher(UA)

    async def fetch() -> bytes:
        async with Server(response(200, FILE)) as server:
            return responded(await fetcher.fetch(FetchRequest(server.origin(), 0))).body

    assert [asyncio.run(fetch()) for _ in range(3)] == [FILE] * 3


async def test_fetches_at_the_same_time_are_each_checked_by_their_own_guard() -> None:
    async with Server(response(200, FILE)) as server:
        fetcher = AiohttpFetcher(UA, resolver=Names("inside.example"))
        inside = server.origin("inside.example")
        requests = [FetchRequest(inside, 0, redirected=True), FetchRequest(inside, 0)] * 10
        results = await asyncio.gather(*map(fetcher.fetch, requests))
        assert {faulted(result).kind for result in results[::2]} == {FaultKind.REDIRECT_TARGET}
        assert {responded(result).body for result in results[1::2]} == {FILE}
        assert len(server.requests) == 10
        await fetcher.aclose()
