"""A clock, a resolver and a fetcher that a test controls."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf, nextafter
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from politesse._base.constants import ROBOTS_TXT
from politesse.errors import ConfigurationError
from politesse.ports import FetchFault, FetchRequest, FetchResponse, FetchResult

if TYPE_CHECKING:
    from politesse.clock import Timer

_FEW_TIMERS: Final = 100  # so many cancelled timers may stay
_QUIET_ROUNDS: Final = 20  # tasks that wake each other in a chain need fewer rounds


class ManualClock:
    """A clock that stands still until it is moved.

    Example:
        >>> clock = ManualClock(wall=1_000.0)
        >>> timer = clock.call_later(5.0, lambda: print(f"called at {clock.monotonic():g} s"))
        >>> clock.advance(60.0)
        called at 5 s
        >>> clock.wall(), clock.monotonic()
        (1060.0, 60.0)

    Args:
        wall: the Unix time to start at.
        autojump: whether the clock jumps to the next timer whenever all tasks of the event loop wait. A task that waits
            for the network counts as waiting, so use ``autojump`` only without a network.

    Attributes:
        run: a name of this clock. Monotonic times can be compared only if they are from clocks with the same name.
    """

    def __init__(self, wall: float = 1_800_000_000.0, *, autojump: bool = False) -> None:
        self.run: str = token_hex(8)
        self._wall = wall
        self._monotonic = 0.0
        self._autojump = autojump
        self._timers: list[tuple[float, int, _ManualTimer]] = []
        self._most_timers = _FEW_TIMERS
        self._touches = 0
        self._watching: asyncio.AbstractEventLoop | None = None

    def wall(self) -> float:
        """Return the Unix time in seconds."""
        return self._wall

    def monotonic(self) -> float:
        """Return the seconds since the clock was made."""
        self._touches += 1
        return self._monotonic

    async def sleep(self, delay_s: float, /) -> None:
        """Wait until the clock has advanced by ``delay_s``."""
        woken = asyncio.get_running_loop().create_future()
        timer = self.call_later(max(0.0, delay_s), lambda: None if woken.done() else woken.set_result(None))
        try:
            await woken
        finally:
            timer.cancel()

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Timer:
        """Call ``callback`` when the clock has advanced by ``delay_s``."""
        self._touches += 1
        timer = _ManualTimer(callback)
        due = self._monotonic + delay_s
        if delay_s > 0.0:
            # A delay below the resolution of the clock still takes time, so that a callback that schedules itself again
            # cannot loop forever.
            due = max(due, nextafter(self._monotonic, inf))
        heapq.heappush(self._timers, (due, self._touches, timer))
        if len(self._timers) > self._most_timers:  # cancelled timers do not pile up where no time passes
            self._timers[:] = [entry for entry in self._timers if not entry[2].cancelled]
            heapq.heapify(self._timers)
            self._most_timers = 2 * len(self._timers) + _FEW_TIMERS
        if self._autojump:
            loop = asyncio.get_running_loop()
            if self._watching is not loop:  # the event loop of an earlier watch may have ended
                self._watching = loop
                loop.call_soon(self._watch, self._touches, 0)
        return timer

    def advance(self, seconds: float) -> None:
        """Advance both clocks, and call the timers that become due.

        Args:
            seconds: 0 or more.

        Raises:
            ValueError: ``seconds`` is negative.
        """
        if seconds < 0:
            raise ValueError(f"advance({seconds}): time does not go back")
        self._fire_until(self._monotonic + seconds)

    def set_wall(self, wall: float) -> None:
        """Set the wall clock, forward or back, as an administrator may; the monotonic clock is not changed."""
        self._wall = wall

    def _fire_until(self, until: float) -> None:
        """Advance to a monotonic time, and call the timers that become due."""
        until = max(until, self._monotonic)
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heapq.heappop(self._timers)
            self._move_to(max(due, self._monotonic))
            timer.fire()
        self._move_to(until)

    def _move_to(self, monotonic: float) -> None:
        self._wall += monotonic - self._monotonic
        self._monotonic = monotonic

    def _watch(self, touches: int, quiet: int) -> None:
        """Move to the next timer if no code reads the clock for some rounds of the event loop, so all tasks wait."""
        quiet = quiet + 1 if touches == self._touches else 0
        is_due = quiet >= _QUIET_ROUNDS
        if is_due:
            while self._timers and self._timers[0][2].cancelled:
                heapq.heappop(self._timers)
            if not self._timers:
                self._watching = None
                return
            quiet = 0
        try:
            if is_due:
                self._fire_until(self._timers[0][0])
        finally:  # a callback that raises must not stop the clock
            asyncio.get_running_loop().call_soon(self._watch, self._touches, quiet)

    def __repr__(self) -> str:
        return f"ManualClock(wall={self._wall}, monotonic={self._monotonic})"


class _ManualTimer:
    __slots__ = ("callback", "cancelled")

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def fire(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self.callback()


class ScriptedFetcher:
    r"""A Fetcher with answers from the test, which records the requests.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper
        >>> async def main() -> None:
        ...     fetcher = ScriptedFetcher({"https://example.com": "User-agent: *\nDisallow: /private"})
        ...     async with Gatekeeper("ExampleBot/1.0", fetcher=fetcher) as gate:
        ...         verdict = await gate.check("https://example.com/private")
        ...     print(verdict.allowed, fetcher.count("https://example.com"))
        >>> asyncio.run(main())
        False 1

    Args:
        answers: maps an origin, such as ``"https://example.com"``, to the answer for its robots.txt, and a URL to the
            answer for any other file. An answer is text or octets, a status, a FetchResponse or FetchFault, or an
            exception to raise. A sequence of answers is for successive fetches; its last answer is repeated. All other
            URLs answer 404.

    Attributes:
        requests: every request so far, in order.
        gate: an event, which is set at first; while the event is cleared, all answers wait.
        closed: whether aclose() was called.
    """

    def __init__(self, answers: Mapping[str, Answer | Sequence[Answer]] | None = None) -> None:
        self.answers: dict[str, Answer | Sequence[Answer]] = dict(answers or {})
        self._given: Counter[str] = Counter()
        self.requests: list[FetchRequest] = []
        self.gate: asyncio.Event = asyncio.Event()
        self.gate.set()
        self.closed: bool = False

    def count(self, asked: str) -> int:
        """Return how many times the robots.txt of an origin, or the file at a URL, was requested."""
        return sum(_key(request) == asked for request in self.requests)

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Return or raise the scripted answer.

        Raises:
            Exception: if the scripted answer is an exception.
        """
        self.requests.append(request)
        await self.gate.wait()
        key = _key(request)
        answer = self.answers.get(key, 404)
        if isinstance(answer, Sequence) and not isinstance(answer, str | bytes):
            answer = answer[min(self._given[key], len(answer) - 1)]
            self._given[key] += 1
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return FetchResponse(answer, request.url, conditional=request.validators is not None)
        if isinstance(answer, str | bytes):
            return FetchResponse(200, request.url, body=answer.encode() if isinstance(answer, str) else answer)
        return answer

    async def aclose(self) -> None:
        """Record that the fetcher was closed."""
        self.closed = True


