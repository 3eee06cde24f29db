import importlib
import sys

import pytest
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection
from redis.asyncio.sentinel import SentinelConnectionPool, SentinelManagedSSLConnection

from politesse._redis import Redis, RedisCluster, client_of, is_cluster, name_of
from politesse.errors import ConfigurationError


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://example.com", "redis://example.com:6379/0"),
        ("redis://user:secret@example.com:7000/3", "redis://example.com:7000/3"),
        ("redis://:secret@[2001:db8::1]:7000/3", "redis://[2001:db8::1]:7000/3"),
        ("rediss://example.com/", "redis://example.com:6379/0"),
        ("unix:///run/redis.sock?db=2&password=secret", "unix:///run/redis.sock"),
        ("redis+sentinel://:secret@a.example,b.example:26380/crawl/1", "the Redis 'crawl' of a Sentinel"),
    ],
)
def test_the_name_of_a_server_holds_no_password(url: str, name: str) -> None:
    assert name_of(client_of(url, argument="url")) == name


def redis_client(url: str) -> Redis:
    client = client_of(url, argument="url")
    assert isinstance(client, Redis)
    return client


def test_a_url_says_how_to_connect() -> None:
    assert redis_client("rediss://example.com").connection_pool.connection_class is SSLConnection
    unix = redis_client("unix:///run/redis.sock?db=2").connection_pool
    assert unix.connection_class is UnixDomainSocketConnection
    assert unix.connection_kwargs["db"] == 2


def test_sentinels_are_asked_for_their_service() -> None:
    url = "rediss+sentinel://user:secret@a.example,[2001:db8::2]:26380/crawl/1?sentinel_password=other"
    pool = redis_client(url).connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    assert pool.service_name == "crawl"
    assert pool.connection_class is SentinelManagedSSLConnection
    kwargs = pool.connection_kwargs
    assert (kwargs["username"], kwargs["password"], kwargs["db"]) == ("user", "secret", 1)
    found = [sentinel.connection_pool for sentinel in pool.sentinel_manager.sentinels]
    assert [(of.connection_kwargs["host"], of.connection_kwargs["port"]) for of in found] == [
        ("a.example", 26379),
        ("2001:db8::2", 26380),
    ]
    assert {of.connection_kwargs["password"] for of in found} == {"other"}
    assert {of.connection_class for of in found} == {SSLConnection}


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("redis+cluster://192.0.2.1:7000,192.0.2.2", ["192.0.2.1:7000", "192.0.2.2:6379"]),
        ("rediss+cluster://:secret@192.0.2.1/0", ["192.0.2.1:6379"]),
    ],
)
def test_a_cluster_is_known_by_some_of_its_nodes(url: str, names: list[str]) -> None:
    client = client_of(url, argument="url")
    assert isinstance(client, RedisCluster)
    assert sorted(client.nodes_manager.startup_nodes) == names
    assert name_of(client) == "redis://" + ",".join(names)  # it has asked none yet


def test_only_the_scheme_of_a_cluster_names_a_cluster() -> None:
    assert is_cluster("redis+cluster://example.com")
    assert is_cluster("rediss+cluster://example.com")
    assert not is_cluster("redis://example.com/?x=+cluster")
    assert not is_cluster("redis+sentinel://example.com/crawl")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "it is no URL"),
        ("secret", "it is no URL"),
        ("http://secret@example.com", "must specify one of the following schemes"),
        ("redis://secret@example.com:port", "Port could not be cast"),
        ("redis://secret@example.com:70000", "Port out of range"),
        ("redis://secret@example.com/crawl", "'crawl' is no number of a database"),
        ("redis://secret@example.com?socket_timeout=secret", "Invalid value for 'socket_timeout'"),
        ("redis://secret@example.com?pace=1", "unexpected keyword argument 'pace'"),
        ("redis+sentinel://secret@example.com", "the service is missing"),
        ("redis+sentinel://secret@example.com,/crawl", "a host is missing"),
        ("redis+sentinel://secret@example.com/crawl/first", "'first' is no number of a database"),
        ("redis+sentinel://secret@example.com/crawl?pace=1", "unexpected keyword argument 'pace'"),
        ("http+cluster://secret@192.0.2.1", "must specify one of the following schemes"),
        ("redis+cluster://secret@192.0.2.1/1", "'db' must be 0"),
        ("redis+cluster://secret@192.0.2.1?pace=1", "unexpected keyword argument 'pace'"),
    ],
)
def test_what_is_no_url_of_a_server_is_refused_without_its_secrets(url: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^fleet=.*{problem}") as caught:
        client_of(url, argument="fleet")
    assert "secret" not in str(caught.value)


def test_without_redis_py_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "redis" or name.startswith("redis.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "politesse._redis", raising=False)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ImportError, match=r"needs the extra 'redis'.*pip install '\.\[redis\]'"):
        importlib.import_module("politesse._redis")
