"""A process reserves its starts in Redis, though it is slow, closed or cut off meanwhile; Redis is real."""

import asyncio
from collections.abc import Mapping, Sequence
from secrets import token_hex

import pytest

from politesse import PacingOptions
from politesse._pacing.fleet.messages import Reply, ScriptCall, WireLost
from politesse._pacing.fleet.pacer import FleetPacer
from politesse._pacing.fleet.scripts import Script
from politesse.errors import ClosedError
from politesse.events import Publisher
from politesse.testing import ManualClock
from politesse.verdict import Bound
from tests.contract.fleet_pacer import ManualWire, fleet_pacer, settle
from tests.support.pacing import HOST, MIDNIGHT, finish, wants


class SlowProcess(ManualWire):
    """Its process comes to each answer about a start a quarter of a second late."""

    reserved = 0

    async def exchange(self, calls: Sequence[ScriptCall], epochs: Mapping[str, str], /) -> list[Reply | Exception]:
        replies = await super().exchange(calls, epochs)
        if any(call.script is Script.RESERVE for call in calls):
            assert isinstance(self._clock, ManualClock)
            self._clock.advance(0.25)
            type(self).reserved += 1
        return replies


class Cut(ManualWire):
    """A wire that ``cut`` breaks for good."""

    cut = False

    async def exchange(self, calls: Sequence[ScriptCall], epochs: Mapping[str, str], /) -> list[Reply | Exception]:
        if self.cut:
            raise WireLost("cut")
        return await super().exchange(calls, epochs)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(MIDNIGHT)


def member(clock: ManualClock, prefix: str, wire_type: type[ManualWire] = ManualWire) -> FleetPacer:
    return fleet_pacer(PacingOptions(min_delay_s=60.0, adaptive_factor=0.0), clock, Publisher(), prefix, wire_type)


async def test_a_process_that_is_always_late_becomes_patient_and_starts(clock: ManualClock) -> None:
    pacer = member(clock, f"{token_hex(6)}:", SlowProcess)
    async with asyncio.timeout(10):
        permit = await pacer.start(wants())
    assert 1 < SlowProcess.reserved < 20
    finish(permit, 200)
    await pacer.aclose()


async def test_the_close_ends_the_wait_for_another_process_at_once(clock: ManualClock) -> None:
    prefix = f"{token_hex(6)}:"
    other, pacer = member(clock, prefix), member(clock, prefix)
    finish(await other.start(wants()), 200)
    waiting = asyncio.ensure_future(pacer.start(wants()))
    await settle()
    assert pacer.waiting == 1
    await pacer.aclose()
    await settle()
    assert waiting.done()
    with pytest.raises(ClosedError):
        await waiting
    await other.aclose()


async def test_who_waits_for_another_process_is_told_at_once_that_redis_is_away(clock: ManualClock) -> None:
    prefix = f"{token_hex(6)}:"
    other, pacer = member(clock, prefix), member(clock, prefix, Cut)
    finish(await other.start(wants()), 200)
    waiting = asyncio.ensure_future(pacer.start(wants()))
    await settle()
    before = pacer.hosts()[HOST].fleet_wait
    Cut.cut = True
    pacer.close_host("elsewhere.example", MIDNIGHT + 9, Bound.BACKOFF)  # the next call finds that Redis is away
    await settle()
    after = pacer.hosts()[HOST].fleet_wait
    assert before is not None
    assert after is not None
    assert (before.bound_by, after.bound_by) == (Bound.FLOOR, Bound.FLEET)
    waiting.cancel()
    await pacer.aclose()
    await other.aclose()
