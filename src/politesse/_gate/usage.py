"""Usage preferences: policy tokens, the reservations of tdmrep.json, and ``enforce_usage``.

tdmrep.json is fetched like a page, in its own turn. robots.txt has to allow the file for two agents: the gatekeeper's
own agent, which makes the request, and the agent that needs the file. Each new body is parsed once. The agent that
fetches tdmrep.json enforces no usage preferences, because it would need the file before it could fetch the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from cachetools import LRUCache

from politesse._base.checks import wrong_type
from politesse._base.constants import ROBOTS_TXT
from politesse._gate.identity import checked_token
from politesse.errors import ClosedError
from politesse.page.tdmrep import TdmRep, parse_tdmrep, tdmrep_usage
from politesse.usage.model import CombinedUsage, Mechanism, Place, Preference, Purpose, Statement, Usage
from politesse.verdict import WITHOUT_RULE, FileOutcome, Match, Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from politesse._cache.records import ReadingThreads
    from politesse._sites.files import SiteFile, SiteFiles
    from politesse.origin import Origin
    from politesse.robots import RuleSet
    from politesse.verdict import StatesUsage

TDMREP_JSON: Final = "/.well-known/tdmrep.json"
"""The path of the file (TDMRep, "TDM File on the Origin Server")."""

_READ_IN_THREAD_BYTES: Final = 64 * 1024
_MAX_KEPT_BYTES: Final = 32 * 1024 * 1024
_WEIGHT: Final = 24  # a parsed file needs at most about this many octets of memory for each of its octets
_KEPT_BYTES: Final = 1_000
NOT_ENFORCED: Final = frozenset({ROBOTS_TXT, TDMREP_JSON})
"""The files that state the preferences; they may be requested whatever they state."""


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

    def known(self, origin: Origin, late_s: float) -> Reserved | None:
        """Return the reservations of ``origin``; None if the file must be fetched or parsed in a thread.

        A file counts if it stays valid for ``late_s`` seconds.
        """
        file = self.files.peek(origin, TDMREP_JSON, late_s=late_s)
        if file is None or (self._is_new(origin, file) and len(file.body) > _READ_IN_THREAD_BYTES):
            return None
        return self._take_in(origin, file, _parse(file) if self._is_new(origin, file) else None)

    async def read(self, origin: Origin, file: SiteFile) -> Reserved:
        """Return the reservations in the file of ``origin``."""
        doc = None
        if self._is_new(origin, file):
            doc = await self._reading.run(partial(_parse, file), is_large=len(file.body) > _READ_IN_THREAD_BYTES)
        return self._take_in(origin, file, doc)

    def ask_ahead(self, origin: Origin, fetch: Callable[[Origin], Awaitable[Reserved]]) -> None:
        """Start to fetch and parse tdmrep.json, and do not wait for it."""
        key = origin.text
        if not self._closed and key not in self._ahead:
            # The context is empty: the task must not hold the caller's turns.
            loop, name = asyncio.get_running_loop(), f"tdmrep.json of {key}"
            self._ahead[key] = loop.create_task(_learn_ahead(fetch, origin), name=name, context=Context())
            self._ahead[key].add_done_callback(lambda _: self._ahead.pop(key, None))

    async def aclose(self) -> None:
        """Cancel the fetches of ``ask_ahead``."""
        self._closed = True
        tasks = [*self._ahead.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_new(self, origin: Origin, file: SiteFile) -> bool:
        known = self._read.get(origin.text)
        return file.outcome is FileOutcome.FOUND and (known is None or known[0] != file.body)

    def _take_in(self, origin: Origin, file: SiteFile, doc: TdmRep | None) -> Reserved:
        """Return the reservations of a file: from ``doc`` if it is given, else from the last parse."""
        if file.outcome is FileOutcome.RETRY:
            return _unread(file.fault or f"status {file.status}", file.not_before)
        if file.outcome is not FileOutcome.FOUND:
            return NOTHING_RESERVED
        before = self._read.get(origin.text)
        if doc is None and before is not None:
            return before[1]
        reserved = Reserved(doc or TdmRep())
        if reserved.doc.fault:
            # If a file cannot be parsed, the reservations of the last parsed file stay valid. If no file was parsed
            # yet, HTML counts as a missing file (a soft 404), and any other text makes the reservations unknown.
            reserved = _unread(reserved.doc.fault) if before is None else before[1]
            if before is None and file.is_web_page:
                reserved = NOTHING_RESERVED
        self._read[origin.text] = file.body, reserved
        return reserved


async def _learn_ahead(fetch: Callable[[Origin], Awaitable[Reserved]], origin: Origin) -> None:
    with suppress(ClosedError):  # no caller waits for the result
        await fetch(origin)


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


MatchTarget: TypeAlias = "Callable[[str], Match]"
"""Returns the match of a request target, as written; raises InvalidURL if the target has no normal form."""

Objecting: TypeAlias = "Callable[[str], tuple[Reason, str] | None]"
"""Returns the reason and the note to deny a target whose use is not permitted; None if its use is permitted."""


def objection(
    purposes: frozenset[Purpose], site: StatesUsage | None, reserved: Reserved | None, target: str
) -> tuple[Reason, str] | None:
    """Return why a target may be requested but not used for one of ``purposes``; see ``Objecting``.

    Args:
        purposes: the planned uses of the content.
        site: the statements of the site.
        reserved: the reservations of tdmrep.json, which ``site`` includes, or None if they do not count.
        target: the target that robots.txt allows.
    """
    usage = None if site is None else site.usage(target)
    for purpose in Purpose:
        if purpose in purposes and usage is not None:
            deciding = usage.deciding(purpose)
            if deciding and deciding[0].preference is Preference.DISALLOWED:
                return Reason.USAGE_DISALLOWED, f"{purpose}, by {deciding[0]}"
    if reserved is not None and reserved.doc.fault:
        return Reason.USAGE_UNKNOWN, f"{Purpose.TDM}: {TDMREP_JSON} could not be read: {reserved.doc.fault}"
    return None


def match_of_use(match_target: MatchTarget, objecting: Objecting, target: str) -> Match:
    """Return the match of a target in robots.txt, or the match that denies its use."""
    match = match_target(target)
    path, _, _ = target.partition("#")
    objected = None if not match.allowed or path in NOT_ENFORCED else objecting(path)
    return match if objected is None else WITHOUT_RULE[objected[0]]


def with_reserved(site: StatesUsage | None, reserved: Reserved) -> CombinedUsage:
    """Return the statements of robots.txt and tdmrep.json together."""
    of_file = partial(tdmrep_usage, reserved.doc)
    return CombinedUsage(of_file) if site is None else CombinedUsage(site.usage, of_file)


PolicyTokens: TypeAlias = Mapping[Purpose, str]
"""Product tokens that no crawler sends, in lower case, by the purpose that their groups in robots.txt permit or forbid.

