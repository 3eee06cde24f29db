"""The robots.txt of every origin: rules compiled for the agents that ask, kept in memory and in the store."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from politesse._cache.cache import FileCache, FileFlight, Judged
from politesse._cache.entry import Entry, FileRules
from politesse._cache.fetching import fetch_guarded
from politesse._cache.leased_records import LeasedRecords
from politesse._cache.outcome import is_closed
from politesse._cache.reading import ReadingThreads
from politesse._cache.record_store import RecordStore
from politesse._constants import ROBOTS_TXT
from politesse.events import Publisher, RobotsFetched
from politesse.ports import FaultKind, Fetcher, FetchFault, FetchRequest, FetchResponse, FetchResult
from politesse.robots import Dialect, RobotsTxt, RuleSet
from politesse.verdict import AccessResult, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine
    from contextlib import AsyncExitStack

    from politesse._cache.guarded_store import GuardedStore
    from politesse._cache.options import CacheOptions
    from politesse._cache.record import Record
    from politesse.clock import Clock
    from politesse.origin import Origin
    from politesse.ports import Lease

_NOT_DUE_S: Final = 1.0  # a record that is due sooner is no news for a refresh: clocks differ
_PARSE_IN_THREAD_BYTES: Final = 8 * 1024  # 5 ms at worst (thousands of lines, URLs as rules): more would be felt


class RobotsCache(FileCache[Entry]):
    """Keeps robots.txt by origin; see FileCache. A record with the file is in the store, its compiled rules in memory.

    An agent is named by its product tokens, the most specific first, joined by commas.

    Args:
        fetcher: fetches robots.txt; closed with the cache.
        store: keeps records; closed with the cache. None to keep them in the memory of this process.
        dialect: how files and statuses are read.
        options: see CacheOptions.
        clock: both clocks.
        publisher: receives RobotsFetched and ComponentFailed.
        jitter: returns 0 to 1, to spread retries.
        max_wait_s: how long to wait while another process fetches a file, in a store that leases.

    Attributes:
        fetches: how often robots.txt was fetched.
        normalise: brings a request target to the form that the rules compare.
        reading: threads for large files, those of other readers included; closed with the cache.
    """

    what = "robots.txt"
    component = "cache"

    def __init__(
        self,
        fetcher: Fetcher,
        store: GuardedStore | None,
        *,
        dialect: Dialect,
        options: CacheOptions,
        clock: Clock,
        publisher: Publisher,
        jitter: Callable[[], float] = random.random,
        max_wait_s: float = 30.0,
    ) -> None:
        super().__init__(fetcher, options.policy(dialect), options.max_entries_bytes, clock, publisher, jitter)
        self.fetches = 0
        self.normalise = dialect.traits.matching.normalise_target
        self.reading = ReadingThreads()
        self._dialect = dialect
        self._leased: LeasedRecords | None = None
        if store is not None and store.leasing is not None:
            self._leased = LeasedRecords(
                store, store.leasing, max_wait_s=max_wait_s, clock=clock, publisher=publisher, jitter=jitter
            )
        self._store = self._leased or RecordStore(store, publisher=publisher)
        self._file_rules: dict[bytes, FileRules] = {}  # by digest of the file; of the entries that are kept

    async def entry(self, origin: Origin, agent: str) -> Entry:
        """Return a valid entry of ``origin`` that answers ``agent``; fetch robots.txt if need be.

        Raises:
            ClosedError: if the cache is closed, or was while robots.txt was fetched.
            WrongEventLoop: if robots.txt is being fetched in another event loop.
        """
        return await self._get(origin, ROBOTS_TXT, agent)

    def ask_ahead(self, origin: Origin, agent: str) -> None:
        """Have an entry made that answers ``agent``, without waiting for it."""
        if not self._closed:
            self._flight(origin, ROBOTS_TXT, agent)

    def shut(self) -> None:
        """See FileCache."""
        super().shut()
        self._file_rules.clear()

    async def forget(self, origin: Origin) -> None:
        """Drop what is known about ``origin``: the next question fetches robots.txt, or joins a fetch in progress."""
        self._drop(str(origin))
        await self._store.delete(origin)

    def _key(self, origin: Origin, path: str) -> str:
        del path
        return str(origin)

    async def _load(self, flight: FileFlight[Entry]) -> Record | None:
        if self._leased is None:
            record = await self._store.load(flight.origin)
        else:
            judge = partial(self._does, flight)
            record, flight.found, flight.lease = await self._leased.load_or_lease(flight.origin, judge)
        if record is None or flight.forgotten:
            return self._remembered(flight)  # the backoff goes on even if the store lost the record
        return record

    def _does(self, flight: FileFlight[Entry], record: Record) -> Judged | None:
        """Return what a record of the store stands for, if that will do for a flight."""
        judged = None if flight.forgotten else self._judged(flight, record)
        if judged is None or not flight.refreshes:
            return judged
        held = judged.standing  # another process may have refreshed it
        return judged if held.refresh_wall > held.at_wall + _NOT_DUE_S else None

    async def _save(self, flight: FileFlight[Entry], record: Record) -> None:
        if flight.lease is None or self._leased is None:
            await self._store.save(flight.origin, record)
        else:
            await self._leased.save_leased(flight.origin, record, flight.lease)
            flight.lease = None

    def _let_go(self, origin: Origin, lease: Lease) -> None:
        if self._leased is not None:
            self._leased.let_go(origin, lease)

    def _fetch(self, request: FetchRequest) -> Coroutine[object, object, FetchResult]:
        return fetch_guarded(self._fetcher, request, self._publisher)

    def _publish(self, flight: FileFlight[Entry], answer: FetchResult, source: Source, elapsed_s: float) -> None:
        closed = isinstance(answer, FetchFault) and answer.kind is FaultKind.HOST_CLOSED
        if not (closed and answer.final_url == flight.url):  # then no request was sent
            self.fetches += 1
            truncated = isinstance(answer, FetchResponse) and answer.truncated
            fetched = RobotsFetched(flight.origin, answer.status, source.fault, elapsed_s, source, truncated)
            self._publisher.publish(fetched)

    async def _entry_of(self, flight: FileFlight[Entry], judged: Judged, answer: FetchResult | None) -> Entry:
        del answer
        record, held, at_mono = judged
        if record.copy is None:
            return self._kept_rather(self._entry_of_failure(flight, judged), flight.agents)
        rules = None
        if held.source.result is AccessResult.SUCCESSFUL:
            rules = await self._rules(record.copy.body, flight.origin, frozenset(flight.agents))
        return Entry(flight.origin, held, record, rules, at_mono)

    def _entry_of_failure(self, flight: FileFlight[Entry], judged: Judged) -> Entry:
        return Entry(flight.origin, judged.standing, judged.record, None, judged.at_mono)

    def _close_owned_with(self, closing: AsyncExitStack) -> None:
        closing.push_async_callback(self._store.aclose)
        closing.push_async_callback(self._fetcher.aclose)
        closing.callback(self.reading.close)

    async def _rules(self, body: bytes, origin: Origin, agents: frozenset[str]) -> FileRules:
        """Return the rules of a file, those of ``agents`` included; all origins with the same file share them."""
        digest = hashlib.blake2b(body, digest_size=16).digest()
        if self._dialect.traits.matching.of_site:
            digest += str(origin).encode()  # there the same file says something else to another site
        rules = self._file_rules.get(digest)
        if rules is None:
            rules = FileRules(digest, self._file_rules)
        if missing := agents - rules.by_agent.keys():
            compiling = partial(_compile, body, self._dialect, origin, missing)
            large = len(body) * len(missing) > _PARSE_IN_THREAD_BYTES
            compiled = await self.reading.run(compiling) if large else compiling()
            self.weight_bytes += rules.add(compiled)
        return rules

    def _kept_rather(self, entry: Entry, agents: Collection[str]) -> Entry:
        """Return the entry in memory, if it may serve on although the store lost its record; else ``entry``.

        As in the table of outcomes: while robots.txt is unreachable until its deadline, after a 429 while it is fresh.
        """
        known, source = self.entries.get(str(entry.origin)), entry.source
        if known is None or known.source.result is not AccessResult.SUCCESSFUL:
            return entry
        if not all(known.answers(agent) for agent in agents):
            return entry  # its file is gone, so rules of another agent cannot be compiled
        now = self._now()
        if entry.trouble is not None and is_closed(entry.trouble, now.wall, self._policy):
            return entry
        known.set_back(now.mono, now.wall)
        ends_mono, ends_wall, not_before = known.deadline_mono, known.deadline_wall, known.source.not_before
        if source.result is AccessResult.TOO_MANY_REQUESTS:
            fresh_until_wall = known.source.fresh_until_wall
            ends_mono = min(ends_mono, now.mono + (fresh_until_wall - now.wall))
            ends_wall, not_before = min(ends_wall, fresh_until_wall), source.not_before
        elif source.result is not AccessResult.UNREACHABLE:
            return entry
        if now.mono >= ends_mono or now.wall >= ends_wall:
            return entry
        known.record = entry.record
        known.deadline_mono, known.deadline_wall = ends_mono, ends_wall
        known.refresh_mono, known.refresh_wall = min(entry.deadline_mono, ends_mono), ends_wall
        known.set_source(replace(known.source, fault=source.fault, not_before=not_before))
        return known


def _compile(body: bytes, dialect: Dialect, origin: Origin, agents: frozenset[str]) -> dict[str, RuleSet]:
    robots = RobotsTxt.parse(body, dialect, origin=origin)
    rules = {agent: robots.rules_for(agent.split(",")) for agent in agents}
    for rule_set in rules.values():
        rule_set.prepare_later()  # many tables are built here, because this may be a thread: questions come next
    return rules
