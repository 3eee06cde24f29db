"""The link of a process to the Redis of its fleet: connects, sends calls in order, and reports each loss.

Theory of operation. One task does all the work. While one batch of calls is under way, new calls are collected for the
next batch. So many hosts share a round trip. There are two kinds of calls:

    ask    a reservation: its caller waits for the answer. After a loss the call raises WireLost and is not sent again
    post   the end of a request, the closure of a host, the renewal of a lease: its caller does not wait. After a
           loss, ends and closures are sent again, in the same order, until Redis answers. Renewals are not sent
           again, because each session begins with new renewals

These events count as a loss: a connection error; no answer for ``timeout_s``; an error reply that refuses all calls for
now; a server clock that was set, or has the wrong speed (``server_clock.py``); and lost data (``roster.py``).

Each connection begins a new session. In each session the process first joins the rosters. Then it renews the leases of
its requests under way, and tells Redis again which hosts are closed or slow. Then it sends the posts that have waited
for the connection, and reports. After that it sends the calls of its pacers, reads messages, and reports again every
few seconds.

Every few seconds the link reports again. The report checks that the server is still the same, that it can write, that
it permits all commands of the scripts, and that its messages arrive. While requests wait or are under way, the link
also checks the epoch when it has made no call for ``timeout_s / 2``. So the link notices a silent server after at most
``1.5 * timeout_s``. Until then, requests with an earlier grant still start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import re
from contextlib import suppress
from math import inf
from random import random
from secrets import token_hex
from typing import TYPE_CHECKING, Final, TypeVar

from politesse._base.tasks import is_anything_left
from politesse._base.text import described, shortened
from politesse._pacing.fleet.messages import (
    FleetAnswer,
    Outbox,
    Reply,
    RoundOver,
    Sent,
    Server,
    WireLost,
    bounded,
    microseconds,
)
from politesse._pacing.fleet.roster import Roster
from politesse._pacing.fleet.scripts import Script
from politesse._pacing.fleet.server_clock import ServerClocks
from politesse.errors import ClosedError, ConfigurationError
from politesse.events import ComponentFailed, FleetAway, FleetBack, Publisher
from politesse.verdict import Bound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from politesse._pacing.fleet.options import FleetOptions
    from politesse._pacing.fleet.reserver import Reserver
    from politesse._pacing.fleet.wire import FleetWire
    from politesse.clock import Clock

T = TypeVar("T")

logger = logging.getLogger("politesse.pacing")

HOLD_S: Final = 1.0
"""The least time from a connection to the first request, in seconds: other processes need time to connect, too."""

RETRY_S: Final = 0.05

_LOOK_S: Final = 5.0  # the time between two reports; a third of lease_s if that is shorter
_OTHERS_S: Final = 1.0  # replaces _LOOK_S while other processes have to report; a longer wait for them is published
_ROSTER: Final = "members"
_MOST_NAMES: Final = 10  # a message names at most this many processes
_UNUSABLE_S: Final = 60.0  # a host whose key cannot be used is closed for this time, and then its key is tried again
_MOST_UNUSABLE: Final = 1_000  # this many unusable keys are remembered, so that each key is reported once
_NOT_OF_A_NAME: Final = re.compile(r"[^A-Za-z0-9]+")
_MOST_NODE: Final = 20  # the machine's name is cut to this many characters
_LONGEST_RETRY_S: Final = 0.5  # the pause must stay well below HOLD_S
_OPENING: Final = 5.0  # connecting may take this many timeouts, because it takes several round trips
_ALL: Final = "all"  # the channel of all processes
_CANCELLED: Final = "its task was cancelled"
_FLUSH_S: Final = 1.0  # the close waits this long for the last calls


class FleetLink:
    """The link of a process; several pacers may share it, each for its own scope.

    Args:
        wire: the connections.
        options: see FleetOptions.
        clock: its monotonic time measures the time since a connection.
        publisher: receives FleetAway and FleetBack, and ComponentFailed once for each key that cannot be used.

    Attributes:
        owner: the name of this process in Redis: its machine, its process id, and a random part, because process ids
            are reused.
        options: see FleetOptions.
        roster: the processes of the fleet.
        clocks: the clocks of the server or of its nodes.
        is_up: whether the connection is open.
        losses: how many times the connection was lost.
        channels: the start of the name of each channel.
    """

    def __init__(self, wire: FleetWire, options: FleetOptions, *, clock: Clock, publisher: Publisher) -> None:
        self.owner: str = _new_owner()
        self._pid = os.getpid()
        self._task: asyncio.Task[None] | None = None
        self._tickets = 0
        self.options: FleetOptions = options
        self.roster: Roster = Roster()
        self.clocks: ServerClocks = ServerClocks()
        self.is_up: bool = False
        self.losses: int = 0
        self._wire = wire
        self._clock = clock
        self._publish = publisher.publish
        self._members: list[Reserver] = []
        # Channels belong to the whole server, keys to one database of it.
        self.channels: str = f"{options.prefix}to:{wire.database}:"
        self._outbox = Outbox(clock, self.channels, is_cluster=wire.is_cluster)
        self._is_closed = False
        self._tried = asyncio.Event()
        self._fault: ConfigurationError | None = None
        self._retry_s = RETRY_S
        self._known_since_mono = 0.0
        self._away_since_mono: float | None = None
        self._run_id = ""
        self._keys: list[str] = []  # the keys of the rosters of all nodes
        self._echo = asyncio.Event()
        self._look_at = 0.0  # this time and the two below are times of the event loop
        self._answered_at = 0.0
        self._waiting_since = inf  # when this process began to wait for the reports of other processes
        self._unusable: set[str] = set()
        self._has_warned = False

    def join(self, member: Reserver) -> None:
        """Let a pacer use the link."""
        self._members.append(member)

    def check(self) -> None:
        """Connect at the first use; raises ConfigurationError if Redis refuses this client."""
        self._check_process()
        if self._fault is not None:
            raise self._fault
        self._start()

    async def tried(self) -> None:
        """Wait for the end of the first attempt to connect, for ``timeout_s`` at most. For errors see ``check``."""
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

    async def ask(self, script: Script, key: str, *args: str | int) -> FleetAnswer:
        """Run a script and return its answer; raises WireLost."""
        if not self.is_up:
            raise WireLost("it is away")
        answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._outbox.put(script, self.options.prefix + key, args, answered)
        return FleetAnswer.of(await answered)

    def post(self, script: Script, key: str, *args: str | int) -> None:
        """Send a script to run, now or when Redis is back."""
        if not self._is_closed:
            self._check_process()
            if self._task is None and (asyncio.current_task() is None or is_anything_left()):
                self._start()  # at the end of the event loop, a new task would not run
            self._outbox.put(script, self.options.prefix + key, args)

    async def leave(self, member: Reserver) -> None:
        """Remove a pacer. If it was the last pacer, send the remaining calls for at most a second, and disconnect."""
        if member in self._members:
            self._members.remove(member)
        if self._members or self._is_closed:
            return
        self._is_closed = True
        if os.getpid() != self._pid:
            return  # after a fork, the connections belong to the parent process
        if self.is_up:
            self._speak_up("leave")
        self._outbox.work.set()
        if (task := self._task) is not None:
            await asyncio.wait({task}, timeout=_FLUSH_S)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._outbox.fail_questions(ClosedError("the pacer is closed"))
        await self._dropped(self._wire.aclose())
        await asyncio.sleep(0)  # a closed transport ends in the next step of the loop

    def hold_s(self, interval_s: float) -> float | None:
        """Return for how many seconds no request to a host may start; None if the time is unknown.

        The time is unknown while Redis is away, and until other processes have reported to a server that has lost data.
        A server that has lost data may not know the last interval.
        """
        if not self.is_up or not self.roster.has_reported(len(self._keys)):
            return None
        now_mono = self._clock.monotonic()
        if self.roster.waits_s(now_mono) > 0.0:
            return None
        return max(0.0, max(interval_s, HOLD_S) - (now_mono - self._known_since_mono))

    def us_there(self, seconds: float) -> int:
        """Convert a duration to microseconds of the server's clock, which may run too fast."""
        return microseconds(seconds * self.clocks.stretch)

    # Connect

    def _check_process(self) -> None:
        """Get a new identity after a fork; raises ConfigurationError if the link was used before the fork."""
        if (pid := os.getpid()) == self._pid:
            return
        if self._task is not None:
            raise ConfigurationError(
                f"this link to the Redis of a fleet was used in process {self._pid}, before the fork: create the "
                "gatekeeper in the child process"
            )
        self.owner = _new_owner()
        self._pid = pid

    def _start(self) -> None:
        if self._task is None and not self._is_closed:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="link to the Redis of the fleet")
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Count a loss if other code cancelled the task, perhaps before its first step."""
        if task.cancelled() and not self._is_closed:
            self._task = None
            self._away(_CANCELLED)
            if is_anything_left():
                self._start()

    async def _run(self) -> None:
        """Connect, and reconnect after each loss, until the close."""
        while True:
            try:
                opening = self._wire.open(f"{self.channels}{self.owner}", f"{self.channels}{_ALL}")
                self._begin(await self._bounded(opening, _OPENING * self.options.timeout_s))
                await self._serve()
            except ConfigurationError as error:
                self._away(described(error))
                self._fault = error
            except WireLost as error:
                if isinstance(error, RoundOver):
                    self.clocks.forget()  # readings from before the round say nothing about the clock now
                self._away(str(error))
            except asyncio.CancelledError:
                if not self._is_closed:
                    self._away(_CANCELLED)
                raise
            except BaseException as error:
                self._fault = ConfigurationError(f"the link to the Redis of the fleet failed: {described(error)}")
                self._away(described(error))
                raise
            finally:
                self._tried.set()
                await self._dropped(self._wire.aclose())
            if not self._is_closed:
                await asyncio.sleep(self._retry_s * (1.0 + random()))  # noqa: S311 - it spreads retries
                self._retry_s = min(2.0 * self._retry_s, _LONGEST_RETRY_S)
            if self._is_closed:
                return

    async def _dropped(self, work: Awaitable[None]) -> None:
        """Close connections in a task; closing may hang if the other end does not respond."""
        with suppress(WireLost, OSError):
            await self._bounded(work)

    # Begin, and end

    def _begin(self, server: Server) -> None:
        """Begin a session: join, let all pacers renew leases and name closed hosts, send waiting posts, and report."""
        if server.run_id != self._run_id:
            self.clocks = ServerClocks()
        now_mono = self._clock.monotonic()
        # At the first connection, the server knows the requests that other processes made since its start. After a loss
        # of the connection, the server may have lost them.
        self._known_since_mono = now_mono if self._run_id else now_mono - server.uptime_s
        self._run_id, self.is_up = server.run_id, True
        self._keys = self._wire.roster_keys(f"{self.options.prefix}{_ROSTER}")
        self.roster.begin_session()
        waiting = list(self._outbox.waiting)
        self._outbox.waiting.clear()
        self._speak_up("join")
        for member in self._members:
            member.found()
        self._outbox.waiting.extend(waiting)
        self._report()

    def _away(self, why: str) -> None:
        """Invalidate all grants, and fail the waiting reservations; the posts wait for the next session."""
        self.losses += self.is_up
        self.is_up = False
        self._outbox.lost(why)
        if self._away_since_mono is None and is_anything_left():  # not at the end of the event loop
            self._publish_away(why)
        for member in self._members:
            member.lost()

    def _publish_away(self, why: str) -> None:
        self._away_since_mono = self._away_since_mono or self._clock.monotonic()
        self._publish(FleetAway(self._wire.name, why))

    def _is_back(self) -> None:
        """Record that the server has answered all calls since the connection."""
        self._retry_s = RETRY_S
        if self._away_since_mono is not None:
            away_s = self._clock.monotonic() - self._away_since_mono
            self._away_since_mono = None
            self._publish(FleetBack(self._wire.name, away_s))

    # Reports

    def _speak_up(self, act: str) -> None:
        """Send an act (join, report or leave) to the rosters of all nodes."""
        for key in self._keys:
            lease_us = self.us_there(self.options.lease_s)
            self._outbox.put(Script.MEMBER, key, self.roster.words(self.owner, act, key, self._run_id, lease_us))

    def _report(self) -> None:
        self._echo.clear()
        self._speak_up("report")
        self._look_at = asyncio.get_running_loop().time() + min(_LOOK_S, self.options.lease_s / 3.0)

    def _reported(self, key: str, reply: Reply) -> None:
        """Handle the reply to a report; the last reply may let requests start."""
        now, now_mono = asyncio.get_running_loop().time(), self._clock.monotonic()
        self.roster.take(key, reply, now_mono)
        if not self.roster.has_reported(len(self._keys)):
            return
        self.roster.is_suspect = False
        self._fault = None
        self._tried.set()
        if (left_s := self.roster.waits_s(now_mono)) <= 0.0:
            self._waiting_since = inf
        else:
            self._look_at = now + min(_OTHERS_S, left_s)
            self._waiting_since = min(self._waiting_since, now)
            if now - self._waiting_since >= _OTHERS_S:
                self._waiting_since = inf
                names = ", ".join(self.roster.missing()[:_MOST_NAMES])
                wait = f"waiting {left_s:.0f} s at most until these processes have reported: {names}"
                self._publish_away(f"it has lost data; {wait}")
        for member in self._members:
            member.wake()

    async def _look(self) -> None:
        """Check that the server is the same and that its messages arrive; then renew the leases, and report."""
        server = await self._bounded(self._wire.server())
        if server.run_id != self._run_id:
            raise WireLost("another server has taken its place")
        await self._bounded(self._echo.wait(), lost="its messages do not arrive")
        for member in self._members:
            member.renew(self.options.lease_s / 3.0)
        self._report()

    # Calls

    async def _serve(self) -> None:
        """Send calls and read replies until the connection is lost. After the close, return once all calls are sent."""
        loop = asyncio.get_running_loop()
        reader = loop.create_task(self._read())
        reader.add_done_callback(lambda _: self._outbox.work.set())
        self._answered_at = loop.time()
        try:
            while True:
                if reader.done():
                    reader.result()
                if loop.time() >= self._look_at:
                    await self._look()
                if self._outbox.waiting or loop.time() >= self._silent_at():
                    await self._exchange()
                    continue
                if self.hold_s(0.0) is not None:
                    self._is_back()
                if self._is_closed:
                    return
                await self._pause(min(self._look_at, self._silent_at()))
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    def _silent_at(self) -> float:
        """Return when to check the epoch of a silent server; infinity while this process has no requests."""
        is_busy = any(member.is_busy() for member in self._members)
        return self._answered_at + 0.5 * self.options.timeout_s if is_busy else inf

    async def _pause(self, until: float) -> None:
        """Wait for a call to send, until the time ``until`` of the event loop at the latest."""
        self._outbox.work.clear()
        timer = asyncio.get_running_loop().call_at(until, self._outbox.work.set)
        try:
            await self._outbox.work.wait()
        finally:
            timer.cancel()

    async def _exchange(self) -> None:
        calls = self._outbox.next_batch()
        batch, is_all = self._outbox.under_way, not self._outbox.waiting
        sent_mono = self._clock.monotonic()
        replies = await self._bounded(self._wire.exchange(calls, self.roster.epochs))
        self._answered_at = asyncio.get_running_loop().time()
        for sent, reply in zip(batch, replies, strict=True):
            if not isinstance(reply, Exception):
                self._check_clock(sent.key, int(reply[2]), sent_mono)
        self._outbox.under_way = []
        for sent, reply in zip(batch, replies, strict=True):
            self._take(sent, reply)
        if is_all and self.hold_s(0.0) is not None:
            self._is_back()

    def _check_clock(self, key: str, at_us: int, sent_mono: float) -> None:
        """Raise WireLost if the clock of the server with ``key`` was set, or runs too fast or too slowly."""
        fault = self.clocks.fault(self._wire.clock_of(key), at_us, sent_mono, self._clock.monotonic())
        if fault:
            self.roster.is_suspect = True  # leases may have ended early, so all processes renew their leases
            self.clocks.forget()
            raise WireLost(fault)

    def _take(self, sent: Sent, reply: Reply | Exception) -> None:
        """Handle the reply to a call."""
        if isinstance(reply, Exception):
            self._take_fault(sent, reply)
        elif sent.script is Script.MEMBER:
            if sent.args[2] == "report":
                self._reported(sent.key, reply)
        else:
            self._unusable.discard(sent.key)
            sent.settle(reply)
            if sent.answered is None and reply[0] == "closed":
                self._push(sent.key, FleetAnswer.of(reply))

    def _take_fault(self, sent: Sent, error: Exception) -> None:
        """Close the host whose key cannot be used, and publish the error once; raise the error of a roster."""
        fault = ConfigurationError(
            f"the key {sent.key!r:.200} at {self._wire.name} cannot be used: {error}. Remove it, or give the fleet "
            "another prefix"
        )
        fault.__cause__ = error
        if sent.script is Script.MEMBER:
            raise fault
        closed_us = str(microseconds(_UNUSABLE_S))
        sent.settle(["closed", "", "0", closed_us, "0", Bound.BACKOFF.value, "0", "0", "0", "0", "", ""])
        if sent.key not in self._unusable and len(self._unusable) < _MOST_UNUSABLE:
            self._unusable.add(sent.key)
            self._publish(ComponentFailed(None, "pacer", fault))

    # Messages

    async def _read(self) -> None:
        async for message in self._wire.pushes():
            key, *words = message.split("\n")
            try:
                if key in self._keys:
                    self._hear(key, words)
                    continue
                answer = FleetAnswer.of(words)
            except ValueError:
                if not self._has_warned:
                    self._has_warned = True
                    name, text = self._wire.name, shortened(message)
                    logger.warning("%s sent a message that politesse cannot read: %s", name, text)
                continue  # another program has sent the message
            if not answer.ticket or answer.ticket.partition(".")[0] == self.owner:
                self._check_clock(key, answer.at_us, -inf)
                self._push(key, answer)

    def _hear(self, key: str, words: Sequence[str]) -> None:
        """Handle a message about a roster; raises ValueError if it cannot be read."""
        if words[:1] == ["probed"]:
            self._echo.set()
            return
        _, owner, session, phase, epoch = words
        self.roster.hear(key, owner, int(session), phase, epoch)
        if self.roster.has_reported(len(self._keys)) and self.hold_s(0.0) is None:
            self._look_at = 0.0
            self._outbox.work.set()
        for member in self._members:
            member.wake()

    def _push(self, key: str, answer: FleetAnswer) -> None:
        """Pass a message about a key to its pacer."""
        for member in self._members:
            member.pushed(key.removeprefix(self.options.prefix), answer)

    async def _bounded(self, work: Awaitable[T], timeout_s: float = 0.0, *, lost: str = "no answer") -> T:
        return await bounded(work, timeout_s or self.options.timeout_s, lost=lost)


def _new_owner() -> str:
    return f"{_NOT_OF_A_NAME.sub('-', platform.node())[:_MOST_NODE]}-{os.getpid()}-{token_hex(4)}"
