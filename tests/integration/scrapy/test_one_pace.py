"""Several spiders of one process, which share the pace of each host whatever their settings are."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.scrapy.crawling import ADDON, Site, chain, crawl, html, in_turn, serving, status

if TYPE_CHECKING:
    from politesse.testing import Exchange

pytestmark = pytest.mark.realtime

SETTINGS: Final = ADDON | {"RETRY_TIMES": 2}


def named(name: str, **settings: object) -> dict[str, object]:
    return {"USER_AGENT": f"{name}/1.0 (+https://example.com/bot)", **settings}


def pages(site: Site) -> list[tuple[str, Exchange]]:
    """Return the pages that were requested, in order, each with the name of the spider."""
    both = zip(site.agents, site.exchanges, strict=True)
    found = [(agent, exchange) for agent, exchange in both if not exchange.url.endswith("/robots.txt")]
    return sorted(found, key=lambda page: page[1].started)


def assert_each_keeps_its_delay(site: Site, delays_s: dict[str, float]) -> None:
    """No request is closer to the one before than its spider asks, and none that the slowest is amid, than it asks."""
    seen = pages(site)
    slowest = max(delays_s, key=delays_s.__getitem__)
    places = [place for place, (agent, _) in enumerate(seen) if agent == slowest]
    for place, ((_, before), (agent, after)) in enumerate(pairwise(seen)):
        gap_s = after.started - before.ended
        assert gap_s >= delays_s[agent], (place, agent, gap_s)
        if places[0] <= place < places[-1]:
            assert gap_s >= delays_s[slowest], (place, agent, gap_s)


@pytest.mark.parametrize("order", [("QuickBot", "SlowBot"), ("SlowBot", "QuickBot")])
async def test_two_spiders_of_unlike_delay_and_name_keep_the_slower_delay_together(order: tuple[str, str]) -> None:
    delays_s = {"QuickBot": 0.2, "SlowBot": 0.7}
    site = Site("User-agent: *\nAllow: /\n", chain(4), page_s=0.1)
    first, second = (named(name, DOWNLOAD_DELAY=delays_s[name]) for name in order)
    async with serving(site):
        await crawl([f"{site.base}/0"], SETTINGS | first, beside=[second])
    assert sorted(site.page_paths) == sorted(["/0", "/1", "/2", "/3"] * 2)
    assert_each_keeps_its_delay(site, delays_s)


async def test_three_spiders_share_the_pace_with_the_delays_of_slots_and_other_pacing_options() -> None:
    site = Site(404, chain(3), page_s=0.1)
    delays_s = {"ExampleBot": 0.3, "SlotBot": 0.9, "OtherBot": 0.5}
    beside = [
        named("SlotBot", DOWNLOAD_DELAY=0.1, DOWNLOAD_SLOTS={"127.0.0.2": {"delay": 0.9}}),
        named("OtherBot", DOWNLOAD_DELAY=0.5, POLITESSE_PACING={"adaptive_factor": 0.0}),
    ]
    async with serving(site):
        await crawl([f"{site.base}/0"], SETTINGS | {"DOWNLOAD_DELAY": 0.3}, beside=beside)
    assert sorted(site.page_paths) == sorted(["/0", "/1", "/2"] * 3)
    assert_each_keeps_its_delay(site, delays_s)


async def test_slow_spider_slows_no_host_that_it_does_not_request() -> None:
    both, quick = Site(404, chain(2)), Site(404, chain(8))
    async with serving(both, quick):
        slow = named("SlowBot", DOWNLOAD_DELAY=4.0, TASK_URLS=[f"{both.base}/0"])
        done = await crawl([f"{quick.base}/0"], SETTINGS | {"DOWNLOAD_DELAY": 0.1}, beside=[slow])
    assert len(done.pages) == 8 + 2
    assert quick.page_exchanges[-1].ended < both.page_exchanges[-1].started  # 0.7 s, and 4 s
    assert_each_keeps_its_delay(both, {"SlowBot": 4.0})


async def test_host_that_one_spider_finds_closed_is_closed_for_all() -> None:
    site = Site(404, {"/": in_turn(status(429, Retry_After="2"), html("/a")), "/a": html()})
    quick = {"DOWNLOAD_DELAY": 0.1, "POLITESSE_PACING": {"backoff_min_s": 0.5}}
    slow = named("SlowBot", DOWNLOAD_DELAY=0.4, POLITESSE_PACING={"backoff_min_s": 0.6})
    async with serving(site):
        await crawl([f"{site.base}/"], SETTINGS | quick, beside=[slow])
    first, second, *_ = pages(site)
    assert first[1].status == 429
    assert second[1].started - first[1].ended >= 2.0
    assert sorted(site.page_paths) == ["/", "/", "/", "/a", "/a"]


async def test_spider_that_names_a_scope_of_its_own_has_a_pace_of_its_own() -> None:
    site = Site(404, chain(3), page_s=0.2)
    other = named("OtherBot", POLITESSE_PACING={"scope": "other"})
    async with serving(site):
        done = await crawl([f"{site.base}/0"], SETTINGS | {"DOWNLOAD_DELAY": 1.0}, beside=[other])
    assert sorted(site.page_paths) == sorted(["/0", "/1", "/2"] * 2)
    seen = pages(site)
    assert min(after.started - before.ended for (_, before), (_, after) in pairwise(seen)) < 1.0
    assert "of the same scope: other" in done.log
    for name in ("ExampleBot", "OtherBot"):
        own = [exchange for agent, exchange in seen if agent == name]
        assert min(after.started - before.ended for before, after in pairwise(own)) >= 1.0
