"""Calculates when the next request of an agent may start, and which source sets that time. Pure; time is an argument.

Theory of operation. Two kinds of facts determine a start:

* Facts about the host bind every request to it: the time of its last request (``last_mono``), the end of a closure (a
  time without requests, see ``refusals.py``), the adaptive delay, and a quota.
* Statements of robots.txt bind the agent that they name: Crawl-delay, Request-rate, Visit-time. Each request brings
  the statements for its agent, and the floor of its gate, which is the least interval that the gate demands.

The interval before a request is the longest of the floors, the statements for the agent of *that* request, the adaptive
delay and the quota. The interval counts from the last request of any agent. So a statement for one agent does not
change the interval of another agent.

A closure or a window of a Visit-time does not lengthen the interval. The request starts at the first time at which the
interval is over, the host is open and the window is open. A Request-rate may have a window, too. When this window
begins or ends, the interval may change. So a start is scheduled for that time at the latest, and is calculated again
then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from operator import and_
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from politesse._base.checks import check_choice, check_ranges, check_types, wrong_type
from politesse._base.constants import DAY_S
from politesse.errors import ConfigurationError
from politesse.robots.crawl_directives import next_open
from politesse.verdict import Bound

if TYPE_CHECKING:
    from collections.abc import Collection

    from politesse.robots import RuleSet


PacingKey: TypeAlias = Literal["host", "address", "domain"]
"""What has one pace together; see ``PacingOptions.key``."""

OnLongCrawlDelay: TypeAlias = Literal["obey", "cap", "skip"]
"""What to do about a long delay; see ``PacingOptions.on_long_crawl_delay``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit for all hosts with the same address, or with the same registered domain.

    >>> PacingOptions(address=Limit(max_concurrent=4)).address
    Limit(min_delay_s=1.0, max_concurrent=4)

    Attributes:
        min_delay_s: the least time between two requests to any of these hosts, in seconds; 0 to a day. The delay counts
            from the end of a request, or from its start if several may be under way.
        max_concurrent: how many requests to all these hosts may be under way at once; 1 to 10,000.
    """

    min_delay_s: float = 1.0
    max_concurrent: int = 1

    def __post_init__(self) -> None:
        check_ranges(self, {"min_delay_s": (0.0, DAY_S), "max_concurrent": (1, 10_000)})


@dataclass(frozen=True, slots=True, kw_only=True)
class PacingOptions:
    """How fast hosts are requested.

    >>> options = PacingOptions(min_delay_s=5.0, on_long_crawl_delay="cap")
    >>> options.min_delay_s, options.max_crawl_delay_s
    (5.0, 300.0)

    Attributes:
        key: paces each ``"host"`` alone, all hosts at one ``"address"`` together, or all hosts of a registered
            ``"domain"`` together, such as example.co.uk (needs the extra ``psl``).
        address: a further limit for all hosts at one address together. If a host has several addresses, the lowest
            address counts.
        domain: a further limit for all hosts of a registered domain together.
        min_delay_s: the least time between the end of a request and the start of the next, per host; 0 or more.
        max_concurrent: how many requests may be under way to a host at once; positive. With 2 or more, the delay counts
            from start to start.
        max_crawl_delay_s: a Crawl-delay or Request-rate is long if it asks for more than this many seconds; positive,
            infinite for no limit. The last request to a host is remembered for the same time, but for at least ten
            minutes and at most a day. So the interval that a robots.txt states still counts from this request if the
            file is fetched later.
        on_long_crawl_delay: ``"obey"`` a long delay, ``"cap"`` it at ``max_crawl_delay_s``, or ``"skip"`` the host.
        adaptive_factor: the adaptive delay is this many times the smoothed response time; 0 for off. Fast answers
            shorten the delay again, unless their status is 429 or 5xx.
        adaptive_max_s: the longest adaptive delay, in seconds; 0 to a day.
        backoff_min_s: the least time for which a 429, 502, 503 or 504 closes a host, in seconds; positive. Three
            consecutive answers with other 5xx statuses have the same effect, and so has each further one. The first
            such answer closes the host for four times the interval of the host if that is longer. Each further such
            answer doubles the time, up to 15 minutes, and each other answer halves it. A 429 to robots.txt closes the
            host for a minute. Each further one doubles this time, up to an hour. A 503 to robots.txt has the same
            effect if it has a Retry-After, or comes from the target of a redirect. Any other 503 to robots.txt does not
            close the host.
        backoff_max_s: the longest time for which an answer closes a host, even if Retry-After is longer.
        refused_min_s: how long a host that refuses this crawler is closed at first, in seconds; positive. Each further
            refusal doubles the time. See the guide "When a site refuses".
        refused_after: how many answers of 401 or 403 to pages, without a success between them, count as a refusal; 1 or
            more.
        max_turn_s: how long a turn may last before it expires, in seconds; positive, infinite for no limit. When a turn
            expires, the next request to its host may start.
        scope: which processes or spiders share a pace. ``"process"`` gives each process its own pace. A LeasingStore,
            such as a RedisStore, may then be used without a ``fleet``. A fleet cannot be combined with this scope. With
            Scrapy, any other name is the name of a pace: all spiders of a process with this ``scope`` share it. Gates
            share a pace apart by ``pacer=SharedPacer(...)``.
    """

    key: PacingKey = "host"
    address: Limit | None = None
    domain: Limit | None = None
    min_delay_s: float = 1.0
    max_concurrent: int = 1
    max_crawl_delay_s: float = 300.0
    on_long_crawl_delay: OnLongCrawlDelay = "obey"
    adaptive_factor: float = 1.0
    adaptive_max_s: float = 60.0
    backoff_min_s: float = 10.0
    backoff_max_s: float = DAY_S
    refused_min_s: float = 900.0
    refused_after: int = 10
    max_turn_s: float = 600.0
    scope: str = ""

    def __post_init__(self) -> None:
        ranges = {
            "min_delay_s": (0.0, DAY_S),
            "max_concurrent": (1, 10_000),
            "max_crawl_delay_s": (0.001, float("inf")),
            "adaptive_factor": (0.0, 1_000.0),
            "adaptive_max_s": (0.0, DAY_S),
            "backoff_max_s": (0.001, DAY_S),
            "backoff_min_s": (0.001, self.backoff_max_s),
            "refused_min_s": (0.001, DAY_S),
            "refused_after": (1, 1_000_000),
            "max_turn_s": (0.001, float("inf")),
        }
        check_ranges(self, ranges)
        check_choice("key", self.key, ("host", "address", "domain"), "'host', 'address' or 'domain'")
        if not isinstance(self.scope, str):
            raise wrong_type("scope", self.scope, "a name, or '' for the pace of all gates")
        check_types({"address": (self.address, Limit), "domain": (self.domain, Limit)})
        for name in ("address", "domain"):
            limit = getattr(self, name)
            if limit is not None and name == self.key:
                raise ConfigurationError(f"key={name!r} and {name}={limit!r}: the key has min_delay_s already")
        long = ("obey", "cap", "skip")
        check_choice("on_long_crawl_delay", self.on_long_crawl_delay, long, "'obey', 'cap' or 'skip'")

    @property
    def is_scoped(self) -> bool:
        """Whether addresses or domains are paced, too."""
        return self.key != "host" or self.address is not None or self.domain is not None


PER_PROCESS: Final = "process"
"""The ``scope`` that gives each process a pace of its own, even if processes share a store."""


def limited(options: PacingOptions, min_delay_s: float | None, max_concurrent: int | None) -> PacingOptions:
    """Return the options with the limits of a host. If a limit is None, the options apply."""
    return replace(
        options,
        min_delay_s=options.min_delay_s if min_delay_s is None else min_delay_s,
        max_concurrent=options.max_concurrent if max_concurrent is None else max_concurrent,
    )


known_limited: Final = lru_cache(1_000)(limited)
"""The same for limits that were checked before; many hosts have the same limits."""


class Pace(NamedTuple):
    """The time between two requests to a host.

    Attributes:
        interval_s: the time, in seconds.
        bound_by: the source that demands this time.
    """

    interval_s: float
    bound_by: Bound


def stated_pace(said: Collection[RuleSet], now_wall: float, options: PacingOptions, floor_s: float = 0.0) -> Pace:
    """Return the slowest of the floor of the pacer, ``floor_s``, and the statements of robots.txt at ``now_wall``.

    A Request-rate of N documents in T means T/N between two requests. A rate with a window counts only inside the
    window (Conner 2.0).
    """
    pace = Pace(max(options.min_delay_s, floor_s), Bound.FLOOR)
    for rules in said:
        if rules.crawl_delay is not None:
            pace = slower(pace, Pace(bounded(rules.crawl_delay, options), Bound.CRAWL_DELAY))
        rate_s = rules.timetable.interval_s(now_wall)
        if rate_s:
            pace = slower(pace, Pace(bounded(rate_s, options), Bound.REQUEST_RATE))
    return pace


def slower(one: Pace, other: Pace) -> Pace:
    """Return the slower of two paces; the first if they are equal."""
    return other if other.interval_s > one.interval_s else one


PACES_HELD: Final = 2.0
"""How long a copy of robots.txt has to stay fresh, in intervals, so that a turn comes before the copy expires."""


def longest_stated_s(said: Collection[RuleSet]) -> float:
    """Return the longest interval in any of the files, in seconds, at any time of day; 0 for none."""
    longest_s = 0.0
    for rules in said:
        longest_s = max(longest_s, rules.crawl_delay or 0.0, rules.timetable.longest_s)
    return longest_s


def rates_hold_until(said: Collection[RuleSet], now_wall: float) -> float:
    """Return the Unix time at which the next window of a Request-rate begins or ends; infinite for never."""
    return min((rules.timetable.next_change(now_wall) for rules in said), default=float("inf"))


def visit_from(said: Collection[RuleSet], now_wall: float) -> float:
    """Return the Unix time from which all files permit a visit; ``now_wall`` if they permit a visit now.

    Several Visit-times in a file permit a visit in any of their windows. Files whose windows never overlap permit no
    visit. For such files the result is a day after ``now_wall``, and is calculated again then.
    """
    open_minutes = [rules.timetable.open_minutes for rules in said]
    return next_open(reduce(and_, open_minutes), now_wall) if open_minutes else now_wall


def bounded(interval_s: float, options: PacingOptions) -> float:
    """Return a stated interval, capped if the options say so."""
    return min(interval_s, options.max_crawl_delay_s) if options.on_long_crawl_delay == "cap" else interval_s


class Closing(NamedTuple):
    """The end of a closure, and its reason.

    Attributes:
        until_mono: the monotonic time of the end; in the past if the host is open.
        bound_by: one of CLOSINGS.
    """

    until_mono: float
    bound_by: Bound


class Start(NamedTuple):
    """When a request may start.

    Attributes:
        ready_mono: the monotonic time of the start; in the past if the request may start now.
        bound_by: the source that sets this time.
        pace: the interval before the request.
        yields_until_mono: the latest time at which another request may start without delaying this request: two
            intervals before ``ready_mono``. The other request takes up to one interval, because the adaptive delay
            makes an interval as long as the usual answer. Then one interval passes before this request.
    """

    ready_mono: float
    bound_by: Bound
    pace: Pace
    yields_until_mono: float
