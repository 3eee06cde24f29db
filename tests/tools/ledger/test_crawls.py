"""Ledgers whose process is killed or forked, that several processes write, and that prove a real crawl."""

import os
import random
from asyncio.subprocess import PIPE
from pathlib import Path

import aiohttp
import pytest

from politesse import Gatekeeper, Origin, PoliteSession, RobotsTxt
from politesse.ledger import LedgerReader, Snapshot, verify
from politesse.verdict import AccessResult
from tests.support.programs import numbers_until_killed, started
from tests.support.sites import EAGER, UA, Site
from tests.support.tiers import first_of
from tests.tools.ledger.ledger_program import SITE

pytestmark = pytest.mark.realtime


async def acknowledged(path: Path, name: str, after: int) -> list[int]:
    """Kill a writer once it has acknowledged so often; return all numbers that it acknowledged."""
    process = await started("tools.ledger.ledger_program", "write", str(path), name, stdout=PIPE)
    return await numbers_until_killed(process, after)


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.full)])
async def test_killing_a_writer_loses_no_acknowledged_row_and_breaks_no_chain(tmp_path: Path, kills: int) -> None:
    path, said, lot = tmp_path / "ledger.db", dict[str, int](), random.Random(9309)
    for kill in range(kills):
        name = f"run{kill}"
        said[name] = max(await acknowledged(path, name, after=lot.randrange(1, 40)))
    found = verify(path)
    assert (found.problem, found.unclosed) == ("", kills)
    with LedgerReader(path) as ledger:
        recorded = {decision.url for decision in ledger.decisions()}
    missing = [
        (name, n) for name, last in said.items() for n in range(last + 1) if f"{SITE}/{name}/{n}" not in recorded
    ]
    assert missing == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("name", first_of(1, ["used", "unused"]))
async def test_a_ledger_that_was_used_before_a_fork_records_nothing_in_the_child(tmp_path: Path, name: str) -> None:
    path = tmp_path / "ledger.db"
    # Python warns about a fork beside threads.
    arguments = ("tools.ledger.ledger_program", "fork", str(path), name)
    process = await started(*arguments, options=(), stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate()
    with LedgerReader(path) as ledger:
        paths = [decision.url.removeprefix(SITE) for decision in ledger.decisions()]
    assert verify(path).problem == ""
    if name == "used":
        assert b"was opened before a fork" in out
        assert b"; 1 dropped" in out
        assert b"records nothing: make the gatekeeper after the fork" in err
        assert paths == ["/before", "/after"]
    else:
        assert (out, err) == (b"flushed; 0 dropped\n", b"")
        assert paths == ["/child", "/after"]


def check_proof(path: Path) -> list[str]:
    """Judge each decision again by the copy that it names; return the URLs of the turns, each of which was allowed."""
    assert verify(path).problem == ""
    copies: dict[tuple[Origin, float, str], Snapshot] = {}
    permitted: set[tuple[str, str]] = set()
    with LedgerReader(path) as ledger:
        for copy in ledger.snapshots():
            # While robots.txt is unreachable, its older copy is recorded again.
            copies.setdefault((copy.origin, copy.fetched_wall, copy.digest), copy)
        for decision in ledger.decisions():
            origin = Origin.of(decision.url)
            assert decision.fetched_wall is not None
            copy = copies[origin, decision.fetched_wall, decision.digest]
            assert copy.recorded_wall <= decision.decided_wall
            if decision.digest:
                rules = RobotsTxt.parse(copy.body).rules_for(decision.agent)
                target = decision.url.removeprefix(str(origin)) or "/"
                assert rules.match(target).allowed == decision.allowed, decision
            else:
                assert (copy.result is AccessResult.UNAVAILABLE) == decision.allowed, decision
            if decision.allowed:
                permitted.add((decision.url, decision.digest))
        turns = list(ledger.turns())
    assert [turn for turn in turns if (turn.url, turn.digest) not in permitted] == []
    return [turn.url for turn in turns]


async def test_a_crawl_is_proven_across_a_change_of_robots_txt_and_a_restart(site: Site, tmp_path: Path) -> None:
    path, store = tmp_path / "ledger.db", tmp_path / "robots.db"
    site.redirects = {"/moved": (302, "/private/new")}

    async def run() -> None:
        async with Gatekeeper(UA, pacing=EAGER, store=store, ledger=path) as gate, PoliteSession(gate) as session:
            for target in ("/a", "/private/b", "/moved", "/closed/c"):
                try:
                    await (await session.get(site.base + target)).read()
                except aiohttp.ClientError:
                    continue
            await gate.forget(site.base)

    await run()
    site.robots = "User-agent: *\nDisallow: /closed\n"
    await run()
    async with Gatekeeper(UA, pacing=EAGER, store=store, ledger=path) as gate:  # the copy comes from the store
        fetched = site.paths.count("/robots.txt")
        assert not await gate.check(f"{site.base}/closed/d") or fetched
    requested = [url.removeprefix(site.base) for url in check_proof(path)]
    assert requested == site.pages
    with LedgerReader(path) as ledger:
        bodies = [copy.body.decode() for copy in ledger.snapshots()]
    assert bodies[:2] == ["User-agent: *\nDisallow: /private\n", site.robots]
