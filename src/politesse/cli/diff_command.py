"""``politesse diff``: the rules that differ between two robots.txt, and the URLs with different answers."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Final

import typer

from politesse import Dialect, RobotsTxt
from politesse._base.text import printable
from politesse.cli.console import STANDARD, errors, output, say, say_json
from politesse.cli.file_commands import problem_of, read_robots
from politesse.cli.filter_command import url_lines, url_of
from politesse.cli.running import AsJson, GateOptions, checked_arguments
from politesse.errors import ConfigurationError, InvalidURL
from politesse.robots.agents import EVERYBODY
from politesse.robots.changes import RobotsChange, RobotsDiff

_MAX_NAMES: Final = 10
_TIMEOUT_S: Final = 30.0

Source = Annotated[str, typer.Argument(metavar="FILE|URL", help="A file, - for standard input, or the URL of a site.")]
Agents = Annotated[
    list[str] | None,
    typer.Option(
        "--agent", metavar="TOKEN", help="Only for this crawler; may be repeated. * for all that no group names."
    ),
]
Urls = Annotated[
    typer.FileBinaryRead | None,
    typer.Option("--urls", metavar="FILE", help="Also judge each URL of this list by both files."),
]


async def diff(
    before: Source, after: Source, agent: Agents = None, urls: Urls = None, *, as_json: AsJson = False
) -> int:
    """Show the rules, delays and sitemaps that differ between two robots.txt, and the URLs with different answers.

    The order and the repetition of rules do not matter. A rule that changes no answer is shown with "no effect".
    Without --agent, the files are compared for each crawler that they name, and for all others (*).

    Exit code: 0 if the files are equal in effect, 1 if they differ, 2 if a file, or a URL of the list, cannot be read.

    With --json: kind (rule, directive or decision), agents, subject, before {text, line}, after {text, line},
    has_effect, times.
    """
    with checked_arguments():
        if before == after == STANDARD:
            raise ConfigurationError("standard input (-) can be read only once")
        tokens = tokens_of(agent)
    files: list[RobotsTxt] = []
    for source in (before, after):
        try:
            _, body, _ = await read_robots(GateOptions.of("politesse", _TIMEOUT_S), source, Dialect.RFC9309)
        except (OSError, InvalidURL) as error:
            raise ConfigurationError(f"{source}: {problem_of(source, error)}") from error
        files.append(RobotsTxt.parse(body))
    compared = RobotsDiff(files[0], files[1], tokens)
    changes = list(compared.changes())
    print_changes(changes, as_json=as_json)
    code = int(any(change.has_effect for change in changes))
    if urls is not None:
        async with aclosing(url_lines(urls.fileno())) as lines:
            async for line in lines:
                try:
                    print_changes(compared.decisions(url_of(line)), as_json=as_json)
                except InvalidURL as error:
                    say(errors(), f"politesse: {printable(str(error))}", "red")
                    code = 2
    if not code and not as_json:
        say(output(), "equal in effect")
    return code


def tokens_of(agents: Iterable[str] | None) -> list[str]:
    """Return the product tokens of ``--agent``; raises BadParameter."""
    return [name if name == EVERYBODY else GateOptions.of(name, _TIMEOUT_S).token for name in agents or ()]


def print_changes(changes: Iterable[RobotsChange], *, as_json: bool) -> None:
    """Print changes as lines of JSON, or as text below the names of their crawlers."""
    out = output()
    for agents, alike in groupby(changes, attrgetter("agents")):
        if not as_json:
            names = ", ".join(agents[:_MAX_NAMES]) + (", ..." if len(agents) > _MAX_NAMES else "")
            say(out, f"{printable(names) or 'all crawlers'}:", "bold")
        for change in alike:
            say_json(out, asdict(change)) if as_json else say(out, f"  {printable(str(change))}")
