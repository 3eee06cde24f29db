"""The exchange between a process and its Redis while they are connected; ``link.py`` connects them.

In each session the process first joins the rosters. Then it renews the leases of its requests under way, and tells
Redis again which hosts are closed or slow. Then it sends the posts that have waited for the connection, and reports.
After that it sends the calls of its pacers, reads messages, and reports again every few seconds.
"""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

from politesse._base.tasks import is_anything_left
from politesse._base.text import shortened
from politesse._pacing.fleet.messages import FleetAnswer, Outbox, Reply, Sent, Server, WireLost, bounded, microseconds
from politesse._pacing.fleet.roster import Roster
from politesse._pacing.fleet.scripts import Script
from politesse._pacing.fleet.server_clock import ServerClocks
from politesse.errors import ConfigurationError
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


class Session:
    """The exchange of a process with its Redis. Each connection begins a new session.

    Args:
        wire: the connections.
        options: see FleetOptions.
        clock: its monotonic time measures the time since a connection.
        publisher: receives FleetAway and FleetBack, and ComponentFailed once for each key that cannot be used.

    Attributes:
        owner: names this process; see ``FleetLink``.
        options: see FleetOptions.
        roster: the processes of the fleet.
        clocks: the clocks of the server or of its nodes.
        is_up: whether the connection is open.
        losses: how many times the connection was lost.
        channels: the start of the name of each channel.
    """

    def __init__(
        self, wire: FleetWire, options: FleetOptions, owner: str, *, clock: Clock, publisher: Publisher
    ) -> None:
        self.owner: str = owner
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
