"""A Scrapy crawl in a process of its own: it reads its task as JSON, and writes its result as JSON."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scrapy import Request, Spider, signals
from scrapy.core.engine import ExecutionEngine
from scrapy.crawler import AsyncCrawlerProcess, Crawler
from scrapy.http import Response, TextResponse
from scrapy.utils.python import global_object_name

from politesse import CacheOptions, Gatekeeper, HostPolicy, PacingOptions
from politesse.events import Event, FleetAway
from politesse.integrations.scrapy import RobotsTxtMiddleware
from politesse.page import followable_links
from politesse.signing import WebBotAuth

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TASK: dict[str, Any] = json.loads(sys.argv[1])
DONE: dict[str, Any] = {"pages": [], "ignored": {}, "parsed": {}, "data_txt": [], "said": {}, "types": {}}
DONE |= {"decisions": 0}
# No crawl needs that Scrapy's engine asks its scheduler every five seconds: that would hide that nothing woke it.
ExecutionEngine._SLOT_HEARTBEAT_INTERVAL = 3600.0


def gate_of(crawler: Crawler) -> Gatekeeper:
    middleware = crawler.get_downloader_middleware(RobotsTxtMiddleware)
    assert middleware is not None
    return middleware.gate


class Meddler:
    """A downloader middleware behind RobotsTxtMiddleware: it changes a request, or the gate, as the path names."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Meddler:
        return cls(crawler)

    async def process_request(self, request: Request) -> Request | None:
        if request.meta.get("dont_obey_robotstxt"):
            return None
        gate = gate_of(self._crawler)
        if "/replace" in request.url:
            return request.replace(url=request.url.replace("/replace", "/private"))
        if "/host" in request.url:
            request.headers["Host"] = "other.example"
        if "/forget" in request.url:
            await gate.forget(request.url)
        if "/deny" in request.url:
            gate.set_policy(request.url.split("/")[2].split(":")[0], HostPolicy(deny=True))
        return None


class TaskSpider(Spider):
    """Requests the URLs of its task and follows every link."""

    name = "task"
    allowed_domains = TASK.get("allowed_domains")

    async def start(self) -> AsyncIterator[Request]:
        if "robots_parsed" in vars(signals):
            self.crawler.signals.connect(self.parsed, signals.robots_parsed)
        for number, url in enumerate(self.settings.get("TASK_URLS", TASK["urls"])):
            yield self.request(url, number)

    def request(self, url: str, number: int = 0) -> Request:
        meta: dict[str, Any] = {}
        if url.endswith("#disobey"):
            meta["dont_obey_robotstxt"] = True
        if url.endswith("#slot"):
            meta["download_slot"] = f"mine {number}"
        agent = {"other": "OtherBot/2.0", "browser": "Mozilla/5.0 (X11; Linux x86_64)"}.get(url.partition("#")[2])
        headers = {"User-Agent": agent} if agent else {}
        hosts = {"other-host": "other.example", "same-host": urlsplit(url).netloc}
        if (host := hosts.get(urlsplit(url).fragment)) is not None:
            headers["Host"] = host
        return Request(
            url, meta=meta, headers=headers, errback=self.ignored, dont_filter=TASK.get("dont_filter", False)
        )

    async def parse(self, response: Response) -> AsyncIterator[Request]:
        DONE["pages"].append(response.url)
        page = response.meta.get("politesse_page")
        DONE["said"][response.url] = page and [[f"{one.field}: {one.name}" for one in page.statements], page.truncated]
        if response.url in TASK.get("direct", {}):
            assert self.crawler.engine is not None
            fetch = self.crawler.engine.download_async
            await asyncio.gather(*(fetch(self.request(url)) for url in TASK["direct"][response.url]))
        if TASK.get("data_txt"):
            answer = await gate_of(self.crawler).datatxt(response.url)
            DONE["data_txt"].append([answer.outcome, answer.text])
        if TASK.get("followable"):
            # As spiders do who hand all of it on.
            for link in followable_links(response.body, response.url, headers=response.headers, token="ExampleBot"):
                yield Request(link, meta=response.meta, errback=self.ignored)
        elif isinstance(response, TextResponse):
            for number, link in enumerate(response.css("a::attr(href)").getall()):
                yield self.request(response.urljoin(link), number)

    def ignored(self, failure: Any) -> None:
        assert "politesse_page" not in failure.request.meta
        DONE["ignored"][failure.request.url] = f"{type(failure.value).__name__}: {failure.value}"
        DONE["types"][failure.request.url] = [global_object_name(kind) for kind in type(failure.value).__mro__]
        if TASK.get("errback_raises"):
            raise ValueError(failure.request.url)

    def closed(self, _reason: str) -> None:
        middleware = self.crawler.get_downloader_middleware(RobotsTxtMiddleware)
        if self.name == "task" and middleware is not None:
            DONE["decisions"] = middleware.gate.statistics().decisions

    def parsed(self, robotparser: Any, request: Request) -> None:
        verdicts = {agent: robotparser.allowed(request.url, agent) for agent in ("ExampleBot", "OtherBot")}
        DONE["parsed"][request.url] = verdicts


def crawl_when_away(process: AsyncCrawlerProcess, crawler: Crawler, settings: dict[str, Any]) -> None:
    """Open another spider with ``settings`` when the gate of ``crawler`` publishes FleetAway."""

    def note(event: Event) -> None:
        if isinstance(event, FleetAway):
            process.crawl(type("LaterSpider", (TaskSpider,), {"name": "later", "custom_settings": settings}))

    def opened() -> None:
        gate_of(crawler).subscribe(note)

    crawler.signals.connect(opened, signals.spider_opened, weak=False)


def main() -> None:
    for place, value in TASK.get("patch", {}).items():
        module, _, name = place.rpartition(".")
        setattr(importlib.import_module(module), name, value)
    settings: dict[str, Any] = {
        "LOG_LEVEL": "DEBUG",
        "USER_AGENT": "ExampleBot/1.0 (+https://example.com/bot)",
        "TELNETCONSOLE_ENABLED": False,
        "RETRY_TIMES": 0,
    }
    settings |= TASK["settings"]
    for given in (settings, *TASK.get("beside", [])):
        for name, options in {"POLITESSE_CACHE": CacheOptions, "POLITESSE_PACING": PacingOptions}.items():
            if name in given:
                given[name] = options(**given[name])
    if "POLITESSE_SIGNER" in settings:
        settings["POLITESSE_SIGNER"] = WebBotAuth(**settings["POLITESSE_SIGNER"])
    process = AsyncCrawlerProcess(settings)
    crawler = process.create_crawler(TaskSpider)
    process.crawl(crawler)
    for others in TASK.get("beside", []):
        process.crawl(type("OtherSpider", (TaskSpider,), {"name": "other", "custom_settings": others}))
    if "when_away" in TASK:
        crawl_when_away(process, crawler, TASK["when_away"])
    process.start()
    DONE["stats"] = {name: value for name, value in crawler.stats.get_stats().items() if isinstance(value, int | str)}
    DONE["stats_s"] = {name: value for name, value in crawler.stats.get_stats().items() if isinstance(value, float)}
    json.dump(DONE, sys.stdout)


main()
