"""What the commands share: the User-Agent, the product token, the timeout, and where a robots.txt is read from."""

from __future__ import annotations

import sys
import warnings
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from politesse import AgentView, ConfigurationError, Dialect, FetchOptions, Gatekeeper, __version__
from politesse._gate.identity import Identity
from politesse._text import printable
from politesse.cli.console import errors, plain
from politesse.errors import PolitesseWarning
from politesse.events import FleetAway, FleetBack
from politesse.fetch import AiohttpFetcher
from politesse.fetch.options import MIN_BODY_BYTES
from politesse.ports import Fetcher, FetchRequest, FetchResponse, FetchResult
from politesse.robots.agents import BROWSER, EVERYBODY, first_word

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from politesse.events import Event
    from politesse.options import FleetOptions


USER_AGENT: Final = f"politesse/{__version__} (robots.txt check)"

MAX_READ_BYTES: Final = 4 * 1024 * 1024
"""How much of a file is read: more than any crawler reads, to report what is beyond that."""

_CONNECT_TIMEOUT_S: Final = 10.0
_STANDARD_INPUT: Final = "-"


@dataclass(frozen=True, slots=True)
class GateOptions:
    """Which crawler robots.txt is read for, and how long each fetch may take.

    Attributes:
        token: the product token that selects the groups.
        timeout_s: for one robots.txt with its redirects, in seconds.
        store: the file in which robots.txt and what hosts ask for are kept; None for none.
        fleet: the fleet that the gate belongs to; None for none.
    """

    token: str
    timeout_s: float
    store: Path | None = None
    fleet: FleetOptions | None = None

    @classmethod
    def of(
        cls, agent: str, timeout_s: float, store: Path | None = None, fleet: FleetOptions | None = None
    ) -> GateOptions:
        """Take a product token or a User-Agent; raises ConfigurationError if neither names a crawler."""
        token = first_word(agent)
        if token in {"", EVERYBODY, BROWSER}:
            raise ConfigurationError(f"--agent {agent!r}: give the product token of a crawler, as in 'ExampleBot'")
        with warnings.catch_warnings(action="ignore", category=PolitesseWarning):  # here another token is intended
            Identity.of(USER_AGENT, token)
        return cls(token, timeout_s, store, fleet)

    def fetch_options(self, max_body_bytes: int = MIN_BODY_BYTES) -> FetchOptions:
        """Return the options of a fetch within the timeout."""
        connect_timeout_s = min(_CONNECT_TIMEOUT_S, self.timeout_s)
        return FetchOptions(
            connect_timeout_s=connect_timeout_s, total_timeout_s=self.timeout_s, max_body_bytes=max_body_bytes
        )

    @asynccontextmanager
    async def gate(
        self, fetcher: Fetcher | None = None, dialect: Dialect = Dialect.RFC9309
    ) -> AsyncGenerator[AgentView, None]:
        """Open a gate that fetches under politesse's own User-Agent, and judges for the token.

        It says on standard error when the Redis of its fleet is away, because nothing starts then, and when it is back.

        Raises:
            ConfigurationError: the file of the store is none, or cannot be used; or the URL of the fleet is none.
        """
        fetch = self.fetch_options() if fetcher is None else None
        async with Gatekeeper(
            USER_AGENT, dialect=dialect, fetch=fetch, fetcher=fetcher, store=self.store, fleet=self.fleet
        ) as gate:
            gate.subscribe(_tell_of_fleet)
            with warnings.catch_warnings(action="ignore", category=PolitesseWarning):
                view = gate.agent(tokens=self.token)
            yield view


def _tell_of_fleet(event: Event) -> None:
    match event:
        case FleetAway(server, error):
            line = f"{server} is away: no request starts until it is back ({error})"
        case FleetBack(server, away_s):
            line = f"{server} is back after {away_s:.1f} s"
        case _:
            return
    errors().print(plain(printable(line), "yellow"), soft_wrap=True)


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
