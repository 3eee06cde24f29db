"""The link of a process to the Redis of its fleet: connects, sends calls in order, and reports each loss.

Theory of operation. One task does all the work. While one batch of calls is under way, new calls are collected for the
next batch. So many hosts share a round trip. There are two kinds of calls:

    ask    a reservation: its caller waits for the answer. After a loss the call raises WireLost and is not sent again
    post   the end of a request, the closure of a host, the renewal of a lease: its caller does not wait. After a
           loss, ends and closures are sent again, in the same order, until Redis answers. Renewals are not sent
           again, because each session begins with new renewals

These events count as a loss: a connection error; no answer for ``timeout_s``; an error reply that refuses all calls for
now; a server clock that was set, or has the wrong speed (``server_clock.py``); and lost data (``roster.py``). After
each connection the link first joins the roster, then sends all posts, and then reports.

Every few seconds the link reports again. The report checks that the server is still the same, that it can write, that
it permits all commands of the scripts, and that its messages arrive. While requests wait or are under way, the link
also checks the epoch when it has made no call for ``timeout_s / 2``. So the link notices a silent server after at most
``1.5 * timeout_s``. Until then, requests with an earlier grant still start.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
from contextlib import suppress
from random import random
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from politesse._base.tasks import is_anything_left
from politesse._base.text import described
from politesse._pacing.fleet.messages import FleetAnswer, Reply, RoundOver, WireLost
from politesse._pacing.fleet.session import Session
from politesse.errors import ClosedError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from politesse._pacing.fleet.options import FleetOptions
    from politesse._pacing.fleet.reserver import Reserver
    from politesse._pacing.fleet.scripts import Script
    from politesse._pacing.fleet.wire import FleetWire
    from politesse.clock import Clock
    from politesse.events import Publisher

_NOT_OF_A_NAME: Final = re.compile(r"[^A-Za-z0-9]+")
_MOST_NODE: Final = 20  # the machine's name is cut to this many characters
_LONGEST_RETRY_S: Final = 0.5  # the pause must stay well below HOLD_S
_OPENING: Final = 5.0  # connecting may take this many timeouts, because it takes several round trips
_ALL: Final = "all"  # the channel of all processes
_CANCELLED: Final = "its task was cancelled"
_FLUSH_S: Final = 1.0  # the close waits this long for the last calls


class FleetLink(Session):
    """The link of a process; several pacers may share it, each for its own scope.

    Args:
        wire: the connections.
        options: see FleetOptions.
        clock: its monotonic time measures the time since a connection.
        publisher: see Session.

    Attributes:
        owner: the name of this process in Redis: its machine, its process id, and a random part, because process ids
            are reused.
    """

    def __init__(self, wire: FleetWire, options: FleetOptions, *, clock: Clock, publisher: Publisher) -> None:
        super().__init__(wire, options, _new_owner(), clock=clock, publisher=publisher)
        self._pid = os.getpid()
        self._task: asyncio.Task[None] | None = None
        self._tickets = 0

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

    def _check_process(self) -> None:
        """Get a new identity after a fork; raises ConfigurationError if the link was used before the fork."""
        if (pid := os.getpid()) == self._pid:
            return
        if self._task is not None:
            raise ConfigurationError(
                f"this link to the Redis of a fleet was used in process {self._pid}, before the fork: create the "
                "gatekeeper in the child process"
            )
        self.owner: str = _new_owner()
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


def _new_owner() -> str:
    return f"{_NOT_OF_A_NAME.sub('-', platform.node())[:_MOST_NODE]}-{os.getpid()}-{token_hex(4)}"
