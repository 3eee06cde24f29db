"""What the scheduler's queue on disk would lose if the process were killed.

Theory of operation. Scrapy writes the state of its queues when it closes them. Until then a file of a queue is partly
in memory, which requests.seen is not: after a ``kill -9``, or a crash, the requests that waited are lost, and filtered
as duplicates ever after. So a run keeps two things beside the queue: a copy of it as the run found it, and a journal of
what it pushed and of what it has done with since. A request is done when the engine has removed it, which is after its
callback or errback has ended. A clean end removes both.

If both are there when a queue is opened, the last run was killed. Then the queue is the copy, with what the journal
says was pushed and not done; what was done is skipped when the copy hands it out. So nothing is lost, and what was
under way is requested again. Scrapy's state of the queue may be cut off then, if it was killed as it wrote that; so it
is removed before Scrapy reads it, and that of the copy is valid. The journal counts by fingerprint of the request: one
that is pushed again is pending once more. A record that was cut off as it was written counts as not written.

The journal begins with the version of its format. One that does not is refused before anything is changed, as is one
without its copy: what they contain cannot be known, and would be lost.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections import Counter
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, BinaryIO, Final

from politesse.errors import ConfigurationError
from politesse.integrations.scrapy.engine import requests_under_way

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy import Request
    from scrapy.crawler import Crawler

_HEAD: Final = b"politesse journal 1\n"  # another format has another number
_RECORD: Final = Struct(">20sL")  # fingerprint, and the length of the request that follows; 0 for one that is done
_QUEUE: Final = "requests.queue"  # the directory of the scheduler's queue in JOBDIR
_STATE: Final = "active.json"  # where the scheduler writes what ``close`` of a queue returns


def discard_cut_state(job_dir: str) -> None:
    """Remove Scrapy's state of the queue if the last run was killed; to be called before the scheduler reads it."""
    if _journal_path(Path(job_dir, _QUEUE)).exists():
        Path(job_dir, _QUEUE, _STATE).unlink(missing_ok=True)


def _journal_path(queue: Path) -> Path:
    return Path(f"{queue}.journal")


class QueueJournal:
    """The journal of one run for the queue in a directory, and the copy of that queue.

    Args:
        crawler: for the fingerprints and the spider of requests.
        key: the directory of the queue; journal and copy are beside it.

    Raises:
        ConfigurationError: the journal of the last run is in another format, or its copy is missing.
    """

    def __init__(self, crawler: Crawler, key: str) -> None:
        self._crawler = crawler
        self._directory = Path(key)
        self._copy = Path(f"{key}.copy")
        self._path = _journal_path(self._directory)
        self._out: dict[Request, bytes] = {}
        self._done: Counter[bytes] = Counter()
        self.was_killed = self._path.exists()
        if self.was_killed:
            self._check()
            self._replace(self._copy, self._directory)
        else:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._replace(self._directory, self._copy)
        self._file = self._path.open("ab", buffering=0)
        if self._file.tell() < len(_HEAD):
            self._file.truncate(0)
            self._file.write(_HEAD)

    @property
    def state(self) -> dict[str, Iterable[int]]:
        """The state of the queue when it was closed last: the priorities of each slot."""
        path = self._directory / _STATE
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def pending(self) -> Iterator[dict[str, object]]:
        """Yield what the run before has pushed, and has not done, as dicts of requests."""
        with self._path.open("rb") as file:
            for place in sorted(self._places_pending(file)):
                file.seek(place)
                _, length = _RECORD.unpack(file.read(_RECORD.size))
                yield pickle.loads(file.read(length))  # noqa: S301 - as Scrapy's own queues are

    def pushed(self, request: Request) -> None:
        """Note a request that was pushed."""
        body = pickle.dumps(request.to_dict(spider=self._crawler.spider), protocol=4)
        self._file.write(_RECORD.pack(self._fingerprint(request), len(body)) + body)

    def popped(self, request: Request) -> bool:
        """Note a request that is handed out; return whether the run before has done it."""
        fingerprint = self._fingerprint(request)
        if self._done[fingerprint]:
            self._done[fingerprint] -= 1
            return False
        self._note_done()
        self._out[request] = fingerprint
        return True

    def close(self) -> None:
        """Write no more: the queue was closed."""
        self._file.close()

    def remove(self) -> None:
        """Remove journal and copy, if the queue was closed: the scheduler has written its state."""
        if self._file.closed:
            self._path.unlink(missing_ok=True)
            shutil.rmtree(self._copy, ignore_errors=True)

    def _check(self) -> None:
        with self._path.open("rb") as file:
            head = file.read(len(_HEAD))
        # The process may have been killed before the head was complete.
        if not _HEAD.startswith(head) or not self._copy.is_dir():
            raise ConfigurationError(
                f"JOBDIR: {str(self._path)!r} is not a journal of this version of politesse, or {self._copy.name!r} "
                "beside it is missing; finish the crawl with the version that wrote it, or remove both to start from "
                "the queue as it is"
            )

    def _places_pending(self, file: BinaryIO) -> list[int]:
        """Return where the records of what was pushed and not done begin; cut off what is incomplete."""
        pushed: dict[bytes, list[int]] = {}
        place, size = file.seek(len(_HEAD)), self._path.stat().st_size
        while len(head := file.read(_RECORD.size)) == _RECORD.size:
            fingerprint, length = _RECORD.unpack(head)
            if file.tell() + length > size:
                break
            if length:
                pushed.setdefault(fingerprint, []).append(place)
            elif pushed.get(fingerprint):
                pushed[fingerprint].pop(0)
            else:
                self._done[fingerprint] += 1  # it came from the copy
            place = file.seek(length, os.SEEK_CUR)
        self._file.truncate(place)
        return [place for places in pushed.values() for place in places]

    def _note_done(self) -> None:
        under_way = requests_under_way(self._crawler)
        for request in [request for request in self._out if request not in under_way]:
            self._file.write(_RECORD.pack(self._out.pop(request), 0))

    def _fingerprint(self, request: Request) -> bytes:
        return self._crawler.request_fingerprinter.fingerprint(request)[:20].ljust(20, b"\0")

    @staticmethod
    def _replace(source: Path, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        if source.exists():
            shutil.copytree(source, target)
        else:
            target.mkdir(parents=True)
