"""A turn, and the tasks that hold it.

Theory of operation. A turn is *held* by each task that has entered it, until it ends. Entering notes the task in the
turn, and the turn in a context variable; both references are weak. A task that holds as many turns of a line (of a
host; or of an address or domain) as there may be at once would wait for itself: its next one there raises TurnHeld. A
child task (``asyncio.gather``) sees the turns of its parent by the context that it inherits, and integrations use them
there, but it does not hold them: for another turn of the host it waits, and its parent may end the one before
meanwhile.
"""

from __future__ import annotations

import asyncio
import warnings
from asyncio import _get_running_loop
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, Self
from weakref import ref

from politesse._http.ratelimit import quota_fields
from politesse._pacing.backoff import CLOSING
from politesse._text import printable
from politesse.events import TurnDropped
from politesse.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from politesse.events import Event
    from politesse.ports import PacedLine, Pacer, Permit
    from politesse.verdict import Verdict

_NO_HEADERS: Final[Mapping[str, str]] = {}
_NO_TURNS: Final[Sequence[Turn]] = ()


class Granting(Protocol):
    """What a turn needs of the gate that granted it."""

    @property
    def pacer(self) -> Pacer:
        """The pacer that granted the permit."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop to which the gate belongs; None while it was used in none."""

    def publish(self, event: Event, /) -> None:
        """Publish an event."""


class Turn:
    """Permission to make one request now. Use it as a context manager, synchronous or not; its end ends the turn.

    The task that enters it holds it: a second turn of the same host in this task raises TurnHeld. PoliteSession,
    PoliteTransport and RobotsMiddleware use the turn that the task holds for the URL that they request.

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

    __slots__ = (
        "__weakref__",
        "_claimed",
        "_entered",
        "_granting",
        "_holders",
        "_observed",
        "_permit",
        "may_close",
        "url",
        "verdict",
    )

    def __init__(self, verdict: Verdict, permit: Permit, granting: Granting) -> None:
        self.url = verdict.url
        self.verdict = verdict
        self._permit: Permit | None = permit
        # One reference to the gate instead of three to what it has, and its loop is not looked up for each turn.
        self._granting = granting
        self._entered = False
        self._claimed = False
        self._observed = False
        self.may_close = False
        self._holders: tuple[ref[asyncio.Task[object]], ...] = ()

    def observe(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        """Record what the server answered, as soon as its headers are known: they set the pace of this host.

        A 429 or 503 closes the host from now on, for all other turns as well. How long the answer took is counted up
        to here, so that a long body does not make a slow server. After the end of the turn it has no effect, nor after
        an integration that made the request has recorded the answer.

        Args:
            status: the HTTP status.
            headers: the headers of the answer, names in any case.

        Raises:
            TypeError: ``status`` is no int.
        """
        if not isinstance(status, int):
            raise TypeError(f"status={status!r:.100}: give an int, as 200")
        if self._permit is None or (self._claimed and self._observed):
            return
        self._observed = True
        lower = {name.lower(): value for name, value in headers.items()} if headers else _NO_HEADERS
        if status in CLOSING or (lower and quota_fields(lower)):
            self.may_close = True
        self._permit.observe(status, lower)

    def claim(self) -> bool:
        """Take the turn over for a request, as integrations do; return False if it was used before, or has ended.

        Once it is claimed, the first answer that is recorded counts, and later calls of ``observe`` have no effect.
        """
        if self._permit is None or self._claimed or self._observed:
            return False
        self._claimed = True
        return True

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
        return self._permit is not None and self._permit.under_way

    def report_drop(self) -> None:
        """Publish that its response was garbage collected, unless it has ended."""
        if self.under_way:
            soon(self._granting.loop, partial(self._granting.publish, self._dropped()))

    def is_at(self, host: str) -> bool:
        """Return whether it is a turn at a pacing host."""
        return Origin.of(self.url).pacing_host == host

    def is_in(self, line: PacedLine) -> bool:
        """Return whether it takes one of the places of a line."""
        return line in self._granting.pacer.lines(Origin.of(self.url).pacing_host)

    def is_of(self, pacer: Pacer) -> bool:
        """Return whether the gatekeeper that uses ``pacer`` granted it."""
        return self._granting.pacer is pacer

    def is_held_by(self, task: asyncio.Task[object]) -> bool:
        """Return whether ``task`` has entered it."""
        return any(holder() is task for holder in self._holders)

    def enter(self, task: asyncio.Task[object] | None) -> Self:
        """Enter it, in ``task``, which is the current one; None where there is none."""
        self._entered = True
        if self._permit is None:
            return self
        if task is not None:
            if not self._holders:
                self._holders = (ref(task),)
            elif not self.is_held_by(task):
                self._holders = (*self._holders, ref(task))
        if ENTERED.get():
            ENTERED.set((*(ref(turn) for turn in entered_turns() if turn is not self), ref(self)))
        else:
            ENTERED.set((ref(self),))
        return self

    def enter_here(self) -> Self:
        """Enter it in the current task, which is one of the gate's event loop."""
        # Python 3.11 makes a system call to find the running loop.
        loop = self._granting.loop
        return self.enter(None if loop is None else asyncio.current_task(loop))

    def __enter__(self) -> Self:
        return self.enter(current_task())

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered = True
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.end()  # as ``end``, without the call
        entered = ENTERED.get()
        if len(entered) == 1 and entered[0]() is self:
            ENTERED.set(())  # so that the next turn of the task need not find out that this one has ended

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(exc_type, exc, traceback)

    def __bool__(self) -> bool:
        return True

    def __del__(self) -> None:
        try:
            permit = self._permit
        except AttributeError:  # the constructor failed
            return
        if permit is None or not permit.under_way:
            return
        if self._entered:
            message = f"{self!r} was dropped before its end: its host is given back. Use it with 'with', or call end()"
        else:
            message = f"{self!r} was never entered: use it with 'with', or call give_back()"
        self._permit = None
        end = permit.end if self._entered else permit.give_back
        loop = self._granting.loop
        if loop is _get_running_loop():
            end()
        else:
            soon(loop, end)
        soon(loop, partial(self._granting.publish, self._dropped()))
        warnings.warn(message, ResourceWarning, stacklevel=2)  # last: it may be set to raise

    def _dropped(self) -> TurnDropped:
        return TurnDropped(Origin.of(self.url).pacing_host, self.url)

    def __repr__(self) -> str:
        state = "ended" if not self.under_way else "under way" if self._entered else "not entered"
        return f"<Turn {printable(self.url)}: {state}>"


