"""The one question before each request: may I?

``peek`` is the hot path: the origin's key is the slice before the third slash, looked up in a dict whose keys were
validated when they were put in; a plain target is matched as it is, any other normalised first. Whatever is odd
(another spelling of the origin, a host policy, an entry that ran out) takes the slow road, which splits the URL and has
robots.txt asked for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self, TypeVar

from politesse.access.cache import CacheOptions, RobotsCache
from politesse.access.fetch import AiohttpFetcher, FetchOptions
from politesse.clock import SystemClock
from politesse.errors import ConfigurationError, InvalidURL
from politesse.events import Event, Publisher
from politesse.identity import Identity
from politesse.origin import Origin, split
from politesse.robots import Dialect
from politesse.robots.pattern import is_plain
from politesse.robots.ruleset import ROBOTS_TXT
from politesse.sieve import sift
from politesse.stores.memory import MemoryStore
from politesse.verdict import ALLOWING, WITHOUT_RULE, AccessResult, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    import aiohttp

    from politesse.access.cache import Entry
    from politesse.clock import Clock
    from politesse.ports import Fetcher, Store
    from politesse.verdict import Match

Item = TypeVar("Item")

_WHOLE_SITE: Final = {
    AccessResult.UNAVAILABLE: WITHOUT_RULE[Reason.UNAVAILABLE],
    AccessResult.FORBIDDEN: WITHOUT_RULE[Reason.FORBIDDEN],
    AccessResult.UNREACHABLE: WITHOUT_RULE[Reason.UNREACHABLE],
    AccessResult.TOO_MANY_REQUESTS: WITHOUT_RULE[Reason.TOO_MANY_REQUESTS],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPolicy:
    """What this crawler has settled about a host by other means than robots.txt.

    Attributes:
        deny: request nothing from it, robots.txt included.
        exempt: request anything from it without asking robots.txt: for one's own servers, or by agreement.
        reason: in words, for the verdicts; an exemption must give one.
    """

    deny: bool = False
    exempt: bool = False
    reason: str = ""

    def __post_init__(self) -> None:
        if self.deny and self.exempt:
            raise ConfigurationError("HostPolicy: deny and exempt contradict each other")
        if self.exempt and not self.reason.strip():
            raise ConfigurationError("HostPolicy(exempt=True): give the reason, as in reason='our own server'")


@dataclass(frozen=True, slots=True)
class Decided(Event):
    """A question was answered.

    Attributes:
        verdict: the answer.
    """

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a gatekeeper has done so far, all its views together.

    Attributes:
        allowed: how many verdicts allowed.
        denied: how many denied, by reason; in report mode those that would have.
        fetches: how often robots.txt was asked for.
        in_flight: how many origins are being asked now.
        origins: of how many something is known now.
        entries_bytes: about how much memory that takes.
    """

    allowed: int
    denied: Mapping[Reason, int]
    fetches: int
    in_flight: int
    origins: int
    entries_bytes: int

    @property
    def decisions(self) -> int:
        """How many verdicts there were."""
        return self.allowed + sum(self.denied.values())


class _Shared:
    """What a gatekeeper and its views have in common."""

    __slots__ = ("allowed", "cache", "clock", "denied", "disallowed", "policies", "publisher", "reports")

    def __init__(self, cache: RobotsCache, clock: Clock, publisher: Publisher, *, reports: bool) -> None:
        self.cache = cache
        self.clock = clock
        self.publisher = publisher
        self.reports = reports
        self.policies: dict[str, HostPolicy] = {}
        self.allowed = 0
        self.disallowed = 0  # by rules: a count of its own, because hashing a Reason costs more than the decision
        self.denied: Counter[Reason] = Counter()  # for all other reasons

    def count(self, reason: Reason) -> bool:
        """Count a verdict; return whether it allows, be it because this gate only reports."""
        if reason in ALLOWING:
            self.allowed += 1
            return True
        if reason is Reason.DISALLOW_RULE:
            self.disallowed += 1
        else:
            self.denied[reason] += 1
        return self.reports

    def denials(self) -> dict[Reason, int]:
        """Return how many verdicts denied, by reason."""
        by_rule = {Reason.DISALLOW_RULE: self.disallowed} if self.disallowed else {}
        return by_rule | dict(self.denied)


