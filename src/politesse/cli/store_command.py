"""``politesse store``: looks into a file of ``--store``, and prunes it."""

from __future__ import annotations

import json
import time
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

import typer

from politesse._base.constants import DAY_S, PACE_KEYS
from politesse._base.text import counted, printable
from politesse._cache.records import decode, decode_state
from politesse.cli.console import as_lines, as_text, errors, output, record_of, say, say_json, say_record
from politesse.cli.running import AsJson, checked_arguments, file_option, number_option
from politesse.errors import ConfigurationError, StoreError
from politesse.origin import Origin
from politesse.stores import SqliteStore, StoredRecord
from politesse.stores.sqlite import StoreReader
from politesse.verdict import utc

app: typer.Typer = typer.Typer(
    name="store",
    help="Look into a file of --store, and prune it, also while a crawler uses it.",
    no_args_is_help=True,
)

StoreFile = Annotated[Path, file_option("The file of the store.", "--store", exists=True)]


@app.command()
async def stats(store: StoreFile, *, as_json: AsJson = False) -> int:
    """Show how many robots.txt and hosts are kept, how many bytes they take, and when they were stored.

    With --json: robots, hosts, record_bytes, file_bytes, oldest, newest.
    """
    hosts = 0
    async with aclosing(StoreReader(store)) as reader:
        statistics = await reader.statistics()
        async for stored in reader.records():
            hosts += stored.key.startswith(PACE_KEYS)
    found = {
        "robots": statistics.records - hosts,
        "hosts": hosts,
        **record_of(statistics, "record_bytes file_bytes oldest_wall newest_wall"),
    }
    say_record(output(), found, as_json=as_json)
    return 0


@app.command()
async def show(
    origin: Annotated[str, typer.Argument(metavar="ORIGIN", help="An origin, or any URL of it.")],
    store: StoreFile,
    *,
    as_json: AsJson = False,
    body: Annotated[bool, typer.Option("--body", help="Show robots.txt itself, too.")] = False,
) -> int:
    """Show the records of an origin and of its host: the last answer, later failures, and any closing.

    Exit code: 1 if nothing is kept.

    With --json, for each record: key, kind, stored, and error if it cannot be read; robots: copy {result, status,
    final_url, fetched, fresh_until, etag, last_modified, fault, bytes}, trouble {result, status, final_url, fault,
    since, last, failures, retry}; host: noted, asked, under_way, closed_until, closed_by, backoff_s.
    """
    with checked_arguments():
        parsed = Origin.of(origin)
    out = output()
    async with aclosing(StoreReader(store)) as reader:
        kept = [await reader.stored(key) for key in (str(parsed), f"{PACE_KEYS}host/{parsed.pacing_host}")]
    found = [_decoded(stored) for stored in kept if stored is not None]
    for record, octets in found:
        shown = octets if body else b""
        if as_json:
            say_json(out, _exported(record, shown))
        else:
            lines = [printable(record.pop("key")), *as_lines(record)]
            lines += (f"  | {printable(line)}" for line in shown.decode(errors="replace").splitlines())
            say(out, "\n".join(lines))
    if not found and not as_json:
        say(out, f"nothing is kept of {parsed}", "yellow")
    return 0 if found else 1


@app.command()
async def hosts(store: StoreFile, *, as_json: AsJson = False) -> int:
    """Show the hosts, addresses and domains that are closed now: until when, and why.

    With --json, for each host: the keys of show --json.
    """
    out, closed = output(), 0
    async with aclosing(StoreReader(store)) as reader:
        async for stored in reader.records():
            record = _decoded(stored)[0] if stored.key.startswith(PACE_KEYS) else {}
            # A record that cannot be read has no such key; ``export`` counts these records.
            if (record.get("closed_until") or "") > utc(time.time()):
                closed += 1
                line = "{key}: closed until {closed_until}, since {noted} at the latest: {closed_by}"
                say_json(out, record) if as_json else say(out, printable(line.format_map(record)))
    if not closed and not as_json:
        say(out, "no host is closed", "yellow")
    return 0


