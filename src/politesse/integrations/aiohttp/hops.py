"""All hops of one request of a PoliteSession."""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse.integrations.aiohttp.sending import introduce, send, take_turn
from politesse.integrations.aiohttp.urls import sent_url
from politesse.origin import Origin

if TYPE_CHECKING:
    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

    from politesse._gate.gatekeeper import AgentView
    from politesse._pacing.turns import Turn


class Hops:
    """The innermost middleware of one request: a turn for each time that something is sent for it.

    aiohttp calls it for each hop, and for the same hop again when a kept connection turns out to be dead; a middleware
    outside it may do so as well, to answer a challenge. In each case what went before has ended first, so a request
    never waits for itself, and two that redirect to each other's hosts never for each other.

    Args:
        gate: who is asked.
        turns: those under way, to note ours in.
        max_wait_s: how long to wait for each.
        exempt: why the host of the first hop is not asked for its robots.txt; None where it is.
        total_s: the timeout of the whole request, after which nobody can read on; None for none.
    """

    __slots__ = ("_exempt", "_exempt_host", "_gate", "_max_wait_s", "_prepared", "_response", "_total_s", "_turns")

    def __init__(
        self,
        gate: AgentView,
        turns: set[Turn],
        *,
        max_wait_s: float | None,
        exempt: str | None,
        total_s: float | None,
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
        """Take the turn of the first hop ahead."""
        self._prepared = await take_turn(self._gate, url, self._max_wait_s, self._exempt)
        self._exempt_host = Origin.of(url).pacing_host

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Take the turn unless it was taken ahead for this very URL, send, and see to the end of the turn."""
        previous, self._response = self._response, None
        if previous is not None:
            previous.release()
        introduce(request, self._gate.identity)
        turn = await self._turn(sent_url(request))
        self._response = await send(request, handler, turn, self._turns, total_s=self._total_s, closes=True)
        return self._response

    def step_back(self) -> None:
        """Give back what was taken ahead and is not needed now: a middleware asks for something else first."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.give_back()

    def settle(self) -> None:
        """Hold nothing of the request that has succeeded: timers hold on to us, by the context they began in."""
        self.step_back()  # unused, if a middleware has answered without asking the server
        self._response = None

    def abandon(self) -> None:
        """End it: the request has failed, so nobody holds the response any more."""
        response = self._response
        self.settle()
        if response is not None:
            response.close()

    async def _turn(self, url: str) -> Turn:
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            if prepared.url == url:
                return prepared
            prepared.give_back()  # a middleware has changed the URL since
        return await self._take(url)

    async def _take(self, url: str) -> Turn:
        exempt = self._exempt
        if exempt is not None and Origin.of(url).pacing_host != self._exempt_host:
            exempt = None  # a redirect to another host: that is none of what was agreed upon
        return await take_turn(self._gate, url, self._max_wait_s, exempt)
