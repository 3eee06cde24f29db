"""Names that ``import politesse`` offered in earlier releases, and the module that has each today.

Python calls a module's ``__getattr__`` only for a name that the module lacks (PEP 562), so the names that it has cost
nothing more. The value is not kept in the package: each place that uses an old name is to get its own warning, and the
filters of ``warnings`` print one per place. An import statement asks twice for the name, from the same line.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Final

_NAMES_BY_HOME: Final = {
    "politesse.errors": ("PolitesseWarning", "StoreError", "WrongEventLoop"),
    "politesse.events": (
        "AddressNotFound",
        "ComponentFailed",
        "Decided",
        "Event",
        "HeaderOverruled",
        "LongDelay",
        "MatchingBounded",
        "RobotsFetched",
        "SiteFileFetched",
    ),
    "politesse.fetch": ("AiohttpFetcher", "PublicResolver"),
    "politesse.options": ("Limit",),
    "politesse.queue": ("QueueStatistics", "QueuedTurn"),
    "politesse.robots": ("RejectedSitemap",),
    "politesse.sites": ("DataRecord", "DataTxt", "DataTxtAnswer", "FileOutcome", "SiteFile", "Sitemaps"),
    "politesse.status": ("Statistics",),
    "politesse.stores": ("MemoryStore",),
    "politesse.usage": ("Preference", "Purpose", "Usage"),
    "politesse.verdict": ("AccessResult", "Match", "Rule", "Source"),
}

_HOMES: Final = {name: home for home, names in _NAMES_BY_HOME.items() for name in names}


def former_name(name: str) -> object:
    """Return what the package ``politesse`` offered under a name in earlier releases, with a DeprecationWarning.

    Args:
        name: the name that the package lacks.

    Raises:
        AttributeError: no release had it.
    """
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module 'politesse' has no attribute {name!r}", name=name)
    message = f"politesse.{name} is deprecated until 1.0, which removes it: import {name} from {home}"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return getattr(import_module(home), name)
