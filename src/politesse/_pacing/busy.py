"""The busy hosts of a LocalPacer; when the idle ones were last asked is kept for longer, in a compact form."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from politesse._constants import DAY_S
from politesse._pacing.pace import limited, strictest
from politesse._pacing.slot import NEVER, Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from politesse._pacing.pace import PacingOptions
    from politesse._pacing.slot import Started

_REMEMBERED_S: Final = 600.0
_MAX_HOSTS: Final = 125_000


class BusyHosts:
    """A slot for each busy host, and the limits that were set for single hosts.

    Args:
        options: of all hosts without limits of their own.
        recall: called with the new slot of a host of which nothing is known; None for nothing.

    Attributes:
        slots: by host.
        kept_s: for how many seconds it is remembered when an idle host was last asked.
    """

    def __init__(self, options: PacingOptions, recall: Callable[[Slot], None] | None = None) -> None:
        self._options = options
        self._recall = recall
        self._options_of: dict[str, PacingOptions] = {}
        self.slots: dict[str, Slot] = {}
        self.kept_s = max(_REMEMBERED_S, min(options.max_crawl_delay_s, DAY_S))
        self._beside: dict[Slot, list[Started]] = {}  # those that started after the holder of a slot
        self._last_asked = LastAsked(self.kept_s)  # by host; a FetchedMono where no page was requested since
        self._last_fetched = LastAsked(self.kept_s)  # by origin, up to a second early
        self._fetched_mono = NEVER

    def slot(self, host: str, now_mono: float) -> Slot:
        """Return the slot of a host, which is busy from now on."""
        slot = self.slots.get(host)
        if slot is None:
            last_mono = self._last_asked.take(host, now_mono)
            slot = Slot(host, self.options(host), float(last_mono))
            slot.only_fetched = isinstance(last_mono, FetchedMono)
            if self._recall is not None and last_mono == NEVER:
                self._recall(slot)
            self.slots[host] = slot
        return slot

    def options(self, host: str) -> PacingOptions:
        """Return the options of a host, with the limits that were set for it."""
        return self._options_of.get(host, self._options) if self._options_of else self._options

    def bind(self, slot: Slot, gate: object, options: PacingOptions | None) -> bool:
        """Have a busy host bound by the options of one gate beside those of others; None when the gate is closed.

        Returns whether that changes anything.
        """
        limits = slot.limits or {}
        if limits.get(gate) is options:
            return False
        if options is None:
            del limits[gate]
        else:
            limits[gate] = options
        slot.limits = limits or None
        slot.limit(strictest(limits.values()) if limits else self.options(slot.host))
        return True

    def forget(self, slot: Slot, now_mono: float) -> None:
        """Let a host be idle."""
        del self.slots[slot.host]
        last_mono = FetchedMono(slot.last_mono) if slot.only_fetched else slot.last_mono
        self._last_asked.keep(slot.host, last_mono, now_mono)

    def start_beside(self, slot: Slot, permit: Started) -> None:
        """Keep a permit that starts while another one holds its slot."""
        self._beside.setdefault(slot, []).append(permit)

    def end(self, slot: Slot, permit: Started) -> None:
        """Let go of a permit of a slot."""
        if slot.in_flight == 1:
            slot.holder = None
        else:
            self._end_beside(slot, permit)
        slot.in_flight -= 1
        slot.ready_for = None

    def _end_beside(self, slot: Slot, permit: Started) -> None:
        """Let go of one of several permits of a slot."""
        beside = self._beside[slot]
        if slot.holder is permit:
            slot.holder = beside.pop(0)
        else:
            beside.remove(permit)
        if not beside:
            del self._beside[slot]

    def under_way(self) -> Iterator[Started]:
        """Return all permits that have not ended."""
        for slot in self.slots.values():
            if slot.holder is not None:
                yield slot.holder
        yield from chain.from_iterable(self._beside.values())

    def count_fetch(self, slot: Slot, origin: str, now_mono: float) -> None:
        """Count a fetch of the robots.txt of an origin at a host."""
        is_first = self._last_fetched.take(origin, now_mono) == NEVER
        if now_mono - self._fetched_mono >= 1.0:
            self._fetched_mono = now_mono  # one object for all fetches of a second: an idle host takes 24 octets less
        self._last_fetched.keep(origin, self._fetched_mono, now_mono)
        slot.count_fetch(origin, self.kept_s, now_mono, is_first=is_first)

    def limit(self, host: str, min_delay_s: float | None, max_concurrent: int | None) -> Slot | None:
        """Set the limits of a host, None for those of the options; return its slot if it is busy."""
        options = self._options
        self._options_of.pop(host, None)
        if min_delay_s is not None or max_concurrent is not None:
            options = self._options_of[host] = limited(options, min_delay_s, max_concurrent)
        slot = self.slots.get(host)
        if slot is not None:
            slot.limit(options)
        return slot


class FetchedMono(float):
    """The time at which a host was last asked, by a fetch of robots.txt: no page has requested a turn since."""

    __slots__ = ()


class LastAsked:
    """When idle hosts, or origins, were last asked: 55 to 85 octets for each beside its name, and no timer.

    Two generations: the younger one becomes the older one after ``kept_s``, or when it is full, and replaces it. So a
    time is kept for ``kept_s`` at least and twice that at most, of up to 250,000 hosts.

    Args:
        kept_s: for how many seconds a time counts.
    """

    __slots__ = ("_older", "_since_mono", "_younger", "kept_s")

    def __init__(self, kept_s: float) -> None:
        self.kept_s = kept_s
        self._younger: dict[str, float] = {}
        self._older: dict[str, float] = {}
        self._since_mono = NEVER

    def keep(self, host: str, last_mono: float, now_mono: float) -> None:
        """Remember when a host was last asked."""
        if now_mono - self._since_mono >= self.kept_s or len(self._younger) >= _MAX_HOSTS:
            self._older = self._younger if now_mono - self._since_mono < 2.0 * self.kept_s else {}
            self._younger, self._since_mono = {}, now_mono
        self._younger[host] = last_mono

    def take(self, host: str, now_mono: float) -> float:
        """Return when a host was last asked, and forget it; minus infinity if that is unknown."""
        last_mono = self._younger.pop(host, None)
        if last_mono is None:
            last_mono = self._older.pop(host, NEVER)
        return last_mono if now_mono - last_mono <= self.kept_s else NEVER
