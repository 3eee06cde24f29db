"""The scheduler's queue: its journal on disk, its order, and the sites that a crawl waits for or gives up."""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from scrapy import Request, Spider, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.crawler import Crawler
from scrapy.squeues import LifoMemoryQueue, PickleLifoDiskQueue
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.request import RequestFingerprinter

from politesse import Bound, ConfigurationError, NotYet, Origin
from politesse.events import FleetAway, FleetBack, HostClosed
from politesse.integrations.scrapy import PoliteDownloader, PolitePriorityQueue
from politesse.integrations.scrapy._downloader import CrawlTally, Waits
from politesse.integrations.scrapy._internals import discard_cut_state
from politesse.integrations.scrapy._queue import QueueJournal
from politesse.testing import ManualClock
from politesse.verdict import Refusal
from tests.wire.scrapy.crawling import USER_AGENT

RUNS: Final[list[Run]] = []


@pytest.fixture(autouse=True)
def _files_are_closed() -> Iterator[None]:
    yield
    while RUNS:
        RUNS.pop().journal._file.close()


class Run:
    """A run of a crawl, with the requests under way in its engine."""

    def __init__(self, job_dir: Path) -> None:
        self.under_way: set[Request] = set()
        engine = SimpleNamespace(_slot=SimpleNamespace(inprogress=self.under_way))
        prints = RequestFingerprinter()
        crawler: Any = SimpleNamespace(engine=engine, spider=Spider("test"), request_fingerprinter=prints)
        self.journal = QueueJournal(crawler, str(job_dir / "requests.queue"))
        RUNS.append(self)

    def push(self, *names: str) -> None:
        for name in names:
            self.journal.pushed(page(name))

    def pending(self) -> list[str]:
        return [str(request["url"]).removeprefix("http://example.com/") for request in self.journal.pending()]


