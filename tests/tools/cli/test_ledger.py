"""``politesse ledger``, and the crawls that write one."""

import asyncio
import json
import os
import re
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from politesse import Gatekeeper, Reason
from politesse import Origin as SiteOrigin
from politesse.ledger import RecordedDecision, RecordedTurn, Snapshot, verify
from politesse.ledger._rows import hash_of
from politesse.ports import FetchResponse
from politesse.testing import ScriptedFetcher
from politesse.verdict import AccessResult
from tests.support.ledgers import write_ledger
from tests.support.scripted import UA
from tests.tools.cli.command import COMMAND, Done, Origin, politesse, serving

ROBOTS = "User-agent: *\nDisallow: /private/\n"
DIGEST = sha256(ROBOTS.encode()).hexdigest()


async def crawled(path: Path) -> str:
    """Crawl a page and a disallowed URL; return the origin."""
    async with serving(Origin(robots=ROBOTS, headers={"ETag": '"1"'})) as origin:
        await politesse("crawl", "--ledger", str(path), f"{origin.base}/", f"{origin.base}/private/b")
        return origin.base


async def ledger(*arguments: object) -> Done:
    return await politesse("ledger", *map(str, arguments))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


async def test_verify_prints_the_last_hash_or_the_first_row_that_was_changed(path: Path) -> None:
    await crawled(path)
    done = await ledger("verify", path)
    head = verify(path).head
    assert (done.code, done.out) == (0, f"{verify(path).rows} rows in 1 file intact; the last hash is {head}\n")
    assert (await ledger("verify", path, "--head", head)).code == 0
    assert (await ledger("verify", path, "--head", "00")).code == 1
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE ledger_rows SET content = replace(content, 'false', 'true') WHERE kind = 'decision'")
        [number] = connection.execute("SELECT number FROM ledger_rows WHERE content LIKE '%private%'").fetchone()
    done = await ledger("verify", path)
    assert done.code == 1
    assert f"row {number} of ledger.db was altered" in done.out
    found = json.loads((await ledger("verify", path, "--json")).out)
    assert (found["rows"], found["files"]) == (number - 1, 1)


async def test_show_prints_decisions_turns_and_copies(path: Path) -> None:
    base = await crawled(path)
    done = await ledger("show", path)
    assert done.code == 0
    assert f" copy of {base}/robots.txt successful 200 {DIGEST}\n" in done.out
    assert f" allowed {base}/ politesse no-rule\n" in done.out
    assert f" requested {base}/ politesse 200 " in done.out
    assert f" denied {base}/private/b politesse disallow-rule line 2, 'Disallow: /private/'\n" in done.out


@pytest.mark.parametrize(
    ("filters", "kinds"),
    [
        (["--denied"], ["decision"]),
        (["--url", "BASE/private"], ["decision"]),
        (["--host", "127.0.0.1"], ["snapshot", "decision", "decision", "turn"]),
        (["--host", "example.com"], []),
        (["--since", "2001-01-01", "--denied"], ["decision"]),
        (["--until", "2001-01-01"], []),
    ],
)
async def test_show_filters_by_url_host_time_and_answer(path: Path, filters: list[str], kinds: list[str]) -> None:
    base = await crawled(path)
    done = await ledger("show", path, "--json", *(one.replace("BASE", base) for one in filters))
    assert sorted(json.loads(line)["kind"] for line in done.out.splitlines()) == sorted(kinds)
    assert done.code == (0 if kinds else 1)


async def test_export_as_lines_keeps_all_that_the_chain_covers(path: Path) -> None:
    await crawled(path)
    target = path.with_name("ledger.jsonl")
    assert (await ledger("export", path, target)).code == 0
    rows, previous = [json.loads(line) for line in target.read_text().splitlines()], bytes(32)
    for row in rows:
        content = json.dumps(row["content"], separators=(",", ":"))
        previous = sha256(previous + f"{row['row']} {row['kind']} {content}".encode()).digest()
        assert row["hash"] == previous.hex()
    assert [row["body"] for row in rows if row["kind"] == "snapshot"] == [ROBOTS]


