"""Calls to one Redis or cluster, from any event loop.

Theory of operation. A connection belongs to the event loop in which it was opened, so each loop has its own client.
``aclose`` or the end of the loop closes the client: an asynchronous generator closes the client when it ends, and
``asyncio.run()`` ends the generators of its loop.

At most ``max_connections`` calls run at once in an event loop, each over one connection. Further calls wait in order,
because redis-py would refuse them. If a call is cancelled or times out before its reply, redis-py closes the
connection, so that no other call reads that reply.

A call whose connection was lost is made once more, because the server may have restarted since the last call. Making
any call twice does no harm. But if the reply that grants a lease is lost, no process can use the lease, which
then stays granted until it expires.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from politesse import _redis
from politesse._base.text import described
from politesse.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from politesse.stores._redis_scripts import StoreScript

    Client = _redis.Redis | _redis.RedisCluster
    Call = tuple[bytes, tuple[str | int, ...]]  # the key of a call, and its arguments

Result = TypeVar("Result")

_FOREIGN: Final = ("FOREIGN", "WRONGTYPE")
_PIPELINE: Final = 500  # at most this many scripts are sent together


@dataclass(slots=True, eq=False)
class _Connections:
    """The connections of an event loop.

    Attributes:
        client: the client, which opens connections on demand.
        places: how many more calls may be under way.
        opening: a lock that is held while the client of a cluster finds the nodes.
        is_ready: whether the client has found the nodes.
        keeper: the generator that closes the connections when it ends.
    """

    client: Client
    places: asyncio.Semaphore
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_ready: bool = False
    keeper: AsyncGenerator[None, None] | None = None


class RedisCalls:
    """Makes calls to one Redis or cluster; see the module.

    Args:
        url: the URL of the server; see ``politesse._redis``.
        timeout_s: how long one call may take, not counting the wait for its place.
        max_connections: how many calls are under way at once, in each event loop.

    Attributes:
        name: the address of the server, without a password.

    Raises:
        ConfigurationError: the URL is invalid.
    """

    def __init__(self, url: str, *, timeout_s: float, max_connections: int) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._max_connections = max_connections
        self._by_loop: dict[asyncio.AbstractEventLoop, _Connections] = {}
        self._closed = False
        self._pid = os.getpid()
        self.name: Final = _redis.name_of(self._client())

    async def get(self, key: bytes) -> bytes | None:
        """Return the value at a key."""
        found: bytes | None = await self._run(
            key, lambda client: client.execute_command("GET", key, **{_redis.NEVER_DECODE: True})
        )
        return found

    async def run(self, script: StoreScript, keys: Sequence[bytes], *args: str | int | bytes) -> Any:  # noqa: ANN401
        """Return the result of a script.

        Raises:
            StoreError: the server is away, refuses this client or is late; or another program has written a key.
        """
        given, options = (len(keys), *keys, *args), {_redis.NEVER_DECODE: True}

        async def evaluate(client: Client) -> Any:  # noqa: ANN401 - the reply of any script
            try:
                return await client.execute_command("EVALSHA", script.sha, *given, **options)
            except _redis.NoScriptError:  # the server has no copy of the script
                return await client.execute_command("EVAL", script.source, *given, **options)

        return await self._run(keys[0], evaluate)

    async def run_each(self, script: StoreScript, calls: Sequence[Call]) -> None:
        """Run a script once for each key and its arguments; failures of single calls are ignored."""
        if _redis.is_cluster(self._url):
            await asyncio.gather(*(self.run(script, [key], *args) for key, args in calls))
            return
        for start in range(0, len(calls), _PIPELINE):
            some = calls[start : start + _PIPELINE]
            await self._run(some[0][0], partial(_run_together, script=script, calls=some))

    async def aclose(self) -> None:
        """Finish the calls under way in this event loop, and close its connections. Later calls raise StoreError."""
        self._closed = True
        if os.getpid() != self._pid:
            return
        connections = self._by_loop.pop(asyncio.get_running_loop(), None)
        if connections is not None and connections.keeper is not None:
            for _ in range(self._max_connections):  # takes all places, so that no call is under way
                await connections.places.acquire()
            await connections.keeper.aclose()

    def _client(self) -> Client:
        return _redis.client_of(
            self._url,
            argument="url",
            retries=1,
            socket_connect_timeout=self._timeout_s,
            socket_timeout=None,  # ``_run`` limits the wait for a reply
            max_connections=self._max_connections,
        )

    async def _run(self, key: bytes, work: Callable[[Client], Awaitable[Result]]) -> Result:
        connections, limit = await self._of_this_loop(), asyncio.timeout(self._timeout_s)
        try:
            async with connections.places, limit:
                await self._ready(connections)
                return await work(connections.client)
        except _redis.FAILURES as error:
            if limit.expired():
                raise StoreError(f"Redis at {self.name}: no answer within {self._timeout_s:g} s") from error
            raise self._failure(key, error) from error

    def foreign(self, key: bytes, problem: str) -> StoreError:
        """Return the error for a key that another program has written."""
        shown = key.decode(errors="backslashreplace")
        return StoreError(
            f"the key {shown!r:.200} of Redis at {self.name} holds no record of politesse ({problem}). "
            "It is left as it is: remove it, or give the store another prefix"
        )

    def _failure(self, key: bytes, error: Exception) -> StoreError:
        if _redis.is_refusal(error):
            return StoreError(str(_redis.refused(self.name, error)))
        if _redis.said(error).startswith(_FOREIGN):
            return self.foreign(key, described(error))
        return StoreError(f"Redis at {self.name}: {described(error)}")

    async def _of_this_loop(self) -> _Connections:
        if self._closed:
            raise StoreError(f"the store at {self.name} is closed")
        if os.getpid() != self._pid:
            if self._by_loop:
                raise StoreError(f"the store at {self.name} was used in process {self._pid}, before the fork")
            self._pid = os.getpid()
        loop = asyncio.get_running_loop()
        connections = self._by_loop.get(loop)
        if connections is None:
            connections = self._by_loop[loop] = _Connections(self._client(), asyncio.Semaphore(self._max_connections))
            connections.keeper = self._keep(loop, connections.client)
            await anext(connections.keeper)  # the first step registers the generator with the event loop
        return connections

    async def _ready(self, connections: _Connections) -> None:
        """Let the client of a cluster find the nodes once, so that the first calls do not all search for them."""
        client = connections.client
        if not isinstance(client, _redis.Redis) and not connections.is_ready:
            async with connections.opening:
                if not connections.is_ready:
                    await client.initialize()
                    connections.is_ready = True

    async def _keep(self, loop: asyncio.AbstractEventLoop, client: Client) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._by_loop.pop(loop, None)
            with suppress(*_redis.FAILURES):  # the connection was lost
                async with asyncio.timeout(self._timeout_s):
                    await _redis.close_client(client)


async def _run_together(client: Client, *, script: StoreScript, calls: Sequence[Call]) -> None:
    pipeline = client.pipeline(transaction=False)
    for key, args in calls:
        pipeline.execute_command("EVAL", script.source, 1, key, *args)
    await pipeline.execute(raise_on_error=False)
