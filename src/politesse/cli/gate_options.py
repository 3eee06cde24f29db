"""What the commands that need a gate share: the User-Agent, the product token, the timeout."""

from __future__ import annotations

import warnings
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from politesse import ConfigurationError, Dialect, FetchOptions, Gatekeeper, PolitesseWarning, __version__
from politesse._gate.identity import Identity
from politesse.fetch.options import MIN_BODY_BYTES
from politesse.robots.agents import BROWSER, EVERYBODY, first_word

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from politesse import AgentView
    from politesse.ports import Fetcher

USER_AGENT: Final = f"politesse/{__version__} (robots.txt check)"

_CONNECT_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class GateOptions:
    """Which crawler robots.txt is read for, and how long each fetch may take.

    Attributes:
        token: the product token that selects the groups.
        timeout_s: for one robots.txt with its redirects, in seconds.
    """

    token: str
    timeout_s: float

    @classmethod
    def of(cls, agent: str, timeout_s: float) -> GateOptions:
        """Take a product token or a User-Agent; raises ConfigurationError if neither names a crawler."""
        token = first_word(agent)
        if token in {"", EVERYBODY, BROWSER}:
            raise ConfigurationError(f"--agent {agent!r}: give the product token of a crawler, as in 'ExampleBot'")
        with _no_token_warning():
            Identity.of(USER_AGENT, token)
        return cls(token, timeout_s)

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
        """Open a gate that fetches under politesse's own User-Agent, and judges for the token."""
        fetch = self.fetch_options() if fetcher is None else None
        async with Gatekeeper(USER_AGENT, dialect=dialect, fetch=fetch, fetcher=fetcher) as gate:
            with _no_token_warning():
                view = gate.agent(tokens=self.token)
            yield view


@contextmanager
def _no_token_warning() -> Generator[None, None, None]:
    """Silence the warning that the User-Agent does not contain the token: here that is intended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolitesseWarning)
        yield
