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
from typing import TYPE_CHECKING, Protocol

from politesse._constants import DAY_S
from politesse._pacing.held import ENTERED, Turn
from politesse._tasks import ends_within
from politesse.errors import Disallowed, TooFar, TurnHeld
from politesse.origin import split
from politesse.ports import TurnRequest
from politesse.verdict import Bound, NotYet, age_of_hit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from politesse.clock import Clock
    from politesse.events import Event
    from politesse.origin import Origin
    from politesse.ports import Pacer, Permit, StatedPace
    from politesse.verdict import Verdict


class Gate(Protocol):
    """Answers whether a URL may be requested."""

    async def check(self, url: str, /) -> Verdict:
        """Return the verdict."""

    def peek(self, url: str, /) -> Verdict | None:
        """Return the verdict if it is known now."""


class KnownSite(Protocol):
    """What is known of the site of a verdict: the cache entry that it rests on. No other verdict rests on an equal one.

    Attributes:
        origin: of the site.
        deciding: the rules that the verdict rests on.
        is_unpaced: whether neither these nor the answer with its robots.txt say anything about the pace.
    """

    origin: Origin
    is_unpaced: bool

    @property
    def deciding(self) -> StatedPace | None: ...


class Judging(Protocol):
    """Answers whether a URL may be requested; its answers are neither counted nor published."""

    def known(self, url: str, /) -> tuple[Verdict, KnownSite] | None:
        """Return what ``judged`` does, and what it rests on, where a shortcut finds it; else None."""

    async def learn(self, url: str, /) -> Verdict:
        """Return the verdict, fetching what has to be known first."""

    def judged(self, url: str, /) -> Verdict | None:
        """Return the verdict if it is known now."""


class Basis(Protocol):
    """Knows what verdicts rest on, and what sites state about their pace."""

    @property
    def name(self) -> str:
        """The product tokens for which it judges, as one name."""

    @property
    def pacer(self) -> Pacer:
        """The pacer that grants the permits."""

    @property
    def clock(self) -> Clock:
        """The clocks."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop to which the gate belongs; None while it was used in none."""

    def unpaced_site(self, url: str, /) -> KnownSite | None:
        """Return what is known of the site of ``url`` if that is all that a turn needs beside a verdict; else None.

        It is None, too, where that robots.txt has closed its host, or states a pace.
        """

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


