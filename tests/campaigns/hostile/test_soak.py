"""A crawl of many origins, a third of them faulty, with many tasks: it is polite, and leaves no task and no file."""

import asyncio
import gc
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from politesse import CacheOptions, FetchOptions, Gatekeeper, PacingOptions, PoliteQueue
from politesse.events import Event, RobotsFetched
from politesse.testing import FAULTS, Exchange, Fault, HostileServer, assert_polite
from politesse.testing.hostile import FILE, PAGE, Call, Reply, closes_at_once, repeats, resets, response
from politesse.verdict import AccessResult
from tests.support.scripted import UA

PAGE_TIMEOUT_S: Final = 1.0
MIN_DELAY_S: Final = 0.2
SLACK_S: Final = 0.005
RETRY_MIN_S: Final = 2.0
UNREACHABLE: Final = 599
URLS: Final = ("/a?{}", "/b/{}", "/private/{}", "/c/{}.html")
OPTIONS: Final[dict[str, Any]] = {
    "cache": CacheOptions(retry_min_s=RETRY_MIN_S, retry_max_s=4.0),
    "fetch": FetchOptions(connect_timeout_s=1.0, total_timeout_s=2.0),
    "pacing": PacingOptions(min_delay_s=MIN_DELAY_S, adaptive_factor=0.0),
}


# The web: in a process of its own, with the logs of its servers.

_IDLE_S: Final = 30.0

CLOSED: Final = "User-agent: *\nDisallow: /\n"
FLAPPING: Final = "5xx-flapping"

ROBOTS_FAULTS: Final = [fault for fault in FAULTS.values() if fault.certificate is None and not fault.host]
PAGE_FAULTS: Final[dict[str, Reply]] = {
    "page-429": response(429, Retry_After="1"),
    "page-503": response(503, Retry_After="2"),
    "page-503-without-retry-after": response(503),
    "page-reset": resets(PAGE[:-5]),
    "page-closes": closes_at_once,
    "page-never-answers": Call.silence,
    "page-endless": repeats(PAGE[:15] + b"\r\n\r\n", b"<p>more</p>" * 1000),
}
PACES: Final = ("", "", "", "Crawl-delay: 0.5\n", "Crawl-delay: 2\n", "Request-rate: 2/1\n")


@dataclass(frozen=True)
class Site:
    """An origin, with its fault and its rules.

    Attributes:
        origin: as in ``http://127.1.2.3:8081``.
        fault: its name; empty for a good one.
        robots: its rules, or an equivalent of its fault.
        answers: whether it answers requests for robots.txt.
    """

    origin: str
    fault: str
    robots: str
    answers: bool


def _choose(chance: random.Random) -> tuple[str, Fault, Reply, str]:
    """Return the name of a fault, the answers for robots.txt and for pages, and the equivalent rules."""
    if chance.random() < 1 / 3:
        if chance.random() < 1 / 2:
            fault = chance.choice(ROBOTS_FAULTS)
            return fault.name, fault, PAGE, _meaning(fault)
        name = chance.choice(list(PAGE_FAULTS))
        return name, _good(FILE.decode()), PAGE_FAULTS[name], FILE.decode()
    robots = f"User-agent: *\n{chance.choice(PACES)}Disallow: /private\n"
    return "", _good(robots), PAGE, robots


def _good(robots: str) -> Fault:
    return Fault(name="none", robots=response(200, robots.encode()), result=AccessResult.SUCCESSFUL)


def _meaning(fault: Fault) -> str:
    if fault.name == FLAPPING:
        return FILE.decode()
    if not fault.allows_page:
        return CLOSED
    return "" if fault.allows_private else FILE.decode()


async def serve_a_web() -> None:
    number, seed = json.loads(sys.stdin.readline())
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        sites, servers = [], []
        for n in range(number):
            name, fault, page, robots = _choose(chance)
            address = f"127.{1 + n // 62_500}.{n // 250 % 250}.{1 + n % 250}"
            server = await stack.enter_async_context(HostileServer(fault, address=address, every_page=page))
            servers.append((server, fault))
            sites.append(Site(server.origin, name, robots, fault.listens and fault.accepts))
        _write([asdict(site) for site in sites])
        await asyncio.to_thread(sys.stdin.read)
        await _until_idle([server for server, _ in servers])
        logs = {
            server.origin: [asdict(exchange) for exchange in server.log if exchange.url not in _hops(server, fault)]
            for server, fault in servers
        }
        _write([logs, sum(server.open_connections for server, _ in servers)])


