"""The thread that runs a gatekeeper for other threads.

One event loop runs in one daemon thread, and only this thread uses the gatekeeper. A method called in another thread
starts a task there, in a copy of the context of its thread, and waits for a Future. So a thread that holds a turn, and
requests another turn of the same host, gets TurnHeld as an asyncio task does.

A caller may stop waiting at any moment, for example after Ctrl-C. The method then cancels the task, and adds a callback
to the Future. The callback gives the turn back, at once if the Future has the turn already. So no turn is lost, even if
the task ends first.

A turn uses its permit through a ``_ThreadPermit``. The calls of the permit run later, in the event loop, in the order
in which the threads made them. So a thread's turn has ended before the event loop sees the thread's request for its
next turn.
"""

from __future__ import annotations

import asyncio
import os
import threading
from asyncio import _get_running_loop
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from politesse._gate.turn import Turn, soon
from politesse.errors import ClosedError, WrongEventLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from politesse._gate.gatekeeper import Gatekeeper
    from politesse.ports import Permit

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


class LoopThread(threading.Thread):
    """The only thread that uses a gatekeeper; ``call`` runs a coroutine in its event loop for another thread."""

    def __init__(self, gatekeeper: Gatekeeper) -> None:
        super().__init__(name=f"politesse.sync {gatekeeper.name}", daemon=True)
        self._gatekeeper = gatekeeper
        self._loop = gatekeeper.state.loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._closing = asyncio.Event()
        self._closed = False
        self._error: BaseException | None = None  # the error that closing the gatekeeper raised
        self._calls: dict[Future[Any], asyncio.Task[None] | None] = {}

    def run(self) -> None:
        """Run the event loop until ``close``; then end the calls that the loop has not begun."""
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - close raises it
            self._error = error
        for answer in list(self._calls):
            answer.set_exception(ClosedError("the gate was closed"))

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
        if _get_running_loop() is not None:
            raise WrongEventLoop("an event loop runs in this thread, and a Gate would block it: use a Gatekeeper here")
        answer: Future[_T] = Future()
        self._calls[answer] = None
        # Checked once ``answer`` is in ``_calls``: if the gate closes after this check, ``run`` finds the call and ends
        # it.
        if self._closed:
            self._calls.pop(answer, None)
            raise ClosedError("the gate was closed")
        try:
            soon(self._loop, partial(self._begin, answer, work))
            return answer.result()
        except BaseException:
            soon(self._loop, partial(self._abandon, answer))
            answer.add_done_callback(_give_back)
            raise
        finally:
            del answer  # an error refers to this frame: without ``del``, only the garbage collector frees both

    def _begin(self, answer: Future[_T], work: Callable[[], Coroutine[object, object, _T]]) -> None:
        self._calls[answer] = self._loop.create_task(self._deliver(answer, work))

    async def _deliver(self, answer: Future[_T], work: Callable[[], Coroutine[object, object, _T]]) -> None:
        try:
            result = await work()
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            is_end = self._closed and isinstance(error, asyncio.CancelledError)
            answer.set_exception(ClosedError("the gate was closed") if is_end else error)
        else:
            for turn in _turns(result):
                turn.hand_over(lambda permit: _ThreadPermit(permit, self._loop))
            answer.set_result(result)
        finally:
            self._calls.pop(answer, None)
            del answer

    def _abandon(self, answer: Future[_T]) -> None:
        if (task := self._calls.pop(answer, None)) is not None:
            task.cancel()

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
        if _get_running_loop() is None:
            self.join()
            error, self._error = self._error, None
            if error is not None:
                raise error


def _turns(result: object) -> list[Turn]:
    return [one for one in (result if isinstance(result, list) else [result]) if isinstance(one, Turn)]


def _give_back(answer: Future[_T]) -> None:
    """Give back the turns of an answer whose caller has stopped waiting."""
    if answer.exception() is None:
        for turn in _turns(answer.result()):
            turn.give_back()
