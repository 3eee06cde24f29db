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
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from politesse._constants import DAY_S
from politesse._http.ratelimit import quota_fields
from politesse._pacing.backoff import CLOSING
from politesse._tasks import ends_within
from politesse._text import printable
from politesse.errors import Disallowed, TooFar
from politesse.origin import Origin
from politesse.ports import TurnRequest
from politesse.verdict import Bound, NotYet

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from types import TracebackType

    from politesse.clock import Clock
    from politesse.ports import Pacer, Permit, StatedPace
    from politesse.verdict import Verdict

_NO_HEADERS: Final[Mapping[str, str]] = {}


class Turn:
    """Permission to make one request now. Use it as a context manager, synchronous or not; its end ends the turn.

    >>> import asyncio
    >>> from politesse import Gatekeeper
    >>> from politesse.testing import ScriptedFetcher
    >>> async def main():
    ...     fetcher = ScriptedFetcher({"https://example.com": 404})
    ...     async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=fetcher) as gate:
    ...         async with gate.turn("https://example.com/page") as turn:
    ...             turn.observe(200)  # the status of your request
    ...         return turn
    >>> asyncio.run(main())
    <Turn https://example.com/page: ended>

    Attributes:
        url: the URL that may be requested.
        verdict: why.
        may_close: whether an answer was observed that may have closed the host: a 429, a 503 or a quota.
    """

    __slots__ = ("_entered", "_permit", "may_close", "url", "verdict")

    def __init__(self, verdict: Verdict, permit: Permit | None) -> None:
        self.url = verdict.url
        self.verdict = verdict
        self._permit: Permit | None = permit
        self._entered = False
        self.may_close = False

    def observe(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        """Record what the server answered, as soon as its headers are known: they set the pace of this host.

        A 429 or 503 closes the host from now on, for all other turns as well. How long the answer took is counted up
        to here, so that a long body does not make a slow server. After the end of the turn it has no effect.

        Args:
            status: the HTTP status.
            headers: the headers of the answer, names in any case.
        """
        if self._permit is not None:
            lower = {name.lower(): value for name, value in headers.items()} if headers else _NO_HEADERS
            self.may_close = self.may_close or status in CLOSING or bool(quota_fields(lower))
            self._permit.observe(status, lower)

    def end(self) -> None:
        """End the turn: the interval to the next one counts from now. Calling it again has no effect."""
        self._entered = True
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.end()

    def give_back(self) -> None:
        """End the turn without a request: it has cost the host nothing. After ``end`` it has no effect."""
        self._entered = True
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.give_back()

    @property
    def under_way(self) -> bool:
        """Whether it holds the permit of its host: it has not ended."""
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
            warnings.warn(
                f"{self!r} was never entered: use it with 'with', or call give_back()", ResourceWarning, stacklevel=2
            )
            self.give_back()

    def __repr__(self) -> str:
        state = "ended" if self._permit is None else "under way" if self._entered else "not entered"
        return f"<Turn {printable(self.url)}: {state}>"


_HELD: Final[ContextVar[tuple[Turn, ...]]] = ContextVar("_HELD", default=())


@contextmanager
def holding(turn: Turn) -> Generator[None, None, None]:
    """Let ``holds_turn_at`` know, within the block, that the task that runs it holds ``turn``."""
    before = _HELD.get()
    _HELD.set((*before, turn))
    try:
        yield
    finally:
        _HELD.set(before)  # not reset by a token: what the collector closes ends in another context than it began in


def holds_turn_at(host: str) -> bool:
    """Return whether the current task or its parent holds a turn at a host: waiting for another would deadlock."""
    return any(turn.under_way and Origin.of(turn.url).pacing_host == host for turn in _HELD.get())


class Gate(Protocol):
    """Answers whether a URL may be requested."""

    async def check(self, url: str, /) -> Verdict:
        """Return the verdict."""

    def peek(self, url: str, /) -> Verdict | None:
        """Return the verdict if it is known now."""


class Basis(Protocol):
    """Knows what verdicts rest on, and what sites state about their pace."""

    def basis(self, origin: Origin, /) -> object:
        """Return what verdicts on ``origin`` rest on now; equal to an earlier one if nothing changed since."""

    def pace_rules(self, origin: Origin, /) -> StatedPace | None:
        """Return what the robots.txt of ``origin`` states about pace, if anything is known."""

    def ask_ahead(self, origin: Origin, /) -> None:
        """Have robots.txt fetched, without waiting."""


async def take(gate: Gate, agent: Basis, pacer: Pacer, clock: Clock, url: str, max_wait_s: float | None) -> Turn:
    """Wait for a turn at ``url``; raises what ``AgentView.turn`` says."""
    origin = Origin.of(url)
    deadline_mono = None if max_wait_s is None else clock.monotonic() + max_wait_s
    checked_again = False
    while True:
        made = await _check(gate, agent, clock, url, deadline_mono)
        if made is None:
            raise TooFar(origin.pacing_host, NotYet(clock.wall(), Bound.ROBOTS_TXT), max_wait_s or 0.0)
        verdict = made.verdict
        _close_if_refused(pacer, origin, verdict)
        request = _request(agent, origin, verdict)
        left_s = None if deadline_mono is None else max(0.0, deadline_mono - clock.monotonic())
        permit = await pacer.start(request, left_s)
        if not permit.waited:
            return Turn(verdict, permit)
        try:
            unchanged = agent.basis(origin) == made.basis
            holds = _holds_still(gate, clock, made, unchanged=unchanged, checked_again=checked_again)
            if holds is not None:
                _close_if_refused(pacer, origin, holds)
                if holds is verdict or agent.pace_rules(origin) is request.pace:
                    return Turn(holds, permit)
        except BaseException:
            permit.give_back()
            raise
        permit.give_back()
        checked_again = True


class _Made(NamedTuple):
    """A verdict, what it rests on, and when it was made, by both clocks."""

    verdict: Verdict
    basis: object
    at_mono: float
    at_wall: float


def _holds_still(gate: Gate, clock: Clock, made: _Made, *, unchanged: bool, checked_again: bool) -> Verdict | None:
    """Return the verdict that holds after a wait; None if robots.txt has to be fetched first."""
    passed_s = max(clock.monotonic() - made.at_mono, clock.wall() - made.at_wall)
    usable = made.verdict.age_s + passed_s < DAY_S  # RFC 9309 2.4: no copy older than 24 hours SHOULD be used
    if usable and unchanged:
        return made.verdict
    verdict = gate.peek(made.verdict.url)
    if verdict is None and usable and checked_again:
        return made.verdict  # fetched for this turn
    return verdict


async def _check(gate: Gate, agent: Basis, clock: Clock, url: str, deadline_mono: float | None) -> _Made | None:
    """Return the verdict and what it rests on; None if it does not come before the deadline."""
    origin = Origin.of(url)

    def made(verdict: Verdict) -> _Made:
        return _Made(verdict, agent.basis(origin), clock.monotonic(), clock.wall())

    async def check() -> _Made:
        return made(await gate.check(url))  # in one step: a basis that is read later may be another one

    verdict = gate.peek(url)
    if verdict is not None:
        return made(verdict)
    if deadline_mono is None:
        return await check()
    # A task that can be given up: what it waits for, as the fetch of robots.txt, goes on for the others.
    checking = asyncio.get_running_loop().create_task(check())
    if not await ends_within(clock, max(0.0, deadline_mono - clock.monotonic()), checking):
        return None
    checked = checking.result()
    if agent.basis(origin) != checked.basis and (verdict := gate.peek(url)) is not None:
        return made(verdict)  # it changed between the end of that task and the next step of this one
    return checked


def take_now(gate: Gate, agent: Basis, pacer: Pacer, clock: Clock, url: str) -> Turn | NotYet:
    """Return a turn at ``url`` if there is one now; raises what ``AgentView.try_turn`` says."""
    origin = Origin.of(url)
    verdict = gate.peek(url)
    if verdict is None:
        agent.ask_ahead(origin)
        return NotYet(clock.wall(), Bound.ROBOTS_TXT)
    _close_if_refused(pacer, origin, verdict)
    permit = pacer.try_start(_request(agent, origin, verdict))
    return permit if isinstance(permit, NotYet) else Turn(verdict, permit)


def _request(agent: Basis, origin: Origin, verdict: Verdict) -> TurnRequest:
    return TurnRequest(origin.pacing_host, str(origin), verdict.agent, agent.pace_rules(origin))


def _close_if_refused(pacer: Pacer, origin: Origin, verdict: Verdict) -> None:
    """Raise Disallowed, or close the host if its robots.txt was answered with 429."""
    if not verdict.allowed:
        raise Disallowed(verdict)
    source = verdict.source
    if source is not None and source.of_host and source.not_before is not None and verdict.match.allowed:
        # An older copy still serves. Where none does, the verdict denies, or the gate only reports.
        pacer.close_host(origin.pacing_host, source.not_before, Bound.RETRY_AFTER)
