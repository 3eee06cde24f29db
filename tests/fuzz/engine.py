"""One target under atheris, in a process of its own: atheris never returns.

``python -m tests.fuzz.engine MODULE [libFuzzer options and directories]``
"""

from __future__ import annotations

import importlib
import sys

import atheris


def main() -> None:
    """Fuzz the target of a module until libFuzzer ends."""
    module, *arguments = sys.argv[1:]
    with atheris.instrument_imports(include=["politesse"]):
        target = importlib.import_module(module).TARGET
    atheris.Setup([module, *arguments], target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
