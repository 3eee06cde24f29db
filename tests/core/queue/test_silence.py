"""A queue that gives up a site, or does not move, says so in the log."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager

import pytest

from politesse import Gatekeeper
from politesse.queue import PoliteQueue
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.queue.crawl import NOTHING, UA, A, B, Queue, next_url, put, running_timers, waiting
from tests.support.tasks import apart, settle


class Records(logging.Handler):
    """Keeps the records in a list."""

    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__()
        self.records = records

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def lines() -> Iterator[list[logging.LogRecord]]:
    """The records of the queue's logger."""
    records: list[logging.LogRecord] = []
    handler = Records(records)
    logger = logging.getLogger("politesse.queue")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield records
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def manual() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def still(fetcher: ScriptedFetcher, manual: ManualClock) -> AsyncIterator[Gatekeeper]:
    """A gatekeeper whose clock moves only when the test moves it."""
    async with Gatekeeper(UA, fetcher=fetcher, clock=manual) as gate:
        yield gate


@asynccontextmanager
async def running(*waits: Coroutine[object, object, object]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(wait) for wait in waits]
    await settle(8)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def said(lines: list[logging.LogRecord], level: int) -> list[str]:
    return [line.getMessage() for line in lines if line.levelno == level]


async def advance(clock: ManualClock, seconds: float) -> None:
    clock.advance(seconds)
    await settle(8)


async def one_turn(queue: Queue) -> None:
    async with queue.turn():
        await asyncio.Event().wait()


@pytest.mark.parametrize("known", [True, False], ids=["known before", "unknown"])
async def test_a_site_that_is_given_up_is_logged_once(
    gate: Gatekeeper, fetcher: ScriptedFetcher, lines: list[logging.LogRecord], *, known: bool
) -> None:
    fetcher.answers[A] = 503
    fetcher.answers[B] = NOTHING
    if known:
        await gate.check_batch([A, B])
    queue: Queue = PoliteQueue(gate, max_unreachable_s=0)
    for place in range(3):
        await queue.put(f"{A}/{place}")
        await queue.put(f"{B}/{place}")
    async with waiting(queue):
        await queue.join()
        assert queue.statistics().given_up == 3
        await queue.put(f"{A}/4")
        await queue.join()
    why = "robots.txt is unreachable, so everything is disallowed: the server answered with status 503"
    assert said(lines, logging.WARNING) == [f"gave up {A}: {why}; 3 URLs are not requested"]


async def test_a_site_that_answers_and_is_given_up_again_is_logged_again(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock, lines: list[logging.LogRecord]
) -> None:
    queue: Queue = PoliteQueue(gate, max_unreachable_s=0)
    for answer in (503, "", 503):
        fetcher.answers[A] = answer
        await gate.forget(A)
        await queue.put(f"{A}/1")
        async with waiting(queue) as [worker]:
            await clock.sleep(100)
            assert worker.done() == (answer == "")
    assert len(said(lines, logging.WARNING)) == 2
    assert {line[-24:] for line in said(lines, logging.WARNING)} == {"; 1 URL is not requested"}


async def test_pages_that_would_wait_too_long_are_logged(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock, lines: list[logging.LogRecord]
) -> None:
    fetcher.answers[A] = "User-agent: *\nCrawl-delay: 100"
    queue: Queue = PoliteQueue(gate, max_wait_s=50)
    await put(queue, *(f"{A}/{place}" for place in range(3)))
    async with waiting(queue):
        await queue.join()
    [line] = said(lines, logging.WARNING)
    assert line.startswith(f"gave up {A}: the site makes its pages wait for longer than this crawler accepts: crawl-d")
    assert line.endswith("; 3 URLs are not requested")


