"""Requests within a turn of the same task use that turn or are refused; hosts of dropped turns are given back."""

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
from yarl import URL

from politesse import Disallowed, Gatekeeper, HostPolicy, NotYet, PacingOptions, Turn
from politesse.errors import ConfigurationError, TurnHeld
from politesse.events import TurnDropped
from politesse.integrations.aiohttp import PoliteSession
from politesse.options import SharedPacer
from politesse.queue import CrawlPage, PoliteQueue
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.events import events_of
from tests.support.programs import run_code
from tests.support.sites import EAGER, UA, Site, turns, until
from tests.support.tasks import apart
from tests.wire.clients.clients import CLIENTS, Client, Httpx, Session

pytestmark = pytest.mark.timeout(30)

Dropped = list[TurnDropped]


@pytest.fixture(params=CLIENTS)
async def client(request: pytest.FixtureRequest, gate: Gatekeeper) -> AsyncIterator[Client]:
    made = CLIENTS[request.param](gate)
    yield made
    await made.aclose()


# The turn that the task holds


async def test_request_within_a_turn_uses_that_turn(site: Site, gate: Gatekeeper, client: Client) -> None:
    queue: PoliteQueue[str] = PoliteQueue(gate)
    for path in ("/1", "/2"):
        await queue.put(f"{site.base}{path}")
    for _ in range(2):
        async with queue.turn() as turn:
            assert await client.get(turn.url) == 200
            assert turns(gate) == 0  # it has ended with its response
    async with gate.turn(f"{site.base}/3") as turn:
        assert await client.get(turn.url) == 200
    while not (tried := gate.try_turn(f"{site.base}/4")):
        await asyncio.sleep(0.001)
    with tried as turn:
        assert await client.get(turn.url) == 200
    assert site.pages == ["/1", "/2", "/3", "/4"]


async def test_child_task_uses_the_turn_of_its_parent_alone(site: Site, gate: Gatekeeper, client: Client) -> None:
    async with gate.turn(f"{site.base}/1") as turn:
        assert await asyncio.wait_for(client.get(turn.url), 5) == 200
    async with gate.turn(f"{site.base}/2") as turn:
        first, second = await asyncio.gather(*(client.get(turn.url) for _ in range(2)), return_exceptions=True)
    assert first == 200
    assert isinstance(second, TurnHeld)
    assert site.pages == ["/1", "/2"]


@pytest.mark.parametrize("is_open", [False, True])
async def test_answer_is_recorded_once(site: Site, gate: Gatekeeper, client: Client, *, is_open: bool) -> None:
    async with gate.turn(f"{site.base}/{'slow' if is_open else '503'}") as turn:
        release = await client.open(turn.url)
        if not is_open:
            release()
            await until(lambda: turns(gate) == 0)
        turn.observe(503, {"Retry-After": "86400"})  # out of place: the integration has recorded the answer
        release()
        await until(lambda: turns(gate) == 0)
    if is_open:
        (await gate.take_turn(f"{site.base}/page", max_wait_s=10)).give_back()
    else:
        refused = gate.try_turn(f"{site.base}/page")
        assert isinstance(refused, NotYet)
        assert refused.not_before - gate.state.clock.wall() == pytest.approx(3_600, abs=60)


async def test_each_hop_takes_a_turn_of_its_own(site: Site, other: Site, gate: Gatekeeper, client: Client) -> None:
    site.redirects["/moved"] = (302, f"{other.base}/page")
    other.redirects["/back"] = (302, f"{site.base}/page")
    async with gate.turn(f"{site.base}/moved") as turn:
        assert await client.get(turn.url) == 200
    async with gate.turn(f"{other.base}/back") as turn:
        assert await client.get(turn.url) == 200
    assert (site.pages, other.pages) == (["/moved", "/page"], ["/page", "/back"])
    async with gate.turn(f"{site.base}/held") as held:
        with pytest.raises(TurnHeld) as caught:
            await client.get(f"{other.base}/back")
    assert (caught.value.url, caught.value.held_by) == (f"{site.base}/page", held.url)


async def test_turn_is_used_whatever_the_client_makes_of_its_url(site: Site, gate: Gatekeeper, client: Client) -> None:
    tails = ["/ü?q=ä", "/page#fragment", "/a b"]
    for tail in tails:
        async with gate.turn(f"{site.base}{tail}") as turn:
            assert await client.get(turn.url) == 200
    assert site.pages == [URL(f"{site.base}{tail}").raw_path_qs for tail in tails]
    for path in ("/private", "/private/1#part", "/private/ä"):
        async with gate.turn(f"{site.base}{path}", exempt="by agreement") as turn:
            assert await client.get(turn.url) == 200
    decisions = gate.statistics().decisions
    async with gate.turn(f"{site.base}/429?ä b%7E#part") as turn:
        assert await client.get(turn.url) == 429
        assert turn.may_close
    assert gate.statistics().decisions == decisions + 1


