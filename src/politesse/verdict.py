"""Verdicts: the answers of a gatekeeper, with their reasons, the rule that decides, and the source.

To add a reason, add the member, its entries in the sets, and its words here. The package ``robots/`` gives the reasons
of rules. A Permission (``_gate/view.py``) gives the other reasons, by another function ``match``, and the
integration of httpx gives POLICY_DENY for a name with only private addresses. The commands of the ledger sort reasons,
too (``cli/ledger_command.py``). If a verdict with the reason may change later, add the reason to ``_GIVING_UP``
(``queue/_results.py``). If such a verdict waits for robots.txt, add the reason also to ``DEFERRING`` (Scrapy's
``_downloader.py``). ``Verdict._because`` adds the words that depend on the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from enum import StrEnum
from functools import partial
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from politesse._base.text import counted, printable, public_url, shortened

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse.usage.model import Usage

__all__ = [
    "ALLOWING",
    "CLOSINGS",
    "UNDECIDED",
    "WITHOUT_RULE",
    "AccessResult",
    "Bound",
    "FileOutcome",
    "Match",
    "NotYet",
    "Reason",
    "Refusal",
    "Rule",
    "Source",
    "StatesUsage",
    "Verdict",
    "utc",
]


class AccessResult(StrEnum):
    """The result of an attempt to fetch a robots.txt (RFC 9309 2.3.1).

    >>> AccessResult("unreachable")
    <AccessResult.UNREACHABLE: 'unreachable'>
    """

    SUCCESSFUL = "successful"
    """2xx: the rules of the file apply."""
    UNAVAILABLE = "unavailable"
    """4xx, or too many redirects: everything is allowed."""
    FORBIDDEN = "forbidden"
    """401 or 403, if these statuses are read as a refusal: complete disallow."""
    UNREACHABLE = "unreachable"
    """5xx, a network fault, or no usable answer: complete disallow."""
    TOO_MANY_REQUESTS = "too-many-requests"
    """429: no page may be requested for now; robots.txt is fetched again before any page."""


CLOSED: Final = frozenset({AccessResult.UNREACHABLE, AccessResult.TOO_MANY_REQUESTS})
"""The results that close a site until its robots.txt is fetched again."""


class FileOutcome(StrEnum):
    """The outcome of fetching a file of a site ("A Method for Web Data Discovery" 3.1).

    >>> FileOutcome("retry") is FileOutcome.RETRY
    True
    """

    FOUND = "found"
    """2xx: there is a body."""
    UNKNOWN = "unknown"
    """404, any other 4xx but 429, too many redirects, or a web page in place of a data.txt. This does not mean that the
    site has no data."""
    RETRY = "retry"
    """5xx, 429, a network fault, or no usable answer: the file is fetched again, not before ``not_before``."""
    DISALLOWED = "disallowed"
    """The site's robots.txt or a host policy forbids the request, so it was not made."""


