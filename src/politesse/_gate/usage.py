"""Usage preferences: policy tokens, the reservations of tdmrep.json, and ``enforce_usage``.

tdmrep.json is fetched like a page, in its own turn. robots.txt has to allow the file for two agents: the gatekeeper's
own agent, which makes the request, and the agent that needs the file. Each new body is parsed once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from politesse._base.checks import wrong_type
from politesse._base.constants import DAY_S, ROBOTS_TXT
from politesse._gate.identity import checked_token
from politesse._gate.judge import EnforcedUsage, Evidence, judge
from politesse._gate.turn import holds_turn_at
from politesse._pacing.pace import PACES_HELD, longest_stated_s
from politesse.errors import ClosedError
from politesse.page.tdmrep import TdmRep, parse_tdmrep, tdmrep_usage
from politesse.usage.model import CombinedUsage, Mechanism, Place, Preference, Purpose, Statement, Usage
from politesse.verdict import FileOutcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from politesse._cache.files import SiteFile, SiteFiles
    from politesse._cache.outcome import Copy
    from politesse._cache.records import ReadingThreads
    from politesse._gate.agent import Agent
    from politesse.origin import Origin
    from politesse.robots import RuleSet
    from politesse.verdict import StatesUsage

TDMREP_JSON: Final = "/.well-known/tdmrep.json"
"""The path of the file (TDMRep, "TDM File on the Origin Server")."""

_READ_IN_THREAD_BYTES: Final = 64 * 1024
_MAX_KEPT_BYTES: Final = 32 * 1024 * 1024
_WEIGHT: Final = 24  # a parsed file needs at most about this many octets of memory for each of its octets
_KEPT_BYTES: Final = 1_000
_NOT_ENFORCED: Final = frozenset({ROBOTS_TXT, TDMREP_JSON})  # the files that state the preferences


@dataclass(frozen=True, slots=True)
class Reserved:
    """The reservations in the tdmrep.json of a site.

    Attributes:
        doc: the parsed file; empty if the site has no file. ``doc.fault`` is the reason why the file is unknown, or
            empty.
        not_before: the earliest Unix time of the next fetch; None if it is unknown.
    """

    doc: TdmRep
    not_before: float | None = None


def _unread(fault: str, not_before: float | None = None) -> Reserved:
    return Reserved(TdmRep(fault=fault), not_before)


NOTHING_RESERVED: Final = Reserved(TdmRep())
OUT_OF_TURN: Final = _unread("it is not known yet, and this is asked within a turn of the same host")
"""The answer if waiting would deadlock, because the caller already holds this host's turn."""


