"""A queue for Scrapy's scheduler that hands out only the requests whose site is ready.

Theory of operation. Each origin has its own queue, so that an origin with an unreachable robots.txt holds up no other
origin of its host. Scrapy calls the name of such a queue a slot.

In a large crawl most slots wait, for the pace of their host or for a request that is under way. Checking every
slot whenever the engine asks for a request would cost more than the request. So the slots stand in a line, and only the
slots at its front are checked. A slot that is not ready leaves the line, and sleeps until a request or a wait ends at
its host. Then it goes to the end of the line, to be checked again. So every ready slot is in the line, but a slot in
the line may not be ready.

If a site was given up, its requests do not count as pending. So Scrapy finds the spider idle in its usual way, and
closes it. Requests on disk stay for the next run. Requests in memory would be lost, so the queue hands them out when
the spider has nothing else to do. The downloader refuses each of them without a wait, and the request ends in its
errback with the reason.

The journal. Scrapy writes the state of its queues when it closes them. Until then part of a queue is in memory,
but ``requests.seen`` is on disk. So after a ``kill -9`` plain Scrapy has lost the waiting requests, and its filter
drops them as duplicates if they are made again. Therefore each run keeps two things beside the queue: a copy of the
queue from the start of the run, and a journal. The journal lists the pushed requests that are not done, and the
requests of the copy that are done. A request is done when its callback or errback has ended, and the engine has removed
the request. A clean end removes copy and journal.

If both exist when a queue is opened, the last run was killed. It is not still running, because PoliteDownloader has
locked JOBDIR. The next run then starts from the copy and from the pushed requests of the journal, but skips the
requests of the copy that are done. So no request is lost, and a request that was under way is made again. The journal
identifies requests by their fingerprint. Scrapy may have been killed while it wrote its own state of the queue. So the
file with that state is removed before Scrapy reads it; the copy has a valid state.

The journal is an SQLite file, so a record is written completely or not at all, and the space of finished requests
is used again. The file names the version of its format. A run refuses a journal of another format, or without its copy,
before it changes anything. If the run ignored the journal, it would lose requests.
"""

from __future__ import annotations

import json
import logging
import pickle
import shutil
import sqlite3
from collections import Counter, OrderedDict
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scrapy import Request, signals
from scrapy.exceptions import DontCloseSpider
from scrapy.utils.request import request_from_dict

from politesse.errors import ConfigurationError
from politesse.integrations.scrapy import _internals
from politesse.integrations.scrapy._downloader import PAGE, PoliteDownloader, host_of, slot_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy.crawler import Crawler


logger = logging.getLogger(__name__)

_CACHED: Final = "answered by the HTTP cache"
"""The slot of requests that the cache answers; they wait for no site."""

_VERSION: Final = 2
_TABLES: Final = f"""
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
BEGIN;
CREATE TABLE IF NOT EXISTS pushed (place INTEGER PRIMARY KEY, fingerprint BLOB, request BLOB);
CREATE INDEX IF NOT EXISTS by_fingerprint ON pushed (fingerprint);
CREATE TABLE IF NOT EXISTS done (fingerprint BLOB);
PRAGMA user_version = {_VERSION};
COMMIT;
"""
_REMOVE: Final = "DELETE FROM pushed WHERE place = (SELECT min(place) FROM pushed WHERE fingerprint = ?)"


