"""The directives of pages, in the meta of responses of real crawls."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from tests.wire.scrapy.crawling import QUICK, Site, crawl, redirect, serving

pytestmark = [pytest.mark.realtime, pytest.mark.full]

ROBOTS: Final = "User-agent: *\nDisallow: /private\n"
META: Final = '<meta name="robots" content="noarchive">'
HEADER: Final = "X-Robots-Tag: noindex"
BOTH: Final[list[object]] = [[HEADER, "META robots: noarchive"], False]
HEADER_ALONE: Final[list[object]] = [[HEADER], True]


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
    head = '<meta name="examplebot" content="noarchive"><meta name="otherbot" content="nosnippet">'
    named = page(head, tags=("examplebot: nofollow", "otherbot: noindex"))
    pages = {
        "/": page(META, "/zipped", "/repeated", "/text", "/moved", "/private", "/strange", "/named", "/other#other"),
        "/zipped": page(coding="gzip"),
        "/repeated": page("", tags=("otherbot: none", "noindex", "nofollow")),
        "/text": page(content_type="text/plain"),
        "/moved": redirect("/target"),
        "/target": page(),
        "/strange": page(coding="compress"),
        "/named": named,
        "/other": named,
    }
    site = Site(ROBOTS, pages)
    async with serving(site):
        done = await crawl([f"{site.base}/"], QUICK)
    assert {url.removeprefix(site.base): said for url, said in done.said.items()} == {
        "/": BOTH,
        "/zipped": BOTH,
        "/repeated": [["X-Robots-Tag: noindex", "X-Robots-Tag: nofollow"], False],
        "/text": [[HEADER], False],
        "/target": BOTH,
        "/strange": HEADER_ALONE,
        "/named": [["X-Robots-Tag: nofollow", "META examplebot: noarchive"], False],
        "/other": [["X-Robots-Tag: noindex", "META otherbot: nosnippet"], False],
    }
    assert list(done.ignored) == [f"{site.base}/private"]


@pytest.mark.parametrize("queue", ["PickleFifoDiskQueue", "MarshalFifoDiskQueue"])
async def test_meta_that_is_handed_to_new_requests_passes_queues_on_disk(queue: str, tmp_path: Path) -> None:
    pages = {"/": page(META, "/a", "/b", "/private"), "/a": page("", tags=()), "/b": page(content_type="text/plain")}
    site = Site(ROBOTS, pages)
    # Meta that is copied says of requests that they were the first, and those have a queue of their own.
    names = ("SCHEDULER_DISK_QUEUE", "SCHEDULER_START_DISK_QUEUE")
    settings = {"JOBDIR": str(tmp_path)} | dict.fromkeys(names, f"scrapy.squeues.{queue}")
    async with serving(site):
        done = await crawl([f"{site.base}/"], QUICK | settings, followable=True)
    assert {url.removeprefix(site.base): said for url, said in done.said.items()} == {
        "/": BOTH,
        "/a": [[], False],
        "/b": [[HEADER], False],
    }
    assert list(done.ignored) == [f"{site.base}/private"]
    assert done.stats["scheduler/enqueued/disk"] == done.stats["scheduler/enqueued"]
    assert "scheduler/unserializable" not in done.stats


async def test_missing_extra_is_logged_once_and_headers_still_count(tmp_path: Path) -> None:
    (tmp_path / "selectolax.py").write_text("raise ImportError('none here')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    site = Site(ROBOTS, {"/": page(META, "/a", "/text"), "/a": page(), "/text": page(content_type="text/plain")})
    async with serving(site):
        done = await crawl([f"{site.base}/"], QUICK, environment={"PYTHONPATH": path})
    assert {url.removeprefix(site.base): said for url, said in done.said.items()} == {
        "/": HEADER_ALONE,
        "/a": HEADER_ALONE,
        "/text": [[HEADER], False],
    }
    assert done.log.count("WARNING: The METAs of pages are not read") == 1
    assert "pip install '.[html]'" in done.log
    assert "Traceback" not in done.log
