"""The benchmark of clients: that each client is polite with politesse, and that the judge sees a client without it."""

import asyncio

import pytest
from benchmarks.clients import CLIENTS, crawl, is_installed

from tests.support.violations import BEFORE_ROBOTS, FORBIDDEN, OVERLAP

pytestmark = [pytest.mark.weekly, pytest.mark.realtime]


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_fetches_every_allowed_page_and_breaks_no_rule(client: str) -> None:
    if client == "playwright" and not is_installed(client):
        pytest.skip("Chromium is not installed")
    crawled = asyncio.run(crawl(client, 60, polite=True))
    assert crawled.ended, crawled.errors
    assert not crawled.wrong
    assert (crawled.missed, crawled.served > 40) == (0, True)


def test_a_client_without_politesse_is_seen_to_break_rules() -> None:
    crawled = asyncio.run(crawl("aiohttp", 60, polite=False))
    assert crawled.ended, crawled.errors
    assert {FORBIDDEN, BEFORE_ROBOTS, OVERLAP} <= crawled.wrong.keys()