class PolitePriorityQueue(_internals.SlotQueue):
    """A priority queue of Scrapy with a slot for each origin; it hands out only requests whose site is ready.

    This class is for the setting ``SCHEDULER_PRIORITY_QUEUE``, with PoliteDownloader. The length of the queue does not
    count the requests of sites that were given up: see ``POLITESSE_MAX_WAIT`` of PolitesseAddon.

    With ``JOBDIR``, a job of plain Scrapy can be continued with politesse, and a job of politesse with plain Scrapy.

    Raises:
        ConfigurationError: the setting ``DOWNLOADER`` is not a PoliteDownloader, or the journal in ``JOBDIR`` is of
            another version.

    Example::

        SCHEDULER_PRIORITY_QUEUE = "politesse.integrations.scrapy.PolitePriorityQueue"  # PolitesseAddon sets it
    """

    def __init__(
        self,
        crawler: Crawler,
        downstream_queue_cls: type[_internals.DownstreamQueue],
        key: str,
        slot_startprios: dict[str, Iterable[int]] | None = None,
        *,
        start_queue_cls: type[_internals.DownstreamQueue] | None = None,
    ) -> None:
        downloader = _internals.downloader_of(crawler)
        if not isinstance(downloader, PoliteDownloader):
            raise ConfigurationError(
                f"SCHEDULER_PRIORITY_QUEUE: PolitePriorityQueue needs a PoliteDownloader, not {downloader!r}"
            )
        self._polite = downloader
        self._draining: set[str] = set()
        self._line: OrderedDict[str, None] = OrderedDict()  # the slots in the order in which they are served
        self._asleep: dict[str, set[str]] = {}  # maps hosts to their sleeping slots
        self._journal = QueueJournal(crawler, key) if key else None
        if self._journal is not None and self._journal.was_killed:
            slot_startprios = self._journal.state
        super().__init__(crawler, downstream_queue_cls, key, slot_startprios, start_queue_cls=start_queue_cls)
        self.select_slots()
        self._http_cache = _internals.HttpCache(crawler)
        downloader.queues.append((self.wake, self.note_left))
        if self._journal is None:
            crawler.signals.connect(self._drain, signals.spider_idle)
        elif self._journal.was_killed:
            for request in self._journal.pending():
                super().push(request_from_dict(request, spider=crawler.spider))
            logger.warning("The last run in JOBDIR was killed; restored from its journal: %d requests", len(self))

    def note_slot(self, slot: str) -> None:
        """Put a new slot at the end of the line, unless it sleeps."""
        if slot not in self._asleep.get(host_of(slot), ()):
            self._line[slot] = None

    def wake(self, site: str | None) -> None:
        """Put the sleeping slots of the host of a site at the end of the line; with None, the slots of all hosts."""
        for host in tuple(self._asleep) if site is None else (host_of(site),):
            self._line.update(dict.fromkeys(sorted(self._asleep.pop(host, ()))))

    def next_slot(self) -> str | None:
        """Return the first ready slot, or None; forget slots that no longer exist."""
        while self._line:
            slot = next(iter(self._line))
            if slot in self.slots:
                if self._polite.is_ready(slot, is_last=slot in self._draining):
                    return slot
                self._asleep.setdefault(host_of(slot), set()).add(slot)
            del self._line[slot]
        return None

    def slot_name(self, request: Request) -> str:
        """Return the slot of ``request``."""
        return _CACHED if self._http_cache.answers(request) else self._slot_of_site(request)

    def push(self, request: Request) -> None:
        """Store ``request``, without the directives of a page that may be in its meta."""
        request.meta.pop(PAGE, None)  # some queues on disk cannot store the directives
        super().push(request)
        if self._journal is not None:
            self._journal.pushed(request)
            _internals.flush_seen(self.crawler)

    def pop(self) -> Request | None:
        """Return the next request whose site is ready, or None."""
        request = super().pop()
        while request is not None and self._journal is not None and not self._journal.popped(request):
            request = super().pop()
        if request is None:
            return None
        slot = self._slot_of_site(request)
        self._polite.hand_out(request, is_last=slot in self._draining)
        if slot not in self.slots:
            self._draining.discard(slot)
        return request

    def close(self) -> dict[str, list[int]]:
        """Close the queues; return the priorities on disk."""
        self.note_left()
        state = super().close()
        if self._journal is not None:
            self._journal.close()
            self._polite.at_end.callback(self._journal.remove)
        return state

    def note_left(self) -> None:
        """Count the requests of sites that were given up."""
        for slot, queue in self.slots.items():
            if (site := self._polite.waits.given_up(slot)) is not None:
                self._polite.tally.left(site, len(queue), on_disk=self._journal is not None)

    def __len__(self) -> int:
        return sum(map(len, self.slots.values())) - sum(len(self.slots[slot]) for slot in self._given_up())

    def _slot_of_site(self, request: Request) -> str:
        return slot_of(request.url) or self._polite.slot_name(request)

    def _given_up(self) -> list[str]:
        return [slot for slot in self.slots if slot not in self._draining and self._polite.waits.given_up(slot)]

    def _drain(self) -> None:
        """Hand out all requests of the sites that were given up; DontCloseSpider keeps the spider open for them."""
        self._draining.update(self._given_up())
        if self._draining:
            for slot in self._draining:
                self.wake(slot)
            _internals.wake(self.crawler)
            raise DontCloseSpider


