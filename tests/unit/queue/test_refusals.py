import asyncio
import time
from itertools import pairwise
from typing import Any, cast

import pytest

from politesse import ConfigurationError, Gatekeeper, InvalidURL, Verdict
from politesse.events import Decided, Event
from politesse.queue import PoliteQueue
from politesse.testing import ManualClock, ScriptedFetcher
from tests.unit.queue.crawl import NOTHING, UA, A, B, Queue, next_url, put, waiting


def fail(item: object, _verdict: Verdict) -> None:
    raise LookupError(item)


async def test_error_of_on_disallowed_is_raised_by_turn_and_loses_no_url(
    gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    fetcher.answers[A] = "User-agent: *\nDisallow: /private\n"
    queue: Queue = PoliteQueue(gate, on_disallowed=fail)
    await queue.put(f"{A}/private")
    await queue.put(f"{A}/open")
    with pytest.raises(LookupError, match="private"):
        async with queue.turn():
            pytest.fail("there is no turn")
    assert await next_url(queue) == f"{A}/open"
    await queue.join()


async def test_a_subscriber_may_put_while_a_turn_is_tried(gate: Gatekeeper, queue: Queue, clock: ManualClock) -> None:
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
async def test_invalid_url_is_refused_when_it_is_put(queue: Queue, url: str) -> None:
    with pytest.raises(InvalidURL):
        await queue.put(url)
    with pytest.raises(InvalidURL):
        queue.put_nowait(url)
    assert queue.qsize() == 0
    await queue.join()


@pytest.mark.parametrize("target", ["\u00e9" * 9_000, '"' * 9_000], ids=["letters", "quotes"])
@pytest.mark.parametrize("first", [True, False])
async def test_a_target_that_is_too_long_once_it_is_escaped_is_refused_when_it_is_put(
    queue: Queue, target: str, *, first: bool
) -> None:
    if not first:
        queue.put_nowait(f"{A}/0")
    with pytest.raises(InvalidURL):
        await queue.put(f"{A}/{target}")
    with pytest.raises(InvalidURL):
        queue.put_nowait(f"{A}/?{target}")
    assert queue.qsize() == (not first)
    queue.put_nowait(f"{A}/1")
    for _ in range(queue.qsize()):
        await next_url(queue)
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
    queue: Queue = PoliteQueue(gate, on_disallowed=lambda item, verdict: time.sleep(0.0005))
    await gate.check(A)
    await put(queue, *(f"{A}/{place}" for place in range(200)))
    refused: list[int] = []
    async with waiting(queue, 20):
        while queue.qsize():
            refused.append(queue.statistics().refused)
            await asyncio.sleep(0)
    # In 2 ms no more than four calls of half a millisecond end, and a fifth has begun.
    assert max(after - before for before, after in pairwise(refused)) <= 5


async def test_a_host_that_is_ready_does_not_wait_until_all_others_are_refused(
    queue: Queue, gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = NOTHING
    await gate.check_batch([A, B])
    await clock.sleep(5)
    await put(queue, *(f"{A}/{place}" for place in range(1_000)))
    await queue.put(f"{B}/1")
    async with queue.turn() as turn:
        assert turn.url == f"{B}/1"
        assert queue.qsize() >= 900


async def test_other_workers_go_on_if_on_disallowed_raises(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    fetcher.answers[A] = NOTHING
    queue: Queue = PoliteQueue(gate, on_disallowed=fail)
    fetcher.gate.clear()
    await put(queue, f"{A}/1", f"{A}/2", f"{A}/3")
    async with waiting(queue, 3) as workers:
        fetcher.gate.set()
        async with asyncio.timeout(5):
            results = await asyncio.gather(*workers, return_exceptions=True)
    assert [type(result) for result in results] == [LookupError] * 3
