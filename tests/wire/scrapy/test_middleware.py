"""The add-on, the settings, the middleware and the parser, without a crawl."""

import asyncio
import gc
import importlib
import logging
import pickle
import re
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final
from unittest.mock import MagicMock

import pytest
import scrapy.exceptions
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware as ScrapyRobotsTxtMiddleware
from scrapy.exceptions import IgnoreRequest, NotConfigured
from scrapy.http import HtmlResponse, Response
from scrapy.settings import Settings
from scrapy.squeues import LifoMemoryQueue
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import build_from_crawler, load_object

from politesse import ConfigurationError, Gatekeeper, HostPolicy, NotYet, PacingOptions
from politesse.clock import SystemClock
from politesse.integrations.scrapy import (
    PoliteDownloader,
    PolitePriorityQueue,
    PolitesseAddon,
    RobotParser,
    RobotsTxtMiddleware,
)
from politesse.options import FleetOptions
from politesse.page import PageDirectives
from politesse.ports import FaultKind, FetchFault
from politesse.testing import ScriptedFetcher

UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"
OTHER: Final = "OtherBot/1.0 (+https://example.com/other)"
SCRAPYS_OWN: Final = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware"
REDIS: Final = "redis://crawler:secret@127.0.0.1:6379/0"
PACKAGE: Final = "politesse.integrations.scrapy"


def updated(project: Mapping[str, Any] | None = None) -> Settings:
    settings = Settings(dict(project or {}), priority="project")
    PolitesseAddon().update_settings(settings)
    return settings


def crawler_with(**settings: object) -> Crawler:
    crawler = Crawler(Spider, {"USER_AGENT": UA, "ROBOTSTXT_OBEY": True, **settings})
    crawler.stats = MemoryStatsCollector(crawler)
    return crawler


def middleware(**settings: object) -> RobotsTxtMiddleware:
    return RobotsTxtMiddleware.from_crawler(crawler_with(**settings))


def enabled(settings: Settings) -> list[Any]:
    return build_component_list(settings.getwithbase("DOWNLOADER_MIDDLEWARES"))


@pytest.fixture
def import_anew(monkeypatch: pytest.MonkeyPatch) -> Callable[[], ModuleType]:
    """Import the package as a process does that has not imported it before."""
    import_module = importlib.import_module
    monkeypatch.setattr(PACKAGE, sys.modules[PACKAGE])

    def anew() -> ModuleType:
        for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
            monkeypatch.delitem(sys.modules, name)
        return import_module(PACKAGE)

    return anew


