"""The tickets of a process: a host asks Redis for one before it calls its first waiter. The seam to ``Hosts``.

Theory of operation. A Claim is what a process wants and has at one key of Redis: a host, a domain or an address. All
waiting is done in the lines of this process (``hosts.py``). Redis has no line.

    a lane is due, or nearly        ``admits`` makes a wish of each of its claims, and the lane asks
    Redis grants                    the claim has a ticket; once all claims have theirs, the first waiter is called
    Redis tells to wait             the lane waits until then, gives its other tickets back, and asks again
    the waiter has left             the next waiter gets the ticket; without any, ``let_go`` gives it back
    the request starts              ``use``: the ticket is used; its lease is renewed while the request lasts
    the request ends                ``ended``: in the same script as the wish for the next start
    Redis is lost                   ``lost``: tickets that are not used are void; what has ended stays to be told
    Redis is back                   ``found`` tells it all; ``look`` lets the hosts ask

A claim asks for one start at a time. It may ask a little ahead (``ahead_s``), so that the end of a request and the wish
for the next start are one script. A start that counts from an end of this process counts by the clock of this process.

Redis tells a process how long to wait, and remembers which process has waited for the longest time: that process goes
first, for a moment. So processes that always want the same host take turns.

Why no start is too early. A ticket is used only if, at that moment,

* its wait is over by the monotonic clock, and the local pace permits the start, too;
* its interval is at least that of the request;
* the link has not been lost since the ticket was granted;
* the start is not too late. With one request at a time, the next interval counts from the end of the request, so a late
  start is harmless while the lease lasts. Otherwise the interval counts from the start, so the start may be late by a
  tolerance only. Redis adds the tolerance to the next interval. After a start that was too late, the process asks with
  a longer tolerance, so that a slow connection slows the pace, but does not stop it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from math import ceil, inf
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse._base.constants import AGREE_S
from politesse._pacing.fleet.link import HOLD_S, FleetLink, unusable
from politesse._pacing.fleet.messages import FleetAnswer, Script, ScriptCall, WireLost
from politesse._pacing.hosts import Host, LocalPermit
from politesse._pacing.pace import Start, rates_hold_until
from politesse.events import ComponentFailed
from politesse.verdict import CLOSINGS, Bound, NotYet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from politesse._pacing.fleet.messages import Reply
    from politesse._pacing.fleet.options import FleetOptions
    from politesse._pacing.fleet.wire import FleetWire
    from politesse._pacing.hosts import Hosts, Lane, Scope
    from politesse.clock import Clock
    from politesse.errors import ConfigurationError
    from politesse.events import Publisher

    Held = tuple["Claim", "Ticket"]

_FIRST_LEASE_S: Final = 10.0
_AHEAD_S: Final = 2.0  # an interval that is longer is waited for without a ticket: a closure of others is not seen then
_LEAST_AHEAD_S: Final = 0.1
_MARGIN_S: Final = 0.05
_LEAST_WAIT_S: Final = 0.005
_LONG_WAIT_S: Final = 0.2  # a longer wait ends up to _TOGETHER_S sooner, so that the calls of many hosts are one batch
_TOGETHER_S: Final = 0.05
_RENEWED: Final = 0.25  # leases are renewed when this share of the first lease is over
_USABLE: Final = 0.5  # a ticket may be used in this share of its lease
_GRACE_S: Final = 0.02  # a process that goes first has this time, and a round trip, to ask
_COMFORTABLE: Final = 0.25  # if a start uses less than this share of its tolerance, the patience is halved
_PATIENCE: Final = 2.0
_MOST_PATIENCE: Final = 4096.0
_SMOOTHING: Final = 0.1
_UNUSABLE_S: Final = 60.0  # a host whose key cannot be used is closed for this time, and then its key is tried again
_MOST_UNUSABLE: Final = 1_000  # this many unusable keys are remembered, so that each key is reported once


@dataclass(slots=True, eq=False)
class Ticket:
    """A start that is asked for, or was granted.

    Attributes:
        number: its number; the numbers of a process only grow.
        url: the URL of the request, without blanks; empty if it is unknown.
        interval_s: the interval of the request.
        slack_s: what Redis adds to the interval at most.
        tolerance_s: how late the start may be, if several requests may be under way at once.
        ahead_s: how long before its start it may be granted.
        asked_mono: when the call was sent.
        starts_mono: from when on it may be used; minus infinity if the local pace knows.
        wait_s: how long to wait for the start, counted from ``at_us``.
        at_us: the time of Redis when it was granted.
        used_mono: when the request started.
    """

    number: int
    url: str
    interval_s: float
    slack_s: float
    tolerance_s: float
    ahead_s: float
    asked_mono: float = inf
    starts_mono: float = -inf
    wait_s: float = 0.0
    at_us: int = 0
    used_mono: float = 0.0


@dataclass(slots=True, eq=False)
class Claim:
    """What this process wants and has at one key; see the module.

    Attributes:
        key: the key, after the prefix of the fleet.
        place: the host or scope; None once it was forgotten.
        most: how many requests may be under way at once.
        interval_s: the interval of a scope; None for a host, whose lanes have theirs.
        wish: the start that is asked for, or None.
        is_sent: whether the wish is on its way.
        ticket: the start that was granted and is not used yet, or None.
        used: the requests under way, by number.
        ended: what Redis has to be told: a number, when it ended, and ``used``, ``back`` or ``asked``; see
            ``step.lua``.
        answered_us: the time of the grant of the last request that has ended, if Redis has to be told its answer.
        closed_mono: the end of the closure that Redis was told.
        wait_mono: until when Redis has told to wait.
        wait_interval_s: requests with a shorter interval do not have to wait for that.
        bound_by: why; as in FleetAnswer.
        held_by: the URL of a request of another process, if that is why.
        since_mono: since when this process has waited for a start, or None.
        patience: the tolerance of a start is its slack times this factor. The factor is doubled after each start that
            exceeded its tolerance.
        renew_mono: when the leases of the requests under way have to be renewed.
        questions: who waits for any answer.
    """

    key: str
    place: Host | Scope | None = None
    most: int = 1
    interval_s: float | None = None
    wish: Ticket | None = None
    is_sent: bool = False
    ticket: Ticket | None = None
    used: dict[int, Ticket] = field(default_factory=dict)
    ended: list[tuple[int, float, str]] = field(default_factory=list)
    answered_us: int | None = None
    closed_mono: float = -inf
    wait_mono: float = -inf
    wait_interval_s: float = 0.0
    bound_by: str = ""
    held_by: str = ""
    since_mono: float | None = None
    patience: float = 1.0
    renew_mono: float = inf
    questions: list[asyncio.Future[None]] = field(default_factory=list)


class _Step(NamedTuple):
    """A call of ``step.lua``, and what it tells and answers: so many ends, an answer, a closure; so many questions."""

    claim: Claim
    call: ScriptCall
    wish: Ticket | None
    ends: int
    answered_us: int | None
    closed_mono: float
    questions: int


class Tickets:
    """The tickets of this process; belongs to one Hosts.

    Args:
        wire: the connections to Redis.
        options: see FleetOptions.
        clock: the clocks.
        publisher: receives FleetAway and FleetBack, and ComponentFailed once for each key that cannot be used.

    Attributes:
        hosts: the hosts of the process.
        active: the claims with a wish, a ticket, or a request under way.
        first_lease_s: how long a grant holds its host after its start, in seconds. A request that lasts renews its
            lease to ``lease_s``. So a process that is killed silences hosts that it did not request for a short time.
    """

    hosts: Hosts

    def __init__(self, wire: FleetWire, options: FleetOptions, *, clock: Clock, publisher: Publisher) -> None:
        self.first_lease_s: float = min(options.lease_s, _FIRST_LEASE_S)
        self.link: FleetLink = FleetLink(wire, options, self, clock=clock, publisher=publisher)
        self._options = options
        self._publish = publisher.publish
        self._claims: dict[str, Claim] = {}
        self.active: dict[Claim, None] = {}
        self._number = 0
        self._rtt_s = 0.001
        self._unusable: set[str] = set()

    # Called by hosts

    def claim(self, key: str, place: Host | Scope) -> Claim:
        """Return the claim of a host or scope that has become active."""
        claim = self._claim(key)
        claim.place = place
        if isinstance(place, Host):
            claim.most = place.most
        else:
            claim.most, claim.interval_s = place.limit.max_concurrent, place.limit.min_delay_s
        return claim

    def forget(self, claim: Claim) -> None:
        """Forget the claim of a host or scope that is idle, once Redis has been told all."""
        claim.place = None
        self._settle(claim)

    def delayed(self, lane: Lane, start: Start, now_mono: float, now_wall: float) -> Start:
        """Return when a lane may start, by the answers of Redis as well; set from when on it may ask."""
        claim, pace = lane.host.claim, start.pace
        if claim is None:
            return start
        lane.is_volatile = True
        lane.asks_mono = start.ready_mono
        lane.ahead_s = 0.0
        if claim.most > 1:  # see ``_ask``
            lane.asks_mono -= self._rtt_s
        elif not lane.scopes:  # a lane with scopes would keep other hosts from them meanwhile
            lane.ahead_s = min(max(pace.interval_s, _LEAST_AHEAD_S), _AHEAD_S)
            lane.asks_mono -= lane.ahead_s + 2.0 * self._rtt_s + _MARGIN_S
        ready_mono = -inf
        if claim.ticket is not None:
            ready_mono = claim.ticket.starts_mono
        elif pace.interval_s >= claim.wait_interval_s:
            ready_mono = claim.wait_mono
            if lane.timed and claim.wait_interval_s:  # the interval may change before
                ready_mono = min(ready_mono, now_mono + (rates_hold_until(lane.timed, now_wall) - now_wall))
            lane.asks_mono = max(lane.asks_mono, ready_mono)
        if ready_mono > start.ready_mono:
            bound_by = pace.bound_by if claim.bound_by == "interval" else Bound(claim.bound_by or Bound.QUEUE)
            start = lane.start = Start(ready_mono, bound_by, pace, ready_mono - 2.0 * pace.interval_s)
        return start

    def admits(self, lane: Lane, now_mono: float) -> bool:
        """Return whether a lane has all its tickets for a start now. Otherwise ask, or look again in time."""
        host, interval_s = lane.host, lane.start.pace.interval_s
        if host.asker is not None and host.asker is not lane:
            self.let_go(host, now_mono)
        host.asker = lane
        hold_s = self.link.hold_s(interval_s)
        if hold_s != 0.0:
            if self.link.is_tried:
                host.refuse_late(-inf if hold_s is None else now_mono + hold_s)
            if hold_s is not None:
                self.hosts.wakeups.look_at(host, now_mono + hold_s)
            return False
        start_mono, has_all = lane.start.ready_mono, True
        for claim in lane.claims:
            wanted_s = interval_s if claim.interval_s is None else claim.interval_s
            if claim.ticket is not None and not self._is_usable(claim, claim.ticket, wanted_s, now_mono):
                self._give_back(claim, now_mono)
            if claim.ticket is not None:
                start_mono = max(start_mono, claim.ticket.starts_mono)
            else:
                has_all = False
                if claim.wish is None:
                    self._ask(claim, wanted_s, lane, now_mono)
        if has_all and start_mono > now_mono:
            self.hosts.wakeups.look_at(host, start_mono)
        return has_all and start_mono <= now_mono

    def may_use(self, lane: Lane, now_mono: float) -> bool:
        """Return whether a lane whose waiter was called still has valid tickets."""
        interval_s = lane.start.pace.interval_s
        for claim in lane.claims:
            wanted_s, ticket = interval_s if claim.interval_s is None else claim.interval_s, claim.ticket
            if (
                ticket is None
                or ticket.starts_mono > now_mono
                or not self._is_usable(claim, ticket, wanted_s, now_mono)
            ):
                return False
        return True

    def use(self, permit: LocalPermit, now_mono: float) -> Sequence[Held]:
        """Return the tickets of a request that starts now."""
        held: list[Held] = []
        for claim in permit.lane.claims:
            ticket, claim.ticket = claim.ticket, None
            if ticket is None:
                raise AssertionError(f"a request starts at {claim.key} without a ticket")
            claim.used[ticket.number], ticket.used_mono = ticket, now_mono
            ticket.url = "%20".join(permit.url.split())  # another waiter may have asked
            claim.renew_mono = min(claim.renew_mono, now_mono + _RENEWED * self.first_lease_s)
            claim.since_mono, claim.wait_mono = None, -inf
            held.append((claim, ticket))
        permit.paced.asker = None
        return held

    def ended(self, held: Iterable[Held], now_mono: float, *, with_request: bool) -> None:
        """Tell Redis that a request has ended, or that it was not made."""
        for claim, ticket in held:
            del claim.used[ticket.number]
            claim.ended.append((ticket.number, now_mono, "used" if with_request else "back"))
            if with_request:
                claim.answered_us = ticket.at_us
            if not claim.used:
                claim.renew_mono = inf
            self.link.post(claim)

    def count(self, key: str, now_mono: float) -> None:
        """Tell Redis of a request without a ticket, so that the next interval counts from now."""
        claim = self._claim(key)
        claim.ended.append((0, now_mono, "asked"))
        self.link.post(claim)

    def note(self, host: Host) -> None:
        """Tell Redis until when a host is closed, if Redis does not know yet."""
        claim = host.claim
        if claim is not None and host.demand.closing.until_mono > claim.closed_mono + AGREE_S:
            self.link.post(claim)

    def let_go(self, host: Host, now_mono: float) -> None:
        """Give back the tickets that a host does not need now; a wish that was not sent yet is forgotten."""
        lane, host.asker = host.asker, None
        claims = lane.claims if lane is not None else () if host.claim is None else (host.claim,)
        for claim in claims:
            if claim.ticket is not None:
                self._give_back(claim, now_mono)
            if claim.wish is not None and not claim.is_sent:
                claim.wish = None
            if not host.line:
                claim.since_mono = None
            self._settle(claim)
        if lane is not None:
            lane.uncall_scopes()

    async def asked(self, key: str) -> None:
        """Ask Redis for news about a key; return when it has answered, or was lost."""
        await self.link.tried()
        if self.link.is_up:
            claim = self._claim(key)
            answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            claim.questions.append(answered)
            self.link.post(claim)
            await answered

    def explained(self, not_yet: NotYet, lane: Lane, now_wall: float) -> NotYet:
        """Return why a request has to wait, if that is because of the fleet."""
        claim, hold_s = lane.host.claim, self.link.hold_s(lane.start.pace.interval_s)
        if hold_s != 0.0:
            return NotYet(max(not_yet.not_before, now_wall + (hold_s or 0.0)), Bound.FLEET)
        if claim is None or claim.bound_by != Bound.IN_FLIGHT or not_yet.bound_by not in {Bound.IN_FLIGHT, Bound.QUEUE}:
            return not_yet
        return NotYet(now_wall, Bound.IN_FLIGHT, not_yet.held_by or claim.held_by)  # as of the last answer

    def unasked(self, lane: Lane) -> NotYet:
        """Return why a request may not start now: what this process knows, else that Redis has to be asked."""
        not_yet = lane.host.not_yet(lane)
        if not_yet.bound_by in {Bound.IN_FLIGHT, Bound.QUEUE}:
            return NotYet(not_yet.not_before, Bound.FLEET)
        return not_yet

    def wait_of(self, host: Host, now_mono: float) -> NotYet | None:
        """Return why the first waiter of a host waits for the fleet; None if it does not."""
        if not host.line or host.claim is None:
            return None
        lane = host.line[0]
        waits = host.claim.wait_mono > now_mono or self.link.hold_s(lane.start.pace.interval_s) != 0.0
        return host.not_yet(lane) if waits else None

    async def aclose(self) -> None:
        """Give all unused tickets back, and disconnect. A ticket would hold up its host until its lease ends."""
        self._void(self.hosts.monotonic())
        await self.link.aclose()

    # Called by the link

    def batch(self, most: int, late_us: int) -> list[_Step]:
        """Return the next calls, one for each claim with news; after ``late_us`` they change nothing."""
        now_mono, batch = self.hosts.monotonic(), list[_Step]()
        due = self.link.due
        while due and len(batch) < most:
            claim = next(iter(due))
            del due[claim]
            batch.append(self._step(claim, now_mono, late_us))
        return batch

    def take(self, step: _Step, reply: Reply | Exception, sent_mono: float, now_mono: float) -> None:
        """Accept the answer to a call."""
        claim, wish, trip_s = step.claim, step.wish, now_mono - sent_mono
        del claim.ended[: step.ends]
        claim.closed_mono = max(claim.closed_mono, step.closed_mono)
        if claim.answered_us == step.answered_us:
            claim.answered_us = None
        self._rtt_s += (trip_s - self._rtt_s) * (1.0 if trip_s < self._rtt_s else _SMOOTHING)
        answer = FleetAnswer.of(reply)
        if not isinstance(answer, FleetAnswer):
            self._report_unusable(step.call.keys[0], answer)
            answer = FleetAnswer("wait", 0, _UNUSABLE_S, Bound.BACKOFF.value)
        elif answer.kind == "late":
            raise WireLost("it answers too late")
        else:
            self._unusable.discard(step.call.keys[0])
        if answer.bound_by in CLOSINGS or answer.backoff_s or answer.fetch_backoff_s or answer.refusal_s:
            self._learn(claim, answer, now_mono)
        if step.questions:
            self._answer(claim, step.questions)
        if wish is not None:
            claim.is_sent = False
            if claim.wish is wish:
                claim.wish = None
                self._answered(claim, wish, answer, sent_mono, now_mono)
            elif answer.kind == "granted":  # the wish was given up meanwhile
                claim.ended.append((wish.number, now_mono, "back"))
                self.link.post(claim)
        if claim.ticket is None:
            self._settle(claim)

    def renew(self) -> None:
        """Renew the leases that are due."""
        now_mono = self.hosts.monotonic()
        for claim in self.active:
            if now_mono >= claim.renew_mono:
                self.link.post(claim)

    def lost(self) -> None:
        """Void all tickets that are not used: the server may be another one."""
        self._void(self.hosts.monotonic())
        for claim in list(self._claims.values()):
            claim.wait_mono = -inf
            self._answer(claim, len(claim.questions))
        self.look()

    def found(self) -> None:
        """Tell Redis which requests are under way, what has ended, and which hosts are closed or slow."""
        now_mono = self.hosts.monotonic()
        for claim in self._claims.values():
            host, claim.closed_mono = claim.place, -inf
            if isinstance(host, Host):
                demand = host.demand
                if demand.interval_s(now_mono, host.options) > HOLD_S and not claim.ended:
                    # Other processes may not know this interval; they only wait for their own.
                    claim.ended.append((0, now_mono, "asked"))
                    claim.answered_us = 0
                if demand.closing.until_mono > now_mono:
                    self.link.post(claim)
            if claim.used or claim.ended:
                self.link.post(claim)

    def look(self) -> None:
        """Let all hosts and scopes see what they may do now."""
        now_mono = self.hosts.monotonic()
        for claim in list(self._claims.values()):
            if claim.place is not None:
                claim.place.advance(now_mono)

    def refused(self, error: ConfigurationError) -> None:
        """Raise the error of a Redis that refuses this client in all tasks that wait."""
        self.hosts.end_waits(lambda _: error)

    # Wishes and answers

    def _ask(self, claim: Claim, interval_s: float, lane: Lane, now_mono: float) -> None:
        """Wish for a start; the first waiter of a lane names the URL."""
        slack_s, tolerance_s = self._options.spacing_s(interval_s), 0.0
        ahead_s = lane.ahead_s + 4.0 * self._rtt_s + 2.0 * _MARGIN_S
        if claim.most > 1:  # otherwise the next interval counts from the end, even if this start is late
            slack_s = self._options.slack_s(interval_s)
            tolerance_s = (slack_s or self._options.max_slack_s) * claim.patience
            if claim.interval_s is None:  # another process may be refused meanwhile, and close the host
                ahead_s = 2.0 * self._rtt_s + _LEAST_WAIT_S
        waiter = next(iter(lane.waiters))
        url = "%20".join(waiter.url.split()) if isinstance(waiter, LocalPermit) else ""
        self._number += 1
        claim.wish = Ticket(self._number, url, interval_s, slack_s, tolerance_s, ahead_s)
        if claim.since_mono is None:
            claim.since_mono = now_mono
        self.active[claim] = None
        self.link.post(claim)

    def _step(self, claim: Claim, now_mono: float, late_us: int) -> _Step:
        """Return the call that tells all news of a claim, and its wish."""
        wish, place, closed_mono = claim.wish, claim.place, claim.closed_mono
        us, is_alone, key = 1e6 * self.link.stretch, claim.most == 1, self.link.prefix + claim.key
        under_way = ended = report = closing = ""
        wanted: tuple[str | int, ...] = ()
        for ticket in claim.used.values():
            claim.renew_mono = now_mono + self._options.lease_s / 3.0
            under_way += f"{ticket.number} {int((now_mono - ticket.used_mono) * 1e6)} {ticket.url}\n"
        for number, at_mono, how in claim.ended:
            ended += f"{number} {int((now_mono - at_mono) * 1e6)} {how} "
        if isinstance(place, Host):
            demand = place.demand
            until_mono, closed_by = demand.closing
            if until_mono > now_mono and until_mono > closed_mono + AGREE_S:
                closed_mono, closing = until_mono, f"{ceil((until_mono - now_mono) * us)} {closed_by.value}"
            if claim.answered_us is not None:
                backoffs = demand.backoff_s, demand.fetch_backoff_s, demand.refusal_s
                told = (ceil(each_s * us) for each_s in (demand.interval_s(now_mono, place.options), *backoffs))
                report = f"{' '.join(map(str, told))} {claim.answered_us}"
        if wish is not None:
            claim.is_sent = True
            waited_s = 0.0 if claim.since_mono is None else now_mono - claim.since_mono
            interval_us, slack_us, tolerance_us = wish.interval_s * us, wish.slack_s * us, wish.tolerance_s * us
            first_us, grace_us, ahead_us = self.first_lease_s * us, (_GRACE_S + self._rtt_s) * us, wish.ahead_s * us
            wanted = (wish.number, ceil(interval_us), ceil(slack_us), ceil(tolerance_us), claim.most, ceil(first_us))
            wanted += (int(waited_s * 1e6), ceil(grace_us), ceil(ahead_us), wish.url)
        lease_us, held = ceil(self._options.lease_s * us), 0 if claim.ticket is None else claim.ticket.number
        words = (self._number, under_way, lease_us, held, ended, int(is_alone), report, closing, late_us)
        call = ScriptCall(Script.STEP, (key,), (self.link.owner, *words, *wanted))
        return _Step(claim, call, wish, len(claim.ended), claim.answered_us, closed_mono, len(claim.questions))

    def _answered(self, claim: Claim, wish: Ticket, answer: FleetAnswer, sent_mono: float, now_mono: float) -> None:
        """Accept the answer to a wish, and let the host or the scope go on."""
        claim.held_by, claim.bound_by = answer.held_by, answer.bound_by
        claim.wait_interval_s = wish.interval_s if answer.bound_by == "interval" else 0.0
        if answer.kind == "granted":
            wish.asked_mono, wish.wait_s, wish.at_us = sent_mono, answer.wait_s, answer.at_us
            wish.starts_mono = -inf if answer.is_own else now_mono + answer.wait_s
            claim.ticket, claim.wait_mono = wish, -inf
        else:  # it asks so early that the call comes in time, even if it has to wait for the batch before it
            claim.wait_mono = now_mono + max(answer.wait_s - 2.0 * self._rtt_s, min(answer.wait_s, _LEAST_WAIT_S))
            if answer.wait_s > _LONG_WAIT_S:
                claim.wait_mono -= claim.wait_mono % _TOGETHER_S
        host = _asking(claim)
        if host is not None and answer.wait_s:
            is_certain = answer.bound_by not in {"", Bound.IN_FLIGHT}
            host.refuse_late(now_mono + answer.wait_s if is_certain else -inf)
        if host is not None and claim.ticket is None:
            self.let_go(host, now_mono)
        if host is not None:
            host.advance(now_mono)
        else:
            self._give_back(claim, now_mono)

    def _learn(self, claim: Claim, answer: FleetAnswer, now_mono: float) -> None:
        """Adopt the closures and backoffs of a host from other processes."""
        kind, _, name = claim.key.partition(":")
        if kind != self.hosts.options.key:
            return
        closed_by = Bound(answer.bound_by) if answer.bound_by in CLOSINGS else None
        until_mono = now_mono + answer.wait_s
        known_mono = claim.place.demand.closing.until_mono if isinstance(claim.place, Host) else -inf
        if closed_by is not None and until_mono > known_mono + AGREE_S:
            claim.closed_mono = max(claim.closed_mono, until_mono)
            self.hosts.close_key(name, self.hosts.wall() + answer.wait_s, closed_by)
        if answer.backoff_s or answer.fetch_backoff_s or answer.refusal_s:
            self.hosts.learn(name, answer.backoff_s, answer.fetch_backoff_s, answer.refusal_s)

    def _is_usable(self, claim: Claim, ticket: Ticket, interval_s: float, now_mono: float) -> bool:
        """Return whether a ticket is valid for a request that starts now, or when its time has come."""
        if ticket.interval_s < interval_s:
            return False
        late_s = (now_mono - ticket.asked_mono) * self.link.stretch - ticket.wait_s
        if claim.most == 1:
            return late_s <= _USABLE * self.first_lease_s
        if late_s > ticket.tolerance_s:
            claim.patience = min(claim.patience * _PATIENCE, _MOST_PATIENCE)
            return False
        if 0.0 < late_s < _COMFORTABLE * ticket.tolerance_s:
            claim.patience = max(claim.patience / _PATIENCE, 1.0)
        return True

    def _report_unusable(self, key: str, error: Exception) -> None:
        """Publish once that a key cannot be used; its host is closed meanwhile."""
        if key not in self._unusable and len(self._unusable) < _MOST_UNUSABLE:
            self._unusable.add(key)
            self._publish(ComponentFailed(None, "pacer", unusable(key, self.link.name, error)))

    # Claims

    def _claim(self, key: str) -> Claim:
        claim = self._claims.get(key)
        if claim is None:
            claim = self._claims[key] = Claim(key)
        return claim

    def _answer(self, claim: Claim, count: int) -> None:
        """Let those go on who have asked first."""
        for question in claim.questions[:count]:
            if not question.done():
                question.set_result(None)
        del claim.questions[:count]

    def _give_back(self, claim: Claim, now_mono: float) -> None:
        """Give back a ticket that was not used."""
        ticket, claim.ticket = claim.ticket, None
        if ticket is not None:
            claim.ended.append((ticket.number, now_mono, "back"))
            self.link.post(claim)

    def _void(self, now_mono: float) -> None:
        """Give back all tickets that are not used, and those that Redis may have granted."""
        for claim in list(self._claims.values()):
            wish, claim.wish = claim.wish, None
            if wish is not None and claim.is_sent:
                claim.is_sent = False
                claim.ended.append((wish.number, now_mono, "back"))
                self.link.post(claim)
            self._give_back(claim, now_mono)
            host = _asking(claim)
            if host is not None:
                self.let_go(host, now_mono)
            self._settle(claim)

    def _settle(self, claim: Claim) -> None:
        """Count a claim as active, or forget it if it is not needed any more."""
        if claim.wish is not None or claim.ticket is not None or claim.used:
            self.active[claim] = None
            return
        self.active.pop(claim, None)
        is_needed = claim.place is not None or claim.ended or claim.questions or claim in self.link.due
        if not is_needed and self._claims.get(claim.key) is claim:
            del self._claims[claim.key]


def _asking(claim: Claim) -> Host | None:
    """Return the host that needs the ticket of a claim now."""
    place = claim.place
    if isinstance(place, Host):
        return place if place.line else None
    return None if place is None or place.called is None else place.called.host