# Set anew, never reset by a token: a generator that the collector closes ends in another context than it began in.
ENTERED: Final[ContextVar[tuple[ref[Turn], ...]]] = ContextVar("_ENTERED", default=())
"""The turns that the current task, or one that it descends from, has entered; empty, where that is known, for none."""


def soon(loop: asyncio.AbstractEventLoop | None, callback: Callable[[], object]) -> None:
    """Have ``callback`` called by the event loop of a turn, at once if it has none; for finalizers.

    The garbage collector may run in any thread, and between any two instructions: also while a subscriber or a log
    handler is at work, which must not be entered again.
    """
    if loop is None:
        callback()
    else:
        with suppress(RuntimeError):  # the event loop is closed, and with it every waiter
            loop.call_soon_threadsafe(callback)


def in_turn() -> bool:
    """Return whether the current task, or one that it descends from, holds any turn."""
    return bool(entered_turns())


def entered_turns() -> Sequence[Turn]:
    """Return the turns under way that the current task, or one that it descends from, has entered."""
    entered = ENTERED.get()
    if not entered:
        return _NO_TURNS
    turns = [turn for reference in entered if (turn := reference()) is not None and turn.under_way]
    if not turns:
        ENTERED.set(())  # so that this is found out once: a turn that has ended does not begin again
    return turns


def holds_turn_at(host: str) -> bool:
    """Return whether the current task or its parent holds a turn at a host: waiting for another would deadlock."""
    return any(turn.is_at(host) for turn in entered_turns())


def turn_in_the_way(pacer: Pacer, host: str) -> Turn | None:
    """Return a turn for whose end the current task would wait if it waited for one more at ``host``; None for none.

    That is so if this very task holds as many turns of one line in which the request would wait as there may be at
    once: of the host, or of its address or domain where those are paced, at any gate of the same scope.
    """
    entered = entered_turns()
    if not entered:
        return None
    task = current_task()
    held = [turn for turn in entered if turn.is_held_by(task)] if task is not None else []
    for line in pacer.lines(host) if held else ():
        in_line = [turn for turn in held if turn.is_in(line)]
        if len(in_line) >= line.max_concurrent:
            return in_line[-1]
    return None


def claim_turn(pacer: Pacer, agent: str, is_for: Callable[[str], bool]) -> Turn | None:
    """Claim a turn that the current task, or one that it descends from, holds and has not used.

    Args:
        pacer: of the gatekeeper.
        agent: the product tokens for which it was granted, joined by commas.
        is_for: returns whether a turn with this URL will do.

    Returns:
        The turn, the one that was entered last if there are several; None if there is none.
    """
    for turn in reversed(entered_turns()):
        if turn.is_of(pacer) and turn.verdict.agent == agent and is_for(turn.url) and turn.claim():
            return turn
    return None


def current_task() -> asyncio.Task[object] | None:
    """Return the current task; None outside of any."""
    loop = _get_running_loop()
    return None if loop is None else asyncio.current_task(loop)
