"""The exceptions of politesse, as one tree.

::

    PolitesseError
    ├── ConfigurationError   the caller's mistake, found when an option is given (also a ValueError)
    ├── InvalidURL           not an absolute http(s) URL that could be requested (also a ValueError)
    ├── ClosedError          asked after, or while, the gatekeeper was closed (also a RuntimeError)
    │   └── QueueClosed      put into, or asked of, a queue that was closed
    ├── WrongEventLoop       used in another event loop than its own (also a RuntimeError)
    ├── StoreError           a store could not read or write a record
    ├── TooFar               the next turn at a host is further away than the caller would wait
    └── Disallowed           robots.txt, its absence or a policy forbids the request; carries the verdict

A fault of a remote server is never an exception here: it is an answer, and closes the gate.
"""

from __future__ import annotations


class PolitesseError(Exception):
    """The root of everything that politesse raises on purpose."""


class PolitesseWarning(UserWarning):
    """A setting that works, but that a server's operator would not thank you for."""


class ConfigurationError(PolitesseError, ValueError):
    """An option has a value that cannot be meant; the message names option and value."""


class InvalidURL(PolitesseError, ValueError):
    """The text is not an absolute http or https URL that a client could request.

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
    """The gatekeeper was closed: no further question can be answered."""


class WrongEventLoop(PolitesseError, RuntimeError):
    """A gatekeeper was used in another event loop than the one it belongs to."""

    def __init__(self) -> None:
        super().__init__("this gatekeeper belongs to another event loop, in which it was used first: make one for each")


class StoreError(PolitesseError):
    """A store could not read or write; the lower library's error is the cause."""
