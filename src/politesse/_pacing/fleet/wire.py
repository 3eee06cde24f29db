"""The connections to one Redis or Valkey; needs the extra ``redis``.

One connection carries the scripts, in the order in which they are sent, and another one what is published. Neither is
ever mended behind our back: the pacer has to know of each loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from politesse._pacing.fleet.messages import Server, WireLost
from politesse._pacing.fleet.scripts import Script
from politesse._text import described, needs_extra
from politesse.errors import ConfigurationError

try:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.asyncio.sentinel import SentinelConnectionPool
    from redis.backoff import NoBackoff
    from redis.exceptions import (
        AuthenticationError,
        AuthorizationError,
        ClusterDownError,
        MasterDownError,
        NoPermissionError,
        NoScriptError,
        OutOfMemoryError,
        ReadOnlyError,
        RedisError,
        ResponseError,
        TryAgainError,
    )
except ImportError as error:
    raise ImportError(f"{needs_extra('pacing by a fleet', 'redis')} ({error})", name="redis") from error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from redis.asyncio import RedisCluster
    from redis.asyncio.client import PubSub
    from redis.asyncio.connection import AbstractConnection

    from politesse._pacing.fleet.messages import Reply, ScriptCall

REFUSED: Final = (AuthenticationError, AuthorizationError, NoPermissionError)
"""The errors of a server that does not want this client."""

_AWAY: Final = (ReadOnlyError, MasterDownError, ClusterDownError, TryAgainError, OutOfMemoryError)
_AWAY_WORDS: Final = ("MISCONF", "BUSY", "UNKILLABLE", "NOREPLICAS")


def refused(name: str, error: Exception) -> ConfigurationError:
    """Return the error for a server that does not want this client."""
    return ConfigurationError(f"Redis at {name} refuses this client: {described(error)}")


def check_memory(name: str, memory: Mapping[str, object]) -> None:
    """Raise ConfigurationError for a server that may forget keys before they expire."""
    policy = memory.get("maxmemory_policy", "noeviction")
    if str(memory.get("maxmemory", "0")) != "0" and policy != "noeviction":
        raise ConfigurationError(
            f"Redis at {name} has maxmemory-policy {policy}: it would forget which hosts are busy or closed. "
            "Set maxmemory-policy noeviction"
        )


def of_script(error: ResponseError) -> ResponseError:
    """Return the error of a script; raise WireLost if the server cannot serve any now."""
    if isinstance(error, _AWAY) or str(error).startswith(_AWAY_WORDS):
        raise WireLost(described(error)) from error
    return error


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

    async def pushes(self) -> AsyncIterator[str]:
        """Return what is published; raises WireLost."""
        pubsub = self._pubsub
        while pubsub is not None:
            try:
                message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=None)
            except (RedisError, OSError) as error:
                raise WireLost(described(error)) from error
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
        """Return the wire to the server at a URL as ``redis://``, ``rediss://`` (TLS) or ``unix://``.

        Raises:
            ConfigurationError: it is no such URL.
        """
        scheme, _, rest = url.partition("://")
        try:
            if rest:
                return cls(Redis.from_url(url))
            problem = "it is no URL"
        except ValueError as error:
            problem = described(error)
        shown = f"{scheme}://..." if rest else "..."  # the rest may hold a password
        raise ConfigurationError(
            f"fleet={shown!r:.50}: give a URL, as 'redis://host:6379/0', 'rediss://' or 'unix://' ({problem})"
        )

    @property
    def name(self) -> str:
        """The address of the server, without a password."""
        pool = self._client.connection_pool
        if isinstance(pool, SentinelConnectionPool):
            return f"the Redis {pool.service_name!r} of a Sentinel"
        kwargs = pool.connection_kwargs
        if path := kwargs.get("path"):
            return f"unix://{path}"
        host, port, db = kwargs.get("host", "localhost"), kwargs.get("port", 6379), kwargs.get("db", 0)
        return f"redis://{host}:{port}/{db}"

    async def open(self, channel: str, /) -> Server:
        """Connect, load the scripts and subscribe."""
        try:
            connection = await self._client.connection_pool.get_connection()  # type: ignore[no-untyped-call] # as above
            self._connection = connection
            connection.retry = Retry(NoBackoff(), 0)
            server = await self.server()
            await self._check_memory()
            for script in Script:
                self._shas[script] = str(await self._command("SCRIPT", "LOAD", self._source(script)))
            await self._channel.subscribe(channel)
        except REFUSED as error:
            raise refused(self.name, error) from error
        except (RedisError, OSError) as error:
            raise WireLost(described(error)) from error
        return server

    async def server(self) -> Server:
        """Return the server."""
        found = await self._info("server")
        return Server(found["run_id"], float(found["uptime_in_seconds"]))

    async def exchange(self, calls: Sequence[ScriptCall], /) -> list[Reply | Exception]:
        """Run scripts in order."""
        replies = await self._send(calls)
        missing = [place for place, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing:
            for script in Script:
                self._shas[script] = str(await self._command("SCRIPT", "LOAD", self._source(script)))
            again = await self._send([calls[place] for place in missing])
            for place, reply in zip(missing, again, strict=True):
                replies[place] = reply
        return replies

    def pushes(self) -> AsyncIterator[str]:
        """Return what is published to the channel."""
        return self._channel.pushes()

    async def drop(self) -> None:
        """Close the connections, those to the Sentinels too; raises WireLost if one cannot be closed in time."""
        pool = self._client.connection_pool
        connection, self._connection = self._connection, None
        if connection is not None:  # at once: what comes after may be cut short
            await connection.disconnect(nowait=True)
        try:
            await self._channel.drop()
            if connection is not None:
                await pool.release(connection)
            await pool.disconnect()
            if isinstance(pool, SentinelConnectionPool):  # it leaves its connections to them open, for the next search
                for sentinel in pool.sentinel_manager.sentinels:
                    await sentinel.connection_pool.disconnect(inuse_connections=False)  # others may use it
        except RedisError as error:
            raise WireLost(described(error)) from error

    async def aclose(self) -> None:
        """Close the client."""
        await self.drop()
        await self._client.aclose()

    def _source(self, script: Script) -> str:
        return script.source

    def _command_of(self, call: ScriptCall) -> tuple[str | int, ...]:
        return ("EVALSHA", self._shas[call.script], 1, call.key, *call.args)

    async def _send(self, calls: Sequence[ScriptCall]) -> list[Reply | Exception]:
        connection = self._connection
        if connection is None:
            raise WireLost("it is not connected")
        replies: list[Reply | Exception] = []
        try:
            await connection.send_packed_command(connection.pack_commands([self._command_of(call) for call in calls]))
            for _ in calls:
                try:
                    reply = await connection.read_response()
                    replies.append([text_of(word) for word in reply])
                except ResponseError as error:
                    replies.append(of_script(error))
        except (RedisError, OSError) as error:
            raise WireLost(described(error)) from error
        return replies

    async def _command(self, *words: str) -> str:
        connection = self._connection
        if connection is None:
            raise WireLost("it is not connected")
        await connection.send_command(*words)
        return text_of(await connection.read_response())

    async def _info(self, section: str) -> dict[str, str]:
        lines = (await self._command("INFO", section)).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    async def _check_memory(self) -> None:
        check_memory(self.name, await self._info("memory"))


def text_of(value: object) -> str:
    """Return what Redis answers as text, which redis-py decodes or not."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
