"""Where ``explain`` and ``lint`` have a robots.txt from: a file, standard input, or its server."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from politesse import AiohttpFetcher, FetchOptions, Gatekeeper
from politesse.cli.asking import CONNECT_TIMEOUT_S, USER_AGENT, no_impersonation
from politesse.fetch.options import MIN_BODY_BYTES
from politesse.ports import FetchResponse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from politesse import AgentView, Dialect
    from politesse.cli.asking import Asking
    from politesse.ports import FetchRequest, FetchResult

MAX_READ_BYTES: Final = 4 * 1024 * 1024
"""How much of a file is read: more than any crawler reads, to tell what lies beyond that."""

STANDARD_INPUT: Final = "-"


def read_file(name: str) -> bytes:
    """Return a file, ``-`` for standard input, or its first MAX_READ_BYTES; raises OSError."""
    if name == STANDARD_INPUT:
        return sys.stdin.buffer.read(MAX_READ_BYTES)
    with Path(name).open("rb") as file:
        return file.read(MAX_READ_BYTES)


class OneFetch:
    """A Fetcher that asks one site once, and repeats the answer to whichever gate asks again.

    Args:
        asking: how long it may take.
        max_body_bytes: as in FetchOptions.

    Attributes:
        result: the answer; None before the first question.
    """

    def __init__(self, asking: Asking, *, max_body_bytes: int = MIN_BODY_BYTES) -> None:
        options = FetchOptions(
            connect_timeout_s=min(CONNECT_TIMEOUT_S, asking.timeout_s),
            total_timeout_s=asking.timeout_s,
            max_body_bytes=max_body_bytes,
        )
        self._fetcher = AiohttpFetcher(USER_AGENT, options)
        self.result: FetchResult | None = None

    @property
    def body(self) -> bytes:
        """The file; empty where there is none."""
        return self.result.body if isinstance(self.result, FetchResponse) else b""

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Ask, the first time."""
        if self.result is None:
            self.result = await self._fetcher.fetch(request)
        return self.result

    async def aclose(self) -> None:
        """Let go of connections."""
        await self._fetcher.aclose()

    @asynccontextmanager
    async def gate(self, asking: Asking, dialect: Dialect) -> AsyncGenerator[AgentView, None]:
        """Open a gate that judges in a dialect by the one answer."""
        async with Gatekeeper(USER_AGENT, dialect=dialect, fetcher=self) as gate:
            with no_impersonation():
                view = gate.agent(tokens=asking.token)
            yield view
