"""The gate for threads: blocking methods, one owner of every turn, and an end without a hang."""

import asyncio
import gc
import importlib
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from types import FrameType
from typing import Any, Final, NoReturn
from weakref import ref

import pytest

from politesse import AgentView, Bound, ClosedError, Disallowed, Gatekeeper, HostPolicy, NotYet, PacingOptions, Turn
from politesse.errors import ConfigurationError, InvalidURL, StoreError, TooFar, TurnHeld, WrongEventLoop
from politesse.events import Event, TurnDropped
from politesse.sync import Gate
from politesse.testing import ScriptedFetcher
from politesse.verdict import Verdict
from tests.support.events import events_of
from tests.support.scripted import UA
from tests.support.stores import KeptStore

SITE: Final = "https://example.com"
OTHER: Final = "https://other.example"
MAP: Final = f"{SITE}/map.xml"
ROBOTS: Final = f"User-agent: *\nDisallow: /private\nSitemap: {MAP}\n\nUser-agent: imagebot\nDisallow: /"
LONG_S: Final = 30.0
needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="needs signals")


class Interrupted(BaseException):
    """Ctrl-C, in a test."""


def gatekeeper_of(fetcher: ScriptedFetcher | None = None, **options: Any) -> Gatekeeper:
    pacing = PacingOptions(min_delay_s=0.0, adaptive_factor=0.0)
    return Gatekeeper(UA, fetcher=fetcher or ScriptedFetcher({SITE: ROBOTS}), pacing=pacing, **options)


@pytest.fixture
def gate() -> Iterator[Gate]:
    with Gate(gatekeeper_of()) as gate:
        yield gate


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def is_free(gate: Gate) -> bool:
    """Return whether the host grants a turn now, and give that turn back."""
    (answer,) = gate.try_turns([f"{SITE}/page"])
    if isinstance(answer, Turn):
        answer.give_back()
    return isinstance(answer, Turn)


def wait_until(condition: Callable[[], bool]) -> None:
    until_mono = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < until_mono
        time.sleep(0.001)


def wait_for_waiter(gate: Gate) -> None:
    wait_until(lambda: gate.hosts()["example.com"].waiting == 1)


# The methods


def test_questions_have_the_answers_of_the_gatekeeper(gate: Gate) -> None:
    assert gate.peek(SITE) is None
    verdict = gate.check(f"{SITE}/private/diary")
    assert (verdict.allowed, str(verdict.rule)) == (False, "Disallow: /private")
    peeked = gate.peek(f"{SITE}/private/diary")
    assert peeked is not None
    assert peeked.rule == verdict.rule
    assert [one.allowed for one in gate.check_batch([f"{SITE}/private", OTHER])] == [False, True]
    assert gate.sitemaps(SITE).urls == (MAP,)
    assert list(gate.hosts()) == ["example.com", "other.example"]
    assert gate.usage(f"{SITE}/private") is None
    assert gate.datatxt(OTHER).file.outcome.value
    assert gate.identity.user_agent == UA
    gate.set_policy("example.com", HostPolicy(deny=True))
    assert not gate.check(f"{SITE}/page")
    gate.set_policy("example.com", None)
    assert gate.check(f"{SITE}/page")
    gate.forget(SITE)
    assert gate.peek(SITE) is None


def test_errors_are_those_of_the_gatekeeper_and_leave_no_garbage_for_the_collector(gate: Gate) -> None:
    with pytest.raises(InvalidURL):
        gate.check("ftp://example.com/")
    with pytest.raises(Disallowed, match="Disallow: /private"), gate.turn(f"{SITE}/private"):
        pass
    with pytest.raises(ConfigurationError, match="max_wait_s"), gate.turn(SITE, max_wait_s=-1):
        pass
    with pytest.raises(ConfigurationError, match="exempt"):
        gate.take_turn(SITE, exempt="")

    async def work(_: AgentView) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        gate.call(work)
    gc.disable()
    try:
        with pytest.raises(Disallowed) as caught:
            gate.take_turn(f"{SITE}/private")
        error = ref(caught.value)
        del caught
        gate.hosts()  # the task of the call has ended
        assert error() is None
    finally:
        gc.enable()


