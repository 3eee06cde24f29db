"""The connections to a Redis or Valkey, or to a Redis Cluster; needs the extra ``redis``.

One connection carries the scripts, in the order in which they are sent, and another connection carries the messages.
redis-py must not reconnect either of them by itself, because the pacer has to know of each loss. If a server has
forgotten the scripts, the connection also counts as lost: the next connection loads them again.

In a cluster, each call has one key, and goes to the node that has the slot of the key. redis-py follows MOVED and ASK.
Calls with the same key run one after the other. Calls with different keys run at the same time. If a node is away, all
nodes count as lost: no request starts until the cluster has replaced the node.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from politesse import _redis
from politesse._base.text import described
from politesse._pacing.fleet.messages import Reply, RoundOver, ScriptCall, Server, WireLost
from politesse._pacing.fleet.scripts import Script

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from redis.asyncio.client import PubSub
    from redis.asyncio.connection import AbstractConnection


Client = TypeVar("Client", _redis.Redis, _redis.RedisCluster)

_MOST_TRIED: Final = 200  # ``roster_keys`` tries at most this many keys
_PRIMARIES: Final = _redis.RedisCluster.PRIMARIES


class _Wire(Generic[Client]):
    """The client, and the connection for messages to this process.

    Args:
        client: the client, which must not retry; this object closes it.
    """

    def __init__(self, client: Client) -> None:
        self._client: Client = client
        self._pubsub: PubSub | None = None

    @property
    def name(self) -> str:
        """The address of the server or of the known nodes, without a password."""
        return _redis.name_of(self._client)

    async def keys(self, pattern: str, count: int) -> AsyncIterator[str]:
        """Return the keys that match a pattern; each SCAN step checks about ``count`` keys. Raises WireLost."""
        with self._failures():
            async for key in self._client.scan_iter(match=pattern, count=count):
                yield _redis.text_of(key)

    async def pushes(self) -> AsyncIterator[str]:
        """Return the messages of the channels; raises WireLost."""
        pubsub = self._pubsub
        while pubsub is not None:
            with self._failures():
                message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=None)
            if message is not None:
                yield _redis.text_of(message["data"])

    async def aclose(self) -> None:
        """Close the connections; ``open`` makes new ones. Raises WireLost if a connection cannot be closed in time."""
        pubsub, self._pubsub = self._pubsub, None
        with self._failures():
            if pubsub is not None:
                connection: AbstractConnection | None = pubsub.connection
                if connection is not None:
                    await connection.disconnect(nowait=True)
                await pubsub.aclose()  # type: ignore[no-untyped-call] # redis-py gives it no types
            await _redis.close_client(self._client)

    async def _subscribe(self, *names: str) -> None:
        """Subscribe, and wait for the confirmation."""
        if not names:
            return
        self._pubsub = pubsub = self._client.pubsub()
        await pubsub.subscribe(*names)
        for _ in names:
            await pubsub.get_message(timeout=None)
        connection: AbstractConnection | None = pubsub.connection
        if connection is not None:
            connection.retry = _redis.Retry(_redis.NoBackoff(), 0)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Replace errors of redis-py by WireLost, or by ConfigurationError if the server refuses this client."""
        try:
            yield
        except _redis.FAILURES as error:
            if _redis.is_refusal(error):
                raise _redis.refused(self.name, error) from error
            raise WireLost(described(error)) from error

    def _check_epochs(self, replies: Sequence[object], epochs: Mapping[str, str]) -> None:
        """Raise RoundOver if the epoch of a roster has changed."""
        for reply, epoch in zip(replies, epochs.values(), strict=True):
            if isinstance(reply, _redis.ResponseError):
                raise reply
            if _redis.text_of(reply) != epoch:
                raise RoundOver("it has lost data, or another process says so")

    def _reply(self, reply: Any) -> Reply | Exception:  # noqa: ANN401 - an answer of any kind
        """Return the reply of a script, or its error; raises the error of a server that cannot serve any call."""
        if not isinstance(reply, _redis.ResponseError):
            return [_redis.text_of(word) for word in reply]
        if _redis.is_refusal(reply):
            raise _redis.refused(self.name, reply) from reply
        if _redis.is_away(reply):
            raise WireLost(_redis.said(reply)) from reply
        return _redis.ResponseError(_redis.said(reply))


