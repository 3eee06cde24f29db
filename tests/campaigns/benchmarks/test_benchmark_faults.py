"""The benchmark of faults: that politesse does what each of them asks for, and that what a crawler did is judged so."""

import asyncio
from typing import Any, Final

import pytest
from benchmarks.fault_crawls import leeway
from benchmarks.fault_crawls.peers import PEERS, POLITESSE
from benchmarks.fault_crawls.run import Outcome
from benchmarks.faults import Judgement, crawl, judge, shown

from politesse.testing import FAULTS

pytestmark = pytest.mark.weekly

HANDFUL: Final = [
    *("no-content-length", "status-404", "status-500", "reset-in-body", "redirect-to-data", "429-seconds")
]


@pytest.fixture(scope="module")
def crawled() -> dict[str, Any]:
    """What politesse did about a handful of faults."""
    faults = [FAULTS[name] for name in HANDFUL]
    # They all end by themselves: a loaded machine only takes longer.
    return asyncio.run(crawl([POLITESSE], faults, timeout_s=30.0, limit_s=90.0))


@pytest.mark.realtime
@pytest.mark.parametrize("name", HANDFUL)
def test_politesse_requests_what_the_fault_leaves_open_and_nothing_else(name: str, crawled: dict[str, Any]) -> None:
    fault, done = FAULTS[name], crawled[name]["politesse"]
    open_pages = {"/page": fault.allows_page, "/private": fault.allows_private}
    assert done.seen == {page for page, is_open in open_pages.items() if is_open}
    assert done.opened == (fault.allows_page, fault.allows_private)
    assert done.ended, done.errors
    assert done.deferred == (name == "429-seconds")


def _done(*, page: bool, private: bool, ended: bool = True) -> Outcome:
    return Outcome(
        page=page,
        private=private,
        seen=frozenset(),
        deferred=False,
        robots_requests=1,
        elapsed_s=0.1 if ended else None,
        grown_mib=0.0,
        died=False,
        errors="",
    )


@pytest.mark.parametrize(
    ("name", "done", "judgement"),
    [
        ("status-500", _done(page=False, private=False), Judgement.RIGHT),
        ("status-500", _done(page=True, private=False), Judgement.OPENS),
        ("status-404", _done(page=True, private=True), Judgement.RIGHT),
        ("status-404", _done(page=True, private=False), Judgement.CLOSES),
        ("no-content-length", _done(page=True, private=True), Judgement.OPENS),
        ("no-content-length", _done(page=False, private=True), Judgement.OPENS),
        ("no-content-length", _done(page=False, private=False), Judgement.CLOSES),
        ("429-seconds", _done(page=True, private=True), Judgement.RIGHT),
        ("429-seconds", _done(page=True, private=False), Judgement.OPENS),
        ("redirect-chain-of-6", _done(page=True, private=False), Judgement.RIGHT),
        ("never-answers", _done(page=False, private=False, ended=False), Judgement.ENDS_BADLY),
        ("never-answers", _done(page=True, private=True, ended=False), Judgement.OPENS),
    ],
)
def test_what_a_crawler_did_is_held_against_the_standards(name: str, done: Outcome, judgement: Judgement) -> None:
    assert judge(FAULTS[name], done) is judgement


def test_what_the_fault_says_is_always_right() -> None:
    for fault in FAULTS.values():
        assert (fault.allows_page, fault.allows_private) in leeway.right(fault)


def test_leeway_and_notes_are_for_faults_that_there_are() -> None:
    prefixes = {prefix for peer in PEERS for names in peer.notes for prefix in names}
    for prefix in prefixes | set(leeway._ALSO_RIGHT):
        assert any(name.startswith(prefix) for name in FAULTS), prefix


def test_nothing_that_is_shown_leads_off_the_machine() -> None:
    assert FAULTS.keys() - shown().keys() == {
        "redirect-to-link-local-6-from-public",
        "redirect-to-metadata-from-public",
        "redirect-to-multicast-from-public",
        "redirect-to-private-from-public",
        "redirect-to-translated-loopback-from-public",
    }
