"""What a LocalPacer keeps of a busy host."""

from __future__ import annotations

import asyncio
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from politesse._constants import AGREE_S
from politesse._pacing.backoff import Bearing
from politesse._pacing.held_long import Held
from politesse._pacing.pace import bounded, longest_stated_s, stated_pace
from politesse._pacing.schedule import Closure, earliest_start
from politesse.ports import HostPace
from politesse.verdict import Bound, NotYet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from politesse._pacing.pace import Pace, PacingOptions
    from politesse.ports import StatedPace, TurnRequest

NEVER: Final = float("-inf")


class AgentPace:
    """What the robots.txt files of a host state for one agent: it binds the requests of that agent only.

    Attributes:
        by_origin: the latest statement of each origin that was requested.
        longest_s: the longest interval that any of them states, at any time of day.
        timed: the same statements if the time of day matters to any of them, else empty.
        stated: the pace that these and the options state; None if it has to be worked out.
        rate_stated: whether one of them has a Request-rate.
    """

    __slots__ = ("by_origin", "longest_s", "rate_stated", "stated", "timed")

    def __init__(self) -> None:
        self.by_origin: dict[str, StatedPace] = {}
        self.longest_s = 0.0
        self.timed: tuple[StatedPace, ...] = ()
        self.stated: Pace | None = None
        self.rate_stated = False

    def state(self, origin: str, pace: StatedPace) -> None:
        """Replace the statement of an origin."""
        self.by_origin[origin] = pace
        self.stated = None
        self.timed, self.rate_stated = (), False
        statements = self.by_origin.values()
        for said in statements:  # one loop, not two generators: this is done for each host that was idle
            if said.request_rates:
                self.rate_stated = True
            if said.timetable.is_timed:
                self.timed = tuple(statements)
        self.longest_s = longest_stated_s(statements)


class Waiter:
    """A request in line. It is woken when it is the head and its time has come, and again if that was too early.

    Attributes:
        before: the waiter before it in the line; None at the head.
        after: the waiter behind it; None at the end.
    """

    __slots__ = ("after", "agent", "before", "error", "joined_mono", "url", "woken")

    def __init__(self, agent: AgentPace, url: str, joined_mono: float, loop: asyncio.AbstractEventLoop) -> None:
        self.agent = agent
        self.url = url
        self.joined_mono = joined_mono
        self.woken: asyncio.Future[None] = asyncio.Future(loop=loop)  # given the loop, it need not look it up
        self.error: Exception | None = None
        self.before: Waiter | None = None
        self.after: Waiter | None = None

    def wake(self) -> None:
        """Let it look."""
        if not self.woken.done():
            self.woken.set_result(None)

    def fail(self, error: Exception) -> None:
        """Let it raise ``error``, unless it is granted its turn at the same moment."""
        # Beside the future: a waiter that was woken already, in vain, has to see it too.
        self.error = self.error or error
        self.wake()

    def wait_again(self) -> None:
        """Have it woken once more."""
        self.woken = asyncio.Future(loop=self.woken.get_loop())


class Started(Held, Protocol):
    """What a slot knows of a permit that has not ended.

    Attributes:
        before_mono: the ``last_mono`` of the slot before it was stamped.
        marks: the value of ``Slot.marks`` when it was stamped (generation counter).
    """

    before_mono: float
    marks: int


class Watcher(NamedTuple):
    """What is called when a host is ready.

    Attributes:
        agent: for which agent.
        callback: what is called.
        ahead_s: how much sooner, in seconds.
    """

    agent: AgentPace
    callback: Callable[[], None]
    ahead_s: float


NO_WATCHERS: Final[list[Watcher]] = []
"""Shared by all slots that nothing has watched; nothing is put into it."""


