"""The Gatekeeper that a crawler's settings describe, and its view for each User-Agent that a request names."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache
from scrapy.utils.asyncio import is_asyncio_available

from politesse._cache.options import CacheOptions
from politesse._cache.robots import RobotsFetched
from politesse._gate.gatekeeper import Gatekeeper
from politesse._gate.host_policy import HostPolicy
from politesse._pacing.pace import PacingOptions
from politesse._text import printable, printable_traceback
from politesse.errors import ConfigurationError, InvalidURL
from politesse.events import ComponentFailed
from politesse.integrations.scrapy.fetch import EngineFetcher
from politesse.robots.agents import first_word, product_token
from politesse.verdict import AccessResult, utc

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from politesse._gate.gatekeeper import AgentView
    from politesse.events import Event

logger = logging.getLogger(__name__)

_DEFAULT_MAX_WAIT_S: Final = 3600.0
_MAX_VIEWS: Final = 64


def make_gate(crawler: Crawler) -> Gatekeeper:
    """Return the gate of one crawl, which asks for robots.txt through its engine; see the add-on for the settings.

    Raises ConfigurationError for settings that cannot be meant, and where there is no asyncio.
    """
    _check_asyncio()
    settings = crawler.settings
    on_error = settings.get("POLITESSE_ON_ERROR", "disallow")
    if on_error not in {"disallow", "allow"}:
        raise ConfigurationError(f"POLITESSE_ON_ERROR={on_error!r}: give 'disallow' or 'allow'")
    user_agent = getattr(crawler.spider, "user_agent", None) or settings["USER_AGENT"] or ""
    named = settings["ROBOTSTXT_USER_AGENT"]
    cache: CacheOptions = settings.get("POLITESSE_CACHE") or CacheOptions()
    pacing: PacingOptions = settings.get("POLITESSE_PACING") or PacingOptions()
    try:
        gate = Gatekeeper(
            user_agent,
            token=first_word(named) if named else None,
            cache=cache if on_error == "disallow" else replace(cache, on_too_many_requests="allow"),
            pacing=replace(pacing, min_delay_s=_floor_s(crawler), max_concurrent=1),
            fetcher=EngineFetcher(crawler, on_error),
        )
    except ConfigurationError as error:
        hint = "in Scrapy user_agent is the setting USER_AGENT, token ROBOTSTXT_USER_AGENT"
        raise ConfigurationError(f"{error} ({hint}, min_delay_s DOWNLOAD_DELAY)") from None
    _settle_hosts(gate, settings.getdict("DOWNLOAD_SLOTS"))
    gate.subscribe(_log)
    return gate


def max_wait_s(settings: BaseSettings) -> float:
    """Return for how many seconds a request may wait for its host; raises ConfigurationError."""
    wait_s = settings.getfloat("POLITESSE_MAX_WAIT", _DEFAULT_MAX_WAIT_S)
    if not wait_s >= 0:
        raise ConfigurationError(f"POLITESSE_MAX_WAIT={wait_s!r}: give a number of seconds, 0 or more")
    return wait_s


class Agents:
    """The gate as each User-Agent passes it, chosen as Scrapy's own middleware does.

    ``ROBOTSTXT_USER_AGENT`` names the crawler to all; without it the header of a request does, where it has one; else
    ``USER_AGENT``.
    """

    def __init__(self, gate: Gatekeeper, settings: BaseSettings) -> None:
        self._gate = gate
        self._named_to_all = bool(settings["ROBOTSTXT_USER_AGENT"])
        self._views: LRUCache[str, AgentView] = LRUCache(_MAX_VIEWS)

    def view(self, request: Request) -> AgentView:
        """Return who judges ``request``."""
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
        # Without its User-Agent the name of a library will do, too: a request that bears it is judged by it.
        for shown in (user_agent, None):
            try:
                return self._gate.agent(tokens=token, user_agent=shown)
            except ConfigurationError:
                continue
        return self._gate  # no robots.txt can name what is no name


def _check_asyncio() -> None:
    try:
        available = is_asyncio_available()
    except RuntimeError:  # no reactor is installed yet
        available = False
    if not available:
        raise ConfigurationError(
            "politesse needs asyncio, and Scrapy runs on another reactor: "
            "set TWISTED_REACTOR = 'twisted.internet.asyncioreactor.AsyncioSelectorReactor'"
        )


def _floor_s(crawler: Crawler) -> float:
    # Scrapy 2.14 still reads the attribute of the spider by itself, later ones make a setting of it.
    delay_s = getattr(crawler.spider, "download_delay", None)
    return float(delay_s) if delay_s is not None else crawler.settings.getfloat("DOWNLOAD_DELAY")


def _settle_hosts(gate: Gatekeeper, slots: Mapping[str, Mapping[str, Any]]) -> None:
    """Let the ``delay`` of a host in ``DOWNLOAD_SLOTS`` be its floor; other keys than hosts are never asked for."""
    for host, options in slots.items():
        if "delay" in options:
            try:
                gate.set_policy(host, HostPolicy(min_delay_s=float(options["delay"])))
            except InvalidURL:
                logger.warning("DOWNLOAD_SLOTS[%r]: it is no host, and requests have slots by host", host)


def _log(event: Event) -> None:
    if isinstance(event, ComponentFailed):
        of = event.origin or "the whole crawl"
        logger.error("The %s failed for %s\n%s", event.component, of, printable_traceback(event.error))
    elif isinstance(event, RobotsFetched) and event.source.result is AccessResult.UNREACHABLE:
        again = "" if event.source.not_before is None else f"; asked again after {utc(event.source.not_before)}"
        logger.warning("All of %s is disallowed: %s%s", event.origin, printable(event.fault), again)
