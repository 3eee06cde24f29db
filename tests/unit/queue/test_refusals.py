from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pytest

from politesse import ConfigurationError, Gatekeeper, InvalidURL, Reason, Verdict
from politesse.events import Decided, Event
from politesse.queue import PoliteQueue
from politesse.testing import ScriptedFetcher
from tests.support.tasks import settle
from tests.unit.queue.crawl import NOTHING, UA, A, B, Refusals, waiting

if TYPE_CHECKING:
    from politesse.testing import ManualClock


async def test_disallowed_urls_are_passed_on_and_count_as_done(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    fetcher.answers[A] = "User-agent: *\nDisallow: /private\n"
    refused = Refusals()
    queue: PoliteQueue[object] = PoliteQueue(gate, on_disallowed=refused)
    await queue.put(f"{A}/private/1", item="one")
    await queue.put(f"{A}/private/2")
    await queue.put(f"{A}/open")
    async with queue.turn() as turn:
        assert turn.url == f"{A}/open"
    await queue.join()
    assert refused.items == ["one", f"{A}/private/2"]
    assert [verdict.reason for _, verdict in refused.verdicts] == [Reason.DISALLOW_RULE] * 2
    assert refused.verdicts[0][1].url == f"{A}/private/1"
    assert queue.statistics().refused == 2


async def test_a_worker_refuses_while_it_waits_and_join_ends(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = NOTHING
    queue: PoliteQueue[object] = PoliteQueue(gate)
    for place in range(1_000):
        await queue.put(f"{A}/{place}")
    async with waiting(queue) as [worker], asyncio.timeout(10):
        await queue.join()
        assert not worker.done()
    assert clock.monotonic() < 10  # a refusal waits for no interval
    assert queue.statistics().refused == 1_000


async def test_a_long_run_of_refusals_lets_others_run(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    fetcher.answers[A] = NOTHING
    queue: PoliteQueue[object] = PoliteQueue(gate)
    await gate.check(A)
    for place in range(1_000):
        await queue.put(f"{A}/{place}")
    async with waiting(queue):
        assert 0 < queue.qsize() < 1_000
        await queue.join()


def fail(item: object, _verdict: Verdict) -> None:
    raise LookupError(item)


async def test_error_of_on_disallowed_is_raised_by_turn_and_loses_no_url(
    gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    fetcher.answers[A] = "User-agent: *\nDisallow: /private\n"
    queue: PoliteQueue[object] = PoliteQueue(gate, on_disallowed=fail)
    await queue.put(f"{A}/private")
    await queue.put(f"{A}/open")
    with pytest.raises(LookupError, match="private"):
        async with queue.turn():
            pytest.fail("there is no turn")
    async with queue.turn() as turn:
        assert turn.url == f"{A}/open"
    await queue.join()


async def test_error_of_on_disallowed_in_one_worker_wakes_the_next(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    fetcher.answers[A] = "User-agent: *\nDisallow: /private\n"
    queue: PoliteQueue[object] = PoliteQueue(gate, on_disallowed=fail)
    async with waiting(queue, 2) as [first, second]:
        await queue.put(f"{A}/private")
        await queue.put(f"{A}/open")
        with pytest.raises(LookupError):
            await first
        async with asyncio.timeout(5):
            assert await second == f"{A}/open"


async def test_on_disallowed_may_put_another_and_join_waits_for_it(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    def refuse(_item: object, _verdict: Verdict) -> None:
        replacing.put_nowait(f"{B}/instead")

    fetcher.answers[A] = NOTHING
    replacing: PoliteQueue[object] = PoliteQueue(gate, on_disallowed=refuse)
    await replacing.put(f"{A}/1")
    joined = asyncio.create_task(replacing.join())
    async with replacing.turn() as turn:
        assert turn.url == f"{B}/instead"
        await settle()
        assert not joined.done()
    await joined


async def test_a_subscriber_may_put_while_a_turn_is_tried(
    gate: Gatekeeper, queue: PoliteQueue[object], clock: ManualClock
) -> None:
    await gate.check(A)
    await clock.sleep(5)
    await queue.put(f"{A}/first")
    extra = [f"{A}/second"]

    def put(event: Event) -> None:
        if isinstance(event, Decided) and extra:
            queue.put_nowait(extra.pop(), priority=-1)

    gate.subscribe(put)
    handed = []
    for _ in range(2):
        async with queue.turn() as turn:
            handed.append(turn.url)
    assert handed == [f"{A}/first", f"{A}/second"]
    assert queue.qsize() == 0
    await queue.join()


@pytest.mark.parametrize("url", ["nonsense", "ftp://a.example/", "https:///x", f"{A}/\ud800", f"{A}/a\nb"])
async def test_invalid_url_is_refused_when_it_is_put(queue: PoliteQueue[object], url: str) -> None:
    with pytest.raises(InvalidURL):
        await queue.put(url)
    with pytest.raises(InvalidURL):
        queue.put_nowait(url)
    assert queue.qsize() == 0
    await queue.join()


async def test_report_mode_hands_out_what_would_be_denied(fetcher: ScriptedFetcher, clock: ManualClock) -> None:
    fetcher.answers[A] = NOTHING
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, mode="report") as gate:
        queue: PoliteQueue[object] = PoliteQueue(gate)
        await queue.put(f"{A}/1")
        async with queue.turn() as turn:
            assert (turn.url, turn.verdict.reason) == (f"{A}/1", Reason.DISALLOW_RULE)


@pytest.mark.parametrize("target", ["\u00e9" * 9_000, '"' * 9_000], ids=["letters", "quotes"])
@pytest.mark.parametrize("first", [True, False])
async def test_a_target_that_is_too_long_once_it_is_escaped_is_refused_when_it_is_put(
    gate: Gatekeeper, target: str, *, first: bool
) -> None:
    queue: PoliteQueue[object] = PoliteQueue(gate)
    if not first:
        queue.put_nowait(f"{A}/0")
    with pytest.raises(InvalidURL):
        await queue.put(f"{A}/{target}")
    with pytest.raises(InvalidURL):
        queue.put_nowait(f"{A}/?{target}")
    assert queue.qsize() == (not first)
    queue.put_nowait(f"{A}/1")
    for _ in range(queue.qsize()):
        async with queue.turn():
            pass
    await queue.join()


async def test_wrong_gate_or_callback_is_refused_by_name() -> None:
    async def later(item: object, verdict: object) -> None:
        """Never be awaited."""

    async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate:
        for wrong in (later, "x"):
            with pytest.raises(ConfigurationError, match="on_disallowed="):
                PoliteQueue(gate, on_disallowed=cast("Any", wrong))
    with pytest.raises(ConfigurationError, match=r"gate='ExampleBot/1\.0'"):
        PoliteQueue(cast("Any", "ExampleBot/1.0"))


async def test_twenty_workers_block_the_event_loop_no_longer_than_one_does(
    gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    """Each of them refused a hundred URLs in one round of the event loop."""
    fetcher.answers[A] = NOTHING
    queue: PoliteQueue[object] = PoliteQueue(gate, on_disallowed=lambda item, verdict: time.sleep(0.0005))
    await gate.check(A)
    for place in range(200):
        await queue.put(f"{A}/{place}")
    refused: list[int] = []
    async with waiting(queue, 20):
        while queue.qsize():
            refused.append(queue.statistics().refused)
            await asyncio.sleep(0)
    # In 2 ms no more than four calls of half a millisecond end, and a fifth has begun.
    assert max(after - before for before, after in pairwise(refused)) <= 5


async def test_a_host_that_is_ready_does_not_wait_until_all_others_are_refused(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = NOTHING
    queue: PoliteQueue[object] = PoliteQueue(gate)
    await gate.check_batch([A, B])
    await clock.sleep(5)
    for place in range(1_000):
        await queue.put(f"{A}/{place}")
    await queue.put(f"{B}/1")
    async with queue.turn() as turn:
        assert turn.url == f"{B}/1"
        assert queue.qsize() >= 900
