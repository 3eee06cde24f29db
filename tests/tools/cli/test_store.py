"""``--store``, and ``politesse store``: later runs use, show, prune and export the records of a run."""

import json
import sqlite3
from pathlib import Path

import pytest

from politesse import Gatekeeper
from politesse.stores import SqliteStore
from tests.tools.cli.command import Done, Origin, politesse, serving


async def checked(store: Path, *urls: str) -> Done:
    return await politesse("check", "--store", str(store), *urls)


async def test_later_commands_ask_for_no_robots_txt_that_is_kept(tmp_path: Path) -> None:
    store = tmp_path / "robots.db"
    async with serving(Origin()) as origin:
        urls = [f"{origin.base}/", f"{origin.base}/private/"]
        first = await checked(store, *urls)
        second = await checked(store, *urls)
        filtered = await politesse("filter", "--store", str(store), stdin="\n".join(urls).encode())
        assert [request.path for request in origin.requests] == ["/robots.txt"]
    assert (first.code, second.code) == (1, 1)
    assert filtered.out == f"{urls[0]}\n"


async def test_a_crawl_goes_on_from_what_an_earlier_one_kept(tmp_path: Path) -> None:
    store = tmp_path / "robots.db"
    async with serving(Origin()) as origin:
        for _ in range(2):
            done = await politesse("crawl", "--store", str(store), "--same-host", f"{origin.base}/")
            assert done.code == 0
        paths = [request.path for request in origin.requests]
    assert (paths.count("/robots.txt"), paths.count("/")) == (1, 2)


async def test_a_closed_host_is_closed_for_the_next_run(tmp_path: Path) -> None:
    store = tmp_path / "robots.db"
    async with serving(Origin(status=429, headers={"Retry-After": "3600"})) as origin:
        assert (await checked(store, f"{origin.base}/")).code == 2
        origin.status = 200
        second = await checked(store, f"{origin.base}/")
        assert len(origin.requests) == 1
        shown = await politesse("store", "show", f"{origin.base}/page", "--store", str(store), "--json")
        listed = await politesse("store", "hosts", "--store", str(store))
        closed = await politesse("store", "hosts", "--store", str(store), "--json")
    assert second.code == 2
    assert "not before" in second.out
    robots, host = (json.loads(line) for line in shown.out.splitlines())
    assert robots["trouble"]["result"] == "too-many-requests"
    assert (host["key"], host["closed_by"]) == ("pace/host/127.0.0.1", "retry-after")
    assert host["closed_until"] is not None
    assert listed.out == (
        f"pace/host/127.0.0.1: closed until {host['closed_until']}, since {host['noted']} at the latest: retry-after\n"
    )
    assert json.loads(closed.out) == host


async def test_a_host_that_a_page_has_closed_is_shown_as_closed(tmp_path: Path) -> None:
    store = tmp_path / "robots.db"
    async with serving(Origin()) as origin:
        await checked(store, f"{origin.base}/")
        open_ = await politesse("store", "hosts", "--store", str(store))
        async with Gatekeeper("politesse-test", store=store) as gate, gate.turn(f"{origin.base}/") as turn:
            turn.observe(503, {"Retry-After": "3600"})
        shown = await checked(store, "--host", "--json", f"{origin.base}/")
        assert [request.path for request in origin.requests] == ["/robots.txt"]
    assert open_.out == "no host is closed\n"
    host = json.loads(shown.out.splitlines()[-1])
    assert (host["host"], host["closed_by"]) == ("127.0.0.1", "retry-after")
    assert host["closed_until"] is not None


