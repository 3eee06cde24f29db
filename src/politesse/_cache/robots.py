"""The cache of robots.txt: records in the store, and compiled rules in memory."""

from __future__ import annotations

import hashlib
import random
from copy import copy
from dataclasses import replace
from functools import partial
from sys import getsizeof
from typing import TYPE_CHECKING, Final

from politesse._base.constants import ROBOTS_TXT
from politesse._cache.cache import FileCache
from politesse._cache.entry import FileEntry, FileFlight, Judged
from politesse._cache.fetching import fetch_guarded
from politesse._cache.outcome import Standing, is_closed
from politesse._cache.records import LARGE_OCTETS, LeasedRecords, ReadingThreads, StoredRecords
from politesse.events import Publisher, RobotsFetched
from politesse.ports import FaultKind, Fetcher, FetchFault, FetchRequest, FetchResponse, FetchResult
from politesse.robots import Dialect, RobotsTxt, RuleSet
from politesse.verdict import AccessResult, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping
    from contextlib import AsyncExitStack

    from politesse._cache.guarded_store import GuardedStore
    from politesse._cache.options import AccessPolicy
    from politesse._cache.record import Record
    from politesse._gate.permission import Permission
    from politesse.clock import Clock
    from politesse.origin import Origin

_DIGEST_BYTES: Final = 140  # the memory for the digest of a file as a key of the dict
_PARSE_IN_THREAD_BYTES: Final = 4 * 1024  # a file of this size is parsed in 3 ms at worst


class FileRules(dict[str, RuleSet]):
    """The compiled rules of a file for each agent. All origins with the same file share this mapping.

    The rules of an agent are added with its first request. Agents share their rules if the same groups apply to them.

    Args:
        digest: see below.
        known: the dict of all FileRules that kept entries use, by digest; ``retain`` and ``release`` change it.

    Attributes:
        digest: the digest of the file, or of file and site if the meaning of the file depends on the site; empty
            without a file.
        entries: how many kept entries use the rules. Only the first of these entries adds the bytes of the rules to the
            size of the cache.
    """

    __slots__ = ("_known", "digest", "entries")

    def __init__(self, digest: bytes, known: dict[bytes, FileRules]) -> None:
        super().__init__()
        self.digest: bytes = digest
        self._known = known
        self.entries: int = 0

    def add(self, compiled: Mapping[str, RuleSet]) -> int:
        """Add the rules of agents; return about how many more bytes the kept entries take."""
        before_bytes = self.weight_bytes if self.entries else 0
        for agent, rule_set in compiled.items():
            self.setdefault(agent, rule_set)
        return self.weight_bytes - before_bytes if self.entries else 0

    @property
    def weight_bytes(self) -> int:
        """About how much memory the rules take; rules that agents share count once."""
        return _DIGEST_BYTES + getsizeof(self) + sum([rules.weight_bytes for rules in set(self.values())])

    def retain(self) -> int:
        """Count an entry that uses the rules; return about how many more bytes the cache takes."""
        self.entries += 1
        if self.entries > 1:
            return 0
        self._known[self.digest] = self
        return self.weight_bytes

    def release(self) -> int:
        """Stop counting an entry that used the rules; return about how many bytes of the cache become free."""
        self.entries -= 1
        if self.entries:
            return 0
        if self._known.get(self.digest) is self:
            del self._known[self.digest]
        return self.weight_bytes


_NO_RULES: Final = FileRules(b"", {})