class Reason(StrEnum):
    """The reason of a verdict.

    >>> Reason.DISALLOW_RULE in ALLOWING
    False
    """

    ALLOW_RULE = "allow-rule"
    """An Allow line is the most specific match."""
    DISALLOW_RULE = "disallow-rule"
    """A Disallow line is the most specific match."""
    NOT_ALLOWED = "not-allowed"
    """No Allow line matches, and the file allows only such matches; the rule is its first Allow (Conner 2.0)."""
    NO_RULE = "no-rule"
    """No group matches, or no rule of the matching group: RFC 9309 2.2.2 allows the request."""
    ROBOTS_TXT = "robots-txt"
    """robots.txt itself may always be requested (RFC 9309 2.2.2)."""
    UNAVAILABLE = "unavailable"
    """There is no robots.txt: see AccessResult.UNAVAILABLE."""
    FORBIDDEN = "forbidden"
    """See AccessResult.FORBIDDEN."""
    UNREACHABLE = "unreachable"
    """robots.txt could not be fetched: see AccessResult.UNREACHABLE."""
    TOO_MANY_REQUESTS = "too-many-requests"
    """The request for robots.txt was answered with 429, or it was not made, because an answer to a page or to another
    origin had closed the host. The verdict's ``not_before`` is the end of the wait."""
    POLICY_DENY = "policy-deny"
    """A host policy of this crawler denies the host."""
    POLICY_EXEMPT = "policy-exempt"
    """A host policy of this crawler exempts the host from robots.txt."""
    TOO_SLOW = "too-slow"
    """The site demands a slower pace than this crawler accepts, so the site is not crawled."""
    WAIT_TOO_LONG = "wait-too-long"
    """The site makes its pages wait for longer than a queue's ``max_wait_s``; the note names the cause and its end."""
    REFUSED = "refused"
    """The site has refused this crawler ``max_refusals`` times in a row; the note says how. See Bound.REFUSED."""
    GIVEN_UP = "given-up"
    """The program has given up the host, by ``PoliteQueue.give_up``; the note has its reason."""
    USAGE_DISALLOWED = "usage-disallowed"
    """The site allows the request, but not a use that this crawler enforces (``enforce_usage``)."""
    USAGE_UNKNOWN = "usage-unknown"
    """It is unknown whether the site allows a use that this crawler enforces."""
    INVALID_URL = "invalid-url"
    """The text is not an http(s) URL. Only calls that take many URLs give this reason; all others raise InvalidURL."""


ALLOWING: Final = frozenset(
    {Reason.ALLOW_RULE, Reason.NO_RULE, Reason.ROBOTS_TXT, Reason.UNAVAILABLE, Reason.POLICY_EXEMPT}
)
"""The reasons that allow the request; all others deny it."""

BY_POLICY: Final = frozenset({Reason.POLICY_DENY, Reason.POLICY_EXEMPT})
"""The reasons of host policies; a verdict with such a reason needs no copy of robots.txt."""

BY_USAGE: Final = frozenset({Reason.USAGE_DISALLOWED, Reason.USAGE_UNKNOWN})
"""The reasons of ``enforce_usage``; the note of the verdict continues the words of the reason."""

UNDECIDED: Final = frozenset({Reason.UNREACHABLE, Reason.TOO_MANY_REQUESTS, Reason.USAGE_UNKNOWN, Reason.INVALID_URL})
"""The reasons that deny because the answer is unknown, not because the site forbids the request."""

WORDS: Final = {
    Reason.ALLOW_RULE: "an Allow rule is the most specific match",
    Reason.DISALLOW_RULE: "a Disallow rule is the most specific match",
    Reason.NOT_ALLOWED: "only what an Allow rule matches is allowed, and none matches; the first Allow is",
    Reason.NO_RULE: "no rule matches",
    Reason.ROBOTS_TXT: "robots.txt itself may always be requested",
    Reason.UNAVAILABLE: "there is no robots.txt to restrict it",
    Reason.FORBIDDEN: "robots.txt returned 401 or 403, which is read as a complete disallow",
    Reason.UNREACHABLE: "robots.txt is unreachable, so everything is disallowed",
    Reason.TOO_MANY_REQUESTS: "an answer such as 429 or 503 has closed the host, so its robots.txt and every page wait",
    Reason.POLICY_DENY: "a host policy denies this host",
    Reason.POLICY_EXEMPT: "a host policy exempts this host",
    Reason.TOO_SLOW: "the site demands a slower pace than this crawler accepts",
    Reason.WAIT_TOO_LONG: "the site makes its pages wait for longer than this crawler accepts",
    Reason.REFUSED: "the site refuses this crawler",
    Reason.GIVEN_UP: "this crawler has given up the host",
    Reason.USAGE_DISALLOWED: "the site does not want its content used for",
    Reason.USAGE_UNKNOWN: "it is unknown whether the site wants its content used for",
    Reason.INVALID_URL: "the URL",
}
"""The words for a reason in a verdict. The line of the rule, the fault or the note follows."""


