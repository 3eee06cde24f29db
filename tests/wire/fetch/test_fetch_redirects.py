"""AiohttpFetcher follows redirects: their number, their targets, and the authority that they bind."""

import asyncio

import aiohttp
import pytest

from politesse import FetchOptions, Gatekeeper, Reason
from politesse.fetch import AiohttpFetcher
from politesse.ports import FaultKind, FetchRequest
from tests.support.sites import EAGER, UA
from tests.wire.fetch.servers import (
    FILE,
    PUBLIC,
    Answer,
    Names,
    Request,
    Server,
    faulted,
    fetch_from,
    responded,
    response,
)


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