class Entry(FileEntry):
    """The robots.txt of an origin, ready for decisions.

    Attributes:
        rules: the rules of its file; empty unless the source is SUCCESSFUL.
        permission: what the agent that asked last may do; None before the first question, and after a change of the
            source. The gate makes it.
    """

    __slots__ = ("permission", "rules")

    def __init__(
        self, origin: Origin, held: Standing, record: Record, at_mono: float, rules: FileRules = _NO_RULES
    ) -> None:
        # The entry does not keep the file, so its record holds only the failures.
        failures = None if record.trouble is None else record._replace(copy=None)
        super().__init__(origin, ROBOTS_TXT, held, failures, at_mono)
        self.rules: FileRules = rules
        self.permission: Permission | None = None

    def set_source(self, source: Source) -> None:
        """See FileEntry; a permission is based on the source."""
        super().set_source(source)
        self.permission = None

    def retain(self) -> int:
        """See FileEntry. If entries share rules, only the first retained entry adds the bytes of the rules."""
        return self.own_bytes + self.rules.retain() if self.rules else self.own_bytes

    def release(self) -> int:
        """See FileEntry. If entries share rules, only the last released entry frees the bytes of the rules."""
        return self.own_bytes + self.rules.release() if self.rules else self.own_bytes

    def answers(self, agent: str) -> bool:
        """Return whether the entry has an answer for ``agent``."""
        return agent in self.rules or self.source.result is not AccessResult.SUCCESSFUL

    @property
    def agents(self) -> frozenset[str]:
        """The agents whose rules the entry has."""
        return frozenset(self.rules)