class Bound(StrEnum):
    """The limit that sets the earliest start of the next request.

    >>> Bound("crawl-delay")
    <Bound.CRAWL_DELAY: 'crawl-delay'>
    """

    FLOOR = "floor"
    """The crawler's own ``min_delay_s``."""
    CRAWL_DELAY = "crawl-delay"
    REQUEST_RATE = "request-rate"
    VISIT_TIME = "visit-time"
    ADAPTIVE = "adaptive"
    """The host answers slowly, or with errors."""
    RATE_LIMIT = "rate-limit"
    """RateLimit headers: the rest of a quota is spread over its window, or the quota is used up."""
    RETRY_AFTER = "retry-after"
    BACKOFF = "backoff"
    """429, 502, 503, 504, or three consecutive other server errors, without a Retry-After."""
    REFUSED = "refused"
    """The host refuses this crawler: by a challenge, a price, or ten answers of 401 or 403 without a success."""
    IN_FLIGHT = "in-flight"
    """The limit of concurrent requests is reached."""
    ROBOTS_TXT = "robots-txt"
    """robots.txt is being fetched."""
    ADDRESS = "address"
    """The host's address, which is paced, is being looked up."""
    STORE = "store"
    """The store is being read for the pace that the host had in an earlier process."""
    QUEUE = "queue"
    """Other requests have waited longer."""
    FLEET = "fleet"
    """Only the fleet's Redis can grant the turn, but it is unavailable, or the call (``try_turn``) never asks Redis."""


CLOSINGS: Final = frozenset({Bound.RETRY_AFTER, Bound.BACKOFF, Bound.RATE_LIMIT, Bound.REFUSED})
"""The limits that close a host, so that it gets no request before a time."""


class Refusal(NamedTuple):
    """A host refuses this crawler.

    >>> print(Refusal(2, "402, crawler-price: USD 0.01"))
    refused 2 times in a row: 402, crawler-price: USD 0.01

    Attributes:
        times: how many times in a row refusals have closed the host; a success lowers the number.
        answer: the status of the last such answer, and its headers ``cf-mitigated``, ``x-amzn-waf-action``,
            ``crawler-price`` and ``WWW-Authenticate: License``; empty if another process received that answer.
    """

    times: int
    answer: str

    def __str__(self) -> str:
        answer = f": {self.answer}" if self.answer else ""
        return f"refused {counted(self.times, 'time')} in a row{answer}"


@dataclass(slots=True, eq=False, repr=False)
class NotYet:
    """No turn is free now. A NotYet is false as a condition.

    >>> NotYet(1_800_000_000.0, Bound.CRAWL_DELAY)
    <NotYet before 2027-01-15T08:00:00Z, bound by crawl-delay>
    >>> print(NotYet(1_800_000_000.0, Bound.CRAWL_DELAY))
    not before 2027-01-15T08:00:00Z, by crawl-delay

    Attributes:
        not_before: the earliest Unix time of a turn; other requests may come first even then.
        bound_by: the limit that sets that time.
        held_by: the URL of the request that has to end first; empty if the host has room.
        refusal: how often the host has refused this crawler, if these refusals closed the host; else None.
    """

    not_before: float
    bound_by: Bound
    held_by: str = ""
    refusal: Refusal | None = None

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        held = f", held by {printable(self.held_by)}" if self.held_by else ""
        return f"<NotYet before {utc(self.not_before)}, bound by {self.bound_by}{held}>"

    def __str__(self) -> str:
        why = " (its Redis is away, or is asked by turn and try_turns only)" if self.bound_by is Bound.FLEET else ""
        held = f", held by {printable(self.held_by)}" if self.held_by else ""
        refused = f" ({self.refusal})" if self.refusal is not None else ""
        return f"not before {utc(self.not_before)}, by {self.bound_by}{refused}{why}{held}"


