"""A start that is being reserved and is not wanted any more leaves nothing behind."""

from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock, MagicMock

import pytest

from politesse._pacing.fleet.held_starts import HeldStarts
from politesse.ports import TurnRequest
from politesse.robots import RobotsTxt
from politesse.testing import ManualClock
from politesse.verdict import Bound, NotYet
from tests.support.tasks import ended, settle

REQUEST = TurnRequest("example.com", "https://example.com", "examplebot")
SLOWER = REQUEST._replace(pace=RobotsTxt.parse(b"User-agent: *\nCrawl-delay: 9").rules_for("ExampleBot"))


async def never(*_: object) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("steps", [0, 1])
async def test_a_start_for_another_pace_is_given_back_and_its_callback_waits_again(steps: int) -> None:
    reserver = MagicMock(is_closed=False, reserve=never)
    own, permit, ready = MagicMock(), MagicMock(), MagicMock()
    own.try_start.return_value = NotYet(0.0, Bound.IN_FLIGHT)
    starts = HeldStarts(reserver, own, MagicMock(), ManualClock())
    starts.hold(REQUEST, permit).callbacks.append(ready)
    for _ in range(steps):  # without one, the task that reserves is cancelled before it has begun
        await asyncio.sleep(0)
    assert starts.get(SLOWER) is None
    await asyncio.sleep(0)
    permit.give_back.assert_called()
    own.when_ready.assert_called_once()
    ready.assert_not_called()


async def test_a_start_whose_reservation_fails_unexpectedly_is_dropped() -> None:
    reserver = MagicMock(is_closed=False, reserve=AsyncMock(side_effect=ZeroDivisionError))
    permit = MagicMock()
    starts = HeldStarts(reserver, MagicMock(), MagicMock(), ManualClock())
    held = starts.hold(REQUEST, permit)
    assert held.task is not None
    with pytest.raises(ZeroDivisionError):
        await held.task
    assert starts.get(REQUEST) is None
    permit.give_back.assert_called_once()


@pytest.mark.parametrize("steps", [0, 1])
async def test_a_start_whose_task_is_cancelled_by_others_is_reserved_again(steps: int) -> None:
    clock, own, permit, ready = ManualClock(), MagicMock(), MagicMock(), MagicMock()
    starts = HeldStarts(MagicMock(is_closed=False, reserve=never), own, MagicMock(), clock)
    others = asyncio.all_tasks()
    starts.hold(REQUEST, permit).callbacks.append(ready)
    for _ in range(steps):  # without one, the task is cancelled before it has begun
        await asyncio.sleep(0)
    for task in asyncio.all_tasks() - others:
        task.cancel()
    await settle()
    assert starts.get(REQUEST) is None
    permit.give_back.assert_called_once()
    assert not asyncio.all_tasks() - others  # the event loop may be ending, with all its tasks
    clock.advance(1.0)
    assert starts.get(REQUEST) is not None
    ready.assert_not_called()
    await ended(asyncio.all_tasks() - others)


async def test_what_waits_for_a_start_whose_reservation_failed_unexpectedly_waits_for_another() -> None:
    reservation = MagicMock(answer=None)
    reserver = MagicMock(is_closed=False, reserve=AsyncMock(side_effect=[ZeroDivisionError, reservation]))
    clock, ready = ManualClock(), MagicMock()
    starts = HeldStarts(reserver, MagicMock(), MagicMock(), clock)
    held = starts.hold(REQUEST, MagicMock())
    held.callbacks.append(ready)
    assert held.task is not None
    with pytest.raises(ZeroDivisionError):
        await held.task
    clock.advance(1.0)
    await settle()
    ready.assert_called_once()


async def test_what_waits_for_a_start_whose_task_was_cancelled_is_called_at_the_close() -> None:
    reserver, ready = MagicMock(is_closed=False, reserve=never), MagicMock()
    starts = HeldStarts(reserver, MagicMock(), MagicMock(), ManualClock())
    held = starts.hold(REQUEST, MagicMock())
    held.callbacks.append(ready)
    assert held.task is not None
    held.task.cancel()
    await settle()
    ready.assert_not_called()
    reserver.is_closed = True
    await starts.aclose()
    ready.assert_called_once()


async def test_what_waits_for_a_start_whose_task_is_cancelled_during_the_close_is_called() -> None:
    reserver, ready = MagicMock(is_closed=False, reserve=never), MagicMock()
    starts = HeldStarts(reserver, MagicMock(), MagicMock(), ManualClock())
    held = starts.hold(REQUEST, MagicMock())
    held.callbacks.append(ready)
    reserver.is_closed = True
    closing = asyncio.create_task(starts.aclose())
    await settle()
    assert held.task is not None
    held.task.cancel()
    await closing
    ready.assert_called_once()