class RedisWire(_Wire[_redis.Redis]):
    """The connections to one Redis."""

    is_cluster = False

    def __init__(self, client: _redis.Redis) -> None:
        super().__init__(client)
        self.database: int = client.connection_pool.connection_kwargs.get("db", 0)
        self._connection: AbstractConnection | None = None
        self._shas: dict[Script, str] = {}

    async def open(self, *channels: str) -> Server:
        """Connect, load the scripts and subscribe, in few round trips, because each may take half a second.

        Raises:
            WireLost: Redis is away.
            ConfigurationError: Redis refuses this client, or may evict keys.
        """
        with self._failures():
            subscribing = asyncio.ensure_future(self._subscribe(*channels))
            try:
                self._connection = await self._client.connection_pool.get_connection()  # type: ignore[no-untyped-call] # as above
                loads = [("SCRIPT", "LOAD", self._source(script)) for script in Script]
                server, shas = await self._ask_server(*loads)
                self._shas = dict(zip(Script, shas, strict=True))
                await subscribing
            finally:
                subscribing.cancel()
                await asyncio.gather(subscribing, return_exceptions=True)
        return server

    async def server(self) -> Server:
        """Return the server; raises WireLost, and ConfigurationError if it may evict keys."""
        with self._failures():
            server, _ = await self._ask_server()
        return server

    async def exchange(self, calls: Sequence[ScriptCall], epochs: Mapping[str, str], /) -> list[Reply | Exception]:
        """Run scripts in order, then check that ``epochs`` still hold. The reply of a failed script is its error.

        Args:
            calls: the scripts to run.
            epochs: maps the key of each roster to the expected epoch.

        Raises:
            WireLost: Redis is away, or a roster has another epoch.
            ConfigurationError: Redis does not permit this client to run a command of a script.
        """
        asking = [("HGET", key, "epoch") for key in epochs]
        with self._failures():
            replies = await self._send([*map(self._command_of, calls), *asking])
            self._check_epochs(replies[len(calls) :], epochs)
        return [self._reply(reply) for reply in replies[: len(calls)]]

    def clock_of(self, key: str, /) -> int:  # noqa: ARG002 - one clock rules all keys
        """Return the number of the clock behind a key: always 0, because there is one server."""
        return 0

    def roster_keys(self, key: str, /) -> list[str]:
        """Return the keys of all rosters: only ``key``, because there is one server."""
        return [key]

    async def aclose(self) -> None:
        """Close the connections; raises WireLost if one cannot be closed in time."""
        connection, self._connection = self._connection, None
        if connection is not None:  # this comes first, because the task may be cancelled in the next steps
            await connection.disconnect(nowait=True)
            with self._failures():
                await self._client.connection_pool.release(connection)
        await super().aclose()

    def _source(self, script: Script) -> str:
        return script.source

    def _command_of(self, call: ScriptCall) -> tuple[str | int, ...]:
        return ("EVALSHA", self._shas[call.script], 1, call.key, *call.args)

    async def _ask_server(self, *commands: tuple[str, ...]) -> tuple[Server, list[str]]:
        """Check the server and run commands in one round trip; return the server and the answers."""
        found, memory, *others = await self._send([("INFO", "server"), ("INFO", "memory"), *commands])
        info = _fields_of(_redis.text_of(found))
        _redis.check_mode(self.name, info)  # this check comes first, because a Sentinel knows no scripts
        for reply in (found, memory, *others):
            if isinstance(reply, Exception):
                raise reply
        _redis.check_memory(self.name, _fields_of(_redis.text_of(memory)))
        return Server(info["run_id"], float(info["uptime_in_seconds"])), [*map(_redis.text_of, others)]

    async def _send(self, commands: Sequence[tuple[str | int, ...]]) -> list[Any]:
        connection = self._connection
        if connection is None or not connection.is_connected:  # sending would reconnect a lost connection
            raise WireLost("it is not connected")
        await connection.send_packed_command(connection.pack_commands(commands))
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(await connection.read_response())
            except _redis.ResponseError as error:
                replies.append(error)
        return replies