class Taking:
    """The wait for one turn; raises what ``AgentView.turn`` says. However often it is judged, that counts once.

    One object and one coroutine: each coroutine more, and each frame that waits, would cost every task that is resumed
    (14 % of a turn with 1,000 tasks waiting, as measured).

    Args:
        gate: judges the URL.
        agent: knows what verdicts rest on, and what sites state.
        url: what is to be requested.
        max_wait_s: how long to wait at the most; None for no limit.
        counts: whether the verdict is counted and published; if not, only TOO_SLOW is.
    """

    # The last verdict, what it rests on, and when it was made, by both clocks; set together.
    _basis: object
    _at_mono: float
    _at_wall: float

    __slots__ = (
        "_agent",
        "_at_mono",
        "_at_wall",
        "_basis",
        "_checked_again",
        "_counts",
        "_gate",
        "_max_wait_s",
        "_url",
        "_verdict",
    )

    def __init__(
        self,
        gate: Judging,
        agent: Basis,
        url: str,
        max_wait_s: float | None,
        counts: bool = True,  # noqa: FBT001, FBT002 - a keyword costs time
    ) -> None:
        self._gate = gate
        self._agent = agent
        self._url = url
        self._max_wait_s = max_wait_s
        self._counts = counts
        self._checked_again = False
        self._verdict: Verdict | None = None

    async def take(self) -> Turn:
        """Wait for the turn."""
        url, agent, gate, max_wait_s = self._url, self._agent, self._gate, self._max_wait_s
        clock = agent.clock
        deadline_mono = None if max_wait_s is None else clock.monotonic() + max_wait_s
        try:
            if ENTERED.get():
                self._refuse_to_wait_for_itself(split(url)[0])
            while True:
                known, site = gate.known(url), None
                # Nearly every turn: without a second look at the entry (``basis``, ``pace_rules``) 6 % of it are saved.
                if known is not None and known[0].allowed and known[1].is_unpaced:
                    verdict, site = known
                    self._verdict, self._basis, origin, pace = verdict, site, site.origin, site.deciding
                else:
                    origin = split(url)[0]
                    judged = gate.judged(url) if known is None else known[0]
                    verdict = await self._checked(origin, judged, deadline_mono)
                    pace = agent.pace_rules(origin)
                request = TurnRequest(origin.pacing_host, origin.text, agent.name, pace, url)
                left_s = None if deadline_mono is None else max(0.0, deadline_mono - clock.monotonic())
                permit = await agent.pacer.start(request, left_s)
                if not permit.waited or (
                    # As ``_granted_late`` finds for nearly every turn: a call less.
                    site is not None
                    and age_of_hit(verdict, clock.monotonic(), clock.wall()) < DAY_S
                    and agent.basis(origin) is site
                ):
                    return self._granted(verdict, permit)
                turn = self._granted_late(origin, verdict, site, pace, permit)
                if turn is not None:
                    return turn
        except TooFar as far:
            # What is left of the wait after robots.txt is no number that the caller knows.
            raise TooFar(far.host, far.not_yet, far.max_wait_s if max_wait_s is None else max_wait_s) from None
        except Disallowed as error:
            if error.verdict is not self._verdict:
                self._verdict = None  # too slow: ``pace_rules`` has counted that
            raise
        finally:
            if self._counts and self._verdict is not None:
                self._agent.counted(self._verdict)

    def _granted(self, verdict: Verdict, permit: Permit) -> Turn:
        """Return the turn."""
        return Turn(verdict, permit, self._agent)

    def _granted_late(
        self, origin: Origin, verdict: Verdict, site: KnownSite | None, pace: StatedPace | None, permit: Permit
    ) -> Turn | None:
        """Return the turn after a wait; None if the permit was given back, because another verdict or pace holds.

        ``site`` is what ``known`` has returned with the verdict; None for a verdict of another origin.
        """
        clock = self._agent.clock
        try:
            now_mono, now_wall = clock.monotonic(), clock.wall()
            if site is None:
                age_s = verdict.age_s + max(now_mono - self._at_mono, now_wall - self._at_wall)
            else:
                age_s = age_of_hit(verdict, now_mono, now_wall)
            usable = age_s < DAY_S  # RFC 9309 2.4: no copy older than 24 hours SHOULD be used
            holds: Verdict | None = verdict
            if not usable or self._agent.basis(origin) != self._basis:
                holds = self._gate.judged(self._url)
                if holds is not None:
                    self._verdict = holds
                elif usable and self._checked_again:
                    holds = verdict  # fetched for this turn
            if holds is not None:
                _close_if_refused(self._agent.pacer, origin, holds)
                if holds is verdict or self._agent.pace_rules(origin) is pace:
                    return self._granted(holds, permit)
        except BaseException:
            permit.give_back()
            raise
        permit.give_back()
        self._checked_again = True
        return None

    def _refuse_to_wait_for_itself(self, origin: Origin) -> None:
        """Raise TurnHeld for a task that holds all the turns that its host grants at once; Disallowed if known."""
        held = self._agent.turn_in_the_way(origin.pacing_host)
        if held is None:
            return
        verdict = self._verdict = self._gate.judged(self._url)
        if verdict is not None:
            _close_if_refused(self._agent.pacer, origin, verdict)
        raise TurnHeld(self._url, held_by=held.url)

    def _note(self, origin: Origin, verdict: Verdict) -> None:
        """Keep a verdict and what it rests on, in the step in which it was made: later that may be something else."""
        self._verdict = verdict
        self._basis = self._agent.basis(origin)
        clock = self._agent.clock
        self._at_mono, self._at_wall = clock.monotonic(), clock.wall()

    async def _checked(self, origin: Origin, verdict: Verdict | None, deadline_mono: float | None) -> Verdict:
        """Return the verdict that was found at once, or else one that has to be fetched for; raises Disallowed."""
        if verdict is None:
            verdict = await self._learn(origin, deadline_mono)
        else:
            self._note(origin, verdict)
        _close_if_refused(self._agent.pacer, origin, verdict)
        return verdict

    async def _learn(self, origin: Origin, deadline_mono: float | None) -> Verdict:
        """Return a verdict that has to be fetched for; raises TooFar if it does not come before the deadline."""
        clock = self._agent.clock

        async def check() -> Verdict:
            verdict = await self._gate.learn(self._url)
            self._note(origin, verdict)
            return verdict

        if deadline_mono is None:
            return await check()
        # A task that can be given up: what it waits for, as the fetch of robots.txt, goes on for the others.
        checking = asyncio.get_running_loop().create_task(check())
        if not await ends_within(clock, max(0.0, deadline_mono - clock.monotonic()), checking):
            raise TooFar(origin.pacing_host, NotYet(clock.wall(), Bound.ROBOTS_TXT), self._max_wait_s or 0.0)
        checked = checking.result()
        if self._agent.basis(origin) != self._basis and (verdict := self._gate.judged(self._url)) is not None:
            self._note(origin, verdict)  # it changed between the end of that task and the next step of this one
            return verdict
        return checked


