"""What one agent may do at one origin: Permission.

Theory of operation. A Permission is made once for an agent, a copy of robots.txt, a host policy and the usage
preferences that the agent enforces. All answers of the gate begin with it: ``AgentView.judged`` finds it by the
origin's text, ``verdict`` judges a URL, and a turn waits in the line of its ``host`` with its ``pace``. These questions
decide which function ``match`` is, in this order:

1. Does a policy of this crawler deny or exempt the host? The answer is the same for each URL.
2. Is robots.txt unknown? Only robots.txt itself may be requested (RFC 9309 2.2.2).
3. Could robots.txt be fetched? An unavailable robots.txt allows the whole site (RFC 9309 2.3.1.3), an unreachable
   robots.txt disallows it (RFC 9309 2.3.1.4). A 429 disallows the site, too. A 401 or 403 disallows the site if the
   dialect or ``on_forbidden`` says so. robots.txt itself may be requested, unless the fetcher refuses the address of
   its host.
4. Do the rules of robots.txt allow the URL? In RFC 9309 the most specific match decides (2.2.2).
5. Does the site permit the use of the content? This question is asked only with ``enforce_usage``, about an allowed
   URL (``usage.py``).

Where a Permission is kept, and when it is made anew:

    kept in                  the attribute ``permission`` of the copy: the Permission of the agent that asked last
    the copy is replaced,    the Permission goes with its copy. A Permission does not refer to its copy, so that an
    evicted or forgotten     evicted copy is dropped at once; a task that waits with a Permission keeps the copy, too
    the copy is due          the deadlines of the copy are compared at each look-up; a refresh makes another copy
    the wall clock set back  ``offset_s`` is compared at each look-up; the copy drops its Permission
    a policy is set          ``policy`` is compared at each look-up
    tdmrep.json changes      an agent that enforces ``tdm`` makes a Permission for each answer
    another agent asks       it makes its own Permission

A Permission without a copy, such as that of an exempt host, is made for each answer.
"""

from __future__ import annotations

from functools import cache, partial
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias

from politesse._base.constants import AGREE_S
from politesse._cache.options import HostPolicy, is_fault_of_kind
from politesse._cache.outcome import Kept
from politesse._pacing.pace import longest_stated_s
from politesse.errors import InvalidURL
from politesse.ports import FaultKind
from politesse.robots import Dialect, RobotsTxt, RuleSet
from politesse.verdict import WITHOUT_RULE, AccessResult, Match, Reason, Verdict, VerdictBasis, verdict_of_basis

if TYPE_CHECKING:
    from politesse._cache.outcome import Copy
    from politesse._gate.usage import MatchTarget, Reserved
    from politesse._gate.view import AgentView
    from politesse.origin import Origin

_NEVER: Final = -inf
_WHOLE_SITE: Final = {
    AccessResult.UNAVAILABLE: WITHOUT_RULE[Reason.UNAVAILABLE],
    AccessResult.FORBIDDEN: WITHOUT_RULE[Reason.FORBIDDEN],
    AccessResult.UNREACHABLE: WITHOUT_RULE[Reason.UNREACHABLE],
    AccessResult.TOO_MANY_REQUESTS: WITHOUT_RULE[Reason.TOO_MANY_REQUESTS],
}


