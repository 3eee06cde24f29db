"""The pace of crawls as servers saw it: of hostile settings, several spiders, other queues and schemes, and fleets.

The sleeps are real: each crawl is a process, with Scrapy's own clock.
"""

import asyncio
import json
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
import trustme
from aiohttp import web

from tests.support.redis_servers import RedisServer
from tests.wire.scrapy.crawling import (
    ADDON,
    OPEN,
    QUICK,
    Crawl,
    Site,
    answering,
    assert_sites_polite,
    chain,
    crawl,
    crawl_until,
    giving_up_after,
    html,
    in_turn,
    least_gap_s,
    redirect,
    serving,
    status,
    text,
    visit,
    wide,
)

pytestmark = [pytest.mark.realtime, pytest.mark.full]

ONE_S: Final = "User-agent: *\nCrawl-delay: 1\n"
FLOOR_S: Final = 0.1
MANY: Final = [f"/{number}" for number in range(6)]

# Scrapy's own default jitter is on in all of them.
HURRIED: Final = ADDON | {
    "DOWNLOAD_DELAY": FLOOR_S,
    "CONCURRENT_REQUESTS": 4,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
    "AUTOTHROTTLE_ENABLED": True,
    "AUTOTHROTTLE_START_DELAY": 0.01,
    "AUTOTHROTTLE_TARGET_CONCURRENCY": 100.0,
}


@pytest.mark.clause("RFC 9110 5.3")
async def test_all_lines_of_a_header_set_the_pace_and_the_first_of_two_locations_is_followed() -> None:
    def limited() -> web.Response:
        answer = html("/a")()
        for line in ('"daily";r=1000;t=1000', '"burst";r=0;t=4'):
            answer.headers.add("RateLimit", line)
        return answer

    def moved() -> web.Response:
        answer = redirect("/rules.txt")()
        answer.headers.add("Location", "/other.txt")
        return answer

    paced = Site(404, {"/": limited, "/a": html()})
    shut = Site(answering(moved), {"/": html(), "/rules.txt": text("User-agent: *\nDisallow: /\n")})
    done = await visit(HURRIED, paced, shut)
    assert paced.page_paths == ["/", "/a"]
    first, second = paced.page_exchanges
    assert second.started - first.ended >= 3.9
    assert shut.paths == ["/robots.txt", "/rules.txt"]
    assert set(done.ignored) == {f"{shut.base}/"}


async def test_each_of_many_hosts_keeps_its_pace_whatever_slots_and_throttle_say() -> None:
    forbidding = Site(f"{ONE_S}Disallow: /private\n", {"/": html(*MANY, "/private"), **dict.fromkeys(MANY, html())})
    # Each with a download_slot of its own: as many slots, and still one host.
    slots = Site(ONE_S, {"/": html(*(f"{path}#slot" for path in MANY)), **dict.fromkeys(MANY, html())})
    heavy = Site(ONE_S, {"/": html("/a"), "/a": html()}, page_s=3.0)
    there, here = Site(ONE_S), Site(ONE_S)
    busy = Site(ONE_S, {"/": in_turn(status(429, Retry_After="3"), html("/a")), "/a": html()})
    direct = Site(ONE_S, {"/": html(), "/x": html(), "/y": html()})
    fast = Site(404, chain(10))
    sites = [forbidding, slots, heavy, there, busy, direct, here, fast]
    async with serving(*sites):
        there.pages = {"/": redirect(f"{here.base}/on"), "/back": html("/last"), "/last": html()}
        here.pages = {"/on": redirect(f"{there.base}/back")}
        urls = [f"{site.base}/" for site in sites[:6]] + [f"{fast.base}/0"]
        # A request that a callback gives to the engine passes no scheduler.
        beside = {f"{direct.base}/": [f"{direct.base}/x", f"{direct.base}/y"]}
        done = await crawl(urls, HURRIED | {"RETRY_TIMES": 1}, direct=beside)
    assert_sites_polite(*sites, min_delay_s=FLOOR_S)
    assert done.stats["finish_reason"] == "finished"
    for site in sites:
        assert site.robots_count == 1
        assert site.paths[0] == "/robots.txt"
    for site in sites[:6]:
        assert least_gap_s(site, every=True) >= 1.0
    for site in (forbidding, slots):
        assert sorted(site.page_paths) == sorted(["/", *MANY])
    assert heavy.page_paths == ["/", "/a"]
    assert least_gap_s(heavy) >= 3.0  # a pause after a slow response is as long as the response took
    assert there.page_paths == ["/", "/back", "/last"]
    assert here.page_paths == ["/on"]
    assert busy.page_paths == ["/", "/", "/a"]
    assert busy.page_exchanges[1].started - busy.page_exchanges[0].ended >= 3.0
    assert sorted(direct.page_paths) == ["/", "/x", "/y"]
    # The fast host has one page at a time to be found, and the slow ones have queues that would fill every place.
    assert len(fast.page_paths) == 10
    assert fast.page_exchanges[-1].ended < forbidding.page_exchanges[-2].started
    # A request that waits is put back once at most, and each page is one decision however long it waits.
    pages = sum(len(site.page_exchanges) for site in sites)
    assert int(done.stats["scheduler/enqueued"]) <= 2 * pages
    assert done.decisions == pages + 1