def page(name: str) -> Request:
    return Request(f"http://example.com/{name}")


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A directory of a run that was killed: a is done, b under way, c waits."""
    run = Run(tmp_path)
    assert not run.journal.was_killed
    run.push("a", "b", "c")
    second = page("b")
    assert run.journal.popped(page("a"))
    run.under_way.add(second)
    assert run.journal.popped(second)
    return tmp_path


def test_requests_that_were_not_done_are_pending_after_a_kill(killed: Path) -> None:
    run = Run(killed)
    assert run.journal.was_killed
    assert run.pending() == ["b", "c"]


def test_journal_does_not_grow_with_the_requests_that_are_done(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for number in range(150):
        run.push(f"{number}/{'x' * 4_000}")
        run.journal.popped(page(f"{number}/{'x' * 4_000}"))
    run.journal.close()
    assert (tmp_path / "requests.queue.journal").stat().st_size < 100_000


def test_request_of_the_run_before_is_skipped_once_for_each_time_that_it_was_done(tmp_path: Path) -> None:
    first = Run(tmp_path)
    assert first.journal.popped(page("old"))  # it came from the queue that the run found
    assert first.journal.popped(page("other"))
    second = Run(tmp_path)
    assert second.pending() == []
    assert not second.journal.popped(page("old"))
    assert second.journal.popped(page("old"))


def test_requests_are_pending_in_the_order_in_which_they_were_pushed(tmp_path: Path) -> None:
    Run(tmp_path).push("a", "b", "a")
    assert Run(tmp_path).pending() == ["a", "b", "a"]


def test_of_two_equal_requests_the_one_that_was_pushed_first_is_done_first(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for number in (1, 2):
        run.journal.pushed(page("a").replace(priority=number))
    assert run.journal.popped(page("a"))
    assert run.journal.popped(page("b"))
    assert [pending["priority"] for pending in Run(tmp_path).journal.pending()] == [2]


def test_clean_end_leaves_nothing_beside_the_queue_and_its_state_is_kept(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.push("a")
    run.journal.close()
    state = tmp_path / "requests.queue" / "active.json"
    state.write_text('{"http://example.com": [0]}')  # as the scheduler does
    run.journal.remove()
    discard_cut_state(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["requests.queue"]
    assert state.read_text() == '{"http://example.com": [0]}'
    assert Run(tmp_path).journal.state == {"http://example.com": [0]}


def test_state_that_was_cut_off_as_it_was_written_is_not_read(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.push("a")
    run.journal.close()
    state = tmp_path / "requests.queue" / "active.json"
    state.write_text("")  # killed here
    discard_cut_state(tmp_path)
    assert not state.exists()
    assert Run(tmp_path).pending() == ["a"]


def test_queue_is_restored_as_the_killed_run_found_it(tmp_path: Path) -> None:
    file = tmp_path / "requests.queue" / "slot" / "0"
    file.parent.mkdir(parents=True)
    file.write_text("as it was")
    Run(tmp_path)
    file.write_text("half written")
    assert Run(tmp_path).journal.was_killed
    assert file.read_text() == "as it was"


def test_a_journal_of_another_format_or_without_its_copy_is_refused_and_nothing_is_changed(killed: Path) -> None:
    journal, kept = killed / "requests.queue.journal", killed / "requests.queue" / "kept"
    kept.touch()
    (killed / "requests.queue.copy").rename(killed / "elsewhere")
    with pytest.raises(ConfigurationError, match=r"'requests\.queue\.copy' beside it is missing"):
        Run(killed)
    (killed / "elsewhere").rename(killed / "requests.queue.copy")
    RUNS.pop().journal._file.close()  # otherwise SQLite has a part of it in another file
    for content in (b"politesse journal 1\n", b"\0" * 4096, b"pol1"):
        journal.write_bytes(content)
        with pytest.raises(ConfigurationError, match=r"requests\.queue\.journal' is not a journal of this version"):
            Run(killed)
        assert journal.read_bytes() == content
        assert kept.exists()


def test_journal_of_a_run_that_was_killed_as_it_created_it_is_empty(tmp_path: Path) -> None:
    (tmp_path / "requests.queue.copy").mkdir()
    (tmp_path / "requests.queue.journal").touch()
    run = Run(tmp_path)
    assert run.journal.was_killed
    assert run.pending() == []


# The lock of the job directory.


class Job:
    """A run of a crawl in a job directory, with a downloader and a queue on disk."""

    def __init__(self, job_dir: Path) -> None:
        settings = {"USER_AGENT": USER_AGENT, "JOBDIR": str(job_dir)}
        crawler: Any = Crawler(Spider, settings)
        crawler.stats = MemoryStatsCollector(crawler)
        crawler.spider = Spider("test")
        crawler.request_fingerprinter = RequestFingerprinter()
        crawler.engine = SimpleNamespace(downloader=PoliteDownloader(crawler), _slot=None)
        directory = job_dir / "requests.queue"
        self.crawler, self.state = crawler, directory / "active.json"
        self.queue = PolitePriorityQueue(crawler, PickleLifoDiskQueue, str(directory))

    def close(self) -> None:
        self.state.write_text(json.dumps(self.queue.close()))  # as the scheduler does

    async def note_closed(self) -> None:
        await self.crawler.signals.send_catch_log_async(signals.spider_closed, spider=self.crawler.spider)


def changes(directory: Path) -> dict[Path, int]:
    """Return when each file was changed; no file is opened, because a process that closes a file loses its locks."""
    return {path: path.stat().st_mtime_ns for path in directory.rglob("*")}


@pytest.mark.realtime
async def test_second_run_in_a_job_directory_is_refused_until_the_first_has_ended_and_changes_nothing(
    tmp_path: Path,
) -> None:
    first = Job(tmp_path)
    first.queue.push(page("a"))
    for is_closed in (False, True):
        if is_closed:
            first.close()
        files = changes(tmp_path)
        with pytest.raises(ConfigurationError, match=f"JOBDIR='{tmp_path}': another run uses it"):
            Job(tmp_path)
        assert changes(tmp_path) == files
        assert first.state.exists() is is_closed
    await first.note_closed()
    second = Job(tmp_path)
    assert second.state.exists()
    second.close()
    await second.note_closed()


async def test_queue_with_another_downloader_is_refused_before_it_changes_the_job_directory(tmp_path: Path) -> None:
    first = Job(tmp_path)
    files = changes(tmp_path)
    crawler: Any = SimpleNamespace(engine=SimpleNamespace(downloader="another"))
    with pytest.raises(ConfigurationError, match="PolitePriorityQueue needs a PoliteDownloader, not 'another'"):
        PolitePriorityQueue(crawler, PickleLifoDiskQueue, str(tmp_path / "requests.queue"))
    assert changes(tmp_path) == files
    first.close()
    await first.note_closed()


def test_run_that_ends_before_its_queue_was_opened_frees_its_job_directory(tmp_path: Path) -> None:
    kept = []  # otherwise the garbage collector would free it
    for _ in range(2):
        crawler: Any = Crawler(Spider, {"USER_AGENT": USER_AGENT, "JOBDIR": str(tmp_path)})
        crawler.stats = MemoryStatsCollector(crawler)
        kept.append(PoliteDownloader(crawler))
        kept[-1].close()  # as the engine does if it cannot be created


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_run_that_was_dropped_without_an_end_frees_its_job_directory(tmp_path: Path) -> None:
    for pushed in range(3):
        run = Job(tmp_path)
        assert len(run.queue) == pushed
        run.queue.push(page(str(pushed)))
        del run
        gc.collect()


def test_processes_of_a_scheduler_without_a_queue_on_disk_share_a_job_directory(tmp_path: Path) -> None:
    settings = {"JOBDIR": str(tmp_path), "SCHEDULER": BaseScheduler, "USER_AGENT": USER_AGENT}
    crawlers: list[Any] = [Crawler(Spider, settings) for _ in range(2)]
    for crawler in crawlers:
        crawler.stats = MemoryStatsCollector(crawler)
    assert [PoliteDownloader(crawler).is_bypassed for crawler in crawlers] == [True, True]


# The order in which requests are handed out, without a check of all slots.

A, B, B_TLS, C = "http://a.example", "http://b.example:8000", "https://b.example", "http://c.example"


class Downloader(PoliteDownloader):
    """Knows the hosts that are busy, and the slots that were checked."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self.busy: set[str] = set()
        self.checked: list[str] = []

    def is_ready(self, slot: str, *, is_last: bool) -> bool:
        self.checked.append(slot)
        return Origin.of(slot).host not in self.busy


