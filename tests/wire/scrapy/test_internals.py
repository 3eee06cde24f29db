"""The undocumented parts of Scrapy that ``_internals`` uses: each is there, and no other module uses them.

A crawl of plain Scrapy, in a process of its own, checks the needs.
"""

import ast
import inspect
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import scrapy
from scrapy.core.downloader import Downloader
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.downloadermiddlewares.httpcache import HttpCacheMiddleware
from scrapy.extensions.httpcache import DummyPolicy, FilesystemCacheStorage
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.utils.job import job_dir

from politesse.integrations.scrapy import PoliteDownloader, PolitePriorityQueue, RobotParser, _internals

CALLED: Final[list[str]] = []
"""The methods that Scrapy has called in the probing crawl, in order."""

SENT: Final[list[tuple[Any, Any]]] = []
"""The slot and the stale response, if any, of each request that was sent."""


def noting(cls: type, label: str, *names: str) -> Any:
    """Return a subclass that notes the calls of methods."""

    def noted(name: str) -> Callable[..., Any]:
        def call(self: object, *args: object, **kwargs: object) -> Any:
            CALLED.append(f"{label}.{name}")
            return getattr(super(probing, self), name)(*args, **kwargs)

        return call

    probing = type(f"Probing{cls.__name__}", (cls,), {name: noted(name) for name in names})
    return probing


class ProbingDownloader(noting(Downloader, "Downloader", "fetch", "get_slot_key", "_get_slot")):  # type: ignore[misc]
    async def _download(self, slot: Any, request: Any) -> Any:
        SENT.append((slot, request.meta.get("cached_response")))
        return await super()._download(slot, request)


