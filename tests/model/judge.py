"""The judge: it knows what the library promises, sees what arrives at the simulated web, and names each difference.

Theory of operation. The judge keeps its own facts about each origin (what the answers for its robots.txt mean) and
each host (when it was requested last, until when it is closed), made from the exchanges of the web alone. For each
request it computes the earliest permitted start. Each fact that is not certain is taken in favour of the library: the
pause is a lower bound, and a fact that is younger than ``EPS_S`` may have been unknown when the request was granted.

The bounds from above serve liveness: a host with waiters, whose latest start by the judge's reckoning has passed, must
not be idle (``idle_too_long``). There each fact that is not certain makes the bound later.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Final, TypeAlias

from politesse import CacheOptions, HostPolicy, PacingOptions
from politesse.testing import ManualClock
from tests.model.reading import DAY_S, delay_s, forbids_training, lifetime_s, permits, quota, retry_after_s
from tests.model.world import Answer, Exchange, split

EPS_S: Final = 1e-6
STORE_S: Final = 5.5  # a store may take this long before a new answer counts
IDLE_S: Final = 1.0  # a ready host with waiters is idle for this long at the most
SMALL_S: Final = 60.0  # where a small cache drops copies, they may be fetched again first
RETRY_S: Final = 1.0  # a failed fetch is not repeated within this time
FORGOTTEN_S: Final = 600.0  # a host without requests for this long is forgotten, and recalled from the store
PAUSE_S: Final = 310.0  # after a failure of a store, it may not be called for this long
_MINUTE_S: Final = 60.0
_BUSY: Final = frozenset({429, 502, 503, 504})
_REDIRECTS: Final = frozenset({301, 302})


Waiting: TypeAlias = tuple[str, str, float, bool, str]
"""A request that waits: its URL, its agent, since when, whether it is exempt, and who waits."""


@dataclass(frozen=True)
class Copy:
    """A definite answer: the body of the file, or None if there is no file."""

    body: bytes | None
    at: float
    lifetime_s: float


@dataclass(frozen=True)
class State:
    """What the answers for a robots.txt mean, from ``since`` on; ``trouble`` is "", "busy" or "down"."""

    since: float = -inf
    copy: Copy | None = None
    trouble: str = ""
    retry: float = -inf
    failures: int = 0
    answered: bool = False
    shared: bool = False  # the answer to another origin's redirect to the same target, which may not have been used

    def usable(self, now: float) -> Copy | None:
        """Return the copy that counts at a moment."""
        copy = self.copy
        if copy is None:
            return None
        until = copy.at + copy.lifetime_s
        if self.trouble == "down":
            # DESIGN, 5xx: within 24 h of its last 2xx or 304 an older copy serves; the absence of a file does not.
            until = -inf if copy.body is None else max(until, copy.at + DAY_S)
        return copy if now < until + EPS_S else None

    def is_closed(self, now: float) -> bool:
        """Return whether the site is closed until its robots.txt comes: there was none yet, or the last one failed."""
        return self.usable(now) is None and bool(self.trouble or not self.answered)


@dataclass
class OriginFacts:
    """The history of an origin's robots.txt: the last state is in force."""

    states: list[State] = field(default_factory=lambda: [State()])
    hops: list[str] = field(default_factory=list)
    pending: str = ""  # the target of a redirect whose answer has not come
    waits_since: float = inf  # since when the request of that target waits; infinite once it is sent
    forgotten: float = -inf
    renewed: float = inf  # when the last request began, if the site was open by then; else infinite

    @property
    def now(self) -> State:
        return self.states[-1]

    def between(self, first: float, last: float) -> Iterable[tuple[State, float]]:
        """Yield each state that was in force at some moment of a period, and its first moment in it."""
        for place, state in enumerate(self.states):
            ends = self.states[place + 1].since if place + 1 < len(self.states) else inf
            if state.since <= last and ends >= first:
                yield state, max(first, state.since)