class Queue:
    def __init__(self) -> None:
        crawler: Any = Crawler(Spider, {"USER_AGENT": USER_AGENT})
        crawler.stats = MemoryStatsCollector(crawler)
        self.downloader = Downloader(crawler)
        crawler.engine = SimpleNamespace(downloader=self.downloader)
        self.queue = PolitePriorityQueue(crawler, LifoMemoryQueue, "")

    def push(self, *origins: str) -> None:
        for number, origin in enumerate(origins):
            self.queue.push(Request(f"{origin}/{number}"))

    def hand_out(self, times: int) -> list[str | None]:
        """Return the origins of the next requests, whose hosts are busy from then on."""
        found: list[str | None] = []
        for _ in range(times):
            request = self.queue.pop()
            found.append(None if request is None else str(Origin.of(request.url)))
            if request is not None:
                self.downloader.busy.add(Origin.of(request.url).host)
        return found

    def end(self, *sites: str) -> None:
        for site in sites:
            self.downloader.busy.discard(Origin.of(site).host)
            self.queue.wake(site)


async def test_slots_are_handed_out_in_turn_and_an_empty_one_is_forgotten_until_a_request_is_pushed() -> None:
    queue = Queue()
    queue.push(*[A, C] * 3)
    for _ in range(3):
        assert queue.hand_out(3) == [A, C, None]
        queue.end(A, C)
    assert queue.hand_out(1) == [None]
    queue.push(A)
    assert queue.hand_out(1) == [A]


async def test_a_slot_that_is_not_ready_is_not_checked_again_before_something_ends_at_its_host() -> None:
    queue = Queue()
    queue.downloader.busy.add("a.example")
    queue.push(A, A)
    assert queue.hand_out(5) == [None] * 5
    queue.push(A)  # as it sleeps, it stays asleep
    assert queue.hand_out(1) == [None]
    assert queue.downloader.checked == [A]
    queue.end(A)
    assert queue.hand_out(1) == [A]


async def test_an_origin_wakes_the_other_origins_of_its_host() -> None:
    queue = Queue()
    queue.push(B, B_TLS)
    assert queue.hand_out(2) == [B, None]
    queue.end(B)
    assert queue.hand_out(1) == [B_TLS]


# The sites that a crawl waits for, for longer than a test may crawl.

HOST: Final = "example.com"


class Waiting:
    """The waits of a crawl, and the hosts whose waits have ended."""

    def __init__(self) -> None:
        crawler: Any = SimpleNamespace(settings=SimpleNamespace(getbool=lambda _: False))
        crawler.stats = self.stats = MemoryStatsCollector(crawler)
        self.clock, self.tally = ManualClock(), CrawlTally(crawler)
        self.ended: list[str | None] = []
        self.waits = Waits(self.clock, 600.0, 300.0, self.tally, self.ended.append)

    def wait(self, seconds: float, bound_by: Bound, refusal: Refusal | None = None) -> None:
        self.waits.wait_for_turn(HOST, NotYet(self.clock.wall() + seconds, bound_by, "", refusal))

    def bound_by(self) -> Bound | None:
        answer = self.waits.answer_of(HOST)
        return None if answer is None else answer.bound_by


@pytest.fixture
def crawl(caplog: pytest.LogCaptureFixture) -> Waiting:
    caplog.set_level(logging.INFO)
    return Waiting()