async def test_url_that_the_client_rewrites_is_judged_as_it_is_sent(site: Site, gate: Gatekeeper) -> None:
    site.robots = "User-agent: *\nDisallow: /a$\n"
    async with PoliteSession(gate) as web, gate.turn(f"{site.base}/a?") as turn:
        with pytest.raises(Disallowed):
            await web.get(turn.url)  # aiohttp sends /a
    assert site.pages == []


async def test_turn_of_another_or_that_was_used_is_not_used(site: Site, gate: Gatekeeper, client: Client) -> None:
    other = gate.agent(tokens="OtherBot", user_agent="OtherBot/1.0 (+https://example.com/bot)")
    async with other.turn(f"{site.base}/page") as turn:
        with pytest.raises(ConfigurationError, match=r"as examplebot, .* for otherbot: .*gate\.agent"):
            await client.get(turn.url)
    async with Gatekeeper(UA, pacing=EAGER) as another, another.turn(f"{site.base}/page") as turn:
        with pytest.raises(TurnHeld):
            await client.get(turn.url)
    async with gate.turn(f"{site.base}/page") as turn:
        turn.observe(200)  # of another client
        with pytest.raises(TurnHeld):
            await client.get(turn.url)
    assert site.pages == []
    async with Gatekeeper(UA, pacer=SharedPacer(EAGER)) as another, another.turn(f"{site.base}/page") as turn:
        assert await client.get(turn.url) == 200  # a pace of its own
        assert turns(another) == 1
        turn.observe(200)


async def test_cancelled_request_ends_the_turn_that_it_used(site: Site, gate: Gatekeeper, client: Client) -> None:
    async with gate.turn(f"{site.base}/silent") as turn:
        request = asyncio.create_task(client.get(turn.url))
        await until(lambda: site.pages == ["/silent"])
        request.cancel()
        await asyncio.wait([request])
        assert turns(gate) == 0
        assert await client.get(f"{site.base}/page") == 200


async def test_dead_connection_costs_a_turn_for_each_attempt(site: Site, gate: Gatekeeper, client: Client) -> None:
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


async def test_other_page_within_a_turn_is_an_error(site: Site, other: Site, gate: Gatekeeper, client: Client) -> None:
    async with gate.turn(f"{site.base}/1") as turn:
        children = asyncio.gather(*(client.get(f"{site.base}/{n}") for n in (2, 3)), return_exceptions=True)
        for error in await asyncio.wait_for(children, 5):
            assert isinstance(error, TurnHeld)
            assert error.held_by == turn.url
        with pytest.raises(TurnHeld) as caught:
            await client.get(f"{site.base}/2")
        assert caught.value.held_by == turn.url
        assert await client.get(f"{other.base}/page") == 200
    assert site.pages == []
    assert await asyncio.create_task(client.get(f"{site.base}/2")) == 200


@pytest.mark.parametrize("has_turn", [False, True])
async def test_second_response_is_an_error(site: Site, gate: Gatekeeper, client: Client, *, has_turn: bool) -> None:
    async def request() -> None:
        release = await client.open(f"{site.base}/slow")
        for path in ("/page", "/slow"):  # the turn of the open response is used up
            with pytest.raises(TurnHeld) as caught:
                await client.get(f"{site.base}{path}")
            assert caught.value.held_by == f"{site.base}/slow"
        release()
        await until(lambda: turns(gate) == 0)
        assert await client.get(f"{site.base}/page") == 200

    if has_turn:
        async with gate.turn(f"{site.base}/slow"):
            await request()
    else:
        await request()


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


async def test_turns_that_are_for_or_end_in_other_tasks_are_not_held(site: Site, gate: Gatekeeper) -> None:
    async def request(turn: Turn) -> None:
        with turn:
            await asyncio.sleep(0)

    async def end(turn: Turn) -> None:
        turn.end()

    async def held() -> AsyncGenerator[str, None]:
        async with gate.turn(f"{site.base}/1") as turn:
            yield turn.url

    tasks = [asyncio.create_task(request(await gate.take_turn(f"{site.base}/{n}"))) for n in range(3)]
    await asyncio.gather(*tasks)
    await apart(end((await gate.take_turn(f"{site.base}/1")).__enter__()))
    async with gate.turn(f"{site.base}/2"):
        pass
    fixture = held()
    assert await apart(anext(fixture)) == f"{site.base}/1"
    await apart(fixture.aclose())  # entered in one context, ended in another
    async with gate.turn(f"{site.base}/2"):
        pass


# Turns and responses that are dropped before their end


@pytest.fixture
def dropped(gate: Gatekeeper) -> Dropped:
    """The events of turns that were dropped."""
    return events_of(gate, TurnDropped)