async def test_show_and_stats_tell_what_is_kept(tmp_path: Path) -> None:
    store = tmp_path / "robots.db"
    async with serving(Origin(robots="User-agent: *\nDisallow: /\x1b[31m\n")) as origin:
        await checked(store, f"{origin.base}/")
        shown = await politesse("store", "show", f"{origin.base}/any", "--store", str(store), "--body")
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert lines[0] == origin.base
    assert lines[(at := lines.index("  copy:") + 1) : at + 2] == ["    result: successful", "    status: 200"]
    assert "    bytes: 31" in lines
    assert "  | User-agent: *" in lines
    assert "\x1b" not in shown.out
    assert "pace/host/127.0.0.1" in lines
    assert (await politesse("store", "stats", "--store", str(store))).out.startswith("  robots: 1\n  hosts: 1\n")
    stats = json.loads((await politesse("store", "stats", "--json", "--store", str(store))).out)
    assert (stats["robots"], stats["hosts"], stats["file_bytes"]) == (1, 1, store.stat().st_size)


async def test_what_is_not_kept_is_said(tmp_path: Path) -> None:
    store = tmp_path / "robots.db"
    async with serving(Origin()) as origin:
        await checked(store, f"{origin.base}/")
    shown = await politesse("store", "show", "https://other.example", "--store", str(store))
    assert (shown.code, shown.out) == (1, "nothing is kept of https://other.example\n")


async def test_prune_deletes_and_export_writes_every_record(tmp_path: Path) -> None:
    store, target = tmp_path / "robots.db", tmp_path / "records.jsonl"
    async with serving(Origin(robots="User-agent: *\nDisallow: /é\n")) as origin:
        await checked(store, f"{origin.base}/")
        exported = await politesse("store", "export", str(target), "--store", str(store))
        assert (exported.code, exported.err) == (0, "2 records written\n")
        robots, host = sorted(map(json.loads, target.read_text().splitlines()), key=lambda record: record["key"])
        assert (robots["key"], robots["body"]) == (origin.base, origin.robots)
        assert host["kind"] == "host"
        pruned = await politesse("store", "prune", "--max-age", "1", "--store", str(store))
        assert pruned.out.startswith("0 records deleted, 2 left")
        pruned = await politesse("store", "prune", "--max-bytes", "0", "--store", str(store))
        assert pruned.out.startswith("2 records deleted, 0 left")
        await checked(store, f"{origin.base}/")
        assert len(origin.requests) == 2


async def test_a_damaged_record_is_reported_and_the_others_are_exported(tmp_path: Path) -> None:
    path, target = tmp_path / "robots.db", tmp_path / "records.jsonl"
    async with serving(Origin()) as origin:
        await checked(path, f"{origin.base}/")
    store = SqliteStore(path)
    await store.put("https://damaged.example", b"politesse/3 and nothing more")
    await store.put("https://binary.example", (await store.get(origin.base) or b""))  # a record of another origin
    await store.aclose()
    exported = await politesse("store", "export", str(target), "--store", str(path))
    assert (exported.code, exported.err) == (1, "4 records written, 2 of which cannot be read\n")
    errors = {record["key"]: record.get("error") for record in map(json.loads, target.read_text().splitlines())}
    assert "damaged" in errors["https://damaged.example"]
    assert origin.base in errors["https://binary.example"]
    assert errors[origin.base] is None
    shown = await politesse("store", "show", "https://damaged.example", "--store", str(path))
    assert "  error: " in shown.out


@pytest.mark.parametrize("command", [["stats"], ["show", "https://a.example"], ["prune", "--max-bytes", "1"]])
async def test_a_file_that_is_no_store_is_an_error_and_is_left_as_it_is(tmp_path: Path, command: list[str]) -> None:
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = foreign.read_bytes()
    done = await politesse("store", *command, "--store", str(foreign))
    assert (done.code, done.out) == (2, "")
    assert str(foreign) in done.err
    assert (await checked(foreign, "https://a.example/")).code == 2
    assert foreign.read_bytes() == before


async def test_a_missing_file_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    missing = tmp_path / "missing.db"
    done = await politesse("store", "stats", "--store", str(missing))
    assert (done.code, missing.exists()) == (2, False)
    assert "does not exist" in done.err


async def test_prune_without_a_limit_is_an_error(tmp_path: Path) -> None:
    store = tmp_path / "robots.db"
    async with serving(Origin()) as origin:
        await checked(store, f"{origin.base}/")
    done = await politesse("store", "prune", "--store", str(store))
    assert done.code == 2
    assert "--max-age" in done.err
