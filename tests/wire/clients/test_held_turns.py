"""Requests within a turn of the same task, by every integration: they use that turn, or are refused at once."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import aiohttp
import httpx
import httpx2
import pytest
from yarl import URL

from politesse import Disallowed, Gatekeeper, HostPolicy, NotYet, PacingOptions, Turn
from politesse.errors import ConfigurationError, TurnHeld
from politesse.integrations.aiohttp import PoliteSession
from politesse.options import SharedPacer
from politesse.queue import CrawlPage, PoliteQueue
from tests.support.sites import EAGER, UA, Site, turns, until
from tests.support.tasks import apart
from tests.wire.clients.clients import CLIENTS, Client, Httpx

pytestmark = pytest.mark.timeout(20)


@pytest.fixture(params=CLIENTS)
async def client(request: pytest.FixtureRequest, gate: Gatekeeper) -> AsyncIterator[Client]:
    made = CLIENTS[request.param](gate)
    yield made
    await made.aclose()


# The turn that the task holds


async def test_request_within_a_turn_of_the_queue_uses_that_turn(site: Site, gate: Gatekeeper, client: Client) -> None:
    queue: PoliteQueue[str] = PoliteQueue(gate)
    for path in ("/1", "/2"):
        await queue.put(f"{site.base}{path}")
    for _ in range(2):
        async with queue.turn() as turn:
            assert await client.get(turn.url) == 200
            assert turns(gate) == 0  # it has ended with its response
    assert site.pages == ["/1", "/2"]


async def test_request_within_a_turn_of_the_gate_uses_that_turn(site: Site, gate: Gatekeeper, client: Client) -> None:
    async with gate.turn(f"{site.base}/1") as turn:
        assert await client.get(turn.url) == 200
    while not (tried := gate.try_turn(f"{site.base}/2")):
        await asyncio.sleep(0.001)
    with tried as turn:
        assert await client.get(turn.url) == 200
    assert site.pages == ["/1", "/2"]


async def test_child_tasks_use_the_turn_of_their_parent(site: Site, gate: Gatekeeper, client: Client) -> None:
    async with gate.turn(f"{site.base}/1") as turn:
        [status] = await asyncio.gather(client.get(turn.url))
        assert status == 200
    async with gate.turn(f"{site.base}/2") as turn:
        assert await asyncio.wait_for(client.get(turn.url), 5) == 200


async def test_two_child_tasks_share_no_turn(site: Site, gate: Gatekeeper, client: Client) -> None:
    async with gate.turn(f"{site.base}/page") as turn:
        first, second = await asyncio.gather(*(client.get(turn.url) for _ in range(2)), return_exceptions=True)
    assert first == 200
    assert isinstance(second, TurnHeld)
    assert site.pages == ["/page"]


async def test_answer_is_recorded_once(site: Site, gate: Gatekeeper, client: Client) -> None:
    async with gate.turn(f"{site.base}/503") as turn:
        assert await client.get(turn.url) == 503
        turn.observe(503, {"Retry-After": "86400"})  # out of place: the integration has recorded the answer
    refused = gate.try_turn(f"{site.base}/page")
    assert isinstance(refused, NotYet)
    assert refused.not_before - gate.state.clock.wall() == pytest.approx(3_600, abs=60)


async def test_answer_is_recorded_once_while_its_response_is_open(site: Site, gate: Gatekeeper, client: Client) -> None:
    async with gate.turn(f"{site.base}/slow") as turn:
        release = await client.open(turn.url)
        turn.observe(503, {"Retry-After": "86400"})  # out of place: the integration has recorded the answer
        release()
        await until(lambda: turns(gate) == 0)
    with await gate.take_turn(f"{site.base}/page", max_wait_s=10):
        pass


async def test_redirect_ends_the_turn_and_the_next_hop_takes_its_own(
    site: Site, other: Site, gate: Gatekeeper, client: Client
) -> None:
    site.redirects["/moved"] = (302, f"{other.base}/page")
    other.redirects["/back"] = (302, f"{site.base}/page")
    async with gate.turn(f"{site.base}/moved") as turn:
        assert await client.get(turn.url) == 200
    async with gate.turn(f"{other.base}/back") as turn:
        assert await client.get(turn.url) == 200
    assert site.pages == ["/moved", "/page"]
    assert other.pages == ["/page", "/back"]


async def test_redirect_to_the_host_of_another_turn_of_the_task_is_refused(
    site: Site, other: Site, gate: Gatekeeper, client: Client
) -> None:
    other.redirects["/moved"] = (302, f"{site.base}/page")
    async with gate.turn(f"{site.base}/held") as held:
        with pytest.raises(TurnHeld) as caught:
            await client.get(f"{other.base}/moved")
    assert (caught.value.url, caught.value.held_by) == (f"{site.base}/page", held.url)


@pytest.mark.parametrize("tail", ["/ü?q=ä", "/page#fragment", "/a b"])
async def test_turn_is_used_whatever_the_client_makes_of_its_url(
    site: Site, gate: Gatekeeper, client: Client, tail: str
) -> None:
    async with gate.turn(f"{site.base}{tail}") as turn:
        assert await client.get(turn.url) == 200
    assert site.pages == [URL(f"{site.base}{tail}").raw_path_qs]


async def test_url_that_the_client_rewrites_is_judged_as_it_is_sent(site: Site, gate: Gatekeeper) -> None:
    site.robots = "User-agent: *\nDisallow: /a$\n"
    async with PoliteSession(gate) as web, gate.turn(f"{site.base}/a?") as turn:
        with pytest.raises(Disallowed):
            await web.get(turn.url)  # aiohttp sends /a
    assert site.pages == []


@pytest.mark.parametrize("query", ["#part", "?ä", "?a b", "?%7Ex"])
async def test_answer_is_recorded_in_a_turn_of_another_spelling_of_the_url(
    site: Site, gate: Gatekeeper, client: Client, query: str
) -> None:
    async with gate.turn(f"{site.base}/429{query}") as turn:
        assert await client.get(turn.url) == 429
        assert turn.may_close
    assert gate.statistics().decisions == 1


@pytest.mark.parametrize("path", ["/private", "/private/1#part", "/private/ä"])
async def test_exempt_turn_is_used_for_any_spelling_of_the_url(
    site: Site, gate: Gatekeeper, client: Client, path: str
) -> None:
    async with gate.turn(f"{site.base}{path}", exempt="by agreement") as turn:
        assert await client.get(turn.url) == 200


async def test_turn_of_another_agent_is_not_used(site: Site, gate: Gatekeeper, client: Client) -> None:
    other = gate.agent(tokens="OtherBot", user_agent="OtherBot/1.0 (+https://example.com/bot)")
    async with other.turn(f"{site.base}/page") as turn:
        with pytest.raises(ConfigurationError, match=r"as examplebot, .* for otherbot: .*gate\.agent"):
            await client.get(turn.url)
    assert site.pages == []


async def test_turn_of_another_gatekeeper_blocks_the_request_to_its_host(site: Site, client: Client) -> None:
    async with Gatekeeper(UA, pacing=EAGER) as another, another.turn(f"{site.base}/page") as turn:
        with pytest.raises(TurnHeld):
            await client.get(turn.url)
    assert site.pages == []


async def test_turn_of_a_gatekeeper_with_a_pace_of_its_own_is_not_used(site: Site, client: Client) -> None:
    async with Gatekeeper(UA, pacer=SharedPacer(EAGER)) as another, another.turn(f"{site.base}/page") as turn:
        assert await client.get(turn.url) == 200
        assert turns(another) == 1
        turn.observe(200)


async def test_turn_that_was_used_by_another_client_is_not_used(site: Site, gate: Gatekeeper, client: Client) -> None:
    async with gate.turn(f"{site.base}/page") as turn:
        turn.observe(200)
        with pytest.raises(TurnHeld):
            await client.get(turn.url)


async def test_cancelled_request_ends_the_turn_that_it_used(site: Site, gate: Gatekeeper, client: Client) -> None:
    async with gate.turn(f"{site.base}/silent") as turn:
        request = asyncio.create_task(client.get(turn.url))
        await until(lambda: site.pages == ["/silent"])
        request.cancel()
        await asyncio.wait([request])
        assert turns(gate) == 0
        assert await client.get(f"{site.base}/page") == 200


async def test_kept_connection_that_is_dead_costs_a_turn_for_each_attempt(
    site: Site, gate: Gatekeeper, client: Client
) -> None:
    await client.get(f"{site.base}/page")
    site.drops = 1
    async with gate.turn(f"{site.base}/drop") as turn:
        try:
            assert await client.get(turn.url) == 200  # aiohttp repeats it, in a turn of its own
        except (httpx.RemoteProtocolError, httpx2.RemoteProtocolError):  # these libraries do not
            assert isinstance(client, Httpx)
        assert turns(gate) == 0


# A second turn of the host


async def test_nested_turn_of_a_host_is_an_error_at_once(site: Site, gate: Gatekeeper) -> None:
    async with gate.turn(f"{site.base}/1"):
        with pytest.raises(
            TurnHeld, match=r"/2: this task, or one that started it, holds the turn of its host for .*/1\."
        ):
            async with gate.turn(f"{site.base}/2"):
                pytest.fail("a second turn")
        with pytest.raises(TurnHeld):
            await gate.take_turn(f"{site.base}/1")
        with pytest.raises(Disallowed):
            await gate.take_turn(f"{site.base}/private")
        assert not gate.try_turn(f"{site.base}/2")  # it never waits: an answer, and no error


async def test_request_of_another_page_within_a_turn_is_an_error_at_once(
    site: Site, other: Site, gate: Gatekeeper, client: Client
) -> None:
    async with gate.turn(f"{site.base}/1") as turn:
        with pytest.raises(TurnHeld) as caught:
            await client.get(f"{site.base}/2")
        assert caught.value.held_by == turn.url
        assert await client.get(f"{other.base}/page") == 200
    assert site.pages == []


async def test_second_response_of_a_host_in_one_task_is_an_error_at_once(
    site: Site, gate: Gatekeeper, client: Client
) -> None:
    release = await client.open(f"{site.base}/slow")
    with pytest.raises(TurnHeld) as caught:
        await client.get(f"{site.base}/page")
    assert caught.value.held_by == f"{site.base}/slow"
    with pytest.raises(TurnHeld):
        await client.get(f"{site.base}/slow")  # the turn of the open response is used up
    release()
    await until(lambda: turns(gate) == 0)
    assert await client.get(f"{site.base}/page") == 200


async def test_response_in_the_turn_of_the_task_holds_its_host_until_it_is_released(
    site: Site, gate: Gatekeeper, client: Client
) -> None:
    async with gate.turn(f"{site.base}/slow") as turn:
        release = await client.open(turn.url)
        with pytest.raises(TurnHeld):
            await client.get(f"{site.base}/page")
        release()
        await until(lambda: turns(gate) == 0)
        assert await client.get(f"{site.base}/page") == 200


async def test_child_tasks_do_not_wait_for_the_turn_that_their_parent_holds(
    site: Site, gate: Gatekeeper, client: Client
) -> None:
    async with gate.turn(f"{site.base}/1") as turn:
        paths = asyncio.gather(*(client.get(f"{site.base}/{n}") for n in (2, 3)), return_exceptions=True)
        for error in await asyncio.wait_for(paths, 5):
            assert isinstance(error, TurnHeld)
            assert error.held_by == turn.url
    assert site.pages == []
    assert await asyncio.create_task(client.get(f"{site.base}/2")) == 200


async def test_task_that_began_before_the_turn_waits_for_it(site: Site, gate: Gatekeeper, client: Client) -> None:
    begin = asyncio.Event()

    async def get() -> int:
        await begin.wait()
        return await client.get(f"{site.base}/2")

    waiting = asyncio.create_task(get())
    await asyncio.sleep(0)
    async with gate.turn(f"{site.base}/1"):
        begin.set()
        await until(lambda: gate.statistics().waiting == 1)
    assert await waiting == 200


async def test_page_of_a_crawl_that_requests_its_own_host_fails_at_once(site: Site, gate: Gatekeeper) -> None:
    queue = PoliteQueue[object](gate)
    await queue.put(f"{site.base}/slow")
    errors: list[BaseException] = []
    async with PoliteSession(gate) as web:

        async def handle(page: CrawlPage[object], response: aiohttp.ClientResponse) -> None:
            await asyncio.gather(*(web.get(f"{site.base}/{n}") for n in (2, 3)))

        report = await asyncio.wait_for(queue.crawl(web, handle, on_error=lambda _, error: errors.append(error)), 5)
    assert (report.pages, report.failed) == (0, 1)
    assert isinstance(errors[0], TurnHeld)


async def test_task_may_hold_as_many_turns_as_its_host_grants(site: Site) -> None:
    async with Gatekeeper(UA, pacing=PacingOptions(min_delay_s=0, max_concurrent=2)) as gate:
        async with gate.turn(f"{site.base}/1"), gate.turn(f"{site.base}/2"):
            with pytest.raises(TurnHeld):
                await gate.take_turn(f"{site.base}/3")
        gate.set_policy(site.host, HostPolicy(max_concurrent=1))
        async with gate.turn(f"{site.base}/1"):
            with pytest.raises(TurnHeld):
                await gate.take_turn(f"{site.base}/2")


async def test_turns_that_are_taken_for_other_tasks_are_not_held(site: Site, gate: Gatekeeper) -> None:
    async def request(turn: Turn) -> None:
        with turn:
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(request(await gate.take_turn(f"{site.base}/{n}"))) for n in range(3)]
    await asyncio.gather(*tasks)


async def test_turn_that_ends_in_another_task_is_held_no_longer(site: Site, gate: Gatekeeper) -> None:
    turn = (await gate.take_turn(f"{site.base}/1")).__enter__()

    async def end() -> None:
        turn.end()

    await apart(end())
    async with gate.turn(f"{site.base}/2"):
        pass


async def test_turn_that_is_entered_in_one_context_ends_in_another(site: Site, gate: Gatekeeper) -> None:
    async def held() -> AsyncGenerator[str, None]:
        async with gate.turn(f"{site.base}/1") as turn:
            yield turn.url

    fixture = held()
    assert await apart(anext(fixture)) == f"{site.base}/1"
    await apart(fixture.aclose())
    async with gate.turn(f"{site.base}/2"):
        pass
