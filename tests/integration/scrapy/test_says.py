"""What a Scrapy crawl says of what politesse does: stats, log, and the error of a setting that is refused."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from tests.integration.scrapy.crawling import (
    ADDON,
    QUICK,
    Crawl,
    Site,
    answering,
    crawl,
    html,
    in_turn,
    serving,
    start,
    status,
    text,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.realtime


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Site], Crawl]:
    return asyncio.run(crawl_sites(tmp_path_factory.mktemp("job")))


async def crawl_sites(job_dir: Path) -> tuple[list[Site], Crawl]:
    pages = {f"/{number}": html() for number in range(4)}
    busy = Site(404, {"/": in_turn(status(429, Retry_After="2"), html(*pages)), **pages})
    shut = Site(answering(in_turn(status(503), text("User-agent: *\nDisallow: /3\n"))), {"/": html(*pages), **pages})
    lost = Site(404, {"/": html(*pages)} | dict.fromkeys(pages, status(503, Retry_After="7200")))
    sites = [busy, shut, lost]
    async with serving(*sites):
        urls = [f"{site.base}/" for site in sites]
        return sites, await crawl(urls, QUICK | {"RETRY_TIMES": 2, "LOG_LEVEL": "INFO", "JOBDIR": str(job_dir)})


def test_stats_count_what_was_closed_deferred_and_given_up(said: tuple[list[Site], Crawl]) -> None:
    _, done = said
    stats = done.politesse_stats()
    assert stats["hosts/closed"] == 3
    assert stats["hosts/given_up"] == 1
    assert stats["requests/given_up"] == stats["requests/kept"] == 4
    assert int(stats["requests/deferred"]) >= 1
    assert stats["robots_txt/unavailable"] == 2
    assert stats["robots_txt/unreachable"] == stats["robots_txt/successful"] == 1
    assert stats["decisions/disallow-rule"] == 1
    # Allowed by no rule: four pages of the site that was shut. Without a robots.txt: each request that was made.
    assert stats["decisions/no-rule"] == 4
    assert stats["decisions/unavailable"] == 6 + 2
    assert done.stats_s["politesse/seconds_waited"] >= 2.9  # a Retry-After of two seconds, and one for robots.txt


def test_log_has_one_line_when_a_host_closes_and_one_when_it_opens(said: tuple[list[Site], Crawl]) -> None:
    (_, shut, _), done = said
    assert done.log.count("127.0.0.2 is closed until") == done.log.count("127.0.0.2 is open again") == 1
    assert done.log.count(f"All of {shut.base} is disallowed") == 1
    assert done.log.count(f"robots.txt of {shut.base} is reachable again") == 1
    assert done.log.count("127.0.0.4 is closed until") == done.log.count("127.0.0.4 is given up") == 1


def test_summary_at_the_end_names_what_was_not_fetched(said: tuple[list[Site], Crawl]) -> None:
    (line,) = [line for line in said[1].log.splitlines() if "Hosts closed for a time" in line]
    assert "WARNING: Hosts closed for a time: 3. Not fetched for that reason: 4 requests, of which 4 stay" in line
    assert "127.0.0.4 (4: retry-after until 20" in line


async def test_summary_of_a_crawl_without_trouble_is_one_line_of_information() -> None:
    site = Site(404, {"/": html()})
    async with serving(site):
        done = await crawl([f"{site.base}/"], QUICK)
    (line,) = [line for line in done.log.splitlines() if "Hosts closed for a time" in line]
    assert line.endswith("INFO: Hosts closed for a time: 0; no request was given up for that")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"USER_AGENT": "Scrapy/2.19.0 (+https://scrapy.org)"}, "USER_AGENT='Scrapy/2.19.0 (+https://scrapy.org)'"),
        ({"POLITESSE_MAX_WAIT": "soon"}, "POLITESSE_MAX_WAIT='soon': give a number of seconds, 0 or more"),
        ({"POLITESSE_ON_ERROR": "open"}, "POLITESSE_ON_ERROR='open': give 'disallow' or 'allow'"),
    ],
)
async def test_setting_that_is_refused_is_one_line_of_error_without_a_traceback(
    settings: dict[str, str], problem: str
) -> None:
    site = Site(404, {"/": html()})
    async with serving(site):
        task = {"urls": [f"{site.base}/"], "settings": ADDON | settings}
        process = await start(json.dumps(task))
        _, err = await asyncio.wait_for(process.communicate(), 60)
    log = err.decode()
    errors = [line for line in log.splitlines() if "ERROR" in line or "CRITICAL" in line]
    assert len(errors) == 1
    assert "politesse.integrations.scrapy.gate.SettingRefused" not in log
    assert f"ERROR: The spider does not start: {problem}" in errors[0]
    assert "politesse.integrations.scrapy.gate" in errors[0]
    assert "never retrieved" not in log
    assert site.paths == []
