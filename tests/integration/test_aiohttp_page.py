"""What pages say to crawlers, read of aiohttp's responses."""

import sys

import aiohttp
import pytest

from politesse import ConfigurationError, Gatekeeper
from politesse.integrations.aiohttp import PoliteSession, page_directives
from tests.integration.pages import BOTH, HEADER, Answer, Pages, said
from tests.integration.sites import turns


@pytest.fixture
def site_class() -> type[Pages]:
    return Pages


async def test_header_and_meta_are_read_with_a_polite_session(site: Pages, polite: PoliteSession) -> None:
    async with polite.get(f"{site.base}/page") as response:
        page = await polite.page_directives(response)
        assert "the page" in await response.text()
    assert said(page) == BOTH
    assert not page.may_index(0.0)
    assert not page.may_follow
    assert not page.truncated


async def test_header_and_meta_are_read_with_any_session(site: Pages, gate: Gatekeeper) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{site.base}/page") as response:
        await response.text()
        assert said(await page_directives(response, gate)) == BOTH
        assert said(await page_directives(response, gate)) == BOTH


async def test_directive_that_names_the_crawler_is_for_it_alone(site: Pages, gate: Gatekeeper) -> None:
    head = "".join(
        f'<meta name="{name}" content="{content}">'
        for name, content in {"ExampleBot": "noarchive", "OtherBot": "nosnippet", "ExampleBot-Image": "none"}.items()
    )
    site.answers["/page"] = Answer(head, ["ExampleBot: nofollow", "OtherBot: noindex"])
    image = gate.agent(tokens=["ExampleBot-Image", "ExampleBot"], user_agent="ExampleBot-Image/1.0")
    other = gate.agent(tokens="OtherBot", user_agent="OtherBot/1.0")
    async with PoliteSession(gate) as polite, polite.get(f"{site.base}/page") as response:
        names = [
            [(one.field, one.name) for one in (await page_directives(response, view)).statements]
            for view in (gate, other, image)
        ]
    own = [("X-Robots-Tag", "nofollow"), ("META examplebot", "noarchive")]
    assert names == [
        own,
        [("X-Robots-Tag", "noindex"), ("META otherbot", "nosnippet")],
        [*own, ("META examplebot-image", "none")],
    ]


async def test_repeated_headers_combine(site: Pages, polite: PoliteSession) -> None:
    site.answers["/page"] = Answer("", ["OtherBot: noindex", "nofollow", "noarchive"])
    async with polite.get(f"{site.base}/page") as response:
        page = await polite.page_directives(response)
    assert said(page) == [("X-Robots-Tag", 2, "nofollow"), ("X-Robots-Tag", 3, "noarchive")]


async def test_compressed_page_is_read(site: Pages, polite: PoliteSession) -> None:
    site.answers["/page"] = Answer(coding="gzip")
    async with polite.get(f"{site.base}/page") as response:
        page = await polite.page_directives(response)
    assert said(page) == BOTH
    assert not page.truncated


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


async def test_head_has_headers_alone(site: Pages, polite: PoliteSession) -> None:
    async with polite.head(f"{site.base}/page") as response:
        pass
    pages = [await polite.page_directives(response) for _ in range(2)]
    assert [(said(page), page.truncated) for page in pages] == [([HEADER], False)] * 2


async def test_redirect_has_headers_alone_and_its_target_all(site: Pages, polite: PoliteSession) -> None:
    site.answers["/moved"] = Answer(tags=["noarchive"], status=302)
    async with polite.get(f"{site.base}/moved") as response:
        [moved] = response.history
        assert said(await polite.page_directives(moved)) == [("X-Robots-Tag", 1, "noarchive")]
        assert said(await polite.page_directives(response)) == BOTH


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


async def test_missing_extra_is_named(site: Pages, polite: PoliteSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "selectolax.lexbor", None)
    site.answers["/silent-page"] = Answer("")
    async with polite.get(f"{site.base}/silent-page") as response:
        assert said(await polite.page_directives(response)) == [HEADER]
    async with polite.get(f"{site.base}/page") as response:
        with pytest.raises(ImportError, match=r"pip install '\.\[html\]'"):
            await polite.page_directives(response)
