"""What holds for every client: each hop is permitted, has its turn, and keeps the pace of its host."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable

import pytest

from politesse import AgentView, Bound, Disallowed, Gatekeeper, NotYet, PacingOptions, Reason
from politesse.testing import assert_polite
from tests.support.sites import ROBOTS, UA, Site, turns, until
from tests.support.tasks import apart
from tests.wire.clients.clients import CLIENTS, SESSIONS, Aiohttp, Client

pytestmark = pytest.mark.timeout(20)

ASKING: dict[str, Callable[[AgentView], Client]] = CLIENTS | {
    "RobotsMiddleware without a pace": lambda gate: Aiohttp(SESSIONS["permission"](gate))
}
however_it_asks = pytest.mark.parametrize("kind", ASKING)


@pytest.fixture(params=CLIENTS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def client(kind: str, gate: Gatekeeper) -> AsyncIterator[Client]:
    made = ASKING[kind](gate)
    yield made
    await made.aclose()


@however_it_asks
async def test_redirect_to_a_disallowed_page_is_not_followed(
    site: Site, other: Site, client: Client, gate: Gatekeeper
) -> None:
    other.robots = "User-agent: *\nDisallow: /shop\n"
    site.redirects = {"/a": (302, "/private/a"), "/b": (302, f"{other.base}/shop")}
    for path in ("/private/page", *site.redirects):
        with pytest.raises(Disallowed) as caught:
            await client.get(f"{site.base}{path}")
        assert caught.value.verdict.rule is not None
    assert (site.paths, other.paths) == (["/robots.txt", "/a", "/b"], ["/robots.txt"])
    assert turns(gate) == 0
    site.redirects["/c"] = (302, f"{other.base}/private")  # by the rules of its own origin
    assert await client.get(f"{site.base}/c") == 200


@however_it_asks
async def test_report_mode_lets_everything_through(site: Site, kind: str) -> None:
    async with Gatekeeper(UA, mode="report") as gate:
        client = ASKING[kind](gate)
        assert await client.get(f"{site.base}/private/x") == 200
        assert gate.statistics().denied == {Reason.DISALLOW_RULE: 1}
        await client.aclose()


@however_it_asks
async def test_view_of_another_agent_is_judged_and_named_as_such(site: Site, kind: str, gate: Gatekeeper) -> None:
    site.robots = "User-agent: ExampleBot-Image\nDisallow: /images\n"
    client = ASKING[kind](gate.agent(tokens="ExampleBot-Image", user_agent="ExampleBot-Image/1.0"))
    with pytest.raises(Disallowed):
        await client.get(f"{site.base}/images/1")
    await client.get(f"{site.base}/page")
    assert [seen.headers["User-Agent"] for seen in site.seen] == [UA, "ExampleBot-Image/1.0"]
    await client.aclose()


async def test_answer_that_closes_the_host_ends_its_turn(site: Site, client: Client, gate: Gatekeeper) -> None:
    assert await client.get(f"{site.base}/429") == 429
    refused = gate.try_turn(f"{site.base}/page")
    assert isinstance(refused, NotYet)
    assert refused.bound_by is Bound.RETRY_AFTER
    assert turns(gate) == 0


@pytest.mark.clause("RFC 9110 5.3")
async def test_all_lines_of_a_header_set_the_pace(site: Site, client: Client, gate: Gatekeeper) -> None:
    for line in ('"burst";r=0;t=100', '"daily";r=1000;t=3600'):
        site.fields.add("RateLimit", line)
    assert await client.get(f"{site.base}/page") == 200
    refused = gate.try_turn(f"{site.base}/page")
    assert isinstance(refused, NotYet)
    assert refused.bound_by is Bound.RATE_LIMIT
    assert refused.not_before - time.time() > 90


async def test_crossed_redirects_do_not_wait_for_each_other(
    site: Site, other: Site, client: Client, gate: Gatekeeper
) -> None:
    site.redirects["/cross"] = (302, f"{other.base}/page")
    other.redirects["/cross"] = (302, f"{site.base}/page")
    async with asyncio.timeout(10):
        await asyncio.gather(*(client.get(f"{base}/cross") for base in (site.base, other.base) * 4))
    assert site.pages.count("/page") == other.pages.count("/page") == 4
    assert turns(gate) == 0


@pytest.mark.realtime
async def test_requests_of_one_host_keep_their_distance(site: Site, kind: str) -> None:
    delay_s, site.work_s = 0.05, 0.01
    site.redirects["/moved"] = (302, "/after")
    pacing = PacingOptions(min_delay_s=delay_s, adaptive_factor=0.0)
    async with Gatekeeper(UA, pacing=pacing) as gate:
        client = CLIENTS[kind](gate)
        await asyncio.gather(*(client.get(f"{site.base}{path}") for path in ("/1", "/moved", "/2", "/3")))
        await client.aclose()
    assert len(site.pages) == 5
    assert_polite(site.trace(), {site.base: ROBOTS}, agent="ExampleBot", min_delay_s=delay_s, slack_s=0.003)


async def test_requests_that_are_cancelled_at_any_moment_give_their_turns_back(
    site: Site, client: Client, gate: Gatekeeper
) -> None:
    chance = random.Random(9309)
    site.work_s = 0.005
    for _ in range(5):
        tasks = [apart(client.get(f"{site.base}/{n}")) for n in range(6)]
        await asyncio.sleep(chance.uniform(0.0, 0.02))
        for task in chance.sample(tasks, 4):
            task.cancel()
        await asyncio.wait(tasks)
    await until(lambda: (turns(gate), gate.statistics().waiting) == (0, 0))
    assert await client.get(f"{site.base}/page") == 200
