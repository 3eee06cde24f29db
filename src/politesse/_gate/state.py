"""What the agents of a gatekeeper share."""

from __future__ import annotations

from asyncio import AbstractEventLoop, _get_running_loop
from collections import Counter
from typing import TYPE_CHECKING

from politesse.errors import ClosedError, WrongEventLoop
from politesse.verdict import ALLOWING, Reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from weakref import WeakMethod

    from politesse._cache.robots import RobotsCache
    from politesse._gate.host_policy import HostPolicy
    from politesse._gate.policy_tokens import PolicyTokens
    from politesse._pacing.pace import PacingOptions
    from politesse.clock import Clock
    from politesse.events import Publisher
    from politesse.ports import Pacer


class GateState:
    """The parts that all agents of a gatekeeper share, and what they have counted.

    Attributes:
        own_name: the gatekeeper's own agent, in whose name all files are fetched.
        policy_tokens: the tokens whose groups speak about a use; None for none.
        loop: the event loop in which the gate was used first, its own; None before.
        reports: whether every verdict allows (``mode="report"``).
        policies: by pacing host.
        closed_with: what is closed with the gate, besides its own parts.
    """

    __slots__ = (
        "allowed",
        "cache",
        "clock",
        "closed_with",
        "closing",
        "denied",
        "disallowed",
        "loop",
        "own_name",
        "pacer",
        "pacing",
        "policies",
        "policy_tokens",
        "publisher",
        "reports",
    )

    def __init__(
        self,
        cache: RobotsCache,
        pacer: Pacer,
        pacing: PacingOptions,
        clock: Clock,
        publisher: Publisher,
        *,
        own_name: str,
        reports: bool,
        policy_tokens: PolicyTokens | None,
    ) -> None:
        self.own_name = own_name
        self.cache = cache
        self.policy_tokens = policy_tokens
        self.pacer = pacer
        self.pacing = pacing
        self.clock = clock
        self.publisher = publisher
        self.loop: AbstractEventLoop | None = None
        self.reports = reports
        self.policies: dict[str, HostPolicy] = {}
        # The methods to call at the close, in order; None once the gate is closed.
        self.closing: dict[WeakMethod[Callable[[ClosedError], None]], None] | None = {}
        self.closed_with: dict[Callable[[], Awaitable[None]], None] = {}
        self.allowed = 0
        self.disallowed = 0  # by rules: a count of its own, because hashing a Reason costs more than the decision
        self.denied: Counter[Reason] = Counter()  # for all other reasons

    def count(self, reason: Reason) -> bool:
        """Count a verdict; return whether it allows, as all do in report mode."""
        if reason in ALLOWING:
            self.allowed += 1
            return True
        if reason is Reason.DISALLOW_RULE:
            self.disallowed += 1
        else:
            self.denied[reason] += 1
        return self.reports

    def check_open(self) -> None:
        """Raise ClosedError if the gate was closed."""
        if self.closing is None:
            raise ClosedError("the gatekeeper was closed")

    def check_usable(self) -> None:
        """Raise ClosedError if the gate was closed, WrongEventLoop if another event loop than its own is running."""
        if self.closing is None:
            self.check_open()
        if self.loop is None or self.loop is not _get_running_loop():
            self.check_loop()

    def check_loop(self) -> None:
        """Raise WrongEventLoop if another event loop is running than that of the first use. No loop at all is fine."""
        loop = _get_running_loop()
        if self.loop is None:
            self.loop = loop
        elif loop is not None and loop is not self.loop:
            raise WrongEventLoop

    def close(self) -> None:
        """Close the gate: answer nothing from now on, and call the methods that were given to ``Agent.when_closed``."""
        closing, self.closing = self.closing, None
        self.cache.shut()  # at once: a hit of peek looks at nothing but the entries
        for reference in list(closing or ()):
            method = reference()
            if method is not None:
                method(ClosedError("the gatekeeper was closed"))

    def denials(self) -> dict[Reason, int]:
        """Return how many verdicts denied, by reason."""
        by_rule = {Reason.DISALLOW_RULE: self.disallowed} if self.disallowed else {}
        return by_rule | dict(self.denied)