class ClusterWire(_Wire[_redis.RedisCluster]):
    """The connections to a Redis Cluster. Calls have no common order. A node counts only its own subscribers."""

    is_cluster = True
    database = 0

    async def open(self, *channels: str) -> Server:
        """Connect and subscribe; a script is loaded into a node when it is first run there."""
        with self._failures():
            await self._client.initialize()
            server = asyncio.ensure_future(self.server())
            for error in await asyncio.gather(server, self._subscribe(*channels), return_exceptions=True):
                if isinstance(error, BaseException):
                    raise error
        return server.result()

    async def server(self) -> Server:
        """Return all primaries as one Server. Its ``run_id`` changes if any primary is replaced."""
        with self._failures():
            found = (await self._ask_all("INFO", "server")).values()
            for memory in (await self._ask_all("INFO", "memory")).values():
                _redis.check_memory(self.name, memory)
        run_ids = sorted(str(info["run_id"]) for info in found)
        return Server(",".join(run_ids), min(float(str(info["uptime_in_seconds"])) for info in found))

    async def exchange(self, calls: Sequence[ScriptCall], epochs: Mapping[str, str], /) -> list[Reply | Exception]:
        """Run scripts, in order if they have the same key. Then check the epochs."""
        places: dict[str, list[int]] = {}
        for place, call in enumerate(calls):
            places.setdefault(call.key, []).append(place)
        replies: dict[int, Reply | Exception] = {}

        async def run_in_order(of_key: list[int]) -> None:
            for place in of_key:
                replies[place] = await self._run(calls[place])

        ended = await asyncio.gather(*map(run_in_order, places.values()), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error
        with self._failures():
            asking = (self._client.execute_command("HGET", key, "epoch") for key in epochs)
            self._check_epochs(await asyncio.gather(*asking), epochs)
        return [replies[place] for place in range(len(calls))]

    def clock_of(self, key: str, /) -> int:
        """Return the number of the key's slot. All keys of a slot are on one node, so they share a clock."""
        return self._client.keyslot(key)

    def roster_keys(self, key: str, /) -> list[str]:
        """Return a roster key for each node: ``key`` and a number, chosen so that the node has the slot of the key."""
        found: dict[str, str] = {}
        for number in range(_MOST_TRIED):
            candidate = f"{key}:{number}"
            node = self._client.get_node_from_key(candidate)
            if node is not None:
                found.setdefault(node.name, candidate)
        return list(found.values())

    async def _run(self, call: ScriptCall) -> Reply | Exception:
        words = (1, call.key, *call.args)
        with self._failures():
            try:
                try:
                    reply = await self._client.execute_command("EVALSHA", call.script.sha, *words)
                except _redis.NoScriptError:  # a node is new, or has forgotten the script
                    reply = await self._client.execute_command("EVAL", call.script.source, *words)
            except _redis.ResponseError as error:
                reply = error
        return self._reply(reply)

    async def _ask_all(self, *words: str) -> dict[str, dict[str, object]]:
        """Return a mapping from the name of each primary to its answer."""
        found: dict[str, dict[str, object]] = await self._client.execute_command(*words, target_nodes=_PRIMARIES)
        return found


FleetWire = RedisWire | ClusterWire
"""The connections to one server or a cluster."""


def wire_to(url: str) -> FleetWire:
    """Return the wire to the server or cluster at a URL; see ``politesse._redis``.

    Raises:
        ConfigurationError: the URL is invalid.
    """
    client = _redis.client_of(url, argument="fleet")
    return ClusterWire(client) if isinstance(client, _redis.RedisCluster) else RedisWire(client)


def _fields_of(info: str) -> dict[str, str]:
    return dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