def test_turn_of_a_block_ends_with_it(gate: Gate) -> None:
    with gate.turn(f"{SITE}/private", exempt="by agreement") as turn:
        turn.observe(200)
        assert turn.verdict.allowed
        assert not is_free(gate)
    assert is_free(gate)
    with pytest.raises(ZeroDivisionError), gate.turn(f"{SITE}/page"):
        raise ZeroDivisionError
    assert is_free(gate)


def test_answers_of_try_turns_are_a_turn_a_time_and_a_verdict(gate: Gate) -> None:
    gate.check(SITE)
    turn, denied, unknown = gate.try_turns([f"{SITE}/page", f"{SITE}/private", OTHER])
    assert isinstance(turn, Turn)
    assert isinstance(denied, Verdict)
    assert isinstance(unknown, NotYet)
    with turn:
        assert not is_free(gate)
    assert is_free(gate)


def test_view_judges_for_its_own_tokens_and_shares_the_pace(gate: Gate) -> None:
    images = gate.agent(tokens="imagebot", user_agent="imagebot/2.0")
    assert images.identity.user_agent == "imagebot/2.0"
    assert not images.check(f"{SITE}/page")
    with images.turn(OTHER), pytest.raises(TurnHeld):
        gate.take_turn(OTHER)


# Who holds a turn


def test_thread_that_holds_a_turn_of_the_host_gets_no_second_one(gate: Gate) -> None:
    with gate.turn(f"{SITE}/1"):
        with pytest.raises(TurnHeld) as caught, gate.turn(f"{SITE}/2"):
            pass
        assert caught.value.held_by == f"{SITE}/1"
        with gate.turn(OTHER):
            pass
    with gate.turn(f"{SITE}/2") as turn:
        turn.observe(429, {"Retry-After": "600"})  # it counts before the next request of the thread
    with pytest.raises(TooFar) as far:
        gate.take_turn(f"{SITE}/3", max_wait_s=1)
    assert far.value.not_yet.bound_by is Bound.RETRY_AFTER


@pytest.mark.parametrize("entered", [False, True])
def test_other_calls_wait_for_the_end_of_a_turn(gate: Gate, pool: ThreadPoolExecutor, *, entered: bool) -> None:
    turn = gate.take_turn(f"{SITE}/1")
    if entered:
        turn.__enter__()
    waiting = pool.submit(gate.take_turn, f"{SITE}/2")
    wait_for_waiter(gate)
    assert not waiting.done()
    turn.end()
    granted = waiting.result(LONG_S)
    assert granted._permit is not None
    assert granted._permit.waited
    granted.end()


