"""The queues of a run: one has workers of its own, the other is crawled."""

import asyncio
import re
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from politesse import ClosedError
from politesse.queue import CrawlPage, PoliteQueue, QueueClosed
from tests.model.outcomes import Outcomes
from tests.model.world import AiohttpStyleWeb, Failed, HttpxStyleWeb, split

if TYPE_CHECKING:
    from tests.model.judge import Waiting
    from tests.model.runs import Run


class Queued:
    """A queue, its producers and its consumers."""

    def __init__(self, run: "Run", agent: str, name: str) -> None:
        lots = run.lots
        self.all, self.lots, self.clock, self.world, self.judge = run, lots, run.clock, run.world, run.judge
        self.agent, self.name = agent, name
        self.outcomes = Outcomes(run.judge, name, agent)
        self.maxsize = lots.choice((0, 0, 0, 2))
        self.queue: PoliteQueue[str] = PoliteQueue(
            run.views[agent],
            maxsize=self.maxsize,
            on_disallowed=self.outcomes.refused,
            max_wait_s=lots.choice((20_000.0, 3600.0, 3600.0, 300.0, 20.0)),
            max_unreachable_s=lots.choice((300.0, 300.0, 0.0, 1000.0)),
        )
        self._since: dict[str, float] = {}

    async def run(self) -> None:
        raise NotImplementedError

    def cancel(self) -> None:
        """Cancel a consumer."""
        raise NotImplementedError

    def waiting(self) -> "list[Waiting]":
        """Return the URLs for which an idle worker waits, and since when."""
        left = self.queue.left() if self.queue.statistics().waiting else ()
        deferred, now = {str(origin) for origin in self.queue.deferred()} if left else (), self.clock.monotonic()
        self._since = {url: self._since.get(url, now) for url, _, _ in left if split(url)[0] not in deferred}
        return [(url, self.agent, since, False, self.name) for url, since in self._since.items()]


class Worked(Queued):
    """A queue whose workers take turns, are cancelled, and are replaced."""

    def __init__(self, run: "Run", agent: str, name: str) -> None:
        super().__init__(run, agent, name)
        self.workers: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        for _ in range(self.lots.choice((1, 2, 5))):
            self.hire()
        await self.produce()
        self.queue.close()
        while self.workers:
            worker = self.workers[-1]
            await asyncio.wait([worker])
            await asyncio.sleep(0)  # a cancelled worker has been replaced
            self.workers.remove(worker)
            if not worker.cancelled() and (error := worker.exception()) is not None:
                self.judge.find(f"a worker of {self.name} ended with {error!r}")

    async def produce(self) -> None:
        """Put URLs, at first many, then some later; some calls are cancelled."""
        lots = self.lots
        for _ in range(lots.randint(2, 25)):
            if lots.random() < 0.15:
                await self.clock.sleep(lots.choice((0.3, 2.0, 30.0, 300.0)))
            url = self.world.url()
            self.outcomes.put.add(url)
            putting = asyncio.ensure_future(self.queue.put(url, url, lots.choice((0, 0, 1, -1))))
            await asyncio.sleep(0)
            if not putting.done() and lots.random() < 0.2:
                putting.cancel()
            await asyncio.wait([putting])
            if putting.cancelled():
                self.outcomes.put.discard(url)
            elif isinstance(putting.exception(), ClosedError):
                self.outcomes.put.discard(url)
                return
            else:
                putting.result()

    def hire(self) -> None:
        worker = asyncio.create_task(self.work(), name=f"worker of {self.name}")
        worker.add_done_callback(lambda worker: self.hire() if worker.cancelled() else None)
        self.workers.append(worker)

    async def work(self) -> None:
        while True:
            try:
                async with self.queue.turn() as turn:
                    self.outcomes.ends(turn.item or "", "is handed out")
                    with suppress(Failed):
                        async with self.world.get(turn.url, self.agent, self.name) as page:
                            turn.observe(page.status, page.headers)
                            if self.lots.random() < 0.8:
                                await page.read()
            except (QueueClosed, ClosedError):
                return
            if self.lots.random() < 0.2:
                await self.clock.sleep(self.lots.choice((0.0, 1.0, 10.0)))

    def cancel(self) -> None:
        if self.workers:
            self.judge.note(f"cancel a worker of {self.name}")
            self.lots.choice(self.workers).cancel()


