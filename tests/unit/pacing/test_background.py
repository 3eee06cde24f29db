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
from tests.support.tasks import settle


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
