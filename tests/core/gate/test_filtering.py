import asyncio
import gc
from collections.abc import AsyncIterable, AsyncIterator, Coroutine, Iterable, Iterator
from contextlib import aclosing
from typing import Any
from weakref import WeakSet

import pytest

from politesse import ClosedError, ConfigurationError, Gatekeeper, Reason
from politesse.testing import ScriptedFetcher
from tests.support.tasks import ended, settle

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


async def test_invalid_url_gets_a_verdict_and_costs_the_others_nothing(gate: Gatekeeper) -> None:
    items = ["mailto:x", "https://s1.example/yes", "", "https://h:99999/"]
    seen = {item: verdict.reason async for item, verdict in gate.filter(items)}
    assert seen == {
        "mailto:x": Reason.INVALID_URL,
        "https://s1.example/yes": Reason.NO_RULE,
        "": Reason.INVALID_URL,
        "https://h:99999/": Reason.INVALID_URL,
    }


async def test_no_more_is_read_than_max_pending(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    fetcher.gate.clear()
    read: list[str] = []

    def reading() -> Iterator[str]:
        for url in urls(1_000):
            read.append(url)
            yield url

    judged = gate.filter(reading(), max_pending=25)
    first = asyncio.ensure_future(anext(judged))
    for _ in range(200):
        await asyncio.sleep(0)
    assert len(read) == 25
    fetcher.gate.set()
    await first
    assert len([item async for item in judged]) == 999


async def test_known_origins_do_not_wait_for_unknown_ones(gate: Gatekeeper, fetcher: ScriptedFetcher) -> None:
    await gate.check("https://s1.example/")
    fetcher.gate.clear()
    judged = gate.filter(["https://s2.example/yes", "https://s1.example/yes"])
    item, verdict = await anext(judged)
    assert (item, verdict.allowed) == ("https://s1.example/yes", True)
    fetcher.gate.set()
    assert [item async for item, _ in judged] == ["https://s2.example/yes"]


async def test_source_that_raises_loses_no_earlier_item(gate: Gatekeeper) -> None:
    def failing() -> Iterator[str]:
        yield "https://s1.example/yes"
        yield "https://s2.example/no"
        raise OSError("disk gone")

    judged = gate.filter(failing())
    seen = [(await anext(judged))[0], (await anext(judged))[0]]
    with pytest.raises(OSError, match="disk gone"):
        await anext(judged)
    assert sorted(seen) == ["https://s1.example/yes", "https://s2.example/no"]


async def test_generator_closed_early_leaves_no_task_behind(gate: Gatekeeper) -> None:
    before = asyncio.all_tasks()

    async def endless() -> AsyncIterator[str]:
        n = 0
        while True:
            yield f"https://s{n % 10}.example/{n}"
            n += 1
            await asyncio.sleep(0)

    judged = gate.filter(endless())
    for _ in range(5):
        await anext(judged)
    await judged.aclose()
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


async def test_max_pending_of_zero_is_refused(gate: Gatekeeper) -> None:
    with pytest.raises(ConfigurationError, match="max_pending"):
        gate.filter([], max_pending=0)


async def test_items_of_known_origins_cost_one_task_in_all(gate: Gatekeeper) -> None:
    await gate.check_batch(f"https://s{n}.example/" for n in range(10))
    made = 0

    def counting(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **kwargs: Any) -> asyncio.Task[Any]:
        nonlocal made
        made += 1
        return asyncio.Task(work, loop=loop, **kwargs)

    asyncio.get_running_loop().set_task_factory(counting)  # type: ignore[arg-type]
    assert len([item async for item in gate.filter(urls(1_000))]) == 1_000
    assert made == 1  # the reader


async def test_slow_consumer_stops_the_reading_of_known_items(gate: Gatekeeper) -> None:
    await gate.check_batch(f"https://s{n}.example/" for n in range(10))
    read: list[str] = []

    def endless() -> Iterator[str]:
        while True:
            for url in urls(10):
                read.append(url)
                yield url

    async with aclosing(gate.filter(endless())) as judged:
        for _ in range(50):
            await anext(judged)
            await asyncio.sleep(0)
        assert len(read) <= 50 + 110


async def test_answered_items_that_are_not_yielded_keep_their_room(gate: Gatekeeper) -> None:
    read: list[str] = []

    def reading() -> Iterator[str]:
        for url in urls(1_000):
            read.append(url)
            yield url

    async with aclosing(gate.filter(reading(), max_pending=5)) as judged:
        for yielded in range(1, 100):
            await anext(judged)
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(read) <= yielded + 5


async def test_cancellation_raised_by_the_source_hangs_nothing(gate: Gatekeeper) -> None:
    async def cancelled() -> AsyncIterator[str]:
        yield "https://s1.example/yes"
        raise asyncio.CancelledError

    judged = gate.filter(cancelled())
    assert (await anext(judged))[0] == "https://s1.example/yes"
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(5):
            await anext(judged)


async def test_error_of_the_gate_is_raised_although_the_source_yields_nothing_more(fetcher: ScriptedFetcher) -> None:
    fetcher.gate.clear()
    gate = Gatekeeper(UA, fetcher=fetcher)

    async def stuck() -> AsyncIterator[str]:
        yield "https://s1.example/"
        await asyncio.Event().wait()

    before = asyncio.all_tasks()
    first = asyncio.ensure_future(anext(gate.filter(stuck())))
    while not fetcher.requests:
        await asyncio.sleep(0)
    await gate.aclose()
    with pytest.raises(ClosedError):
        async with asyncio.timeout(5):
            await first
    assert asyncio.all_tasks() == before


class Idle:
    """A source that yields URLs, and then nothing for ever; it notes its end."""

    def __init__(self, *given: str) -> None:
        self.given = given
        self.idle = asyncio.Event()
        self.ended = False

    async def urls(self) -> AsyncIterator[str]:
        try:
            for url in self.given:
                yield url
            self.idle.set()
            await asyncio.Event().wait()
        finally:
            self.ended = True


async def test_close_ends_the_wait_for_an_idle_source(fetcher: ScriptedFetcher) -> None:
    gate, source = Gatekeeper(UA, fetcher=fetcher), Idle()
    before = asyncio.all_tasks()
    first = asyncio.ensure_future(anext(gate.filter(source.urls())))
    await source.idle.wait()
    await gate.aclose()
    with pytest.raises(ClosedError):
        async with asyncio.timeout(5):
            await first
    assert source.ended
    assert asyncio.all_tasks() == before


async def test_filter_of_an_idle_source_that_is_first_used_after_the_close_raises(fetcher: ScriptedFetcher) -> None:
    gate = Gatekeeper(UA, fetcher=fetcher)
    judged = gate.filter(Idle().urls())
    await gate.aclose()
    with pytest.raises(ClosedError):
        async with asyncio.timeout(5):
            await anext(judged)


@pytest.mark.parametrize(("count", "read"), [(5, 5), (101, 101), (102, 102), (250, 102)])
async def test_close_loses_no_answer_to_what_was_read(fetcher: ScriptedFetcher, count: int, read: int) -> None:
    gate, source = Gatekeeper(UA, fetcher=fetcher), Idle(*urls(count))
    await gate.check_batch(f"https://s{n}.example/" for n in range(10))
    judged = gate.filter(source.urls())
    seen = [(await anext(judged))[0]]

    async def see_the_rest() -> None:
        async for item, _ in judged:
            seen.append(item)

    for _ in range(1_000):  # until it is idle, or 100 answers wait and one more for its place among them
        await asyncio.sleep(0)
    await gate.aclose()
    with pytest.raises(ClosedError):
        await asyncio.wait_for(see_the_rest(), 5)
    assert seen == list(urls(read))


async def test_task_that_is_cancelled_while_the_gate_closes_stays_cancelled(fetcher: ScriptedFetcher) -> None:
    gate, source = Gatekeeper(UA, fetcher=fetcher), Idle()
    first = asyncio.ensure_future(anext(gate.filter(source.urls())))
    await source.idle.wait()
    first.cancel()
    await gate.aclose()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert source.ended


async def test_endless_source_leaves_no_tasks_behind(gate: Gatekeeper) -> None:
    tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
    names, left = set[str](), -1
    async for item, _ in gate.filter((f"https://n{n}.example/" for n in range(200)), max_pending=10):
        tasks.update(asyncio.all_tasks())
        names.update(task.get_name() for task in tasks)
        if item == "https://n199.example/":
            await settle()  # what a task that has ended leaves to do
            gc.collect()
            left = len(tasks)
    assert len(names) > 100
    assert 0 < left < 20


async def test_source_may_come_back_to_an_origin_whose_robots_txt_was_forgotten(
    gate: Gatekeeper, fetcher: ScriptedFetcher
) -> None:
    async def source() -> AsyncIterator[str]:
        for _ in range(3):
            yield "https://s1.example/no"
            await settle()
            await gate.forget("https://s1.example/")

    assert [bool(verdict) async for _, verdict in gate.filter(source())] == [False] * 3
    assert len(fetcher.requests) == 3


@pytest.mark.parametrize("name", ["_read_all", "_answer_all"])
@pytest.mark.parametrize("answered", [0, 5])
async def test_a_task_of_the_filter_that_others_cancel_cancels_the_caller(
    gate: Gatekeeper, fetcher: ScriptedFetcher, name: str, answered: int
) -> None:
    await gate.check_batch(f"https://s{n}.example/" for n in range(answered))
    fetcher.gate.clear()
    seen: list[str] = []

    async def consume() -> None:
        async for item, _ in gate.filter(urls(100)):
            seen.append(item)

    consumer = asyncio.ensure_future(consume())
    while len(fetcher.requests) < 10:
        await asyncio.sleep(0)
    await ended(task for task in asyncio.all_tasks() if f".{name}" in repr(task.get_coro()))
    await asyncio.wait({consumer}, timeout=10.0)
    assert consumer.cancelled()
    assert answered <= len(seen) <= 10 * answered
