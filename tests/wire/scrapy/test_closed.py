"""Crawls of sites that are closed or fail, and crawls that are killed: requests wait, fail, or stay on disk."""

import asyncio
import signal
import time
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web
from scrapy import signals

from politesse import CacheOptions, FetchOptions, Gatekeeper, PoliteQueue
from politesse.queue import QueueClosed
from politesse.testing import ScriptedFetcher
from tests.support.ports import free_port
from tests.wire.scrapy.crawling import (
    ADDON,
    OPEN,
    PATIENT,
    QUICK,
    USER_AGENT,
    Robots,
    Site,
    answering,
    chain,
    crawl,
    crawl_until,
    giving_up_after,
    html,
    in_turn,
    redirect,
    serving,
    status,
    text,
    visit,
    wide,
)

pytestmark = [pytest.mark.realtime, pytest.mark.full]

NOWHERE: Final = "http://does-not-exist.invalid/"


def site_of(robots: Robots | int | str) -> Site:
    return Site(robots, {"/": html()})


def outside_of_a_visit_time() -> str:
    now = time.time()
    window = "-".join(time.strftime("%H%M", time.gmtime(now + hours * 3600)) for hours in (6, 7))
    return f"User-agent: *\nVisit-time: {window}\n"


async def never(_: web.BaseRequest) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def breaking_off(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b"User-agent: *\nAllow: /\n")
    assert request.transport is not None
    request.transport.close()
    return response


def host_of(site: Site) -> str:
    return site.base.removeprefix("http://").partition(":")[0]


async def test_pages_wait_for_the_end_of_a_closing_and_end_in_their_errbacks_if_their_site_is_given_up() -> None:
    busy = {number: status(number, Retry_After="2") for number in (429, 503)}
    short, opening = status(503, Retry_After="1"), (status(503), text(OPEN))
    waited_for = {
        "unreachable": wide(answering(*opening), 99),
        "retry after": wide(404, 30),
        "redirected": Site(answering(*opening), {"/": redirect("/a"), "/a": html()}),
        "between": wide(404, 3),
    }
    waited_for["retry after"].pages["/0"] = in_turn(short, html())
    # One after the other, whatever the page is.
    waited_for["between"].pages = dict.fromkeys(waited_for["between"].pages, in_turn(*[busy[429], html()] * 3))
    # By the reason in the errbacks.
    given_up = {
        "retry-after": wide(404, 19),
        "crawl-delay": wide("User-agent: *\nCrawl-delay: 30\n", 1),
        "visit-time": wide(outside_of_a_visit_time(), 1),
        "retry-after, 429": wide(OPEN, 49),
        "retry-after, 503": wide(OPEN, 49),
        "429": wide(answering(busy[429]), 49),
        "503": wide(answering(busy[503]), 49),
        "status 503": wide(503, 2),
    }
    given_up["retry-after"].pages = dict.fromkeys(given_up["retry-after"].pages, status(503, Retry_After="7200"))
    for number, refusal in busy.items():
        site = given_up[f"retry-after, {number}"]
        site.pages = dict.fromkeys(site.pages, refusal)
    *others, last = [*waited_for.values(), *given_up.values()]
    # The last is another origin of the host of the first.
    async with serving(*others), serving(last):
        urls = [url for site in (*others, last) for url in site.urls]
        settings = QUICK | giving_up_after(5) | {"RETRY_TIMES": 5}
        done = await crawl([*urls, NOWHERE], settings, errback_raises=True)

    def why(site: Site) -> list[str]:
        return [why for url, why in done.ignored.items() if url.startswith(f"{site.base}/")]

    for name, site in waited_for.items():
        pages = {url for url in done.pages if url.startswith(f"{site.base}/")}
        assert pages == set(site.urls) - ({f"{site.base}/"} if name == "redirected" else set()), name
        assert why(site) == []
    assert waited_for["unreachable"].robots_count == 2
    assert len(waited_for["retry after"].page_paths) == 32  # one was answered with 503
    # The redirect of a request that had to wait passes the filter for duplicates.
    assert sorted(waited_for["redirected"].page_paths) == ["/", "/a"]

    most = 1 + done.elapsed_s / 2.0  # a site that opens while the spider is busy is tried again
    for name, site in given_up.items():
        reason, requests = name.partition(",")[0], len(site.page_paths)
        assert len(why(site)) == len(site.pages), name
        assert [one for one in why(site) if not one.startswith("IgnoreRequest: ") or reason not in one] == []
        if name.startswith("retry-after, "):
            assert 1 <= requests <= most, name
        else:
            assert requests == (name == "retry-after"), name
        assert site.robots_count <= most, name
        known_by = site.base if reason.endswith(("429", "503")) else host_of(site)
        assert done.log.count(f"{known_by} is given up") == 1, name

    stats = done.stats_of("politesse/")
    assert NOWHERE in done.ignored  # a name without an address is given up at once
    assert done.stats["spider_exceptions/ValueError"] == stats["requests/given_up"] == len(done.ignored)
    assert int(stats["requests/deferred"]) >= 1
    assert "requests/kept" not in stats
    assert stats["too_far"] == sum(why.startswith("IgnoreRequest: No turn at") for why in done.ignored.values()) > 100
    assert stats["hosts/given_up"] == 9
    assert done.stats["finish_reason"] == "finished"
    assert "politesse/seconds_waited" in done.stats_s


