"""What a process remembers of the hosts to which no request is under way."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from politesse._pacing.demand import Demand

NEVER: Final = float("-inf")

FRESH_S: Final = 60.0
"""How long a request for robots.txt counts; see ``FetchLines``."""

_REMEMBERED_S: Final = 600.0
_MAX_HOSTS: Final = 125_000
_SWEPT_FROM: Final = 500


class Marks:
    """What a process remembers of the hosts of a scope. The next pacer goes on with it.

    The Demand of an active host is here from the start, and has the time of its last request. So the close of a pacer
    needs no step, and a pacer that was never closed leaves its marks as well.

    Attributes:
        requested: the last requests to idle hosts; ``kept_s`` grows with the longest Crawl-delay of the options.
        fetches: the second-to-last and the last requests for robots.txt.
        demands: the Demand of each host that is active, or was active when its pacer closed.
    """

    def __init__(self) -> None:
        self.requested: LastRequestTimes = LastRequestTimes(_REMEMBERED_S)
        self.fetches: tuple[LastRequestTimes, LastRequestTimes] = LastRequestTimes(FRESH_S), LastRequestTimes(FRESH_S)
        self.demands: dict[str, Demand] = {}
        self._swept_from = _SWEPT_FROM

    def sweep(self, now_mono: float) -> None:
        """Forget the demands that are too old; an active host may lose its mark, but not its Demand."""
        if len(self.demands) < self._swept_from:
            return  # otherwise each of many pacers, one after the other, would look at the hosts of all others
        for name, demand in list(self.demands.items()):
            if max(demand.last_mono + self.requested.kept_s, demand.remembered_until_mono) <= now_mono:
                self.demands.pop(name, None)
        self._swept_from = max(_SWEPT_FROM, 2 * len(self.demands))


class LastRequestTimes:
    """The times of the last requests to idle hosts. Each takes 55 to 85 octets besides the host name, and no timer.

    The times are in two dicts. After ``kept_s``, or when the younger dict is full, the younger dict replaces the older
    dict. So a time is kept for ``kept_s`` to twice ``kept_s``, for up to 250,000 hosts.

    Args:
        kept_s: how long a time counts, in seconds.
    """

    __slots__ = ("_older", "_since_mono", "_younger", "kept_s")

    def __init__(self, kept_s: float) -> None:
        self.kept_s: float = kept_s
        self._younger: dict[str, float] = {}
        self._older: dict[str, float] = {}
        self._since_mono = NEVER

    def keep(self, host: str, last_mono: float, now_mono: float) -> None:
        """Remember when a host was last requested."""
        if now_mono - self._since_mono >= self.kept_s or len(self._younger) >= _MAX_HOSTS:
            self._older = self._younger if now_mono - self._since_mono < 2.0 * self.kept_s else {}
            self._younger, self._since_mono = {}, now_mono
        self._younger[host] = last_mono

    def since(self, from_mono: float) -> list[tuple[str, float]]:
        """Return the hosts that were requested after a moment, and when each was last requested."""
        times = chain(self._older.copy().items(), self._younger.copy().items())  # another thread may share them
        return [(host, last_mono) for host, last_mono in times if last_mono > from_mono]

    def look_up(self, host: str) -> float:
        """Return when a host was last requested; minus infinity if that is unknown."""
        return self._younger.get(host, self._older.get(host, NEVER))

    def take(self, host: str, now_mono: float) -> float:
        """Return when a host was last requested, and forget it; minus infinity if that is unknown."""
        last_mono = self._younger.pop(host, None)
        if last_mono is None:
            last_mono = self._older.pop(host, NEVER)
        return last_mono if now_mono - last_mono <= self.kept_s else NEVER
