"""Where a crawl keeps what it knows of sites: ``POLITESSE_STORE``, by default in JOBDIR."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from scrapy.utils.job import job_dir

from politesse.errors import ConfigurationError

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

    from politesse.ports import Store

_FILE: Final = "robots.db"  # in JOBDIR
_NONE: Final = ("", "0", "False", "false")  # as ``-s POLITESSE_STORE=`` gives it


def store_of(settings: BaseSettings) -> Store | str | Path | None:
    """Return the store of a crawl as Gatekeeper takes it; None for the memory of the process.

    Raises:
        ConfigurationError: ``POLITESSE_STORE`` is True.
    """
    given: Store | str | Path | bool | None = settings.get("POLITESSE_STORE")
    if given is True:
        raise ConfigurationError("POLITESSE_STORE=True: give the path of a file, a store, or False for none")
    if given is None:
        folder = job_dir(settings)
        return None if folder is None else Path(folder, _FILE)
    return None if given is False or (isinstance(given, str) and given in _NONE) else given