class Crawled(Queued):
    """A queue that is crawled: within limits, cancelled, and crawled again with the same ``seen``."""

    def __init__(self, run: "Run", agent: str, name: str) -> None:
        super().__init__(run, agent, name)
        lots = self.lots
        self.web = lots.choice((AiohttpStyleWeb, HttpxStyleWeb))(run.world, name)
        drawn: dict[str, Any] = {
            "max_pages": lots.randint(1, 20),
            "max_pages_per_host": lots.randint(1, 8),
            "depth": lots.randint(0, 2),
            "max_time_s": lots.choice((5.0, 100.0, 2000.0)),
            "allow": [lots.choice(("a.example", "/a", ".example", "/private"))],
            "deny": [lots.choice(("b.example", "/h", "/c/"))],
        }
        self.options = {name: value for name, value in drawn.items() if lots.random() < 0.2}
        self.crawl: asyncio.Task[None] | None = None
        self.handed = 0
        self.per_host: Counter[str] = Counter()
        self.records: Counter[str] = Counter()

    async def run(self) -> None:
        producing = asyncio.create_task(self.produce(), name=f"producer of {self.name}")
        if self.lots.random() < 0.7 and not self.maxsize:
            await asyncio.wait([producing])
        for _ in range(8):
            if self.all.ended or (not self.queue.qsize() and producing.done()):
                break
            self.crawl = asyncio.create_task(self.crawl_once(), name=f"crawl of {self.name}")
            await asyncio.wait([self.crawl])
            if self.crawl.cancelled() or isinstance(self.crawl.exception(), ClosedError):
                self.outcomes.cancelled += 1
                continue
            self.crawl.result()
            if {"max_pages", "max_time_s"} & self.options.keys():
                break
            while not producing.done() and not self.queue.qsize():
                await self.clock.sleep(1.0)
        producing.cancel()
        await asyncio.wait([producing])

    async def produce(self) -> None:
        """Put URLs and sitemaps before a crawl, during it, or both."""
        lots, listed = self.lots, set[str]()
        for _ in range(lots.randint(1, 12)):
            if lots.random() < 0.15:
                await self.clock.sleep(lots.choice((0.3, 2.0, 30.0)))
            url = self.world.url()
            origin = split(url)[0]
            try:
                if lots.random() < 0.05 and origin not in listed:
                    listed.add(origin)
                    await self.queue.put_sitemaps(origin)
                else:
                    await self.queue.put(url)
            except (QueueClosed, ClosedError):
                return

    async def crawl_once(self) -> None:
        """Crawl, and check the limits and the report."""
        options, judge = self.options, self.judge
        self.handed, self.per_host, self.records = 0, Counter(), Counter()
        judge.note(f"{self.name}: crawl with {options}")
        judge.begin_before[self.name] = self.clock.monotonic() + options.get("max_time_s", 1e9)
        workers = self.lots.choice((1, 3, 20))
        report = await self.queue.crawl(
            self.web, self.handle, workers=workers, seen=self.outcomes.put, out=self.record, **options
        )
        judge.note(f"{self.name}: {report}")
        self.outcomes.check_report(report, self.records, self.queue)

    def record(self, record: dict[str, Any]) -> None:
        self.records[record["outcome"]] += 1
        if re.match("(Type|Attribute|Name|Key|Index|Assertion)Error", str(record.get("error"))):
            self.judge.find(f"{self.name}: {record['url']} failed: {record['error']}")
        if record["outcome"] not in {"disallowed", "given-up", "refused"}:
            self.outcomes.ends(record["url"], f"is {record['outcome']}, {record['status']}")

    async def handle(self, page: CrawlPage[str], response: Any) -> object:
        lots, judge = self.lots, self.judge
        self.check_limits(page)
        if lots.random() < 0.3:
            await self.clock.sleep(lots.choice((0.1, 1.0, 5.0)))
        if isinstance(self.web, AiohttpStyleWeb) and lots.random() < 0.8:
            await response.read()
        for link in self.world.links() if len(self.outcomes.put) < 50 else ():
            if page.put(link):
                judge.note(f"{self.name}: {link} is put by {page.url}")
                if not self.follows(link) or page.depth + 1 > self.options.get("depth", 99):
                    judge.find(f"{self.name}: {link} is queued against the limits")
        if lots.random() < 0.05:
            raise ValueError("drawn")
        return {"more": 1}

    def check_limits(self, page: CrawlPage[str]) -> None:
        host, options, find = split(page.url)[1], self.options, self.judge.find
        self.handed += 1
        self.per_host[host] += 1
        if self.handed > options.get("max_pages", self.handed):
            find(f"{self.name}: {page.url} is page {self.handed}, beyond max_pages")
        most = options.get("max_pages_per_host", self.per_host[host])
        if self.per_host[host] > most:
            find(f"{self.name}: {page.url} is page {self.per_host[host]} of its host, beyond max_pages_per_host")
        if self.per_host[host] == options.get("max_pages_per_host"):
            self.outcomes.full.add(host)
        if page.depth > options.get("depth", page.depth):
            find(f"{self.name}: {page.url} is at depth {page.depth}")

    def follows(self, url: str) -> bool:
        """Read ``allow`` and ``deny`` literally."""

        def matches(pattern: str) -> bool:
            _, host, target = split(url)
            if pattern.startswith("."):
                return host.endswith(pattern)
            return target.startswith(pattern) if pattern.startswith("/") else host == pattern

        allow, deny = self.options.get("allow"), self.options.get("deny", ())
        return (allow is None or any(map(matches, allow))) and not any(map(matches, deny))

    def cancel(self) -> None:
        if self.crawl is not None and self.lots.random() < 0.3:
            self.judge.note(f"cancel the crawl of {self.name}")
            self.crawl.cancel()
