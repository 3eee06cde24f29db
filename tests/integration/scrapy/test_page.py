"""What pages say to crawlers, handed on by the middleware in real crawls."""

from __future__ import annotations

import asyncio
import gzip
import os
from typing import TYPE_CHECKING, Final

import pytest
from aiohttp import web

from tests.integration.scrapy.crawling import ADDON, Site, crawl, redirect, serving

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.realtime

QUICK: Final = {"DOWNLOAD_DELAY": 0, "POLITESSE_PACING": {"adaptive_factor": 0.0}}
ROBOTS: Final = "User-agent: *\nDisallow: /private\n"
META: Final = '<meta name="robots" content="noarchive">'
MIDDLEWARE_ALONE: Final = {
    "ROBOTSTXT_OBEY": True,
    "DOWNLOADER_MIDDLEWARES": {
        "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None,
        "politesse.integrations.scrapy.RobotsTxtMiddleware": 100,
    },
}
HEADER: Final = "X-Robots-Tag: noindex"
BOTH: Final = ([HEADER, "META robots: noarchive"], False)
HEADER_ALONE: Final = ([HEADER], True)


def page(
    head: str = META,
    *links: str,
    tags: tuple[str, ...] = ("noindex",),
    content_type: str = "text/html",
    coding: str = "",
) -> Callable[[], web.Response]:
    text = f"<!DOCTYPE html><html><head>{head}</head><body>" + "".join(f'<a href="{link}">on</a>' for link in links)

    def answer() -> web.Response:
        body = text.encode()
        response = web.Response(body=gzip.compress(body) if coding == "gzip" else body, content_type=content_type)
        for tag in tags:
            response.headers.add("X-Robots-Tag", tag)
        if coding:
            response.headers["Content-Encoding"] = coding
        return response

    return answer


async def test_directives_of_pages_are_in_the_meta() -> None:
    pages = {
        "/": page(META, "/zipped", "/repeated", "/text", "/moved", "/private", "/strange"),
        "/zipped": page(coding="gzip"),
        "/repeated": page("", tags=("otherbot: none", "noindex", "nofollow")),
        "/text": page(content_type="text/plain"),
        "/moved": redirect("/target"),
        "/target": page(),
        "/strange": page(coding="compress"),
    }
    site = Site(ROBOTS, pages)
    async with serving(site):
        done = await crawl([f"{site.base}/"], ADDON | QUICK)
    assert {url.removeprefix(site.base): said for url, said in done.said.items()} == {
        "/": BOTH,
        "/zipped": BOTH,
        "/repeated": (["X-Robots-Tag: noindex", "X-Robots-Tag: nofollow"], False),
        "/text": ([HEADER], False),
        "/target": BOTH,
        "/strange": HEADER_ALONE,
    }
    assert list(done.ignored) == [f"{site.base}/private"]


@pytest.mark.parametrize(("mark", "expected"), [("", ["nofollow", "noarchive"]), ("#other", ["noindex", "nosnippet"])])
async def test_directive_that_names_a_crawler_is_for_it_alone(mark: str, expected: list[str]) -> None:
    head = '<meta name="examplebot" content="noarchive"><meta name="otherbot" content="nosnippet">'
    site = Site(ROBOTS, {"/": page(head, tags=("examplebot: nofollow", "otherbot: noindex"))})
    async with serving(site):
        done = await crawl([f"{site.base}/{mark}"], ADDON | QUICK)
    [said] = done.said.values()
    assert said is not None
    assert [one.partition(": ")[2] for one in said[0]] == expected


