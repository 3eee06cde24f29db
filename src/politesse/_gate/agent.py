"""The gate for one agent, as other packages use it.

Theory of operation. A verdict that needs more than rules is made in these steps: the agent takes the entry of the
origin from the cache, and makes evidence from the entry; ``judge`` judges the evidence; the agent makes a verdict from
the judgement. ``hit`` is a short cut: it returns a verdict if the entry is fresh and the rules alone decide. ``peek``,
``check``, turns and queues all begin with ``hit``.

A queue judges a URL several times: when the URL is put, and each time its host is not ready. So the methods that judge
a URL do not count the verdict. A method that returns a verdict to the user passes the verdict to ``counted``, which
counts and publishes the verdict. In this module, ``invalid`` and ``site_file`` call ``counted``, and ``turn_request``
calls it for a TOO_SLOW verdict.
"""

from __future__ import annotations

from logging import DEBUG
from typing import TYPE_CHECKING, Final, TypeAlias

from politesse._base.text import public_url
from politesse._cache.options import is_fault_of_kind
from politesse._gate.judge import Evidence, HostPolicy, Judgement, judge, match_rules, match_without_file
from politesse._gate.pages import denied_file
from politesse._gate.turn import Turn, blocking_turn
from politesse._log import GATE
from politesse._pacing.pace import longest_stated_s
from politesse.errors import Disallowed, InvalidURL, TurnHeld
from politesse.events import Decided, Event, LongDelay, MatchingBounded
from politesse.origin import Origin, split
from politesse.ports import FaultKind, TurnRequest
from politesse.robots import RobotsTxt, RuleSet
from politesse.verdict import (
    WITHOUT_RULE,
    Bound,
    NotYet,
    Reason,
    StatesUsage,
    Verdict,
    url_to_request,
    utc,
    verdict_of_basis,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse._cache.files import SiteFile, SiteFiles
    from politesse._cache.outcome import Copy
    from politesse._gate.identity import Identity
    from politesse._gate.state import GateState
    from politesse._gate.usage import AgentUsage
    from politesse.clock import Clock
    from politesse.ports import Pacer

GateContext: TypeAlias = "tuple[Copy | None, HostPolicy | None, object]"
"""The context of a verdict: the cache entry, the host policy, and tdmrep.json if its reservations are enforced.

Compare contexts by equality: a verdict holds as long as its context stays equal.
"""

_NO_FILE: Final = RobotsTxt.parse(b"").rules_for("*")
"""The rules of a site without a robots.txt."""


class Agent:
    """The gate for one agent, as queues and integrations use it. AgentView adds the methods for users.

    Args:
        enforcement: enforces usage preferences; None to ignore them.

    Attributes:
        state: the parts that all agents of a gatekeeper share.
        identity: the User-Agent and the product tokens to judge for.
        name: the product tokens as one name, the key of the rules in each entry.
    """

    __slots__ = ("_all_names", "_enforcement", "_hits", "clock", "identity", "name", "pacer", "state")

    def __init__(self, state: GateState, identity: Identity, enforcement: AgentUsage | None = None) -> None:
        self.state: GateState = state
        self.identity: Identity = identity
        self.name: str = identity.agent
        self.pacer: Pacer = state.pacer
        self.clock: Clock = state.clock
        self._enforcement = enforcement
        # The groups of policy tokens state usage preferences, so an entry needs the rules of these tokens as well.
        self._all_names = (self.name, *state.policy_tokens.agents.values()) if state.policy_tokens else (self.name,)
        # If usage is enforced or policy tokens are read, rules alone do not decide.
        self._hits = {} if enforcement is not None or state.policy_tokens else state.cache.entries

    def hit(self, url: str) -> tuple[Verdict, Copy] | None:
        """Return the verdict on ``url`` and its entry, if fresh rules alone decide.

        The part of ``url`` before the third slash is the key of the entry. This part needs no validation, because every
        key in the cache is a valid origin. The rules normalise the target if necessary. The context of the verdict is
        ``(entry, None, None)``.

        The result is None if the origin is not in normal form, or has a host policy. It is also None if the entry is
        missing, expired or due for a refresh. With enforced usage or policy tokens the result is always None. Call
        ``check_usable`` before ``hit``. If ``hit`` returns None, call ``judged``.
        """
        place = url.find("/", 8)  # the host begins after "https://" or "http://"
        entry = self._hits.get(url[:place]) if place > 0 else None
        if entry is None:
            return None
        state = self.state
        rules = entry.deciding if entry.basis.agent is self.name else entry.select_agent(self.name)
        now_mono, now_wall = self.clock.monotonic(), self.clock.wall()
        if (
            rules is None
            or now_mono >= entry.refresh_mono
            or now_wall >= entry.refresh_wall
            or entry.origin.pacing_host in state.policies
        ):
            return None
        entry.used = True
        match = match_rules(url, url[place:], rules)
        return verdict_of_basis(url, match.allowed or state.reports, match, entry.basis, now_mono, now_wall), entry

    def judged(self, url: str) -> Verdict | None:
        """Return the verdict on ``url``, or None if a fetch is needed. Does not count or publish the verdict."""
        self.state.check_usable()
        hit = self.hit(url)
        if hit is not None:
            return hit[0]
        origin, target = split(url)
        policy = self.state.policy(origin)
        if policy is not None and policy.deny and (not self.state.reports or self.state.is_private(origin)):
            return self._denied(url, origin, policy)
        if policy is not None and policy.exempt:
            return self._made(url, Judgement(WITHOUT_RULE[Reason.POLICY_EXEMPT], policy.reason))
        entry = self.known_entry(origin)
        if entry is not None:
            evidence = self._evidence(url, target, entry)
            enforced = evidence if self._enforcement is None else self._enforcement.known(evidence, entry)
            return None if enforced is None else self._made(url, judge(enforced), entry, enforced.site_usage)
        match = match_without_file(url, target, self.state.cache.normalise)
        if match.reason is not Reason.ROBOTS_TXT or self.state.public_resolver is not None:
            return None  # only a fetch shows whether the host has a private address
        return self._made(url, Judgement(match))

    async def learn(self, url: str) -> Verdict:
        """Return the verdict on ``url``; fetch robots.txt if needed. Does not count or publish the verdict."""
        verdict = self.judged(url)
        return (await self.fetched(url))[0] if verdict is None else verdict

    async def learn_context(self, url: str) -> tuple[Verdict, GateContext]:
        """Return the verdict of ``learn``, and its context, which holds the entry even if the cache evicts it."""
        verdict = self.judged(url)
        return await self.fetched(url) if verdict is None else (verdict, self.context(split(url)[0]))

    async def fetched(self, url: str) -> tuple[Verdict, GateContext]:
        """Fetch robots.txt, and return the verdict with its context; called after ``judged`` has returned None."""
        origin, target = split(url)
        enforcement = self._enforcement
        reserved = None if enforcement is None else await enforcement.learn(origin, target)
        entry = await self.entry(origin)
        evidence = self._evidence(url, target, entry)
        if enforcement is not None:
            evidence = enforcement.enforced(evidence, reserved)
        return self._made(url, judge(evidence), entry, evidence.site_usage), self.context(origin, entry)

    def invalid(self, error: InvalidURL) -> Verdict:
        """Return the verdict on an invalid URL."""
        return self.counted(self._made(error.url, Judgement(WITHOUT_RULE[Reason.INVALID_URL], error.problem)))

    def exempted(self, url: str, reason: str) -> Verdict:
        """Return the verdict on a URL that is exempt for ``reason``.

        It allows the URL, unless a policy denies the host. The verdict is neither counted nor published.

        Raises:
            InvalidURL: if ``url`` is not an absolute http(s) URL.
            ClosedError: if the gatekeeper is closed.
        """
        self.state.check_usable()
        origin, _ = split(url)
        policy = self.state.policy(origin)
        if policy is not None and policy.deny:
            return self._denied(url, origin, policy)
        return self._made(url, Judgement(WITHOUT_RULE[Reason.POLICY_EXEMPT], reason))

    def known_entry(self, origin: Origin) -> Copy | None:
        """Return the valid entry of ``origin`` if it has the rules of this agent; start a refresh that is due."""
        entry = self.state.cache.valid(origin.text)
        return entry if entry is not None and self._answers(entry) else None

    async def entry(self, origin: Origin) -> Copy:
        """Return a valid entry with the rules of this agent and the policy tokens; fetch robots.txt if needed."""
        cache = self.state.cache
        while True:
            entry = await cache.entry(origin, self.name)
            for name in self._all_names[1:]:
                entry = await cache.entry(origin, name)
            # The fetch for one name may have replaced the entry with the rules of another name.
            if len(self._all_names) == 1 or self._answers(entry):
                return entry

    def counted(self, verdict: Verdict) -> Verdict:
        """Count and publish ``verdict``, and return it."""
        state, match = self.state, verdict.match
        if match.allowed:
            state.allowed += 1
        else:
            state.denied[match.reason] += 1
        if state.ledger is not None:
            state.ledger.record(verdict)
        if state.publisher.subscribers or (not match.allowed and GATE.isEnabledFor(DEBUG)) or match.bound_reached:
            self.publish(Decided(verdict))
            if match.bound_reached:
                self.publish(MatchingBounded(verdict))
        return verdict

    def turn_request(
        self, origin: Origin, url: str, verdict: Verdict, context: GateContext, check: Callable[[], None] | None = None
    ) -> TurnRequest:
        """Return the request for the pacer. If the host answered robots.txt with 429, close the host first.

        Raises:
            Disallowed: if ``verdict`` denies, or if the pace is too slow and ``on_long_crawl_delay`` is ``"skip"``.
        """
        if not verdict.allowed:
            raise Disallowed(verdict)
        source, host = verdict.source, origin.pacing_host
        if source is not None and source.of_host and source.not_before is not None and verdict.match.allowed:
            # The verdict allows the URL in spite of the 429: an older copy is still used, or the gate is in report
            # mode.
            self.pacer.close_host(host, source.not_before, Bound.RETRY_AFTER)
        rules = self._stated(context[0])
        if rules is not None and (rules.crawl_delay or rules.request_rates):
            self._check_pace(origin, rules)
        shown, floor_s = public_url(url), self.state.policies.floor_s(host)
        return TurnRequest(host, origin.text, self.name, rules, shown, floor_s, check)

    def given_up(self, url: str, answer: NotYet) -> Verdict:
        """Return the verdict on a URL whose wait is too long, or whose host refuses this crawler.

        The verdict is neither counted nor published.
        """
        reason, note = Reason.WAIT_TOO_LONG, f"{answer.bound_by} until {utc(answer.not_before)}"
        if answer.refusal is not None:
            reason, note = Reason.REFUSED, str(answer.refusal)
        return self._refused(url, split(url)[0], reason, note, answer.not_before)

    def context(self, origin: Origin, entry: Copy | None = None) -> GateContext:
        """Return the present context of verdicts on ``origin``, or that of ``entry``."""
        state, enforcement = self.state, self._enforcement
        entry, policy = entry or state.cache.held(origin.text), state.policies.get(origin.pacing_host)
        return entry, policy, None if enforcement is None else enforcement.basis(origin)

    def counts(self, url: str, verdict: Verdict, context: GateContext) -> bool:
        """Return whether a verdict is about ``url``, and still counts, because its context has not changed."""
        origin, _ = split(url)
        is_same = url_to_request(verdict) == url and self.known_entry(origin) is context[0]
        return is_same and self.context(origin) == context

    def too_long_s(self, rules: RuleSet | None) -> float | None:
        """Return the interval in seconds that the rules state, if it exceeds ``max_crawl_delay_s``."""
        delay_s = 0.0 if rules is None else longest_stated_s((rules,))
        return delay_s if delay_s > self.state.pacing.max_crawl_delay_s else None

    def known_file(self, origin: Origin) -> bytes | None:
        """Return the digest of the cached file of ``origin``, or None."""
        entry = self.state.cache.held(origin.text)
        return None if entry is None else entry.rules.digest or None

    def may_wait_long(self, origin: Origin, wait_s: float) -> bool:
        """Return whether the rules of ``origin`` may delay a page by more than ``wait_s``, or make it TOO_SLOW."""
        entry = self.state.cache.held(origin.text)
        rules = None if entry is None else entry.rules.get(self.name)
        if rules is None:
            return False
        return rules.timetable.is_timed or longest_stated_s([rules]) > min(wait_s, self.state.pacing.max_crawl_delay_s)

    def ask_ahead(self, origin: Origin) -> None:
        """Start to fetch the files that a verdict needs, and do not wait for them."""
        if self.known_entry(origin) is None:
            for name in self._all_names:
                self.state.cache.ask_ahead(origin, name)
        elif self._enforcement is not None:
            self._enforcement.ask_ahead(origin)

    def blocking_turn(self, host: str) -> Turn | None:
        """Return a turn of the current task that has to end before the task gets another turn at a paced host."""
        return blocking_turn(self.pacer, host)

    async def site_file(self, files: SiteFiles, origin: Origin, path: str) -> SiteFile:
        """Return the file of ``origin`` at ``path``, or the verdict that denies it to this agent.

        RFC 9309 2.2.2 exempts only /robots.txt itself. Any other file that robots.txt denies is neither fetched nor
        returned from the cache.

        Raises:
            TurnHeld: if the file has to be fetched, and the fetch would wait for a turn that this task holds.
            ClosedError: if the gatekeeper is closed.
        """
        url = f"{origin}{path}"
        verdict = self.counted(await self.learn(url))
        if not verdict.allowed:
            return denied_file(url, verdict)
        held = self.blocking_turn(origin.pacing_host)
        if held is not None and files.peek(origin, path) is None:
            raise TurnHeld(verdict.url, held_by=held.url)
        try:
            return await files.get(origin, path)
        except Disallowed as error:  # robots.txt may deny the file to the gatekeeper's own agent
            return denied_file(url, error.verdict)

    def when_ready(self, origin: Origin, callback: Callable[[], None]) -> None:
        """Let ``callback`` wait in line at the host of ``origin``; call it once, when it is first and a turn may start.

        The event loop also calls ``callback`` when the gatekeeper closes. The turn is not taken yet: call ``try_turn``
        in the callback or later.

        Raises:
            ClosedError: if the gatekeeper is closed.
        """
        self.state.check_usable()
        host, rules = origin.pacing_host, self._stated(self.state.cache.held(origin.text))
        floor_s = self.state.policies.floor_s(host)
        request = TurnRequest(host, origin.text, self.name, rules, min_delay_s=floor_s)
        self.pacer.when_ready(request, callback)

    def checked_origin(self, url: str) -> Origin:
        """Return the origin of ``url``; raise InvalidURL for each URL that ``check`` could reject as invalid."""
        origin, target = split(url)
        match_without_file(url, target, self.state.cache.normalise)
        return origin

    def publish(self, event: Event) -> None:
        """Log and publish an event; for integrations."""
        self.state.publisher.publish(event)

    def _stated(self, entry: Copy | None) -> RuleSet | None:
        """Return the rules that set the pace of an origin; empty if it has no file, None if robots.txt is unknown."""
        rules = None if entry is None else entry.rules.get(self.name)
        return _NO_FILE if rules is None and entry is not None and entry.answers(self.name) else rules

    def _check_pace(self, origin: Origin, rules: RuleSet) -> None:
        """Publish a pace that is slower than ``max_crawl_delay_s``; raise Disallowed if such sites are skipped."""
        delay_s, pacing = self.too_long_s(rules), self.state.pacing
        if delay_s is None:
            return
        self.publish(LongDelay(origin, delay_s, pacing.on_long_crawl_delay))
        if pacing.on_long_crawl_delay == "skip":
            note = f"{delay_s:g} s between requests, where max_crawl_delay_s={pacing.max_crawl_delay_s:g}"
            raise Disallowed(self.counted(self._refused(origin.robots_url, origin, Reason.TOO_SLOW, note)))

    def _refused(self, url: str, origin: Origin, reason: Reason, note: str, not_before: float | None = None) -> Verdict:
        """Return a verdict that denies ``url``, in report mode as well."""
        judgement = Judgement(WITHOUT_RULE[reason], note, not_before)
        verdict = self._made(url, judgement, self.state.cache.held(origin.text))
        verdict.allowed = False
        return verdict

    def _denied(self, url: str, origin: Origin, policy: HostPolicy) -> Verdict:
        """Return the verdict of a policy that denies; a private address is denied in report mode as well."""
        if self.state.is_private(origin):
            return self._refused(url, origin, Reason.POLICY_DENY, policy.reason)
        return self._made(url, Judgement(WITHOUT_RULE[Reason.POLICY_DENY], policy.reason))

    def _evidence(self, url: str, target: str, entry: Copy) -> Evidence:
        """Return the evidence of host policies and robots.txt about ``url``."""
        rules = entry.rules.get(self.name)
        site_usage: StatesUsage | None = None if rules is None else rules.site_usage
        if self.state.policy_tokens is not None:
            site_usage = self.state.policy_tokens.usage_of(site_usage, entry.rules)
        policy = self.state.policies.get(entry.origin.pacing_host)  # a private address was denied before
        normalise = self.state.cache.normalise
        is_private = is_fault_of_kind(entry.source, FaultKind.ADDRESS)
        return Evidence(url, target, normalise, policy, entry.source.result, rules, site_usage, is_private=is_private)

    def _answers(self, entry: Copy) -> bool:
        return all(map(entry.answers, self._all_names))

    def _made(
        self, url: str, judgement: Judgement, entry: Copy | None = None, site_usage: StatesUsage | None = None
    ) -> Verdict:
        """Make a verdict; see ``Judgement.basis``."""
        match, now_mono, now_wall = judgement.match, self.clock.monotonic(), self.clock.wall()
        if not match.allowed and entry is not None and (retry_wall := entry.source.not_before) is not None:
            # An answer to another origin of the host may have closed the host for longer.
            closed_wall = self.pacer.known_closing(entry.origin.pacing_host) or retry_wall
            judgement = judgement._replace(not_before=max(retry_wall, closed_wall, judgement.not_before or retry_wall))
        basis = judgement.basis(self.name, entry, now_mono, site_usage)
        return verdict_of_basis(url, match.allowed or self.state.reports, match, basis, now_mono, now_wall)
