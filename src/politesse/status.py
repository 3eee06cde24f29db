"""The statistics of a gatekeeper, and the status of a host: its pace, its turns, the robots.txt of its origins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from politesse._base.text import shortened
from politesse.verdict import AccessResult, Bound, NotYet, Reason, Refusal, utc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from politesse.origin import Origin

__all__ = ["HostStatus", "RobotsStatus", "Statistics"]


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot of the counters of a gatekeeper and its views.

    Attributes:
        allowed: the number of verdicts that allowed a request.
        denied: maps each reason to the number of verdicts that denied a request for this reason, or would have denied
            it without report mode.
        fetches: the number of fetches of robots.txt.
        in_flight: the number of origins whose robots.txt is being fetched now.
        origins: the number of origins in the cache.
        entries_bytes: about how much memory the origins in the cache take.
        waiting: the number of callers that wait for a turn now.
        turns: the number of turns under way now, at all gates that share the pace.
        recorded: the number of decisions, turns and files that the ledger has written.
        unrecorded: the number of decisions, turns and files that the ledger has dropped, because too many waited to be
            written.

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
    recorded: int = 0
    unrecorded: int = 0

    @property
    def decisions(self) -> int:
        """The number of all verdicts."""
        return self.allowed + sum(self.denied.values())


@dataclass(frozen=True, slots=True, repr=False)
class RobotsStatus:
    """The status of an origin's robots.txt at a moment.

    >>> from politesse import Origin
    >>> from politesse.verdict import AccessResult
    >>> RobotsStatus(Origin.of("https://example.com"), AccessResult.SUCCESSFUL, 200, age_s=60.0)
    <RobotsStatus https://example.com: successful (200), 60 s old>

    Attributes:
        origin: the origin.
        result: the result of the last fetch, or None before the first.
        status: the HTTP status, or None without an answer.
        fault: a phrase that describes the failure, or empty.
        age_s: seconds since robots.txt was fetched or confirmed, or since the fetch failed.
        fetching: whether a fetch is under way.
        next_fetch: the Unix time from which the next check starts a fetch, or None before the first fetch.
        size: how many octets of the file are used, decoded and at most the limit of a fetch; None without a file.
    """

    origin: Origin
    result: AccessResult | None = None
    status: int | None = None
    fault: str = ""
    age_s: float = 0.0
    fetching: bool = False
    next_fetch: float | None = None
    size: int | None = None

    def __str__(self) -> str:
        state = "unknown"
        if self.result is not None:
            answer = "no answer" if self.status is None else self.status
            state = f"{self.result} ({answer}), {self.age_s:.0f} s old"
        fault = f": {shortened(self.fault)}" if self.fault else ""
        return f"{state}{fault}{', being fetched' if self.fetching else ''}"

    def __repr__(self) -> str:
        return f"<RobotsStatus {self.origin}: {self}>"


@dataclass(frozen=True, slots=True, repr=False)
class HostStatus:
    """The status of a host at a moment; see ``AgentView.hosts``.

    >>> from politesse import Bound
    >>> url = "https://example.com/1"
    >>> HostStatus("example.com", 10.0, Bound.CRAWL_DELAY, 1_800_000_000.0, waiting=3, in_flight=1, held_by=url)
    <HostStatus example.com: every 10 s by crawl-delay, 3 waiting, held by https://example.com/1 for 0 s>

    Attributes:
        host: the paced host: its name without scheme and port, or the address or registered domain if addresses or
            domains are paced.
        interval_s: the present interval between two requests, in seconds; with several agents, the interval of the
            agent that may start last.
        bound_by: the limit that sets that interval.
        not_before: the Unix time from which the next request may start; requests that already wait come before a new
            request.
        closed_until: the Unix time until which an answer or an exhausted quota closes the host, or None.
        closed_by: RETRY_AFTER, BACKOFF, RATE_LIMIT or REFUSED, or None if the host is open.
        waiting: the number of requests that wait for a turn.
        in_flight: the number of turns under way.
        held_by: the URL of the oldest turn under way, or empty.
        held_s: seconds since that turn began.
        robots: the status of each robots.txt of the host that is in the cache or is being fetched, one for each origin.
        fleet_wait: the wait of the first waiter in the fleet, or None. The waiter waits for the end of another
            process's request (bound by IN_FLIGHT, with the URL of that request), for its own reserved start, or for the
            Redis of the fleet (bound by FLEET).
        refusal: how often the host has refused this crawler, while these refusals are remembered; else None.
    """

    host: str
    interval_s: float
    bound_by: Bound
    not_before: float
    closed_until: float | None = None
    closed_by: Bound | None = None
    waiting: int = 0
    in_flight: int = 0
    held_by: str = ""
    held_s: float = 0.0
    robots: tuple[RobotsStatus, ...] = ()
    fleet_wait: NotYet | None = None
    refusal: Refusal | None = None

    def __str__(self) -> str:
        words = [f"every {self.interval_s:g} s by {self.bound_by}"]
        if self.closed_until is not None:
            words.append(f"closed until {utc(self.closed_until)} by {self.closed_by}")
        if self.refusal is not None:
            words.append(str(self.refusal))
        if self.waiting:
            words.append(f"{self.waiting} waiting")
        if self.in_flight:
            held = f"held by {shortened(self.held_by)}" if self.held_by else "held"
            words.append(f"{held} for {self.held_s:.0f} s")
        if self.fleet_wait is not None:
            words.append(f"in the fleet {self.fleet_wait}")
        words += [f"robots.txt of {robots.origin} {robots}" for robots in self.robots]
        return ", ".join(words)

    def __repr__(self) -> str:
        return f"<HostStatus {self.host}: {self}>"
