"""What Scrapy's settings make of politesse, and which are refused."""

from __future__ import annotations

import importlib
import logging
import sys
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import MagicMock

import pytest
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware as ScrapyRobotsTxtMiddleware
from scrapy.exceptions import IgnoreRequest, NotConfigured
from scrapy.settings import Settings
from scrapy.squeues import LifoMemoryQueue
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import load_object

from politesse import ConfigurationError, NotYet, Origin, PacingOptions
from politesse._gate.view import agent_of
from politesse.events import ComponentFailed
from politesse.integrations.scrapy import (
    PoliteDownloader,
    PolitePriorityQueue,
    PolitesseAddon,
    RobotParser,
    RobotsTxtMiddleware,
)
from politesse.integrations.scrapy.engine_fetcher import EngineFetcher
from politesse.integrations.scrapy.gate import Agents, make_gate, max_wait_s
from politesse.integrations.scrapy.requires import check_scrapy
from politesse.testing import ScriptedFetcher

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"
SCRAPYS_OWN: Final = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware"


def updated(project: Mapping[str, Any] | None = None) -> Settings:
    settings = Settings(dict(project or {}), priority="project")
    PolitesseAddon().update_settings(settings)
    return settings


def crawler_with(**settings: object) -> Crawler:
    crawler = Crawler(Spider, {"USER_AGENT": UA, "ROBOTSTXT_OBEY": True, **settings})
    crawler.stats = MemoryStatsCollector(crawler)
    return crawler


def enabled(settings: Settings) -> list[Any]:
    return build_component_list(settings.getwithbase("DOWNLOADER_MIDDLEWARES"))


def test_missing_scrapy_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scrapy", None)
    with pytest.raises(
        ImportError, match=r"needs the extra 'scrapy'; in a checkout of politesse, run: pip install '\.\[scrapy\]'"
    ):
        check_scrapy()


def test_missing_dependency_of_scrapy_is_not_reported_as_missing_scrapy(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'twisted'", name="twisted")

    monkeypatch.setattr("politesse.integrations.scrapy.requires.import_module", fail)
    with pytest.raises(ModuleNotFoundError, match="twisted"):
        check_scrapy()


@pytest.mark.parametrize("version", ["2.13.3", "1.8.4", "2.9.0"])
def test_older_scrapy_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr("scrapy.__version__", version)
    with pytest.raises(ImportError, match=rf"needs Scrapy 2\.14 or newer, and {version} is installed"):
        check_scrapy()


@pytest.mark.parametrize("version", ["2.14.0", "2.19.0", "2.100.1", "3.0.0"])
def test_newer_scrapy_will_do(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr("scrapy.__version__", version)
    check_scrapy()


def test_package_does_not_import_without_scrapy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("politesse.integrations.scrapy")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "scrapy", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[scrapy\]'"):
        importlib.import_module("politesse.integrations.scrapy")


@pytest.mark.parametrize("answer", [False, RuntimeError("no reactor is installed")])
def test_other_reactor_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch, answer: bool | Exception) -> None:  # noqa: FBT001
    def is_asyncio_available() -> bool:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("politesse.integrations.scrapy.gate.is_asyncio_available", is_asyncio_available)
    crawler = crawler_with()
    for make in (RobotsTxtMiddleware.from_crawler, PoliteDownloader):
        make(crawler)  # no crawl starts
    crawler.crawling = True
    for make in (RobotsTxtMiddleware.from_crawler, PoliteDownloader):
        with pytest.raises(ConfigurationError, match="AsyncioSelectorReactor"):
            make(crawler)


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


@pytest.mark.parametrize("key", [SCRAPYS_OWN, ScrapyRobotsTxtMiddleware])
def test_middleware_is_there_where_scrapys_own_is_not(key: object) -> None:
    assert RobotsTxtMiddleware in enabled(updated({"DOWNLOADER_MIDDLEWARES": {key: None}}))


def test_middleware_is_left_where_the_project_has_put_it() -> None:
    settings = updated({"DOWNLOADER_MIDDLEWARES": {"politesse.integrations.scrapy.RobotsTxtMiddleware": 30}})
    assert enabled(settings)[0] == "politesse.integrations.scrapy.RobotsTxtMiddleware"
    assert RobotsTxtMiddleware not in enabled(settings)


def test_another_downloader_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"DOWNLOADER='scrapy\.core\.downloader\.Downloader'"):
        updated({"DOWNLOADER": "scrapy.core.downloader.Downloader"})


