"""One hop of an aiohttp request: what it sends, whether it may, its turn and the end of that."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp import hdrs
from aiohttp.http import SERVER_SOFTWARE

from politesse.errors import ClosedError, Disallowed, InvalidURL
from politesse.origin import Origin
from politesse.robots.pattern import has_dot_segments

if TYPE_CHECKING:
    from aiohttp import ClientHandlerType, ClientRequest, ClientResponse
    from yarl import URL

    from politesse.identity import Identity
    from politesse.turns import Turn
    from politesse.view import AgentView

_SWITCHING_PROTOCOLS: Final = 101
_ABANDONED_S: Final = 1.0  # behind the total timeout, which aiohttp rounds up to the next second


class ClientDisallowed(Disallowed, aiohttp.ClientError):
    """The request was not made; caught by those who catch what aiohttp raises, too."""


class ClientInvalidURL(InvalidURL, aiohttp.ClientError):
    """A hop leads where no robots.txt speaks; caught by those who catch what aiohttp raises, too."""


def judged_url(url: URL) -> str:
    """Return what is judged of a URL that is to be sent: a WebSocket is opened by a request of HTTP."""
    scheme = url.scheme
    if scheme.startswith("ws"):
        scheme = f"http{scheme[2:]}"
    # yarl keeps path and query as a text once they were asked for, and aiohttp is going to: less than str(url) costs.
    return f"{scheme}://{url.raw_authority}{url.raw_path_qs}"


def sent_url(request: ClientRequest) -> str:
    """Return the URL that is sent; raises ClientInvalidURL where what is judged would be another."""
    url = judged_url(request.url)
    # Such a path comes from URL(..., encoded=True): others are resolved. Looked for closely where there can be one.
    if ("/." in url or "/%2" in url) and has_dot_segments(request.url.raw_path):
        raise ClientInvalidURL(url, "would be sent with dot segments; resolve them first")
    host = request.headers.get(hdrs.HOST)
    if host is not None and host != request.url.raw_authority:
        _check_host(host, url)
    return url


def _check_host(host: str, url: str) -> None:
    """Raise ClientInvalidURL where the Host header, which the caller has set, names a site whose rules do not count."""
    scheme, _, _ = url.partition(":")
    try:
        same = Origin.of(f"{scheme}://{host}") == Origin.of(url)
    except InvalidURL as error:
        if error.url == url:
            return  # the URL is refused for what is wrong with it
        same = False
    if not same:
        problem = f"would be sent with the Host header {host!r:.100}: another site, whose rules count"
        raise ClientInvalidURL(url, problem)


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
        response = await handler(request)
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