def take_now(peek: Callable[[str], Verdict | None], agent: Basis, url: str) -> Turn | NotYet:
    """Return a turn at ``url`` if there is one now; raises what ``AgentView.try_turn`` says."""
    verdict = peek(url)
    if verdict is None:
        return _unknown(agent, url)
    permit = agent.pacer.try_start(_wanted(agent, url, verdict)[1])
    return permit if isinstance(permit, NotYet) else Turn(verdict, permit, agent)


async def take_all_now(
    peek: Callable[[str], Verdict | None], agent: Basis, urls: Mapping[int, str]
) -> dict[int, Turn | NotYet | Verdict]:
    """Return what there is now at each of ``urls``, by the same keys; the verdict where ``take_now`` raises Disallowed.

    The pacer grants all turns at once. It may have to wait for a server; where what a verdict rests on has changed
    meanwhile, its turn is given back.
    """
    answers: dict[int, Turn | NotYet | Verdict] = {}
    asked: dict[int, tuple[Verdict, Origin, object, TurnRequest]] = {}
    for place, url in urls.items():
        verdict = peek(url)
        if verdict is None:
            answers[place] = _unknown(agent, url)
            continue
        try:
            origin, request = _wanted(agent, url, verdict)
        except Disallowed as disallowed:
            answers[place] = disallowed.verdict
        else:
            asked[place] = verdict, origin, agent.basis(origin), request
    permits = await agent.pacer.try_starts([request for *_, request in asked.values()])
    for (place, (verdict, origin, basis, _)), permit in zip(asked.items(), permits, strict=True):
        if isinstance(permit, NotYet):
            answers[place] = permit
        elif agent.basis(origin) == basis:
            answers[place] = Turn(verdict, permit, agent)
        else:
            permit.give_back()
            answers[place] = NotYet(agent.clock.wall(), Bound.ROBOTS_TXT)
    return answers


def _unknown(agent: Basis, url: str) -> NotYet:
    """Have robots.txt fetched, and return the answer until then."""
    agent.ask_ahead(split(url)[0])
    return NotYet(agent.clock.wall(), Bound.ROBOTS_TXT)


def _wanted(agent: Basis, url: str, verdict: Verdict) -> tuple[Origin, TurnRequest]:
    """Return what the pacer is asked for; raises Disallowed."""
    site = agent.unpaced_site(url) if verdict.allowed else None
    if site is not None:
        origin, pace = site.origin, site.deciding
    else:
        origin = split(url)[0]
        _close_if_refused(agent.pacer, origin, verdict)
        pace = agent.pace_rules(origin)
    return origin, TurnRequest(origin.pacing_host, origin.text, agent.name, pace, url)


def _close_if_refused(pacer: Pacer, origin: Origin, verdict: Verdict) -> None:
    """Raise Disallowed, or close the host if its robots.txt was answered with 429."""
    if not verdict.allowed:
        raise Disallowed(verdict)
    source = verdict.source
    if source is not None and source.of_host and source.not_before is not None and verdict.match.allowed:
        # An older copy still serves. Where none does, the verdict denies, or the gate only reports.
        pacer.close_host(origin.pacing_host, source.not_before, Bound.RETRY_AFTER)
