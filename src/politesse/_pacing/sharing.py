"""Which pacer a gate gets: its own, or one that it shares with all gates of the process that name the same scope.

Theory of operation. Two gates that name the same ``PacingOptions.scope`` find each other by that name, per event loop:
this needs a registry that outlives them. It is the one module-level state of the package. It holds its pacers weakly;
each gate holds the shared one from its first use on, and the last gate that closes closes it. So nothing is left in the
registry when the gates are gone, closed or not.

Gates of one scope have the same options, unless its name is a MixedScope. Then each gate has the hosts bound by its own
options before it requests a turn there, and at each host the strictest of all gates that have requested one hold, until
the host is idle or the gate is closed. So a slow gate slows the others at the hosts that it requests, and nowhere else;
and as all of a host wait for the same interval, a quick gate does not always come first.

A gate is often made before its event loop runs, so it joins at the first use. A pacer that is shared outlives the
close of one gate, but what waits at that gate must not: a SharedPacer knows what waits through it.
"""

from __future__ import annotations

import asyncio
import random
from asyncio import _get_running_loop
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from politesse._log import PACING, EventLog
from politesse._pacing.local import LocalPacer
from politesse._pacing.pace import limited
from politesse._pacing.remembering import RememberingPacer
from politesse._pacing.scope_port import give_back_all
from politesse._pacing.scoped import ScopedPacer, check_limits
from politesse._text import needs_extra
from politesse.clock import run_of
from politesse.errors import ClosedError, ConfigurationError
from politesse.events import Publisher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from politesse._pacing.fleet.membership import Membership
    from politesse._pacing.fleet.options import FleetOptions
    from politesse._pacing.fleet.pacer import FleetPacer
    from politesse._pacing.host_state import HostMemory, HostState
    from politesse._pacing.pace import PacingOptions
    from politesse.clock import Clock
    from politesse.ports import HostPace, PacedLine, Pacer, Permit, Resolver, TurnRequest
    from politesse.verdict import Bound, NotYet

    MemoryOf = Callable[[str], HostMemory]
    AnyPacer = LocalPacer | FleetPacer | ScopedPacer
    MakePacer = Callable[[Publisher, MemoryOf | None], AnyPacer]


class MixedScope(str):
    """The name of a scope whose gates may have different options; those must agree in ``key``, address and domain."""

    __slots__ = ()


def pacer_for(
    options: PacingOptions,
    *,
    clock: Clock,
    publisher: Publisher,
    resolver: Resolver | None = None,
    jitter: Callable[[], float] = random.random,
    memory: MemoryOf | None = None,
    membership: Membership | None = None,
) -> Pacer:
    """Return the pacer of a gate.

    Args:
        options: see PacingOptions.
        clock: the clocks and the timer.
        publisher: receives HeaderOverruled and AddressNotFound.
        resolver: finds the addresses of hosts; needed if ``options.is_scoped``.
        jitter: returns 0 to 1, to spread the requests to a host that was closed.
        memory: returns what keeps the states of the hosts, addresses or domains of a scope, which it is given by name;
            None to forget them with the process.
        membership: of the fleet by which the requests of several processes are paced together; None for this process
            alone. The fleet keeps the states of the hosts, in place of ``memory``.
    """

    def make(publisher: Publisher, memory: MemoryOf | None) -> AnyPacer:
        def local(options: PacingOptions) -> LocalPacer:
            if memory is None:
                return LocalPacer(options, clock=clock, jitter=jitter, publisher=publisher)
            kept = memory(options.key)
            return RememberingPacer(options, memory=kept, clock=clock, jitter=jitter, publisher=publisher)

        scope = local if membership is None else membership.join(local, publisher)
        if resolver is not None and options.is_scoped:
            return ScopedPacer(options, scope, clock=clock, resolver=resolver, publisher=publisher)
        return scope(options)

    if membership is not None:
        memory = None
    if options.scope:
        return SharedPacer(options, make, clock=clock, publisher=publisher, memory=memory, membership=membership)
    return make(publisher, memory)


def membership_of(fleet: FleetOptions, clock: Clock) -> Membership:
    """Return a membership of a fleet for one gate. Nothing connects before its first turn.

    Raises:
        ConfigurationError: the URL of the fleet is none, or the extra ``redis`` is missing.
    """
    try:
        from politesse._pacing.fleet.membership import Membership  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(f"fleet={fleet!r}: {needs_extra('pacing by a fleet', 'redis')}") from error
    return Membership(fleet, clock)


class _Common:
    """A pacer that several gates share.

    Attributes:
        options: those of all its gates; of the first one in a MixedScope.
        fleet: the fleet of all its gates; None for none.
        clock: the clock that it goes by.
        publisher: what it publishes to; each gate subscribes.
        pacer: the pacer.
        gates: how many gates have joined and not closed.
        memories: of these gates, in the order in which they joined, as far as they have any.
        remembers: whether the pacer uses them.
    """

    def __init__(
        self, options: PacingOptions, make: MakePacer, clock: Clock, *, remembers: bool, fleet: FleetOptions | None
    ) -> None:
        self.options = options
        self.fleet = fleet
        self.clock = clock
        self.publisher = Publisher(EventLog())  # logged once, not for each gate
        self.memories: dict[object, MemoryOf] = {}
        self.remembers = remembers
        self.pacer = make(self.publisher, partial(_CommonMemory, self.memories) if remembers else None)
        self.gates = 0


