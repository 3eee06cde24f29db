"""Usage preferences that a crawler holds itself to: what a site does not want its content used for is not requested."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from politesse._constants import ROBOTS_TXT
from politesse._sites.reservations import TDMREP_JSON
from politesse.errors import ConfigurationError
from politesse.usage.model import Preference, Purpose
from politesse.verdict import Reason

if TYPE_CHECKING:
    from politesse._sites.reservations import Reserved
    from politesse.usage.model import Usage

_NOT_ASKED_ABOUT: Final = frozenset({ROBOTS_TXT, TDMREP_JSON})  # they are read to learn what may be used


class Enforcement:
    """Denies what a site does not want its content used for.

    Args:
        purposes: what for.

    Raises:
        ConfigurationError: for what is no purpose.
    """

    __slots__ = ("_purposes",)

    def __init__(self, purposes: Iterable[str]) -> None:
        if isinstance(purposes, str) or not isinstance(purposes, Iterable):
            raise ConfigurationError(f"enforce_usage={purposes!r}: give a set of purposes, as in {{'ai-train'}}")
        self._purposes = frozenset(Purpose.given(name, "enforce_usage") for name in purposes)

    def needs_tdmrep(self, target: str) -> bool:
        """Whether tdmrep.json has to be known before a target is judged."""
        return Purpose.TDM in self._purposes and target not in _NOT_ASKED_ABOUT

    def objection(self, target: str, usage: Usage | None, reserved: Reserved | None) -> tuple[Reason, str] | None:
        """Return why a target that may be requested is not to be, with the words for it; None where nothing is."""
        if target in _NOT_ASKED_ABOUT:
            return None
        for purpose in Purpose:
            if purpose in self._purposes and usage is not None:
                deciding = usage.deciding(purpose)
                if deciding and deciding[0].preference is Preference.DISALLOWED:
                    return Reason.USAGE_DISALLOWED, f"{purpose}, by {deciding[0]}"
        if reserved is not None and reserved.fault:
            return Reason.USAGE_UNKNOWN, f"{Purpose.TDM}: {TDMREP_JSON} could not be read: {reserved.fault}"
        return None
