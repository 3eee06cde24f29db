"""The table of the hosts, which many watchers read: filtered, sorted, and in full only where it is seen.

Theory of operation. Nothing is read while nobody asks. The first question makes an index, which has an entry for each
host. The index is made in slices of 2 ms, and the event loop serves others in between. All watchers share the index. A
later question makes it anew: after a second, or later if it took long, so that it takes at most 1 % of the time. (For
10,000 hosts it takes 0.1 s.) Each answer reads anew the hosts that are seen, 200 at most. It is read and encoded in
slices, too, because a host may have thousands of origins.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from heapq import merge
from math import inf
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from politesse._base.checks import check_choice, check_range
from politesse._base.text import shortened
from politesse._gate.hosts_known import KnownHosts
from politesse.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from politesse._cache.options import HostPolicy
    from politesse._gate.gatekeeper import Gatekeeper
    from politesse.queue import PoliteQueue
    from politesse.status import HostStatus

PHASES: Final = ("closed", "busy", "waiting", "spaced", "idle")
MAX_TEXT: Final = 500
_OF_HOST: Final = (
    *("host", "interval_s", "bound_by", "not_before", "closed_until", "closed_by"),
    *("waiting", "in_flight", "held_by", "held_s", "refusal"),
)
_OF_ROBOTS: Final = ("origin", "result", "status", "fault", "age_s", "fetching", "next_fetch", "size")
_PASSING: Final = frozenset({"time", "held_s", "age_s"})
_FIRST_WALL: Final = 1e9  # larger numbers are Unix times
_LAST_WALL: Final = 253_402_300_799.0  # the end of the year 9999, the last time that browsers show
_MOST: Final = {"first": 1_000_000_000, "count": 200}
_MAX_SEARCH: Final = 200
_MAX_VIEWS: Final = 20
_RUN: Final = 2_000  # as many entries are sorted in about a millisecond
_SLICE_S: Final = 0.002
_LEAST_S: Final = 1.0
_MOST_S: Final = 10.0  # further searches delay the next index to no later than this
_MAX_SHARE: Final = 0.01
encode: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class Entry(NamedTuple):
    """What a host is filtered and sorted by. ``closed`` is a Unix time, or 0 for an open host."""

    host: str
    phase: str
    queued: int
    waiting: int
    interval: float
    not_before: float
    closed: float
    held: float


class Message(NamedTuple):
    """A message to a watcher.

    Attributes:
        text: the message as JSON.
        facts: the same without all that changes by the passage of time alone, for a comparison.
    """

    text: str
    facts: str

    @classmethod
    def of(cls, value: object, now_wall: float) -> Message:
        """Return the message of a value, which takes one step."""
        return cls(encode(value), encode(_lasting(value, now_wall)))

    def joined(self, name: str, items: list[Message]) -> Message:
        """Return the message of an object with one more member, the list of ``items``."""
        pairs = zip(self, zip(*items, strict=True) if items else ((), ()), strict=True)
        return Message(*(f'{text[:-1]},"{name}":[{",".join(texts)}]}}' for text, texts in pairs))


@dataclass(frozen=True, slots=True)
class View:
    """The part of the table that is seen: the parameters of ``/hosts`` and ``/events``."""

    search: str
    phase: str
    sort: str
    first: int
    count: int

    @classmethod
    def of(cls, query: Mapping[str, str]) -> View:
        """Return the view of the parameters of a URL; raises ConfigurationError."""
        given = {"search": "", "phase": "", "sort": "host", "first": "0", "count": "100"}
        for name in query:
            check_choice("parameter", name, given, f"one of {', '.join(given)}")
        given |= query
        sorts = [name for name in Entry._fields if name != "phase"]
        check_choice("phase", given["phase"], ("", *PHASES), f"one of {', '.join(PHASES)}")
        check_choice("sort", given["sort"].removeprefix("-"), sorts, f"one of {', '.join(sorts)}, perhaps after a -")
        check_range("length of search", len(given["search"]), 0, _MAX_SEARCH)
        first, count = (_number(name, given[name], most) for name, most in _MOST.items())
        return cls(given["search"].lower(), given["phase"], given["sort"], first, count)


def _number(name: str, text: str, most: int) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(most))
    if not is_number or int(text) > most:
        raise ConfigurationError(f"{name}={text!r:.100}: give 0 to {most}")
    return int(text)


class HostTable:
    """The table of the hosts of a gate, with the URLs of ``queue`` that wait at each host; see the module."""

    def __init__(self, gate: Gatekeeper, queue: PoliteQueue[Any] | None) -> None:
        self._gate = gate
        self._queue = queue
        self._known = KnownHosts(gate.state, gate.name)
        self._entries: list[Entry] = []  # by name
        self._phases: Counter[str] = Counter()
        self._found: dict[tuple[str, str, str], list[Entry]] = {}
        self._recent: dict[View, tuple[float, Message]] = {}
        self._due_mono = -inf
        self._changes = 0
        self._reading = asyncio.Lock()

    def look_again(self) -> None:
        """Read all anew for the next answer, because of a change."""
        self._changes += 1
        self._due_mono = -inf
        self._recent.clear()

    async def recent(self, view: View) -> Message:
        """Return the same as ``page``; it may be a second old, so that the streams of one view share it."""
        now_mono = self._gate.clock.monotonic()
        self._recent = {one: page for one, page in self._recent.items() if now_mono - page[0] < _LEAST_S}
        if view in self._recent:
            return self._recent[view][1]
        page = await self.page(view)
        self._recent[view] = now_mono, page
        return page

    async def page(self, view: View) -> Message:
        """Return the hosts of a view, as ``/hosts`` answers."""
        slices, clock = Slices(), self._gate.clock
        async with self._reading:
            if clock.monotonic() >= self._due_mono:
                changes = self._changes
                await self._make_index(slices)
                if changes == self._changes:
                    self._due_mono = clock.monotonic() + max(_LEAST_S, slices.spent_s / _MAX_SHARE)
            spent_s = slices.spent_s
            found = await self._find((view.search, view.phase, view.sort), slices)
            later_mono = self._due_mono + (slices.spent_s - spent_s) / _MAX_SHARE
            self._due_mono = max(self._due_mono, min(later_mono, clock.monotonic() + _MOST_S))
        known, now_wall, hosts = self._known, clock.wall(), []
        for status in known.statuses([entry.host for entry in found[view.first : view.first + view.count]]):
            if status is not None:
                hosts.append(await self._row(status, slices))
            await slices.rest()
        phases = {phase: self._phases[phase] for phase in PHASES}
        counts = {"time": plain(clock.wall()), "total": len(self._entries), "matching": len(found), "phases": phases}
        return Message.of(counts | {"first": view.first}, now_wall).joined("hosts", hosts)

    async def _make_index(self, slices: Slices) -> None:
        known, entries, wall = KnownHosts(self._gate.state, self._gate.name), [], self._gate.clock.wall
        for _ in known.find():
            await slices.rest()
        queued = {} if self._queue is None else self._queue.sizes()
        for one in known.statuses(dict.fromkeys([*known.names(), *queued]), robots=False):
            if one is not None:
                urls = queued.get(one.host, 0)
                numbers = one.interval_s, one.not_before, one.closed_until or 0.0, one.held_s
                entries.append(Entry(one.host, _phase(one, urls, wall()), urls, one.waiting, *numbers))
            await slices.rest()
        self._known, self._entries = known, await _sorted(entries, "host", slices)
        self._phases = Counter(entry.phase for entry in entries)
        self._found.clear()

    async def _find(self, key: tuple[str, str, str], slices: Slices) -> list[Entry]:
        """Return the entries that match a search and a phase, in an order."""
        if key not in self._found:
            if len(self._found) >= _MAX_VIEWS:
                self._found.clear()
            (search, phase, sort), found = key, []
            for entry in self._entries:
                if search in entry.host and phase in {"", entry.phase}:
                    found.append(entry)
                await slices.rest()
            self._found[key] = await _sorted(found, sort, slices)
        return self._found[key]

    async def _row(self, status: HostStatus, slices: Slices) -> Message:
        queued, now_wall = 0 if self._queue is None else self._queue.qsize(status.host), self._gate.clock.wall()
        policy = self._gate.state.policies.get(status.host)
        row = {name: plain(getattr(status, name)) for name in _OF_HOST} | {
            "phase": _phase(status, queued, now_wall),
            "queued": queued,
            "fleet": plain(status.fleet_wait),
            "policy": None if policy is None else policy_text(policy),
        }
        files = []
        for one in status.robots:
            files.append(Message.of({name: plain(getattr(one, name)) for name in _OF_ROBOTS}, now_wall))
            await slices.rest()
        return Message.of(row, now_wall).joined("robots", files)


class Slices:
    """Cuts work into slices of 2 ms; ``spent_s`` is the time of all slices that have ended."""

    def __init__(self) -> None:
        self.spent_s: float = 0.0
        self._since_s = perf_counter()

    async def rest(self) -> None:
        """If the slice is over, let the event loop serve others, and begin the next slice."""
        passed_s = perf_counter() - self._since_s
        if passed_s >= _SLICE_S:
            self.spent_s += passed_s
            await asyncio.sleep(0)
            self._since_s = perf_counter()


async def _sorted(entries: list[Entry], sort: str, slices: Slices) -> list[Entry]:
    """Return the entries in the order of ``sort``; equal entries keep their order."""
    is_turned, name = sort.startswith("-"), sort.removeprefix("-")
    key: Callable[[Entry], Any] = attrgetter(name)
    if sort == "closed":
        key = _closed_first  # the open hosts come last in both directions
    runs, in_order = [], []
    for start in range(0, len(entries), _RUN):
        runs.append(sorted(entries[start : start + _RUN], key=key, reverse=is_turned))
        await slices.rest()
    merged: Iterable[Entry] = merge(*runs, key=key, reverse=is_turned)
    for entry in merged:
        in_order.append(entry)
        await slices.rest()
    return in_order


def _closed_first(entry: Entry) -> float:
    return entry.closed or inf


def _phase(status: HostStatus, queued: int, now_wall: float) -> str:
    if status.closed_until is not None:
        return "closed"
    waits = "waiting" if status.waiting or queued else "spaced" if status.not_before > now_wall else "idle"
    return "busy" if status.in_flight else waits


def plain(value: object) -> object:
    """Return a value for JSON: a number with three decimals, a text that is short and printable."""
    if isinstance(value, float):
        return round(min(value, _LAST_WALL), 3)
    return value if isinstance(value, int | None) else shortened(str(value), MAX_TEXT)


def _lasting(value: object, now_wall: float) -> object:
    if isinstance(value, dict):
        return {name: _lasting(one, now_wall) for name, one in value.items() if name not in _PASSING}
    if isinstance(value, list):
        return [_lasting(one, now_wall) for one in value]
    if isinstance(value, float) and value > _FIRST_WALL:
        return round(value) if value > now_wall else None
    return value


def policy_text(policy: HostPolicy, *, has_reason: bool = True) -> str:
    """Return a policy in words, as in ``denied (by request); at least 5 s between requests``."""
    word = "denied" if policy.deny else "exempt" if policy.exempt else ""
    words = [
        f"{word} ({policy.reason})" if word and policy.reason and has_reason else word,
        "" if policy.min_delay_s is None else f"at least {policy.min_delay_s:g} s between requests",
        "" if policy.max_concurrent is None else f"at most {policy.max_concurrent} at once",
    ]
    return shortened("; ".join(filter(None, words)) or "no limits", MAX_TEXT)
