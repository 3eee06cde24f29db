"""The commands and their options, as typer reads them."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from politesse import Dialect, InvalidURL, __version__
from politesse.cli import check_command
from politesse.cli import explain_command
from politesse.cli import filter_command
from politesse.cli import lint_command
from politesse.cli.gate_options import Asking, run
from politesse.cli.console import errors, output
from politesse.cli.demo import Plan
from politesse.cli.demo import run as run_demo

app = typer.Typer(
    name="politesse",
    help="Ask before you crawl: what does robots.txt permit, and why?",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback without the values of variables, which may be secret
    context_settings={"help_option_names": ["-h", "--help"]},
)

Agent = Annotated[
    str,
    typer.Option(
        metavar="TOKEN_OR_UA",
        help="Judge for this product token, or for that of this User-Agent. It is not sent: "
        "robots.txt is asked for in politesse's own name.",
    ),
]
InDialect = Annotated[
    Dialect,
    typer.Option("--dialect", metavar="NAME", help=f"Read as one of {', '.join(one.value for one in Dialect)}."),
]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=0.001, help="For one robots.txt with its redirects.")]


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        output().print(f"politesse {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def common(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Ask before you crawl: what does robots.txt permit, and why?"""


@app.command()
def check(
    urls: Annotated[list[str], typer.Argument(metavar="URL", help="Absolute http or https URLs.")],
    agent: Agent = "politesse",
    timeout: Timeout = 30.0,
    *,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON object per line instead: url, allowed, reason, agent, "
            "rule {line, field, value}, source {robots_url, result, status, final_url, fetched, fresh_until, fault}, "
            "age_s, not_before, note; and page with --page.",
        ),
    ] = False,
    page: Annotated[
        bool,
        typer.Option(
            "--page",
            help="Fetch each page that is allowed, in its turn, and tell what it says itself: directives for robots, "
            "links to follow, usage preferences; and of its site the sitemaps, tdmrep.json and data.txt.",
        ),
    ] = False,
) -> None:
    """Tell whether robots.txt allows each URL, by which line, and how long that holds.

    Exit code: 0 if all are allowed, 1 if some are not, 2 if some could not be told, fetched, or were no URL.
    """
    asking = _asking(agent, timeout)
    checking = check_command.check(asking, urls, output(), errors(), as_json=as_json, with_page=page)
    raise typer.Exit(run(checking))


@app.command()
def explain(
    url: Annotated[str, typer.Argument(metavar="URL", help="An absolute http or https URL.")],
    agent: Agent = "politesse",
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Read this instead of asking the site; - for standard input.")
    ] = None,
    dialect: InDialect = Dialect.RFC9309,
    timeout: Timeout = 30.0,
    *,
    all_dialects: Annotated[
        bool,
        typer.Option(
            "--all-dialects", help="Print one line for each dialect, with a star where it is not as in --dialect."
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print a JSON object for each dialect instead: the keys of check, dialect, groups [{agents, lines}], "
            "matches [{line, field, value, length}].",
        ),
    ] = False,
) -> None:
    """Show robots.txt with the groups that count, the rules that match, the one that decides, and why.

    Exit code: 0 if the URL is allowed, 1 if it is not, 2 if that could not be told.
    """
    asking = _asking(agent, timeout)
    dialects = list(dict.fromkeys([dialect, *Dialect])) if all_dialects else [dialect]
    try:
        code = run(explain_command.explain_url(asking, url, file, dialects, output(), as_json=as_json))
    except InvalidURL as error:
        raise typer.BadParameter(str(error)) from error
    raise typer.Exit(code)


@app.command("filter")
def filter_(
    agent: Agent = "politesse",
    timeout: Timeout = 30.0,
    rejected: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="Write the other URLs here, each with a tab and the reason."),
    ] = None,
    max_pending: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many URLs may wait for a robots.txt at once.")
    ] = 10_000,
) -> None:
    """Pass on the allowed ones of the URLs on standard input, one per line, each as soon as it is known.

    They come out in another order than they went in. Exit code: 0 if all were judged, denied ones too; 2 if some could
    not be told.
    """
    asking = _asking(agent, timeout)
    raise typer.Exit(run(filter_command.filter_stdin(asking, errors(), rejected, max_pending)))


def _show_codes(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        lint_command.print_codes(output())
        raise typer.Exit


@app.command()
def lint(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|URL", help="Files, - for standard input, or http(s) URLs of sites whose robots.txt is meant."
        ),
    ],
    dialect: InDialect = Dialect.RFC9309,
    timeout: Timeout = 30.0,
    *,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object per line instead: file, line, column, severity, code, message."
        ),
    ] = False,
    codes: Annotated[
        bool, typer.Option("--codes", callback=_show_codes, is_eager=True, help="List the codes and what they mean.")
    ] = False,
) -> None:
    """Tell what is wrong with robots.txt, what never takes effect, and what others would misread.

    Exit code: 0 without errors, warnings or not; 1 with errors; 2 if something could not be read.
    """
    del codes  # it was eager: this is not reached with it
    asking = _asking("politesse", timeout)
    raise typer.Exit(run(lint_command.lint_all(asking, sources, dialect, output(), errors(), as_json=as_json)))


@app.command()
def demo(
    pages: Annotated[int, typer.Option(metavar="N", min=200, help="How many pages to make.")] = 3_000,
    tasks: Annotated[int, typer.Option(metavar="N", min=1, max=1_000, help="How many tasks crawl at once.")] = 20,
    seed: Annotated[int, typer.Option(metavar="N", help="Another seed makes another web.")] = 9309,
) -> None:
    """Crawl a little web on this machine, and let the logs of its servers judge the crawl.

    Exit code: 0 if every allowed page was served, and none was requested that is forbidden, before its robots.txt was
    got, or sooner than its server or the crawler's own floor permits; else 1.
    """
    raise typer.Exit(run(run_demo(output(), Plan(pages=pages, tasks=tasks, seed=seed))))


def _asking(agent: str, timeout_s: float) -> Asking:
    try:
        return Asking.of(agent, timeout_s)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
