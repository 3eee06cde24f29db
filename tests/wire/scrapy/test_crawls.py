"""Crawls that go as with Scrapy's own middleware, what they say and write down, and those that do not start."""

import asyncio
import gzip
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web
from scrapy.settings import Settings

from politesse.ledger import LedgerReader, verify
from tests.wire.scrapy.crawling import (
    ADDON,
    OPEN,
    PATIENT,
    QUICK,
    USER_AGENT,
    Answer,
    Crawl,
    Site,
    answering,
    assert_sites_polite,
    crawl,
    giving_up_after,
    html,
    in_turn,
    redirect,
    serving,
    start,
    status,
    text,
    visit,
)

pytestmark = pytest.mark.realtime

ROBOTS: Final = "User-agent: *\nDisallow: /private\n"
SCRAPYS_OWN: Final = {"ROBOTSTXT_OBEY": True}
FORBIDDEN: Final = "IgnoreRequest: Forbidden by robots.txt"


async def test_stats_and_log_have_the_sites_that_were_closed_deferred_and_given_up(tmp_path: Path) -> None:
    pages = {f"/{number}": html() for number in range(4)}
    busy = Site(404, {"/": in_turn(status(429, Retry_After="2"), html(*pages)), **pages})
    shut = Site(answering(status(503), text("User-agent: *\nDisallow: /3\n")), {"/": html(*pages), **pages})
    lost = Site(404, {"/": html(*pages)} | dict.fromkeys(pages, status(503, Retry_After="7200")))
    settings = QUICK | {"RETRY_TIMES": 2, "LOG_LEVEL": "INFO", "JOBDIR": str(tmp_path)}
    done = await visit(settings, busy, shut, lost)
    stats = done.stats_of("politesse/")
    assert stats["hosts/closed"] == 3
    assert stats["hosts/given_up"] == 1
    assert stats["requests/given_up"] == stats["requests/kept"] == 4
    assert 1 <= int(stats["requests/deferred"]) <= 8  # not once for each look at a site that is closed
    assert stats["robots_txt/unavailable"] == 2
    assert stats["robots_txt/unreachable"] == stats["robots_txt/successful"] == 1
    assert stats["decisions/disallow-rule"] == 1
    # Allowed by no rule: four pages of the site that was shut. Without a robots.txt: each request that was made.
    assert stats["decisions/no-rule"] == 4
    assert stats["decisions/unavailable"] == 6 + 2
    assert done.stats_s["politesse/seconds_waited"] >= 2.9  # a Retry-After of two seconds, and one for robots.txt
    assert done.log.count("127.0.0.2 is closed until") == done.log.count("127.0.0.2 is open again") == 1
    assert done.log.count(f"All of {shut.base} is disallowed") == 1
    assert done.log.count(f"robots.txt of {shut.base} is reachable again") == 1
    assert done.log.count("127.0.0.4 is closed until") == done.log.count("127.0.0.4 is given up") == 1
    (line,) = [line for line in done.log.splitlines() if "Hosts closed for a time" in line]
    assert "WARNING: Hosts closed for a time: 3. Not fetched for that reason: 4 requests, of which 4 stay" in line
    assert "127.0.0.4 (4: retry-after until 20" in line
    assert "does not use PolitePriorityQueue" not in done.log


