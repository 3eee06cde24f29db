"""What the gate knows and does for one agent: the plain way of a question, and what turns, queues and adapters need.

The way of a question is the same for ``check`` and ``peek``: the entry of the origin comes from the cache, it becomes
evidence, ``judge`` judges that, and the judgement becomes a verdict that is counted and published. ``check`` waits for
the entry where it is unknown. ``AgentView.peek`` is a shortcut for the usual case; it must return what ``peek`` here
returns.

A verdict is counted and published when it is given. A queue judges a URL more often than that: when it is put, and each
time it finds that the host is not ready. So ``judged``, ``learn``, ``try_turn`` and ``take_turn`` do neither;
``counted`` does.

No user sees an Agent: the methods of AgentView and Gatekeeper are the public ones.
"""

from __future__ import annotations

from asyncio import _get_running_loop
from dataclasses import replace
from logging import DEBUG
from typing import TYPE_CHECKING, Final
from weakref import WeakMethod

from politesse._constants import AGREE_S
from politesse._gate.judge import Evidence, Judgement, judge, match_rules, match_without_file, settle
from politesse._log import GATE
from politesse._pacing.held import turn_in_the_way
from politesse._pacing.pace import longest_stated_s
from politesse._pacing.turns import Taking, take_now
from politesse._reasons import BY_POLICY
from politesse.errors import ClosedError, ConfigurationError, ConfigurationTypeError, Disallowed, InvalidURL
from politesse.events import Decided, LongDelay, MatchingBounded
from politesse.origin import Origin, split
from politesse.ports import TurnRequest
from politesse.robots import RobotsTxt, RuleSet
from politesse.robots.pattern import is_plain
from politesse.verdict import WITHOUT_RULE, Match, Reason, StatesUsage, Verdict, utc, verdict_of_hit

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Awaitable, Callable

    from politesse._cache.entry import Entry
    from politesse._gate.host_policy import HostPolicy
    from politesse._gate.identity import Identity
    from politesse._gate.state import GateState
    from politesse._pacing.held import Turn
    from politesse.events import Event
    from politesse.verdict import NotYet

_NO_FILE: Final = RobotsTxt.parse(b"").rules_for("*")
"""The rules of a site without a robots.txt."""


