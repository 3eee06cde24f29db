"""The compiled core of ``politesse.robots``, in C11: optional, and not part of the public interface.

::

    scan.c    octets -> rows -> the groups that name a crawler        as robots/lexer.py, robots/outline.py
    forms.c   paths and targets -> their normal forms                 as robots/pattern.py
    rules.c   rules -> sorted tables; target -> the rule that decides as robots/rule_sets.py
    module.c  the binding for Python, by the limited API of CPython 3.11: one binary for all later versions (build.py)

The core serves the dialects in which the most specific match decides. Python reads the records besides rules and
user-agent lines, and normalises rare targets. The core gives the same answers as the reference in Python, which also
runs without the core.
"""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Final

from politesse._base.checks import ConfigurationError

if TYPE_CHECKING:
    from types import ModuleType

_PURE: Final = os.environ.get("POLITESSE_PURE", "")
if _PURE not in {"", "0", "1"}:
    raise ConfigurationError(f"POLITESSE_PURE={_PURE!r}: 1 has the rules of robots.txt decided in Python, 0 does not")

core: ModuleType | None = None
if _PURE != "1":
    try:
        core = import_module("politesse._native._core")
    except ModuleNotFoundError:
        pass  # the core was not built, because there was no compiler
    except ImportError as error:
        warnings.warn(f"the rules of robots.txt are decided in Python, slowly: {error}", RuntimeWarning, stacklevel=2)
