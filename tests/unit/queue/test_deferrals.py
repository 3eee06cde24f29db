import pytest

from politesse import Gatekeeper, Reason
from politesse.events import Event
from politesse.ports import FetchResponse
from politesse.queue import PoliteQueue
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.tasks import settle
from tests.unit.queue.crawl import NOTHING, UA, A, Queue, next_url, waiting


async def test_a_deferral_is_counted_once_though_the_wall_clock_is_set_forward(
    gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = [503, 404]
    verdict = await gate.check(A)
    assert verdict.not_before is not None
    wait_s = verdict.not_before - clock.wall()
    clock.set_wall(clock.wall() + 100_000)
    looks: list[Event] = []
    gate.subscribe(looks.append)
    queue: Queue = PoliteQueue(gate, max_unreachable_s=200_000.0)
    await queue.put(f"{A}/1")
    async with queue.turn() as turn:
        assert turn.url == f"{A}/1"
        assert wait_s <= clock.monotonic() <= wait_s + 5
    assert queue.statistics().refused == 0
    assert len(looks) <= wait_s + 10  # about one look each second


@pytest.mark.parametrize(("robots", "reason"), [(503, Reason.UNREACHABLE), (NOTHING, Reason.DISALLOW_RULE)])
async def test_report_mode_defers_and_refuses_nothing(
    fetcher: ScriptedFetcher, clock: ManualClock, robots: int | str, reason: Reason
) -> None:
    fetcher.answers[A] = robots
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, mode="report") as gate:
        queue: Queue = PoliteQueue(gate)
        await queue.put(f"{A}/1")
        async with queue.turn() as turn:
            assert (turn.url, turn.verdict.reason) == (f"{A}/1", reason)
            assert queue.statistics().deferred == 0
            assert clock.monotonic() < 10
        await gate.check(A)
        await queue.put(f"{A}/2")  # now that it is known
        assert await next_url(queue) == f"{A}/2"


async def test_url_disallowed_by_a_copy_that_serves_after_429_is_refused_at_once(
    queue: Queue, gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    busy = FetchResponse(429, f"{A}/robots.txt", headers={"retry-after": "500"})
    fetcher.answers[A] = [NOTHING, busy]
    await gate.check(A)
    await clock.sleep(86_400 * 0.9)  # it is fresh still, and old enough to be asked for again behind the answer
    await gate.check(A)
    await settle()
    verdict = await gate.check(A)
    assert (verdict.reason, verdict.not_before is not None) == (Reason.DISALLOW_RULE, True)
    await queue.put(f"{A}/1")
    async with waiting(queue):
        await settle()
        assert (queue.statistics().refused, queue.statistics().deferred) == (1, 0)


async def test_deferred_origin_is_not_tried_before_its_time(
    queue: Queue, gate: Gatekeeper, fetcher: ScriptedFetcher, clock: ManualClock
) -> None:
    fetcher.answers[A] = 503
    verdict = await gate.check(A)
    looks: list[Event] = []
    await queue.put(f"{A}/1")
    async with waiting(queue):
        gate.subscribe(looks.append)
        assert queue.statistics().deferred == 1
        assert verdict.not_before is not None
        await clock.sleep(verdict.not_before - clock.wall() - 0.1)
        assert looks == []
