"""What pages say to crawlers, read of the responses of each client."""

import sys
from collections.abc import Awaitable, Callable
from functools import partial

import aiohttp
import httpx
import pytest

from politesse import AgentView, ConfigurationError, Gatekeeper
from politesse.integrations.aiohttp import PoliteSession, page_directives
from politesse.page import PageDirectives
from tests.support.httpx_libraries import LIBRARIES, Library
from tests.support.sites import turns
from tests.wire.clients.pages import BOTH, HEADER, Answer, Pages, said

Read = Callable[..., Awaitable[list[PageDirectives]]]


@pytest.fixture
def site_class() -> type[Pages]:
    return Pages


async def by_aiohttp(gate: Gatekeeper, url: str, *views: AgentView, method: str = "GET") -> list[PageDirectives]:
    """Return the directives of each response, for each view."""
    async with PoliteSession(gate) as web, web.request(method, url) as response:
        return [await page_directives(one, view) for one in (*response.history, response) for view in views or [gate]]


async def _by(
    library: Library, gate: Gatekeeper, url: str, *views: AgentView, method: str = "GET"
) -> list[PageDirectives]:
    transport = library.polite.PoliteTransport(gate)
    async with library.http.AsyncClient(transport=transport, follow_redirects=True) as web:
        last = await web.request(method, url)
        responses = (*last.history, last)
        return [await library.polite.page_directives(one, view) for one in responses for view in views or [gate]]


each_client = pytest.mark.parametrize("read", [by_aiohttp, *(partial(_by, Library(name)) for name in LIBRARIES)])


@each_client
async def test_header_and_meta_are_read(site: Pages, gate: Gatekeeper, read: Read) -> None:
    pages = await read(gate, f"{site.base}/page", gate, gate)
    assert [said(page) for page in pages] == [BOTH, BOTH]
    assert not pages[0].may_index(0.0)
    assert not pages[0].may_follow
    assert not pages[0].truncated


@each_client
async def test_directive_that_names_the_crawler_is_for_it_alone(site: Pages, gate: Gatekeeper, read: Read) -> None:
    head = "".join(
        f'<meta name="{name}" content="{content}">'
        for name, content in {"ExampleBot": "noarchive", "OtherBot": "nosnippet", "ExampleBot-Image": "none"}.items()
    )
    site.answers["/page"] = Answer(head, ["ExampleBot: nofollow", "OtherBot: noindex"])
    image = gate.agent(tokens=["ExampleBot-Image", "ExampleBot"], user_agent="ExampleBot-Image/1.0")
    other = gate.agent(tokens="OtherBot", user_agent="OtherBot/1.0")
    pages = await read(gate, f"{site.base}/page", gate, other, image)
    own = [("X-Robots-Tag", "nofollow"), ("META examplebot", "noarchive")]
    assert [[(one.field, one.name) for one in page.statements] for page in pages] == [
        own,
        [("X-Robots-Tag", "noindex"), ("META otherbot", "nosnippet")],
        [*own, ("META examplebot-image", "none")],
    ]


@each_client
async def test_repeated_headers_combine(site: Pages, gate: Gatekeeper, read: Read) -> None:
    site.answers["/page"] = Answer("", ["OtherBot: noindex", "nofollow", "noarchive"])
    [page] = await read(gate, f"{site.base}/page")
    assert said(page) == [("X-Robots-Tag", 2, "nofollow"), ("X-Robots-Tag", 3, "noarchive")]


@each_client
async def test_compressed_page_is_read(site: Pages, gate: Gatekeeper, read: Read) -> None:
    site.answers["/page"] = Answer(coding="gzip")
    [page] = await read(gate, f"{site.base}/page")
    assert (said(page), page.truncated) == (BOTH, False)


@each_client
async def test_head_has_headers_alone(site: Pages, gate: Gatekeeper, read: Read) -> None:
    [page] = await read(gate, f"{site.base}/page", method="HEAD")
    assert (said(page), page.truncated) == ([HEADER], False)


@each_client
async def test_redirect_has_headers_alone_and_its_target_all(site: Pages, gate: Gatekeeper, read: Read) -> None:
    site.answers["/moved"] = Answer(tags=["noarchive"], status=302)
    moved, page = await read(gate, f"{site.base}/moved")
    assert (said(moved), said(page)) == ([("X-Robots-Tag", 1, "noarchive")], BOTH)


@each_client
async def test_missing_extra_is_named(
    site: Pages, gate: Gatekeeper, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "selectolax.lexbor", None)
    site.answers["/silent-page"] = Answer("")
    [silent] = await read(gate, f"{site.base}/silent-page")
    assert said(silent) == [HEADER]
    with pytest.raises(ImportError, match=r"pip install '\.\[html\]'"):
        await read(gate, f"{site.base}/page")


