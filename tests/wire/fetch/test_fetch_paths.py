"""AiohttpFetcher asks for other files than robots.txt, and goes on after a redirect of another request."""

import aiohttp
import pytest

from politesse import FetchOptions
from politesse.fetch import AiohttpFetcher
from politesse.ports import FaultKind, FetchRequest, Validators
from tests.wire.fetch.fetching import UA, faulted, responded
from tests.wire.fetch.servers import Names, Server, response

FILE = b"Dataset: /d.csv\n"


async def test_file_is_requested_by_its_path_and_query() -> None:
    async with Server({"/data.txt?v=2": response(200, FILE)}) as server:
        request = FetchRequest(server.origin(), 5, path="/data.txt?v=2")
        result = responded(await AiohttpFetcher(UA).fetch(request))
        assert (result.status, result.body, result.final_url) == (200, FILE, server.url("/data.txt?v=2"))
        assert [asked.target for asked in server.requests] == ["/data.txt?v=2"]


async def test_validators_of_another_file_than_robots_txt_make_its_request_conditional() -> None:
    async with Server({"/data.txt": response(304)}) as server:
        request = FetchRequest(server.origin(), 5, Validators(server.url("/data.txt"), '"1"', ""), "/data.txt")
        result = responded(await AiohttpFetcher(UA).fetch(request))
        assert (result.status, result.conditional) == (304, True)
        assert server.requests[0].headers["if-none-match"] == '"1"'


@pytest.mark.parametrize("host", ["127.0.0.1", "site.example"])
async def test_where_another_host_has_redirected_to_must_be_public(host: str) -> None:
    async with Server({"/data.txt": response(200, FILE)}) as server:
        request = FetchRequest(server.origin(host), 0, path="/data.txt", redirected=True)
        names = Names("site.example")
        fault = faulted(await AiohttpFetcher(UA, resolver=names).fetch(request))
        assert fault.kind is FaultKind.REDIRECT_TARGET
        assert server.requests == []
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
