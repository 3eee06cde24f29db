"""The commands of ``politesse store`` and their options, as typer reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from politesse import InvalidURL
from politesse.cli.console import errors, output
from politesse.cli.running import run
from politesse.cli.store_command import export as export_records
from politesse.cli.store_command import print_statistics, show_origin
from politesse.cli.store_command import prune as prune_records

app = typer.Typer(
    name="store",
    help="Look into a file of --store, and prune it, also while a crawler uses it.",
    no_args_is_help=True,
)

StoreFile = Annotated[
    Path, typer.Option("--store", metavar="FILE", exists=True, dir_okay=False, help="The file of the store.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead, with the keys named above.")]


@app.command()
def stats(store: StoreFile, *, as_json: AsJson = False) -> None:
    """Show how many robots.txt and hosts are kept, how many bytes they take, and when they were stored.

    With --json: robots, hosts, record_bytes, file_bytes, oldest, newest.
    """
    run(print_statistics(store, output(), as_json=as_json))


@app.command()
def show(
    origin: Annotated[str, typer.Argument(metavar="ORIGIN", help="An origin, or any URL of it.")],
    store: StoreFile,
    *,
    as_json: AsJson = False,
    body: Annotated[bool, typer.Option("--body", help="Show robots.txt itself, too.")] = False,
) -> None:
    """Show what is kept of an origin and of its host: the last answer, failures since, until when it is closed.

    Exit code: 1 if nothing is kept.

    With --json, for each record: key, kind, stored, and error if it cannot be read; robots: copy {result, status,
    final_url, fetched, fresh_until, etag, last_modified, bytes, fault}, trouble {result, status, final_url, fault,
    since, last, failures, retry}; host: noted, asked, under_way, closed_until, closed_by, backoff_s.
    """
    try:
        run(show_origin(store, origin, output(), as_json=as_json, with_body=body))
    except InvalidURL as error:
        raise typer.BadParameter(str(error)) from error


@app.command()
def prune(
    store: StoreFile,
    max_age: Annotated[
        float | None,
        typer.Option(metavar="DAYS", min=0.0, help="Delete what was stored longer ago."),
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Keep N bytes of records, those stored last.")
    ] = None,
) -> None:
    """Delete old records, and make the file smaller. A closed host whose record is deleted counts as open."""
    if max_age is None and max_bytes is None:
        raise typer.BadParameter("give --max-age or --max-bytes: nothing is deleted by itself")
    run(prune_records(store, output(), max_age_days=max_age, max_bytes=max_bytes))


@app.command()
def export(
    target: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", dir_okay=False, help="Where to; an earlier file is replaced.")
    ],
    store: StoreFile,
) -> None:
    """Write all records as lines of JSON, with the keys of show --json, and body: robots.txt as text.

    A robots.txt that is not UTF-8 has body_base64 instead. Exit code: 1 if some records cannot be read.
    """
    run(export_records(store, target, errors()))
