"""The known processes of a fleet, and whether the server may have lost data. Times are arguments.

Theory of operation. The server keeps a roster (``member.lua``): the name of each process, and its session. A session is
the number of a connection. A round is a time in which the server loses no data and its clock is not set. Each round has
a name, the epoch. A round ends when the roster is gone (FLUSHALL), or when another run of the server has taken over (a
restart, a failover). A round also ends when a process finds that the clock of the server was set. Each batch of scripts
checks the epoch in the same round trip. So a process notices the end of a round before it uses a grant of the next
round.

In a new round each process reports: it renews its leases in a new session, tells the server again which hosts are
closed, and notes in the roster that it has reported. Each process of an earlier round also names all other processes
that it has known. Until all of them have reported, or ``lease_s`` seconds have passed since the round began, no process
starts a request.

A lease names the session in which it was last renewed. When an owner reports in a later session, it has renewed all its
live tickets in that session. So if a lease of this owner still names an earlier session, the lease is dead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from politesse._pacing.fleet.messages import Reply, RoundOver

_US: Final = 1e6
_REPORTED: Final = "2"


class Roster:
    """The members of the fleet, as this process knows them.

    Attributes:
        session: the number of the present connection.
        epochs: maps the key of each server's roster to the name of the round; empty before the first reply.
        is_suspect: whether the server may have lost data, although its roster says that the round goes on.
    """

    def __init__(self) -> None:
        self.session: int = 0
        self.epochs: dict[str, str] = {}
        self.is_suspect: bool = False
        self._former_epochs: Mapping[str, str] = {}
        self._sessions: dict[str, int] = {}  # the last session of each owner that has reported
        self._members: dict[str, dict[str, bool]] = {}  # roster key -> owner -> whether the owner has reported
        self._reports_until_mono: dict[str, float] = {}

    def begin_session(self) -> None:
        """Begin a session: a connection was made."""
        self.session += 1
        self._former_epochs = {**self._former_epochs, **self.epochs}
        self.epochs = {}
        self._reports_until_mono.clear()

    def words(self, owner: str, act: str, key: str, run: str, lease_us: int) -> tuple[str | int, ...]:
        """Return the arguments of ``member.lua``."""
        epoch = self.epochs.get(key) or self._former_epochs.get(key, "")
        known = " ".join({name for members in self._members.values() for name in members} - {owner})
        return owner, self.session, act, run, epoch, int(self.is_suspect and act == "join"), lease_us, known

    def take(self, key: str, reply: Reply, now_mono: float) -> None:
        """Handle the reply to a report; raises RoundOver if another round has begun."""
        wait_us, epoch, members = reply[3], reply[6], reply[7].split()
        self.check_epoch(key, epoch)
        self.epochs[key] = epoch
        self._members[key] = {}
        for owner, session, phase in zip(members[::3], members[1::3], members[2::3], strict=True):
            self._members[key][owner] = phase == _REPORTED
            if phase == _REPORTED:
                self._sessions[owner] = int(session)
        self._reports_until_mono[key] = now_mono + int(wait_us) / _US

    def hear(self, key: str, owner: str, session: int, phase: str, epoch: str) -> None:
        """Handle a message: another process has joined, reported or left; raises RoundOver for another round."""
        self.check_epoch(key, epoch)
        members = self._members.setdefault(key, {})
        if not session:
            members.pop(owner, None)
        else:
            members[owner] = phase == _REPORTED
        if phase == _REPORTED:
            self._sessions[owner] = session

    def check_epoch(self, key: str, epoch: str | None) -> None:
        """Raise RoundOver if another round has begun since this process has reported."""
        known = self.epochs.get(key)
        if known and epoch != known:
            raise RoundOver("it has lost data, or another process says so")

    def has_reported(self, keys: int) -> bool:
        """Return whether this process has reported to at least ``keys`` servers."""
        return len(self._reports_until_mono) >= keys

    def waits_s(self, now_mono: float) -> float:
        """Return how long other processes may still report, in seconds."""
        return max((until - now_mono for until in self._reports_until_mono.values()), default=0.0)

    def missing(self) -> list[str]:
        """Return the processes that have not reported."""
        return sorted({name for members in self._members.values() for name, done in members.items() if not done})

    def alive_words(self, owner: str, holders: str) -> str:
        """Return this process and each holder of a dead lease, with the sessions in which they reported last."""
        return " ".join([f"{owner} {self.session}", *self._later_sessions(holders)])

    def has_dead(self, holders: str) -> bool:
        """Return whether any lease of ``holders`` (owners and sessions) is dead."""
        return bool(self._later_sessions(holders))

    def _later_sessions(self, holders: str) -> list[str]:
        """Return the holders that have reported in a later session, each with that session."""
        words = iter(holders.split())
        later = ((name, int(session), self._sessions.get(name, 0)) for name, session in zip(words, words, strict=True))
        return [f"{name} {reported}" for name, session, reported in later if reported > session]
