"""Clients of Redis by URL.

======================================================  ==============================================================
``redis://user:password@host:6379/0``                   one server
``rediss://...``                                        the same by TLS
``unix:///path/of/socket?db=0``                         the same by a socket of this machine
``redis+sentinel://host:26379,host2:26379/service/0``   the server that Sentinels name for a service
``redis+cluster://host:6379,host2:6379``                a cluster, of which these nodes are asked first
======================================================  ==============================================================

``rediss+sentinel`` and ``rediss+cluster`` are the same by TLS. The query may hold options of redis-py's connections, as
``?ssl_ca_certs=/path/of/ca.pem``. User and password are those of the Redis servers; those of Sentinels are the options
``sentinel_username`` and ``sentinel_password``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit, urlunsplit

from politesse._redis.library import (
    ClusterNode,
    NoBackoff,
    Redis,
    RedisCluster,
    RedisClusterException,
    Retry,
    Sentinel,
    SentinelConnectionPool,
    parse_url,
)
from politesse._text import described
from politesse.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

Client = TypeVar("Client")

_WANTED: Final = "give a URL, as 'redis://host:6379/0', 'rediss://' or 'unix://'"
_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379
_SENTINEL_OPTION: Final = "sentinel_"


class _Location(NamedTuple):
    """The parts of the URL of Sentinels, or of the nodes of a cluster.

    Attributes:
        hosts: with their ports.
        path: the first part of the path; empty if there is none.
        options: what redis-py makes of the rest.
    """

    hosts: list[tuple[str, int]]
    path: str
    options: dict[str, Any]


def redis_client(
    url: str,
    *,
    argument: str,
    retries: int = 0,
    timeout_s: float | None = None,
    max_connections: int | None = None,
) -> Redis:
    """Return a client of the server at a URL; it connects when it is used.

    Args:
        url: see the module.
        argument: its name in errors.
        retries: how often a command is sent again after its connection was lost.
        timeout_s: how long it may take to connect; None for what redis-py takes by default, for a reply as well. The
            caller bounds the wait for a reply otherwise.
        max_connections: how many it opens; redis-py refuses further calls. None for its default.

    Raises:
        ConfigurationError: it is no such URL.
    """
    options = _options(retries, timeout_s, max_connections)
    return _made(lambda: _redis_client(url, options), url, argument)


def cluster_client(
    url: str,
    *,
    argument: str,
    retries: int = 0,
    timeout_s: float | None = None,
    max_connections: int | None = None,
) -> RedisCluster:
    """Return a client of the cluster of which nodes are at a URL, by its scheme a cluster or one server.

    Arguments and errors are those of ``redis_client``; ``max_connections`` counts for each node.
    """
    options = _options(retries, timeout_s, max_connections)
    return _made(lambda: _cluster_client(url, options), url, argument)


async def close_client(client: Redis | RedisCluster) -> None:
    """Close all its connections; raises what redis-py raises where one cannot be closed in time."""
    if isinstance(client, RedisCluster):
        await client.aclose()
        # It closes nothing while it is not initialized, as after the loss of a node; but calls to other nodes that were
        # under way at the loss may have connected since.
        for nodes in ("nodes_cache", "startup_nodes"):
            await client.nodes_manager.aclose(nodes)
        return
    await client.aclose()
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        await pool.sentinel_manager.aclose()


def is_cluster(url: str) -> bool:
    """Return whether a URL names a cluster."""
    return url.partition("://")[0].endswith("+cluster")


def name_of(client: Redis | RedisCluster) -> str:
    """Return the address of a server without a password; of a cluster, those of the nodes that are known."""
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


def _made(make: Callable[[], Client], url: str, argument: str) -> Client:
    scheme, _, rest = url.partition("://")
    problem = "it is no URL"
    try:
        if rest:
            return make()
    except (ValueError, TypeError, RedisClusterException) as error:
        problem = described(error)
    shown = f"{scheme}://..." if rest else "..."  # the rest may hold a password
    raise ConfigurationError(f"{argument}={shown!r:.50}: {_WANTED} ({problem})")


def _redis_client(url: str, options: dict[str, Any]) -> Redis:
    kind = urlsplit(url).scheme.partition("+")[2]
    if kind == "sentinel":
        client = _sentinel_client(url, options)
    elif kind:
        raise ValueError(f"no single server has a URL with +{kind}")
    else:
        parts = urlsplit(url)
        if parts.scheme != "unix":
            _check_database(parts.path)
        client = Redis.from_url(url, **options)
    # Nothing is sent: an option that is not known raises here.
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


def _cluster_client(url: str, options: dict[str, Any]) -> RedisCluster:
    if not is_cluster(url):
        return RedisCluster.from_url(url, **options)
    hosts, _, stated = _location(url, _PORT)
    nodes = [ClusterNode(host, port) for host, port in hosts]
    return RedisCluster(startup_nodes=nodes, **{**options, **stated})


def _options(retries: int, timeout_s: float | None, max_connections: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {"retry": Retry(NoBackoff(), retries)}
    if timeout_s is not None:
        options |= {"socket_connect_timeout": timeout_s, "socket_timeout": None}
    if max_connections is not None:
        options["max_connections"] = max_connections
    return options


def _location(url: str, port: int) -> _Location:
    parts = urlsplit(url)
    credentials, at, hosts = parts.netloc.rpartition("@")
    split = [urlsplit(f"//{host}") for host in hosts.split(",")]
    if not all(host.hostname for host in split):
        raise ValueError("a host is missing")
    name, _, database = parts.path.strip("/").partition("/")
    if not parts.scheme.endswith("+sentinel"):
        name, database = "", name
    _check_database(database)
    scheme = parts.scheme.partition("+")[0]
    options: dict[str, Any] = {**parse_url(urlunsplit((scheme, f"{credentials}{at}host", database, parts.query, "")))}
    del options["host"]
    if options.pop("connection_class", None) is not None:
        options["ssl"] = True
    return _Location([(host.hostname or "", host.port or port) for host in split], name, options)


def _check_database(path: str) -> None:
    database = path.strip("/")
    if database and not (database.isascii() and database.isdigit()):  # redis-py would take 0
        raise ValueError(f"{database!r:.50} is no number of a database")