class Reservations:
    """The reservations of each origin.

    Args:
        files: the cache that fetches tdmrep.json.
        reading: threads for large files; not closed here.

    Attributes:
        files: the cache that fetches tdmrep.json.
    """

    def __init__(self, files: SiteFiles, reading: ReadingThreads) -> None:
        self.files = files
        self._reading = reading
        self._read: LRUCache[str, tuple[bytes, Reserved]] = LRUCache(_MAX_KEPT_BYTES, getsizeof=_weight_bytes)
        self._ahead: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    def known(self, origin: Origin, *, late_s: float = 0.0) -> Reserved | None:
        """Return the reservations of ``origin``; None if the file must be fetched, or parsed in a thread.

        The file still counts for ``late_s`` seconds after its lifetime.
        """
        file = self.files.peek(origin, TDMREP_JSON, late_s=late_s)
        if file is None or (self._is_new(origin, file) and len(file.body) > _READ_IN_THREAD_BYTES):
            return None
        return self._take_in(origin, file, _parse(file) if self._is_new(origin, file) else None)

    async def learn(self, origin: Origin, get: Callable[[], Awaitable[SiteFile]]) -> Reserved:
        """Return the reservations of ``origin``; ``get`` fetches the file like a page. Raises ClosedError."""
        file = await get()
        doc = None
        if self._is_new(origin, file):
            doc = await self._reading.run(partial(_parse, file), is_large=len(file.body) > _READ_IN_THREAD_BYTES)
        return self._take_in(origin, file, doc)

    def ask_ahead(self, origin: Origin, get: Callable[[], Awaitable[SiteFile]]) -> None:
        """Start to fetch and parse tdmrep.json."""
        key = str(origin)
        if not self._closed and key not in self._ahead:
            # The context is empty: the task must not hold the caller's turns.
            loop, name = asyncio.get_running_loop(), f"tdmrep.json of {origin}"
            self._ahead[key] = loop.create_task(self._learn_ahead(origin, get), name=name, context=Context())
            self._ahead[key].add_done_callback(lambda _: self._ahead.pop(key, None))

    async def aclose(self) -> None:
        """Cancel the fetches of ``ask_ahead``."""
        self._closed = True
        tasks = [*self._ahead.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _learn_ahead(self, origin: Origin, get: Callable[[], Awaitable[SiteFile]]) -> None:
        with suppress(ClosedError):  # no caller waits for the result
            await self.learn(origin, get)

    def _is_new(self, origin: Origin, file: SiteFile) -> bool:
        known = self._read.get(str(origin))
        return file.outcome is FileOutcome.FOUND and (known is None or known[0] != file.body)

    def _take_in(self, origin: Origin, file: SiteFile, doc: TdmRep | None) -> Reserved:
        """Return the reservations of a file: from ``doc`` if it is given, else from the last parse."""
        if file.outcome is FileOutcome.RETRY:
            return _unread(file.fault or f"status {file.status}", file.not_before)
        if file.outcome is not FileOutcome.FOUND:
            return NOTHING_RESERVED
        before = self._read.get(str(origin))
        if doc is None and before is not None:
            return before[1]
        reserved = Reserved(doc or TdmRep())
        if reserved.doc.fault:
            # If a file cannot be parsed, the reservations of the last parsed file stay valid. If no file was parsed
            # yet, HTML counts as a missing file (a soft 404), and any other text makes the reservations unknown.
            reserved = _unread(reserved.doc.fault) if before is None else before[1]
            if before is None and file.is_web_page:
                reserved = NOTHING_RESERVED
        self._read[str(origin)] = file.body, reserved
        return reserved


def _parse(file: SiteFile) -> TdmRep:
    return TdmRep(fault="it is longer than the limit") if file.truncated else parse_tdmrep(file.body)


def _weight_bytes(kept: tuple[bytes, Reserved]) -> int:
    body, reserved = kept
    octet = _WEIGHT if reserved.doc.locations else 1  # an unparsable file needs only the memory of its text
    return min(_KEPT_BYTES + octet * len(body), _MAX_KEPT_BYTES)  # the cache refuses anything larger


def checked_purposes(names: Iterable[str]) -> frozenset[Purpose]:
    """Return the purposes that ``enforce_usage`` names.

    Raises:
        ConfigurationError: for an unknown purpose, or a single string.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise wrong_type("enforce_usage", names, "a set of purposes, as in {'ai-train'}")
    return frozenset(Purpose.given(name, "enforce_usage") for name in names)


class AgentUsage:
    """The usage preferences of sites, as one agent reads and enforces them.

    A page is denied if its site disallows a planned use. tdmrep.json is read only for the purpose ``tdm``.

    Args:
        agent: fetches tdmrep.json. This agent enforces no usage preferences, because it would need
            tdmrep.json before it could fetch tdmrep.json.
    """

    __slots__ = ("_agent", "_purposes", "_reservations")

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._purposes = agent.state.purposes
        self._reservations = agent.state.reservations

    def known(self, evidence: Evidence, entry: Copy) -> Evidence | None:
        """Return ``evidence`` with the preferences to enforce, or None if tdmrep.json has to be fetched first."""
        if not self._needs_tdmrep(evidence.target):
            return self.enforced(evidence, None)
        reserved = self._known_reserved(entry)
        return None if reserved is None else self.enforced(evidence, reserved)

    async def learn(self, origin: Origin, target: str) -> Reserved | None:
        """Return the reservations of tdmrep.json, fetched if necessary; None if ``target`` needs no tdmrep.json."""
        return await self.reserved(origin) if self._needs_tdmrep(target) else None

    async def reserved(self, origin: Origin) -> Reserved:
        """Return the reservations of tdmrep.json, fetched if necessary; OUT_OF_TURN if the fetch would deadlock.

        Raises:
            ClosedError: if the gatekeeper is closed.
        """
        if not holds_turn_at(origin.pacing_host):
            return await self._reservations.learn(origin, partial(self._file, origin))
        # Waiting for a turn would deadlock: the caller holds the turn of this host.
        reserved = self._known_reserved(await self._agent.entry(origin))
        if reserved is None:
            self.ask_ahead(origin)
            return OUT_OF_TURN
        return reserved

    def enforced(self, evidence: Evidence, reserved: Reserved | None) -> Evidence:
        """Return ``evidence`` with the preferences to enforce, including the reservations."""
        if evidence.target in _NOT_ENFORCED:
            return evidence
        if reserved is None:
            return replace(evidence, enforced=EnforcedUsage(self._purposes))
        fault = reserved.doc.fault
        unknown = f"{Purpose.TDM}: {TDMREP_JSON} could not be read: {fault}" if fault else ""
        return replace(
            evidence,
            site_usage=with_reserved(evidence.site_usage, reserved),
            enforced=EnforcedUsage(self._purposes, unknown, reserved.not_before),
        )

    def basis(self, origin: Origin) -> object:
        """Return the cache entry of tdmrep.json if the gate enforces ``tdm``, else None. Compare by equality."""
        return self._reservations.files.held(f"{origin}{TDMREP_JSON}") if Purpose.TDM in self._purposes else None

    def ask_ahead(self, origin: Origin) -> None:
        """Start to fetch and read tdmrep.json, and do not wait for it."""
        self._reservations.ask_ahead(origin, partial(self._file, origin))

    def _needs_tdmrep(self, target: str) -> bool:
        return Purpose.TDM in self._purposes and target not in _NOT_ENFORCED

    def _known_reserved(self, entry: Copy) -> Reserved | None:
        """Return the reservations of tdmrep.json, or None if the file has to be fetched first."""
        agent, state = self._agent, self._agent.state
        own_name, url, normalise = state.identity.agent, f"{entry.origin}{TDMREP_JSON}", state.cache.normalise
        for name in {agent.name, own_name}:
            evidence = Evidence(url, TDMREP_JSON, normalise, None, entry.source.result, entry.rules.get(name))
            if entry.answers(name) and not judge(evidence).match.allowed:
                return NOTHING_RESERVED  # None would ask for a fetch, but a denied file is never fetched
        if state.pacing.on_long_crawl_delay == "skip" and agent.too_long_s(entry.rules.get(own_name)) is not None:
            return NOTHING_RESERVED
        # The file was fetched in a turn, and the turn of the page follows an interval later: the file must stay valid
        # until then.
        late_s = min(PACES_HELD * longest_stated_s(entry.rules.values()), DAY_S)
        return self._reservations.known(entry.origin, late_s=late_s)

    async def _file(self, origin: Origin) -> SiteFile:
        return await self._agent.site_file(self._reservations.files, origin, TDMREP_JSON)


def with_reserved(site: StatesUsage | None, reserved: Reserved) -> CombinedUsage:
    """Return the statements of robots.txt and tdmrep.json together."""
    of_file = partial(tdmrep_usage, reserved.doc)
    return CombinedUsage(of_file) if site is None else CombinedUsage(site.usage, of_file)


class PolicyTokens:
    """Product tokens that no crawler sends. Their groups in robots.txt forbid a use of the content, not a request.

    Examples are ``Google-Extended`` and ``Applebot-Extended``: a site states in their groups whether a model may be
    trained on its content. The groups are chosen as for any crawler, with ``*`` as the fallback.

    Args:
        tokens: for each purpose, the product token whose groups state whether the purpose is permitted.

    Attributes:
        agents: the same tokens, checked and in lower case.

    Raises:
        ConfigurationError: for an unknown purpose, or an invalid product token.
    """

    __slots__ = ("agents",)

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self.agents: dict[Purpose, str] = {
            Purpose.given(name, "policy_tokens"): checked_token(token).lower() for name, token in tokens.items()
        }

    def usage_of(self, site: StatesUsage | None, rules: Mapping[str, RuleSet]) -> StatesUsage | None:
        """Return the statements of ``site``, combined with the rules of the tokens; ``rules`` maps tokens to rules."""
        known = {purpose: rules[agent] for purpose, agent in self.agents.items() if agent in rules}
        if not known:
            return site
        said_by_groups = partial(self._usage, known)
        return CombinedUsage(said_by_groups) if site is None else CombinedUsage(site.usage, said_by_groups)

    def _usage(self, rules_of: Mapping[Purpose, RuleSet], url: str) -> Usage:
        statements = []
        for purpose, rules in rules_of.items():
            match = rules.match(url)
            if match.rule is not None:
                statement = Statement(
                    purpose,
                    Preference.ALLOWED if match else Preference.DISALLOWED,
                    Mechanism.POLICY_TOKEN,
                    Place.ROBOTS_TXT,
                    str(match.rule),
                    match.rule.line,
                    path=match.rule.value,
                    agent=self.agents[purpose],
                )
                statements.append(statement)
        return Usage(tuple(statements), tuple(statements))