@pytest.mark.filterwarnings("ignore:The CONCURRENT_REQUESTS_PER_IP setting")
def test_slots_by_address_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="CONCURRENT_REQUESTS_PER_IP"):
        updated({"CONCURRENT_REQUESTS_PER_IP": 2})


async def test_queue_needs_the_polite_downloader() -> None:
    crawler = crawler_with()

    class Engine:
        downloader = object()

    crawler.engine = Engine()  # type: ignore[assignment]
    with pytest.raises(ConfigurationError, match="PoliteDownloader"):
        PolitePriorityQueue(crawler, LifoMemoryQueue, "")


async def test_middleware_is_off_without_robotstxt_obey() -> None:
    with pytest.raises(NotConfigured):
        RobotsTxtMiddleware.from_crawler(crawler_with(ROBOTSTXT_OBEY=False))


@pytest.mark.parametrize("user_agent", ["Scrapy/2.19.0 (+https://scrapy.org)", "", "Mozilla/5.0 (compatible)"])
async def test_crawler_without_a_name_is_refused(user_agent: str) -> None:
    with pytest.raises(ConfigurationError, match="USER_AGENT"):
        make_gate(crawler_with(USER_AGENT=user_agent))


async def test_robotstxt_user_agent_names_a_crawler_with_the_user_agent_of_a_browser() -> None:
    browser = "Mozilla/5.0 (compatible; ExampleBot/1.0; +https://example.com/bot)"
    gate = make_gate(crawler_with(USER_AGENT=browser, ROBOTSTXT_USER_AGENT="ExampleBot/1.0 (+https://example.com)"))
    assert gate.identity.tokens == ("examplebot",)
    assert gate.identity.user_agent == browser


async def test_token_that_the_user_agent_does_not_contain_is_reported_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    make_gate(crawler_with(USER_AGENT="OtherBot/1.0", ROBOTSTXT_USER_AGENT="ExampleBot"))  # a warning would raise
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith("none of the product tokens ['examplebot'] occurs in the User-Agent 'OtherBot/1.0'")


