"""Lets a transport of httpx or httpx2 connect only to public addresses. This module imports neither library.

Theory of operation. A check before the request would not be safe: to connect, httpcore resolves the name again, and the
name may then have another address (DNS rebinding). So the check is a part of connecting. The connection pool of
httpcore opens its connections through a network backend. ``PinnedBackend`` wraps that backend: it resolves the name
itself, checks the addresses, and passes only checked addresses on. Such an address is an IP literal, which needs no
lookup. The Host header, the TLS server name and the key of the pool still come from the URL. A pooled connection keeps
its address, so a request over a pooled connection needs no check.

Transports with a proxy or a Unix socket are refused: a proxy resolves the names itself, and a Unix socket has no
address. Transports without a pool, and transports that may have open connections, are also refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from politesse.errors import ConfigurationError
from politesse.fetch._addresses import OnlyPrivateAddresses, PublicResolver

if TYPE_CHECKING:
    import httpcore
    import httpcore2

    Backend = httpcore.AsyncNetworkBackend | httpcore2.AsyncNetworkBackend
    Stream = httpcore.AsyncNetworkStream | httpcore2.AsyncNetworkStream


class Core(NamedTuple):
    """The classes of httpcore or httpcore2 that the guard needs."""

    pool: type[httpcore.AsyncConnectionPool | httpcore2.AsyncConnectionPool]
    error: type[Exception]
    timeout: type[Exception]


def pin_addresses(sender: object, resolver: PublicResolver | None, core: Core) -> None:
    """Let ``sender``, a transport, connect only to the public addresses that ``resolver`` finds.

    Raises:
        ConfigurationError: ``resolver`` is None, or the addresses behind ``sender`` cannot be checked.
    """
    if resolver is None:
        raise ConfigurationError(
            "private_addresses='deny': the gate would request robots.txt from private addresses; create it with "
            "Gatekeeper(..., fetch=FetchOptions(private_addresses='deny'))"
        )
    pool = getattr(sender, "_pool", None)  # neither library gives public access to its network backend
    if type(pool) is not core.pool or getattr(pool, "_proxy", None) or pool._uds or pool.connections:  # noqa: SLF001
        raise ConfigurationError(
            f"private_addresses='deny': the addresses behind wraps={sender!r:.100} cannot be checked; give a new "
            "AsyncHTTPTransport without a proxy and without uds="
        )
    guard = PinnedBackend(pool._network_backend, resolver, core)  # noqa: SLF001
    pool._network_backend = guard  # type: ignore[assignment]  # noqa: SLF001 - it has the methods that a pool calls


class PinnedBackend:
    """A network backend that looks a name up once, and connects to the public addresses that it has found.

    Args:
        backend: opens the connections.
        resolver: finds and checks the addresses.
        core: has the classes of the errors that the pool expects.
    """

    def __init__(self, backend: Backend, resolver: PublicResolver, core: Core) -> None:
        self._backend = backend
        self._resolver = resolver
        self._core = core

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - of httpcore
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> Stream:
        """Connect to the first public address of ``host`` that answers; each address gets an equal part of the time.

        Raises:
            OnlyPrivateAddresses: ``host`` has private addresses only.
        """
        try:
            async with asyncio.timeout(timeout):
                *others, last = await self._resolver.public_addresses(host, port)
                part_s = None if timeout is None else timeout / (len(others) + 1)
                for address in others:
                    with suppress(self._core.error, self._core.timeout):
                        return await self._backend.connect_tcp(address, port, part_s, local_address, socket_options)
                return await self._backend.connect_tcp(last, port, timeout, local_address, socket_options)
        except OnlyPrivateAddresses:
            raise
        except TimeoutError:
            raise self._core.timeout(f"{host}: no connection within {timeout} s") from None
        except (OSError, ValueError) as error:  # a lookup raises UnicodeError for a label that is too long
            raise self._core.error(str(error)) from error

    async def sleep(self, seconds: float) -> None:
        """Wait before the next attempt to connect."""
        await self._backend.sleep(seconds)
