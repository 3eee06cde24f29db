"""A queue with a journal through crashes at any moment: what was acknowledged and has not ended comes again."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from politesse import Gatekeeper
from politesse.errors import StoreError
from politesse.queue import PoliteQueue
from politesse.queue import _journal as journal_module
from politesse.queue._journal import Change, Journal
from politesse.queue._web import normal_form
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.examples import examples
from tests.support.tasks import settle

HOSTS: Final = ("https://a.example", "https://b.example", "https://c.example")
MEMORY: Final = "/dev/shm"  # noqa: S108 - a new folder in it; a disk would take most of the time
ROBOTS: Final = dict.fromkeys(HOSTS, "User-agent: *\nDisallow: /private\n")


class HeldJournal(Journal):
    """A journal whose writes wait until the test lets them through, and are lost in a crash until then."""

    held: list[tuple[Sequence[Change], asyncio.Future[None]]]
    is_held = True

    def commit(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        if not self.is_held:
            return super().commit(changes)
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.held.append((changes, written))
        return written

    async def let_through(self) -> None:
        """Commit the write that is under way."""
        if self.held:
            changes, written = self.held.pop()
            await super().commit(changes)
            written.set_result(None)

    async def crash(self) -> None:
        """Lose the writes that are held, as the end of the process does."""
        self.held.clear()
        self._failure = StoreError("killed")
        await self.aclose()


@dataclass
class Put:
    """A URL that was put, with what has become of it in any run.

    Attributes:
        is_acknowledged: whether its put has returned.
        links: what was put within its turn.
        has_ended: whether its turn has ended, or it was refused, in the run that is under way or an earlier one.
        is_over: whether its end is in the file.
    """

    url: str
    is_acknowledged: bool = False
    links: list[Put] = field(default_factory=list)
    has_ended: bool = False
    is_over: bool = False


class JournalMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.faults: list[object] = []
        self.loop.set_exception_handler(lambda _, context: self.faults.append(context))
        self.folder = tempfile.mkdtemp(dir=MEMORY if Path(MEMORY).is_dir() else None)
        self.patch = mock.patch.object(journal_module, "Journal", HeldJournal)
        self.patch.start()
        self.puts: dict[str, Put] = {}
        self.putters: dict[asyncio.Task[None], Put] = {}
        self.turns: dict[asyncio.Task[None], tuple[Put, asyncio.Future[str]]] = {}
        self.handed: Counter[str] = Counter()  # in this run
        self.number = 0
        self.start()

    # A run

    def start(self) -> None:
        self.clock = ManualClock(autojump=False)
        fetcher = ScriptedFetcher(ROBOTS)
        self.gate = Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=fetcher, clock=self.clock)
        path = Path(self.folder, "crawl.db")
        self.queue: PoliteQueue[str] = PoliteQueue(self.gate, journal=path, on_disallowed=self.refused)
        file = self.queue._dispatcher.journal
        assert isinstance(file, HeldJournal)
        file.held = []
        self.file = file
        self.loop.run_until_complete(self.queue.__aenter__())
        self.look()

    def look(self) -> None:
        """Compare what is resumed with what the model knows, and go on with it."""
        resumed = Counter(url for url, *_ in self.queue.left())
        known = {url for url in self.puts if normal_form(url) in self.file.seen}
        assert not resumed or max(resumed.values()) == 1, "a URL is in the file twice"
        assert resumed.keys() <= known
        assert self.queue.statistics().resumed == resumed.total()
        for url, put in self.puts.items():
            assert url in known or not put.is_acknowledged, "acknowledged, and lost"
            assert url in resumed or put.has_ended or url not in known, "lost before it has ended"
            assert url not in resumed or not put.is_over, "ended, and handed out again"
            if url in known and url not in resumed:
                assert all(link.url in known for link in put.links), f"{url} has ended, and a link of it is lost"
        self.puts = {url: put for url, put in self.puts.items() if url in known}
        for url, put in self.puts.items():
            put.has_ended = put.is_over = url not in resumed
            put.is_acknowledged = True
            put.links.clear()  # a turn that is repeated puts its links again
        self.over_before = [url for url in known if url not in resumed]
        self.handed.clear()

    def refused(self, item: str, _: object) -> None:
        put = self.puts[item]
        assert not put.has_ended, "refused twice"
        put.has_ended = True

    def new_put(self, host: str, place: str) -> Put:
        self.number += 1
        url = f"{host}/{place}/{self.number}"
        self.puts[url] = put = Put(url)
        return put

    @rule(host=st.sampled_from(HOSTS), place=st.sampled_from(("open", "open", "private")))
    def put(self, host: str, place: str) -> None:
        put = self.new_put(host, place)

        async def wait() -> None:
            await self.queue.put(put.url, put.url)
            put.is_acknowledged = True

        self.putters[self.loop.create_task(wait())] = put
        self.rest()

    @rule(host=st.sampled_from(HOSTS))
    def put_nowait(self, host: str) -> None:
        put = self.new_put(host, "open")

        async def add() -> None:
            self.queue.put_nowait(put.url, put.url)

        self.loop.run_until_complete(add())

    @precondition(lambda self: self.over_before)
    @rule(data=st.data())
    def put_again_what_is_over(self, data: st.DataObject) -> None:
        """Put again what a run before has ended, as a program that is started again does: nothing happens."""
        size = self.queue.qsize()
        self.loop.run_until_complete(self.queue.put(data.draw(st.sampled_from(self.over_before)), "again"))
        assert self.queue.qsize() == size

    @rule()
    def take(self) -> None:
        """Start a worker that takes one turn, and waits to be told how it ends."""
        told: asyncio.Future[str] = self.loop.create_future()

        async def work() -> None:
            async with self.queue.turn() as turn:
                put = self.puts[turn.url]
                assert turn.item == turn.url
                assert not put.has_ended
                self.handed[turn.url] += 1
                assert self.handed[turn.url] == 1, "handed out twice"
                task = asyncio.current_task()
                assert task is not None
                self.turns[task] = put, told
                how = await told
                put.has_ended = True
                if how == "error":
                    raise LookupError

        async def work_once() -> None:
            with suppress(LookupError):
                await work()

        task = self.loop.create_task(work_once())
        self.rest(seconds=2.0)
        if task not in self.turns:
            task.cancel()
            self.rest()

    @precondition(lambda self: self.turns)
    @rule(data=st.data(), host=st.sampled_from(HOSTS))
    def put_link(self, data: st.DataObject, host: str) -> None:
        put, _ = self.turns[data.draw(st.sampled_from(list(self.turns)))]
        if put.has_ended:
            return
        link = self.new_put(host, "open")

        async def add() -> None:
            self.queue.put_nowait(link.url, link.url)

        self.loop.run_until_complete(add())
        put.links.append(link)

    @precondition(lambda self: self.turns)
    @rule(data=st.data(), how=st.sampled_from(("done", "done", "error", "cancel")))
    def end_turn(self, data: st.DataObject, how: str) -> None:
        task = data.draw(st.sampled_from(list(self.turns)))
        put, told = self.turns.pop(task)
        if how == "cancel":
            task.cancel()
        else:
            told.set_result(how)
        self.rest()
        assert put.has_ended == (how != "cancel")
        if how == "cancel":
            self.handed[put.url] -= 1  # the next run hands it out again

    @rule()
    def commit(self) -> None:
        """Let the write through that is under way; what was noted meanwhile is written next."""
        self.loop.run_until_complete(self.file.let_through())
        self.rest()

    def commit_all(self) -> None:
        while self.file.held:
            self.commit()
        for put in self.puts.values():
            put.is_over = put.has_ended

    @rule()
    def flush(self) -> None:
        self.rest()
        self.commit_all()
        self.loop.run_until_complete(self.file.flush())

    @rule()
    def crash(self) -> None:
        """Lose all that is in memory, and start the program again."""
        self.stop_tasks()
        self.loop.run_until_complete(self.file.crash())
        self.loop.run_until_complete(self.gate.aclose())
        self.start()

    @rule(by_gate=st.booleans())
    def restart(self, by_gate: bool) -> None:  # noqa: FBT001 - drawn
        """End the program in order, and start it again."""
        self.stop_tasks()
        self.commit_all()
        self.file.is_held = False
        self.loop.run_until_complete(self.gate.aclose() if by_gate else self.queue.aclose())
        if not by_gate:
            self.loop.run_until_complete(self.gate.aclose())
        for put in self.puts.values():
            put.is_acknowledged = True  # also what was put without waiting
            put.is_over = put.has_ended
        self.start()

    def stop_tasks(self) -> None:
        if self.file.is_held:
            tasks = [*self.putters, *self.turns]
            for task in tasks:
                task.cancel()
            self.rest()
            assert all(task.done() for task in tasks)
        self.putters.clear()
        self.turns.clear()

    def rest(self, seconds: float = 0.0) -> None:
        async def some() -> None:
            await settle()
            if seconds:
                self.clock.advance(seconds)
                await settle()

        self.loop.run_until_complete(some())
        for task in [task for task in self.putters if task.done()]:
            if not task.cancelled():
                task.result()
            del self.putters[task]

    def teardown(self) -> None:
        try:
            self.restart(by_gate=True)
            left = {url for url, *_ in self.queue.left()}
            assert left == {url for url, put in self.puts.items() if not put.has_ended}
            self.file.is_held = False
            self.loop.run_until_complete(self.gate.aclose())
            assert self.faults == []
            assert not asyncio.all_tasks(self.loop)
        finally:
            self.patch.stop()
            self.loop.close()
            shutil.rmtree(self.folder)


@pytest.mark.parametrize(
    ("runs", "steps"),
    [(examples(100), 40), pytest.param(5_000, 50, marks=[pytest.mark.weekly, pytest.mark.timeout(14_400)])],
)
def test_what_was_acknowledged_and_has_not_ended_comes_again_and_what_has_ended_does_not(runs: int, steps: int) -> None:
    run_state_machine_as_test(JournalMachine, settings=settings(max_examples=runs, stateful_step_count=steps))
