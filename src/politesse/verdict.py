"""Verdicts: the answers of a gatekeeper, with their reasons (``_base/reasons.py`` explains how to add a reason)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

from politesse._base.match import WITHOUT_RULE, Match, Rule
from politesse._base.reasons import (
    ALLOWING,
    BY_USAGE,
    CLOSED,
    CLOSINGS,
    UNDECIDED,
    WORDS,
    AccessResult,
    Bound,
    FileOutcome,
    NotYet,
    Reason,
    Refusal,
    utc,
)
from politesse._base.text import printable, public_url, shortened
from politesse.usage.model import NOTHING_STATED, Usage

if TYPE_CHECKING:
    from collections.abc import Callable

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
