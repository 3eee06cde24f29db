"""One process's link to the Redis of its fleet: it connects by itself, delivers in order, and reports each loss.

Theory of operation. One task does it all. What is sent while a batch is under way goes with the next batch, so that
many hosts share a round trip. There are two sorts of calls:

    ask    a reservation: its answer is awaited. If the connection is lost it raises WireLost, and nobody sends it again
    post   the end of a request, a closing, a renewal: it is sent again after a loss, in its order, until it is answered

A loss is: an error of a connection, no answer for ``timeout_s``, an error that says that the server cannot serve now,
and a clock of the server that was set (``server_clock.py``). Every few seconds the link looks whether it is still the
same server, by its ``run_id``, behind whatever stands between, and whether what it publishes still arrives. A script
without effect on any host, the probe, is run then and at each connection: a server that cannot write, or permits this
client less than it needs, is found out before a request depends on it.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
from collections import deque
from contextlib import suppress
from math import inf
from random import random
from secrets import token_hex
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from politesse._pacing.fleet.faults import strange_message, unusable_key
from politesse._pacing.fleet.messages import FleetAnswer, ScriptCall, WireLost, microseconds
from politesse._pacing.fleet.scripts import Script
from politesse._pacing.fleet.server_clock import ServerClocks
from politesse._tasks import is_anything_left
from politesse._text import described
from politesse.errors import ClosedError, ConfigurationError, PolitesseError
from politesse.events import ComponentFailed, FleetAway, FleetBack

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from politesse._pacing.fleet.messages import FleetWire, Reply, Server
    from politesse._pacing.fleet.options import FleetOptions
    from politesse.clock import Clock
    from politesse.events import Publisher

T = TypeVar("T")

HOLD_S: Final = 1.0
"""For how many seconds at least nothing starts after a connection: the others need time to connect as well."""

_NOT_OF_A_NAME: Final = re.compile(r"[^A-Za-z0-9]+")
_MOST_NODE: Final = 20  # characters of the name of a machine
_LOOK_S: Final = 5.0  # between two looks at the server
_RETRY_S: Final = 0.05
_LONGEST_RETRY_S: Final = 0.5  # well below HOLD_S
_MOST_CALLS: Final = 500  # in one batch
_MOST_POSTED: Final = 100_000  # that wait for Redis to be back
_MOST_UNUSABLE: Final = 1_000  # keys whose fault is remembered, to report it once
_OPENING: Final = 5.0  # so many times the timeout: it takes a dozen round trips
_PROBE: Final = "probe"
_CANCELLED: Final = "its task was cancelled"
_FLUSH_S: Final = 1.0  # that the last calls may take at the close


class Member(Protocol):
    """A pacer that uses the link."""

    def pushed(self, key: str, answer: FleetAnswer) -> None:
        """Receive a message about a key."""

    def lost(self) -> None:
        """Void all grants: the connection was lost, or there never was any."""

    def found(self) -> None:
        """Make known what is under way and what is closed; it is sent before anything else."""


class _Sent:
    """A call that has not been answered; ``answered`` is None if nobody waits for that."""

    __slots__ = ("answered", "args", "key", "posted_mono", "script")

    def __init__(
        self,
        script: Script,
        key: str,
        args: tuple[str | int, ...],
        posted_mono: float,
        answered: asyncio.Future[Reply] | None = None,
    ) -> None:
        self.script = script
        self.key = key
        self.args = args
        self.posted_mono = posted_mono
        self.answered = answered


class FleetLink:
    """The link of one process; several pacers may share it, each for its own scope.

    Args:
        wire: the connections.
        options: see FleetOptions.
        clock: the monotonic clock counts how long the server is known.
        publisher: receives FleetAway and FleetBack.

    Attributes:
        options: see FleetOptions.
        owner: names this process in Redis: its machine, its process id, and a random part, because neither is unique.
        losses: how often the connection was lost.
        is_up: whether it is connected.
    """

    def __init__(self, wire: FleetWire, options: FleetOptions, *, clock: Clock, publisher: Publisher) -> None:
        self.options = options
        self.owner = f"{_NOT_OF_A_NAME.sub('-', platform.node())[:_MOST_NODE]}-{os.getpid()}-{token_hex(4)}"
        self.losses = 0
        self.is_up = False
        self._wire = wire
        self._clock = clock
        self._publish = publisher.publish
        self._members: list[Member] = []
        self._outbox: deque[_Sent] = deque()
        self._under_way: list[_Sent] = []
        self._work = asyncio.Event()
        self._tried = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._tickets = 0
        self._known_since_mono = 0.0
        self._run_id = ""
        self._unnoticed_s = 0.0
        self._retry_s = _RETRY_S
        self._clocks = ServerClocks()
        self._echo = asyncio.Event()
        self._unusable: set[str] = set()
        self._reported_message = False
        self._away_since_mono: float | None = None
        self._fault: PolitesseError | None = None
        self._looks = False
        self._closed = False

    def join(self, member: Member) -> None:
        """Let a pacer use the link."""
        self._members.append(member)

    def check(self) -> None:
        """Connect at the first use; raises ConfigurationError if Redis refuses this client."""
        if self._fault is not None:
            raise self._fault
        self._start()

    async def tried(self) -> None:
        """Wait until the first attempt to connect has ended, or Redis counts as away; raises as ``check`` does."""
        self.check()
        if not self._tried.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self.options.timeout_s):
                    await self._tried.wait()
            self.check()

    def ticket(self) -> str:
        """Return a new ticket."""
        self._tickets += 1
        return f"{self.owner}.{self._tickets}"

    def hold_s(self, interval_s: float) -> float:
        """Return for how long nothing may start yet at a host: the server may have forgotten the last interval."""
        known_s = self._clock.monotonic() - self._known_since_mono
        return max(0.0, max(interval_s, HOLD_S) - known_s)

    async def ask(self, script: Script, key: str, *args: str | int) -> FleetAnswer:
        """Run a script and return its answer; raises WireLost, and ConfigurationError for a key that is not ours."""
        if not self.is_up:
            raise WireLost("it is away")
        answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._put(_Sent(script, self.options.prefix + key, args, self._clock.monotonic(), answered))
        return FleetAnswer.of(await answered)

    def post(self, script: Script, key: str, *args: str | int) -> None:
        """Have a script run, now or when Redis is back."""
        if not self._closed:
            if self._task is None and (asyncio.current_task() is None or is_anything_left()):
                self._start()  # else it is the end of a request that ends with the event loop
            if not self.is_up and len(self._outbox) >= _MOST_POSTED:
                self._outbox.popleft()  # without its report, a request counts as under way until its lease is over
            self._put(_Sent(script, self.options.prefix + key, args, self._clock.monotonic()))

    async def leave(self, member: Member) -> None:
        """Let a pacer go; after the last one send what is left, for a second at the most, and disconnect."""
        if member in self._members:
            self._members.remove(member)
        if self._members or self._closed:
            return
        self._closed = True
        self._work.set()
        if (task := self._task) is not None:
            await asyncio.wait({task}, timeout=_FLUSH_S)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._fail_asks(ClosedError("the pacer is closed"))
        await self._dropped(self._wire.aclose())
        await asyncio.sleep(0)  # a transport that is closed ends in the next step

    def _call(self, sent: _Sent) -> ScriptCall:
        waited = microseconds(self._clock.monotonic() - sent.posted_mono - 1e-6)  # not too much, by rounding
        common = (f"{self.options.prefix}to:", int(self._wire.counts_receivers), max(0, waited))
        return ScriptCall(sent.script, sent.key, (*common, *sent.args))

    def _start(self) -> None:
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="link to the Redis of the fleet")
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Count the cancellation of the task by others, maybe before its first step, as a loss."""
        if task.cancelled() and not self._closed:
            self._task = None
            self._away(_CANCELLED)
            if is_anything_left():
                self._start()

    def _put(self, sent: _Sent) -> None:
        self._outbox.append(sent)
        self._work.set()

    async def _run(self) -> None:
        while not (self._closed and not self.is_up):
            try:
                opening = self._wire.open(f"{self.options.prefix}to:{self.owner}")
                server = await self._bounded(opening, _OPENING * self.options.timeout_s)
                if self._unnoticed_s or server.run_id != self._run_id:
                    self._clocks.clear()
                await self._probe()
                self._found(server)
                await self._serve()
            except ConfigurationError as error:
                self._away(described(error))
                self._fault = error
            except WireLost as error:
                self._away(str(error))
            except asyncio.CancelledError:
                if not self._closed:
                    self._away(_CANCELLED)
                raise
            except BaseException as error:
                self._fault = ConfigurationError(f"the link to the Redis of the fleet failed: {described(error)}")
                self._away(described(error))
                raise
            finally:
                self._tried.set()
                await self._dropped(self._wire.drop())
            if self._closed:
                return
            await asyncio.sleep(self._retry_s * (1.0 + random()))  # noqa: S311 - it spreads retries
            self._retry_s = min(2.0 * self._retry_s, _LONGEST_RETRY_S)

    def _found(self, server: Server) -> None:
        now_mono = self._clock.monotonic()
        # A server that was there before this process knows the others' requests; one that has just started, and one
        # that was lost, may not.
        self._known_since_mono = now_mono + self._unnoticed_s if self._run_id else now_mono - server.uptime_s
        self._run_id, self._fault, self.is_up, self._unnoticed_s = server.run_id, None, True, 0.0
        waiting, self._outbox = self._outbox, deque()
        for member in self._members:
            member.found()
        self._outbox.extend(waiting)
        self._tried.set()

    def _is_back(self) -> None:
        """Note that the server has answered all that was sent since the connection."""
        self._retry_s = _RETRY_S
        if self._away_since_mono is not None:
            away_s = self._clock.monotonic() - self._away_since_mono
            self._away_since_mono = None
            self._publish(FleetBack(self._wire.name, away_s))

    def _away(self, why: str) -> None:
        was_up, self.is_up = self.is_up, False
        # What was under way may have been done or not: what is posted can be done twice.
        again = [sent for sent in (*self._under_way, *self._outbox) if sent.answered is None]
        self._fail_asks(WireLost(why))
        self._under_way, self._outbox = [], deque(again)
        if self._away_since_mono is None and is_anything_left():  # else the program ends, and nobody closed the gate
            self._away_since_mono = self._clock.monotonic()
            self._publish(FleetAway(self._wire.name, why))
        if was_up:
            self.losses += 1
        for member in self._members:
            member.lost()

    def _fail_asks(self, error: Exception) -> None:
        for sent in (*self._under_way, *self._outbox):
            if sent.answered is not None and not sent.answered.done():
                sent.answered.set_exception(error)
                sent.answered.exception()  # its waiter may be gone: then nobody retrieves it

    async def _serve(self) -> None:
        """Exchange until the connection is lost, or all is sent after the close."""
        loop = asyncio.get_running_loop()
        reader = loop.create_task(self._read())
        reader.add_done_callback(lambda _: self._work.set())
        look = loop.call_later(_LOOK_S, self._look_soon)
        try:
            while True:
                if reader.done():
                    reader.result()
                if self._looks:
                    look = loop.call_later(_LOOK_S, self._look_soon)
                    await self._look()
                if self._outbox:
                    await self._exchange()
                    continue
                self._is_back()
                if self._closed:
                    return
                if not self._outbox:
                    self._work.clear()
                    await self._work.wait()
        finally:
            look.cancel()
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _dropped(self, work: Awaitable[None]) -> None:
        """Close connections, which may hang where the other end stands still."""
        with suppress(WireLost, OSError):
            await self._bounded(work)

    async def _exchange(self) -> None:
        self._under_way = [self._outbox.popleft() for _ in range(min(len(self._outbox), _MOST_CALLS))]
        is_all = not self._outbox
        replies = await self._run_scripts(self._under_way)
        under_way, self._under_way = self._under_way, []
        for sent, reply in zip(under_way, replies, strict=True):
            self._take(sent, reply)
        if is_all:
            self._is_back()

    async def _run_scripts(self, batch: list[_Sent]) -> list[Reply | Exception]:
        sent_mono = self._clock.monotonic()
        replies = await self._bounded(self._wire.exchange([self._call(sent) for sent in batch]))
        for sent, reply in zip(batch, replies, strict=True):
            if not isinstance(reply, Exception):
                self._check_clock(sent.key, int(reply[2]), sent_mono)
        return replies

    async def _probe(self) -> None:
        """Do what the scripts do, without an effect on any host, and publish to this process."""
        self._echo.clear()
        now_mono, keys = self._clock.monotonic(), self._wire.probe_keys(f"{self.options.prefix}{_PROBE}")
        batch = [_Sent(Script.PROBE, key, (self.owner,), now_mono) for key in keys]
        for sent, reply in zip(batch, await self._run_scripts(batch), strict=True):
            if isinstance(reply, Exception):
                raise unusable_key(sent.key, self._wire.name, reply)

    def _check_clock(self, key: str, at_us: int, sent_mono: float) -> None:
        """Raise WireLost if the clock that rules a key was set."""
        jump_s = self._clocks.jump_s(self._wire.clock_of(key), at_us, sent_mono, self._clock.monotonic())
        if jump_s:
            # Leases may have ended early. Their processes renew them as soon as they notice.
            self._unnoticed_s = _LOOK_S + self.options.timeout_s
            raise WireLost(f"its clock was set {'forward' if jump_s > 0 else 'back'} by {abs(jump_s):.1f} s")

    def _take(self, sent: _Sent, reply: Reply | Exception) -> None:
        if isinstance(reply, Exception):
            fault = unusable_key(sent.key, self._wire.name, reply)
            if sent.answered is None:
                if sent.key not in self._unusable and len(self._unusable) < _MOST_UNUSABLE:
                    self._unusable.add(sent.key)
                    self._publish(ComponentFailed(None, "pacer", fault))
            elif not sent.answered.done():
                sent.answered.set_exception(fault)
            return
        self._unusable.discard(sent.key)
        if sent.answered is None:
            if reply[0] == "closed":
                self._push(sent.key, FleetAnswer.of(reply))
        elif not sent.answered.done():
            sent.answered.set_result(reply)

    async def _read(self) -> None:
        async for message in self._wire.pushes():
            key, *reply = message.split("\n")
            if key.startswith(f"{self.options.prefix}{_PROBE}"):
                self._echo.set()
                continue
            try:
                answer = FleetAnswer.heard(reply, self.owner)
            except ValueError as error:  # it has no effect
                if not self._reported_message:
                    self._reported_message = True
                    channel = f"{self.options.prefix}to:{self.owner}"
                    fault = strange_message(message, channel, self._wire.name, error)
                    self._publish(ComponentFailed(None, "pacer", fault))
            else:
                self._check_clock(key, answer.at_us, -inf)
                self._push(key, answer)

    def _push(self, key: str, answer: FleetAnswer) -> None:
        name = key.removeprefix(self.options.prefix)
        for member in self._members:
            member.pushed(name, answer)

    def _look_soon(self) -> None:
        self._looks = True
        self._work.set()

    async def _look(self) -> None:
        """Look whether it is still the same server, and whether what it publishes arrives."""
        self._looks = False
        server = await self._bounded(self._wire.server())
        if server.run_id != self._run_id:
            self._unnoticed_s = _LOOK_S + self.options.timeout_s  # others look later
            raise WireLost("another server has taken its place")
        await self._bounded(self._echo.wait(), lost="what it publishes does not arrive")
        await self._probe()

    async def _bounded(self, work: Awaitable[T], timeout_s: float = 0.0, *, lost: str = "no answer") -> T:
        timeout_s = timeout_s or self.options.timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await work
        except TimeoutError as error:
            raise WireLost(f"{lost} within {timeout_s:g} s") from error