class Permission(Kept):
    """What one agent may do at one origin; see the module. It never changes.

    Attributes:
        agent: the agent that may request.
        origin: where the agent may request.
        host: the host name under which requests to the origin are paced.
        match: returns the match of a request target of the origin.
        basis: the attributes that the verdicts at this origin share.
        policy: the policy of this crawler for the host, if any.
        pace: the rules that state the pace: empty rules if there is no robots.txt, None if robots.txt is unknown or
            could not be fetched.
        longest_s: the longest interval that ``pace`` states, in seconds; infinite if it depends on the time of day.
        floor_s: the least time between two requests of this gate to the host, in seconds.
        offset_s: if the wall clock minus the monotonic clock is at most this, the wall clock was set back. This matters
            only for a copy with a ``not_before``; otherwise it is minus infinity, and the test never succeeds.
        is_plain: whether the copy alone decides, and demands nothing before a turn. If not, a denial may have a basis
            of its own, a 429 may close the host before a turn, and the stated pace may be too slow.
        is_allowing: whether URLs are allowed in spite of a match that denies: in report mode, except for private
            addresses.
        reserved: the reservations of tdmrep.json that are enforced, or None.
        tdm_file: the cache entry of tdmrep.json if its reservations are enforced, else None.
    """

    __slots__ = (
        *("agent", "basis", "floor_s", "host", "is_allowing", "is_plain", "longest_s", "match"),
        *("offset_s", "origin", "pace", "policy", "reserved", "tdm_file"),
    )

    def __init__(
        self,
        agent: AgentView,
        origin: Origin,
        pace: RuleSet | None,
        match: MatchTarget,
        basis: VerdictBasis,
        reserved: Reserved | None = None,
    ) -> None:
        state, source, host = agent.state, basis.source, origin.pacing_host
        self.agent: AgentView = agent
        self.origin: Origin = origin
        self.host: str = host
        self.match: MatchTarget = match
        self.basis: VerdictBasis = basis
        self.policy: HostPolicy | None = state.policies.get(host)
        self.pace: RuleSet | None = pace
        self.floor_s: float = state.pacer.options_of.get(host, state.pacing).min_delay_s
        self.reserved: Reserved | None = reserved
        self.tdm_file: object = agent.tdm_file(origin) if agent.purposes else None
        self.is_allowing: bool = state.reports and not state.is_private(origin)
        self.longest_s: float = 0.0
        # Without Visit-time: it has no interval, so it never makes a pace too slow (``GateState.too_long_s``).
        has_interval = pace is not None and bool(pace.crawl_delay or pace.request_rates)
        if pace is not None and (has_interval or pace.timetable.is_timed):
            self.longest_s = inf if pace.timetable.is_timed else longest_stated_s((pace,))
        self.is_plain: bool = not has_interval and not agent.purposes
        self.offset_s: float = _NEVER
        if source is not None and source.not_before is not None:
            self.is_plain, self.offset_s = False, source.fetched_wall - basis.confirmed_mono - AGREE_S

    def verdict(self, url: str, target: str, now_mono: float, now_wall: float) -> Verdict:
        """Return the verdict on a URL of the origin, whose request target is ``target``; it is not counted.

        Raises:
            InvalidURL: if the target has no normal form.
        """
        try:
            match = self.match(target)
        except InvalidURL as error:
            raise InvalidURL(url, error.problem) from None  # the message quotes the URL as the caller gave it
        basis, allowed = self.basis, match.allowed
        if not allowed:
            if not self.is_plain:
                basis = self.agent.denial_basis(self, match, target)
            allowed = self.is_allowing
        return verdict_of_basis(url, allowed, match, basis, now_mono, now_wall)

    def has_pace_of(self, other: Permission) -> bool:
        """Return whether both rest on the same file, and so on the same stated pace."""
        # Without a file the digest is empty: then only the same rules state the same pace.
        return self.pace is other.pace or b"" != self.basis.digest == other.basis.digest


Judged: TypeAlias = "tuple[Verdict, Permission, Copy | None]"
"""A verdict, the permission from which it was made, and the copy of robots.txt behind the permission.

A task that waits with a permission keeps the copy, too: the cache finds an evicted copy as long as somebody keeps it.
"""


@cache
def no_rules(dialect: Dialect) -> RuleSet:
    """Return the rules of a site without a robots.txt: its matches are ROBOTS_TXT for robots.txt itself, or NO_RULE."""
    return RobotsTxt.parse(b"", dialect).rules_for("*")


def match_of(copy: Copy, agent: str, empty: RuleSet) -> MatchTarget:
    """Return the function that matches targets for the product tokens ``agent``; ``copy`` answers for them.

    Args:
        copy: the copy of robots.txt, or the reason why there is none.
        agent: the product tokens, joined by commas.
        empty: the empty rules of the dialect.
    """
    if copy.result is AccessResult.SUCCESSFUL:
        return copy.rules[agent].judge
    whole = _WHOLE_SITE[copy.result]
    # The fetcher refuses a private address, so that robots.txt itself cannot be requested either.
    is_private = is_fault_of_kind(copy.source, FaultKind.ADDRESS)
    return partial(_match_without_file, empty, whole, whole if is_private else WITHOUT_RULE[Reason.ROBOTS_TXT])


def _match_without_file(empty: RuleSet, whole: Match, of_robots_txt: Match, target: str) -> Match:
    return of_robots_txt if empty.judge(target).reason is Reason.ROBOTS_TXT else whole
