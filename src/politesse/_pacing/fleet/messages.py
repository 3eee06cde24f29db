"""The calls of a process to Redis, in their order, and the answers and messages of Redis."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from politesse._pacing.fleet.scripts import Script
from politesse.verdict import CLOSINGS, Bound

if TYPE_CHECKING:
    from politesse.clock import Clock

T = TypeVar("T")

_US: Final = 1_000_000
_MOST_CALLS: Final = 500  # a batch has at most this many calls
_MOST_POSTED: Final = 100_000  # at most this many calls wait until Redis is back
_OF_SESSION: Final = (Script.MEMBER, Script.RENEW)  # not sent again after a loss: each session makes new ones


def microseconds(seconds: float) -> int:
    """Return whole microseconds, rounded up so that no request starts early."""
    return math.ceil(seconds * _US - 1e-3)


class WireLost(Exception):
    """Redis cannot be reached, does not answer in time, or cannot serve now."""


class RoundOver(WireLost):
    """The round is over: the server has lost data, or its clock was set; see ``roster.py``."""


async def bounded(work: Awaitable[T], timeout_s: float, *, lost: str = "no answer") -> T:
    """Return the result of ``work``; raise WireLost if it takes longer than ``timeout_s``."""
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except TimeoutError as error:
        raise WireLost(f"{lost} within {timeout_s:g} s") from error


class ScriptCall(NamedTuple):
    """A script to run.

    Attributes:
        script: the script.
        key: the key that the script changes.
        args: the arguments of the script, including the arguments that all scripts have.
    """

    script: Script
    key: str
    args: tuple[str | int, ...]


class Server(NamedTuple):
    """The server that a process is connected to.

    Attributes:
        run_id: the name of the server's present run.
        uptime_s: for how long the server has run, in seconds. For a cluster, the uptime of the node that started last.
    """

    run_id: str
    uptime_s: float


Reply = list[str]
"""The words that a script returns. ``answer`` in ``state.lua`` makes the words of ``reserve`` and ``close``."""


class FleetAnswer(NamedTuple):
    """The answer to a reservation, or a message about one.

    Attributes:
        kind: ``granted``, ``queued``, ``wait`` or ``closed``.
        ticket: the ticket of the reservation; empty for ``closed``.
        at_us: the time of Redis when the answer was made.
        wait_s: the time in seconds until the next step: the start (``granted``), a new reservation (``wait``,
            ``queued``), or the opening of the host (``closed``).
        version: when the host was closed last, by the time of Redis.
        bound_by: the reason of the wait; ``interval`` for the interval of the request.
        tolerance_s: how late the start may be, in seconds.
        backoff_s: the backoff of pages, in seconds; 0 for none. See ``Demand``.
        fetch_backoff_s: the backoff of robots.txt.
        refusal_s: the backoff after answers that mean REFUSED.
        held_by: the URL of a request that is under way.
        holders: the owners and sessions of the requests under way, if the ticket waits for their end.
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
    refusal_s: float = 0.0
    held_by: str = ""
    holders: str = ""

    @classmethod
    def of(cls, reply: Reply) -> FleetAnswer:
        """Parse a reply; raises ValueError if the reply does not come from a script of politesse."""
        kind, ticket, at, wait, version, bound_by, tolerance, backoff, fetch_backoff, refusal, held_by, holders = reply
        numbers = (at, wait, version, tolerance, backoff, fetch_backoff, refusal)
        if kind not in _KINDS or bound_by not in _BOUNDS or not all(map(_is_whole, numbers)):
            raise ValueError("it is no answer of politesse")
        times = int(tolerance) / _US, int(backoff) / _US, int(fetch_backoff) / _US, int(refusal) / _US
        return cls(kind, ticket, int(at), int(wait) / _US, int(version), bound_by, *times, held_by, holders)

    @property
    def closed_by(self) -> Bound | None:
        """The reason of the closure if the host is closed until the wait is over; None if the host is open."""
        return Bound(self.bound_by) if self.bound_by in CLOSINGS else None

    def bound(self, own: Bound) -> Bound:
        """Return the bound of the wait: ``own`` if the request waits for its own interval."""
        return own if self.bound_by == "interval" else Bound(self.bound_by or Bound.QUEUE)


