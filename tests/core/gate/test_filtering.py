import asyncio
import gc
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import aclosing
from itertools import product
from typing import Any, Final
from weakref import WeakSet

import pytest

from politesse import ClosedError, ConfigurationError, Reason
from politesse.verdict import Verdict
from tests.core.gate.gates import Answers, ScriptedGate
from tests.support.tasks import ended, settle

SITES: Final = [f"https://s{n}.example" for n in range(10)]
ANSWERS: Final[Answers] = dict.fromkeys(SITES, "User-agent: *\nDisallow: /no")
YES, NO = "https://s1.example/yes", "https://s1.example/no"


@pytest.fixture
async def gate() -> AsyncIterator[ScriptedGate]:
    async with ScriptedGate(ANSWERS) as gate:
        yield gate


@pytest.fixture
async def knowing(gate: ScriptedGate) -> ScriptedGate:
    """A gate that knows all robots.txt files."""
    await gate.check_batch(SITES)
    return gate


def urls(count: int, read: list[str] | None = None) -> Iterator[str]:
    """Yield URLs, and note each one that is read."""
    for n in range(count):
        url = f"https://s{n % 10}.example/{'no' if n % 3 else 'yes'}/{n}"
        if read is not None:
            read.append(url)
        yield url


async def each(source: Iterator[str], *, wait: bool = False) -> AsyncIterator[str]:
    for url in source:
        if wait:
            await asyncio.sleep(0)
        yield url


async def all_of(judged: AsyncIterator[tuple[str, Verdict]], seen: list[str] | None = None) -> list[str]:
    """Return the items, which are added to a list as they come."""
    seen = [] if seen is None else seen
    async for item, _ in judged:
        seen.append(item)
    return seen


async def rounds(count: int = 200) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


SOURCES: Final[list[Callable[[int], Iterable[str] | AsyncIterable[str]]]] = [
    lambda count: list(urls(count)),
    urls,
    lambda count: each(urls(count)),
    lambda count: each(urls(count), wait=True),
]


async def test_every_item_comes_out_once_with_its_verdict() -> None:
    for source in SOURCES:
        async with ScriptedGate(ANSWERS) as gate:
            allowed = {item: verdict.allowed async for item, verdict in gate.filter(source(300))}
            assert allowed == {url: "/yes/" in url for url in urls(300)}
            assert (len(gate.asked), gate.statistics().decisions) == (10, 300)


async def test_items_may_be_anything_that_has_a_url_which_may_be_invalid(gate: ScriptedGate) -> None:
    items = {(1, NO): Reason.DISALLOW_RULE, (2, YES): Reason.NO_RULE}
    items |= dict.fromkeys(enumerate(("mailto:x", "", "https://h:99999/")), Reason.INVALID_URL)
    judged = gate.filter(list(items), key=lambda item: item[1])
    assert {item: verdict.reason async for item, verdict in judged} == items


async def test_no_more_is_read_than_max_pending(gate: ScriptedGate) -> None:
    with pytest.raises(ConfigurationError, match="max_pending"):
        gate.filter([], max_pending=0)
    gate.fetcher.gate.clear()
    read: list[str] = []
    judged = gate.filter(urls(300, read), max_pending=25)
    first = asyncio.ensure_future(anext(judged))
    await rounds()
    assert len(read) == 25
    gate.fetcher.gate.set()
    await first
    assert len(await all_of(judged)) == 299


async def test_known_origins_do_not_wait_for_unknown_ones(gate: ScriptedGate) -> None:
    await gate.check(YES)
    gate.fetcher.gate.clear()
    judged = gate.filter(["https://s2.example/yes", YES])
    assert (await anext(judged))[0] == YES
    gate.fetcher.gate.set()
    assert await all_of(judged) == ["https://s2.example/yes"]


async def test_source_that_raises_loses_no_earlier_item(gate: ScriptedGate) -> None:
    async def failing(error: type[BaseException]) -> AsyncIterator[str]:
        yield YES
        yield "https://s2.example/no"
        raise error

    for error in (OSError, asyncio.CancelledError):
        judged = gate.filter(failing(error))
        async with asyncio.timeout(5):
            assert sorted([(await anext(judged))[0] for _ in range(2)]) == [YES, "https://s2.example/no"]
            with pytest.raises(error):
                await anext(judged)


async def test_generator_closed_early_leaves_no_task_behind(gate: ScriptedGate) -> None:
    before = asyncio.all_tasks()
    judged = gate.filter(each(urls(1_000_000), wait=True))
    for _ in range(5):
        await anext(judged)
    await judged.aclose()
    await settle()
    assert asyncio.all_tasks() == before


