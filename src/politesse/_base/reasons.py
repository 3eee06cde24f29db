"""The reasons of verdicts and waits, and the outcomes of fetches.

To add a reason, add the member, its entries in the sets, and its words here. The package ``robots/`` gives the reasons
of rules. A Permission (``_gate/permission.py``) gives the other reasons, by another function ``match``, and the
integration of httpx gives POLICY_DENY for a name with only private addresses. The commands of the ledger sort reasons,
too (``cli/ledger_command.py``). If a verdict with the reason may change later, add the reason to ``_GIVING_UP``
(``queue/_results.py``). If such a verdict waits for robots.txt, add the reason also to ``DEFERRING`` (Scrapy's
``_waits.py``). ``Verdict._because`` adds the words that depend on the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from politesse._base.text import counted, printable


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
    try:
        return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return f"{wall:.0f}"
