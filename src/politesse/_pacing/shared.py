"""One pace for several gates: each gate holds a share of a SharedPacer.

Theory of operation. A gate joins its SharedPacer when it is first used: the SharedPacer that was given to the gate, or
the one that all gates of the running event loop share (``pacer_of_loop``). The first gate to join makes the pacer, and
the last gate to leave closes the pacer. A pacer that is closed has no timer and no task, but may still have turns under
way. The next pacer of the event loop takes over their permits, so that they hold their hosts until they end or expire.

When a gate closes, its own waiters must end, while the pacer goes on for the other gates. So each gate uses the pacer
through a GateShare, which knows the waiting tasks and callbacks of its gate.

    the process, per clock:  Marks    the last requests, closures and backoffs, which stay when all gates are closed
      an event loop:         SharedPacer    a pacer while any gate is open; the options are the strictest of its gates
        a gate:              GateShare

Each request brings the floor of its gate (``TurnRequest.min_delay_s``).
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial, reduce
from typing import TYPE_CHECKING, Final, TypeAlias, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from politesse._base.tasks import running_loop
from politesse._base.text import needing
from politesse._log import EventLog
from politesse._pacing.fleet.options import FleetOptions
from politesse._pacing.hosts import Hosts, give_back_all
from politesse._pacing.marks import Marks
from politesse._pacing.pace import PacingOptions, known_limited
from politesse.clock import Clock, SystemClock
from politesse.errors import ClosedError, ConfigurationError
from politesse.events import Publisher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from politesse._pacing.fleet.wire import FleetWire
    from politesse._pacing.host_state import HostMemory, MemoryOf
    from politesse._pacing.hosts import PacedLine, Permit, TurnRequest
    from politesse.ports import Resolver
    from politesse.status import HostStatus
    from politesse.verdict import Bound, NotYet

    Limits: TypeAlias = tuple[float | None, int | None]

_LEAST: Final = frozenset({"min_delay_s", "max_concurrent", "refused_after"})  # of these options, less is not faster


class SharedPacer:
    """A pace apart, which only those gates of one event loop share that are given it.

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
    gate makes a new pacer, which goes on with the pace. In the same event loop, turns under way hold their hosts.

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
        self.marks: defaultdict[str, Marks] = defaultdict(Marks)  # stay when the pacer closes
        self.pacer: Hosts | None = None  # a closed pacer stays here while its turns are under way
        self._publisher = Publisher()
        # Each share with the end of its subscription, in the order in which the gates joined.
        self._shares: dict[GateShare, Callable[[], None]] = {}
        self._used = self.options
        self._loop: asyncio.AbstractEventLoop | None = None

    def join(self, share: GateShare) -> Hosts:
        """Return the pacer for a gate."""
        earlier, pacer = None, self.pacer
        loop = running_loop()
        if pacer is None or not self._shares or (self._loop is not None and self._loop.is_closed()):
            earlier = pacer if loop is self._loop else None  # the requests of another event loop ended with it
            self._shares.clear()
            self._used = self.options
            self._publisher = Publisher(EventLog())  # an event is logged once, not for each gate
            pacer = self.pacer = self._made(self._resolver or share.resolver)
            self._loop = loop
        self._shares[share] = self._publisher.subscribe(share.publisher.forward)
        if share.memory is not None:
            pacer.remember(partial(_oldest_memory, self._shares))
        self.settle(self._limited_hosts())
        if earlier is not None and self.fleet is None:  # Redis knows the requests under way of a fleet
            pacer.take_over(earlier.under_way())
        return pacer

    def _made(self, resolver: Resolver | None) -> Hosts:
        clock, publisher, marks, tickets = self.clock, self._publisher, self.marks.__getitem__, None
        if self.fleet is not None:
            from politesse._pacing.fleet.tickets import Tickets  # noqa: PLC0415 - only a fleet needs it

            tickets = Tickets(wire_of(self.fleet), self.fleet, clock=clock, publisher=publisher)
        return Hosts(
            self.options,
            clock=clock,
            jitter=self._jitter,
            publisher=publisher,
            marks=marks,
            resolver=resolver,
            fleet=tickets,
        )

    async def leave(self, share: GateShare) -> None:
        """Close the pacer if this was its last gate."""
        if share not in self._shares or self.pacer is None:
            return  # the pacer of this gate ended with its event loop
        hosts = self._limited_hosts()
        self._shares.pop(share)()
        self.settle(hosts)
        if not self._shares:
            pacer = self.pacer
            self.pacer = pacer if pacer.in_flight else None  # the next pacer takes over the turns under way
            await pacer.aclose()

    def settle(self, hosts: Iterable[str]) -> None:
        """Pace by the strictest options of all gates, and ``hosts`` by the strictest limits of all gates there."""
        shares, pacer = self._shares, self.pacer
        if pacer is None or not shares:
            return
        least = reduce(strictest, (share.options for share in shares))
        least = replace(least, min_delay_s=max(least.min_delay_s, self.options.min_delay_s))
        if least != self._used:
            self._used = least
            pacer.use(least)
        for host in hosts:
            limits: Limits = None, None
            if any(host in share.options_of for share in shares):  # a gate without limits there has its options
                strict = reduce(strictest, (share.options_of.get(host, share.options) for share in shares))
                limits = strict.min_delay_s, strict.max_concurrent
            pacer.set_limits(host, *limits)

    def _limited_hosts(self) -> set[str]:
        return {host for share in self._shares for host in share.options_of}

    def __repr__(self) -> str:
        return f"<SharedPacer of {len(self._shares)} gates: {self.pacer!r}>"


