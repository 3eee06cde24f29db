"""The journal of a queue on disk: the requests that a killed run has pushed and not done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from scrapy import Request, Spider
from scrapy.utils.request import RequestFingerprinter

from politesse import ConfigurationError
from politesse.integrations.scrapy._internals import discard_cut_state
from politesse.integrations.scrapy._queue import QueueJournal

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
        slot = SimpleNamespace(inprogress=self.under_way)
        crawler: Any = SimpleNamespace(
            engine=SimpleNamespace(_slot=slot), spider=Spider("test"), request_fingerprinter=RequestFingerprinter()
        )
        self.journal = QueueJournal(crawler, str(job_dir / "requests.queue"))
        RUNS.append(self)

    def pending(self) -> list[object]:
        return [request["url"] for request in self.journal.pending()]


def page(name: str) -> Request:
    return Request(f"http://example.com/{name}")


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A directory of a run that was killed: a is done, b under way, c waits."""
    run = Run(tmp_path)
    assert not run.journal.was_killed
    for name in "abc":
        run.journal.pushed(page(name))
    first, second = page("a"), page("b")
    assert run.journal.popped(first)
    run.under_way.add(second)
    assert run.journal.popped(second)
    return tmp_path


def test_requests_that_were_not_done_are_pending_after_a_kill(killed: Path) -> None:
    run = Run(killed)
    assert run.journal.was_killed
    assert run.pending() == ["http://example.com/b", "http://example.com/c"]


def test_journal_does_not_grow_with_the_requests_that_are_done(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for number in range(500):
        run.journal.pushed(page(f"{number}/{'x' * 4_000}"))
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
    run = Run(tmp_path)
    for name in ("a", "b", "a"):
        run.journal.pushed(page(name))
    assert Run(tmp_path).pending() == [f"http://example.com/{name}" for name in "aba"]


def test_of_two_equal_requests_the_one_that_was_pushed_first_is_done_first(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for number in (1, 2):
        run.journal.pushed(page("a").replace(priority=number))
    assert run.journal.popped(page("a"))
    assert run.journal.popped(page("b"))
    (pending,) = Run(tmp_path).journal.pending()
    assert pending["priority"] == 2


def test_clean_end_leaves_nothing_beside_the_queue(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.journal.pushed(page("a"))
    run.journal.close()
    (tmp_path / "requests.queue" / "active.json").write_text('{"http://example.com": [0]}')  # as the scheduler does
    run.journal.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["requests.queue"]
    assert Run(tmp_path).journal.state == {"http://example.com": [0]}


def test_state_that_was_cut_off_as_it_was_written_is_not_read(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.journal.pushed(page("a"))
    run.journal.close()
    state = tmp_path / "requests.queue" / "active.json"
    state.write_text("")  # killed here
    discard_cut_state(tmp_path)
    assert not state.exists()
    assert Run(tmp_path).pending() == ["http://example.com/a"]


def test_state_of_a_clean_end_is_kept(tmp_path: Path) -> None:
    state = tmp_path / "requests.queue" / "active.json"
    state.parent.mkdir()
    state.write_text("{}")
    discard_cut_state(tmp_path)
    assert state.read_text() == "{}"


def test_queue_is_restored_as_the_killed_run_found_it(tmp_path: Path) -> None:
    file = tmp_path / "requests.queue" / "slot" / "0"
    file.parent.mkdir(parents=True)
    file.write_text("as it was")
    Run(tmp_path)
    file.write_text("half written")
    assert Run(tmp_path).journal.was_killed
    assert file.read_text() == "as it was"


@pytest.mark.parametrize("content", [b"politesse journal 1\n", b"\0" * 4096, b"pol1"])
def test_a_journal_of_another_format_is_refused_and_nothing_is_changed(tmp_path: Path, content: bytes) -> None:
    for name in ("queue", "queue.copy"):
        (tmp_path / f"requests.{name}").mkdir()
    (tmp_path / "requests.queue" / "kept").touch()
    (tmp_path / "requests.queue.journal").write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"requests\.queue\.journal' is not a journal of this version"):
        Run(tmp_path)
    assert (tmp_path / "requests.queue.journal").read_bytes() == content
    assert (tmp_path / "requests.queue" / "kept").exists()


def test_a_journal_without_its_copy_is_refused_and_nothing_is_changed(killed: Path) -> None:
    (killed / "requests.queue.copy").rename(killed / "elsewhere")
    (killed / "requests.queue" / "kept").touch()
    with pytest.raises(ConfigurationError, match=r"'requests\.queue\.copy' beside it is missing"):
        Run(killed)
    assert (killed / "requests.queue" / "kept").exists()


def test_journal_of_a_run_that_was_killed_as_it_created_it_is_empty(tmp_path: Path) -> None:
    (tmp_path / "requests.queue.copy").mkdir()
    (tmp_path / "requests.queue.journal").touch()
    run = Run(tmp_path)
    assert run.journal.was_killed
    assert run.pending() == []
