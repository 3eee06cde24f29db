"""Where ``explain`` and ``lint`` read a robots.txt from: a file, standard input, or its server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from politesse import AiohttpFetcher
from politesse.cli.gate_options import USER_AGENT
from politesse.fetch.options import MIN_BODY_BYTES
from politesse.ports import FetchResponse

if TYPE_CHECKING:
    from politesse.cli.gate_options import GateOptions
    from politesse.ports import FetchRequest, FetchResult

MAX_READ_BYTES: Final = 4 * 1024 * 1024
"""How much of a file is read: more than any crawler reads, to report what is beyond that."""

_STANDARD_INPUT: Final = "-"


def read_file(name: str) -> bytes:
    """Return the first MAX_READ_BYTES of a file, of standard input for ``-``; raises OSError."""
    if name == _STANDARD_INPUT:
        return sys.stdin.buffer.read(MAX_READ_BYTES)
    with Path(name).open("rb") as file:
        return file.read(MAX_READ_BYTES)


class OneFetch:
    """A Fetcher that fetches one file once, and repeats the result to every gate.

    Args:
        options: with the timeout.
        max_body_bytes: as in FetchOptions.

    Attributes:
        result: of the fetch; None before it.
    """

    def __init__(self, options: GateOptions, *, max_body_bytes: int = MIN_BODY_BYTES) -> None:
        self._fetcher = AiohttpFetcher(USER_AGENT, options.fetch_options(max_body_bytes))
        self.result: FetchResult | None = None

    @property
    def body(self) -> bytes:
        """The file; empty if there is none."""
        return self.result.body if isinstance(self.result, FetchResponse) else b""

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Return the result, fetched by the first call."""
        if self.result is None:
            self.result = await self._fetcher.fetch(request)
        return self.result

    async def aclose(self) -> None:
        """Close the connections."""
        await self._fetcher.aclose()