def wire_of(fleet: FleetOptions) -> FleetWire:
    """Return a new wire to the Redis of a fleet; the wire is not connected yet.

    Raises:
        ConfigurationError: the URL of the fleet is not a URL of Redis, or the extra ``redis`` is missing.
    """
    with needing(f"fleet={fleet!r}: pacing by a fleet", "redis", ConfigurationError):
        from politesse._pacing.fleet.wire import wire_to  # noqa: PLC0415 - an extra
    return wire_to(fleet.url)


_OfClock: TypeAlias = "tuple[str | None, defaultdict[str, Marks], WeakValueDictionary[tuple[object, ...], SharedPacer]]"

_BY_CLOCK: Final[WeakKeyDictionary[object, _OfClock]] = WeakKeyDictionary()
"""What the gates of this process with one clock share: the run of the clock, the marks, the pacer of each loop."""


def of_clock(clock: Clock) -> _OfClock:
    """Return what the gates with one clock share. All SystemClocks are the same clock.

    Raises:
        TypeError: the clock has no hash or no weak references.
    """
    owner, run = SystemClock if type(clock) is SystemClock else clock, getattr(clock, "run", None)
    if owner not in _BY_CLOCK or _BY_CLOCK[owner][0] != run:  # times of another run cannot be compared
        _BY_CLOCK[owner] = run, defaultdict(Marks), WeakValueDictionary()
    return _BY_CLOCK[owner]


def pacer_of_loop(
    options: PacingOptions, fleet: FleetOptions | None, resolver: Resolver | None, clock: Clock
) -> SharedPacer:
    """Return the pacer that gates of the running event loop with the same clock, scopes, fleet and resolver share."""
    pacer = SharedPacer(replace(options, min_delay_s=0.0), fleet=fleet, resolver=resolver, clock=clock)
    scopes = options.key, options.address, options.domain, resolver if options.is_scoped else None
    try:
        _, marks, pacers = of_clock(clock)
        pacer = pacers.setdefault((running_loop(), fleet, *scopes), pacer)
    except TypeError:  # a user's clock or resolver without a hash or weak references: this gate has a pace of its own
        return pacer
    if fleet is None:  # Redis keeps the marks of a fleet
        pacer.marks = marks
    return pacer


