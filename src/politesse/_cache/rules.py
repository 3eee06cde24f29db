"""The compiled rules of a robots.txt, which all origins with the same file share. Pure."""

from __future__ import annotations

from sys import getsizeof
from typing import TYPE_CHECKING, Final

from politesse.robots import Dialect, RobotsTxt, RuleSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from politesse.origin import Origin

_DIGEST_BYTES: Final = 140  # the memory for the digest of a file as a key of the dict


class FileRules(dict[str, RuleSet]):
    """The compiled rules of a file for each agent. All origins with the same file share this mapping.

    The rules of an agent are added with its first request. Agents share their rules if the same groups apply to them.

    Args:
        digest: see below.
        known: the dict of all FileRules that kept copies use, by digest; ``retain`` and ``release`` change it.

    Attributes:
        digest: the digest of the file, or of file and site if the meaning of the file depends on the site; empty
            without a file.
        copies: how many kept copies use the rules. Only the first of these copies adds the bytes of the rules to the
            size of the cache.
    """

    __slots__ = ("_known", "copies", "digest")

    def __init__(self, digest: bytes, known: dict[bytes, FileRules]) -> None:
        self.digest: bytes = digest
        self._known = known
        self.copies: int = 0

    def add(self, compiled: Mapping[str, RuleSet]) -> int:
        """Add the rules of agents; return about how many more bytes the kept copies take."""
        before_bytes = self.weight_bytes if self.copies else 0
        for agent, rule_set in compiled.items():
            self.setdefault(agent, rule_set)
        return self.weight_bytes - before_bytes if self.copies else 0

    @property
    def weight_bytes(self) -> int:
        """About how much memory the rules take; rules that agents share count once."""
        return _DIGEST_BYTES + getsizeof(self) + sum([rules.weight_bytes for rules in set(self.values())])

    def retain(self) -> int:
        """Count a copy that uses the rules; return about how many more bytes the cache takes.

        Only the first of the copies that share the rules adds their bytes.
        """
        if not self:
            return 0  # ``NO_RULES``
        self.copies += 1
        if self.copies > 1:
            return 0
        self._known[self.digest] = self
        return self.weight_bytes

    def release(self) -> int:
        """Stop counting a copy that used the rules; return about how many bytes of the cache become free."""
        if not self:
            return 0
        self.copies -= 1
        if self.copies:
            return 0
        if self._known.get(self.digest) is self:
            del self._known[self.digest]
        return self.weight_bytes


NO_RULES: Final = FileRules(b"", {})
"""The rules of a site without a file."""


def compile_rules(
    body: bytes, dialect: Dialect, origin: Origin, agents: Iterable[str], known: Mapping[str, RuleSet]
) -> dict[str, RuleSet]:
    """Return the rules of each agent; agents, also those that are ``known``, share rules if the same groups apply."""
    robots = RobotsTxt.parse(body, dialect, origin=origin)
    agents = tuple(agents)
    if not known and len(agents) == 1:
        return {agents[0]: robots.rules_for(agents[0].split(","))}
    bound = {robots.binding(agent.split(",")): rules for agent, rules in known.items()}
    compiled: dict[str, RuleSet] = {}
    for agent in agents:
        tokens = agent.split(",")
        binding = robots.binding(tokens)
        if binding not in bound:
            bound[binding] = robots.rules_for(tokens)
        compiled[agent] = bound[binding]
    return compiled