async def test_requests_of_a_site_that_was_given_up_are_counted_if_the_spider_is_closed_before_it_is_idle() -> None:
    site = wide(503, 9)

    async def after_the_other(_: web.BaseRequest) -> web.StreamResponse:
        while not site.robots_count:
            await asyncio.sleep(0.02)
        return web.Response(text=OPEN)

    busy = Site(after_the_other, chain(50))
    settings = PATIENT | giving_up_after(0) | {"DOWNLOAD_DELAY": 0.3, "CLOSESPIDER_PAGECOUNT": 3}
    async with serving(site, busy):
        done = await crawl([*site.urls, f"{busy.base}/0"], settings)
    assert done.stats["finish_reason"] == "closespider_pagecount"
    assert done.stats["politesse/requests/given_up"] == 10
    assert "Not fetched for that reason: 10 requests, of which 0 stay in JOBDIR" in done.log


async def test_requests_of_sites_that_are_given_up_stay_in_the_job_and_are_made_in_its_next_run(tmp_path: Path) -> None:
    sites = {
        "retry-after": wide(404, 199),
        "crawl-delay": wide("User-agent: *\nCrawl-delay: 4000\n", 20),
        "request-rate": wide("User-agent: *\nRequest-rate: 1/4000\n", 20),
        "visit-time": wide(outside_of_a_visit_time(), 20),
        "status 503": wide(503, 20),
    }
    sites["retry-after"].pages = dict.fromkeys(sites["retry-after"].pages, status(503, Retry_After="7200"))
    forbidding = wide("User-agent: *\nDisallow: /3\nDisallow: /4\n", 9)
    # The next run finds sites that have changed, and has no stored copy of their robots.txt.
    settings = QUICK | giving_up_after(2) | {"POLITESSE_STORE": False, "JOBDIR": str(tmp_path), "RETRY_TIMES": 2}
    async with serving(*sites.values(), forbidding):
        urls = [url for site in sites.values() for url in site.urls]
        first = await crawl([*urls, *forbidding.urls, NOWHERE], settings, errback_raises=True)
        requested = {name: len(site.page_paths) for name, site in sites.items()}
        for site in sites.values():
            site.robots, site.pages = OPEN, dict.fromkeys(site.pages, html())
        second = await crawl([], settings, errback_raises=True)
    assert requested == dict.fromkeys(sites, 0) | {"retry-after": 1}
    assert sorted(second.pages) == sorted(urls)
    for bound, site in sites.items():
        (why,) = [line for line in first.log.splitlines() if "is given up" in line and bound in line]
        assert host_of(site) in why
    stats = first.stats_of("politesse/")
    assert stats["requests/given_up"] == stats["requests/kept"] == len(second.pages) + 1
    assert stats["hosts/given_up"] == 6
    assert set(first.ignored) == {f"{forbidding.base}/3", f"{forbidding.base}/4"}
    assert f"ValueError: {forbidding.base}/3" in first.log
    assert len(forbidding.page_paths) == 8  # in the first run
    assert second.ignored == {}
    assert second.stats["politesse/requests/kept"] == 1
    assert f"{NOWHERE.removesuffix('/')} is given up" in second.log
    assert first.stats["finish_reason"] == second.stats["finish_reason"] == "finished"