class _CommonMemory:
    """What the pacer of a scope remembers: by the memory of the gate that has been open for longest.

    Args:
        memories: by gate.
        scope: ``"host"``, ``"address"`` or ``"domain"``.
    """

    def __init__(self, memories: Mapping[object, MemoryOf], scope: str) -> None:
        self._memories = memories
        self._scope = scope
        self._of: tuple[object, HostMemory] | None = None

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
        """Return the memory; None if all gates are closed."""
        gate = next(iter(self._memories), None)
        if gate is None:
            return None
        if self._of is None or self._of[0] is not gate:
            self._of = gate, self._memories[gate](self._scope)
        return self._of[1]


_COMMON: Final[WeakValueDictionary[tuple[asyncio.AbstractEventLoop, type[str], str], _Common]] = WeakValueDictionary()


class SharedPacer:
    """The pacer of one gate that shares its pace with others; see ``politesse.ports.Pacer``.

    Raises ConfigurationError at the first use if another gate of the same scope has another clock or fleet, or other
    options and the scope is not a MixedScope.

    The first gate of a scope decides whether what its hosts ask for is kept: a pacer without a memory costs less, and
    cannot be given one while it has hosts.

    Args:
        options: see PacingOptions; ``scope`` is the name.
        make: makes the pacer, if this is the first gate of the scope; given what it publishes to.
        clock: the clocks and the timer.
        publisher: receives what the shared pacer publishes, for all gates.
        memory: see ``pacer_for``.
        membership: see ``pacer_for``.
    """

    def __init__(
        self,
        options: PacingOptions,
        make: MakePacer,
        *,
        clock: Clock,
        publisher: Publisher,
        memory: MemoryOf | None = None,
        membership: Membership | None = None,
    ) -> None:
        self._options = options
        self._clock = clock
        self._publisher = publisher
        self._make = make
        self._memory = memory
        self._fleet = None if membership is None else membership.fleet
        self._is_mixed = isinstance(options.scope, MixedScope)
        self._gate = object()  # stands for this gate at the hosts that its options bind
        self._options_of: dict[str, PacingOptions] = {}  # of a MixedScope, by host
        self._limits: dict[str, tuple[float | None, int | None]] = {}
        self._common: _Common | None = None
        self._unsubscribe: Callable[[], None] = lambda: None
        self._waits: set[asyncio.Timeout] = set()
        self._callbacks: dict[object, Callable[[], None]] = {}  # in the order in which they came
        self._closed = False
        if _get_running_loop() is not None:
            self._pacer()

    def try_start(self, request: TurnRequest, /) -> Permit | NotYet:
        """Return a permit, or when there may be one. Never waits; raises ClosedError."""
        return self._pacer_of(request.host).try_start(request)

    async def try_starts(self, requests: Sequence[TurnRequest], /) -> Sequence[Permit | NotYet]:
        """Return the permits that there are now; see ``politesse.ports.Pacer``."""
        for request in requests:
            self._pacer_of(request.host)
        answers = await self._pacer().try_starts(requests)
        if self._closed:  # granted at the moment of the close
            give_back_all(answers)
            raise ClosedError("the pacer was closed while turns were requested")
        return answers

    async def start(self, request: TurnRequest, max_wait_s: float | None = None, /) -> Permit:
        """Wait in line for a permit, behind the requests of all gates; see ``politesse.ports.Pacer``."""
        pacer = self._pacer_of(request.host)
        wait = asyncio.timeout(None)  # without a limit: ``aclose`` ends it
        self._waits.add(wait)
        try:
            async with wait:
                permit = await pacer.start(request, max_wait_s)
        except TimeoutError:
            if not wait.expired():
                raise
            raise _closed_during(request) from None
        finally:
            self._waits.discard(wait)
        if self._closed:  # granted at the moment of the close
            permit.give_back()
            raise _closed_during(request)
        return permit

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        """Call ``callback`` once, when ``request`` may start and nothing waits; or when this gate is closed."""
        place = object()
        self._pacer_of(request.host).when_ready(request, partial(self._call, place))
        self._callbacks[place] = callback

    def when_near(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        """Call ``callback`` once, when ``when_ready`` should be called; or when this gate is closed."""
        place = object()
        self._pacer_of(request.host).when_near(request, partial(self._call, place))
        self._callbacks[place] = callback

    def close_host(self, host: str, until_wall: float, bound_by: Bound, /) -> None:
        """Let nothing start at ``host`` before ``until_wall``, at any gate."""
        if not self._closed:
            self._pacer().close_host(host, until_wall, bound_by)

    async def closed_until(self, host: str, /) -> float | None:
        """Return the Unix time until which ``host`` is closed; None if it is open."""
        return await self._pacer().closed_until(host)

    def count_fetch(
        self,
        host: str,
        origin: str,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        elapsed_s: float = 0.0,
        /,
    ) -> None:
        """Count a robots.txt that was fetched without a permit."""
        if not self._closed:
            self._pacer().count_fetch(host, origin, status, headers, elapsed_s)

    def hosts(self) -> Mapping[str, HostPace]:
        """Return what is known of each busy host, through all gates of the scope; nothing before the first use."""
        return {} if self._common is None else self._common.pacer.hosts()

    def lines(self, host: str, /) -> Iterable[PacedLine]:
        """Return the lines in which a request to ``host`` waits, the same at all gates; none before the first use."""
        return () if self._common is None else self._common.pacer.lines(host)

    def set_limits(self, host: str, min_delay_s: float | None, max_concurrent: int | None, /) -> None:
        """Pace ``host`` by its own limits, at all gates: the last one to set them decides.

        In a MixedScope they are those of this gate, from its next request on.
        """
        if self._is_mixed:
            check_limits(self._options, host, min_delay_s, max_concurrent)
            self._options_of[host] = limited(self._options, min_delay_s, max_concurrent)
        elif _get_running_loop() is None and self._common is None:
            check_limits(self._options, host, min_delay_s, max_concurrent)
            self._limits[host] = min_delay_s, max_concurrent  # set at the first use
        else:
            self._pacer().set_limits(host, min_delay_s, max_concurrent)

    async def aclose(self) -> None:
        """Raise ClosedError in all that waits at this gate; close the shared pacer if this is its last gate."""
        if self._closed:
            return
        self._closed = True
        for wait in self._waits:
            wait.reschedule(0.0)
        for place in list(self._callbacks):
            self._call(place)
        common, self._common = self._common, None
        if common is not None:
            self._unsubscribe()
            common.pacer.unbind(self._gate)
            common.memories.pop(self._gate, None)
            common.gates -= 1
            if not common.gates:
                await common.pacer.aclose()

    @property
    def waiting(self) -> int:
        """How many requests of this gate wait for a permit."""
        return len(self._waits)

    @property
    def in_flight(self) -> int:
        """How many permits have not ended, those of all gates of the scope."""
        return 0 if self._common is None else self._common.pacer.in_flight

    @property
    def reserving_s(self) -> float:
        """How long it takes to reserve a start; 0 before the first use."""
        return 0.0 if self._common is None else self._common.pacer.reserving_s

    def __repr__(self) -> str:
        return f"<SharedPacer {self._options.scope!r}: {None if self._common is None else self._common.pacer!r}>"

    def _call(self, place: object) -> None:
        """Call a callback of ``when_ready``, unless it was called already."""
        callback = self._callbacks.pop(place, None)
        if callback is not None:
            callback()

    def _pacer_of(self, host: str) -> AnyPacer:
        """Return the shared pacer, with ``host`` bound by the options of this gate; raises ClosedError."""
        pacer = self._pacer()
        if self._is_mixed:
            pacer.bind(self._gate, host, self._options_of.get(host, self._options))
        return pacer

    def _pacer(self) -> AnyPacer:
        """Return the shared pacer, joining it at the first use; raises ClosedError."""
        if self._closed:
            raise ClosedError("the pacer is closed")
        if self._common is None:
            self._common = self._join()
        return self._common.pacer

    def _join(self) -> _Common:
        key = (asyncio.get_running_loop(), type(self._options.scope), self._options.scope)
        common = _COMMON.get(key)
        if common is None or not common.gates:
            remembers = self._memory is not None
            common = _COMMON[key] = _Common(
                self._options, self._make, self._clock, remembers=remembers, fleet=self._fleet
            )
        elif common.options != self._options and not self._is_mixed:
            differing = ", ".join(_differing(common.options, self._options))
            raise ConfigurationError(
                f"scope={self._options.scope!r}: its gates must have the same PacingOptions, not {differing}"
            )
        elif common.fleet != self._fleet:
            differing = f"{common.fleet} and {self._fleet}"
            raise ConfigurationError(
                f"scope={self._options.scope!r}: its gates must have the same fleet, not {differing}"
            )
        elif common.clock is not self._clock and run_of(common.clock) != run_of(self._clock):
            raise ConfigurationError(f"scope={self._options.scope!r}: its gates must have the same clock")
        elif self._memory is not None and not common.remembers:
            text = "scope=%r: what its hosts ask for is not kept, because its first gate has no store that outlives it"
            PACING.warning(text, self._options.scope)
        common.gates += 1
        if self._memory is not None:
            common.memories[self._gate] = self._memory
        self._unsubscribe = common.publisher.subscribe(self._publisher.forward)
        for host, limits in self._limits.items():
            common.pacer.set_limits(host, *limits)
        return common


def _differing(one: PacingOptions, other: PacingOptions) -> Iterator[str]:
    """Yield the options that differ, with both values."""
    for field in fields(one):
        name = field.name
        if (value := getattr(one, name)) != (other_value := getattr(other, name)):
            yield f"{name}={value!r} and {name}={other_value!r}"


def _closed_during(request: TurnRequest) -> ClosedError:
    return ClosedError(f"the pacer was closed during the wait for a turn at {request.host}")
