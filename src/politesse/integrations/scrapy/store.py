"""Where a crawl keeps what it knows of sites: in ``POLITESSE_STORE``, by default in its fleet or in JOBDIR."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from scrapy.utils.job import job_dir

from politesse._pacing.fleet.options import FleetOptions
from politesse._text import type_name
from politesse.errors import ConfigurationError
from politesse.stores.memory import MemoryStore

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

    from politesse.ports import Store

_FILE: Final = "robots.db"  # in JOBDIR
_NONE: Final = ("", "0", "False", "false")  # as ``-s POLITESSE_STORE=`` gives it


def store_of(settings: BaseSettings) -> Store | str | Path | None:
    """Return the store of a crawl as Gatekeeper takes it; None for that of its fleet, or the memory of the process.

    Raises:
        ConfigurationError: ``POLITESSE_STORE`` is True; or ``POLITESSE_FLEET`` is invalid.
    """
    given: Store | str | Path | bool | None = settings.get("POLITESSE_STORE")
    if given is True:
        raise ConfigurationError("POLITESSE_STORE=True: give the path of a file, a store, or False for none")
    in_fleet = fleet_of(settings) is not None
    if given is None:
        folder = job_dir(settings)
        return None if folder is None or in_fleet else Path(folder, _FILE)
    if given is False or (isinstance(given, str) and given in _NONE):
        return MemoryStore() if in_fleet else None
    return given


def fleet_of(settings: BaseSettings) -> FleetOptions | None:
    """Return the fleet of a crawl; None if it has none.

    Raises:
        ConfigurationError: ``POLITESSE_FLEET`` is neither a URL nor FleetOptions.
    """
    given: FleetOptions | str | bool | None = settings.get("POLITESSE_FLEET")
    if given is None or given is False or (isinstance(given, str) and given in _NONE):
        return None
    if isinstance(given, FleetOptions):
        return given
    if isinstance(given, str):
        return FleetOptions(given)
    # Without the value, which may hold a password.
    wanted = "the URL of a Redis, as 'redis://host:6379/0', a politesse.options.FleetOptions, or False for none"
    raise ConfigurationError(f"POLITESSE_FLEET: give {wanted}, no {type_name(given)}")
