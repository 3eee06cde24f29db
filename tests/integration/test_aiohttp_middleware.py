from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from politesse import Disallowed, Gatekeeper, Reason
from politesse.integrations.aiohttp import ClientDisallowed, RobotsMiddleware
from tests.integration.sites import ROBOTS, UA, Server


@dataclass
class Site(Server):
    """A server whose robots.txt has the status that a test says."""

    robots: str = ROBOTS
    status: int = 200
    redirects: dict[str, str] = field(default_factory=dict)

    async def respond(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/robots.txt":
            return web.Response(status=self.status, text=self.robots)
        if request.path in self.redirects:
            return web.Response(status=302, headers={"Location": self.redirects[request.path]})
        response = web.Response(text=f"page {request.path}")
        response.set_cookie("seen", "yes")
        return response


@pytest.fixture
def site_class() -> type[Site]:
    return Site


@pytest.fixture
async def session(gate: Gatekeeper) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate),)) as session:
        yield session


async def test_robots_txt_is_fetched_before_the_page(site: Site, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{site.base}/page") as response:
        assert await response.text() == "page /page"
    assert site.paths == ["/robots.txt", "/page"]


async def test_disallowed_page_is_not_requested(site: Site, session: aiohttp.ClientSession) -> None:
    with pytest.raises(ClientDisallowed) as caught:
        await session.get(f"{site.base}/private/x")
    assert isinstance(caught.value, Disallowed)
    assert isinstance(caught.value, aiohttp.ClientError)
    assert caught.value.verdict.reason is Reason.DISALLOW_RULE
    assert "line 2" in str(caught.value)
    assert site.paths == ["/robots.txt"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"])
async def test_every_method_is_judged(site: Site, session: aiohttp.ClientSession, method: str) -> None:
    with pytest.raises(ClientDisallowed):
        await session.request(method, f"{site.base}/private/x")
    async with session.request(method, f"{site.base}/open") as response:
        assert response.status == 200
    assert site.paths == ["/robots.txt", "/open"]


async def test_redirect_to_another_origin_is_judged_by_its_own_rules(
    site: Site, other: Site, session: aiohttp.ClientSession
) -> None:
    other.robots = "User-agent: *\nDisallow: /shop"
    site.redirects |= {"/a": f"{other.base}/shop", "/b": f"{other.base}/private"}
    with pytest.raises(ClientDisallowed):
        await session.get(f"{site.base}/a")
    async with session.get(f"{site.base}/b") as response:
        assert response.status == 200
    assert site.paths == ["/robots.txt", "/a", "/b"]
    assert other.paths == ["/robots.txt", "/private"]


async def test_unreachable_robots_txt_closes_the_site(site: Site, session: aiohttp.ClientSession) -> None:
    site.status = 503
    with pytest.raises(ClientDisallowed) as caught:
        await session.get(f"{site.base}/page")
    assert caught.value.verdict.reason is Reason.UNREACHABLE
    assert site.paths == ["/robots.txt"]


async def test_robots_txt_is_fetched_without_the_settings_of_the_session(site: Site) -> None:
    async with aiohttp.ClientSession(
        headers={"X-Secret": "1", "Authorization": "Bearer 1"}, cookies={"login": "1"}
    ) as plain:
        async with Gatekeeper(UA, session=plain) as gate:
            middlewares = (RobotsMiddleware(gate),)
            async with plain.get(f"{site.base}/page", middlewares=middlewares) as response:
                assert response.status == 200
        assert not plain.closed
        async with plain.get(f"{site.base}/again") as response:
            assert response.status == 200
    robots = site.seen[0]
    assert robots.path == "/robots.txt"
    assert not {"X-Secret", "Authorization", "Cookie"} & set(robots.headers)
    assert site.seen[1].headers["X-Secret"] == "1"


async def test_report_mode_lets_everything_through(site: Site) -> None:
    async with (
        Gatekeeper(UA, mode="report") as gate,
        aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate),)) as session,
        session.get(f"{site.base}/private/x") as response,
    ):
        assert response.status == 200
        assert gate.statistics().denied == {Reason.DISALLOW_RULE: 1}


async def test_view_of_another_agent_judges_by_its_own_groups(site: Site, gate: Gatekeeper) -> None:
    site.robots = "User-agent: ExampleBot-Image\nDisallow: /images\n"
    images = gate.agent(tokens="ExampleBot-Image", user_agent="ExampleBot-Image/1.0")
    async with aiohttp.ClientSession(middlewares=(RobotsMiddleware(images),)) as session:
        with pytest.raises(ClientDisallowed):
            await session.get(f"{site.base}/images/1")
        await session.get(f"{site.base}/page")
    assert site.seen[-1].headers["User-Agent"] == "ExampleBot-Image/1.0"


async def test_escaped_and_dotted_spellings_are_judged_as_they_are_sent(
    site: Site, session: aiohttp.ClientSession
) -> None:
    for spelling in ("/%70rivate", "/open/../private", "/open/%2e%2e/private", "/./private#top", "/pri%76ate?x"):
        with pytest.raises(ClientDisallowed):
            await session.get(f"{site.base}{spelling}")
    assert site.paths == ["/robots.txt"]
