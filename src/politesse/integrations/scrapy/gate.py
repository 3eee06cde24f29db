"""The Gatekeeper that a crawler's settings describe, and its view for each User-Agent that a request names.

Each crawl has a gate of its own, also if several spiders run in one process: their settings, User-Agents and engines
differ. They share the pace of each host, and the strictest settings of those that request it hold: see ``_pacing``.
"""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cachetools import LRUCache
from scrapy import Spider
from scrapy.utils.asyncio import is_asyncio_available

from politesse._cache.options import CacheOptions
from politesse._gate.gatekeeper import Gatekeeper
from politesse._gate.host_policy import HostPolicy
from politesse._pacing.pace import PacingOptions
from politesse._pacing.sharing import MixedScope
from politesse._text import printable
from politesse.errors import ConfigurationError, InvalidURL, PolitesseWarning
from politesse.integrations.scrapy.engine_fetcher import EngineFetcher
from politesse.integrations.scrapy.store import fleet_of, store_of
from politesse.robots.agents import first_word, product_token

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from politesse._gate.view import AgentView


logger = logging.getLogger(__name__)

Options = TypeVar("Options", CacheOptions, PacingOptions)

_DEFAULT_MAX_WAIT_S: Final = 3600.0
_MAX_VIEWS: Final = 64


def make_gate(crawler: Crawler) -> Gatekeeper:
    """Return the gate of one crawl, which fetches robots.txt through its engine; PolitesseAddon has the settings.

    Raises:
        ConfigurationError: a setting is invalid, or a crawl starts and Scrapy does not run on asyncio.
    """
    if crawler.crawling is True:  # otherwise there may be no reactor yet
        _check_asyncio()
    settings = crawler.settings
    on_error = settings.get("POLITESSE_ON_ERROR", "disallow")
    if on_error not in ("disallow", "allow"):  # a tuple: the value may have no hash
        raise ConfigurationError(f"POLITESSE_ON_ERROR={on_error!r:.100}: give 'disallow' or 'allow'")
    user_agent = _of_spider(crawler, "user_agent") or settings["USER_AGENT"] or ""
    named = settings["ROBOTSTXT_USER_AGENT"]
    if named and not isinstance(named, str):
        raise ConfigurationError(f"ROBOTSTXT_USER_AGENT={named!r:.100}: give a str, as in 'ExampleBot'")
    delays_s = _delays_s(settings)
    cache = _options(settings, "POLITESSE_CACHE", CacheOptions)
    pacing = _options(settings, "POLITESSE_PACING", PacingOptions)
    try:
        with _warnings_logged():
            gate = Gatekeeper(
                user_agent,
                token=first_word(named) if named else None,
                cache=cache if on_error == "disallow" else replace(cache, on_too_many_requests="allow"),
                pacing=_pacing(crawler, pacing),
                fetcher=EngineFetcher(crawler, on_error),
                store=store_of(settings),
                fleet=fleet_of(settings),
            )
    except ConfigurationError as error:
        problem = str(error)
        if problem.startswith("user_agent="):
            example = "USER_AGENT = 'ExampleBot/1.0 (+https://example.com/bot)'"
            raise ConfigurationError(f"USER_AGENT={problem.removeprefix('user_agent=')}, as in {example}") from None
        raise ConfigurationError(
            f"{problem} (in Scrapy token is the setting ROBOTSTXT_USER_AGENT, min_delay_s DOWNLOAD_DELAY, "
            "store POLITESSE_STORE, fleet POLITESSE_FLEET)"
        ) from None
    _set_policies(gate, delays_s)
    return gate


def max_wait_s(settings: BaseSettings) -> float:
    """Return after how many seconds a site that makes its requests wait is given up.

    Raises:
        ConfigurationError: ``POLITESSE_MAX_WAIT`` is negative or not a number.
    """
    given = settings.get("POLITESSE_MAX_WAIT", _DEFAULT_MAX_WAIT_S)
    try:
        wait_s = -1.0 if isinstance(given, bool) else float(given)
    except (TypeError, ValueError, OverflowError):
        wait_s = -1.0
    if not wait_s >= 0:
        raise ConfigurationError(f"POLITESSE_MAX_WAIT={given!r:.100}: give a number of seconds, 0 or more")
    return wait_s


def reads_pages(settings: BaseSettings) -> bool:
    """Return whether ``POLITESSE_PAGE_DIRECTIVES`` is on.

    Raises:
        ConfigurationError: it is neither true nor false.
    """
    given = settings.get("POLITESSE_PAGE_DIRECTIVES", True)
    try:
        return settings.getbool("POLITESSE_PAGE_DIRECTIVES", True)  # noqa: FBT003 - a default
    except (TypeError, ValueError, OverflowError):
        raise ConfigurationError(f"POLITESSE_PAGE_DIRECTIVES={given!r:.100}: give True or False") from None


class SettingRefused(ConfigurationError):
    """A setting is invalid, and the log has said so."""


@contextmanager
def errors_logged_in_one_line() -> Iterator[None]:
    """Log a ConfigurationError as one line, and raise it as SettingRefused.

    ``scrapy crawl`` starts a crawl in a task or a Deferred, which asyncio or Twisted logs with a traceback when it
    fails. Of a setting that is refused, one line says all.
    """
    try:
        yield
    except ConfigurationError as error:
        logger.error("The spider does not start: %s", error)  # noqa: TRY400 - no traceback
        for name in ("asyncio", "twisted"):
            logging.getLogger(name).addFilter(_is_news)
        raise SettingRefused(str(error)) from None


