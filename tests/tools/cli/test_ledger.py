"""``politesse ledger``, and the crawls that write one; and a reader that closes the output of any command."""

import asyncio
import json
import os
import re
import shutil
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from politesse import Gatekeeper, Reason, RobotsTxt, Verdict
from politesse import Origin as SiteOrigin
from politesse.ledger import RecordedDecision, RecordedTurn, Snapshot, verify
from politesse.ports import FetchResponse
from politesse.testing import ScriptedFetcher
from politesse.verdict import AccessResult, Match
from tests.support.ledgers import write_ledger
from tests.support.scripted import UA
from tests.support.tiers import first_of
from tests.tools.cli.command import COMMAND, Done, Origin, politesse, serving

ROBOTS = "User-agent: *\nDisallow: /private/\n"
DIGEST = sha256(ROBOTS.encode()).hexdigest()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Crawl a page and a disallowed URL; return the folder of the ledger, and the origin."""
    folder = tmp_path_factory.mktemp("crawled")

    async def crawl() -> str:
        async with serving(Origin(robots=ROBOTS, headers={"ETag": '"1"'})) as origin:
            urls = (f"{origin.base}/", f"{origin.base}/private/b")
            await politesse("crawl", "--ledger", str(folder / "ledger.db"), *urls)
            return origin.base

    return folder, asyncio.run(crawl())


@pytest.fixture
def base(written: tuple[Path, str], tmp_path: Path) -> str:
    """Put the ledger of the crawl into place; return the origin."""
    shutil.copytree(written[0], tmp_path, dirs_exist_ok=True)
    return written[1]


async def ledger(*arguments: object) -> Done:
    return await politesse("ledger", *map(str, arguments))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.mark.usefixtures("base")
async def test_verify_prints_the_last_hash_or_the_first_row_that_was_changed(path: Path) -> None:
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


async def test_show_prints_decisions_turns_and_copies(path: Path, base: str) -> None:
    done = await ledger("show", path)
    assert done.code == 0
    assert f" copy of {base}/robots.txt successful 200 {DIGEST}\n" in done.out
    assert f" allowed {base}/ politesse no-rule\n" in done.out
    assert f" requested {base}/ politesse 200 " in done.out
    assert f" denied {base}/private/b politesse disallow-rule line 2, 'Disallow: /private/'\n" in done.out


async def test_show_filters_by_url_host_time_and_answer(path: Path, base: str) -> None:
    for filters, kinds in (
        (["--denied"], ["decision"]),
        (["--url", f"{base}/private"], ["decision"]),
        (["--host", "127.0.0.1"], ["decision", "decision", "snapshot", "turn"]),
        (["--host", "example.com"], []),
        (["--since", "2001-01-01", "--denied"], ["decision"]),
        (["--until", "2001-01-01"], []),
    ):
        done = await ledger("show", path, "--json", *filters)
        assert (sorted(row["kind"] for row in done.records), done.code) == (kinds, 0 if kinds else 1), filters


@pytest.mark.usefixtures("base")
async def test_export_as_lines_keeps_all_that_the_chain_covers(path: Path) -> None:
    target = path.with_name("ledger.jsonl")
    assert (await ledger("export", path, target)).code == 0
    rows, previous = [json.loads(line) for line in target.read_text().splitlines()], bytes(32)
    for row in rows:
        content = json.dumps(row["content"], separators=(",", ":"))
        previous = sha256(previous + f"{row['row']} {row['kind']} {content}".encode()).digest()
        assert row["hash"] == previous.hex()
    assert [row["body"] for row in rows if row["kind"] == "snapshot"] == [ROBOTS]


async def test_export_as_warc_is_read_back_by_warcio(path: Path, base: str) -> None:
    for name in ("ledger.warc", "ledger.warc.gz"):
        target = path.with_name(name)
        assert (await ledger("export", path, target)).code == 0
        with target.open("rb") as file:
            records = ArchiveIterator(file, check_digests="raise")
            found = [
                (
                    one.rec_type,
                    one.rec_headers.get_header("WARC-Target-URI"),
                    one.http_headers,
                    one.content_stream().read(),
                )
                for one in records
            ]
        (info, *_), (robots, url, headers, body), *decisions = found
        assert (info, robots, url, body) == ("warcinfo", "response", f"{base}/robots.txt", ROBOTS.encode())
        assert (headers.get_statuscode(), headers.get_header("etag")) == ("200", '"1"')
        answers = {(kind, json.loads(text)["allowed"]) for kind, _, _, text in decisions}
        assert answers == {("metadata", True), ("metadata", False)}


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


@pytest.mark.usefixtures("base")
async def test_bad_arguments_are_explained(path: Path) -> None:
    none = path.with_name("none.db")
    missing = await ledger("verify", none)
    assert (missing.code, missing.err) == (2, f"politesse: there is no ledger at {none}\n")
    wrong = await ledger("export", path, path.with_name("ledger.txt"))
    assert (wrong.code, ".jsonl, .warc or .warc.gz" in wrong.err) == (2, True)
    target = path.with_name("ledger.jsonl")
    assert [(await ledger("export", path, target)).code for _ in range(2)] == [0, 2]
    empty = await ledger("verify", path, "--head", "")
    assert (empty.code, "--head is empty" in empty.err) == (2, True)


async def test_show_takes_the_times_that_it_prints(path: Path) -> None:
    wall = 1_800_000_000
    turns = [RecordedTurn(f"https://a.test/{at}", "a.test", "examplebot", wall + at, wall + at + 1.0) for at in (0, 5)]
    write_ledger(path, turns)
    printed = (await ledger("show", path)).out.split()[0]
    assert printed == "2027-01-15T08:00:00Z"
    for given in ("2027-01-15T08:00:05Z", "2027-01-15T08:00:05", "2027-01-15 08:00:05", "2027-01-15T10:00:05+0200"):
        for option, url in (("--since", "https://a.test/5"), ("--until", "https://a.test/0")):
            done = await ledger("show", path, "--json", option, given)
            assert [row["content"]["url"] for row in done.records] == [url], done.err


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
            previous = sha256(previous + f"{number} {name} {text}".encode()).digest()
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


COMMANDS = [
    ["show", "FILE", "--since", "2001-01-01"],
    ["show", "FILE"],
    ["history", "FILE", "https://a.test/"],
    ["export", "FILE", "ledger.jsonl"],
    ["export", "FILE", "ledger.warc"],
]


@pytest.mark.parametrize("commands", [1, pytest.param(len(COMMANDS), marks=pytest.mark.full)])
async def test_a_damaged_or_forged_row_is_named_and_never_a_traceback(tmp_path: Path, commands: int) -> None:
    """Each forged row is verified, and one of two meets the next of the commands, or each meets all of them."""
    for place, (kind, whole) in enumerate((("snapshot", SNAPSHOT), ("decision", DECISION))):
        for number, (forging, content) in enumerate(FORGED.items(), place):
            folder = tmp_path / f"{kind}{number}"
            folder.mkdir()
            path = folder / "ledger.db"
            forged(path, kind, content if isinstance(content, str) else json.dumps(whole | content))
            if forging in {"no JSON", "deep", "list", "number", "text"}:
                assert f"{path.name} is damaged" in verify(path).problem
            if commands == 1 and number % 2:
                continue
            for chosen in range(number // 2, number // 2 + commands):
                command, _, *more = COMMANDS[chosen % len(COMMANDS)]
                await explained(command, path, *(folder / one if one.startswith("ledger") else one for one in more))
            for target in folder.glob("*.warc"):
                assert b"\r\nX-Forged" not in target.read_bytes()
    forged(tmp_path / "ledger.db", "decision", "{")
    verified = await explained("verify", tmp_path / "ledger.db")
    assert (verified.code, "ledger.db is damaged" in verified.out) == (1, True)


async def explained(command: str, path: Path, *more: object) -> Done:
    """Run a command; an exception that ends it fails the test."""
    done = await ledger(command, path, *more)
    assert done.code in {0, 1, 2}, done
    if done.code == 2:
        assert re.search(r"row \d of .*ledger\.db is damaged|has no robots\.txt|'x' is not an absolute", done.err), done
    return done


# The history of a site.

SITE = "https://example.com"
FIRST = b"User-agent: *\nDisallow: /old"
SECOND = b"User-agent: *\nDisallow: /new\nAllow: /old"
START = 1_800_000_000.0  # 2027-01-15T08:00:00Z


def copy(body: bytes | None, day: int, *, site: str = SITE, fault: str = "") -> Snapshot:
    result = AccessResult.UNREACHABLE if body is None else AccessResult.SUCCESSFUL
    digest, status = ("", None) if body is None else (sha256(body).hexdigest(), 200)
    url, wall = f"{site}/robots.txt", START + day * 86_400.0
    return Snapshot(SiteOrigin.of(url), url, result, status, url, wall, digest, body or b"", {}, fault, wall)


def decided(path: str, match: Match | Reason, site: str = SITE) -> Verdict:
    match = Match(match) if isinstance(match, Reason) else match
    return Verdict(f"{site}{path}", "examplebot", match.allowed, match)


@pytest.fixture
def recorded(path: Path) -> Path:
    rules = RobotsTxt.parse(FIRST).rules_for("examplebot")
    write_ledger(
        path,
        [
            copy(FIRST, 0),
            decided("/old/a", rules.match("/old/a")),
            decided("/new", rules.match("/new")),
            decided("/new", rules.match("/new")),
            decided("/page", rules.match("/page")),
            decided("/new", Reason.POLICY_EXEMPT),
            decided("/new", rules.match("/new"), "https://other.example"),
            copy(FIRST, 1),
            copy(None, 2, fault="dns: no such host"),
            copy(b"User-agent: *\nDisallow: /", 2, site="https://other.example"),
            decided("/page", Reason.UNREACHABLE),
            copy(SECOND, 3),
        ],
    )
    return path


async def test_history_shows_each_new_copy_with_its_changes_and_the_decisions_that_would_differ(recorded: Path) -> None:
    done = await ledger("history", recorded, f"{SITE}/page")
    assert (done.code, done.err) == (1, "")
    lines = done.out.splitlines()
    assert [line.split()[1] for line in lines if "fetched:" in line] == [
        "2027-01-15T08:00:00Z",
        "2027-01-17T08:00:00Z",
        "2027-01-18T08:00:00Z",
    ]
    assert "  fault: dns: no such host" in lines
    assert [line for line in lines if line[2:3] in {"+", "-", "!"}] == [
        "  - Disallow: /old (line 2)",
        "  + Disallow: / (line 2)",  # while it was unreachable
        "  - Disallow: / (line 2)",
        "  + Disallow: /new (line 2)",
        "  + Allow: /old (line 3)",
        "  ! https://example.com/old/a: disallowed, Disallow: /old (line 2) -> allowed, Allow: /old (line 3)",
        "  ! https://example.com/new: allowed, no-rule -> disallowed, Disallow: /new (line 2) (2 times)",
        "  ! https://example.com/page: disallowed, unreachable -> allowed",
    ]
    assert "past decisions that the last copy would not repeat:" in lines


async def test_json_of_the_history_has_its_documented_keys(recorded: Path) -> None:
    done = await ledger("history", "--json", recorded, SITE)
    records = done.records
    copies = [record for record in records if "fetched" in record]
    assert list(copies[0]) == ["fetched", "result", "status", "digest", "fault"]
    assert [record["result"] for record in copies] == ["successful", "unreachable", "successful"]
    assert [record["times"] for record in records if record.get("kind") == "decision"] == [1, 2, 1]


async def test_history_of_another_crawler_has_no_decision_of_this_one(recorded: Path) -> None:
    done = await ledger("history", recorded, SITE, "--agent", "otherbot")
    assert (done.code, done.out.splitlines()[-1]) == (0, "no past decision differs")


async def test_missing_site_or_ledger_of_the_history_exits_2(recorded: Path) -> None:
    for path, site, problem in (
        (recorded, "https://none.example", "has no robots.txt of https://none.example"),
        (recorded.with_name("missing.db"), SITE, "there is no ledger at"),
        (recorded, "example.com", "is not an absolute URL"),
    ):
        done = await ledger("history", path, site)
        assert (done.code, problem in done.problem) == (2, True), problem


CLOSED = [
    ("ledger", "show", "FILE", "--json"),
    ("ledger", "show", "FILE"),
    ("ledger", "verify", "FILE"),
    ("ledger", "history", "FILE", "https://a.test/"),
    ("lint", "--codes"),
    ("guide", "pacing"),
    ("check", "no url"),
    ("check", "no url", "--json"),
]


@pytest.mark.parametrize("command", first_of(1, CLOSED))
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
