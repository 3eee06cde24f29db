"""Product tokens that no crawler sends: what their groups in robots.txt forbid is a use, not a request.

Examples are ``Google-Extended`` and ``Applebot-Extended``: a site states in their groups whether fetched content may
train a model. The groups are chosen as for any crawler, with ``*`` as the fallback.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from politesse._gate.identity import checked_token
from politesse.usage.combined import CombinedUsage
from politesse.usage.model import Mechanism, Place, Preference, Purpose, Statement, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from politesse.robots import RuleSet
    from politesse.verdict import StatesUsage


class PolicyTokens:
    """The policy tokens of a crawler.

    Args:
        tokens: by purpose, the product token whose groups speak about it.

    Attributes:
        agents: the same, checked and in lower case.

    Raises:
        ConfigurationError: for an unknown purpose, or what is no product token.
    """

    __slots__ = ("agents",)

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self.agents = {
            Purpose.given(name, "policy_tokens"): checked_token(token).lower() for name, token in tokens.items()
        }

    def usage_of(self, site: StatesUsage | None, rules: Mapping[str, RuleSet]) -> StatesUsage | None:
        """Return what ``site`` states combined with the groups of the tokens, whose rules are given by token."""
        known = {purpose: rules[agent] for purpose, agent in self.agents.items() if agent in rules}
        if not known:
            return site
        said_by_groups = partial(self._usage, known)
        return CombinedUsage(said_by_groups) if site is None else CombinedUsage(site.usage, said_by_groups)

    def _usage(self, rules_of: Mapping[Purpose, RuleSet], url: str) -> Usage:
        statements = []
        for purpose, rules in rules_of.items():
            match = rules.match(url)
            if match.rule is not None:
                statement = Statement(
                    purpose,
                    Preference.ALLOWED if match else Preference.DISALLOWED,
                    Mechanism.POLICY_TOKEN,
                    Place.ROBOTS_TXT,
                    str(match.rule),
                    match.rule.line,
                    path=match.rule.value,
                    agent=self.agents[purpose],
                )
                statements.append(statement)
        return Usage(tuple(statements), tuple(statements))
