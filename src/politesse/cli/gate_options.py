"""What the commands that ask have in common: who asks, for whom, and how."""

from __future__ import annotations

import asyncio
import warnings
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from politesse import ConfigurationError, FetchOptions, Gatekeeper, PolitesseWarning, __version__
from politesse._gate.identity import Identity
from politesse._text import printable
from politesse.cli.console import abandon_output, errors, plain
from politesse.robots.agents import BROWSER, EVERYBODY, first_word

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Generator
    from typing import Any

    from politesse import AgentView

USER_AGENT: Final = f"politesse/{__version__} (robots.txt check)"
INTERRUPTED: Final = 130
"""The exit code that a shell shows for a program that Ctrl-C ended: 128 and SIGINT."""

CONNECT_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Asking:
    """For whom robots.txt is read, and how long each may take.

    Attributes:
        token: the product token that chooses the groups.
        timeout_s: for one robots.txt with its redirects.
    """

    token: str
    timeout_s: float

    @classmethod
    def of(cls, agent: str, timeout_s: float) -> Asking:
        """Take a product token or a User-Agent; raises ConfigurationError where neither names a crawler."""
        token = first_word(agent)
        if token in {"", EVERYBODY, BROWSER}:
            raise ConfigurationError(
                f"--agent {agent!r}: give the product token that robots.txt would name, as in 'ExampleBot'"
            )
        with no_impersonation():
            Identity.of(USER_AGENT, token)
        return cls(token, timeout_s)

    @asynccontextmanager
    async def gate(self) -> AsyncGenerator[AgentView, None]:
        """Open a gate that asks in politesse's own name, and judges for the token."""
        connect_timeout_s = min(CONNECT_TIMEOUT_S, self.timeout_s)
        fetch = FetchOptions(connect_timeout_s=connect_timeout_s, total_timeout_s=self.timeout_s)
        async with Gatekeeper(USER_AGENT, fetch=fetch) as gate:
            with no_impersonation():
                view = gate.agent(tokens=self.token)
            yield view


@contextmanager
def no_impersonation() -> Generator[None, None, None]:
    """Silence the warning that the User-Agent does not contain the token: that is the point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolitesseWarning)
        yield


def run(command: Coroutine[Any, Any, int]) -> int:
    """Run a command in an event loop; returns its exit code."""
    try:
        return asyncio.run(command)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:  # a full disk, no free port
        abandon_output()
        errors().print(plain(f"politesse: {printable(str(error))}", "red"), soft_wrap=True)
        return 2