class Slot:
    """A busy host.

    Attributes:
        host: the pacing host.
        options: those of the pacer, with the limits that were set for this host.
        limits: the options of each gate that has requested a turn, where those of a scope may differ; else None.
        agents: what is stated for each agent that has requested a turn.
        longest_s: the longest interval that is stated for any agent at any time of day, or the floor.
        bearing: what its answers say; None before the first.
        in_flight: how many requests are under way.
        holder: the permit of the one that has been under way for longest; None for none.
        last_mono: the end of the last request, or the start of it where several may be under way. A fetch of robots.txt
            counts if no request is remembered.
        only_fetched: whether that was a fetch, and nothing has requested a turn since.
        marks: how often ``last_mono`` was set (generation counter).
        ready_mono: from when on a request of ``ready_for`` may start.
        bound_by: what binds that.
        ready_for: the agent for which these two were worked out; None if they have to be worked out again.
        armed_mono: the time of its valid entry in the heap; None for none.
        waiting: how many requests wait in line.
        head: the first of them; None for none. The line is a doubly linked list, because a waiter that is cancelled
            leaves it from any place, and because an OrderedDict costs 3 % of a turn with 1,000 tasks waiting.
        last: the last of them; None for none.
        closed_mono: until when it is closed as HostClosed has it; minus infinity once a turn was granted after that.
        long_wait: what binds the LongWait that was published last; None for none.
        watchers: the callbacks to call when the host is ready and nothing waits, one at a time; NO_WATCHERS before the
            first.
    """

    __slots__ = (
        "agents",
        "armed_mono",
        "bearing",
        "bound_by",
        "closed_mono",
        "head",
        "holder",
        "host",
        "in_flight",
        "last",
        "last_mono",
        "limits",
        "long_wait",
        "longest_s",
        "marks",
        "only_fetched",
        "options",
        "ready_for",
        "ready_mono",
        "waiting",
        "watchers",
    )

    def __init__(self, host: str, options: PacingOptions, last_mono: float) -> None:
        self.host = host
        self.options = options
        self.limits: dict[object, PacingOptions] | None = None
        self.agents: dict[str, AgentPace] = {}
        self.longest_s = options.min_delay_s
        self.bearing: Bearing | None = None
        self.in_flight = 0
        self.holder: Started | None = None
        self.last_mono = last_mono
        self.only_fetched = False
        self.marks = 0
        self.ready_mono = NEVER
        self.bound_by = Bound.FLOOR
        self.ready_for: AgentPace | None = None
        self.armed_mono: float | None = None
        self.closed_mono = NEVER
        self.long_wait: Bound | None = None
        self.waiting = 0
        self.head: Waiter | None = None
        self.last: Waiter | None = None
        self.watchers = NO_WATCHERS  # most hosts never have any

    @property
    def is_full(self) -> bool:
        """Whether as many requests are under way as are allowed at once."""
        return self.in_flight >= self.options.max_concurrent

    @property
    def held_by(self) -> str:
        """The URL whose request has to end before another can start; empty if there is room, or if it is unknown."""
        return self.holder.url if self.holder is not None and self.is_full else ""

    def join(self, waiter: Waiter, *, first: bool) -> None:
        """Put a waiter at the end of the line, or at its head."""
        self.waiting += 1
        if self.head is None or self.last is None:
            self.head = self.last = waiter
        elif first:
            waiter.after, self.head.before, self.head = self.head, waiter, waiter
        else:
            waiter.before, self.last.after, self.last = self.last, waiter, waiter

    def leave(self, waiter: Waiter) -> None:
        """Take a waiter out of the line, from wherever it is."""
        self.waiting -= 1
        before, after = waiter.before, waiter.after
        if before is None:
            self.head = after
        else:
            before.after = after
        if after is None:
            self.last = before
        else:
            after.before = before
        waiter.before = waiter.after = None

    def line(self) -> Iterator[Waiter]:
        """Return the waiters, the head first; the line must not change meanwhile."""
        waiter = self.head
        while waiter is not None:
            yield waiter
            waiter = waiter.after

    def stamp(self, permit: Started, now_mono: float) -> None:
        """Stamp a permit again."""
        self.marks += 1
        permit.marks = self.marks
        permit.started_mono = self.last_mono = now_mono
        if self.options.max_concurrent > 1:  # else what is next waits for the end, not for an interval
            self.ready_for = None

    def unmark(self, permit: Started) -> None:
        """Take back the stamp of a permit with which no request was made."""
        if self.marks == permit.marks:  # else another request has come after it, and counts
            self.last_mono = permit.before_mono
            self.marks -= 1
        self.ready_for = None

    def state(self, request: TurnRequest) -> AgentPace:
        """Return what is stated for the agent of a request, with what the request brings."""
        agent = self.agents.get(request.agent)
        if agent is None:
            agent = self.agents[request.agent] = AgentPace()
        if request.pace is not None:
            agent.state(request.origin, request.pace)
            self._restate()
        return agent

    def limit(self, options: PacingOptions) -> None:
        """Replace the options."""
        self.options = options
        for agent in self.agents.values():
            agent.stated = None
        self._restate()

    def heard(self, now_mono: float, now_wall: float) -> Bearing:
        """Return what its answers say, as of now; nothing yet before the first answer."""
        if self.bearing is None:
            self.bearing = Bearing()
        self.bearing.follow(now_mono, now_wall)
        self.ready_for = None
        return self.bearing

    def closed_until(self, now_mono: float, now_wall: float) -> float | None:
        """Return the Unix time until which it is closed; None if it is open."""
        if self.bearing is None:
            return None
        closed_until_wall = self.heard(now_mono, now_wall).closed_until_wall
        return closed_until_wall if closed_until_wall > now_wall else None

    def schedule_calm(self, agent: AgentPace) -> bool:
        """Do as ``schedule`` for the usual host, whose next start no clock changes; return False for any other.

        Neither clock is read for it, and no object is made. With ``Bearing.time``, which does so for an answer, 8 % of
        the instructions of a turn are saved.
        """
        bearing, pace, options = self.bearing, agent.stated, self.options
        if bearing is None or not bearing.is_calm or pace is None or agent.timed or options.rule_of_thumb_factor:
            return False
        self.ready_for = agent
        interval_s, self.bound_by = pace.interval_s, pace.bound_by
        if options.adaptive_factor * bearing.latency_s > interval_s < options.adaptive_max_s:
            interval_s = min(options.adaptive_factor * bearing.latency_s, options.adaptive_max_s)
            self.bound_by = Bound.ADAPTIVE
        self.ready_mono = self.last_mono + interval_s
        return True

    def schedule(self, agent: AgentPace, now_mono: float, now_wall: float) -> None:
        """Work out when the next request of an agent may start, and what binds that."""
        bearing, pace, timed, closure = self.bearing, agent.stated, agent.timed, None
        self.ready_for = agent
        if bearing is None and not timed and now_mono >= self.last_mono + self.longest_s:
            self.ready_mono, self.bound_by = self.last_mono, Bound.FLOOR  # over: it does not matter which interval
            return
        if pace is None or timed:
            # Kept, because most requests end with the statements that the one before ended with.
            pace = agent.stated = stated_pace(agent.by_origin.values(), now_wall, self.options)
        if bearing is not None:
            if not -AGREE_S < now_wall - now_mono - bearing.offset_s < AGREE_S:  # mostly, the call is saved
                bearing.follow(now_mono, now_wall)
            pace = bearing.slow(pace, now_wall, self.options, rate_stated=agent.rate_stated)
            if bearing.closed_until_wall > now_wall:
                closure = Closure(bearing.closed_until_wall, bearing.closed_by)
        if closure or timed:
            self.ready_mono, self.bound_by = earliest_start(self.last_mono, pace, closure, timed, now_mono, now_wall)
        else:  # what ``earliest_start`` returns then: nearly every request saves two calls
            self.ready_mono, self.bound_by = self.last_mono + pace.interval_s, pace.bound_by

    def pace_of(self, agent: AgentPace, now_wall: float) -> Pace:
        """Return the interval that is in force for an agent; the answers of the host have to follow the clock."""
        pace = stated_pace(agent.by_origin.values(), now_wall, self.options)
        if self.bearing is None:
            return pace
        return self.bearing.slow(pace, now_wall, self.options, rate_stated=agent.rate_stated)

    def snapshot(self, now_mono: float, now_wall: float) -> HostPace:
        """Return what is known of it; of its agents, of that whose next request may start last."""
        paces = []
        for agent in self.agents.values() or (AgentPace(),):
            self.schedule(agent, now_mono, now_wall)
            pace = self.pace_of(agent, now_wall)
            paces.append((self.ready_mono, pace.interval_s, pace.bound_by))
        self.ready_for = None
        ready_mono, interval_s, bound_by = max(paces, key=itemgetter(0, 1))
        closed_until_wall, holder = self.closed_until(now_mono, now_wall), self.holder
        return HostPace(
            self.host,
            interval_s,
            bound_by,
            not_before_wall=now_wall + max(0.0, ready_mono - now_mono),
            closed_until_wall=closed_until_wall,
            closed_by=None if self.bearing is None or closed_until_wall is None else self.bearing.closed_by,
            waiting=self.waiting,
            in_flight=self.in_flight,
            held_by=holder.url if holder is not None else "",
            held_s=now_mono - holder.started_mono if holder is not None else 0.0,
        )

    def not_yet(self, ready_mono: float, bound_by: Bound, now_mono: float, now_wall: float) -> NotYet:
        """Return the answer to a request that cannot start now."""
        wait_s = max(0.0, ready_mono - now_mono)
        if wait_s == 0.0:
            bound_by = Bound.IN_FLIGHT if self.is_full else Bound.QUEUE
        return NotYet(now_wall + wait_s, bound_by, self.held_by)

    def count_fetch(self, origin: str, kept_s: float, now_mono: float, *, is_first: bool) -> None:
        """Count a fetch of robots.txt, unless it is a refresh beside an interval that a page has waited for.

        It is one if a page of its origin has requested a turn; if none has requested any, ``is_first`` says whether no
        fetch of the same origin is remembered.
        """
        if self.agents:
            is_first = not any(origin in agent.by_origin for agent in self.agents.values())
        of_no_page = self.only_fetched or now_mono > self.last_is_known_until(kept_s)
        if is_first or of_no_page:
            self.only_fetched = of_no_page and not (self.waiting or self.watchers)
            self.last_mono = now_mono
            self.marks += 1
            self.ready_for = None

    def last_is_known_until(self, kept_s: float) -> float:
        """Return until when ``last_mono`` counts: for ``kept_s``, or for two of the longest intervals known.

        For two, because a page that is due after such an interval may find that its robots.txt has to be fetched again,
        and that fetch must not pass for the first request to the host.
        """
        return self.last_mono + max(kept_s, 2.0 * self.longest_s)

    def busy_until(self, kept_s: float, now_mono: float, now_wall: float) -> float:
        """Return until when more than ``last_mono`` has to be remembered of it, idle as it is."""
        until_mono = self.last_mono + self.longest_s
        if self.bearing is not None:
            self.bearing.follow(now_mono, now_wall)
            until_mono = max(until_mono, now_mono + (self.bearing.remembered_until_wall - now_wall))
        for agent in self.agents.values():  # the adaptive delay, and Visit-times of several origins
            self.schedule(agent, now_mono, now_wall)
            until_mono = max(until_mono, self.ready_mono)
        if 2.0 * self.longest_s > kept_s:
            until_mono = max(until_mono, self.last_is_known_until(kept_s))
        return until_mono

    def _restate(self) -> None:
        self.ready_for = None
        longest_s = 0.0
        for agent in self.agents.values():
            longest_s = max(longest_s, agent.longest_s)
        self.longest_s = max(self.options.min_delay_s, bounded(longest_s, self.options))
