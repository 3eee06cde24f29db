"""Verdicts and waits: the values of an answer, made by the layers above and read by people and programs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from math import inf
from typing import Final, Literal, Protocol

from politesse._reasons import ALLOWING, BY_USAGE, UNDECIDED, WORDS, AccessResult, FileOutcome, Reason
from politesse._text import printable
from politesse.usage.model import NOTHING_STATED, Usage

__all__ = [
    "ALLOWING",
    "UNDECIDED",
    "WITHOUT_RULE",
    "AccessResult",
    "Bound",
    "FileOutcome",
    "Match",
    "NotYet",
    "Reason",
    "Rule",
    "Source",
    "StatesUsage",
    "Verdict",
    "utc",
]


class Rule:
    r"""One Allow or Disallow line of a file.

    >>> from politesse import RobotsTxt
    >>> rule = RobotsTxt.parse(b"User-agent: *\nDisallow: /private").rules_for("ExampleBot").match("/private/a").rule
    >>> rule.line, rule.value, rule.allow
    (2, '/private', False)

    Attributes:
        line: the line number, from 1.
        field: the field name as the file spells it.
        value: the path pattern as the file spells it.
        pattern: the path pattern in the normal form that is compared; a longer one, in octets, has precedence.
        allow: whether it allows.
        known_match: the cached value of ``match``.
    """

    __slots__ = ("allow", "field", "known_match", "line", "pattern", "value")

    def __init__(self, line: int, field: str, value: str, pattern: str, *, allow: bool) -> None:
        self.line = line
        self.field = field
        self.value = value
        self.pattern = pattern
        self.allow = allow
        self.known_match: Match | None = None

    @property
    def match(self) -> Match:
        """The match where this rule is the most specific one; created on demand, because most rules never decide."""
        if self.known_match is None:
            self.known_match = Match(Reason.ALLOW_RULE if self.allow else Reason.DISALLOW_RULE, self)
        return self.known_match

    def __str__(self) -> str:
        return f"{self.field}: {self.value}"

    def __repr__(self) -> str:
        return f"<Rule line {self.line}: {str(self)!r}>"


class Match:
    r"""Whether a target is allowed, and what decided; true only if it is allowed.

    >>> from politesse import RobotsTxt
    >>> RobotsTxt.parse(b"User-agent: *\nDisallow: /private").rules_for("ExampleBot").match("/private/a")
    Match(allowed=False, rule=<Rule line 2: 'Disallow: /private'>)

    Attributes:
        allowed: the answer.
        rule: the most specific match, or None if no rule decided.
        reason: why; a file gives ALLOW_RULE, DISALLOW_RULE, NOT_ALLOWED, NO_RULE or ROBOTS_TXT.
        bound_reached: whether the bound on the matching work of one decision was reached. The rules that were not
            compared then count as matching if they are Disallow rules, and as not matching if they are Allow rules.
    """

    __slots__ = ("allowed", "bound_reached", "reason", "rule")

    def __init__(self, reason: Reason, rule: Rule | None = None, *, bound_reached: bool = False) -> None:
        self.allowed = reason in ALLOWING
        self.reason = reason
        self.rule = rule
        self.bound_reached = bound_reached

    def __bool__(self) -> bool:
        return self.allowed

    def __repr__(self) -> str:
        return f"Match(allowed={self.allowed}, rule={self.rule!r})"


_new: Final = object.__new__

WITHOUT_RULE: Final = {reason: Match(reason) for reason in Reason}
"""The matches without a rule, by reason."""


@dataclass(frozen=True, slots=True)
class Source:
    """The copy of a robots.txt that an answer is based on, or the failed attempt to fetch one.

    >>> url = "https://example.com/robots.txt"
    >>> Source(url, AccessResult.UNAVAILABLE, 404, url, 1_800_000_000.0, 1_800_086_400.0).fault
    ''

    Attributes:
        robots_url: the URL of the file.
        result: the result of the fetch.
        status: the HTTP status, None if there was no answer.
        final_url: the URL that answered, after redirects.
        fetched_wall: Unix time of the answer, or of the 304 that last confirmed it.
        fresh_until_wall: Unix time until which the copy is fresh; after that it is fetched again.
        fault: what went wrong, as a phrase; empty if nothing did. On a SUCCESSFUL source: why an older copy
            still serves.
        not_before: Unix time before which the host wants no request, or before which robots.txt is not fetched again;
            None if neither is known.
        of_host: whether ``not_before`` applies to the whole host, as that of a 429 does, or to robots.txt alone.
        failing_since_wall: Unix time of the first of the failures in a row, where the source is a failure; else None.
    """

    robots_url: str
    result: AccessResult
    status: int | None
    final_url: str
    fetched_wall: float
    fresh_until_wall: float
    fault: str = ""
    not_before: float | None = None
    of_host: bool = False
    failing_since_wall: float | None = None


class StatesUsage(Protocol):
    """What a site says about the use of its content."""

    def usage(self, url: str, /) -> Usage:
        """Return the preferences that apply to a URL."""
        ...


class Grounds:
    """What the verdicts for one agent that rest on one copy of a robots.txt have in common.

    Attributes:
        agent: the product tokens that selected the groups.
        source: the copy; None if none was needed.
        confirmed_mono: when it was fetched or last confirmed, by the monotonic clock; ``source`` has the wall time.
        site_usage: what the file says about the use of content; None if it says nothing.
        note: see Verdict.
    """

    __slots__ = ("agent", "confirmed_mono", "note", "site_usage", "source")

    def __init__(
        self,
        agent: str,
        source: Source | None,
        confirmed_mono: float,
        site_usage: StatesUsage | None,
        note: str = "",
    ) -> None:
        self.agent = agent
        self.source = source
        self.confirmed_mono = confirmed_mono
        self.site_usage = site_usage
        self.note = note


class Verdict:
    """Whether this URL may be requested, and why. True in a bare test only if it may.

    >>> verdict = Verdict("https://example.com/a", "examplebot", False, Match(Reason.POLICY_DENY), note="paused")
    >>> bool(verdict), verdict.reason
    (False, <Reason.POLICY_DENY: 'policy-deny'>)
    >>> print(verdict)
    disallowed: https://example.com/a (a host policy denies this host: paused)

    Attributes:
        url: the URL in question, as given.
        allowed: the answer. With ``mode="report"`` always true: ``reason`` and ``rule`` show what would apply.
        match: reason and rule.
    """

    # One verdict is created for each question. So what it has in common with others is one object, and its age is
    # computed on access: both together save 8 % of a hit.
    __slots__ = ("_grounds", "_read_mono", "_read_wall", "allowed", "match", "url")

    def __init__(
        self,
        url: str,
        agent: str,
        allowed: bool,  # noqa: FBT001 - it is the answer
        match: Match,
        source: Source | None = None,
        age_s: float = 0.0,
        note: str = "",
        site_usage: StatesUsage | None = None,
    ) -> None:
        self.url = url
        self.allowed = allowed
        self.match = match
        self._grounds = Grounds(agent, source, -age_s, site_usage, note)
        self._read_mono, self._read_wall = 0.0, -inf

    @property
    def agent(self) -> str:
        """The product tokens that selected the groups."""
        return self._grounds.agent

    @property
    def source(self) -> Source | None:
        """The copy of robots.txt that was read; None if none was needed."""
        return self._grounds.source

    @property
    def age_s(self) -> float:
        """Seconds since that copy was fetched or confirmed, at the moment of the decision.

        The larger of the wall clock's and the monotonic clock's.
        """
        grounds = self._grounds
        age_s = self._read_mono - grounds.confirmed_mono
        return age_s if grounds.source is None else max(age_s, self._read_wall - grounds.source.fetched_wall)

    @property
    def note(self) -> str:
        """The reason given by the host policy that decided, or what is wrong with the URL; otherwise empty."""
        return self._grounds.note

    @property
    def site_usage(self) -> StatesUsage | None:
        """What the file says about the use of content; None if it says nothing. See ``usage``."""
        return self._grounds.site_usage

    @property
    def reason(self) -> Reason:
        """Why the answer is what it is."""
        return self.match.reason

    @property
    def rule(self) -> Rule | None:
        """The line of the file that decided, or None."""
        return self.match.rule

    @property
    def not_before(self) -> float | None:
        """Unix time before which to send no request; see ``Source.not_before``."""
        return None if self.source is None else self.source.not_before

    @property
    def usage(self) -> Usage | None:
        """What robots.txt says about the use of the page, and tdmrep.json if ``enforce_usage`` had it fetched.

        It changes the answer only with ``enforce_usage``. Computed on access. None if the page may not be requested for
        another reason, in report mode too: preferences apply only to what may be requested
        (draft-ietf-aipref-attach 3.4). Without a robots.txt, nothing is stated.

        Raises:
            InvalidURL: the URL is invalid, which ``check`` and ``peek`` have ruled out.
        """
        if not self.match.allowed and self.reason not in BY_USAGE:
            return None
        return NOTHING_STATED if self.site_usage is None else self.site_usage.usage(self.url)

    def __bool__(self) -> bool:
        return self.allowed

    def __str__(self) -> str:
        return f"{self._answer()}: {printable(self.url)} ({self._because()})"

    def __repr__(self) -> str:
        return f"<Verdict {self}>"

    @property
    def denied_by_reason(self) -> bool:
        """Whether the reason denies; differs from ``not allowed`` only in report mode."""
        return not self.match.allowed

    def explain(self) -> str:
        """Return a few lines of text: the answer, the rule, the copy that contains it, its age and its expiry."""
        lines = [
            f"{self._answer()}: {printable(self.url)}",
            f"  agent:  {self.agent}",
            f"  reason: {self._because()}",
        ]
        if self.source is not None:
            lines += _explain_source(self.source, self.age_s)
        if self.match.bound_reached:
            lines.append(f"  bound:  {_BOUND_REACHED}")
        if self.not_before is not None:
            lines.append(f"  not before: {utc(self.not_before)}")
        return "\n".join(lines)

    def _answer(self) -> str:
        if self.allowed and self.denied_by_reason:
            return "allowed, because this gate only reports"
        return "allowed" if self.allowed else "disallowed"

    def _because(self) -> str:
        words = WORDS[self.reason]
        if self.match.bound_reached and self.reason is Reason.DISALLOW_RULE:
            words = "the bound of matching work was reached, so a Disallow rule counts as the most specific match"
        if self.rule is not None:
            return f"{words}: line {self.rule.line}, {printable(str(self.rule))!r}"
        if self.reason is Reason.UNREACHABLE and self.source is not None:
            return f"{words}: {printable(self.source.fault)}"
        if self.reason is Reason.INVALID_URL or self.reason in BY_USAGE:
            return f"{words} {printable(self.note)}"
        return f"{words}: {printable(self.note)}" if self.note else words


def verdict_of_hit(
    url: str,
    allowed: bool,  # noqa: FBT001 - it is the answer
    match: Match,
    grounds: Grounds,
    read_mono: float,
    read_wall: float,
) -> Verdict:
    """Return a verdict that shares its grounds with others; the clocks were read at the moment of the decision."""
    self = _new(Verdict)
    self.url = url
    self.allowed = allowed
    self.match = match
    self._grounds = grounds
    self._read_mono = read_mono
    self._read_wall = read_wall
    return self


def age_of_hit(verdict: Verdict, now_mono: float, now_wall: float) -> float:
    """Return the age of the copy behind a verdict of ``verdict_of_hit`` now: what ``age_s`` says, and what has passed.

    Of the two clocks, each time that of which more seconds have passed.
    """
    read_mono, read_wall, grounds = verdict._read_mono, verdict._read_wall, verdict._grounds  # noqa: SLF001 - its own
    age_s, passed_s, passed_wall_s = read_mono - grounds.confirmed_mono, now_mono - read_mono, now_wall - read_wall
    source = grounds.source
    if source is not None and read_wall - source.fetched_wall > age_s:
        age_s = read_wall - source.fetched_wall
    return age_s + max(passed_s, passed_wall_s)


_BOUND_REACHED: Final = (
    "the rules take too much work to compare them all; of the others a Disallow counts as matching, an Allow as not"
)


def _explain_source(source: Source, age_s: float) -> list[str]:
    status = "no answer" if source.status is None else f"status {source.status}"
    lines = [f"  source: {printable(source.robots_url)}, {source.result}, {status}"]
    if source.final_url != source.robots_url:
        lines.append(f"  after redirects: {printable(source.final_url)}")
    if source.result in {AccessResult.UNREACHABLE, AccessResult.TOO_MANY_REQUESTS}:
        lines.append(f"  tried:  {age_s:.0f} s ago")  # "not before" is when it is fetched again
    else:
        lines.append(f"  copy:   {age_s:.0f} s old, holds until {utc(source.fresh_until_wall)}")
    if source.fault and source.result is not AccessResult.UNREACHABLE:  # there it is the reason
        lines.append(f"  fault:  {printable(source.fault)}")
    return lines


class Bound(StrEnum):
    """What sets the earliest start of the next request.

    >>> Bound("crawl-delay")
    <Bound.CRAWL_DELAY: 'crawl-delay'>
    """

    FLOOR = "floor"
    """The crawler's own ``min_delay_s``."""
    CRAWL_DELAY = "crawl-delay"
    REQUEST_RATE = "request-rate"
    VISIT_TIME = "visit-time"
    RULE_OF_THUMB = "rule-of-thumb"
    """Twice the last retrieval, at least ten seconds (Conner 2.0)."""
    ADAPTIVE = "adaptive"
    """The host answers slowly."""
    RATE_LIMIT = "rate-limit"
    """RateLimit headers: the rest of a quota is spread over its window."""
    RETRY_AFTER = "retry-after"
    BACKOFF = "backoff"
    """429 or 503 without a Retry-After."""
    IN_FLIGHT = "in-flight"
    """The limit of concurrent requests is reached."""
    ROBOTS_TXT = "robots-txt"
    """robots.txt is being fetched."""
    ADDRESS = "address"
    """The host's address, which has a pace of its own, is being looked up."""
    STORE = "store"
    """What the host asked an earlier process for is being read from the store."""
    QUEUE = "queue"
    """Other requests have waited longer."""
    FLEET = "fleet"
    """The Redis of the fleet is away, or was until a moment ago."""


