"""What pages say to crawlers, read of the responses of each client."""

import gzip
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import aiohttp
import httpx
import pytest
from aiohttp import web
from multidict import CIMultiDict

from politesse import AgentView, ConfigurationError, Gatekeeper
from politesse.integrations.aiohttp import PoliteSession, page_directives
from politesse.page import PageDirectives
from tests.support.httpx_libraries import LIBRARIES, Library
from tests.support.sites import Site, turns

Read = Callable[..., Awaitable[list[PageDirectives]]]

HEAD = '<meta name="robots" content="nofollow">'
PADDING = "<!-- " + "so that its octets come in pieces " * 4_000 + " -->"
HEADER = ("X-Robots-Tag", 1, "noindex")
BOTH = [HEADER, ("META robots", 1, "nofollow")]


@dataclass
class Answer:
    """What the server says of one path.

    Attributes:
        head: of its HTML.
        tags: the lines of X-Robots-Tag.
        content_type: aiohttp would send application/octet-stream where nothing is set.
        coding: ``gzip`` to compress it, anything else only names it.
        status: with 302, a Location is sent that leads to ``/page``.
    """

    head: str = HEAD
    tags: Sequence[str] = ("noindex",)
    content_type: str = "text/html"
    coding: str = ""
    status: int = 200

    def response(self) -> web.Response:
        body = f"<!DOCTYPE html><html><head>{self.head}{PADDING}</head><body>the page</body></html>".encode()
        headers = CIMultiDict({"Content-Type": self.content_type})
        headers.extend([("X-Robots-Tag", tag) for tag in self.tags])
        if self.coding:
            headers["Content-Encoding"] = self.coding
        if self.status == 302:
            headers["Location"] = "/page"
        body = gzip.compress(body) if self.coding == "gzip" else body
        return web.Response(status=self.status, body=body, headers=headers)


@dataclass
class Pages(Site):
    """A server on loopback; a path that is not among ``answers`` has the usual answer."""

    answers: dict[str, Answer] = field(default_factory=dict)

    async def page(self, request: web.Request) -> web.Response:
        return self.answers.get(request.path, Answer()).response()


@pytest.fixture
def site_class() -> type[Pages]:
    return Pages


def said(page: PageDirectives) -> list[tuple[str, int, str]]:
    """Return where each directive stands, and which it is."""
    return [(one.field, one.number, one.name) for one in page.statements]


async def by_aiohttp(gate: Gatekeeper, url: str, *views: AgentView, method: str = "GET") -> list[PageDirectives]:
    """Return the directives of each response, for each view."""
    async with PoliteSession(gate) as polite, polite.request(method, url) as response:
        return [await page_directives(one, view) for one in (*response.history, response) for view in views or [gate]]


async def by_httpx(
    library: Library, gate: Gatekeeper, url: str, *views: AgentView, method: str = "GET"
) -> list[PageDirectives]:
    transport = library.polite.PoliteTransport(gate)
    async with library.http.AsyncClient(transport=transport, follow_redirects=True) as client:
        last = await client.request(method, url)
        responses = (*last.history, last)
        return [await library.polite.page_directives(one, view) for one in responses for view in views or [gate]]


each_client = pytest.mark.parametrize("read", [by_aiohttp, *(partial(by_httpx, Library(name)) for name in LIBRARIES)])


