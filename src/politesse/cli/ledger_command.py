"""``politesse ledger``: checks, shows and exports a ledger."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from politesse._base.text import counted, printable
from politesse.cli.console import as_text, errors, output, record_of, say, say_json
from politesse.cli.diff_command import Agents, tokens_of
from politesse.cli.history_command import print_history
from politesse.cli.running import AsJson, checked_arguments, run
from politesse.errors import ConfigurationError, InvalidURL
from politesse.ledger import LedgerReader, verify
from politesse.origin import Origin, split
from politesse.verdict import utc

_TOGETHER: Final = 1_000  # after this many rows, Ctrl-C can end the command

app: typer.Typer = typer.Typer(
    name="ledger", help="Check, show and export a ledger, also while a crawler writes to it.", no_args_is_help=True
)

LedgerFile = Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="The first file of the ledger.")]


@app.command(name="verify")
def verify_command(
    ledger: LedgerFile,
    *,
    head: Annotated[str, typer.Option(metavar="HASH", help="A hash that you noted earlier; a row must have it.")] = "",
    as_json: AsJson = False,
) -> None:
    """Check that no row of a ledger was altered, removed or swapped, and print the hash of the last row.

    Exit code: 1 at the first row that was changed.

    With --json: files, rows, head, problem, dropped, unclosed, is_sealed.
    """
    run(_verify(ledger, head.lower(), as_json=as_json))


@app.command()
def show(
    ledger: LedgerFile,
    *,
    url: Annotated[str, typer.Option(metavar="PREFIX", help="Only URLs that begin with PREFIX.")] = "",
    host: Annotated[str, typer.Option(metavar="HOST", help="Only URLs of this host.")] = "",
    since: Annotated[datetime | None, typer.Option(help="Only from this time on, in UTC.")] = None,
    until: Annotated[datetime | None, typer.Option(help="Only before this time, in UTC.")] = None,
    denied: Annotated[bool, typer.Option("--denied", help="Only decisions that denied.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show decisions, turns and copies of files.

    Exit code: 1 if nothing was found.

    With --json: file, row, kind, content, hash.
    """
    limits = [None if time is None else time.replace(tzinfo=UTC).timestamp() for time in (since, until)]
    run(_show(ledger, _Filter(url, host.lower(), limits[0], limits[1], denied=denied), as_json=as_json))


@app.command()
def export(
    ledger: LedgerFile,
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", dir_okay=False, help="Where to: a new file .jsonl, .warc or .warc.gz.")
    ],
) -> None:
    """Write a ledger as lines of JSON, with the keys of show --json, or as a WARC file (extra warc).

    A line with a copy of a file also has body, the file as text, or body_base64 if it is not UTF-8. The WARC file has
    a response record for each copy of a file, and a metadata record for each decision.
    """
    is_warc = target.name.endswith((".warc", ".warc.gz"))
    with checked_arguments():
        if not is_warc and target.suffix != ".jsonl":
            raise ConfigurationError(f"{target}: give a name that ends with .jsonl, .warc or .warc.gz")
        if target.exists():
            raise ConfigurationError(f"{target} exists: give another name")
    run(_export_warc(ledger, target) if is_warc else _export(ledger, target))


