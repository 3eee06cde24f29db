"""The options of the cache: how long answers hold, and how much is kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from politesse._cache.outcome import AccessPolicy
from politesse._checks import check_choice, check_ranges
from politesse._constants import DAY_S
from politesse.robots.traits import Grace, Lifetimes, Outcomes
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from politesse.robots import Dialect

_TOO_MANY_REQUESTS: Final[dict[str | None, AccessResult]] = {
    "defer": AccessResult.TOO_MANY_REQUESTS,
    "allow": AccessResult.UNAVAILABLE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """How long answers hold, and how much is kept.

    Attributes:
        min_lifetime_s: the least time that an answer holds, whatever its headers say; 0 or more.
        refresh_after: the part of its lifetime, 0 to 1, after which a question has it fetched again; 1 for never.
        on_forbidden: what 401 and 403 mean: ``"allow"``, ``"disallow"``, or None for what the dialect says.
        on_too_many_requests: what 429 means: ``"defer"`` every page, ``"allow"`` as any other 4xx does, or None for
            what the dialect says: in most to defer.
        stale_if_unreachable_s: how long after it was last confirmed a copy serves while robots.txt is unreachable;
            a day to 30 days, or None for what the dialect says: in most a day.
        after_grace: the meaning of a robots.txt that was unreachable for 30 days: ``"disallow"``, ``"allow"``, or
            None for what the dialect says: in most to disallow.
        retry_min_s: the first wait after a fault, doubled with each further one; positive.
        retry_max_s: the longest such wait.
        max_entries_bytes: about how much memory the compiled rules may take; the store has a bound of its own.
        max_site_files_bytes: about how much memory other files than robots.txt may take, as data.txt.
        max_concurrent_fetches: how many robots.txt, and other files of sites, are fetched at once; positive. One that
            takes longer than 50 ms does not count while others wait; of these there may be twenty times as many, but
            no more than half of the file descriptors of the process. To one host there are never more than two.
        store_timeout_s: how long the store may take to read, write, delete or close, by the gate's clock; then the
            cache goes on without it, and says so as ComponentFailed. Up to an hour. The store is left alone for as long
            after that, twice as long after each further failure, up to five minutes. A thousand calls are under way at
            once; those that wait for their place are not late, nor is one during which the event loop stood still.

    Raises:
        ConfigurationError: if a value is out of its range.

    >>> from politesse.robots import Dialect
    >>> CacheOptions(on_forbidden="disallow").policy(Dialect.RFC9309).outcomes.forbidden_disallows
    True
    """

    min_lifetime_s: float = 60.0
    refresh_after: float = 0.9
    on_forbidden: Literal["allow", "disallow"] | None = None
    on_too_many_requests: Literal["defer", "allow"] | None = None
    stale_if_unreachable_s: float | None = None
    after_grace: Literal["disallow", "allow"] | None = None
    retry_min_s: float = 60.0
    retry_max_s: float = 3600.0
    max_entries_bytes: int = 64 * 1024 * 1024
    max_site_files_bytes: int = 16 * 1024 * 1024
    max_concurrent_fetches: int = 100
    store_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        choices: dict[str, tuple[str | None, ...]] = {
            "on_forbidden": ("allow", "disallow", None),
            "on_too_many_requests": ("defer", "allow", None),
            "after_grace": ("disallow", "allow", None),
        }
        for name, allowed in choices.items():
            check_choice(name, getattr(self, name), allowed, f"one of {allowed}")
        ranges = {
            "min_lifetime_s": (0.0, DAY_S),
            "refresh_after": (0.0, 1.0),
            "stale_if_unreachable_s": (DAY_S, 30 * DAY_S),
            "retry_max_s": (0.001, DAY_S),
            "retry_min_s": (0.001, self.retry_max_s),
            "max_entries_bytes": (1.0, float("inf")),
            "max_site_files_bytes": (1.0, float("inf")),
            "max_concurrent_fetches": (1.0, float("inf")),
            "store_timeout_s": (0.001, 3_600.0),
        }
        if self.stale_if_unreachable_s is None:
            del ranges["stale_if_unreachable_s"]
        check_ranges(self, ranges)

    def policy(self, dialect: Dialect) -> AccessPolicy:
        """Return these choices joined with those of ``dialect``."""
        outcomes = dialect.traits.outcomes
        forbidden = outcomes.forbidden_disallows if self.on_forbidden is None else self.on_forbidden == "disallow"
        too_many_requests = _TOO_MANY_REQUESTS.get(self.on_too_many_requests, outcomes.too_many_requests)
        grace = self._grace(outcomes.grace)
        return self._policy(
            replace(outcomes, forbidden_disallows=forbidden, too_many_requests=too_many_requests, grace=grace)
        )

    def file_policy(self, max_days: int = 7) -> AccessPolicy:
        """Return these choices for the other files of a site, which no dialect of robots.txt speaks about.

        A week where no header says how long, and a day for what is not there: "A Method for Web Data Discovery" 3.4,
        and RFC 9309 2.4 for the lack of a file. A refused file counts as missing, and closes nothing.
        """
        max_s = max_days * DAY_S
        outcomes = Outcomes(
            forbidden_disallows=False,
            max_redirects=5,  # RFC 9309 2.3.1.2: at least five, of robots.txt
            lifetimes=Lifetimes(default_s=max_s, max_s=max_s, max_unavailable_s=DAY_S),
            grace=Grace(stale_s=self.stale_if_unreachable_s or DAY_S),
        )
        return self._policy(outcomes)

    def _policy(self, outcomes: Outcomes) -> AccessPolicy:
        return AccessPolicy(outcomes, self.min_lifetime_s, self.refresh_after, self.retry_min_s, self.retry_max_s)

    def _grace(self, grace: Grace) -> Grace:
        if self.stale_if_unreachable_s is not None:
            grace = replace(grace, stale_s=self.stale_if_unreachable_s, stale_from_failure=False)
        if self.after_grace is not None:
            grace = replace(grace, after_allows=self.after_grace == "allow")
        return grace
