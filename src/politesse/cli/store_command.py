"""``politesse store``: what a file of ``--store`` keeps."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from politesse._constants import PACE_KEYS
from politesse._text import counted, printable
from politesse.cli.console import plain
from politesse.cli.store_records import RecordReport
from politesse.origin import Origin
from politesse.stores import SqliteStore
from politesse.verdict import utc

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from rich.console import Console

_DAY_S: Final = 86_400.0


@asynccontextmanager
async def _opened(path: Path) -> AsyncGenerator[SqliteStore, None]:
    """Open a store; raises ConfigurationError if the file is none."""
    store = SqliteStore(path)
    try:
        yield store
    finally:
        await store.aclose()


async def print_statistics(path: Path, out: Console, *, as_json: bool) -> int:
    """Print how much a store keeps, and of what."""
    hosts = 0
    async with _opened(path) as store:
        statistics = await store.statistics()
        async for stored in store.records():
            hosts += stored.key.startswith(PACE_KEYS)
    robots = statistics.records - hosts
    moments = [None if wall is None else utc(wall) for wall in (statistics.oldest_wall, statistics.newest_wall)]
    if as_json:
        names = ("robots", "hosts", "record_bytes", "file_bytes", "oldest", "newest")
        values = (robots, hosts, statistics.record_bytes, statistics.file_bytes, *moments)
        out.print(plain(json.dumps(dict(zip(names, values, strict=True)))), soft_wrap=True)
        return 0
    lines = [
        f"robots.txt: {robots:,}",
        f"hosts:      {hosts:,}",
        f"records:    {statistics.record_bytes:,} bytes",
        f"file:       {statistics.file_bytes:,} bytes",
    ]
    if statistics.records:
        lines.append(f"stored:     {moments[0]} to {moments[1]}")
    out.print(plain("\n".join(lines)), soft_wrap=True)
    return 0


async def show_origin(path: Path, url: str, out: Console, *, as_json: bool, with_body: bool) -> int:
    """Print what a store keeps of an origin and of its host; return 1 if that is nothing.

    Raises:
        InvalidURL: ``url`` is no URL.
    """
    origin = Origin.of(url)
    async with _opened(path) as store:
        kept = [await store.stored(key) for key in (str(origin), f"{PACE_KEYS}host/{origin.pacing_host}")]
    reports = [RecordReport.of(stored) for stored in kept if stored is not None]
    for report in reports:
        if as_json:
            out.print(plain(json.dumps(report.exported if with_body else report.record)), soft_wrap=True)
        else:
            body = [printable(line) for line in report.body.decode(errors="replace").splitlines()] if with_body else []
            out.print(plain("\n".join([*report.lines(), *(f"  | {line}" for line in body)])), soft_wrap=True)
    if not reports and not as_json:
        out.print(plain(f"nothing is kept of {printable(str(origin))}", "yellow"), soft_wrap=True)
    return 0 if reports else 1


async def prune(path: Path, out: Console, *, max_age_days: float | None, max_bytes: int | None) -> int:
    """Delete old records, and print how many; raises ConfigurationError if no limit is given."""
    async with _opened(path) as store:
        max_age_s = None if max_age_days is None else max_age_days * _DAY_S
        deleted = await store.prune(max_age_s=max_age_s, max_bytes=max_bytes)
        left = await store.statistics()
    line = f"{counted(deleted, 'record')} deleted, {left.records:,} left; the file has {left.file_bytes:,} bytes"
    out.print(plain(line), soft_wrap=True)
    return 0


async def export(path: Path, target: Path, err: Console) -> int:
    """Write each record as a line of JSON; return 1 if some cannot be read."""
    written = unreadable = 0
    async with _opened(path) as store:
        with target.open("w", encoding="ascii") as file:
            async for stored in store.records():
                report = RecordReport.of(stored)
                file.write(json.dumps(report.exported) + "\n")
                written += 1
                unreadable += "error" in report.record
    problem = f", {unreadable:,} of which cannot be read" if unreadable else ""
    err.print(plain(f"{counted(written, 'record')} written{problem}"), soft_wrap=True)
    return 1 if unreadable else 0
