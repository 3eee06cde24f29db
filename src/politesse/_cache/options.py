"""The options of the cache: how long answers are valid, and how much is kept."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from politesse._base.checks import check_choice, check_ranges, check_types
from politesse._base.constants import DAY_S, SUCCESSFUL
from politesse._pacing.pace import PacingOptions, limited
from politesse._pacing.refusals import CHALLENGES, challenge_of
from politesse.errors import ConfigurationError
from politesse.ports import FaultKind, FetchResponse, FetchResult
from politesse.robots.dialect import Outcomes
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from politesse.robots import Dialect

_TOO_MANY_REQUESTS: Final[dict[str | None, AccessResult]] = {
    "defer": AccessResult.TOO_MANY_REQUESTS,
    "allow": AccessResult.UNAVAILABLE,
}
_CHOICES: Final = {
    "on_forbidden": ("allow", "disallow", None),
    "on_too_many_requests": ("defer", "allow", None),
}
_FORBIDDEN: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_CLIENT_ERRORS: Final = range(400, 500)


OnForbidden: TypeAlias = Literal["allow", "disallow"]
"""The meaning of a 401 or 403 to robots.txt; see ``CacheOptions.on_forbidden``."""

OnTooManyRequests: TypeAlias = Literal["defer", "allow"]
"""The meaning of a 429 to robots.txt; see ``CacheOptions.on_too_many_requests``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """How long answers are valid, and how much is kept.

    Attributes:
        min_lifetime_s: the least time for which an answer is valid, even if its headers state less; 0 or more.
        refresh_after: the share of its lifetime, 0 to 1, after which the next lookup starts a refresh; 1 for no
            refresh.
        on_forbidden: the meaning of 401 and 403: ``"allow"``, ``"disallow"``, or None for the choice of the dialect.
        on_too_many_requests: the meaning of 429: ``"defer"`` every page, ``"allow"`` as for any other 4xx, or None for
            the choice of the dialect, in most dialects ``"defer"``.
        stale_if_unreachable_s: how long a copy is used after its last confirmation while robots.txt is unreachable, in
            seconds; a day to 30 days, or None for the choice of the dialect, in most dialects a day.
        retry_min_s: the first wait after a fault, doubled with each further fault; positive.
        retry_max_s: the longest such wait.
        max_entries_bytes: about how much memory the copies of robots.txt may take, most of it compiled rules; a store
            has its own bound. The newest copy is kept even if it alone takes more. Without a store, the copies that
            were evicted last are held as well, up to 1 MiB.
        max_site_files_bytes: about how much memory other files than robots.txt, such as data.txt, may take. The newest
            file is kept even if it alone takes more.
        max_concurrent_fetches: how many files of sites are fetched at once; positive. A fetch that takes longer than 50
            ms does not count while other fetches wait. Up to twenty times as many such fetches may be under way, but at
            most half of the process's limit of open files. A host gets one request at a time.
        store_timeout_s: how long the store may take to read, write, delete or close, by the gate's clock; up to an
            hour. After that the cache goes on without the store, and publishes ComponentFailed. The store is paused for
            the same time, and twice as long after each further failure, up to five minutes. At most a thousand calls
            are under way. This time limit does not count the wait for a
            place, or the time for which the event loop was blocked.

    Raises:
        ConfigurationError: if a value is out of its range.

    >>> from politesse.robots import Dialect
    >>> CacheOptions(on_forbidden="disallow").policy(Dialect.RFC9309).outcomes.forbidden_disallows
    True
    """

    min_lifetime_s: float = 60.0
    refresh_after: float = 0.9
    on_forbidden: OnForbidden | None = None
    on_too_many_requests: OnTooManyRequests | None = None
    stale_if_unreachable_s: float | None = None
    retry_min_s: float = 60.0
    retry_max_s: float = 3600.0
    max_entries_bytes: int = 64 * 1024 * 1024
    max_site_files_bytes: int = 16 * 1024 * 1024
    max_concurrent_fetches: int = 100
    store_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices, f"one of {choices}")
        ranges = {
            "min_lifetime_s": (0.0, DAY_S),
            "refresh_after": (0.0, 1.0),
            "stale_if_unreachable_s": (DAY_S, 30 * DAY_S),
            "retry_max_s": (0.001, DAY_S),
            "retry_min_s": (0.001, self.retry_max_s),
            "max_entries_bytes": (1, float("inf")),
            "max_site_files_bytes": (1, float("inf")),
            "max_concurrent_fetches": (1, float("inf")),
            "store_timeout_s": (0.001, 3_600.0),
        }
        if self.stale_if_unreachable_s is None:
            del ranges["stale_if_unreachable_s"]
        check_ranges(self, ranges)

    def policy(self, dialect: Dialect) -> AccessPolicy:
        """Return the policy of these options and ``dialect``."""
        outcomes = dialect.traits.outcomes
        forbidden = outcomes.forbidden_disallows if self.on_forbidden is None else self.on_forbidden == "disallow"
        too_many_requests = _TOO_MANY_REQUESTS.get(self.on_too_many_requests, outcomes.too_many_requests)
        outcomes = outcomes._replace(forbidden_disallows=forbidden, too_many_requests=too_many_requests)
        if self.stale_if_unreachable_s is not None:
            outcomes = outcomes._replace(stale_s=self.stale_if_unreachable_s, stale_from_failure=False)
        return AccessPolicy(outcomes, self)

    def file_policy(self, max_days: int) -> AccessPolicy:
        """Return the policy for the files of a site other than robots.txt, which are valid for ``max_days`` at most.

        Dialects do not apply to these files.

        A file without freshness headers is valid for a week ("A Method for Web Data Discovery" 3.4). The absence of a
        file is valid for a day (RFC 9309 2.4). A file that the server refuses with 401 or 403 counts as missing, and
        does not close the site.
        """
        max_s = max_days * DAY_S
        stale_s = self.stale_if_unreachable_s or DAY_S
        return AccessPolicy(Outcomes(default_lifetime_s=max_s, max_lifetime_s=max_s, stale_s=stale_s), self)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPolicy:
    """The policy of this crawler for a host, independent of robots.txt.

    Attributes:
        deny: request nothing from the host, not even robots.txt (except as a redirect target of another site's
            robots.txt). In report mode, the gate allows the pages, and fetches robots.txt for their pace.
        exempt: request any URL of the host without fetching robots.txt: for your own servers, or by agreement.
        reason: the reason, in words, for the verdicts; required for an exemption.
        min_delay_s: replaces ``PacingOptions.min_delay_s``; None keeps that value. If the host asks for a slower pace,
            that pace applies.
        max_concurrent: replaces ``PacingOptions.max_concurrent``; None keeps that value.

    Raises:
        ConfigurationError: if the policy both denies and exempts its host, if an exemption has no reason, or if a
            number is out of range.

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
        self.pacing(PacingOptions())  # raises if a number is out of range

    def pacing(self, options: PacingOptions) -> PacingOptions:
        """Return ``options`` with the limits of this policy."""
        return limited(options, self.min_delay_s, self.max_concurrent)


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """How the answers to fetches are read, and how long they are valid.

    Attributes:
        outcomes: the meaning of statuses and faults, which the dialect or the kind of file sets and the options change.
        options: the options of the cache.
        user_agent: the User-Agent of requests for robots.txt.
        max_body_bytes: the fetcher's limit of a body; 0 if the fetcher does not report it.
        private_addresses: see FetchOptions; empty if the fetcher does not report it.
        excuses_faults: whether the fetcher reports a fault as a missing file.
    """

    outcomes: Outcomes
    options: CacheOptions
    user_agent: str = ""
    max_body_bytes: int = 0
    private_addresses: str = ""
    excuses_faults: bool = False

    @property
    def faults_read(self) -> str:
        """A text that states which faults become a copy. A copy with another text is not used."""
        too_many = f"more than {self.outcomes.max_redirects} redirects: {self.outcomes.too_many_redirects}"
        return f"{too_many}, others: excused" if self.excuses_faults else too_many

    def meaning_of(self, result: FetchResult) -> AccessResult | None:
        """Return the meaning of an answer or a fault; None for a 304 that confirms the copy."""
        if isinstance(result, FetchResponse):
            status = result.status
            if not CHALLENGES.keys().isdisjoint(result.headers) and challenge_of(result.headers):
                return AccessResult.UNREACHABLE  # whatever the status: the server has not shown the file
            # 206 is unusable: the request had no Range.
            if status in SUCCESSFUL and status != HTTPStatus.PARTIAL_CONTENT:
                return AccessResult.SUCCESSFUL
            if status == HTTPStatus.NOT_MODIFIED and result.conditional:
                return None
            return self._without_file(status)
        if result.kind is FaultKind.REDIRECT_LIMIT:  # RFC 9309 2.3.1.2: MAY assume unavailable
            return self.outcomes.too_many_redirects
        return AccessResult.TOO_MANY_REQUESTS if result.kind is FaultKind.HOST_CLOSED else AccessResult.UNREACHABLE

    def opens(self, meaning: AccessResult | None) -> bool:
        """Return whether an answer with this meaning permits requests for pages, if the site has no record."""
        if meaning is AccessResult.UNREACHABLE:
            return self.outcomes.opens_without_copy
        return meaning in {AccessResult.SUCCESSFUL, AccessResult.UNAVAILABLE, None}

    def _without_file(self, status: int) -> AccessResult:
        """Return the meaning of a status without a file."""
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            return self.outcomes.too_many_requests
        if status in _FORBIDDEN and self.outcomes.forbidden_disallows:
            return AccessResult.FORBIDDEN
        if status in _CLIENT_ERRORS:  # RFC 9309 2.3.1.3: unavailable means that any resource may be accessed
            return AccessResult.UNAVAILABLE
        # RFC 9309 2.3.1.4: unreachable, 500 to 599, means complete disallow. An undefined status counts as unreachable,
        # too.
        return AccessResult.UNREACHABLE
