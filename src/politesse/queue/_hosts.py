"""The hosts of a queue, with their phases, their origins, and the URLs that wait.

``HostPhase`` has the theory of operation. A crawl notes beside each URL how it came to the URL: a Trail, and for a
sitemap file a SitemapMark.
"""

from __future__ import annotations

import heapq
import logging
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

from politesse._base.tasks import WaitingTasks
from politesse.queue._results import Item

if TYPE_CHECKING:
    from politesse._gate.view import Judged
    from politesse.origin import Origin
    from politesse.verdict import NotYet, Verdict

LOGGER: Final = logging.getLogger("politesse.queue")


class HostPhase(StrEnum):
    """The phases of a host.

    Theory of operation. A robots.txt applies to an origin, but the load is on a host. So the URLs of an origin wait in
    one heap, by priority and then by the time of ``put``, and the origins of a host compete for the turns of the host.
    An origin is blocked while its robots.txt is fetched or deferred. A host is in one phase at a time:

        phase      the host waits for
        EMPTY      a URL
        UNKNOWN    the robots.txt of its origins with URLs, which are all blocked
        READY      a worker, in the line of ready hosts
        IN_TURN    the answer of the pacer; after a turn was granted, the next call of the pacer
        PACED      its interval, or the end of other requests to the host
        CLOSED     the end of a closure or of a quota's interval, or a Visit-time
        GIVEN_UP   a worker, which refuses the next URL of the host, unless the host has opened

        phase                    event                                          next phase
        EMPTY, UNKNOWN           URL_PUT, at an origin with its robots.txt      READY
                                 KNOWN: robots.txt was fetched and allows a     PACED, until the pacer calls
                                 URL; or a URL was put, and the host is in the
                                 pacer's line or has a turn under way
        READY, GIVEN_UP          ASKED: a worker asks for a turn                IN_TURN
        any but READY, GIVEN_UP  NOT_YET, SHUT: the pacer refuses, for now      PACED, CLOSED
                                 REFUSED: a URL was denied or deferred, its     READY, in front
                                 robots.txt is unknown, or its worker was
                                 cancelled
                                 TOO_LONG: too long a wait, or many refusals    GIVEN_UP, in front
                                 DUE: the pacer calls                           READY
                                 LOOK: a URL may be denied or wait too long,    READY
                                 or an answer may have closed the host
                                 BLOCKED: no origin has its robots.txt          UNKNOWN
                                 EMPTIED: the last URL has left                 EMPTY

    Only a worker takes a host out of the line. If a host outside the line has no next URL, each event becomes BLOCKED
    or EMPTIED (``Dispatcher.move``). A host in the line ignores all events but ASKED: a ready host stays ready, and
    becomes EMPTY only when a worker takes it. URL_PUT and KNOWN are events of hosts that are EMPTY or UNKNOWN. Each
    change of phase is logged at the level DEBUG, with its event. When a site is given up, one warning is logged.

    Hosts that are PACED or CLOSED, or have further URLs during a turn, wait in the line of the pacer (``is_watched``).
    The pacer serves its line first come, first served, also among hosts that share an address or a domain.
    """

    EMPTY = "empty"
    UNKNOWN = "unknown"
    READY = "ready"
    IN_TURN = "in turn"
    PACED = "paced"
    CLOSED = "closed"
    GIVEN_UP = "given up"


IN_LINE: Final = frozenset({HostPhase.READY, HostPhase.GIVEN_UP})  # the phases of hosts in the line
ASLEEP: Final = frozenset({HostPhase.EMPTY, HostPhase.UNKNOWN})  # the phases of hosts without a URL for a worker


class HostEvent(Enum):
    """The events that change the phase of a host; see HostPhase.

    Attributes:
        words: the event in words, for the log.
        after: the next phase.
    """

    URL_PUT = "a URL was put", HostPhase.READY
    BLOCKED = "robots.txt is unknown", HostPhase.UNKNOWN
    KNOWN = "robots.txt is known", HostPhase.PACED
    LOOK = "it is looked at", HostPhase.READY
    ASKED = "a worker asks for its turn", HostPhase.IN_TURN
    NOT_YET = "the pacer spaces it", HostPhase.PACED
    SHUT = "it is closed", HostPhase.CLOSED
    REFUSED = "a URL was refused", HostPhase.READY
    TOO_LONG = "it would wait for too long", HostPhase.GIVEN_UP
    DUE = "the pacer calls", HostPhase.READY
    EMPTIED = "no URL is left", HostPhase.EMPTY

    def __init__(self, words: str, after: HostPhase) -> None:
        self.words = words
        self.after = after


class SitemapMark(NamedTuple):
    """Marks a URL as a sitemap file; see ``_sitemaps``.

    Attributes:
        listed_by: the origin whose robots.txt lists the file, or the index of the file; empty if there is none.
        is_in_index: whether an index lists the file.
        since_wall: entries with an older date are left out; None for no limit.
        is_guess: whether the file is the ``/sitemap.xml`` of an origin that lists no sitemap; the file may be missing.
    """

    listed_by: str = ""
    is_in_index: bool = False
    since_wall: float | None = None
    is_guess: bool = False


