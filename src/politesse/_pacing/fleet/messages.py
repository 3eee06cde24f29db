"""What a process says to Redis, and what it hears."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from politesse.verdict import Bound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from politesse._pacing.fleet.scripts import Script

_US: Final = 1_000_000


def microseconds(seconds: float) -> int:
    """Return whole microseconds, rounded up: nothing starts early for it."""
    return math.ceil(seconds * _US - 1e-3)


class WireLost(Exception):
    """Redis cannot be reached, does not answer in time, or cannot serve now."""


class ForeignKey(Exception):
    """A key holds what is not of politesse, or nonsense."""


class ScriptCall(NamedTuple):
    """A script to run.

    Attributes:
        script: which.
        key: its key.
        args: its arguments, those that all scripts share included.
    """

    script: Script
    key: str
    args: tuple[str | int, ...]


class Server(NamedTuple):
    """The server that a process is connected to.

    Attributes:
        run_id: names one run of it.
        uptime_s: for how long it has run, at least.
    """

    run_id: str
    uptime_s: float


Reply = list[str]
"""What a script returns: see ``answer`` in ``state.lua``."""


class FleetWire(Protocol):
    """The connections to Redis."""

    @property
    def name(self) -> str:
        """The address of the server, without a password."""

    @property
    def counts_receivers(self) -> bool:
        """Whether PUBLISH returns the number of all that receive a message."""

    async def open(self, channel: str, /) -> Server:
        """Connect, load the scripts and subscribe.

        Raises:
            WireLost: it is away.
            ConfigurationError: it refuses this client, or would forget what it is given.
        """

    async def server(self) -> Server:
        """Return the server; raises WireLost, and ConfigurationError if it would forget what it is given."""

    async def exchange(self, calls: Sequence[ScriptCall], /) -> list[Reply | Exception]:
        """Run scripts in order; a script that fails has its error as reply.

        Raises:
            WireLost: it is away.
            ConfigurationError: it does not permit this client to do what a script does.
        """

    def clock_of(self, key: str, /) -> int:
        """Return a number for the clock that rules a key."""

    def probe_keys(self, key: str, /) -> list[str]:
        """Return a key for each server that has keys, each beginning with ``key``."""

    def pushes(self) -> AsyncIterator[str]:
        """Return what is published to the channel; raises WireLost."""

    async def drop(self) -> None:
        """Close the connections."""

    async def aclose(self) -> None:
        """Close the client."""


class FleetAnswer(NamedTuple):
    """The answer to a reservation, or a message about one.

    Attributes:
        kind: ``granted``, ``queued``, ``wait`` or ``closed``.
        ticket: of the reservation; empty for ``closed``.
        at_us: the time of Redis at which it was given.
        wait_s: in how many seconds the request may start, or is to be reserved again, or the host is open.
        version: when the host was closed last, by the time of Redis.
        bound_by: what binds the wait; ``interval`` if that is the interval of the request.
        tolerance_s: by how much the start may be late.
        backoff_s: for how long the last refusal of a page would close the host.
        fetch_backoff_s: the same of robots.txt.
        held_by: the URL of a request that is under way.
        ended: the ticket of the request whose end is all that binds the wait; empty if that is not sure.
        after_s: how long after that end the request may start, in seconds.
    """

    kind: str
    ticket: str
    at_us: int
    wait_s: float
    version: int
    bound_by: str
    tolerance_s: float = 0.0
    backoff_s: float = 0.0
    fetch_backoff_s: float = 0.0
    held_by: str = ""
    ended: str = ""
    after_s: float = 0.0

    @classmethod
    def of(cls, reply: Reply) -> FleetAnswer:
        """Return what a reply says; raises ValueError if it is none."""
        kind, ticket, at, wait, version, bound_by, *more = reply
        numbers = (at, wait, version, *more[:3], *more[5:])
        if kind not in _KINDS or bound_by not in _BOUNDS or not all(map(_is_whole, numbers)):
            raise ValueError("it is no answer of politesse")
        at_us, wait_s, version_us = int(at), int(wait) / _US, int(version)
        if not more:
            return cls(kind, ticket, at_us, wait_s, version_us, bound_by)
        tolerance, backoff, fetch, held_by, ended, after = more
        times = (int(tolerance) / _US, int(backoff) / _US, int(fetch) / _US)
        return cls(kind, ticket, at_us, wait_s, version_us, bound_by, *times, held_by, ended, int(after) / _US)

    @classmethod
    def heard(cls, reply: Reply, owner: str) -> FleetAnswer:
        """Return what a message says; raises ValueError if it is none for the process ``owner``."""
        answer = cls.of(reply)
        if answer.ticket and answer.ticket.partition(".")[0] != owner:
            raise ValueError(f"it is for the process {answer.ticket.partition('.')[0]!r:.50}")
        return answer

    @property
    def closed_by(self) -> Bound | None:
        """By what the host is closed until the wait is over; None if it is not."""
        return Bound(self.bound_by) if self.bound_by in _CLOSINGS else None

    def bound(self, own: Bound) -> Bound:
        """Return what binds the wait, where ``own`` binds the interval of the request."""
        return own if self.bound_by == "interval" else Bound(self.bound_by or Bound.QUEUE)


def _is_whole(word: str) -> bool:
    return len(word) <= _DIGITS and word.isascii() and word.isdigit()


_KINDS: Final = frozenset({"granted", "queued", "wait", "closed"})
_BOUNDS: Final = frozenset({"", "interval", *(bound.value for bound in Bound)})
_DIGITS: Final = 17  # of a time in microseconds
_CLOSINGS: Final = frozenset({Bound.RETRY_AFTER.value, Bound.BACKOFF.value, Bound.RATE_LIMIT.value})