@app.command()
def history(
    ledger: LedgerFile,
    site: Annotated[str, typer.Argument(metavar="URL", help="A URL of the site.")],
    agent: Agents = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show how the robots.txt of a site changed, and the past decisions that its last copy would not repeat.

    Exit code: 0 if the last copy repeats all decisions, 1 if not, 2 if the ledger lacks the site or cannot be read.

    With --json: for each new copy fetched, result, status, digest, fault; then the keys of politesse diff. In
    a decision, times says how often it was made.
    """
    with checked_arguments():
        origin, agents = Origin.of(site), tokens_of(agent)
    run(print_history(ledger, origin, agents, as_json=as_json))


@dataclass(frozen=True, slots=True)
class _Filter:
    url: str
    host: str
    since_wall: float | None
    until_wall: float | None
    denied: bool

    def wants(self, content: dict[str, Any]) -> bool:
        """Return whether a row about a URL is to be shown."""
        url, wall = content["url"], _wall_of(content)
        return (
            url.startswith(self.url)
            and (not self.host or _host_of(url) == self.host)
            and (self.since_wall is None or wall >= self.since_wall)
            and (self.until_wall is None or wall < self.until_wall)
            and not (self.denied and content.get("allowed", True))
        )


def _wall_of(content: dict[str, Any]) -> float:
    """Return the time of a row about a URL."""
    return float(content.get("decided_wall") or content.get("started_wall") or content["recorded_wall"])


def _host_of(url: str) -> str:
    try:
        return split(url)[0].host
    except InvalidURL:
        return ""


async def _verify(path: Path, head: str, *, as_json: bool) -> int:
    found = await asyncio.to_thread(verify, path, head=head)
    names = "files rows head problem dropped unclosed is_sealed"
    if as_json:
        say_json(output(), record_of(found, names))
        return 0 if found.is_intact else 1
    if not found.is_intact:
        say(output(), f"{printable(found.problem)}; {counted(found.rows, 'row')} before it intact", "red")
        return 1
    say(
        output(),
        f"{counted(found.rows, 'row')} in {counted(found.files, 'file')} intact; the last hash is {found.head}",
    )
    if found.dropped:
        say(output(), f"{counted(found.dropped, 'row')} dropped while too many waited to be written", "yellow")
    if found.unclosed:
        say(output(), f"{counted(found.unclosed, 'writer')} still at work, or ended without a close", "yellow")
    return 0


async def _rows(ledger: LedgerReader) -> AsyncGenerator[tuple[dict[str, Any], dict[str, Any]], None]:
    """Yield the rows as ``--json`` prints them, each with its content."""
    for count, (file, row) in enumerate(ledger.rows()):
        if count % _TOGETHER == 0:
            await asyncio.sleep(0)
        content: dict[str, Any] = json.loads(row.content)
        yield {"file": file, "row": row.number, "kind": row.kind, "content": content, "hash": row.hash.hex()}, content


async def _show(path: Path, wanted: _Filter, *, as_json: bool) -> int:
    out, shown = output(), 0
    with LedgerReader(path) as ledger:
        async for row, content in _rows(ledger):
            if "url" in content and wanted.wants(content):
                shown += 1
                say(out, json.dumps(row) if as_json else _line(row["kind"], content))
    if not shown and not as_json:
        say(out, "nothing was found", "yellow")
    return 0 if shown else 1


def _line(kind: str, content: dict[str, Any]) -> str:
    wall = utc(_wall_of(content))
    if kind == "decision":
        answer = "allowed" if content["allowed"] else "denied"
        why = f"line {content['line']}, {content['rule']!r}" if "line" in content else content.get("note", "")
    elif kind == "turn":
        answer, why = "requested", f"{content['ended_wall'] - content['started_wall']:.3f} s"
        content = {"reason": content.get("exempt", ""), **content}
    else:
        answer, why = "copy of", content.get("digest", content.get("fault", ""))
        content = {"reason": content["result"], **content}
    words = [wall, answer, content["url"], content.get("agent"), content["reason"], content.get("status"), why]
    return printable(" ".join(str(word) for word in words if word not in (None, "")))


async def _export(path: Path, target: Path) -> int:
    written = 0
    with LedgerReader(path) as ledger, target.open("x", encoding="ascii") as file:
        async for row, content in _rows(ledger):
            has_body = row["kind"] == "snapshot" and "digest" in content
            body = as_text(ledger.body(row["file"], content["digest"]) or b"") if has_body else {}
            file.write(json.dumps(row | body) + "\n")
            written += 1
    say(errors(), f"{counted(written, 'row')} written")
    return 0


async def _export_warc(path: Path, target: Path) -> int:
    try:
        from politesse.integrations.warc import WarcFile  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(str(error)) from error
    with LedgerReader(path) as ledger:
        async with WarcFile(target, {"description": "a ledger of politesse"}) as archive:
            written = await asyncio.to_thread(archive.add_ledger, ledger)
    say(errors(), f"{counted(written, 'record')} written")
    return 0
