"""What pages say to crawlers, read of httpx's responses."""

import sys

import httpx
import pytest

from politesse import Gatekeeper
from politesse.integrations.httpx import RequestDisallowed, page_directives
from tests.integration.pages import BOTH, HEADER, Answer, Pages, said
from tests.integration.sites import turns


@pytest.fixture
def site_class() -> type[Pages]:
    return Pages


async def test_header_and_meta_are_read(site: Pages, client: httpx.AsyncClient, gate: Gatekeeper) -> None:
    response = await client.get(f"{site.base}/page")
    pages = [await page_directives(response, gate) for _ in range(2)]
    assert [said(page) for page in pages] == [BOTH, BOTH]
    assert not pages[0].truncated


async def test_body_that_is_streamed_is_read_and_kept(site: Pages, client: httpx.AsyncClient, gate: Gatekeeper) -> None:
    async with client.stream("GET", f"{site.base}/page") as response:
        assert said(await page_directives(response, gate)) == BOTH
        assert turns(gate) == 0
        assert "the page" in response.text


async def test_denied_page_has_none(site: Pages, client: httpx.AsyncClient, gate: Gatekeeper) -> None:
    with pytest.raises(RequestDisallowed):
        await page_directives(await client.get(f"{site.base}/private"), gate)
    assert site.pages == []


async def test_directive_that_names_the_crawler_is_for_it_alone(
    site: Pages, client: httpx.AsyncClient, gate: Gatekeeper
) -> None:
    head = '<meta name="ExampleBot" content="noarchive"><meta name="OtherBot" content="nosnippet">'
    site.answers["/page"] = Answer(head, ["ExampleBot: nofollow", "OtherBot: noindex"])
    response = await client.get(f"{site.base}/page")
    other = gate.agent(tokens="OtherBot", user_agent="OtherBot/1.0")
    names = [[one.name for one in (await page_directives(response, view)).statements] for view in (gate, other)]
    assert names == [["nofollow", "noarchive"], ["noindex", "nosnippet"]]


async def test_repeated_headers_combine(site: Pages, client: httpx.AsyncClient, gate: Gatekeeper) -> None:
    site.answers["/page"] = Answer("", ["OtherBot: noindex", "nofollow", "noarchive"])
    page = await page_directives(await client.get(f"{site.base}/page"), gate)
    assert said(page) == [("X-Robots-Tag", 2, "nofollow"), ("X-Robots-Tag", 3, "noarchive")]


async def test_compressed_page_is_read(site: Pages, client: httpx.AsyncClient, gate: Gatekeeper) -> None:
    site.answers["/page"] = Answer(coding="gzip")
    page = await page_directives(await client.get(f"{site.base}/page"), gate)
    assert (said(page), page.truncated) == (BOTH, False)


async def test_page_that_httpx_cannot_decode_says_that_there_may_be_more(
    site: Pages, client: httpx.AsyncClient, gate: Gatekeeper
) -> None:
    site.answers |= {"/page": Answer(coding="compress"), "/plain": Answer(coding="identity")}
    page = await page_directives(await client.get(f"{site.base}/page"), gate)
    plain = await page_directives(await client.get(f"{site.base}/plain"), gate)
    assert (said(page), page.truncated) == ([HEADER], True)
    assert (said(plain), plain.truncated) == (BOTH, False)


async def test_of_other_media_the_body_is_not_read(site: Pages, client: httpx.AsyncClient, gate: Gatekeeper) -> None:
    site.answers["/page"] = Answer(content_type="text/plain")
    async with client.stream("GET", f"{site.base}/page") as response:
        page = await page_directives(response, gate)
        assert not response.is_stream_consumed
    assert (said(page), page.truncated) == ([HEADER], False)


async def test_head_has_headers_alone(site: Pages, client: httpx.AsyncClient, gate: Gatekeeper) -> None:
    page = await page_directives(await client.head(f"{site.base}/page"), gate)
    assert (said(page), page.truncated) == ([HEADER], False)


async def test_redirect_has_headers_alone_and_its_target_all(
    site: Pages, client: httpx.AsyncClient, gate: Gatekeeper
) -> None:
    site.answers["/moved"] = Answer(tags=["noarchive"], status=302)
    response = await client.get(f"{site.base}/moved")
    assert said(await page_directives(response.history[0], gate)) == [("X-Robots-Tag", 1, "noarchive")]
    assert said(await page_directives(response, gate)) == BOTH


async def test_body_that_was_streamed_before_is_an_error(
    site: Pages, client: httpx.AsyncClient, gate: Gatekeeper
) -> None:
    async with client.stream("GET", f"{site.base}/page") as response:
        async for _ in response.aiter_bytes():
            pass
        with pytest.raises(httpx.StreamConsumed):
            await page_directives(response, gate)
    async with client.stream("GET", f"{site.base}/page") as response:
        pass
    with pytest.raises(httpx.StreamClosed):
        await page_directives(response, gate)


async def test_missing_extra_is_named(
    site: Pages, client: httpx.AsyncClient, gate: Gatekeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "selectolax.lexbor", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[html\]'"):
        await page_directives(await client.get(f"{site.base}/page"), gate)
