"""What the tdmrep.json of a site reserves, as far as an agent may fetch and read it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from politesse._constants import DAY_S
from politesse._pacing.held import holds_turn_at
from politesse._pacing.pace import PACES_HELD, longest_stated_s
from politesse._sites.reservations import NOTHING_RESERVED, OUT_OF_TURN, TDMREP_JSON, Reservations, Reserved
from politesse.page.tdmrep import tdmrep_usage
from politesse.usage.combined import CombinedUsage

if TYPE_CHECKING:
    from politesse._cache.entry import Entry
    from politesse._gate.agent import Agent
    from politesse.origin import Origin
    from politesse.verdict import StatesUsage


class AgentReservations:
    """The reservations of sites for one agent.

    tdmrep.json is fetched as a page is: only if robots.txt permits it to the agent and to the gatekeeper's own, in
    whose name the request is made, and in a turn of its own.

    Args:
        agent: for whom; it enforces no usage preferences, because reading them cannot depend on themselves.
        reservations: the files.
    """

    __slots__ = ("_agent", "_reservations")

    def __init__(self, agent: Agent, reservations: Reservations) -> None:
        self._agent = agent
        self._reservations = reservations

    def known(self, entry: Entry) -> Reserved | None:
        """Return what tdmrep.json reserves; None where it must be fetched first."""
        # Return NOTHING_RESERVED when tdmrep.json may not be fetched; otherwise peek() would return None for ever.
        agent, state = self._agent, self._agent.state
        url = f"{entry.origin}{TDMREP_JSON}"
        for name in {agent.name, state.own_name}:
            if entry.answers(name) and not agent.match(url, TDMREP_JSON, entry, name).allowed:
                return NOTHING_RESERVED
        if state.pacing.on_long_crawl_delay == "skip" and agent.too_long_s(entry.rules.get(state.own_name)) is not None:
            return NOTHING_RESERVED
        # It was fetched in a turn, and the turn of the page comes an interval later: it has to hold until then.
        late_s = min(PACES_HELD * longest_stated_s(entry.rules.values()), DAY_S)
        return self._reservations.known(entry.origin, late_s=late_s)

    async def learn(self, origin: Origin) -> Reserved:
        """Return what tdmrep.json reserves, fetching it if need be; OUT_OF_TURN where that would deadlock.

        Raises:
            ClosedError: if the gatekeeper is closed.
        """
        if not holds_turn_at(origin.pacing_host):
            return await self._reservations.learn(self._agent, origin)
        # Waiting for a turn would deadlock: the caller holds the turn of this host.
        reserved = self.known(await self._agent.entry(origin))
        if reserved is None:
            self.fetch_ahead(origin)
            return OUT_OF_TURN
        return reserved

    def basis(self, origin: Origin) -> object:
        """Return the cache entry of tdmrep.json, None if there is none. Compare by equality."""
        return self._reservations.basis(origin)

    def fetch_ahead(self, origin: Origin) -> None:
        """Have tdmrep.json fetched and read, without waiting."""
        self._reservations.ask_ahead(self._agent, origin)


def with_reserved(site: StatesUsage | None, reserved: Reserved) -> CombinedUsage:
    """Return what robots.txt and tdmrep.json state together."""
    of_file = partial(tdmrep_usage, reserved.doc)
    return CombinedUsage(of_file) if site is None else CombinedUsage(site.usage, of_file)