async def test_a_spider_is_closed_in_time_and_waiting_requests_are_kept(tmp_path: Path) -> None:
    closed = Site(404, {"/": status(503, Retry_After="3000"), "/a": html()})
    hanging, waiting = site_of(never), site_of("User-agent: *\nCrawl-delay: 60\n")
    async with serving(closed, hanging, waiting):
        urls = [f"{site.base}{path}" for site in (closed, hanging, waiting) for path in ("/", "/a")]
        settings = QUICK | {"POLITESSE_STORE": False, "CLOSESPIDER_TIMEOUT": 2, "JOBDIR": str(tmp_path)}
        done = await crawl(urls, settings)
        first = len(closed.page_paths)
        closed.pages["/"] = html()
        resumed = await crawl([], settings)
    assert done.stats["finish_reason"] == "closespider_timeout"
    assert done.elapsed_s < 25  # where the next to come is 30 s away
    assert hanging.paths[0] == waiting.paths[0] == "/robots.txt"
    assert hanging.page_paths == waiting.page_paths == []
    # One was answered with 503, and the other waited in the scheduler: on disk, and none the worse for it.
    assert first == 1
    assert sorted(closed.page_paths) == ["/", "/a"]
    assert resumed.pages == [f"{closed.base}{closed.page_paths[1]}"]


# A robots.txt that is in trouble.


async def test_a_site_whose_robots_txt_cannot_be_fetched_is_closed_by_default() -> None:
    unavailable, failing, hanging, broken = site_of(503), site_of(500), site_of(never), site_of(breaking_off)
    partial, elsewhere = site_of(206), site_of(answering(redirect("ftp://127.0.0.1/robots.txt")))
    sites = [unavailable, failing, hanging, broken, partial, elsewhere]
    patch = {"politesse.integrations.scrapy._robots._TIMEOUT_S": 1.0}
    async with serving(*sites):
        urls = [f"{base}/" for base in (*(site.base for site in sites), "http://127.0.0.20:9")]
        closing = PATIENT | {"RETRY_TIMES": 2, "POLITESSE_MAX_UNREACHABLE": 5}
        closed = await crawl(urls, closing, patch=patch)
        pages_when_closed = [site.page_paths for site in sites]
        opened = await crawl(urls, PATIENT | {"POLITESSE_ON_ERROR": "allow"}, patch=patch)
    assert closed.pages == []
    assert pages_when_closed == [[]] * 6
    assert [site.robots_count for site in sites] == [2] * 6  # once in each crawl: when to ask again is not for Scrapy
    assert set(closed.ignored) == set(urls)
    for url, why in closed.ignored.items():
        assert "Forbidden by robots.txt (robots.txt is unreachable" in why, url
    assert "the server answered with status 503" in closed.ignored[f"{unavailable.base}/"]
    assert "timeout" in closed.ignored[f"{hanging.base}/"]
    assert "ftp" in closed.ignored[f"{elsewhere.base}/"]
    assert f"All of {unavailable.base} is disallowed: the server answered with status 503" in closed.log
    assert f"Error downloading <GET {hanging.base}/robots.txt>" in closed.log
    counted = closed.stats_of("robotstxt/")
    assert counted["forbidden"] == counted["request_count"] == 7
    assert [counted[f"response_status_count/{number}"] for number in (503, 500, 206, 302)] == [1] * 4
    assert counted["response_count"] == 4
    assert sum(int(number) for number in closed.stats_of("robotstxt/exception_count/<class '").values()) == 3
    if hasattr(signals, "robots_parsed"):  # since Scrapy 2.18
        assert closed.parsed[f"{failing.base}/"] == {"ExampleBot": False, "OtherBot": False}
    assert sorted(opened.pages) == sorted(f"{site.base}/" for site in sites)
    assert "forbidden" not in opened.stats_of("robotstxt/")


