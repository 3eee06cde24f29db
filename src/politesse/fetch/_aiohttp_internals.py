"""aiohttp's internals: no other module uses an undocumented name of aiohttp.

aiohttp may change these names in any version. They are the same in aiohttp 3.14.0 to 3.14.5, and the tests also run
with the oldest release that politesse permits. Each name is here because aiohttp has no public way to do the same.
"""

from __future__ import annotations

import ssl
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import ref

import aiohttp
from aiohttp import ClientResponse, StreamReader
from aiohttp.abc import AbstractResolver
from aiohttp.client import _BaseRequestContextManager, _RequestOptions, _WSConnectOptions
from aiohttp.resolver import ThreadedResolver

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from aiohttp import ClientMiddlewareType
    from aiohttp.typedefs import StrOrURL
    from yarl import URL

# The results and the options of the methods of ClientSession, so that a type checker knows those of PoliteSession.
PendingContext = _BaseRequestContextManager
OptionsOfRequest: TypeAlias = _RequestOptions
OptionsOfWebSocket: TypeAlias = _WSConnectOptions


def base_url_of(session: aiohttp.ClientSession) -> URL | None:
    """Return the ``base_url`` of a session: the turn of the first hop is taken before aiohttp joins the URL."""
    return session._base_url  # noqa: SLF001


middlewares_of: Final[Callable[[aiohttp.ClientSession], Sequence[ClientMiddlewareType]]] = attrgetter("_middlewares")
"""Returns the middlewares of a session: the ``middlewares`` of a request would replace them."""


def open_websocket(
    session: aiohttp.ClientSession,
    url: StrOrURL,
    **options: Any,  # noqa: ANN401 - aiohttp's
) -> Coroutine[Any, Any, aiohttp.ClientWebSocketResponse[bool]]:
    """Open a WebSocket as ClientSession does, but by ``session.request``: a handshake takes no ``middlewares``."""
    return aiohttp.ClientSession._ws_connect(session, url, **options)  # noqa: SLF001


def never_repeat(session: aiohttp.ClientSession) -> None:
    """Keep a session from repeating a request if the server closes the connection without a response."""
    session._retry_connection = False  # noqa: SLF001 - as aiohttp's own TestClient does


def given_resolver(connector: aiohttp.BaseConnector | None) -> AbstractResolver | None:
    """Return the resolver that a user has given to a connector; None for aiohttp's default."""
    resolver = getattr(connector, "_resolver", None)
    is_given = isinstance(resolver, AbstractResolver) and not isinstance(resolver, ThreadedResolver)
    return resolver if is_given else None


def verifies(connector: aiohttp.BaseConnector | None) -> bool:
    """Return whether a connector verifies the certificates of servers."""
    setting = getattr(connector, "_ssl", True)
    return setting is not False and not (isinstance(setting, ssl.SSLContext) and setting.verify_mode is ssl.CERT_NONE)


def collect_when_dropped(response: ClientResponse) -> None:
    """Let ``response`` be collected when the program drops it, unless its content is in use."""
    # If a version of aiohttp has other callbacks, aiohttp keeps the response alive.
    callbacks = getattr(response.content, "_eof_callbacks", None)
    at_end: Callable[[], None] | None = getattr(response, "_response_eof", None)
    if at_end is not None and isinstance(callbacks, list) and at_end in callbacks:
        # The callback is a partial with a weak reference, because making a WeakMethod takes three times as long.
        callbacks[callbacks.index(at_end)] = partial(_end, ref(response))
        response.__class__ = _watched(type(response))  # type: ignore[arg-type] # a class is hashable by its metaclass


def _end(response: ref[ClientResponse]) -> None:
    alive = response()
    if alive is not None:
        alive._response_eof()  # noqa: SLF001


@cache
def _watched(response_class: type[ClientResponse]) -> type[ClientResponse]:
    """Return a subclass of ``response_class``: once ``content`` was used, it keeps its response alive."""

    class Watched(response_class):  # type: ignore[valid-type, misc]
        """A response that is collected when the program drops it."""

        __slots__ = ()

        @property
        def content(self) -> StreamReader:
            self.__class__ = response_class  # type: ignore[assignment]
            stream: StreamReader = self.content
            stream.on_eof(self._response_eof)  # this callback only keeps the response alive: the weak one runs first
            return stream

    Watched.__name__, Watched.__qualname__ = response_class.__name__, response_class.__qualname__
    return Watched
