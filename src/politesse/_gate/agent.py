"""The one question before each request: may I?

``peek`` is the hot path: the origin's key is the slice before the third slash, looked up in a dict whose keys were
validated when they were put in; a plain target is matched as it is, any other normalised first. Whatever is odd
(another spelling of the origin, a host policy, an entry that ran out) takes the slow road, which splits the URL and has
robots.txt asked for.
"""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakMethod

from politesse._constants import DAY_S
from politesse._gate.filtering import sift
from politesse._gate.state import Decided, LongDelay, MatchingBounded
from politesse._pacing.pace import PACES_HELD, longest_stated_s
from politesse._pacing.turns import holding, holds_turn_at, take, take_now
from politesse._sites.pages import Sitemaps, read_data_txt, read_sitemaps
from politesse._sites.reservations import NOTHING_RESERVED, OUT_OF_TURN, TDMREP_JSON, SiteAndReserved
from politesse.errors import ClosedError, ConfigurationError, InvalidURL
from politesse.origin import Origin, split
from politesse.ports import TurnRequest
from politesse.robots import RobotsTxt
from politesse.robots.pattern import is_plain
from politesse.robots.ruleset import ROBOTS_TXT
from politesse.verdict import WITHOUT_RULE, AccessResult, Disallowed, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable

    from politesse._cache.entry import Entry
    from politesse._gate.identity import Identity
    from politesse._gate.state import Shared
    from politesse._pacing.turns import Turn
    from politesse._sites.data_txt import FieldNames
    from politesse._sites.pages import DataTxtAnswer
    from politesse._sites.reservations import Reserved
    from politesse.clock import Clock
    from politesse.events import Event
    from politesse.robots import RuleSet
    from politesse.usage.model import Usage
    from politesse.verdict import Match, NotYet, StatesUsage

Item = TypeVar("Item")

_DISALLOW_RULE: Final = Reason.DISALLOW_RULE
_WHOLE_SITE: Final = {
    AccessResult.UNAVAILABLE: WITHOUT_RULE[Reason.UNAVAILABLE],
    AccessResult.FORBIDDEN: WITHOUT_RULE[Reason.FORBIDDEN],
    AccessResult.UNREACHABLE: WITHOUT_RULE[Reason.UNREACHABLE],
    AccessResult.TOO_MANY_REQUESTS: WITHOUT_RULE[Reason.TOO_MANY_REQUESTS],
}

_NOTHING_SAID: Final = RobotsTxt.parse(b"").rules_for("*")
"""The rules of a site without a robots.txt."""