def utc(wall: float) -> str:
    """Return a Unix time as ISO 8601 in UTC, to the second, or as a number if it is too large for a date."""
    from datetime import UTC, datetime  # noqa: PLC0415 - only to show a verdict

    try:
        return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return f"{wall:.0f}"


# The class is not frozen, because a frozen class takes twice as long to make.
@dataclass(slots=True, unsafe_hash=True, repr=False)
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
        pattern: the path pattern in the normal form that is compared; a longer pattern, in octets, has precedence.
        allow: whether this is an Allow line.
    """

    line: int
    field: str
    value: str
    pattern: str
    allow: bool = dataclass_field(kw_only=True)

    def __str__(self) -> str:
        return f"{self.field}: {self.value}"

    def __repr__(self) -> str:
        return f"<Rule line {self.line}: {str(self)!r}>"


class FindsRule(Protocol):
    """The rules of a file."""

    def rule_at(self, place: int, /) -> Rule:
        """Return the rule at a place."""
        ...


class Match:
    r"""Whether a target is allowed, and the rule that decided. ``bool(match)`` is True if the target is allowed.

    >>> from politesse import RobotsTxt
    >>> RobotsTxt.parse(b"User-agent: *\nDisallow: /private").rules_for("ExampleBot").match("/private/a")
    Match(allowed=False, rule=<Rule line 2: 'Disallow: /private'>)

    Attributes:
        allowed: the answer.
        reason: the reason. If the rules of a file decide, it is ALLOW_RULE, DISALLOW_RULE, NOT_ALLOWED, NO_RULE or
            ROBOTS_TXT.
        bound_reached: whether the decision reached the bound on its matching work. In that case, the rules that were
            not compared count as follows: each Disallow is a match, and each Allow is not.
    """

    __slots__ = ("_place", "_rule", "_rules", "allowed", "bound_reached", "reason")

    _place: int

    def __init__(self, reason: Reason, rule: Rule | None = None, *, bound_reached: bool = False) -> None:
        self.reason: Reason = reason
        self.allowed: bool = reason in ALLOWING
        self.bound_reached: bool = bound_reached
        self._rule = rule
        self._rules: FindsRule | None = None

    @property
    def rule(self) -> Rule | None:
        """The most specific match, or None if no rule decided. Until it is asked for, the match keeps the rules."""
        rules = self._rules
        if rules is not None:
            self._rule = rules.rule_at(self._place)
            self._rules = None  # last, because another thread may ask, too
        return self._rule

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Match):
            return NotImplemented
        return self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(self._facts())

    def __reduce__(self) -> tuple[object, ...]:
        return partial(Match, bound_reached=self.bound_reached), (self.reason, self.rule)

    def __bool__(self) -> bool:
        return self.allowed

    def __repr__(self) -> str:
        return f"Match(allowed={self.allowed}, rule={self.rule!r})"

    def _facts(self) -> tuple[object, ...]:
        return self.reason, self.rule, self.bound_reached


WITHOUT_RULE: Final = {reason: Match(reason) for reason in Reason}
"""Maps each reason to a match without a rule."""

_ALLOW_RULE, _DISALLOW_RULE = Reason.ALLOW_RULE, Reason.DISALLOW_RULE  # CPython 3.11 is slow to look up enum members


def match_at(
    rules: FindsRule,
    place: int,
    allow: bool,  # noqa: FBT001 - as of Rule
    bound_reached: bool,  # noqa: FBT001 - as of Match
) -> Match:
    """Return the match of the rule at a place of ``rules``. It calls no constructor, to save a third of a decision."""
    self = object.__new__(Match)
    self.reason = _ALLOW_RULE if allow else _DISALLOW_RULE
    self.allowed = allow
    self.bound_reached = bound_reached
    self._rule = None
    self._rules = rules
    self._place = place
    return self


@dataclass(frozen=True, slots=True)
class Source:
    """The copy of a robots.txt, or the failed fetch, on which an answer is based.

    >>> url = "https://example.com/robots.txt"
    >>> Source(url, AccessResult.UNAVAILABLE, 404, url, 1_800_000_000.0, 1_800_086_400.0).fault
    ''

    Attributes:
        robots_url: the URL of the file.
        result: the result of the fetch.
        status: the HTTP status, or None without an answer.
        final_url: the URL that answered, after redirects.
        fetched_wall: Unix time of the answer, or of the 304 that last confirmed it.
        fresh_until_wall: Unix time until which the copy is fresh; after that it is fetched again.
        fault: a phrase that describes the failure, or empty. For a SUCCESSFUL source, the reason why an older copy is
            still used.
        not_before: Unix time before which the host wants no request, or before which robots.txt is not fetched again;
            or None.
        of_host: whether ``not_before`` applies to the whole host, for example after a 429, or only to robots.txt.
        failing_since_wall: Unix time of the first of the consecutive failures, or None if the source is not a failure.
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
    """The preferences of a site about the use of its content."""

    def usage(self, url: str, /) -> Usage:
        """Return the preferences that apply to a URL."""
        ...