@each_client
async def test_header_and_meta_of_each_response_are_read(
    site: Pages, gate: Gatekeeper, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = await read(gate, f"{site.base}/page", gate, gate)
    assert [said(page) for page in pages] == [BOTH, BOTH]
    assert not any((pages[0].may_index(0.0), pages[0].may_follow, pages[0].truncated))
    tags = ["OtherBot: noindex", "nofollow", "noarchive"]
    site.answers |= {"/lines": Answer("", tags), "/packed": Answer(coding="gzip"), "/silent-page": Answer("")}
    [lines] = await read(gate, f"{site.base}/lines")
    assert said(lines) == [("X-Robots-Tag", 2, "nofollow"), ("X-Robots-Tag", 3, "noarchive")]
    [packed] = await read(gate, f"{site.base}/packed")
    assert (said(packed), packed.truncated) == (BOTH, False)
    [head] = await read(gate, f"{site.base}/page", method="HEAD")
    assert (said(head), head.truncated) == ([HEADER], False)
    site.answers["/moved"] = Answer(tags=["noarchive"], status=302)
    moved, page = await read(gate, f"{site.base}/moved")
    assert (said(moved), said(page)) == ([("X-Robots-Tag", 1, "noarchive")], BOTH)
    monkeypatch.setitem(sys.modules, "selectolax.lexbor", None)
    [silent] = await read(gate, f"{site.base}/silent-page")
    assert said(silent) == [HEADER]
    with pytest.raises(ImportError, match=r"pip install '\.\[html\]'"):
        await read(gate, f"{site.base}/page")


@each_client
async def test_directive_that_names_the_crawler_is_for_it_alone(site: Pages, gate: Gatekeeper, read: Read) -> None:
    metas = {"ExampleBot": "noarchive", "OtherBot": "nosnippet", "ExampleBot-Image": "none"}
    head = "".join(f'<meta name="{name}" content="{content}">' for name, content in metas.items())
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


# Of aiohttp


async def test_header_and_meta_are_read_with_any_session(site: Pages, gate: Gatekeeper, polite: PoliteSession) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{site.base}/page") as response:
        await response.text()
        assert said(await page_directives(response, gate)) == BOTH
    site.answers["/any"] = Answer(content_type="*/*")
    for path in ("/page", "/any"):
        async with polite.get(f"{site.base}{path}") as response:
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


async def test_of_other_media_the_body_is_not_read(site: Pages, polite: PoliteSession, gate: Gatekeeper) -> None:
    site.answers["/page"] = Answer(content_type="text/plain")
    async with polite.get(f"{site.base}/page") as response:
        page = await polite.page_directives(response)
        assert turns(gate) == 1  # its end has not come
        assert "the page" in await response.text()
    assert (said(page), page.truncated) == ([HEADER], False)


async def test_body_that_was_streamed_or_released_or_is_bad_is_an_error(site: Pages, polite: PoliteSession) -> None:
    for octets in (10, -1):
        async with polite.get(f"{site.base}/page") as response:
            await response.content.read(octets)
            with pytest.raises(ConfigurationError, match=r"/page.*response\.content"):
                await polite.page_directives(response)
    async with polite.get(f"{site.base}/page") as response:
        pass
    with pytest.raises(aiohttp.ClientConnectionError):
        await polite.page_directives(response)
    site.answers["/page"] = Answer(coding="deflate")  # which it is not
    async with polite.get(f"{site.base}/page") as response:
        with pytest.raises(aiohttp.ClientPayloadError):
            await polite.page_directives(response)


# Of httpx


async def test_body_of_httpx_is_read_unless_it_was_streamed_before_or_is_of_another_kind(
    site: Pages, client: httpx.AsyncClient, gate: Gatekeeper, library: Library
) -> None:
    directives = library.polite.page_directives
    async with client.stream("GET", f"{site.base}/page") as response:
        assert said(await directives(response, gate)) == BOTH
        assert turns(gate) == 0
        assert "the page" in response.text
    async with client.stream("GET", f"{site.base}/page") as response:
        async for _ in response.aiter_bytes():
            pass
        with pytest.raises(library.http.StreamConsumed):
            await directives(response, gate)
    async with client.stream("GET", f"{site.base}/page") as response:
        pass
    with pytest.raises(library.http.StreamClosed):
        await directives(response, gate)
    site.answers |= {"/packed": Answer(coding="compress"), "/plain": Answer(coding="identity")}
    packed = await directives(await client.get(f"{site.base}/packed"), gate)  # httpx cannot decode it
    plain = await directives(await client.get(f"{site.base}/plain"), gate)
    assert (said(packed), packed.truncated) == ([HEADER], True)
    assert (said(plain), plain.truncated) == (BOTH, False)
    site.answers["/page"] = Answer(content_type="text/plain")
    async with client.stream("GET", f"{site.base}/page") as response:
        page = await directives(response, gate)
        assert not response.is_stream_consumed
    assert (said(page), page.truncated) == ([HEADER], False)
