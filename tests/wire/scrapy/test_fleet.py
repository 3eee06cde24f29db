"""Scrapy processes of a fleet: their pace at the server, and their requests while the Redis is away."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.redis_servers import RedisServer
from tests.wire.scrapy.crawling import OPEN, QUICK, Crawl, Site, crawl, html, in_turn, least_gap_s, serving, status

pytestmark = [pytest.mark.realtime, pytest.mark.full]

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
