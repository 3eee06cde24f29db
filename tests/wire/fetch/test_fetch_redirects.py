"""AiohttpFetcher follows redirects: their number, their targets, and the authority that they bind."""

import asyncio

import pytest

from politesse import Gatekeeper, Reason
from politesse.fetch import AiohttpFetcher
from politesse.ports import FaultKind
from tests.wire.fetch.fetching import PUBLIC, UA, faulted, fetch_from, responded
from tests.wire.fetch.servers import FILE, Answer, Names, Request, Server, response


@pytest.mark.clause("RFC 9309 2.3.1.2")
async def test_the_fifth_redirect_is_followed_and_its_body_is_that_of_the_first_authority() -> None:
    hosts = [f"host{number}.example" for number in range(6)]
    async with Server() as server:
        targets = ["/robots.txt", *(f"/moved-{number}" for number in range(1, 6))]
        for number in range(5):
            location = server.url(targets[number + 1], host=hosts[number + 1])
            server.answers[targets[number]] = response(301, Location=location)
        server.answers[targets[5]] = response(200, FILE)
        result = responded(await fetch_from(server, host=hosts[0], resolver=Names(*hosts)))
        assert (result.body, result.final_url) == (FILE, server.url("/moved-5", host=hosts[5]))
        asked = [(request.host, request.target) for request in server.requests]
        assert asked == [(f"{host}:{server.port}", target) for host, target in zip(hosts, targets, strict=True)]


@pytest.mark.clause("RFC 9309 2.3.1.2")
async def test_a_file_behind_a_redirect_binds_the_first_authority_and_no_other() -> None:
    names = Names("first.example", "second.example")
    async with Server() as server, Gatekeeper(UA, fetcher=AiohttpFetcher(UA, resolver=names)) as gate:
        first, second = server.url("/private", host="first.example"), server.url("/private", host="second.example")

        async def answer(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            moved = request.host.startswith("first") and request.target == "/robots.txt"
            there = server.url("/rules", host="second.example")
            writer.write(
                response(308, Location=there) if moved else response(200, FILE if "rules" in request.target else b"")
            )

        server.answers = {"/robots.txt": answer, "/rules": answer}
        verdict = await gate.check(first)
        assert verdict.reason is Reason.DISALLOW_RULE
        assert verdict.source is not None
        assert verdict.source.robots_url == server.url(host="first.example")
        assert verdict.source.final_url == server.url("/rules", host="second.example")
        assert (await gate.check(second)).reason is Reason.NO_RULE


@pytest.mark.clause("RFC 9309 2.3.1.2")
async def test_a_sixth_redirect_is_not_requested() -> None:
    answers: dict[str, Answer] = {"/robots.txt": response(302, Location="/1")}
    answers |= {f"/{number}": response(302, Location=f"/{number + 1}") for number in range(1, 9)}
    async with Server(answers) as server:
        fault = faulted(await fetch_from(server))
        assert (fault.kind, fault.final_url) == (FaultKind.REDIRECT_LIMIT, server.url("/5"))
        assert [request.target for request in server.requests] == ["/robots.txt", "/1", "/2", "/3", "/4", "/5"]


@pytest.mark.parametrize(
    "location",
    ["http://127.0.0.1:{port}/secret", "http://inside.example:{port}/secret", "http://[::1]:{port}/secret"],
    ids=["literal", "name", "IPv6 literal"],
)
async def test_a_redirect_from_a_public_to_a_private_address_is_refused_before_it_is_connected_to(
    location: str,
) -> None:
    names = Names("inside.example", **{"public.example": ("127.0.0.1", PUBLIC)})
    async with Server({"/secret": response(200, b"")}) as server:
        server.answers["/robots.txt"] = response(302, Location=location.format(port=server.port))
        fault = faulted(await fetch_from(server, host="public.example", resolver=names))
        assert fault.kind is FaultKind.REDIRECT_TARGET
        assert "private" in fault.detail
        assert [request.target for request in server.requests] == ["/robots.txt"]
        async with Gatekeeper(UA, fetcher=AiohttpFetcher(UA, resolver=names)) as gate:
            verdict = await gate.check(server.url("/public", host="public.example"))
            assert verdict.reason is Reason.UNREACHABLE
        assert "/secret" not in [request.target for request in server.requests]


async def test_a_name_that_turns_private_between_two_hops_is_refused() -> None:
    names = Names(**{"rebound.example": ("127.0.0.1", PUBLIC)})
    async with Server() as server:

        async def rebind(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            names.addresses["rebound.example"] = ("127.0.0.1",)
            writer.write(response(302, Location="/secret"))

        server.answers = {"/robots.txt": rebind, "/secret": response(200, b"")}
        fault = faulted(await fetch_from(server, host="rebound.example", resolver=names))
        assert fault.kind is FaultKind.REDIRECT_TARGET
        assert [request.target for request in server.requests] == ["/robots.txt"]
        assert names.asked == ["rebound.example"] * 2, "each hop is resolved anew"
