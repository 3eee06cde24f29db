"""``politesse ledger``, and the crawls that write one."""

import json
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from politesse.ledger import verify
from tests.integration.cli.command import Done, Origin, politesse, serving

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


async def test_bad_arguments_are_explained(path: Path) -> None:
    missing = await ledger("verify", path)
    assert (missing.code, missing.err) == (2, f"politesse: there is no ledger at {path}\n")
    await crawled(path)
    wrong = await ledger("export", path, path.with_name("ledger.txt"))
    assert (wrong.code, ".jsonl, .warc or .warc.gz" in wrong.err) == (2, True)
    target = path.with_name("ledger.jsonl")
    assert [(await ledger("export", path, target)).code for _ in range(2)] == [0, 2]