Examples are ``Google-Extended`` and ``Applebot-Extended``: a site states in their groups whether a model may be trained
on its content. The groups are chosen as for any crawler, with ``*`` as the fallback, and forbid a use of the content,
not a request.
"""


def checked_policy_tokens(tokens: Mapping[str, str] | None) -> PolicyTokens:
    """Return the tokens that ``policy_tokens`` names.

    Raises:
        ConfigurationError: for an unknown purpose, or an invalid product token.
    """
    given = {} if tokens is None else tokens
    return {Purpose.given(name, "policy_tokens"): checked_token(token).lower() for name, token in given.items()}


def usage_with_tokens(
    tokens: PolicyTokens, site: StatesUsage | None, rules: Mapping[str, RuleSet]
) -> StatesUsage | None:
    """Return the statements of ``site``, combined with the rules of the tokens; ``rules`` maps tokens to rules."""
    known = {purpose: rules[token] for purpose, token in tokens.items() if token in rules}
    if not known:
        return site
    said_by_groups = partial(_usage_of_groups, tokens, known)
    return CombinedUsage(said_by_groups) if site is None else CombinedUsage(site.usage, said_by_groups)


def _usage_of_groups(tokens: PolicyTokens, rules_of: Mapping[Purpose, RuleSet], url: str) -> Usage:
    statements, told = [], (Mechanism.POLICY_TOKEN, Place.ROBOTS_TXT)
    for purpose, rules in rules_of.items():
        match = rules.match(url)
        said, rule = Preference.ALLOWED if match else Preference.DISALLOWED, match.rule
        if rule is not None:
            agent, line = tokens[purpose], rule.line
            statements.append(Statement(purpose, said, *told, str(rule), line, path=rule.value, agent=agent))
    return Usage(tuple(statements), tuple(statements))
