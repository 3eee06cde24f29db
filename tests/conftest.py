"""Fixtures and hooks of all tests.

The ordinary run is the same every time: Hypothesis draws the same examples, and the jitter of the library is seeded.
By ``--hypothesis-profile``, ``full`` draws up to ten times as many as the usual ``quick``, and the same each time;
``random`` draws others each time, up to four times as many as ``quick``, and ``deep`` others, up to 400 times as many.
"""

import faulthandler
import gc
import os
import random
import sys
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import nullcontext
from secrets import token_hex
from time import monotonic, sleep  # by name: tests replace those of the module
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import is_hypothesis_test, settings
from pytest_timeout import Settings

from politesse import Gatekeeper
from politesse.clock import SystemClock
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.examples import examples, register_profiles
from tests.support.httpx_libraries import LIBRARIES, Library
from tests.support.scripted import UA
from tests.support.sites import Server, Site, serving

if TYPE_CHECKING:
    from trustme import CA

    from tests.support.redis_servers import RedisServer

_WAITING: Final = {"wire", "tools", "campaigns"}  # folders of tests that wait for servers and processes
_STDERR: Final = pytest.StashKey[int]()
_LAST_RESORT: Final = pytest.StashKey["_LastResort"]()

register_profiles()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Have ``-n auto`` start two processes a core, up to eight: many tests wait for servers and clocks."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(cores, min(2 * cores, 8))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Hide the collected tests, which live as long as the run, from the garbage collector.

    It saves a third of the collection's time, and most of each gc.collect() of a test: 0.2 s with 15,000 tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Have ``-n`` let a process that is done take over tests of the others, unless ``--dist`` names another way.

    By itself pytest-xdist hands out the tests by the hundred: two of four processes got all tests that wait.
    """
    from xdist.scheduler import WorkStealingScheduling  # type: ignore[import-untyped]  # pytest-xdist publishes no types

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that wait first, and have the profile scale the number of examples that a test names.

    Those that wait for servers, at the end, would leave the cores idle. A number of examples that a test names would
    outweigh the profile's.
    """
    items.sort(key=lambda item: not _WAITING.intersection(item.path.parts))
    usual = settings.get_profile(settings.get_current_profile_name()).max_examples
    for test in {getattr(item, "obj", None) for item in items}:  # each once: its parameters make items of their own
        if test is not None and is_hypothesis_test(test):
            own = test._hypothesis_internal_use_settings  # there is no public name for it
            if own.max_examples != usual:
                test._hypothesis_internal_use_settings = settings(own, max_examples=examples(own.max_examples))


@pytest.fixture(autouse=True)
def _seeded_jitter() -> None:
    """Seed the jitter of the retries of the library."""
    random.seed(9309)


@pytest.fixture(autouse=True)
def _own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test be a process of its own: no test waits for the pace of hosts that an earlier test has requested."""
    monkeypatch.setattr(SystemClock, "run", token_hex(8))


def pytest_addoption(parser: pytest.Parser) -> None:
    grace = "Seconds between the time limit of a test that pytest-timeout could not end and the end of the run"
    parser.addini("timeout_grace", grace, type="string", default="30")


def pytest_configure(config: pytest.Config) -> None:
    # Hundreds of tests start a Python: it would compile the library each time, 0.15 s of 0.5 s.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    capture = config.pluginmanager.getplugin("capturemanager")
    with nullcontext() if capture is None else capture.global_and_fixture_disabled():
        config.stash[_STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_STDERR])


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Settings) -> Generator[None, object, object]:
    """End the run if the test goes on after its time limit.

    pytest-timeout raises an exception from a signal handler, once. asyncio gives it to the task or callback that runs
    then, uvloop drops it, and the teardown of an event loop waits for tasks that swallow cancellation and for threads.
    """
    if (last_resort := item.config.stash.get(_LAST_RESORT, None)) is None:
        item.config.stash[_LAST_RESORT] = last_resort = _LastResort(item.config.stash[_STDERR])
        last_resort.start()
    last_resort.watch(item, settings.timeout + float(item.config.getini("timeout_grace")))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        if (last_resort := item.config.stash.get(_LAST_RESORT, None)) is not None:
            last_resort.watched = None


class _LastResort(threading.Thread):
    """Ends the run if a test goes on after its limit: one thread, because a timer for each test costs 0.4 ms."""

    def __init__(self, stderr: int) -> None:
        super().__init__(name="last resort", daemon=True)
        self._stderr = stderr
        self.watched: tuple[str, float, float] | None = None

    def watch(self, item: pytest.Item, limit_s: float) -> None:
        self.watched = item.nodeid, limit_s, monotonic() + limit_s

    def run(self) -> None:
        while True:
            sleep(0.5)
            if (watched := self.watched) is None:
                faulthandler.cancel_dump_traceback_later()
                continue
            name, limit_s, end = watched
            if monotonic() >= end:
                os.write(self._stderr, f"\n{name} still runs after {limit_s:g} s; the run ends here\n".encode())
                faulthandler.dump_traceback(self._stderr)
                os._exit(1)
            # For C code that keeps the interpreter to itself: no thread of Python runs then.
            faulthandler.dump_traceback_later(limit_s + 1.0, exit=True, file=self._stderr)


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Library:
    """httpx and httpx2, one after the other."""
    return Library(request.param)


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that jumps to the next timer when all tasks wait."""
    return ManualClock(autojump=True)


@pytest.fixture
async def gate(fetcher: ScriptedFetcher, clock: ManualClock) -> AsyncIterator[Gatekeeper]:
    """Return a gate over the fetcher of the test module."""
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        yield gate


@pytest.fixture
def site_class() -> type[Server]:
    """What `site` and `other` serve."""
    return Site


@pytest.fixture
async def site(site_class: type[Server]) -> AsyncIterator[Server]:
    async for running in serving(site_class()):
        yield running


@pytest.fixture
async def other(site_class: type[Server]) -> AsyncIterator[Server]:
    """A server that is another host by its name."""
    async for running in serving(site_class(), "localhost"):
        yield running


@pytest.fixture
def redis_server() -> Iterator["RedisServer"]:
    """Return a server that the test may do anything to."""
    from tests.support.redis_servers import RedisServer  # the tests of a wheel need few packages

    with RedisServer() as server:
        yield server


@pytest.fixture
def prefix() -> str:
    """Return a prefix that no other test uses for its keys in Redis."""
    return f"{token_hex(4)}:"


@pytest.fixture(scope="session")
def authority() -> "CA":
    import trustme  # as above

    return trustme.CA()
