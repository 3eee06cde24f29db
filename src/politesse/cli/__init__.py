"""The command ``politesse``; needs the extra ``cli``.

::

    app        the commands and their options, as typer reads them
    asking     what the commands that ask have in common: the honest User-Agent, the gate
    reading    where explain and lint have a robots.txt from
    check      a few URLs, explained
    explain    one URL: the file with its line numbers, and what decided
    lint       what is wrong with a robots.txt
    filter     any number of URLs, from standard input to standard output; streams does its reading and writing
    demo/      a crawl of a little web on loopback, judged by the logs of its servers
"""

from __future__ import annotations

import io
import sys


def main() -> None:
    """Run the command; exits with 2 where the extra ``cli`` is not installed."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what the terminal cannot show is no reason to fail
    try:
        from politesse.cli.app import app  # noqa: PLC0415 - typer and rich are optional
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        sys.stderr.write(f"politesse: the command needs {error.name}; run: pip install 'politesse[cli]'\n")
        sys.exit(2)
    app()
