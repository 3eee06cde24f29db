"""The connections to a Redis or Valkey, or to a Redis Cluster; needs the extra ``redis``.

One connection carries the scripts, in the order in which they are sent. redis-py must not reconnect it by itself,
because the pacer has to know of each loss. If a server has forgotten the scripts, the connection also counts as lost:
the next connection loads them again.

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
from politesse._pacing.fleet.messages import Reply, Script, ScriptCall, WireLost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from redis.asyncio.connection import AbstractConnection


Client = TypeVar("Client", _redis.Redis, _redis.RedisCluster)

_MOST_TRIED: Final = 200  # ``roster_keys`` tries at most this many keys
_PRIMARIES: Final = _redis.RedisCluster.PRIMARIES
_READ: Final = ("epoch", "ver", "cnt", "sum")


class _Wire(Generic[Client]):
    """The client.

    Args:
        client: the client, which must not retry; this object closes it.
    """

    def __init__(self, client: Client) -> None:
        self._client: Client = client

    @property
    def name(self) -> str:
        """The address of the server or of the known nodes, without a password."""
        return _redis.name_of(self._client)

    async def keys(self, pattern: str, count: int) -> AsyncIterator[str]:
        """Return the keys that match a pattern; each SCAN step checks about ``count`` keys. Raises WireLost."""
        with self._failures():
            async for key in self._client.scan_iter(match=pattern, count=count):
                yield _redis.text_of(key)

    async def aclose(self) -> None:
        """Close the connections; ``open`` makes new ones. Raises WireLost if one cannot be closed in time."""
        with self._failures():
            await _redis.close_client(self._client)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Replace errors of redis-py by WireLost, or by ConfigurationError if the server refuses this client."""
        try:
            yield
        except _redis.FAILURES as error:
            if _redis.is_refusal(error):
                raise _redis.refused(self.name, error) from error
            raise WireLost(described(error)) from error

    def _reply(self, reply: Any) -> Reply | Exception:  # noqa: ANN401 - an answer of any kind
        """Return the words of a reply, or the error of a script; raises the error of a server that can serve no call.

        A word that does not exist is empty.
        """
        if isinstance(reply, list):
            return [
                word.decode("utf-8", "replace") if isinstance(word, bytes) else "" if word is None else str(word)
                for word in reply
            ]
        if not isinstance(reply, Exception):
            return ValueError(f"the answer {reply!r:.100} is not of politesse")
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
        self._connection: AbstractConnection | None = None
        self._shas: dict[Script, str] = {}

    async def open(self) -> str:
        """Connect and load the scripts, in few round trips, because each may take half a second.

        Returns:
            The name of the server's present run.

        Raises:
            WireLost: Redis is away.
            ConfigurationError: Redis refuses this client, or may evict keys.
        """
        with self._failures():
            self._connection = await self._client.connection_pool.get_connection()  # type: ignore[no-untyped-call] # redis-py gives it no types
            loads = [("SCRIPT", "LOAD", self._source(script)) for script in Script]
            run_id, shas = await self._ask_server(*loads)
            self._shas = dict(zip(Script, shas, strict=True))
        return run_id

    async def run_id(self) -> str:
        """Return the name of the server's present run; raises WireLost, and ConfigurationError if it may evict keys."""
        with self._failures():
            run_id, _ = await self._ask_server()
        return run_id

    async def exchange(self, calls: Sequence[ScriptCall], rosters: Sequence[str], /) -> list[Reply | Exception]:
        """Run scripts in order, then read the epoch and the counts of rosters; return all replies.

        The reply of a failed script is its error.

        Args:
            calls: the scripts to run.
            rosters: the keys of the rosters.

        Raises:
            WireLost: Redis is away.
            ConfigurationError: Redis does not permit this client to run a command of a script.
        """
        asking = [("HMGET", key, *_READ) for key in rosters]
        with self._failures():
            replies = await self._send([*map(self._command_of, calls), *asking])
        return [*map(self._reply, replies)]

    def clock_of(self, key: str, /) -> int:  # noqa: ARG002 - one clock rules all keys
        """Return the number of the clock behind a key: always 0, because there is one server."""
        return 0

    def roster_keys(self, prefix: str, /) -> list[str]:
        """Return the keys of all rosters: only one, because there is one server."""
        return [f"{prefix}{{members}}"]

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
        return ("EVALSHA", self._shas[call.script], len(call.keys), *call.keys, *call.args)

    async def _ask_server(self, *commands: tuple[str, ...]) -> tuple[str, list[str]]:
        """Check the server and run commands in one round trip; return the name of its run, and the answers."""
        found, memory, *others = await self._send([("INFO", "server"), ("INFO", "memory"), *commands])
        info = _fields_of(_redis.text_of(found))
        _redis.check_mode(self.name, info)  # this check comes first, because a Sentinel knows no scripts
        for reply in (found, memory, *others):
            if isinstance(reply, Exception):
                raise reply
        _redis.check_memory(self.name, _fields_of(_redis.text_of(memory)))
        return info["run_id"], [*map(_redis.text_of, others)]

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
    """The connections to a Redis Cluster. Calls have no common order."""

    is_cluster = True

    async def open(self) -> str:
        """Connect; a script is loaded into a node when it is first run there."""
        with self._failures():
            await self._client.initialize()
        return await self.run_id()

    async def run_id(self) -> str:
        """Return the names of the present runs of all primaries, joined: they change if any primary is replaced."""
        with self._failures():
            found = (await self._ask_all("INFO", "server")).values()
            for memory in (await self._ask_all("INFO", "memory")).values():
                _redis.check_memory(self.name, memory)
        return ",".join(sorted(str(info["run_id"]) for info in found))

    async def exchange(self, calls: Sequence[ScriptCall], rosters: Sequence[str], /) -> list[Reply | Exception]:
        """Run scripts, in order if they have the same key. Then read the rosters."""
        running = [asyncio.ensure_future(self._run(call)) for call in calls]
        await asyncio.gather(*running, return_exceptions=True)
        replies = [task.result() for task in running]  # raises a loss; the error of a script is the reply of its call
        with self._failures():
            asking = (self._client.execute_command("HMGET", key, *_READ) for key in rosters)
            rows = await asyncio.gather(*asking)
        return [*replies, *map(self._reply, rows)]

    def clock_of(self, key: str, /) -> int:
        """Return the number of the key's slot. All keys of a slot are on one node, so they share a clock."""
        return self._client.keyslot(key)

    def roster_keys(self, prefix: str, /) -> list[str]:
        """Return a roster key for each node, with a number that is chosen so that the node has the slot of the key.

        The braces put the second key of a roster into the same slot.
        """
        found: dict[str, str] = {}
        for number in range(_MOST_TRIED):
            candidate = f"{prefix}{{members:{number}}}"
            node = self._client.get_node_from_key(candidate)
            if node is not None:
                found.setdefault(node.name, candidate)
        return list(found.values())

    async def _run(self, call: ScriptCall) -> Reply | Exception:
        words = (len(call.keys), *call.keys, *call.args)
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
