"""``async with gate.turn(url) as turn``: waits for a turn on entering, and ends it on leaving."""

from __future__ import annotations

from asyncio import _get_running_loop, current_task
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from politesse._checks import check_wait
from politesse._gate.agent import Exemption
from politesse._pacing.held import Turn
from politesse._pacing.turns import Taking
from politesse.origin import url_text

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from politesse._gate.agent import Agent
    from politesse.origin import StrOrURL
    from politesse.ports import Permit
    from politesse.verdict import Verdict


class TurnContext(Taking, AbstractAsyncContextManager["Turn", None]):
    """Waits for a turn when it is entered, which is possible once, and ends it when it is left.

    A class with slots, because an asynchronous generator adds 18 % to a turn (as measured): the event loop keeps track
    of it, and it is resumed by two coroutines more.

    Args:
        agent: for whom.
        url: what to request.
        max_wait_s: how long to wait at the most, in seconds; None for no limit.
        exempt: why robots.txt is not checked; None where it is.
    """

    __slots__ = ("_entered", "_exempt", "_given", "_turn")

    _agent: Agent

    def __init__(self, agent: Agent, url: StrOrURL, max_wait_s: float | None, exempt: str | None) -> None:
        # What the constructor of Taking does as well: its call is saved.
        self._agent = self._gate = agent
        self._given = url
        self._max_wait_s = max_wait_s
        self._counts = True
        self._checked_again = False
        self._verdict = None
        self._exempt = exempt
        self._entered = False
        self._turn: Turn | None = None

    def taken(self) -> Coroutine[object, object, Turn]:
        """Check what was given, and start to wait; raises what ``AgentView.turn`` says."""
        agent = self._agent
        state = agent.state
        if state.closing is None or state.loop is not _get_running_loop():  # mostly, the call is saved
            state.check_usable()
        if self._max_wait_s is not None:
            check_wait("max_wait_s", self._max_wait_s)
        if self._exempt is not None:
            self._gate = Exemption(agent, self._exempt)
        given = self._given
        self._url = given if isinstance(given, str) else url_text(given)
        return self.take()

    def __aenter__(self) -> Coroutine[object, object, Turn]:
        if self._entered:
            raise RuntimeError("this turn was waited for already: call turn() for each 'async with'")
        self._entered = True
        return self.taken()

    def _granted(self, verdict: Verdict, permit: Permit) -> Turn:
        """Return the turn, entered already if this is."""
        turn = Turn(verdict, permit, self._agent)
        if not self._entered:
            return turn
        self._turn = turn
        return turn.enter(current_task(self._agent.state.loop))

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        turn = self._turn
        if turn is not None:
            self._turn = None
            turn.__exit__(exc_type, exc, traceback)
