"""The results of queues: turns, counts and errors."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from politesse._base.tasks import running_loop
from politesse._base.text import counted, shortened
from politesse.errors import ClosedError, WrongEventLoop
from politesse.verdict import Reason, Verdict, utc

if TYPE_CHECKING:
    from collections.abc import Collection

    from politesse._gate.turn import Turn
    from politesse._http.fields import Headers
    from politesse.queue._dispatch import Dispatcher

if TYPE_CHECKING:
    import typing_extensions  # type checkers have it without the package, and it knows the default of PEP 696

    Item = typing_extensions.TypeVar("Item", default=Any)
else:
    Item = TypeVar("Item")

_GIVING_UP: Final = {
    Reason.UNREACHABLE,
    Reason.TOO_MANY_REQUESTS,
    Reason.USAGE_UNKNOWN,
    Reason.WAIT_TOO_LONG,
    Reason.REFUSED,
}
_MAX_NAMED: Final = 3


class QueueClosed(ClosedError):
    """The queue was closed: ``put`` accepts no more URLs, and ``turn`` has no more URLs to hand out.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper, PoliteQueue
        >>> from politesse.testing import ScriptedFetcher
        >>> async def main() -> None:
        ...     async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=ScriptedFetcher()) as gate:
        ...         queue = PoliteQueue(gate)
        ...         queue.close()
        ...         try:
        ...             await queue.put("https://a.example/")
        ...         except QueueClosed as error:
        ...             print(error)
        >>> asyncio.run(main())
        a URL of https://a.example was put after the queue was closed
    """


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """A snapshot of the counts of a queue.

    Attributes:
        queued: how many URLs wait.
        hosts: at how many hosts URLs wait.
        ready: how many hosts stand in the line of ready hosts, including hosts that are given up.
        asking: the number of origins whose robots.txt is being fetched.
        deferred: how many origins wait until their robots.txt, which was unreachable or answered with 429, is fetched
            again.
        under_way: how many turns are under way.
        waiting: how many workers wait for a turn.
        refused: how many URLs were disallowed, or given up.
        given_up: how many of the refused URLs were given up because of a wait; see PoliteQueue.
        deferred_until_wall: the Unix time at which the first deferral ends; None without a deferral.
        resumed: how many URLs the journal held when it was read; 0 without a journal, and before the first use.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper, PoliteQueue
        >>> from politesse.testing import ManualClock, ScriptedFetcher
        >>> async def main() -> None:
        ...     agent = "ExampleBot/1.0 (+https://example.com/bot)"
        ...     async with Gatekeeper(agent, fetcher=ScriptedFetcher(), clock=ManualClock()) as gate:
        ...         await gate.check("https://a.example/")
        ...         queue = PoliteQueue(gate)
        ...         for url in ("https://a.example/1", "https://a.example/2", "https://b.example/1"):
        ...             await queue.put(url)
        ...         statistics = queue.statistics()
        ...         print(statistics.queued, statistics.hosts, statistics.asking)
        >>> asyncio.run(main())
        3 2 1
    """

    queued: int
    hosts: int
    ready: int
    asking: int
    deferred: int
    under_way: int
    waiting: int
    refused: int
    given_up: int = 0
    deferred_until_wall: float | None = None
    resumed: int = 0


class QueuedTurn(Generic[Item]):
    """Permission to make one request now, with the item that was put.

    Attributes:
        url: the URL that may be requested now.
        item: the item that was put with the URL, or None.
        verdict: why the request is allowed.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper, PoliteQueue
        >>> from politesse.testing import ManualClock, ScriptedFetcher
        >>> async def main() -> None:
        ...     agent, clock = "ExampleBot/1.0 (+https://example.com/bot)", ManualClock(autojump=True)
        ...     async with Gatekeeper(agent, fetcher=ScriptedFetcher(), clock=clock) as gate:
        ...         queue = PoliteQueue(gate)
        ...         await queue.put("https://a.example/page", item={"depth": 1})
        ...         async with queue.turn() as turn:
        ...             print(turn.url, turn.item, turn.verdict.allowed)
        ...             turn.observe(200, {"Content-Type": "text/html"})  # what your client received
        >>> asyncio.run(main())
        https://a.example/page {'depth': 1} True
    """

    __slots__ = ("_turn", "item", "url", "verdict")

    def __init__(self, turn: Turn, item: Item | None) -> None:
        self.url: str = turn.url
        self.item: Item | None = item
        self.verdict: Verdict = turn.verdict
        self._turn = turn

    def observe(self, status: int, headers: Headers | None = None) -> None:
        """Report the response as soon as its headers have come, because they set the pace; see ``Turn.observe``.

        Args:
            status: the HTTP status.
            headers: the headers of the response, in the type of your HTTP client.
        """
        self._turn.observe(status, headers)

    def __repr__(self) -> str:
        return f"<QueuedTurn of {self._turn!r}>"


def is_given_up(verdict: Verdict) -> bool:
    """Return whether a URL was refused because of a wait, and not because a rule disallows it."""
    return verdict.reason in _GIVING_UP


def statistics_of(queue: Dispatcher[Item]) -> QueueStatistics:
    """Return the current counts."""
    return QueueStatistics(
        queued=queue.size,
        hosts=len(queue.hosts),
        ready=len(queue.line),
        asking=len(queue.robots.fetching),
        deferred=len(queue.robots.deferred),
        under_way=len(queue.under_way),
        waiting=len(queue.workers),
        refused=queue.refused,
        given_up=queue.given_up,
        deferred_until_wall=min(queue.robots.deferred.values(), default=None),
        resumed=0 if queue.journal is None else queue.journal.resumed,
    )


def described(queue: Dispatcher[Item]) -> str:
    """Return the current counts in words, for ``repr`` and the log."""
    held, deferred = statistics_of(queue), queue.robots.deferred
    origins = str(next(iter(deferred))) if held.deferred == 1 else counted(held.deferred, "origin")
    until = held.deferred_until_wall
    waiting = {key: len(host.putters) for key, host in queue.hosts.items() if host.putters}
    puts = sum(waiting.values())
    return (
        f"<PoliteQueue: {held.queued:,} queued at {counted(held.hosts, 'host')}{_named(queue.hosts)}, "
        f"{held.ready:,} ready, {held.under_way:,} under way{_named(queue.under_way.values())}, "
        f"{counted(held.waiting, 'worker')} waiting"
        + (f", {puts} {'put waits' if puts == 1 else 'puts wait'} for room{_named(waiting)}" if puts else "")
        + (f", {origins} deferred until {utc(until)}" if until is not None else "")
        + (f", {held.resumed:,} resumed" if held.resumed else "")
        + (", closed>" if queue.closed else ">")
    )


def _named(names: Collection[str]) -> str:
    """Return up to three names in brackets, escaped and shortened; an empty string without names."""
    shown = [shortened(name) for name in islice(names, _MAX_NAMED)]
    more = ["..."] if len(names) > _MAX_NAMED else []
    return f" ({', '.join(shown + more)})" if shown else ""


def check_in_loop() -> None:
    """Raise WrongEventLoop if no event loop runs, for example in another thread: a queue is not thread-safe."""
    if running_loop() is None:
        raise WrongEventLoop(
            "a URL is put outside of the event loop of the queue: in a thread, use loop.call_soon_threadsafe"
        )
