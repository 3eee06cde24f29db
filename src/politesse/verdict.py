"""The words of an answer: values only, made by the layers above and read by people and programs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from politesse._text import printable
from politesse.errors import PolitesseError
from politesse.usage.model import NOTHING_STATED

if TYPE_CHECKING:
    from politesse.usage.model import Usage


class AccessResult(StrEnum):
    """What the attempt to get a robots.txt came to (RFC 9309 2.3.1)."""

    SUCCESSFUL = "successful"
    """2xx: the rules of the file hold."""
    UNAVAILABLE = "unavailable"
    """4xx, or too many redirects: everything may be requested."""
    FORBIDDEN = "forbidden"
    """401 or 403 where those are read as a refusal: complete disallow."""
    UNREACHABLE = "unreachable"
    """5xx, a fault of the network, or no usable answer: complete disallow."""
    TOO_MANY_REQUESTS = "too-many-requests"
    """429: no page for now, and robots.txt is asked for again before any."""


class Reason(StrEnum):
    """Why a verdict is what it is."""

    ALLOW_RULE = "allow-rule"
    """An Allow line is the most specific match."""
    DISALLOW_RULE = "disallow-rule"
    """A Disallow line is the most specific match."""
    NOT_ALLOWED = "not-allowed"
    """No Allow line matches, and the file allows nothing else: the rule is the first such line (Conner 2.0)."""
    NO_RULE = "no-rule"
    """The file restricts nothing here: no group, or no rule of the group, matches."""
    ROBOTS_TXT = "robots-txt"
    """robots.txt itself may always be requested (RFC 9309 2.2.2)."""
    UNAVAILABLE = "unavailable"
    """There is no robots.txt: see AccessResult.UNAVAILABLE."""
    FORBIDDEN = "forbidden"
    """See AccessResult.FORBIDDEN."""
    UNREACHABLE = "unreachable"
    """robots.txt could not be got: see AccessResult.UNREACHABLE."""
    TOO_MANY_REQUESTS = "too-many-requests"
    """See AccessResult.TOO_MANY_REQUESTS; the verdict's ``not_before`` tells until when."""
    POLICY_DENY = "policy-deny"
    """A host policy of this crawler denies the host."""
    POLICY_EXEMPT = "policy-exempt"
    """A host policy of this crawler exempts the host from robots.txt."""
    TOO_SLOW = "too-slow"
    """The site asks for a pace that this crawler will not keep, so it stays away."""
    USAGE_DISALLOWED = "usage-disallowed"
    """The site allows the request, but not a use that this crawler makes (``enforce_usage``)."""
    USAGE_UNKNOWN = "usage-unknown"
    """It could not be learned whether the site allows such a use."""
    INVALID_URL = "invalid-url"
    """The text is no http(s) URL; only where many are judged at once, elsewhere InvalidURL is raised."""


ALLOWING: Final = frozenset(
    {Reason.ALLOW_RULE, Reason.NO_RULE, Reason.ROBOTS_TXT, Reason.UNAVAILABLE, Reason.POLICY_EXEMPT}
)
"""The reasons that allow; all others deny."""

_BY_USAGE: Final = frozenset({Reason.USAGE_DISALLOWED, Reason.USAGE_UNKNOWN})

UNDECIDED: Final = frozenset({Reason.UNREACHABLE, Reason.TOO_MANY_REQUESTS, Reason.USAGE_UNKNOWN, Reason.INVALID_URL})
"""The reasons that deny because nothing could be learned, not because the site said so."""


class Rule:
    """One Allow or Disallow line of a file.

    Attributes:
        line: its line number, from 1.
        field: the field name as the file spells it.
        value: the path pattern as the file spells it.
        pattern: the path pattern in the normal form that is compared; its length in octets is what ranks it.
        allow: whether it allows.
        known_match: ``match``, once it was asked for.
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
        """The answer where it is the most specific match; made on demand, for most rules never decide anything."""
        if self.known_match is None:
            self.known_match = Match(Reason.ALLOW_RULE if self.allow else Reason.DISALLOW_RULE, self)
        return self.known_match

    def __str__(self) -> str:
        return f"{self.field}: {self.value}"

    def __repr__(self) -> str:
        return f"<Rule line {self.line}: {str(self)!r}>"


class Match:
    """Whether a target is allowed, and what decided; true only for allowed.

    Attributes:
        allowed: the answer.
        rule: the most specific match, or None where no rule decided.
        reason: why; of a file ALLOW_RULE, DISALLOW_RULE, NOT_ALLOWED, NO_RULE or ROBOTS_TXT.
        bound_reached: whether the bound on the matching work of one decision was reached. Then rules were not compared;
            a Disallow among them counts as matching, an Allow as not.
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


