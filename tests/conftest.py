"""What all tests share."""

from __future__ import annotations

import faulthandler
import os
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_timeout import Settings

# A slow machine is no wrong answer: no example is timed.
settings.register_profile("politesse", deadline=None)
settings.load_profile("politesse")

_STDERR: Final = pytest.StashKey[int]()
_LAST_RESORT: Final = pytest.StashKey[threading.Timer]()


def pytest_addoption(parser: pytest.Parser) -> None:
    grace = "Seconds between the time limit of a test that pytest-timeout could not end and the end of the run"
    parser.addini("timeout_grace", grace, type="string", default="30")


def pytest_configure(config: pytest.Config) -> None:
    capture = config.pluginmanager.getplugin("capturemanager")
    with nullcontext() if capture is None else capture.global_and_fixture_disabled():
        config.stash[_STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_STDERR])


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Settings) -> Generator[None, object, object]:
    """End the run where the test goes on behind its time limit.

    pytest-timeout raises an exception from a signal handler, once. asyncio gives it to the task or callback that runs
    then, uvloop drops it, and the teardown of an event loop waits for tasks that swallow cancellation and for threads.
    """
    limit_s = settings.timeout + float(item.config.getini("timeout_grace"))
    item.stash[_LAST_RESORT] = timer = threading.Timer(limit_s, _end_run, (item, limit_s))
    timer.daemon = True
    timer.start()
    # For C code that keeps the interpreter to itself: no thread of Python runs then.
    faulthandler.dump_traceback_later(limit_s + 1.0, exit=True, file=item.config.stash[_STDERR])
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        if (timer := item.stash.get(_LAST_RESORT, None)) is not None:
            timer.cancel()
            faulthandler.cancel_dump_traceback_later()


def _end_run(item: pytest.Item, limit_s: float) -> None:
    stderr = item.config.stash[_STDERR]
    os.write(stderr, f"\n{item.nodeid} still runs after {limit_s:g} s; the run ends here\n".encode())
    faulthandler.dump_traceback(stderr)
    os._exit(1)
