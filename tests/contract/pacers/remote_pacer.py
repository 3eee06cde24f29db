"""A pacer that waits for a server, in miniature: each call takes a trip, and ``try_start`` has no answer at first."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from politesse.clock import Clock
from politesse.errors import ClosedError
from politesse.ports import FetchPermit, PacedLine, Pacer, Permit, TurnRequest
from politesse.status import HostStatus
from politesse.verdict import Bound, NotYet

TRIP: Final = 3
"""Steps of the event loop that a message to the server takes."""


def _send(message: Callable[[], object], steps: int = TRIP) -> None:
    """Deliver a message to the server later, in order."""
    if steps == 0:
        message()
    else:
        asyncio.get_running_loop().call_soon(_send, message, steps - 1)


class RemotePermit:
    """A permit whose calls are messages."""

    def __init__(self, permit: Permit) -> None:
        self._permit = permit
        self.waited = permit.waited
        self._ended = False

    @property
    def under_way(self) -> bool:
        return not self._ended and self._permit.under_way

    def observe(self, status: int, headers: Mapping[str, str], /) -> None:
        if not self._ended:
            _send(lambda: self._permit.observe(status, headers))

    def end(self) -> None:
        self._ended = True
        _send(self._permit.end)

    def give_back(self) -> None:
        self._ended = True
        _send(self._permit.give_back)


class RemoteFetch:
    def __init__(self, permit: FetchPermit) -> None:
        self._permit = permit

    def end(
        self, status: int | None = None, headers: Mapping[str, str] | None = None, elapsed_s: float = 0.0, /
    ) -> None:
        _send(lambda: self._permit.end(status, headers, elapsed_s))

    def give_back(self) -> None:
        _send(self._permit.give_back)

    def opened(self) -> None:
        _send(self._permit.opened)


class RemotePacer:
    """The client of a pacer at a server."""

    def __init__(self, server: Pacer, clock: Clock) -> None:
        self.server = server
        self.send = _send
        self._clock = clock
        self._answers: dict[tuple[str, str, str], Permit | NotYet] = {}
        self._closed = False

    @property
    def waiting(self) -> int:
        return self.server.waiting

    @property
    def in_flight(self) -> int:
        return self.server.in_flight

    def known_closing(self, host: str, /) -> float | None:
        return self.server.known_closing(host)

    def closings(self) -> Mapping[Bound, int]:
        return self.server.closings()

    def try_start(self, request: TurnRequest, /) -> Permit | NotYet:
        self._check_open()
        key = request[:3]
        answer = self._answers.pop(key, None)
        if answer is None:
            _send(lambda: self._receive(key, request))
            return NotYet(self._clock.wall(), Bound.QUEUE)
        return answer

    async def try_starts(self, requests: Sequence[TurnRequest], /) -> list[Permit | NotYet]:
        self._check_open()
        answered: asyncio.Future[list[Permit | NotYet]] = asyncio.get_running_loop().create_future()

        def answer() -> None:
            if answered.cancelled():
                return
            answers = [self.server.try_start(request) for request in requests]
            answered.set_result([one if isinstance(one, NotYet) else RemotePermit(one) for one in answers])

        _send(answer)
        try:
            return await answered
        except asyncio.CancelledError:
            if not answered.cancelled():  # they came at the moment of the cancellation
                for permit in answered.result():
                    if isinstance(permit, RemotePermit):
                        permit.give_back()
            raise

    async def start(
        self, request: TurnRequest, max_wait_s: float | None = None, instead_of: Permit | None = None, /
    ) -> Permit:
        self._check_open()
        await self._trip()
        place = instead_of._permit if isinstance(instead_of, RemotePermit) else None
        permit = await self.server.start(request, max_wait_s, place)
        if self._closed:  # it was granted before the server knew
            permit.give_back()
            raise ClosedError("the pacer is closed")
        return RemotePermit(permit)

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /) -> None:
        self._check_open()
        _send(lambda: self._watch(request, callback))

    def close_host(self, host: str, until_wall: float, bound_by: Bound, /) -> None:
        _send(lambda: self.server.close_host(host, until_wall, bound_by))

    async def closed_until(self, host: str, /) -> float | None:
        await self._trip()
        return await self.server.closed_until(host)

    async def start_fetch(self, request: TurnRequest, /, *, made: bool = False) -> RemoteFetch:
        self._check_open()
        await self._trip()
        return RemoteFetch(await self.server.start_fetch(request, made=made))

    def hosts(self) -> Mapping[str, HostStatus]:
        return self.server.hosts()

    def lines(self, host: str, /) -> Iterable[PacedLine]:
        return self.server.lines(host)

    def set_limits(self, host: str, min_delay_s: float | None, max_concurrent: int | None, /) -> None:
        _send(lambda: self.server.set_limits(host, min_delay_s, max_concurrent))

    async def aclose(self) -> None:
        self._closed = True
        await self._trip()
        await self.server.aclose()

    async def _trip(self) -> None:
        arrived = asyncio.Event()
        _send(arrived.set)
        await arrived.wait()

    def _watch(self, request: TurnRequest, callback: Callable[[], None]) -> None:
        """Reserve a permit when there is one, and then call back."""

        def ready() -> None:
            if not self._closed:
                self._receive(request[:3], request)
                if isinstance(self._answers[request[:3]], NotYet):
                    self.server.when_ready(request, ready)
                    return
            callback()
            self._clock.call_later(0.05, lambda: self._release(request[:3]))

        self.server.when_ready(request, ready)

    def _release(self, key: tuple[str, str, str]) -> None:
        """Give back a reserved permit that the callback did not take."""
        answer = self._answers.pop(key, None)
        if isinstance(answer, RemotePermit):
            answer.give_back()

    def _receive(self, key: tuple[str, str, str], request: TurnRequest) -> None:
        answer = self.server.try_start(request)
        self._answers[key] = answer if isinstance(answer, NotYet) else RemotePermit(answer)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the pacer is closed")