@lru_cache(1_000)
def strictest(one: PacingOptions, other: PacingOptions) -> PacingOptions:
    """Return the options with which no request is faster than with either; both have the same scopes."""
    names = [field.name for field in fields(one) if getattr(one, field.name) != getattr(other, field.name)]
    # Of two words, the later one in the alphabet is no faster: "cap", "obey", "skip".
    chosen = {name: (min if name in _LEAST else max)(getattr(one, name), getattr(other, name)) for name in names}
    return replace(one, **chosen) if chosen else one


def different_options(one: PacingOptions, other: PacingOptions) -> str:
    """Return the options that have to be equal, but differ between a gate and its pacer; empty for none."""
    names = (field.name for field in fields(one) if field.name not in {"min_delay_s", "scope"})
    pairs = ((name, getattr(one, name), getattr(other, name)) for name in names)
    return ", ".join(f"{name}={mine!r} and {name}={theirs!r}" for name, mine, theirs in pairs if mine != theirs)


def _oldest_memory(shares: Iterable[GateShare], scope: str) -> HostMemory | None:
    """Return the memory of the gate that is open for longest, of those with a store that outlives it; or None."""
    make = next((share.memory for share in shares if share.memory is not None), None)
    return None if make is None else make(scope)


@dataclass(eq=False, repr=False)
class GateShare:
    """The share of a gate in a pacer, which it joins at its first use; see ``Hosts``.

    Args:
        find: returns the SharedPacer.
        options: the options of the gate.
        publisher: receives the events of the pacer.
        memory: returns the memory of each scope, or None if the gate has no store that outlives it.
        resolver: finds the addresses of hosts if the SharedPacer has no resolver.

    Attributes:
        options_of: the options of each host with limits of its own at this gate.
    """

    _find: Callable[[], SharedPacer]
    options: PacingOptions
    publisher: Publisher
    memory: MemoryOf | None
    resolver: Resolver | None
    options_of: dict[str, PacingOptions] = field(default_factory=dict, init=False)
    _shared: SharedPacer | None = field(default=None, init=False)
    _pacer: Hosts | None = field(default=None, init=False)
    _open: Hosts | None = field(default=None, init=False)  # the pacer while the gate is open: the short way
    _waits: set[asyncio.Task[object]] = field(default_factory=set, init=False)
    _callbacks: dict[object, Callable[[], None]] = field(
        default_factory=dict, init=False
    )  # in the order of their calls
    _closed: bool = field(default=False, init=False)

    @property
    def pacer(self) -> Hosts:
        """The pacer; the first use joins it. Raises ClosedError if the gate is closed."""
        if self._closed:
            raise ClosedError("the pacer is closed")
        if self._pacer is None:
            self._shared = self._find()
            self._pacer = self._open = self._shared.join(self)
        return self._pacer

    def try_start(self, request: TurnRequest, /) -> Permit | NotYet:
        """Return a permit, or a NotYet with the time to ask again. Never waits; raises ClosedError."""
        return (self.pacer if self._open is None else self._open).try_start(request)

    async def try_starts(self, requests: Sequence[TurnRequest], /) -> Sequence[Permit | NotYet]:
        """Return the permits that are free now; see ``Hosts``."""
        answers = await (self.pacer if self._open is None else self._open).try_starts(requests)
        if self._closed:  # the permit was granted during the close
            give_back_all(answers)
            raise ClosedError("the pacer was closed while turns were requested")
        return answers

    async def start(
        self, request: TurnRequest, max_wait_s: float | None = None, instead_of: Permit | None = None, /
    ) -> Permit:
        """Wait in line for a permit, behind the requests of all gates; see ``Hosts``."""
        # ``aclose`` cancels the task. An asyncio.timeout would do the same, but cost each turn ten calls.
        pacer, task = (
            self.pacer if self._open is None else self._open,
            cast("asyncio.Task[object]", asyncio.current_task()),
        )
        cancelling = task.cancelling()
        self._waits.add(task)
        try:
            permit = await pacer.start(request, max_wait_s, instead_of)
        except asyncio.CancelledError:
            if not self._closed or task.uncancel() > cancelling:
                raise
            raise ClosedError(f"the pacer was closed during the wait for a turn at {request.host}") from None
        finally:
            self._waits.discard(task)
        return permit

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        """Call ``callback`` once, when ``request`` may start and is first in line; or when this gate is closed."""
        place = object()
        (self.pacer if self._open is None else self._open).when_ready(request, partial(self._call, place))
        self._callbacks[place] = callback

    def close_host(self, host: str, until_wall: float, bound_by: Bound, /) -> None:
        """Let no request start at ``host`` before ``until_wall``, at any gate."""
        if not self._closed:
            self.pacer.close_host(host, until_wall, bound_by)

    async def closed_until(self, host: str, /) -> float | None:
        """Return the Unix time until which ``host`` is closed, or None if it is open."""
        return await (self.pacer if self._open is None else self._open).closed_until(host)

    def closure(self, host: str, /) -> NotYet | None:
        """Return until when and why ``host`` is closed, at all gates; or None."""
        return self.pacer.closure(host)

    def hosts(self) -> Mapping[str, HostStatus]:
        """Return the state of each busy host, with the requests of all gates."""
        return {} if self._pacer is None else self._pacer.hosts()

    def names(self, *, resting: bool = False) -> list[str]:
        """Return the names of the busy hosts, at all gates; see ``Hosts.names``."""
        return [] if self._pacer is None else self._pacer.names(resting=resting)

    def host(self, name: str) -> HostStatus | None:
        """Return the state of one host; None if it is not busy."""
        return None if self._pacer is None else self._pacer.host(name)

    def closings(self) -> Mapping[Bound, int]:
        """Return how many hosts are closed now, at all gates, by the reason of the closure."""
        return {} if self._pacer is None else self._pacer.closings()

    def lines(self, host: str, /) -> Iterable[PacedLine]:
        """Return the lines in which a request to ``host`` waits; all gates share them."""
        # A turn of a closed gate that has not ended stands in the lines of the pacer that has taken it over.
        pacer = self._pacer if self._shared is None or self._shared.pacer is None else self._shared.pacer
        return (self.pacer if pacer is None else pacer).lines(host)

    def set_limits(self, host: str, min_delay_s: float | None, max_concurrent: int | None, /) -> None:
        """Pace ``host`` by its own limits; raises ConfigurationError if the key is not the host."""
        key = self.options.key
        if min_delay_s is None and max_concurrent is None:
            self.options_of.pop(host, None)
        elif key == "host":
            self.options_of[host] = known_limited(self.options, min_delay_s, max_concurrent)
        else:
            raise ConfigurationError(
                f"min_delay_s= or max_concurrent= of {host} alone: not with PacingOptions({key=!r})"
            )
        if self._shared is not None:
            self._shared.settle([host])

    async def aclose(self) -> None:
        """Raise ClosedError in all waiting tasks of this gate; close the pacer if this is its last gate."""
        if self._closed:
            return
        self._closed, self._open = True, None
        for task in self._waits:
            task.cancel()
        for place in list(self._callbacks):
            self._call(place)
        if self._shared is not None:
            await self._shared.leave(self)

    @property
    def waiting(self) -> int:
        """How many requests of this gate wait for a permit."""
        return len(self._waits)

    @property
    def in_flight(self) -> int:
        """How many permits of all gates have not ended."""
        return 0 if self._pacer is None else self._pacer.in_flight

    def __repr__(self) -> str:
        return f"<GateShare of {self._pacer!r}>"

    def _call(self, place: object) -> None:
        """Call a callback, unless it has been called before."""
        callback = self._callbacks.pop(place, None)
        if callback is not None:
            callback()
