"""A scheduler that ignores SCHEDULER_PRIORITY_QUEUE, as that of scrapy-redis does."""

from __future__ import annotations

import pickle
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from scrapy.core.scheduler import BaseScheduler
from scrapy.utils.request import request_from_dict

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler


class ListScheduler(BaseScheduler):
    """Hands out what it has, in order; ``LIST_FILE`` keeps the rest for the next run."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._file = crawler.settings["LIST_FILE"]
        self._seen: set[bytes] = set()
        self._requests: deque[dict[str, Any]] = deque()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def open(self, spider: Spider) -> None:
        self._spider = spider
        if self._file and Path(self._file).exists():
            self._seen, self._requests = pickle.loads(Path(self._file).read_bytes())  # noqa: S301 - its own

    def close(self, reason: str) -> None:
        if self._file:
            Path(self._file).write_bytes(pickle.dumps((self._seen, self._requests)))

    def has_pending_requests(self) -> bool:
        return bool(self._requests)

    def enqueue_request(self, request: Request) -> bool:
        assert self._crawler.request_fingerprinter is not None
        fingerprint = self._crawler.request_fingerprinter.fingerprint(request)
        if not request.dont_filter and fingerprint in self._seen:
            return False
        self._seen.add(fingerprint)
        self._requests.append(request.to_dict(spider=self._spider))
        return True

    def next_request(self) -> Request | None:
        return request_from_dict(self._requests.popleft(), spider=self._spider) if self._requests else None
