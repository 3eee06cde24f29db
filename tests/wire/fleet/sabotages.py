"""What a fleet does without one of its checks: the tests must notice."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from politesse._pacing.fleet.link import FleetLink
from politesse._pacing.fleet.reserver import Reserver
from politesse._pacing.fleet.scripts import Script
from politesse._pacing.fleet.wire import FleetWire
from politesse.options import FleetOptions


def never_late() -> None:
    """A start is used however late it is."""
    Reserver.is_in_time = lambda *_: True  # type: ignore[method-assign]


def never_held() -> None:
    """Nothing waits after a connection."""
    FleetLink.hold_s = lambda *_: 0.0  # type: ignore[method-assign]


def never_known_again() -> None:
    """What is under way is not made known to a Redis that is back."""
    Reserver.found = Reserver.lost  # type: ignore[method-assign]
    Reserver.renew = lambda *_: None  # type: ignore[method-assign]


def never_renewed() -> None:
    """A request counts as under way for a second only."""
    plain = FleetLink.__init__

    def with_short_leases(self: FleetLink, wire: FleetWire, options: FleetOptions, **others: Any) -> None:
        plain(self, wire, replace(options, lease_s=1.0), **others)

    FleetLink.__init__ = with_short_leases  # type: ignore[method-assign]
    Reserver.renew = lambda *_: None  # type: ignore[method-assign]


def never_closed() -> None:
    """A refusal stays with the process that has received it."""
    post = FleetLink.post

    def without_closing(self: FleetLink, script: Script, key: str, *args: str | int) -> None:
        if script is not Script.CLOSE:
            post(self, script, key, *args)

    FleetLink.post = without_closing  # type: ignore[method-assign]


SABOTAGES: Final[Mapping[str, Callable[[], None]]] = {
    "late": never_late,
    "held": never_held,
    "known": never_known_again,
    "renewed": never_renewed,
    "closed": never_closed,
}
