"""The input and the output of a judge: requests with their answers, the rules of judging, the kinds of violation."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Protocol

from politesse._base.constants import DAY_S
from politesse.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_WEB_ADDRESS = re.compile(r"https?://[^\s();,]*")


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer in the log of a server or a crawler.

    Example:
        >>> from politesse.testing import Exchange
        >>> Exchange("https://example.com/busy", started=10.0, ended=10.5, status=429, retry_after_s=60).status
        429

    Attributes:
        url: the requested URL, of a page or a robots.txt.
        started: when the request began, as Unix time.
        ended: when the answer had been read, as Unix time; infinite for a request under way.
        status: the status of the answer; 0 if it is unknown or missing.
        retry_after_s: the Retry-After of the answer in seconds, or None.
        agent: the User-Agent of the request, or None if it was not logged.
        location: the Location of the answer, or None.
    """

    url: str
    started: float
    ended: float
    status: int = 200
    retry_after_s: float | None = None
    agent: str | None = None
    location: str | None = None


class Kind(StrEnum):
    """The kinds of violation."""

    FORBIDDEN = "forbidden page requested"
    BEFORE_ROBOTS = "page requested before robots.txt"
    WHILE_CLOSED = "page requested without a usable robots.txt"
    STALE = "page requested with a robots.txt that is too old"
    REFETCHED = "robots.txt requested again too soon"
    ROBOTS_OVERLAP = "robots.txt requested while another robots.txt of the host was under way"
    ROBOTS_GAP = "robots.txt requested too soon after another robots.txt of the host"
    RETRIED_EARLY = "robots.txt requested before Retry-After was over"
    RETRY_AFTER = "page requested before Retry-After was over"
    OVERLAP = "page requested while another request was under way"
    GAP = "page requested too soon after the request before"
    VISIT_TIME = "page requested outside the Visit-time"
    AGENT = "requested under another User-Agent"
    BACKWARDS = "exchange ends before it starts"


@dataclass(frozen=True, slots=True)
class Violation:
    """A request that should not have been made.

    Attributes:
        kind: the kind of violation.
        url: the URL of the request.
        detail: the rule that forbids the request, or the gap and the pace; may be empty.
        missing_s: by how many seconds the request came too early, or the copy of robots.txt was too old; otherwise 0.
    """

    kind: Kind
    url: str
    detail: str = ""
    missing_s: float = field(default=0.0, compare=False)

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.url:.200}{self.detail and f' ({self.detail})'}"


class Expectation(Protocol):
    """The expectations of a site."""

    def against(self, target: str, wall: float, /) -> str | None:
        """Return the rule that forbids a request target at a time, or None."""

    def interval(self, wall: float, /) -> tuple[float, str]:
        """Return the interval that the site states for a time, in seconds, and the source of that statement."""

    def open_at(self, wall: float, /) -> bool:
        """Return whether the site permits a visit at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """The promises of the crawler, which hold for every site.

    Attributes:
        min_delay_s: the pause before a page if the host states none, and the pause between requests for robots.txt to a
            host, in seconds.
        min_refetch_s: the least time between two requests for a robots.txt, from start to start, in seconds.
        max_age_s: the longest time for which the crawler uses a copy of robots.txt, in seconds.
        slack_s: the tolerance for errors of the clocks in the log, in seconds.
        wall_slack_s: the tolerance for Retry-After and for fetching robots.txt again, in seconds. The crawler may
            measure both times by another clock.
        agent: finds the crawler's product token in a logged User-Agent; None if any User-Agent is permitted.
        one_at_a_time: whether the crawler makes one request at a time to a host, even if no pace is stated.
        max_hosts: the number of hosts that the judge remembers.

    Raises:
        ConfigurationError: a number is negative.
    """

    min_delay_s: float = 0.0
    min_refetch_s: float = 54.0
    max_age_s: float = DAY_S
    slack_s: float = 0.0
    wall_slack_s: float = 0.0
    agent: Callable[[str], str | None] | None = None
    one_at_a_time: bool = True
    max_hosts: float = inf

    def __post_init__(self) -> None:
        for name in ("min_delay_s", "min_refetch_s", "max_age_s", "slack_s", "wall_slack_s"):
            if not getattr(self, name) >= 0:
                raise ConfigurationError(f"{name}={getattr(self, name)!r}: give seconds, 0 or more")


def token_finder(tokens: Iterable[str]) -> Callable[[str], str | None]:
    """Return a function that finds the first of some product tokens in a User-Agent; it returns None without any.

    Many a User-Agent holds a web address or an e-mail address with the name of another crawler of its operator.
    """
    names = {token.lower(): token for token in tokens}
    search = re.compile(rf"(?<![\w./@-])(?:{'|'.join(map(re.escape, names))})(?![\w.@-])").search

    def find(user_agent: str) -> str | None:
        found = search(_WEB_ADDRESS.sub(" ", user_agent.lower()))
        return None if found is None else names[found[0]]

    return find