async def test_download_delay_counts_from_the_end_of_an_answer_and_download_slots_set_that_of_a_host() -> None:
    floored, listed = Site(404, chain(4), page_s=0.3), Site(404, chain(3))
    throttle = {"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 1.5, "AUTOTHROTTLE_MAX_DELAY": 2.0}
    slots = {"DOWNLOAD_DELAY": 0.7, "DOWNLOAD_SLOTS": {"127.0.0.3": {"delay": 1.2, "concurrency": 5}}}
    await visit(ADDON | throttle | slots, floored, listed, path="/0")
    assert (floored.page_paths, listed.page_paths) == (["/0", "/1", "/2", "/3"], ["/0", "/1", "/2"])
    assert least_gap_s(floored, every=True) >= 0.7
    assert least_gap_s(listed) >= 1.2


# Several spiders in a process.


def named(name: str, **settings: object) -> dict[str, object]:
    return {"USER_AGENT": f"{name}/1.0 (+https://example.com/bot)", **settings}


async def test_two_spiders_of_unlike_delay_and_name_keep_the_slower_delay_together() -> None:
    delays_s = {"QuickBot": 0.2, "SlowBot": 0.7}
    site = Site(OPEN, chain(4), page_s=0.1)
    slow = named("SlowBot", DOWNLOAD_SLOTS={"127.0.0.2": {"delay": 0.7}}, POLITESSE_PACING={"adaptive_factor": 0.0})
    await visit(ADDON | named("QuickBot", DOWNLOAD_DELAY=0.2), site, path="/0", beside=[slow])
    assert sorted(site.page_paths) == sorted([*site.pages] * 2)
    assert site.robots_count == 1
    both = zip(site.agents, site.exchanges, strict=True)
    seen = [(exchange, agent) for agent, exchange in both if not exchange.url.endswith("/robots.txt")]
    seen.sort(key=lambda page: page[0].started)
    slows = [place for place, (_, agent) in enumerate(seen) if agent == "SlowBot"]
    for place, ((before, _), (after, agent)) in enumerate(pairwise(seen)):
        # Each keeps the delay of its spider; while the slower one crawls, both keep its delay.
        least_s = delays_s["SlowBot" if slows[0] <= place < slows[-1] else agent]
        assert after.started - before.ended >= least_s, (place, agent)


async def test_ten_spiders_make_one_request_at_a_time_and_share_one_robots_txt() -> None:
    async def robots(_: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(0.3)
        return text("User-agent: *\nDisallow: /private\n")()

    site = Site(robots, {"/": html("/private")}, page_s=0.1)
    beside = [named(f"Bot-{letter}") for letter in "abcdefghi"]
    await visit(ADDON | {"DOWNLOAD_DELAY": 0.2}, site, beside=beside)
    assert site.page_paths == ["/"] * 10
    assert site.robots_count == 1
    assert_sites_polite(site, min_delay_s=0.2)


# A scheduler with another queue than PolitePriorityQueue, as scrapy-redis has it.

BYPASSING: Final = QUICK | {"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue", "RETRY_TIMES": 2}


async def test_no_request_is_lost_though_the_queue_is_bypassed_and_each_host_keeps_its_pace() -> None:
    slow = [wide("User-agent: *\nCrawl-delay: 0.4\n", 4) for _ in range(3)]
    fast = Site(404, chain(8))
    closed, gone, shut = wide(OPEN, 4), wide(404, 4), wide(503, 4)
    closed.pages["/0"] = in_turn(status(503, Retry_After="1"), html())
    gone.pages = dict.fromkeys(gone.pages, status(503, Retry_After="7200"))
    troubles = (status(503), status(429, Retry_After="1"))
    reopened = [wide(answering(trouble, text(OPEN)), 4) for trouble in troubles]
    settings = BYPASSING | giving_up_after(5) | {"CONCURRENT_REQUESTS": 4}
    async with serving(*slow, fast, closed, *reopened, gone, shut):
        found = [url for site in (*slow, closed, *reopened) for url in site.urls]
        done = await crawl([*found, *gone.urls, *shut.urls, f"{fast.base}/0"], settings)
    assert sorted(done.pages) == sorted([*found, *fast.urls])
    assert done.stats["finish_reason"] == "finished"
    assert_sites_polite(*slow, fast)
    assert all(least_gap_s(site) >= 0.4 for site in slow)
    # Requests wait for a site that is closed for a time.
    assert len(closed.page_paths) == 6  # one was answered with 503
    assert [site.robots_count for site in reopened] == [2, 2]
    # The requests of a site that is given up end in their errbacks.
    assert set(done.ignored) == {*gone.urls, *shut.urls}
    assert [len(site.page_paths) for site in (gone, shut)] == [1, 0]
    assert done.stats["politesse/requests/given_up"] == 10
    (line,) = [line for line in done.log.splitlines() if "does not use PolitePriorityQueue" in line]
    assert "WARNING: The scheduler does not use" in line
    assert "hold up the others" in line


async def test_requests_that_wait_go_back_to_the_scheduler_when_the_spider_is_closed(tmp_path: Path) -> None:
    slow = Site("User-agent: *\nCrawl-delay: 1.5\n", dict.fromkeys(MANY, html()))
    waiting = Site(answering(status(503, Retry_After="30"), text(OPEN)), dict.fromkeys(MANY, html()))
    settings = BYPASSING | {"JOBDIR": str(tmp_path)}

    def is_amid() -> bool:
        return len(slow.page_paths) >= 2 and waiting.robots_count == 1

    async with serving(slow, waiting):
        log = await crawl_until(signal.SIGINT, is_amid, slow.urls + waiting.urls, settings)
        before = len(slow.page_paths)
        resumed = await crawl([], settings)
    assert "Received SIGINT" in log
    assert 2 <= before < 6
    assert sorted(slow.page_paths) == sorted(waiting.page_paths) == MANY  # each exactly once
    assert len(resumed.pages) == 12 - before


async def test_request_of_a_callback_to_the_engine_ends_when_the_spider_is_closed() -> None:
    site = Site("User-agent: *\nCrawl-delay: 3\n", dict.fromkeys(MANY, html()))
    async with serving(site):
        # robots.txt and one page
        direct = {f"{site.base}/0": [f"{site.base}/1", f"{site.base}/2"]}
        done = await crawl([f"{site.base}/0"], BYPASSING | {"CLOSESPIDER_PAGECOUNT": 2}, direct=direct)
    assert site.page_paths == ["/0"]
    assert done.stats["finish_reason"] == "closespider_pagecount"


# URLs that are neither http nor https: no robots.txt covers them, and their hosts are paced all the same.

HOST: Final = "127.0.0.2"  # of the first Site as well
FTP: Final = """
import json, sys, time
from twisted.cred.checkers import AllowAnonymousAccess
from twisted.cred.portal import Portal
from twisted.internet import reactor
from twisted.protocols.ftp import FTPFactory, FTPRealm

class Noting(FTPFactory):
    def buildProtocol(self, address):
        print(json.dumps(time.monotonic()), flush=True)
        return super().buildProtocol(address)

host, folder = sys.argv[1:]
factory = Noting(Portal(FTPRealm(folder), [AllowAnonymousAccess()]))
print(reactor.listenTCP(0, factory, interface=host).getHost().port, flush=True)
reactor.run()
"""


@asynccontextmanager
async def serving_ftp(folder: Path) -> AsyncIterator[tuple[str, list[float]]]:
    """Serve files; return the base of their URLs, and a list that has the time of each connection at the end."""
    started: list[float] = []
    command = (sys.executable, "-c", FTP, HOST, str(folder))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield f"ftp://{HOST}:{json.loads(await process.stdout.readline())}", started
    finally:
        process.terminate()
        out, _ = await process.communicate()
        started += map(json.loads, out.splitlines())


async def test_files_of_ftp_are_paced_by_their_host_and_need_no_robots_txt(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}").write_text("page")
    site = Site("User-agent: *\nDisallow: /0\n", {"/a": html(), "/b": html()})
    shut = Site(503, {"/": html()})
    async with serving(site), serving(shut), serving_ftp(tmp_path) as (base, started):
        urls = [f"{base}/{number}" for number in range(3)] + site.urls
        done = await crawl([*urls, *shut.urls], ADDON | {"DOWNLOAD_DELAY": 0.5} | giving_up_after(2))
    assert set(done.pages) == set(urls)  # the robots.txt of another port of the host is unreachable
    assert set(done.ignored) == set(shut.urls)
    assert site.robots_count == 1
    assert len(started) == 3  # nothing has requested a robots.txt there
    starts = sorted([*started, *(exchange.started for exchange in site.page_exchanges)])
    assert min(after - before for before, after in pairwise(starts)) >= 0.5


async def test_urls_without_a_host_or_a_handler_have_no_delay_and_end_as_in_scrapy_itself(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("page")
    urls = [f"data:,{number}" for number in range(20)] + [f"{file.as_uri()}?{number}" for number in range(20)]
    unknown = ["foo://example.com/page", "foo://other.example/", "about:config"]
    # With this delay twenty pages take ten minutes, and ``crawl`` waits for less than two.
    delayed = crawl([*urls, *unknown], ADDON | {"DOWNLOAD_DELAY": 30})
    plain, done = await asyncio.gather(crawl(unknown, {}), delayed)
    assert set(done.pages) == set(urls)
    assert done.ignored == plain.ignored
    assert set(done.ignored) == set(unknown)
    assert all(why.startswith("NotSupported: Unsupported URL scheme") for why in done.ignored.values())
    assert done.stats_of("robotstxt/") == {}


# HTTP/2 requests that Scrapy gives up: the server stops before the next request of the host starts.


@pytest.mark.parametrize("handler", ["http2.H2DownloadHandler", "_httpx.HttpxDownloadHandler"])
async def test_http2_request_that_times_out_ends_at_the_server(handler: str, authority: trustme.CA) -> None:
    pytest.importorskip("scrapy.core.downloader.handlers._httpx")  # older versions of Scrapy do not have it
    from tests.wire.clients.http2_site import serving_http2

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    tls.set_alpn_protocols(["h2"])
    handlers = {"https": f"scrapy.core.downloader.handlers.{handler}"}
    settings = QUICK | {"DOWNLOAD_HANDLERS": handlers, "HTTPX_HTTP2_ENABLED": True, "DOWNLOAD_TIMEOUT": 2}
    async with serving_http2(tls) as site:
        await crawl([f"{site.base}{path}" for path in ("/silent", "/slow", "/page")], settings)
    assert sorted(site.paths) == ["/page", "/robots.txt", "/silent", "/slow"]
    assert site.beside == []


# Processes of a fleet


DELAY_S: Final = 0.3
SETTINGS: Final = QUICK | {"DOWNLOAD_DELAY": DELAY_S, "RETRY_TIMES": 2}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site(OPEN, {f"/{page}": html() for page in range(12)}, page_s=0.02)
    async with serving(site):
        yield site


def settings_of(redis_server: RedisServer, **settings: object) -> dict[str, object]:
    return SETTINGS | {"POLITESSE_FLEET": redis_server.url} | settings


async def crawl_together(site: Site, processes: int, settings: dict[str, object]) -> list[Crawl]:
    """Have each process crawl a part of the site, all at the same time."""
    return await asyncio.gather(*(crawl(site.urls[place::processes], settings) for place in range(processes)))


async def kept_up(site: Site, pages: int) -> None:
    """Wait until so many pages were requested."""
    async with asyncio.timeout(60):
        while len(site.page_paths) < pages:
            await asyncio.sleep(0.02)


async def test_processes_of_a_fleet_keep_one_pace_together_and_a_closed_host_is_closed_for_all(
    site: Site, redis_server: RedisServer
) -> None:
    site.pages["/0"] = in_turn(status(429, Retry_After="2"), html())
    done = await crawl_together(site, 4, settings_of(redis_server))
    assert sorted(site.page_paths) == sorted(["/0", *site.pages])  # each once, and the refused page once more
    assert least_gap_s(site) >= DELAY_S
    pages = sorted(site.page_exchanges, key=lambda page: page.started)
    (place,) = [place for place, page in enumerate(pages) if page.status == 429]
    assert pages[place + 1].started - pages[place].ended >= 2.0  # closed for all of them
    for one in done:
        assert one.ignored == {}
        assert one.stats["finish_reason"] == "finished"
        assert f"shared with all processes of the fleet: FleetOptions('{redis_server.url}'" in one.log
        assert "ResourceWarning" not in one.log


async def test_requests_of_a_host_that_has_closed_stay_in_the_scheduler(site: Site, redis_server: RedisServer) -> None:
    site.pages["/0"] = status(503, Retry_After="7200")
    settings = settings_of(redis_server, DOWNLOAD_DELAY=0, POLITESSE_MAX_WAIT=100, RETRY_TIMES=0)
    first, *others = site.urls[:3]
    done = await crawl([first, *others], settings)
    assert site.page_paths == ["/0"]
    assert "127.0.0.2 is given up" in done.log
    assert set(done.ignored) == set(others)
    # No request is handed out, and put back, to learn that the host is closed.
    assert "requests/deferred" not in done.stats_of("politesse/")


async def test_nothing_starts_while_the_redis_is_away_and_no_page_is_lost(
    site: Site, redis_server: RedisServer
) -> None:
    crawling = asyncio.ensure_future(crawl_together(site, 2, settings_of(redis_server)))
    await kept_up(site, 4)
    redis_server.kill()
    await asyncio.sleep(0.5)  # requests that were granted before may start
    before = [*site.page_paths]
    await asyncio.sleep(1.5)
    assert site.page_paths == before
    redis_server.start()  # empty
    done = await crawling
    assert sorted(site.page_paths) == sorted(site.pages)
    assert least_gap_s(site) >= DELAY_S
    for one in done:
        assert one.stats["politesse/fleet/away"] == 1
        assert one.stats_s["politesse/fleet/seconds_away"] >= 1.5
        assert f"127.0.0.1:{redis_server.port}/0 is away: no request starts until it is back" in one.log
        assert one.ignored == {}


async def test_requests_end_in_their_errbacks_if_the_redis_stays_away_and_so_for_a_spider_that_is_opened_then(
    site: Site, redis_server: RedisServer
) -> None:
    later = {"TASK_URLS": [f"{site.base}/later#disobey"]}
    settings = settings_of(redis_server, POLITESSE_MAX_WAIT=1.5)
    crawling = asyncio.ensure_future(crawl(site.urls, settings, when_away=later))
    await kept_up(site, 3)
    redis_server.kill()
    done = await crawling
    assert "/later" not in site.page_paths
    assert done.ignored.pop(f"{site.base}/later#disobey")
    assert len(done.pages) + len(done.ignored) == len(site.pages)
    assert done.stats["finish_reason"] == "finished"
    assert all("No turn at 127.0.0.2 within 1.5 s" in why for why in done.ignored.values())
    assert done.stats["politesse/requests/given_up"] == len(done.ignored) >= 7
    assert done.log.count("All sites are given up, unless the Redis of the fleet comes back") == 2


async def test_requests_stay_in_the_job_if_the_redis_stays_away(
    site: Site, redis_server: RedisServer, tmp_path: Path
) -> None:
    site.pages["/"] = html(*site.pages)
    settings = settings_of(redis_server, POLITESSE_MAX_WAIT=1.5, JOBDIR=str(tmp_path))
    crawling = asyncio.ensure_future(crawl([f"{site.base}/"], settings))
    await kept_up(site, 5)
    redis_server.kill()
    first = await crawling
    assert first.ignored == {}
    assert first.stats["politesse/requests/kept"] == len(site.pages) - len(first.pages)
    assert not (tmp_path / "robots.db").exists()
    redis_server.start()
    second = await crawl([f"{site.base}/"], settings)
    assert sorted([*first.pages, *second.pages]) == sorted(site.urls)


async def test_a_redis_that_refuses_the_crawler_closes_the_spider_with_one_line(site: Site) -> None:
    with RedisServer("--requirepass", "right") as guarded:
        done = await crawl(site.urls, SETTINGS | {"POLITESSE_FLEET": f"redis://:wrong@127.0.0.1:{guarded.port}/0"})
    assert site.page_paths == []
    assert done.stats["finish_reason"] == "politesse_fleet_refused"
    (line,) = [line for line in done.log.splitlines() if "POLITESSE_FLEET cannot be used" in line]
    assert "ERROR: The spider is closed" in line
    assert "wrong@" not in done.log
