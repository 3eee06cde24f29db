"""Addresses of host names without DNS."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ScriptedResolver:
    """A Resolver that knows the names that the test tells it, and remembers what it was asked.

    Args:
        addresses: by host name; a name that is not there does not exist.

    Attributes:
        asked: every name that it was asked for, in order.
    """

    def __init__(self, addresses: Mapping[str, Sequence[str]]) -> None:
        self.addresses = dict(addresses)
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        """Return the addresses of ``host``; raises OSError for a name that does not exist."""
        self.asked.append(host)
        if host not in self.addresses:
            raise OSError(f"{host}:{port} does not exist")
        return self.addresses[host]
