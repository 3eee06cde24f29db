"""queue.crawl over real servers, with every client that it takes: what the servers' logs and WARC files say."""

import asyncio
import gzip
import json
import logging
import re
import threading
import warnings
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp
import httpx
import pytest
from aiohttp import web
from warcio.archiveiterator import ArchiveIterator

from politesse import ConfigurationError, Disallowed, Gatekeeper, PoliteSession, Verdict
from politesse.errors import ClosedError, InvalidURL, TooFar, TurnHeld
from politesse.events import Event, HostClosed, LongWait, TurnDropped
from politesse.integrations.warc import WarcFile
from politesse.queue import CrawlPage, PoliteQueue
from politesse.testing import ScriptedFetcher
from tests.support.events import events_of
from tests.support.ports import free_port
from tests.support.sites import EAGER, UA, Server, Site, turns, until
from tests.support.tiers import first_of
from tests.tools.cli.command import politesse
from tests.wire.clients.clients import CRAWLING, judge

pytestmark = pytest.mark.realtime

Queue = PoliteQueue[object]
BODY = "é" * 5_000


class LinkedSite(Site):
    """A site whose front page links to the others, and whose page /packed is compressed."""

    links: tuple[str, ...] = ()
    raw: list[str] | None = None  # the paths as they were sent
    files: Mapping[str, tuple[bytes, dict[str, str]]] = MappingProxyType({})

    async def respond(self, request: web.Request) -> web.StreamResponse:
        if self.raw is not None and request.path != "/robots.txt":
            self.raw.append(request.raw_path)
        if request.path in self.files:
            body, headers = self.files[request.path]
            return web.Response(body=body, headers=headers)
        if request.path == "/packed":
            headers = {"Content-Encoding": "gzip", "Content-Type": "text/plain; charset=utf-8", "X-Two": "a"}
            return web.Response(body=gzip.compress(BODY.encode()), headers=headers)
        if request.path == "/broken.xml":
            response = web.StreamResponse(headers={"Content-Length": "1000"})
            await response.prepare(request)
            await response.write(urlset(f"{self.base}/6"))
            assert request.transport is not None
            request.transport.close()
            return response
        if request.path == "/":
            return web.Response(text=" ".join(f'<a href="{link}">' for link in self.links))
        return await super().respond(request)


def urlset(*urls: str) -> bytes:
    return f"<urlset>{''.join(f'<url><loc>{url}</loc></url>' for url in urls)}</urlset>".encode()


@pytest.fixture
def site_class() -> type[Server]:
    return LinkedSite


@pytest.fixture(params=CRAWLING)
async def web_client(request: pytest.FixtureRequest, gate: Gatekeeper) -> AsyncIterator[Any]:
    async with CRAWLING[request.param](gate) as web:
        yield web


@pytest.fixture
def queue(gate: Gatekeeper) -> Queue:
    return Queue(gate)


async def body(response: Any) -> str:
    return await response.text() if isinstance(response, aiohttp.ClientResponse) else response.text


class Pages:
    def __init__(self) -> None:
        self.urls: list[str] = []
        self.statuses: list[int] = []

    async def __call__(self, page: CrawlPage[object], response: Any) -> None:
        text = await body(response)
        self.urls.append(page.url)
        self.statuses.append(response.status if isinstance(response, aiohttp.ClientResponse) else response.status_code)
        for link in re.findall(r'href="([^"]*)"', text):
            page.put(link)


