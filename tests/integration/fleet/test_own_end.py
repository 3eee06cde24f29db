"""A start counts from the end that this process knows by its own clock, and only if no other request ended later."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from secrets import token_hex
from typing import TYPE_CHECKING, Final

import pytest

from politesse._pacing.fleet.messages import FleetAnswer, ScriptCall
from politesse._pacing.fleet.scripts import Script
from politesse._pacing.fleet.wire import RedisWire
from politesse._pacing.pace import PacingOptions
from politesse.events import Publisher
from politesse.testing import ManualClock
from politesse.verdict import NotYet
from tests.contract.fleet_pacer import ManualWire, fleet_pacer, settle
from tests.support.pacing import finish, wants

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from redis.asyncio import Redis

    from politesse._pacing.fleet.messages import Reply
    from politesse._pacing.fleet.pacer import FleetPacer
    from tests.support.redis_servers import RedisServer

ONE: Final = "one.1"
TWO: Final = "two.1"
NEXT: Final = "one.2"
INTERVAL_US: Final = 2_000_000
SLACK_US: Final = 50_000
TRIP_S: Final = 0.04
DUE_S: Final = 1.001  # the interval and the slack


class Scripts:
    """Runs scripts on one key, as several processes would."""

    def __init__(self, wire: RedisWire, key: str) -> None:
        self._wire = wire
        self._key = key

    async def reserve(
        self, ticket: str, most: int = 1, lease_us: int = 10_000_000, interval_us: int = INTERVAL_US
    ) -> FleetAnswer:
        arguments = (ticket, interval_us, SLACK_US, SLACK_US, most, lease_us, "http://example.com/", 60_000_000)
        return FleetAnswer.of(await self._run(Script.RESERVE, *arguments))

    async def end(self, ticket: str, *, is_alone: bool = True) -> None:
        await self._run(Script.RELEASE, ticket, "end", int(is_alone), -1, 0, 0, 0)

    async def give_back(self, ticket: str) -> None:
        await self._run(Script.RELEASE, ticket, "back", 0, -1, 0, 0, 0)

    async def close(self, closed_us: int) -> None:
        await self._run(Script.CLOSE, "one", closed_us, "backoff", closed_us, 0)

    async def renew(self, ticket: str) -> None:
        await self._run(Script.RENEW, ticket, 10_000_000, "")

    async def _run(self, script: Script, *arguments: str | int) -> Reply:
        (reply,) = await self._wire.exchange([ScriptCall(script, self._key, (f"{self._key}:to:", 0, 0, *arguments))])
        assert not isinstance(reply, Exception), reply
        return reply


@pytest.fixture
def key() -> str:
    return token_hex(6)


@pytest.fixture
async def scripts(server: RedisServer, key: str) -> AsyncIterator[Scripts]:
    wire = RedisWire.of_url(server.url)
    await wire.open(f"{key}:to:one")
    yield Scripts(wire, key)
    await wire.aclose()


async def test_the_last_end_is_named_with_the_time_after_it(scripts: Scripts) -> None:
    await scripts.reserve(ONE)
    await scripts.end(ONE)
    answer = await scripts.reserve(NEXT)
    assert (answer.ended, answer.after_s) == (ONE, 2.05)


async def test_a_grant_that_is_given_back_or_discarded_leaves_the_end_before_it_named(scripts: Scripts) -> None:
    await scripts.reserve(ONE)
    await scripts.end(ONE)
    await scripts.reserve(TWO)
    await scripts.give_back(TWO)
    assert (await scripts.reserve(NEXT)).ended == ONE
    assert (await scripts.reserve(NEXT)).ended == ONE


async def test_the_end_of_another_process_is_named_instead(scripts: Scripts) -> None:
    for ticket in (ONE, TWO):
        await scripts.reserve(ticket)
        await scripts.end(ticket)
    assert (await scripts.reserve(NEXT)).ended == TWO


@pytest.mark.parametrize("counted", ["before", "after"])
async def test_a_fetch_without_a_ticket_takes_the_name_away(scripts: Scripts, counted: str) -> None:
    await scripts.reserve(ONE)
    if counted == "before":
        await scripts.end("")
    await scripts.end(ONE)
    if counted == "after":
        await scripts.end("")
    answer = await scripts.reserve(NEXT)
    assert (answer.kind, answer.ended) == ("granted", "")
    assert answer.wait_s > 1.0


async def test_an_end_that_is_reported_again_names_nothing(scripts: Scripts) -> None:
    await scripts.reserve(ONE)
    await scripts.end(ONE)
    await scripts.end(ONE)
    assert (await scripts.reserve(NEXT)).ended == ""


async def test_an_end_after_its_lease_names_nothing(scripts: Scripts) -> None:
    await scripts.reserve(ONE, lease_us=10_000)
    await asyncio.sleep(0.02)
    await scripts.end(ONE)
    assert (await scripts.reserve(NEXT)).ended == ""


async def test_an_end_beside_a_request_that_redis_has_heard_of_again_names_nothing(scripts: Scripts) -> None:
    await scripts.reserve(ONE)
    await scripts.renew(TWO)
    await scripts.end(ONE)
    await scripts.end(TWO, is_alone=False)
    assert (await scripts.reserve(NEXT)).ended == ""


async def test_the_late_end_of_a_request_whose_lease_is_over_takes_the_name_away(scripts: Scripts) -> None:
    await scripts.reserve(TWO, lease_us=10_000)
    await asyncio.sleep(0.02)
    await scripts.reserve(ONE)
    await scripts.end(ONE)
    await scripts.end(TWO)
    assert (await scripts.reserve(NEXT)).ended == ""


async def test_grants_that_are_given_back_in_any_order_leave_the_end_before_them_named(scripts: Scripts) -> None:
    await scripts.reserve(ONE)
    await scripts.end(ONE)
    assert (await scripts.reserve(TWO)).ended == ONE
    assert (await scripts.reserve("two.2", most=2)).ended == ""
    await scripts.give_back(TWO)
    await scripts.give_back("two.2")
    assert (await scripts.reserve(NEXT)).ended == ONE


async def test_a_grant_whose_lease_is_over_takes_the_name_away(scripts: Scripts) -> None:
    await scripts.reserve(ONE)
    await scripts.end(ONE)
    assert (await scripts.reserve(TWO, lease_us=100_000, interval_us=10_000)).ended == ONE
    await asyncio.sleep(0.2)
    assert (await scripts.reserve(NEXT)).ended == ""


async def test_an_end_after_a_grant_to_another_names_nothing(scripts: Scripts) -> None:
    await scripts.reserve(ONE)
    await scripts.reserve(TWO, most=2)
    await scripts.give_back(TWO)
    await scripts.end(ONE)
    assert (await scripts.reserve(NEXT)).ended == ""


async def test_a_lease_that_was_over_and_is_renewed_names_nothing(scripts: Scripts) -> None:
    await scripts.reserve(ONE, lease_us=10_000)
    await asyncio.sleep(0.02)
    await scripts.renew(ONE)
    await scripts.end(ONE)
    assert (await scripts.reserve(NEXT)).ended == ""


async def test_where_several_may_run_no_end_is_named(scripts: Scripts) -> None:
    for ticket in (ONE, TWO):
        await scripts.reserve(ticket, most=2)
    await scripts.end(ONE, is_alone=False)
    assert (await scripts.reserve(NEXT, most=2)).ended == ""


@pytest.mark.parametrize(("closed_us", "bound_by"), [(60_000_000, "backoff"), (1_000_000, "interval")])
async def test_while_a_closing_lasts_no_end_is_named(scripts: Scripts, closed_us: int, bound_by: str) -> None:
    await scripts.reserve(ONE)
    await scripts.close(closed_us)
    await scripts.end(ONE)
    answer = await scripts.reserve(NEXT)
    assert (answer.bound_by, answer.ended, answer.after_s) == (bound_by, "", 0.0)


async def test_a_clock_that_was_set_back_takes_the_name_away(scripts: Scripts, key: str, redis: Redis) -> None:
    await scripts.reserve(ONE)
    await scripts.end(ONE)
    seconds, micros = await redis.time()
    await redis.hset(key, "seen", str((seconds + 1) * 1_000_000 + micros))
    assert (await scripts.reserve(NEXT)).ended == ""


class DistantWire(ManualWire):
    """Time passes while a message travels."""

    _clock: ManualClock

    async def exchange(self, calls: Sequence[ScriptCall], /) -> list[Reply | Exception]:
        with self._at_work():
            self._clock.advance(TRIP_S / 2.0)
            replies = await super().exchange(calls)
            self._clock.advance(TRIP_S / 2.0)
            return replies


def distant(clock: ManualClock, prefix: str) -> FleetPacer:
    options = PacingOptions(min_delay_s=1.0, adaptive_factor=0.0)
    return fleet_pacer(options, clock, Publisher(), prefix, DistantWire)


async def visit(pacer: FleetPacer, clock: ManualClock) -> tuple[float, float]:
    """Make one request whose start is reserved ahead; return when it started and ended."""
    called: list[float] = []
    pacer.when_ready(wants(), lambda: called.append(clock.monotonic()))
    while not called:
        await settle()
        clock.advance(0.001)
    permit = pacer.try_start(wants())
    assert not isinstance(permit, NotYet)
    began_mono = clock.monotonic()
    clock.advance(0.2)
    finish(permit, 200)
    return began_mono, clock.monotonic()


async def test_the_trip_is_hidden_where_the_process_itself_has_ended_last() -> None:
    clock = ManualClock()
    pacer = distant(clock, "")
    visits = [await visit(pacer, clock) for _ in range(6)]
    gaps = [began - ended for (_, ended), (began, _) in pairwise(visits)]
    assert min(gaps) >= DUE_S - 1e-9
    assert gaps[-1] < DUE_S + TRIP_S / 4.0
    await pacer.aclose()


async def test_the_trip_of_another_process_is_waited_out() -> None:
    clock, prefix = ManualClock(), f"{token_hex(6)}:"
    members = [distant(clock, prefix) for _ in range(2)]
    visits = [await visit(members[place % 2], clock) for place in range(6)]
    gaps = [began - ended for (_, ended), (began, _) in pairwise(visits)]
    assert min(gaps) >= DUE_S + TRIP_S / 2.0 - 1e-9
    for pacer in members:
        await pacer.aclose()


async def test_a_loss_forgets_when_requests_have_ended() -> None:
    clock = ManualClock()
    pacer = distant(clock, "")
    visits = [await visit(pacer, clock) for _ in range(5)]
    pacer.lost()
    began_mono, _ = await visit(pacer, clock)
    assert began_mono - visits[-1][1] >= DUE_S + TRIP_S / 2.0 - 1e-9
    await pacer.aclose()
