"""Requests that are made without asking robots.txt, for a reason."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from politesse import Bound, ConfigurationError, Gatekeeper, HostPolicy, Reason, TooFar
from politesse.events import Decided
from politesse.integrations.aiohttp import ClientDisallowed, PoliteSession
from tests.integration.sites import Site, serving, slow_gate, turns, until
from tests.support.tasks import in_child_task

if TYPE_CHECKING:
    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

    from politesse.events import Event

WHY = "our own server"


async def test_forbidden_page_is_requested_and_robots_txt_is_not(site: Site, polite: PoliteSession) -> None:
    async with polite.get(f"{site.base}/private", exempt=WHY) as response:
        assert await response.text() == "page /private"
    async with polite.request("POST", f"{site.base}/private/2", data=b"body", exempt=WHY) as response:
        assert response.status == 200
    assert site.paths == ["/private", "/private/2"]


async def test_exemption_is_for_its_own_request_alone(site: Site, polite: PoliteSession) -> None:
    await polite.get(f"{site.base}/private", exempt=WHY)
    for pending in (polite.get(f"{site.base}/private"), polite.get(f"{site.base}/private", exempt=None)):
        with pytest.raises(ClientDisallowed):
            await pending
    assert site.paths == ["/private", "/robots.txt"]


async def test_verdict_says_why_and_is_counted(site: Site, gate: Gatekeeper, polite: PoliteSession) -> None:
    events: list[Event] = []
    gate.subscribe(events.append)
    await polite.get(f"{site.base}/private", exempt=WHY)
    [verdict] = [event.verdict for event in events if isinstance(event, Decided)]
    assert (verdict.url, verdict.allowed) == (f"{site.base}/private", True)
    assert (verdict.reason, verdict.note) == (Reason.POLICY_EXEMPT, WHY)
    statistics = gate.statistics()
    assert (statistics.allowed, statistics.denied, statistics.fetches) == (1, {}, 0)


@pytest.mark.parametrize("empty", ["", "  ", "\t\n"])
async def test_exemption_needs_a_reason(site: Site, gate: Gatekeeper, polite: PoliteSession, empty: str) -> None:
    for ask in (polite.get, polite.ws_connect):
        with pytest.raises(ConfigurationError, match="reason"):
            await ask(f"{site.base}/page", exempt=empty)
    assert site.paths == []
    assert (turns(gate), gate.statistics().decisions) == (0, 0)


async def test_policy_that_denies_holds(site: Site, gate: Gatekeeper, polite: PoliteSession) -> None:
    gate.set_policy(site.host, HostPolicy(deny=True, reason="they asked us to"))
    with pytest.raises(ClientDisallowed) as caught:
        await polite.get(f"{site.base}/page", exempt=WHY)
    assert caught.value.verdict.reason is Reason.POLICY_DENY
    assert caught.value.verdict.note == "they asked us to"
    assert site.paths == []


async def test_exempt_request_waits_for_its_turn(site: Site, gate: Gatekeeper, polite: PoliteSession) -> None:
    async with polite.get(f"{site.base}/slow", exempt=WHY):
        with pytest.raises(TooFar):
            await in_child_task(polite.get(f"{site.base}/private", exempt=WHY, max_wait_s=0.01))
        waiting = asyncio.create_task(polite.get(f"{site.base}/private", exempt=WHY))
        await until(lambda: gate.statistics().waiting == 1)
        assert site.paths == ["/slow"]
    await waiting
    assert site.paths == ["/slow", "/private"]


async def test_retry_after_closes_the_host(site: Site, polite: PoliteSession) -> None:
    await polite.get(f"{site.base}/429", exempt=WHY)
    with pytest.raises(TooFar) as caught:
        await polite.get(f"{site.base}/private", exempt=WHY, max_wait_s=60)
    assert caught.value.not_yet.bound_by is Bound.RETRY_AFTER
    assert site.paths == ["/429"]


@pytest.mark.realtime
async def test_exempt_requests_keep_their_distance(site: Site) -> None:
    site.redirects["/private/moved"] = (302, "/private/3")
    async with slow_gate(0.06) as gate, PoliteSession(gate) as polite:
        paths = ("/private/1", "/private/2", "/private/moved")
        await asyncio.gather(*(polite.get(f"{site.base}{path}", exempt=WHY) for path in paths))
    assert sorted(site.paths) == ["/private/1", "/private/2", "/private/3", "/private/moved"]
    for first, second in pairwise(site.seen):
        assert second.started - first.ended >= 0.06 - 0.003


async def test_redirect_within_the_host_is_exempt_too(site: Site, polite: PoliteSession) -> None:
    async for second in serving(Site()):  # another port is the same host
        site.redirects["/private/a"] = (302, f"{second.base}/private/b")
        second.redirects["/private/b"] = (302, f"{site.base}/private/c")
        async with polite.get(f"{site.base}/private/a", exempt=WHY) as response:
            assert response.status == 200
        assert site.paths == ["/private/a", "/private/c"]
        assert second.paths == ["/private/b"]


async def test_redirect_to_another_host_is_judged(
    site: Site, other: Site, gate: Gatekeeper, polite: PoliteSession
) -> None:
    site.redirects |= {"/private/a": (302, f"{other.base}/private/b"), "/private/c": (302, f"{other.base}/page")}
    with pytest.raises(ClientDisallowed) as caught:
        await polite.get(f"{site.base}/private/a", exempt=WHY)
    assert caught.value.verdict.reason is Reason.DISALLOW_RULE
    async with polite.get(f"{site.base}/private/c", exempt=WHY) as response:
        assert response.status == 200
    assert site.paths == ["/private/a", "/private/c"]
    assert other.paths == ["/robots.txt", "/page"]
    assert turns(gate) == 0


async def test_request_that_a_middleware_sends_to_another_host_is_judged(
    site: Site, other: Site, polite: PoliteSession
) -> None:
    async def stray(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        request.url = request.url.with_host(other.host).with_port(int(other.base.rpartition(":")[2]))
        request.headers["Host"] = request.url.raw_authority
        return await handler(request)

    with pytest.raises(ClientDisallowed):
        await polite.get(f"{site.base}/private", exempt=WHY, middlewares=(stray,))
    assert (site.paths, other.paths) == ([], ["/robots.txt"])


async def test_request_that_a_middleware_sends_to_another_page_of_the_host_is_exempt(
    site: Site, polite: PoliteSession
) -> None:
    async def stray(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        request.url = request.url.with_path("/private/2")
        return await handler(request)

    await polite.get(f"{site.base}/private/1", exempt=WHY, middlewares=(stray,))
    assert site.paths == ["/private/2"]
