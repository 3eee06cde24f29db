"""The text of a hostile site is cut wherever it is kept for each event: a decision does not keep a rule of 400 kB."""

import json
import logging
import tracemalloc
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from politesse import Disallowed, Gatekeeper, PoliteQueue, Verdict
from politesse.events import Decided, Event
from politesse.ledger import LedgerReader
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.usage import Purpose
from tests.support.scripted import UA

SITE = "https://example.com"
RULE = f"User-agent: *\nDisallow: /{'*' * 400_000}\n"  # the normal form of the pattern is short, so all URLs match
STATEMENT = f"User-agent: *\nContent-Usage: /{'*' * 400_000} train-ai=n\n"
MOST = 1_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def gate_of(robots: str, **options: Any) -> Gatekeeper:
    fetcher = ScriptedFetcher({SITE: robots})
    return Gatekeeper(UA, fetcher=fetcher, clock=ManualClock(autojump=True), **options)


async def test_decisions_by_a_long_rule_take_no_disk_and_no_memory(path: Path) -> None:
    async with gate_of(RULE, ledger=path) as gate:
        await gate.check(f"{SITE}/first")
        tracemalloc.start()
        for number in range(300):  # none is written yet: the ledger writes when the event loop is free
            gate.peek(f"{SITE}/{number}")
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert kept < 10 * len(RULE)
    assert sum(file.stat().st_size for file in path.parent.iterdir()) < 5 * len(RULE)
    with LedgerReader(path) as ledger:
        [copy], decisions = ledger.snapshots(), list(ledger.decisions())
    assert len(decisions) == 301
    assert {(one.line, one.rule, one.digest) for one in decisions} == {(2, f"Disallow: /{'*' * 189}", copy.digest)}
    assert copy.body.decode() == RULE


async def test_a_short_rule_is_recorded_as_it_is_written(path: Path) -> None:
    rule = f"Disallow: /\u00e4\x07{'y' * 180}"
    async with gate_of(f"User-agent: *\n{rule}\n", ledger=path) as gate:
        await gate.check(f"{SITE}/\u00e4\x07{'y' * 180}".replace("\x07", "%07"))
        await gate.check(f"{SITE}/b")
    with LedgerReader(path) as ledger:
        assert {one.rule for one in ledger.decisions()} <= {rule, ""}


@pytest.mark.parametrize(("robots", "options"), [(RULE, {}), (STATEMENT, {"enforce_usage": [Purpose.AI_TRAIN]})])
async def test_records_events_errors_and_log_lines_of_a_refusal_are_short(
    caplog: pytest.LogCaptureFixture, path: Path, robots: str, options: dict[str, Any]
) -> None:
    caplog.set_level(logging.DEBUG, logger="politesse")
    records: list[dict[str, Any]] = []

    async def handle(*_: object) -> None:
        raise AssertionError("no page is requested")

    events: list[Event] = []
    async with gate_of(robots, ledger=path, **options) as gate, aiohttp.ClientSession() as session:
        gate.subscribe(events.append)
        verdict = await gate.check(f"{SITE}/")
        assert not verdict
        refused: list[Verdict] = []
        queue: PoliteQueue[None] = PoliteQueue(gate, on_disallowed=lambda _, verdict: refused.append(verdict))
        await queue.put(f"{SITE}/a")
        await queue.crawl(session, handle, out=records.append)
        with pytest.raises(Disallowed) as raised:
            await gate.take_turn(f"{SITE}/b")
    assert [record["outcome"] for record in records] == ["disallowed"]
    texts = [json.dumps(records[0]), str(raised.value), verdict.note, verdict.explain(), repr(verdict)]
    texts += [repr(event) for event in events if isinstance(event, Decided)]
    texts += [record.getMessage() for record in caplog.records]
    with LedgerReader(path) as ledger:
        texts += [row.content for _, row in ledger.rows()]
    assert max(map(len, texts)) < MOST
