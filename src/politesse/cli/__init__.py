"""The command ``politesse``; needs the extra ``cli``.

::

    app              the commands and their options, as typer reads them
    gate_options     what the commands share: the User-Agent, the product token, the gate, where a robots.txt is read
    check_command    a few URLs, explained; page_report reads their pages
    explain_command  one URL: the file with its line numbers, and the rule that decides
    lint_command     what is wrong with a robots.txt
    filter_command   any number of URLs, from standard input to standard output; streams reads and writes
    crawl_command    the loop of PoliteQueue.crawl: crawl_records writes a line for each URL, crawl_view is the table,
                     interrupts is Ctrl-C
    guide_command    the guides in politesse/guides, formatted for a terminal
    progress         CrawlBar, a progress bar for programs that crawl
    console          where the commands write to
    demo/            a crawl of a small web on loopback, judged by the logs of its servers
"""

from __future__ import annotations

import io
import sys

from politesse._text import needs_extra


def main() -> None:
    """Run the command; exits with 2 if the extra ``cli`` is not installed."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a character that the terminal lacks is no error
    try:
        from politesse.cli.app import app  # noqa: PLC0415 - typer and rich are optional
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        sys.stderr.write(f"politesse: {needs_extra('the command', 'cli')} ({error})\n")
        sys.exit(2)
    app()
