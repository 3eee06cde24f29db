"""A gate that starts again on the file of an earlier one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from politesse import Gatekeeper
from politesse.ports import FetchResponse
from politesse.testing import ManualClock, ScriptedFetcher

if TYPE_CHECKING:
    from pathlib import Path

UA = "ExampleBot/1.0"
START = 1_800_000_000
DAY_S = 86_400


def sites(count: int) -> dict[str, FetchResponse]:
    return {
        f"https://host{number}.example": FetchResponse(
            200,
            f"https://host{number}.example/robots.txt",
            {"etag": f'"v{number}"'},
            b"User-agent: *\nDisallow: /private%d/\n" % number,
        )
        for number in range(count)
    }


async def answers(gate: Gatekeeper, count: int) -> list[bool]:
    """Whether each site allows what it disallows, and what the next one disallows."""
    urls = [f"https://host{n}.example/private{m}/x" for n in range(count) for m in (n, n + count)]
    return [verdict.allowed for verdict in await asyncio.gather(*map(gate.check, urls))]


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_a_gate_on_the_same_file_answers_without_a_request(tmp_path: Path, count: int) -> None:
    first, second = ScriptedFetcher(sites(count)), ScriptedFetcher()
    async with Gatekeeper(UA, fetcher=first, clock=ManualClock(wall=START), store=tmp_path / "robots.db") as gate:
        assert await answers(gate, count) == [False, True] * count
    assert len(first.requests) == count
    clock = ManualClock(wall=START + DAY_S / 2)
    async with Gatekeeper(UA, fetcher=second, clock=clock, store=tmp_path / "robots.db") as gate:
        assert await answers(gate, count) == [False, True] * count
    assert second.requests == []


async def test_an_expired_copy_revalidates_with_its_etag(tmp_path: Path) -> None:
    count = 100
    async with Gatekeeper(
        UA, fetcher=ScriptedFetcher(sites(count)), clock=ManualClock(wall=START), store=tmp_path / "robots.db"
    ) as gate:
        await answers(gate, count)
    unchanged = {
        site: FetchResponse(304, f"{site}/robots.txt", {"etag": response.headers["etag"]}, conditional=True)
        for site, response in sites(count).items()
    }
    fetcher = ScriptedFetcher(unchanged)
    clock = ManualClock(wall=START + DAY_S + 60)
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, store=tmp_path / "robots.db") as gate:
        assert await answers(gate, count) == [False, True] * count
    sent = {str(request.origin): request.validators for request in fetcher.requests}
    assert len(fetcher.requests) == len(sent) == count
    assert {site: validators and validators.etag for site, validators in sent.items()} == {
        f"https://host{number}.example": f'"v{number}"' for number in range(count)
    }


async def test_two_gates_of_one_file_share_what_they_fetch(tmp_path: Path) -> None:
    count = 50
    first, second = ScriptedFetcher(sites(count)), ScriptedFetcher(sites(count))
    async with (
        Gatekeeper(UA, fetcher=first, store=tmp_path / "robots.db") as one,
        Gatekeeper(UA, fetcher=second, store=tmp_path / "robots.db") as other,
    ):
        assert await answers(one, count) == [False, True] * count
        assert await answers(other, count) == [False, True] * count
    assert len(first.requests) == count
    assert second.requests == []
