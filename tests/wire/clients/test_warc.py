"""A WARC file of pages, read back by warcio."""

import asyncio
import gzip
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from aiohttp import web
from warcio.archiveiterator import ArchiveIterator

from politesse import ConfigurationError, Gatekeeper, PoliteQueue, PoliteSession
from politesse.integrations.httpx import PoliteTransport
from politesse.integrations.warc import WarcFile
from politesse.queue import CrawlPage
from tests.support.sites import UA, Site

pytestmark = pytest.mark.realtime

BODY = "é" * 5_000


class Packed(Site):
    """Its page /packed is compressed."""

    async def respond(self, request: web.Request) -> web.StreamResponse:
        if request.path != "/packed":
            return await super().respond(request)
        headers = {"Content-Encoding": "gzip", "Content-Type": "text/plain; charset=utf-8", "X-Two": "a"}
        return web.Response(body=gzip.compress(BODY.encode()), headers=headers)


@pytest.fixture
def site_class() -> type[Packed]:
    return Packed


def read(path: Path) -> list[tuple[str, str, Any, bytes]]:
    """Return the type, URL, record and payload of each record; the digests are checked."""
    with path.open("rb") as file:
        records = ArchiveIterator(file, check_digests="raise")
        return [
            (one.rec_type, one.rec_headers.get_header("WARC-Target-URI"), one, one.content_stream().read())
            for one in records
        ]


@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz"])
@pytest.mark.parametrize("library", ["aiohttp", "httpx"])
async def test_pages_of_a_crawl_are_read_back(
    site: Packed, gate: Gatekeeper, tmp_path: Path, name: str, library: str
) -> None:
    queue: PoliteQueue[None] = PoliteQueue(gate)
    for path in ("/packed", "/404?q=%C3%A9", "/private"):
        await queue.put(f"{site.base}{path}")
    client: Any = PoliteSession(gate) if library == "aiohttp" else httpx.AsyncClient(transport=PoliteTransport(gate))
    async with WarcFile(tmp_path / name, {"operator": "Example"}) as archive, client as web:

        async def handle(_: CrawlPage[None], response: aiohttp.ClientResponse | httpx.Response) -> None:
            await archive.add(response)

        report = await queue.crawl(web, handle)
    assert (report.pages, report.failed) == (2, 0)
    info, *pairs = read(tmp_path / name)
    assert info[0] == "warcinfo"
    assert b"robots: obey\r\n" in info[3]
    assert b"operator: Example\r\n" in info[3]
    by_url = {(kind, url): (record, payload) for kind, url, record, payload in pairs}
    assert len(by_url) == len(pairs) == 4
    record, payload = by_url["response", f"{site.base}/packed"]
    assert payload == BODY.encode()
    fields = record.http_headers
    assert (fields.statusline, fields.protocol) == ("200 OK", "HTTP/1.1")
    assert fields.get_header("Content-Encoding") is None
    assert fields.get_header("X-Archive-Orig-Content-Encoding") == "gzip"
    assert fields.get_header("Content-Length") == str(len(BODY.encode()))
    assert fields.get_header("X-Two") == "a"
    request, _ = by_url["request", f"{site.base}/404?q=%C3%A9"]
    assert request.http_headers.statusline == "/404?q=%C3%A9 HTTP/1.1"
    assert request.http_headers.get_header("User-Agent") == UA
    answer, _ = by_url["response", f"{site.base}/404?q=%C3%A9"]
    assert answer.http_headers.get_statuscode() == "404"
    assert request.rec_headers.get_header("WARC-Concurrent-To") == answer.rec_headers.get_header("WARC-Record-ID")


async def test_part_of_a_body_is_truncated_and_secrets_are_left_out(
    site: Packed, gate: Gatekeeper, tmp_path: Path
) -> None:
    secrets = {"Authorization": "Basic secret", "Cookie": "key=secret", "X-Mine": "kept"}
    async with (
        WarcFile(tmp_path / "a.warc") as archive,
        PoliteSession(gate) as web,
        web.get(f"{site.base}/packed", headers=secrets) as response,
    ):
        await archive.add(response, await response.content.read(10), truncated=True)
    assert site.seen[-1].headers["Authorization"] == "Basic secret"
    assert b"secret" not in (tmp_path / "a.warc").read_bytes()
    _, (_, _, record, payload), (_, _, request, _) = read(tmp_path / "a.warc")
    assert request.http_headers.get_header("X-Mine") == "kept"
    assert (record.rec_headers.get_header("WARC-Truncated"), len(payload)) == ("length", 10)


