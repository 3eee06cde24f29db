"""Detects that a program dropped a response of aiohttp before its end, so that the host need not wait for the end.

Theory of operation. A server may send a body for minutes. Meanwhile aiohttp itself keeps a dropped response alive: the
connection refers to the stream of the body, and the stream refers to the response, to release it at the end. This
module makes the last reference weak. So a response is collected when the program drops it, ``ClientResponse`` then
closes its connection, and the connection calls ``OpenResponse.released``.

A program may keep only the stream, as in ``async for line in (await web.get(url)).content``. So the stream gets a
strong reference again as soon as the program or a method of the response uses ``content``. A response that is dropped
later is closed at its end, or when its total timeout is over.
"""

from __future__ import annotations

import warnings
from asyncio import _get_running_loop, get_running_loop
from functools import cache, partial
from typing import TYPE_CHECKING
from weakref import ref

from politesse._gate.turn import soon
from politesse._text import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import ClientResponse, StreamReader

    from politesse._gate.turn import Turn
    from politesse.integrations._request import OpenTurns


class OpenResponse:
    """The turn of an open response; it ends when aiohttp releases the connection, or at the latest at a given time.

    Args:
        response: the response, whose headers were received.
        turn: the turn of the request.
        turns: the open turns of the client.
    """

    __slots__ = ("_loop", "_response", "_turn", "_turns")

    def __init__(self, response: ClientResponse, turn: Turn, turns: OpenTurns) -> None:
        self._response = ref(response)
        self._turn = turn
        self._turns = turns
        self._loop = get_running_loop()

    def released(self) -> None:
        """End the turn, because the connection was released or closed; a dropped response may do so in any thread."""
        response = self._response()
        if response is not None and response.closed:
            self._turns.end(self._turn)
        elif self._turn.under_way:  # in all other cases aiohttp has set ``closed``
            self._drop()
            self._warn("was dropped before it was read to its end or released")

    def give_up(self, close: Callable[[], None]) -> None:
        """Call ``close`` and end the turn: after the total timeout of the request, the response cannot be read."""
        if self._turn.under_way:
            self._drop()  # first, because closing the connection calls ``released``
            close()
            self._warn("was neither read to its end nor released within its total timeout")

    def _drop(self) -> None:
        if self._loop is _get_running_loop():
            self._turns.drop(self._turn)
        else:
            soon(self._loop, partial(self._turns.drop, self._turn))

    def _warn(self, what: str) -> None:
        warnings.warn(f"a response of {printable(self._turn.url)} {what}", ResourceWarning, stacklevel=2)


def collect_when_dropped(response: ClientResponse) -> None:
    """Let ``response`` be collected when the program drops it, unless its content is in use."""
    # These callbacks have no public name. If aiohttp has changed them, it keeps the response alive as before.
    callbacks = getattr(response.content, "_eof_callbacks", None)
    at_end: Callable[[], None] | None = getattr(response, "_response_eof", None)
    if at_end is not None and isinstance(callbacks, list) and at_end in callbacks:
        # A partial with a weak reference, because making a WeakMethod takes three times as long.
        callbacks[callbacks.index(at_end)] = partial(_end, ref(response))
        response.__class__ = _watched(type(response))  # type: ignore[arg-type] # a class is hashable by its metaclass


def _end(response: ref[ClientResponse]) -> None:
    alive = response()
    if alive is not None:
        alive._response_eof()  # noqa: SLF001 - there is no public name


@cache
def _watched(response_class: type[ClientResponse]) -> type[ClientResponse]:
    """Return ``response_class`` with a ``content`` that keeps its response alive once it is used."""

    class Watched(response_class):  # type: ignore[valid-type, misc]
        """A response that is collected when the program drops it."""

        __slots__ = ()

        @property
        def content(self) -> StreamReader:
            self.__class__ = response_class  # type: ignore[assignment]
            stream: StreamReader = self.content
            stream.on_eof(self._response_eof)  # runs after the weak callback; it only keeps the response alive
            return stream

    Watched.__name__, Watched.__qualname__ = response_class.__name__, response_class.__qualname__
    return Watched
