"""A queue with a journal: what was put and has not ended is handed out by the next run, and what has ended is not."""

import asyncio
import contextvars
import gc
import logging
import sqlite3
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVarTuple

import pytest

from politesse import ConfigurationError, Gatekeeper, PacingOptions
from politesse.errors import StoreError
from politesse.queue import CrawlPage, CrawlReport, PoliteQueue, QueueClosed
from politesse.testing import ScriptedFetcher
from tests.core.queue.crawl import UA, A, AnyQueue, B, Queue, left, made, next_url, put, urls
from tests.core.queue.simulated import Pages, Reply, SimulatedWeb, crawled, follow_links, moved

SITE: Final = {
    f"{A}/": Reply(links=["/1", "/2", f"{B}/"]),
    f"{A}/1": Reply(links=["/", "/2", "/3"]),
    f"{A}/3": moved(f"{B}/moved"),
    f"{B}/moved": Reply(links=[f"{A}/4"]),
}
PAGES: Final = {f"{A}/", f"{A}/1", f"{A}/2", f"{A}/3", f"{A}/4", f"{B}/", f"{B}/moved"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "crawl.db"


@asynccontextmanager
async def run(path: Path, **options: Any) -> AsyncIterator[Queue]:
    """One run of a program: a gate and a queue with the journal."""
    async with made(journal=path, **options) as queue:
        yield queue


async def interrupted(queue: Queue, web: SimulatedWeb, handle: Any, until: Callable[[], bool]) -> None:
    """Cancel a crawl at a moment."""
    crawl = asyncio.create_task(queue.crawl(web, handle))
    while not until():
        await asyncio.sleep(0)
    crawl.cancel()
    with pytest.raises(asyncio.CancelledError):
        await crawl


async def program(path: Path, web: SimulatedWeb, max_pages: int | None = None) -> CrawlReport:
    """The program of a user, which is the same each time."""
    async with run(path) as queue:
        await queue.put(f"{A}/")
        return await queue.crawl(web, follow_links, max_pages=max_pages)


def rows(path: Path) -> list[str]:
    """Return the URLs that the file holds, as another process sees it."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT CAST(url AS BLOB) FROM queued ORDER BY number")
        return [url.decode(errors="replace") for (url,) in found]


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def fill_disk(path: Path) -> None:
    change(path, "CREATE TRIGGER full BEFORE INSERT ON queued BEGIN SELECT RAISE(FAIL, 'no room'); END")


# Runs of one program


async def test_a_cancelled_crawl_leaves_what_was_under_way_to_the_next_run(path: Path) -> None:
    web = SimulatedWeb(SITE)
    hanging = asyncio.Event()

    async def handle(page: CrawlPage[object], reply: Reply) -> None:
        await follow_links(page, reply)
        if page.url == f"{A}/1":
            hanging.set()
            await asyncio.Event().wait()

    async with run(path) as queue:
        await queue.put(f"{A}/")
        await interrupted(queue, web, handle, hanging.is_set)
        assert f"{A}/1" in rows(path)  # before the gate is closed
    report = await program(path, web)
    assert report.left == 0
    assert dict(web.requests) == dict.fromkeys(PAGES, 1) | {f"{A}/1": 2}


async def test_a_page_whose_error_ends_the_crawl_is_handed_out_by_the_next_run(path: Path) -> None:
    web = SimulatedWeb({f"{A}/1": Reply(links=["/2"])})
    broken = {f"{A}/1"}

    async def handle(page: CrawlPage[object], reply: Reply) -> None:
        await follow_links(page, reply)
        if page.url in broken:
            raise ValueError("a full disk")

    async with run(path) as queue:
        await queue.put(f"{A}/1")
        with pytest.raises(ValueError, match="a full disk"):
            await queue.crawl(web, handle, stop_on_error=True)
    broken.clear()
    async with run(path) as queue:
        await queue.put(f"{A}/1")
        report = await queue.crawl(web, handle, stop_on_error=True)
    assert (report.pages, report.failed, report.left, rows(path)) == (2, 0, 0, [])
    assert dict(web.requests) == {f"{A}/1": 2, f"{A}/2": 1}


async def test_an_error_of_on_error_ends_the_crawl_and_loses_no_page(path: Path) -> None:
    web = SimulatedWeb({f"{A}/1": [ConnectionResetError(), Reply()]})

    def stop(_page: CrawlPage[object], error: BaseException) -> None:
        raise error

    async with run(path) as queue:
        await queue.put(f"{A}/1")
        with pytest.raises(ConnectionResetError):
            await queue.crawl(web, follow_links, on_error=stop)
    report = await program(path, web)
    assert dict(web.requests) == {f"{A}/1": 2, f"{A}/": 1}
    assert (report.pages, report.left) == (2, 0)


async def test_pages_that_failed_are_requested_again_if_told_to(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gone = ConnectionResetError()
    two: list[Reply | Exception] = [*[Reply(503)] * 5, Reply()]
    web = SimulatedWeb({f"{A}/": Reply(links=["/1", "/2", "/3"]), f"{A}/1": [gone, gone, Reply()], f"{A}/2": two})
    report = await program(path, web)
    assert (report.pages, report.failed, report.left) == (2, 2, 0)
    caplog.clear()
    report = await program(path, web)  # as before, these URLs are not requested again
    assert (report.pages, report.failed, report.left) == (0, 0, 0)
    assert "retry_failed=True requests 2 URLs that failed" in caplog.text
    for failed in ([f"{A}/1"], []):
        async with run(path, retry_failed=True) as queue:
            await queue.crawl(web, follow_links)
        assert rows(path) == failed
    assert dict(web.requests) == {f"{A}/": 1, f"{A}/1": 3, f"{A}/2": 6, f"{A}/3": 1}


async def test_a_journal_with_nothing_but_failed_pages_takes_new_urls(path: Path) -> None:
    web = SimulatedWeb({f"{A}/": ConnectionResetError()})
    await program(path, web)
    async with run(path) as queue, queue:
        await queue.put(f"{A}/1")
        report = await queue.crawl(web, follow_links)
    assert (report.pages, report.failed, report.left) == (1, 0, 0)
    assert rows(path) == [f"{A}/"]


async def test_the_rows_of_pages_that_failed_take_no_memory_in_a_run_without_them(path: Path) -> None:
    octets = []
    async with run(path) as queue, queue:
        for place in range(1_000):
            queue.put_nowait(f"{A}/{place}")
    change(path, "UPDATE queued SET attempt = 0 WHERE number > 1")  # as of pages that have failed
    for retry_failed in (False, True):
        async with run(path, retry_failed=retry_failed) as queue:
            tracemalloc.start()
            async with queue:
                gc.collect()
                octets.append(tracemalloc.get_traced_memory()[0])
            tracemalloc.stop()
            assert queue.qsize() == (1_000 if retry_failed else 1)
    assert octets[0] < octets[1] / 2


async def test_retry_failed_needs_a_journal(gate: Gatekeeper) -> None:
    with pytest.raises(ConfigurationError, match="retry_failed=True needs a journal"):
        PoliteQueue(gate, retry_failed=True)


async def test_a_crawl_that_is_done_says_that_nothing_is_left(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    web = SimulatedWeb(SITE)
    await program(path, web)
    caplog.clear()
    report = await program(path, web)
    assert (report.pages, report.left) == (0, 0)
    assert web.requests.total() == len(PAGES)
    [record] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "has nothing left of the 7 URLs that were put" in record.getMessage()
    assert "remove the file" in record.getMessage()


async def test_log_and_repr_say_how_many_urls_were_resumed(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with run(path) as queue:
        await put(queue, *urls(3))
        await next_url(queue)
        assert queue.statistics().resumed == 0
        assert "resumed" not in repr(queue)
    async with run(path) as queue, queue:
        assert queue.statistics().resumed == queue.qsize() == 2
        assert "0 workers waiting, 2 resumed>" in repr(queue)
    assert f"the journal {str(path)!r} goes on with 2 URLs of the 3 URLs that were put" in caplog.messages


async def test_what_was_put_comes_again_as_it_was_put_and_in_its_order(path: Path) -> None:
    items: list[object] = [None, "text \ud800\0", {"depth": [1, 2.5, None, True], "": {}}, 0, "", 0]
    priorities = [0.1, 2**63 - 1, -(2**63), float("inf"), 0.1, True]
    given = [(f"{A}/{place}?ä=%7e#part", *one) for place, one in enumerate(zip(items, priorities, strict=True))]
    async with run(path) as queue:
        for url, item, priority in given:
            await queue.put(url, item, priority)
        for wrong in (2**63, -(2**63) - 1):
            with pytest.raises(ValueError, match="64 bits"):
                await queue.put(f"{A}/", priority=wrong)
    async with run(path) as queue, queue:
        assert queue.left() == given
        assert [(await next_url(queue))[18] for _ in given] == ["2", "0", "4", "5", "1", "3"]


async def test_a_redirect_goes_on_with_its_target_its_hops_and_its_item(path: Path) -> None:
    web = SimulatedWeb({f"{A}/": moved("/a"), f"{A}/a": moved("/b")})
    pages = Pages()
    async with run(path) as queue:
        await queue.put(f"{A}/", item="start")
        await interrupted(queue, web, pages, lambda: web.requests[f"{A}/a"] > 0)
    assert rows(path) == [f"{A}/b"]
    async with run(path) as queue:
        await queue.crawl(web, pages)
    [page] = pages.handled
    assert (page.url, page.item, page.hops) == (f"{A}/b", "start", (f"{A}/", f"{A}/a"))
    assert dict(web.requests) == {f"{A}/": 1, f"{A}/a": 1, f"{A}/b": 1}


async def test_a_url_that_is_queued_again_keeps_the_item_as_it_was_put(path: Path) -> None:
    web, item, pages = SimulatedWeb({f"{A}/": moved("/a")}), ["start"], Pages()
    async with run(path) as queue:
        await queue.put(f"{A}/", item=item)
        item.append(object())  # type: ignore[arg-type] # no JSON
        await interrupted(queue, web, pages, lambda: web.requests[f"{A}/"] > 0)
    async with run(path) as queue:
        await queue.crawl(web, pages)
    assert [(page.url, page.item) for page in pages.handled] == [(f"{A}/a", ["start"])]


async def test_the_depth_of_a_link_is_kept_across_runs(path: Path) -> None:
    web = SimulatedWeb({f"{A}/": Reply(links=["/1"]), f"{A}/1": Reply(links=["/2"]), f"{A}/2": Reply(links=["/3"])})
    await program(path, web, max_pages=1)
    pages = Pages()
    async with run(path) as queue:
        await queue.crawl(web, pages, depth=2)
    assert [(page.url, page.depth) for page in pages.handled] == [(f"{A}/1", 1), (f"{A}/2", 2)]


async def test_attempts_are_counted_across_runs(path: Path) -> None:
    web = SimulatedWeb({f"{A}/": Reply(503)})
    for _ in range(2):
        before = web.requests.total()
        async with run(path) as queue:
            await queue.put(f"{A}/")
            await interrupted(queue, web, follow_links, lambda: web.requests.total() >= before + 2)  # noqa: B023 - at once
    async with run(path) as queue:
        report = await queue.crawl(web, follow_links)
    assert (report.failed, web.requests[f"{A}/"]) == (1, 5)


async def test_a_crawl_with_its_own_seen_asks_that_alone(path: Path) -> None:
    web = SimulatedWeb({f"{A}/": Reply(links=["/1"]), f"{A}/1": Reply(links=["/"])})
    async with run(path) as queue:
        await crawled(queue, web, follow_links, seen=set(), max_pages=1)
    async with run(path) as queue:
        await queue.crawl(web, follow_links, seen=set())
    assert dict(web.requests) == {f"{A}/": 2, f"{A}/1": 1}


# The end of a URL


async def test_a_turn_that_is_broken_off_with_its_task_leaves_its_url_to_the_next_run(path: Path) -> None:
    task = asyncio.current_task()
    assert task is not None

    async def turn_that_ends_by(queue: Queue, end: type[BaseException]) -> None:
        async with queue.turn():
            if end is asyncio.CancelledError:
                task.cancel()
                await asyncio.sleep(0)
            raise end

    for end in (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
        async with run(path) as queue:
            await queue.put(f"{A}/")
            with pytest.raises(end):
                await turn_that_ends_by(queue, end)
            task.uncancel()
            assert queue.qsize() == 0
        assert rows(path) == [f"{A}/"]


async def test_a_url_that_is_put_again_after_a_turn_that_was_broken_off_is_kept_once(path: Path) -> None:
    async with run(path) as queue:
        await queue.put(f"{A}/", item=1)

        async def hang() -> None:
            async with queue.turn():
                await asyncio.Event().wait()

        task = asyncio.create_task(hang())
        while not queue.statistics().under_way:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await queue.put(f"{A}/", item=2)
        assert rows(path) == [f"{A}/"]
    async with run(path) as queue, queue:
        assert queue.left() == [(f"{A}/", 2, 0)]


async def test_a_turn_that_ends_after_the_close_of_the_gate_is_handed_out_again(path: Path) -> None:
    async with run(path) as queue:
        await queue.put(f"{A}/")
        turn = queue.turn()
        await turn.__aenter__()
    await turn.__aexit__(None, None, None)
    assert rows(path) == [f"{A}/"]


# What an earlier run has put


async def test_put_of_what_an_earlier_run_has_put_is_ignored_and_waits_for_no_room(path: Path) -> None:
    async with run(path) as queue:
        await put(queue, *urls(3))
        await next_url(queue)
    async with run(path, maxsize=1) as small:
        async with asyncio.timeout(60):
            await put(small, *(f"{A}:443/./{place}#other" for place in range(3)))
        small.put_nowait(f"{A}/1")
        assert [url for url, *_ in small.left()] == [f"{A}/1", f"{A}/2"]


async def test_a_worker_may_put_again_what_this_run_has_handed_out(path: Path) -> None:
    async with run(path) as queue:
        await queue.put(f"{A}/ended")
        await next_url(queue)
        await queue.put(f"{A}/")
    async with run(path) as queue:
        async with queue.turn() as turn:
            await queue.put(turn.url, item="again")
            await queue.put(f"{A}/ended")
        assert queue.left() == [(f"{A}/", "again", 0)]
    assert rows(path) == [f"{A}/"]


# Bad input


async def test_an_item_that_json_does_not_return_is_refused_before_anything_is_queued(path: Path) -> None:
    items: list[object] = [(1,), {1: "one"}, {"a", "b"}, b"octets", float("nan"), object(), [[(1,)]]]
    async with run(path) as queue:
        for item in items:
            with pytest.raises(TypeError, match=r"item=.*with a journal, give None, a str"):
                await queue.put(f"{A}/", item)
            with pytest.raises(TypeError, match="item="):
                queue.put_nowait(f"{A}/", item)
        await queue.put(f"{A}/", "text")
        assert queue.qsize() == 1


async def test_a_page_refuses_an_item_before_its_link_counts_as_seen(path: Path) -> None:
    web = SimulatedWeb({f"{A}/": Reply()})

    async def handle(page: CrawlPage[object], _: Reply) -> None:
        if page.url == f"{A}/":
            with pytest.raises(TypeError, match="item="):
                page.put("/1", item=(1,))
            assert page.put("/1", item=[1])

    async with run(path) as queue:
        report = await crawled(queue, web, handle)
    assert (report.pages, report.failed) == (2, 0)


async def test_put_nowait_before_the_journal_was_read_is_refused(path: Path) -> None:
    async with run(path) as queue:
        with pytest.raises(ConfigurationError, match=r"put_nowait before the journal .* was read: use `await"):
            queue.put_nowait(f"{A}/")
        async with queue:
            queue.put_nowait(f"{A}/")
    assert rows(path) == [f"{A}/"]


async def test_the_argument_is_a_path_or_a_url_of_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate:
        for journal in ("one.db", "sqlite:///two.db", f"sqlite:///{tmp_path}/three.db", tmp_path / "four.db"):
            async with PoliteQueue[object](gate, journal=journal) as queue:
                await queue.put(f"{A}/")
        PoliteQueue(gate, journal="never used.db")  # it is closed with the gate all the same
        with pytest.raises(ConfigurationError, match="path=3"):
            PoliteQueue(gate, journal=3)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="no folder"):
            PoliteQueue(gate, journal=tmp_path / "missing" / "crawl.db")
        (tmp_path / "text.db").write_text("no database" * 100)
        with pytest.raises(ConfigurationError, match=r"text\.db: no politesse file"):
            PoliteQueue(gate, journal="text.db")
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("one.db", "two.db", "three.db", "four.db")}
    assert set(modes.values()) == {0o600}


async def test_a_damaged_row_is_left_as_it_is_and_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    damages = (
        *(
            "url = CAST(x'ff' AS TEXT)",
            "item = CAST(x'22ff22' AS TEXT)",
            "url = 'no url'",
            "url = x'00'",
            "item = '{'",
            "hops = '3'",
            "hops = '[3]'",
            "hops = '\"ab\"'",
        ),
        *("hops = '{\"a\": 1}'", "priority = 'x'", "attempt = 'x'", "depth = 'x'", "sitemap = '{'"),
        *("sitemap = '[\"\"]'", "sitemap = '[1, true, 0.5]'", "sitemap = '[\"\", 1, 0.5]'"),
        'sitemap = \'["", true, "x"]\'',
        *(f"{column} = replace(hex(zeroblob(50000)), '00', '[')" for column in ("item", "hops", "sitemap")),
    )
    async with run(path) as queue:
        for place in range(1 + len(damages)):
            await queue.put(f"{A}/{place}", item=place)
    for number, damage in enumerate(damages, 2):
        change(path, f"UPDATE queued SET {damage} WHERE number = {number}")  # noqa: S608 - our own text
    for digest in ("5", "'text'", "CAST(x'ff' AS TEXT)"):
        change(path, f"INSERT INTO seen VALUES ({digest})")  # noqa: S608
    async with run(path) as queue, queue:
        assert queue.left() == [(f"{A}/0", 0, 0)]
        await queue.put(f"{A}/new")
    assert len(rows(path)) == 2 + len(damages)
    logged = [message for message in caplog.messages if "has a damaged row, which is left as it is: number " in message]
    assert len(logged) == len(damages)


# The file


async def test_a_second_queue_on_the_same_journal_is_refused_until_the_first_is_closed(path: Path) -> None:
    async with run(path) as first, run(path) as second:
        await first.put(f"{A}/")
        # Each use waits half a second of real time: a process that is about to end frees its lock.
        for use in (second.put(f"{A}/2"), second.join(), next_url(second)):
            with pytest.raises(StoreError, match="another queue of this process uses it"):
                await use
        assert second.qsize() == 0
        await first.aclose()
        await second.put(f"{A}/2")
        assert second.qsize() == 2


async def test_a_write_that_fails_ends_the_queue_and_loses_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with run(path) as queue:
        await queue.put(f"{A}/1")
        fill_disk(path)
        with pytest.raises(StoreError, match=r"the journal .* cannot be written: .*no room"):
            await queue.put(f"{A}/2")
        for use in (queue.put(f"{A}/3"), next_url(queue), queue.join()):
            with pytest.raises(StoreError, match="no room"):
                await use
        with pytest.raises(StoreError, match="no room"):
            queue.put_nowait(f"{A}/4")
    [told] = caplog.messages
    assert "no more URLs are handed out, and a later run goes on" in told
    change(path, "DROP TRIGGER full")
    async with run(path) as queue:
        await queue.put(f"{A}/2")
        assert left(queue) == [f"{A}/1", f"{A}/2"]


async def test_a_crawl_ends_with_the_write_that_fails_and_the_next_run_goes_on(path: Path) -> None:
    web = SimulatedWeb(SITE)
    async with run(path) as queue:
        await queue.put(f"{A}/")
        fill_disk(path)
        with pytest.raises(StoreError, match="no room"):
            await queue.crawl(web, follow_links)
    assert rows(path) == [f"{A}/"]  # its links are not there, and so it has not ended
    change(path, "DROP TRIGGER full")
    report = await program(path, web)
    assert report.left == 0
    assert set(web.requests) == PAGES


async def test_a_cancellation_passes_though_the_journal_fails(path: Path) -> None:
    async def handle(page: CrawlPage[object], _: Reply) -> None:
        task.cancel()
        page.put("/1")

    async with run(path) as queue:
        await queue.put(f"{A}/")
        fill_disk(path)
        task = asyncio.create_task(queue.crawl(SimulatedWeb(), handle))
        with pytest.raises(asyncio.CancelledError):
            await task
    assert rows(path) == [f"{A}/"]


async def test_journal_and_store_of_the_gate_share_a_file(path: Path) -> None:
    eager = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0)
    fetcher = ScriptedFetcher({A: "User-agent: *\nDisallow: /no"})
    for _ in range(2):
        # On the real clock: the simulated one would jump beyond the time limit of the store.
        async with Gatekeeper(UA, fetcher=fetcher, store=path, pacing=eager) as gate:
            queue: AnyQueue = PoliteQueue(gate, journal=path)
            await put(queue, f"{A}/1", f"{A}/2")
            assert await next_url(queue) in {f"{A}/1", f"{A}/2"}
    assert rows(path) == []
    assert len(fetcher.requests) == 1, "the second run has robots.txt from the store"


async def test_a_put_that_waits_for_the_file_may_be_cancelled_and_the_url_is_in_it(path: Path) -> None:
    async with run(path) as queue, queue:
        task = asyncio.create_task(queue.put(f"{A}/"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert rows(path) == [f"{A}/"]


async def test_a_queue_whose_lock_was_removed_writes_nothing_into_the_file_of_the_next(path: Path) -> None:
    async with run(path) as first, run(path) as second:
        await first.put(f"{A}/1")
        path.with_name("crawl.db.lock").unlink()
        await second.put(f"{A}/2")
        with pytest.raises(StoreError, match="another queue of this process has taken it over"):
            await first.put(f"{A}/3")
        await second.put(f"{A}/4")
    assert rows(path) == [f"{A}/{place}" for place in (1, 2, 4)]


async def test_the_close_of_the_gate_or_of_the_queue_ends_the_thread_and_frees_the_file(path: Path) -> None:
    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("politesse")]

    for by_gate in (True, False):
        async with run(path) as queue:
            queue_threads = threads()
            await queue.put(f"{A}/{by_gate}")
            assert len(threads()) == len(queue_threads) + 2  # one reads, one writes
            queue.put_nowait(f"{B}/{by_gate}")
            if not by_gate:
                await queue.aclose()
                await queue.aclose()
                assert threads() == queue_threads
                with pytest.raises(QueueClosed, match="the queue was closed, with"):
                    await queue.put(f"{A}/late")
        assert threads() == queue_threads
        assert f"{B}/{by_gate}" in rows(path)
    gc.collect()  # a connection that is still open would warn, and warnings fail


async def test_close_of_the_queue_ends_workers_that_wait_also_without_a_journal(queue: Queue) -> None:
    task = asyncio.create_task(next_url(queue))
    await asyncio.sleep(0)
    await queue.put(f"{A}/1")
    async with queue:
        pass
    with pytest.raises(QueueClosed, match="with 1 URL left in it"):
        await task
    assert queue.left() == [(f"{A}/1", None, 0)]


async def test_a_long_journal_is_read_in_batches_though_callers_are_cancelled(path: Path) -> None:
    async with run(path) as queue, queue:
        for place in range(1_000):
            queue.put_nowait(f"https://h{place % 50}.example/{place}")
    async with run(path) as queue:
        for rounds in range(0, 60, 4):
            task = asyncio.create_task(queue.join())
            for _ in range(rounds):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        async with queue:
            assert queue.qsize() == queue.statistics().resumed == len(set(left(queue))) == 1_000
    async with run(path) as queue:
        reading = asyncio.create_task(queue.__aenter__())
        sizes = [0]
        while not reading.done():  # other tasks run between the batches
            await asyncio.sleep(0)
            sizes.append(queue.qsize())
    assert sizes[-1] == 1_000
    assert max(later - earlier for earlier, later in pairwise(sizes)) <= 100


Arguments = TypeVarTuple("Arguments")


class InterruptedLoop(asyncio.SelectorEventLoop):
    """Raises KeyboardInterrupt in place of a callback of the queue.

    Args:
        place: in place of which of them, from 1.
    """

    def __init__(self, place: int) -> None:
        super().__init__()
        self._left = place

    def call_soon(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        def interrupt(*_: *Arguments) -> None:
            raise KeyboardInterrupt

        if (getattr(callback, "__module__", None) or "").startswith("politesse.queue."):
            self._left -= 1
            if self._left == 0:
                callback = interrupt
        return super().call_soon(callback, *args, context=context)


@pytest.mark.timeout(30)  # it would hang
def test_a_keyboard_interrupt_within_the_event_loop_ends_the_program_and_loses_no_url(path: Path) -> None:
    places, is_interrupted = 0, True
    while is_interrupted:
        places += 1
        first, second, is_interrupted = SimulatedWeb(SITE), SimulatedWeb(SITE), False
        try:
            with asyncio.Runner(loop_factory=partial(InterruptedLoop, places)) as runner:
                runner.run(program(path, first))
        except KeyboardInterrupt:
            is_interrupted = True
        asyncio.run(program(path, second))
        assert {*first.urls, *second.urls} == PAGES
        path.unlink()
    assert places > 5
