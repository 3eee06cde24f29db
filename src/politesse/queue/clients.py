"""The clients that a crawl requests with: sessions of aiohttp, PoliteSession, and ``httpx.AsyncClient``.

A client is known by its methods, because the queue imports no client. Both kinds do the same for a turn: request its
URL without following a redirect, report the answer to the pace as soon as the headers are known, and end the turn with
the response. With httpx the body has been read then; with aiohttp the handler reads it within the turn.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

from yarl import URL

from politesse._checks import wrong_type
from politesse._gate.view import AgentView, agent_of
from politesse.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from politesse._pacing.held import Turn

_USER_AGENT = "User-Agent"
_HTTPX_DEFAULT = "python-httpx/"
_WEB = "a PoliteSession, an aiohttp.ClientSession or an httpx.AsyncClient"


class AiohttpResponse(Protocol):
    """What a crawl reads of a response of aiohttp."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, by their names in any case."""

    @property
    def connection(self) -> AiohttpConnection | None:
        """The connection; None if the response was read to its end."""


class AiohttpConnection(Protocol):
    """What a crawl needs of a connection of aiohttp."""

    def add_callback(self, callback: Callable[[], None], /) -> None:
        """Call ``callback`` when the connection is released or closed."""


class HttpxResponse(Protocol):
    """What a crawl reads of a response of httpx."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, by their names in any case."""

    async def aread(self) -> bytes:
        """Read the body to its end, and keep it."""


Response = TypeVar("Response")
Response_co = TypeVar("Response_co", covariant=True)


@runtime_checkable
class AiohttpStyle(Protocol[Response_co]):
    """A session of aiohttp, or a PoliteSession."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    @property
    def get(self) -> Callable[..., AbstractAsyncContextManager[Response_co]]:
        """The method that makes a GET request."""


@runtime_checkable
class HttpxStyle(Protocol[Response_co]):
    """An ``httpx.AsyncClient``."""

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""

    @property
    def stream(self) -> Callable[..., AbstractAsyncContextManager[Response_co]]:
        """The method that makes a request and does not read the body."""

    async def aclose(self) -> None:
        """Close it."""


class Answer(NamedTuple, Generic[Response]):
    """The answer to a request, the same for every client.

    Attributes:
        status: the HTTP status.
        location: the Location header; None for none.
        response: as the client gives it.
    """

    status: int
    location: str | None
    response: Response


class CrawlClient(Protocol[Response]):
    """Requests the URLs of a crawl."""

    @property
    def closed(self) -> bool:
        """Whether no more requests can be made."""

    def request(self, turn: Turn) -> AbstractAsyncContextManager[Answer[Response]]:
        """Request the URL of a turn that the task holds, and report the answer to it."""


class AiohttpClient(Generic[Response]):
    """Requests with a session of aiohttp, or with a PoliteSession.

    Args:
        session: makes the requests.
        user_agent: sent unless the session has one; None for a session that knows it.
    """

    def __init__(self, session: AiohttpStyle[Response], user_agent: str | None) -> None:
        self._session = session
        own: Mapping[str, str] = getattr(session, "headers", {})
        self._headers = {} if user_agent is None or _USER_AGENT in own else {_USER_AGENT: user_agent}

    @property
    def closed(self) -> bool:
        """Whether the session was closed."""
        return self._session.closed

    @asynccontextmanager
    async def request(self, turn: Turn) -> AsyncGenerator[Answer[Response]]:
        """Request the URL of ``turn``, which ends when the response has been read to its end, or closed."""
        url = URL(turn.url, encoded=turn.url.isascii())  # as it was judged: yarl would decode some escapes
        async with self._session.get(url, allow_redirects=False, headers=self._headers) as response:
            answer = cast("AiohttpResponse", response)
            turn.observe(answer.status, answer.headers)
            connection = answer.connection
            if connection is None:
                turn.end()
            else:
                connection.add_callback(turn.end)
            yield Answer(answer.status, answer.headers.get("Location"), response)


class HttpxClient(Generic[Response]):
    """Requests with an ``httpx.AsyncClient``.

    Args:
        client: makes the requests.
        user_agent: sent instead of the default of httpx.
    """

    def __init__(self, client: HttpxStyle[Response], user_agent: str) -> None:
        self._client = client
        own: Mapping[str, str] = getattr(client, "headers", {})
        is_default = own.get(_USER_AGENT, "").startswith(_HTTPX_DEFAULT)
        self._headers = {_USER_AGENT: user_agent} if is_default else {}

    @property
    def closed(self) -> bool:
        """Whether the client was closed."""
        return self._client.is_closed

    @asynccontextmanager
    async def request(self, turn: Turn) -> AsyncGenerator[Answer[Response]]:
        """Request the URL of ``turn``, read the body and end the turn."""
        request = self._client.stream("GET", turn.url, follow_redirects=False, headers=self._headers)
        async with request as response:
            answer = cast("HttpxResponse", response)
            turn.observe(answer.status_code, answer.headers)
            await answer.aread()
        turn.end()
        yield Answer(answer.status_code, answer.headers.get("Location"), response)


def client_of(web: AiohttpStyle[Response] | HttpxStyle[Response], gate: AgentView) -> CrawlClient[Response]:
    """Return the client that requests with ``web``.

    Raises:
        ConfigurationError: ``web`` is no client of these kinds, or a PoliteSession of another gatekeeper.
    """
    user_agent = gate.identity.user_agent
    given: object = web
    if isinstance(given, type):  # it has the methods, too
        raise wrong_type("web", web, _WEB)
    if isinstance(web, HttpxStyle):
        return HttpxClient(web, user_agent)
    if not isinstance(given, AiohttpStyle):
        raise wrong_type("web", web, _WEB)
    own_gate = getattr(web, "gate", None)
    if own_gate is None:
        return AiohttpClient(web, user_agent)
    if not isinstance(own_gate, AgentView) or agent_of(own_gate).state is not agent_of(gate).state:
        raise ConfigurationError(
            f"web={web!r:.100}: its gate is not that of the queue; create the queue with PoliteQueue(web.gate)"
        )
    return AiohttpClient(web, None)