@pytest.mark.parametrize("queue", ["PickleFifoDiskQueue", "MarshalFifoDiskQueue"])
async def test_meta_that_is_handed_to_new_requests_passes_queues_on_disk(queue: str, tmp_path: Path) -> None:
    pages = {"/": page(META, "/a", "/b", "/private"), "/a": page("", tags=()), "/b": page(content_type="text/plain")}
    site = Site(ROBOTS, pages)
    # Meta that is copied says of requests that they were the first, and those have a queue of their own.
    names = ("SCHEDULER_DISK_QUEUE", "SCHEDULER_START_DISK_QUEUE")
    settings = {"JOBDIR": str(tmp_path)} | dict.fromkeys(names, f"scrapy.squeues.{queue}")
    async with serving(site):
        done = await crawl([f"{site.base}/"], ADDON | QUICK | settings, followable=True)
    assert {url.removeprefix(site.base): said for url, said in done.said.items()} == {
        "/": BOTH,
        "/a": ([], False),
        "/b": ([HEADER], False),
    }
    assert list(done.ignored) == [f"{site.base}/private"]
    assert done.stats["scheduler/enqueued/disk"] == done.stats["scheduler/enqueued"]
    assert "scheduler/unserializable" not in done.stats


async def test_middleware_alone_hands_on_and_its_meta_passes_the_queue_on_disk(tmp_path: Path) -> None:
    site = Site(ROBOTS, {"/": page(META, "/a", "/private"), "/a": page("", tags=())})
    settings = MIDDLEWARE_ALONE | {"JOBDIR": str(tmp_path)}
    async with serving(site):
        done = await crawl([f"{site.base}/"], settings, followable=True)
    assert done.said == {f"{site.base}/": BOTH, f"{site.base}/a": ([], False)}
    assert list(done.ignored) == [f"{site.base}/private"]
    assert "scheduler/unserializable" not in done.stats


async def test_middleware_alone_refuses_a_host_header_that_names_another_site() -> None:
    site = Site(404, {"/": page()})
    async with serving(site):
        done = await crawl([f"{site.base}/"], MIDDLEWARE_ALONE, host="other.example")
    assert site.page_paths == []
    assert list(done.ignored) == [f"{site.base}/"]


async def test_links_that_must_not_be_followed_are_not() -> None:
    pages = {"/": page("", "/a", "/b"), "/a": page("", "/c", tags=("examplebot: nofollow",)), "/b": page("", "/d")}
    pages |= {"/c": page(), "/d": page()}
    site = Site(ROBOTS, pages)
    async with serving(site):
        done = await crawl([f"{site.base}/"], ADDON | QUICK, followable=True)
    assert sorted(url.removeprefix(site.base) for url in done.pages) == ["/", "/a", "/b", "/d"]


async def test_no_directives_are_in_the_meta_if_the_setting_is_off() -> None:
    site = Site(ROBOTS, {"/": page()})
    async with serving(site):
        done = await crawl([f"{site.base}/"], ADDON | QUICK | {"POLITESSE_PAGE_DIRECTIVES": False})
    assert done.said == {f"{site.base}/": None}


async def test_page_that_is_still_compressed_is_marked() -> None:
    behind = MIDDLEWARE_ALONE["DOWNLOADER_MIDDLEWARES"] | {"politesse.integrations.scrapy.RobotsTxtMiddleware": 595}  # type: ignore[operator]
    site = Site(ROBOTS, {"/": page(coding="gzip")})
    async with serving(site):
        url = f"{site.base}/"
        crawls = await asyncio.gather(
            crawl([url], ADDON | QUICK | {"COMPRESSION_ENABLED": False}),
            crawl([url], MIDDLEWARE_ALONE | {"DOWNLOADER_MIDDLEWARES": behind}),
        )
    assert [done.said for done in crawls] == [{url: HEADER_ALONE}] * 2


async def test_missing_extra_is_logged_once_and_headers_still_count(tmp_path: Path) -> None:
    (tmp_path / "selectolax.py").write_text("raise ImportError('none here')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    site = Site(ROBOTS, {"/": page(META, "/a", "/text"), "/a": page(), "/text": page(content_type="text/plain")})
    async with serving(site):
        done = await crawl([f"{site.base}/"], ADDON | QUICK, environment={"PYTHONPATH": path})
    assert {url.removeprefix(site.base): said for url, said in done.said.items()} == {
        "/": HEADER_ALONE,
        "/a": HEADER_ALONE,
        "/text": ([HEADER], False),
    }
    assert done.log.count("WARNING: The METAs of pages are not read") == 1
    assert "pip install '.[html]'" in done.log
    assert "Traceback" not in done.log
