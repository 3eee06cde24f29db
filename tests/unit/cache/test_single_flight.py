from __future__ import annotations

import asyncio

import pytest

from politesse._cache.single_flight import Flight, Flights
from politesse.errors import ClosedError, WrongEventLoop


async def _work(flight: Flight[int], go_on: asyncio.Event) -> None:
    await go_on.wait()
    flight.set_result(1)


async def test_cancelled_waiter_does_not_end_the_flight() -> None:
    flights: Flights[Flight[int]] = Flights()
    go_on = asyncio.Event()
    flight: Flight[int] = Flight()
    flights.start("a", flight, _work(flight, go_on), "a")
    first, second = asyncio.ensure_future(flight.wait()), asyncio.ensure_future(flight.wait())
    await asyncio.sleep(0)
    first.cancel()
    go_on.set()
    assert await second == 1
    assert first.cancelled()
    await asyncio.sleep(0)
    assert (len(flights), flights.get("a")) == (0, None)


async def test_ending_a_flight_does_not_remove_the_next_one_of_its_key() -> None:
    flights: Flights[Flight[int]] = Flights()
    go_on = asyncio.Event()
    old: Flight[int] = Flight()
    new: Flight[int] = Flight()
    flights.start("a", old, _work(old, go_on), "old")
    flights.start("a", new, _work(new, go_on), "new")
    flights.end("a", old)
    assert flights.get("a") is new
    go_on.set()
    assert [await old.wait(), await new.wait()] == [1, 1]


async def test_closing_raises_in_all_waiters_and_cancels_the_work() -> None:
    flights: Flights[Flight[int]] = Flights()
    flight: Flight[int] = Flight()
    flights.start("a", flight, _work(flight, asyncio.Event()), "a")
    waiter = asyncio.ensure_future(flight.wait())
    await asyncio.sleep(0)
    [task] = flights.close("closed")
    with pytest.raises(ClosedError, match="closed"):
        await waiter
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_failure_is_raised_in_all_waiters() -> None:
    flight: Flight[int] = Flight()
    waiters = [asyncio.ensure_future(flight.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    flight.set_error(OSError("broken"))
    flight.set_result(1)  # too late
    answers = await asyncio.gather(*waiters, return_exceptions=True)
    assert [type(answer) for answer in answers] == [OSError, OSError]


async def test_a_flight_is_waited_for_in_its_own_event_loop() -> None:
    flight: Flight[int] = Flight()
    with pytest.raises(WrongEventLoop):
        await asyncio.to_thread(asyncio.run, flight.wait())
