"""What becomes of URLs that a queue refuses: counted, passed on, and each site that is given up is logged once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from cachetools import LRUCache

from politesse._reasons import WORDS
from politesse._text import shortened
from politesse.queue.patience import is_given_up
from politesse.verdict import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse._gate.agent import Agent
    from politesse.origin import Origin
    from politesse.queue.denied import DeniedUrls
    from politesse.queue.hosts import QueuedUrl
    from politesse.verdict import Verdict

Item = TypeVar("Item")

_LOGGER: Final = logging.getLogger("politesse.queue")

_MAX_SITES: Final = 10_000  # whose state is remembered
_MAX_SHOWN: Final = 200  # characters of remote text


class Refusals(Generic[Item]):
    """Counts the URLs that are refused.

    Args:
        agent: counts the decisions.
        on_disallowed: see PoliteQueue.
        denied: the URLs that are going to be refused.

    Attributes:
        count: how many URLs were refused.
        given_up: how many of those because of a wait.
    """

    def __init__(
        self, agent: Agent, on_disallowed: Callable[[Item | str, Verdict], object] | None, denied: DeniedUrls[Item]
    ) -> None:
        self._agent = agent
        self._on_disallowed = on_disallowed
        self._denied = denied
        self._logged: LRUCache[Origin, None] = LRUCache(_MAX_SITES)  # those that have not answered since
        self.count = 0
        self.given_up = 0

    def note(self, queued: QueuedUrl[Item], verdict: Verdict) -> None:
        """Count a URL that is refused, and is not removed yet."""
        if verdict.reason is not Reason.TOO_SLOW:  # the agent has counted that, for the origin
            self._agent.counted(verdict)
        self.count += 1
        if not is_given_up(verdict):
            self.note_answer(queued)
            return
        self.given_up += 1
        origin = queued.origin_queue.origin
        if origin not in self._logged:
            self._logged[origin] = None
            _log_site(origin, verdict, self._denied.of_origin(queued))

    def note_answer(self, queued: QueuedUrl[Item]) -> None:
        """End the deferrals of an origin: its robots.txt was answered."""
        queued.origin_queue.end_deferrals()
        if self._logged:
            self._logged.pop(queued.origin_queue.origin, None)

    def pass_on(self, queued: QueuedUrl[Item], verdict: Verdict) -> None:
        """Call ``on_disallowed``; raises what it raises."""
        if self._on_disallowed is not None:
            self._on_disallowed(queued.url if queued.item is None else queued.item, verdict)


def _log_site(origin: Origin, verdict: Verdict, urls: int) -> None:
    fault = "" if verdict.source is None or verdict.reason is not Reason.UNREACHABLE else verdict.source.fault
    detail = fault or verdict.note
    why = f"{WORDS[verdict.reason]}: {detail}" if detail else WORDS[verdict.reason]
    many = "1 URL is" if urls == 1 else f"{urls} URLs are"
    _LOGGER.warning("gave up %s: %s; %s not requested", origin, shortened(why, _MAX_SHOWN), many)