def test_host_that_is_given_up_twice_is_logged_once(crawl: Waiting, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        crawl.wait(700.0, Bound.RETRY_AFTER)
        assert crawl.waits.given_up(f"http://{HOST}:8000") == HOST
        crawl.waits.end(HOST)
        assert crawl.waits.given_up(HOST) is None
    assert caplog.text.count("example.com is given up") == 1
    assert crawl.ended == [HOST, HOST]


def test_slow_host_is_logged_once(crawl: Waiting, caplog: pytest.LogCaptureFixture) -> None:
    crawl.wait(59.0, Bound.CRAWL_DELAY)
    crawl.waits.end(HOST)
    assert caplog.text == ""
    for _ in range(2):
        crawl.wait(60.0, Bound.CRAWL_DELAY)
        crawl.waits.end(HOST)
    assert caplog.text.count("example.com is waited for until") == 1


def test_answer_of_a_host_ends_the_reason_for_which_it_was_given_up(crawl: Waiting) -> None:
    crawl.wait(700.0, Bound.RETRY_AFTER)
    assert crawl.bound_by() is Bound.RETRY_AFTER
    crawl.waits.end(HOST)
    crawl.waits.note_status(HOST, 200)
    assert crawl.bound_by() is None


def test_wait_until_a_time_ends_by_itself(crawl: Waiting) -> None:
    crawl.waits.wait_until(HOST, NotYet(crawl.clock.wall() + 5.0, Bound.RETRY_AFTER), 10.0)
    crawl.clock.advance(9.0)
    assert crawl.waits.holds(f"https://{HOST}")
    crawl.clock.advance(1.0)
    assert crawl.ended == [HOST]
    assert not crawl.waits.holds(HOST)


def test_redis_that_is_away_is_given_up_after_the_longest_wait_and_all_go_on_when_it_is_back(
    crawl: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    crawl.waits.note(FleetAway("redis://127.0.0.1:6379/0", "refused\n"))
    crawl.clock.advance(599.0)
    assert not crawl.waits.holds(HOST)
    crawl.clock.advance(1.0)
    assert crawl.waits.holds(HOST)
    assert crawl.waits.given_up(f"http://{HOST}") == HOST
    assert crawl.bound_by() is Bound.FLEET
    assert "away for 600 s, as POLITESSE_MAX_WAIT permits (redis://127.0.0.1:6379/0: refused\\n)" in caplog.text
    crawl.waits.note(FleetBack("redis://127.0.0.1:6379/0", 601.0))
    assert crawl.ended == [None]
    assert not crawl.waits.holds(HOST)


def test_redis_that_is_back_before_that_or_whose_spider_is_closed_is_not_given_up() -> None:
    for is_closed in (True, False):
        crawl = Waiting()
        crawl.waits.note_fleet_away("it was away before this spider was opened")
        crawl.clock.advance(300.0)
        if is_closed:
            crawl.waits.close()
        else:
            crawl.waits.note(FleetBack("redis://127.0.0.1:6379/0", 300.0))
        crawl.clock.advance(600.0)
        assert crawl.waits.fleet_lost is None, is_closed


def test_summary_names_the_ten_sites_with_most_requests_and_counts_the_others(
    crawl: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1, 13):
        crawl.tally.given_up(f"{number}.example", f"{number}.example", "slow")
        crawl.tally.left(f"{number}.example", number, on_disk=False)
    crawl.tally.log_summary()
    assert "78 requests, of which 0 stay in JOBDIR" in caplog.text
    assert "for the next run: 12.example (12: slow), 11.example (11: slow), " in caplog.text
    assert "3.example (3: slow), and 2 more\n" in caplog.text
    assert "2.example (2" not in caplog.text.replace("12.example (12", "")


def test_a_site_that_refuses_is_given_up_at_the_third_time_and_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    for times in (1, 2, 3, 4):
        crawl = Waiting()
        crawl.wait(500.0, Bound.REFUSED, Refusal(times, "403"))
        assert crawl.waits.given_up(HOST) == (HOST if times >= 3 else None)
        assert (f"refused {times} times in a row: 403 until" in caplog.text) is (times >= 3)
    crawl = Waiting()
    for host, bound_by in (("a", Bound.REFUSED), ("a", Bound.REFUSED), ("b", Bound.REFUSED), ("c", Bound.BACKOFF)):
        crawl.waits.note(HostClosed(host, crawl.clock.wall() + 900.0, bound_by, 900.0))
    assert crawl.stats.get_value("politesse/hosts/refused") == 2
    assert crawl.stats.get_value("politesse/hosts/closed") == 3