WITHOUT_RULE: Final = {reason: Match(reason) for reason in Reason}
"""The matches that no rule decided."""


@dataclass(frozen=True, slots=True)
class Source:
    """The copy of a robots.txt, or the lack of one, that an answer came from.

    Attributes:
        robots_url: where the file was asked for.
        result: what the attempt came to.
        status: the HTTP status, None where there was no answer.
        final_url: where the answer came from, after redirects.
        fetched_wall: Unix time of the answer, or of the 304 that last confirmed it.
        fresh_until_wall: Unix time until which it holds without being asked for again.
        fault: what went wrong, as a phrase; empty where nothing did. On a SUCCESSFUL source: why an older copy
            still serves.
        not_before: Unix time before which the host asked for no request, or before which robots.txt will not be
            asked for again; None where neither is known.
        of_host: whether ``not_before`` was said of the host, as 429 says it, and not of robots.txt alone.
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


class StatesUsage(Protocol):
    """What a site says about the use of its content."""

    def usage(self, url: str, /) -> Usage:
        """Return what is said about a URL."""
        ...


class Verdict:
    """May this URL be requested, and why. True in a bare test only if it may.

    Attributes:
        url: the URL that was asked about, as given.
        agent: the product tokens that the groups were chosen by.
        allowed: the answer. With ``mode="report"`` always true: ``reason`` and ``rule`` tell what would hold.
        match: reason and rule.
        source: the copy of robots.txt that was read; None where none was needed.
        age_s: seconds since that copy was got or confirmed, at the moment of the decision, by the clock that says more.
        note: the words of the host policy that decided, or what is wrong with the URL; else empty.
        site_usage: what the file says about the use of content; None where it says nothing. See ``usage``.
    """

    # Plain slots, and the parts shared rather than copied: one is made for each question.
    __slots__ = ("age_s", "agent", "allowed", "match", "note", "site_usage", "source", "url")

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
        self.agent = agent
        self.allowed = allowed
        self.match = match
        self.source = source
        self.age_s = age_s
        self.note = note
        self.site_usage = site_usage

    @property
    def reason(self) -> Reason:
        """Why."""
        return self.match.reason

    @property
    def rule(self) -> Rule | None:
        """The line of the file that decided, or None."""
        return self.match.rule

    @property
    def not_before(self) -> float | None:
        """Until when to wait, as the source says; see there."""
        return None if self.source is None else self.source.not_before

    @property
    def usage(self) -> Usage | None:
        """What robots.txt says about the use of the page, and tdmrep.json where it was asked for ``enforce_usage``.

        It changes the answer only if that says so. Made when it is asked for. None where the page may not be requested
        for another reason, be it that this gate only reports: preferences exist for what may be requested only
        (draft-ietf-aipref-attach 3.4). Without a robots.txt, nothing is stated.
        """
        if not self.match.allowed and self.reason not in _BY_USAGE:
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
        """Tell in a few lines the answer, the rule, the copy it stands in, its age and what comes next."""
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
        words = _WORDS[self.reason]
        if self.match.bound_reached and self.reason is Reason.DISALLOW_RULE:
            words = "a Disallow rule counts as the most specific match, for the bound of matching work was reached"
        if self.rule is not None:
            return f"{words}: line {self.rule.line}, {printable(str(self.rule))!r}"
        if self.reason is Reason.UNREACHABLE and self.source is not None:
            return f"{words}: {printable(self.source.fault)}"
        if self.reason is Reason.INVALID_URL or self.reason in _BY_USAGE:
            return f"{words} {printable(self.note)}"
        return f"{words}: {printable(self.note)}" if self.note else words


_BOUND_REACHED: Final = (
    "the rules take too much work to compare them all; of the others a Disallow counts as matching, an Allow as not"
)

_WORDS: Final = {
    Reason.ALLOW_RULE: "an Allow rule is the most specific match",
    Reason.DISALLOW_RULE: "a Disallow rule is the most specific match",
    Reason.NOT_ALLOWED: "nothing is allowed but what Allow rules match, the first of them",
    Reason.NO_RULE: "no rule matches",
    Reason.ROBOTS_TXT: "robots.txt itself may always be requested",
    Reason.UNAVAILABLE: "there is no robots.txt to restrict it",
    Reason.FORBIDDEN: "robots.txt is forbidden to us, and so is the site",
    Reason.UNREACHABLE: "robots.txt is unreachable, so everything is disallowed",
    Reason.TOO_MANY_REQUESTS: "the server answered robots.txt with 429, so every page waits",
    Reason.POLICY_DENY: "a host policy denies this host",
    Reason.POLICY_EXEMPT: "a host policy exempts this host",
    Reason.TOO_SLOW: "the site asks for a slower pace than this crawler keeps",
    Reason.USAGE_DISALLOWED: "the site does not want its content used for",
    Reason.USAGE_UNKNOWN: "it is not known whether the site wants its content used for",
    Reason.INVALID_URL: "the URL",
}


def _explain_source(source: Source, age_s: float) -> list[str]:
    status = "no answer" if source.status is None else f"status {source.status}"
    lines = [f"  source: {printable(source.robots_url)}, {source.result}, {status}"]
    if source.final_url != source.robots_url:
        lines.append(f"  after redirects: {printable(source.final_url)}")
    if source.result in {AccessResult.UNREACHABLE, AccessResult.TOO_MANY_REQUESTS}:
        lines.append(f"  asked:  {age_s:.0f} s ago")  # "not before" tells when again
    else:
        lines.append(f"  copy:   {age_s:.0f} s old, holds until {utc(source.fresh_until_wall)}")
    if source.fault and source.result is not AccessResult.UNREACHABLE:  # there it is the reason
        lines.append(f"  fault:  {printable(source.fault)}")
    return lines


class Bound(StrEnum):
    """What bound a wait."""

    FLOOR = "floor"
    """The crawler's own ``min_delay_s``."""
    CRAWL_DELAY = "crawl-delay"
    REQUEST_RATE = "request-rate"
    VISIT_TIME = "visit-time"
    RULE_OF_THUMB = "rule-of-thumb"
    """Twice the last retrieval, at least ten seconds (Conner 2.0)."""
    ADAPTIVE = "adaptive"
    """The host's own slowness."""
    RATE_LIMIT = "rate-limit"
    """RateLimit headers: what is left of a quota, before it is spent."""
    RETRY_AFTER = "retry-after"
    BACKOFF = "backoff"
    """429 or 503 without a Retry-After."""
    IN_FLIGHT = "in-flight"
    """As many requests as are allowed at once are under way."""
    ROBOTS_TXT = "robots-txt"
    """robots.txt is not known yet: it is being asked for."""
    ADDRESS = "address"
    """The host's address is not known yet, and the pace goes by it: it is being looked up."""
    QUEUE = "queue"
    """Others have waited for longer."""


