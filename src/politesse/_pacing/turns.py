"""The life of one permitted request: check, wait for the permit, check again if something changed, request, end.

Theory of operation. A turn covers one hop. It holds the permit of its host from the moment it is granted to the moment
it ends, and the interval before the next turn counts from that end, whatever happened in between. The turn of the next
hop is taken after this one has ended, so that crossed redirects cannot wait for each other.

A verdict is made before the wait, and the wait may be long. Checking again after each wait would postpone the turn for
ever where robots.txt expires faster than the pace of its host: every check would fetch it again and, where the interval
has to be waited out again, it would have expired again. So there is one rule: permission is checked again only if what
the verdict rests on has changed (``Basis.basis``: the cache entry and the host policy). An entry that merely expired
during the wait has not changed, and the verdict holds, though never on a copy older than a day (RFC 9309 2.4).

    check -> wait -> basis unchanged, copy younger than a day ----------------------------------> turn
                  -> changed, the new entry answers, and states the same pace ------------------> turn
                  -> changed, and states another pace: give back, wait for that pace -----------> as above
                  -> changed, and is expired: give back, check (fetch), wait -> holds for this turn
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

from politesse._constants import DAY_S
from politesse._pacing.held import Turn
from politesse._tasks import ends_within
from politesse.errors import Disallowed, TooFar, TurnHeld
from politesse.origin import Origin
from politesse.ports import TurnRequest
from politesse.verdict import Bound, NotYet

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.clock import Clock
    from politesse.events import Event
    from politesse.ports import Pacer, StatedPace
    from politesse.verdict import Verdict


class Gate(Protocol):
    """Answers whether a URL may be requested."""

    async def check(self, url: str, /) -> Verdict:
        """Return the verdict."""

    def peek(self, url: str, /) -> Verdict | None:
        """Return the verdict if it is known now."""


class Judging(Protocol):
    """Answers whether a URL may be requested; its answers are neither counted nor published."""

    async def learn(self, url: str, /) -> Verdict:
        """Return the verdict, fetching what has to be known first."""

    def judged(self, url: str, /) -> Verdict | None:
        """Return the verdict if it is known now."""


class Basis(Protocol):
    """Knows what verdicts rest on, and what sites state about their pace."""

    def basis(self, origin: Origin, /) -> object:
        """Return what verdicts on ``origin`` rest on now; equal to an earlier one if nothing changed since."""

    def pace_rules(self, origin: Origin, /) -> StatedPace | None:
        """Return what the robots.txt of ``origin`` states about pace, if anything is known."""

    def ask_ahead(self, origin: Origin, /) -> None:
        """Have robots.txt fetched, without waiting."""

    def turn_in_the_way(self, host: str, /) -> Turn | None:
        """Return a turn of the current task that keeps it from another one at a pacing host; None for none."""

    def counted(self, verdict: Verdict, /) -> Verdict:
        """Count and publish a verdict that is given."""

    def publish(self, event: Event, /) -> None:
        """Publish an event."""


async def take(gate: Judging, agent: Basis, pacer: Pacer, clock: Clock, url: str, max_wait_s: float | None) -> Turn:
    """Wait for a turn at ``url``; raises what ``AgentView.turn`` says. However often it is judged, that counts once."""
    question = _Question(gate)
    try:
        return await take_uncounted(question, agent, pacer, clock, url, max_wait_s)
    except Disallowed as error:
        if error.verdict is not question.verdict:
            question.verdict = None  # too slow: ``pace_rules`` has counted that
        raise
    finally:
        if question.verdict is not None:
            agent.counted(question.verdict)


class _Question:
    """Asks a gate, and remembers its last answer.

    Attributes:
        verdict: the last answer; None before the first.
    """

    __slots__ = ("_gate", "verdict")

    def __init__(self, gate: Judging) -> None:
        self._gate = gate
        self.verdict: Verdict | None = None

    def judged(self, url: str) -> Verdict | None:
        """Return the verdict if it is known now."""
        verdict = self._gate.judged(url)
        if verdict is not None:
            self.verdict = verdict
        return verdict

    async def learn(self, url: str) -> Verdict:
        """Return the verdict, fetching what has to be known first."""
        self.verdict = verdict = await self._gate.learn(url)
        return verdict


async def take_uncounted(
    gate: Judging, agent: Basis, pacer: Pacer, clock: Clock, url: str, max_wait_s: float | None
) -> Turn:
    """Wait for a turn as ``take`` does; the verdict is neither counted nor published, except TOO_SLOW."""
    origin = Origin.of(url)
    if (held := agent.turn_in_the_way(origin.pacing_host)) is not None:
        _refuse_to_wait_for_itself(gate, pacer, origin, url, held)
    deadline_mono = None if max_wait_s is None else clock.monotonic() + max_wait_s
    checked_again = False
    while True:
        verdict = gate.judged(url)
        if verdict is not None:  # in one step with its basis, here and below: one that is read later may be another
            made = _Made(verdict, agent.basis(origin), clock.monotonic(), clock.wall())
        else:
            made = await _learn(gate, agent, clock, origin, url, deadline_mono, max_wait_s)
            verdict = made.verdict
        _close_if_refused(pacer, origin, verdict)
        request = _request(agent, origin, verdict)
        left_s = None if deadline_mono is None else max(0.0, deadline_mono - clock.monotonic())
        try:
            permit = await pacer.start(request, left_s)
        except TooFar as far:
            # What is left of the wait after robots.txt is no number that the caller knows.
            raise TooFar(far.host, far.not_yet, far.max_wait_s if max_wait_s is None else max_wait_s) from None
        if not permit.waited:
            return Turn(verdict, permit, pacer, agent.publish)
        try:
            unchanged = agent.basis(origin) == made.basis
            holds = _holds_still(gate, clock, made, unchanged=unchanged, checked_again=checked_again)
            if holds is not None:
                _close_if_refused(pacer, origin, holds)
                if holds is verdict or agent.pace_rules(origin) is request.pace:
                    return Turn(holds, permit, pacer, agent.publish)
        except BaseException:
            permit.give_back()
            raise
        permit.give_back()
        checked_again = True


def _refuse_to_wait_for_itself(gate: Judging, pacer: Pacer, origin: Origin, url: str, held: Turn) -> None:
    """Raise TurnHeld for a task that holds all the turns that its host grants at once; Disallowed if that is known."""
    verdict = gate.judged(url)
    if verdict is not None:
        _close_if_refused(pacer, origin, verdict)
    raise TurnHeld(url, held_by=held.url)


class _Made(NamedTuple):
    """A verdict, what it rests on, and when it was made, by both clocks."""

    verdict: Verdict
    basis: object
    at_mono: float
    at_wall: float


def _holds_still(gate: Judging, clock: Clock, made: _Made, *, unchanged: bool, checked_again: bool) -> Verdict | None:
    """Return the verdict that holds after a wait; None if robots.txt has to be fetched first."""
    passed_s = max(clock.monotonic() - made.at_mono, clock.wall() - made.at_wall)
    usable = made.verdict.age_s + passed_s < DAY_S  # RFC 9309 2.4: no copy older than 24 hours SHOULD be used
    if usable and unchanged:
        return made.verdict
    verdict = gate.judged(made.verdict.url)
    if verdict is None and usable and checked_again:
        return made.verdict  # fetched for this turn
    return verdict


async def _learn(
    gate: Judging,
    agent: Basis,
    clock: Clock,
    origin: Origin,
    url: str,
    deadline_mono: float | None,
    max_wait_s: float | None,
) -> _Made:
    """Return a verdict that has to be fetched for; raises TooFar if it does not come before the deadline."""

    def made(verdict: Verdict) -> _Made:
        return _Made(verdict, agent.basis(origin), clock.monotonic(), clock.wall())

    async def check() -> _Made:
        return made(await gate.learn(url))

    if deadline_mono is None:
        return await check()
    # A task that can be given up: what it waits for, as the fetch of robots.txt, goes on for the others.
    checking = asyncio.get_running_loop().create_task(check())
    if not await ends_within(clock, max(0.0, deadline_mono - clock.monotonic()), checking):
        raise TooFar(origin.pacing_host, NotYet(clock.wall(), Bound.ROBOTS_TXT), max_wait_s or 0.0)
    checked = checking.result()
    if agent.basis(origin) != checked.basis and (verdict := gate.judged(url)) is not None:
        return made(verdict)  # it changed between the end of that task and the next step of this one
    return checked


def take_now(
    peek: Callable[[str], Verdict | None], agent: Basis, pacer: Pacer, clock: Clock, url: str
) -> Turn | NotYet:
    """Return a turn at ``url`` if there is one now; raises what ``AgentView.try_turn`` says."""
    origin = Origin.of(url)
    verdict = peek(url)
    if verdict is None:
        agent.ask_ahead(origin)
        return NotYet(clock.wall(), Bound.ROBOTS_TXT)
    _close_if_refused(pacer, origin, verdict)
    permit = pacer.try_start(_request(agent, origin, verdict))
    return permit if isinstance(permit, NotYet) else Turn(verdict, permit, pacer, agent.publish)


def _request(agent: Basis, origin: Origin, verdict: Verdict) -> TurnRequest:
    return TurnRequest(origin.pacing_host, str(origin), verdict.agent, agent.pace_rules(origin), verdict.url)


def _close_if_refused(pacer: Pacer, origin: Origin, verdict: Verdict) -> None:
    """Raise Disallowed, or close the host if its robots.txt was answered with 429."""
    if not verdict.allowed:
        raise Disallowed(verdict)
    source = verdict.source
    if source is not None and source.of_host and source.not_before is not None and verdict.match.allowed:
        # An older copy still serves. Where none does, the verdict denies, or the gate only reports.
        pacer.close_host(origin.pacing_host, source.not_before, Bound.RETRY_AFTER)
