"""The modules of the package, by name: all of them, and those that a program imports its names from."""

import pkgutil
from typing import Final

import politesse

MODULES: Final = sorted(
    module.name
    for module in pkgutil.walk_packages(politesse.__path__, "politesse.")
    if not module.name.endswith("__main__")
)

HOMES: Final = [
    "politesse",
    "politesse.audit",
    "politesse.errors",
    "politesse.events",
    "politesse.fetch",
    "politesse.ledger",
    "politesse.metrics",
    "politesse.options",
    "politesse.page",
    "politesse.queue",
    "politesse.robots",
    "politesse.signing",
    "politesse.sites",
    "politesse.status",
    "politesse.stores",
    "politesse.stores.redis",
    "politesse.sync",
    "politesse.testing",
    "politesse.usage",
    "politesse.verdict",
    "politesse.watch",
]
"""The public modules with an ``__all__``."""