@dataclass(slots=True)
class Sent:
    """A call that Redis has not answered; ``answered`` is None if no task waits for the answer."""

    script: Script
    key: str
    args: tuple[str | int, ...]
    posted_mono: float
    answered: asyncio.Future[Reply] | None = None

    def settle(self, outcome: Reply | Exception) -> None:
        """Hand the answer or an error to the waiting task, if a task waits."""
        if self.answered is None or self.answered.done():
            return
        if isinstance(outcome, Exception):
            self.answered.set_exception(outcome)
            self.answered.exception()  # if the waiter is gone, asyncio must not report an unread error
        else:
            self.answered.set_result(outcome)


class Outbox:
    """The calls that Redis has not answered. See ``link.py`` for the two kinds of calls.

    Args:
        clock: its monotonic time measures how long a call has waited.
        channels: the start of the name of each channel.
        is_cluster: whether Redis is a cluster, which may run the calls of a batch in any order; see ``wire.py``.

    Attributes:
        work: set when a call was added.
        waiting: the calls that wait, in their order.
        under_way: the batch that was sent.
    """

    def __init__(self, clock: Clock, channels: str, *, is_cluster: bool) -> None:
        self.work = asyncio.Event()
        self.waiting: deque[Sent] = deque()
        self.under_way: list[Sent] = []
        self._clock = clock
        self._channels = channels
        self._is_cluster = is_cluster

    def put(
        self, script: Script, key: str, args: tuple[str | int, ...], answered: asyncio.Future[Reply] | None = None
    ) -> None:
        """Add a call; if very many calls wait, drop the oldest."""
        if len(self.waiting) >= _MOST_POSTED:
            # A request whose end is not reported counts as under way until its lease ends.
            self.waiting.popleft().settle(WireLost("too many calls wait"))
        self.waiting.append(Sent(script, key, args, self._clock.monotonic(), answered))
        self.work.set()

    def next_batch(self) -> list[ScriptCall]:
        """Begin the next batch: return the scripts to send.

        A cluster may run calls with different keys in any order. So calls of ``member.lua`` have their own batches,
        which keep their place between the other calls.
        """
        some = list(islice(self.waiting, _MOST_CALLS))
        if self._is_cluster and some:
            is_report = some[0].script is Script.MEMBER
            some = list(takewhile(lambda sent: (sent.script is Script.MEMBER) == is_report, some))
        self.under_way = [self.waiting.popleft() for _ in some]
        return [self._call(sent) for sent in self.under_way]

    def lost(self, why: str) -> None:
        """Fail the calls of ``ask``, and keep the posts. Redis may run a post twice if the first answer was lost."""
        calls = (*self.under_way, *self.waiting)
        self.fail_questions(WireLost(why))
        self.under_way = []
        self.waiting = deque(sent for sent in calls if sent.answered is None and sent.script not in _OF_SESSION)

    def fail_questions(self, error: Exception) -> None:
        """Raise an error in all tasks that wait for an answer."""
        for sent in (*self.under_way, *self.waiting):
            sent.settle(error)

    def _call(self, sent: Sent) -> ScriptCall:
        waited = microseconds(self._clock.monotonic() - sent.posted_mono - 1e-6)  # rounding must not lengthen the wait
        common = (self._channels, int(not self._is_cluster), max(0, waited))
        return ScriptCall(sent.script, sent.key, (*common, *sent.args))


def _is_whole(word: str) -> bool:
    return len(word) <= _DIGITS and word.isascii() and word.isdigit()


_KINDS: Final = frozenset({"granted", "queued", "wait", "closed"})
_BOUNDS: Final = frozenset({"", "interval", *(bound.value for bound in Bound)})
_DIGITS: Final = 17  # the digits of a time in microseconds
