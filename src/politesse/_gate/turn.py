"""A turn: which tasks hold it, and how it ends.

Theory of operation. A turn is permission for one URL plus the permit of its host. The turn holds the permit until the
turn ends. The interval before the next request counts from the end of the turn. If several requests may be under way at
the host (``max_concurrent``), the interval counts from the start of the turn.

A task *holds* each turn that it has entered. Entering a turn notes a weak reference in a context variable, so child
tasks (``asyncio.gather``) inherit the turns of their parent. If a child takes the turn for its parent, the parent calls
``hold_later`` first, because the context of a child does not change its parent's. A host (or its address or domain)
grants a limited number of turns at once. Suppose that a task holds all turns of a host, and waits for one more turn.
The task would wait for itself, or for its parent, which usually waits for the task. So the request for that turn raises
TurnHeld at once.

The library's own background tasks start in an empty context: they hold no turn of the caller that started them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Final, Self, TypeAlias
from weakref import ref

from politesse._base.tasks import running_loop
from politesse._base.text import printable
from politesse._http.fields import joined_fields
from politesse._pacing.refusals import PACE_HEADERS, PLAIN
from politesse.errors import ConfigurationError
from politesse.events import TurnDropped
from politesse.origin import Origin
from politesse.verdict import Verdict, url_to_request

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from politesse._gate.state import GateState
    from politesse._http.fields import Headers
    from politesse._pacing.hosts import PacedLine, Permit
    from politesse.ledger import Ledger


_NO_HEADERS: Final[Mapping[str, str]] = {}


class Turn:
    """Permission to make one request now. Use it with ``with`` or ``async with``; the end of the block ends the turn.

    The task that enters the turn holds it. A task that holds all turns that a host grants at once gets TurnHeld for one
    more. If the task holds a turn for a URL, PoliteSession, PoliteTransport and RobotsMiddleware request the URL in it.

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
        verdict: the verdict that permits the request.
        may_close: whether an observed answer may have closed the host, by itself or together with earlier answers.
        ended_mono: the monotonic time at which the turn ended, if it was used; or None.
    """

    __slots__ = (
        *("__weakref__", "_claimed", "_observed", "_permit", "_references", "_started_wall", "_state", "_status"),
        *("ended_mono", "may_close", "verdict"),
    )

    def __init__(self, verdict: Verdict, permit: Permit, state: GateState) -> None:
        self.verdict: Verdict = verdict
        self.may_close: bool = False
        self.ended_mono: float | None = None
        self._permit: Permit | None = permit
        self._state = state
        self._references: _References | None = None  # ``HELD`` as set on entering; None before that
        self._claimed = self._observed = False
        self._status: int | None = None
        self._started_wall = 0.0 if state.ledger is None else state.clock.wall()  # only for the ledger

    @property
    def url(self) -> str:
        """The URL that may be requested, as given; ``verdict.url`` is without userinfo and fragment."""
        return url_to_request(self.verdict)

    def observe(self, status: int, headers: Headers | None = None) -> None:
        """Record the answer of the server as soon as its headers arrive: the headers set the pace of this host.

        A 429, 502, 503 or 504 closes the host from now on, for all other turns as well. Refusals may close it, too: see
        the guide "When a site refuses". The response time is measured up to this call, so a long body does not
        count. The call has no effect after the end of the turn, or after an integration has recorded the answer to its
        own request.

        Args:
            status: the HTTP status.
            headers: the headers of the answer, in the type of your HTTP client; see ``politesse.page.Headers``. Several
                lines of one header count as one, joined with commas (RFC 9110 5.3).

        Raises:
            TypeError: if ``status`` is not an int.
        """
        if not isinstance(status, int):
            raise TypeError(f"status={status!r:.100}: give an int, as 200")
        if self._permit is None or (self._claimed and self._observed):
            return
        self._observed, self._status = True, status
        fields = _NO_HEADERS
        try:  # nearly all answers state no pace; the fields of the others are joined
            is_plain = isinstance(headers, Mapping) and PACE_HEADERS.isdisjoint(map(str.lower, headers))
        except TypeError:  # names that are octets
            is_plain = False
        if headers and not is_plain:
            fields = joined_fields(headers)
            if PACE_HEADERS.isdisjoint(fields):
                fields = _NO_HEADERS
        if fields or status not in PLAIN:
            self.may_close = True
        self._permit.observe(status, fields)

    def claim(self) -> None:
        """Claim an unused turn for a request; for integrations.

        After a claim, only the first recorded answer counts; later calls of ``observe`` have no effect.
        """
        self._claimed = True

    @property
    def is_unused(self) -> bool:
        """Whether the turn has not ended, and no request was made in it."""
        return self._permit is not None and not self._claimed and not self._observed

    def end(self) -> None:
        """End the turn.

        With ``max_concurrent=1``, the interval before the next turn counts from now. A second call has no effect.
        """
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.end()
            self.ended_mono = self._state.clock.monotonic()
            # Another context, or a turn that was entered later, has set another value, which stays.
            if self._references is not None and HELD.get() is self._references:
                HELD.set(self._references[:-1])
            if self._state.ledger is not None:
                self._record(self._state.ledger)

    def give_back(self) -> None:
        """End the turn without a request, so that no interval follows. After ``end`` the call has no effect."""
        permit, self._permit = self._permit, None
        if permit is not None:
            permit.give_back()

    def hand_over(self, wrap: Callable[[Permit], Permit]) -> None:
        """Replace the permit by ``wrap(permit)``, so that a thread other than the event loop's can use the turn."""
        if self._permit is not None:
            self._permit = wrap(self._permit)

    @property
    def under_way(self) -> bool:
        """Whether the turn holds the permit of its host; false after the end of the turn."""
        return self._permit is not None and self._permit.under_way

    def report_drop(self) -> None:
        """Publish that the response of this turn was garbage collected, unless the turn has ended."""
        if self.under_way:
            soon(self._state.loop, partial(self._state.publisher.publish, self._dropped()))

    def is_in(self, line: PacedLine) -> bool:
        """Return whether this turn counts against the limit of ``line``, the line of a host, address or domain."""
        return line in self._state.pacer.lines(Origin.of(self.url).pacing_host)

    def is_of(self, state: GateState) -> bool:
        """Return whether the gatekeeper with this state granted the turn."""
        return self._state is state

    def __enter__(self) -> Self:
        references = HELD.get()
        if references and references is self._references:
            return self  # the task has entered it already, and no other turn since
        held = held_turns() if references else ()
        if self not in held:
            self._references = (*map(ref, held), ref(self))
            if self._permit is not None:  # an ended turn holds no host
                HELD.set(self._references)
        elif self._references is None:  # the task holds it by ``hold_later``
            self._references = ()  # entered; ``end`` has nothing to take out of ``HELD``
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.end()

    def __bool__(self) -> bool:
        return True  # a NotYet, the other answer of ``try_turn``, is false

    def __del__(self) -> None:
        permit = self._permit
        if permit is None or not permit.under_way:
            return
        if self._references is not None:
            message = f"{self!r} was dropped before its end: its host is given back. Use it with 'with', or call end()"
            end = permit.end
            if self._state.ledger is not None:
                self._record(self._state.ledger)
        else:
            message = f"{self!r} was never entered: use it with 'with', or call give_back()"
            end = permit.give_back
        self._permit = None
        loop = self._state.loop
        if loop is running_loop():  # then the host is free at once, for a ``try_turn`` in the same step
            end()
        else:
            soon(loop, end)
        soon(loop, partial(self._state.publisher.publish, self._dropped()))
        warnings.warn(message, ResourceWarning, stacklevel=2)  # last, because a filter may make this an error

    def _record(self, ledger: Ledger) -> None:
        """Record the end of a turn that was used."""
        ledger.record_turn(self.verdict, self._started_wall, self._state.clock.wall(), self._status)

    def _dropped(self) -> TurnDropped:
        return TurnDropped(Origin.of(self.url).pacing_host, self.verdict.url)

    def __repr__(self) -> str:
        state = "ended" if not self.under_way else "not entered" if self._references is None else "under way"
        return f"<Turn {printable(self.verdict.url)}: {state}>"