@pytest.mark.parametrize("name", ["ledger.warc", "ledger.warc.gz"])
async def test_export_as_warc_is_read_back_by_warcio(path: Path, name: str) -> None:
    base = await crawled(path)
    target = path.with_name(name)
    assert (await ledger("export", path, target)).code == 0
    with target.open("rb") as file:
        found = [
            (one.rec_type, one.rec_headers.get_header("WARC-Target-URI"), one.http_headers, one.content_stream().read())
            for one in ArchiveIterator(file, check_digests="raise")
        ]
    (info, *_), (robots, url, headers, body), *decisions = found
    assert (info, robots, url, body) == ("warcinfo", "response", f"{base}/robots.txt", ROBOTS.encode())
    assert (headers.get_statuscode(), headers.get_header("etag")) == ("200", '"1"')
    assert {(kind, json.loads(text)["allowed"]) for kind, _, _, text in decisions} == {
        ("metadata", True),
        ("metadata", False),
    }


async def test_links_that_are_no_urls_and_odd_headers_forge_no_line_of_a_warc_file(path: Path) -> None:
    answer = FetchResponse(200, "https://a.test/robots.txt", {"etag": '"\udcff\r\nX-Forged: 1"'}, ROBOTS.encode())
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({"https://a.test": answer}), ledger=path) as gate:
        links = ["https://a.test/\r\nX-Forged: 1\r\n\r\nbody", "https://a.test/\ud800", "https://a.test/\u00e9"]
        await gate.check_batch(links)
    target = path.with_name("ledger.warc")
    assert (await ledger("export", path, target)).code == 0
    with target.open("rb") as file:
        found = [one.rec_headers for one in ArchiveIterator(file, check_digests="raise")]
    assert [one.get_header("X-Forged") for one in found] == [None] * 5
    escaped = {"https://a.test/\\r\\nX-Forged:%201\\r\\n\\r\\nbody", "https://a.test/\\ud800", "https://a.test/\u00e9"}
    assert {one.get_header("WARC-Target-URI") for one in found[1:]} == {"https://a.test/robots.txt", *escaped}
    assert b"\r\nX-Forged" not in target.read_bytes()


async def test_bad_arguments_are_explained(path: Path) -> None:
    missing = await ledger("verify", path)
    assert (missing.code, missing.err) == (2, f"politesse: there is no ledger at {path}\n")
    await crawled(path)
    wrong = await ledger("export", path, path.with_name("ledger.txt"))
    assert (wrong.code, ".jsonl, .warc or .warc.gz" in wrong.err) == (2, True)
    target = path.with_name("ledger.jsonl")
    assert [(await ledger("export", path, target)).code for _ in range(2)] == [0, 2]


@pytest.mark.parametrize("form", ["{:%Y-%m-%dT%H:%M:%SZ}", "{:%Y-%m-%dT%H:%M:%S}", "{:%Y-%m-%d %H:%M:%S}", "zone"])
async def test_show_takes_the_times_that_it_prints(path: Path, form: str) -> None:
    wall = 1_800_000_000
    turns = [RecordedTurn(f"https://a.test/{at}", "a.test", "examplebot", wall + at, wall + at + 1.0) for at in (0, 5)]
    write_ledger(path, turns)
    printed = (await ledger("show", path)).out.split()[0]
    assert printed == "2027-01-15T08:00:00Z"
    time = datetime.fromisoformat(printed) + timedelta(seconds=5)
    given = (
        f"{time.astimezone(timezone(timedelta(hours=2))):%Y-%m-%dT%H:%M:%S%z}" if form == "zone" else form.format(time)
    )
    for option, url in (("--since", "https://a.test/5"), ("--until", "https://a.test/0")):
        done = await ledger("show", path, "--json", option, given)
        assert [json.loads(line)["content"]["url"] for line in done.out.splitlines()] == [url], done.err


def forged(path: Path, kind: str, content: str) -> None:
    """Write a ledger with a snapshot and a decision, and replace the content of one of them; the chain is right."""
    url = "https://a.test/robots.txt"
    body = ROBOTS.encode()
    copy = Snapshot(SiteOrigin.of(url), url, AccessResult.SUCCESSFUL, 200, url, 5.0, body=body, recorded_wall=5.0)
    write_ledger(path, [copy, RecordedDecision("https://a.test/", "examplebot", True, Reason.NO_RULE, 6.0)])  # noqa: FBT003
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE ledger_rows SET content = ? WHERE kind = ?", (content, kind))
        previous = bytes(32)
        for number, name, text in connection.execute("SELECT number, kind, content FROM ledger_rows").fetchall():
            previous = hash_of(previous, number, name, text)
            connection.execute("UPDATE ledger_rows SET hash = ? WHERE number = ?", (previous, number))


