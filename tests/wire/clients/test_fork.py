"""What is made before a fork has an identity of its own in each child, or raises an error that says what to do."""

import asyncio
import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.programs import started
from tests.support.redis_servers import RedisServer
from tests.support.tiers import first_of
from tests.wire.clients.fork_program import INTERVAL_S

pytestmark = [pytest.mark.realtime, pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")]


async def reports(kind: str, place: str, *, used: bool) -> list[object]:
    """Return what the children report."""
    arguments = ("wire.clients.fork_program", kind, place, str(int(used)))
    process = await started(*arguments, options=(), stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60.0):
        printed, _ = await process.communicate()
    return [json.loads(line) for line in printed.splitlines()]


@pytest.mark.full
async def test_gates_of_a_fleet_that_are_made_before_a_fork_keep_one_pace(redis_server: RedisServer) -> None:
    await asyncio.sleep(max(0.0, 1.5 - redis_server.age_s))
    one, other = await reports("fleet", redis_server.url, used=False)
    assert isinstance(one, list), one
    assert isinstance(other, list), other
    spans = sorted([*one, *other])
    assert len(spans) == 8
    assert all(later[0] - earlier[1] >= INTERVAL_S for earlier, later in pairwise(spans)), spans


@pytest.mark.parametrize("kind", first_of(1, ["fleet", "gate", "queue"]))
async def test_a_gate_that_was_used_before_a_fork_says_so_in_the_child(
    redis_server: RedisServer, kind: str, tmp_path: Path
) -> None:
    place = {"fleet": redis_server.url, "queue": str(tmp_path / "urls.db")}.get(kind, "")
    found = await reports(kind, place, used=True)
    assert len(found) == 2
    assert all("WrongEventLoop: " in str(one) and "create one for each event loop" in str(one) for one in found), found


@pytest.mark.parametrize("kind", first_of(1, ["sqlite", "redis"]))
async def test_stores_that_are_made_before_a_fork_serve_each_child(
    redis_server: RedisServer, kind: str, tmp_path: Path
) -> None:
    place = redis_server.url if kind == "redis" else str(tmp_path / "robots.db")
    assert await reports(kind, place, used=False) == ["ok", "ok"]


@pytest.mark.full
@pytest.mark.parametrize("kind", first_of(1, ["sqlite", "redis"]))
async def test_stores_that_were_used_before_a_fork_say_so_in_the_child(
    redis_server: RedisServer, kind: str, tmp_path: Path
) -> None:
    place = redis_server.url if kind == "redis" else str(tmp_path / "robots.db")
    found = await reports(kind, place, used=True)
    assert len(found) == 2
    assert all("StoreError" in str(one) and "before the fork" in str(one) for one in found), found


async def test_a_journal_that_is_made_before_a_fork_serves_one_child_at_a_time(tmp_path: Path) -> None:
    found = await reports("queue", str(tmp_path / "urls.db"), used=False)
    spans = sorted(one for one in found if isinstance(one, list))
    errors = [one for one in found if isinstance(one, str)]
    assert all("StoreError" in one and "one queue at a time" in one for one in errors), errors
    assert len(spans) + len(errors) == 2
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans)), spans
