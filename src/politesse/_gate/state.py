"""The parts that the agents of a gatekeeper share."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakMethod

from politesse._base.tasks import running_loop
from politesse._pacing.pace import longest_stated_s
from politesse.errors import ClosedError, WrongEventLoop
from politesse.fetch._addresses import PublicResolver, is_private_literal

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Awaitable, Callable

    from politesse._cache.cache import RobotsCache
    from politesse._cache.options import HostPolicy
    from politesse._gate.identity import Identity
    from politesse._gate.usage import PolicyTokens, Reservations
    from politesse._pacing.pace import PacingOptions
    from politesse._pacing.shared import GateShare
    from politesse._sites.files import SiteFiles
    from politesse.clock import Clock
    from politesse.events import Publisher
    from politesse.ledger import Ledger
    from politesse.origin import Origin
    from politesse.ports import Signer
    from politesse.robots import RuleSet
    from politesse.usage.model import Purpose
    from politesse.verdict import Reason, Verdict


@dataclass(slots=True, weakref_slot=True, kw_only=True, eq=False)
class GateState:
    """The parts that all agents of a gatekeeper share, and their counters.

    Attributes:
        identity: the gatekeeper's own identity, under which all files are fetched.
        purposes: the uses for which preferences are enforced; empty for none.
        policy_tokens: the tokens whose groups state usage preferences.
        no_rules: the rules of a site without a robots.txt.
        policies: the policy of each host, by the host name under which its requests are paced.
        public_resolver: the resolver for connectors that request pages; None unless private addresses are denied.
        signer: signs the requests of the gate and of its integrations, or None.
        reports: whether every verdict allows its URL (``mode="report"``).
        ledger: records verdicts, turns and files; or None.
        loop: the event loop of the first use; None before the first use.
        ending: a future that is done at the end of the close; None before the close begins.
        closing: the methods to call at the close, in order; None once the gate is closed.
        closed_with: functions to call when the gate closes; each closes another part.
        on_denied: called with each verdict that denies, or would without report mode. (A subscriber of the publisher
            would make an event of each verdict and of each turn.)
        files: the cache of files such as data.txt, which are requested like pages, in turns of this gate.
        tdm_files: the cache of the tdmrep.json files, which are requested in the same way.
        reservations: the parsed contents of the tdmrep.json files.
    """

    identity: Identity
    cache: RobotsCache
    pacer: GateShare
    pacing: PacingOptions
    clock: Clock
    publisher: Publisher
    policies: dict[str, HostPolicy]
    purposes: frozenset[Purpose]
    policy_tokens: PolicyTokens
    no_rules: RuleSet
    public_resolver: PublicResolver | None
    signer: Signer | None
    reports: bool
    ledger: Ledger | None
    loop: AbstractEventLoop | None = None
    ending: Future[None] | None = None
    closing: dict[WeakMethod[Callable[[ClosedError], None]], None] | None = field(default_factory=dict)
    closed_with: set[Callable[[], Awaitable[None]]] = field(default_factory=set)
    allowed: int = 0
    denied: Counter[Reason] = field(default_factory=Counter)
    on_denied: list[Callable[[Verdict], None]] = field(default_factory=list)
    files: SiteFiles = field(init=False)
    reservations: Reservations = field(init=False)

    def too_long_s(self, rules: RuleSet | None) -> float | None:
        """Return the interval in seconds that the rules state, if it exceeds ``max_crawl_delay_s``."""
        delay_s = 0.0 if rules is None else longest_stated_s((rules,))
        return delay_s if delay_s > self.pacing.max_crawl_delay_s else None

    def is_private(self, origin: Origin) -> bool:
        """Return whether the gate refuses ``origin`` because its host is a private address."""
        return self.public_resolver is not None and is_private_literal(origin.pacing_host)

    def check_open(self) -> None:
        """Raise ClosedError if the gate was closed."""
        if self.closing is None:
            raise ClosedError("the gatekeeper was closed")

    def check_usable(self) -> None:
        """Raise ClosedError if the gate was closed, WrongEventLoop if another event loop than the gate's is running."""
        if self.closing is None:
            self.check_open()
        if self.loop is None or self.loop is not running_loop():
            self.check_loop()

    def check_loop(self) -> None:
        """Raise WrongEventLoop if another event loop than the gate's is running."""
        loop = running_loop()
        if self.loop is None:
            self.loop = loop
        elif loop is not None and loop is not self.loop:
            raise WrongEventLoop

    def when_closed(self, method: Callable[[ClosedError], None]) -> None:
        """When the gatekeeper begins to close, call a bound method with the error to raise.

        The method is called at once if the gatekeeper is closed already, and never after its object was
        garbage-collected.
        """
        closing = self.closing
        if closing is None:
            method(ClosedError("the gatekeeper was closed"))
        else:
            closing[WeakMethod(method, lambda gone: closing.pop(gone, None))] = None

    def close(self) -> None:
        """Close the gate: give no more answers, and call the methods that were given to ``when_closed``."""
        closing, self.closing = self.closing, None
        self.cache.shut()  # first, because a hit of ``peek`` does not check whether the gate is closed
        for reference in list(closing or ()):
            method = reference()
            if method is not None:
                method(ClosedError("the gatekeeper was closed"))

    async def aclose(self) -> None:
        """Close all parts, even if some of them raise."""
        async with AsyncExitStack() as closing:  # the stack closes the last part first
            if self.ledger is not None:
                closing.push_async_callback(self.ledger.aclose)
            for part in (self.cache, self.files, self.reservations.files, self.reservations):
                closing.push_async_callback(part.aclose)
            for aclose in tuple(self.closed_with):
                closing.push_async_callback(aclose)
            await self.pacer.aclose()  # the first await, so that the pacer grants no turn while other parts close
