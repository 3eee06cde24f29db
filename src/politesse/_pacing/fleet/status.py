"""Reads the state of a fleet's hosts from Redis, without changing it; needs the extra ``redis``.

Theory of operation. SCAN finds the keys in steps, so that the server serves other clients between the steps. Each run
of ``status.lua`` reads one key. Up to 250 runs share a round trip. So the state of a host belongs to one moment, but
the states of two hosts may belong to different moments. SCAN may miss a host that comes or goes during the scan, and
may return a host twice while the table of the server grows.
"""

from __future__ import annotations

import re
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from politesse._base.text import described, shortened
from politesse._pacing.fleet.messages import VERSION, Reply, Script, ScriptCall, WireLost, bounded
from politesse._pacing.fleet.wire import wire_to
from politesse.verdict import Bound, utc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence

    from politesse._pacing.fleet.options import FleetOptions

T = TypeVar("T")
Record: TypeAlias = dict[str, Any]
"""A host as ``politesse fleet status --json`` prints it; or ``key`` and ``error``, if the key does not hold a host."""

SCOPES: Final = ("host", "address", "domain")
"""The kinds of keys; each key begins with the name of its kind."""

_ROSTER: Final = "{members"  # the keys of rosters, after the prefix
_SCANNED_AT_ONCE: Final = 1_000  # a step of SCAN reads this many keys; Redis serves other clients between the steps
_READ_AT_ONCE: Final = 250
_TIMEOUT_S: Final = 5.0  # a round trip may take at most this time
_FOREIGN: Final = "FOREIGN "  # the errors of our scripts begin with this word
_US: Final = 1e6
_GLOB: Final = re.compile(r"[*?\[\]\\^-]")


class FleetReader:
    """Reads the state of the hosts of a fleet.

    Args:
        fleet: the URL of its Redis, and its prefix.

    Raises:
        ConfigurationError: the URL is invalid.
    """

    def __init__(self, fleet: FleetOptions) -> None:
        self._wire = wire_to(fleet.url)
        self._prefix = fleet.prefix + VERSION
        self._is_open = False

    async def scan(self) -> AsyncIterator[list[Record]]:
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
                if not key.removeprefix(self._prefix).startswith(_ROSTER):
                    found[key] = None
            except StopAsyncIteration:
                ended = True
            if len(found) >= _READ_AT_ONCE or (ended and found):
                yield await self._read(list(found))
                found.clear()

    async def find(self, names: Iterable[str]) -> list[Record]:
        """Return the states of these hosts, addresses and domains; see ``scan``."""
        return await self._read([f"{self._prefix}{scope}:{name}" for name in names for scope in SCOPES])

    async def aclose(self) -> None:
        """Close the connections."""
        await self._bounded(self._wire.aclose())

    async def _read(self, keys: Sequence[str]) -> list[Record]:
        found: list[Record] = []
        hosts = []
        for key in keys:
            scope, _, name = key.removeprefix(self._prefix).partition(":")
            if name and scope in SCOPES:
                hosts.append((key, scope, name))
            else:
                found.append({"key": key, "error": "it is the key of no host"})
        if not self._is_open:
            await self._bounded(self._wire.open())
            self._is_open = True
        calls = [ScriptCall(Script.STATUS, (key,), ()) for key, _, _ in hosts]
        replies = await self._bounded(self._wire.exchange(calls, ()))
        for (key, scope, name), reply in zip(hosts, replies, strict=True):
            host = _parsed(key, scope, name, reply)
            if host is not None:
                found.append(host)
        return found

    async def _bounded(self, work: Awaitable[T]) -> T:
        try:
            return await bounded(work, _TIMEOUT_S)
        except WireLost as lost:
            raise ConnectionError(f"Redis at {self._wire.name} is away: {lost}") from lost


def _parsed(key: str, scope: str, name: str, reply: Reply | Exception) -> Record | None:
    """Parse the reply about a host; return None if its key is empty."""
    if isinstance(reply, Exception):
        return {"key": key, "error": shortened(str(reply).removeprefix(_FOREIGN))}
    try:
        host = _host(scope, name, reply)
    except ValueError as error:
        return {"key": key, "error": f"it holds no state of a host: {described(error)}"}
    return host if any(host[name] for name in ("leases", "waiting", "closed_until", "asked", "interval_s")) else None


def _host(scope: str, name: str, reply: Sequence[str]) -> Record:
    """Parse a reply of ``status.lua``; raises ValueError for any other reply.

    All times are by the clock of Redis. ``asked``, the time of the last request, is in the future if the next start is
    granted already. ``leases`` are the requests under way, ordered by the end of their leases. If the process of a
    request is gone, its lease ends in ``left_s`` seconds. ``waiting`` names the process that has waited for the longest
    time. Redis does not know the others.
    """
    now, last, closed, why, adaptive, longest, claimer, *requests = reply
    read_wall, asked_wall, closed_wall = int(now) / _US, int(last) / _US, int(closed) / _US
    is_closed = closed_wall > read_wall
    leases = list[Record]()
    for ticket, expiry, url in zip(requests[::3], requests[1::3], requests[2::3], strict=True):
        left_s = round(max(0.0, int(expiry) / _US - read_wall), 3)
        leases.append({"owner": ticket.partition(".")[0], "url": url, "left_s": left_s})
    return {
        "host": name,
        "scope": scope,
        "asked": utc(asked_wall) if asked_wall else None,
        "closed_until": utc(closed_wall) if is_closed else None,
        "closed_by": Bound(why) if is_closed else None,
        "interval_s": round(int(longest) / _US, 3),
        "adaptive_s": round(int(adaptive) / _US, 3),
        "leases": sorted(leases, key=itemgetter("left_s")),
        "waiting": {claimer: 1} if claimer else {},
    }
