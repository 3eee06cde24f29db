"""What the agents of a gatekeeper share, and the events that they publish."""

from __future__ import annotations

from asyncio import AbstractEventLoop, _get_running_loop
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from politesse.errors import ClosedError, WrongEventLoop
from politesse.events import Event, Publisher
from politesse.verdict import ALLOWING, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from weakref import WeakMethod

    from politesse._cache.robots import RobotsCache
    from politesse._gate.host_policy import HostPolicy
    from politesse._gate.policy_tokens import PolicyTokens
    from politesse._pacing.pace import PacingOptions
    from politesse.clock import Clock
    from politesse.origin import Origin
    from politesse.ports import Pacer


@dataclass(frozen=True, slots=True)
class Decided(Event):
    """A verdict was given.

    Attributes:
        verdict: the verdict.

    Example:
        >>> import asyncio
        >>> from politesse import Decided, Gatekeeper
        >>> from politesse.testing import ScriptedFetcher
        >>> async def watch():
        ...     async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=ScriptedFetcher()) as gate:
        ...         gate.subscribe(lambda event: isinstance(event, Decided) and print(event.verdict.reason))
        ...         await gate.check("https://example.com/")
        >>> asyncio.run(watch())
        unavailable
    """

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class MatchingBounded(Event):
    """The bound on the matching work of one decision was reached: rules that were not compared count against the URL.

    A Disallow among them counts as matching, an Allow as not. Only files that are made to be slow reach the bound.

    Attributes:
        verdict: the verdict.

    Example:
        >>> from politesse import Match, MatchingBounded, Reason, Verdict
        >>> match = Match(Reason.DISALLOW_RULE, bound_reached=True)
        >>> MatchingBounded(Verdict("https://example.com/", "examplebot", False, match)).verdict.match.bound_reached
        True
    """

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class LongDelay(Event):
    """A turn was requested at a site whose Crawl-delay or Request-rate is longer than ``max_crawl_delay_s``.

    Attributes:
        origin: the site.
        delay_s: the delay that it states, in seconds.
        done: ``"obey"``, ``"cap"`` or ``"skip"``.

    Example:
        >>> from politesse import LongDelay, Origin
        >>> LongDelay(Origin.of("https://example.com"), delay_s=3_600.0, done="skip").done
        'skip'
    """

    origin: Origin
    delay_s: float
    done: str


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot of what a gatekeeper and its views have done so far.

    Attributes:
        allowed: the number of verdicts that allowed.
        denied: the number that denied, by reason; in report mode those that would have.
        fetches: the number of fetches of robots.txt.
        in_flight: the number of origins whose robots.txt is being fetched now.
        origins: the number of origins in the cache.
        entries_bytes: about how much memory they take.
        waiting: the number of callers that wait for a turn now.
        turns: the number of turns under way now.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper
        >>> from politesse.testing import ScriptedFetcher
        >>> async def count():
        ...     async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=ScriptedFetcher()) as gate:
        ...         await gate.check("https://example.com/")
        ...         return gate.statistics()
        >>> statistics = asyncio.run(count())
        >>> statistics.decisions, statistics.fetches
        (1, 1)
    """

    allowed: int
    denied: Mapping[Reason, int]
    fetches: int
    in_flight: int
    origins: int
    entries_bytes: int
    waiting: int
    turns: int

    @property
    def decisions(self) -> int:
        """The number of all verdicts."""
        return self.allowed + sum(self.denied.values())


class GateState:
    """The parts that all agents of a gatekeeper share, and what they have counted.

    Attributes:
        own_name: the gatekeeper's own agent, in whose name all files are fetched.
        policy_tokens: the tokens whose groups speak about a use; None for none.
        loop: the event loop in which the gate was used first, its own; None before.
        reports: whether every verdict allows (``mode="report"``).
        policies: by pacing host.
    """

    __slots__ = (
        "allowed",
        "cache",
        "clock",
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
        self.check_open()
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
