"""The effect of Scrapy's settings on politesse, and the settings that are refused."""

import gc
import importlib
import logging
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final
from unittest.mock import MagicMock

import pytest
import scrapy.exceptions
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware as ScrapyRobotsTxtMiddleware
from scrapy.exceptions import IgnoreRequest, NotConfigured
from scrapy.settings import Settings
from scrapy.squeues import LifoMemoryQueue
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import build_from_crawler, load_object

from politesse import ConfigurationError, Gatekeeper, HostPolicy, NotYet, PacingOptions
from politesse.integrations.scrapy import (
    PoliteDownloader,
    PolitePriorityQueue,
    PolitesseAddon,
    RobotParser,
    RobotsTxtMiddleware,
)
from politesse.options import FleetOptions
from politesse.ports import FaultKind, FetchFault
from politesse.testing import ScriptedFetcher

UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"
SCRAPYS_OWN: Final = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware"
REDIS: Final = "redis://crawler:secret@127.0.0.1:6379/0"


def updated(project: Mapping[str, Any] | None = None) -> Settings:
    settings = Settings(dict(project or {}), priority="project")
    PolitesseAddon().update_settings(settings)
    return settings


def crawler_with(**settings: object) -> Crawler:
    crawler = Crawler(Spider, {"USER_AGENT": UA, "ROBOTSTXT_OBEY": True, **settings})
    crawler.stats = MemoryStatsCollector(crawler)
    return crawler


def make_gate(crawler: Crawler) -> Gatekeeper:
    return RobotsTxtMiddleware.from_crawler(crawler).gate


def enabled(settings: Settings) -> list[Any]:
    return build_component_list(settings.getwithbase("DOWNLOADER_MIDDLEWARES"))


