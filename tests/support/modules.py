"""The modules of the package, by name."""

from __future__ import annotations

import pkgutil
from typing import Final

import politesse

MODULES: Final = sorted(
    module.name
    for module in pkgutil.walk_packages(politesse.__path__, "politesse.")
    if not module.name.endswith("__main__")
)
