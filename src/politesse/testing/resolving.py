"""Addresses of host names without DNS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ScriptedResolver:
    """A Resolver that knows the names that the test tells it, and remembers what it was asked.

    Args:
        addresses: by host name; a name that is not there does not exist.

    Raises:
        ConfigurationError: for one address that stands where a list of them has to.

    Attributes:
        asked: every name that it was asked for, in order.
    """

    def __init__(self, addresses: Mapping[str, Sequence[str]]) -> None:
        for host, given in addresses.items():
            if isinstance(given, str):
                raise ConfigurationError(f"addresses of {host!r}: give a list, as in [{given!r}]")
        self.addresses = dict(addresses)
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        """Return the addresses of ``host``; raises OSError for a name that does not exist."""
        self.asked.append(host)
        if host not in self.addresses:
            raise OSError(f"{host}:{port} does not exist")
        return self.addresses[host]