class Trail(NamedTuple):
    """How a crawl came to a URL.

    Attributes:
        hops: the URLs that redirected here.
        attempt: the number of this attempt, from 1; see ``_crawl`` for further attempts.
        depth: how many links lead here from a URL that the program has put.
        sitemap: how to read the answer as a sitemap file; None for a page.
    """

    hops: tuple[str, ...] = ()
    attempt: int = 1
    depth: int = 0
    sitemap: SitemapMark | None = None


NO_TRAIL: Final = Trail()


@dataclass(slots=True, eq=False, repr=False)
class QueuedUrl(Generic[Item]):
    """A URL that was put, with its item; ordered by priority, then by number. Sitemap files come after all pages.

    Attributes:
        number: the number of the call of ``put``.
        origin_queue: the queue in which the URL waits.
        trail: how a crawl came to the URL.
        withdrawn: whether the URL no longer competes for turns.
    """

    priority: float
    number: int
    url: str
    item: Item | None
    origin_queue: OriginQueue[Item]
    trail: Trail = NO_TRAIL
    withdrawn: bool = False

    def __lt__(self, other: QueuedUrl[Item]) -> bool:
        is_file, is_other_file = self.trail.sitemap is not None, other.trail.sitemap is not None
        return (is_file, self.priority, self.number) < (is_other_file, other.priority, other.number)


@dataclass(slots=True, eq=False, repr=False)
class OriginQueue(Generic[Item]):
    """The URLs of an origin, as a heap.

    A URL that is withdrawn from the middle of the heap stays in the heap until it reaches the top. The top is never a
    withdrawn URL.

    Attributes:
        size: how many URLs wait, including URLs that wait to be refused.
        blocked: whether the origin waits for a fetch of its robots.txt, or for the end of a deferral.
        prefetched: whether robots.txt was fetched and no URL has been handed out or refused since.
        reloads: how many consecutive turns of the host found robots.txt unknown; 0 after a URL was handed out or
            refused.
        closings: how many consecutive loads of robots.txt ended in TOO_MANY_REQUESTS or UNREACHABLE; 0 after a URL was
            handed out.
        held: the verdict on the first URL after a reload, and its copy, which keeps robots.txt in memory; until a URL
            was handed out or refused, or for the time of a deferral.
        deferral: the Unix time at which the first of the consecutive deferrals began, and the verdict of the last one;
            None without a deferral.
        sorted_by: the digest of the robots.txt by which the URLs were last sorted; see ``Dispatcher.known``.
        may_wait_long: whether robots.txt may delay a URL for too long, as last judged.
    """

    host: HostQueue[Item]
    origin: Origin
    urls: list[QueuedUrl[Item]] = field(default_factory=list)
    size: int = 0
    blocked: bool = False
    prefetched: bool = False
    reloads: int = 0
    closings: int = 0
    held: Judged | None = None
    deferral: tuple[float, Verdict] | None = None
    sorted_by: bytes | None = None
    may_wait_long: bool = False

    def add(self, queued: QueuedUrl[Item]) -> None:
        """Let a URL compete for turns while the origin is not blocked."""
        queued.withdrawn = False
        heapq.heappush(self.urls, queued)

    def withdraw(self, queued: QueuedUrl[Item]) -> None:
        """Let a URL no longer compete for turns."""
        queued.withdrawn = True
        while self.urls and self.urls[0].withdrawn:
            heapq.heappop(self.urls)


@dataclass(slots=True, eq=False, repr=False)
class HostQueue(Generic[Item]):
    """A host of the queue.

    Attributes:
        key: the name of the paced host.
        phase: the present phase.
        is_watched: whether the host waits in the line of the pacer, which will call back.
        turns: how many turns of this queue are under way.
        origins: maps each origin of the host to its queue.
        size: how many URLs wait, in all origins.
        progress_mono: when the host last had a turn or was found open; None before its first wait; see ``Patience``.
        closure: the last answer of the pacer by which the host was closed, or None.
        given_up: if the program has given up the host: the number of the last URL that is refused, and the reason.
        putters: tasks that wait for room.
    """

    key: str
    phase: HostPhase = HostPhase.EMPTY
    is_watched: bool = False
    turns: int = 0
    origins: dict[Origin, OriginQueue[Item]] = field(default_factory=dict)
    size: int = 0
    progress_mono: float | None = None
    closure: NotYet | None = None
    given_up: tuple[int, str] | None = None
    putters: WaitingTasks = field(default_factory=WaitingTasks)

    def on(self, event: HostEvent) -> bool:
        """Change the phase, unless only a worker may do so; return whether the host has entered the line."""
        before, after = self.phase, event.after
        if before is after or (before in IN_LINE and event is not HostEvent.ASKED):
            return False
        self.phase = after
        if LOGGER.isEnabledFor(logging.DEBUG):
            LOGGER.debug("%s: %s, was %s: %s", self.key, after, before, event.words)
        return after in IN_LINE

    def head(self) -> QueuedUrl[Item] | None:
        """Return the next URL of this host; None if all origins with URLs are blocked."""
        head = None
        for queue in self.origins.values():
            if queue.urls and not queue.blocked and (head is None or queue.urls[0] < head):
                head = queue.urls[0]
        return head
