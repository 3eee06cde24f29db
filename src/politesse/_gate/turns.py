"""Takes turns: check the URL, wait for the permit, check again if the context has changed.

Theory of operation. A turn covers one hop. A task takes the turn of the next hop only after its turn of the last hop
has ended. So two tasks that follow redirects to each other's host cannot wait for each other.

A verdict is made before the wait, and the wait may be long. The URL is judged again only if its permission is no longer
current: the copy of robots.txt, the host policy, or a tdmrep.json that is enforced was replaced. The expiry of a copy
during the wait does not count. Otherwise a robots.txt with a lifetime shorter than the pause of its host would
postpone the turn for ever. If the copy is older than a day, the verdict is made again (RFC 9309 2.4). So it is after
the expiry of a failure, which permits pages only in report mode.

    check -> wait -> current, copy younger than a day, no expired failure ----------------------> turn
                  -> new permission in the cache, with the same file --------------------------> turn
                  -> new permission with another file: give the permit back, wait again --------> as above
                  -> new permission denies: give the permit back, raise Disallowed
                  -> none is known: give the permit back, check (fetch), wait again ------------> as above

A waiter that gives its permit back keeps its place in line. If no permission is known again after a further wait,
the verdict holds for a day. Otherwise files with short lifetimes would postpone the turn for ever.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from politesse._base.checks import AsyncOnly, check_wait
from politesse._base.constants import DAY_S
from politesse._gate.turn import ENTERED, Turn, entered_turns
from politesse.clock import ends_within
from politesse.errors import ConfigurationError, ConfigurationTypeError, Disallowed, TooFar, TurnHeld
from politesse.events import TurnGranted
from politesse.origin import Origin, StrOrURL, split, url_text
from politesse.verdict import CLOSED, Bound, NotYet, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from politesse._gate.permission import Judged
    from politesse._gate.view import AgentView
    from politesse._pacing.requests import Permit, TurnRequest


@dataclass(slots=True, eq=False, repr=False)
class TurnWait(AsyncOnly, AbstractAsyncContextManager["Turn", None]):
    """The wait for one turn. ``async with`` waits, enters the turn, and ends it; ``take`` only waits.

    Args:
        agent: judges the URL.
        url: the URL to request.
        max_wait_s: how long to wait at the most, in seconds, or None for no limit.
        exempt: the reason not to check robots.txt, or None to check it.
        counts: whether to count and publish the verdict; a TOO_SLOW verdict is always counted.
    """

    agent: AgentView
    url: StrOrURL
    max_wait_s: float | None = None
    exempt: str | None = None
    counts: bool = field(default=True, kw_only=True)
    _url: str = field(init=False)
    _entered: bool = field(default=False, init=False)
    _checked_again: bool = field(default=False, init=False)
    _turn: Turn | None = field(default=None, init=False)
    _judge: Callable[[str], Judged | None] = field(init=False)
    # The verdict to count, its permission, and its copy, which the cache finds while it is kept here.
    _judged: Judged | None = field(default=None, init=False)

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report the mistake

        def __await__(self) -> NoReturn:
            raise TypeError("a turn needs 'async with gate.turn(url) as turn', or 'turn = await gate.take_turn(url)'")

    async def __aenter__(self) -> Turn:
        if self._entered:
            raise RuntimeError("this turn was waited for already: call turn() for each 'async with'")
        self._entered = True
        self._turn = turn = await self.take()
        return turn.__enter__()

    async def __aexit__(self, *_: object) -> None:
        if self._turn is not None:
            self._turn.end()

    async def take(self) -> Turn:
        """Wait for the turn, and return it. Raises the same errors as ``AgentView.turn``."""
        agent, max_wait_s, clock = self.agent, self.max_wait_s, self.agent.clock
        self._judge = agent.judged
        if max_wait_s is not None or self.exempt is not None:
            self._check_arguments()
        self._url = self.url if isinstance(self.url, str) else url_text(self.url)
        since_mono = clock.monotonic()
        deadline_mono = None if max_wait_s is None else since_mono + max_wait_s
        check_lines = None
        permit: Permit | None = None  # the permit that was given back, whose place in line is kept
        turn: Turn | None = None
        try:
            if ENTERED.get() and entered_turns():
                check_lines = self._refuse_to_wait_for_itself
                check_lines()
            while True:
                judged = self._judge(self._url) or await self._learned(deadline_mono)
                self._judged = verdict, permission, _ = judged
                request = agent.turn_request(permission, verdict, check_lines)
                left_s = None if deadline_mono is None else max(0.0, deadline_mono - clock.monotonic())
                permit = await agent.pacer.start(request, left_s, permit)
                turn = self._granted_late(judged, permit) if permit.waited else Turn(verdict, permit, agent.state)
                if turn is not None:
                    return turn
        except TooFar as far:
            # The error names the caller's limit, not the time that was left after the fetch of robots.txt.
            raise TooFar(far.host, far.not_yet, far.max_wait_s if max_wait_s is None else max_wait_s) from None
        except Disallowed as error:
            if self._judged is not None and error.verdict is not self._judged[0]:
                self._judged = None  # a TOO_SLOW verdict, which was counted already
            raise
        finally:
            if self.counts and self._judged is not None:
                agent.counted(self._judged[0])
            if agent.state.publisher.subscribers:
                granted(agent, turn, since_mono=since_mono)

    def _check_arguments(self) -> None:
        if self.max_wait_s is not None:
            check_wait("max_wait_s", self.max_wait_s)
        given: object = self.exempt  # callers may pass exempt=True by mistake
        if given is not None and (not isinstance(given, str) or not given.strip()):
            kind = ConfigurationError if isinstance(given, str) else ConfigurationTypeError
            raise kind(f"exempt={given!r:.100}: give the reason, as in exempt='our own server'")
        if self.exempt is not None:
            self._judge = partial(self.agent.exempted, reason=self.exempt)

    async def _learned(self, deadline_mono: float | None) -> Judged:
        """Fetch robots.txt, and return the verdict with its permission and copy; raises TooFar at the deadline."""
        agent = self.agent
        if deadline_mono is None:
            return await agent.fetched(self._url)
        # The fetch runs in a task, so that this wait can end early. The fetch of robots.txt then goes on, because other
        # requests may wait for it.
        learning = asyncio.get_running_loop().create_task(agent.fetched(self._url))
        if not await ends_within(agent.clock, max(0.0, deadline_mono - agent.clock.monotonic()), learning):
            host = Origin.of(self._url).pacing_host
            raise TooFar(host, NotYet(agent.clock.wall(), Bound.ROBOTS_TXT), self.max_wait_s or 0.0)
        judged = learning.result()
        if agent.is_current(*judged[1:]):
            return judged
        # The copy was replaced after the task of the fetch had ended, and before this task resumed.
        return self._judge(self._url) or judged

    def _granted_late(self, judged: Judged, permit: Permit) -> Turn | None:
        """Return the turn after a wait. If the verdict or pace has changed, give the permit back and return None."""
        agent, (verdict, permission, copy) = self.agent, judged
        now = agent.clock.monotonic(), agent.clock.wall()
        usable, is_over = True, False
        if copy is not None and not (now[0] < copy.refresh_mono and now[1] < copy.refresh_wall):
            # RFC 9309 2.4: a copy SHOULD NOT be used for more than 24 hours.
            usable = copy.age_s(*now) < DAY_S
            # In report mode a failure permits the URL, but robots.txt is fetched again before the page.
            is_over = copy.source.result in CLOSED and not copy.holds(*now)
        if usable and not is_over and agent.is_current(permission, copy):
            return Turn(verdict, permit, agent.state)
        try:
            again = self._judge(self._url)
            if again is not None:
                self._judged = verdict, other, _ = again
                agent.turn_request(other, verdict)  # raises Disallowed
                holds = other.has_pace_of(permission)
            else:
                holds = usable and self._checked_again  # it has already waited again once
        except BaseException:
            permit.give_back()
            raise
        if holds:
            return Turn(verdict, permit, agent.state)
        permit.give_back()
        self._checked_again = True
        return None

    def _refuse_to_wait_for_itself(self) -> None:
        """Raise TurnHeld if this task already holds as many turns of the host as the host grants at once.

        If the verdict on the URL is known and denies it, raise Disallowed instead.
        """
        origin, _ = split(self._url)
        held = self.agent.blocking_turn(origin.pacing_host)
        if held is None:
            return
        judged = self._judged = self._judge(self._url) or self._judged
        if judged is not None and not judged[0].allowed:
            raise Disallowed(judged[0])
        raise TurnHeld(self._url, held_by=held.url)


def try_turn(agent: AgentView, url: str, judged: Judged | None) -> Turn | NotYet:
    """Return a turn at ``url`` if it may start now. Raises the same errors as ``AgentView.try_turn``.

    Args:
        agent: the agent that requests the turn.
        url: the URL to request.
        judged: the verdict on ``url``, or None if it is unknown.
    """
    if judged is None:
        return _unknown(agent, url)
    verdict, permission, _ = judged
    permit = agent.pacer.try_start(agent.turn_request(permission, verdict))
    return permit if isinstance(permit, NotYet) else Turn(verdict, permit, agent.state)


async def try_turns(
    agent: AgentView, asked: Iterable[tuple[str, Judged | Verdict | None]]
) -> list[Turn | NotYet | Verdict]:
    """Return the answer of ``try_turn`` for each URL; a denying verdict is returned, not raised.

    The pacer grants all turns in one call, which may wait for the Redis of a fleet. If the copy of a verdict is
    replaced during this call, the turn of the verdict is given back.

    Args:
        agent: the agent that requests the turns.
        asked: each URL, with its verdict and permission, with a verdict without permission, or with None if the
            verdict is unknown.
    """
    answers: list[Turn | NotYet | Verdict] = []
    placed: list[tuple[int, Judged]] = []
    requests: list[TurnRequest] = []
    for url, judged in asked:
        if judged is None:
            answers.append(_unknown(agent, url))
        elif isinstance(judged, Verdict):
            answers.append(judged)
        else:
            verdict, permission, _ = judged
            try:
                requests.append(agent.turn_request(permission, verdict))
            except Disallowed as disallowed:
                answers.append(disallowed.verdict)
            else:
                placed.append((len(answers), judged))
                answers.append(verdict)  # a placeholder until the pacer has answered
    permits = await agent.pacer.try_starts(requests)
    for (place, (verdict, permission, copy)), permit in zip(placed, permits, strict=True):
        if isinstance(permit, NotYet):
            answers[place] = permit
        elif agent.is_current(permission, copy):
            answers[place] = Turn(verdict, permit, agent.state)
        else:
            permit.give_back()
            answers[place] = NotYet(agent.clock.wall(), Bound.ROBOTS_TXT)
    return answers


def granted(agent: AgentView, *answers: object, since_mono: float | None = None) -> None:
    """Publish each turn among ``answers``; ``since_mono`` is when the caller began to wait, None if it did not wait."""
    publisher = agent.state.publisher
    for answer in answers if publisher.subscribers else ():
        if isinstance(answer, Turn):
            waited_s = 0.0 if since_mono is None else agent.clock.monotonic() - since_mono
            publisher.forward(TurnGranted(answer.verdict, waited_s))


def _unknown(agent: AgentView, url: str) -> NotYet:
    """Start to fetch robots.txt, and return a NotYet."""
    agent.ask_ahead(Origin.of(url))
    return NotYet(agent.clock.wall(), Bound.ROBOTS_TXT)
