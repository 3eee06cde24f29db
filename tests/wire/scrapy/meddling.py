"""Downloader middlewares behind RobotsTxtMiddleware, for the crawls in processes of their own."""

from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler

from politesse import HostPolicy
from politesse.integrations.scrapy import RobotsTxtMiddleware


class Meddler:
    """Changes a request, or the gate, as its path names."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def process_request(self, request: Request) -> Request | None:
        if request.meta.get("dont_obey_robotstxt"):
            return None
        robots = self._crawler.get_downloader_middleware(RobotsTxtMiddleware)
        assert robots is not None
        if "/replace" in request.url:
            return request.replace(url=request.url.replace("/replace", "/private"))
        if "/host" in request.url:
            request.headers["Host"] = "other.example"
        if "/forget" in request.url:
            await robots.gate.forget(request.url)
        if "/deny" in request.url:
            robots.gate.set_policy(request.url.split("/")[2].split(":")[0], HostPolicy(deny=True))
        return None