@pytest.mark.full
async def test_the_same_pages_are_crawled_and_the_same_things_counted_as_with_scrapys_own_middleware() -> None:
    numbered = [f"/page/{number}" for number in range(98)]
    hidden = [f"/private/{number}" for number in range(10)]
    front = {"/": html(*numbered[:50], *hidden, "/private/open"), "/private/open": html(*numbered[50:])}
    pages = front | dict.fromkeys([*numbered, *hidden], html())
    rules = "Disallow: /private/\nAllow: /private/open\n"
    named = f"User-agent: examplebot\n{rules}\nUser-agent: *\nDisallow: /\n"
    sites = [Site(robots, pages) for robots in (f"User-agent: *\n{rules}", named, f"User-agent: *\n{rules}")]
    async with serving(*sites):
        urls = [f"{site.base}/" for site in sites]
        scrapys = await crawl(urls, SCRAPYS_OWN | {"CONCURRENT_REQUESTS_PER_DOMAIN": 1})
        seen = [site.page_paths for site in sites]
        for site in sites:
            site.exchanges.clear()
        ours = await crawl(urls, QUICK)
    assert len(ours.pages) == 300
    assert set(ours.pages) == set(scrapys.pages)
    assert [sorted(site.page_paths) for site in sites] == [sorted(paths) for paths in seen]
    assert ours.ignored == scrapys.ignored
    assert ours.stats_of("robotstxt/") == scrapys.stats_of("robotstxt/")
    assert ours.stats["robotstxt/forbidden"] == len(ours.ignored) == 30
    assert ours.parsed == scrapys.parsed
    assert [site.robots_count for site in sites] == [1, 1, 1]
    assert_sites_polite(*sites)
    assert "INFO: Hosts closed for a time: 0; no request was given up for that\n" in ours.log
    forbidden = f"Forbidden by robots.txt: <GET {sites[0].base}/private/1>"
    assert forbidden in scrapys.log
    assert forbidden in ours.log


@pytest.mark.full
async def test_request_is_judged_for_the_user_agent_that_it_states() -> None:
    groups = {"examplebot": "/a", "otherbot": "/b", "third": "/c"}
    robots = "".join(f"User-agent: {agent}\nDisallow: {path}\n\n" for agent, path in groups.items())
    site = Site(robots, dict.fromkeys(["/a", "/a/exempt", "/b", "/c"], html()))
    async with serving(site):
        urls = [f"{site.base}{path}{mark}" for path in ("/a", "/b", "/c") for mark in ("", "#other", "#browser")]
        urls.append(f"{site.base}/a/exempt#disobey")
        late: dict[str, object] = {"DEFAULT_REQUEST_HEADERS": {"User-Agent": "OtherBot/2.0"}}
        by_header, by_setting, by_default = await asyncio.gather(
            crawl(urls, QUICK, dont_filter=True),
            crawl(urls, QUICK | {"ROBOTSTXT_USER_AGENT": "third"}, dont_filter=True),
            crawl([f"{site.base}/b", f"{site.base}/c"], QUICK | late),
        )
    browser = {f"{site.base}/{path}#browser" for path in "abc"}
    assert set(by_header.ignored) == {f"{site.base}/a", f"{site.base}/b#other"} | browser
    assert set(by_setting.ignored) == {f"{site.base}/c", f"{site.base}/b#other"} | browser
    assert "names no crawler" in by_header.ignored[f"{site.base}/a#browser"]
    assert f"{site.base}/a/exempt" in by_header.pages
    # A later middleware sets the header: the downloader judges the request as it is sent.
    assert by_default.ignored == {f"{site.base}/b": FORBIDDEN}
    assert by_default.pages == [f"{site.base}/c"]


@pytest.mark.full
async def test_request_that_is_not_permitted_as_it_is_sent_is_ignored_and_counted_once_with_the_reason() -> None:
    other = " (it would be sent with the Host header 'other.example': the rules of that site would apply)"
    sites = {
        # The rules are fetched anew between the judgement and the turn.
        "/forget": (Site(answering(text(OPEN), text("User-agent: *\nDisallow: /forget\n"))), ""),
        "/deny": (Site(404, {"/deny": html()}), " (a host policy denies this host)"),
        "/header#other-host": (Site(404, {"/header": html()}), other),
        "/host": (Site(404, {"/host": html()}), other),
    }
    replaced, same = Site(ROBOTS, {"/private": html()}), Site(404, {"/page": html()})
    async with serving(*(site for site, _ in sites.values()), replaced, same):
        urls = [f"{site.base}{path}" for path, (site, _) in sites.items()]
        urls += [f"{replaced.base}/replace", f"{same.base}/page#same-host"]
        done = await crawl(urls, QUICK | {"DOWNLOADER_MIDDLEWARES": {"__main__.Meddler": 900}})
    for path, (site, why) in sites.items():
        url = f"{site.base}{path}"
        assert site.page_paths == []
        assert done.ignored[url] == f"{FORBIDDEN}{why}"
        assert done.log.count(f"Forbidden by robots.txt: <GET {url}>{why}\n") == 1
    # A request that a middleware behind returns is judged as any other.
    assert replaced.paths == ["/robots.txt"]
    assert done.ignored[f"{replaced.base}/private"] == FORBIDDEN
    # A Host header that names the same site is sent.
    assert done.pages == [f"{same.base}/page"]
    assert sites["/forget"][0].robots_count == 2
    assert done.stats["robotstxt/forbidden"] == len(done.ignored) == 5
    assert done.stats["finish_reason"] == "finished"