async def test_turn_that_is_dropped_within_its_request_counts_as_a_request_and_gives_its_host_back() -> None:
    url, clock = "https://a.example/page", ManualClock()
    fetcher, pacing = ScriptedFetcher({"https://a.example": 404}), PacingOptions(min_delay_s=5.0)
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=pacing) as gate:
        dropped = events_of(gate, TurnDropped)
        await gate.check(url)
        clock.advance(10.0)
        with pytest.warns(ResourceWarning, match=r"<Turn .*/page: under way> was dropped"):
            (await gate.take_turn(url)).__enter__()
        assert turns(gate) == 0
        answer = gate.try_turn(url)
        assert isinstance(answer, NotYet)
        assert answer.not_before == clock.wall() + 5.0
        await until(lambda: dropped == [TurnDropped("a.example", url)])


async def turn_of(polite: PoliteSession, gate: Gatekeeper, url: str) -> object:
    return (await gate.take_turn(url)).__enter__()


async def response_of(polite: PoliteSession, gate: Gatekeeper, url: str) -> object:
    return await polite.get(url)


@pytest.mark.parametrize("request_page", [turn_of, response_of])
async def test_turn_or_response_that_another_thread_collects_gives_its_host_back(
    site: Site,
    gate: Gatekeeper,
    polite: PoliteSession,
    dropped: Dropped,
    request_page: Callable[[PoliteSession, Gatekeeper, str], Awaitable[object]],
) -> None:
    cycle: list[object] = [await request_page(polite, gate, f"{site.base}/slow")]
    cycle.append(cycle)
    gc.disable()
    try:
        del cycle
        with pytest.warns(ResourceWarning, match="/slow.* was dropped"):
            await asyncio.get_running_loop().run_in_executor(None, gc.collect)
    finally:
        gc.enable()
    await until(lambda: turns(gate) == 0)
    assert len(dropped) == 1


async def test_unread_response_frees_its_host(site: Site, gate: Gatekeeper, session: Session, dropped: Dropped) -> None:
    with pytest.warns(ResourceWarning, match=r"a response of http://.*/slow was dropped"):
        await session.get(f"{site.base}/slow")
    assert turns(gate) == 0
    async with session.get(f"{site.base}/page") as response:
        assert await response.text() == "page /page"
    assert dropped == [TurnDropped(site.host, f"{site.base}/slow")]
    async with gate.turn(f"{site.base}/slow") as turn:
        with pytest.warns(ResourceWarning, match="/slow was dropped"):
            await session.get(turn.url)
        assert turns(gate) == 0
    await until(lambda: len(dropped) == 2)


async def test_content_outlives_its_response(site: Site, gate: Gatekeeper, session: Session, dropped: Dropped) -> None:
    content = (await session.get(f"{site.base}/slow")).content
    gc.collect()
    assert turns(gate) == 1
    site.go_on.set()
    assert await content.read() == b"first last"
    await until(lambda: turns(gate) == 0)
    site.go_on.clear()
    await (await session.get(f"{site.base}/slow")).content.readany()
    gc.collect()
    assert turns(gate) == 1  # the server is still at it
    site.go_on.set()
    await until(lambda: turns(gate) == 0)
    assert dropped == []


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("limit", "problem"), [("total", "neither read to its end nor released"), ("sock_read", "dropped")]
)
async def test_response_that_is_dropped_partly_read_is_closed_after_a_timeout(
    site: Site, gate: Gatekeeper, polite: PoliteSession, dropped: Dropped, limit: str, problem: str
) -> None:
    options: dict[str, Any] = {limit: 1.0}
    response = await polite.get(f"{site.base}/slow", timeout=aiohttp.ClientTimeout(**options))
    await response.content.readany()
    del response
    assert turns(gate) == 1
    await asyncio.sleep(0.9)
    with pytest.warns(ResourceWarning, match=f"/slow was {problem}"):
        await until(lambda: gc.collect() >= 0 and not turns(gate))
    await until(lambda: len(dropped) == 1)  # the event may come a step after the end
    await polite.get(f"{site.base}/page")


def test_turn_that_is_dropped_as_the_interpreter_exits_is_reported() -> None:
    program = """
import asyncio
from politesse import Gatekeeper, NotYet, PacingOptions
from politesse.testing import ScriptedFetcher
async def take():
    gate = Gatekeeper("ExampleBot/1.0", fetcher=ScriptedFetcher())
    kept.append((await gate.take_turn("https://example.com/\\u202e")).__enter__())
kept = []
asyncio.run(take())
"""
    told = run_code(program, warnings="always").stderr
    assert r"<Turn https://example.com/\u202e: under way> was dropped" in told
    assert "Exception ignored" not in told
