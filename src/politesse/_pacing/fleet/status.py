"""Reads the state of a fleet's hosts from Redis, without changing it; needs the extra ``redis``.

Theory of operation. SCAN finds the keys in steps, so that the server serves others meanwhile. A script reads one key,
and one round trip runs it for some hundred hosts. So the state of a host is from one moment, and the states of two
hosts may be from two. SCAN may miss a host that comes or goes during the scan, and may return a host twice while the
table of the server grows.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from politesse._base.text import described, shortened
from politesse._pacing.fleet.messages import ScriptCall, WireLost
from politesse._pacing.fleet.scripts import Script
from politesse._pacing.fleet.wire import wire_to
from politesse.verdict import Bound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence

    from politesse._pacing.fleet.messages import Reply
    from politesse._pacing.fleet.options import FleetOptions

T = TypeVar("T")

SCOPES: Final = ("host", "address", "domain")
"""The kinds of keys; each key begins with the name of its kind."""

_OTHERS: Final = ("{record:", "members")  # after the prefix, the keys of a RedisStore and of rosters begin with these
_SCANNED_AT_ONCE: Final = 1_000  # keys in one step of SCAN; other clients are served between the steps
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
        url: the URL of the request; empty if it is unknown.
        left_s: for how many seconds the request counts as under way if its process is gone.
    """

    owner: str
    url: str
    left_s: float


@dataclass(frozen=True, slots=True)
class FleetHost:
    """The state of a host, by the clock of its Redis.

    Attributes:
        scope: ``"host"``, ``"address"`` or ``"domain"``.
        name: the name of the host, the address or the domain.
        read_wall: the Unix time at which the state was read.
        asked_wall: the Unix time of the last request; in the future if the next start is granted already; None if no
            request is known.
        closed_until_wall: the Unix time until which the host is closed; None if it is open.
        closed_by: the reason for the closing; None if the host is open.
        interval_s: the longest interval of any request to the host, in seconds.
        adaptive_s: the interval that its slow answers ask for; 0 for none.
        leases: the requests under way, ordered by the end of their leases.
        waiting: how many requests wait in Redis, by process. Each process reserves only for the head of its line, so
            Redis does not know the others.
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
        """Parse a reply of ``status.lua``; raises ValueError for any other reply."""
        now, last, closed, why, adaptive, longest, *requests = reply
        read_wall, asked_wall, closed_wall = int(now) / _US, int(last) / _US, int(closed) / _US
        is_closed = closed_wall > read_wall
        leases, waiting = [], Counter[str]()
        for kind, ticket, words in zip(requests[::3], requests[1::3], requests[2::3], strict=True):
            owner = ticket.partition(".")[0]
            if kind == "queue":
                waiting[owner] += 1
            else:
                expiry, _, url = words.split(" ", 2)
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
    """A key under the prefix of a fleet that holds no host.

    Attributes:
        key: the key.
        error: the fault of the key, as a phrase.
    """

    key: str
    error: str


class FleetReader:
    """Reads the state of the hosts of a fleet.

    Args:
        fleet: the URL of its Redis, and its prefix.

    Raises:
        ConfigurationError: the URL is invalid.
    """

    def __init__(self, fleet: FleetOptions) -> None:
        self._wire = wire_to(fleet.url)
        self._prefix = fleet.prefix
        self._is_open = False

    async def scan(self) -> AsyncIterator[list[FleetHost | UnreadableKey]]:
        """Yield all hosts, in several lists.

        Raises:
            ConfigurationError: Redis refuses this client.
            ConnectionError: Redis is away.
        """
        pattern = f"{_GLOB.sub(lambda found: chr(92) + found[0], self._prefix)}*"
        keys = self._wire.keys(pattern, _SCANNED_AT_ONCE)
        found: dict[str, None] = {}
        ended = False
        while not ended:
            try:
                key = await self._bounded(anext(keys))
                if not key.removeprefix(self._prefix).startswith(_OTHERS):
                    found[key] = None
            except StopAsyncIteration:
                ended = True
            if len(found) >= _READ_AT_ONCE or (ended and found):
                yield await self._read(list(found))
                found.clear()

    async def find(self, names: Iterable[str]) -> list[FleetHost | UnreadableKey]:
        """Return the states of these hosts, addresses and domains; see ``scan``."""
        return await self._read([f"{self._prefix}{scope}:{name}" for name in names for scope in SCOPES])

    async def aclose(self) -> None:
        """Close the connections."""
        await self._bounded(self._wire.aclose())

    async def _read(self, keys: Sequence[str]) -> list[FleetHost | UnreadableKey]:
        found: list[FleetHost | UnreadableKey] = []
        hosts = []
        for key in keys:
            scope, _, name = key.removeprefix(self._prefix).partition(":")
            if name and scope in SCOPES:
                hosts.append((key, scope, name))
            else:
                found.append(UnreadableKey(key, "it is the key of no host"))
        if not self._is_open:
            await self._bounded(self._wire.open())
            self._is_open = True
        calls = [ScriptCall(Script.STATUS, key, ("", 0, 0)) for key, _, _ in hosts]
        replies = await self._bounded(self._wire.exchange(calls, {}))
        for (key, scope, name), reply in zip(hosts, replies, strict=True):
            host = _parsed(key, scope, name, reply)
            if host is not None:
                found.append(host)
        return found

    async def _bounded(self, work: Awaitable[T]) -> T:
        error: Exception
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                return await work
        except TimeoutError as late:
            error, why = late, f"no answer within {_TIMEOUT_S:g} s"
        except WireLost as lost:
            error, why = lost, str(lost)
        raise ConnectionError(f"Redis at {self._wire.name} is away: {why}") from error


def _parsed(key: str, scope: str, name: str, reply: Reply | Exception) -> FleetHost | UnreadableKey | None:
    """Parse the reply about a host; return None if its key is empty."""
    if isinstance(reply, Exception):
        return UnreadableKey(key, shortened(str(reply).removeprefix(_FOREIGN), _MOST_ERROR))
    try:
        host = FleetHost.of(scope, name, reply)
    except ValueError as error:
        return UnreadableKey(key, f"it holds no state of a host: {described(error)}")
    is_known = host.is_busy or host.asked_wall is not None or host.interval_s > 0.0
    return host if is_known else None