@dataclass(slots=True, eq=False)
class VerdictBasis:
    """The attributes that are equal in all verdicts for one agent that are based on one copy of a robots.txt.

    Attributes:
        agent: the product tokens that selected the groups.
        source: the copy, or None if no copy was needed.
        confirmed_mono: monotonic time of the fetch or of the last 304; ``source`` has the wall time.
        site_usage: the file's preferences about the use of content, or None.
        note: see Verdict.
        digest: begins with the SHA-256 of the file; empty without a file.
    """

    agent: str
    source: Source | None
    confirmed_mono: float
    site_usage: StatesUsage | None
    note: str = ""
    digest: bytes = b""


class Verdict:
    """Whether this URL may be requested, and why. True as a condition only if the URL may be requested.

    >>> verdict = Verdict("https://example.com/a", "examplebot", False, Match(Reason.POLICY_DENY), note="paused")
    >>> bool(verdict), verdict.reason
    (False, <Reason.POLICY_DENY: 'policy-deny'>)
    >>> print(verdict)
    disallowed: https://example.com/a (a host policy denies this host: paused)

    Attributes:
        allowed: the answer. With ``mode="report"`` this is true, except for sites with too slow a pace and refused
            private addresses; ``reason`` and ``rule`` then show the answer that ``mode="enforce"`` would give.
        match: the reason and the rule.
    """

    # Each check creates a verdict. So verdicts share one VerdictBasis, and compute the age on access.
    __slots__ = ("_basis", "_read_mono", "_read_wall", "_url", "allowed", "match")

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
        self._url = url
        self.allowed: bool = allowed
        self.match: Match = match
        self._basis = VerdictBasis(agent, source, -age_s, site_usage, note)
        self._read_mono, self._read_wall = 0.0, -inf

    @property
    def url(self) -> str:
        """The URL in question, as given, but without userinfo and fragment, which may be secrets."""
        return public_url(self._url)

    @property
    def agent(self) -> str:
        """The product tokens that selected the groups."""
        return self._basis.agent

    @property
    def source(self) -> Source | None:
        """The copy of robots.txt on which the answer is based, or None if no copy was needed."""
        return self._basis.source

    @property
    def age_s(self) -> float:
        """Seconds from the fetch or last 304 to the decision; the larger number of the monotonic and the wall clock."""
        basis = self._basis
        age_s = self._read_mono - basis.confirmed_mono
        return age_s if basis.source is None else max(age_s, self._read_wall - basis.source.fetched_wall)

    @property
    def decided_wall(self) -> float:
        """The Unix time of the decision; minus infinity if it is unknown."""
        return self._read_wall

    @property
    def digest(self) -> str:
        """The SHA-256 of the copy of robots.txt, in hexadecimal digits; empty without a file."""
        return self._basis.digest[:_DIGEST_BYTES].hex()

    @property
    def note(self) -> str:
        """More about the reason, for example the reason of the host policy or the problem of the URL; may be empty."""
        return self._basis.note

    @property
    def site_usage(self) -> StatesUsage | None:
        """The file's preferences about the use of content, or None. See ``usage``."""
        return self._basis.site_usage

    @property
    def reason(self) -> Reason:
        """The reason of the answer."""
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
        """The preferences of robots.txt about the use of the page, and of tdmrep.json with ``enforce_usage``.

        The preferences change the answer only with ``enforce_usage``, and are computed on access. The result is None
        if another reason denies the page, even in report mode: preferences apply only to pages that may be requested
        (draft-ietf-aipref-attach 3.4).

        Raises:
            InvalidURL: the URL is invalid; never for a verdict of ``check`` or ``peek``, which raise this error
                themselves.
        """
        from politesse.usage.model import NOTHING_STATED  # noqa: PLC0415 - few programs ask for preferences

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
        """Whether the reason denies the request; differs from ``not allowed`` only in report mode."""
        return not self.match.allowed

    def explain(self) -> str:
        """Return a few lines of text: the answer, the rule, the copy that contains it, its age and its expiry.

        A rule is cut after 200 characters; ``rule`` has all of them.
        """
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
        if self.reason is Reason.INVALID_URL:
            return "no URL"
        return "allowed" if self.allowed else "disallowed"

    def _because(self) -> str:
        words = WORDS[self.reason]
        if self.match.bound_reached and self.reason is Reason.DISALLOW_RULE:
            words = "the bound of matching work was reached, so a Disallow rule counts as the most specific match"
        if self.rule is not None:
            return f"{words}: line {self.rule.line}, {shortened(str(self.rule))!r}"
        if self.reason is Reason.UNREACHABLE and self.source is not None:
            return f"{words}: {printable(self.source.fault)}"
        if self.reason is Reason.INVALID_URL or self.reason in BY_USAGE:
            return f"{words} {printable(self.note)}"
        return f"{words}: {printable(self.note)}" if self.note else words