SNAPSHOT = {
    "url": "https://a.test/robots.txt",
    "result": "successful",
    "status": 200,
    "final_url": "https://a.test/robots.txt",
    "fetched_wall": 5.0,
    "digest": DIGEST,
    "recorded_wall": 5.0,
}
DECISION = {"url": "https://a.test/", "agent": "a", "allowed": True, "reason": "no-rule", "decided_wall": 6.0}
WRONG: tuple[object, ...] = ([], 7, None)
FORGED: dict[str, str | dict[str, object]] = {
    "no JSON": "{",
    "deep": "[" * 100_000,
    "list": "[1]",
    "number": "7",
    "text": '"url"',
    **{f"{name}={value}": {name: value} for name in ("url", "decided_wall", "recorded_wall") for value in WRONG},
    "late": {"decided_wall": 1e300, "recorded_wall": 1e300, "fetched_wall": 1e300},
    "early": {"decided_wall": -1e18, "recorded_wall": -1e18, "fetched_wall": -1e18},
    "infinite": '{"url": "https://a.test/", "allowed": true, "reason": "no-rule", "decided_wall": Infinity}',
    "digest": {"digest": "zz"},
    "digest number": {"digest": 5},
    "headers": {"headers": [1]},
    "names of headers": {"headers": {"\u00e9": "x", "X\r\nX-Forged: 1\r\n": "x"}},
    "status": {"status": "x"},
    "no address": {"url": "x"},
    "line": {"line": 5},
}


@pytest.mark.parametrize("forging", list(FORGED))
@pytest.mark.parametrize("kind", ["snapshot", "decision"])
async def test_a_damaged_or_forged_row_is_named_and_never_a_traceback(path: Path, kind: str, forging: str) -> None:
    content = FORGED[forging]
    whole = {"snapshot": SNAPSHOT, "decision": DECISION}[kind]
    forged(path, kind, content if isinstance(content, str) else json.dumps(whole | content))
    verified = await explained("verify", path)
    if forging in {"no JSON", "deep", "list", "number", "text"}:
        assert (verified.code, "ledger.db is damaged" in verified.out) == (1, True)
    await explained("show", path, "--since", "2001-01-01")
    await explained("show", path)
    await explained("history", path, "https://a.test/")
    for name in ("ledger.jsonl", "ledger.warc"):
        await explained("export", path, path.with_name(name))
    assert b"\r\nX-Forged" not in path.with_name("ledger.warc").read_bytes()


async def explained(command: str, path: Path, *more: object) -> Done:
    """Run a command; an exception that ends it fails the test."""
    done = await ledger(command, path, *more)
    assert done.code in {0, 1, 2}, done
    if done.code == 2:
        assert re.search(r"row \d of .*ledger\.db is damaged|has no robots\.txt|'x' is not an absolute", done.err), done
    return done


async def test_an_empty_noted_hash_is_an_error(path: Path) -> None:
    await crawled(path)
    done = await ledger("verify", path, "--head", "")
    assert (done.code, "--head is empty" in done.err) == (2, True)


@pytest.mark.parametrize(
    "command",
    [
        ("ledger", "show", "FILE"),
        ("ledger", "show", "FILE", "--json"),
        ("ledger", "verify", "FILE"),
        ("ledger", "history", "FILE", "https://a.test/"),
        ("lint", "--codes"),
        ("guide", "pacing"),
    ],
)
async def test_a_reader_that_closes_the_output_ends_a_command_quietly(path: Path, command: tuple[str, ...]) -> None:
    forged(path, "decision", json.dumps(DECISION))
    decision = RecordedDecision("https://a.test/", "examplebot", True, Reason.NO_RULE, 6.0)  # noqa: FBT003
    write_ledger(path, [decision] * 2_000)
    reader, writer = os.pipe()
    os.close(reader)
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *(str(path) if word == "FILE" else word for word in command),
        stdout=writer,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(writer)
    _, err = await process.communicate()
    assert (process.returncode, err) == (141, b"")
