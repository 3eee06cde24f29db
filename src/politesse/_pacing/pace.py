"""The interval between two requests to a host, and which source binds it: the slowest of all. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final, Literal

from politesse._checks import check_choice, check_ranges, check_types, wrong_type
from politesse._constants import DAY_S
from politesse.errors import ConfigurationError
from politesse.robots.timetable import next_open
from politesse.verdict import Bound

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from politesse.ports import StatedPace


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What several hosts that share something bear together.

    >>> PacingOptions(address=Limit(max_concurrent=4)).address
    Limit(min_delay_s=1.0, max_concurrent=4)

    Attributes:
        min_delay_s: the least time between two requests to any of them, in seconds; 0 to a day. It counts from the end
            of a request, and from its start where several may be under way.
        max_concurrent: how many requests may be under way to all of them at once; 1 to 10,000.
    """

    min_delay_s: float = 1.0
    max_concurrent: int = 1

    def __post_init__(self) -> None:
        check_ranges(self, {"min_delay_s": (0.0, DAY_S), "max_concurrent": (1, 10_000)})


@dataclass(frozen=True, slots=True, kw_only=True)
class PacingOptions:
    """How slow is polite.

    >>> options = PacingOptions(min_delay_s=5.0, on_long_crawl_delay="cap")
    >>> options.min_delay_s, options.max_crawl_delay_s
    (5.0, 300.0)

    Attributes:
        key: what is paced as one, and bound by what any site of it says: a ``"host"``; all hosts at one ``"address"``;
            or all of one registered ``"domain"``, as example.co.uk (needs the extra ``psl``).
        address: besides, what all hosts at one address bear together; None for no limit. A host with several
            addresses counts for the lowest.
        domain: besides, what all hosts of one registered domain bear together; None for no limit.
        min_delay_s: the least time between the end of a request and the start of the next, per host; 0 or more.
        max_concurrent: how many requests may be under way to a host at once; then the delay counts from start to
            start. Positive.
        max_crawl_delay_s: from how many seconds on a Crawl-delay or Request-rate is long; positive, infinite for never.
            When a host was last asked is remembered for that long, at least ten minutes and at most a day, so that a
            pace learnt later binds.
        on_long_crawl_delay: ``"obey"`` it all the same, ``"cap"`` it, or ``"skip"`` the host.
        rule_of_thumb_factor: with no Request-rate, wait this many times the last retrieval; 0 for off.
        rule_of_thumb_least_s: but at least so long.
        adaptive_factor: wait this many times the smoothed response time; 0 for off. Fast answers shorten it again, with
            any status but 429 and 5xx.
        adaptive_max_s: but at most so many seconds; 0 to a day.
        backoff_min_s: for how long at least 429 or 503 closes a host, in seconds; positive. The first one closes it
            for four times its interval if that is longer, each further one for twice as long up to 15 minutes, and
            each other answer halves it. That of a robots.txt closes it for a minute, doubled up to an hour.
        backoff_max_s: for how long at the most, whatever Retry-After says.
        max_turn_s: after how many seconds a turn that has not ended expires, so that its host serves the next request;
            positive, infinite for never.
        scope: a name. All gates of one process and event loop that give the same one share their pace, and must have
            the same options and the same fleet. Empty: a gate shares it with none but its fleet. The name
            ``"process"`` also says that several processes are not to share it: it lets a store that they share, as a
            RedisStore, be used without a ``fleet``, and excludes a fleet.
    """

    key: Literal["host", "address", "domain"] = "host"
    address: Limit | None = None
    domain: Limit | None = None
    min_delay_s: float = 1.0
    max_concurrent: int = 1
    max_crawl_delay_s: float = 300.0
    on_long_crawl_delay: Literal["obey", "cap", "skip"] = "obey"
    rule_of_thumb_factor: float = 0.0
    rule_of_thumb_least_s: float = 10.0
    adaptive_factor: float = 1.0
    adaptive_max_s: float = 60.0
    backoff_min_s: float = 10.0
    backoff_max_s: float = DAY_S
    max_turn_s: float = 600.0
    scope: str = ""

    def __post_init__(self) -> None:
        ranges = {
            "min_delay_s": (0.0, DAY_S),
            "max_concurrent": (1, 10_000),
            "max_crawl_delay_s": (0.001, float("inf")),
            "rule_of_thumb_factor": (0.0, 1_000.0),
            "rule_of_thumb_least_s": (0.0, DAY_S),
            "adaptive_factor": (0.0, 1_000.0),
            "adaptive_max_s": (0.0, DAY_S),
            "backoff_max_s": (0.001, DAY_S),
            "backoff_min_s": (0.001, self.backoff_max_s),
            "max_turn_s": (0.001, float("inf")),
        }
        check_ranges(self, ranges)
        check_choice("key", self.key, ("host", "address", "domain"), "'host', 'address' or 'domain'")
        if not isinstance(self.scope, str):
            raise wrong_type("scope", self.scope, "a name, or '' to share the pace with no other gate")
        check_types({"address": (self.address, Limit), "domain": (self.domain, Limit)})
        for name in ("address", "domain"):
            limit = getattr(self, name)
            if limit is not None and name == self.key:
                raise ConfigurationError(f"key={name!r} and {name}={limit!r}: the key has min_delay_s already")
        long = ("obey", "cap", "skip")
        check_choice("on_long_crawl_delay", self.on_long_crawl_delay, long, "'obey', 'cap' or 'skip'")

    @property
    def is_scoped(self) -> bool:
        """Whether anything but the host alone is paced."""
        return self.key != "host" or self.address is not None or self.domain is not None


