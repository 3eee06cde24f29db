"""``politesse ledger``: checks, shows and exports a ledger, and shows how the rules of a site changed."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from politesse._base.text import counted, printable
from politesse.cli.console import as_text, errors, output, record_of, say, say_json, say_record
from politesse.cli.rules_commands import Agents, print_changes, tokens_of
from politesse.cli.running import AsJson, checked_arguments
from politesse.errors import ConfigurationError, InvalidURL, StoreError
from politesse.ledger import LedgerReader, Snapshot, verify
from politesse.ledger._ledger import content_read
from politesse.origin import Origin, split
from politesse.robots import RobotsTxt
from politesse.robots.changes import FileStatement, RobotsChange, RobotsDiff, answer_of
from politesse.verdict import ALLOWING, AccessResult, Reason, utc

_BY_RULES: Final = {Reason.ALLOW_RULE, Reason.DISALLOW_RULE, Reason.NO_RULE}
_BY_COPY: Final = _BY_RULES | {Reason.UNAVAILABLE, Reason.FORBIDDEN, Reason.UNREACHABLE, Reason.TOO_MANY_REQUESTS}
_WITH_RULES: Final = {AccessResult.SUCCESSFUL, AccessResult.UNAVAILABLE}
_COMPLETE_DISALLOW: Final = b"User-agent: *\nDisallow: /"
_TOGETHER: Final = 1_000  # after this many rows the event loop runs, so that Ctrl-C can end the command

app: typer.Typer = typer.Typer(
    name="ledger", help="Check, show and export a ledger, also while a crawler writes to it.", no_args_is_help=True
)

Head = Annotated[str | None, typer.Option(metavar="HASH", help="A hash that you noted earlier; a row must have it.")]
LedgerFile = Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="The first file of the ledger.")]


@app.command(name="verify")
async def verify_command(
    ledger: LedgerFile,
    *,
    head: Head = None,
    as_json: AsJson = False,
) -> int:
    """Check that no row of a ledger was altered, removed or swapped, and print the hash of the last row.

    Exit code: 0 if all rows are intact, 1 if a row was changed.

    With --json: files, rows, head, problem, dropped, unclosed.
    """
    if head == "":  # such as "$HEAD" without a value
        raise typer.BadParameter("--head is empty: give the hash that you noted")
    out, found = output(), await asyncio.to_thread(verify, ledger, head=(head or "").lower())
    if as_json:
        say_json(out, asdict(found))
    elif found.is_intact:
        whole = f"{counted(found.rows, 'row')} in {counted(found.files, 'file')} intact"
        say(out, f"{whole}; the last hash is {found.head}")
        if found.dropped:
            say(out, f"{counted(found.dropped, 'row')} dropped while too many waited to be written", "yellow")
        if found.unclosed:
            say(out, f"{counted(found.unclosed, 'writer')} still at work, or ended without a close", "yellow")
    else:
        say(out, f"{printable(found.problem)}; {counted(found.rows, 'row')} before it intact", "red")
    return 0 if found.is_intact else 1


@app.command()
async def show(
    ledger: LedgerFile,
    *,
    url: Annotated[str, typer.Option(metavar="PREFIX", help="Only URLs that begin with PREFIX.")] = "",
    host: Annotated[str, typer.Option(metavar="HOST", help="Only URLs of this host.")] = "",
    since: Annotated[datetime | None, typer.Option(help="Only from this time on, in UTC.")] = None,
    until: Annotated[datetime | None, typer.Option(help="Only before this time, in UTC.")] = None,
    denied: Annotated[bool, typer.Option("--denied", help="Only decisions that denied.")] = False,
    as_json: AsJson = False,
) -> int:
    """Show decisions, turns, copies of files, and notes.

    Exit code: 1 if nothing was found.

    With --json: file, row, kind, content, hash.
    """
    bounds = since or datetime.min, until or datetime.max  # noqa: DTZ901 - in UTC, without a zone of its own
    first, last = (time.replace(tzinfo=time.tzinfo or UTC).timestamp() for time in bounds)

    def wants(content: dict[str, Any]) -> bool:
        wall = _wall_of(content)
        is_in_time = (since is None or first <= wall) and (until is None or wall < last)
        about = str(content.get("url", ""))  # a note has none
        is_at_host = not host or _host_of(about) == host.lower()
        is_wanted = not denied or not content.get("allowed", True)
        return is_in_time and is_at_host and is_wanted and about.startswith(url)

    out, shown = output(), 0

    def line_of(row: dict[str, Any]) -> str:
        is_shown = not row["content"].keys().isdisjoint({"url", "text"}) and wants(row["content"])
        return "" if not is_shown else json.dumps(row) if as_json else _line(row["content"])

    with LedgerReader(ledger) as reader:
        async for line in _lines(reader, line_of):
            shown += 1
            say(out, line)
    if not shown and not as_json:
        say(out, "nothing was found", "yellow")
    return 0 if shown else 1


@app.command()
async def export(
    ledger: LedgerFile,
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", dir_okay=False, help="Where to: a new file .jsonl, .warc or .warc.gz.")
    ],
) -> int:
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
    return await (_export_warc(ledger, target) if is_warc else _export(ledger, target))


@app.command()
async def history(
    ledger: LedgerFile,
    site: Annotated[str, typer.Argument(metavar="URL", help="A URL of the site.")],
    agent: Agents = None,
    *,
    as_json: AsJson = False,
) -> int:
    """Show how the robots.txt of a site changed, and the past decisions that its last copy would not repeat.

    Exit code: 0 if the last copy repeats all decisions, 1 if not, 2 if the ledger lacks the site or cannot be read.

    With --json, for each new copy: fetched, result, status, digest, fault; then, for each difference, the keys of
    politesse diff. The key times tells how often a past decision was made.
    """
    with checked_arguments():
        origin, agents = Origin.of(site), tokens_of(agent)
    last: Snapshot | None = None
    with LedgerReader(ledger) as reader:
        for copy in reader.snapshots(origin):
            if last is None or (copy.result, copy.digest) != (last.result, last.digest):
                record = record_of(copy, "fetched_wall result status digest fault")
                say_record(output(), record, as_json=as_json)
                if last is not None:
                    print_changes(RobotsDiff(_rules(last), _rules(copy), agents).changes(), as_json=as_json)
            last = copy
        if last is None:
            raise StoreError(f"the ledger {ledger} has no robots.txt of {origin}")
        different = _different(reader, origin, _rules(last), agents)
    if not as_json:
        say(
            output(), "past decisions that the last copy would not repeat:" if different else "no past decision differs"
        )
    print_changes((replace(change, times=times) for change, times in different.items()), as_json=as_json)
    return int(bool(different))


def _wall_of(content: dict[str, Any]) -> float:
    """Return the time of a row about a URL, or of a note."""
    times = ("decided_wall", "started_wall", "noted_wall")
    return float(next((content[name] for name in times if content.get(name)), None) or content["recorded_wall"])


def _host_of(url: str) -> str:
    try:
        return split(url)[0].host
    except InvalidURL:
        return ""


async def _lines(ledger: LedgerReader, line_of: Callable[[dict[str, Any]], str]) -> AsyncGenerator[str, None]:
    """Yield the lines of the rows, each as ``--json`` prints it; raises a StoreError that names a damaged row."""
    for count, (file, row) in enumerate(ledger.rows()):
        if count % _TOGETHER == 0:
            await asyncio.sleep(0)
        with ledger.blaming(file, row.number):
            found = {"file": file, "row": row.number, "kind": row.kind, "content": content_read(row)}
            line = line_of(found | {"hash": row.hash.hex()})
        if line:
            yield line


def _line(content: dict[str, Any]) -> str:
    match content:
        case {"allowed": is_allowed}:
            answer = "allowed" if is_allowed else "denied"
            why = f"line {content['line']}, {content['rule']!r}" if "line" in content else content.get("note")
        case {"text": text}:
            answer, why = "note", text
        case {"started_wall": started_wall, "ended_wall": ended_wall}:
            answer, why = "requested", f"{ended_wall - started_wall:.3f} s"
        case _:
            answer, why = "copy of", content.get("digest", content.get("fault"))
    words = [content.get(name) for name in ("url", "agent", "reason", "exempt", "result", "status")]
    return printable(" ".join(str(word) for word in (utc(_wall_of(content)), answer, *words, why) if word))


async def _export(path: Path, target: Path) -> int:
    written = 0
    with LedgerReader(path) as ledger, target.open("x", encoding="ascii") as file:

        def line_of(row: dict[str, Any]) -> str:
            digest = row["content"].get("digest") if row["kind"] == "snapshot" else None
            return json.dumps(row | ({} if digest is None else as_text(ledger.body(row["file"], digest) or b"")))

        async for line in _lines(ledger, line_of):
            file.write(line + "\n")
            written += 1
    say(errors(), f"{counted(written, 'row')} written")
    return 0


async def _export_warc(path: Path, target: Path) -> int:
    from politesse.integrations.warc import WarcFile  # noqa: PLC0415 - an extra

    with LedgerReader(path) as ledger:
        async with WarcFile(target, {"description": "a ledger of politesse"}) as archive:
            written = await asyncio.to_thread(archive.add_ledger, ledger)
    say(errors(), f"{counted(written, 'record')} written")
    return 0


def _rules(copy: Snapshot) -> RobotsTxt:
    """Return the file of a copy; for a copy without a file, return a file with the same effect."""
    return RobotsTxt.parse(copy.body if copy.result in _WITH_RULES else _COMPLETE_DISALLOW)


def _different(ledger: LedgerReader, origin: Origin, robots: RobotsTxt, agents: list[str]) -> Counter[RobotsChange]:
    """Count the past decisions that a given robots.txt would not repeat."""
    found: Counter[RobotsChange] = Counter()
    for past in ledger.decisions():
        tokens = tuple(past.agent.split(","))
        if past.reason in _BY_COPY and (not agents or set(agents) & set(tokens)) and Origin.of(past.url) == origin:
            match = robots.rules_for(tokens).match(past.url)
            if match.allowed is not (past.reason in ALLOWING):
                before = FileStatement(f"{'dis' * match.allowed}allowed, {past.rule or past.reason}", past.line)
                found[RobotsChange("decision", tokens, past.url, before, answer_of(match))] += 1
    return found