@pytest.fixture
def _without_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the package, so that a test can import it again."""
    monkeypatch.setattr("politesse.integrations.scrapy", sys.modules["politesse.integrations.scrapy"])
    for name in [name for name in sys.modules if name.startswith("politesse.integrations.scrapy")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.usefixtures("_without_import")
def test_missing_scrapy_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scrapy", None)
    why = r"needs the extra 'scrapy'; in a checkout of politesse, run: pip install '\.\[scrapy\]'"
    with pytest.raises(ImportError, match=why):
        importlib.import_module("politesse.integrations.scrapy")


@pytest.mark.usefixtures("_without_import")
def test_missing_dependency_of_scrapy_is_not_reported_as_missing_scrapy(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'twisted'", name="twisted")

    package = "politesse.integrations.scrapy"
    import_module = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(ModuleNotFoundError, match="twisted"):
        import_module(package)


@pytest.mark.usefixtures("_without_import")
@pytest.mark.parametrize("version", ["2.13.3", "1.8.4", "2.9.0"])
def test_older_scrapy_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr("scrapy.__version__", version)
    with pytest.raises(ImportError, match=rf"needs Scrapy 2\.14 or newer, and {version} is installed"):
        importlib.import_module("politesse.integrations.scrapy")


@pytest.mark.usefixtures("_without_import")
@pytest.mark.parametrize("version", ["2.14.0", "2.100.1", "3.0.0"])
def test_newer_scrapy_will_do(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr("scrapy.__version__", version)
    importlib.import_module("politesse.integrations.scrapy")


def test_missing_dependency_of_the_parser_is_reported_before_the_crawl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "robotexclusionrulesparser", None)
    with pytest.raises(ImportError, match="robotexclusionrulesparser"):
        RobotsTxtMiddleware.from_crawler(crawler_with(ROBOTSTXT_PARSER="scrapy.robotstxt.RerpRobotParser"))


def test_addon_puts_everything_in_place() -> None:
    settings = updated()
    assert enabled(settings).count(RobotsTxtMiddleware) == 1
    assert [one for one in enabled(settings) if load_object(one) is ScrapyRobotsTxtMiddleware] == []
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


@pytest.mark.parametrize("key", [SCRAPYS_OWN, ScrapyRobotsTxtMiddleware])
def test_middleware_stands_where_the_project_has_put_scrapys_own(key: object) -> None:
    settings = updated({"DOWNLOADER_MIDDLEWARES": {key: 760}})
    position = enabled(settings).index(RobotsTxtMiddleware)
    assert enabled(settings)[position - 1] == "scrapy.downloadermiddlewares.httpproxy.HttpProxyMiddleware"
    assert [one for one in enabled(settings) if load_object(one) is ScrapyRobotsTxtMiddleware] == []
    assert RobotsTxtMiddleware in enabled(updated({"DOWNLOADER_MIDDLEWARES": {key: None}}))


def test_middleware_is_left_where_the_project_has_put_it() -> None:
    settings = updated({"DOWNLOADER_MIDDLEWARES": {"politesse.integrations.scrapy.RobotsTxtMiddleware": 30}})
    assert enabled(settings)[0] == "politesse.integrations.scrapy.RobotsTxtMiddleware"
    assert RobotsTxtMiddleware not in enabled(settings)


def test_another_downloader_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"DOWNLOADER='scrapy\.core\.downloader\.Downloader'"):
        updated({"DOWNLOADER": "scrapy.core.downloader.Downloader"})


async def test_queue_needs_the_polite_downloader() -> None:
    crawler = crawler_with()
    crawler.engine = MagicMock()
    with pytest.raises(ConfigurationError, match="PoliteDownloader"):
        PolitePriorityQueue(crawler, LifoMemoryQueue, "")


async def test_middleware_is_off_without_robotstxt_obey() -> None:
    with pytest.raises(NotConfigured, match=r"so no robots\.txt is obeyed"):
        RobotsTxtMiddleware.from_crawler(crawler_with(ROBOTSTXT_OBEY=False))


async def test_robotstxt_user_agent_names_a_crawler_with_the_user_agent_of_a_browser() -> None:
    browser = "Mozilla/5.0 (compatible; ExampleBot/1.0; +https://example.com/bot)"
    gate = make_gate(crawler_with(USER_AGENT=browser, ROBOTSTXT_USER_AGENT="ExampleBot/1.0 (+https://example.com)"))
    assert gate.identity.tokens == ("examplebot",)
    assert gate.identity.user_agent == browser


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("USER_AGENT", "Scrapy/2.19.0 (+https://scrapy.org)", "crawler, as in USER_AGENT = 'ExampleBot"),
        ("USER_AGENT", "", "ASCII, as in USER_AGENT = 'ExampleBot"),
        ("USER_AGENT", "Mozilla/5.0 (compatible)", "as in USER_AGENT"),
        ("ROBOTSTXT_USER_AGENT", b"ExampleBot", "give a str"),
        ("POLITESSE_CACHE", {}, r"give a CacheOptions"),
        ("POLITESSE_PACING", "slow", r"give a PacingOptions"),
        ("POLITESSE_ON_ERROR", "open", "give 'disallow' or 'allow'"),
        ("POLITESSE_ON_ERROR", [], "give 'disallow' or 'allow'"),
        ("DOWNLOAD_DELAY", "x", "give a number of seconds, 0 or more"),
        ("DOWNLOAD_DELAY", [], "give a number of seconds, 0 or more"),
        ("POLITESSE_MAX_WAIT", True, "give a number of seconds, 0 or more"),
        ("POLITESSE_MAX_WAIT", "nan", "give a number of seconds, 0 or more"),
        ("POLITESSE_MAX_WAIT", -1, "give a number of seconds, 0 or more"),
        pytest.param("POLITESSE_MAX_WAIT", 10**400, "give a number of seconds, 0 or more", id="huge"),
        ("POLITESSE_STORE", True, "give the path of a file"),
    ],
)
async def test_setting_of_another_type_or_range_is_refused(name: str, given: object, why: str) -> None:
    make = PoliteDownloader if name == "POLITESSE_MAX_WAIT" else RobotsTxtMiddleware.from_crawler
    with pytest.raises(ConfigurationError, match=rf"{name}=.*{why}"):
        make(crawler_with(**{name: given}))


async def test_user_agent_that_is_refused_is_named_as_the_setting() -> None:
    with pytest.raises(ConfigurationError, match="USER_AGENT='Scrapy/2"):
        RobotsTxtMiddleware.from_crawler(crawler_with(USER_AGENT="Scrapy/2.19.0 (+https://scrapy.org)"))


@pytest.mark.parametrize(
    ("given", "is_shared"), [(None, False), (False, False), ("", False), ("0", False), ("False", False), (REDIS, True)]
)
async def test_fleet_is_named_by_its_url_or_by_options(
    given: object,
    is_shared: bool,  # noqa: FBT001
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        async with make_gate(crawler_with(POLITESSE_FLEET=given)):
            pass
        async with make_gate(crawler_with(POLITESSE_FLEET=FleetOptions(REDIS))):
            pass
    fleets = [line for line in caplog.text.splitlines() if "shared with all processes of the fleet" in line]
    assert len(fleets) == 1 + is_shared
    assert len({line.partition("fleet: ")[2] for line in fleets}) == 1
    assert "secret" not in caplog.text


@pytest.mark.parametrize("given", [True, 5, ["redis://:secret@127.0.0.1/0"]])
async def test_fleet_of_another_type_is_refused_without_its_value(given: object) -> None:
    with pytest.raises(ConfigurationError, match=r"^POLITESSE_FLEET: give the URL of a Redis.*no (bool|int|list)$"):
        make_gate(crawler_with(POLITESSE_FLEET=given))


async def test_slot_that_is_no_host_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    make_gate(crawler_with(DOWNLOAD_SLOTS={"my slot": {"delay": 3}, "example.com": {"delay": 3}}))
    assert "'my slot'" in caplog.text
    assert "'example.com'" not in caplog.text


async def test_crawl_goes_on_with_the_pace_of_the_crawl_before_it() -> None:
    gc.collect()  # a pacer of another test has another clock
    waits = []
    for _ in range(2):
        async with make_gate(crawler_with(DOWNLOAD_DELAY=60.0)) as gate:
            gate.set_policy("example.com", HostPolicy(exempt=True, reason="a test"))
            answer = gate.try_turn("https://example.com/")
            waits.append(isinstance(answer, NotYet))
            if not isinstance(answer, NotYet):
                answer.end()
        del gate, answer
        gc.collect()  # the pacer of these gates goes with the last gate
    assert waits == [False, True]


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("settings", "shares"),
    [
        ({}, True),
        ({"USER_AGENT": "OtherBot/1.0 (+https://example.com/other)", "POLITESSE_ON_ERROR": "allow"}, True),
        ({"DOWNLOAD_DELAY": 7.0, "DOWNLOAD_SLOTS": {"example.com": {"delay": 3}}}, True),
        ({"POLITESSE_PACING": PacingOptions(adaptive_factor=0.0)}, True),
        ({"POLITESSE_PACING": PacingOptions(scope="mine")}, False),
        ({"POLITESSE_PACING": PacingOptions(key="domain")}, False),
    ],
)
async def test_gates_of_one_process_share_the_pace_unless_one_names_a_scope_or_paces_something_else(
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, object],
    shares: bool,  # noqa: FBT001
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("politesse.integrations.scrapy._middleware.EngineFetcher", lambda _: ScriptedFetcher())
    with caplog.at_level(logging.INFO):
        gates = [make_gate(crawler_with(**{"DOWNLOAD_DELAY": 1.0} | given)) for given in ({}, settings)]
    async with gates[0] as first, gates[1] as second:
        async with first.turn("http://example.com/a"):
            during = second.try_turn("http://example.com/robots.txt")
        if not isinstance(during, NotYet):
            during.give_back()
        after = first.try_turn("http://example.com/robots.txt"), second.try_turn("http://example.com/robots.txt")
        assert isinstance(during, NotYet) is shares
        assert isinstance(after[0], NotYet)
        if not isinstance(after[1], NotYet):
            after[1].give_back()
        assert isinstance(after[1], NotYet) is shares
    assert "None" not in caplog.text
    scopes = [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert (len(set(scopes)) == 1) is shares


@pytest.mark.parametrize(
    ("url", "stated", "why"),
    [
        ("http://example.com/private/../page", UA, "dot segments"),
        ("http://example.com/private/%2e%2E", UA, "dot segments"),
        ("http://example.com/.?query", UA, "dot segments"),
        ("http:/example.com/page", UA, "dont_obey_robotstxt"),
        ("HTTP:/example.com/page", UA, "dont_obey_robotstxt"),
        ("http://1.2.3.4.5/page", UA, "IPv4"),
        ("http://example.com/page", "Mozilla/5.0 (X11)", "user_agent="),
        ("http://example.com/page", "(nobody)", "user_agent="),
        ("http://example.com/page", "curl/8.0", "user_agent="),
    ],
)
async def test_request_that_no_robots_txt_covers_or_that_names_no_crawler_is_ignored(
    url: str, stated: str, why: str
) -> None:
    crawler = crawler_with()
    middleware = RobotsTxtMiddleware.from_crawler(crawler)
    with pytest.raises(IgnoreRequest, match=why):
        await middleware.process_request(Request(url, headers={"User-Agent": stated}))
    assert crawler.stats.get_value("robotstxt/forbidden") == 1


@pytest.mark.parametrize(
    ("url", "slot"),
    [
        ("ftp://user@EXAMPLE.com.:2121/page", "example.com"),
        ("s3://my_bucket/key", "my_bucket"),
        ("about:config", "mine"),
        ("file:///etc/hostname", "mine"),
        ("file://example.com/page", "mine"),
        ("data:,//example.com/", "mine"),
        ("https://EXAMPLE.com.:8443/page#exempt", "example.com"),
    ],
)
async def test_request_that_needs_no_robots_txt_passes_and_is_paced_by_its_host_if_it_has_one(
    url: str, slot: str
) -> None:
    request = Request(url, meta={"download_slot": "mine", "dont_obey_robotstxt": url.endswith("#exempt")})
    assert await RobotsTxtMiddleware.from_crawler(crawler_with()).process_request(request) is None
    assert PoliteDownloader(crawler_with()).get_slot_key(request) == slot


async def test_attributes_of_a_spider_that_is_none_are_not_read() -> None:
    crawler = crawler_with()
    crawler.spider = MagicMock()  # as in tests of middlewares
    assert make_gate(crawler).identity.user_agent == UA


@pytest.mark.parametrize(
    ("user_agent", "stated", "token"),
    [
        (UA, None, "examplebot"),
        (UA, "OtherBot/1.0 (+https://example.com/other)", "otherbot"),
        ("Mozilla/5.0 (ExampleBot)", "Mozilla/5.0 (ExampleBot)", "examplebot"),
        ("Mozilla/5.0 (ExampleBot)", "Mozilla/5.0 (ExampleBot; mobile)", "examplebot"),
    ],
)
async def test_parser_that_is_handed_over_is_asked_for_the_crawler_that_the_request_states(
    user_agent: str, stated: str | None, token: str
) -> None:
    middleware = RobotsTxtMiddleware(crawler_with(USER_AGENT=user_agent, ROBOTSTXT_USER_AGENT="ExampleBot"))
    parser = MagicMock()
    request = Request("http://example.com/page", headers={"User-Agent": stated} if stated else None)
    middleware.process_request_2(parser, request)
    parser.allowed.assert_called_once_with("http://example.com/page", token)
    parser.allowed.return_value = False
    with pytest.raises(IgnoreRequest, match=r"^Forbidden by robots\.txt$"):
        middleware.process_request_2(parser, request)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (FaultKind.TIMEOUT, "DownloadTimeoutError"),
        (FaultKind.DNS, "CannotResolveHostError"),
        (FaultKind.CONNECT, "DownloadFailedError"),
    ],
)
async def test_a_fault_that_an_earlier_run_has_stored_has_the_cause_of_plain_scrapy(kind: FaultKind, name: str) -> None:
    fault = FetchFault(kind, "as stored", "https://site.example/robots.txt")
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({"https://site.example": fault})) as gate:
        verdict = await gate.check("https://site.example/page")
    error = RobotsTxtMiddleware.from_crawler(crawler_with()).forbidden(Request(verdict.url), verdict)
    # Scrapy has exceptions of its own since 2.15.
    assert type(error.__cause__) is getattr(scrapy.exceptions, name, type(None))


# RobotParser through the interface of Scrapy's parsers.


BODY: Final = """User-agent: examplebot
Disallow: /private
Allow: /private/ope
Disallow: /søg

User-agent: *
Disallow: /
""".encode()


def parser(body: bytes) -> RobotParser:
    return build_from_crawler(RobotParser, Crawler(Spider), body)


@pytest.mark.parametrize("user_agent", ["ExampleBot", b"ExampleBot/1.0 (+https://example.com/bot)"])
@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://example.com/", True),
        ("https://example.com/private", False),
        ("https://example.com/private/open", True),
        (b"https://example.com/private/x", False),
        ("https://example.com/s%C3%B8g", False),
        ("https://example.com/søg".encode(), False),
    ],
)
def test_named_group_decides(url: str | bytes, user_agent: str | bytes, allowed: bool) -> None:  # noqa: FBT001
    assert parser(BODY).allowed(url, user_agent) is allowed


def test_other_crawlers_are_bound_by_the_group_for_all() -> None:
    assert parser(BODY).allowed("https://example.com/", "OtherBot/2.0") is False


@pytest.mark.parametrize("body", [b"", b"\xff\xfe\x00", b"<html>", b"Disallow: /\n"])
def test_file_without_rules_allows_everything(body: bytes) -> None:
    assert parser(body).allowed("https://example.com/page", "ExampleBot") is True
