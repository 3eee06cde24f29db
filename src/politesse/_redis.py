"""Uses redis-py for fleets and RedisStore: makes clients from URLs, explains errors, and checks servers.

Only this module imports redis-py, an optional dependency, so that one message reports its absence.

======================================================  ==============================================================
``redis://user:password@host:6379/0``                   one server
``rediss://...``                                        the same over TLS
``unix:///path/of/socket?db=0``                         the same over a socket of this machine
``redis+sentinel://host:26379,host2:26379/service/0``   the server that Sentinels name for a service
``redis+cluster://host:6379,host2:6379``                a cluster, and the nodes to ask first
======================================================  ==============================================================

``rediss+sentinel`` and ``rediss+cluster`` are the same over TLS. The query may hold options of redis-py's connections,
such as ``?ssl_ca_certs=/path/of/ca.pem``. User and password are for the Redis servers. The options
``sentinel_username`` and ``sentinel_password`` are for the Sentinels.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from politesse._base.text import described, needing
from politesse.errors import ConfigurationError

with needing("what processes share in a Redis", "redis"):
    from redis import exceptions
    from redis.asyncio import Redis, RedisCluster
    from redis.asyncio.cluster import ClusterNode
    from redis.asyncio.connection import parse_url
    from redis.asyncio.retry import Retry
    from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
    from redis.backoff import NoBackoff
    from redis.client import NEVER_DECODE
    from redis.driver_info import DriverInfo
    from redis.exceptions import NoScriptError, RedisClusterException, RedisError, ResponseError


__all__ = ["NEVER_DECODE", "NoBackoff", "NoScriptError", "Redis", "RedisCluster", "ResponseError", "Retry"]

FAILURES: Final = (RedisError, RedisClusterException, OSError)
"""All errors of redis-py for a server that is away, refuses, or answers with an error."""

_DRIVER: Final = DriverInfo()  # redis-py would read its version from a file for each connection
_WANTED: Final = "give a URL, as 'redis://host:6379/0', 'rediss://' or 'unix://'"
_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379
_SENTINEL_OPTION: Final = "sentinel_"
_REFUSED: Final = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)
_REFUSING_WORDS: Final = ("NOPERM", "The user executing the script can't", "ACL failure in script")
_AWAY: Final = (
    exceptions.ReadOnlyError,
    exceptions.MasterDownError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
    exceptions.OutOfMemoryError,
    NoScriptError,
)
_AWAY_WORDS: Final = ("MISCONF", "BUSY", "UNKILLABLE", "NOREPLICAS", "OOM", "READONLY", "Script killed by user")
_IN_SCRIPT: Final = re.compile(r".*@user_script: ?\d+: -?", re.DOTALL)
_MODES: Final = {"cluster": "a node of a cluster", "sentinel": "a Sentinel"}


# Clients


def client_of(url: str, *, argument: str, retries: int = 0, **options: float | None) -> Redis | RedisCluster:
    """Return a client of the server or cluster at a URL; it connects when it is used.

    Args:
        url: see the module.
        argument: the name of the URL in errors.
        retries: how many times a command is sent again after its connection was lost.
        options: options of redis-py; options in the URL replace these.

    Raises:
        ConfigurationError: the URL has none of the forms that the module lists.
    """
    scheme, _, rest = url.partition("://")
    problem = "it is no URL"
    try:
        if rest:
            # With a ``socket_timeout`` redis-py sends with ``asyncio.wait_for``, which loses a cancellation in
            # Python 3.11. Each call has its own limit.
            fixed = {"retry": Retry(NoBackoff(), retries), "driver_info": _DRIVER, "socket_timeout": None}
            return _client_of(url, {**fixed, **options})
    except (ValueError, TypeError, RedisClusterException) as error:
        problem = described(error)
    shown = f"{scheme}://..." if rest else "..."  # the rest of the URL may hold a password
    raise ConfigurationError(f"{argument}={shown!r:.50}: {_WANTED} ({problem})")


def is_cluster(url: str) -> bool:
    """Return whether a URL names a cluster."""
    return url.partition("://")[0].endswith("+cluster")


async def close_client(client: Redis | RedisCluster) -> None:
    """Close all connections of a client; raises the error of redis-py if a connection cannot be closed in time."""
    await client.aclose()
    if isinstance(client, RedisCluster):
        # After the loss of a node, redis-py counts the client as closed, and its aclose does nothing. But calls under
        # way may have connected to other nodes since then.
        for nodes in ("nodes_cache", "startup_nodes"):
            await client.nodes_manager.aclose(nodes)
    elif isinstance(client.connection_pool, SentinelConnectionPool):
        # redis-py 8.0 has no ``Sentinel.aclose``.
        closing = [sentinel.aclose() for sentinel in client.connection_pool.sentinel_manager.sentinels]
        for error in await asyncio.gather(*closing, return_exceptions=True):  # one that fails leaves none open
            if error is not None:
                raise error


def name_of(client: Redis | RedisCluster) -> str:
    """Return the address of a server, or of the known nodes of a cluster, without a password."""
    if isinstance(client, RedisCluster):
        nodes = client.get_nodes() or client.nodes_manager.startup_nodes.values()
        return "redis://" + ",".join(sorted(node.name for node in nodes))
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        return f"the Redis {pool.service_name!r} of a Sentinel"
    kwargs = pool.connection_kwargs
    if path := kwargs.get("path"):
        return f"unix://{path}"
    host, port, db = kwargs.get("host", "localhost"), kwargs.get("port", _PORT), kwargs.get("db", 0)
    shown = f"[{host}]" if ":" in host else host
    return f"redis://{shown}:{port}/{db}"


def _client_of(url: str, options: dict[str, Any]) -> Redis | RedisCluster:
    parts = urlsplit(url)
    kind = parts.scheme.partition("+")[2]
    if kind == "cluster":
        hosts, _, stated = _location(url, _PORT)
        return RedisCluster(startup_nodes=[ClusterNode(*host) for host in hosts], **{**options, **stated})
    if kind == "sentinel":
        client = _sentinel_client(url, options)
    else:
        if parts.scheme != "unix":
            _check_database(parts.path)
        client = Redis.from_url(url, **options)
    # This call sends no command, but raises an error if an option is unknown.
    client.connection_pool.make_connection()  # type: ignore[no-untyped-call] # redis-py gives it no types
    return client


def _sentinel_client(url: str, options: dict[str, Any]) -> Redis:
    hosts, service, stated = _location(url, _SENTINEL_PORT)
    if not service:
        raise ValueError("the service is missing, as in redis+sentinel://host:26379/service/0")
    of_sentinels = {
        name.removeprefix(_SENTINEL_OPTION): stated.pop(name)
        for name in [name for name in stated if name.startswith(_SENTINEL_OPTION)]
    }
    options = {**options, **stated}
    of_sentinels |= {name: value for name, value in options.items() if name.startswith(("socket_", "ssl", "retry"))}
    sentinel = Sentinel(hosts, sentinel_kwargs=of_sentinels)  # type: ignore[no-untyped-call] # as above
    client: Redis = sentinel.master_for(service, **options)
    return client


def _location(url: str, port: int) -> tuple[list[tuple[str, int]], str, dict[str, Any]]:
    """Return the hosts and ports of a URL, the name of its service, and its other parts as redis-py parses them."""
    parts = urlsplit(url)
    credentials, at, hosts = parts.netloc.rpartition("@")
    split = [urlsplit(f"//{host}") for host in hosts.split(",")]
    if not all(host.hostname for host in split):
        raise ValueError("a host is missing")
    service, _, database = parts.path.strip("/").partition("/")
    if not parts.scheme.endswith("+sentinel"):
        service, database = "", service
    _check_database(database)
    scheme = parts.scheme.partition("+")[0]
    options: dict[str, Any] = {**parse_url(urlunsplit((scheme, f"{credentials}{at}host", database, parts.query, "")))}
    del options["host"]
    if options.pop("connection_class", None) is not None:
        options["ssl"] = True
    return [(host.hostname or "", host.port or port) for host in split], service, options


def _check_database(path: str) -> None:
    database = path.strip("/")
    if database and not (database.isascii() and database.isdigit()):  # redis-py would use the database 0 instead
        raise ValueError(f"{database!r:.50} is no number of a database")


# Answers of a server


def is_away(error: Exception) -> bool:
    """Return whether an error means that the server cannot serve any call now, or has forgotten the scripts."""
    return isinstance(error, _AWAY) or said(error).startswith(_AWAY_WORDS)


def is_refusal(error: Exception) -> bool:
    """Return whether an error of a server means that it refuses this client."""
    return isinstance(error, _REFUSED) or said(error).startswith(_REFUSING_WORDS)


def said(error: Exception) -> str:
    """Return the text of an error, without the text that Redis 6 adds to the errors of a script."""
    return _IN_SCRIPT.sub("", str(error), count=1)


def refused(name: str, error: Exception) -> ConfigurationError:
    """Return the error for a server that refuses this client."""
    return ConfigurationError(f"Redis at {name} refuses this client: {described(error)}")


def check_mode(name: str, server: Mapping[str, object]) -> None:
    """Raise ConfigurationError if this section of INFO comes from a Sentinel or a node of a cluster."""
    mode = str(server.get("redis_mode", ""))
    if mode in _MODES:
        raise ConfigurationError(f"Redis at {name} is {_MODES[mode]}: give a URL that begins with redis+{mode}://")


def check_memory(name: str, memory: Mapping[str, object]) -> None:
    """Raise ConfigurationError if the section of INFO shows that the server ``name`` may evict keys."""
    policy = memory.get("maxmemory_policy", "noeviction")
    if str(memory.get("maxmemory", "0")) != "0" and policy != "noeviction":
        raise ConfigurationError(
            f"Redis at {name} has maxmemory-policy {policy}: it would forget which hosts are busy or closed. "
            "Set maxmemory-policy noeviction"
        )


def text_of(value: object) -> str:
    """Return a reply of Redis as text; redis-py may have decoded it."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
