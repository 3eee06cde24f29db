"""Permits that are waited for in the background."""

from __future__ import annotations

import asyncio
from unittest.mock import AsyncMock, MagicMock

import pytest

from politesse._pacing.background import BackgroundStarts
from politesse.errors import ClosedError, TooFar
from politesse.testing import ManualClock
from politesse.verdict import Bound, NotYet
from tests.support.pacing import HOST, wants
from tests.support.tasks import ended, settle


async def test_a_permit_is_taken_once_after_the_call() -> None:
    permit, called = MagicMock(), MagicMock()
    starts = BackgroundStarts(AsyncMock(return_value=permit), ManualClock())
    starts.begin(wants(), called)
    assert starts.take(wants()) is None
    await settle()
    called.assert_called_once()
    assert starts.take(wants()) is permit
    assert starts.take(wants()) is None
    assert wants() not in starts


async def test_a_permit_that_nobody_takes_is_given_back() -> None:
    clock, permit = ManualClock(), MagicMock()
    starts = BackgroundStarts(AsyncMock(return_value=permit), clock)
    starts.begin(wants())
    await settle()
    clock.advance(1.0)
    permit.give_back.assert_called_once()
    assert starts.take(wants()) is None


async def test_a_permit_that_holds_no_more_is_given_back() -> None:
    permit = MagicMock()
    permit.renew.return_value = False
    starts = BackgroundStarts(AsyncMock(return_value=permit), ManualClock())
    starts.begin(wants())
    await settle()
    assert starts.take(wants()) is None
    permit.give_back.assert_called_once()


async def test_an_error_is_raised_in_whoever_asks_next() -> None:
    called = MagicMock()
    starts = BackgroundStarts(AsyncMock(side_effect=ClosedError("closed")), ManualClock())
    starts.begin(wants(), called)
    await settle()
    called.assert_called_once()
    with pytest.raises(ClosedError):
        starts.take(wants())
    assert starts.take(wants()) is None


async def test_after_a_wait_that_is_too_long_it_may_be_asked_again() -> None:
    called = MagicMock()
    too_far = TooFar(HOST, NotYet(0.0, Bound.BACKOFF), 30.0)
    starts = BackgroundStarts(AsyncMock(side_effect=too_far), ManualClock())
    starts.begin(wants(), called)
    await settle()
    called.assert_called_once()
    assert starts.take(wants()) is None
    assert wants() not in starts


async def test_what_is_kept_is_given_back_at_the_close() -> None:
    permit = MagicMock()
    starts = BackgroundStarts(AsyncMock(return_value=permit), ManualClock())
    starts.begin(wants())
    await asyncio.sleep(0)
    await starts.aclose()
    permit.give_back.assert_called_once()


async def never(*_: object) -> MagicMock:
    await asyncio.Event().wait()
    return MagicMock()


@pytest.mark.parametrize("steps", [0, 1])
async def test_what_waits_for_a_permit_whose_task_is_cancelled_by_others_asks_again(steps: int) -> None:
    clock, called, others = ManualClock(), MagicMock(), asyncio.all_tasks()
    starts = BackgroundStarts(never, clock)
    starts.begin(wants(), called)
    for _ in range(steps):  # without one, the task is cancelled before it has begun
        await asyncio.sleep(0)
    await ended(asyncio.all_tasks() - others)
    assert wants() not in starts
    called.assert_not_called()  # the event loop may be ending, with all its tasks
    clock.advance(1.0)
    called.assert_called_once()


async def test_what_waits_for_a_permit_at_an_unexpected_error_asks_again() -> None:
    clock, called, others = ManualClock(), MagicMock(), asyncio.all_tasks()
    starts = BackgroundStarts(AsyncMock(side_effect=ZeroDivisionError), clock)
    starts.begin(wants(), called)
    (task,) = asyncio.all_tasks() - others
    with pytest.raises(ZeroDivisionError):
        await task
    assert wants() not in starts
    clock.advance(1.0)
    called.assert_called_once()


async def test_what_waits_for_a_permit_whose_task_was_cancelled_is_called_once_at_the_close() -> None:
    clock, called, others = ManualClock(), MagicMock(), asyncio.all_tasks()
    starts = BackgroundStarts(never, clock)
    starts.begin(wants(), called)
    await ended(asyncio.all_tasks() - others)
    await starts.aclose()
    called.assert_called_once()
    clock.advance(1.0)
    called.assert_called_once()