def verdict_of_basis(
    url: str,
    allowed: bool,  # noqa: FBT001 - it is the answer
    match: Match,
    basis: VerdictBasis,
    read_mono: float,
    read_wall: float,
) -> Verdict:
    """Return a verdict with a basis that other verdicts may share; ``read_mono`` and ``read_wall`` date it."""
    self = object.__new__(Verdict)
    self._url = url
    self.allowed = allowed
    self.match = match
    self._basis = basis
    self._read_mono = read_mono
    self._read_wall = read_wall
    return self


url_to_request: Final[Callable[[Verdict], str]] = attrgetter("_url")
"""Returns the URL of a verdict as it was given, for the request and nothing else: it may have userinfo."""


_DIGEST_BYTES: Final = 32
_BOUND_REACHED: Final = (
    "the rules take too much work to compare them all; of the others a Disallow counts as matching, an Allow as not"
)


def _explain_source(source: Source, age_s: float) -> list[str]:
    status = "no answer" if source.status is None else f"status {source.status}"
    lines = [f"  source: {printable(source.robots_url)}, {source.result}, {status}"]
    if source.final_url != source.robots_url:
        lines.append(f"  after redirects: {printable(source.final_url)}")
    if source.result in CLOSED:
        lines.append(f"  tried:  {age_s:.0f} s ago")  # "not before" shows the time of the next fetch
    else:
        lines.append(f"  copy:   {age_s:.0f} s old, holds until {utc(source.fresh_until_wall)}")
    if source.fault and source.result is not AccessResult.UNREACHABLE:  # the line of UNREACHABLE has the fault already
        lines.append(f"  fault:  {printable(source.fault)}")
    return lines
