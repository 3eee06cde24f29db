"""One pace for several gates: a SharedPacer is given to each of them, and each gate holds a share of it.

Theory of operation. The first gate to join makes the pacer, and the last gate to leave closes the pacer. When a gate
closes, its own waiters must end, while the pacer goes on for the other gates. So each gate uses the pacer through a
GateShare, which knows the waiting tasks and callbacks of its gate.

Each request brings the floor of its gate (``TurnRequest.min_delay_s``). The other PacingOptions belong to the pacer.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING

from politesse._log import PACING, EventLog
from politesse._pacing.fleet.options import FleetOptions
from politesse._pacing.making import fleet_wire, make_pacer
from politesse._pacing.pace import PacingOptions
from politesse._pacing.permit import give_back_all
from politesse.clock import Clock, SystemClock
from politesse.errors import ClosedError
from politesse.events import Publisher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from politesse._pacing.host_state import HostMemory, HostState
    from politesse._pacing.making import MemoryOf
    from politesse.ports import FetchPermit, PacedLine, Pacer, Permit, Resolver, TurnRequest
    from politesse.status import HostStatus
    from politesse.verdict import Bound, NotYet


class SharedPacer:
    """A pace that several gates of one event loop share: give it to each of them.

    >>> import asyncio
    >>> from politesse import Gatekeeper, PacingOptions
    >>> from politesse.options import SharedPacer
    >>> from politesse.testing import ScriptedFetcher
    >>> async def main():
    ...     pacer, site = SharedPacer(PacingOptions(min_delay_s=0.1)), ScriptedFetcher({"https://example.com": 404})
    ...     async with (
    ...         Gatekeeper("One/1.0 (+https://example.com/bot)", pacer=pacer, fetcher=site) as one,
    ...         Gatekeeper("Two/1.0 (+https://example.com/bot)", pacer=pacer, fetcher=site) as two,
    ...     ):
    ...         await two.check("https://example.com/page")
    ...         async with one.turn("https://example.com/page"):
    ...             pass
    ...         return two.try_turn("https://example.com/page").bound_by.value
    >>> asyncio.run(main())
    'floor'

    Each gate keeps its own floor: ``Gatekeeper(pacer=pacer, pacing=PacingOptions(min_delay_s=5.0))``. All other
    PacingOptions of the gate must equal those of the pacer. The pacer closes when the last of its gates closes. A later
    gate makes a new pacer.

    Args:
        options: see PacingOptions.
        fleet: see Gatekeeper, or None for this process alone.
        resolver: finds the addresses of hosts, for pacing by address; the resolver of the system by default.
        clock: the clocks; the clocks of the system by default.
        jitter: returns 0 to 1, to spread the requests to a host that was closed.
    """

    def __init__(
        self,
        options: PacingOptions | None = None,
        *,
        fleet: FleetOptions | str | None = None,
        resolver: Resolver | None = None,
        clock: Clock | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.options: PacingOptions = options or PacingOptions()
        self.fleet: FleetOptions | None = FleetOptions(fleet) if isinstance(fleet, str) else fleet
        self.clock: Clock = clock or SystemClock()
        self._resolver = resolver
        self._jitter = jitter
        self._pacer: Pacer | None = None
        self._publisher = Publisher()
        self._shares: dict[GateShare, MemoryOf | None] = {}  # keeps the order in which the gates joined
        self._remembers = False
        self.loop: asyncio.AbstractEventLoop | None = None

    def join(self, publisher: Publisher, memory: MemoryOf | None, resolver: Resolver | None) -> GateShare:
        """Return the share of a new gate.

        Args:
            publisher: receives the events of the pacer.
            memory: returns the memory of each scope. The pacer uses the memory of the gate that has been open for
                longest. If the first gate has no memory, the pacer has none.
            resolver: finds the addresses of hosts if the SharedPacer has no resolver.
        """
        if self._pacer is None or not self._shares or (self.loop is not None and self.loop.is_closed()):
            self.loop = None
            self._shares.clear()
            self._remembers = memory is not None
            self._publisher = Publisher(EventLog())  # an event is logged once, not for each gate
            self._pacer = make_pacer(
                self.options,
                clock=self.clock,
                publisher=self._publisher,
                jitter=self._jitter,
                resolver=self._resolver or resolver,
                memory=partial(_OldestMemory, self._shares) if self._remembers else None,
                fleet=None if self.fleet is None else fleet_wire(self.fleet),
            )
        elif memory is not None and not self._remembers:
            PACING.warning(
                "%r does not keep the states of its hosts: its first gate has no store that outlives it", self
            )
        share = GateShare(self, self._pacer, self._publisher.subscribe(publisher.forward))
        self._shares[share] = memory
        return share

    async def leave(self, share: GateShare) -> None:
        """Close the pacer if this was its last gate."""
        self._shares.pop(share, None)
        if not self._shares and share.pacer is self._pacer and self._pacer is not None:
            pacer, self._pacer = self._pacer, None
            await pacer.aclose()

    def __repr__(self) -> str:
        return f"<SharedPacer of {len(self._shares)} gates: {self._pacer!r}>"


def different_options(one: PacingOptions, other: PacingOptions) -> str:
    """Return the options that have to be equal, but differ between a gate and its pacer; empty for none."""
    names = (field.name for field in fields(one) if field.name not in {"min_delay_s", "scope"})
    pairs = ((name, getattr(one, name), getattr(other, name)) for name in names)
    return ", ".join(f"{name}={mine!r} and {name}={theirs!r}" for name, mine, theirs in pairs if mine != theirs)


class _OldestMemory:
    """The memory of the gate that has been open for longest; see ``HostMemory``.

    Args:
        memories: the memories of each gate, or None for a gate without a memory.
        scope: ``"host"``, ``"address"`` or ``"domain"``.
    """

    def __init__(self, memories: Mapping[GateShare, MemoryOf | None], scope: str) -> None:
        self._memories = memories
        self._scope = scope
        self._made: dict[MemoryOf, HostMemory] = {}

    async def recall(self, key: str, /) -> HostState | None:
        """See HostMemory."""
        memory = self._memory()
        return None if memory is None else await memory.recall(key)

    def note(self, key: str, take: Callable[[], HostState], /) -> None:
        """See HostMemory."""
        memory = self._memory()
        if memory is not None:
            memory.note(key, take)

    def _memory(self) -> HostMemory | None:
        make = next((make for make in self._memories.values() if make is not None), None)
        if make is None:
            return None  # all gates are closed
        if make not in self._made:
            self._made = {make: make(self._scope)}
        return self._made[make]


class GateShare:
    """The share of a gate in a pacer; see ``politesse.ports.Pacer``.

    Args:
        shared: the SharedPacer.
        pacer: the pacer of ``shared``.
        unsubscribe: ends the subscription of the gate.
    """

    def __init__(self, shared: SharedPacer, pacer: Pacer, unsubscribe: Callable[[], None]) -> None:
        self.pacer = pacer
        self._shared = shared
        self._unsubscribe = unsubscribe
        self._waits: set[asyncio.Timeout] = set()
        self._callbacks: dict[object, Callable[[], None]] = {}  # keeps the order in which the callbacks came
        self._closed = False

    def try_start(self, request: TurnRequest, /) -> Permit | NotYet:
        """Return a permit, or a NotYet with the time to ask again. Never waits; raises ClosedError."""
        self._check_open()
        return self.pacer.try_start(request)

    async def try_starts(self, requests: Sequence[TurnRequest], /) -> Sequence[Permit | NotYet]:
        """Return the permits that are free now; see ``politesse.ports.Pacer``."""
        self._check_open()
        answers = await self.pacer.try_starts(requests)
        if self._closed:  # the permit was granted during the close
            give_back_all(answers)
            raise ClosedError("the pacer was closed while turns were requested")
        return answers

    async def start(
        self, request: TurnRequest, max_wait_s: float | None = None, instead_of: Permit | None = None, /
    ) -> Permit:
        """Wait in line for a permit, behind the requests of all gates; see ``politesse.ports.Pacer``."""
        self._check_open()
        closed = ClosedError(f"the pacer was closed during the wait for a turn at {request.host}")
        wait = asyncio.timeout(None)  # ``aclose`` ends the wait through this timeout
        self._waits.add(wait)
        try:
            async with wait:
                permit = await self.pacer.start(request, max_wait_s, instead_of)
        except TimeoutError:
            if not wait.expired():
                raise
            raise closed from None
        finally:
            self._waits.discard(wait)
        if self._closed:  # the permit was granted during the close
            permit.give_back()
            raise closed
        return permit

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        """Call ``callback`` once, when ``request`` may start and is first in line; or when this gate is closed."""
        self._check_open()
        place = object()
        self.pacer.when_ready(request, partial(self._call, place))
        self._callbacks[place] = callback

    def close_host(self, host: str, until_wall: float, bound_by: Bound, /) -> None:
        """Let no request start at ``host`` before ``until_wall``, at any gate."""
        if not self._closed:
            self.pacer.close_host(host, until_wall, bound_by)

    async def closed_until(self, host: str, /) -> float | None:
        """Return the Unix time until which ``host`` is closed, or None if it is open."""
        self._check_open()
        return await self.pacer.closed_until(host)

    async def start_fetch(self, request: TurnRequest, /, *, made: bool = False) -> FetchPermit:
        """Wait in line for the request of a robots.txt, behind the requests of all gates."""
        self._check_open()
        return await self.pacer.start_fetch(request, made=made)

    def hosts(self) -> Mapping[str, HostStatus]:
        """Return the state of each busy host, with the requests of all gates."""
        return self.pacer.hosts()

    def closings(self) -> Mapping[Bound, int]:
        """Return how many hosts are closed now, at all gates, by the reason of the closure."""
        return self.pacer.closings()

    def lines(self, host: str, /) -> Iterable[PacedLine]:
        """Return the lines in which a request to ``host`` waits; all gates share them."""
        return self.pacer.lines(host)

    def set_limits(self, host: str, min_delay_s: float | None, max_concurrent: int | None, /) -> None:
        """Pace ``host`` by its own limits, at all gates: the last gate that sets them decides."""
        self.pacer.set_limits(host, min_delay_s, max_concurrent)

    async def aclose(self) -> None:
        """Raise ClosedError in all waiting tasks of this gate; close the pacer if this is its last gate."""
        if self._closed:
            return
        self._closed = True
        for wait in self._waits:
            wait.reschedule(0.0)
        for place in list(self._callbacks):
            self._call(place)
        self._unsubscribe()
        await self._shared.leave(self)

    @property
    def waiting(self) -> int:
        """How many requests of this gate wait for a permit."""
        return len(self._waits)

    @property
    def in_flight(self) -> int:
        """How many permits of all gates have not ended."""
        return self.pacer.in_flight

    def __repr__(self) -> str:
        return f"<GateShare of {self.pacer!r}>"

    def _call(self, place: object) -> None:
        """Call a callback, unless it has been called before."""
        callback = self._callbacks.pop(place, None)
        if callback is not None:
            callback()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the pacer is closed")
        if self._shared.loop is None:
            self._shared.loop = asyncio.get_running_loop()