async def test_cancelled_consumer_leaves_no_task_behind(gate: ScriptedGate) -> None:
    gate.fetcher.gate.clear()
    before = asyncio.all_tasks()
    consumer = asyncio.ensure_future(all_of(gate.filter(urls(100))))
    await rounds()
    assert len(gate.asked) == 10
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer
    gate.fetcher.gate.set()
    await settle()
    assert asyncio.all_tasks() == before


async def test_other_tasks_run_while_a_source_that_never_waits_is_read(knowing: ScriptedGate) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    count = len(await all_of(knowing.filter(urls(2_000))))
    task.cancel()
    assert count == 2_000
    assert turns >= 10


async def test_items_of_known_origins_cost_one_task_in_all(knowing: ScriptedGate) -> None:
    made = 0

    def counting(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **kwargs: Any) -> asyncio.Task[Any]:
        nonlocal made
        made += 1
        return asyncio.Task(work, loop=loop, **kwargs)

    asyncio.get_running_loop().set_task_factory(counting)  # type: ignore[arg-type]
    assert len(await all_of(knowing.filter(urls(300)))) == 300
    assert made == 1  # the reader


async def test_answered_items_that_are_not_yielded_keep_their_room(gate: ScriptedGate) -> None:
    read: list[str] = []
    async with aclosing(gate.filter(urls(1_000, read), max_pending=5)) as judged:
        for yielded in range(1, 100):
            await anext(judged)
            await rounds(20)
            assert len(read) <= yielded + 5


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


@pytest.mark.parametrize("given", [[], [YES]], ids=["idle", "waiting for robots.txt"])
@pytest.mark.parametrize("error", [ClosedError, asyncio.CancelledError])
async def test_close_ends_the_wait_for_an_idle_source(given: list[str], error: type[BaseException]) -> None:
    gate, source = ScriptedGate(), Idle(*given)
    unused = gate.filter(Idle().urls())
    gate.fetcher.gate.clear()
    before = asyncio.all_tasks()
    first = asyncio.ensure_future(anext(gate.filter(source.urls())))
    await source.idle.wait()
    await settle()
    if error is asyncio.CancelledError:  # a task that is cancelled while the gate closes stays cancelled
        first.cancel()
    await gate.aclose()
    with pytest.raises(error):
        await asyncio.wait_for(first, 5)
    with pytest.raises(ClosedError):
        await asyncio.wait_for(anext(unused), 5)
    assert source.ended
    assert asyncio.all_tasks() == before


async def test_close_loses_no_answer_to_what_was_read() -> None:
    for count, read in ((5, 5), (101, 101), (102, 102), (250, 102)):
        gate = ScriptedGate(ANSWERS)
        await gate.check_batch(SITES)
        judged = gate.filter(Idle(*urls(count)).urls())
        seen = [(await anext(judged))[0]]
        await rounds(1_000)  # until it is idle, or 100 answers wait and one more for its place among them
        await gate.aclose()
        async with asyncio.timeout(5):
            seen += [(await anext(judged))[0] for _ in range(read - 1)]
            with pytest.raises(ClosedError):
                await anext(judged)
        assert seen == list(urls(read))


async def test_long_source_leaves_no_tasks_behind(gate: ScriptedGate) -> None:
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


async def test_source_may_come_back_to_an_origin_whose_robots_txt_was_forgotten(gate: ScriptedGate) -> None:
    async def source() -> AsyncIterator[str]:
        for _ in range(3):
            yield NO
            await settle()
            await gate.forget(NO)
            gate.clock.advance(60.0)

    assert [bool(verdict) async for _, verdict in gate.filter(source())] == [False] * 3
    assert len(gate.asked) == 3


async def test_task_of_the_filter_that_others_cancel_cancels_the_caller() -> None:
    for name, answered in product(("_read_all", "_answer_all"), (0, 5)):
        async with ScriptedGate(ANSWERS) as gate:
            await gate.check_batch(SITES[:answered])
            gate.fetcher.gate.clear()
            seen: list[str] = []
            consumer = asyncio.ensure_future(all_of(gate.filter(urls(100)), seen))
            await rounds()
            assert len(gate.asked) == 10
            await ended(task for task in asyncio.all_tasks() if f".{name}" in repr(task.get_coro()))
            await asyncio.wait({consumer}, timeout=10.0)
            assert consumer.cancelled()
            assert answered <= len(seen) <= 10 * answered
