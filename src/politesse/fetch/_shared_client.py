"""The client session that all fetches of a fetcher share, one for each event loop.

The session has no state of a fetch. A context variable holds the guard of the fetch, which is the resolver of the
connector. Each fetch has its own time limits, and leaves no cookie and no open connection behind.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING

import aiohttp

from politesse.fetch._addresses import AddressGuard, CurrentGuard
from politesse.fetch._lookups import SystemResolver
from politesse.fetch._wire import MAX_HEAD_BYTES, MAX_HEADERS, WatchedResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from politesse.fetch._options import FetchOptions


class SharedClient:
    """Creates a session at the first fetch in an event loop, and again after ``aclose``.

    Args:
        options: proxy and TLS settings.
        headers: the headers of each request.
        session: the session whose connector is borrowed; None for a connector that checks addresses.
    """

    def __init__(
        self, options: FetchOptions, headers: Mapping[str, str], session: aiohttp.ClientSession | None
    ) -> None:
        self._options = options
        self._headers = headers
        self._session = session
        self._clients: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}
        # aiohttp warns of an unclosed session. Between fetches ours holds no connection.
        weakref.finalize(self, _detach, self._clients)

    def get(self) -> aiohttp.ClientSession:
        """Return the session of the running event loop."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None or client.closed:
            for ended in [known for known in self._clients if known.is_closed()]:
                self._clients.pop(ended).detach()
            client = self._clients[loop] = self._create()
        return client

    async def aclose(self) -> None:
        """Close the session of the running event loop, with all connections."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def _create(self) -> aiohttp.ClientSession:
        connector: aiohttp.BaseConnector | None
        if self._session is not None:
            connector = self._session.connector
        else:
            connector = aiohttp.TCPConnector(
                # A proxy may have a private address, and resolves the names of sites itself.
                resolver=(
                    CurrentGuard()
                    if self._options.proxy is None
                    else AddressGuard(SystemResolver(), private_addresses="allow")
                ),
                use_dns_cache=False,
                force_close=True,
                limit=0,  # the gate has limits of its own, and a fetch waits for no other one here
                ssl=self._options.ssl_context or True,
            )
        client = aiohttp.ClientSession(
            connector=connector,
            connector_owner=self._session is None,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            trust_env=False,
            auto_decompress=False,  # aiohttp takes a truncated gzip body for a complete one
            middlewares=(),
            response_class=WatchedResponse,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            max_headers=MAX_HEADERS,
        )
        if self._session is None:
            # Otherwise aiohttp requests twice if a server closes without a response. A borrowed connector reuses
            # connections, and the server may have closed one in the meantime, so the second try stays there.
            client._retry_connection = False  # noqa: SLF001 - as aiohttp's own TestClient does
        return client


def _detach(clients: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession]) -> None:
    for client in clients.values():
        if not client.closed:
            client.detach()
