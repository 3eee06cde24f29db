"""The turns of one request of a PoliteSession: one for each hop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse.integrations._request import introduce
from politesse.integrations.aiohttp.sending import DEFAULT_USER_AGENTS, client_errors, send
from politesse.integrations.aiohttp.urls import sent_url
from politesse.origin import Origin

if TYPE_CHECKING:
    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

    from politesse._gate.gatekeeper import AgentView
    from politesse._pacing.turns import Turn
    from politesse.integrations._request import OpenTurns


class RequestTurns:
    """The innermost middleware of one request: takes a turn whenever something is sent for it.

    aiohttp calls it for each hop, and again for the same hop if a kept connection turns out to be dead; an outer
    middleware may repeat the request too, to answer a challenge. The response before it is released first, so a request
    never waits for itself, and two requests that redirect to each other's hosts never wait for each other.

    Args:
        gate: judges and paces.
        turns: the open turns of the session.
        max_wait_s: the longest wait for each turn, in seconds; None for no limit.
        exempt: the reason why the host of the first hop is requested without its robots.txt; None if it is judged.
        total_s: timeout of the whole request in seconds; None for none.
    """

    __slots__ = ("_exempt", "_exempt_host", "_gate", "_max_wait_s", "_prepared", "_response", "_total_s", "_turns")

    def __init__(
        self, gate: AgentView, turns: OpenTurns, *, max_wait_s: float | None, exempt: str | None, total_s: float | None
    ) -> None:
        self._gate = gate
        self._turns = turns
        self._max_wait_s = max_wait_s
        self._exempt = exempt
        self._exempt_host = ""
        self._total_s = total_s
        self._prepared: Turn | None = None
        self._response: ClientResponse | None = None

    async def prepare(self, url: str) -> None:
        """Take the turn of the first hop before the request starts."""
        with client_errors():
            self._prepared = await self._gate.take_turn(url, max_wait_s=self._max_wait_s, exempt=self._exempt)
        self._exempt_host = Origin.of(url).pacing_host

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Send one hop, in the prepared turn if it is for this URL, otherwise in a new one."""
        previous, self._response = self._response, None
        if previous is not None:
            previous.release()
        introduce(request.headers, DEFAULT_USER_AGENTS, self._gate.identity)
        with client_errors():
            turn = await self._turn(sent_url(request))
        self._response = await send(request, handler, turn, self._turns, total_s=self._total_s, closes=True)
        return self._response

    def step_back(self) -> None:
        """Give back the prepared turn if it is unused: a middleware makes another request first."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.give_back()

    def settle(self) -> None:
        """Drop every reference to the request that has succeeded: timers keep this object alive by their context."""
        self.step_back()  # unused if a middleware answered without the server
        self._response = None

    def abandon(self) -> None:
        """Close the response of a request that has failed: nothing else refers to it."""
        response = self._response
        self.settle()
        if response is not None:
            response.close()

    async def _turn(self, url: str) -> Turn:
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            if prepared.url == url:
                return prepared
            prepared.give_back()  # a middleware has changed the URL
        exempt = self._exempt
        if exempt is not None and Origin.of(url).pacing_host != self._exempt_host:
            exempt = None  # the exemption does not cover the other host of a redirect
        return await self._gate.take_turn(url, max_wait_s=self._max_wait_s, exempt=exempt)