PER_PROCESS: Final = "process"
"""The ``scope`` which says that each process has a pace of its own, whatever else processes share."""

_SLOWER_IF_GREATER: Final = (
    "min_delay_s",
    "max_crawl_delay_s",
    "rule_of_thumb_factor",
    "rule_of_thumb_least_s",
    "adaptive_factor",
    "adaptive_max_s",
    "backoff_min_s",
    "backoff_max_s",
    "max_turn_s",
)


def strictest(several: Iterable[PacingOptions]) -> PacingOptions:
    """Return the slowest value of each option; ``key``, ``address``, ``domain`` and ``scope`` are those of the first.

    A long Crawl-delay is capped only where all cap it.
    """
    first, *others = several
    if all(options == first for options in others):
        return first
    every = (first, *others)
    return replace(
        first,
        max_concurrent=min(options.max_concurrent for options in every),
        on_long_crawl_delay=min((options.on_long_crawl_delay for options in every), key=lambda long: long == "cap"),
        **{name: max(getattr(options, name) for options in every) for name in _SLOWER_IF_GREATER},
    )


def limited(options: PacingOptions, min_delay_s: float | None, max_concurrent: int | None) -> PacingOptions:
    """Return the options with the limits of one host; None for those of the options."""
    return replace(
        options,
        min_delay_s=options.min_delay_s if min_delay_s is None else min_delay_s,
        max_concurrent=options.max_concurrent if max_concurrent is None else max_concurrent,
    )


@dataclass(frozen=True, slots=True)
class Pace:
    """The time between two requests to a host.

    Attributes:
        interval_s: in seconds.
        bound_by: the source that is slowest.
    """

    interval_s: float
    bound_by: Bound


def stated_pace(said: Collection[StatedPace], now_wall: float, options: PacingOptions) -> Pace:
    """Return the slowest of the crawler's own floor and what the robots.txt files of a host state at ``now_wall``.

    A Request-rate of N documents in T is kept by T/N between two; one with a window counts inside it only
    (Conner 2.0).
    """
    pace = Pace(options.min_delay_s, Bound.FLOOR)
    for rules in said:
        if rules.crawl_delay is not None:
            pace = slower(pace, Pace(bounded(rules.crawl_delay, options), Bound.CRAWL_DELAY))
        rate_s = rules.timetable.interval_s(now_wall)
        if rate_s:
            pace = slower(pace, Pace(bounded(rate_s, options), Bound.REQUEST_RATE))
    return pace


def slower(one: Pace, other: Pace) -> Pace:
    """Return the slower of two; the first where they are the same."""
    return other if other.interval_s > one.interval_s else one


PACES_HELD: Final = 2.0
"""How many intervals between requests what is known of a site has to hold for, so that a turn comes before its end."""


def longest_stated_s(said: Collection[StatedPace]) -> float:
    """Return the longest interval that any of the files names, in seconds, at whatever time of day; 0 for none."""
    longest_s = 0.0
    for rules in said:
        longest_s = max(longest_s, rules.crawl_delay or 0.0, rules.timetable.longest_s)
    return longest_s


def rates_hold_until(said: Collection[StatedPace], now_wall: float) -> float:
    """Return the Unix time at which the next window of a Request-rate begins or ends; infinite where none has one."""
    return min((rules.timetable.next_change(now_wall) for rules in said), default=float("inf"))


def visit_from(said: Collection[StatedPace], now_wall: float) -> float:
    """Return the Unix time from which all of the files permit a visit: ``now_wall`` if they do now.

    Several Visit-times of one file permit what any of them does. Files whose windows never meet permit nothing: then
    the answer is a day later, when it is worked out again.
    """
    open_minutes = [rules.timetable.open_minutes for rules in said]
    return next_open(reduce(and_, open_minutes), now_wall) if open_minutes else now_wall


def bounded(interval_s: float, options: PacingOptions) -> float:
    """Return a stated interval, capped where the options say so."""
    return min(interval_s, options.max_crawl_delay_s) if options.on_long_crawl_delay == "cap" else interval_s