@pytest.mark.full
async def test_a_request_that_was_put_back_is_filtered_as_if_it_had_not() -> None:
    site, other = Site(404), Site(404, {"/": html()})
    async with serving(site, other):
        site.pages = {"/away": redirect(f"{other.base}/")}
        # A page has to wait for the floor after robots.txt: it is put back into the scheduler.
        done = await crawl(site.urls, ADDON | {"DOWNLOAD_DELAY": 0.5}, allowed_domains=["127.0.0.2"])
    assert site.paths == ["/robots.txt", "/away"]
    assert done.stats["scheduler/enqueued"] == 2
    assert other.paths == []
    assert done.stats["offsite/filtered"] == 1


@pytest.mark.full
async def test_robots_txt_is_fetched_through_the_proxy_but_not_from_a_private_address_behind_it() -> None:
    async def robots(request: web.BaseRequest) -> web.StreamResponse:
        away = request.headers["Host"] == "away.example"
        return (redirect("http://10.0.0.1/robots.txt") if away else text(ROBOTS))()

    proxy = Site(robots, {"/": html("/private")})
    async with serving(proxy):
        urls = ["http://site.example/", "http://away.example/"]
        settings = PATIENT | giving_up_after(1)
        done = await crawl(urls, settings, environment={"http_proxy": proxy.base})
    assert sorted(headers["Host"] for headers in proxy.robots_headers) == ["away.example", "site.example"]
    assert done.pages == ["http://site.example/"]
    assert set(done.ignored) == {"http://site.example/private", "http://away.example/"}
    assert "a redirect to 10.0.0.1, which is private" in done.ignored["http://away.example/"]


@pytest.mark.full
async def test_settings_of_the_guide_keep_a_crawler_out_of_disallowed_pages() -> None:
    guide = (Path(__file__).parents[3] / "src/politesse/guides/scrapy.md").read_text()

    def settings_in_guide() -> Iterator[dict[str, object]]:
        for code in re.findall(r"```py\n(.*?)```", guide, re.DOTALL):
            names: dict[str, object] = {}
            exec(code, names)  # noqa: S102 - our own guide
            yield {name: value for name, value in names.items() if name.isupper()}

    async def crawled(settings: dict[str, object]) -> tuple[Site, Crawl]:
        site = Site(f"{ROBOTS}Crawl-delay: 2\n", {"/": html("/private"), "/private": html()})
        return site, await visit(settings, site)

    addon, middleware = settings_in_guide()
    parser = {name: value for name, value in middleware.items() if name != "DOWNLOADER_MIDDLEWARES"}
    crawls = await asyncio.gather(crawled(addon), crawled(middleware), crawled(parser))
    for site, done in crawls:
        assert site.paths == ["/robots.txt", "/"]
        assert done.ignored == {f"{site.base}/private": FORBIDDEN}
    robots, page = crawls[0][0].exchanges
    assert page.started - robots.ended >= 2.0
    assert ["Requests are not paced" in done.log for _, done in crawls] == [False, True, False]


# What a crawl reads and writes beside its pages.


