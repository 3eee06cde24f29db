"""The summary of a Scrapy crawl that has given up more sites than it names."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from politesse.integrations.scrapy.tally import CrawlTally

if TYPE_CHECKING:
    import pytest


def test_summary_names_the_ten_sites_with_most_requests_and_counts_the_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    crawler: Any = SimpleNamespace(stats=None)
    tally = CrawlTally(crawler)
    for number in range(1, 13):
        tally.given_up(f"{number}.example", f"{number}.example", "slow")
        tally.left(f"{number}.example", number, on_disk=False)
    tally.log_summary()
    assert "78 requests, of which 0 stay in JOBDIR" in caplog.text
    assert "for the next run: 12.example (12: slow), 11.example (11: slow), " in caplog.text
    assert "3.example (3: slow), and 2 more\n" in caplog.text
    assert "2.example (2" not in caplog.text.replace("12.example (12", "")