async def test_pages_at_once_and_a_cancelled_task_leave_whole_records(site: Packed, tmp_path: Path) -> None:
    async with (
        WarcFile(tmp_path / "a.warc.gz") as archive,
        aiohttp.ClientSession() as web,
        web.get(f"{site.base}/packed") as response,
    ):
        body = await response.read()
        adding = [asyncio.create_task(archive.add(response, body * 50)) for _ in range(20)]
        await asyncio.sleep(0)
        for task in adding[::2]:
            task.cancel()
        await asyncio.gather(*adding, return_exceptions=True)
    records = read(tmp_path / "a.warc.gz")
    kinds = [kind for kind, *_ in records]
    assert kinds == ["warcinfo", *["response", "request"] * (len(kinds) // 2)]
    assert len(kinds) >= 21
    assert {payload for kind, _, _, payload in records if kind == "response"} == {body * 50}


async def test_file_that_exists_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(b"kept")
    with pytest.raises(ConfigurationError, match=r"a\.warc exists: give another name"):
        WarcFile(path)
    assert path.read_bytes() == b"kept"


async def test_closed_file_takes_no_response(site: Packed, tmp_path: Path) -> None:
    archive = WarcFile(tmp_path / "a.warc")
    await archive.aclose()
    await archive.aclose()
    async with aiohttp.ClientSession() as web, web.get(f"{site.base}/packed") as response:
        with pytest.raises(ValueError, match="closed file"):
            await archive.add(response)
    assert len(read(tmp_path / "a.warc")) == 1


@pytest.mark.parametrize("library", ["aiohttp", "httpx"])
@pytest.mark.parametrize("kind", ["form", "stream"])
async def test_request_record_states_no_length_of_a_body_that_it_lacks(
    site: Packed, tmp_path: Path, library: str, kind: str
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"q=1"

    sent: Any = {"q": "1"} if kind == "form" else chunks()
    async with WarcFile(tmp_path / "a.warc") as archive:
        if library == "aiohttp":
            async with aiohttp.ClientSession() as web, web.post(f"{site.base}/packed", data=sent) as response:
                await archive.add(response)
        else:
            async with httpx.AsyncClient() as client:
                given: Any = {"data": sent} if kind == "form" else {"content": sent}
                await archive.add(await client.post(f"{site.base}/packed", **given))
    _, _, (kind_of_record, _, record, payload) = read(tmp_path / "a.warc")
    headers = record.http_headers
    assert (kind_of_record, payload) == ("request", b"")
    assert headers.get_header("Content-Length") is headers.get_header("Transfer-Encoding") is None
    stated = {name: headers.get_header(f"X-Archive-Orig-{name}") for name in ("Content-Length", "Transfer-Encoding")}
    wanted = {"Content-Length": "3", "Transfer-Encoding": None}
    assert stated == (wanted if kind == "form" else {"Content-Length": None, "Transfer-Encoding": "chunked"})


async def test_record_has_the_time_of_the_call_even_if_the_disk_is_slow(site: Packed, tmp_path: Path) -> None:
    may_write = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        asyncio.get_running_loop().set_default_executor(executor)
        async with WarcFile(tmp_path / "a.warc") as archive, httpx.AsyncClient() as client:
            response = await client.get(f"{site.base}/packed")
            before = asyncio.get_running_loop().run_in_executor(None, may_write.wait)
            added = asyncio.create_task(archive.add(response))
            await asyncio.sleep(0.01)
            called = datetime.now(UTC)
            await asyncio.sleep(0.01)
            may_write.set()
            await asyncio.gather(before, added)
    _, (_, _, record, _), (_, _, request, _) = read(tmp_path / "a.warc")
    for one in (record, request):
        assert datetime.fromisoformat(one.rec_headers.get_header("WARC-Date")) <= called