class ProbingQueue(noting(DownloaderAwarePriorityQueue, "queue", "pqfactory")):  # type: ignore[misc]
    """A queue with one slot, whose state is known."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._downloader_interface: Any = self

    def stats(self, possible_slots: Any) -> list[tuple[int, str]]:
        CALLED.append("_downloader_interface.stats")
        return [(0, slot) for slot in possible_slots]

    def get_slot_key(self, request: Any) -> str:
        CALLED.append("_downloader_interface.get_slot_key")
        return "one"

    def push(self, request: Any) -> None:
        super().push(request)
        CALLED.append(f"pqueues {[len(queue) for slot, queue in self.pqueues.items() if slot == 'one']}")

    def close(self) -> Any:
        return super().close() | {"closed": []}


class ProbingPolicy(noting(DummyPolicy, "policy", "should_cache_request", "should_cache_response")):  # type: ignore[misc]
    def is_cached_response_fresh(self, cachedresponse: Any, request: Any) -> bool:
        CALLED.append("policy.is_cached_response_fresh")
        return False


ProbingStorage = noting(FilesystemCacheStorage, "storage", "retrieve_response", "store_response")


class Probe(NamedTuple):
    """The moment of a crawl at which the needs are checked: in the callback of its second request."""

    crawler: Any
    request: scrapy.Request

    @property
    def slot(self) -> Any:
        return self.crawler.engine._slot

    @property
    def downloader(self) -> Any:
        return self.crawler.engine.downloader

    @property
    def cache(self) -> Any:
        return self.crawler.get_downloader_middleware(HttpCacheMiddleware)


class Need(NamedTuple):
    """A name of Scrapy that ``_internals`` uses, whether it is as it must be, and the harm to users if it is not."""

    name: str
    holds: Callable[[Probe], object]
    harm: str


def accepts(function: Callable[..., Any], *args: object, **kwargs: object) -> bool:
    inspect.signature(function).bind(*args, **kwargs)
    return True


def delays(slot: Any) -> bool:
    """Return whether the delay of a slot can be set."""
    slot.delay = 7.0
    return bool(slot.download_delay() >= slot.delay / 2)  # Scrapy's jitter


def has_httpx_clients(one: Probe) -> bool:
    """Return whether HttpxDownloadHandler has its clients where they must be; older Scrapys do not have the handler."""
    try:
        import httpx2
        from scrapy.core.downloader.handlers._httpx import HttpxDownloadHandler
    except ImportError:
        return True
    handler: Any = HttpxDownloadHandler(one.crawler)
    return isinstance(handler._default_client, httpx2.AsyncClient) and handler._proxy_clients == {}


def called(name: str) -> Callable[[Probe], object]:
    return lambda _: name in CALLED


def closes_by_a_coroutine(one: Probe) -> bool:
    close = one.crawler.engine.close_spider_async
    return accepts(close, reason="a reason") and inspect.iscoroutinefunction(close)


def makes_queues(one: Probe) -> bool:
    return accepts(DownloaderAwarePriorityQueue, one.crawler, object, "", {}, start_queue_cls=None)


KILLED: Final = "after a kill -9, a run with JOBDIR loses requests or makes them twice"
TURN: Final = "requests are sent without a turn: too early, and to closed hosts"
READY: Final = "the queue hands out requests of sites that are not ready, and slow hosts hold up all others"
CACHED: Final = "pages in the HTTP cache wait for turns, and a crawl from the cache needs its servers"
NOT_CACHED: Final = "no robots.txt is in the HTTP cache"
HANGS: Final = "a spider that is closed waits for its slowest host"
GOES_ON: Final = "a server goes on with an HTTP/2 request of HttpxDownloadHandler that has timed out"
STARTS_NOT: Final = "Scrapy does not start with PolitesseAddon"
DELAYED: Final = "data: URLs wait for DOWNLOAD_DELAY"
JUDGES_NOT: Final = "the downloader does not find RobotsTxtMiddleware, and judges nothing"

NEEDS: Final = (
    Need("engine._slot", lambda one: one.slot is not None, f"{STARTS_NOT}, or {HANGS}"),
    Need("_slot.inprogress", lambda one: one.request in one.slot.inprogress, f"requests_under_way is empty: {KILLED}"),
    Need("_slot.closing", lambda one: one.slot.closing is None, HANGS),
    Need("nextcall.schedule", lambda one: accepts(one.slot.nextcall.schedule), "an open site waits for up to 5 s"),
    Need("_slot.scheduler.df.file", lambda one: one.slot.scheduler.df.file.flush() is None, KILLED),
    Need("engine.downloader", lambda one: isinstance(one.downloader, ProbingDownloader), STARTS_NOT),
    Need("engine.close_spider_async", closes_by_a_coroutine, "a crawl goes on although its fleet refuses the crawler"),
    Need("Crawler.crawling", lambda one: one.crawler.crawling is True, "another reactor than asyncio's is not refused"),
    Need("Downloader.fetch", called("Downloader.fetch"), f"no host is known as busy: {READY}"),
    Need("Downloader.get_slot_key", called("Downloader.get_slot_key"), "slots are not hosts, and delays add up"),
    Need("Downloader._get_slot", called("Downloader._get_slot"), DELAYED),
    Need("Slot.delay", lambda _: delays(SENT[-1][0]), DELAYED),
    Need("Downloader._download", lambda _: SENT, TURN),
    Need("middleware.middlewares", lambda one: one.cache in one.downloader.middleware.middlewares, JUDGES_NOT),
    Need("handlers._handlers", lambda one: "data" in one.downloader.handlers._handlers, GOES_ON),
    Need("_default_client", has_httpx_clients, GOES_ON),
    Need("_proxy_clients", has_httpx_clients, GOES_ON),
    Need("DownloaderAwarePriorityQueue", makes_queues, STARTS_NOT),
    Need("pqueues", called("pqueues [1]"), f"{STARTS_NOT}, or the queue forgets its slots"),
    Need("pqfactory", called("queue.pqfactory"), "the queue hands out no request at all"),
    Need("_downloader_interface", called("_downloader_interface.stats"), READY),
    Need("_downloader_interface.get_slot_key", called("_downloader_interface.get_slot_key"), READY),
    Need("job_dir", lambda one: job_dir(one.crawler.settings) == one.crawler.settings["JOBDIR"], KILLED),
    Need("policy.should_cache_request", called("policy.should_cache_request"), CACHED),
    Need("policy.should_cache_response", called("policy.should_cache_response"), NOT_CACHED),
    Need("policy.is_cached_response_fresh", called("policy.is_cached_response_fresh"), CACHED),
    Need("storage.retrieve_response", called("storage.retrieve_response"), CACHED),
    Need("storage.store_response", called("storage.store_response"), NOT_CACHED),
    Need("cache.policy", lambda one: isinstance(one.cache.policy, ProbingPolicy), CACHED),
    Need("cache.storage", lambda one: isinstance(one.cache.storage, ProbingStorage), CACHED),
    Need("cached_response", lambda _: SENT[-1][1] is not None, "a stale page is not used while its server is down"),
)

AFTER_THE_CRAWL: Final = Need("active.json", lambda _: False, KILLED)
"""Checked by ``probe``: the state that the queue returns from its ``close`` is in requests.queue/active.json."""


class ProbingSpider(scrapy.Spider):
    name = "probing"
    found: Final[dict[str, str]] = {}

    async def start(self) -> Any:
        yield scrapy.Request("data:,page")

    def parse(self, response: Any) -> Any:
        if not response.meta.get("again"):
            yield response.request.replace(meta={"again": True}, dont_filter=True)
            return
        one = Probe(self.crawler, response.request)
        for need in NEEDS:
            try:
                self.found[need.name] = "" if need.holds(one) else "it is not as it must be"
            except Exception as error:  # noqa: BLE001 - any failure is a finding
                self.found[need.name] = repr(error)


def probe() -> dict[str, str]:
    """Crawl with plain Scrapy; return for each need why it does not hold, or an empty string."""
    with tempfile.TemporaryDirectory() as directory:
        job = Path(directory, "job")
        process = AsyncCrawlerProcess(
            {
                "DOWNLOADER": ProbingDownloader,
                "SCHEDULER_PRIORITY_QUEUE": ProbingQueue,
                "JOBDIR": str(job),
                "HTTPCACHE_ENABLED": True,
                "HTTPCACHE_DIR": str(Path(directory, "cache")),
                "HTTPCACHE_POLICY": ProbingPolicy,
                "HTTPCACHE_STORAGE": ProbingStorage,
                "TELNETCONSOLE_ENABLED": False,
                "LOG_LEVEL": "ERROR",
            }
        )
        process.crawl(ProbingSpider)
        process.start()
        state = job / _internals._QUEUE / _internals.STATE
        is_there = state.exists() and "closed" in json.loads(state.read_text())
        return ProbingSpider.found | {AFTER_THE_CRAWL.name: "" if is_there else "it does not have the queue's state"}


def test_scrapy_has_what_politesse_needs() -> None:
    # As a script, because a process can run Scrapy's reactor once.
    command = [sys.executable, "-c", f"from {__name__} import probe; import json; print(json.dumps(probe()))"]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root, timeout=100)  # noqa: S603
    results: dict[str, str] = json.loads(done.stdout) if done.stdout else {}
    problems = [
        f"Scrapy {scrapy.__version__}: {need.name}: {problem}. Otherwise {need.harm}."
        for need in (*NEEDS, AFTER_THE_CRAWL)
        if (problem := results.get(need.name, f"the crawl has not come to this check:\n{done.stderr}"))
    ]
    assert problems == []


def test_docstring_of_the_module_names_each_need() -> None:
    names = [need.name.rpartition(".")[2] for need in (*NEEDS, AFTER_THE_CRAWL)]
    assert [name for name in names if name not in str(_internals.__doc__)] == []


# The second half: no other module.

DOCUMENTED: Final = {
    "scrapy": {"Request", "Spider", "signals"},
    "scrapy.core.scheduler": {"Scheduler"},
    "scrapy.crawler": {"Crawler"},
    "scrapy.downloadermiddlewares.httpcache": {"HttpCacheMiddleware"},
    "scrapy.downloadermiddlewares.robotstxt": {"RobotsTxtMiddleware"},
    "scrapy.exceptions": {"DontCloseSpider", "IgnoreRequest", "NotConfigured", "StopDownload"},
    "scrapy.http": {"Headers", "Response"},
    "scrapy.http.request": {"NO_CALLBACK"},
    "scrapy.robotstxt": {"RobotParser"},
    "scrapy.settings": {"BaseSettings"},
    "scrapy.utils.asyncio": {"is_asyncio_available"},
    "scrapy.utils.misc": {"build_from_crawler", "load_object"},
    "scrapy.utils.python": {"global_object_name"},
    "scrapy.utils.request": {"request_from_dict"},
}
"""The names in Scrapy's documentation that the package imports."""

