"""The exceptions of politesse, as one tree.

::

    PolitesseError
    ├── ConfigurationError      an option has an invalid value (also a ValueError)
    │   └── ConfigurationTypeError  an option has a value of the wrong type (also a TypeError)
    ├── InvalidURL              the text is not an absolute http(s) URL (also a ValueError)
    │   ├── ClientInvalidURL    the same from the aiohttp integration (also an aiohttp.InvalidURL)
    │   └── RequestInvalidURL   the same from the httpx integration (also an httpx.RequestError)
    ├── ClosedError             the gatekeeper is closed (also a RuntimeError)
    │   └── QueueClosed         the queue is closed, and empty for a reader
    ├── WrongEventLoop          the gatekeeper belongs to another event loop, or none runs (also a RuntimeError)
    ├── StoreError              a store, or the journal of a queue, could not be read or written
    ├── LogError                a log cannot be read, or proves nothing
    ├── TooFar                  the next turn at a host comes later than the caller would wait
    │   └── RequestTooFar       the same from the httpx integration (also an httpx.RequestError)
    ├── PageFailed              a crawl gives up a URL because of its answer
    ├── TurnHeld                the task holds this host's turn already (also a RuntimeError)
    └── Disallowed              robots.txt, its absence or a policy forbids the request; carries the verdict
        ├── ClientDisallowed    the same from the aiohttp integration (also an aiohttp.ClientError)
        └── RequestDisallowed   the same from the httpx integration (also an httpx.RequestError)

``politesse.queue`` defines QueueClosed and PageFailed, ``politesse.audit`` defines LogError, and each integration
defines its own errors. The integrations of httpx2 and requests have errors of the same names as the integration of
httpx. These errors are instances of ``httpx2.RequestError``, or of ``requests.RequestException``.

A fault of a remote server raises no exception: the verdict then denies the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse._base.checks import ConfigurationError, ConfigurationTypeError, InvalidURL, PolitesseError
from politesse._base.text import printable, public_url

if TYPE_CHECKING:
    from politesse.verdict import NotYet, Verdict

__all__ = [
    "ClosedError",
    "ConfigurationError",
    "ConfigurationTypeError",
    "Disallowed",
    "InvalidURL",
    "PolitesseError",
    "PolitesseWarning",
    "StoreError",
    "TooFar",
    "TurnHeld",
    "WrongEventLoop",
]


class PolitesseWarning(UserWarning):
    """A setting works, but is impolite or risky.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", PolitesseWarning)  # treat such a setting as an error
    """


class ClosedError(PolitesseError, RuntimeError):
    """The gatekeeper is closed. Waiting and later calls raise this error.

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
    """A gatekeeper is used in another event loop than before, or a call needs an event loop but no loop runs.

    >>> issubclass(WrongEventLoop, RuntimeError)
    True
    """

    def __init__(
        self, problem: str = "this gatekeeper was first used in another event loop: create one for each event loop"
    ) -> None:
        super().__init__(problem)


class StoreError(PolitesseError):
    """A store, or the journal of a queue, could not be read or written; ``__cause__`` is the lower library's error.

    >>> issubclass(StoreError, PolitesseError)
    True
    """


class Disallowed(PolitesseError):
    """The request must not be made.

    >>> from politesse import Reason, Verdict
    >>> from politesse.verdict import Match
    >>> raise Disallowed(Verdict("https://example.com/a", "examplebot", False, Match(Reason.POLICY_DENY)))
    Traceback (most recent call last):
    politesse.errors.Disallowed: disallowed: https://example.com/a (a host policy denies this host)

    Attributes:
        verdict: the answer, with its reason, rule and source.
    """

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict


class TooFar(PolitesseError):
    """No turn comes within the caller's ``max_wait_s``.

    >>> from politesse import Bound, NotYet
    >>> raise TooFar("a.test", NotYet(1_800_000_000.0, Bound.CRAWL_DELAY), 5)
    Traceback (most recent call last):
    politesse.errors.TooFar: no turn at a.test within 5 s: not before 2027-01-15T08:00:00Z, by crawl-delay

    Attributes:
        host: the host of the request.
        not_yet: the earliest time of a turn, and the limit that sets it.
        max_wait_s: how many seconds the caller was ready to wait.
    """

    def __init__(self, host: str, not_yet: NotYet, max_wait_s: float) -> None:
        super().__init__(f"no turn at {host} within {max_wait_s:g} s: {not_yet}")
        self.host = host
        self.not_yet = not_yet
        self.max_wait_s = max_wait_s


class TurnHeld(PolitesseError, RuntimeError):
    """The task or its parent already holds the turn of this host, so the request would wait for itself.

    >>> TurnHeld("https://a.test/2", held_by="https://a.test/1").held_by
    'https://a.test/1'

    Attributes:
        url: the URL of the request.
        held_by: the URL of the turn that the task holds.
    """

    def __init__(self, url: str, held_by: str) -> None:
        url, held_by = public_url(url), public_url(held_by)
        held = f"this task, or one that started it, holds the turn of its host for {printable(held_by)}"
        if url == held_by:
            held = "this task, or one that started it, holds a turn for it already, and a turn serves one request"
        super().__init__(
            f"no turn for {printable(url)}: {held}. End that turn, or close that response, before the next request"
        )
        self.url = url
        self.held_by = held_by
