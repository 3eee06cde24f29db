"""Scrapy crawls that write a ledger."""

from pathlib import Path

import pytest

from politesse.ledger import LedgerReader, verify
from tests.wire.scrapy.crawling import QUICK, Site, crawl, html, serving

pytestmark = pytest.mark.realtime


@pytest.mark.full
async def test_the_setting_names_the_ledger_of_a_crawl(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    pages = {"/": html("/a", "/private/b"), "/a": html()}
    site = Site("User-agent: *\nDisallow: /private\n", pages)
    async with serving(site):
        await crawl([f"{site.base}/"], QUICK | {"POLITESSE_LEDGER": str(path)})
    found = verify(path)
    assert (found.problem, found.unclosed) == ("", 0)
    with LedgerReader(path) as ledger:
        denied = {one.url.removeprefix(site.base) for one in ledger.decisions() if not one.allowed}
        turns = [turn.url.removeprefix(site.base) for turn in ledger.turns()]
        [robots] = {copy.digest for copy in ledger.snapshots()}
        assert {one.digest for one in ledger.decisions()} == {robots}
    assert denied == {"/private/b"}
    assert turns == site.page_paths