Answer = str | bytes | int | FetchResponse | FetchFault | Exception


def _key(request: FetchRequest) -> str:
    return str(request.origin) if request.path == ROBOTS_TXT else request.url


class ScriptedResolver:
    """A Resolver with addresses from the test, which records the lookups.

    Example:
        >>> import asyncio
        >>> resolver = ScriptedResolver({"example.com": ["192.0.2.1"]})
        >>> asyncio.run(resolver.resolve("example.com", 443))
        ['192.0.2.1']
        >>> resolver.asked
        ['example.com']

    Args:
        addresses: maps host names to lists of addresses; any other name does not exist.

    Raises:
        ConfigurationError: a single address is given instead of a list.

    Attributes:
        asked: every name that was looked up, in order.
    """

    def __init__(self, addresses: Mapping[str, Sequence[str]]) -> None:
        for host, given in addresses.items():
            if isinstance(given, str):
                raise ConfigurationError(f"addresses of {host!r}: give a list, as in [{given!r}]")
        self.addresses: dict[str, Sequence[str]] = dict(addresses)
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        """Return the addresses of ``host``.

        Raises:
            OSError: the name does not exist.
        """
        self.asked.append(host)
        if host not in self.addresses:
            raise OSError(f"{host}:{port} does not exist")
        return self.addresses[host]
