"""The permit of a FleetPacer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from politesse._pacing.fleet.reservation import FleetLine, Reservation
    from politesse._pacing.scope_port import ScopePermit
    from politesse.ports import TurnRequest


class FleetIssuer(Protocol):
    """What a permit needs of the pacer that granted it."""

    def answered(self, permit: FleetPermit, status: int, headers: Mapping[str, str], /) -> None:
        """Record an answer."""

    def ended(self, permit: FleetPermit, /, *, with_request: bool) -> None:
        """Report the end."""

    def holds(self, permit: FleetPermit, /) -> bool:
        """Return whether a request may still start."""


class FleetPermit:
    """Permission of a fleet for one request; see ``politesse.ports.Permit``.

    Attributes:
        host: the pacing host.
        url: what is requested; empty if that is unknown.
        started_mono: when it was granted.
        waited: whether it was granted later than it was requested.
        own: the permit of the pacer of this process.
        line: what is known of the host at Redis.
        reservation: how it was granted.
        is_alone: whether no other request may be under way beside it: then the interval counts from its end.
    """

    __slots__ = ("_issuer", "host", "is_alone", "line", "own", "reservation", "started_mono", "url", "waited")

    def __init__(
        self,
        issuer: FleetIssuer,
        request: TurnRequest,
        own: ScopePermit,
        line: FleetLine,
        reservation: Reservation,
        started_mono: float,
        *,
        is_alone: bool,
        waited: bool,
    ) -> None:
        self._issuer: FleetIssuer | None = issuer
        self.host = request.host
        self.url = request.url
        self.started_mono = started_mono
        self.waited = waited
        self.own = own
        self.line = line
        self.reservation = reservation
        self.is_alone = is_alone

    def observe(self, status: int, headers: Mapping[str, str], /) -> None:
        """Record the answer while the request is under way."""
        if self._issuer is not None:
            self._issuer.answered(self, status, headers)

    def end(self) -> None:
        """End the request: the interval before the next one counts from now."""
        issuer, self._issuer = self._issuer, None
        if issuer is not None:
            self.own.end()
            issuer.ended(self, with_request=True)

    def expire(self) -> None:
        """End it because it was held for too long."""
        issuer, self._issuer = self._issuer, None
        if issuer is not None:
            self.own.expire()
            issuer.ended(self, with_request=True)

    def give_back(self) -> None:
        """End without a request."""
        issuer, self._issuer = self._issuer, None
        if issuer is not None:
            self.own.give_back()
            issuer.ended(self, with_request=False)

    @property
    def under_way(self) -> bool:
        """Whether it has not ended."""
        return self._issuer is not None

    def renew(self) -> bool:
        """Stamp it again if it could not be used at once; return False if it would not be granted now."""
        return self._issuer is not None and self._issuer.holds(self) and self.own.renew()
