"""What a fleet knows of its hosts, read from its Redis without changing it; needs the extra ``redis``.

Theory of operation. The keys are found by SCAN, some at a time, so that the server serves others meanwhile; never by
KEYS. The states of some hundred hosts are asked for in one round trip, by a script that reads one key: so a state is
that of one moment, and each host may have another one. A host that comes or goes during the scan may be missing, and
one may be found twice while the server's table grows: SCAN promises no more.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from politesse._pacing.fleet.scripts import source_of
from politesse._redis.clients import cluster_client, is_cluster, name_of, redis_client
from politesse._redis.library import NoScriptError, RedisCluster, ResponseError
from politesse._redis.servers import FAILURES, check_mode, is_away, is_refusal, refused, said, text_of
from politesse._text import described, shortened
from politesse.verdict import Bound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence

    from politesse._pacing.fleet.options import FleetOptions
    from politesse._redis.library import Redis

T = TypeVar("T")

SCOPES: Final = ("host", "address", "domain")
"""What may be paced as one; the keys of each begin with its name."""

_OTHERS: Final = ("{record:", "probe")  # how keys of a RedisStore with the same prefix, and of links, go on after it
_SCANNED_AT_ONCE: Final = 1_000  # keys that the server looks at before it serves others
_READ_AT_ONCE: Final = 250
_TIMEOUT_S: Final = 5.0  # for one round trip
_FOREIGN: Final = "FOREIGN "  # how the errors of our scripts begin
_MOST_ERROR: Final = 200  # characters
_US: Final = 1e6
_GLOB: Final = re.compile(r"[*?\[\]\\^-]")


@dataclass(frozen=True, slots=True)
class FleetLease:
    """A request that is under way.

    Attributes:
        owner: the process that makes it.
        url: what is requested; empty if that is unknown.
        left_s: for how many seconds it counts as under way if its process is not heard of any more.
    """

    owner: str
    url: str
    left_s: float


@dataclass(frozen=True, slots=True)
class FleetHost:
    """What a fleet knows of one host, by the clock of its Redis.

    Attributes:
        scope: ``"host"``; or ``"address"`` or ``"domain"`` where those are paced.
        name: of the host, the address or the domain.
        read_wall: the Unix time at which it was read.
        asked_wall: the Unix time at which it was asked last; in the future if its next start is granted already. None
            if it never was, as far as is known.
        closed_until_wall: the Unix time until which it is closed; None if it is open.
        closed_by: by what; None if it is open.
        interval_s: the longest interval that a request had, in seconds.
        adaptive_s: the interval that its answers ask for, by their slowness; 0 for none.
        leases: the requests that are under way, the oldest first.
        waiting: how many requests wait at its Redis, by the process that makes them. Those that wait in the lines of
            their processes are not known there: each process reserves for the first one of a line.
    """

    scope: str
    name: str
    read_wall: float
    asked_wall: float | None
    closed_until_wall: float | None
    closed_by: Bound | None
    interval_s: float
    adaptive_s: float
    leases: tuple[FleetLease, ...]
    waiting: Counter[str]

    @classmethod
    def of(cls, scope: str, name: str, reply: Sequence[str]) -> FleetHost:
        """Return what a reply of ``status.lua`` says; raises ValueError if it is none."""
        now, last, closed, why, adaptive, longest, *requests = reply
        read_wall, asked_wall, closed_wall = int(now) / _US, int(last) / _US, int(closed) / _US
        is_closed = closed_wall > read_wall
        leases, waiting = [], Counter[str]()
        for kind, ticket, words in zip(requests[::3], requests[1::3], requests[2::3], strict=True):
            owner = ticket.partition(".")[0]
            if kind == "queue":
                waiting[owner] += 1
            else:
                expiry, _, url = words.partition(" ")
                leases.append(FleetLease(owner, url, max(0.0, int(expiry) / _US - read_wall)))
        return cls(
            scope,
            name,
            read_wall,
            asked_wall or None,
            closed_wall if is_closed else None,
            Bound(why) if is_closed else None,
            int(longest) / _US,
            int(adaptive) / _US,
            tuple(sorted(leases, key=lambda lease: lease.left_s)),
            waiting,
        )

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way or waits, or the host is closed."""
        return bool(self.leases or self.waiting or self.closed_until_wall is not None)


class UnreadableKey(NamedTuple):
    """A key under the prefix of a fleet that is none of its hosts.

    Attributes:
        key: the key.
        error: what is wrong with it, as a phrase.
    """

    key: str
    error: str