def test_scrapy_that_is_too_old_is_named(
    import_anew: Callable[[], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("2.13.3", "1.8.4", "2.9.0"):
        monkeypatch.setattr("scrapy.__version__", version)
        with pytest.raises(ImportError, match=rf"needs Scrapy 2\.14 or newer, and {version} is installed"):
            import_anew()
    for version in ("2.14.0", "2.100.1", "3.0.0"):
        monkeypatch.setattr("scrapy.__version__", version)
        import_anew()


def test_missing_dependency_is_not_reported_as_missing_scrapy(
    import_anew: Callable[[], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "robotexclusionrulesparser", None)
    with pytest.raises(ImportError, match="robotexclusionrulesparser"):  # before the crawl
        middleware(ROBOTSTXT_PARSER="scrapy.robotstxt.RerpRobotParser")

    def fail(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'twisted'", name="twisted")

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(ModuleNotFoundError, match="twisted"):
        import_anew()


def test_addon_puts_everything_in_place() -> None:
    settings = updated()
    assert enabled(settings).count(RobotsTxtMiddleware) == 1
    assert ScrapyRobotsTxtMiddleware not in map(load_object, enabled(settings))
    # Where Scrapy's own is: behind the filter of other sites, before everything that changes a request.
    assert enabled(settings).index(RobotsTxtMiddleware) == enabled(Settings()).index(SCRAPYS_OWN)
    assert load_object(settings["DOWNLOADER"]) is PoliteDownloader
    assert load_object(settings["SCHEDULER_PRIORITY_QUEUE"]) is PolitePriorityQueue
    assert load_object(settings["ROBOTSTXT_PARSER"]) is RobotParser
    assert settings.getbool("ROBOTSTXT_OBEY")
    assert settings.getfloat("DOWNLOAD_DELAY") == 1.0
    assert settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN") == 1


def test_project_stands_above_the_defaults_of_the_addon() -> None:
    project = {"ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 0.25, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}
    settings = updated(project)
    assert {name: settings[name] for name in project} == project
    with pytest.raises(ConfigurationError, match=r"DOWNLOADER='scrapy\.core\.downloader\.Downloader'"):
        updated({"DOWNLOADER": "scrapy.core.downloader.Downloader"})


def test_middleware_stands_where_the_project_has_put_it_or_scrapys_own() -> None:
    for key in (SCRAPYS_OWN, ScrapyRobotsTxtMiddleware):
        found = enabled(updated({"DOWNLOADER_MIDDLEWARES": {key: 760}}))
        before = found[found.index(RobotsTxtMiddleware) - 1]
        assert before == "scrapy.downloadermiddlewares.httpproxy.HttpProxyMiddleware", key
        assert ScrapyRobotsTxtMiddleware not in map(load_object, found), key
        assert RobotsTxtMiddleware in enabled(updated({"DOWNLOADER_MIDDLEWARES": {key: None}})), key
    found = enabled(updated({"DOWNLOADER_MIDDLEWARES": {f"{PACKAGE}.RobotsTxtMiddleware": 30}}))
    assert found[0] == f"{PACKAGE}.RobotsTxtMiddleware"
    assert RobotsTxtMiddleware not in found


async def test_queue_needs_the_polite_downloader_and_the_middleware_is_off_without_robotstxt_obey() -> None:
    crawler = crawler_with()
    crawler.engine = MagicMock()
    with pytest.raises(ConfigurationError, match="PoliteDownloader"):
        PolitePriorityQueue(crawler, LifoMemoryQueue, "")
    with pytest.raises(NotConfigured, match=r"so no robots\.txt is obeyed"):
        middleware(ROBOTSTXT_OBEY=False)


async def test_robotstxt_user_agent_names_a_crawler_with_the_user_agent_of_a_browser() -> None:
    browser = "Mozilla/5.0 (compatible; ExampleBot/1.0; +https://example.com/bot)"
    identity = middleware(USER_AGENT=browser, ROBOTSTXT_USER_AGENT=UA).gate.identity
    assert (identity.tokens, identity.user_agent) == (("examplebot",), browser)
    crawler = crawler_with()
    crawler.spider = MagicMock()  # as in tests of middlewares: its attributes are not read
    assert RobotsTxtMiddleware.from_crawler(crawler).gate.identity.user_agent == UA


SECONDS: Final = "give a number of seconds, 0 or more"
FLEET: Final = r"^POLITESSE_FLEET: give the URL of a Redis.*no (bool|int|list)$"
REFUSED: Final = [
    ("USER_AGENT", "Scrapy/2.19.0 (+https://scrapy.org)", "USER_AGENT='Scrapy.*crawler, as in USER_AGENT = 'Ex"),
    ("USER_AGENT", "", "USER_AGENT=.*ASCII, as in USER_AGENT = 'ExampleBot"),
    ("USER_AGENT", "Mozilla/5.0 (compatible)", "USER_AGENT=.*as in USER_AGENT"),
    ("ROBOTSTXT_USER_AGENT", b"ExampleBot", "ROBOTSTXT_USER_AGENT=.*give a str"),
    ("POLITESSE_CACHE", {}, "POLITESSE_CACHE=.*give a CacheOptions"),
    ("POLITESSE_PACING", "slow", "POLITESSE_PACING=.*give a PacingOptions"),
    ("POLITESSE_ON_ERROR", "open", "POLITESSE_ON_ERROR=.*give 'disallow' or 'allow'"),
    ("POLITESSE_ON_ERROR", [], "POLITESSE_ON_ERROR=.*give 'disallow' or 'allow'"),
    ("POLITESSE_STORE", True, "POLITESSE_STORE=.*give the path of a file"),
    ("DOWNLOAD_DELAY", "x", f"DOWNLOAD_DELAY=.*{SECONDS}"),
    ("DOWNLOAD_DELAY", [], f"DOWNLOAD_DELAY=.*{SECONDS}"),
    *(("POLITESSE_MAX_WAIT", given, f"POLITESSE_MAX_WAIT=.*{SECONDS}") for given in (True, "nan", -1, 10**400)),
    *(("POLITESSE_FLEET", given, FLEET) for given in (True, 5, [REDIS])),  # without its value
]


async def test_setting_of_another_type_or_range_is_refused() -> None:
    def error_of(name: str, given: object) -> str:
        make = PoliteDownloader if name == "POLITESSE_MAX_WAIT" else RobotsTxtMiddleware.from_crawler
        try:
            make(crawler_with(**{name: given}))
        except ConfigurationError as error:
            return str(error)
        return ""

    assert [(name, given) for name, given, why in REFUSED if not re.search(why, error_of(name, given))] == []


async def test_fleet_is_named_by_its_url_or_by_options_and_a_slot_that_is_no_host_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    for given in (None, False, "", "0", "False", REDIS, FleetOptions(REDIS)):
        async with middleware(POLITESSE_FLEET=given).gate:
            pass
    fleets = [line for line in caplog.text.splitlines() if "shared with all processes of the fleet" in line]
    assert len(fleets) == 2
    assert len({line.partition("fleet: ")[2] for line in fleets}) == 1
    assert "secret" not in caplog.text
    middleware(DOWNLOAD_SLOTS={"my slot": {"delay": 3}, "example.com": {"delay": 3}})
    assert "'my slot'" in caplog.text
    assert "'example.com'" not in caplog.text


async def test_gates_of_one_process_share_the_pace_unless_one_names_a_scope_or_paces_something_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(f"{PACKAGE}._downloader.EngineFetcher", lambda _: ScriptedFetcher())
    unlike: list[tuple[dict[str, object], bool]] = [
        ({}, True),
        ({"USER_AGENT": OTHER, "POLITESSE_ON_ERROR": "allow"}, True),
        ({"DOWNLOAD_DELAY": 7.0, "DOWNLOAD_SLOTS": {"example.com": {"delay": 3}}}, True),
        ({"POLITESSE_PACING": PacingOptions(adaptive_factor=0.0)}, True),
        ({"POLITESSE_PACING": PacingOptions(scope="mine")}, False),
        ({"POLITESSE_PACING": PacingOptions(key="domain")}, False),
    ]

    async def wait(settings: dict[str, object]) -> list[bool]:
        """Return which requests wait: of the second gate during a turn of the first, and of each after it."""
        gates = [middleware(**{"DOWNLOAD_DELAY": 60.0} | given).gate for given in ({}, settings)]
        async with gates[0] as first, gates[1] as second, asyncio.timeout(10):
            first.set_policy("example.com", HostPolicy(exempt=True, reason="no wait for the request of robots.txt"))
            async with first.turn("http://example.com/a"):
                during = second.try_turn("http://example.com/robots.txt")
            if not isinstance(during, NotYet):
                during.give_back()
            after = [gate.try_turn("http://example.com/robots.txt") for gate in (first, second)]
            if not isinstance(after[1], NotYet):
                after[1].give_back()
            return [isinstance(one, NotYet) for one in (during, *after)]

    for number, (settings, shares) in enumerate(unlike):
        gc.collect()  # the pacer of the gates before goes with them
        monkeypatch.setattr(SystemClock, "run", str(number))  # as in another process, which does not know their pace
        caplog.clear()
        assert await wait(settings) == [shares, True, shares], settings
        assert "None" not in caplog.text, settings
        scopes = {record.getMessage().partition(": ")[2] for record in caplog.records}
        assert (len(scopes) == 1) is shares, settings


async def test_request_that_no_robots_txt_covers_or_that_names_no_crawler_is_ignored() -> None:
    why_by_url = {
        "http://example.com/private/../page": "dot segments",
        "http://example.com/private/%2e%2E": "dot segments",
        "http://example.com/.?query": "dot segments",
        "http:/example.com/page": "dont_obey_robotstxt",
        "HTTP:/example.com/page": "dont_obey_robotstxt",
        "http://1.2.3.4.5/page": "IPv4",
    }
    rows = [(url, UA, why) for url, why in why_by_url.items()]
    rows += [
        ("http://example.com/page", agent, "user_agent=") for agent in ("Mozilla/5.0 (X11)", "(nobody)", "curl/8.0")
    ]
    for url, stated, why in rows:
        crawler = crawler_with()
        with pytest.raises(IgnoreRequest) as ignored:
            await RobotsTxtMiddleware.from_crawler(crawler).process_request(
                Request(url, headers={"User-Agent": stated})
            )
        assert why in str(ignored.value), url
        assert crawler.stats.get_value("robotstxt/forbidden") == 1


async def test_request_that_needs_no_robots_txt_passes_and_is_paced_by_its_host_if_it_has_one() -> None:
    slots = {
        "ftp://user@EXAMPLE.com.:2121/page": "example.com",
        "s3://my_bucket/key": "my_bucket",
        "about:config": "mine",
        "file:///etc/hostname": "mine",
        "file://example.com/page": "mine",
        "data:,//example.com/": "mine",
        "https://EXAMPLE.com.:8443/page#exempt": "example.com",
    }
    robots, downloader = middleware(), PoliteDownloader(crawler_with())
    found = {}
    for url in slots:
        request = Request(url, meta={"download_slot": "mine", "dont_obey_robotstxt": url.endswith("#exempt")})
        assert await robots.process_request(request) is None, url
        found[url] = downloader.get_slot_key(request)
    assert found == slots


async def test_parser_that_is_handed_over_is_asked_for_the_crawler_that_the_request_states() -> None:
    browser = "Mozilla/5.0 (ExampleBot)"
    for user_agent, stated, token in (
        (UA, None, "examplebot"),
        (UA, OTHER, "otherbot"),
        (browser, browser, "examplebot"),
        (browser, "Mozilla/5.0 (ExampleBot; mobile)", "examplebot"),
    ):
        robots = RobotsTxtMiddleware(crawler_with(USER_AGENT=user_agent, ROBOTSTXT_USER_AGENT="ExampleBot"))
        parser = MagicMock()
        request = Request("http://example.com/page", headers={"User-Agent": stated} if stated else None)
        robots.process_request_2(parser, request)
        parser.allowed.assert_called_once_with("http://example.com/page", token)
        parser.allowed.return_value = False
        with pytest.raises(IgnoreRequest, match=r"^Forbidden by robots\.txt$"):
            robots.process_request_2(parser, request)


async def test_a_fault_that_an_earlier_run_has_stored_has_the_cause_of_plain_scrapy() -> None:
    for kind, name in (
        (FaultKind.TIMEOUT, "DownloadTimeoutError"),
        (FaultKind.DNS, "CannotResolveHostError"),
        (FaultKind.CONNECT, "DownloadFailedError"),
    ):
        fault = FetchFault(kind, "as stored", "https://site.example/robots.txt")
        async with Gatekeeper(UA, fetcher=ScriptedFetcher({"https://site.example": fault})) as gate:
            verdict = await gate.check("https://site.example/page")
        error = middleware().forbidden(Request(verdict.url), verdict)
        # Scrapy has exceptions of its own since 2.15.
        assert type(error.__cause__) is getattr(scrapy.exceptions, name, type(None))


# Which responses have their directives in the meta.

PAGE: Final = "politesse_page"
URL: Final = "https://example.com/page"
BODY: Final = b'<head><meta name="robots" content="noarchive"></head>'
BOTH: Final = ["noindex", "noarchive"]
HEADERS: Final = {"Content-Type": "text/html", "X-Robots-Tag": ["noindex", "otherbot: nofollow"]}


def read(response: Response, method: str = "GET") -> PageDirectives:
    request = Request(URL, method=method)
    middleware().process_response(request, response)
    page: PageDirectives = request.meta[PAGE]
    return page


def names(page: PageDirectives) -> list[str]:
    return [one.name for one in page.statements]


async def test_request_that_was_exempt_is_read_for_the_crawler_that_it_names() -> None:
    robots = middleware()
    # A browser names no crawler, so the page is read for that of the gate.
    for user_agent, more in {UA: [], "OtherBot/1.0": ["nofollow"], "Mozilla/5.0 (X11)": []}.items():
        request = Request(URL, headers={"User-Agent": user_agent}, meta={"dont_obey_robotstxt": True})
        assert await robots.process_request(request) is None
        response = HtmlResponse(URL, headers=HEADERS)
        assert robots.process_response(request, response) is response
        assert names(request.meta[PAGE]) == ["noindex", *more]


async def test_the_setting_turns_it_off_and_neither_robots_txt_nor_an_ignored_request_has_any() -> None:
    for is_on, meta in ((False, {}), (True, {"politesse_robots_txt": 0})):
        request = Request(URL, meta=meta)
        response = HtmlResponse(URL, headers=HEADERS, body=BODY)
        middleware(POLITESSE_PAGE_DIRECTIVES=is_on).process_response(request, response)
        assert PAGE not in request.meta
    # It has the meta of the page before it.
    request = Request("http://example.com/private/../page", meta={PAGE: PageDirectives(), "mine": 1})
    with pytest.raises(IgnoreRequest):
        await middleware().process_request(request)
    assert request.meta == {"mine": 1}


def test_body_counts_if_it_is_a_page_and_truncated_says_if_a_part_is_missing() -> None:
    pages, others = [200, 203, 300, 403, 404, 410, 503], [204, 304, 301, 302, 303, 307, 308]
    in_part = (["noindex"], True)
    zipped, plain = HEADERS | {"Content-Encoding": "gzip"}, HEADERS | {"Content-Type": "text/plain"}
    rows: list[tuple[Response, str, tuple[list[str], bool]]] = [
        (HtmlResponse(URL, headers=HEADERS, body=BODY), "GET", (BOTH, False)),
        (HtmlResponse(URL, headers=HEADERS, body=BODY, flags=["cached"]), "GET", (BOTH, False)),
        (Response(URL, headers={"X-Robots-Tag": "noindex"}, body=BODY), "GET", (BOTH, False)),
        (Response(URL, headers=plain, body=BODY), "GET", (["noindex"], False)),
        (Response(URL, headers=zipped), "HEAD", (["noindex"], False)),
        *((HtmlResponse(URL, status, headers=HEADERS, body=BODY), "POST", (BOTH, False)) for status in pages),
        *((HtmlResponse(URL, status, headers=HEADERS, body=BODY), "GET", (["noindex"], False)) for status in others),
        (HtmlResponse(URL, headers=HEADERS | {"Content-Encoding": " IDENTITY"}, body=BODY), "GET", (BOTH, False)),
        (Response(URL, headers=zipped, body=b"zipped"), "GET", in_part),
        (
            Response(URL, headers=zipped | {"Content-Encoding": ["identity", "br"]}, body=BODY),
            "GET",
            (["noindex"], True),
        ),
        (HtmlResponse(URL, headers=HEADERS, body=BODY, flags=["dataloss"]), "GET", (BOTH, True)),
        (HtmlResponse(URL, headers=HEADERS, body=BODY, flags=["download_stopped"]), "GET", (BOTH, True)),
        (HtmlResponse(URL, headers=HEADERS, body=BODY, flags=["partial"]), "GET", (BOTH, True)),
    ]
    found = [(read(response, method), expected) for response, method, expected in rows]
    assert [(names(page), page.truncated) for page, _ in found] == [expected for _, expected in found]
    assert pickle.loads(pickle.dumps(found[0][0], protocol=4)) == found[0][0]  # noqa: S301 - our own


# RobotParser through the interface of Scrapy's parsers.


def parser(body: bytes) -> RobotParser:
    return build_from_crawler(RobotParser, Crawler(Spider), body)


def test_parser_answers_by_the_group_of_the_crawler() -> None:
    mine = "User-agent: examplebot\nDisallow: /private\nAllow: /private/ope\nDisallow: /søg\n\n"
    robots = parser(f"{mine}User-agent: *\nDisallow: /\n".encode())
    allowed: dict[str | bytes, bool] = {
        "https://example.com/": True,
        "https://example.com/private": False,
        "https://example.com/private/open": True,
        b"https://example.com/private/x": False,
        "https://example.com/s%C3%B8g": False,
        "https://example.com/søg".encode(): False,
    }
    for agent in ("ExampleBot", UA.encode()):
        assert {url: robots.allowed(url, agent) for url in allowed} == allowed
    assert robots.allowed("https://example.com/", "OtherBot/2.0") is False
    for body in (b"", b"\xff\xfe\x00", b"<html>", b"Disallow: /\n"):
        assert parser(body).allowed("https://example.com/page", "ExampleBot") is True, body
