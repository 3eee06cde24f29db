"""What a gatekeeper and its views have in common, and what they tell their subscribers."""

from __future__ import annotations

from asyncio import _get_running_loop
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from politesse.errors import ClosedError, WrongEventLoop
from politesse.events import Event
from politesse.verdict import ALLOWING, Reason

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable
    from weakref import WeakMethod

    from politesse._cache.files import SiteFiles
    from politesse._cache.robots import RobotsCache
    from politesse._gate.enforcement import Enforcement
    from politesse._gate.host_policy import HostPolicy
    from politesse._gate.policy_tokens import PolicyTokens
    from politesse._pacing.pace import PacingOptions
    from politesse._sites.reservations import Reservations
    from politesse.clock import Clock
    from politesse.events import Publisher
    from politesse.origin import Origin
    from politesse.ports import Pacer
    from politesse.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Decided(Event):
    """A question was answered.

    Attributes:
        verdict: the answer.
    """

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class MatchingBounded(Event):
    """A decision would have taken too much work: rules that were not compared count against the URL.

    A Disallow among them counts as matching, an Allow as not. Files that are not made to be slow never come to this.

    Attributes:
        verdict: the answer.
    """

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class LongDelay(Event):
    """A turn was asked for at a site whose Crawl-delay or Request-rate is longer than ``max_crawl_delay_s``.

    Attributes:
        origin: whose.
        delay_s: what it asks for, in seconds.
        done: ``"obey"``, ``"cap"`` or ``"skip"``.
    """

    origin: Origin
    delay_s: float
    done: str


class Shared:
    """What a gatekeeper and its views have in common.

    Attributes:
        agent: the gatekeeper's own, in whose name files are asked for, whichever view wants to know.
        loop: the event loop in which the gate was used first, its own; None before.
        files: other files than robots.txt; set once there is a gatekeeper, for they are asked for as its own pages are.
        reservations: what is in those of them that are called tdmrep.json. Set with the files.
        enforcement: of usage preferences; None where they are only reported.
        policy_tokens: whose groups speak about a use; None for none.
    """

    __slots__ = (
        "agent",
        "allowed",
        "cache",
        "clock",
        "closing",
        "denied",
        "disallowed",
        "enforcement",
        "files",
        "loop",
        "pacer",
        "pacing",
        "policies",
        "policy_tokens",
        "publisher",
        "reports",
        "reservations",
    )

    def __init__(  # noqa: PLR0913 - the parts of the whole gate
        self,
        cache: RobotsCache,
        pacer: Pacer,
        pacing: PacingOptions,
        clock: Clock,
        publisher: Publisher,
        *,
        agent: str,
        reports: bool,
        enforcement: Enforcement | None,
        policy_tokens: PolicyTokens | None,
    ) -> None:
        self.agent = agent
        self.cache = cache
        self.files: SiteFiles
        self.reservations: Reservations
        self.enforcement = enforcement
        self.policy_tokens = policy_tokens
        self.pacer = pacer
        self.pacing = pacing
        self.clock = clock
        self.publisher = publisher
        self.loop: AbstractEventLoop | None = None
        self.reports = reports
        self.policies: dict[str, HostPolicy] = {}
        # Whom to tell of the close, in order; None once it has come.
        self.closing: dict[WeakMethod[Callable[[ClosedError], None]], None] | None = {}
        self.allowed = 0
        self.disallowed = 0  # by rules: a count of its own, because hashing a Reason costs more than the decision
        self.denied: Counter[Reason] = Counter()  # for all other reasons

    def count(self, reason: Reason) -> bool:
        """Count a verdict; return whether it allows, be it because this gate only reports."""
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
        self.check_open()
        self.check_loop()

    def check_loop(self) -> None:
        """Raise WrongEventLoop if another event loop is running than that of the first use; none may be."""
        loop = _get_running_loop()
        if self.loop is None:
            self.loop = loop
        elif loop is not None and loop is not self.loop:
            raise WrongEventLoop

    def tell_closed(self) -> None:
        """Close the gate: answer nothing from now on, and call all who asked for it by ``AgentView.when_closed``."""
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