@dataclass
class HostFacts:
    """The requests to a paced host, and what its answers demand."""

    under_way: list[Exchange] = field(default_factory=list)
    last: float = -inf  # from here the pause counts
    busy_until: float = -inf  # from here the pause counts for the bound from above
    opened: list[float] = field(default_factory=list)
    closed: list[tuple[float, float]] = field(default_factory=list)
    closed_at_latest: float = -inf
    backoff_s: float = 0.0
    refused: float = -inf
    most_backoff_s: float = 0.0
    stated_s: float = 0.0  # the longest Crawl-delay so far
    quota_s: float = 0.0
    quota_until: float = -inf
    slowest_s: float = 0.0
    denials: int = 0
    fetches: list[Exchange] = field(default_factory=list)
    policies: list[tuple[float, HostPolicy | None]] = field(default_factory=lambda: [(-inf, None)])
    seen: bool = False


class Judge:
    """Judges the requests to a simulated web.

    Args:
        clock: the clock of the run.
        pacing: the options of the gates.
        cache: the options of the gates.
        tokens: maps each User-Agent to its product tokens.

    Attributes:
        reports: whether the gates are in report mode.
        enforces: whether the gates enforce the preference about training.
        keeps_all: whether the cache has room for all copies.
        agents: how many agents a gate has; an agent that comes later may need a file again.
        gates: maps each User-Agent to the gate that judges for it.
        addresses: maps each host to its address.
        begin_before: until when each crawl begins requests, by its name.
        answers: the statuses that each caller got, by URL.
    """

    def __init__(
        self, clock: ManualClock, pacing: PacingOptions, cache: CacheOptions, tokens: dict[str, tuple[str, ...]]
    ) -> None:
        self.clock, self.pacing, self.cache, self.tokens = clock, pacing, cache, tokens
        self.reports, self.enforces, self.keeps_all, self.agents = False, False, True, 1
        self.gates: dict[str, str] = {}
        self.addresses: dict[str, str] = {}
        self.begin_before: dict[str, float] = {}
        self.answers: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        self.origins: dict[tuple[str, str], OriginFacts] = {}
        self.hosts: dict[str, HostFacts] = {}
        self.shared: dict[str, HostFacts] = {}  # by address
        self.targets: dict[tuple[str, str], tuple[Answer, float]] = {}  # the last answers of targets of redirects
        self.findings: list[str] = []
        self.trace: list[str] = []
        self.pages = self.fetches = 0
        self.late_s = 0.0
        self.fails_until = -inf  # until when a call of a store may fail

    def has_late_stores(self, *, late: bool) -> None:
        self.late_s = STORE_S if late else 0.0

    def stores_change(self, *, fail: bool) -> None:
        """Note that calls of the stores fail from now on, or succeed."""
        if fail:
            self.fails_until = inf
        elif self.fails_until == inf:
            self.fails_until = self.clock.monotonic() + PAUSE_S

    @property
    def idle_s(self) -> float:
        """How long a ready host with waiters may be idle."""
        return IDLE_S + 2.0 * self.late_s + (0.0 if self.keeps_all else SMALL_S)

    # What is found

    def find(self, what: str) -> None:
        self.findings.append(f"{self.clock.monotonic():.3f} s: {what}")
        self.note(f"FINDING {what}")

    def note(self, what: str) -> None:
        self.trace.append(f"{self.clock.monotonic():12.3f}  {what}")

    def origin(self, gate: str, origin: str) -> OriginFacts:
        return self.origins.setdefault((gate, origin), OriginFacts())

    def host(self, host: str) -> HostFacts:
        return self.hosts.setdefault(host, HostFacts())

    def policies(self, host: str, since: float) -> list[HostPolicy | None]:
        """Return the policies of a host that were in force at some moment from ``since`` on."""
        held = self.host(host).policies
        later = [policy for at, policy in held if at >= since]
        return [next(policy for at, policy in reversed(held) if at < since), *later]

    def floors(self, host: str, since: float) -> tuple[float, int]:
        """Return the shortest floor and the most requests at once that were in force from ``since`` on."""
        own, most = self.pacing.min_delay_s, self.pacing.max_concurrent
        policies = self.policies(host, since)
        floors = [own if one is None or one.min_delay_s is None else one.min_delay_s for one in policies]
        at_once = [most if one is None or one.max_concurrent is None else one.max_concurrent for one in policies]
        return min(floors), max(at_once)

    def stated_s(self, copy: Copy | None, tokens: tuple[str, ...]) -> float:
        """Return the Crawl-delay that a copy states for an agent."""
        stated = delay_s(copy.body, tokens) if copy is not None and copy.body is not None else 0.0
        return min(stated, self.pacing.max_crawl_delay_s) if self.pacing.on_long_crawl_delay == "cap" else stated

    # Pages

    def page_starts(self, page: Exchange, since: float | None, *, exempt: bool) -> None:
        """Judge a request for a page. ``since`` is when its caller asked, if it waited with one verdict."""
        now, host = self.clock.monotonic(), self.host(page.host)
        self.note(f"GET {page.url} as {page.agent} by {page.why}")
        self.pages += 1
        floor_s, at_once = self.floors(page.host, now - EPS_S)
        if len(host.under_way) >= at_once:
            self.find(f"{page.url} is request {len(host.under_way) + 1} at once, not {at_once} at most")
        if now > self.begin_before.get(page.why, now) + EPS_S:
            self.find(f"{page.url} is requested after max_time_s")
        quota_s = host.quota_s if now < host.quota_until - EPS_S else 0.0
        interval_s = max(floor_s, quota_s, self.permission(page, since, exempt=exempt))
        self.judge_address(page)
        if now < host.last + interval_s - EPS_S:
            self.find(f"{page.url} starts {now - host.last:.3f} s after the last request, not {interval_s:g}")
        for opened in host.opened[-3:]:
            if opened + EPS_S < now < opened + interval_s - EPS_S:
                self.find(f"{page.url} starts {now - opened:.3f} s after its robots.txt, not {interval_s:g}")
        self.judge_closure(page, host)
        page.interval_s = interval_s
        host.last = host.busy_until = now
        host.seen = True
        host.under_way.append(page)

    def judge_address(self, page: Exchange) -> None:
        """Judge the limit for all hosts of an address."""
        limit, now = self.pacing.address, self.clock.monotonic()
        if limit is None:
            return
        shared = self.shared.setdefault(self.addresses[page.host], HostFacts())
        if len(shared.under_way) >= limit.max_concurrent:
            self.find(f"{page.url} is request {len(shared.under_way) + 1} at once to its address")
        if now < shared.last + limit.min_delay_s - EPS_S:
            self.find(f"{page.url} starts {now - shared.last:.3f} s after the last request to its address")
        shared.last = now
        shared.under_way.append(page)

    def judge_closure(self, request: Exchange, host: HostFacts) -> None:
        now = self.clock.monotonic()
        until = max((until for at, until in host.closed if at < now - EPS_S), default=-inf)
        if now < until - EPS_S:
            self.find(f"{request.url} is requested {until - now:.3f} s before its host opens")

    def permission(self, page: Exchange, since: float | None, *, exempt: bool) -> float:
        """Judge whether the request is allowed; return the least Crawl-delay that binds it."""
        now, tokens = self.clock.monotonic(), self.tokens[page.agent]
        policies = self.policies(page.host, now - EPS_S)
        if all(policy is not None and policy.deny for policy in policies) and not self.reports:
            self.find(f"{page.url} is denied by a policy")
        if exempt or any(policy is not None and policy.exempt for policy in policies):
            return 0.0
        facts = self.origin(self.gates[page.agent], page.origin)
        recent = list(facts.between(now - EPS_S - self.late_s, now))
        usable = [state.usable(at) for state, at in recent]
        copies = [copy for copy in usable if copy is not None]
        if since is not None and not copies:  # a verdict that was made before the wait holds if the copy expired
            waited = [state.usable(at) for state, at in facts.between(since - EPS_S, now)]
            copies = [copy for copy in waited if copy is not None and now < copy.at + DAY_S + EPS_S][-1:]
        if self.reports:
            # A host that is closed again and again delays a task by two fetches at most; a page may start at the moment
            # of the opening, which is not known better than by two bounds.
            closed = self.host(page.host).closed
            opened = [until for _, until in closed if since is not None and since - EPS_S <= until <= now + EPS_S]
            at_opening = bool(closed) and now <= self.host(page.host).closed_at_latest + EPS_S
            # A verdict that was made before the wait holds, as below, if the program has forgotten the copy since.
            meanwhile = () if since is None else facts.between(since - EPS_S, now)
            is_answered = any(state.answered for state, _ in (*recent, *meanwhile))
            if not is_answered and now > self.refused_until(facts) + EPS_S and not at_opening and len(opened) < 2:
                self.find(f"{page.url} is requested before its robots.txt")
            return min((self.stated_s(copy, tokens) for copy in usable or (None,)), default=0.0)
        if not copies:
            self.find(f"{page.url} is requested without a valid robots.txt: {self.described(facts.now)}")
            return 0.0
        allowing = [copy for copy in copies if copy.body is None or permits(copy.body, tokens, page.target)]
        if not allowing:
            self.find(f"{page.url} is disallowed: {self.described(facts.now)}")
            return 0.0
        if self.enforces and all(copy.body and forbids_training(copy.body, tokens) for copy in allowing):
            self.find(f"{page.url} is requested for training: {self.described(facts.now)}")
        stated_s = [self.stated_s(copy, tokens) for copy in allowing]
        if self.pacing.on_long_crawl_delay == "skip" and min(stated_s) > self.pacing.max_crawl_delay_s:
            self.find(f"{page.url} is requested in spite of its long Crawl-delay")
        return min(stated_s)

    def refused_until(self, facts: OriginFacts) -> float:
        """Return until when a robots.txt may count as refused by the target of its redirect; minus infinity for never.

        A closed host gets no request for the target. The fetch has then failed, until the host opens, or for a second.
        The time of the opening is known by two bounds only; the later one counts.
        """
        closed_at_latest = self.host(split(facts.pending)[1]).closed_at_latest if facts.pending else -inf
        return closed_at_latest + RETRY_S if facts.waits_since <= closed_at_latest else -inf

    def described(self, state: State) -> str:
        copy = state.copy
        held = "no copy" if copy is None else f"copy of {copy.at:.3f} s for {copy.lifetime_s:g} s: {copy.body!r}"
        return f"{state.trouble or 'no trouble'} since {state.since:.3f} s, {held}"

    def page_answers(self, page: Exchange) -> None:
        """Note what the head of an answer demands of the next requests to its host."""
        now, host, status = self.clock.monotonic(), self.host(page.host), page.status or 0
        self.note(f"    {status} {dict(page.headers)} from {page.url}")
        headers = {name.lower(): value for name, value in page.headers.items()}
        asked_s = retry_after_s(headers, self.clock.wall())
        self.forget_backoff(host, page.started)
        least_s = max(self.pacing.backoff_min_s, 4.0 * min(page.interval_s, self.floors(page.host, page.started)[0]))
        longest_s = max(900.0, self.pacing.backoff_min_s)
        closed_s = asked_s
        if status in _BUSY:
            if page.started > host.refused:
                host.backoff_s = min(max(least_s, 2.0 * host.backoff_s), longest_s)
            host.refused = now
            closed_s = max(asked_s, host.backoff_s)
        elif status < 500:
            half_s = host.backoff_s / 2.0
            most_s = max(self.pacing.backoff_min_s, 4.0 * self.longest_s(page.host))
            host.backoff_s = half_s if half_s >= most_s else 0.0
        is_refusal = "crawler-price" in headers or "cf-mitigated" in headers
        if is_refusal:
            closed_s = self.pacing.refused_min_s
        if (left := quota(headers)) is not None:
            if left[0] > 0.0:
                host.quota_s, host.quota_until = left[1] / left[0], now + left[1]
                host.stated_s = max(host.stated_s, host.quota_s)
            else:
                closed_s = left[1]
            self.close_at_latest(host, left[1])
        if closed_s:
            host.closed.append((now, now + min(closed_s, self.pacing.backoff_max_s)))
        self.bound_from_above(page, host, asked_s, is_refusal=is_refusal)

    def forget_backoff(self, host: HostFacts, started: float) -> None:
        """Forget the backoff if a request started so late after the last closure; robots.txt is such a request."""
        until = max((until for _, until in host.closed), default=-inf)
        if started >= until + host.backoff_s:
            host.backoff_s = 0.0

    def bound_from_above(self, page: Exchange, host: HostFacts, asked_s: float, *, is_refusal: bool) -> None:
        """Note how long an answer may delay its host at most: each refusal doubles, nothing halves."""
        status = page.status or 0
        host.denials += status in {401, 403}
        if is_refusal:
            host.denials = 10  # while a refusal is remembered, each denial is one more
        is_refusal = is_refusal or (host.denials >= 10 and status in {401, 403})
        if status >= 500 or status == 429 or is_refusal:
            first_s = 900.0 if is_refusal else max(self.pacing.backoff_min_s, 4.0 * self.longest_s(page.host))
            host.most_backoff_s = max(first_s, 2.0 * host.most_backoff_s)
            self.close_at_latest(host, max(asked_s, 1.1 * host.most_backoff_s))
        self.close_at_latest(host, asked_s)
        host.slowest_s = max(host.slowest_s, 60.0 if status >= 500 else self.clock.monotonic() - page.started)

    def close_at_latest(self, host: HostFacts, seconds: float) -> None:
        host.closed_at_latest = max(host.closed_at_latest, self.clock.monotonic() + seconds)

    def page_ends(self, page: Exchange) -> None:
        now, host = self.clock.monotonic(), self.host(page.host)
        self.note(f"    end of {page.url}")
        page.ended = now
        host.under_way.remove(page)
        host.slowest_s = max(host.slowest_s, now - page.started)
        host.busy_until = now
        self.answers[page.why][page.url].append(page.status or 0)
        if self.floors(page.host, now - EPS_S)[1] == 1:
            host.last = now
        if self.pacing.address is not None:
            shared = self.shared[self.addresses[page.host]]
            shared.under_way.remove(page)
            if self.pacing.address.max_concurrent == 1:
                shared.last = now

    # Requests for robots.txt

    def owner(self, fetch: Exchange) -> OriginFacts:
        """Return the facts of the origin for which a hop is requested."""
        return self.origin(fetch.gate, split(fetch.why or fetch.url)[0])

    def fetch_starts(self, fetch: Exchange) -> None:
        """Judge a request for robots.txt."""
        now, host, owner = self.clock.monotonic(), self.host(fetch.host), self.owner(fetch)
        self.note(f"GET {fetch.url} for {fetch.why or 'itself'}")
        self.fetches += 1
        floor_s, _ = self.floors(fetch.host, now - _MINUTE_S)  # a request may stand in line since then
        if any(other.ended is None for other in host.fetches):
            self.find(f"{fetch.url} is requested while another robots.txt of its host is under way")
        ended = [
            other.ended for other in host.fetches if other.ended is not None and other.ended > now - _MINUTE_S + EPS_S
        ]
        if len(ended) >= 2 and now < ended[-1] + floor_s - EPS_S:
            self.find(f"{fetch.url} starts {now - ended[-1]:.3f} s after the last robots.txt of its host")
        self.judge_closure(fetch, host)
        host.fetches = [*host.fetches[-4:], fetch]
        if fetch.why:
            owner.waits_since = inf
            if fetch.url in owner.hops:  # so no shared answer has led the chain further than to this hop
                del owner.hops[owner.hops.index(fetch.url) + 1 :]
            return
        policies = self.policies(fetch.host, now - EPS_S)
        if all(policy is not None and policy.deny for policy in policies) and not self.reports:
            self.find(f"{fetch.url} is requested though a policy denies its host")
        owner.hops, owner.pending = [fetch.url], ""
        state = owner.now
        owner.renewed = inf if state.is_closed(now) else now
        due = state.retry
        if state.trouble == "" and state.copy is not None and self.agents == 1:
            due = state.copy.at + self.cache.refresh_after * state.copy.lifetime_s
        if self.keeps_all and not state.shared and now < due - EPS_S and owner.forgotten < state.since:
            self.find(f"{fetch.url} is requested again {due - now:.3f} s too soon: {self.described(state)}")

    def fetch_ends(self, fetch: Exchange, answer: Answer | None) -> None:
        """Note the answer; None if the request was broken off."""
        now, host, owner = self.clock.monotonic(), self.host(fetch.host), self.owner(fetch)
        fetch.ended = host.busy_until = now
        if answer is None:
            self.note(f"    {fetch.url} is broken off")
            return
        self.note(f"    {answer.status} {dict(answer.headers)} {answer.body!r} from {fetch.url}")
        asked_s = retry_after_s(answer.headers, self.clock.wall())
        waiting = []
        if fetch.why:  # the target of a redirect: other origins may share its answer, and keep it if it is definite
            of_gate = [facts for (gate, _), facts in self.origins.items() if gate == fetch.gate and facts is not owner]
            waiting = [(facts, self.refused_until(facts) > -inf) for facts in of_gate if facts.pending == fetch.url]
            self.targets.pop((fetch.gate, fetch.url), None)
            if answer.status in range(200, 500) and answer.status != 429:
                self.targets[fetch.gate, fetch.url] = answer, now
        if answer.status == 429 or (answer.status == 503 and (asked_s or split(owner.hops[0])[1] != fetch.host)):
            self.forget_backoff(host, fetch.started)
            first_s = max(self.pacing.backoff_min_s, min(60.0, 6.0 * self.pacing.backoff_min_s))
            host.closed.append((now, now + max(asked_s, first_s)))
            host.most_backoff_s = max(first_s, 2.0 * host.most_backoff_s)
            self.close_at_latest(host, max(asked_s, host.most_backoff_s))
        for facts, shared in ((owner, False), *waiting):
            self.answered(facts, fetch.gate, answer, now, is_same=fetch.status == 304, shared=shared)

    def answered(
        self, facts: OriginFacts, gate: str, answer: Answer, at: float, *, is_same: bool = False, shared: bool = False
    ) -> None:
        """Note an answer for an origin, or for the target of its redirect; see ``State`` for ``shared``."""
        while answer.status in _REDIRECTS:
            location = answer.headers["location"]
            url = split(facts.hops[-1])[0] + location if location.startswith("/") else location
            if url in facts.hops:
                answer = Answer(404)  # a loop: allow all
                break
            facts.hops.append(url)
            facts.pending, facts.waits_since = url, self.clock.monotonic()
            if (gate, url) not in self.targets:
                return
            answer, at = self.targets[gate, url]  # the answer may be shared; a new request replaces it
            shared = True
        now, before = self.clock.monotonic(), facts.now
        copy, trouble, retry, failures, backoff_s = before.copy, "", -inf, 0, 0.0
        if answer.status in range(200, 300):
            body = copy.body if is_same and copy is not None else answer.body
            copy = Copy(body, at, max(lifetime_s(answer.headers), now - at + _MINUTE_S))
        elif answer.status in range(400, 500) and answer.status != 429:
            copy = Copy(None, at, max(lifetime_s(answer.headers), now - at + _MINUTE_S))
        else:
            trouble = "busy" if answer.status == 429 else "down"
            failures = before.failures + 1 if now < before.since + 2.0 * DAY_S else 1
            backoff_s = min(self.cache.retry_min_s * 2.0 ** min(failures - 1, 32), self.cache.retry_max_s)
            retry = now + max(retry_after_s(answer.headers, self.clock.wall()), backoff_s, 1.0)
        facts.pending = facts.pending if shared else ""
        name = split(facts.hops[0])[1]
        host = self.host(name)
        state = State(now, copy, trouble, retry, failures, answered=True, shared=shared)
        if trouble == "busy" and split(facts.hops[-1])[1] == name and state.usable(now) is not None:
            # While an older copy permits pages, they wait until robots.txt may be fetched again, which has its jitter.
            self.close_at_latest(host, min(1.1 * backoff_s, self.cache.retry_max_s))
        # The program may have forgotten the copy of a site that was open when the request began.
        if not trouble and not shared and before.is_closed(now) and facts.forgotten < facts.renewed:
            host.opened.append(now)
        host.stated_s = max([host.stated_s, *(self.stated_s(copy, tokens) for tokens in self.tokens.values())])
        host.busy_until = now
        facts.states.append(state)

    # What the program changes

    def forgets(self, gate: str, origin: str) -> None:
        now, facts = self.clock.monotonic(), self.origin(gate, origin)
        self.note(f"forget {origin}")
        facts.forgotten = now
        facts.states.append(State(now))

    def sets_policy(self, host: str, policy: HostPolicy | None) -> None:
        self.note(f"policy of {host}: {policy}")
        self.host(host).policies.append((self.clock.monotonic(), policy))

    # Liveness

    def longest_s(self, host: str) -> float:
        """Return the longest pause that any request to a host may have to keep."""
        facts, own = self.host(host), self.pacing.min_delay_s
        floors = [one.min_delay_s for _, one in facts.policies if one is not None and one.min_delay_s is not None]
        adaptive_s = min(self.pacing.adaptive_factor * facts.slowest_s, self.pacing.adaptive_max_s)
        return max([own, adaptive_s, facts.stated_s, *floors])

    def starts_at_latest(self, host: str) -> float:
        """Return by when a host that nothing else holds must have got its next request."""
        facts = self.host(host)
        changed = facts.policies[-1][0]
        return max(facts.busy_until + self.longest_s(host), facts.closed_at_latest, changed) + self.idle_s

    def may_start(self, url: str, agent: str, *, exempt: bool = False) -> bool:
        """Return whether a waiting request is certainly permitted now, and for the next seconds."""
        now = self.clock.monotonic()
        origin, host, target = split(url)
        policy = self.host(host).policies[-1][1]
        if policy is not None and policy.deny:
            return False
        if exempt or (policy is not None and policy.exempt):
            return True
        state, tokens = self.origin(self.gates[agent], origin).now, self.tokens[agent]
        copy = state.usable(now + IDLE_S)
        if copy is None or state.shared or state.since > now - self.late_s:
            return False
        if self.pacing.on_long_crawl_delay == "skip" and self.longest_s(host) > self.pacing.max_crawl_delay_s:
            return False
        if self.reports or copy.body is None:
            return True
        return permits(copy.body, tokens, target) and not (self.enforces and forbids_training(copy.body, tokens))

    def idle_too_long(self, waiting: Iterable[Waiting]) -> None:
        """Find hosts that are idle though a request waits: its URL, agent, since when, whether exempt, and who."""
        now = self.clock.monotonic()
        if self.pacing.address is not None:
            return  # a host may wait for the other hosts of its address
        for url, agent, since, exempt, who in waiting:
            host = split(url)[1]
            facts = self.host(host)
            if since > facts.busy_until + FORGOTTEN_S and since <= self.fails_until:
                facts.busy_until = since  # if a host cannot be recalled from the store, it counts as requested then
            due = max(self.starts_at_latest(host), since + self.idle_s)
            # Until a robots.txt that was requested before the change of a policy has come, its URLs may wait for it.
            is_busy = facts.under_way or any(fetch.ended is None for fetch in facts.fetches)
            if now > due and not is_busy and self.may_start(url, agent, exempt=exempt):
                self.find(f"{host} is idle since {due - self.idle_s:.3f} s, while {who} waits for {url}")
                facts.closed_at_latest = now + 1e9  # once is enough