async def test_every_client_crawls_and_the_servers_find_no_fault(
    gate: Gatekeeper, queue: Queue, web_client: Any, site: LinkedSite, other: LinkedSite
) -> None:
    site.links = ("/a", "/private/x", "/moved", "/404", "/%7Euser?%26", f"{other.base}/", "mailto:us", "/a#part")
    site.redirects = {"/moved": (301, f"{other.base}/far")}
    other.links = ("/b", site.base)
    pages = Pages()
    written = [site.base.replace("http", "HTTP"), *(site.base + path for path in ("/é b", "/x?", "/y#part"))]
    for url in written:  # as people write them
        await queue.put(url)
    report = await queue.crawl(web_client, pages)
    found = ["/a", "/404", "/%7Euser?%26"]
    assert sorted(pages.urls) == sorted(
        [*written, *(site.base + path for path in found), *(other.base + path for path in ("/", "/b", "/far"))]
    )
    assert sorted(pages.statuses) == [200] * 9 + [404]
    assert (report.pages, report.redirects, report.disallowed, report.bad_links) == (10, 1, 1, 0)
    assert (report.failed, report.left, turns(gate)) == (0, 0, 0)
    assert sorted(path.rstrip("?") for path in site.pages) == sorted([*found, "/", "/y", "/%C3%A9%20b", "/x", "/moved"])
    judge(site, other)


async def test_body_that_is_read_frees_its_host_before_handle_returns_and_ends_the_request_of_its_record(
    queue: Queue, web_client: Any, site: LinkedSite
) -> None:
    records: list[dict[str, Any]] = []
    both, under_way = asyncio.Event(), []

    async def handle(page: CrawlPage[object], response: Any) -> None:
        await body(response)
        under_way.append(page)
        if len(under_way) == 2:
            both.set()
        await both.wait()
        await asyncio.sleep(0.1)

    await queue.put(f"{site.base}/1")
    await queue.put(f"{site.base}/2")
    assert (await queue.crawl(web_client, handle, out=records.append)).pages == 2
    assert min(record["elapsed_s"] - record["request_s"] for record in records) > 0.09


@pytest.mark.parametrize("web_client", first_of(1, CRAWLING), indirect=True)
async def test_every_client_reads_sitemaps_as_streams(
    gate: Gatekeeper, queue: Queue, web_client: Any, site: LinkedSite, other: LinkedSite
) -> None:
    maps = ("/one.xml.gz", "/two", "/moved.xml", "/404.xml", "/broken.xml")
    site.robots += "".join(f"Sitemap: {site.base}{path}\n" for path in maps) + f"Sitemap: {other.base}/index.xml\n"
    site.redirects = {"/moved.xml": (302, f"{other.base}/four.xml")}
    many = [f"{site.base}/1?{number:07}" for number in range(2)]
    site.files = {
        "/one.xml.gz": (gzip.compress(urlset(*many[:1] * 40_000, many[1])), {"Content-Type": "application/gzip"}),
        "/two": (gzip.compress(urlset(f"{site.base}/2")), {"Content-Encoding": "gzip", "Content-Type": "text/xml"}),
        "/404.xml": (b"<urlset><url><loc>", {}),
    }
    index = urlset(f"{other.base}/three.txt").replace(b"urlset", b"sitemapindex").replace(b"url>", b"sitemap>")
    other.files = {
        "/index.xml": (index, {}),
        "/three.txt": (f"{site.base}/3\n{other.base}/3\n".encode(), {"Content-Type": "text/plain"}),
        "/four.xml": (urlset(f"{site.base}/4", f"{other.base}/4"), {}),
    }
    pages, errors = Pages(), set()
    assert await queue.put_sitemaps(site.base) == 6
    report = await queue.crawl(web_client, pages, on_error=lambda page, _: errors.add(page.url))
    wanted = [*many, *(f"{site.base}/{n}" for n in (2, 3, 4, 6)), f"{other.base}/3"]
    assert sorted(pages.urls) == sorted(wanted)
    assert (report.pages, report.sitemaps, report.redirects, report.failed, report.left) == (7, 5, 1, 2, 0)
    # The turn of a file lasts until its last URL is queued, and files come after pages.
    assert site.pages.index("/1?0000001") < site.pages.index("/two")
    assert errors == {f"{site.base}/404.xml", f"{site.base}/broken.xml"}
    assert turns(gate) == 0
    judge(site, other)


async def test_a_request_that_fails_is_logged_in_the_words_of_its_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "politesse.queue")
    url = f"http://127.0.0.1:{free_port()}/"
    async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate, PoliteSession(gate) as web_client:
        queue = Queue(gate)
        await queue.put(url)
        report = await queue.crawl(web_client, Pages())
    [line] = caplog.messages
    assert line.startswith(f"{url} failed: aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host ")
    assert f"{url[7:-1]} [Connect call failed" in line
    assert report.failed == 1


