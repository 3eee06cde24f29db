"""The gate for threads: ``Gate`` runs a Gatekeeper in a thread of its own, and its methods block.

::

    with Gate(Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)")) as gate:
        with gate.turn("https://example.com/page") as turn:
            ...  # one request, without redirects
            turn.observe(status, headers)

``PoliteAdapter`` of ``politesse.integrations.requests`` takes a turn for each request of the library requests.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar
from weakref import finalize

from politesse._base.checks import check_types
from politesse._base.tasks import running_loop
from politesse._gate.gatekeeper import Gatekeeper
from politesse._gate.turn import Turn, soon
from politesse.errors import ClosedError, WrongEventLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence

    from politesse._cache.options import HostPolicy
    from politesse._gate.identity import Identity
    from politesse._gate.view import AgentView
    from politesse._pacing.hosts import Permit
    from politesse._sites.data_txt import FieldNames
    from politesse._sites.files import DataTxtAnswer, Sitemaps
    from politesse.origin import Origin, StrOrURL
    from politesse.status import HostStatus
    from politesse.usage import Usage
    from politesse.verdict import NotYet, Verdict

__all__ = ["Gate", "ThreadView"]

_EXIT_S: Final = 5.0  # the longest wait for a gate that is still open when the interpreter exits

_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _ThreadPermit:
    """The permit of a turn in another thread: every call is passed to the event loop.

    Ctrl-C may come between any two instructions of a turn, for example after the turn has dropped its permit but before
    it has ended the permit. So the garbage collection of a permit also ends the permit.
    """

    permit: Permit
    loop: asyncio.AbstractEventLoop
    ended: bool = False

    @property
    def waited(self) -> bool:
        return self.permit.waited

    @property
    def under_way(self) -> bool:
        return self.permit.under_way

    def observe(self, status: int, headers: Mapping[str, str], /) -> None:
        soon(self.loop, partial(self.permit.observe, status, headers))

    def end(self) -> None:
        soon(self.loop, self.permit.end)
        self.ended = True

    def give_back(self) -> None:
        soon(self.loop, self.permit.give_back)
        self.ended = True

    def __del__(self) -> None:
        if not self.ended:
            self.end()


@dataclass(slots=True, eq=False)
class _ThreadAnswer(Generic[_T]):
    """What a call gives to the thread that waits for it.

    Ctrl-C may interrupt the methods of a Future while they hold the lock of the Future. Nothing would release the lock,
    and the event loop would wait for it for ever. The lock of an answer is used by one call in C on each side.

    Attributes:
        results: the result, once there is one.
    """

    results: list[_T] = field(default_factory=list)
    _error: BaseException | None = None
    _ready: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._ready.acquire()

    def give(self, result: _T) -> None:
        """Let the waiting thread return ``result``."""
        self.results.append(result)
        self._ready.release()

    def fail(self, error: BaseException) -> None:
        """Let the waiting thread raise ``error``."""
        self._error = error
        self._ready.release()

    def wait(self) -> _T:
        """Return the result, or raise the error, once there is one."""
        try:
            self._ready.acquire()
            if self._error is not None:
                raise self._error
            return self.results[0]
        finally:
            del self  # the error refers to this frame: without ``del``, only the garbage collector frees both


class LoopThread(threading.Thread):
    """The only thread that uses a gatekeeper; ``call`` runs a coroutine in its event loop for another thread.

    Theory of operation. A method called in another thread starts a task here, in a copy of the context of its thread,
    and waits for its answer. So a thread that holds a turn, and requests another turn of the same host, gets TurnHeld
    as an asyncio task does.

    A caller may stop waiting at any moment, for example after Ctrl-C. The event loop then cancels the task, or gives
    the turn back if the answer has the turn already. So no turn is lost, even if the task ends first.

    A turn uses its permit through a ``_ThreadPermit``. The calls of the permit run later, in the event loop, in the
    order in which the threads made them. So a thread's turn has ended before the event loop sees the thread's request
    for its next turn.
    """

    def __init__(self, gatekeeper: Gatekeeper) -> None:
        super().__init__(name=f"politesse.sync {gatekeeper.name}", daemon=True)
        self._gatekeeper = gatekeeper
        self._loop = gatekeeper.state.loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._closing = asyncio.Event()
        self._closed = False
        self._error: BaseException | None = None  # the error that closing the gatekeeper raised
        self._calls: dict[_ThreadAnswer[Any], asyncio.Task[None] | None] = {}

    def run(self) -> None:
        """Run the event loop until ``close``; then end the calls that the loop has not begun."""
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - close raises it
            self._error = error
        for answer in list(self._calls):
            answer.fail(ClosedError("the gate was closed"))

    async def _serve(self) -> None:
        await self._closing.wait()
        self._closed = True
        await self._gatekeeper.aclose()

    def call(self, work: Callable[[], Coroutine[object, object, _T]]) -> _T:
        """Return the result of a coroutine, or raise its error.

        Raises:
            ClosedError: the gate is closed, or was closed meanwhile.
            WrongEventLoop: an event loop runs in this thread, or this process is a fork.
        """
        if os.getpid() != self._pid:
            raise WrongEventLoop(f"this gate was made in process {self._pid}, before the fork: create one after it")
        if running_loop() is not None:
            raise WrongEventLoop("an event loop runs in this thread, and a Gate would block it: use a Gatekeeper here")
        answer: _ThreadAnswer[_T] = _ThreadAnswer()
        try:
            self._add(answer)
            soon(self._loop, partial(self._begin, answer, work))
            return answer.wait()
        except BaseException:
            soon(self._loop, partial(self._abandon, answer))
            raise
        finally:
            del answer  # as in ``wait``

    def _add(self, answer: _ThreadAnswer[Any]) -> None:
        self._calls[answer] = None
        # Checked once ``answer`` is in ``_calls``: if the gate closes after this check, ``run`` finds the call and ends
        # it.
        if self._closed:
            self._calls.pop(answer, None)
            raise ClosedError("the gate was closed")

    def _begin(self, answer: _ThreadAnswer[_T], work: Callable[[], Coroutine[object, object, _T]]) -> None:
        self._calls[answer] = self._loop.create_task(self._deliver(answer, work))

    async def _deliver(self, answer: _ThreadAnswer[_T], work: Callable[[], Coroutine[object, object, _T]]) -> None:
        try:
            result = await work()
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            is_end = self._closed and isinstance(error, asyncio.CancelledError)
            answer.fail(ClosedError("the gate was closed") if is_end else error)
        else:
            for turn in _turns(result):
                if answer in self._calls:
                    turn.hand_over(lambda permit: _ThreadPermit(permit, self._loop))
                else:  # the caller has stopped waiting
                    turn.give_back()
            answer.give(result)
        finally:
            self._calls.pop(answer, None)
            del answer

    def _abandon(self, answer: _ThreadAnswer[_T]) -> None:
        """End the work for a caller that has stopped waiting, or give back the turns of its answer."""
        if (task := self._calls.pop(answer, None)) is not None:
            task.cancel()
        for result in answer.results:
            for turn in _turns(result):
                turn.give_back()

    def stop(self) -> None:
        """Begin to close. If the interpreter is exiting, wait for the end of the thread, for at most ``_EXIT_S``."""
        soon(self._loop, self._closing.set)
        if not threading.main_thread().is_alive():
            self.join(_EXIT_S)

    def close(self) -> None:
        """Close the gatekeeper, and wait for the end of the thread, unless an event loop runs in the calling thread.

        In the child after a fork, the call has no effect.
        """
        self.stop()
        if running_loop() is None:
            self.join()
            error, self._error = self._error, None
            if error is not None:
                raise error


def _turns(result: object) -> list[Turn]:
    return [one for one in (result if isinstance(result, list) else [result]) if isinstance(one, Turn)]


class ThreadView:
    r"""A view of a Gate for one agent. ``Gate.agent`` makes a view; a Gate is itself the view of its own agent.

    The methods have the arguments, results and errors of AgentView's methods, and block. In a thread with a running
    event loop, and in the child after a fork, they raise WrongEventLoop.

    Example:
        >>> from politesse import Gatekeeper
        >>> from politesse.testing import ScriptedFetcher
        >>> site = ScriptedFetcher({"https://example.com": "User-agent: ExampleBot-Image\nDisallow: /"})
        >>> with Gate(Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=site)) as gate:
        ...     images = gate.agent(tokens=["ExampleBot-Image", "ExampleBot"])
        ...     for view in gate, images:
        ...         print(bool(view.check("https://example.com/cat.png")))
        True
        False

    Attributes:
        identity: the User-Agent and the product tokens to judge for.
    """

    def __init__(self, thread: LoopThread, view: AgentView, gate: Gate | None = None) -> None:
        self._thread = thread
        self._view = view
        self._gate = gate  # keeps the Gate alive while a view is in use; garbage collection would close the Gate
        self.identity: Identity = view.identity

    def check(self, url: StrOrURL) -> Verdict:
        """Return the verdict on ``url``; fetch robots.txt first if necessary. See ``AgentView.check``."""
        return self.call(lambda view: view.check(url))

    def check_batch(self, urls: Iterable[StrOrURL]) -> list[Verdict]:
        """Return the verdicts on ``urls`` in their order. See ``AgentView.check_batch``."""
        return self.call(lambda view: view.check_batch(urls))

    def peek(self, url: StrOrURL) -> Verdict | None:
        """Return the verdict on ``url`` from the cache, or None. See ``AgentView.peek``."""
        return self._called(lambda view: view.peek(url))

    def take_turn(self, url: StrOrURL, *, max_wait_s: float | None = None, exempt: str | None = None) -> Turn:
        """Wait for a turn that is not bound to a block; the caller has to end it. See ``AgentView.take_turn``."""
        return self.call(lambda view: view.take_turn(url, max_wait_s=max_wait_s, exempt=exempt))

    def try_turns(self, urls: Iterable[StrOrURL]) -> list[Turn | NotYet | Verdict]:
        """Return the answer for each URL: a turn if the URL may be requested now. See ``AgentView.try_turns``."""
        return self.call(lambda view: view.try_turns(urls))

    def datatxt(self, origin: Origin | StrOrURL, *, fields: FieldNames | None = None) -> DataTxtAnswer:
        """Return the data.txt of an origin. See ``AgentView.datatxt``."""
        return self.call(lambda view: view.datatxt(origin, fields=fields))

    def sitemaps(self, origin: Origin | StrOrURL) -> Sitemaps:
        """Return the sitemaps that the robots.txt of an origin lists. See ``AgentView.sitemaps``."""
        return self.call(lambda view: view.sitemaps(origin))

    def usage(self, url: StrOrURL) -> Usage | None:
        """Return the statements of robots.txt and tdmrep.json about the use of a page. See ``AgentView.usage``."""
        return self.call(lambda view: view.usage(url))

    def hosts(self) -> Mapping[str, HostStatus]:
        """Return the status of each host. See ``AgentView.hosts``."""
        return self._called(lambda view: view.hosts())

    @contextmanager
    def turn(self, url: StrOrURL, *, max_wait_s: float | None = None, exempt: str | None = None) -> Iterator[Turn]:
        """Wait until one request to ``url`` may be made, and hold that turn while the block runs.

        A turn covers one hop: make a request that follows no redirects, call ``turn.observe`` with its answer, and take
        the next turn after leaving this turn. The pause before the next request counts from the end of the block, even
        after an error. If an exception such as KeyboardInterrupt ends the wait, no turn is lost.

        Args:
            url: the URL to request.
            max_wait_s: the longest wait in seconds, for robots.txt and for the turn, or None for no limit.
            exempt: the reason not to check robots.txt for this request, such as ``"by agreement"``, or None to check
                it. The pace of the host still applies, and so does a policy that denies requests.

        Raises:
            Disallowed: if the check before the wait, or the check after it, denies ``url``.
            TooFar: if no turn comes within ``max_wait_s``.
            TurnHeld: at once, if this thread already holds a turn of the same host.
            InvalidURL: if ``url`` is not an absolute http(s) URL.
            TypeError: if ``url`` is neither a str nor a yarl.URL.
            ClosedError: if the gate is closed.
            WrongEventLoop: if an event loop runs in this thread, or the process was forked since the gate was made.
            ConfigurationError: if ``exempt`` is blank or not a str, or ``max_wait_s`` is negative or not a number.
        """
        turn = self.take_turn(url, max_wait_s=max_wait_s, exempt=exempt)
        try:
            with turn:
                yield turn
        finally:
            turn.give_back()  # if Ctrl-C came before the turn was entered; otherwise the turn has ended

    def call(self, work: Callable[[AgentView], Coroutine[object, object, _T]]) -> _T:
        """Run ``work`` with the asynchronous view in the event loop of the gate; for integrations.

        Args:
            work: returns a coroutine. The turns that the coroutine returns, alone or in a list, are given back if this
                thread stops waiting.

        Raises:
            ClosedError, WrongEventLoop: as the other methods do.
        """
        return self._thread.call(lambda: work(self._view))

    def _called(self, work: Callable[[AgentView], _T]) -> _T:
        """Run ``work``, which does not wait, with the asynchronous view in the event loop of the gate."""

        async def run(view: AgentView) -> _T:
            return work(view)

        return self.call(run)


class Gate(ThreadView):
    r"""The gate that the threads of a program share: ``with Gate(Gatekeeper(...)) as gate``.

    The gatekeeper runs in one event loop in one daemon thread. All threads together keep one pace at each host. A
    thread that holds the turn of a host and requests another turn there gets TurnHeld at once, because it would wait
    for itself.

    ``with`` or ``close`` closes the gate. A gate that is dropped, or still open when the interpreter exits, is closed
    without an error. Create a gate after a fork, because the methods of an earlier gate raise WrongEventLoop in the
    child.

    Each method blocks its thread. In a thread with a running event loop a method raises WrongEventLoop, because the
    call would block every task of the loop. The tasks can use a Gatekeeper.

    Args:
        gatekeeper: a new Gatekeeper. The Gate closes it. Use it for ``subscribe`` and ``statistics`` only: its
            subscribers are called in the thread of the Gate.

    Raises:
        ConfigurationError: ``gatekeeper`` is not a Gatekeeper.
        ClosedError: ``gatekeeper`` is closed.
        WrongEventLoop: ``gatekeeper`` was used before, or belongs to another Gate.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from politesse import Gatekeeper
        >>> from politesse.testing import ScriptedFetcher
        >>> site = ScriptedFetcher({"https://example.com": "User-agent: *\nDisallow: /private"})
        >>> with Gate(Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=site)) as gate:
        ...     with ThreadPoolExecutor() as pool:
        ...         pages = pool.map(gate.check, ["https://example.com/", "https://example.com/private/"])
        ...         print([verdict.allowed for verdict in pages])
        ...     with gate.turn("https://example.com/page", max_wait_s=60) as turn:
        ...         turn.observe(200)  # the status of your request
        [True, False]
    """

    def __init__(self, gatekeeper: Gatekeeper) -> None:
        check_types({"gatekeeper": (gatekeeper, Gatekeeper)}, required=True)
        gatekeeper.state.check_open()
        if gatekeeper.state.loop is not None:
            raise WrongEventLoop("this gatekeeper was used in another event loop: give Gate a new one")
        thread = LoopThread(gatekeeper)
        super().__init__(thread, gatekeeper)
        self._gatekeeper = gatekeeper
        finalize(self, thread.stop)
        thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def agent(self, *, tokens: str | Sequence[str], user_agent: str | None = None) -> ThreadView:
        """Return a view of this gate for other product tokens; all views share the cache.

        Args:
            tokens: the product token, or several tokens, the most specific first.
            user_agent: the User-Agent that this agent sends with page requests; the gatekeeper's own by default.

        Raises:
            ConfigurationError: for an invalid token or User-Agent.
            ClosedError: if the gate is closed.
        """
        return ThreadView(self._thread, self._gatekeeper.agent(tokens=tokens, user_agent=user_agent), self)

    def set_policy(self, host: str, policy: HostPolicy | None) -> None:
        """Set the policy for ``host`` at all schemes and ports; None removes the policy.

        Raises:
            InvalidURL, ConfigurationError, ClosedError: as ``Gatekeeper.set_policy``.
        """
        self._called(lambda _: self._gatekeeper.set_policy(host, policy))

    def forget(self, origin: Origin | StrOrURL) -> None:
        """Drop the cached files of an origin, or of the origin of a URL. The next check fetches them again.

        Raises:
            InvalidURL, TypeError, ClosedError: as ``Gatekeeper.forget``.
        """
        self.call(lambda _: self._gatekeeper.forget(origin))

    def close(self) -> None:
        """End all fetches, and close the gatekeeper. Waiting and later calls raise ClosedError.

        The call waits until the thread of the gate has ended, unless an event loop runs in the calling thread. If
        closing a part raises an error, the other parts are still closed, and then the error is raised. A second call
        does nothing, and so does a call in the child of a fork.
        """
        self._thread.close()

    def __repr__(self) -> str:
        return f"<Gate {self._view.name} ({'open' if self._thread.is_alive() else 'closed'})>"