class NotYet:
    """No turn now, and when to ask again; false in a bare test.

    Attributes:
        not_before: the Unix time before which there will be none; others may be before us even then.
        bound_by: what binds the wait.
    """

    __slots__ = ("bound_by", "not_before")

    def __init__(self, not_before: float, bound_by: Bound) -> None:
        self.not_before = not_before
        self.bound_by = bound_by

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return f"<NotYet before {utc(self.not_before)}, bound by {self.bound_by}>"


class Disallowed(PolitesseError):
    """The request must not be made.

    Attributes:
        verdict: the answer, with its reason, rule and source.
    """

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict


class TooFar(PolitesseError):
    """No turn comes within the time that the caller would wait.

    Attributes:
        host: where.
        not_yet: when it may come, and what binds that.
        max_wait_s: how long the caller would wait, in seconds.
    """

    def __init__(self, host: str, not_yet: NotYet, max_wait_s: float) -> None:
        super().__init__(f"no turn at {host} within {max_wait_s:g} s: {not_yet!r}")
        self.host = host
        self.not_yet = not_yet
        self.max_wait_s = max_wait_s

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.host, self.not_yet, self.max_wait_s)


def utc(wall: float) -> str:
    """Return a Unix time as ISO 8601 in UTC, to the second; a time beyond the calendar as its number."""
    try:
        return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return f"{wall:.0f}"
