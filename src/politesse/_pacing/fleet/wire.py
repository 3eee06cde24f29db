"""The connections to one Redis or Valkey; needs the extra ``redis``.

One connection carries the scripts, in the order in which they are sent, and another one what is published. Neither is
ever mended behind our back: the pacer has to know of each loss.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

from politesse._pacing.fleet.messages import ForeignKey, Server, WireLost
from politesse._pacing.fleet.scripts import Script
from politesse._redis.clients import name_of, redis_client
from politesse._redis.library import NoBackoff, NoScriptError, ResponseError, Retry, SentinelConnectionPool
from politesse._redis.servers import FAILURES, check_memory, check_mode, is_away, is_refusal, refused, said, text_of
from politesse._text import described

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from redis.asyncio.client import PubSub
    from redis.asyncio.connection import AbstractConnection

    from politesse._pacing.fleet.messages import Reply, ScriptCall
    from politesse._redis.library import Redis, RedisCluster


_FOREIGN_WORDS: Final = ("WRONGTYPE", "FOREIGN")  # with which the error of a script on a foreign key begins


def of_script(name: str, error: ResponseError) -> Exception:
    """Return the error of a script.

    Raises:
        WireLost: the server ``name`` cannot serve any now.
        ConfigurationError: it does not permit this client to do what the script does.
    """
    if is_refusal(error):
        raise refused(name, error) from error
    if is_away(error):
        raise WireLost(said(error)) from error
    return ForeignKey(said(error)) if said(error).startswith(_FOREIGN_WORDS) else error


@contextmanager
def failures(name: str) -> Iterator[None]:
    """Raise WireLost, or ConfigurationError for a server ``name`` that refuses this client, for errors of redis-py."""
    try:
        yield
    except FAILURES as error:
        if is_refusal(error):
            raise refused(name, error) from error
        raise WireLost(described(error)) from error


class Channel:
    """What is published to this process, by a connection of its own.

    Args:
        client: connects to the server, or to any node of a cluster.
    """

    def __init__(self, client: Redis | RedisCluster) -> None:
        self._client = client
        self._pubsub: PubSub | None = None

    async def subscribe(self, name: str) -> None:
        """Subscribe, and wait until that is done."""
        self._pubsub = pubsub = self._client.pubsub()
        await pubsub.subscribe(name)
        await pubsub.get_message(timeout=None)
        connection: AbstractConnection | None = pubsub.connection
        if connection is not None:
            connection.retry = Retry(NoBackoff(), 0)

    async def pushes(self, name: str) -> AsyncIterator[str]:
        """Return what is published by the server ``name``; raises WireLost."""
        pubsub = self._pubsub
        while pubsub is not None:
            with failures(name):
                message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=None)
            if message is not None:
                yield text_of(message["data"])

    async def drop(self) -> None:
        """Close the connection."""
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            connection: AbstractConnection | None = pubsub.connection
            if connection is not None:
                await connection.disconnect(nowait=True)
            await pubsub.aclose()  # type: ignore[no-untyped-call] # redis-py gives it no types


class RedisWire:
    """The connections to one Redis; see ``messages.FleetWire``.

    Args:
        client: connects to it; closed with this.
    """

    counts_receivers = True

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._shas: dict[Script, str] = {}
        self._connection: AbstractConnection | None = None
        self._channel = Channel(client)

    @classmethod
    def of_url(cls, url: str) -> Self:
        """Return the wire to the server at a URL; see ``politesse._redis.clients``.

        Raises:
            ConfigurationError: it is no such URL.
        """
        return cls(redis_client(url, argument="fleet"))

    @property
    def name(self) -> str:
        """The address of the server, without a password."""
        return name_of(self._client)

    async def open(self, channel: str, /) -> Server:
        """Connect, load the scripts and subscribe."""
        with failures(self.name):
            connection = await self._client.connection_pool.get_connection()  # type: ignore[no-untyped-call] # as above
            self._connection = connection
            connection.retry = Retry(NoBackoff(), 0)
            server = await self.server()
            for script in Script:
                self._shas[script] = await self._command("SCRIPT", "LOAD", self._source(script))
            await self._channel.subscribe(channel)
        return server

    async def server(self) -> Server:
        """Return the server."""
        with failures(self.name):
            found = await self._info("server")
            check_mode(self.name, found)
            check_memory(self.name, await self._info("memory"))
        return Server(found["run_id"], float(found["uptime_in_seconds"]))

    async def exchange(self, calls: Sequence[ScriptCall], /) -> list[Reply | Exception]:
        """Run scripts in order."""
        replies = await self._send(calls)
        missing = [place for place, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing:
            again = await self._send([calls[place] for place in missing], by_source=True)
            for place, reply in zip(missing, again, strict=True):
                replies[place] = reply
        return replies

    def pushes(self) -> AsyncIterator[str]:
        """Return what is published to the channel."""
        return self._channel.pushes(self.name)

    def clock_of(self, key: str, /) -> int:  # noqa: ARG002 - one clock rules all keys
        """Return a number for the clock that rules a key."""
        return 0

    def probe_keys(self, key: str, /) -> list[str]:
        """Return a key for each server that has keys."""
        return [key]

    async def drop(self) -> None:
        """Close the connections, those to the Sentinels too; raises WireLost if one cannot be closed in time."""
        pool = self._client.connection_pool
        connection, self._connection = self._connection, None
        if connection is not None:  # at once: what comes after may be cut short
            await connection.disconnect(nowait=True)
        with failures(self.name):
            await self._channel.drop()
            if connection is not None:
                await pool.release(connection)
            await pool.disconnect()
            if isinstance(pool, SentinelConnectionPool):  # it leaves its connections to them open, for the next search
                for sentinel in pool.sentinel_manager.sentinels:
                    await sentinel.connection_pool.disconnect(inuse_connections=False)  # others may use it

    async def aclose(self) -> None:
        """Close the client."""
        await self.drop()
        await self._client.aclose()

    def _source(self, script: Script) -> str:
        return script.source

    def _command_of(self, call: ScriptCall, *, by_source: bool) -> tuple[str | int, ...]:
        command = ("EVAL", self._source(call.script)) if by_source else ("EVALSHA", self._shas[call.script])
        return (*command, 1, call.key, *call.args)

    async def _send(self, calls: Sequence[ScriptCall], *, by_source: bool = False) -> list[Reply | Exception]:
        connection = self._connected()
        replies: list[Reply | Exception] = []
        with failures(self.name):
            commands = [self._command_of(call, by_source=by_source) for call in calls]
            await connection.send_packed_command(connection.pack_commands(commands))
            for _ in calls:
                try:
                    reply = await connection.read_response()
                    replies.append([text_of(word) for word in reply])
                except ResponseError as error:
                    replies.append(of_script(self.name, error))
        return replies

    def _connected(self) -> AbstractConnection:
        connection = self._connection
        if connection is None or not connection.is_connected:  # to send by such a one would connect it again
            raise WireLost("it is not connected")
        return connection

    async def _command(self, *words: str) -> str:
        connection = self._connected()
        await connection.send_command(*words)
        return text_of(await connection.read_response())

    async def _info(self, section: str) -> dict[str, str]:
        lines = (await self._command("INFO", section)).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)
