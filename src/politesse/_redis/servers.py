"""What a server answers: its errors, its memory, its text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from politesse._redis.library import (
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    TryAgainError,
)
from politesse._text import described
from politesse.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

FAILURES: Final = (RedisError, RedisClusterException, OSError)
"""All that redis-py raises for a server that is away, refuses, or answers with an error."""

REFUSED: Final = (AuthenticationError, AuthorizationError, NoPermissionError)
"""The errors of a server that does not want this client."""

_AWAY: Final = (ReadOnlyError, MasterDownError, ClusterDownError, TryAgainError, OutOfMemoryError)
_AWAY_WORDS: Final = ("MISCONF", "BUSY", "UNKILLABLE", "NOREPLICAS", "OOM", "READONLY", "Script killed by user")
_REFUSING_WORDS: Final = ("NOPERM", "The user executing the script can't", "ACL failure in script")
_IN_SCRIPT: Final = re.compile(r".*@user_script: ?\d+: -?", re.DOTALL)
_MODES: Final = {"cluster": "a node of a cluster", "sentinel": "a Sentinel"}


def is_away(error: Exception) -> bool:
    """Return whether the error with which a server answers says that it cannot serve now, whatever was asked of it."""
    return isinstance(error, _AWAY) or said(error).startswith(_AWAY_WORDS)


def is_refusal(error: Exception) -> bool:
    """Return whether the error with which a server answers says that it does not want this client."""
    return isinstance(error, REFUSED) or said(error).startswith(_REFUSING_WORDS)


def said(error: Exception) -> str:
    """Return what a server answers; a Redis before 7 wraps what a command of a script was answered."""
    return _IN_SCRIPT.sub("", str(error), count=1)


def refused(name: str, error: Exception) -> ConfigurationError:
    """Return the error for a server that does not want this client."""
    return ConfigurationError(f"Redis at {name} refuses this client: {described(error)}")


def check_mode(name: str, server: Mapping[str, object]) -> None:
    """Raise ConfigurationError for a server that cannot be used by itself.

    Args:
        name: of the server.
        server: the section ``server`` of its INFO.
    """
    mode = str(server.get("redis_mode", ""))
    if mode in _MODES:
        raise ConfigurationError(f"Redis at {name} is {_MODES[mode]}: give a URL that begins with redis+{mode}://")


def check_memory(name: str, memory: Mapping[str, object]) -> None:
    """Raise ConfigurationError for a server that may forget keys before they expire.

    Args:
        name: of the server.
        memory: the section ``memory`` of its INFO.
    """
    policy = memory.get("maxmemory_policy", "noeviction")
    if str(memory.get("maxmemory", "0")) != "0" and policy != "noeviction":
        raise ConfigurationError(
            f"Redis at {name} has maxmemory-policy {policy}: it would forget which hosts are busy or closed. "
            "Set maxmemory-policy noeviction"
        )


def text_of(value: object) -> str:
    """Return what Redis answers as text, which redis-py decodes or not."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
