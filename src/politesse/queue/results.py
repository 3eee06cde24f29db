"""What a queue returns and raises: turns, statistics, QueueClosed, WrongEventLoop."""

from __future__ import annotations

from asyncio import _get_running_loop
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from politesse.errors import ClosedError, WrongEventLoop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from politesse._pacing.held import Turn

Item = TypeVar("Item")


class QueueClosed(ClosedError):
    """The queue was closed: ``put`` accepts no URL, and ``turn`` has handed out all that were put.

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
    """A snapshot of what a queue holds, and of what it has refused so far.

    Attributes:
        queued: how many URLs wait.
        hosts: at how many hosts.
        ready: how many hosts the pacer has reported ready and no worker has tried since.
        asking: for how many origins robots.txt is being fetched.
        deferred: how many origins wait until an unreachable robots.txt may be fetched again.
        under_way: how many turns are under way.
        waiting: how many workers wait for a turn.
        refused: how many URLs were disallowed, or given up.
        given_up: how many of those were given up because of a wait; see PoliteQueue.
        deferred_until_wall: the Unix time at which the first deferral ends; None for none.
        resumed: how many URLs the journal held when it was read; 0 without a journal, and before its first use.

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
        url: what may be requested.
        item: as it was put; None if there was none.
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
        self.url = turn.url
        self.item = item
        self.verdict = turn.verdict
        self._turn = turn

    def observe(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        """Report the response as soon as its headers are known: they set the pace; see ``Turn.observe``.

        Args:
            status: the HTTP status.
            headers: of the response; names in any case.
        """
        self._turn.observe(status, headers)

    def __repr__(self) -> str:
        return f"<QueuedTurn of {self._turn!r}>"


def check_in_loop() -> None:
    """Raise WrongEventLoop outside of any event loop, as in a thread of its own: a queue is not thread-safe."""
    if _get_running_loop() is None:
        raise WrongEventLoop(
            "a URL is put outside of the event loop of the queue: in a thread, use loop.call_soon_threadsafe"
        )
