"""redis-py, which not every installation has: the names of it that politesse uses."""

from __future__ import annotations

from politesse._text import needs_extra

try:
    from redis.asyncio import Redis, RedisCluster
    from redis.asyncio.cluster import ClusterNode
    from redis.asyncio.connection import parse_url
    from redis.asyncio.retry import Retry
    from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
    from redis.backoff import NoBackoff
    from redis.client import NEVER_DECODE
    from redis.exceptions import (
        AuthenticationError,
        AuthorizationError,
        ClusterDownError,
        MasterDownError,
        NoPermissionError,
        NoScriptError,
        OutOfMemoryError,
        ReadOnlyError,
        RedisClusterException,
        RedisError,
        ResponseError,
        TryAgainError,
    )
except ImportError as error:
    raise ImportError(f"{needs_extra('what processes share in a Redis', 'redis')} ({error})", name="redis") from error

__all__ = [
    "NEVER_DECODE",
    "AuthenticationError",
    "AuthorizationError",
    "ClusterDownError",
    "ClusterNode",
    "MasterDownError",
    "NoBackoff",
    "NoPermissionError",
    "NoScriptError",
    "OutOfMemoryError",
    "ReadOnlyError",
    "Redis",
    "RedisCluster",
    "RedisClusterException",
    "RedisError",
    "ResponseError",
    "Retry",
    "Sentinel",
    "SentinelConnectionPool",
    "TryAgainError",
    "parse_url",
]
