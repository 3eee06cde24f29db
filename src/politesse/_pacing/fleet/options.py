"""How a process talks to the Redis of its fleet."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from politesse._base_errors import ConfigurationTypeError
from politesse._checks import check_prefix, check_ranges
from politesse._constants import DAY_S
from politesse._text import masked_url, type_name


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """Which Redis or Valkey the processes of a fleet share, and how. All of them must have the same options.

    >>> FleetOptions("redis://crawler:secret@cache.example:6379/0", prefix="crawl-2:").lease_s
    60.0

    Attributes:
        url: where it is: ``redis://user:password@host:6379/0``, ``rediss://`` (TLS), ``unix:///path/of/socket``,
            ``redis+sentinel://host:26379,host2:26379/service/0`` or ``redis+cluster://host:6379,host2:6379``. The query
            may hold options of redis-py, as ``?ssl_ca_certs=/path/of/ca.pem``. Its user, password and query are shown
            in no repr and no message.
        prefix: what all keys and channels begin with; another one for each fleet on the same Redis.
        lease_s: for how many seconds a request counts as under way after its process was heard of last; 1 to a day.
            It is renewed while the request runs, so it must be longer than a request that outlives its process. The
            host of a request whose process was killed is kept from all others for so long.
        timeout_s: after how many seconds without an answer Redis counts as away; 0.01 to 60.
        slack: by which share of its interval a start may be late; starts are spaced by that much more. 0.001 to 1.
        max_slack_s: but by so many seconds at most; 0.001 to 60.
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
        if not isinstance(self.url, str):  # its value may hold a password, whatever it is
            raise ConfigurationTypeError(f"url: give a text, as 'redis://host:6379/0', no {type_name(self.url)}")
        check_prefix(self.prefix)

    def __repr__(self) -> str:
        others = "".join(f", {one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.name != "url")
        return f"FleetOptions({masked_url(self.url)!r}{others})"

    def slack_s(self, interval_s: float) -> float:
        """Return by how much a start after an interval may be late, in seconds."""
        return min(self.slack * interval_s, self.max_slack_s)
