"""RobotsMiddleware(gate, pace=True): a turn for each hop, within a request of aiohttp."""

import asyncio
import gc
import hashlib
import re
import warnings
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from politesse import ConfigurationError, Gatekeeper, TooFar
from politesse.integrations.aiohttp import RobotsMiddleware
from tests.support.sites import UA, Site, serving, slow_gate, turns, until
from tests.support.tasks import apart


class Challenging(Site):
    """Answers with a challenge whose body does not end, until it is answered as RFC 7616 3.4.1 says."""

    async def respond(self, request: web.Request) -> web.StreamResponse:
        if request.path != "/secret":
            return await super().respond(request)
        given = dict(re.findall(r'(\w+)="?([^",]+)"?', request.headers.get("Authorization", "")))
        if given and given["response"] == self.expected(request, given):
            return web.Response(text="welcome")
        response = web.StreamResponse(status=401)
        response.headers["WWW-Authenticate"] = 'Digest realm="site", nonce="once", qop="auth", algorithm=MD5'
        await response.prepare(request)
        await response.write(b"who is it?")
        await self.go_on.wait()
        return response

    @staticmethod
    def expected(request: web.Request, given: dict[str, str]) -> str:
        def md5(text: str) -> str:
            return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()

        who, what = md5("me:site:secret"), md5(f"{request.method}:{request.path}")
        return md5(f"{who}:once:{given['nc']}:{given['cnonce']}:auth:{what}")


def paced(gate: Gatekeeper, **options: Any) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate, pace=True),), **options)


@pytest.fixture
async def session(gate: Gatekeeper) -> AsyncIterator[aiohttp.ClientSession]:
    async with paced(gate) as session:
        yield session


async def visit(session: aiohttp.ClientSession, url: str, **options: Any) -> None:
    async with session.get(url, **options) as response:
        await response.read()


async def test_without_pace_nothing_waits(site: Site, gate: Gatekeeper) -> None:
    async with (
        aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate),)) as session,
        session.get(f"{site.base}/slow"),
    ):
        assert turns(gate) == 0
        await session.get(f"{site.base}/page")
    assert site.pages == ["/slow", "/page"]


def test_repr_shows_whether_it_paces(gate: Gatekeeper) -> None:
    assert "pace=True" in repr(RobotsMiddleware(gate, pace=True))
    assert "pace" not in repr(RobotsMiddleware(gate))


def test_longest_wait_goes_with_a_pace_only(gate: Gatekeeper) -> None:
    with pytest.raises(ConfigurationError, match="pace=True"):
        RobotsMiddleware(gate, max_wait_s=1.0)
    with pytest.raises(ConfigurationError, match="Gatekeeper"):
        RobotsMiddleware(UA, pace=True)  # type: ignore[arg-type]


async def test_longest_wait_is_kept(site: Site, gate: Gatekeeper, session: aiohttp.ClientSession) -> None:
    hasty = RobotsMiddleware(gate, pace=True, max_wait_s=0.01)
    async with session.get(f"{site.base}/slow"), asyncio.timeout(5):
        with pytest.raises(TooFar):
            await apart(session.get(f"{site.base}/page", middlewares=(hasty,)))
        assert turns(gate) == 1
    await session.get(f"{site.base}/page", middlewares=(hasty,))
    assert site.pages == ["/slow", "/page"]


@pytest.mark.realtime
async def test_waiting_for_a_turn_counts_against_the_timeout(site: Site) -> None:
    async with slow_gate(3.0) as gate, paced(gate, timeout=aiohttp.ClientTimeout(total=1.0)) as session:
        with pytest.raises(TimeoutError):
            await session.get(f"{site.base}/page")
        assert site.paths == ["/robots.txt"]
        assert (turns(gate), gate.statistics().waiting) == (0, 0)
        async with session.get(f"{site.base}/page", timeout=aiohttp.ClientTimeout(total=30)) as response:
            assert response.status == 200


# More than one hop


async def test_answer_to_a_challenge_does_not_wait_for_the_challenge(gate: Gatekeeper) -> None:
    digest = aiohttp.DigestAuthMiddleware("me", "secret")
    async for site in serving(Challenging()):
        async with (
            aiohttp.ClientSession(middlewares=(digest, RobotsMiddleware(gate, pace=True))) as session,
            asyncio.timeout(5),
            session.get(f"{site.base}/secret") as response,
        ):
            assert (response.status, await response.text()) == (200, "welcome")
        assert site.pages == ["/secret", "/secret"]
        assert turns(gate) == 0


# Responses that nobody reads


@pytest.mark.realtime
async def test_unread_response_lets_go_of_its_host_after_the_timeout_of_the_session(
    site: Site, gate: Gatekeeper
) -> None:
    async with paced(gate, timeout=aiohttp.ClientTimeout(total=0.05)) as session:
        response = await session.get(f"{site.base}/slow", timeout=aiohttp.ClientTimeout())
        assert turns(gate) == 1
        await until(lambda: turns(gate) == 0)
        await visit(session, f"{site.base}/page", timeout=aiohttp.ClientTimeout())
        site.go_on.set()
        assert await response.text() == "first last"  # its turn has ended, not it


@pytest.mark.realtime
async def test_session_without_a_timeout_holds_the_host_as_long_as_it_takes(
    site: Site, other: Site, gate: Gatekeeper
) -> None:
    async with (
        paced(gate, timeout=aiohttp.ClientTimeout(total=None)) as one,
        paced(gate, timeout=aiohttp.ClientTimeout(total=0)) as another,
    ):
        async with one.get(f"{site.base}/slow"), another.get(f"{other.base}/slow"):
            await asyncio.sleep(1.3)  # longer than anything waits for one that is late
            assert turns(gate) == 2
        assert turns(gate) == 0


async def test_closing_an_open_response_ends_its_turn_after_its_session_was_closed(
    site: Site, gate: Gatekeeper
) -> None:
    async with paced(gate) as session:
        response = await session.get(f"{site.base}/slow")
    response.close()
    assert turns(gate) == 0


async def test_dropping_an_open_response_ends_its_turn_after_its_session_was_closed(
    site: Site, gate: Gatekeeper
) -> None:
    async with paced(gate) as session:
        await session.get(f"{site.base}/slow")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # which is how aiohttp tells of it
        async with asyncio.timeout(5):
            while turns(gate):
                gc.collect()
                await asyncio.sleep(0.01)
    async with paced(gate) as session:
        await visit(session, f"{site.base}/page")
    assert site.pages == ["/slow", "/page"]