class Agent:
    """The gate for one agent.

    Args:
        state: the parts that all agents of a gatekeeper share.
        identity: the User-Agent and the product tokens to judge for.

    Attributes:
        state: see above.
        identity: see above.
        name: the product tokens as one name, by which entries hold rules.
        pacer: that of the gate.
        clock: the clocks of the gate.
    """

    __slots__ = ("_all_names", "_at_once", "clock", "identity", "name", "pacer", "state")

    def __init__(self, state: GateState, identity: Identity) -> None:
        self.state = state
        self.identity = identity
        self.name = identity.agent
        self.pacer = state.pacer
        self.clock = state.clock
        # The rules of policy tokens have to be known, too: they state usage preferences.
        self._all_names = (self.name, *state.policy_tokens.agents.values()) if state.policy_tokens else (self.name,)
        self._at_once = {} if state.policy_tokens else state.cache.entries  # what the shortcut may judge by

    def peek(self, url: str) -> Verdict | None:
        """Return the verdict on ``url`` if it is known now, else None; see ``AgentView.peek``."""
        verdict = self.judged(url)
        return None if verdict is None else self.counted(verdict)

    def judged(self, url: str) -> Verdict | None:
        """Return what ``peek`` does, neither counted nor published."""
        known = self.known(url) if self.state.loop is _get_running_loop() else None
        return self._judged_plainly(url) if known is None else known[0]

    def known(self, url: str) -> tuple[Verdict, Entry] | None:
        """Return what ``judged`` does, and the entry that it rests on, where rules alone decide and are fresh.

        The shortcut of ``AgentView.peek``, for turns and queues: a third of the time of the plain way, which None asks
        for. The caller has found that the running event loop is the gate's, which takes half as long as a decision.
        """
        state = self.state
        place = url.find("/", 8)  # the third slash, as in ``AgentView.peek``
        entry = self._at_once.get(url[:place]) if place > 0 else None
        if entry is None:
            return None
        if (grounds := entry.grounds).agent is self.name:
            rules = entry.deciding
        else:
            rules, grounds = entry.turn_to(self.name), entry.grounds
        now_mono, now_wall = self.clock.monotonic(), self.clock.wall()
        if (
            rules is None
            or now_mono >= entry.refresh_mono
            or now_wall >= entry.refresh_wall
            # The wall clock was set back: the cache has to move the entry's times.
            or (now_mono - entry.confirmed_mono) - (now_wall - entry.confirmed_wall) >= AGREE_S
            or (state.policies and entry.origin.pacing_host in state.policies)
        ):
            return None
        entry.used = True
        target = url[place:]
        if is_plain(target) is not None and "/." not in target:
            match = rules.decide(target)
        else:
            match = match_rules(url, target, rules)
        return verdict_of_hit(url, match.allowed or state.reports, match, grounds, now_mono, now_wall), entry

    def _judged_plainly(self, url: str) -> Verdict | None:
        self.state.check_usable()
        origin, target = split(url)
        settled = settle(self._policy(origin))
        if settled is not None:
            return self._made(url, settled)
        entry = self.known_entry(origin)
        if entry is not None:
            evidence = self.evidence(url, target, entry)
            return None if evidence is None else self.verdict(evidence, entry)
        match = match_without_file(url, target, self.state.cache.normalise)
        return self._made(url, Judgement(match)) if match.reason is Reason.ROBOTS_TXT else None

    async def check(self, url: str) -> Verdict:
        """Return the verdict on ``url``, fetching what has to be known first; see ``AgentView.check``."""
        return self.counted(await self.learn(url))

    async def learn(self, url: str) -> Verdict:
        """Return what ``check`` does, neither counted nor published."""
        verdict = self.judged(url)
        return await self.fetched(url) if verdict is None else verdict

    async def fetched(self, url: str) -> Verdict:
        """Return the verdict on a URL on which ``judged`` has just returned None: fetch what has to be known first."""
        origin, target = split(url)
        entry = await self.entry(origin)
        return self.verdict(self.plain_evidence(url, target, entry), entry)

    def invalid(self, error: InvalidURL) -> Verdict:
        """Return the verdict on what is no URL."""
        return self._verdict(error.url, Judgement(WITHOUT_RULE[Reason.INVALID_URL], error.problem))

    def exempted(self, url: str, reason: str) -> Verdict:
        """Return the verdict on a URL that is exempt for ``reason``: allowed, unless a policy denies its host.

        It is neither counted nor published.

        Raises:
            InvalidURL: if ``url`` is none.
            ClosedError: if the gatekeeper is closed.
        """
        self.state.check_usable()
        origin, _ = split(url)
        policy = self._policy(origin)
        if policy is not None and policy.deny:
            return self._made(url, Judgement(WITHOUT_RULE[Reason.POLICY_DENY], policy.reason))
        return self._made(url, Judgement(WITHOUT_RULE[Reason.POLICY_EXEMPT], reason))

    def by_policy(self, url: str, origin: Origin) -> Verdict | None:
        """Return the verdict of a host policy that denies or exempts; None where robots.txt decides."""
        settled = settle(self._policy(origin))
        return None if settled is None else self._verdict(url, settled)

    def known_entry(self, origin: Origin) -> Entry | None:
        """Return the entry of ``origin`` if it is valid and answers this agent; a refresh that is due is started."""
        entry = self.state.cache.valid(str(origin))
        return entry if entry is not None and self._answers(entry) else None

    async def entry(self, origin: Origin) -> Entry:
        """Return a valid entry that answers this agent and the policy tokens, fetching robots.txt if need be."""
        cache = self.state.cache
        while True:
            entry = await cache.entry(origin, self.name)
            for name in self._all_names[1:]:
                entry = await cache.entry(origin, name)
            if self._answers(entry):  # otherwise it was evicted meanwhile, and fetched again for the last name only
                return entry

    def evidence(self, url: str, target: str, entry: Entry) -> Evidence | None:
        """Return what a verdict on ``url`` rests on; None where more than ``entry`` has to be fetched first."""
        return self.plain_evidence(url, target, entry)

    def plain_evidence(self, url: str, target: str, entry: Entry) -> Evidence:
        """Return what host policies and robots.txt say about ``url``."""
        rules = entry.rules.get(self.name)
        site_usage: StatesUsage | None = None if rules is None else rules.site_usage
        if self.state.policy_tokens is not None:
            site_usage = self.state.policy_tokens.usage_of(site_usage, entry.rules)
        policy = self._policy(entry.origin)
        normalise = self.state.cache.normalise
        return Evidence(url, target, normalise, policy, entry.source.result, rules, site_usage)

    def verdict(self, evidence: Evidence, entry: Entry) -> Verdict:
        """Return the judgement on ``evidence`` as a verdict, neither counted nor published."""
        return self._made(evidence.url, judge(evidence), entry, evidence.site_usage)

    def counted(self, verdict: Verdict) -> Verdict:
        """Count and publish a verdict that is given now."""
        state, match = self.state, verdict.match
        if match.allowed:
            state.allowed += 1  # as ``count``, without the call
        else:
            state.count(match.reason)
        if state.publisher.subscribers or (not match.allowed and GATE.isEnabledFor(DEBUG)) or match.bound_reached:
            self.publish_verdict(verdict)
        return verdict

    def try_turn(self, url: str) -> Turn | NotYet:
        """Return what ``AgentView.try_turn`` does; the verdict of a turn is neither counted nor published.

        Raises:
            Disallowed: if ``url`` may not be requested; not counted either, except TOO_SLOW: ``pace_rules`` counts it.
        """
        state = self.state
        state.check_usable()
        return take_now(self.judged, self, url)

    async def take_turn(self, url: str, max_wait_s: float | None) -> Turn:
        """Wait for a turn as ``AgentView.take_turn`` does; the verdict is counted as ``try_turn`` says."""
        state = self.state
        state.check_usable()
        return await Taking(self, self, url, max_wait_s, counts=False).take()

    def wait_too_long(self, url: str, answer: NotYet) -> Verdict:
        """Return the verdict on a URL whose host is not waited for any longer, neither counted nor published."""
        origin, _ = split(url)
        note = f"{answer.bound_by} until {utc(answer.not_before)}"
        judgement = Judgement(WITHOUT_RULE[Reason.WAIT_TOO_LONG], note, answer.not_before)
        verdict = self._made(url, judgement, self.state.cache.entries.get(str(origin)))
        verdict.allowed = False  # in report mode, too: it is no matter of permission
        return verdict

    def match(self, url: str, target: str, entry: Entry, name: str) -> Match:
        """Return whether the robots.txt of ``entry`` permits an agent to request ``url``."""
        rules = entry.rules.get(name)
        return judge(Evidence(url, target, self.state.cache.normalise, None, entry.source.result, rules)).match

    def basis(self, origin: Origin) -> object:
        """Return what verdicts on ``origin`` rest on now: the cache entry and the host policy. Compare by equality."""
        state = self.state
        entry = state.cache.entries.get(origin.text)
        policy = state.policies.get(origin.pacing_host) if state.policies else None
        return entry if policy is None else (entry, policy)

    def unpaced_site(self, url: str) -> Entry | None:
        """Return the entry of the origin of ``url`` if it says all that a turn needs; else ``pace_rules`` has to.

        It does for the usual site: it has no host policy, states no pace, and its robots.txt was not answered with 429.
        """
        place = url.find("/", 8)
        entry = self._at_once.get(url[:place]) if place > 0 else None
        if entry is None or (self.state.policies and entry.origin.pacing_host in self.state.policies):
            return None
        if entry.grounds.agent is not self.name and entry.turn_to(self.name) is None:
            return None
        return entry if entry.is_unpaced else None

    def pace_rules(self, origin: Origin) -> RuleSet | None:
        """Return the rules of ``origin`` that set its pace, None where it is not known.

        A pace that is slower than ``max_crawl_delay_s`` is published as LongDelay.

        Raises:
            Disallowed: if sites with such a pace are skipped.
        """
        state = self.state
        rules = self._stated(origin)
        delay_s = self.too_long_s(rules)
        if delay_s is None:
            return rules
        self.publish(LongDelay(origin, delay_s, state.pacing.on_long_crawl_delay))
        if state.pacing.on_long_crawl_delay == "skip":
            note = f"{delay_s:g} s between requests, where max_crawl_delay_s={state.pacing.max_crawl_delay_s:g}"
            entry = state.cache.entries.get(origin.text)
            verdict = self._made(origin.robots_url, Judgement(WITHOUT_RULE[Reason.TOO_SLOW], note), entry)
            verdict.allowed = False  # in report mode, too, as in wait_too_long
            raise Disallowed(self.counted(verdict))
        return rules

    def too_long_s(self, rules: RuleSet | None) -> float | None:
        """Return the seconds between requests that rules state, where those are more than ``max_crawl_delay_s``."""
        delay_s = 0.0 if rules is None else longest_stated_s((rules,))
        return delay_s if delay_s > self.state.pacing.max_crawl_delay_s else None

    def known_rules(self, origin: Origin) -> RuleSet | None:
        """Return the rules of ``origin``; None where it has none, or none are known."""
        entry = self.state.cache.entries.get(str(origin))
        return None if entry is None else entry.rules.get(self.name)

    def known_file(self, origin: Origin) -> bytes | None:
        """Return the digest of the file of ``origin``; None where there is no file, or none is known."""
        entry = self.state.cache.entries.get(str(origin))
        return None if entry is None or entry.file_rules is None else entry.file_rules.digest

    def may_wait_long(self, origin: Origin, wait_s: float) -> bool:
        """Return whether ``origin`` states what may make a page wait for longer than ``wait_s``, or be TOO_SLOW."""
        rules = self.known_rules(origin)
        if rules is None:
            return False
        return rules.timetable.is_timed or longest_stated_s([rules]) > min(wait_s, self.state.pacing.max_crawl_delay_s)

    def ask_ahead(self, origin: Origin) -> None:
        """Have what a verdict needs fetched, without waiting."""
        if self.known_entry(origin) is None:
            for name in self._all_names:
                self.state.cache.ask_ahead(origin, name)

    def turn_in_the_way(self, host: str) -> Turn | None:
        """Return a turn of the current task that keeps it from another one at a pacing host; None for none."""
        return turn_in_the_way(self.state.pacer, host)

    def when_ready(self, origin: Origin, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, when a turn may be had at the host of ``origin`` and nobody waits for it.

        It is called from the event loop, and also when the gatekeeper is closed. ``try_turn`` says whether there is a
        turn.

        Raises:
            ClosedError: if the gatekeeper is closed.
        """
        self.state.check_usable()
        self.state.pacer.when_ready(self._request(origin), callback)

    def when_near(self, origin: Origin, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, when ``when_ready`` should be called so that a turn is reserved when it is due.

        Raises:
            ClosedError: if the gatekeeper is closed.
        """
        self.state.check_usable()
        self.state.pacer.when_near(self._request(origin), callback)

    def when_closed(self, method: Callable[[ClosedError], None]) -> None:
        """Call a bound method with the error to raise when the gatekeeper is closed, before anything else raises it.

        It is called at once if the gatekeeper is closed already, and never once its object is garbage.
        """
        closing = self.state.closing
        if closing is None:
            method(ClosedError("the gatekeeper was closed"))
        else:
            closing[WeakMethod(method, lambda gone: closing.pop(gone, None))] = None

    def close_with_gate(self, aclose: Callable[[], Awaitable[None]]) -> None:
        """Have the close of the gatekeeper wait for the end of ``aclose``."""
        self.state.closed_with[aclose] = None

    def closed_before_gate(self, aclose: Callable[[], Awaitable[None]]) -> None:
        """Forget what was given to ``close_with_gate``: it was closed."""
        self.state.closed_with.pop(aclose, None)

    def check_loop(self) -> None:
        """Raise WrongEventLoop if another event loop is running than the one to which the gate belongs."""
        self.state.check_loop()

    @property
    def loop(self) -> AbstractEventLoop | None:
        """The event loop to which the gate belongs; None while it was used in none."""
        return self.state.loop

    def checked_origin(self, url: str) -> Origin:
        """Return the origin of ``url``; raises InvalidURL for all that ``check`` raises it for, now or later."""
        origin, target = split(url)
        match_without_file(url, target, self.state.cache.normalise)
        return origin

    def publish(self, event: Event) -> None:
        """Log and publish an event; for integrations."""
        self.state.publisher.publish(event)

    def publish_verdict(self, verdict: Verdict) -> None:
        """Publish what there is to say of a verdict."""
        publish = self.state.publisher.publish
        publish(Decided(verdict))
        if verdict.match.bound_reached:
            publish(MatchingBounded(verdict))

    def _request(self, origin: Origin) -> TurnRequest:
        return TurnRequest(origin.pacing_host, str(origin), self.name, self._stated(origin))

    def _stated(self, origin: Origin) -> RuleSet | None:
        """Return the rules of ``origin``, those of no file where it has none; None where it is not known."""
        entry = self.state.cache.entries.get(origin.text)
        rules = None if entry is None else entry.rules.get(self.name)
        return _NO_FILE if rules is None and entry is not None and entry.answers(self.name) else rules

    def _policy(self, origin: Origin) -> HostPolicy | None:
        return self.state.policies.get(origin.pacing_host)

    def _answers(self, entry: Entry) -> bool:
        return all(map(entry.answers, self._all_names))

    def _verdict(
        self, url: str, judgement: Judgement, entry: Entry | None = None, site_usage: StatesUsage | None = None
    ) -> Verdict:
        """Make, count and publish a verdict."""
        return self.counted(self._made(url, judgement, entry, site_usage))

    def _made(
        self, url: str, judgement: Judgement, entry: Entry | None = None, site_usage: StatesUsage | None = None
    ) -> Verdict:
        """Make a verdict. ``entry`` is its source, unless a host policy decided."""
        state, match = self.state, judgement.match
        source, age_s = None, 0.0
        if entry is not None and match.reason not in BY_POLICY:
            source, age_s = entry.source, entry.age_s(state.clock.monotonic(), state.clock.wall())
            if judgement.not_before is not None:
                source = replace(source, not_before=judgement.not_before)
        allowed = match.allowed or state.reports
        return Verdict(url, self.name, allowed, match, source, age_s, judgement.note, site_usage)


class Exemption:
    """Answers for requests that are exempt from robots.txt for a reason.

    Raises:
        ConfigurationError: if no reason is given.
    """

    __slots__ = ("_agent", "_reason")

    def __init__(self, agent: Agent, reason: str) -> None:
        given: object = reason  # exempt=True is soon written
        if not isinstance(given, str) or not given.strip():
            kind = ConfigurationError if isinstance(given, str) else ConfigurationTypeError
            raise kind(f"exempt={reason!r:.100}: give the reason, as in exempt='our own server'")
        self._agent = agent
        self._reason = reason

    def known(self, _: str, /) -> None:
        """Return None: robots.txt, which a shortcut would go by, does not decide."""

    async def learn(self, url: str, /) -> Verdict:
        """Return the verdict; see ``Agent.exempted``."""
        return self._agent.exempted(url, self._reason)

    def judged(self, url: str, /) -> Verdict:
        """Return the verdict; see ``Agent.exempted``."""
        return self._agent.exempted(url, self._reason)