class RobotsCache(FileCache[Entry]):
    """Keeps the robots.txt of each origin; see FileCache. The store has the file, and memory has the rules.

    An agent is named by its product tokens, the most specific first, joined by commas.

    Args:
        fetcher: fetches robots.txt; closed with the cache.
        store: keeps records; closed with the cache.
        dialect: how to read files.
        policy: how to read statuses, and how much memory the entries may take.
        clock: the wall clock and the monotonic clock.
        publisher: receives RobotsFetched and ComponentFailed.
        jitter: returns a number from 0 to 1, which spreads retries.
        max_wait_s: how long to wait for the fetch of another process, in seconds; only with a LeasingStore.

    Attributes:
        fetches: how many times robots.txt was fetched.
        normalise: converts a request target to the form that the rules compare.
        reading: threads for large files, which other readers share; closed with the cache.
    """

    what = "robots.txt"
    component = "cache"
    weight_bytes: int  # the weight of FileCache, to which ``_rules`` adds the rules of new agents

    def __init__(
        self,
        fetcher: Fetcher,
        store: GuardedStore,
        *,
        dialect: Dialect,
        policy: AccessPolicy,
        clock: Clock,
        publisher: Publisher,
        jitter: Callable[[], float] = random.random,
        max_wait_s: float = 30.0,
    ) -> None:
        self.reading: ReadingThreads = ReadingThreads()
        if store.leasing is None:
            records = StoredRecords(store, self.reading, publisher)
        else:
            records = LeasedRecords(store, self.reading, publisher, store.leasing, max_wait_s, clock, jitter)
        super().__init__(fetcher, policy, policy.options.max_entries_bytes, clock, publisher, jitter, records)
        self.fetches: int = 0
        self.normalise: Callable[[str], str] = dialect.traits.matching.normalise_target
        self._dialect = dialect
        self._file_rules: dict[bytes, FileRules] = {}  # maps the digests of the files in the cache to their rules

    def entry(self, origin: Origin, agent: str) -> Coroutine[object, object, Entry]:
        """Return a valid entry of ``origin`` that answers ``agent``; fetch robots.txt if necessary.

        Raises:
            ClosedError: if the cache is closed, also if it is closed during the fetch.
            WrongEventLoop: if robots.txt is being fetched in another event loop.
        """
        return self._get(origin, ROBOTS_TXT, agent)

    def ask_ahead(self, origin: Origin, agent: str) -> None:
        """Start to make an entry that answers ``agent``, and do not wait for it."""
        if not self._closed:
            self._flight(origin.text, origin, ROBOTS_TXT, agent)

    def shut(self) -> None:
        """See FileCache."""
        super().shut()
        self._file_rules.clear()

    async def forget(self, origin: Origin) -> None:
        """Drop the record of ``origin``: the next lookup fetches robots.txt, or joins a fetch in progress."""
        self._drop(str(origin))
        await self._records.delete(origin, self._now())

    def _key(self, origin: Origin, path: str) -> str:
        del path
        return origin.text

    def _fetch(self, request: FetchRequest) -> Coroutine[object, object, FetchResult]:
        return fetch_guarded(self._fetcher, request, self._publisher)

    def _publish(self, flight: FileFlight[Entry], answer: FetchResult, source: Source, elapsed_s: float) -> None:
        closed = isinstance(answer, FetchFault) and answer.kind is FaultKind.HOST_CLOSED
        if not (closed and answer.final_url == flight.url):  # a closed host got no request, so no fetch is counted
            self.fetches += 1
            truncated = isinstance(answer, FetchResponse) and answer.truncated
            fetched = RobotsFetched(flight.origin, answer.status, source.fault, elapsed_s, source, truncated)
            self._publisher.publish(fetched)

    async def _entry_of(self, flight: FileFlight[Entry], judged: Judged) -> Entry:
        record, held, at_mono = judged
        if record.copy is None:
            return self._kept_rather(self._entry_of_failure(flight, judged), flight.agents)
        if held.source.result is not AccessResult.SUCCESSFUL:
            return Entry(flight.origin, held, record, at_mono)
        rules = await self._rules(record.copy.body, flight.origin, frozenset(flight.agents))
        return Entry(flight.origin, held, record, at_mono, rules)

    def _entry_of_failure(self, flight: FileFlight[Entry], judged: Judged) -> Entry:
        return Entry(flight.origin, judged.standing, judged.record, judged.at_mono)

    def _close_owned_with(self, closing: AsyncExitStack) -> None:
        closing.push_async_callback(self._fetcher.aclose)
        closing.callback(self.reading.close)

    async def _rules(self, body: bytes, origin: Origin, agents: frozenset[str]) -> FileRules:
        """Return the rules of a file, for ``agents`` and perhaps others; all origins with this file share the rules."""
        digest = await self.reading.run(lambda: hashlib.sha256(body).digest(), is_large=len(body) > LARGE_OCTETS)
        if self._dialect.traits.matching.of_site:
            digest += str(origin).encode()  # in this dialect the meaning of a file depends on the site
        rules = self._file_rules.get(digest)
        if rules is None:
            rules = FileRules(digest, self._file_rules)
        if missing := agents - rules.keys():
            file = body, self._dialect, origin, missing, dict(rules)
            large = len(body) * len(missing) > _PARSE_IN_THREAD_BYTES
            compiled = await self.reading.run(partial(_compile, *file), is_large=large)
            self.weight_bytes += rules.add(compiled)
        return rules

    def _kept_rather(self, entry: Entry, agents: Collection[str]) -> Entry:
        """Return the entry in memory if it is still usable, else ``entry``; for a record that the store has lost.

        The entry in memory is usable until its deadline if robots.txt is unreachable. After a 429, it is usable only
        while it is fresh. See the table in ``outcome.py``.
        """
        known, source = self.held(str(entry.origin)), entry.source
        if known is None or known.source.result is not AccessResult.SUCCESSFUL:
            return entry
        if not all(known.answers(agent) for agent in agents):
            return entry  # the file is gone, so no rules can be compiled for another agent
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
        known = copy(known)  # the size of an entry in the cache must not change
        known.record = entry.record
        known.deadline_mono, known.deadline_wall = ends_mono, ends_wall
        known.refresh_mono, known.refresh_wall = min(entry.deadline_mono, ends_mono), ends_wall
        known.set_source(replace(known.source, fault=source.fault, not_before=not_before))
        return known


def _compile(
    body: bytes, dialect: Dialect, origin: Origin, agents: frozenset[str], known: Mapping[str, RuleSet]
) -> dict[str, RuleSet]:
    """Return the rules of each agent; agents share their rules if the same groups apply to them."""
    robots = RobotsTxt.parse(body, dialect, origin=origin)
    is_alone = not known and len(agents) == 1
    bound = {robots.binding(agent.split(",")): rules for agent, rules in known.items()}
    compiled: dict[str, RuleSet] = {}
    for agent in agents:
        tokens = agent.split(",")
        binding = b"" if is_alone else robots.binding(tokens)
        if binding not in bound:
            bound[binding] = robots.rules_for(tokens)
        compiled[agent] = bound[binding]
    return compiled
