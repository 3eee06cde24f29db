"""Makes the Gatekeeper of a crawl from its settings, with fleet and store.

Each crawl has its own gate, because settings, User-Agents and engines differ. The crawls of a process share the pace of
each host; each gate has its own ``min_delay_s``, as with ``Gatekeeper(pacer=...)``. The crawls also share the copies of
robots.txt, unless they have another store.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from scrapy import Spider
from scrapy.utils.asyncio import is_asyncio_available

from politesse._base.checks import check_choice, check_types
from politesse._base.text import type_name
from politesse._cache.options import CacheOptions, HostPolicy
from politesse._gate.gatekeeper import Gatekeeper
from politesse._gate.identity import AS_IN_EXAMPLE
from politesse._pacing.fleet.options import FleetOptions
from politesse._pacing.pace import PacingOptions
from politesse._pacing.shared import SharedPacer, of_clock
from politesse.errors import ConfigurationError, InvalidURL
from politesse.integrations.scrapy._internals import has_started, job_directory
from politesse.robots.agents import first_word
from politesse.stores.memory import MemoryStore, SharedMemoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from politesse.ports import Fetcher, Store


logger = logging.getLogger(__name__)

_STORE: Final = "robots.db"  # the name of the file in JOBDIR
_OFF: Final = ("", "0", "False", "false")  # the texts that mean False, as in ``-s POLITESSE_STORE=False``

_PACERS: Final[WeakValueDictionary[tuple[object, ...], SharedPacer]] = WeakValueDictionary()
"""The pacers of this process that gates use. The crawls that use the same pacer share its pace."""

_COPIES: Final[WeakKeyDictionary[SharedPacer, SharedMemoryStore]] = WeakKeyDictionary()
"""The copies of robots.txt that the crawls of a pacer share, if they have no other store."""


def make_gate(crawler: Crawler, fetcher: Fetcher) -> Gatekeeper:
    """Return the gate of a crawl; PolitesseAddon has the settings.

    Raises:
        ConfigurationError: a setting is invalid, or a crawl starts and Scrapy does not run on asyncio.
    """
    # Scrapy may install the reactor only when the crawl starts, so an earlier check could fail.
    if has_started(crawler) and not is_asyncio_available():
        raise ConfigurationError(
            "politesse needs asyncio, and Scrapy runs on another reactor: "
            "set TWISTED_REACTOR = 'twisted.internet.asyncioreactor.AsyncioSelectorReactor'"
        )
    settings = crawler.settings
    on_error = settings.get("POLITESSE_ON_ERROR", "disallow")
    check_choice("POLITESSE_ON_ERROR", on_error, ("disallow", "allow"), "'disallow' or 'allow'")
    types = {"ROBOTSTXT_USER_AGENT": str, "POLITESSE_CACHE": CacheOptions, "POLITESSE_PACING": PacingOptions}
    check_types({name: (settings.get(name), kind) for name, kind in types.items()})
    named, cache = settings["ROBOTSTXT_USER_AGENT"], settings.get("POLITESSE_CACHE") or CacheOptions()
    # Scrapy 2.14 reads the spider's attribute directly, later versions copy it to the settings.
    delay = _of_spider(crawler, "download_delay")
    floor_s = seconds_of("DOWNLOAD_DELAY", settings.get("DOWNLOAD_DELAY", 0.0) if delay is None else delay)
    fleet = fleet_of(settings)
    try:
        pacer = _pacer(settings.get("POLITESSE_PACING") or PacingOptions(), fleet)
        gate = Gatekeeper(
            _of_spider(crawler, "user_agent") or settings["USER_AGENT"] or "",
            token=first_word(named) if named else None,
            cache=cache if on_error == "disallow" else replace(cache, on_too_many_requests="allow"),
            pacer=pacer,
            pacing=replace(pacer.options, min_delay_s=floor_s),
            fetcher=fetcher,
            store=_store(settings, pacer),
            fleet=fleet,
            signer=settings.get("POLITESSE_SIGNER"),
            ledger=_given(settings, "POLITESSE_LEDGER", "the path of a file, a Ledger") or None,
        )
    except ConfigurationError as error:
        raise _in_terms_of_settings(str(error)) from None
    _set_floors(gate, settings)
    return gate


def fleet_of(settings: BaseSettings) -> FleetOptions | None:
    """Return the fleet of a crawl, if it has a fleet.

    Raises:
        ConfigurationError: ``POLITESSE_FLEET`` is neither a URL nor FleetOptions.
    """
    given = settings.get("POLITESSE_FLEET")
    if given is None or given is False or given in _OFF:
        return None
    if isinstance(given, str | FleetOptions):
        return FleetOptions(given) if isinstance(given, str) else given
    # The message leaves out the value, which may hold a password.
    wanted = "the URL of a Redis, as 'redis://host:6379/0', a politesse.options.FleetOptions, or False for none"
    raise ConfigurationError(f"POLITESSE_FLEET: give {wanted}, no {type_name(given)}")


def _pacer(pacing: PacingOptions, fleet: FleetOptions | None) -> SharedPacer:
    """Return the pacer that all crawls of this process with the same fleet, ``scope``, ``key`` and limits share.

    Each crawl keeps its own ``min_delay_s``. All other options come from the first crawl.
    """
    paced = {"key": pacing.key, "address": pacing.address, "domain": pacing.domain}
    scope = pacing.scope or ", ".join(f"{name}={value!r}" for name, value in paced.items() if value is not None)
    key = (pacing.key, pacing.address, pacing.domain, pacing.scope, fleet)
    pacer = _PACERS.get(key)
    if pacer is None:
        options = replace(pacing, min_delay_s=0.0, max_concurrent=1, scope="")
        pacer = _PACERS[key] = SharedPacer(options, fleet=fleet)
        if not pacing.scope and fleet is None:
            _, pacer.marks, _ = of_clock(pacer.clock)  # crawls that run one after the other keep the pace as well
    logger.info("The pace of each host is shared with the spiders of this process that have the same scope: %s", scope)
    if fleet is not None:
        logger.info("The pace of each host is shared with all processes of the fleet: %s", fleet)
    return pacer


def _store(settings: BaseSettings, pacer: SharedPacer) -> Store | str | Path | None:
    """Return the store of a crawl; None for the store of its fleet."""
    given = _given(settings, "POLITESSE_STORE", "the path of a file, a store")
    if given is not None and given is not False:
        return cast("Store | str | Path", given)
    if pacer.fleet is not None:
        return None if given is None else MemoryStore()
    folder = job_directory(settings) if given is None else None
    return _COPIES.setdefault(pacer, SharedMemoryStore()) if folder is None else folder / _STORE


def _given(settings: BaseSettings, name: str, wanted: str) -> Any:  # noqa: ANN401 - as the project gives it
    """Return the value of a setting: None if it is not set, False if it is turned off; raises ConfigurationError."""
    given = settings.get(name)
    if given is True:
        raise ConfigurationError(f"{name}=True: give {wanted}, or False for none")
    return False if given in _OFF else given


def seconds_of(name: str, given: Any) -> float:  # noqa: ANN401 - as the project gives it
    """Return the value of a setting in seconds; raises ConfigurationError if it is negative or not a number."""
    try:
        seconds = -1.0 if isinstance(given, bool) else float(given)
    except (TypeError, ValueError, OverflowError):
        seconds = -1.0
    if not seconds >= 0:
        raise ConfigurationError(f"{name}={given!r:.100}: give a number of seconds, 0 or more")
    return seconds


def _of_spider(crawler: Crawler, name: str) -> Any:  # noqa: ANN401 - as the spider's author gives it
    # Tests of middlewares often have no spider, or a mock with every attribute.
    return getattr(crawler.spider, name, None) if isinstance(crawler.spider, Spider) else None


def _in_terms_of_settings(problem: str) -> ConfigurationError:
    if problem.startswith("user_agent="):
        problem = problem.removeprefix("user_agent=").removesuffix(AS_IN_EXAMPLE)
        example = "USER_AGENT = 'ExampleBot/1.0 (+https://example.com/bot)'"
        return ConfigurationError(f"USER_AGENT={problem}, as in {example}")
    return ConfigurationError(
        f"{problem} (in Scrapy token is the setting ROBOTSTXT_USER_AGENT, store POLITESSE_STORE, ledger "
        "POLITESSE_LEDGER, fleet POLITESSE_FLEET, signer POLITESSE_SIGNER, private_addresses "
        "POLITESSE_PRIVATE_ADDRESSES)"
    )


def _set_floors(gate: Gatekeeper, settings: BaseSettings) -> None:
    """Use the ``delay`` of each host in ``DOWNLOAD_SLOTS`` as ``min_delay_s`` of that host; ignore other slots."""
    for slot, options in settings.getdict("DOWNLOAD_SLOTS").items():
        if "delay" in options:
            try:
                gate.set_policy(slot, HostPolicy(min_delay_s=float(options["delay"])))
            except InvalidURL:
                logger.warning(
                    "DOWNLOAD_SLOTS[%r] has no effect: it is not a host, and politesse has one slot for each host", slot
                )
