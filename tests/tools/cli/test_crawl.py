# ruff: noqa: ASYNC240 - the files of these tests are small

"""``politesse crawl``: over the demo's web, over servers that misbehave, and as it is ended."""

import asyncio
import errno
import json
import os
import random
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from datetime import datetime
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from warcio.archiveiterator import ArchiveIterator
from yarl import URL

from politesse import CacheOptions, Gatekeeper, PacingOptions, PoliteQueue
from politesse.cli import crawl_command
from politesse.cli.demo.sites import TOKEN
from politesse.cli.demo.web import LittleWeb
from politesse.integrations.warc import WarcFile
from politesse.page.html import MAX_BYTES
from tests.support.tiers import first_of
from tests.tools.cli.command import COMMAND, Done, Origin, politesse, read_terminal, run_process, serving, start

AGENT = f"{TOKEN}/1.0 (+https://example.com/bot)"
TITLE = "<!doctype html><title>A page</title>"


Records = list[dict[str, Any]]
Crawl = Callable[..., Awaitable[tuple[Done, Records]]]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return the file of the records."""
    return tmp_path / "crawl.jsonl"


@pytest.fixture
def crawl(out: Path) -> Crawl:
    """Return a function that crawls, and returns what the command has printed and its records."""

    async def run(*arguments: str) -> tuple[Done, Records]:
        done = await politesse("crawl", *arguments, "--out", str(out))
        return done, records(out)

    return run


@pytest.fixture
def eager(crawl: Crawl, monkeypatch: pytest.MonkeyPatch) -> Crawl:
    """Return `crawl` without a pause between two requests, and with little patience for a site that is unreachable."""

    def pacing(*, min_delay_s: float) -> PacingOptions:
        assert min_delay_s == 1.0
        return PacingOptions(min_delay_s=0.0, adaptive_factor=0.0, backoff_min_s=0.1)

    cache = CacheOptions(retry_min_s=0.1, retry_max_s=0.1)
    monkeypatch.setattr(crawl_command, "PacingOptions", pacing)
    monkeypatch.setattr(crawl_command, "Gatekeeper", partial(Gatekeeper, cache=cache))
    monkeypatch.setattr(crawl_command, "PoliteQueue", partial(PoliteQueue, max_unreachable_s=0.3))
    return crawl


class Pages(Origin):
    """An origin with pages by path; others are 404. A page is HTML, or a whole response."""

    def __init__(self, pages: dict[str, str | web.StreamResponse], robots: str = "") -> None:
        super().__init__(robots=robots)
        self.pages = pages

    @property
    def elsewhere(self) -> str:
        """The same server as another host."""
        return self.base.replace("127.0.0.1", "localhost")

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/robots.txt":
            return await super().answer(request)
        self.requests.append(request)
        page = self.pages.get(request.path_qs, web.Response(status=404))
        if isinstance(page, web.StreamResponse):
            return page
        return web.Response(text=f"{TITLE}{page}", content_type="text/html")


def moved(location: str) -> web.Response:
    return web.Response(status=301, headers={"Location": location})


def sitemap(*urls: str) -> web.Response:
    locations = "".join(f"<url><loc>{url}</loc></url>" for url in urls)
    return web.Response(text=f"<urlset>{locations}</urlset>", content_type="application/xml")


def links(*hrefs: str) -> str:
    return "".join(f'<a href="{href}">a page</a> ' for href in hrefs)


def numbered(count: int) -> dict[str, str | web.StreamResponse]:
    """A front page that links to so many pages, which are missing."""
    return {"/": links(*(f"/{number}" for number in range(count)))}


def records(path: Path) -> Records:
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_path(found: Records, base: str) -> dict[str, dict[str, Any]]:
    """The record of each URL; fails for a URL with two."""
    listed = {record["url"].removeprefix(base): record for record in found}
    assert len(listed) == len(found)
    return listed


def outcomes(found: Records, base: str) -> dict[str, str]:
    return {path: record["outcome"] for path, record in by_path(found, base).items()}


def check_all_known(found: Records, little: LittleWeb) -> None:
    """Every URL that a recorded page or redirect leads to has a record of its own, and none has two."""
    by_form = {str(URL(record["url"]).with_fragment(None)): record for record in found}
    assert len(by_form) == len(found)
    leads = list(little.front_pages)
    for site in little.sites:
        for page in site.pages.values():
            record = by_form.get(str(URL(site.address + page.target).with_fragment(None)))
            if record is not None and record["outcome"] in {"page", "redirect"}:
                targets = page.links if page.redirect is None else [page.redirect]
                leads += [target.site.address + target.target for target in targets]
    assert {str(URL(url).with_fragment(None)) for url in leads} <= by_form.keys()


def check_summary(err: str, found: Records) -> None:
    counts = Counter(record["outcome"] for record in found)
    words = f"{counts['page']:,} pages, {counts['failed']} failed, {counts['redirect']} redirects, "
    assert f"{words}{counts['disallowed']} disallowed, {counts['given-up']} given up in " in err
    assert (f"{counts['left']} URL{'' if counts['left'] == 1 else 's'} left at " in err) is (counts["left"] > 0)


async def test_each_url_has_a_record_of_what_became_of_it(eager: Crawl) -> None:
    pages = Pages(
        {
            "/": links("/a", "/moved", "/private/1", "/gone", "/text"),
            "/a": links("/", "/a#part"),
            "/moved": moved("/b"),
            "/b": "",
            "/text": web.Response(text=links("/never")),
        },
        "User-agent: *\nDisallow: /private/\n",
    )
    async with serving(pages) as site:  # a start URL that is given thrice is requested once
        done, found = await eager(f"{site.base}/", site.base, f"{site.base}/#top", "--agent", AGENT)
    assert done.code == 0
    assert Counter(pages.paths) == Counter(["/robots.txt", "/", "/a", "/moved", "/b", "/gone", "/text"])
    assert {request.headers["User-Agent"] for request in pages.requests} == {AGENT}
    became = dict.fromkeys(["/", "/a", "/b", "/gone", "/text"], "page")
    assert outcomes(found, site.base) == became | {"/moved": "redirect", "/private/1": "disallowed"}
    of = by_path(found, site.base)
    front, private = of["/"], of["/private/1"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(front["started"]))
    assert front["elapsed_s"] >= 0
    assert (front["status"], front["content_type"]) == (200, "text/html; charset=utf-8")
    assert (front["links"], front["queued"], front["attempt"], front["hops"]) == (5, 5, 1, [])
    assert front["bytes"] == len(TITLE + pages.pages["/"])  # type: ignore[operator]
    assert of["/b"]["hops"] == [f"{site.base}/moved"]
    assert (of["/moved"]["status"], of["/moved"]["location"]) == (301, "/b")
    assert (of["/gone"]["status"], of["/text"]["bytes"], of["/text"]["links"]) == (404, None, 0)
    assert private["reason"] == "disallow-rule"
    assert private["rule"] == {"line": 2, "field": "Disallow", "value": "/private/"}
    assert private["robots_url"] == f"{site.base}/robots.txt"


async def test_records_have_the_keys_that_the_guide_shows(eager: Crawl) -> None:
    guide = (Path(__file__).parents[3] / "src/politesse/guides/operating.md").read_text()
    [block] = re.findall(r"```json\n(\{\"url\".*?)```", guide, re.DOTALL)
    shown = {record["outcome"]: list(record) for record in map(json.loads, block.splitlines())}
    async with serving(Pages({"/": links("/private", "/about")}, "User-agent: *\nDisallow: /private\n")) as site:
        for number in ("1", "2"):
            _, found = await eager(f"{site.base}/", f"{site.base}/private", "--max-pages", number)
            written = {record["outcome"]: list(record) for record in found}
            assert written.items() <= shown.items()
            assert ("left" in written) is (number == "1")


async def test_links_to_other_hosts_are_followed_only_with_any_host(eager: Crawl) -> None:
    async with serving(Pages({"/": links("/b"), "/b": ""})) as elsewhere:
        there = elsewhere.base.replace("127.0.0.1", "localhost")
        async with serving(Pages({"/": links(f"{there}/never", "/b"), "/b": links(f"{there}/never")})) as site:
            for options, more in (([], []), (["--any-host"], [f"{there}/never"])):
                _, found = await eager(f"{site.base}/", *options)
                assert outcomes(found, site.base).keys() == {"/", "/b", *more}
        async with serving(Pages({"/": moved(f"{there}/")})) as site:  # as example.com redirects to www.example.com
            _, found = await eager(f"{site.base}/")
            assert outcomes(found, site.base).keys() == {"/", f"{there}/", f"{there}/b"}


def _known(text: str) -> tuple[IPv4Address | IPv6Address, bool]:
    return ip_address(text), text == "127.0.0.2"


async def test_private_addresses_are_refused_unless_asked_for(eager: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("fetch._addresses", "cli.crawl_command"):  # the start is at a public address
        monkeypatch.setattr(f"politesse.{module}.is_public", lambda address: str(address) == "127.0.0.2")
    monkeypatch.setattr("politesse.fetch._addresses._known", _known)
    for options, requests in (([], 0), (["--allow-private"], 4)):
        inside, site = Pages({"/": ""}), Pages({"/b": ""})
        async with serving(inside), serving(site, "127.0.0.2"):
            site.pages["/"] = links("/b", f"{inside.base}/", f"{inside.elsewhere}/")
            _, found = await eager(f"{site.base}/", "--any-host", *options)
        assert len(inside.requests) == requests
        assert len(found) == 4
        assert Counter(outcomes(found, "").values())["page"] == 2 + requests // 2


async def test_a_resumed_crawl_may_request_the_private_addresses_that_it_was_permitted_to(
    tmp_path: Path, eager: Crawl
) -> None:
    pages = Pages({"/a": "", "/b": ""})
    async with serving(pages) as site:
        urls = f"{site.base}/a", f"{site.base}/b"
        pages.pages["/"] = links(*urls)
        for number, options in enumerate(
            [
                [f"{site.base}/"],
                [f"{site.base}/", "--any-host"],
                [f"{pages.elsewhere}/", "--allow", site.base.removeprefix("http://")],
                ["--sitemaps", site.base],
                [f"{site.base}/", "--allow-private"],
            ]
        ):
            pages.pages["/sitemap.xml"] = sitemap(*urls)
            journal = str(tmp_path / f"{number}.db")
            await eager(*options, "--max-pages", "1", "--journal", journal)
            done, found = await eager("--resume", journal)
            requested = {record["url"] for record in found if record["outcome"] == "page"}
            assert (done.code, requested >= {*urls}) == (0, True), options


async def test_a_private_address_that_a_page_has_named_permits_nothing_to_a_resumed_crawl(
    tmp_path: Path, eager: Crawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("fetch._addresses", "cli.crawl_command"):  # the start is at a public address
        monkeypatch.setattr(f"politesse.{module}.is_public", lambda address: str(address) == "127.0.0.2")
    monkeypatch.setattr("politesse.fetch._addresses._known", _known)
    inside, site, journal = Pages({"/": ""}), Pages({}), str(tmp_path / "crawl.db")
    async with serving(inside), serving(site, "127.0.0.2"):
        site.pages["/"] = links(f"{inside.base}/")
        await eager(f"{site.base}/", "--any-host", "--max-pages", "1", "--journal", journal)
        _, found = await eager("--resume", journal)
    assert (inside.requests, found[-1]["url"]) == ([], f"{inside.base}/")


async def test_a_private_page_that_has_failed_permits_nothing_to_a_later_crawl(
    tmp_path: Path, eager: Crawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, site, journal = Pages({"/": ""}), Pages({}), str(tmp_path / "crawl.db")
    async with serving(inside), serving(site, "127.0.0.2"):
        _, found = await eager("--sitemaps", f"{inside.base}/gone.xml", "--allow-private", "--journal", journal)
        assert [record["outcome"] for record in found] == ["failed"]
        inside.requests.clear()
        for module in ("fetch._addresses", "cli.crawl_command"):  # the start is at a public address
            monkeypatch.setattr(f"politesse.{module}.is_public", lambda address: str(address) == "127.0.0.2")
        monkeypatch.setattr("politesse.fetch._addresses._known", _known)
        site.pages["/"] = links(f"{inside.base}/")
        await eager(f"{site.base}/", "--any-host", "--journal", journal)
    assert (site.requests != [], inside.requests) == (True, [])


async def test_links_are_followed_to_the_depth_to_max_pages_and_if_they_match(eager: Crawl) -> None:
    async with serving(Pages(numbered(10))) as site:
        done, found = await eager(f"{site.base}/", "--max-pages", "3")
        assert Counter(outcomes(found, site.base).values()) == {"page": 3, "left": 8}
        assert (done.code, done.err.splitlines()[-1]) == (0, "8 URLs left at 1 host; stopped at --max-pages 3")
    async with serving(Pages({"/": links("/1"), "/1": links("/", "/2"), "/2": links("/3")})) as site:
        done, found = await eager(f"{site.base}/", "--depth", "2")
        depths = {path: record["depth"] for path, record in by_path(found, site.base).items()}
        assert (done.code, depths) == (0, {"/": 0, "/1": 1, "/2": 2})
    async with serving(Pages({"/": links("/docs/1", "/docs/old/2", "/blog/3", "/docs/4")})) as site:
        options = ("--allow", "/docs/", "--allow", "b.example", "--deny", "/docs/old/", "--max-per-host", "2")
        done, _ = await eager(f"{site.base}/", *options)
        assert (done.code, site.paths) == (0, ["/robots.txt", "/", "/docs/1"])


async def test_a_host_that_a_pattern_names_is_followed_beside_the_hosts_of_the_urls(eager: Crawl) -> None:
    async with serving(Pages({"/b/": links("/b/1", "/2"), "/b/1": ""})) as elsewhere:
        there = elsewhere.base.replace("127.0.0.1", "localhost")
        async with serving(Pages({"/": links("/a/1", f"{there}/b/"), "/a/1": ""})) as site:
            _, found = await eager(f"{site.base}/", "--allow", "/a/", "--allow", f"{there.removeprefix('http://')}/b/")
            assert outcomes(found, site.base).keys() == {"/", "/a/1", f"{there}/b/", f"{there}/b/1"}
            for path in ("/", "/b/"):  # a pattern without a host names no other host
                _, found = await eager(f"{site.base}/", "--allow", path)
                assert not any(url.startswith(there) for url in outcomes(found, site.base))


async def test_a_crawl_starts_from_sitemaps_and_pages(eager: Crawl) -> None:
    elsewhere, without = Pages({"/x": links("/y"), "/y": ""}), Pages({"/": links("/w"), "/w": ""})
    pages = Pages({"/a": links("/b"), "/b": "", "/c/d": "", "/list.xml": moved("/maps/list.xml")})
    async with serving(pages) as site, serving(elsewhere), serving(without):
        there, other = elsewhere.elsewhere, without.base
        pages.robots = f"Sitemap: {site.base}/list.xml\nSitemap: {site.base}/gone.xml\nSitemap: {there}/x.xml"
        pages.pages["/maps/list.xml"] = sitemap(f"{site.base}/a", f"{site.base}/c/d", f"{there}/never")
        elsewhere.pages["/x.xml"] = sitemap(f"{there}/x")
        done, found = await eager("--sitemaps", site.base)
        assert outcomes(found, site.base) == {
            "/list.xml": "redirect",
            "/maps/list.xml": "sitemap",
            "/gone.xml": "failed",
            f"{there}/x.xml": "sitemap",
            **dict.fromkeys(["/a", "/b", "/c/d", f"{there}/x", f"{there}/y"], "page"),
        }
        of = by_path(found, site.base)
        assert (of["/maps/list.xml"]["status"], of["/a"]["depth"], of["/b"]["depth"]) == (200, 0, 1)
        assert of["/gone.xml"]["error"] == "is a sitemap file, and was answered with 404"
        assert done.code == 1
        assert f"failed first: {site.base}/gone.xml is a sitemap file, and was answered with 404" in done.err
        assert "5 pages, 1 failed, 1 redirect, 0 disallowed, 0 given up, 2 sitemaps in " in done.err

        pages.robots, pages.pages["/sitemap.xml"] = "", sitemap(f"{site.base}/b")
        done, found = await eager(f"{other}/", "--sitemaps", site.base, "--sitemaps", other)  # one needs no sitemap
        assert (done.code, "failed first" in done.err) == (0, False)
        reached = outcomes(found, site.base)
        assert {url for url, outcome in reached.items() if outcome == "page"} == {"/b", f"{other}/", f"{other}/w"}

        pages.pages["/maps/map.xml"] = sitemap(f"{site.base}/maps/a", f"{site.base}/maps/moved", f"{site.base}/never")
        pages.pages |= {"/maps/a": links("/maps/b"), "/maps/moved": moved("/e")}
        done, found = await eager("--sitemaps", f"{site.base}/maps/map.xml", "--depth", "0")
        became = {"/maps/map.xml": "sitemap", "/maps/a": "page", "/maps/moved": "redirect", "/e": "page"}
        assert (done.code, outcomes(found, site.base)) == (0, became)


async def test_a_redirect_of_a_sitemaps_page_opens_no_other_host(eager: Crawl) -> None:
    elsewhere, pages = Pages({"/x": links("/never")}), Pages({})
    async with serving(pages) as site, serving(elsewhere):
        pages.pages |= {"/a": moved(f"{elsewhere.elsewhere}/x"), "/sitemap.xml": sitemap(f"{site.base}/a")}
        await eager("--sitemaps", site.base)
    assert elsewhere.paths == ["/robots.txt", "/x"]


@pytest.mark.realtime  # pauses and limits of time
async def test_a_crawl_ends_after_its_time_and_its_pauses_are_those_of_the_option(crawl: Crawl) -> None:
    async with serving(Pages(numbered(50))) as site:
        done, found = await crawl(f"{site.base}/", "--time", "0.5")
        assert 0 < Counter(outcomes(found, "").values())["left"] < 51
        assert done.err.splitlines()[-1].endswith("at 1 host; stopped at --time 0.5")
        assert done.code == 0
        done, found = await crawl(f"{site.base}/", "--min-delay", "0.7", "--max-pages", "2")
    starts = [datetime.fromisoformat(one["started"]).timestamp() for one in found if one["outcome"] == "page"]
    assert [later - earlier >= 0.699 for earlier, later in pairwise(starts)] == [True]  # the record has milliseconds


async def test_pages_are_kept_in_a_warc_file(tmp_path: Path, eager: Crawl) -> None:
    image, most = bytes(range(256)) * 40_000, 8 * 1024 * 1024
    pages = Pages({"/": links("/image", "/moved"), "/moved": moved("/gone")})
    pages.pages["/image"] = web.Response(body=image, content_type="image/png")
    kept = tmp_path / "pages.warc.gz"
    async with serving(pages) as site:
        done, recorded = await eager(f"{site.base}/", "--warc", str(kept))
        again = await politesse("crawl", f"{site.base}/", "--warc", str(kept))
    with kept.open("rb") as file:
        found = {
            one.rec_headers.get_header("WARC-Target-URI").removeprefix(site.base): (
                one.http_headers.get_statuscode(),
                one.rec_headers.get_header("WARC-Truncated"),
                one.content_stream().read(),
            )
            for one in ArchiveIterator(file)
            if one.rec_type == "response"
        }
    assert (done.code, set(found)) == (0, {"/", "/image", "/gone"})
    assert found["/"] == ("200", None, (TITLE + links("/image", "/moved")).encode())
    assert found["/image"] == ("200", "length", image[:most])
    assert found["/gone"][0] == "404"
    record = by_path(recorded, site.base)["/image"]
    assert (record["bytes"], record["truncated"]) == (most, True)
    assert (again.code, "pages.warc.gz exists: give another name" in again.err) == (2, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
async def test_a_full_disk_ends_the_crawl(tmp_path: Path, eager: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(WarcFile, "_write", write)
    for most, options in ((3, ["--warc", str(tmp_path / "pages.warc")]), (9, ["--out", "/dev/full"])):
        async with serving(Pages(numbered(50))) as site:
            done = await politesse("crawl", f"{site.base}/", *options)
        assert (done.code, "stopped by an error" in done.err, "No space left" in done.err) == (2, True, True)
        assert len(site.requests) <= most


@pytest.mark.full
async def test_the_summary_tells_how_long_a_slow_host_takes() -> None:
    async with serving(Pages(numbered(10), "User-agent: *\nCrawl-delay: 30\n")) as site:
        done = await politesse("crawl", f"{site.base}/", "--max-pages", "1")
    assert done.err.splitlines()[-2:] == [
        "10 URLs left at 1 host; stopped at --max-pages 1",
        "127.0.0.1 needs 5 min more (10 URLs, one each 30 s, by crawl-delay)",
    ]


async def test_the_command_that_goes_on_has_the_same_options(tmp_path: Path) -> None:
    journal = tmp_path / "crawl.db"
    options = ["--depth", "3", "--allow", "127.0.0.1", "--allow", "/a b/", "--deny", "/*.pdf$"]
    options += ["--agent", "ExampleBot/1.0 (+https://example.com/bot)", "--min-delay=0", "--any-host"]
    async with serving(Pages({"/": links("/1")})) as site:
        done = await politesse("crawl", f"{site.base}/", *options, "--max-pages", "1", "--journal", str(journal))
    words = shlex.split(done.err.splitlines()[-1])
    assert words == ["go", "on", "with:", "politesse", "crawl", "--allow-private", *options, "--resume", str(journal)]


async def test_without_same_host_a_crawl_ends_after_a_thousand_pages() -> None:
    make = partial(crawl_command.CrawlPlan, ["http://a.example/"], AGENT)
    assert make(same_host=False, max_pages=None).max_pages == 1_000
    assert make(same_host=True, max_pages=None).max_pages is None
    assert make(same_host=False, max_pages=7).max_pages == 7


async def test_hostile_urls_and_headers_are_written_as_ascii(eager: Crawl, out: Path) -> None:
    page = web.Response(text=links("/a\x1b[2Jb", "/\N{RIGHT-TO-LEFT OVERRIDE}", "/bad", "[bold]x"))
    page.headers["Content-Type"] = "text/html; \N{SNOWMAN}"
    async with serving(Pages({"/": page, "/bad": moved("javascript:\N{SNOWMAN}")})) as site:
        done, found = await eager(f"{site.base}/")
    assert done.code == 1
    assert out.read_bytes().isascii()
    assert "\x1b" not in out.read_text() + done.err
    [failed] = [record for record in found if record["outcome"] == "failed"]
    assert "which is no http(s) URL" in failed["error"]


# Mistakes in a start URL, an option or the file are reported before the first request.


async def test_a_mistake_exits_2_with_one_message(out: Path) -> None:
    url = "http://127.0.0.1/"
    for message, arguments in {
        "Missing argument URL: give one, or --sitemaps, or --resume": [],
        "there is no such file; --journal begins one": ["--resume", "missing.db"],
        "name the same file": ["--journal", "a.db", "--resume", "a.db"],
        "no url": ["no url"],
        "ftp": ["ftp://example.com/"],
        "http://": ["http://"],
        "--max-pages": ["--max-pages", "0", url],
        "--workers": ["--workers", "0", url],
        "both print to standard output; give --out a file": ["--json", "--out", "-", url],
        "--timeout": ["--timeout", "0", url],
        "--agent": ["--agent", "*", url],
        "one line of printable ASCII": ["--agent", "ExampleBot (caf\xe9)", url],
        "deny='http://b.example/': give a host or a path": ["--deny", "http://b.example/", "http://a.example/"],
        "is a directory": ["--out", "/", url],
        "No such file or directory": ["--out", "/missing/file", url],
    }.items():
        done = await politesse("crawl", *arguments, COLUMNS="200")
        assert (done.code, done.out, message in done.err, "Traceback" in done.err) == (2, "", True, False), message
    out.write_text("an earlier crawl\n")
    done = await politesse("crawl", "--agent", "ExampleBot (caf\xe9)", "--out", str(out), url)
    assert (done.code, out.read_text()) == (2, "an earlier crawl\n")


async def test_two_options_name_no_common_file_except_a_journal_and_a_store(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "old.db").touch()
    for name, options in {
        "new.db": ["--journal", "--out", "--ledger", "--warc"],
        "old.db": ["--resume", "--out", "--ledger", "--warc"],
        "store.db": ["--store", "--out", "--ledger", "--warc"],
    }.items():
        for one, other in combinations(options, 2):
            same = str(tmp_path / "link" / name)
            files = one, str(tmp_path / name), other, same
            done = await politesse("crawl", "http://127.0.0.1:1/", "--time", "1", *files, COLUMNS="200")
            told = {option for option in options if f"{option} " in done.problem}
            assert (done.code, told, "name the same file" in done.problem) == (2, {one, other}, True)
    assert {path.name for path in tmp_path.iterdir()} == {"link", "old.db"}
    shared = str(tmp_path / "both.db")
    async with serving(Pages({"/": ""})) as site:
        done = await politesse("crawl", f"{site.base}/", "--journal", shared, "--store", shared, "--out", "-")
    assert (done.code, len(done.records)) == (0, 1)


async def test_damaged_rows_of_a_journal_are_reported(tmp_path: Path, eager: Crawl) -> None:
    journal = tmp_path / "crawl.db"
    async with serving(Pages({"/": links("/a", "/b")})) as site:
        await eager(f"{site.base}/", "--max-pages", "1", "--journal", str(journal))
        with closing(sqlite3.connect(journal)) as connection, connection:
            connection.execute("UPDATE queued SET item = '{'")
        done, _ = await eager("--resume", str(journal))
    assert done.err.count("has a damaged row, which is left as it is: number ") == 2
    assert "has nothing left of the 3 URLs that were put" in done.err


async def test_a_journal_that_is_no_file_of_politesse_or_in_use_is_an_error_in_one_line(tmp_path: Path) -> None:
    text, journal = tmp_path / "notes.txt", tmp_path / "crawl.db"
    text.write_text("my notes")
    done = await politesse("crawl", "http://localhost:1/", "--journal", str(text))
    assert (done.code, text.read_text()) == (2, "my notes")
    assert "stopped by an error: " in done.err
    assert "no politesse file" in done.err
    async with Gatekeeper(AGENT) as gate, PoliteQueue[object](gate, journal=journal):
        done = await run_process("crawl", "http://localhost:1/", "--journal", str(journal))
    assert done.code == 2
    assert f"process {os.getpid()} uses it, and a journal serves one queue at a time" in done.err


# Answers of a site.


async def test_a_start_url_that_is_disallowed_exits_1(eager: Crawl) -> None:
    async with serving(Pages({}, "User-agent: *\nDisallow: /\n")) as site:
        done, found = await eager(f"{site.base}/a")
    assert (done.code, outcomes(found, site.base)) == (1, {"/a": "disallowed"})
    assert "1 disallowed, 0 given up in" in done.err


async def test_pages_of_a_site_that_makes_them_wait_too_long_are_given_up_and_not_disallowed(eager: Crawl) -> None:
    closed = web.Response(status=503, headers={"Retry-After": "7200"})
    async with serving(Pages({"/": links("/a", "/b", "/c"), "/a": closed})) as site:
        done, found = await eager(f"{site.base}/")
    assert Counter((one["outcome"], one.get("reason")) for one in found) == {
        ("page", None): 1,
        ("given-up", "wait-too-long"): 3,
    }
    assert "1 page, 0 failed, 0 redirects, 0 disallowed, 3 given up in" in done.err
    assert done.code == 1


async def test_a_site_that_refuses_is_named_with_its_words_and_exits_3(eager: Crawl) -> None:
    price = web.Response(status=402, headers={"crawler-price": "USD 0.01", "Retry-After": "7200"})
    async with serving(Pages({"/": links("/a", "/b", "/c"), "/a": price})) as site:
        done, found = await eager(f"{site.base}/")
    words = "refused 1 time in a row: 402, crawler-price: USD 0.01"
    assert Counter(one["outcome"] for one in found) == {"page": 2, "refused": 2}
    told = {(one["reason"], one["note"]) for one in found if one["outcome"] == "refused"}
    assert told == {("refused", words)}
    assert "2 pages, 0 failed, 0 redirects, 0 disallowed, 2 given up in" in done.err
    assert "2 URLs given up, or left at closed sites:\n" in done.err
    row = rf"^  127\.0\.0\.1          2  the site refuses this crawler: {re.escape(words)}; since \d{{4}}-.*Z$"
    assert re.search(row, done.err, re.MULTILINE)
    assert done.code == 3


async def test_the_summary_as_json_names_the_losses(eager: Crawl) -> None:
    closed = web.Response(status=503, headers={"Retry-After": "7200"})
    async with serving(Pages({"/": links("/a", "/b", "/c"), "/a": closed})) as site:
        done, found = await eager(f"{site.base}/", "--json")
    [summary] = done.records
    counts = {name: summary[name] for name in ("pages", "disallowed", "given_up", "left", "lost", "ending", "notes")}
    expected = {"pages": 1, "disallowed": 0, "given_up": 3, "left": 0, "lost": 3, "ending": "", "notes": []}
    assert (done.code, len(found), counts) == (1, 4, expected)
    [loss] = summary["losses"]
    assert (loss["host"], loss["left"], loss["reason"]) == ("127.0.0.1", 3, "wait-too-long")
    assert re.fullmatch(r"retry-after until \d{4}-.*Z", loss["detail"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", loss["since"])
    assert "given up in" not in done.err


async def test_the_summary_names_ten_losses_the_largest_first(eager: Crawl) -> None:
    hosts = [f"http://h{place}.invalid" for place in range(12)]
    done, _ = await eager(*hosts, f"{hosts[11]}/more", "--timeout", "5")
    table = done.err[done.err.index("13 URLs given up, or left at closed sites:") :].splitlines()
    assert table[1].split()[:2] == ["h11.invalid", "2"]
    assert {row.split()[1] for row in table[2:11]} == {"1"}
    assert (len(table), table[-1]) == (12, "  and 2 more; --json lists up to 1,000")


async def test_of_a_site_whose_robots_txt_is_unreachable_it_says_what_it_waits_for(eager: Crawl) -> None:
    async with serving(Pages({})) as site:
        site.status = 503
        done, _ = await eager(f"{site.base}/")
    assert done.code == 1
    told = re.escape(f"All of {site.base} is disallowed: ")
    assert re.search(rf"^{told}.*503.*; robots.txt is fetched again after \d{{4}}-.*Z$", done.err, re.MULTILINE)
    assert "0 pages, 0 failed, 0 redirects, 0 disallowed, 1 given up in" in done.err


@pytest.mark.realtime  # a page that drips is read until the timeout
async def test_long_and_endless_pages_are_read_in_part(eager: Crawl) -> None:
    sent = Counter[str]()

    class Endless(Pages):
        async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
            if request.path not in {"/endless", "/long", "/drips", "/download"}:
                return await super().answer(request)
            response = web.StreamResponse()
            response.content_type = "video/mp4" if request.path == "/download" else "text/html"
            if request.path == "/long":
                response.content_length = 50 * 1024 * 1024
            await response.prepare(request)
            await response.write(TITLE.encode() + links("/b").encode())
            block = b" " * (10 if request.path == "/drips" else 65_536)
            while True:
                await response.write(block)
                sent[request.path] += len(block)
                await asyncio.sleep(0.05 if request.path == "/drips" else 0)

    async with serving(Endless({"/": links("/endless", "/long", "/drips", "/download"), "/b": ""})) as site:
        done, found = await eager(f"{site.base}/", "--timeout", "2")
    of = by_path(found, site.base)
    assert done.code == 1
    for path in ("/endless", "/long"):
        assert (of[path]["bytes"], of[path]["truncated"], of[path]["links"]) == (MAX_BYTES, True, 1)
    assert of["/download"]["bytes"] is None
    assert of["/drips"]["outcome"] == "failed"
    assert "TimeoutError" in of["/drips"]["error"]
    assert sent["/long"] < 20 * 1024 * 1024


# How it is ended.


@pytest.fixture
async def little() -> AsyncIterator[LittleWeb]:
    async with LittleWeb(300, 2) as served:
        yield served


@pytest.mark.full
@pytest.mark.realtime
@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize("moment", range(10))
async def test_ctrl_c_at_any_moment_loses_no_url(out: Path, little: LittleWeb, moment: int) -> None:
    process = await start("crawl", *little.front_pages, "--agent", AGENT, "--same-host", "--out", str(out))
    while not out.exists() or not out.read_text():
        await asyncio.sleep(0.01)
    await asyncio.sleep(random.Random(moment).uniform(0.0, 3.0))
    process.send_signal(signal.SIGTERM if moment == 9 else signal.SIGINT)
    async with asyncio.timeout(20):
        _, err = await process.communicate()
    found = records(out)
    assert process.returncode == (143 if moment == 9 else 130)
    check_all_known(found, little)
    check_summary(err.decode(), found)
    assert "left" in {record["outcome"] for record in found}
    assert "; interrupted\n" in err.decode()  # the losses follow: URLs are left at hosts that are closed just now
    assert "Traceback" not in err.decode()


@pytest.mark.realtime
@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize("number", first_of(1, [signal.SIGKILL, signal.SIGINT]))
async def test_a_crawl_with_a_journal_goes_on_where_it_was_ended(tmp_path: Path, number: signal.Signals) -> None:
    out, journal = tmp_path / "crawl.jsonl", tmp_path / "crawl.db"
    pages: dict[str, str | web.StreamResponse] = {"/": links("/a/", "/b/", "http://localhost:1/")}
    pages |= {f"/{name}/": links("/", *(f"/{name}/{n}" for n in range(3))) for name in "ab"}
    pages |= {f"/{name}/{n}": "" for name in "ab" for n in range(3)}
    options = ("--out", str(out), "--min-delay", "0.3")
    async with serving(Pages(pages)) as site:
        process = await start("crawl", f"{site.base}/", *options, "--journal", str(journal))
        while len(site.requests) < 4:  # robots.txt, and three pages
            await asyncio.sleep(0.01)
        process.send_signal(number)
        async with asyncio.timeout(20):
            _, err = await process.communicate()
        if number is signal.SIGINT:
            assert process.returncode == 130
            assert err.decode().endswith(
                f"; interrupted\ngo on with: politesse crawl --allow-private --out {out} --min-delay 0.3"
                f" --resume {journal}\n"
            )
        done = await politesse("crawl", *options, "--resume", str(journal))
        again = await politesse("crawl", f"{site.base}/", *options, "--journal", str(journal))
    assert (done.code, again.code) == (0, 0)
    paths = Counter(site.paths)
    del paths["/robots.txt"]
    assert set(paths) == set(pages)
    assert paths.total() <= len(pages) + 1  # the request under way
    assert {(one["url"], one["outcome"]) for one in records(out)} == {(f"{site.base}{path}", "page") for path in pages}
    assert re.search(r"^the journal .* has nothing left of the \d+ URLs that were put, .*\n0 pages", again.err)


@pytest.mark.full
async def test_closed_stdout_ends_it_quietly() -> None:
    pages = Pages({f"/{n}": links(f"/{n + 1}") for n in range(100)})
    async with serving(pages) as site:
        process = await start("crawl", f"{site.base}/1", "--out", "-")
        assert process.stdout is not None
        assert process.stderr is not None
        await process.stdout.readline()
        process.stdout._transport.close()  # type: ignore[attr-defined]  # as `| head -1` does
        err = (await process.stderr.read()).decode()
        assert await process.wait() == 141
    assert "stopped, because the output was closed" in err
    assert "Traceback" not in err


@pytest.mark.full
@pytest.mark.realtime
@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize("signals", [1, 2])
async def test_ctrl_c_ends_it_though_nobody_reads_its_output(signals: int) -> None:
    async with serving(Pages({"/page": ""}, "User-agent: *\nDisallow: /\nAllow: /page\n")) as site:
        urls = [f"{site.base}/{n}" for n in range(2_000)]
        urls.append(f"{site.base}/page")  # which waits for the reader, within its turn
        with subprocess.Popen(  # noqa: ASYNC220, S603 - of asyncio's processes the end is seen when their output was read
            [*COMMAND, "crawl", *urls, "--out", "-"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        ) as process:
            assert process.stdout is not None
            await asyncio.to_thread(process.stdout.read, 1)
            await asyncio.sleep(1)  # by now it waits for a reader
            assert process.poll() is None
            for _ in range(signals):
                process.send_signal(signal.SIGINT)
                await asyncio.sleep(0.4)
            assert await asyncio.to_thread(process.wait, 20) == 130


@pytest.mark.realtime
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
async def test_in_a_terminal_a_table_is_shown_and_ctrl_c_leaves_a_note_and_two_lines() -> None:
    ours, terminal = os.openpty()
    async with serving(Pages(numbered(9))) as one, serving(Pages(numbered(9)), "localhost") as other:
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "crawl", f"{one.base}/", f"{other.base}/", stderr=terminal
        )
        os.close(terminal)
        so_far = bytearray()
        reading = asyncio.create_task(asyncio.to_thread(read_terminal, ours, so_far))
        while b"waits for its pace" not in so_far:
            await asyncio.sleep(0.05)
        process.send_signal(signal.SIGINT)
        shown = (await reading).decode()
        assert await process.wait() == 130
    assert "queued" in shown
    assert "waits for its pace" in shown
    assert "\x1b[?25h" in shown  # the cursor
    assert "SIGINT: no more requests begin, and the pages under way are finished\r\n" in shown
    assert re.search(r"pages, .* in \d\.\d s\r\n\d+ URLs? left at \d hosts?; interrupted\r\n$", shown)