async def _until_idle(servers: list[HostileServer]) -> None:
    """Wait until the connections end; a slow answer, too, notices within that time that its client has gone."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_IDLE_S):
            while any(server.open_connections for server in servers):
                await asyncio.sleep(0.05)


def _write(said: object) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def _hops(server: HostileServer, fault: Fault) -> set[str]:
    return {server.url(target) for target in fault.hops}


# The crawler, and the judgement.


class Crawl:
    """A crawl of some sites, with the counts of the client."""

    def __init__(self, gate: Gatekeeper, urls_per_site: int, origins: list[str], chance: random.Random) -> None:
        self.gate = gate
        self.sent: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.fetched: Counter[str] = Counter()
        self.timed_out: Counter[str] = Counter()
        self.ended: dict[str, float] = {}
        self.observed: set[str] = set()
        self.abandoned: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self.cancelled = 0
        self._chance = chance
        self._workers: set[asyncio.Task[None]] = set()
        self._queue: PoliteQueue[str] = PoliteQueue(gate)
        gate.subscribe(self._note)
        for n in range(urls_per_site):
            for origin in origins:
                self._queue.put_nowait(origin + URLS[n % len(URLS)].format(n))

    async def run(self, tasks: int, seconds: float, least_pages: int) -> None:
        """Crawl for so long with so many workers, of which some are cancelled and replaced on the way.

        On a busy machine it takes longer, until so many pages were answered.
        """
        timeout = aiohttp.ClientTimeout(total=PAGE_TIMEOUT_S)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        headers = {"User-Agent": UA}
        async with aiohttp.ClientSession(timeout=timeout, connector=connector, headers=headers) as session:
            # Otherwise aiohttp repeats a request within a turn if the server closes without an answer.
            session._retry_connection = False
            until = time.monotonic() + seconds
            while self._queue.qsize() or self._queue.statistics().under_way:
                if time.monotonic() >= until and self.answered.total() >= least_pages:
                    break
                while len(self._workers) < tasks:
                    worker = asyncio.create_task(self._work(session))
                    self._workers.add(worker)
                    worker.add_done_callback(self._workers.discard)
                await asyncio.sleep(0.1)
                victim = self._chance.choice(list(self._workers))
                victim.cancel()
                self.cancelled += 1
            workers = pending = set(self._workers)
            while pending:  # aiohttp takes a cancellation for a timeout if both come at once, and the worker goes on
                for worker in pending:
                    worker.cancel()
                _, pending = await asyncio.wait(pending, timeout=2.0)
            errors = [worker.exception() for worker in workers if not worker.cancelled()]
            assert not any(errors), errors
        await self._settle()

    async def _work(self, session: aiohttp.ClientSession) -> None:
        while True:
            async with self._queue.turn() as turn:
                origin = turn.url[: turn.url.index("/", 8)]
                self.sent[origin] += 1
                try:
                    async with session.get(turn.url, allow_redirects=False) as response:
                        turn.observe(response.status, response.headers)
                        self.observed.add(turn.url)
                        await response.read()
                        self.answered[origin] += 1
                except (aiohttp.ClientError, TimeoutError):
                    pass  # the turn has ended, and no more is needed here
                finally:
                    self.ended[turn.url] = time.time()

    async def _settle(self) -> None:
        """Wait until all requests are answered: then the counts must agree."""
        async with asyncio.timeout(60):
            while self.gate.statistics().in_flight:
                await asyncio.sleep(0.05)

    def gave_up(self, origin: str, started: float) -> bool:
        """Return whether the fetch of a request for robots.txt timed out; fetches are a retry apart at the least."""
        margin_s = RETRY_MIN_S / 2
        return any(begin - margin_s <= started <= end + margin_s for begin, end in self.abandoned[origin])

    def _note(self, event: Event) -> None:
        if isinstance(event, RobotsFetched):
            self.fetched[str(event.origin)] += 1
            if event.fault.startswith("timeout"):
                self.timed_out[str(event.origin)] += 1
                ended = event.source.fetched_wall
                self.abandoned[str(event.origin)].append((ended - event.elapsed_s, ended))


def _judge(sites: Mapping[str, Site], log: list[Exchange]) -> None:
    robots = {origin: site.robots for origin, site in sites.items()}
    assert_polite(log, robots, agent="ExampleBot", min_delay_s=MIN_DELAY_S, slack_s=SLACK_S, min_refetch_s=RETRY_MIN_S)


def _as_known(site: Site, exchange: Exchange, crawl: Crawl) -> Exchange:
    """Return an exchange as the crawler knows it, because its pace counts from there.

    A server may read a request, and notice that its client has gone, after the turn has ended: a page ends no later
    than its turn. A Retry-After binds from when it is received: an answer that came after the turn closes nothing,
    and a robots.txt that came after the timeout of its fetch was not fetched.
    """
    if exchange.url.endswith("/robots.txt"):
        known = replace(exchange, ended=exchange.started) if site.fault else exchange
        gave_up = crawl.gave_up(site.origin, exchange.started)
        return replace(known, status=UNREACHABLE, retry_after_s=None) if gave_up else known
    ended = min(exchange.ended, crawl.ended[exchange.url])
    known = replace(exchange, started=min(exchange.started, ended), ended=ended)
    return known if exchange.url in crawl.observed else replace(known, status=0, retry_after_s=None)


def _check_flapping(log: list[Exchange]) -> None:
    """Its first robots.txt is a 503: there is no page before the second."""
    asked = 0
    for exchange in sorted(log, key=lambda exchange: exchange.started):
        asked += exchange.url.endswith("/robots.txt")
        assert asked >= 2 or exchange.url.endswith("/robots.txt")


async def _start_web(origins: int, seed: int) -> tuple[asyncio.subprocess.Process, dict[str, Site]]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, stdin=pipe, stdout=pipe, limit=2**30)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([origins, seed]).encode() + b"\n")
    async with asyncio.timeout(60):
        sites = [Site(**site) for site in json.loads(await process.stdout.readline())]
    return process, {site.origin: site for site in sites}


async def _end_web(process: asyncio.subprocess.Process) -> tuple[dict[str, list[Exchange]], int]:
    async with asyncio.timeout(60):
        out, _ = await process.communicate(b"")  # end of input
    assert process.returncode == 0
    logs, open_connections = json.loads(out)
    return {origin: [Exchange(**exchange) for exchange in log] for origin, log in logs.items()}, open_connections


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def _closed_files(wanted: int) -> int:
    """Return how many files are open, within half a minute in which the last sockets may be closed."""
    for _ in range(600):
        if _open_files() == wanted:
            break
        await asyncio.sleep(0.05)
    return _open_files()


async def _left_behind() -> list[str]:
    """Return the remaining tasks and timers."""
    loop = asyncio.get_running_loop()
    gc.collect()
    await asyncio.sleep(0.1)
    tasks = [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    return tasks + [repr(timer) for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]


async def _soak(origins: int, tasks: int, seconds: float, seed: int) -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    process, sites = await _start_web(origins, seed)
    healthy = sum(not site.fault for site in sites.values())
    try:
        before = _open_files()
        async with Gatekeeper(UA, **OPTIONS) as gate:
            crawl = Crawl(
                gate, urls_per_site=int(seconds / MIN_DELAY_S), origins=list(sites), chance=random.Random(seed)
            )
            await crawl.run(tasks, seconds, least_pages=healthy + 1)
            said = gate.statistics()
            assert (said.turns, said.waiting, said.fetches) == (0, 0, crawl.fetched.total())
        assert await _left_behind() == []
        assert await _closed_files(before) == before
        logs, open_connections = await _end_web(process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    assert complaints == []
    assert open_connections == 0
    _judge(sites, [_as_known(sites[origin], exchange, crawl) for origin, log in logs.items() for exchange in log])
    pages = 0
    for origin, site in sites.items():
        asked = sum(exchange.url.endswith("/robots.txt") for exchange in logs[origin])
        if site.answers:
            # On a busy machine a fetch may be over before its server has read it.
            assert 0 <= crawl.fetched[origin] - asked <= crawl.timed_out[origin], site
        got = len(logs[origin]) - asked
        assert crawl.answered[origin] <= got <= crawl.sent[origin], site
        pages += got
        if site.fault == FLAPPING:
            _check_flapping(logs[origin])
    assert crawl.cancelled > 0
    assert pages > healthy, "a crawl that hardly asks proves nothing"


@pytest.mark.realtime
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8 without being told, and /proc")
@pytest.mark.parametrize(
    ("origins", "tasks", "seconds"),
    [
        pytest.param(60, 20, 5.0, id="short", marks=pytest.mark.full),
        pytest.param(1000, 100, 60.0, id="long", marks=[pytest.mark.weekly, pytest.mark.timeout(900)]),
    ],
)
def test_a_crawl_of_a_hostile_web_is_polite_and_leaks_nothing(origins: int, tasks: int, seconds: float) -> None:
    asyncio.run(_soak(origins, tasks, seconds, seed=9309), debug=True)


if __name__ == "__main__":
    asyncio.run(serve_a_web())
