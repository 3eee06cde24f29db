import json
from hashlib import sha256
from pathlib import Path

import pytest

from politesse import Origin, Reason, RobotsTxt, Verdict
from politesse.ledger import Snapshot
from politesse.verdict import AccessResult, Match
from tests.support.ledgers import write_ledger
from tests.tools.cli.command import politesse

SITE = "https://example.com"
FIRST = b"User-agent: *\nDisallow: /old"
SECOND = b"User-agent: *\nDisallow: /new\nAllow: /old"
START = 1_800_000_000.0  # 2027-01-15T08:00:00Z


def copy(body: bytes | None, day: int, *, site: str = SITE, fault: str = "") -> Snapshot:
    result = AccessResult.UNREACHABLE if body is None else AccessResult.SUCCESSFUL
    digest, status = ("", None) if body is None else (sha256(body).hexdigest(), 200)
    url, wall = f"{site}/robots.txt", START + day * 86_400.0
    return Snapshot(Origin.of(url), url, result, status, url, wall, digest, body or b"", {}, fault, wall)


def decided(path: str, match: Match | Reason, site: str = SITE) -> Verdict:
    match = Match(match) if isinstance(match, Reason) else match
    return Verdict(f"{site}{path}", "examplebot", match.allowed, match)


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    rules = RobotsTxt.parse(FIRST).rules_for("examplebot")
    path = tmp_path / "ledger.db"
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
    return str(path)


async def test_history_shows_each_new_copy_with_its_changes_and_the_decisions_that_would_differ(ledger: str) -> None:
    done = await politesse("ledger", "history", ledger, f"{SITE}/page")
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


async def test_json_of_the_history_has_its_documented_keys(ledger: str) -> None:
    done = await politesse("ledger", "history", "--json", ledger, SITE)
    records = [json.loads(line) for line in done.out.splitlines()]
    copies = [record for record in records if "fetched" in record]
    assert list(copies[0]) == ["fetched", "result", "status", "digest", "fault"]
    assert [record["result"] for record in copies] == ["successful", "unreachable", "successful"]
    assert [record["times"] for record in records if record.get("kind") == "decision"] == [1, 2, 1]


async def test_history_of_another_crawler_has_no_decision_of_this_one(ledger: str) -> None:
    done = await politesse("ledger", "history", ledger, SITE, "--agent", "otherbot")
    assert (done.code, done.out.splitlines()[-1]) == (0, "no past decision differs")


@pytest.mark.parametrize(
    ("name", "site", "problem"),
    [
        ("", "https://none.example", "has no robots.txt of https://none.example"),
        ("missing.db", SITE, "there is no ledger at"),
        ("", "example.com", "is not an absolute URL"),
    ],
)
async def test_missing_site_or_ledger_exits_2(ledger: str, name: str, site: str, problem: str) -> None:
    done = await politesse("ledger", "history", name or ledger, site)
    assert done.code == 2
    assert problem in " ".join(done.err.replace("│", " ").split())
