"""One hop of an aiohttp request: what it sends, whether it may, its turn and the end of that."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp import hdrs
from aiohttp.http import SERVER_SOFTWARE

from politesse.errors import ClosedError, InvalidURL
from politesse.integrations.aiohttp.passage import hand_on
from politesse.integrations.aiohttp.urls import ClientInvalidURL
from politesse.verdict import Disallowed

if TYPE_CHECKING:
    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

    from politesse._gate.gatekeeper import AgentView
    from politesse._gate.identity import Identity
    from politesse._pacing.turns import Turn

_SWITCHING_PROTOCOLS: Final = 101
_ABANDONED_S: Final = 1.0  # behind the total timeout, which aiohttp rounds up to the next second


class ClientDisallowed(Disallowed, aiohttp.ClientError):
    """The request was not made; caught by those who catch what aiohttp raises, too."""


def introduce(request: ClientRequest, identity: Identity) -> None:
    """Name the crawler in a request that would name aiohttp."""
    if request.headers.get(hdrs.USER_AGENT) == SERVER_SOFTWARE:
        request.headers[hdrs.USER_AGENT] = identity.user_agent


async def take_turn(gate: AgentView, url: str, max_wait_s: float | None, exempt: str | None = None) -> Turn:
    """Take a turn; raises ClientDisallowed and ClientInvalidURL, and TooFar and ClosedError as they are."""
    try:
        return await gate.take_turn(url, max_wait_s=max_wait_s, exempt=exempt)
    except Disallowed as error:
        raise ClientDisallowed(error.verdict) from None
    except InvalidURL as error:
        raise ClientInvalidURL(error.url, error.problem) from None


async def send(
    request: ClientRequest,
    handler: ClientHandlerType,
    turn: Turn,
    turns: set[Turn],
    *,
    total_s: float | None,
    closes: bool,
) -> ClientResponse:
    """Send within a turn, which ends with the response, or without one.

    Args:
        request: what is sent.
        handler: sends it.
        turn: is entered.
        turns: those under way, to note it in.
        total_s: the timeout of the whole request, after which nobody can read on; None for none. aiohttp keeps a
            response that was dropped unread alive by its own stream, and its connection with it.
        closes: whether such a response is closed then; else its turn alone ends.

    Raises ClosedError where the session was closed while the turn was waited for.
    """
    if request.session.closed:
        turn.give_back()
        raise ClosedError(f"{request.method} {turn.url!r:.200} was to be requested after the session was closed")
    turns.add(turn.__enter__())
    end = partial(_end, turn, turns)
    try:
        response = await hand_on(request, handler, turn.url, turn=True)
        turn.observe(response.status, response.headers)
        connection = response.connection
        if connection is None or response.status == _SWITCHING_PROTOCOLS:
            end()
        else:
            connection.add_callback(end)
            if total_s is not None and total_s > 0:  # aiohttp takes 0 for none as well
                give_up = connection.close if closes else end
                alarm = asyncio.get_running_loop().call_later(total_s + _ABANDONED_S, give_up)
                connection.add_callback(alarm.cancel)
    except BaseException:
        end()
        raise
    return response


def _end(turn: Turn, turns: set[Turn]) -> None:
    turn.end()
    turns.discard(turn)