class AgentView:
    """The gate as one agent passes it: made by ``Gatekeeper.agent``, and what a Gatekeeper is for its own agent.

    Attributes:
        identity: the User-Agent and the product tokens that it judges for.
    """

    __slots__ = ("_agent", "_entries", "_monotonic", "_normalise", "_policies", "_publisher", "_shared", "identity")

    def __init__(self, shared: _Shared, identity: Identity) -> None:
        self.identity = identity
        self._shared = shared
        self._agent = identity.agent
        # Held here as well, because the hot path would pay for each step on the way to them.
        self._entries = shared.cache.entries
        self._policies = shared.policies
        self._publisher = shared.publisher
        self._normalise = shared.cache.normalise
        self._monotonic = shared.clock.monotonic

    def peek(self, url: str) -> Verdict | None:
        """Return the verdict on ``url`` if it is known now, else None. Waits for nothing and asks nobody.

        A copy that is near the end of its lifetime is asked for again behind the answer. Raises InvalidURL.
        """
        place = url.find("/", 8)  # the third slash: behind "https://" and "http://" there is a host
        if place > 0 and (entry := self._entries.get(url[:place])) is not None and not self._policies:
            rules = entry.rules.get(self._agent)
            now_mono = self._monotonic()
            if rules is not None and now_mono < entry.refresh_mono:
                target = url[place:]
                if is_plain(target) is None or "/." in target:
                    target = self._normalise(target)
                entry.used = True
                match = rules.decide(target)
                shared = self._shared
                allowed = match.allowed
                if allowed:
                    shared.allowed += 1
                else:
                    shared.disallowed += 1
                    allowed = shared.reports
                verdict = Verdict(url, self._agent, allowed, match, entry.source, now_mono - entry.confirmed_mono)
                if self._publisher.subscribers:
                    self._publisher.publish(Decided(verdict))
                return verdict
        return self._peek_slowly(url)

    async def check(self, url: str) -> Verdict:
        """Return the verdict on ``url``, asking for robots.txt first if need be. Waits for no pace.

        Raises InvalidURL, and ClosedError.
        """
        verdict = self.peek(url)
        if verdict is not None:
            return verdict
        origin, target = split(url)
        entry = await self._shared.cache.entry(origin, self._agent)
        return self._judge(url, entry, target)

    async def check_batch(self, urls: Iterable[str]) -> list[Verdict]:
        """Return the verdicts on ``urls`` in their order; the origins are asked at the same time.

        What is no URL gets a verdict with the reason INVALID_URL, so that it costs the others nothing. Raises
        ClosedError.
        """
        if isinstance(urls, str):
            raise TypeError(f"check_batch({urls!r:.100}): give an iterable of URLs, or use check for one")
        asked = list(urls)
        verdicts: dict[int, Verdict] = {}
        unknown: dict[Origin, list[int]] = {}
        for place, url in enumerate(asked):
            verdict = self.peek_or_invalid(url)
            if verdict is None:
                unknown.setdefault(split(url)[0], []).append(place)
            else:
                verdicts[place] = verdict

        async def ask(places: list[int]) -> None:
            for place in places:
                verdicts[place] = await self.check(asked[place])

        await asyncio.gather(*(ask(places) for places in unknown.values()))
        return [verdicts[place] for place in range(len(asked))]

    def filter(
        self,
        source: Iterable[Item] | AsyncIterable[Item],
        *,
        key: Callable[[Item], str] | None = None,
        max_pending: int = 10_000,
    ) -> AsyncGenerator[tuple[Item, Verdict], None]:
        """Yield every item of ``source`` with its verdict, each as soon as it is known, not in order.

        Args:
            source: an iterable or asynchronous iterable, endless ones included; read only as far as there is room.
            key: returns the URL of an item; without it the items are URLs.
            max_pending: how many items may wait for a robots.txt at once; positive.

        What is no URL comes with the reason INVALID_URL. If the source raises, the items that it gave before are
        yielded first. Raises ClosedError, ConfigurationError.
        """
        if isinstance(source, str):
            raise TypeError(f"filter({source!r:.100}): give an iterable of URLs or items, or use check for one")
        if max_pending < 1:
            raise ConfigurationError(f"max_pending={max_pending}: give at least 1")
        return sift(self, source, key, max_pending)

    def peek_or_invalid(self, url: str) -> Verdict | None:
        """Do as ``peek`` does, with a verdict of the reason INVALID_URL instead of the error."""
        try:
            return self.peek(url)
        except InvalidURL as error:
            return self._verdict(url, WITHOUT_RULE[Reason.INVALID_URL], note=error.problem)

    def _peek_slowly(self, url: str) -> Verdict | None:
        origin, target = split(url)
        policy = self._policies.get(origin.pacing_host)
        if policy is not None and (policy.deny or policy.exempt):
            reason = Reason.POLICY_DENY if policy.deny else Reason.POLICY_EXEMPT
            return self._verdict(url, WITHOUT_RULE[reason], note=policy.reason)
        cache = self._shared.cache
        entry = cache.valid(str(origin))
        if entry is not None and entry.answers(self._agent):
            return self._judge(url, entry, target)
        if self._normalise(target) == ROBOTS_TXT:
            return self._verdict(url, WITHOUT_RULE[Reason.ROBOTS_TXT])
        return None

    def _judge(self, url: str, entry: Entry, target: str) -> Verdict:
        normal = self._normalise(target)
        if entry.source.result is AccessResult.SUCCESSFUL:
            match = entry.rules[self._agent].decide(normal)
        elif normal == ROBOTS_TXT:
            match = WITHOUT_RULE[Reason.ROBOTS_TXT]
        else:
            match = _WHOLE_SITE[entry.source.result]
        return self._verdict(url, match, entry)

    def _verdict(self, url: str, match: Match, entry: Entry | None = None, note: str = "") -> Verdict:
        """Make, count and tell a verdict."""
        allowed = self._shared.count(match.reason)
        source, age_s = (None, 0.0) if entry is None else (entry.source, self._monotonic() - entry.confirmed_mono)
        verdict = Verdict(url, self._agent, allowed, match, source, age_s, note)
        if self._publisher.subscribers:
            self._publisher.publish(Decided(verdict))
        return verdict


