"""The options for the Redis of a fleet."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Final

from politesse._base.checks import check_prefix, check_ranges
from politesse._base.constants import DAY_S
from politesse._base.text import masked_url, type_name
from politesse.errors import ConfigurationTypeError

_DRIFT_S: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """The Redis or Valkey that the processes of a fleet share, with time limits. All processes need the same options.

    >>> FleetOptions("redis://crawler:secret@cache.example:6379/0", prefix="crawl-2:").lease_s
    60.0

    Attributes:
        url: the URL of the server: ``redis://user:password@host:6379/0``, ``rediss://`` (TLS),
            ``unix:///path/of/socket``, ``redis+sentinel://host:26379,host2:26379/service/0`` or
            ``redis+cluster://host:6379,host2:6379``. The query may hold options of redis-py, such as
            ``?ssl_ca_certs=/path/of/ca.pem``. Reprs and messages never show the user, the password or the query.
        prefix: all keys begin with it; give each fleet on the same Redis its own prefix.
        lease_s: how long a request counts as under way after the last sign of life of its process, in seconds; 1 to a
            day. A process renews its leases. If a process is killed, the host of its request waits until the lease
            ends.
        timeout_s: how long Redis may take to answer before it counts as away, in seconds; 0.01 to 60.
        slack: how late a start may be, as a share of its interval; 0.001 to 1. If several requests may be under way at
            a host, this time is added to the interval; otherwise at most 10 ms are added.
        max_slack_s: how late a start may be at most, in seconds; 0.001 to 60. If only one request at a time may be
            under way at a host, a start may always be late by ``max_slack_s``.
    """

    url: str = field(default="redis://localhost:6379/0", kw_only=False)
    prefix: str = "politesse:"
    lease_s: float = 60.0
    timeout_s: float = 1.0
    slack: float = 0.1
    max_slack_s: float = 0.05

    def __post_init__(self) -> None:
        check_ranges(
            self,
            {
                "lease_s": (1.0, DAY_S),
                "timeout_s": (0.01, 60.0),
                "slack": (0.001, 1.0),
                "max_slack_s": (0.001, 60.0),
            },
        )
        if not isinstance(self.url, str):  # the message must not show the value: it may hold a password
            raise ConfigurationTypeError(f"url: give a text, as 'redis://host:6379/0', no {type_name(self.url)}")
        check_prefix(self.prefix)

    def __repr__(self) -> str:
        others = "".join(f", {one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.name != "url")
        return f"FleetOptions({masked_url(self.url)!r}{others})"

    def slack_s(self, interval_s: float) -> float:
        """Return how late a start after an interval may be, in seconds."""
        return min(self.slack * interval_s, self.max_slack_s)

    def spacing_s(self, interval_s: float) -> float:
        """Return the time that is added to the interval between two starts at a host, in seconds.

        With one request at a time, the interval counts from the end of the last request, even if its start was late. So
        the spacing only has to cover the drift of the clocks.
        """
        return min(self.slack * interval_s, self.max_slack_s, _DRIFT_S)