async def test_a_site_whose_robots_txt_stays_unreachable_for_five_minutes_is_given_up_as_in_a_queue() -> None:
    site = site_of(503)
    async with serving(site):
        async with Gatekeeper(USER_AGENT, cache=CacheOptions(retry_min_s=400.0)) as gate:
            queue: PoliteQueue[str] = PoliteQueue(gate)
            await queue.put(f"{site.base}/")
            queue.close()
            with pytest.raises(QueueClosed):
                await queue.turn().__aenter__()
            assert queue.statistics().given_up == 1
        done = await crawl(site.urls, QUICK | {"POLITESSE_CACHE": {"retry_min_s": 400.0}})
    assert site.robots_count == 2  # once by the queue, and once by Scrapy
    assert f"{site.base} is given up" in done.log
    assert "robots.txt is unreachable" in done.ignored[f"{site.base}/"]


async def test_an_expired_copy_is_fetched_again_with_its_validator_alone(tmp_path: Path) -> None:
    async def robots(request: web.BaseRequest) -> web.StreamResponse:
        headers = {"ETag": '"one"', "Cache-Control": "max-age=1"}
        if request.headers.get("If-None-Match") == '"one"':
            return web.Response(status=304, headers=headers)
        return web.Response(text="User-agent: *\nDisallow: /5\n", headers=headers)

    baked = text('<a href="/1">', Set_Cookie="flavour=chocolate", Content_Type="text/html")
    site = Site(robots, chain(7) | {"/0": baked})
    settings: dict[str, object] = {"DOWNLOAD_DELAY": 0.4, "POLITESSE_CACHE": {"min_lifetime_s": 0.0}}
    # It would answer from its own copy, without asking.
    settings |= {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path)}
    done = await visit(ADDON | settings, site, path="/0")
    assert site.page_paths == [f"/{number}" for number in range(5)]
    assert set(done.ignored) == {f"{site.base}/5"}
    first, *later = [headers.get("If-None-Match") for headers in site.robots_headers]
    assert first is None
    assert set(later) == {'"one"'}
    assert [headers for headers in site.robots_headers if "Cookie" in headers] == []
    assert done.stats["robotstxt/response_status_count/304"] == len(later)


async def test_first_page_waits_for_the_interval_after_the_robots_txt_that_reopens_its_site() -> None:
    slow = answering(text("User-agent: *\nCrawl-delay: 1\n"))

    def then_slow(trouble: Robots) -> Robots:
        answers = iter([trouble])

        async def robots(request: web.BaseRequest) -> web.StreamResponse:
            return await next(answers, slow)(request)

        return robots

    troubles = [answering(status(number)) for number in (503, 429, 500)]
    sites = [site_of(then_slow(trouble)) for trouble in (*troubles, breaking_off)]
    await visit(QUICK | {"POLITESSE_PACING": {"adaptive_factor": 0.0, "backoff_min_s": 1.0}}, *sites)
    for site in sites:
        assert site.paths == ["/robots.txt", "/robots.txt", "/"]
        assert site.exchanges[2].started - site.exchanges[1].ended >= 1.0


