"""A request first waits in the line of its host (Waiter), and then holds a permit (LocalPermit)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from politesse._pacing.pace import Pace, Start, longest_stated_s
from politesse.verdict import NotYet

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping

    from politesse._pacing.host import PacedHost
    from politesse._pacing.local import LocalPacer
    from politesse.ports import Permit, StatedPace

NO_HEADERS: Final[Mapping[str, str]] = {}


@dataclass(slots=True, eq=False)
class Waiter:
    """A request in line.

    Attributes:
        order: the place in line: a request with a lower number joined earlier.
        agent: the pace that binds the request.
        url: the URL of the request.
        joined_mono: when the request joined the line.
        max_wait_s: the longest wait; infinite for no limit.
        callback: called when the request may start, or None for a task.
        woken: wakes the task, which then checks whether it may start.
        error: the error that the task raises instead of waiting again.
    """

    order: int
    agent: AgentPace
    url: str
    joined_mono: float
    max_wait_s: float = inf
    callback: Callable[[], None] | None = None
    woken: asyncio.Future[None] | None = None
    error: Exception | None = None

    def wake(self) -> None:
        """Wake the task."""
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(None)

    def fail(self, error: Exception) -> None:
        """Let the task raise ``error``, unless it gets its permit at the same moment."""
        # The exception of the future cannot hold the error: if the task was woken already, its future is done. Such a
        # task must also raise the error, unless it may start.
        self.error = self.error or error
        self.wake()


@dataclass(slots=True, eq=False)
class AgentPace:
    """The pace that all requests with the same agent and floor share, and the waiters among these requests.

    The floor is the least interval that the gate of a request demands.

    Attributes:
        floor_s: the floor, in seconds.
        by_origin: for each requested origin, the pace that its robots.txt stated last.
        timed: the paces in ``by_origin`` if any of them depends on the time of day, otherwise empty.
        longest_s: the longest interval of the paces in ``by_origin``, at any time of day.
        stated: the pace that results from the floor, ``by_origin`` and the options; None until calculated.
        start: when the next request may start; None until calculated.
        changes: the ``changes`` of the host when ``start`` was calculated.
        waiters: the waiting requests, in order.
    """

    floor_s: float = 0.0
    by_origin: dict[str, StatedPace] = field(default_factory=dict)
    timed: tuple[StatedPace, ...] = ()
    longest_s: float = 0.0
    stated: Pace | None = None
    start: Start | None = None
    changes: int = 0
    waiters: OrderedDict[Waiter, None] = field(default_factory=OrderedDict)

    def record(self, origin: str, pace: StatedPace) -> None:
        """Record the pace that the robots.txt of an origin states, in place of its earlier pace."""
        self.by_origin[origin] = pace
        statements = self.by_origin.values()
        self.stated = None
        self.timed = tuple(statements) if any(stated.timetable.is_timed for stated in statements) else ()
        self.longest_s = longest_stated_s(statements)


@dataclass(slots=True, eq=False)
class LocalPermit:
    """Permission of a LocalPacer for one request; see ``politesse.ports.Permit``.

    Attributes:
        lines: the object that granted the permit or has taken it over, or None after the end.
        paced: the host of the request.
        agent: the pace that binds the requests of its agent.
        url: the URL of the request; empty if the URL is unknown.
        order: the place of the request in the line of its host; see ``Waiter``.
        waited: whether the request had to wait for the permit.
        answered_s: how long the answer took, in seconds, or None before the answer.
        started_mono: when the permit was stamped.
        before_mono: the ``last_mono`` of the host before the stamp.
        marks: the value of ``PacedHost.marks`` right after the stamp.
    """

    lines: LocalPacer | None
    paced: PacedHost
    agent: AgentPace
    url: str
    order: int
    waited: bool = False
    answered_s: float | None = None
    started_mono: float = 0.0
    before_mono: float = 0.0
    marks: int = 0

    @property
    def host(self) -> str:
        """The name of the paced host."""
        return self.paced.host

    @property
    def under_way(self) -> bool:
        """Whether the permit has not ended."""
        return self.lines is not None

    def observe(self, status: int, headers: Mapping[str, str] = NO_HEADERS, /) -> None:
        """Record the answer before the end of the request, so that a closure stops waiting requests at once."""
        if self.lines is not None:
            self.lines.answered(self, status, headers)

    def end(self) -> None:
        """End the request: with ``max_concurrent=1``, the interval before the next request counts from now."""
        lines, self.lines = self.lines, None
        if lines is not None:
            lines.ended(self)

    def expire(self) -> None:
        """End the permit because it was held for too long. This time is not recorded as a response time."""
        self.answered_s = 0.0
        self.end()

    def give_back(self) -> None:
        """End the permit without a request."""
        lines, self.lines = self.lines, None
        if lines is not None:
            lines.given_back(self)

    def renew(self) -> bool:
        """Stamp the permit again if it could not be used at once; return False if it would not be granted now."""
        return self.lines is not None and self.lines.renewed(self)


def give_back_all(answers: Iterable[Permit | NotYet]) -> None:
    """Give back all permits in a list of answers."""
    for answer in answers:
        if not isinstance(answer, NotYet):
            answer.give_back()