def _is_news(record: logging.LogRecord) -> bool:
    if record.exc_info:
        return not isinstance(record.exc_info[1], SettingRefused)
    return record.getMessage() != "Unhandled error in Deferred:"  # Twisted's heading of the traceback


@contextmanager
def _warnings_logged() -> Iterator[None]:
    """Log each PolitesseWarning instead: ``LOG_FILE`` does not receive what is written to stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PolitesseWarning)
        yield
    for warning in caught:
        logger.warning("%s", printable(str(warning.message)))


class Agents:
    """The view of the gate for each User-Agent, selected as Scrapy's own middleware does.

    ``ROBOTSTXT_USER_AGENT`` names the crawler for all requests; without it, the User-Agent header of the request; and
    without that, ``USER_AGENT``.
    """

    def __init__(self, gate: Gatekeeper, settings: BaseSettings) -> None:
        self._gate = gate
        self._named_to_all: str | None = settings["ROBOTSTXT_USER_AGENT"]
        self._views: LRUCache[str, AgentView] = LRUCache(_MAX_VIEWS)

    def name(self, request: Request) -> str:
        """Return the product token that judges ``request``, or ``ROBOTSTXT_USER_AGENT`` as it is."""
        return self._named_to_all or self.view(request).identity.tokens[0]

    def view(self, request: Request) -> AgentView:
        """Return the view that judges ``request``."""
        header = None if self._named_to_all else request.headers.get(b"User-Agent")
        if not header:
            return self._gate
        text = header.decode("latin-1")
        token = product_token(text)
        if token in self._gate.identity.tokens:
            return self._gate
        if token not in self._views:
            self._views[token] = self._new_view(token, text)
        return self._views[token]

    def _new_view(self, token: str, user_agent: str) -> AgentView:
        # A User-Agent that the gate refuses, such as a library's default, is still judged by its product token.
        for shown in (user_agent, None):
            try:
                with warnings.catch_warnings(action="ignore", category=PolitesseWarning):  # the request names the token
                    return self._gate.agent(tokens=token, user_agent=shown)
            except ConfigurationError:
                continue
        return self._gate  # not a product token: no robots.txt can name it


def _check_asyncio() -> None:
    try:
        available = is_asyncio_available()
    except RuntimeError:  # no reactor is installed
        available = False
    if not available:
        raise ConfigurationError(
            "politesse needs asyncio, and Scrapy runs on another reactor: "
            "set TWISTED_REACTOR = 'twisted.internet.asyncioreactor.AsyncioSelectorReactor'"
        )


def _pacing(crawler: Crawler, given: PacingOptions) -> PacingOptions:
    """Return how the requests of a crawl are paced: the one place where Scrapy's defaults are set.

    Spiders of one process share the pace of each host, whatever else they set: only what is paced as one host has to be
    the same. A ``scope`` of the project's own is the way out.
    """
    pacing = replace(given, min_delay_s=_floor_s(crawler), max_concurrent=1)
    if not pacing.scope:
        limits = f" {pacing.key} {pacing.address} {pacing.domain}" if pacing.is_scoped else ""
        pacing = replace(pacing, scope=MixedScope(f"scrapy{limits}"))
    logger.info("The pace of each host is shared with the spiders of this process of the same scope: %s", pacing.scope)
    fleet = fleet_of(crawler.settings)
    if fleet is not None:
        logger.info("The pace of each host is shared with all processes of the fleet: %s", fleet)
    return pacing


def _options(settings: BaseSettings, name: str, kind: type[Options]) -> Options:
    given = settings.get(name)
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise ConfigurationError(f"{name}={given!r:.100}: give a politesse.{kind.__name__}")
    return given


def _floor_s(crawler: Crawler) -> float:
    # Scrapy 2.14 reads the spider's attribute directly, later versions copy it to the settings.
    delay_s = _of_spider(crawler, "download_delay")
    given = crawler.settings.get("DOWNLOAD_DELAY", 0.0) if delay_s is None else delay_s
    try:
        return float(given)
    except (TypeError, ValueError, OverflowError):
        raise ConfigurationError(f"DOWNLOAD_DELAY={given!r:.100}: give a number of seconds, 0 or more") from None


def _of_spider(crawler: Crawler, name: str) -> Any:  # noqa: ANN401 - what the spider's author has given
    # Tests of middlewares often have no spider, or a mock, which has every attribute.
    return getattr(crawler.spider, name, None) if isinstance(crawler.spider, Spider) else None


def _delays_s(settings: BaseSettings) -> dict[str, float]:
    """Return the ``delay`` of each slot in ``DOWNLOAD_SLOTS``, in seconds."""
    slots: Mapping[str, Mapping[str, Any]] = settings.getdict("DOWNLOAD_SLOTS")
    return {name: float(options["delay"]) for name, options in slots.items() if "delay" in options}


def _set_policies(gate: Gatekeeper, delays_s: Mapping[str, float]) -> None:
    """Make the delay of a host its floor; slots that are no hosts have no effect."""
    for host, delay_s in delays_s.items():
        try:
            gate.set_policy(host, HostPolicy(min_delay_s=delay_s))
        except InvalidURL:
            logger.warning(
                "DOWNLOAD_SLOTS[%r] has no effect: it is not a host, and politesse has one slot for each host", host
            )