_References: TypeAlias = "tuple[Callable[[], Turn | None], ...]"

# This variable is not reset with a token, because a token is valid only in its own context. The garbage collector may
# close a generator, and so end its turn, in another context.
HELD: Final[ContextVar[_References]] = ContextVar("HELD", default=())
"""The turns that the current task has entered, or inherited from the task that started it. They may have ended.

A turn that was dropped makes its reference return None.
"""


def soon(loop: asyncio.AbstractEventLoop | None, callback: Callable[[], object]) -> None:
    """Let the event loop of a turn call ``callback``; without a loop, call it at once. For finalizers.

    The garbage collector may run in any thread and between any two instructions, also while a subscriber or a log
    handler runs. So a finalizer must not call a subscriber or a handler itself: the collector may have interrupted the
    same function.
    """
    if loop is None:
        callback()
    else:
        with suppress(RuntimeError):  # the event loop is closed, so there are no waiters
            loop.call_soon_threadsafe(callback)


def hold_later() -> Callable[[Turn], None]:
    """Return a function that makes the current task hold a turn; another task may call it when it gets the turn."""
    taken: list[ref[Turn]] = []
    HELD.set((*map(ref, held_turns()), lambda: taken[0]() if taken else None))
    return lambda turn: taken.append(ref(turn))


def held_turns() -> Sequence[Turn]:
    """Return the turns under way that the current task, or a task that started it, has entered."""
    references = HELD.get()
    if not references:
        return ()
    turns = [turn for reference in references if (turn := reference()) is not None and turn.under_way]
    if not turns:
        HELD.set(())  # an ended turn never starts again
    return turns


def holds_turn_at(host: str) -> bool:
    """Return whether the current task holds a turn at a host; to wait for another there may deadlock."""
    return any(Origin.of(turn.url).pacing_host == host for turn in held_turns())


def claim_turn(held: Sequence[Turn], state: GateState, agent: str, is_for: Callable[[str], bool]) -> Turn | None:
    """Claim a turn that the current task holds and has not used.

    Args:
        held: the turns that the current task holds.
        state: the state of the gatekeeper that granted the turn.
        agent: the product tokens for which the turn was granted, joined by commas.
        is_for: returns whether a turn for this URL fits the request.

    Returns:
        The matching turn that was entered last, or None.

    Raises:
        ConfigurationError: if each turn that fits the request was granted for another agent.
    """
    other = None
    for turn in reversed(held):
        if turn.is_of(state) and turn.is_unused and is_for(turn.url):
            if turn.verdict.agent == agent:
                turn.claim()
                return turn
            other = turn
    if other is not None:
        raise ConfigurationError(
            f"{other.verdict.url!r:.200} would be requested as {agent}, but its turn was granted for "
            f"{other.verdict.agent}: use one view for both, as gate.agent(tokens=..., user_agent=...) returns it"
        )
    return None
