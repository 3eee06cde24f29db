"""The phases of hosts, as users see them: in ``repr``, in the statistics, and in the log for debugging."""

import logging

import pytest

from politesse import Gatekeeper, Reason
from politesse.queue import PoliteQueue, QueueClosed
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.queue.crawl import A, Queue, Refusals, put
from tests.support.tasks import settle

RULES = "User-agent: *\nCrawl-delay: 5\nDisallow: /private\n"


def moves(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged of the host since the last call."""
    texts = [record.getMessage().removeprefix("a.example: ") for record in caplog.records]
    caplog.clear()
    return texts


async def test_a_host_goes_through_its_phases(
    queue: Queue, fetcher: ScriptedFetcher, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "politesse.queue")
    fetcher.answers[A] = RULES
    await queue.put(f"{A}/1")
    await queue.put(f"{A}/2")
    await settle()
    assert moves(caplog) == ["unknown, was empty: robots.txt is unknown", "paced, was unknown: robots.txt is known"]
    async with queue.turn() as turn:
        assert moves(caplog) == ["ready, was paced: the pacer calls", "in turn, was ready: a worker asks for its turn"]
        turn.observe(503, {"Retry-After": "40"})
    assert moves(caplog) == ["ready, was in turn: it is looked at"]
    async with queue.turn():
        assert moves(caplog) == [
            "in turn, was ready: a worker asks for its turn",
            "closed, was in turn: it is closed",
            "ready, was closed: the pacer calls",
            "in turn, was ready: a worker asks for its turn",
            "empty, was in turn: no URL is left",
        ]
        assert clock.monotonic() >= 45


async def test_a_host_that_would_wait_too_long_is_given_up_url_by_url(
    gate: Gatekeeper, fetcher: ScriptedFetcher, caplog: pytest.LogCaptureFixture
) -> None:
    fetcher.answers[A] = RULES
    refused = Refusals()
    queue: Queue = PoliteQueue(gate, on_disallowed=refused, max_wait_s=60.0)
    await put(queue, *(f"{A}/{place}" for place in range(3)))
    async with queue.turn() as turn:
        turn.observe(429, {"Retry-After": "3600"})
    caplog.set_level(logging.DEBUG, "politesse.queue")
    queue.close()
    with pytest.raises(QueueClosed, match="nothing is left"):
        await queue.turn().__aenter__()
    assert [verdict.reason for _, verdict in refused.verdicts] == [Reason.WAIT_TOO_LONG] * 2
    assert [text for text in moves(caplog) if "given up, was" in text] == [
        "given up, was in turn: it would wait for too long"
    ]
