"""The stats and the log of a Scrapy crawl."""

from pathlib import Path

import pytest
from aiohttp import web

from tests.wire.scrapy.crawling import (
    ADDON,
    QUICK,
    Site,
    answering,
    assert_sites_polite,
    crawl,
    html,
    in_turn,
    redirect,
    serving,
    status,
    text,
)

pytestmark = pytest.mark.realtime


async def test_stats_and_log_have_the_sites_that_were_closed_deferred_and_given_up(tmp_path: Path) -> None:
    pages = {f"/{number}": html() for number in range(4)}
    busy = Site(404, {"/": in_turn(status(429, Retry_After="2"), html(*pages)), **pages})
    shut = Site(answering(in_turn(status(503), text("User-agent: *\nDisallow: /3\n"))), {"/": html(*pages), **pages})
    lost = Site(404, {"/": html(*pages)} | dict.fromkeys(pages, status(503, Retry_After="7200")))
    settings = QUICK | {"RETRY_TIMES": 2, "LOG_LEVEL": "INFO", "JOBDIR": str(tmp_path)}
    async with serving(busy, shut, lost):
        done = await crawl([f"{site.base}/" for site in (busy, shut, lost)], settings)
    stats = done.politesse_stats()
    assert stats["hosts/closed"] == 3
    assert stats["hosts/given_up"] == 1
    assert stats["requests/given_up"] == stats["requests/kept"] == 4
    assert 1 <= int(stats["requests/deferred"]) <= 8  # not once for each look at a site that is closed
    assert stats["robots_txt/unavailable"] == 2
    assert stats["robots_txt/unreachable"] == stats["robots_txt/successful"] == 1
    assert stats["decisions/disallow-rule"] == 1
    # Allowed by no rule: four pages of the site that was shut. Without a robots.txt: each request that was made.
    assert stats["decisions/no-rule"] == 4
    assert stats["decisions/unavailable"] == 6 + 2
    assert done.stats_s["politesse/seconds_waited"] >= 2.9  # a Retry-After of two seconds, and one for robots.txt
    assert done.log.count("127.0.0.2 is closed until") == done.log.count("127.0.0.2 is open again") == 1
    assert done.log.count(f"All of {shut.base} is disallowed") == 1
    assert done.log.count(f"robots.txt of {shut.base} is reachable again") == 1
    assert done.log.count("127.0.0.4 is closed until") == done.log.count("127.0.0.4 is given up") == 1
    (line,) = [line for line in done.log.splitlines() if "Hosts closed for a time" in line]
    assert "WARNING: Hosts closed for a time: 3. Not fetched for that reason: 4 requests, of which 4 stay" in line
    assert "127.0.0.4 (4: retry-after until 20" in line


@pytest.mark.full
async def test_data_txt_is_fetched_through_the_engine_in_its_turn_and_is_no_robots_txt() -> None:
    # As a robots.txt it would close the site.
    data_txt = web.Response(text="User-agent: *\nDisallow: /\n")
    pages = {"/": html("/1"), "/1": html(), "/data.txt": redirect("/d"), "/d": lambda: data_txt}
    site = Site("User-agent: *\nCrawl-delay: 0.3\n", pages)
    async with serving(site):
        done = await crawl([f"{site.base}/"], ADDON, data_txt=True)
    assert done.data_txt == [["found", "User-agent: *\nDisallow: /\n"]] * 2
    assert site.paths == ["/robots.txt", "/", "/data.txt", "/d", "/1"]
    assert_sites_polite(site)
    assert done.robots_stats()["robotstxt/request_count"] == 1
    assert done.robots_stats()["robotstxt/response_count"] == 1
    assert len(done.parsed) <= 1
