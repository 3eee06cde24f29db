"""The rounds of a server, and whether it may have lost data. Times are arguments.

Theory of operation. The server keeps a roster of the processes (``member.lua``). A round is a time in which the server
loses no data and its clock is not set. Each round has a name, the epoch. A round ends when the roster is gone
(FLUSHALL), or when another run of the server has taken over (a restart, a failover). A round also ends when a process
finds that the clock of the server was set. Each batch of scripts reads the epoch last, in the same round trip. So an
unchanged epoch proves that the server had lost nothing when it ran the scripts.

In a new round each process renews its leases, tells the server again which hosts are closed or slow, and then reports.
Nobody knows the names of the others. Each process remembers the version, the count and the sum of the roster, as it
read them in its last batch. The highest version tells how many processes have to report, and which. Until all of them
have reported, or ``lease_s`` seconds have passed since the round began, no process starts a request. A process that has
joined since the last batch of any other process is not expected. So a new round waits for a second at least.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from politesse._pacing.fleet.messages import RoundOver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from politesse._pacing.fleet.messages import Reply

_US: Final = 1e6


@dataclass(slots=True, eq=False)
class Roster:
    """The roster of one server, or of one node of a cluster, as this process knows it.

    Attributes:
        epoch: the name of the round; empty before the first report.
        counts: the version, the count and the sum.
        has_reported: whether this process has reported in its present session.
        wait_until_mono: until when other processes may still report.
        since_mono: since when the server knows each request: when the round began, or when this process came to it
            from another round.
        missing: how many processes had not reported at that time.
    """

    epoch: str = ""
    counts: tuple[str, str, str] = ("0", "0", "0")
    has_reported: bool = False
    wait_until_mono: float = inf
    since_mono: float = -inf
    missing: int = 0
    _former: str = field(default="", init=False)  # the round in which requests could start last

    def words(self, *, is_suspect: bool) -> tuple[str | int, ...]:
        """Return the arguments of ``member.lua`` about what this process knows."""
        return self._former, int(is_suspect), *self.counts

    def take(self, reply: Reply, now_mono: float) -> None:
        """Accept the reply to a report; raises RoundOver if another round has begun since the last report."""
        _, _, wait_us, epoch, version, count, total, age_us, missing = reply
        if self.has_reported and epoch != self.epoch:
            raise RoundOver
        wait_s = int(wait_us) / _US
        if epoch not in {self._former, self.epoch}:  # otherwise the server knows the last request of each host
            # The round may be older than the last request by another server, to which a proxy has led until now.
            self.since_mono = now_mono if self._former else now_mono - int(age_us) / _US
        self.epoch, self.has_reported, self.missing = epoch, True, int(missing)
        self.wait_until_mono = now_mono + wait_s if wait_s else -inf
        if not wait_s:
            self._former, self.counts = epoch, (version, count, total)

    def check(self, words: Sequence[str]) -> None:
        """Compare what the last batch has read from the roster; raises RoundOver if another round has begun."""
        epoch, *counts = words
        if not self.has_reported:
            return
        if epoch != self.epoch:
            raise RoundOver
        if self._former == epoch:
            version, count, total = counts
            self.counts = version, count, total
