"""All fetches share a client session, and do not disturb each other."""

import asyncio
import gc

import aiohttp
import pytest

from politesse.fetch import AiohttpFetcher
from politesse.ports import FaultKind, FetchRequest
from tests.integration.fetch.fetching import PUBLIC, UA, faulted, responded
from tests.integration.fetch.servers import FILE, Names, Server, response, silence


async def test_fetches_at_the_same_time_are_each_checked_by_their_own_guard() -> None:
    names = Names("inside.example", **{"mixed.example": (PUBLIC, "127.0.0.1")})
    async with Server(response(200, FILE)) as server:
        fetcher = AiohttpFetcher(UA, resolver=names)
        inside = server.origin("inside.example")
        redirected = FetchRequest(inside, 0, redirected=True)
        results = await asyncio.gather(*(fetcher.fetch(one) for one in [redirected, FetchRequest(inside, 0)] * 10))
        assert {faulted(result).kind for result in results[::2]} == {FaultKind.REDIRECT_TARGET}
        assert {responded(result).body for result in results[1::2]} == {FILE}
        assert len(server.requests) == 10
        await fetcher.aclose()


async def test_more_than_a_hundred_fetches_are_under_way_at_once() -> None:
    async with Server(silence) as server:
        fetcher = AiohttpFetcher(UA)
        tasks = [asyncio.create_task(fetcher.fetch(FetchRequest(server.origin(), 0))) for _ in range(130)]
        async with asyncio.timeout(20):
            while len(server.requests) < 130:
                await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await fetcher.aclose()


async def test_closing_ends_the_fetches_under_way_and_a_later_one_connects_again() -> None:
    async with Server(silence) as silent, Server(response(200, FILE)) as server:
        fetcher = AiohttpFetcher(UA)
        pending = asyncio.create_task(fetcher.fetch(FetchRequest(silent.origin(), 0)))
        while not silent.requests:
            await asyncio.sleep(0.001)
        await fetcher.aclose()
        faulted(await pending)
        assert responded(await fetcher.fetch(FetchRequest(server.origin(), 0))).body == FILE
        await fetcher.aclose()


@pytest.mark.parametrize("borrowed", [False, True], ids=["own connector", "borrowed connector"])
async def test_a_fetcher_that_nobody_closed_warns_of_nothing(borrowed: bool) -> None:  # noqa: FBT001
    async with aiohttp.ClientSession() as session, Server(response(200, FILE)) as server:
        fetcher = AiohttpFetcher(UA, session=session if borrowed else None)
        responded(await fetcher.fetch(FetchRequest(server.origin(), 0)))
        del fetcher
        gc.collect()  # a ResourceWarning would fail the test


def test_one_fetcher_serves_one_event_loop_after_another() -> None:
    fetcher = AiohttpFetcher(UA)

    async def fetch() -> bytes:
        async with Server(response(200, FILE)) as server:
            return responded(await fetcher.fetch(FetchRequest(server.origin(), 0))).body

    assert [asyncio.run(fetch()) for _ in range(3)] == [FILE] * 3
