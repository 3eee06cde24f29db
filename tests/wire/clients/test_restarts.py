"""A gate that starts again on the file of an earlier one."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from politesse import Gatekeeper, PacingOptions, TooFar
from politesse.options import SharedPacer
from politesse.ports import FetchResponse, Store
from politesse.stores import SqliteStore
from politesse.testing import ManualClock, ScriptedFetcher

UA = "ExampleBot/1.0"
START = 1_800_000_000
DAY_S = 86_400


def sites(count: int) -> dict[str, FetchResponse]:
    return {
        f"https://host{number}.example": FetchResponse(
            200,
            f"https://host{number}.example/robots.txt",
            {"etag": f'"v{number}"'},
            b"User-agent: *\nDisallow: /private%d/\n" % number,
        )
        for number in range(count)
    }


async def answers(gate: Gatekeeper, count: int) -> list[bool]:
    """Whether each site allows what it disallows, and what the next one disallows."""
    urls = [f"https://host{n}.example/private{m}/x" for n in range(count) for m in (n, n + count)]
    return [verdict.allowed for verdict in await asyncio.gather(*map(gate.check, urls))]


@pytest.mark.parametrize(
    "count", [250, pytest.param(1_000, marks=pytest.mark.full), pytest.param(10_000, marks=pytest.mark.weekly)]
)
async def test_a_gate_on_the_same_file_answers_without_a_request(tmp_path: Path, count: int) -> None:
    first, second = ScriptedFetcher(sites(count)), ScriptedFetcher()
    async with Gatekeeper(UA, fetcher=first, clock=ManualClock(wall=START), store=tmp_path / "robots.db") as gate:
        assert await answers(gate, count) == [False, True] * count
    assert len(first.requests) == count
    clock = ManualClock(wall=START + DAY_S / 2)
    async with Gatekeeper(UA, fetcher=second, clock=clock, store=tmp_path / "robots.db") as gate:
        assert await answers(gate, count) == [False, True] * count
    assert second.requests == []


async def test_two_gates_of_one_file_share_what_they_fetch(tmp_path: Path) -> None:
    count = 50
    first, second = ScriptedFetcher(sites(count)), ScriptedFetcher(sites(count))
    async with (
        Gatekeeper(UA, fetcher=first, store=tmp_path / "robots.db") as one,
        Gatekeeper(UA, fetcher=second, store=tmp_path / "robots.db") as other,
    ):
        assert await answers(one, count) == [False, True] * count
        assert await answers(other, count) == [False, True] * count
    assert len(first.requests) == count
    assert second.requests == []


class WithoutUpdate:
    """A SqliteStore that has what a Store must have, and answers a moment later."""

    def __init__(self, path: Path) -> None:
        self._store = SqliteStore(path)
        self.put = self._store.put
        self.delete = self._store.delete
        self.aclose = self._store.aclose

    async def get(self, key: str, /) -> bytes | None:
        record = await self._store.get(key)
        await asyncio.sleep(0.02)
        return record


async def closings_lost(make: Callable[[Path], Store], path: Path, rounds: int) -> list[str]:
    """Have one gate note a Retry-After and another one an answer at the same time; return the hosts that are open."""
    sites_of_rounds = sites(rounds)
    hosts = [*sites_of_rounds]

    def gate_of(store: Store) -> Gatekeeper:
        pacing = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0)
        fetcher, pacer = ScriptedFetcher(sites_of_rounds), SharedPacer(pacing)  # as in a process of its own
        return Gatekeeper(UA, store=store, fetcher=fetcher, pacer=pacer)

    async def note(one: Gatekeeper, other: Gatekeeper, host: str) -> None:
        async with one.turn(f"{host}/page") as closing, other.turn(f"{host}/page") as answered:
            await asyncio.sleep(0.02)  # both starts are noted
            closing.observe(429, {"Retry-After": "3600"})
            answered.observe(200)

    async with gate_of(make(path)) as first, gate_of(make(path)) as second:
        for number, host in enumerate(hosts):
            await note(*((first, second) if number % 2 else (second, first)), host)
    opened: list[str] = []
    async with gate_of(SqliteStore(path)) as gate:
        for host in hosts:
            try:
                async with gate.turn(f"{host}/page", max_wait_s=1.0):
                    opened.append(host)
            except TooFar as far:
                assert far.not_yet.not_before > time.time() + 3000  # noqa: PT017
    return opened


async def test_no_closing_is_lost_that_two_gates_of_one_file_note_at_the_same_time(tmp_path: Path) -> None:
    assert await closings_lost(SqliteStore, tmp_path / "robots.db", 60) == []


async def test_a_store_that_gets_and_then_puts_loses_such_a_closing(tmp_path: Path) -> None:
    """The test above can fail."""
    assert await closings_lost(WithoutUpdate, tmp_path / "robots.db", 10) != []