async def test_puts_that_wait_for_room_without_a_worker_are_logged_once(
    still: Gatekeeper, manual: ManualClock, lines: list[logging.LogRecord]
) -> None:
    queue: Queue = PoliteQueue(still, maxsize=2)
    async with running(*(queue.put(f"{A}/{place}") for place in range(5))):
        await advance(manual, 59)
        assert said(lines, logging.INFO) == []
        await advance(manual, 1)
        waits = "0 under way, 0 workers waiting, 3 puts wait for room (a.example)"
        shown = f"<PoliteQueue: 2 queued at 1 host (a.example), 1 ready, {waits}>"
        assert said(lines, logging.INFO) == [f"no progress for 60 s: {shown}"]
        await advance(manual, 3_600)
        assert len(said(lines, logging.INFO)) == 1


async def test_join_without_a_worker_is_logged(
    still: Gatekeeper, manual: ManualClock, lines: list[logging.LogRecord]
) -> None:
    queue: Queue = PoliteQueue(still)
    await queue.put(f"{A}/1")
    async with running(queue.join()):
        await advance(manual, 60)
    [line] = said(lines, logging.INFO)
    assert "1 queued at 1 host (a.example)" in line


async def test_a_turn_of_an_empty_queue_is_logged_again_after_progress_only(
    still: Gatekeeper, manual: ManualClock, lines: list[logging.LogRecord]
) -> None:
    queue: Queue = PoliteQueue(still)
    async with running(one_turn(queue), one_turn(queue)):
        await advance(manual, 7_200)
        assert len(said(lines, logging.INFO)) == 1
        await queue.put(f"{A}/\u202e")
        await settle(8)
        await advance(manual, 5)
        await advance(manual, 60)
    [idle, held] = said(lines, logging.INFO)
    assert "0 queued at 0 hosts, 0 ready, 0 under way, 2 workers waiting" in idle
    assert f"1 under way ({A}/\\u202e), 1 worker waiting" in held


async def test_a_turn_of_the_host_that_another_task_holds_is_logged_with_its_holder(
    still: Gatekeeper, manual: ManualClock, lines: list[logging.LogRecord]
) -> None:
    queue: Queue = PoliteQueue(still)
    await put(queue, *(f"{A}/{place}" for place in range(2)))

    async def parent() -> None:
        async with queue.turn():
            await apart(one_turn(queue))

    async with running(parent()):
        await advance(manual, 5)
        await advance(manual, 60)
    [line] = said(lines, logging.INFO)
    assert f"1 queued at 1 host (a.example), 0 ready, 1 under way ({A}/0), 1 worker waiting" in line


async def test_hosts_that_are_all_deferred_are_logged(
    still: Gatekeeper, fetcher: ScriptedFetcher, manual: ManualClock, lines: list[logging.LogRecord]
) -> None:
    fetcher.answers[A] = 429
    queue: Queue = PoliteQueue(still)
    await queue.put(f"{A}/1")
    async with waiting(queue):
        await advance(manual, 59)
        assert queue.statistics().deferred == 1
        await advance(manual, 1)
    [line] = said(lines, logging.INFO)
    assert f"1 worker waiting, {A} deferred until 2027-01-15T08:0" in line


async def test_waits_that_are_given_up_and_begun_again_are_one_stall(
    still: Gatekeeper, manual: ManualClock, lines: list[logging.LogRecord]
) -> None:
    queue: Queue = PoliteQueue(still)
    for _ in range(12):
        async with running(one_turn(queue)):
            await advance(manual, 8)
        assert running_timers(manual) == 0
    assert len(said(lines, logging.INFO)) == 1


async def test_a_queue_that_moves_is_not_logged(
    queue: Queue, fetcher: ScriptedFetcher, clock: ManualClock, lines: list[logging.LogRecord]
) -> None:
    fetcher.answers[A] = "User-agent: *\nCrawl-delay: 50"
    await put(queue, *(f"{A}/{place}" for place in range(5)))

    async def work() -> None:
        for _ in range(5):
            await next_url(queue)

    await asyncio.gather(work(), queue.join())
    assert clock.monotonic() > 200
    assert said(lines, logging.INFO) == []
