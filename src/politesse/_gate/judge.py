"""Judges a URL: makes a match, with an explanation, from the evidence about the URL and its site. Pure.

The judge asks these questions in order, and stops at the first question that settles whether the URL is allowed:

1. Does a policy of this crawler deny or exempt the host?
2. Does the URL name robots.txt? robots.txt may be requested (RFC 9309 2.2.2), unless the fetcher refuses the address of
   its host.
3. Could robots.txt be fetched? An unavailable robots.txt allows the whole site (RFC 9309 2.3.1.3), an unreachable
   robots.txt disallows it (RFC 9309 2.3.1.4). A 429 disallows the site, too. A 401 or 403 disallows the site if the
   dialect or ``on_forbidden`` says so.
4. Do the rules of robots.txt allow the URL? In RFC 9309 the most specific match decides (2.2.2).
5. Does the site permit the use of the content? This question is asked only with ``enforce_usage``, about an allowed
   URL.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse._base.checks import check_types
from politesse._base.constants import ROBOTS_TXT
from politesse._base.reasons import BY_POLICY
from politesse._pacing.pace import PacingOptions, limited
from politesse.errors import ConfigurationError, InvalidURL
from politesse.usage.model import Preference, Purpose
from politesse.verdict import WITHOUT_RULE, AccessResult, Match, Reason, StatesUsage, VerdictBasis

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse._cache.outcome import Copy
    from politesse.robots import RuleSet

_WHOLE_SITE: Final = {
    AccessResult.UNAVAILABLE: WITHOUT_RULE[Reason.UNAVAILABLE],
    AccessResult.FORBIDDEN: WITHOUT_RULE[Reason.FORBIDDEN],
    AccessResult.UNREACHABLE: WITHOUT_RULE[Reason.UNREACHABLE],
    AccessResult.TOO_MANY_REQUESTS: WITHOUT_RULE[Reason.TOO_MANY_REQUESTS],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPolicy:
    """The policy of this crawler for a host, independent of robots.txt.

    Attributes:
        deny: request nothing from the host, not even robots.txt (except as a redirect target of another site's
            robots.txt). In report mode, the gate allows the pages, and fetches robots.txt for their pace.
        exempt: request any URL of the host without fetching robots.txt: for your own servers, or by agreement.
        reason: the reason, in words, for the verdicts; required for an exemption.
        min_delay_s: replaces ``PacingOptions.min_delay_s``; None keeps that value. If the host asks for a slower pace,
            that pace applies.
        max_concurrent: replaces ``PacingOptions.max_concurrent``; None keeps that value.

    Raises:
        ConfigurationError: if the policy both denies and exempts its host, if an exemption has no reason, or if a
            number is out of range.

    Example:
        >>> from politesse import HostPolicy
        >>> HostPolicy(exempt=True, reason="our own server", min_delay_s=0.1).exempt
        True
    """

    deny: bool = False
    exempt: bool = False
    reason: str = ""
    min_delay_s: float | None = None
    max_concurrent: int | None = None

    def __post_init__(self) -> None:
        check_types(
            {"deny": (self.deny, bool), "exempt": (self.exempt, bool), "reason": (self.reason, str)}, required=True
        )
        if self.deny and self.exempt:
            raise ConfigurationError("HostPolicy: deny and exempt contradict each other")
        if self.exempt and not self.reason.strip():
            raise ConfigurationError("HostPolicy(exempt=True): give the reason, as in reason='our own server'")
        self.pacing(PacingOptions())  # raises if a number is out of range

    def pacing(self, options: PacingOptions) -> PacingOptions:
        """Return ``options`` with the limits of this policy."""
        return limited(options, self.min_delay_s, self.max_concurrent)


class HostPolicies(dict[str, HostPolicy]):
    """The policies of a gate, by the host name under which requests are paced.

    Args:
        pacing: the options of all hosts without a policy.
    """

    __slots__ = ("_pacing",)

    def __init__(self, pacing: PacingOptions) -> None:
        super().__init__()
        self._pacing = pacing

    def denies(self, host: str) -> bool:
        """Return whether a policy denies a paced host."""
        policy = self.get(host)
        return policy is not None and policy.deny

    def floor_s(self, host: str) -> float:
        """Return the least time between two requests to a paced host, in seconds."""
        policy = self.get(host)
        return self._pacing.min_delay_s if policy is None or policy.min_delay_s is None else policy.min_delay_s


@dataclass(frozen=True, slots=True)
class EnforcedUsage:
    """The usage preferences that the crawler obeys.

    Attributes:
        purposes: the planned uses of the content.
        unknown: why the reservations of the site are unknown, in words; empty if they are known.
        not_before: the Unix time from which a new answer is possible, or None without such a time.
    """

    purposes: frozenset[Purpose]
    unknown: str = ""
    not_before: float | None = None


# The class is not frozen, because a frozen class would double the time of each judgement.
@dataclass(slots=True)
class Evidence:
    """The facts that a judgement rests on.

    Attributes:
        url: the URL as given.
        target: the path and query of the URL, as written.
        normalise: returns the normal form of a target in the dialect; raises InvalidURL.
        policy: the crawler's own policy for the host, if any.
        result: the result of fetching robots.txt.
        rules: the rules of the agent, or None unless ``result`` is SUCCESSFUL.
        site_usage: the statements of the site about the use of its content, if any.
        enforced: the usage preferences to enforce, or None.
        is_private: whether the fetcher refused to connect to the host, because of its address.
    """

    url: str
    target: str
    normalise: Callable[[str], str]
    policy: HostPolicy | None
    result: AccessResult
    rules: RuleSet | None
    site_usage: StatesUsage | None = None
    enforced: EnforcedUsage | None = None
    is_private: bool = False


class Judgement(NamedTuple):
    """A match and its explanation.

    Attributes:
        match: the answer, with its rule and its reason.
        note: more about the reason, for example the text of the policy or usage preference that decided; may be empty.
        not_before: the Unix time from which the answer may change, if it is later than that of the source; or None.
    """

    match: Match
    note: str = ""
    not_before: float | None = None

    def basis(self, agent: str, entry: Copy | None, now_mono: float, site_usage: StatesUsage | None) -> VerdictBasis:
        """Return the basis of a verdict. It names the source of ``entry``, unless a host policy decided."""
        if entry is None or self.match.reason in BY_POLICY:
            return VerdictBasis(agent, None, now_mono, site_usage, self.note)
        source = entry.source
        if self.not_before is not None:
            source = replace(source, not_before=self.not_before)
        return VerdictBasis(agent, source, entry.confirmed_mono, site_usage, self.note, entry.rules.digest)


def judge(evidence: Evidence) -> Judgement:
    """Return the judgement on ``evidence``.

    Raises:
        InvalidURL: if the target has no normal form.
    """
    settled = None if evidence.policy is None else settle(evidence.policy)
    if settled is not None:
        return settled
    if evidence.rules is not None and evidence.result is AccessResult.SUCCESSFUL:
        match = match_rules(evidence.url, evidence.target, evidence.rules)
    else:
        match = match_without_file(evidence.url, evidence.target, evidence.normalise)
        # RFC 9309 2.2.2: the /robots.txt URI is implicitly allowed.
        if match.reason is not Reason.ROBOTS_TXT or evidence.is_private:
            match = _WHOLE_SITE[evidence.result]
    if evidence.enforced is not None and match.allowed:
        objection = _objection(evidence, evidence.enforced)
        if objection is not None:
            return objection
    return Judgement(match)


def settle(policy: HostPolicy) -> Judgement | None:
    """Return the judgement of a host policy that denies or exempts its host, or None if robots.txt decides."""
    if not policy.deny and not policy.exempt:
        return None
    return Judgement(WITHOUT_RULE[Reason.POLICY_DENY if policy.deny else Reason.POLICY_EXEMPT], policy.reason)


def match_without_file(url: str, target: str, normalise: Callable[[str], str]) -> Match:
    """Return the match of a URL if no rules are known.

    Its reason is ROBOTS_TXT for the URL of robots.txt, and NO_RULE for all other URLs.

    Raises:
        InvalidURL: if the target has no normal form.
    """
    try:
        is_robots_txt = normalise(target) == ROBOTS_TXT
    except InvalidURL as error:
        raise InvalidURL(url, error.problem) from None  # the message quotes the URL as the caller gave it
    return WITHOUT_RULE[Reason.ROBOTS_TXT if is_robots_txt else Reason.NO_RULE]


def match_rules(url: str, target: str, rules: RuleSet) -> Match:
    """Return the match of a URL in ``rules``; ``target`` is the path and query of ``url``, as written.

    Raises:
        InvalidURL: if the target has no normal form.
    """
    try:
        return rules.judge(target)
    except InvalidURL as error:
        raise InvalidURL(url, error.problem) from None


def _objection(evidence: Evidence, enforced: EnforcedUsage) -> Judgement | None:
    """Return the judgement on a URL that may be requested but not used, or None if no preference forbids the use."""
    usage = None if evidence.site_usage is None else evidence.site_usage.usage(evidence.url)
    for purpose in Purpose:
        if purpose in enforced.purposes and usage is not None:
            deciding = usage.deciding(purpose)
            if deciding and deciding[0].preference is Preference.DISALLOWED:
                note = f"{purpose}, by {deciding[0]}"
                return Judgement(WITHOUT_RULE[Reason.USAGE_DISALLOWED], note, enforced.not_before)
    if enforced.unknown:
        return Judgement(WITHOUT_RULE[Reason.USAGE_UNKNOWN], enforced.unknown, enforced.not_before)
    return None
