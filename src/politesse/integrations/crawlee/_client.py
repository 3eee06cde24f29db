"""The HTTP client: sends one hop at a time, each in a turn of its own.

Theory of operation. The wrapped client makes each request, and must not follow redirects. ``crawl`` sends each hop with
the ``crawl`` of the wrapped client, and ``loaded_url`` then shows whether that client has followed a redirect itself.
If so, this client sends nothing more. The first hop of a request is made in the turn that the manager has granted. A
hook or a handler may make a request before its own request is sent: if it is for another URL, the manager's turn is
given back, because this request might wait for it. A turn ends before the next hop waits for another turn, and before
Crawlee calls the handler.

The options of Crawlee that this client does not use (session, proxy, timeout) are passed on. Their type is Any, because
the methods of the wrapped client have different options.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from crawlee import HttpHeaders, Request
from crawlee.errors import HttpClientStatusCodeError
from crawlee.http_clients import HttpClient, HttpCrawlingResult, HttpResponse

from politesse._base.checks import ConfigurationError, wrong_type
from politesse.errors import Disallowed, InvalidURL
from politesse.fetch._http2 import resetting
from politesse.integrations._request import Hop, StatedAgents, check_gate, check_sent, path_of, spelt, turn_for
from politesse.integrations.crawlee._manager import PoliteRequestManager
from politesse.queue._web import normal_form

if TYPE_CHECKING:
    from datetime import timedelta

    from politesse._gate.turn import Turn
    from politesse._gate.view import AgentView

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
        # Only an HttpxHttpClient has clients of httpx2, and makes them when it needs them.
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
            check_sent(hop.url, path_of(hop.url), [hop.headers["host"]] if "host" in hop.headers else [])
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