@pytest.mark.full
async def test_the_setting_names_the_ledger_of_a_crawl(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    site = Site(ROBOTS, {"/": html("/a", "/private/b"), "/a": html()})
    await visit(QUICK | {"POLITESSE_LEDGER": str(path)}, site)
    found = verify(path)
    assert (found.problem, found.unclosed) == ("", 0)
    with LedgerReader(path) as ledger:
        denied = {one.url.removeprefix(site.base) for one in ledger.decisions() if not one.allowed}
        turns = [turn.url.removeprefix(site.base) for turn in ledger.turns()]
        [robots] = {copy.digest for copy in ledger.snapshots()}
        assert {one.digest for one in ledger.decisions()} == {robots}
    assert denied == {"/private/b"}
    assert turns == site.page_paths


@pytest.mark.full
async def test_data_txt_is_fetched_through_the_engine_in_its_turn_and_is_no_robots_txt() -> None:
    data_txt = text("User-agent: *\nDisallow: /\n")  # as a robots.txt it would close the site
    pages = {"/": html("/1"), "/1": html(), "/data.txt": redirect("/d"), "/d": data_txt}
    site = Site("User-agent: *\nCrawl-delay: 0.3\n", pages)
    done = await visit(ADDON, site, data_txt=True)
    assert done.data_txt == [["found", "User-agent: *\nDisallow: /\n"]] * 2
    assert site.paths == ["/robots.txt", "/", "/data.txt", "/d", "/1"]
    assert_sites_polite(site)
    assert done.stats["robotstxt/request_count"] == done.stats["robotstxt/response_count"] == 1
    assert len(done.parsed) <= 1


META: Final = '<meta name="robots" content="noarchive">'
HEADER: Final = "X-Robots-Tag: noindex"
BOTH: Final[list[object]] = [[HEADER, "META robots: noarchive"], False]


def page(
    head: str = META, *links: str, tags: Iterable[str] = ("noindex",), kind: str = "html", zips: str = ""
) -> Answer:
    anchors = "".join(f'<a href="{link}">on</a>' for link in links)
    body = f"<!DOCTYPE html><html><head>{head}</head><body>{anchors}".encode()

    def answer() -> web.Response:
        response = text(gzip.compress(body) if zips == "gzip" else body, Content_Type=f"text/{kind}")()
        for tag in tags:
            response.headers.add("X-Robots-Tag", tag)
        if zips:
            response.headers["Content-Encoding"] = zips
        return response

    return answer


def said(site: Site, done: Crawl) -> dict[str, object]:
    return {url.removeprefix(site.base): page for url, page in done.said.items()}


@pytest.mark.full
async def test_directives_of_pages_are_in_the_meta() -> None:
    head = '<meta name="examplebot" content="noarchive"><meta name="otherbot" content="nosnippet">'
    named = page(head, tags=("examplebot: nofollow", "otherbot: noindex"))
    pages: dict[str, Answer] = {
        "/": page(META, "/zipped", "/repeated", "/text", "/moved", "/private", "/strange", "/named", "/other#other"),
        "/zipped": page(zips="gzip"),
        "/repeated": page("", tags=("otherbot: none", "noindex", "nofollow")),
        "/text": page(kind="plain"),
        "/moved": redirect("/target"),
        "/target": page(),
        "/strange": page(zips="compress"),
        "/named": named,
        "/other": named,
    }
    site = Site(ROBOTS, pages)
    done = await visit(QUICK, site)
    assert said(site, done) == {
        "/": BOTH,
        "/zipped": BOTH,
        "/repeated": [["X-Robots-Tag: noindex", "X-Robots-Tag: nofollow"], False],
        "/text": [[HEADER], False],
        "/target": BOTH,
        "/strange": [[HEADER], True],
        "/named": [["X-Robots-Tag: nofollow", "META examplebot: noarchive"], False],
        "/other": [["X-Robots-Tag: noindex", "META otherbot: nosnippet"], False],
    }
    assert list(done.ignored) == [f"{site.base}/private"]


@pytest.mark.full
@pytest.mark.parametrize("queue", ["PickleFifoDiskQueue", "MarshalFifoDiskQueue"])
async def test_meta_that_is_handed_to_new_requests_passes_queues_on_disk(queue: str, tmp_path: Path) -> None:
    pages = {"/": page(META, "/a", "/b", "/private"), "/a": page("", tags=()), "/b": page(kind="plain")}
    site = Site(ROBOTS, pages)
    # Meta that is copied says of requests that they were the first, and those have a queue of their own.
    names = ("SCHEDULER_DISK_QUEUE", "SCHEDULER_START_DISK_QUEUE")
    settings = QUICK | {"JOBDIR": str(tmp_path)} | dict.fromkeys(names, f"scrapy.squeues.{queue}")
    done = await visit(settings, site, followable=True)
    assert said(site, done) == {"/": BOTH, "/a": [[], False], "/b": [[HEADER], False]}
    assert list(done.ignored) == [f"{site.base}/private"]
    assert done.stats["scheduler/enqueued/disk"] == done.stats["scheduler/enqueued"]
    assert "scheduler/unserializable" not in done.stats


@pytest.mark.full
async def test_missing_extra_is_logged_once_and_headers_still_count(tmp_path: Path) -> None:
    (tmp_path / "selectolax.py").write_text("raise ImportError('none here')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    site = Site(ROBOTS, {"/": page(META, "/a", "/text"), "/a": page(), "/text": page(kind="plain")})
    done = await visit(QUICK, site, environment={"PYTHONPATH": path})
    assert said(site, done) == {"/": [[HEADER], True], "/a": [[HEADER], True], "/text": [[HEADER], False]}
    assert done.log.count("WARNING: The METAs of pages are not read") == 1
    assert "pip install '.[html]'" in done.log
    assert "Traceback" not in done.log


# Scrapy's HTTP cache, whose server is down in the second run.


def cached_in(directory: Path) -> dict[str, object]:
    return {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(directory)}


def twenty_pages(**headers: str) -> Site:
    paths = [f"/{number}" for number in range(19)]
    front = "".join(f'<a href="{path}">on</a>' for path in (*paths, "/private"))
    leaf = text("", Content_Type="text/html", **headers)
    return Site(ROBOTS, {"/": text(front, Content_Type="text/html", **headers), **dict.fromkeys(paths, leaf)})


@pytest.mark.full
@pytest.mark.parametrize("first", [QUICK, SCRAPYS_OWN], ids=["politesse", "scrapy"])
async def test_cached_pages_are_served_without_a_wait_and_the_others_stay_forbidden_when_the_server_is_down(
    first: dict[str, object], tmp_path: Path
) -> None:
    site = twenty_pages()
    await visit(first | cached_in(tmp_path), site)
    delayed = ADDON | cached_in(tmp_path) | {"DOWNLOAD_DELAY": 30}  # 20 pages would take ten minutes
    urls = [unknown, _] = [f"{site.base}/unknown", f"{site.base}/"]
    done = await crawl(urls, delayed | giving_up_after(1))
    cached_only = await crawl(urls, delayed | {"HTTPCACHE_IGNORE_MISSING": True})
    assert sorted(done.pages) == sorted(cached_only.pages) == sorted(site.urls)
    assert "robots.txt is unreachable" in done.ignored.pop(unknown)
    assert done.ignored == {f"{site.base}/private": FORBIDDEN}
    assert done.stats["httpcache/hit"] == 20
    assert done.log.count("Error downloading") == 1  # robots.txt, for the pages that are not in the cache
    assert cached_only.ignored[unknown].startswith("IgnoreRequest: Ignored request not in cache")


@pytest.mark.full
async def test_stale_pages_are_served_when_the_server_is_down(tmp_path: Path) -> None:
    site = twenty_pages(ETag='"one"')
    site.robots = answering(text(ROBOTS, ETag='"two"'))  # without a validator this policy does not store it
    settings = QUICK | cached_in(tmp_path) | {"HTTPCACHE_POLICY": "scrapy.extensions.httpcache.RFC2616Policy"}
    await visit(settings, site)
    done = await crawl([f"{site.base}/"], settings)
    assert sorted(done.pages) == sorted(site.urls)
    assert done.ignored == {f"{site.base}/private": FORBIDDEN}
    assert done.stats["httpcache/errorrecovery"] == 20


@pytest.mark.full
async def test_challenge_in_place_of_robots_txt_opens_no_site_and_is_not_cached(tmp_path: Path) -> None:
    actions = {"challenge": 202, "captcha": 405}
    sites = [Site(answering(status(actions[name], x_amzn_waf_action=name)), {"/": html()}) for name in actions]
    settings = PATIENT | cached_in(tmp_path) | {"POLITESSE_MAX_UNREACHABLE": 1}
    async with serving(*sites):
        urls = [f"{site.base}/" for site in sites]
        first = await crawl(urls, settings)
        second = await crawl(urls, settings)
    for action, site, url in zip(actions, sites, urls, strict=True):
        assert site.page_paths == []
        assert "robots.txt is unreachable" in first.ignored[url]
        assert f"x-amzn-waf-action: {action}" in first.ignored[url]
    assert set(second.ignored) == {*urls}


@pytest.mark.full
async def test_robots_txt_is_fetched_from_the_server_before_a_page_that_is_not_cached(tmp_path: Path) -> None:
    site = Site(404, {"/": html("/new"), "/new": html()})
    async with serving(site):
        await crawl([f"{site.base}/"], QUICK | cached_in(tmp_path) | {"DEPTH_LIMIT": 1})
        site.robots = "User-agent: *\nDisallow: /later\n"
        site.pages["/new"] = html("/later")
        done = await crawl([f"{site.base}/new", f"{site.base}/later"], QUICK | cached_in(tmp_path))
    assert site.paths == ["/robots.txt", "/", "/new", "/robots.txt"]
    assert done.pages == [f"{site.base}/new"]
    assert set(done.ignored) == {f"{site.base}/later"}


# Crawls that do not start: the log has the error, and nothing is requested.


async def error_of(process: asyncio.subprocess.Process) -> str:
    """Return the lines of a crawl's log that have the error that ended it."""
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert b"secret" not in err
    return "\n".join(line for line in err.decode().splitlines() if "ConfigurationError: " in line)


@pytest.mark.full
async def test_setting_that_is_refused_is_an_error_without_its_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    foreign = tmp_path / "foreign.db"
    foreign.write_bytes(b"something else" * 100)
    refused = {
        ("POLITESSE_MAX_WAIT", "soon"): ["POLITESSE_MAX_WAIT='soon': give a number of seconds, 0 or more"],
        ("POLITESSE_FLEET", "http://:secret@127.0.0.1/0"): ["fleet"],
        ("POLITESSE_STORE", "foreign.db"): ["no politesse file", "store POLITESSE_STORE"],
    }
    site = Site(404, {"/": html()})
    async with serving(site):
        tasks = [json.dumps({"urls": site.urls, "settings": ADDON | dict([setting])}) for setting in refused]
        errors = [await error_of(await start(task)) for task in tasks]
    for error, parts in zip(errors, refused.values(), strict=True):
        assert error
        assert [part for part in parts if part not in error] == []
    assert site.paths == []
    assert foreign.read_bytes() == b"something else" * 100


@pytest.mark.full
async def test_crawl_on_another_reactor_does_not_start_and_says_so(tmp_path: Path) -> None:
    settings = {
        "ADDONS": json.dumps(ADDON["ADDONS"]),
        "USER_AGENT": USER_AGENT,
        "TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor",
        "TELNETCONSOLE_ENABLED": "0",
    }
    given = [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
    site, spider = Site(404, {"/": html()}), tmp_path / "on_select.py"
    async with serving(site):
        code = (
            f"import scrapy\n\nclass OnSelect(scrapy.Spider):\n    name = 'on_select'\n    start_urls = {site.urls}\n"
        )
        spider.write_text(code)
        command = [sys.executable, "-m", "scrapy", "runspider", str(spider), *given]
        error = await error_of(await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE))
    assert "politesse needs asyncio, and Scrapy runs on another reactor: set" in error
    assert site.paths == []


@pytest.mark.full
@pytest.mark.skipif("TWISTED_REACTOR_ENABLED" not in Settings(), reason="this version of Scrapy needs a reactor")
async def test_crawl_without_a_reactor_is_as_any_other() -> None:
    site = Site(ROBOTS, {"/": html("/a", "/private"), "/a": html(), "/private": html()})
    done = await visit(QUICK | {"TWISTED_REACTOR_ENABLED": False}, site)
    assert site.paths == ["/robots.txt", "/", "/a"]
    assert set(done.ignored) == {f"{site.base}/private"}