@app.command()
async def prune(
    store: StoreFile,
    max_age: Annotated[
        float | None,
        typer.Option(metavar="DAYS", min=0.0, help="Delete the records that were stored longer ago."),
    ] = None,
    max_bytes: Annotated[int | None, number_option("Keep the newest records, N bytes in all.", least=0)] = None,
) -> int:
    """Delete old records, and make the file smaller. A closed host whose record is deleted counts as open."""
    if max_age is None and max_bytes is None:
        raise typer.BadParameter("give --max-age or --max-bytes: nothing is deleted by itself")
    max_age_s = None if max_age is None else max_age * DAY_S
    async with aclosing(SqliteStore(store)) as opened:
        deleted = await opened.prune(max_age_s=max_age_s, max_bytes=max_bytes)
        left = await opened.statistics()
    kept = f"{left.records:,} left; the file has {left.file_bytes:,} bytes"
    say(output(), f"{counted(deleted, 'record')} deleted, {kept}")
    return 0


@app.command()
async def export(
    target: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", dir_okay=False, help="Where to; an earlier file is replaced.")
    ],
    store: StoreFile,
) -> int:
    """Write all records as lines of JSON, with the keys of show --json, and the key body, which has robots.txt as text.

    If a robots.txt is not UTF-8, the key is body_base64. Exit code: 1 if some records cannot be read.
    """
    with checked_arguments():
        if target.exists() and target.samefile(store):
            raise ConfigurationError(f"{target} is the store itself: give another name")
    written = unreadable = 0
    async with aclosing(StoreReader(store)) as reader:
        with target.open("w", encoding="ascii") as file:
            async for stored in reader.records():
                record, body = _decoded(stored)
                file.write(json.dumps(_exported(record, body)) + "\n")
                written += 1
                unreadable += "error" in record
    problem = f", {unreadable:,} of which cannot be read" if unreadable else ""
    say(errors(), f"{counted(written, 'record')} written{problem}")
    return 1 if unreadable else 0


def _decoded(stored: StoredRecord) -> tuple[dict[str, Any], bytes]:
    """Return a record as ``--json`` prints it, with ``error`` if it cannot be read, and its robots.txt if it has one.

    ``copy`` is the last definite answer, ``trouble`` the failures since then; each may be null. The key of a host is
    "pace/host/NAME"; for the pace of an address or a domain, it has "address" or "domain" in place of "host".
    """
    is_host = stored.key.startswith(PACE_KEYS)
    head = {"key": stored.key, "kind": "host" if is_host else "robots", "stored": utc(stored.stored_wall)}
    try:
        if is_host:
            return head | _host(stored), b""
        record = decode(stored.record, stored.key)
    except StoreError as error:
        return head | {"error": str(error)}, b""
    names = "result status final_url fault since_wall last_wall failures retry_wall"
    trouble = None if record.trouble is None else record_of(record.trouble, names)
    if record.answer is None:
        return head | {"copy": None, "trouble": trouble}, b""
    names = "result status final_url confirmed_wall fresh_until_wall etag last_modified fault"
    copy = record_of(record.answer, names) | {"bytes": len(record.body)}
    copy["fetched"] = copy.pop("confirmed")
    return head | {"copy": copy, "trouble": trouble}, record.body


def _exported(record: dict[str, Any], body: bytes) -> dict[str, Any]:
    """Return a record with the robots.txt: ``body`` (text), or ``body_base64`` if the file is not UTF-8."""
    return record | as_text(body) if body else record


def _host(stored: StoredRecord) -> dict[str, Any]:
    state = decode_state(stored.record, stored.key.removeprefix(PACE_KEYS).partition("/")[2])
    answers = state.answers
    closed = answers if answers is not None and answers.closed_s > 0 else None
    return {
        "noted": utc(state.wall),
        "asked": None if state.asked_s is None else utc(state.wall - state.asked_s),
        "under_way": state.under_way,
        "closed_until": None if closed is None else utc(state.wall + closed.closed_s),
        "closed_by": None if closed is None else closed.closed_by.value,
        "backoff_s": 0.0 if answers is None else answers.backoff_s,
    }