@pytest.mark.parametrize("name", ["POLITESSE_CACHE", "POLITESSE_PACING"])
async def test_types_of_options_are_checked(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{name}='slow': give a politesse\.\w+Options"):
        make_gate(crawler_with(**{name: "slow"}))


async def test_setting_that_is_refused_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigurationError, match="USER_AGENT='Scrapy/2"):
        RobotsTxtMiddleware.from_crawler(crawler_with(USER_AGENT="Scrapy/2.19.0 (+https://scrapy.org)"))
    (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert record.getMessage().startswith("The spider does not start: USER_AGENT='Scrapy/2.19.0")
    assert "\n" not in record.getMessage()
    assert record.exc_info is None


async def test_value_of_on_error_is_checked() -> None:
    with pytest.raises(ConfigurationError, match="POLITESSE_ON_ERROR='open'"):
        make_gate(crawler_with(POLITESSE_ON_ERROR="open"))


@pytest.mark.parametrize("wait", [-1, "nan", "soon"])
def test_value_of_max_wait_is_checked(wait: object) -> None:
    with pytest.raises(ConfigurationError, match="POLITESSE_MAX_WAIT"):
        max_wait_s(Settings({"POLITESSE_MAX_WAIT": wait}))


def test_a_request_waits_for_an_hour_by_default() -> None:
    assert max_wait_s(Settings()) == 3600.0
    assert max_wait_s(Settings({"POLITESSE_MAX_WAIT": "20"})) == 20.0


async def test_slot_that_is_no_host_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        make_gate(crawler_with(DOWNLOAD_SLOTS={"my slot": {"delay": 3}, "example.com": {"delay": 3}}))
    assert "'my slot'" in caplog.text
    assert "'example.com'" not in caplog.text


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("settings", "shares"),
    [
        ({}, True),
        ({"USER_AGENT": "OtherBot/1.0 (+https://example.com/other)", "POLITESSE_ON_ERROR": "allow"}, True),
        ({"DOWNLOAD_DELAY": 7.0}, True),
        ({"DOWNLOAD_SLOTS": {"example.com": {"delay": 3}}}, True),
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
    monkeypatch.setattr("politesse.integrations.scrapy.gate.EngineFetcher", lambda *_: ScriptedFetcher())
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
        if isinstance(after[1], NotYet):
            assert after[1].not_before == pytest.approx(after[0].not_before, abs=0.1)
        else:
            after[1].give_back()
        assert isinstance(after[1], NotYet) is shares
    scopes = [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert (len(set(scopes)) == 1) is shares


async def test_scope_that_the_project_names_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("politesse.integrations.scrapy.gate.EngineFetcher", lambda *_: ScriptedFetcher())
    given: dict[str, object] = {"POLITESSE_PACING": PacingOptions(scope="mine")}
    first = make_gate(crawler_with(DOWNLOAD_DELAY=1.0, **given))
    with pytest.raises(ConfigurationError, match="scope='mine'"):
        make_gate(crawler_with(DOWNLOAD_DELAY=2.0, **given))
    await first.aclose()


async def test_header_of_a_request_chooses_the_view() -> None:
    crawler = crawler_with()
    agents = Agents(make_gate(crawler), crawler.settings)

    def tokens(user_agent: str | None) -> tuple[str, ...]:
        headers = None if user_agent is None else {"User-Agent": user_agent}
        return agents.view(Request("https://example.com/", headers=headers)).identity.tokens

    assert tokens(None) == ("examplebot",)
    assert tokens("") == ("examplebot",)
    assert tokens("ExampleBot/2.0") == ("examplebot",)
    assert tokens("OtherBot/1.0 (+https://example.com/other)") == ("otherbot",)
    assert tokens("Mozilla/5.0 (X11)") == ("mozilla",)
    assert tokens("(nobody)") == ("examplebot",)


async def test_name_of_a_library_is_judged_by_that_name() -> None:
    crawler = crawler_with()
    agents = Agents(make_gate(crawler), crawler.settings)
    view = agents.view(Request("https://example.com/", headers={"User-Agent": "curl/8.0"}))
    assert view.identity.tokens == ("curl",)


async def test_robotstxt_user_agent_stands_above_the_header() -> None:
    crawler = crawler_with(ROBOTSTXT_USER_AGENT="ExampleBot")
    agents = Agents(make_gate(crawler), crawler.settings)
    view = agents.view(Request("https://example.com/", headers={"User-Agent": "OtherBot/1.0"}))
    assert view.identity.tokens == ("examplebot",)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://example.com/private/../page", "dot segments"),
        ("http://example.com/private/%2e%2E", "dot segments"),
        ("http://example.com/.?query", "dot segments"),
        ("http:/example.com/page", "dont_obey_robotstxt"),
        ("http://1.2.3.4.5/page", "IPv4"),
    ],
)
async def test_request_that_no_robots_txt_covers_is_ignored(url: str, why: str) -> None:
    crawler = crawler_with()
    middleware = RobotsTxtMiddleware.from_crawler(crawler)
    with pytest.raises(IgnoreRequest, match=why):
        await middleware.process_request(Request(url))
    assert crawler.stats.get_value("robotstxt/forbidden") == 1


@pytest.mark.parametrize(
    ("url", "meta"),
    [
        ("data:,text", {}),
        ("file:///etc/hostname", {}),
        ("ftp://example.com/page", {}),
        ("s3://bucket/key", {}),
        ("about:config", {}),
        ("http://example.com/page", {"dont_obey_robotstxt": True}),
    ],
)
async def test_request_that_needs_no_robots_txt_passes(url: str, meta: dict[str, object]) -> None:
    middleware = RobotsTxtMiddleware.from_crawler(crawler_with())
    assert await middleware.process_request(Request(url, meta=meta)) is None


async def test_robots_txt_waits_in_no_slot_of_pages() -> None:
    crawler = crawler_with()
    downloader = PoliteDownloader(crawler)
    fetcher = EngineFetcher(crawler, "disallow")
    robots = fetcher._request("https://example.com/robots.txt", {}, 30.0)
    page = Request("https://EXAMPLE.com.:8443/page", meta={"download_slot": "of.another.host"})
    assert downloader.get_slot_key(page) == "example.com"
    assert downloader.get_slot_key(robots) != "example.com"
    assert robots.meta["dont_obey_robotstxt"]


@pytest.mark.parametrize(
    ("url", "slot"),
    [
        ("ftp://user@EXAMPLE.com.:2121/page", "example.com"),
        ("s3://my_bucket/key", "my_bucket"),
        ("about:config", "mine"),
        ("file:///etc/hostname", "mine"),
        ("file://example.com/page", "mine"),
        ("data:,//example.com/", "mine"),
    ],
)
async def test_request_of_another_scheme_is_paced_by_its_host_if_it_has_one(url: str, slot: str) -> None:
    downloader = PoliteDownloader(crawler_with())
    assert downloader.get_slot_key(Request(url, meta={"download_slot": "mine"})) == slot


async def test_logged_error_is_printable_and_forges_no_log_line(caplog: pytest.LogCaptureFixture) -> None:
    gate = make_gate(crawler_with())
    error = ValueError("\x1b[2J\r\n2026-01-01 CRITICAL forged")
    for origin in (Origin.of("https://example.com"), None):
        agent_of(gate).publish(ComponentFailed(origin, "store", error))
    shown = [logging.Formatter("%(message)s").format(record) for record in caplog.records]
    assert [text.split("\n")[0] for text in shown] == [
        "The store failed for https://example.com",
        "The store failed for the whole crawl",
    ]
    for text in shown:
        assert r"ValueError: \x1b[2J\r" in text
        assert all(line.isprintable() for line in text.split("\n"))
        assert "\n2026" not in text


@pytest.mark.parametrize("name", ["POLITESSE_CACHE", "POLITESSE_PACING"])
@pytest.mark.parametrize("given", [{}, [], False, float("nan"), "on"])
async def test_options_of_another_type_are_refused_empty_ones_as_well(name: str, given: object) -> None:
    with pytest.raises(ConfigurationError, match=rf"^{name}=.*: give a politesse\.\w+Options$"):
        make_gate(crawler_with(**{name: given}))


@pytest.mark.parametrize("given", [[], {}, -1, float("nan"), True])
async def test_on_error_of_another_type_is_refused(given: object) -> None:
    with pytest.raises(ConfigurationError, match=r"POLITESSE_ON_ERROR=.*: give 'disallow' or 'allow'"):
        make_gate(crawler_with(POLITESSE_ON_ERROR=given))


@pytest.mark.parametrize("given", [True, pytest.param(10**400, id="huge"), float("nan"), [], -1])
async def test_max_wait_that_is_no_number_of_seconds_is_refused(given: object) -> None:
    with pytest.raises(ConfigurationError, match=r"POLITESSE_MAX_WAIT=.*: give a number of seconds, 0 or more"):
        max_wait_s(Settings({"POLITESSE_MAX_WAIT": given}))


@pytest.mark.parametrize("given", ["x", [], float("nan"), float("inf")])
async def test_page_directives_that_are_neither_true_nor_false_are_refused(given: object) -> None:
    with pytest.raises(ConfigurationError, match=r"POLITESSE_PAGE_DIRECTIVES=.*: give True or False"):
        RobotsTxtMiddleware(crawler_with(POLITESSE_PAGE_DIRECTIVES=given))


@pytest.mark.parametrize("given", ["x", [], pytest.param(10**400, id="huge")])
async def test_download_delay_that_is_no_number_is_refused(given: object) -> None:
    with pytest.raises(ConfigurationError, match=r"DOWNLOAD_DELAY=.*: give a number of seconds, 0 or more"):
        make_gate(crawler_with(DOWNLOAD_DELAY=given))


@pytest.mark.parametrize("given", [5, b"ExampleBot"])
async def test_robots_txt_user_agent_that_is_no_text_is_refused(given: object) -> None:
    with pytest.raises(ConfigurationError, match=r"ROBOTSTXT_USER_AGENT=.*: give a str"):
        make_gate(crawler_with(ROBOTSTXT_USER_AGENT=given))


async def test_attributes_of_a_spider_that_is_none_are_not_read() -> None:
    crawler = crawler_with()
    crawler.spider = MagicMock()  # as in tests of middlewares
    assert make_gate(crawler).identity.user_agent == UA


async def test_parser_that_is_handed_over_is_asked_for_the_name_of_the_setting() -> None:
    middleware = RobotsTxtMiddleware(crawler_with(ROBOTSTXT_USER_AGENT="ExampleBot"))
    parser = MagicMock()
    request = Request("http://example.com/page")
    middleware.process_request_2(parser, request)
    parser.allowed.assert_called_once_with("http://example.com/page", "ExampleBot")
    parser.allowed.return_value = False
    with pytest.raises(IgnoreRequest, match=r"^Forbidden by robots\.txt$"):
        middleware.process_request_2(parser, request)
