from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from politesse import ClosedError, ConfigurationError, Gatekeeper, Reason
from politesse.testing import ScriptedFetcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator

UA = "ExampleBot/1.0 (+https://example.com/bot)"
ANSWERS = {f"https://s{n}.example": "User-agent: *\nDisallow: /no" for n in range(10)}


@pytest.fixture
def fetcher() -> ScriptedFetcher:
    return ScriptedFetcher({**ANSWERS})


@pytest.fixture
async def gate(fetcher: ScriptedFetcher) -> AsyncIterator[Gatekeeper]:
    async with Gatekeeper(UA, fetcher=fetcher) as gate:
        yield gate


def urls(count: int) -> Iterator[str]:
    for n in range(count):
        yield f"https://s{n % 10}.example/{'no' if n % 3 else 'yes'}/{n}"


async def each(source: Iterator[str], *, wait: bool = False) -> AsyncIterator[str]:
    for url in source:
        if wait:
            await asyncio.sleep(0)
        yield url


@pytest.mark.parametrize("kind", ["list", "iterator", "async", "slow async"])
async def test_every_item_comes_out_once_with_its_verdict(
    gate: Gatekeeper, fetcher: ScriptedFetcher, kind: str
) -> None:
    count = 1_000
    source: Iterable[str] | AsyncIterable[str] = {  # type: ignore[assignment]
        "list": list(urls(count)),
        "iterator": urls(count),
        "async": each(urls(count)),
        "slow async": each(urls(count), wait=True),
    }[kind]
    seen = {item: verdict.allowed async for item, verdict in gate.filter(source)}
    assert seen == {url: "/yes/" in url for url in urls(count)}
    assert len(fetcher.requests) == 10
    assert gate.statistics().decisions == count


async def test_items_may_be_anything_that_has_a_url(gate: Gatekeeper) -> None:
    items = [(1, "https://s1.example/no"), (2, "https://s1.example/yes")]
    seen = [(item, bool(verdict)) async for item, verdict in gate.filter(items, key=lambda item: item[1])]
    assert sorted(seen) == [(items[0], False), (items[1], True)]


async def test_what_is_no_url_costs_the_others_nothing(gate: Gatekeeper) -> None:
    items = ["mailto:x", "https://s1.example/yes", "", "https://h:99999/"]
    seen = {item: verdict.reason async for item, verdict in gate.filter(items)}
    assert seen == {
        "mailto:x": Reason.INVALID_URL,
        "https://s1.example/yes": Reason.NO_RULE,
        "": Reason.INVALID_URL,
        "https://h:99999/": Reason.INVALID_URL,
    }


async def test_empty_source_yields_nothing(gate: Gatekeeper) -> None:
    nothing: list[str] = []
    assert [item async for item in gate.filter(nothing)] == []
    assert [item async for item in gate.filter(each(iter(())))] == []


async def test_no_more_is_read_than_may_wait(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    fetcher.gate.clear()
    read: list[str] = []

    def reading() -> Iterator[str]:
        for url in urls(1_000):
            read.append(url)
            yield url

    sieve = gate.filter(reading(), max_pending=25)
    first = asyncio.ensure_future(anext(sieve))
    for _ in range(200):
        await asyncio.sleep(0)
    assert len(read) == 25
    fetcher.gate.set()
    await first
    assert len([item async for item in sieve]) == 999


async def test_known_origins_do_not_wait_for_unknown_ones(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    await gate.check("https://s1.example/")
    fetcher.gate.clear()
    sieve = gate.filter(["https://s2.example/yes", "https://s1.example/yes"])
    item, verdict = await anext(sieve)
    assert (item, verdict.allowed) == ("https://s1.example/yes", True)
    fetcher.gate.set()
    assert [item async for item, _ in sieve] == ["https://s2.example/yes"]


async def test_source_that_raises_loses_nothing_that_it_gave_before(gate: Gatekeeper) -> None:
    def failing() -> Iterator[str]:
        yield "https://s1.example/yes"
        yield "https://s2.example/no"
        raise OSError("disk gone")

    sieve = gate.filter(failing())
    seen = [(await anext(sieve))[0], (await anext(sieve))[0]]
    with pytest.raises(OSError, match="disk gone"):
        await anext(sieve)
    assert sorted(seen) == ["https://s1.example/yes", "https://s2.example/no"]


async def test_leaving_early_leaves_no_task_behind(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    before = asyncio.all_tasks()

    async def endless() -> AsyncIterator[str]:
        n = 0
        while True:
            yield f"https://s{n % 10}.example/{n}"
            n += 1
            await asyncio.sleep(0)

    sieve = gate.filter(endless())
    for _ in range(5):
        await anext(sieve)
    await sieve.aclose()
    while gate.statistics().in_flight:
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_cancelled_consumer_leaves_no_task_behind(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    fetcher.gate.clear()
    before = asyncio.all_tasks()

    async def consume() -> None:
        async for _ in gate.filter(urls(100)):
            pass

    consumer = asyncio.ensure_future(consume())
    while len(fetcher.requests) < 10:
        await asyncio.sleep(0)
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer
    fetcher.gate.set()
    while gate.statistics().in_flight:
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_gate_that_closes_meanwhile_raises(fetcher: ScriptedFetcher) -> None:
    fetcher.gate.clear()
    gate = Gatekeeper(UA, fetcher=fetcher)
    first = asyncio.ensure_future(anext(gate.filter(urls(10))))
    while not fetcher.requests:
        await asyncio.sleep(0)
    await gate.aclose()
    with pytest.raises(ClosedError):
        await first


async def test_other_tasks_run_while_a_source_that_never_waits_is_read(gate: Gatekeeper) -> None:
    await gate.check_batch(f"https://s{n}.example/" for n in range(10))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    count = len([item async for item in gate.filter(urls(2_000))])
    task.cancel()
    assert count == 2_000
    assert turns >= 10


async def test_room_for_nothing_is_refused(gate: Gatekeeper) -> None:
    with pytest.raises(ConfigurationError, match="max_pending"):
        gate.filter([], max_pending=0)


async def test_key_that_raises_loses_no_earlier_item() -> None:
    async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate:
        judged = gate.filter(["https://example.com/", ""], key=lambda item: item[:99] if item else str(1 / 0))
        assert (await anext(judged))[0] == "https://example.com/"
        with pytest.raises(ZeroDivisionError):
            await anext(judged)
