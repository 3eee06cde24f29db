"""Runs a command in an event loop, and exits with its exit code."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer

from politesse._text import printable
from politesse.cli.console import abandon_output, errors, plain
from politesse.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from collections.abc import Coroutine

_INTERRUPTED: Final = 130  # what a shell shows for a program that Ctrl-C ended: 128 and SIGINT


def run(command: Coroutine[Any, Any, int]) -> NoReturn:
    """Run a command in an event loop, and exit with its exit code; 2 after an error of a file or a port."""
    try:
        code = asyncio.run(command)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except (OSError, ConfigurationError, StoreError) as error:  # a full disk, no free port, a file that is no store
        abandon_output()
        errors().print(plain(f"politesse: {printable(str(error))}", "red"), soft_wrap=True)
        code = 2
    raise typer.Exit(code)
