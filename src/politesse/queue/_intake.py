"""Lets URLs into a queue: checks the arguments, waits for room, and asks the journal and the running crawl."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from politesse._base.checks import check_priority
from politesse._base.tasks import current_task
from politesse._gate.turn import entered_turns
from politesse.errors import InvalidURL
from politesse.origin import Origin, StrOrURL, url_text
from politesse.queue._hosts import NO_TRAIL, Trail
from politesse.queue._results import QueueClosed, check_in_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse._gate.view import AgentView
    from politesse.queue._dispatch import Dispatcher
    from politesse.queue._hosts import HostQueue

Item = TypeVar("Item")


class Intake(Generic[Item]):
    """Lets URLs into one queue.

    Args:
        gate: the gate of the queue.
        dispatcher: the dispatcher of the queue.
        maxsize: see PoliteQueue.

    Attributes:
        gate: the gate of the queue.
        admit: the ``admit`` of the running crawl; None without a crawl.
    """

    def __init__(self, gate: AgentView, dispatcher: Dispatcher[Item], maxsize: int) -> None:
        self.gate = gate
        self._dispatcher = dispatcher
        self._maxsize = maxsize
        self.admit: Callable[[str], bool] | None = None

    async def put(self, url: StrOrURL, item: Item | None, priority: float, trail: Trail = NO_TRAIL) -> bool:
        """Queue a URL, and return whether it is new; see ``PoliteQueue.put``."""
        text, origin = self._checked(url, item, priority)
        if self._dispatcher.journal is not None:
            self._check_open(origin)
            await self._dispatcher.journal.ready()
            if self._dispatcher.journal.ignores(text, by_worker=self._is_consumer()):
                return False
        while (host := self._full_host(origin)) is not None:
            try:
                with self._dispatcher.stalls:
                    await host.putters.wait()
            finally:
                self._dispatcher.forget_if_idle(host)
        if is_new := not self._is_seen(text):
            self._dispatcher.add(origin, text, item, priority, trail)
        await self._dispatcher.flush()
        return is_new

    def put_nowait(self, url: StrOrURL, item: Item | None, priority: float) -> None:
        """Queue a URL without waiting; see ``PoliteQueue.put_nowait``."""
        text, origin = self._checked(url, item, priority)
        if self._dispatcher.journal is not None:
            self._check_open(origin)
            self._dispatcher.journal.check_open()
            if self._dispatcher.journal.ignores(text, by_worker=self._is_consumer()):
                return
        if self._full_host(origin) is not None:
            raise asyncio.QueueFull(f"{self._maxsize} URLs wait at {origin.pacing_host} already")
        if not self._is_seen(text):
            self._dispatcher.add(origin, text, item, priority)

    def _checked(self, url: StrOrURL, item: Item | None, priority: float) -> tuple[str, Origin]:
        """Return a URL as text, and its origin; raise an error for an invalid argument."""
        text = url_text(url)
        check_priority(priority)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidURL(text, "holds a lone surrogate, which has no UTF-8 form") from None
        origin = self.gate.checked_origin(text)
        if self._dispatcher.journal is not None:
            self._dispatcher.journal.check(item, priority)
        return text, origin

    def _full_host(self, origin: Origin) -> HostQueue[Item] | None:
        """Return the host of ``origin`` if it has no room, else None; raise if the queue accepts no URLs."""
        self._check_open(origin)
        host = self._dispatcher.hosts.get(origin.pacing_host)
        if host is None or not 0 < self._maxsize <= host.size or self._is_consumer():
            return None
        return host

    def _check_open(self, origin: Origin) -> None:
        """Raise if the queue accepts no URLs."""
        check_in_loop()
        self._dispatcher.raise_failure()
        if self._dispatcher.closed:
            raise QueueClosed(f"a URL of {origin} was put after the queue was closed")

    def _is_consumer(self) -> bool:
        """Return whether this task has taken a turn of this queue, or the code runs within a turn."""
        return bool(entered_turns()) or current_task() in self._dispatcher.consumers

    def _is_seen(self, url: str) -> bool:
        """Return whether the running crawl has seen ``url``; if not, mark it as seen. False without a crawl."""
        return self.admit is not None and not self.admit(url)