class AgentView:
    """The gate as one agent passes it: made by ``Gatekeeper.agent``, and what a Gatekeeper is for its own agent.

    Args:
        shared: what it has in common with the gatekeeper.
        identity: for whom it judges.
        enforces: whether it holds to usage preferences where the gatekeeper does.

    Attributes:
        identity: the User-Agent and the product tokens that it judges for.
    """

    __slots__ = (
        "_agent",
        "_at_once",
        "_enforcement",
        "_entries",
        "_monotonic",
        "_normalise",
        "_policies",
        "_publisher",
        "_shared",
        "_wall",
        "identity",
    )

    def __init__(self, shared: Shared, identity: Identity, *, enforces: bool = True) -> None:
        self.identity = identity
        self._shared = shared
        self._agent = identity.agent
        # Held here as well, because the hot path would pay for each step on the way to them.
        self._entries = shared.cache.entries
        # Where preferences are enforced there is more to look at than rules: everything takes the slow road.
        self._enforcement = shared.enforcement if enforces else None
        plain = self._enforcement is None and shared.policy_tokens is None
        self._at_once = self._entries if plain else {}
        self._policies = shared.policies
        self._publisher = shared.publisher
        self._normalise = shared.cache.normalise
        self._monotonic = shared.clock.monotonic
        self._wall = shared.clock.wall

    def peek(self, url: str) -> Verdict | None:
        """Return the verdict on ``url`` if it is known now, else None. Waits for nothing and asks nobody.

        A copy that is near the end of its lifetime is asked for again behind the answer. Raises InvalidURL,
        ClosedError, WrongEventLoop.
        """
        try:
            place = url.find("/", 8)  # the third slash: behind "https://" and "http://" there is a host
        except AttributeError:  # costs nothing where it does not come
            raise TypeError(f"{url!r:.200} is no str: give the URL as text") from None
        if (
            place > 0
            and (entry := self._at_once.get(url[:place])) is not None
            and (not self._policies or entry.origin.pacing_host not in self._policies)
        ):
            rules = entry.rules.get(self._agent)
            now_mono, now_wall = self._monotonic(), self._wall()
            shared = self._shared
            loop = _get_running_loop()  # None where none is running: then what is known may be told all the same
            if (
                rules is not None
                and now_mono < entry.refresh_mono
                and now_wall < entry.refresh_wall
                and (loop is shared.loop or loop is None)
            ):
                target = url[place:]
                if is_plain(target) is not None and "/." not in target:
                    match = rules.decide(target)
                else:
                    match = self._match(url, target, rules)
                entry.used = True
                allowed = match.allowed
                if allowed:
                    shared.allowed += 1
                elif match.reason is _DISALLOW_RULE:
                    shared.disallowed += 1
                    allowed = shared.reports
                else:
                    allowed = shared.count(match.reason)
                age_s, wall_age_s = now_mono - entry.confirmed_mono, now_wall - entry.confirmed_wall
                if wall_age_s > age_s:  # noqa: PLR1730 - max() costs a call per decision
                    age_s = wall_age_s
                verdict = Verdict(url, self._agent, allowed, match, entry.source, age_s, "", rules.site_usage)
                if self._publisher.subscribers:
                    self._tell(verdict)
                return verdict
        return self._peek_slowly(url)

    async def check(self, url: str) -> Verdict:
        """Return the verdict on ``url``, asking for robots.txt first if need be. Waits for no pace.

        But where ``enforce_usage`` names ``tdm``, an unknown tdmrep.json is asked for in a turn of its own. Within a
        turn of the same host, be it that of another scheme or port, that cannot be waited for: then the reason is
        USAGE_UNKNOWN, and it is asked for behind the answer.

        Raises InvalidURL, and ClosedError.
        """
        verdict = self.peek(url)
        if verdict is not None:
            return verdict
        origin, target = split(url)
        enforcement = self._enforcement
        reserved = None
        if enforcement is not None and enforcement.needs_tdmrep(target):
            reserved = await self._learn(origin)
        entry = await self._entry(origin)
        # Looked at again: the host may have been settled while its robots.txt was waited for.
        verdict = self._by_policy(url, origin)
        return self._judge(url, entry, target, reserved) if verdict is None else verdict

    async def check_batch(self, urls: Iterable[str]) -> list[Verdict]:
        """Return the verdicts on ``urls`` in their order; the origins are asked at the same time.

        What is no URL gets a verdict with the reason INVALID_URL, so that it costs the others nothing. Raises
        ClosedError.
        """
        if isinstance(urls, str):
            raise TypeError(f"check_batch({urls!r:.100}): give an iterable of URLs, or use check for one")
        self._shared.check_usable()
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
        self._shared.check_usable()
        if max_pending < 1:
            raise ConfigurationError(f"max_pending={max_pending}: give at least 1")
        return sift(self, source, key, max_pending)

    @asynccontextmanager
    async def turn(
        self, url: str, *, max_wait_s: float | None = None, exempt: str | None = None
    ) -> AsyncGenerator[Turn, None]:
        """Wait until one request to ``url`` may be made, and hold that turn while the block runs.

        It covers one hop: request without following redirects, and take the next turn after leaving this one. The
        pause to the next request counts from the end of the block, however it ends.

        Args:
            url: what to request.
            max_wait_s: how long to wait at the most, for robots.txt and for the turn; None for as long as it takes.
            exempt: why this one is made without asking robots.txt, as in ``"by agreement"``; None where it is not.
                The pace is kept, and a policy that denies holds, all the same.

        Raises:
            Disallowed: if it may not be requested, be it found out after the wait.
            TooFar: if no turn comes within ``max_wait_s``; ``bound_by`` is ROBOTS_TXT if not even the verdict does.
            InvalidURL, ClosedError: as ``check`` does.
            ConfigurationError: for an exemption without a reason.
        """
        with await self.take_turn(url, max_wait_s=max_wait_s, exempt=exempt) as turn, holding(turn):
            yield turn

    async def take_turn(self, url: str, *, max_wait_s: float | None = None, exempt: str | None = None) -> Turn:
        """Wait as ``turn`` does, for a turn that outlives a block; whoever takes it has to end it."""
        self._shared.check_usable()
        gate = self if exempt is None else _Exemption(self, exempt)
        return await take(gate, self._shared.pacer, self._shared.clock, url, max_wait_s)

    def try_turn(self, url: str) -> Turn | NotYet:
        """Return a turn if there is one now, else when that may be; waits for nothing.

        An origin that is not known yet is asked for its robots.txt meanwhile. A turn that is not entered is given
        back with a ResourceWarning. Raises Disallowed, InvalidURL, ClosedError.
        """
        self._shared.check_usable()
        return take_now(self, self._shared.pacer, self._shared.clock, url)

    async def datatxt(self, origin: Origin | str, *, fields: FieldNames | None = None) -> DataTxtAnswer:
        """Return what an origin, given as such or as an URL of it, tells in its data.txt about its datasets.

        The file is asked for as a page is: only if robots.txt allows it, and in its turn, which may take as long as the
        pace of the host does. It is kept, and all who ask meanwhile share one request, which goes out as the
        gatekeeper's own; each hop of a redirect is permitted and has a turn. So do not wait for it within a turn of the
        same host. What it says has no effect on any verdict.

        Args:
            origin: whose.
            fields: names for its fields; see ``DataTxt.parse``.

        Raises InvalidURL, ClosedError.
        """
        self._shared.check_usable()
        return await read_data_txt(self, self._shared.files, self._shared.cache.reading, Origin.given(origin), fields)

    async def sitemaps(self, origin: Origin | str) -> Sitemaps:
        """Return the sitemaps that the robots.txt of an origin lists, asking for robots.txt first if need be.

        The origin is given as such or as an URL of it. Sitemaps are listed for everybody, so whoever asks gets the
        same. Raises InvalidURL, ClosedError.
        """
        self._shared.check_usable()
        origin = Origin.given(origin)
        verdict = self._by_policy(origin.robots_url, origin)
        if verdict is not None and not verdict.allowed:
            return Sitemaps(verdict=verdict)
        cache = self._shared.cache
        return await read_sitemaps(await cache.entry(origin, self._agent), cache.reading, self._agent)

    async def usage(self, url: str) -> Usage | None:
        """Return what a site says about the use of a page: in robots.txt, and in its tdmrep.json, asked for as a page.

        ``politesse.page.response_usage`` tells what its response says, and ``politesse.usage.combine`` joins the two.
        What could not be read is told. None where the page may not be requested. Within a turn of the same host an
        unknown tdmrep.json cannot be waited for. Raises InvalidURL, ClosedError.
        """
        verdict = await self.check(url)
        if verdict.usage is None:
            return None
        reserved = await self._learn(Origin.of(url))
        return SiteAndReserved(verdict.site_usage, reserved).usage(url)

    def when_ready(self, origin: Origin, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, when a turn may be had at the host of ``origin`` and nobody waits for it.

        It comes from the event loop; also when the gatekeeper is closed. ``try_turn`` tells whether there is a turn.
        Raises ClosedError.
        """
        self._shared.check_usable()
        entry = self._entries.get(str(origin))
        rules = None if entry is None else entry.rules.get(self._agent)  # a look is no time to forget a pace
        request = TurnRequest(origin.pacing_host, str(origin), self._agent, rules)
        self._shared.pacer.when_ready(request, callback)

    def when_closed(self, method: Callable[[ClosedError], None]) -> None:
        """Call a bound method with what to raise, before anything else raises it, when the gatekeeper is closed.

        At once if it is closed already; never once nobody else holds the object that the method is bound to.
        """
        closing = self._shared.closing
        if closing is None:
            method(ClosedError("the gatekeeper was closed"))
        else:
            closing[WeakMethod(method, lambda gone: closing.pop(gone, None))] = None

    def check_loop(self) -> None:
        """Raise WrongEventLoop if another event loop is running than the one to which the gate belongs."""
        self._shared.check_loop()

    @property
    def clock(self) -> Clock:
        """The clocks that it goes by."""
        return self._shared.clock

    def basis(self, url: str) -> object:
        """Return what a verdict on ``url`` rests on now: the cache entry and the host policy. Compare by equality."""
        origin = Origin.of(url)
        return self._entries.get(str(origin)), self._policies.get(origin.pacing_host)

    def pace_rules(self, origin: Origin) -> RuleSet | None:
        """Return the rules of ``origin`` that set its pace, None where it is not known; raises Disallowed.

        Tells, as an event, of a pace that is slower than ``max_crawl_delay_s``; Disallowed if such sites are skipped.
        """
        entry = self._entries.get(str(origin))
        rules = None
        if entry is not None and entry.answers(self._agent):
            rules = entry.rules.get(self._agent, _NOTHING_SAID)
        pacing = self._shared.pacing
        if (delay_s := self._too_slow_s(rules)) is None:
            return rules
        if self._publisher.subscribers:
            self._publisher.publish(LongDelay(origin, delay_s, pacing.on_long_crawl_delay))
        if pacing.on_long_crawl_delay == "skip":
            note = f"{delay_s:g} s between requests, where max_crawl_delay_s={pacing.max_crawl_delay_s:g}"
            raise Disallowed(self._verdict(origin.robots_url, WITHOUT_RULE[Reason.TOO_SLOW], entry, note))
        return rules

    def exempted(self, url: str, reason: str) -> Verdict:
        """Return the verdict on a URL that is exempt for ``reason``: allowed, unless a policy denies its host.

        Raises InvalidURL, ClosedError.
        """
        self._shared.check_usable()
        origin, _ = split(url)
        policy = self._policies.get(origin.pacing_host)
        if policy is not None and policy.deny:
            return self._verdict(url, WITHOUT_RULE[Reason.POLICY_DENY], note=policy.reason)
        return self._verdict(url, WITHOUT_RULE[Reason.POLICY_EXEMPT], note=reason)

    def checked_origin(self, url: str) -> Origin:
        """Return the origin of ``url``; raises InvalidURL for all that ``check`` raises it for, now or later."""
        origin, target = split(url)
        self._match(url, target, None)
        return origin

    def publish(self, event: Event) -> None:
        """Tell the subscribers; for integrations."""
        if self._publisher.subscribers:
            self._publisher.publish(event)

    def ask_ahead(self, origin: Origin) -> None:
        """Have asked for, without waiting, what has to be known of ``origin``: robots.txt, and then tdmrep.json."""
        cache = self._shared.cache
        entry = cache.valid(str(origin))
        if entry is None or not self._answers(entry):
            for agent in self._agents():
                cache.ask_ahead(origin, agent)
        elif self._enforcement is not None:
            self._shared.reservations.ask_ahead(self, origin)

    def peek_or_invalid(self, url: str) -> Verdict | None:
        """Do as ``peek`` does, with a verdict of the reason INVALID_URL instead of the error."""
        try:
            return self.peek(url)
        except InvalidURL as error:
            return self._verdict(url, WITHOUT_RULE[Reason.INVALID_URL], note=error.problem)

    def _peek_slowly(self, url: str) -> Verdict | None:
        self._shared.check_usable()
        origin, target = split(url)
        if (verdict := self._by_policy(url, origin)) is not None:
            return verdict
        cache = self._shared.cache
        entry = cache.valid(str(origin))
        if entry is not None and self._answers(entry):
            enforcement = self._enforcement
            if enforcement is None or not enforcement.needs_tdmrep(target):
                return self._judge(url, entry, target)
            reserved = self._reserved(entry)
            return None if reserved is None else self._judge(url, entry, target, reserved)
        match = self._match(url, target, None)
        return self._verdict(url, match) if match.reason is Reason.ROBOTS_TXT else None

    def _by_policy(self, url: str, origin: Origin) -> Verdict | None:
        policy = self._policies.get(origin.pacing_host)
        if policy is None or not (policy.deny or policy.exempt):
            return None
        reason = Reason.POLICY_DENY if policy.deny else Reason.POLICY_EXEMPT
        return self._verdict(url, WITHOUT_RULE[reason], note=policy.reason)

    def _match(self, url: str, target: str, rules: RuleSet | None) -> Match:
        """Return the match of a target as it was written; without rules, whether it is robots.txt."""
        try:
            if rules is not None:
                return rules.judge(target)
            return WITHOUT_RULE[Reason.ROBOTS_TXT if self._normalise(target) == ROBOTS_TXT else Reason.NO_RULE]
        except InvalidURL as error:
            raise InvalidURL(url, error.problem) from None  # the whole of it is what the caller gave

    def _agents(self) -> list[str]:
        """Return all for whom the rules have to be known: its own agent, and the policy tokens."""
        tokens = self._shared.policy_tokens
        return [self._agent] if tokens is None else [self._agent, *tokens.agents.values()]

    def _answers(self, entry: Entry) -> bool:
        return all(map(entry.answers, self._agents()))

    async def _entry(self, origin: Origin) -> Entry:
        """Return a valid entry that has the rules of all, asking for robots.txt if need be."""
        while True:
            entry = await self._shared.cache.entry(origin, self._agent)
            for agent in self._agents()[1:]:
                entry = await self._shared.cache.entry(origin, agent)
            if self._answers(entry):  # else it was let go of meanwhile, and got anew for the last one
                return entry

    def _decide(self, url: str, entry: Entry, target: str, agent: str) -> Match:
        successful = entry.source.result is AccessResult.SUCCESSFUL
        match = self._match(url, target, entry.rules[agent] if successful else None)
        if not successful and match.reason is not Reason.ROBOTS_TXT:
            match = _WHOLE_SITE[entry.source.result]
        return match

    def _judge(self, url: str, entry: Entry, target: str, reserved: Reserved | None = None) -> Verdict:
        match = self._decide(url, entry, target, self._agent)
        rules = entry.rules.get(self._agent)
        site_usage: StatesUsage | None = None if rules is None else rules.site_usage
        if self._shared.policy_tokens is not None:
            site_usage = self._shared.policy_tokens.usage_of(site_usage, entry.rules)
        if reserved is not None:
            site_usage = SiteAndReserved(site_usage, reserved)
        enforcement = self._enforcement
        if enforcement is not None and match.allowed:
            usage = None if site_usage is None else site_usage.usage(url)
            if (objection := enforcement.objection(target, usage, reserved)) is not None:
                not_before = None if reserved is None else reserved.not_before
                return self._verdict(url, WITHOUT_RULE[objection[0]], entry, objection[1], site_usage, not_before)
        return self._verdict(url, match, entry, site_usage=site_usage)

    async def _learn(self, origin: Origin) -> Reserved:
        """Return what tdmrep.json reserves, asking for it if need be and if that can be."""
        if not holds_turn_at(origin.pacing_host):
            return await self._shared.reservations.learn(self, origin)
        reserved = self._reserved(await self._entry(origin))
        if reserved is None:
            self.ask_ahead(origin)
        return OUT_OF_TURN if reserved is None else reserved

    def _reserved(self, entry: Entry) -> Reserved | None:
        """Return what tdmrep.json reserves; nothing where it is not to be asked for, None where it is not known."""
        # Whatever keeps it from being asked for has to be seen here, too: else it would be about to be known for ever.
        reader = self._shared.agent
        for agent in {self._agent, reader}:
            url = f"{entry.origin}{TDMREP_JSON}"
            if entry.answers(agent) and not self._decide(url, entry, TDMREP_JSON, agent).allowed:
                return NOTHING_RESERVED
        if self._shared.pacing.on_long_crawl_delay == "skip" and self._too_slow_s(entry.rules.get(reader)) is not None:
            return NOTHING_RESERVED
        # It was asked for in a turn, and the next one comes an interval later: it has to hold until then.
        late_s = min(PACES_HELD * longest_stated_s(entry.rules.values()), DAY_S)
        return self._shared.reservations.known(entry.origin, late_s=late_s)

    def _too_slow_s(self, rules: RuleSet | None) -> float | None:
        """Return the seconds between requests that rules ask for, where those are too many."""
        delay_s = 0.0 if rules is None else longest_stated_s([rules])
        return delay_s if delay_s > self._shared.pacing.max_crawl_delay_s else None

    def _verdict(
        self,
        url: str,
        match: Match,
        entry: Entry | None = None,
        note: str = "",
        site_usage: StatesUsage | None = None,
        not_before: float | None = None,
    ) -> Verdict:
        """Make, count and tell a verdict."""
        allowed = self._shared.count(match.reason)
        source, age_s = None, 0.0
        if entry is not None:
            source, age_s = entry.source, entry.age_s(self._monotonic(), self._wall())
            if not_before is not None:
                source = replace(source, not_before=not_before)
        verdict = Verdict(url, self._agent, allowed, match, source, age_s, note, site_usage)
        if self._publisher.subscribers:
            self._tell(verdict)
        return verdict

    def _tell(self, verdict: Verdict) -> None:
        self._publisher.publish(Decided(verdict))
        if verdict.match.bound_reached:
            self._publisher.publish(MatchingBounded(verdict))


class _Exemption:
    """A gate that lets one request through without asking robots.txt. Raises ConfigurationError without a reason."""

    __slots__ = ("_reason", "_view", "ask_ahead", "basis", "pace_rules")

    def __init__(self, view: AgentView, reason: str) -> None:
        given: object = reason  # exempt=True is soon written
        if not isinstance(given, str) or not given.strip():
            raise ConfigurationError(f"exempt={reason!r}: give the reason, as in exempt='our own server'")
        self._view = view
        self._reason = reason
        self.pace_rules = view.pace_rules
        self.ask_ahead = view.ask_ahead
        self.basis = view.basis

    async def check(self, url: str, /) -> Verdict:
        return self._view.exempted(url, self._reason)

    def peek(self, url: str, /) -> Verdict:
        return self._view.exempted(url, self._reason)
