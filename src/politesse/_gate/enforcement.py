"""Usage preferences that a crawler holds itself to: what a site does not want its content used for is not requested.

Assembled only where ``enforce_usage`` names a purpose: an EnforcingAgent then takes the place of an Agent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from politesse._checks import wrong_type
from politesse._constants import ROBOTS_TXT
from politesse._gate.agent import Agent
from politesse._gate.judge import EnforcedUsage, Evidence
from politesse._gate.tdm import AgentReservations, with_reserved
from politesse._sites.reservations import TDMREP_JSON, Reservations, Reserved
from politesse.origin import Origin, split
from politesse.usage.model import Purpose

if TYPE_CHECKING:
    from politesse._cache.entry import Entry
    from politesse._gate.identity import Identity
    from politesse._gate.state import GateState
    from politesse.verdict import Verdict

_NOT_ENFORCED: Final = frozenset({ROBOTS_TXT, TDMREP_JSON})  # they are read to learn what may be used


def checked_purposes(names: Iterable[str]) -> frozenset[Purpose]:
    """Return the purposes that ``enforce_usage`` names.

    Raises:
        ConfigurationError: for an unknown purpose, or a single string.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise wrong_type("enforce_usage", names, "a set of purposes, as in {'ai-train'}")
    return frozenset(Purpose.given(name, "enforce_usage") for name in names)


class EnforcingAgent(Agent):
    """An agent that denies what sites do not want its content used for.

    Args:
        state: see Agent.
        identity: see Agent.
        purposes: what the content is to be used for.
        reservations: the tdmrep.json files, which it reads if ``purposes`` contains TDM.
    """

    __slots__ = ("_purposes", "_reservations")

    def __init__(
        self, state: GateState, identity: Identity, purposes: frozenset[Purpose], reservations: Reservations
    ) -> None:
        super().__init__(state, identity)
        self._at_once = {}  # more than the rules decides
        self._purposes = purposes
        self._reservations = AgentReservations(Agent(state, identity), reservations)

    def evidence(self, url: str, target: str, entry: Entry) -> Evidence | None:
        """Return what a verdict on ``url`` rests on; None where tdmrep.json must be fetched first."""
        reserved = None
        if self._needs_tdmrep(target):
            reserved = self._reservations.known(entry)
            if reserved is None:
                return None
        return self._enforced(self.plain_evidence(url, target, entry), reserved)

    async def fetched(self, url: str) -> Verdict:
        """Return the verdict on ``url``, fetching robots.txt and tdmrep.json first; see Agent."""
        origin, target = split(url)
        reserved = await self._reservations.learn(origin) if self._needs_tdmrep(target) else None
        entry = await self.entry(origin)
        evidence = self._enforced(self.plain_evidence(url, target, entry), reserved)
        return self.verdict(evidence, entry)

    def basis(self, origin: Origin) -> object:
        """Return what verdicts on ``origin`` rest on now, tdmrep.json included; see Agent."""
        basis = super().basis(origin)
        return (basis, self._reservations.basis(origin)) if Purpose.TDM in self._purposes else basis

    def ask_ahead(self, origin: Origin) -> None:
        """Have what a verdict needs fetched, without waiting: robots.txt, and then tdmrep.json."""
        if self.known_entry(origin) is None:
            super().ask_ahead(origin)
        else:
            self._reservations.fetch_ahead(origin)

    def _needs_tdmrep(self, target: str) -> bool:
        return Purpose.TDM in self._purposes and target not in _NOT_ENFORCED

    def _enforced(self, evidence: Evidence, reserved: Reserved | None) -> Evidence:
        """Return ``evidence`` with the preferences to enforce, those of ``reserved`` included."""
        if evidence.target in _NOT_ENFORCED:
            return evidence
        if reserved is None:
            return replace(evidence, enforced=EnforcedUsage(self._purposes))
        unknown = f"{Purpose.TDM}: {TDMREP_JSON} could not be read: {reserved.fault}" if reserved.fault else ""
        return replace(
            evidence,
            site_usage=with_reserved(evidence.site_usage, reserved),
            enforced=EnforcedUsage(self._purposes, unknown, reserved.not_before),
        )
