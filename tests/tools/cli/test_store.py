# ruff: noqa: ASYNC240 - the files of these tests are small

"""``--store``, and ``politesse store``: later runs use, show, prune and export the records of a run."""

import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from politesse import Gatekeeper
from politesse.stores import SqliteStore
from tests.tools.cli.command import Done, Origin, politesse, serving


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "robots.db"


@pytest.fixture
async def origin() -> AsyncIterator[Origin]:
    async with serving(Origin()) as origin:
        yield origin


async def checked(store: Path, *arguments: str) -> Done:
    return await politesse("check", "--store", str(store), *arguments)


async def shown(store: Path, *arguments: str) -> Done:
    return await politesse("store", *arguments, "--store", str(store))


async def test_later_commands_ask_for_no_robots_txt_that_is_kept(store: Path, origin: Origin) -> None:
    urls = [f"{origin.base}/", f"{origin.base}/private/"]
    for _ in range(2):
        assert (await checked(store, *urls)).code == 1
    filtered = await politesse("filter", "--store", str(store), stdin="\n".join(urls).encode())
    assert filtered.out == f"{urls[0]}\n"
    assert origin.paths == ["/robots.txt"]
    assert (await politesse("crawl", "--store", str(store), urls[0])).code == 0
    assert origin.paths == ["/robots.txt", "/"]


async def test_a_closed_host_is_closed_for_the_next_run(store: Path, origin: Origin) -> None:
    origin.status, origin.headers = 429, {"Retry-After": "3600"}
    assert (await checked(store, f"{origin.base}/")).code == 2
    origin.status = 200
    second = await checked(store, f"{origin.base}/")
    assert (second.code, "not before" in second.out, len(origin.requests)) == (2, True, 1)
    robots, host = (await shown(store, "show", f"{origin.base}/page", "--json")).records
    assert robots["trouble"]["result"] == "too-many-requests"
    assert (host["key"], host["closed_by"]) == ("pace/host/127.0.0.1", "retry-after")
    assert host["closed_until"] is not None
    assert (await shown(store, "hosts")).out == (
        f"pace/host/127.0.0.1: closed until {host['closed_until']}, since {host['noted']} at the latest: retry-after\n"
    )
    assert (await shown(store, "hosts", "--json")).records == [host]


async def test_a_host_that_a_page_has_closed_is_shown_as_closed(store: Path, origin: Origin) -> None:
    await checked(store, f"{origin.base}/")
    assert (await shown(store, "hosts")).out == "no host is closed\n"
    async with Gatekeeper("politesse-test", store=store) as gate, gate.turn(f"{origin.base}/") as turn:
        turn.observe(503, {"Retry-After": "3600"})
    host = (await checked(store, "--host", "--json", f"{origin.base}/")).records[-1]
    assert origin.paths == ["/robots.txt"]
    assert (host["host"], host["closed_by"]) == ("127.0.0.1", "retry-after")
    assert host["closed_until"] is not None


async def test_show_and_stats_tell_what_is_kept(store: Path, origin: Origin) -> None:
    origin.robots = "User-agent: *\nDisallow: /\x1b[31m\n"
    await checked(store, f"{origin.base}/")
    done = await shown(store, "show", f"{origin.base}/any", "--body")
    lines = done.out.splitlines()
    assert (done.code, lines[0], "\x1b" in done.out) == (0, origin.base, False)
    assert lines[(at := lines.index("  copy:") + 1) : at + 2] == ["    result: successful", "    status: 200"]
    assert {"    bytes: 31", "  | User-agent: *", "pace/host/127.0.0.1"} <= set(lines)
    assert (await shown(store, "stats")).out.startswith("  robots: 1\n  hosts: 1\n")
    [stats] = (await shown(store, "stats", "--json")).records
    assert (stats["robots"], stats["hosts"], stats["file_bytes"]) == (1, 1, store.stat().st_size)
    other = await shown(store, "show", "https://other.example")
    assert (other.code, other.out) == (1, "nothing is kept of https://other.example\n")


async def test_prune_deletes_and_export_writes_every_record(store: Path, origin: Origin, tmp_path: Path) -> None:
    target = tmp_path / "records.jsonl"
    origin.robots = "User-agent: *\nDisallow: /é\n"
    await checked(store, f"{origin.base}/")
    exported = await shown(store, "export", str(target))
    assert (exported.code, exported.err) == (0, "2 records written\n")
    robots, host = sorted(map(json.loads, target.read_text().splitlines()), key=lambda record: record["key"])
    assert (robots["key"], robots["body"], host["kind"]) == (origin.base, origin.robots, "host")
    without = await shown(store, "prune")
    assert (without.code, "--max-age" in without.err) == (2, True)
    assert (await shown(store, "prune", "--max-age", "1")).out.startswith("0 records deleted, 2 left")
    assert (await shown(store, "prune", "--max-bytes", "0")).out.startswith("2 records deleted, 0 left")
    await checked(store, f"{origin.base}/")
    assert len(origin.requests) == 2


async def test_a_damaged_record_is_reported_and_the_others_are_exported(
    store: Path, origin: Origin, tmp_path: Path
) -> None:
    target = tmp_path / "records.jsonl"
    await checked(store, f"{origin.base}/")
    opened = SqliteStore(store)
    await opened.put("https://damaged.example", b"politesse/3 and nothing more")
    await opened.put("https://binary.example", (await opened.get(origin.base) or b""))  # a record of another origin
    await opened.aclose()
    exported = await shown(store, "export", str(target))
    assert (exported.code, exported.err) == (1, "4 records written, 2 of which cannot be read\n")
    errors = {record["key"]: record.get("error") for record in map(json.loads, target.read_text().splitlines())}
    assert "damaged" in errors["https://damaged.example"]
    assert origin.base in errors["https://binary.example"]
    assert errors[origin.base] is None
    assert "  error: " in (await shown(store, "show", "https://damaged.example")).out


async def test_a_file_that_is_missing_or_no_store_is_an_error_and_is_left_as_it_is(store: Path) -> None:
    done = await shown(store, "stats")
    assert (done.code, store.exists(), "does not exist" in done.err) == (2, False, True)
    with sqlite3.connect(store) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = store.read_bytes()
    for command in (["stats"], ["show", "https://a.example"], ["prune", "--max-bytes", "1"]):
        done = await shown(store, *command)
        assert (done.code, done.out, str(store) in done.err) == (2, "", True), command
    assert (await checked(store, "https://a.example/")).code == 2
    assert store.read_bytes() == before