OF_CRAWLER: Final = {
    *("engine", "get_downloader_middleware", "request_fingerprinter", "settings", "signals", "spider", "stats"),
}
OF_ENGINE: Final = {"download_async"}
OF_BASES: Final = {"crawler", "push", "pop", "close"}
"""What the subclasses may use of Scrapy's Downloader and priority queue: a queue has these methods by its protocol."""

DISTINCT: Final = {need.name.rpartition(".")[2] for need in NEEDS} - {
    *("fetch", "downloader", "closing", "delay", "file", "stats"),  # politesse has these names, too
}
"""The undocumented names that are used for nothing else."""

PACKAGE: Final = Path(_internals.__file__).parent
MODULES: Final = sorted(path for path in PACKAGE.glob("*.py") if path.name != "_internals.py")


def scrapys_names(cls: type) -> set[str]:
    """Return the names of methods and attributes that classes of Scrapy give to ``cls``."""
    names: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.startswith("scrapy."):
            names |= set(vars(base))
            names |= {of_self(node) for node in ast.walk(ast.parse(inspect.getsource(base).lstrip()))}
    return {name for name in names if name and not name.startswith("__")}


def of_self(node: ast.AST) -> str:
    """Return the name if a node is an attribute of ``self``, ``cls`` or ``super()``, else an empty string."""
    match node:
        case ast.Attribute(value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super")), attr=attr):
            return attr
        case _:
            return ""


def undocumented(source: str, inherited: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield each undocumented name of Scrapy in a module, with its line; ``inherited`` has those of its classes."""
    for node in ast.walk(ast.parse(source)):
        names: set[str] = set()
        match node:
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] == "scrapy":
                names = {alias.name for alias in node.names} - DOCUMENTED.get(module, set())
            case ast.Import():
                names = {one.name for one in node.names if one.name.startswith("scrapy.")} - set(DOCUMENTED)
            case ast.Attribute():
                names = undocumented_attribute(node)
            case ast.Constant(value=str(value)):
                names = {value} & {*DISTINCT, _internals._QUEUE, _internals.STATE}
            case ast.ClassDef(name=name):
                used = {of_self(one) for one in ast.walk(node)}
                used |= {one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
                names = used & (inherited.get(name, set()) - OF_BASES)
            case _:
                pass
        for one in sorted(names):
            yield f"line {getattr(node, 'lineno', 0)}: {one}"


def undocumented_attribute(node: ast.Attribute) -> set[str]:
    of = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
    if of.endswith("crawler"):
        return {node.attr} - OF_CRAWLER
    if of.endswith("engine"):
        return {node.attr} - OF_ENGINE
    if node.attr.startswith("_"):
        return set() if of_self(node) or node.attr.startswith("__") else {node.attr}
    return {node.attr} & DISTINCT


INHERITED: Final = {cls.__name__: scrapys_names(cls) for cls in (PoliteDownloader, PolitePriorityQueue)}


def test_no_other_module_uses_an_undocumented_name() -> None:
    found = {path.name: list(undocumented(path.read_text(), INHERITED)) for path in MODULES}
    assert {name: names for name, names in found.items() if names} == {}


def test_undocumented_name_is_found() -> None:
    sources = [
        "from scrapy.core.downloader import Slot",
        "from scrapy.pqueues import QueueProtocol",
        "import scrapy.core.engine",
        "crawler.engine._slot",
        "self._crawler.engine.downloader",
        "crawler.crawling",
        "request._original",
        "slot.inprogress",
        "cache.policy",
        "getattr(queue, 'pqueues')",
        "request.meta['cached_response']",
        "path / 'active.json'",
        "class PoliteDownloader:\n def get_slot_key(self): ...",
        "class PoliteDownloader:\n def run(self): self.total_concurrency",
        "class PoliteDownloader:\n def run(self): super()._get_slot()",
        "class PolitePriorityQueue:\n def run(self): return self.pqueues",
    ]
    assert [source for source in sources if not list(undocumented(source, INHERITED))] == []


def test_parser_has_only_the_documented_interface_of_scrapys() -> None:
    own = {name for name in vars(RobotParser) if not name.startswith("_")}
    assert own == {"from_crawler", "allowed"}
