"""What a pacer of one scope can do beside those of the port: for the pacers that wrap it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from politesse.ports import Pacer, Permit
from politesse.verdict import NotYet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from politesse._pacing.pace import PacingOptions
    from politesse.ports import TurnRequest


def give_back_all(answers: Iterable[Permit | NotYet]) -> None:
    """Give back the permits among some answers."""
    for answer in answers:
        if not isinstance(answer, NotYet):
            answer.give_back()


class ScopePermit(Permit, Protocol):
    """What a permit of one scope can do beside."""

    def expire(self) -> None:
        """End it because it was held for too long."""

    def renew(self) -> bool:
        """Stamp it again if it could not be used at once; return False if it would not be granted now."""


class ScopePacer(Pacer, Protocol):
    """What the pacer of one scope can do beside."""

    def try_start(self, request: TurnRequest, /) -> ScopePermit | NotYet:
        """See Pacer."""

    async def try_starts(self, requests: Sequence[TurnRequest], /) -> Sequence[ScopePermit | NotYet]:
        """See Pacer."""

    async def start(
        self, request: TurnRequest, max_wait_s: float | None = None, /, *, first: bool = False
    ) -> ScopePermit:
        """See Pacer; with ``first`` at the head of the line."""

    def is_ready(self, request: TurnRequest, /) -> bool:
        """Return whether a request may start now; True if the pacer is closed."""

    def bind(self, gate: object, host: str, options: PacingOptions) -> None:
        """Have ``host`` bound by the options of a gate, beside those of other gates, while it is busy."""

    def unbind(self, gate: object) -> None:
        """Have no host bound by the options of a gate any more."""

    def __len__(self) -> int:
        """How many keys are busy."""
