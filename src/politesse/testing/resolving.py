"""Addresses of host names without DNS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ScriptedResolver:
    """A Resolver whose addresses the test writes, and that records the lookups.

    Example:
        >>> import asyncio
        >>> resolver = ScriptedResolver({"example.com": ["192.0.2.1"]})
        >>> asyncio.run(resolver.resolve("example.com", 443))
        ['192.0.2.1']
        >>> resolver.asked
        ['example.com']

    Args:
        addresses: by host name; any other name does not exist.

    Raises:
        ConfigurationError: an address is given where a list of addresses is needed.

    Attributes:
        asked: every name that was looked up, in order.
    """

    def __init__(self, addresses: Mapping[str, Sequence[str]]) -> None:
        for host, given in addresses.items():
            if isinstance(given, str):
                raise ConfigurationError(f"addresses of {host!r}: give a list, as in [{given!r}]")
        self.addresses = dict(addresses)
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        """Return the addresses of ``host``.

        Raises:
            OSError: the name does not exist.
        """
        self.asked.append(host)
        if host not in self.addresses:
            raise OSError(f"{host}:{port} does not exist")
        return self.addresses[host]
