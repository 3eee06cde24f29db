"""The command ``politesse``; needs the extra ``cli``.

::

    app             the command line, which typer reads
    rules_commands  check: a few URLs, with their pages and hosts; filter: any number, from standard input;
                    explain and lint: one robots.txt, line by line; diff: the differences between two
    crawl_command   crawls with PoliteQueue.crawl, and writes a line per URL
    watch_command   shows the hosts of a crawl that runs elsewhere
    progress        CrawlBar, a progress bar for programs that crawl; the table of the command
    guide_command   the guides in politesse/guides
    audit_command   judges access logs and request logs
    ledger_command  checks, shows and exports a ledger
    store_command   the records in a file of --store
    fleet_command   the hosts of a fleet
    bot_command     the card and the page of a bot, and the keys that sign its requests
    running         the options, the gate and the event loop of a command, its exit code, and Ctrl-C
    console         how the commands read and write
    demo/           a crawl of a small web on loopback, judged by the logs of its servers
"""

from __future__ import annotations

import io
import os
import signal
import sys

TYPE_CHECKING = False  # replaces ``typing.TYPE_CHECKING``, because typing takes time to load

if TYPE_CHECKING:
    from types import FrameType


def main() -> None:
    """Run the command; exits with 2 if the extra ``cli`` is not installed."""
    # The imports below take half a second. Until a command runs, Ctrl-C ends the program at once.
    try:  # noqa: SIM105 - contextlib takes time to load
        signal.signal(signal.SIGINT, _end)
    except ValueError:  # this is not the main thread, so it cannot set a signal handler
        pass
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a character outside the stream's encoding is escaped
    try:
        from politesse.cli.app import app  # noqa: PLC0415 - typer and rich are optional
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        from politesse._base.text import needs_extra  # noqa: PLC0415

        sys.stderr.write(f"politesse: {needs_extra('the command', 'cli')} ({error})\n")
        sys.exit(2)
    app()


def _end(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)  # the exit code that a shell shows after a signal