def test_permit_is_used_in_the_event_loop_only(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[tuple[str, str]] = []
    turns = [gate.take_turn(f"{SITE}/1"), gate.take_turn(OTHER)]
    permit = type(turns[0]._permit.permit)  # type: ignore[union-attr]
    for name in ("observe", "end", "give_back"):
        method = getattr(permit, name)

        def noted(self: Any, *given: object, name: str = name, method: Callable[..., None] = method) -> None:
            threads.append((name, threading.current_thread().name))
            method(self, *given)

        monkeypatch.setattr(permit, name, noted)
    turns[0].observe(200)
    turns[0].end()
    turns[1].give_back()
    del turns[:]
    gate.hosts()  # all that was called before has run
    assert threads == [(name, "politesse.sync examplebot") for name in ("observe", "end", "give_back")]


def test_dropped_turn_gives_its_host_back() -> None:
    gatekeeper = gatekeeper_of()
    dropped = events_of(gatekeeper, TurnDropped)
    with Gate(gatekeeper) as gate:
        turn = gate.take_turn(f"{SITE}/1")
        with pytest.warns(ResourceWarning, match="was never entered"):
            del turn
        assert is_free(gate)
        assert [event.url for event in dropped] == [f"{SITE}/1"]
        turn = gate.take_turn(f"{SITE}/1")
        turn._permit = None  # the first step of turn.end(), which an interrupt has stopped
        assert is_free(gate)


# A caller that stops waiting


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Return a function that raises Interrupted in the main thread, which has to wait for something."""

    def handle(*_: object) -> NoReturn:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, handle)
    yield lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


@needs_signals
def test_interrupted_wait_leaves_the_line(gate: Gate, pool: ThreadPoolExecutor, interrupt: Callable[[], None]) -> None:
    def later() -> None:
        wait_for_waiter(gate)
        interrupt()

    turn = gate.take_turn(f"{SITE}/1")
    interrupting = pool.submit(later)
    with pytest.raises(Interrupted):
        gate.take_turn(f"{SITE}/2")
    interrupting.result(LONG_S)
    assert gate.hosts()["example.com"].waiting == 0
    turn.end()
    assert is_free(gate)
    assert gate._thread._calls == {}


@needs_signals
def test_turn_granted_after_ctrl_c_is_given_back(gate: Gate, interrupt: Callable[[], None]) -> None:
    over = threading.Event()

    async def work(view: AgentView) -> Turn:
        turn = await view.take_turn(f"{SITE}/1")
        interrupt()
        over.wait(LONG_S)  # the caller has stopped waiting, and the event loop does not know yet
        return turn

    with pytest.raises(Interrupted):
        gate.call(work)
    over.set()
    assert is_free(gate)


@needs_signals
@pytest.mark.parametrize("several", [False, True])
def test_turn_granted_before_ctrl_c_is_given_back(gate: Gate, interrupt: Callable[[], None], *, several: bool) -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    over, delivered = threading.Event(), threading.Event()

    def handle(*_: object) -> NoReturn:
        over.set()
        loops[0].call_soon_threadsafe(loops[0].call_soon, delivered.set)  # behind the task's last step
        delivered.wait(LONG_S)
        raise Interrupted

    async def work(view: AgentView) -> Turn | list[Turn]:
        turn = await view.take_turn(f"{SITE}/1")
        loops.append(asyncio.get_running_loop())
        interrupt()
        over.wait(LONG_S)
        return [turn] if several else turn

    signal.signal(signal.SIGUSR1, handle)
    with pytest.raises(Interrupted):
        gate.call(work)
    assert is_free(gate)


class InterruptedAt:
    """A profile function that raises Interrupted at the n-th place where Python calls the handlers of signals.

    Such a place is the begin of a function in Python, or the return of a function in C. An error in a finalizer would
    be ignored.
    """

    def __init__(self, place: int) -> None:
        self.left = place

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        names = {at.f_code.co_name for at, _ in traceback.walk_stack(frame)}
        if event in {"call", "c_return"} and "__del__" not in names:
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                raise Interrupted


def test_ctrl_c_at_any_place_of_a_turn_loses_no_turn_and_stops_no_other_thread(
    gate: Gate, pool: ThreadPoolExecutor
) -> None:
    gate.check(SITE)
    for place in count(1):
        interrupt = InterruptedAt(place)
        with suppress(Interrupted):
            sys.setprofile(interrupt)
            with gate.turn(SITE):
                pass
            sys.setprofile(None)
        pool.submit(gate.take_turn, SITE, max_wait_s=LONG_S).result(LONG_S).end()
        if interrupt.left > 0:  # the turn was over before the place
            break
    assert place > 20


# The end


def test_closed_gate_says_so(gate: Gate) -> None:
    view = gate.agent(tokens="examplebot")
    gate.close()
    gate.close()
    assert repr(gate) == "<Gate examplebot (closed)>"
    for method in (gate.check, gate.peek, gate.take_turn, view.check, view.peek, view.take_turn):
        with pytest.raises(ClosedError):
            method(SITE)
    with pytest.raises(ClosedError):
        gate.agent(tokens="examplebot")
    with pytest.raises(ClosedError):
        gate.set_policy("example.com", None)
    assert gate._thread._calls == {}


def test_call_that_waits_when_the_gate_closes_gets_closed_error(pool: ThreadPoolExecutor) -> None:
    async def endless(_: AgentView) -> None:
        await asyncio.Event().wait()

    fetcher = ScriptedFetcher()
    with Gate(gatekeeper_of(fetcher)) as gate, gate.turn(OTHER) as turn:
        fetcher.gate.clear()
        waiting = [pool.submit(call, SITE) for call in (gate.check, gate.take_turn, gate.usage)]
        waiting += [pool.submit(gate.take_turn, f"{OTHER}/2"), pool.submit(gate.call, endless)]
        wait_until(lambda: len(gate._thread._calls) == 5)
        wait_until(lambda: gate.hosts()["other.example"].waiting == 1)
        gate.close()
        for one in waiting:
            with pytest.raises(ClosedError):
                one.result(LONG_S)
        turn.observe(200)  # the loop is closed; the end of the turn has no effect, and raises nothing


def test_call_that_the_loop_had_no_time_to_begin_gets_closed_error(
    gate: Gate, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("politesse.sync.soon", lambda *_: None)
        waiting = pool.submit(gate.check, SITE)
        wait_until(lambda: bool(gate._thread._calls))
    gate.close()
    with pytest.raises(ClosedError):
        waiting.result(LONG_S)


def test_threads_that_call_while_the_gate_closes_all_end(pool: ThreadPoolExecutor) -> None:
    def ask(gate: Gate) -> None:
        while True:
            try:
                gate.check(SITE)
            except ClosedError:
                break

    for _ in range(5):
        gate = Gate(gatekeeper := gatekeeper_of())
        asking = [pool.submit(ask, gate) for _ in range(4)]
        wait_until(lambda gatekeeper=gatekeeper: gatekeeper.statistics().allowed > 10)  # type: ignore[misc]
        gate.close()
        for one in asking:
            one.result(LONG_S)


def test_error_of_the_close_is_raised_once() -> None:
    gate = Gate(gatekeeper_of(store=KeptStore({}, fails={"aclose": OSError("the disk is gone")})))
    with pytest.raises((OSError, StoreError), match="the disk is gone"):
        gate.close()
    gate.close()
    assert not gate._thread.is_alive()


def test_dropped_gate_ends_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(gatekeeper_of())
    view, thread = gate.agent(tokens="examplebot"), gate._thread
    joined: list[float] = []
    with monkeypatch.context() as patched:
        patched.setattr(thread, "join", joined.append)
        del gate
        gc.collect()
        assert view.check(SITE)
        del view
        gc.collect()
    assert joined == []  # the collector may run in any thread, and does not wait
    thread.join(LONG_S)
    assert not thread.is_alive()


# Wrong use


def test_gate_needs_a_gatekeeper_that_is_new() -> None:
    for bad in ("ExampleBot/1.0", None):
        with pytest.raises(ConfigurationError, match="gatekeeper"):
            Gate(bad)  # type: ignore[arg-type]

    async def use() -> Gatekeeper:
        async with gatekeeper_of() as used:
            await used.check(SITE)
            with pytest.raises(WrongEventLoop, match="give Gate a new one"):
                Gate(used)
        return used

    with pytest.raises(ClosedError):
        Gate(asyncio.run(use()))
    with Gate(owned := gatekeeper_of()), pytest.raises(WrongEventLoop, match="give Gate a new one"):
        Gate(owned)


async def test_gate_does_not_block_an_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(gatekeeper_of())
    for method in (gate.check, gate.peek, gate.take_turn):
        with pytest.raises(WrongEventLoop, match="would block"):
            method(SITE)
    assert await asyncio.to_thread(gate.check, SITE)
    with monkeypatch.context() as patched:
        patched.setattr(gate._thread, "join", lambda *_: pytest.fail("it waits"))
        gate.close()
    await asyncio.to_thread(gate.close)
    assert not gate._thread.is_alive()


def test_subscriber_in_the_thread_of_the_gate_gets_an_error_instead_of_a_deadlock() -> None:
    gatekeeper, errors = gatekeeper_of(), list[Exception]()

    def subscriber(_: Event) -> None:
        try:
            shared.check(OTHER)
        except WrongEventLoop as error:
            errors.append(error)

    gatekeeper.subscribe(subscriber)
    with Gate(gatekeeper) as shared:
        assert shared.check(SITE)
    assert errors


def test_error_of_the_adapter_without_requests_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "politesse.integrations.requests", raising=False)
    monkeypatch.setitem(sys.modules, "requests", None)
    with pytest.raises(ImportError, match=r"needs the extra 'requests'.*pip install '\.\[requests\]'"):
        importlib.import_module("politesse.integrations.requests")
