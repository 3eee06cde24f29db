"""Crawlee with politeness: a request manager that paces the hosts, and an HTTP client that checks each hop.

::

    async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)") as gate:
        async with PoliteRequestManager(gate, await RequestQueue.open()) as manager:
            sender = ImpitHttpClient(follow_redirects=False, browser=None)
            client = PoliteHttpClient(manager, sender)
            crawler = ParselCrawler(request_manager=manager, http_client=client)
            await crawler.run(["https://example.com/"])

The manager checks and paces requests before Crawlee starts to process them, so a request that waits takes no slot of
the crawler, and the wait counts against no timeout. The client checks and paces the later requests: redirects, and the
requests of handlers.
"""

from __future__ import annotations

from politesse._base.text import needing

with needing("politesse.integrations.crawlee", "crawlee"):
    from politesse.integrations.crawlee._client import PoliteHttpClient
    from politesse.integrations.crawlee._manager import PoliteRequestManager

__all__ = ["PoliteHttpClient", "PoliteRequestManager"]