class NotYet:
    """No turn is free now; false in a bare test.

    >>> NotYet(1_800_000_000.0, Bound.CRAWL_DELAY)
    <NotYet before 2027-01-15T08:00:00Z, bound by crawl-delay>
    >>> print(NotYet(1_800_000_000.0, Bound.CRAWL_DELAY))
    not before 2027-01-15T08:00:00Z, by crawl-delay

    Attributes:
        not_before: the earliest Unix time of a turn; other requests may come first even then.
        bound_by: what sets that time.
        held_by: the URL whose request is under way and has to end first; empty if there is room at the host.
    """

    __slots__ = ("bound_by", "held_by", "not_before")

    def __init__(self, not_before: float, bound_by: Bound, held_by: str = "") -> None:
        self.not_before = not_before
        self.bound_by = bound_by
        self.held_by = held_by

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        held = f", held by {printable(self.held_by)}" if self.held_by else ""
        return f"<NotYet before {utc(self.not_before)}, bound by {self.bound_by}{held}>"

    def __str__(self) -> str:
        why = " (its Redis is away, or was until a moment ago)" if self.bound_by is Bound.FLEET else ""
        held = f", held by {printable(self.held_by)}" if self.held_by else ""
        return f"not before {utc(self.not_before)}, by {self.bound_by}{why}{held}"


def utc(wall: float) -> str:
    """Return a Unix time as ISO 8601 in UTC, to the second; a time beyond the calendar as a number."""
    try:
        return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return f"{wall:.0f}"
