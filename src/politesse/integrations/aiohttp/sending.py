"""Sending one hop of an aiohttp request: its errors, its turn and the end of that turn."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp.http import SERVER_SOFTWARE

from politesse.errors import ClosedError, InvalidURL
from politesse.integrations.aiohttp.bypass import send_judged
from politesse.integrations.aiohttp.urls import ClientInvalidURL
from politesse.verdict import Disallowed

if TYPE_CHECKING:
    from collections.abc import Generator

    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

    from politesse._pacing.turns import Turn
    from politesse.integrations._request import OpenTurns

DEFAULT_USER_AGENTS: Final = frozenset({SERVER_SOFTWARE})

_SWITCHING_PROTOCOLS: Final = 101
_ABANDONED_S: Final = 1.0  # after the total timeout, which aiohttp rounds up to the next second


class ClientDisallowed(Disallowed, aiohttp.ClientError):
    """A request or a redirect is not permitted, and was not sent; also an ``aiohttp.ClientError``.

    Attributes:
        verdict: the answer, with its reason, rule and source.

    Example:
        >>> from politesse import Match, Reason, Verdict
        >>> verdict = Verdict("http://example.com/", "examplebot", allowed=False, match=Match(Reason.POLICY_DENY))
        >>> isinstance(ClientDisallowed(verdict), aiohttp.ClientError)
        True
    """


@contextmanager
def client_errors() -> Generator[None, None, None]:
    """Raise ClientDisallowed for Disallowed and ClientInvalidURL for InvalidURL."""
    try:
        yield
    except Disallowed as error:
        raise ClientDisallowed(error.verdict) from None
    except InvalidURL as error:
        raise ClientInvalidURL(error.url, error.problem) from None


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
        turn: not entered yet.
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
    end = partial(turns.end, turn)
    try:
        response = await send_judged(request, handler, turn.url, turn=True)
        turn.observe(response.status, response.headers)
        connection = response.connection
        if connection is None or response.status == _SWITCHING_PROTOCOLS:
            end()
        else:
            connection.add_callback(end)
            if total_s is not None and total_s > 0:  # aiohttp reads 0 as no timeout, too
                give_up = connection.close if closes else end
                alarm = asyncio.get_running_loop().call_later(total_s + _ABANDONED_S, give_up)
                connection.add_callback(alarm.cancel)
    except BaseException:
        end()
        raise
    return response
