"""Some runs of the model, and proof that it finds what it should: a library that is broken on purpose."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from math import inf
from typing import Any, Final

import pytest

from politesse._gate.state import GateState
from politesse._gate.view import AgentView
from politesse._pacing.fetch_lines import FetchLines
from politesse._pacing.hosts import Host, Lane, LocalPermit
from politesse.queue._dispatch import Dispatcher
from politesse.queue._web import Limits
from tests.model.runs import run

SEEDS: Final = range(1, 16)
MOST: Final = 60
"""A defect shows within this many runs."""


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_difference_is_found(seed: int) -> None:
    result = run(seed)
    assert not result.findings


def test_a_run_is_the_same_each_time() -> None:
    assert run(SEEDS[0]).trace == run(SEEDS[0]).trace


def starts_early(patch: pytest.MonkeyPatch) -> None:
    reckon = Host.reckon

    def early(self: Host, lane: Lane, *given: Any) -> Any:
        lane.start = reckon(self, lane, *given)._replace(ready_mono=-inf)
        lane.ready_mono = -inf
        return lane.start

    patch.setattr(Host, "reckon", early)


def skips_robots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AgentView, "judged", lambda self, url: self.exempted(url, "broken"))


def adds(patch: pytest.MonkeyPatch, times: int) -> None:
    """Have every fifth URL queued this many times."""
    add, calls = Dispatcher.add, 0

    def broken(self: Any, *given: Any, **named: Any) -> None:
        nonlocal calls
        calls += 1
        for _ in range(1 if calls % 5 else times):
            add(self, *given, **named)

    patch.setattr(Dispatcher, "add", broken)


def loses_a_url(patch: pytest.MonkeyPatch) -> None:
    adds(patch, 0)


def duplicates_a_url(patch: pytest.MonkeyPatch) -> None:
    adds(patch, 2)


def exceeds_a_limit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Limits, "is_full", lambda *_: False)
    patch.setattr(Limits, "places", property(lambda _: None, lambda *_: None), raising=False)


def leaves_a_task(patch: pytest.MonkeyPatch) -> None:
    aclose, tasks = GateState.aclose, set()

    async def leaving(self: GateState) -> None:
        tasks.add(asyncio.create_task(asyncio.Event().wait()))
        await aclose(self)

    patch.setattr(GateState, "aclose", leaving)


def requests_robots_together(patch: pytest.MonkeyPatch) -> None:
    async def enter(*_: object) -> None:
        pass

    patch.setattr(FetchLines, "enter", enter)
    patch.setattr(FetchLines, "leave", lambda *_, **__: None)


def never_ends_a_turn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LocalPermit, "end", lambda self: None)


@pytest.mark.parametrize(
    ("breaks", "found"),
    [
        (starts_early, "after the last request, not"),
        (skips_robots, "without a valid robots.txt"),
        (loses_a_url, "has 0 outcomes, and is queued 0 times"),
        (duplicates_a_url, "has a second outcome"),
        (exceeds_a_limit, "beyond max_pages_per_host"),
        (leaves_a_task, "left at the end"),
        (requests_robots_together, "while another robots.txt of its host is under way"),
        pytest.param(never_ends_a_turn, "is idle since", marks=pytest.mark.full),
    ],
)
def test_a_broken_library_is_found(
    breaks: Callable[[pytest.MonkeyPatch], None], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch)
    findings: list[str] = []
    for seed in range(1, MOST):
        findings += run(seed).findings
        if any(found in finding for finding in findings):
            return
    assert not findings
    raise AssertionError("nothing is found")