async def test_a_refusal_closes_its_host_once(
    gate: Gatekeeper, queue: Queue, web_client: Any, site: LinkedSite
) -> None:
    closures = events_of(gate, HostClosed)
    await queue.put(f"{site.base}/503")
    crawl = asyncio.create_task(queue.crawl(web_client, Pages()))
    await until(lambda: queue.qsize() == 1 and bool(site.pages))
    crawl.cancel()
    with pytest.raises(asyncio.CancelledError):
        await crawl
    assert (queue.qsize(), site.pages, [closure.status for closure in closures]) == (1, ["/503"], [503])


@pytest.mark.parametrize("kind", [aiohttp.ClientSession, PoliteSession])
async def test_a_refusal_is_heeded_though_the_session_raises_an_error_for_its_status(
    gate: Gatekeeper, site: LinkedSite, kind: type
) -> None:
    seen: list[int] = []

    async def raises(response: aiohttp.ClientResponse) -> None:
        seen.append(response.status)
        response.raise_for_status()

    queue, errors = Queue(gate, max_wait_s=60.0), []
    for path in ("/404", "/page", "/503", "/later"):
        await queue.put(f"{site.base}{path}")
    async with kind(*([gate] if kind is PoliteSession else []), raise_for_status=raises) as web:
        report = await queue.crawl(web, Pages(), workers=1, on_error=lambda page, _: errors.append(page.url))
    assert (report.pages, report.given_up, errors) == (1, 2, [f"{site.base}/404"])
    assert (site.pages, seen) == (["/404", "/page", "/503"], [404, 200])


async def test_each_url_is_sent_as_it_was_judged_or_not_at_all(queue: Queue, web_client: Any, site: LinkedSite) -> None:
    site.raw, errors = [], []
    for path in ("/\u00fc/a%40b", "/a x", "/%61/./b", "/b/%2e%2E/c"):
        await queue.put(site.base + path)
    await queue.crawl(web_client, Pages(), on_error=lambda _, error: errors.append(error))
    assert site.raw == ["/%C3%BC/a%40b", "/a%20x"]
    assert [isinstance(error, InvalidURL) for error in errors] == [True, True]


async def test_a_server_that_hangs_up_is_a_failure_and_a_session_that_is_closed_ends_the_crawl(
    gate: Gatekeeper, queue: Queue, web_client: Any, site: LinkedSite
) -> None:
    errors: list[str] = []

    async def close(page: CrawlPage[object], response: Any) -> None:
        await (web_client.aclose() if hasattr(web_client, "aclose") else web_client.close())

    site.drops = 99
    await queue.put(f"{site.base}/drop")
    await queue.put(f"{site.base}/page")
    report = await queue.crawl(web_client, Pages(), on_error=lambda page, _: errors.append(page.url))
    assert (report.pages, report.failed, errors) == (1, 1, [f"{site.base}/drop"])
    for place in range(3):
        await queue.put(f"{site.base}/{place}")
    for handle in (close, Pages()):
        with pytest.raises(RuntimeError, match="the session of the crawl is closed"):
            await queue.crawl(web_client, handle, workers=1)
    assert (queue.qsize(), turns(gate)) == (2, 0)


async def test_client_of_a_crawl_is_asynchronous_and_of_its_gate(
    gate: Gatekeeper, queue: Queue, site: LinkedSite
) -> None:
    async with Gatekeeper(UA, pacing=EAGER) as other, PoliteSession(other) as web:
        with pytest.raises(ConfigurationError, match=r"create the queue with PoliteQueue\(web.gate\)"):
            await queue.crawl(web, Pages())
    with httpx.Client() as web, pytest.raises(ConfigurationError, match=r"give a PoliteSession, an aiohttp.ClientSes"):
        await queue.crawl(web, Pages())  # type: ignore[arg-type]
    async with PoliteSession(gate.agent(tokens=["ExampleBot"])) as web:  # a view of it
        await queue.put(f"{site.base}/")
        assert (await queue.crawl(web, Pages())).pages == 1