class Gatekeeper(AgentView):
    """An async cache of robots.txt files, and the gate that crawl workers ask before each request.

    It belongs to the event loop in which it is used, and is closed by ``async with`` or ``aclose``.

    Args:
        user_agent: the User-Agent of the crawler, sent with every robots.txt request; send the same with pages.
        token: the product token that chooses the groups, or several, the most specific first; else the first
            product of ``user_agent``.
        dialect: the reading of robots.txt.
        cache: how long answers hold.
        fetch: how robots.txt is fetched.
        store: where records are kept; a MemoryStore unless given. Closed with the gatekeeper.
        session: an aiohttp session whose connector to borrow; nothing else of it is used.
        fetcher: asks for robots.txt instead of aiohttp; then neither ``fetch`` nor ``session`` may be given.
        clock: the clocks.
        mode: ``"enforce"``; or ``"report"``, in which every verdict allows, and reason and events tell what
            would have been denied.

    Raises:
        ConfigurationError: for options that cannot be meant.
    """

    __slots__ = ("_mode",)

    def __init__(  # noqa: PLR0913 - the options of the whole gate
        self,
        user_agent: str,
        *,
        token: str | Sequence[str] | None = None,
        dialect: Dialect = Dialect.RFC9309,
        cache: CacheOptions | None = None,
        fetch: FetchOptions | None = None,
        store: Store | None = None,
        session: aiohttp.ClientSession | None = None,
        fetcher: Fetcher | None = None,
        clock: Clock | None = None,
        mode: Literal["enforce", "report"] = "enforce",
    ) -> None:
        identity = Identity.of(user_agent, token)
        if mode not in {"enforce", "report"}:
            raise ConfigurationError(f"mode={mode!r}: give 'enforce' or 'report'")
        if fetcher is not None and (fetch is not None or session is not None):
            raise ConfigurationError("fetcher= replaces the fetcher that fetch= and session= are options of")
        clock = clock or SystemClock()
        publisher = Publisher()
        robots_cache = RobotsCache(
            fetcher or AiohttpFetcher(user_agent, fetch, session=session),
            store if store is not None else MemoryStore(),
            dialect=dialect,
            options=cache or CacheOptions(),
            clock=clock,
            publisher=publisher,
        )
        super().__init__(_Shared(robots_cache, clock, publisher, reports=mode == "report"), identity)
        self._mode = mode

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End all fetches, close the store. Who waits for a verdict gets ClosedError; so does who asks later."""
        await self._shared.cache.aclose()

    def agent(self, *, tokens: str | Sequence[str], user_agent: str | None = None) -> AgentView:
        """Return a view that judges for other product tokens, the most specific first, over the same cache.

        Args:
            tokens: see ``token`` of Gatekeeper.
            user_agent: what that agent sends with its pages; the gatekeeper's own unless given. robots.txt is
                still asked for with the gatekeeper's.
        """
        return AgentView(self._shared, Identity.of(user_agent or self.identity.user_agent, tokens))

    def set_policy(self, host: str, policy: HostPolicy | None) -> None:
        """Settle ``host``, all its schemes and ports, by a policy from now on; None for robots.txt again.

        Raises InvalidURL if ``host`` is no host.
        """
        origin, target = split(f"https://{host}")
        if target != "/":
            raise InvalidURL(host, "is not a bare host; give it as in 'partner.example'")
        if policy is None:
            self._shared.policies.pop(origin.pacing_host, None)
        else:
            self._shared.policies[origin.pacing_host] = policy

    async def forget(self, origin: Origin | str) -> None:
        """Drop what is known about an origin, given as such or as an URL of it: the next question asks again."""
        await self._shared.cache.forget(Origin.of(origin) if isinstance(origin, str) else origin)

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``subscriber`` with every event: Decided, RobotsFetched, ComponentFailed. Returns what ends it.

        It is called in the midst of the work, so it must be quick. What it raises is logged.
        """
        return self._shared.publisher.subscribe(subscriber)

    def statistics(self) -> Statistics:
        """Return what was done so far."""
        shared = self._shared
        return Statistics(
            allowed=shared.allowed,
            denied=shared.denials(),
            fetches=shared.cache.fetches,
            in_flight=shared.cache.in_flight,
            origins=len(shared.cache.entries),
            entries_bytes=shared.cache.weight_bytes,
        )

    def __repr__(self) -> str:
        cache = self._shared.cache
        asked = f"{len(cache.entries)} origins known, {cache.in_flight} being asked"
        return f"<Gatekeeper {self._agent} ({self._mode}): {asked}>"
