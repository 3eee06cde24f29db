"""The command ``politesse``, which Ctrl-C ends without a traceback while it is still being imported.

It is beside the package: an import of any module of the package imports most of the package first.
"""

from __future__ import annotations

import sys
from typing import Final

_INTERRUPTED: Final = 130  # what a shell shows for a program that Ctrl-C ended: 128 and SIGINT


def main() -> None:
    """Run the command."""
    try:
        from politesse.cli import main as run  # noqa: PLC0415 - the import is what may be interrupted
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    run()
