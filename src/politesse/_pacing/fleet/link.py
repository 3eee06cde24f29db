"""The link of a process to the Redis of its fleet: connects, sends what its tickets want, and reports each loss.

Theory of operation. One task does all the work. While one batch of calls is under way, the claims with news are
collected for the next batch. So many hosts share a round trip. Each batch reads the epoch of the roster last: an
unchanged epoch proves that the server had lost nothing. What a batch carries is kept by the claims until Redis has
answered, and is sent again after a loss.

These events count as a loss: a connection error; no answer for ``timeout_s``; an error reply that refuses all calls for
now; a server clock that was set, or has the wrong speed (``server_clock.py``); and the end of a round (``Roster``).

Each connection, and each round, begins a new session. In each session the process first renews the leases of its
requests under way, and tells Redis again what has ended, and which hosts are closed or slow. Then it reports to the
rosters. No request starts before the rosters say so.

Every few seconds the link renews leases, and reports again. The report checks that the server is still the same, and
that it can write. While requests wait or are under way, the link also checks the epoch when it has made no call for
``timeout_s / 2``. So the link notices a silent server after at most ``1.5 * timeout_s``. Until then, requests with an
earlier grant still start.

Rounds. The server keeps a roster of the processes (``member.lua``). A round is a time in which the server
loses no data and its clock is not set. Each round has a name, the epoch. A round ends when the roster is gone
(FLUSHALL), or when another run of the server has taken over (a restart, a failover). A round also ends when a process
finds that the clock of the server was set. Each batch of scripts reads the epoch last, in the same round trip. So an
unchanged epoch proves that the server had lost nothing when it ran the scripts.

In a new round each process renews its leases, tells the server again which hosts are closed or slow, and then reports.
Nobody knows the names of the others. Each process remembers the version, the count and the sum of the roster, as it
read them in its last batch. The highest version tells how many processes have to report, and which. Until all of them
have reported, or ``lease_s`` seconds have passed since the round began, no process starts a request. A process that has
joined since the last batch of any other process is not expected. So a new round waits for a second at least.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter
from random import random
from secrets import randbits
from typing import TYPE_CHECKING, Final

from politesse._base.tasks import is_anything_left
from politesse._base.text import counted, described
from politesse._pacing.fleet.messages import VERSION, Script, ScriptCall, WireLost, bounded
from politesse._pacing.fleet.server_clock import ServerClock
from politesse.errors import ConfigurationError
from politesse.events import FleetAway, FleetBack, Publisher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse._pacing.fleet.messages import Reply
    from politesse._pacing.fleet.options import FleetOptions
    from politesse._pacing.fleet.tickets import Claim, Tickets
    from politesse._pacing.fleet.wire import FleetWire
    from politesse.clock import Clock

HOLD_S: Final = 1.0
"""The least time from the begin of a round to its first request, in seconds: all processes need time to report."""

_RETRY_S: Final = 0.05
_LONGEST_RETRY_S: Final = 0.5  # the pause must stay well below HOLD_S
_LOOK_S: Final = 5.0  # the time between two reports; a third of lease_s if that is shorter
_IDLE_LOOK_S: Final = 10.0  # the same while no request waits for Redis or is under way
_OTHERS_S: Final = 0.5  # replaces _LOOK_S while other processes have to report
_REPORTS_A_S: Final = 200  # but so many processes of a fleet report a second at most
_LONG_S: Final = 1.0  # a longer wait for other processes is published
_RENEW_S: Final = 1.0  # how often the link looks for leases that have to be renewed
_MOST_CALLS: Final = 500  # a batch has at most this many calls
_OPENING: Final = 5.0  # connecting may take this many timeouts, because it takes several round trips
_LATE_S: Final = 0.5  # a call that takes longer than this beyond the timeout was given up by this process
_CALL_OF: Final = attrgetter("call")
_CANCELLED: Final = "its task was cancelled"
_FLUSH_S: Final = 1.0  # the close waits this long for the last calls
_NOT_OF_A_NAME: Final = re.compile(r"[^A-Za-z0-9]+")
_MOST_NODE: Final = 20  # the machine's name is cut to this many characters


class RoundOver(WireLost):
    """The round is over: the server has lost data, or its clock was set; see ``Roster``."""

    def __init__(self) -> None:
        super().__init__("it has lost data, or another process says so")


@dataclass(slots=True, eq=False)
class Roster:
    """The roster of one server, or of one node of a cluster, as this process knows it.

    Attributes:
        epoch: the name of the round; empty before the first report.
        counts: the version, the count and the sum.
        has_reported: whether this process has reported in its present session.
        wait_until_mono: until when other processes may still report.
        since_mono: since when the server knows each request: when the round began, or when this process came to it
            from another round.
        missing: how many processes had not reported at that time.
    """

    epoch: str = ""
    counts: tuple[str, str, str] = ("0", "0", "0")
    has_reported: bool = False
    wait_until_mono: float = inf
    since_mono: float = -inf
    missing: int = 0
    _former: str = field(default="", init=False)  # the round in which requests could start last

    def words(self, *, is_suspect: bool) -> tuple[str | int, ...]:
        """Return the arguments of ``member.lua`` about what this process knows."""
        return self._former, int(is_suspect), *self.counts

    def take(self, reply: Reply, now_mono: float) -> None:
        """Accept the reply to a report; raises RoundOver if another round has begun since the last report."""
        _, _, wait_us, epoch, version, count, total, age_us, missing = reply
        if self.has_reported and epoch != self.epoch:
            raise RoundOver
        wait_s = int(wait_us) / 1e6
        if epoch not in {self._former, self.epoch}:  # otherwise the server knows the last request of each host
            # The round may be older than the last request by another server, to which a proxy has led until now.
            self.since_mono = now_mono if self._former else now_mono - int(age_us) / 1e6
        self.epoch, self.has_reported, self.missing = epoch, True, int(missing)
        self.wait_until_mono = now_mono + wait_s if wait_s else -inf
        if not wait_s:
            self._former, self.counts = epoch, (version, count, total)

    def check(self, words: Sequence[str]) -> None:
        """Compare what the last batch has read from the roster; raises RoundOver if another round has begun."""
        epoch, *counts = words
        if not self.has_reported:
            return
        if epoch != self.epoch:
            raise RoundOver
        if self._former == epoch:
            version, count, total = counts
            self.counts = version, count, total


class FleetLink:
    """The link of a process.

    Args:
        wire: the connections.
        options: see FleetOptions.
        tickets: what the process wants and has at Redis.
        clock: its monotonic time measures the time since the begin of a round.
        publisher: receives FleetAway and FleetBack.

    Attributes:
        owner: the name of this process in Redis: its machine, its process id, and a random part, because process ids
            are reused.
        options: see FleetOptions.
        prefix: all keys begin with it.
        stretch: the highest rate of a server's clock; see ``ServerClock``.
        due: the claims that Redis has to be told of.
        is_up: whether the connection is open.
        work: set when a claim has news.
    """

    def __init__(
        self, wire: FleetWire, options: FleetOptions, tickets: Tickets, *, clock: Clock, publisher: Publisher
    ) -> None:
        self.options: FleetOptions = options
        self.prefix: str = options.prefix + VERSION
        self.stretch: float = 1.0
        self.due: dict[Claim, None] = {}
        self._clocks: defaultdict[int, ServerClock] = defaultdict(ServerClock)  # by the numbers of ``clock_of``
        self.is_up: bool = False
        self.work: asyncio.Event = asyncio.Event()
        self._name_process()
        self._wire = wire
        self._tickets = tickets
        self._clock = clock
        self._publish = publisher.publish
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._tried = asyncio.Event()
        self._fault: ConfigurationError | None = None
        self._retry_s = _RETRY_S
        self._away_since_mono: float | None = None
        self._run_id = ""
        self._is_suspect = False  # the clock of the server was set, so leases may have ended early
        self._rosters: dict[str, Roster] = {}  # by key: one for each node
        self._offset_s: float | None = None  # the time of the fastest server clock less that of ours, or more
        self._open_mono = inf  # from this time on, requests may start, as far as the rosters say
        self._since_mono = -inf  # since this time, the server knows the last requests
        self._look_at = self._renew_at = self._answered_at = 0.0  # times of the event loop
        self._waiting_since = inf  # when this process began to wait for the reports of other processes

    @property
    def name(self) -> str:
        """The address of the server, without a password."""
        return self._wire.name

    def check(self) -> None:
        """Connect at the first use; raises ConfigurationError if Redis refuses this client."""
        if self._fault is not None:
            raise self._fault
        if self._task is None or os.getpid() != self._pid:
            self._check_process()
            self._start()

    @property
    def is_tried(self) -> bool:
        """Whether the first attempt to connect has ended."""
        return self._tried.is_set()

    async def tried(self) -> None:
        """Wait for the end of the first attempt to connect, for ``timeout_s`` at most. For errors see ``check``."""
        self.check()
        if not self._tried.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self.options.timeout_s):
                    await self._tried.wait()
            self.check()

    def post(self, claim: Claim) -> None:
        """Send the news of a claim, now or when Redis is back."""
        self.due[claim] = None
        if self._task is None and not self._is_closed:
            self._check_process()
            if asyncio.current_task() is None or is_anything_left():  # else the loop ends, and runs no new task
                self._start()
        self.work.set()

    def hold_s(self, interval_s: float) -> float | None:
        """Return for how many seconds no request to a host may start; None if the time is unknown.

        The time is unknown while Redis is away, and until other processes have reported to a server that has lost data.
        A server that has lost data may not know the last interval.
        """
        now_mono = self._clock.monotonic()
        if now_mono < self._open_mono:
            return None
        return max(0.0, max(interval_s, HOLD_S) - (now_mono - self._since_mono))

    async def aclose(self) -> None:
        """Send the remaining calls for at most a second, and disconnect."""
        if self._is_closed:
            return
        self._is_closed = True
        if os.getpid() != self._pid:
            return  # after a fork, the connections belong to the parent process
        self.work.set()
        if (task := self._task) is not None:
            await asyncio.wait({task}, timeout=_FLUSH_S)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self._disconnect()
        await asyncio.sleep(0)  # a closed transport ends in the next step of the loop

    # Connect

    def _name_process(self) -> None:
        self._pid, self._id = os.getpid(), randbits(48)
        node = _NOT_OF_A_NAME.sub("-", platform.node())[:_MOST_NODE]
        self.owner: str = f"{node}-{self._pid}-{self._id:012x}"

    def _check_process(self) -> None:
        """Get a new identity after a fork; raises ConfigurationError if the link was used before the fork."""
        if os.getpid() == self._pid:
            return
        if self._task is not None:
            raise ConfigurationError(
                f"this link to the Redis of a fleet was used in process {self._pid}, before the fork: create the "
                "gatekeeper in the child process"
            )
        self._name_process()

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
                run_id = await bounded(self._wire.open(), _OPENING * self.options.timeout_s)
                while not self._is_closed:
                    run_id = await self._session(run_id)
            except ConfigurationError as error:
                self._fault = error
                self._away(described(error))
                self._tickets.refused(error)
            except WireLost as error:
                self._away(str(error))
            except asyncio.CancelledError:
                if not self._is_closed:
                    self._away(_CANCELLED)
                raise
            except BaseException as error:
                self._fault = ConfigurationError(f"the link to the Redis of the fleet failed: {described(error)}")
                self._away(described(error))
                self._tickets.refused(self._fault)
                raise
            finally:
                self._tried.set()
                await self._disconnect()
            if not self._is_closed:
                await asyncio.sleep(self._retry_s * (1.0 + random()))  # noqa: S311 - it spreads retries
                self._retry_s = min(2.0 * self._retry_s, _LONGEST_RETRY_S)
            if self._is_closed:
                return

    async def _disconnect(self) -> None:
        """Close the connections; closing may hang if the other end does not respond."""
        with suppress(WireLost, OSError):
            await bounded(self._wire.aclose(), self.options.timeout_s)

    # Sessions

    async def _session(self, run_id: str) -> str:
        """Run one session. Return the run if only its round has ended: the next session needs no new connection."""
        if run_id != self._run_id:
            self._clocks.clear()
            self.stretch, self._offset_s = 1.0, None
        self._run_id, self.is_up = run_id, True
        keys = self._wire.roster_keys(self.prefix)
        self._rosters = {key: self._rosters.get(key) or Roster() for key in keys}
        for roster in self._rosters.values():
            roster.has_reported = False
        self._tickets.found()
        try:
            await self._serve()
        except RoundOver as error:
            self._forget_readings()  # those from before the round say nothing about the clock now
            self._away(str(error))
            return await bounded(self._wire.run_id(), self.options.timeout_s)
        return run_id

    async def _serve(self) -> None:
        """Send calls and read replies until the connection is lost. After the close, return once all calls are sent."""
        loop, tickets = asyncio.get_running_loop(), self._tickets
        while self.due:
            await self._exchange()
        await self._report()
        while True:
            now = loop.time()
            if self._is_closed and not self.due:
                await self._report("leave")
                return
            if now >= self._look_at:
                await self._look()
            elif now >= self._renew_at:
                self._renew_at = now + min(_RENEW_S, 0.1 * self.options.lease_s)
                tickets.renew()
            silent_at = self._answered_at + 0.5 * self.options.timeout_s if tickets.active else inf
            if self.due or now >= silent_at:
                await self._exchange()
            else:
                await self._pause(min(self._look_at, silent_at, self._renew_at if tickets.active else inf))

    async def _pause(self, until: float) -> None:
        """Wait for news of claims, until the time ``until`` of the event loop at the latest."""
        self.work.clear()
        timer = asyncio.get_running_loop().call_at(until, self.work.set)
        try:
            await self.work.wait()
        finally:
            timer.cancel()

    def _away(self, why: str) -> None:
        """Void all grants that are not used."""
        self.is_up, self._open_mono = False, inf
        if self._away_since_mono is None and is_anything_left():  # not at the end of the event loop
            self._publish_away(why)
        self._tickets.lost()

    def _publish_away(self, why: str) -> None:
        self._away_since_mono = self._away_since_mono or self._clock.monotonic()
        self._publish(FleetAway(self._wire.name, why))

    # Reports

    async def _look(self) -> None:
        """Check that the server is the same, then report."""
        if await bounded(self._wire.run_id(), self.options.timeout_s) != self._run_id:
            raise WireLost("another server has taken its place")
        await self._report()

    async def _report(self, act: str = "report") -> None:
        """Report to the rosters of all nodes; the replies may let requests start."""
        calls = []
        lease_us, hold_us = round(self.options.lease_s * 1e6), round(HOLD_S * 1e6)
        for key, roster in self._rosters.items():
            known = roster.words(is_suspect=self._is_suspect)
            words = (self._id, act, self._run_id, *known, lease_us, hold_us)
            calls.append(ScriptCall(Script.MEMBER, (key, f"{key}:all"), words))
        sent_mono = self._clock.monotonic()
        replies = await bounded(self._wire.exchange(calls, ()), self.options.timeout_s)
        loop_time, now_mono = asyncio.get_running_loop().time(), self._clock.monotonic()
        for call, reply in zip(calls, replies, strict=True):
            if isinstance(reply, Exception):
                raise unusable(call.keys[0], self._wire.name, reply)
            self._check_clock(call.keys[0], int(reply[1]), sent_mono, now_mono)
            self._rosters[call.keys[0]].take(reply, now_mono)
        if act == "leave":
            return
        self._is_suspect, self._fault = False, None
        self._tried.set()
        rosters = self._rosters.values()
        self._since_mono = max(roster.since_mono for roster in rosters)
        wait_until_mono = max(roster.wait_until_mono for roster in rosters)
        if wait_until_mono <= now_mono:
            self._begin()
            pause_s = min(_LOOK_S if self._tickets.active else _IDLE_LOOK_S, self.options.lease_s / 3.0)
        else:
            self._await_others(wait_until_mono - now_mono, loop_time)
            count = max(int(roster.counts[1]) for roster in rosters)
            pause_s = min(max(_OTHERS_S, count / _REPORTS_A_S), max(0.01, wait_until_mono - now_mono))
        self._look_at = loop_time + pause_s * (0.75 + 0.25 * random())  # noqa: S311 - it spreads reports

    def _begin(self) -> None:
        """Let requests start: all processes have reported."""
        self._retry_s, self._waiting_since = _RETRY_S, inf
        if self._away_since_mono is not None:
            away_s = self._clock.monotonic() - self._away_since_mono
            self._away_since_mono = None
            self._publish(FleetBack(self._wire.name, away_s))
        if self._open_mono == inf:
            self._open_mono = -inf
            self._tickets.look()

    def _await_others(self, left_s: float, loop_time: float) -> None:
        """Publish a long wait for other processes."""
        self._open_mono = inf
        self._waiting_since = min(self._waiting_since, loop_time)
        missing = sum(roster.missing for roster in self._rosters.values())
        if missing and loop_time - self._waiting_since >= _LONG_S:
            self._waiting_since = inf
            wait = f"waiting {left_s:.0f} s at most for {counted(missing, 'report')} of other processes"
            self._publish_away(f"it has lost data; {wait}")

    # Calls

    async def _exchange(self) -> None:
        """Send the news of claims, and read the epochs."""
        sent_mono, keys = self._clock.monotonic(), [*self._rosters]
        late_us = 0  # the time of Redis after which a call that is sent now is surely lost
        if self._offset_s is not None:
            late_us = round((sent_mono + self._offset_s + self.options.timeout_s + _LATE_S) * 1e6)
        batch = self._tickets.batch(_MOST_CALLS, late_us)
        calls = list(map(_CALL_OF, batch))
        replies = await bounded(self._wire.exchange(calls, keys), self.options.timeout_s)
        now_mono = self._clock.monotonic()
        self._answered_at = asyncio.get_running_loop().time()
        for key, row in zip(keys, replies[len(batch) :], strict=True):
            if isinstance(row, Exception):
                raise RoundOver from row  # another program has written the key; the next report replaces it
            self._rosters[key].check(row)
        for step, reply in zip(batch, replies, strict=False):
            if not isinstance(reply, Exception):
                self._check_clock(step.call.keys[0], int(reply[1]), sent_mono, now_mono)
        for step, reply in zip(batch, replies, strict=False):
            self._tickets.take(step, reply, sent_mono, now_mono)

    def _check_clock(self, key: str, at_us: int, sent_mono: float, now_mono: float) -> None:
        """Raise RoundOver if the clock of the server with ``key`` was set, or runs too fast or too slowly."""
        clock = self._clocks[self._wire.clock_of(key)]
        fault = clock.fault(at_us, sent_mono, now_mono)
        self.stretch = max(self.stretch, clock.stretch)
        if fault:
            self._is_suspect = True  # leases may have ended early, so all processes renew their leases
            self._forget_readings()
            self._offset_s = None
            raise WireLost(fault)
        offset_s = at_us / 1e6 - sent_mono
        if not self._wire.is_cluster or self._offset_s is None or offset_s > self._offset_s:
            self._offset_s = offset_s

    def _forget_readings(self) -> None:
        for clock in self._clocks.values():
            clock.forget()


def unusable(key: str, name: str, error: Exception) -> ConfigurationError:
    """Return the error of a key that holds something else than politesse has written."""
    fault = ConfigurationError(
        f"the key {key!r:.200} at {name} cannot be used: {error}. Remove it, or give the fleet another prefix"
    )
    fault.__cause__ = error
    return fault
