"""The exceptions of politesse, as one tree.

::

    PolitesseError
    ├── ConfigurationError      an option has an invalid value (also a ValueError)
    ├── InvalidURL              the text is not an absolute http(s) URL (also a ValueError)
    │   ├── ClientInvalidURL    the same from the aiohttp integration (also an aiohttp.ClientError)
    │   └── RequestInvalidURL   the same from the httpx integration (also an httpx.RequestError)
    ├── ClosedError             the gatekeeper is closed (also a RuntimeError)
    │   └── QueueClosed         the queue is closed, and empty for a reader
    ├── WrongEventLoop          the gatekeeper belongs to another event loop (also a RuntimeError)
    ├── StoreError              a store could not read or write a record
    ├── TooFar                  the next turn at a host comes later than the caller would wait
    │   └── RequestTooFar       the same from the httpx integration (also an httpx.RequestError)
    └── Disallowed              robots.txt, its absence or a policy forbids the request; carries the verdict
        ├── ClientDisallowed    the same from the aiohttp integration (also an aiohttp.ClientError)
        └── RequestDisallowed   the same from the httpx integration (also an httpx.RequestError)

Disallowed and TooFar are defined in ``politesse.verdict``, beside the values that they carry. QueueClosed is defined in
``politesse.queue``, and those of the integrations in theirs. ``politesse.errors.Disallowed`` and
``politesse.errors.TooFar`` lead there: errors that were pickled by earlier releases name them so.

A fault of a remote server is never an exception here: it becomes an answer that closes the gate.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if not TYPE_CHECKING:  # type checkers report unknown names, which they would not if they saw this

    def __getattr__(name: str) -> object:
        if name in {"Disallowed", "TooFar"}:
            return getattr(import_module("politesse.verdict"), name)  # it imports this module
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class PolitesseError(Exception):
    """The base of all exceptions that politesse raises on purpose.

    >>> issubclass(ConfigurationError, PolitesseError)
    True
    """


class PolitesseWarning(UserWarning):
    """A setting works, but is impolite or risky.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", PolitesseWarning)  # treat such a setting as an error
    """


class ConfigurationError(PolitesseError, ValueError):
    """An option has an invalid value; the message names the option and the value.

    >>> from politesse import FetchOptions
    >>> FetchOptions(total_timeout_s=0)
    Traceback (most recent call last):
    politesse.errors.ConfigurationError: total_timeout_s=0: give a positive number of seconds
    """


class InvalidURL(PolitesseError, ValueError):
    """The text is not an absolute http or https URL that a client could request.

    >>> from politesse import Origin
    >>> Origin.of("/page")
    Traceback (most recent call last):
    politesse.errors.InvalidURL: '/page' is not an absolute URL; give scheme and host, as in 'https://example.com/page'

    Attributes:
        url: the text as it was given.
        problem: what is wrong with it, as a phrase.
    """

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(f"{url!r:.200} {problem}")
        self.url = url
        self.problem = problem

    def __reduce__(self) -> tuple[type[InvalidURL], tuple[str, str]]:
        return type(self), (self.url, self.problem)


class ClosedError(PolitesseError, RuntimeError):
    """The gatekeeper is closed. Pending and later calls raise this.

    >>> import asyncio
    >>> from politesse import Gatekeeper
    >>> from politesse.testing import ScriptedFetcher
    >>> async def ask_too_late():
    ...     gate = Gatekeeper("ExampleBot/1.0", fetcher=ScriptedFetcher())
    ...     await gate.aclose()
    ...     try:
    ...         await gate.check("https://example.com/")
    ...     except ClosedError:
    ...         print("closed")
    >>> asyncio.run(ask_too_late())
    closed
    """


class WrongEventLoop(PolitesseError, RuntimeError):
    """A gatekeeper is used in another event loop than the one in which it was used first.

    >>> issubclass(WrongEventLoop, RuntimeError)
    True
    """

    def __init__(self) -> None:
        super().__init__("this gatekeeper was first used in another event loop: create one for each event loop")


class StoreError(PolitesseError):
    """A store could not read or write a record; ``__cause__`` is the lower library's error.

    >>> issubclass(StoreError, PolitesseError)
    True
    """
