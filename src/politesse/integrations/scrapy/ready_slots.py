"""Which slot of the scheduler's queue is next: the first that is ready, found without a look at all the others.

Theory of operation. Most slots of a large crawl wait: for the pace of their host, or for a request that is under way
there. To ask each of them whenever the engine looks for a request costs more than the request. So the slots stand in a
line, and only those at its front are asked. A slot that is not ready leaves the line, and is asleep until something
ends at its host, a request or a wait; then it goes to the end of the line, and is asked again there. So a slot
may be in the line and not be ready, but never be ready and not be in the line.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING

from politesse.errors import InvalidURL
from politesse.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Container


class ReadySlots:
    """The slots of a queue, in the order in which they are next.

    Args:
        is_ready: whether a request of a slot may be handed out now.
    """

    def __init__(self, is_ready: Callable[[str], bool]) -> None:
        self._is_ready = is_ready
        self._line: OrderedDict[str, None] = OrderedDict()
        self._asleep: dict[str, set[str]] = {}  # by host

    def add(self, slot: str) -> None:
        """Put a slot at the end of the line, unless it is there or asleep."""
        if slot not in self._asleep.get(host_of(slot), ()):
            self._line[slot] = None

    def wake(self, site: str) -> None:
        """Put the sleeping slots of the host of a site at the end of the line."""
        self._line.update(dict.fromkeys(sorted(self._asleep.pop(host_of(site), ()))))

    def first(self, existing: Container[str]) -> str | None:
        """Return the first slot that is ready, or None; forget those that no longer exist."""
        while self._line:
            slot = next(iter(self._line))
            if slot in existing:
                if self._is_ready(slot):
                    return slot
                self._asleep.setdefault(host_of(slot), set()).add(slot)
            del self._line[slot]
        return None


@lru_cache(maxsize=100_000)
def host_of(site: str) -> str:
    """Return the pacing host of an origin, or of a slot that stands for a host; any other slot as it is."""
    scheme, separator, authority = site.partition("://")
    if not separator or ":" in scheme:
        return site  # a download_slot may have any name
    try:
        return Origin.of(f"http://{authority}").pacing_host
    except InvalidURL:
        return site
