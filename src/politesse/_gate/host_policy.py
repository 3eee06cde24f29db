"""The policy of this crawler for a host, beside robots.txt."""

from __future__ import annotations

from dataclasses import dataclass, replace

from politesse._checks import check_types
from politesse._pacing.pace import PacingOptions
from politesse.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPolicy:
    """The policy of this crawler for a host, agreed by other means than robots.txt.

    Attributes:
        deny: request nothing from it, robots.txt included (except as a redirect target of another
            site's robots.txt).
        exempt: request anything from it without fetching robots.txt: for one's own servers, or by agreement.
        reason: in words, for the verdicts; an exemption must give one.
        min_delay_s: in place of ``PacingOptions.min_delay_s``; None to keep that. What the host states still counts.
        max_concurrent: in place of ``PacingOptions.max_concurrent``; None to keep that.

    Raises:
        ConfigurationError: for a policy that both denies and exempts, an exemption without a reason, and numbers out of
            range.

    Example:
        >>> from politesse import HostPolicy
        >>> HostPolicy(exempt=True, reason="our own server", min_delay_s=0.1).exempt
        True
    """

    deny: bool = False
    exempt: bool = False
    reason: str = ""
    min_delay_s: float | None = None
    max_concurrent: int | None = None

    def __post_init__(self) -> None:
        check_types(
            {"deny": (self.deny, bool), "exempt": (self.exempt, bool), "reason": (self.reason, str)}, required=True
        )
        if self.deny and self.exempt:
            raise ConfigurationError("HostPolicy: deny and exempt contradict each other")
        if self.exempt and not self.reason.strip():
            raise ConfigurationError("HostPolicy(exempt=True): give the reason, as in reason='our own server'")
        self.pacing(PacingOptions())  # raises for numbers that are out of range

    @property
    def settles(self) -> bool:
        """Whether it decides every question about the host, so that robots.txt is not fetched."""
        return self.deny or self.exempt

    def pacing(self, options: PacingOptions) -> PacingOptions:
        """Return ``options`` with what this policy says instead."""
        return replace(
            options,
            min_delay_s=options.min_delay_s if self.min_delay_s is None else self.min_delay_s,
            max_concurrent=options.max_concurrent if self.max_concurrent is None else self.max_concurrent,
        )
