"""The request manager: hands out the requests whose turn has come.

Theory of operation. The inner manager keeps all requests. This manager reads up to ``_READ_AHEAD`` of them into the
frontier of a PoliteQueue, which knows the phase of each host, fetches robots.txt, refuses requests and gives up sites
(see ``politesse.queue``). Crawlee calls ``fetch_next_request`` whenever it has a free slot, and expects an answer at
once. A worker of the queue would wait for a turn, so the manager calls ``try_take``, which does not wait. For the inner
manager, a request that was read is in progress, until it is marked as handled or reclaimed there. Each request that was
read is in one of three places:

    in the frontier    read, and waits for its turn
    _refused           disallowed or given up; the next fetch marks it as handled and reports it
    _handed            handed out with a turn; Crawlee has neither marked it as handled nor reclaimed it
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from crawlee import Request, RequestState
from crawlee.request_loaders import RequestManager

from politesse._base.checks import check_least, check_wait, wrong_type
from politesse._gate.turn import entered_turns, hold_later
from politesse._gate.turns import granted
from politesse.errors import InvalidURL
from politesse.integrations._request import check_gate, spelt
from politesse.origin import Origin
from politesse.queue._dispatch import Dispatcher
from politesse.queue._results import QueueClosed
from politesse.queue._web import check_callback

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from crawlee.storage_clients.models import ProcessedRequest

    from politesse._gate.turn import Turn
    from politesse._gate.view import AgentView
    from politesse.queue._hosts import QueuedUrl
    from politesse.verdict import Verdict

_LOGGER: Final = logging.getLogger("politesse.integrations.crawlee")

_READ_AHEAD: Final = 1_000


class PoliteRequestManager(RequestManager):
    """A request manager that hands out requests whose turn has come; other requests wait, or are refused.

    A disallowed request is marked as handled without a request to the site. The same happens to a request whose site is
    given up, after ``max_wait_s`` or ``max_refusals``. While no turn is due, the manager looks empty to Crawlee, but
    not finished. The turn of a request ends when PoliteHttpClient has the answer; without that client, the turn ends
    when the crawler is done with the request. A reclaimed request waits for another turn.

    Args:
        gate: judges and paces.
        inner: keeps the requests. Other programs must not read from it at the same time.
        on_disallowed: called with each request that is refused, and the verdict. If the request is given up, the reason
            is UNREACHABLE, WAIT_TOO_LONG or REFUSED. If ``on_disallowed`` raises an error, Crawlee logs the error.
        max_wait_s: for how many consecutive seconds the pages of a site may wait; 0 or more; None for no limit. The
            limit also applies to an unreachable robots.txt.
        max_refusals: a site is given up once it has refused this crawler this many times in a row; 1 or more.

    At most 1,000 requests are read ahead: hosts whose requests come later in ``inner`` wait until there is room again.
    ``aclose``, or the end of an ``async with`` block, reclaims the requests that were read and not handled, so that
    ``inner`` has all remaining requests. Call ``aclose`` after ``crawler.run``; the manager can be used again
    afterwards.

    Raises:
        ConfigurationError: for invalid options.

    Example:
        >>> from crawlee.storages import RequestQueue
        >>> from politesse import Gatekeeper
        >>> async def manager(gate: Gatekeeper) -> PoliteRequestManager:
        ...     return PoliteRequestManager(gate, await RequestQueue.open())
    """

    def __init__(
        self,
        gate: AgentView,
        inner: RequestManager,
        *,
        on_disallowed: Callable[[Request, Verdict], object] | None = None,
        max_wait_s: float | None = 3600.0,
        max_refusals: int = 3,
    ) -> None:
        check_gate(gate, "PoliteRequestManager")
        if not isinstance(inner, RequestManager):
            raise wrong_type("inner", inner, "a RequestManager of Crawlee, such as RequestQueue")
        check_callback("on_disallowed", on_disallowed)
        check_wait("max_wait_s", max_wait_s)
        check_least("max_refusals", max_refusals, 1)
        self.gate = gate
        self._inner = inner
        self._on_disallowed = on_disallowed
        self._reading = asyncio.Lock()
        self._refused: deque[tuple[Request, Verdict]] = deque()
        self._handed: dict[str, tuple[Turn, QueuedUrl[Request]]] = {}
        wait_s = math.inf if max_wait_s is None else max_wait_s
        self._new_frontier = partial(Dispatcher[Request], gate, self._note_refusal, wait_s, wait_s, max_refusals, None)
        self._frontier = self._new_frontier()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Reclaim all requests that were read and not handled, in ``inner``."""
        async with self._reading:
            for request in self._emptied():
                await self._inner.reclaim_request(request, forefront=request.forefront)

    def fetch_next_request(self) -> Coroutine[Any, Any, Request | None]:
        """Return a request whose turn was granted; None while no turn is due. The calling task holds the turn.

        Raises:
            ClosedError: if the gatekeeper is closed.
        """
        # This is not an ``async`` function: Crawlee calls it in the task that will handle the request, but on Python
        # 3.11, ``asyncio.wait_for`` runs the coroutine in a task of its own.
        return self._fetch_next_request(hold_later())

    async def _fetch_next_request(self, hold: Callable[[Turn], None]) -> Request | None:
        self._frontier.raise_failure()
        await self._report_refused()
        await self._read_ahead()
        taken = self._frontier.try_take()
        if taken is None:
            return None
        granted(self.gate, taken[0])
        request = taken[1].item
        assert request is not None  # noqa: S101 - ``_read_ahead`` puts no URL without its request
        self._handed[request.unique_key] = taken
        hold(taken[0])
        return request

    async def is_empty(self) -> bool:
        """Return whether no turn is due, and no refused request is left to report; ClosedError as above."""
        self._frontier.raise_failure()
        await self._read_ahead()
        return not self._refused and not self._frontier.is_ready()

    async def is_finished(self) -> bool:
        """Return whether ``inner`` has no request left, in progress or not; ClosedError as above."""
        self._frontier.raise_failure()
        return await self._inner.is_finished()

    async def mark_request_as_handled(self, request: Request) -> ProcessedRequest | None:
        """End the turn of a request, and mark the request as handled in ``inner``."""
        self._let_go(request)
        return await self._inner.mark_request_as_handled(request)

    async def reclaim_request(self, request: Request, *, forefront: bool = False) -> ProcessedRequest | None:
        """End the turn of a request, and reclaim the request in ``inner``, where it waits for another turn."""
        self._let_go(request)
        return await self._inner.reclaim_request(request, forefront=forefront)

    async def add_request(self, request: str | Request, *, forefront: bool = False) -> ProcessedRequest | None:
        """Add a request to ``inner``."""
        return await self._inner.add_request(request, forefront=forefront)

    async def add_requests(
        self,
        requests: Sequence[str | Request],
        **options: Any,  # noqa: ANN401 - Crawlee's options of several types, for the inner manager
    ) -> None:
        """Add requests to ``inner``; the options are the same as in Crawlee."""
        await self._inner.add_requests(requests, **options)

    async def get_handled_count(self) -> int:
        """Return how many requests of ``inner`` were handled, refused requests included."""
        return await self._inner.get_handled_count()

    async def get_total_count(self) -> int:
        """Return how many requests ``inner`` has, handled requests included."""
        return await self._inner.get_total_count()

    async def drop(self) -> None:
        """Drop ``inner``, and the requests that were read from it."""
        async with self._reading:
            self._emptied()
            await self._inner.drop()

    async def purge(self) -> None:
        """Purge ``inner``, and forget the requests that were read from it."""
        async with self._reading:
            self._emptied()
            await self._inner.purge()

    def turn_of(self, request: Request) -> Turn | None:
        """Return the unused turn that was granted for a request, or None without such a turn; for PoliteHttpClient."""
        turn, _ = self._handed.get(request.unique_key, (None, None))
        return turn if turn is not None and turn.is_unused and turn.under_way else None

    def end_turn(self, request: Request) -> None:
        """End the turn that was granted for a request; has no effect if it has ended. For PoliteHttpClient."""
        turn, queued = self._handed.get(request.unique_key, (None, None))
        if turn is not None and queued is not None and queued.number in self._frontier.under_way:
            turn.end()
            self._frontier.note_end(turn, queued)

    def own_request(self, url: str) -> Request | None:
        """Return the request that the current task handles, if its turn is unused and for ``url``, as it is sent."""
        return next((queued.item for turn, queued in self._unused() if spelt(turn.url) == url), None)

    def step_back(self, url: str) -> None:
        """Give back the unused turn of the current task if a request to another ``url`` would wait for its end.

        The request of the task takes another turn when it is sent.
        """
        lines = tuple(self.gate.state.pacer.lines(Origin.of(url).pacing_host))
        for turn, _ in self._unused():
            if any(map(turn.is_in, lines)):
                turn.give_back()

    def _unused(self) -> list[tuple[Turn, QueuedUrl[Request]]]:
        """Return the turns that were granted for the requests of the current task, and not used yet."""
        held = entered_turns()
        return [taken for taken in self._handed.values() if taken[0] in held and taken[0].is_unused]

    def _let_go(self, request: Request) -> None:
        self.end_turn(request)
        self._handed.pop(request.unique_key, None)

    async def _read_ahead(self) -> None:
        """Read requests from ``inner`` until the frontier is full."""
        async with self._reading:
            while self._frontier.size + len(self._refused) < _READ_AHEAD and not await self._inner.is_empty():
                request = await self._inner.fetch_next_request()
                if request is None:
                    break
                try:
                    origin = self.gate.checked_origin(request.url)
                except InvalidURL as error:
                    self._refused.append((request, self.gate.invalid(error)))
                else:
                    self._frontier.add(origin, request.url, request, -float(request.forefront))

    async def _report_refused(self) -> None:
        """Mark the refused requests as handled, and report them."""
        while self._refused:
            request, verdict = self._refused.popleft()
            request.state = RequestState.SKIPPED
            try:
                await self._inner.mark_request_as_handled(request)
            except BaseException:
                self._refused.appendleft((request, verdict))
                raise
            _LOGGER.info("not requested: %s", verdict)
            if self._on_disallowed is not None:
                self._on_disallowed(request, verdict)

    def _note_refusal(self, request: Request | str, verdict: Verdict) -> None:
        if isinstance(request, Request):  # always true: ``_read_ahead`` puts each URL with its request
            self._refused.append((request, verdict))

    def _emptied(self) -> list[Request]:
        """End all turns, and return the requests that were read and not handled."""
        for turn, _ in self._handed.values():
            turn.end()
        read = [*(queued for _, queued in self._handed.values()), *self._frontier.left()]
        requests = [queued.item for queued in read if queued.item is not None]
        requests += [request for request, _ in self._refused]
        self._frontier.fail(QueueClosed("the request manager was closed"))
        self._handed.clear()
        self._refused.clear()
        self._frontier = self._new_frontier()
        return requests
