"""A request that states another User-Agent than the gate's is judged for that one, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import httpx
import httpx2
import pytest

from politesse import ConfigurationError, Disallowed, Gatekeeper, PoliteQueue, PoliteSession
from politesse.integrations.aiohttp import RobotsMiddleware
from tests.support.httpx_libraries import Library
from tests.support.sites import UA

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.sites import Site

    Client = Callable[[Gatekeeper, str, Any, Any], Awaitable[int]]

pytestmark = pytest.mark.realtime

ROBOTS = "User-agent: EvilBot\nDisallow: /\n\nUser-agent: ExampleBot-Special\nDisallow: /special\n"
EVIL = "evilbot/1.0"


async def over_session(gate: Gatekeeper, url: str, own: Any, given: Any) -> int:
    async with PoliteSession(gate, headers=own) as session, session.get(url, headers=given) as response:
        return response.status


async def over_middleware(gate: Gatekeeper, url: str, own: Any, given: Any, *, pace: bool = False) -> int:
    robots = RobotsMiddleware(gate, pace=pace)
    async with (
        aiohttp.ClientSession(middlewares=[robots], headers=own) as session,
        session.get(url, headers=given) as response,
    ):
        return response.status


async def over_pacing_middleware(gate: Gatekeeper, url: str, own: Any, given: Any) -> int:
    return await over_middleware(gate, url, own, given, pace=True)


async def over_transport(gate: Gatekeeper, url: str, own: Any, given: Any, *, name: str = "httpx") -> int:
    library = Library(name)
    transport = library.polite.PoliteTransport(gate)
    async with library.http.AsyncClient(transport=transport, headers=own, follow_redirects=True) as client:
        response: httpx.Response = await client.get(url, headers=given)
        return response.status_code


async def over_transport_of_httpx2(gate: Gatekeeper, url: str, own: Any, given: Any) -> int:
    return await over_transport(gate, url, own, given, name="httpx2")


CLIENTS = [over_session, over_middleware, over_pacing_middleware, over_transport, over_transport_of_httpx2]


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    asked: Client = request.param
    return asked


@pytest.mark.parametrize("own", [EVIL, UA, None])
async def test_stated_agent_is_judged(site: Site, gate: Gatekeeper, client: Client, own: str | None) -> None:
    site.robots = ROBOTS
    of_session = None if own is None else {"User-Agent": own}
    of_request = None if own == EVIL else {"user-agent": EVIL}
    with pytest.raises(Disallowed) as caught:
        await client(gate, f"{site.base}/page", of_session, of_request)
    assert caught.value.verdict.agent == "evilbot"
    assert site.pages == []


@pytest.mark.parametrize(
    ("stated", "path", "status"),
    [
        (UA, "/special", 200),
        ("examplebot/2.0", "/special", 200),
        ("Mozilla/5.0 (compatible; ExampleBot/1.0)", "/special", 200),
        ("ExampleBot-Special/1.0", "/page", 200),
        ("ExampleBot-Special/1.0", "/special", None),
        ("AnyBot/1.0 (+https://any.example)", "/page", 200),
        ("AnyBot/1.0 (+https://any.example)", "/special", 200),
    ],
)
async def test_stated_agent_is_sent_as_it_is(
    site: Site, gate: Gatekeeper, client: Client, stated: str, path: str, status: int | None
) -> None:
    site.robots = ROBOTS
    if status is None:
        with pytest.raises(Disallowed):
            await client(gate, site.base + path, None, {"User-Agent": stated})
        return
    assert await client(gate, site.base + path, None, {"User-Agent": stated}) == status
    assert site.seen[-1].headers["User-Agent"] == stated


async def test_groups_of_the_gate_bind_a_name_that_contains_its_token(
    site: Site, gate: Gatekeeper, client: Client
) -> None:
    site.robots = "User-agent: ExampleBot\nDisallow: /\n"
    with pytest.raises(Disallowed):
        await client(gate, f"{site.base}/page", None, {"User-Agent": "ExampleBot-Special/1.0"})


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        (
            {"User-Agent": "Mozilla/5.0 (X11)"},
            r"^user_agent='Mozilla/5\.0 \(X11\)': (?!.*token=).*; leave this header out",
        ),
        ({"User-Agent": "curl/8.5"}, "library's default"),
        ({"User-Agent": "(none)"}, "its first word has to be the crawler's name"),
        ([("User-Agent", UA), ("User-Agent", EVIL)], "2 User-Agents are stated"),
    ],
)
async def test_user_agent_that_names_no_crawler_is_refused(
    site: Site, gate: Gatekeeper, client: Client, stated: Any, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        await client(gate, f"{site.base}/page", None, stated)
    assert site.pages == []


@pytest.mark.parametrize("client", [over_session, over_transport])
async def test_missing_or_empty_user_agent_becomes_that_of_the_gate(
    site: Site, gate: Gatekeeper, client: Client
) -> None:
    await client(gate, f"{site.base}/page", None, {"User-Agent": ""})
    assert site.seen[-1].headers["User-Agent"] == UA


async def test_target_of_a_redirect_is_judged_for_the_stated_agent(
    site: Site, other: Site, gate: Gatekeeper, client: Client
) -> None:
    other.robots = ROBOTS
    site.redirects["/moved"] = (302, f"{other.base}/page")
    with pytest.raises(Disallowed):
        await client(gate, f"{site.base}/moved", None, {"User-Agent": EVIL})
    assert other.pages == []


async def test_agent_that_a_middleware_states_is_judged(site: Site, gate: Gatekeeper) -> None:
    site.robots = ROBOTS

    async def rename(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        request.headers["User-Agent"] = EVIL
        return await handler(request)

    async with PoliteSession(gate, middlewares=[rename]) as session:
        with pytest.raises(Disallowed):
            await session.get(f"{site.base}/page")
    assert site.pages == []


@pytest.mark.parametrize(
    "make",
    [
        PoliteSession,
        lambda _, headers: aiohttp.ClientSession(headers=headers),
        lambda _, headers: httpx.AsyncClient(headers=headers),
        lambda _, headers: httpx2.AsyncClient(headers=headers),
    ],
)
async def test_crawl_by_a_client_that_states_another_agent_is_refused(site: Site, gate: Gatekeeper, make: Any) -> None:
    site.robots = ROBOTS
    async with make(gate, headers={"User-Agent": EVIL}) as web:
        queue = PoliteQueue[object](gate)
        await queue.put(f"{site.base}/page")

        async def handle(page: object, response: object) -> None:
            pass

        with pytest.raises(ConfigurationError, match=r"evilbot.*gate\.agent"):
            await queue.crawl(web, handle)
    assert site.pages == []
