"""data.txt, asked of real servers."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from politesse import CacheOptions, ClosedError, FetchOptions, Gatekeeper
from politesse.ports import FaultKind
from politesse.sites import FileOutcome
from tests.integration.sites import EAGER, UA, Site, until

LENIENT = FetchOptions(private_addresses="allow")  # every server of a test is at a private address


class DataSite(Site):
    """A Site with a data.txt."""

    etag = ""

    async def respond(self, request: web.Request) -> web.StreamResponse:
        if request.path != "/data.txt" or request.path in self.redirects:
            return await super().respond(request)
        if self.etag and request.headers.get("If-None-Match") == self.etag:
            return web.Response(status=304, headers={"ETag": self.etag})
        headers = {"ETag": self.etag, "Cache-Control": "no-cache"} if self.etag else {}
        return web.Response(text="# ours\nDataset: /d.csv\n", headers=headers)


@pytest.fixture
def site_class() -> type[DataSite]:
    return DataSite


@pytest.fixture
async def gate() -> AsyncIterator[Gatekeeper]:
    async with Gatekeeper(UA, pacing=EAGER, fetch=LENIENT) as gate:
        yield gate


async def test_data_txt_is_asked_for_once_after_robots_txt_by_the_name_of_the_crawler(
    site: DataSite, gate: Gatekeeper
) -> None:
    answers = await asyncio.gather(*(gate.datatxt(f"{site.base}/{number}") for number in range(20)))
    assert {answer.text for answer in answers} == {"# ours\nDataset: /d.csv\n"}
    assert answers[0].records[0].fields == (("Dataset", "/d.csv"),)
    assert site.paths == ["/robots.txt", "/data.txt"]
    assert [seen.headers["User-Agent"] for seen in site.seen] == [UA, UA]
    assert site.seen[1].cookies == {}


@pytest.mark.realtime
async def test_server_that_is_silent_is_to_be_retried(site: DataSite) -> None:
    site.redirects["/data.txt"] = (302, "/silent")
    async with Gatekeeper(UA, pacing=EAGER, fetch=FetchOptions(total_timeout_s=1.0)) as gate:
        answer = await gate.datatxt(site.base)
        assert (answer.outcome, answer.status) == (FileOutcome.RETRY, None)
        assert answer.file.fault.startswith(FaultKind.TIMEOUT)
        assert gate.statistics().turns == 0


async def test_redirect_to_a_private_address_of_another_host_is_refused(site: DataSite, other: DataSite) -> None:
    site.redirects["/data.txt"] = (301, f"{other.base}/data.txt")
    async with Gatekeeper(UA, pacing=EAGER) as gate:
        answer = await gate.datatxt(site.base)
        assert answer.outcome is FileOutcome.RETRY
        assert "private" in answer.file.fault
        assert other.pages == []


async def test_copy_is_asked_for_again_with_its_validator(site: DataSite) -> None:
    site.etag = '"1"'
    cache = CacheOptions(min_lifetime_s=0.0)
    async with Gatekeeper(UA, pacing=EAGER, cache=cache) as gate:
        for _ in range(2):
            assert (await gate.datatxt(site.base)).records[0].fields == (("Dataset", "/d.csv"),)
            await asyncio.sleep(0.005)  # "no-cache" holds for a millisecond
    asked = [seen for seen in site.seen if seen.path == "/data.txt"]
    assert [seen.status for seen in asked] == [200, 304]


async def test_closing_while_the_server_is_silent_ends_the_request(site: DataSite) -> None:
    site.redirects["/data.txt"] = (302, "/silent")
    async with Gatekeeper(UA, pacing=EAGER) as gate:
        waiting = asyncio.ensure_future(gate.datatxt(site.base))
        await until(lambda: "/silent" in site.paths)
    with pytest.raises(ClosedError):
        await waiting