async def test_a_session_that_changes_its_requests_checks_those_of_a_crawl_as_well(
    gate: Gatekeeper, site: LinkedSite
) -> None:
    async def hide(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        request.url = request.url.with_path("/private/x")
        return await handler(request)

    errors: list[BaseException] = []
    for options in ({"middlewares": [hide]}, {"headers": {"Host": "b.example"}}):
        async with PoliteSession(gate, **options) as web:
            queue = Queue(gate)
            await queue.put(f"{site.base}/page")
            await queue.crawl(web, Pages(), on_error=lambda _, error: errors.append(error))
    assert [type(error).__name__ for error in errors] == ["ClientDisallowed", "ClientInvalidURL"]
    assert site.pages == []


async def test_a_crawl_ends_with_its_polite_session_though_the_session_below_stays_open(
    gate: Gatekeeper, site: LinkedSite
) -> None:
    queue = Queue(gate)
    async with aiohttp.ClientSession(headers={"User-Agent": UA}) as session:
        web = PoliteSession(gate, session=session)

        async def close(page: CrawlPage[object], response: object) -> None:
            page.put("/second")
            await web.close()

        await queue.put(f"{site.base}/first")
        with pytest.raises(ClosedError, match="the session of the crawl is closed"):
            await queue.crawl(web, close, workers=1)
    assert (site.pages, queue.qsize()) == (["/first"], 1)


# A WARC file of pages, read back by warcio


def read(path: Path) -> list[tuple[str, str, Any, bytes]]:
    """Return the type, URL, record and payload of each record; the digests are checked."""
    with path.open("rb") as file:
        records = ArchiveIterator(file, check_digests="raise")
        return [
            (one.rec_type, one.rec_headers.get_header("WARC-Target-URI"), one, one.content_stream().read())
            for one in records
        ]


@pytest.mark.parametrize(("name", "client"), [("a.warc", "httpx.PoliteTransport"), ("a.warc.gz", "PoliteSession")])
async def test_pages_of_a_crawl_are_read_back(
    site: LinkedSite, gate: Gatekeeper, queue: Queue, tmp_path: Path, name: str, client: str
) -> None:
    for path in ("/packed", "/404?q=%C3%A9", "/private"):
        await queue.put(f"{site.base}{path}")
    async with WarcFile(tmp_path / name, {"operator": "Example"}) as archive, CRAWLING[client](gate) as web:

        async def handle(page: CrawlPage[object], response: Any) -> None:
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


async def test_partial_body_is_marked_and_secrets_left_out(site: LinkedSite, gate: Gatekeeper, tmp_path: Path) -> None:
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


async def test_pages_at_once_and_a_cancelled_task_leave_whole_records(site: LinkedSite, tmp_path: Path) -> None:
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


async def test_file_that_exists_is_kept_and_a_closed_file_takes_no_response(site: LinkedSite, tmp_path: Path) -> None:
    archive = WarcFile(tmp_path / "a.warc")
    await archive.aclose()
    await archive.aclose()
    async with aiohttp.ClientSession() as web, web.get(f"{site.base}/packed") as response:
        with pytest.raises(ValueError, match="closed file"):
            await archive.add(response)
    with pytest.raises(ConfigurationError, match=r"a\.warc exists: give another name"):
        WarcFile(tmp_path / "a.warc")
    assert len(read(tmp_path / "a.warc")) == 1


@pytest.mark.parametrize("kind", ["form", "stream"])
async def test_request_record_states_no_length_of_a_missing_body(site: LinkedSite, tmp_path: Path, kind: str) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"q=1"

    url = f"{site.base}/packed"
    async with WarcFile(tmp_path / "a.warc") as archive, aiohttp.ClientSession() as web, httpx.AsyncClient() as client:
        async with web.post(url, data={"q": "1"} if kind == "form" else chunks()) as response:
            await archive.add(response)
        posted = client.post(url, data={"q": "1"}) if kind == "form" else client.post(url, content=chunks())
        await archive.add(await posted)
    requests = [
        (record.http_headers, payload) for one, _, record, payload in read(tmp_path / "a.warc") if one == "request"
    ]
    assert len(requests) == 2
    for headers, payload in requests:
        assert payload == b""
        assert headers.get_header("Content-Length") is headers.get_header("Transfer-Encoding") is None
        stated = [headers.get_header(f"X-Archive-Orig-{name}") for name in ("Content-Length", "Transfer-Encoding")]
        assert stated == (["3", None] if kind == "form" else [None, "chunked"])


async def test_record_has_the_time_of_the_call_even_if_the_disk_is_slow(site: LinkedSite, tmp_path: Path) -> None:
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


# URLs with userinfo and a fragment: the server gets the userinfo, and no record, event, log or error has either


USERINFO, FRAGMENT = "crawler:pa55w0rd@", "#t0ken"
SECRETS = ("pa55w0rd", "t0ken")
AUTHORIZATION = "Basic Y3Jhd2xlcjpwYTU1dzByZA=="  # RFC 7617 2: crawler:pa55w0rd


def secret(site: Site, path: str) -> str:
    return f"http://{USERINFO}{site.base.removeprefix('http://')}{path}{FRAGMENT}"


def texts_of(found: object) -> list[str]:
    """Return all texts that a subscriber sees in an event, or a caller in an error, its verdict included."""
    if isinstance(found, Verdict):
        return [found.url, str(found), repr(found), found.explain()]
    parts = [getattr(found, one.name) for one in fields(found)] if is_dataclass(found) else []
    parts += [*getattr(found, "args", ()), *vars(found).values()] if isinstance(found, BaseException) else []
    return [repr(found), str(found), *(text for part in parts for text in texts_of(part))]


def leaks(*found: object) -> list[str]:
    return [text for one in found for text in texts_of(one) if any(secret in text for secret in SECRETS)]


def leaking(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if any(secret.encode() in file.read_bytes() for secret in SECRETS)]


@pytest.mark.parametrize(
    "client", [name for name in CRAWLING if name not in {"RobotsMiddleware", "httpx2.PoliteTransport"}]
)
async def test_crawl_hides_secrets(site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture, client: str) -> None:
    caplog.set_level(logging.DEBUG, logger="politesse")
    site.redirects = {"/moved": (302, "/elsewhere")}
    paths = ["/page", "/private", "/moved", "/raises", "/404"]
    shown: list[object] = []
    gate = Gatekeeper(UA, pacing=EAGER, ledger=tmp_path / "ledger.db")
    events = events_of(gate, Event)
    async with gate, WarcFile(tmp_path / "crawl.warc") as archive, CRAWLING[client](gate) as web:

        async def handle(page: CrawlPage[None], response: Any) -> None:
            if client != "httpx2.AsyncClient":
                await archive.add(response)
            if "/raises" in page.url:
                raise ValueError("a page that raises")
            response.raise_for_status()  # an error that names the URL

        async with PoliteQueue[None](gate, journal=tmp_path / "journal.db") as queue:
            for path in paths:
                await queue.put(secret(site, path))
            shown.append(await queue.crawl(web, handle, out=tmp_path / "out.jsonl", on_progress=shown.append))
        shown += [repr(queue), gate.hosts(), repr(gate)]
    requested = {seen.path: seen.headers.get("Authorization") for seen in site.seen}
    given = dict.fromkeys(("/page", "/raises", "/404", "/moved"), AUTHORIZATION)
    assert requested == given | {"/robots.txt": None, "/elsewhere": requested["/elsewhere"]}
    records = {(one := json.loads(line))["url"]: one for line in (tmp_path / "out.jsonl").read_text().splitlines()}
    assert records.keys() >= {f"{site.base}{path}" for path in paths}
    assert f"{site.base}/404" in records[f"{site.base}/404"]["error"]
    for kind, target in (("export", [str(tmp_path / "ledger.jsonl")]), ("show", [])):
        shown.append((await politesse("ledger", kind, str(tmp_path / "ledger.db"), *target)).out)
    assert f"denied {site.base}/private " in str(shown[-1])
    logged = [one.getMessage() for one in caplog.records if one.name.startswith("politesse")]
    assert leaks(*events, *shown, *logged) == []
    assert {name.partition("-")[0] for name in leaking(tmp_path)} <= {"journal.db"}  # a later run must request its URLs


async def test_no_error_or_warning_has_a_password(site: Site) -> None:
    errors: list[BaseException] = []
    async with Gatekeeper(UA, pacing=EAGER) as gate:
        events = events_of(gate, Event)
        page, private = secret(site, "/page"), secret(site, "/private")
        with pytest.raises(Disallowed) as disallowed:
            await gate.take_turn(private)
        async with gate.turn(page) as turn:
            assert turn.url == page
            assert leaks(repr(turn)) == []
            for url in (page, secret(site, "/other")):
                with pytest.raises((TurnHeld, TooFar)) as held:
                    await gate.take_turn(url)
                errors.append(held.value)
        for text in (
            f"ftp://{USERINFO}example.com/",
            *(f"https://crawler:pa55w0rd{end}x@example.com/" for end in "/#?"),
            f"https://{USERINFO}exa mple.com/",
            f"{USERINFO}example.com/",
            "https://exa mple.com/#t0ken",
        ):
            with pytest.raises(InvalidURL) as invalid:
                await gate.check(text)
            errors.append(invalid.value)
            [verdict] = await gate.check_batch([text])
            assert leaks(verdict) == []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            (await gate.take_turn(page)).__del__()
            await asyncio.sleep(0)
        assert len(caught) == 1
        session = PoliteSession(gate)
        await session.close()
        with pytest.raises(ClosedError) as closed:
            await session.get(page)
        async with gate.turn(page) as turn:
            turn.observe(503, {"Retry-After": "3600"})
        with pytest.raises(TooFar) as too_far:
            await gate.take_turn(page, max_wait_s=1.0)
        waiting = asyncio.ensure_future(gate.take_turn(page))
        await asyncio.sleep(0.01)
        waiting.cancel()
        assert {type(event) for event in events} >= {TurnDropped, HostClosed, LongWait}
    errors += [disallowed.value, closed.value, too_far.value]
    assert leaks(*errors, *events, *(str(one.message) for one in caught)) == []


async def test_a_page_that_is_checked_by_the_command_is_requested_with_its_password(site: Site) -> None:
    done = await politesse("check", "--page", "--json", secret(site, "/page"))
    assert leaks(done.out + done.err) == []
    assert json.loads(done.out)["url"] == f"{site.base}/page"
    assert {seen.path: seen.headers.get("Authorization") for seen in site.seen}["/page"] == AUTHORIZATION


@pytest.mark.parametrize("target", ["ftp://crawler:pa55w0rd@h.example/#t0ken", "//crawler:pa55w0rd@h:99999/#t0ken"])
async def test_redirects_hide_secrets(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture, target: str
) -> None:
    caplog.set_level(logging.DEBUG, logger="politesse")
    site.redirects = {"/moved": (302, target)}
    records: list[dict[str, Any]] = []

    async def handle(page: CrawlPage[None], response: aiohttp.ClientResponse) -> None:
        raise AssertionError(page, response)

    async with Gatekeeper(UA, pacing=EAGER, ledger=tmp_path / "ledger.db") as gate, PoliteSession(gate) as web:
        events = events_of(gate, Event)
        queue: PoliteQueue[None] = PoliteQueue(gate)
        await queue.put(f"{site.base}/moved")
        await queue.crawl(web, handle, out=records.append)
        site.redirects = {"/robots.txt": (302, target)}
        await gate.forget(site.base)
        verdict = await gate.check(f"{site.base}/page")
        shown = [verdict.explain(), gate.hosts(), records]
    assert "a redirect to" in verdict.explain()
    assert "redirects to" in records[0]["error"]
    assert leaks(*events, *shown, caplog.text) == []
    assert leaking(tmp_path) == []