# Of aiohttp


async def test_header_and_meta_are_read_with_any_session(site: Pages, gate: Gatekeeper) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{site.base}/page") as response:
        await response.text()
        assert said(await page_directives(response, gate)) == BOTH
    async with PoliteSession(gate) as polite, polite.get(f"{site.base}/page") as response:
        assert said(await polite.page_directives(response)) == BOTH
        assert "the page" in await response.text()


async def test_page_that_stays_compressed_says_that_there_may_be_more(site: Pages, gate: Gatekeeper) -> None:
    site.answers["/page"] = Answer(coding="gzip")
    async with PoliteSession(gate, auto_decompress=False) as polite:
        async with polite.get(f"{site.base}/page") as response:
            page = await polite.page_directives(response)
        async with polite.get(f"{site.base}/plain") as response:
            plain = await polite.page_directives(response)
    assert (said(page), page.truncated) == ([HEADER], True)
    assert (said(plain), plain.truncated) == (BOTH, False)


async def test_page_without_a_media_type_is_looked_at(site: Pages, polite: PoliteSession) -> None:
    site.answers["/page"] = Answer(content_type=None)
    async with polite.get(f"{site.base}/page") as response:
        assert said(await polite.page_directives(response)) == BOTH


async def test_of_other_media_the_body_is_not_read(site: Pages, polite: PoliteSession, gate: Gatekeeper) -> None:
    site.answers["/page"] = Answer(content_type="text/plain")
    async with polite.get(f"{site.base}/page") as response:
        page = await polite.page_directives(response)
        assert turns(gate) == 1  # its end has not come
        assert "the page" in await response.text()
    assert (said(page), page.truncated) == ([HEADER], False)


@pytest.mark.parametrize("octets", [10, -1])
async def test_body_that_was_streamed_before_is_an_error(site: Pages, polite: PoliteSession, octets: int) -> None:
    async with polite.get(f"{site.base}/page") as response:
        await response.content.read(octets)
        with pytest.raises(ConfigurationError, match=r"/page.*response\.content"):
            await polite.page_directives(response)


async def test_response_that_was_released_unread_raises_what_aiohttp_does(site: Pages, polite: PoliteSession) -> None:
    async with polite.get(f"{site.base}/page") as response:
        pass
    with pytest.raises(aiohttp.ClientConnectionError):
        await polite.page_directives(response)


async def test_fault_of_the_body_is_raised(site: Pages, polite: PoliteSession) -> None:
    site.answers["/page"] = Answer(coding="deflate")  # which it is not
    async with polite.get(f"{site.base}/page") as response:
        with pytest.raises(aiohttp.ClientPayloadError):
            await polite.page_directives(response)


# Of httpx


async def test_body_that_is_streamed_is_read_and_kept(
    site: Pages, client: httpx.AsyncClient, gate: Gatekeeper, library: Library
) -> None:
    async with client.stream("GET", f"{site.base}/page") as response:
        assert said(await library.polite.page_directives(response, gate)) == BOTH
        assert turns(gate) == 0
        assert "the page" in response.text


async def test_page_that_httpx_cannot_decode_says_that_there_may_be_more(
    site: Pages, client: httpx.AsyncClient, gate: Gatekeeper, library: Library
) -> None:
    site.answers |= {"/page": Answer(coding="compress"), "/plain": Answer(coding="identity")}
    page = await library.polite.page_directives(await client.get(f"{site.base}/page"), gate)
    plain = await library.polite.page_directives(await client.get(f"{site.base}/plain"), gate)
    assert (said(page), page.truncated) == ([HEADER], True)
    assert (said(plain), plain.truncated) == (BOTH, False)


async def test_of_other_media_the_body_is_not_read_by_httpx(
    site: Pages, client: httpx.AsyncClient, gate: Gatekeeper, library: Library
) -> None:
    site.answers["/page"] = Answer(content_type="text/plain")
    async with client.stream("GET", f"{site.base}/page") as response:
        page = await library.polite.page_directives(response, gate)
        assert not response.is_stream_consumed
    assert (said(page), page.truncated) == ([HEADER], False)


async def test_body_that_was_streamed_before_is_an_error_of_httpx(
    site: Pages, client: httpx.AsyncClient, gate: Gatekeeper, library: Library
) -> None:
    async with client.stream("GET", f"{site.base}/page") as response:
        async for _ in response.aiter_bytes():
            pass
        with pytest.raises(library.http.StreamConsumed):
            await library.polite.page_directives(response, gate)
    async with client.stream("GET", f"{site.base}/page") as response:
        pass
    with pytest.raises(library.http.StreamClosed):
        await library.polite.page_directives(response, gate)
