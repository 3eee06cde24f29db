"""The judgement: what is known of a URL and its site in, a match and its words out. Pure.

The first of these that has an answer decides:

1. Has this crawler denied or exempted the host by a policy of its own?
2. Is the URL that of robots.txt? It may always be requested (RFC 9309 2.2.2).
3. Could robots.txt be fetched? Unavailable allows the whole site (RFC 9309 2.3.1.3), unreachable disallows it
   (RFC 9309 2.3.1.4), and so do 429, and 401 and 403 where the dialect says so.
4. Do its rules allow the URL? The most specific match decides (RFC 9309 2.2.2).
5. What is allowed so far, does the site want it used? Only with ``enforce_usage``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse._constants import ROBOTS_TXT
from politesse.errors import InvalidURL
from politesse.usage.model import Preference, Purpose
from politesse.verdict import WITHOUT_RULE, AccessResult, Match, Reason, StatesUsage

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse._gate.host_policy import HostPolicy
    from politesse.robots import RuleSet

_WHOLE_SITE: Final = {
    AccessResult.UNAVAILABLE: WITHOUT_RULE[Reason.UNAVAILABLE],
    AccessResult.FORBIDDEN: WITHOUT_RULE[Reason.FORBIDDEN],
    AccessResult.UNREACHABLE: WITHOUT_RULE[Reason.UNREACHABLE],
    AccessResult.TOO_MANY_REQUESTS: WITHOUT_RULE[Reason.TOO_MANY_REQUESTS],
}


@dataclass(frozen=True, slots=True)
class EnforcedUsage:
    """The usage preferences that the crawler holds itself to.

    Attributes:
        purposes: what the content is to be used for.
        unknown: why it is not known what the site reserves, in words; empty where it is known.
        not_before: the Unix time from which that can be known; None where there is no such time.
    """

    purposes: frozenset[Purpose]
    unknown: str = ""
    not_before: float | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a judgement rests on.

    Attributes:
        url: the URL as given.
        target: its path and query, as written.
        normalise: returns the normal form of a target in the dialect; raises InvalidURL.
        policy: the crawler's own policy for the host, if any.
        result: how robots.txt was fetched.
        rules: the rules of the agent; None unless ``result`` is SUCCESSFUL.
        site_usage: what the site states about the use of its content, if anything.
        enforced: the usage preferences to enforce; None for none.
    """

    url: str
    target: str
    normalise: Callable[[str], str]
    policy: HostPolicy | None
    result: AccessResult
    rules: RuleSet | None
    site_usage: StatesUsage | None = None
    enforced: EnforcedUsage | None = None


class Judgement(NamedTuple):
    """A match and its words.

    Attributes:
        match: the answer, its rule and its reason.
        note: the words of the policy or of the usage preference that decided; else empty.
        not_before: the Unix time from which the answer may be another one, where ``note`` is why; else None.
    """

    match: Match
    note: str = ""
    not_before: float | None = None


def judge(evidence: Evidence) -> Judgement:
    """Return the judgement on ``evidence``.

    Raises:
        InvalidURL: if the target has no normal form.
    """
    settled = settle(evidence.policy)
    if settled is not None:
        return settled
    match = _match(evidence)
    if evidence.enforced is not None and match.allowed:
        objection = _objection(evidence, evidence.enforced)
        if objection is not None:
            return objection
    return Judgement(match)


def settle(policy: HostPolicy | None) -> Judgement | None:
    """Return the judgement of a host policy that denies or exempts; None where robots.txt decides."""
    if policy is None or not policy.settles:
        return None
    return Judgement(WITHOUT_RULE[Reason.POLICY_DENY if policy.deny else Reason.POLICY_EXEMPT], policy.reason)


def match_without_file(url: str, target: str, normalise: Callable[[str], str]) -> Match:
    """Return what holds of a URL before robots.txt is known: ROBOTS_TXT for its own URL, else NO_RULE.

    Raises:
        InvalidURL: if the target has no normal form.
    """
    try:
        is_robots_txt = normalise(target) == ROBOTS_TXT
    except InvalidURL as error:
        raise InvalidURL(url, error.problem) from None  # the message quotes the URL as the caller gave it
    return WITHOUT_RULE[Reason.ROBOTS_TXT if is_robots_txt else Reason.NO_RULE]


def match_rules(url: str, target: str, rules: RuleSet) -> Match:
    """Return the match of a target, as written, in ``rules``.

    Raises:
        InvalidURL: if the target has no normal form.
    """
    try:
        return rules.judge(target)
    except InvalidURL as error:
        raise InvalidURL(url, error.problem) from None


def _match(evidence: Evidence) -> Match:
    if evidence.rules is not None and evidence.result is AccessResult.SUCCESSFUL:
        return match_rules(evidence.url, evidence.target, evidence.rules)
    match = match_without_file(evidence.url, evidence.target, evidence.normalise)
    # RFC 9309 2.2.2: the /robots.txt URI is implicitly allowed.
    return match if match.reason is Reason.ROBOTS_TXT else _WHOLE_SITE[evidence.result]


def _objection(evidence: Evidence, enforced: EnforcedUsage) -> Judgement | None:
    """Return the judgement on a URL that may be requested and not used; None where nothing speaks against the use."""
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
