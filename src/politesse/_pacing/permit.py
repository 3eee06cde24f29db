"""The permit of a LocalPacer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from politesse._pacing.slot import AgentPace, Slot

NO_HEADERS: Final[Mapping[str, str]] = {}


class Issuer(Protocol):
    """What a permit needs of the pacer that granted it."""

    def answered(self, permit: LocalPermit, slot: Slot, status: int | None, headers: Mapping[str, str]) -> None:
        """Record an answer."""

    def ended(self, permit: LocalPermit, slot: Slot) -> None:
        """End a request."""

    def given_back(self, permit: LocalPermit, slot: Slot) -> None:
        """Take back a permit with which no request was made."""

    def renewed(self, permit: LocalPermit, slot: Slot) -> bool:
        """Stamp a permit again; return False if it would not be granted now."""


class LocalPermit:
    """Permission of a LocalPacer for one request; see ``politesse.ports.Permit``.

    Attributes:
        host: the pacing host.
        started_mono: when it was stamped.
        waited: whether it was granted later than it was requested.
        pacer: its pacer; None after the end.
        slot: its slot; None after the end.
        agent: what is stated for the agent of the request.
        before_mono: the ``last_mono`` of the slot before it was stamped.
        marks: the value of ``slot.marks`` when it was stamped (generation counter).
        answered_s: after how many seconds the answer came; None until it is known.
        url: what is requested; empty if that is unknown.
    """

    __slots__ = (
        "agent",
        "answered_s",
        "before_mono",
        "host",
        "marks",
        "pacer",
        "slot",
        "started_mono",
        "url",
        "waited",
    )

    def __init__(self, pacer: Issuer, slot: Slot, agent: AgentPace, url: str, started_mono: float) -> None:
        self.host = slot.host
        self.started_mono = started_mono
        self.waited = False
        self.pacer: Issuer | None = pacer
        self.slot: Slot | None = slot
        self.agent = agent
        self.url = url
        self.before_mono = slot.last_mono
        self.marks = slot.marks
        self.answered_s: float | None = None

    def observe(self, status: int, headers: Mapping[str, str] = NO_HEADERS, /) -> None:
        """Record the answer while the request is under way: it holds back waiting requests at once."""
        if self.pacer is not None and self.slot is not None:
            self.pacer.answered(self, self.slot, status, headers)

    def end(self) -> None:
        """End the request: the interval before the next one counts from now."""
        pacer, slot = self.pacer, self.slot
        if pacer is not None and slot is not None:
            self.pacer = self.slot = None
            pacer.ended(self, slot)

    def expire(self) -> None:
        """End it because it was held for too long, which says nothing about how fast the host answers."""
        self.answered_s = 0.0
        self.end()

    @property
    def under_way(self) -> bool:
        """Whether it has not ended."""
        return self.slot is not None

    def give_back(self) -> None:
        """End without a request."""
        pacer, slot = self.pacer, self.slot
        if pacer is not None and slot is not None:
            self.pacer = self.slot = None
            pacer.given_back(self, slot)

    def renew(self) -> bool:
        """Stamp it again if it could not be used at once; return False if it would not be granted now."""
        return self.pacer is not None and self.slot is not None and self.pacer.renewed(self, self.slot)