class FleetReader:
    """Reads what a fleet knows of its hosts.

    Args:
        fleet: where its Redis is, and its prefix.

    Raises:
        ConfigurationError: the URL is none.
    """

    def __init__(self, fleet: FleetOptions) -> None:
        make = cluster_client if is_cluster(fleet.url) else redis_client
        self._client: Redis | RedisCluster = make(fleet.url, argument="fleet")
        self._prefix = fleet.prefix
        self._source = source_of("status")
        self._sha = ""

    async def scan(self) -> AsyncIterator[list[FleetHost | UnreadableKey]]:
        """Yield all hosts, some at a time.

        Raises:
            ConfigurationError: Redis refuses this client.
            ConnectionError: it is away.
        """
        pattern = f"{_GLOB.sub(lambda found: chr(92) + found[0], self._prefix)}*"
        keys = self._client.scan_iter(match=pattern, count=_SCANNED_AT_ONCE)
        found: dict[str, None] = {}
        ended = False
        while not ended:
            try:
                key = text_of(await self._bounded(anext(keys)))
                if not key.removeprefix(self._prefix).startswith(_OTHERS):
                    found[key] = None
            except StopAsyncIteration:
                ended = True
            if len(found) >= _READ_AT_ONCE or (ended and found):
                yield await self._read(list(found))
                found.clear()

    async def find(self, names: Iterable[str]) -> list[FleetHost | UnreadableKey]:
        """Return what is known of these hosts, addresses and domains; see ``scan``."""
        return await self._read([f"{self._prefix}{scope}:{name}" for name in names for scope in SCOPES])

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _read(self, keys: Sequence[str]) -> list[FleetHost | UnreadableKey]:
        found: list[FleetHost | UnreadableKey] = []
        hosts = []
        for key in keys:
            scope, _, name = key.removeprefix(self._prefix).partition(":")
            if name and scope in SCOPES:
                hosts.append((key, scope, name))
            else:
                found.append(UnreadableKey(key, "it is the key of no host"))
        replies = await self._bounded(self._replies([key for key, _, _ in hosts]))
        for (key, scope, name), reply in zip(hosts, replies, strict=True):
            host = _parsed(key, scope, name, reply)
            if host is not None:
                found.append(host)
        return found

    async def _replies(self, keys: Sequence[str]) -> list[object]:
        """Run the script for each key; the error of one is its reply."""
        if not self._sha:
            await self._load()
        replies = await self._run(keys)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            await self._load()
            replies = await self._run(keys)
        for reply in replies:
            if isinstance(reply, FAILURES) and not _is_of_a_key(reply):
                raise reply
        return replies

    async def _run(self, keys: Sequence[str]) -> list[object]:
        client, calls = self._client, [("EVALSHA", self._sha, 1, key, "", 0, 0) for key in keys]
        if isinstance(client, RedisCluster):
            running = (client.execute_command(*call) for call in calls)
            return [*await asyncio.gather(*running, return_exceptions=True)]
        pipeline = client.pipeline(transaction=False)
        for call in calls:
            pipeline.execute_command(*call)
        replies: list[object] = await pipeline.execute(raise_on_error=False)
        return replies

    async def _load(self) -> None:
        client = self._client
        if isinstance(client, RedisCluster):
            sha = await client.execute_command("SCRIPT LOAD", self._source, target_nodes=RedisCluster.PRIMARIES)
        else:
            check_mode(name_of(client), await client.info("server"))
            sha = await client.script_load(self._source)
        self._sha = text_of(sha)

    async def _bounded(self, work: Awaitable[T]) -> T:
        name = name_of(self._client)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await work
        except TimeoutError as error:
            raise ConnectionError(f"Redis at {name} is away: no answer within {_TIMEOUT_S:g} s") from error
        except FAILURES as error:
            if is_refusal(error):
                raise refused(name, error) from error
            raise ConnectionError(f"Redis at {name} is away: {described(error)}") from error


def _is_of_a_key(error: Exception) -> bool:
    """Return whether an error concerns one key, and not the server."""
    return isinstance(error, ResponseError) and not is_away(error) and not is_refusal(error)


def _parsed(key: str, scope: str, name: str, reply: object) -> FleetHost | UnreadableKey | None:
    """Return what a reply says of a host; None if nothing is known of it."""
    if isinstance(reply, Exception):
        return UnreadableKey(key, shortened(said(reply).removeprefix(_FOREIGN), _MOST_ERROR))
    words = [text_of(word) for word in reply] if isinstance(reply, list) else []
    try:
        host = FleetHost.of(scope, name, words)
    except ValueError as error:
        return UnreadableKey(key, f"it holds no state of a host: {described(error)}")
    is_known = host.is_busy or host.asked_wall is not None or host.interval_s > 0.0
    return host if is_known else None