async def test_robots_txt_is_followed_for_five_redirects_read_to_its_limit_and_counted_once() -> None:
    rules = "User-agent: *\nDisallow: /private\n"
    front = {"/": html("/private"), "/private": html()}
    sent = 0

    async def without_end(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(rules.encode())
        while sent < 64 * 1024 * 1024:
            await response.write(b"# nothing\n" * 1000)
            sent += 10_000
        return response

    far, sixth, target, endless = Site(), Site(), Site(rules), Site(without_end, front)
    later = Site(answering(status(429, Retry_After="2"), text(rules)), front)
    async with serving(far, sixth, target, endless, later):
        hops = {f"/{number}": redirect(f"/{number + 1}") for number in range(1, 6)}
        far.pages = front | hops | {"/4": redirect(f"{target.base}/robots.txt")}
        sixth.pages = front | hops | {"/6": text(rules)}
        far.robots = sixth.robots = answering(redirect("/1"))
        urls = [f"{site.base}/" for site in (far, sixth, endless, later)]
        # A site may have its robots.txt on a host whose pages are not wanted.
        wanted = [f"127.0.0.{place}" for place in (2, 3, 5, 6)]
        # Retry-After holds, unless our own backoff is longer.
        done = await crawl(urls, QUICK, allowed_domains=wanted)
    assert far.paths == ["/robots.txt", "/1", "/2", "/3", "/4", "/"]
    assert target.paths == ["/robots.txt"]
    assert "offsite/filtered" not in done.stats
    # A sixth redirect: as if the site had no robots.txt.
    assert sixth.paths == ["/robots.txt", "/1", "/2", "/3", "/4", "/5", "/", "/private"]
    assert endless.page_paths == ["/"]
    assert sent < 16 * 1024 * 1024  # 500 KiB, and the buffers on the way
    assert later.paths == ["/robots.txt", "/robots.txt", "/"]
    assert later.exchanges[1].started - later.exchanges[0].ended >= 2.0
    assert set(done.ignored) == {f"{site.base}/private" for site in (far, endless, later)}
    counted = done.stats_of("robotstxt/")
    assert counted["request_count"] == counted["response_count"] == 5
    assert [counted[f"response_status_count/{number}"] for number in (200, 302, 429)] == [3, 1, 1]


async def test_errback_of_a_site_that_cannot_be_reached_gets_the_exception_of_plain_scrapy() -> None:
    urls = [f"http://127.0.0.1:{free_port()}/", "http://host.invalid/"]
    retried = {"RETRY_TIMES": 2, "HTTPERROR_ALLOW_ALL": True}
    plain, done = await asyncio.gather(crawl(urls, retried), crawl(urls, PATIENT | giving_up_after(1) | retried))
    for url in urls:
        assert set(plain.types[url]) < set(done.types[url])
        assert "scrapy.exceptions.IgnoreRequest" in done.types[url]
    assert "Connection refused)" in done.ignored[urls[0]]
    assert "Connection refused, since 20" in done.log
    assert "Forbidden by robots.txt (robots.txt is unreachable" in done.ignored[urls[1]]
    assert "retry/count" not in done.stats


async def test_denied_private_address_is_not_requested_even_if_a_store_has_its_robots_txt(tmp_path: Path) -> None:
    site, store = site_of(OPEN), tmp_path / "robots.db"
    kept = QUICK | {"POLITESSE_STORE": str(store)}
    async with serving(site):
        by_name = f"http://localhost:{site.base.rpartition(':')[2]}"
        exempt = [f"{base}/exempt#disobey" for base in (site.base, by_name)]
        urls = [*site.urls, f"{site.base}/robots.txt", f"{by_name}/robots.txt", *exempt, f"{by_name}/"]
        assert (await crawl(site.urls, kept)).pages == site.urls
        # Fetched when the name had a public address.
        fetcher = ScriptedFetcher({by_name: OPEN})
        fetcher.options = FetchOptions(private_addresses="deny")  # type: ignore[attr-defined]
        async with Gatekeeper(USER_AGENT, fetcher=fetcher, store=store) as gate:
            assert await gate.check(f"{by_name}/")
        asked = len(site.exchanges)
        done = await crawl(urls, kept | giving_up_after(1) | {"POLITESSE_PRIVATE_ADDRESSES": "deny"})
    assert done.pages == []
    assert set(done.ignored) == set(urls)
    assert all("private" in why for why in done.ignored.values()), done.ignored
    assert len(site.exchanges) == asked


# Crawls with JOBDIR that are interrupted or killed


RUNS: Final = 4
SLOWER: Final = QUICK | {"DOWNLOAD_DELAY": 0.1}
SCRAPYS_OWN: Final = {"DOWNLOAD_DELAY": 0.3, "CONCURRENT_REQUESTS": 1, "ROBOTSTXT_OBEY": True}


def tree(robots: str | int | Robots, width: int) -> Site:
    """Return a site of pages on three levels, ``width`` links on each page of the first two."""
    pages = {"/": html(*(f"/{one}" for one in range(width)))}
    for one in range(width):
        pages[f"/{one}"] = html(*(f"/{one}/{two}" for two in range(width)))
        pages |= {f"/{one}/{two}": html() for two in range(width)}
    return Site(robots, pages)


def hanging_once() -> Robots:
    """Answer the first request for robots.txt so late that the run is interrupted before."""
    waits_s = iter([5.0])

    async def robots(_: object) -> web.StreamResponse:
        await asyncio.sleep(next(waits_s, 0.0))
        return text(OPEN)()

    return robots


@pytest.mark.parametrize(("number", "delay_s", "repeated"), [(signal.SIGINT, 0.02, 0), (signal.SIGKILL, 0.15, 3)])
async def test_every_page_is_fetched_however_often_the_crawl_is_interrupted_or_killed(
    tmp_path: Path, number: int, delay_s: float, repeated: int
) -> None:
    slow, shut = "User-agent: *\nCrawl-delay: 0.3\n", answering(status(503), text(OPEN))
    sites = [tree(404, 5), tree(slow, 3), tree(shut, 4), tree(hanging_once(), 2)]
    settings = QUICK | {"JOBDIR": str(tmp_path), "DOWNLOAD_DELAY": delay_s}
    total = sum(len(site.pages) for site in sites)

    def has_made(requests: int) -> bool:
        return sum(len(site.page_paths) for site in sites) >= requests

    async with serving(*sites):
        urls = [f"{site.base}/" for site in sites]
        for run in range(1, RUNS):
            await crawl_until(number, partial(has_made, total * run // RUNS), urls, settings)
        done = await crawl(urls, settings)
    assert done.stats["finish_reason"] == "finished"
    for site in sites:
        assert set(site.page_paths) == set(site.pages)
        # After a kill, only pages that were under way, or in their callback, are fetched again.
        assert len(site.page_paths) <= len(site.pages) + repeated * (RUNS - 1)


async def test_requests_of_an_earlier_queue_that_a_killed_run_has_done_are_not_made_again(tmp_path: Path) -> None:
    site = wide(404, 40)
    settings = QUICK | {"JOBDIR": str(tmp_path), "DOWNLOAD_DELAY": 0.05}
    async with serving(site):
        urls = [f"{site.base}/"]
        await crawl_until(signal.SIGINT, lambda: len(site.page_paths) >= 10, urls, settings)
        await crawl_until(signal.SIGKILL, lambda: len(site.page_paths) >= 30, urls, settings)
        # The state as it is if the process is killed while the queue is being closed.
        (tmp_path / "requests.queue" / "active.json").write_text("{}")
        await crawl(urls, settings)
    assert set(site.page_paths) == set(site.pages)
    assert len(site.page_paths) <= len(site.pages) + 3  # under way, or in a callback


async def test_every_page_is_fetched_after_kills_at_the_start_and_in_an_ordered_shutdown(tmp_path: Path) -> None:
    closed = tree(404, 2)
    closed.pages["/0"] = in_turn(status(503, Retry_After="1"), closed.pages["/0"])
    all_sites = [tree(404, 4), closed]
    all_sites[0].page_s = 0.3
    settings = QUICK | {"JOBDIR": str(tmp_path), "RETRY_TIMES": 2}

    def has_pages(number: int) -> bool:
        return len(all_sites[0].page_paths) >= number

    async with serving(*all_sites):
        urls = [f"{site.base}/" for site in all_sites]
        for _ in range(2):
            await crawl_until(signal.SIGKILL, lambda: any(tmp_path.rglob("*.journal")), urls, settings)
        for run in range(1, 3):
            await crawl_until(signal.SIGINT, partial(has_pages, 5 * run), urls, settings, kill_s=0.1)
        done = await crawl(urls, settings)
    assert done.stats["finish_reason"] == "finished"
    for site in all_sites:
        fetched = {exchange.url.removeprefix(site.base) for exchange in site.page_exchanges if exchange.status == 200}
        assert fetched == set(site.pages)


async def test_second_run_of_a_job_that_is_running_does_not_start_and_the_first_makes_each_request_once(
    tmp_path: Path,
) -> None:
    second_has_ended = asyncio.Event()

    async def held(_: object) -> web.StreamResponse:
        await second_has_ended.wait()
        return text(OPEN)()

    sites = [tree(404, 3), tree(held, 3)]
    settings = QUICK | {"JOBDIR": str(tmp_path)}
    async with serving(*sites):
        urls = [f"{site.base}/" for site in sites]
        first = asyncio.ensure_future(crawl(urls, settings))
        while len(sites[0].page_paths) < 3 and not first.done():
            await asyncio.sleep(0.02)
        second = await crawl_until(signal.SIGINT, lambda: False, urls, settings)
        second_has_ended.set()
        done = await first
    assert f"ConfigurationError: JOBDIR='{tmp_path}': another run uses it" in second
    assert [sorted(site.page_paths) for site in sites] == [sorted(site.pages) for site in sites]
    assert done.stats["finish_reason"] == "finished"
    assert "Traceback" not in done.log


@pytest.mark.parametrize(("first", "second"), [(SCRAPYS_OWN, SLOWER), (SLOWER, SCRAPYS_OWN)])
async def test_a_job_of_plain_scrapy_is_resumed_with_the_add_on_and_the_reverse(
    tmp_path: Path, first: dict[str, object], second: dict[str, object]
) -> None:
    site, job = wide(404, 12), {"JOBDIR": str(tmp_path)}
    async with serving(site):
        urls = [f"{site.base}/"]
        await crawl_until(signal.SIGINT, lambda: len(site.page_paths) > 3, urls, first | job)
        assert len(site.page_paths) < len(site.pages)
        done = await crawl(urls, second | job)
    assert done.stats["finish_reason"] == "finished"
    assert sorted(site.page_paths) == sorted(site.pages)


@pytest.mark.parametrize(("kept", "fetched"), [(None, 1), ("sites.db", 1), (False, 2)])
async def test_second_run_of_a_job_fetches_no_robots_txt_that_is_kept(
    tmp_path: Path, kept: str | None, fetched: int
) -> None:
    site = Site(OPEN, {"/1": html(), "/2": html()})
    settings: dict[str, object] = {"JOBDIR": str(tmp_path)}
    if kept is not None:
        settings["POLITESSE_STORE"] = kept and str(tmp_path / kept)
    async with serving(site):
        for page in site.pages:
            await crawl([f"{site.base}{page}"], QUICK | settings)
    assert site.page_paths == ["/1", "/2"]
    assert site.robots_count == fetched
    assert (tmp_path / "robots.db").exists() is (kept is None)


async def test_a_retry_after_holds_for_a_run_that_starts_after_a_kill(tmp_path: Path) -> None:
    site = Site(OPEN, {"/1": status(503, Retry_After="10"), "/2": html()})
    settings = QUICK | {"JOBDIR": str(tmp_path)}

    def has_read_the_answer() -> bool:
        return bool(site.page_exchanges) and time.monotonic() - site.page_exchanges[0].ended > 1.0

    async with serving(site):
        await crawl_until(signal.SIGKILL, has_read_the_answer, [f"{site.base}/1"], settings)
        await crawl([f"{site.base}/2"], settings)
    refused, answered = site.page_exchanges
    assert answered.started - refused.ended >= 9.9
