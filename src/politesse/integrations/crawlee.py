"""Crawlee with politeness: a request manager that paces the hosts, and an HTTP client that checks each hop.

::

    async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)") as gate:
        async with PoliteRequestManager(gate, await RequestQueue.open()) as manager:
            sender = ImpitHttpClient(follow_redirects=False, browser=None)
            client = PoliteHttpClient(manager, sender)
            crawler = ParselCrawler(request_manager=manager, http_client=client)
            await crawler.run(["https://example.com/"])

The manager checks and paces requests before Crawlee starts to process them, so a request that waits takes no slot of
the crawler, and the wait counts against no timeout. The client checks and paces the later requests: redirects, and the
requests of handlers.

Theory of operation of the manager. The inner manager keeps all requests. This manager reads up to ``_READ_AHEAD`` of
them into the frontier of a PoliteQueue, which knows the phase of each host, fetches robots.txt, refuses requests and
gives up sites (see ``politesse.queue``). Crawlee calls ``fetch_next_request`` whenever it has a free slot, and expects
an answer at once. A worker of the queue would wait for a turn, so the manager calls ``try_take``, which does not wait.
For the inner manager, a request that was read is in progress, until it is marked as handled or reclaimed there. Each
request that was read is in one of three places:

    in the frontier    read, and waits for its turn
    _refused           disallowed or given up; the next fetch marks it as handled and reports it
    _handed            handed out with a turn; Crawlee has neither marked it as handled nor reclaimed it

Theory of operation of the client. The wrapped client makes each request, and must not follow redirects. ``crawl`` sends
each hop with the ``crawl`` of the wrapped client, and ``loaded_url`` then shows whether that client has followed a
redirect itself. If so, this client sends nothing more. The first hop of a request is made in the turn that the manager
has granted. A hook or a handler may make a request before its own request is sent: if it is for another URL, the
manager's turn is given back, because this request might wait for it. A turn ends before the next hop waits for another
turn, and before Crawlee calls the handler.

The options of Crawlee that this client does not use (session, proxy, timeout) are passed on. Their type is Any, because
the methods of the wrapped client have different options.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Self

from politesse._base.checks import ConfigurationError, check_least, check_wait, wrong_type
from politesse._base.text import needing
from politesse._gate.turn import held_turns, hold_later
from politesse._gate.view import AgentView, publish_granted
from politesse.errors import Disallowed, InvalidURL
from politesse.fetch._http2 import resetting
from politesse.integrations._request import Hop, StatedAgents, check_gate, spelt, turn_for
from politesse.origin import Origin
from politesse.queue._dispatch import Dispatcher
from politesse.queue._results import QueueClosed
from politesse.queue._web import check_callback, normal_form

with needing("politesse.integrations.crawlee", "crawlee"):
    from crawlee import HttpHeaders, Request, RequestState
    from crawlee.errors import HttpClientStatusCodeError
    from crawlee.http_clients import HttpClient, HttpCrawlingResult, HttpResponse
    from crawlee.request_loaders import RequestManager

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from datetime import timedelta

    from crawlee.storage_clients.models import ProcessedRequest

    from politesse._gate.turn import Turn
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
        publish_granted(self.gate, taken[0])
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
        taken = self._handed.get(request.unique_key)
        if taken is not None and taken[1].number in self._frontier.under_way:
            taken[0].end()
            self._frontier.note_end(*taken)

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
        held = held_turns()
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


_Sender = Callable[..., AbstractAsyncContextManager[HttpResponse]]  # of a Hop and the options of Crawlee

_MAX_HOPS: Final = 10
_REFUSALS: Final = frozenset({401, 402, 403})


class PoliteHttpClient(HttpClient):
    """An HTTP client that checks and paces every hop, and sends it with the client that it wraps.

    Each hop of each request is checked and has a turn: up to 10 redirects, and the requests of
    ``context.send_request``, also of a PlaywrightCrawler with ``http_client=``. Each request carries the User-Agent of
    the gate. A request that states another User-Agent is judged for that crawler. A disallowed request raises
    Disallowed, and Crawlee does not retry it. Crawlee does not retry answers of 401, 402 and 403 with another session
    either, because they refuse this crawler.

    The first hop of a crawled request waits in the manager, and this wait counts against no timeout. The wait for the
    turn of a redirect counts against ``navigation_timeout`` of the crawler. If the turn will certainly come after this
    timeout, TooFar is raised at once. The wait of ``context.send_request`` counts against ``request_handler_timeout``.
    A hook or handler that requests the URL of its own request uses the turn that the manager has granted. If it
    requests another URL of the host first, that turn is given back, and its own request waits for another turn. During
    ``stream``, the task holds the turn, and another request of the task to the host raises TurnHeld.

    Args:
        manager: the manager of the crawler; or a gate, so that each request waits for its turn in this client.
        client: sends the requests, and follows no redirects: ``ImpitHttpClient(follow_redirects=False)`` or
            ``HttpxHttpClient(follow_redirects=False)``. ``stream`` does not notice a client that follows redirects.

    Raises:
        ConfigurationError: for arguments of other types.

    Example:
        >>> from crawlee.http_clients import ImpitHttpClient
        >>> from politesse import Gatekeeper
        >>> def client(gate: Gatekeeper) -> PoliteHttpClient:
        ...     return PoliteHttpClient(gate, ImpitHttpClient(follow_redirects=False))
    """

    def __init__(self, manager: PoliteRequestManager | AgentView, client: HttpClient) -> None:
        super().__init__()
        self._manager = manager if isinstance(manager, PoliteRequestManager) else None
        gate = manager.gate if isinstance(manager, PoliteRequestManager) else manager
        check_gate(gate, "PoliteHttpClient", "a PoliteRequestManager or a Gatekeeper")
        if not isinstance(client, HttpClient):
            raise wrong_type("client", client, "an HttpClient of Crawlee")
        self._gate = gate
        self._client = client
        # Only an HttpxHttpClient has clients of httpx2, and makes them when it needs them. Crawlee (1.11) has no public
        # name for them.
        self._resetting = partial(resetting, lambda: getattr(client, "_client_by_proxy_url", {}).values())
        self._agents = StatedAgents(gate, "")
        self._has_followed = False

    async def crawl(self, request: Request, **options: Any) -> HttpCrawlingResult:  # noqa: ANN401 - see the module
        """Request a page, and follow its redirects; ``request.loaded_url`` is the URL that answered.

        Raises:
            Disallowed, InvalidURL, TooFar, TurnHeld, ClosedError: see ``AgentView.turn``.
            ConfigurationError: if the wrapped client has followed a redirect itself.
            HttpClientStatusCodeError: after more than 10 redirects.
        """
        statistics = options.pop("statistics", None)
        options |= {"method": request.method, "headers": request.headers, "payload": request.payload}
        try:
            async with self._answer(request.url, options, self._read, request) as response:
                pass
        finally:
            if self._manager is not None:
                self._manager.end_turn(request)
        if statistics:
            statistics.register_status_code(response.status_code)
        return HttpCrawlingResult(response)

    async def send_request(self, url: str, **options: Any) -> HttpResponse:  # noqa: ANN401 - see the module
        """Make a request in a turn, and follow redirects. Raises the same errors as ``crawl``."""
        async with self._answer(url, options, self._read) as response:
            return response

    @asynccontextmanager
    async def stream(self, url: str, **options: Any) -> AsyncGenerator[HttpResponse]:  # noqa: ANN401 - see the module
        """Make a request in a turn that ends with the block, and follow redirects. Raises as ``crawl`` does."""
        async with self._answer(url, options, self._open) as response:
            yield response

    async def cleanup(self) -> None:
        """Clean up the wrapped client."""
        await self._client.cleanup()

    def _open(self, hop: Hop, **options: Any) -> AbstractAsyncContextManager[HttpResponse]:  # noqa: ANN401 - see the module
        """Send a hop, and leave its answer open."""
        return self._client.stream(hop.url, method=hop.method, headers=hop.headers, payload=hop.payload, **options)

    @asynccontextmanager
    async def _read(self, hop: Hop, **options: Any) -> AsyncGenerator[HttpResponse]:  # noqa: ANN401 - see the module
        """Send a hop, and read its answer to the end."""
        sent = Request.from_url(hop.url, method=hop.method, headers=hop.headers, payload=hop.payload)
        result = await self._client.crawl(sent, **options)
        if normal_form(sent.loaded_url or hop.url) != normal_form(hop.url):
            self._has_followed = True
            self._check_follows_nothing()
        yield result.http_response

    @asynccontextmanager
    async def _answer(
        self, url: str, options: dict[str, Any], send: _Sender, request: Request | None = None
    ) -> AsyncGenerator[HttpResponse]:
        """Send a request and its redirects, each hop in a turn, and yield the last answer.

        Args:
            url: the URL of the first hop.
            options: its headers, method and payload, and the options of ``send``.
            send: sends a hop.
            request: the crawled request, whose timeout limits the wait for each further turn; by default the request
                that the current task handles, if it is for ``url``.
        """
        manager, limit = self._manager, None if request is None else options.get("timeout")
        try:
            headers = dict(HttpHeaders(dict(options.pop("headers", None) or {})))
            hop = Hop(spelt(url), options.pop("method", "GET"), headers, options.pop("payload", None))
            request = manager.own_request(hop.url) if manager is not None and request is None else request
            granted = None if manager is None or request is None else manager.turn_of(request)
            async with self._last_answer(hop, partial(send, **options), granted, limit) as response:
                if request is not None:
                    request.loaded_url = hop.url
                    request.no_retry = request.no_retry or response.status_code in _REFUSALS
                yield response
        except (Disallowed, InvalidURL, ConfigurationError):
            if request is not None:
                request.no_retry = True
            raise

    @asynccontextmanager
    async def _last_answer(
        self, hop: Hop, send: _Sender, granted: Turn | None, limit: timedelta | None
    ) -> AsyncGenerator[HttpResponse]:
        """Send a hop and its redirects; ``hop`` is then the last hop, ``granted`` is the turn of the first hop."""
        stated = hop.headers.get("user-agent", "")
        view = self._agents.view([stated])
        hop.headers["user-agent"] = stated or view.identity.user_agent
        if granted is not None and granted.verdict.agent != view.name:
            granted.give_back()
            granted = None
        max_wait_s = None if limit is None else limit.total_seconds()
        for number in count():
            self._check_follows_nothing()
            hop.check()
            if granted is None and self._manager is not None:
                self._manager.step_back(hop.url)
            turn = granted or await turn_for(view, hop.url, spelt, max_wait_s=max_wait_s)
            granted = None
            turn.claim()
            async with turn, self._resetting(), send(hop) as response:
                turn.observe(response.status_code, response.headers)
                if not hop.follows(response.status_code, response.headers.get("location")):
                    yield response
                    return
                if number == _MAX_HOPS:
                    problem = f"{_MAX_HOPS} redirects end at a redirect to {hop.url:.200}"
                    raise HttpClientStatusCodeError(problem, response.status_code)

    def _check_follows_nothing(self) -> None:
        """Raise ConfigurationError if the wrapped client has followed a redirect."""
        if self._has_followed:
            name = type(self._client).__name__
            raise ConfigurationError(f"{name} has followed a redirect unchecked: give {name}(follow_redirects=False)")