class QueueJournal:
    """The journal of a run for the queue in a directory, and the copy of that queue.

    Args:
        crawler: has the fingerprinter and the spider of requests.
        key: the directory of the queue; the journal and the copy are beside it.

    Raises:
        ConfigurationError: the journal of the last run is in another format, or its copy is missing.
    """

    def __init__(self, crawler: Crawler, key: str) -> None:
        self._crawler = crawler
        self._directory = Path(key)
        self._copy = Path(f"{key}.copy")
        self._path = _internals.journal_path(self._directory)
        self._out: dict[Request, bytes] = {}
        self.was_killed = self._path.exists()
        if self.was_killed:
            self._check()
            _replace(self._copy, self._directory)
        else:
            self._directory.mkdir(parents=True, exist_ok=True)
            _replace(self._directory, self._copy)
        self._file = sqlite3.connect(self._path, isolation_level=None)
        self._file.executescript(_TABLES)
        self._done = Counter(fingerprint for (fingerprint,) in self._file.execute("SELECT fingerprint FROM done"))

    @property
    def state(self) -> dict[str, Iterable[int]]:
        """The state of the queue at its last close: the priorities of each slot."""
        path = self._directory / _internals.STATE
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def pending(self) -> Iterator[dict[str, object]]:
        """Yield the requests, as dicts, that the last run pushed and did not finish."""
        for (request,) in self._file.execute("SELECT request FROM pushed ORDER BY place"):
            yield pickle.loads(request)  # noqa: S301 - as Scrapy's own queues are

    def pushed(self, request: Request) -> None:
        """Record a request that was pushed."""
        body = pickle.dumps(request.to_dict(spider=self._crawler.spider), protocol=4)
        fingerprint = self._fingerprint(request)
        self._file.execute("INSERT INTO pushed (fingerprint, request) VALUES (?, ?)", (fingerprint, body))

    def popped(self, request: Request) -> bool:
        """Record a request that is handed out; return False if the last run has finished the request."""
        fingerprint = self._fingerprint(request)
        if self._done[fingerprint]:
            self._done[fingerprint] -= 1
            return False
        self._note_done()
        self._out[request] = fingerprint
        return True

    def close(self) -> None:
        """Stop writing, because the queue was closed."""
        self._file.close()

    def remove(self) -> None:
        """Remove journal and copy, after the scheduler has closed the queue and written its state."""
        self._path.unlink(missing_ok=True)
        shutil.rmtree(self._copy, ignore_errors=True)

    def _check(self) -> None:
        try:
            with closing(sqlite3.connect(self._path)) as file:
                (version,) = file.execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError:
            version = -1
        # Version 0: the last run was killed before it created the tables.
        if version not in {0, _VERSION} or not self._copy.is_dir():
            raise ConfigurationError(
                f"JOBDIR: {str(self._path)!r} is not a journal of this version of politesse, or {self._copy.name!r} "
                "beside it is missing; finish the crawl with the version that wrote it, or remove both to start from "
                "the queue as it is"
            )

    def _note_done(self) -> None:
        under_way = _internals.requests_under_way(self._crawler)
        for request in [request for request in self._out if request not in under_way]:
            fingerprint = self._out.pop(request)
            if not self._file.execute(_REMOVE, (fingerprint,)).rowcount:  # the request came from the copy
                self._file.execute("INSERT INTO done VALUES (?)", (fingerprint,))

    def _fingerprint(self, request: Request) -> bytes:
        return self._crawler.request_fingerprinter.fingerprint(request)


def _replace(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
