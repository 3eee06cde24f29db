"""Sending the hops of an aiohttp request: their errors, their turns and the ends of these."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp.http import SERVER_SOFTWARE

from politesse._http.ratelimit import QUOTA_FIELDS
from politesse._pacing.backoff import CLOSING
from politesse.errors import ClosedError, Disallowed, InvalidURL
from politesse.integrations._request import OpenTurns, introduce, turn_for
from politesse.integrations.aiohttp.bypass import is_traced, send_judged
from politesse.integrations.aiohttp.dropped import OpenResponse, collect_when_dropped
from politesse.integrations.aiohttp.urls import ClientInvalidURL, sent_url, spelt_url
from politesse.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

    from politesse._gate.view import AgentView
    from politesse._pacing.held import Turn
    from politesse.integrations.aiohttp.urls import Hop

DEFAULT_USER_AGENTS: Final = frozenset({SERVER_SOFTWARE})

_SWITCHING_PROTOCOLS: Final = 101
_ABANDONED_S: Final = 1.0  # after the total timeout, which aiohttp rounds up to the next second


class ClientDisallowed(Disallowed, aiohttp.ClientError):
    """A request or a redirect is not permitted, and was not sent; also an ``aiohttp.ClientError``.

    Attributes:
        verdict: the answer, with its reason, rule and source.

    Example:
        >>> from politesse import Reason, Verdict
        >>> from politesse.verdict import Match
        >>> verdict = Verdict("http://example.com/", "examplebot", allowed=False, match=Match(Reason.POLICY_DENY))
        >>> isinstance(ClientDisallowed(verdict), aiohttp.ClientError)
        True
    """


def client_error(error: Disallowed | InvalidURL) -> ClientDisallowed | ClientInvalidURL:
    """Return the error of the gate as one of aiohttp as well."""
    if isinstance(error, Disallowed):
        return ClientDisallowed(error.verdict)
    return ClientInvalidURL(error.url, error.problem)


async def send(
    request: ClientRequest,
    handler: ClientHandlerType,
    turn: Turn,
    turns: OpenTurns,
    *,
    total_s: float | None,
    closes: bool,
) -> ClientResponse:
    """Send a request within its turn, which ends with the response or with the error.

    Args:
        request: the hop to send.
        handler: sends it.
        turn: not entered yet, or claimed.
        turns: the open turns of the client; gets this one.
        total_s: timeout of the whole request in seconds, None for none. A response that was dropped unread is kept
            alive by its own stream in aiohttp, and so is its connection: this is when it is given up.
        closes: whether the connection of such a response is closed, or only its turn ended.

    Raises:
        ClosedError: the session was closed while the turn was waited for.
    """
    if request.session.closed:
        turn.give_back()
        raise ClosedError(f"{request.method} {turn.url!r:.200}: the session was closed before the request was sent")
    turns.begin(turn)
    try:
        # Mostly, the coroutine of ``send_judged`` is saved.
        sending = send_judged(request, handler, turn.url, turn=True) if is_traced() else handler(request)
        response = await sending
        turn.observe(response.status, _about_pace(response))
        connection = response.connection
        if connection is None or response.status == _SWITCHING_PROTOCOLS:
            turns.end(turn)
        else:
            opened = OpenResponse(response, turn, turns)
            connection.add_callback(opened.released)
            if total_s is not None and total_s > 0:  # aiohttp reads 0 as no timeout, too
                close = connection.close if closes else partial(turns.end, turn)
                alarm = asyncio.get_running_loop().call_later(total_s + _ABANDONED_S, opened.give_up, close)
                connection.add_callback(alarm.cancel)
            collect_when_dropped(response)
    except BaseException:
        turns.end(turn)
        raise
    return response


def _about_pace(response: ClientResponse) -> Mapping[str, str] | None:
    """Return the headers of an answer; None if none of them sets the pace, as nearly always.

    They are looked up in the multidict, which ignores case by itself: to copy them all in lower case, as a turn does,
    takes longer than the rest of what a turn does with an answer.
    """
    headers = response.headers
    if response.status in CLOSING:
        return headers
    for name in QUOTA_FIELDS:
        if name in headers:
            return headers
    return None


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

    __slots__ = (
        "_exempt",
        "_exempt_host",
        "_gate",
        "_max_wait_s",
        "_prepared",
        "_prepared_hop",
        "_response",
        "_total_s",
        "_turns",
    )

    def __init__(
        self, gate: AgentView, turns: OpenTurns, max_wait_s: float | None, exempt: str | None, total_s: float | None
    ) -> None:
        self._gate = gate
        self._turns = turns
        self._max_wait_s = max_wait_s
        self._exempt = exempt
        self._exempt_host = ""
        self._total_s = total_s
        self._prepared: Turn | None = None
        self._prepared_hop: Hop | None = None  # as it will be sent: the turn of the task may have another spelling
        self._response: ClientResponse | None = None

    async def prepare(self, hop: Hop) -> None:
        """Take the turn of the first hop before the request starts."""
        _, url = hop
        try:
            self._prepared = await turn_for(
                self._gate, url, spelt_url, max_wait_s=self._max_wait_s, exempt=self._exempt
            )
        except (Disallowed, InvalidURL) as error:
            raise client_error(error) from None
        self._prepared_hop = hop
        if self._exempt is not None:
            self._exempt_host = Origin.of(url).pacing_host

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Send one hop, in the prepared turn if it is for this URL, otherwise in a new one."""
        previous, self._response = self._response, None
        if previous is not None:
            previous.release()
        introduce(request.headers, DEFAULT_USER_AGENTS, self._gate.identity, self._turns.logged)
        try:
            hop = self._prepared_hop
            url = sent_url(request, hop)
            turn, self._prepared = self._prepared, None
            if turn is None or hop is None or hop[1] != url:
                turn = await self._another_turn(url, turn)
        except (Disallowed, InvalidURL) as error:
            raise client_error(error) from None
        self._response = await send(request, handler, turn, self._turns, total_s=self._total_s, closes=True)
        return self._response

    def step_back(self) -> None:
        """Give back the prepared turn if it is unused: a middleware makes another request first."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.give_back()

    def settle(self) -> None:
        """Drop every reference to the request that has succeeded: timers keep this object alive by their context."""
        if self._prepared is not None:
            self.step_back()  # unused if a middleware answered without the server
        self._response = None

    def abandon(self) -> None:
        """Close the response of a request that has failed: nothing else refers to it."""
        response = self._response
        self.settle()
        if response is not None:
            response.close()

    async def _another_turn(self, url: str, prepared: Turn | None) -> Turn:
        """Take a turn for a URL that is not that of the prepared turn."""
        if prepared is not None:
            prepared.give_back()  # a middleware has changed the URL
        exempt = self._exempt
        if exempt is not None and Origin.of(url).pacing_host != self._exempt_host:
            exempt = None  # the exemption does not cover the other host of a redirect
        return await turn_for(self._gate, url, spelt_url, max_wait_s=self._max_wait_s, exempt=exempt)
