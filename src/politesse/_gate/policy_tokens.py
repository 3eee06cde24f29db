"""Product tokens that no crawler sends: what their groups in robots.txt forbid is a use, not a request.

As ``Google-Extended`` and ``Applebot-Extended`` are: a site says in groups of their own whether what the crawler
fetches may train a model. Such groups are read as those of any crawler, ``*`` included where no group names the token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse._gate.identity import checked_token
from politesse.usage.model import Mechanism, Place, Preference, Purpose, Statement, Usage, combine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from politesse.robots import RuleSet
    from politesse.verdict import StatesUsage


class PolicyTokens:
    """The policy tokens of a crawler.

    Args:
        tokens: by purpose, the product token whose groups speak about it.

    Raises:
        ConfigurationError: for what is no purpose, or no token.
    """

    __slots__ = ("agents",)

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self.agents = {
            Purpose.given(name, "policy_tokens"): checked_token(token).lower() for name, token in tokens.items()
        }

    def usage_of(self, site: StatesUsage | None, rules: Mapping[str, RuleSet]) -> StatesUsage | None:
        """Return what ``site`` says and what the groups of the tokens say, whose rules are given by token."""
        known = {purpose: rules[agent] for purpose, agent in self.agents.items() if agent in rules}
        return _WithTokens(site, self.agents, known) if known else site


class _WithTokens:
    """What a robots.txt says about the use of content, the groups of policy tokens included."""

    __slots__ = ("_agents", "_rules", "_site")

    def __init__(
        self, site: StatesUsage | None, agents: Mapping[Purpose, str], rules: Mapping[Purpose, RuleSet]
    ) -> None:
        self._site = site
        self._agents = agents
        self._rules = rules

    def usage(self, url: str, /) -> Usage:
        """Return what is said about a URL; raises InvalidURL."""
        said = tuple(self._statements(url))
        usage = Usage(said, said)
        return usage if self._site is None else combine([self._site.usage(url), usage])

    def _statements(self, url: str) -> Iterator[Statement]:
        for purpose, rules in self._rules.items():
            match = rules.match(url)
            if match.rule is not None:
                yield Statement(
                    purpose,
                    Preference.ALLOWED if match else Preference.DISALLOWED,
                    Mechanism.POLICY_TOKEN,
                    Place.ROBOTS_TXT,
                    str(match.rule),
                    match.rule.line,
                    path=match.rule.value,
                    agent=self._agents[purpose],
                )
