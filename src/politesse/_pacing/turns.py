"""The life of one permitted request: asked for, waited for, asked about again, made, observed, ended.

A turn covers one hop. It holds leave at its host from the moment it is granted to the moment it ends, and the pause
before the next turn counts from that end, whatever happened in between. The turn of the next hop is taken after this
one has ended, so that crossed redirects cannot wait for each other.
"""

from __future__ import annotations

import asyncio
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol, Self

from politesse._tasks import ends_within
from politesse._text import printable
from politesse.origin import Origin
from politesse.verdict import Bound, Disallowed, NotYet, TooFar

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from types import TracebackType

    from politesse._pacing.scoped import Pacer
    from politesse._pacing.slot import Permit
    from politesse.clock import Clock
    from politesse.robots import RuleSet
    from politesse.verdict import Verdict

# Where answers hold for less than the pace of their host, each would have run out when its turn comes, and to ask again
# puts the turn off again. So what was got anew for a turn holds for it, for the day of RFC 9309 2.4.
_HOLDS_S: Final = 86_400.0


class Turn:
    """Leave to make one request now. Use it as a context manager, synchronous or not; leaving it ends it.

    Attributes:
        url: what may be requested.
        verdict: why.
    """

    __slots__ = ("_entered", "_pacer", "_permit", "url", "verdict")

    def __init__(self, verdict: Verdict, pacer: Pacer, permit: Permit | None) -> None:
        self.url = verdict.url
        self.verdict = verdict
        self._pacer = pacer
        self._permit = permit
        self._entered = False

    def observe(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        """Say what the server answered, as soon as its headers are known: they set the pace of this host.

        A 429 or 503 closes the host from now on, whoever else has a turn there. How long the answer took is counted
        up to here, so that a long body does not make a slow server. Once the turn has ended, it has no effect.

        Args:
            status: the HTTP status.
            headers: of the answer, names in whatever case.
        """
        if self._permit is not None:
            lower = {name.lower(): value for name, value in (headers or {}).items()}
            self._pacer.observe(self._permit, status, lower)

    def end(self) -> None:
        """End the turn: the pause to the next one counts from now. Doing so again has no effect."""
        self._entered = True
        permit, self._permit = self._permit, None
        if permit is not None:
            self._pacer.finish(permit)

    def give_back(self) -> None:
        """End the turn without a request: it has cost the host nothing. After ``end`` it has no effect."""
        self._entered = True
        permit, self._permit = self._permit, None
        if permit is not None:
            self._pacer.give_back(permit)

    @property
    def under_way(self) -> bool:
        """Whether it holds leave at its host: it has not ended."""
        return self._permit is not None

    def __enter__(self) -> Self:
        self._entered = True
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def __bool__(self) -> bool:
        return True

    def __del__(self) -> None:
        if self._permit is not None and not self._entered:
            warnings.warn(f"{self!r} was never entered; its host waited for nothing", ResourceWarning, stacklevel=2)
            self.give_back()

    def __repr__(self) -> str:
        state = "ended" if self._permit is None else "under way" if self._entered else "not entered"
        return f"<Turn {printable(self.url)}: {state}>"


_HELD: Final[ContextVar[tuple[Turn, ...]]] = ContextVar("_HELD", default=())


@contextmanager
def holding(turn: Turn) -> Generator[None, None, None]:
    """Let ``holds_turn_at`` know, within the block, that the task which runs it holds ``turn``."""
    before = _HELD.get()
    _HELD.set((*before, turn))
    try:
        yield
    finally:
        _HELD.set(before)  # not reset by a token: what the collector closes ends in another context than it began in


def holds_turn_at(host: str) -> bool:
    """Whether the task that asks, or one that started it, is within a turn at a host: there is no other meanwhile."""
    return any(turn.under_way and Origin.of(turn.url).pacing_host == host for turn in _HELD.get())


class Gate(Protocol):
    """Answers whether a URL may be requested."""

    async def check(self, url: str, /) -> Verdict:
        """Return the verdict."""

    def peek(self, url: str, /) -> Verdict | None:
        """Return the verdict if it is known now."""


class PaceSource(Protocol):
    """Knows what sites state about their pace."""

    def pace_rules(self, origin: Origin, /) -> RuleSet | None:
        """Return what the robots.txt of ``origin`` says about pace, if anything is known."""

    def ask_ahead(self, origin: Origin, /) -> None:
        """Have robots.txt asked for, without waiting."""


async def take(gate: Gate, agent: PaceSource, pacer: Pacer, clock: Clock, url: str, max_wait_s: float | None) -> Turn:
    """Wait for a turn at ``url``; raises what ``AgentView.turn`` says."""
    origin = Origin.of(url)
    deadline_mono = None if max_wait_s is None else clock.monotonic() + max_wait_s
    asked_again = False
    while True:
        verdict = await _check(gate, clock, url, deadline_mono)
        if verdict is None:
            raise TooFar(origin.pacing_host, NotYet(clock.wall(), Bound.ROBOTS_TXT), max_wait_s or 0.0)
        checked_mono, checked_wall = clock.monotonic(), clock.wall()
        _heed(pacer, origin, verdict)
        rules = agent.pace_rules(origin)
        left_s = None if deadline_mono is None else max(0.0, deadline_mono - clock.monotonic())
        permit = await pacer.start(origin.pacing_host, str(origin), rules, left_s)
        if not permit.waited:
            return Turn(verdict, pacer, permit)
        # Much may have happened meanwhile: the copy may have run out, or been replaced, or a policy been set.
        try:
            again = gate.peek(url)
            if again is None and asked_again:
                passed_s = max(clock.monotonic() - checked_mono, clock.wall() - checked_wall)
                again = verdict if verdict.age_s + passed_s < _HOLDS_S else None
            if again is not None:
                _heed(pacer, origin, again)
                if agent.pace_rules(origin) is rules:
                    return Turn(again, pacer, permit)
        except BaseException:
            pacer.give_back(permit)
            raise
        pacer.give_back(permit)
        asked_again = True


async def _check(gate: Gate, clock: Clock, url: str, deadline_mono: float | None) -> Verdict | None:
    """Return the verdict; None if it does not come before the deadline."""
    verdict = gate.peek(url)
    if verdict is not None:
        return verdict
    if deadline_mono is None:
        return await gate.check(url)
    # A task that can be given up: what it waits for, as the fetch of robots.txt, goes on for the others.
    checking = asyncio.get_running_loop().create_task(gate.check(url))
    in_time = await ends_within(clock, max(0.0, deadline_mono - clock.monotonic()), checking)
    return checking.result() if in_time else None


def take_now(gate: Gate, agent: PaceSource, pacer: Pacer, clock: Clock, url: str) -> Turn | NotYet:
    """Return a turn at ``url`` if there is one now; raises what ``AgentView.try_turn`` says."""
    origin = Origin.of(url)
    verdict = gate.peek(url)
    if verdict is None:
        agent.ask_ahead(origin)
        return NotYet(clock.wall(), Bound.ROBOTS_TXT)
    _heed(pacer, origin, verdict)
    permit = pacer.try_start(origin.pacing_host, str(origin), agent.pace_rules(origin))
    return permit if isinstance(permit, NotYet) else Turn(verdict, pacer, permit)


def _heed(pacer: Pacer, origin: Origin, verdict: Verdict) -> None:
    if not verdict.allowed:
        raise Disallowed(verdict)
    source = verdict.source
    if source is not None and source.of_host and source.not_before is not None and verdict.match.allowed:
        # robots.txt was answered with 429 while an older copy still serves. Where none does, this gate only reports.
        pacer.close(origin.pacing_host, source.not_before, Bound.RETRY_AFTER)
