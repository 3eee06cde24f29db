"""Playwright with politeness: each document that a page loads is checked and waits for its turn.

::

    async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)") as gate, async_playwright() as playwright:
        browser = await playwright.chromium.launch()
        context = await browser.new_context(user_agent=gate.identity.user_agent, service_workers="block")
        polite = await polite_page(await context.new_page(), gate)
        await polite.goto("https://example.com/")

Theory of operation. A route of the page answers its requests. Playwright passes no redirect to a route: if the route
lets a request through, the browser follows all its redirects. So the route lets no document through. It fetches one hop
by ``route.fetch(max_redirects=0)`` in a turn, and gives the browser the answer, but never a redirect:

    in goto          the route aborts the navigation; ``goto`` takes the turn of the target, and navigates there
    a click, script  the browser gets an empty page with ``Refresh: 0``, so that the target is another navigation; the
                     page names an icon, because the browser might request ``/favicon.ico`` before it moves on
    a subresource    the route fetches the target itself, in the next turn

``goto`` takes its turn before it calls Playwright, so that no timeout of Playwright runs during the wait. The route
uses that turn. Every other request takes its turn in the route.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from politesse._base.checks import check_wait, wrong_type
from politesse._base.text import needing, printable, public_url
from politesse._http.redirects import REDIRECTS
from politesse.errors import ConfigurationError
from politesse.integrations._request import Hop, Method, check_gate, spelt, turn_for
from politesse.origin import Origin, escaped

with needing("politesse.integrations.playwright", "playwright"):
    from playwright.async_api import Error, Page

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from playwright.async_api import Request, Response, Route

    from politesse._gate.turn import Turn
    from politesse._gate.view import AgentView

_LOGGER: Final = logging.getLogger(__name__)

_MAX_HOPS: Final = 20
_WEB: Final = re.compile("^https?:", re.IGNORECASE)
_EMPTY_FILE: Final = re.compile(rb'; filename="([^"\r\n]+)"\r\n(?:[^\r\n]+\r\n){0,2}\r\n\r\n--')


async def polite_page(
    page: Page,
    gate: AgentView,
    *,
    max_wait_s: float | None = None,
    subresources: bool = False,
    turn: Turn | None = None,
) -> PolitePage:
    """Make a page polite: check and pace each document that it requests, and replace ``page.goto`` by a polite method.

    Documents are the pages that ``goto``, ``reload``, a click, a form, a script or a ``<meta http-equiv=refresh>``
    opens, and the contents of frames. Each request states the User-Agent of the gate. If a document is not permitted,
    the page stays as it is; ``goto`` raises the error, and all other failures are logged. Chromium no longer requests
    ``/favicon.ico`` by itself.

    A second call for the same page replaces the first. ``goto`` puts the route of politesse before all other routes of
    the page. A route that you add later precedes it until the next ``goto``, so it must end in ``route.fallback()``,
    not in ``route.continue_()``.

    A form that uploads a file from disk is not sent: give ``set_input_files`` the content of the file as ``buffer``.

    Args:
        page: a page of ``playwright.async_api``. Its context should have the options
            ``user_agent=gate.identity.user_agent``, which scripts see, and ``service_workers="block"``: Playwright
            hides the requests of a service worker.
        gate: judges and paces; not closed with the page.
        max_wait_s: the longest wait for a turn, for each hop, in seconds, or None for no limit.
        subresources: whether images, scripts and all other requests of the page are checked and paced, too. By default
            they are neither checked nor paced.
        turn: a turn that was taken for the first URL that ``goto`` opens.

    Raises:
        ConfigurationError: for a page of ``playwright.sync_api``, other wrong arguments, and a context that runs a
            service worker.
        ClosedError: the gatekeeper is closed.
        WrongEventLoop: the gatekeeper belongs to another event loop than the running loop.
        playwright.async_api.Error: the page is closed.

    Example:
        >>> from playwright.async_api import Browser
        >>> from politesse import Gatekeeper
        >>> async def title(browser: Browser, gate: Gatekeeper) -> str:
        ...     options = {"user_agent": gate.identity.user_agent, "service_workers": "block"}
        ...     page = await browser.new_page(**options)
        ...     polite = await polite_page(page, gate, max_wait_s=60)
        ...     await polite.goto("https://example.com/")
        ...     return await page.title()
    """
    if not isinstance(page, Page):
        raise wrong_type("page", page, "a Page of playwright.async_api")
    check_gate(gate, "polite_page")
    check_wait("max_wait_s", max_wait_s)
    gate.state.check_usable()
    polite = PolitePage(page, gate, max_wait_s, subresources, turn if turn and turn.is_unused else None)
    earlier = getattr(page.goto, "__self__", None)
    polite.route = earlier.route if isinstance(earlier, PolitePage) else None
    async with polite.scope(page):
        if polite.route is None:
            await _block_icon(page)
        await polite.precede()
    page.on("close", polite.stop)
    page.on("crash", polite.stop)
    page.on("requestfailed", polite.end)
    page.goto = polite.goto  # type: ignore[method-assign] # frameworks call ``page.goto``
    return polite


async def _block_icon(page: Page) -> None:
    """Keep Chromium from requesting ``/favicon.ico`` by itself: no route sees it after the page closes."""
    with suppress(Error):  # only Chromium has CDP; if the page is closed, the next call raises the error
        session = await page.context.new_cdp_session(page)
        await session.send("Network.enable")
        await session.send("Network.setBlockedURLs", {"urls": ["*/favicon.ico"]})


@dataclass(slots=True, eq=False)
class _Visit:
    """A navigation of ``goto`` to one hop.

    Attributes:
        turn: the turn of the hop; None once the route uses it.
        request: the request of the browser; None before the browser makes the request.
        target: the next hop, if the answer was a redirect.
        error: the reason why the route gave the browser no answer.
    """

    turn: Turn | None
    request: Request | None = None
    target: str | None = None
    error: Exception | None = None


@dataclass(eq=False, repr=False)
class PolitePage:
    """A page of Playwright whose documents are checked and paced; ``polite_page`` makes it.

    Attributes:
        page: the page.
        gate: the gate that judges and paces.
        route: the present handler of the route; each visit makes a new handler.
    """

    page: Page
    gate: AgentView
    _max_wait_s: float | None
    _subresources: bool
    _granted: Turn | None  # the turn that the caller took for the first URL
    _visit: _Visit | None = None  # the visit whose request the browser has not made yet
    # the timeout of each wait and of each request; ``end`` triggers it
    _scopes: dict[object, asyncio.Timeout] = field(default_factory=dict)
    _redirects: int = 0  # consecutive redirects of navigations that the page has started
    route: Callable[[Route], Awaitable[None]] | None = None

    async def goto(self, url: str, **options: Any) -> Response | None:  # noqa: ANN401 - the options of Page.goto
        """Open a URL like ``Page.goto``; each hop of its redirects, up to 20, is checked and waits for its turn.

        The wait counts against no timeout of Playwright, and ``timeout`` starts anew with each hop. A URL with a scheme
        other than http(s), and a URL relative to the ``base_url`` of the context, are passed to Playwright unchanged.

        Args:
            url: the URL.
            options: the options of ``Page.goto``; ``timeout`` is in milliseconds.

        Returns:
            The response of the last hop, or None, like ``Page.goto``.

        Raises:
            Disallowed, InvalidURL, TooFar, TurnHeld, ClosedError: see ``AgentView.turn``.
            ConfigurationError: the context runs a service worker.
            playwright.async_api.Error: the errors of Playwright; also after more than 20 redirects, and if the page is
                closed during the wait for a turn.

        Example:
            >>> async def status(polite: PolitePage) -> int:
            ...     response = await polite.goto("https://example.com/", timeout=10_000)
            ...     return 0 if response is None else response.status
        """
        if not _WEB.match(url):
            return await Page.goto(self.page, url, **options)
        for _ in range(_MAX_HOPS + 1):
            granted, self._granted = self._granted, None
            async with self.scope(object()):
                visit = self._visit = _Visit(await self._turn(spelt(url), granted))
            try:
                await self.precede()
                return await Page.goto(self.page, url, **options)
            except Error:
                if visit.target is None and visit.error is not None:
                    raise visit.error from None
                if visit.target is None:
                    raise
                # RFC 9110 10.2.2: a redirect without a fragment keeps the fragment of the URL.
                url = visit.target if "#" in visit.target else visit.target + "".join(url.partition("#")[1:])
            finally:
                if visit.turn is not None:  # the route has not used the turn
                    self._visit = None if self._visit is visit else self._visit
                    visit.turn.give_back()
                self.end(visit.request)
        raise _too_many(url)

    async def precede(self) -> None:
        """Put the route before all other routes of the page, some of which may have been added later."""
        earlier, self.route = self.route, partial(self.handle)
        await self.page.route(_WEB, self.route)
        if earlier is not None:
            await self.page.unroute(_WEB, earlier)

    def __repr__(self) -> str:
        return f"<PolitePage {self.gate!r}: {printable(public_url(self.page.url)):.200}>"

    async def handle(self, route: Route) -> None:
        """Answer a request of the page; called by Playwright."""
        request = route.request
        is_document = request.is_navigation_request()
        if not (is_document or self._subresources):
            await route.fallback()
            return
        visit = None
        if is_document and request.frame.parent_frame is None:
            visit, self._visit = self._visit, None
        if visit is not None:
            visit.request = request
        try:
            async with self.scope(request):
                await self._answer(route, visit)
        except Exception as error:  # noqa: BLE001 - Playwright would raise it from its next call
            if visit is not None:
                visit.error = error
            else:
                _LOGGER.info("not loaded: %s: %s", printable(public_url(request.url)), printable(str(error)))
            with suppress(Error):  # the page is closed, or the browser no longer waits
                await route.abort("aborted" if is_document else "blockedbyclient")

    def stop(self, _page: Page) -> None:
        """End all waits and requests: the page was closed, or has crashed; called by Playwright."""
        for key in tuple(self._scopes):
            self.end(key)

    def end(self, key: object) -> None:
        """End a wait or a request, if it is under way; called by Playwright when the browser gives a request up."""
        scope = self._scopes.pop(key, None)
        if scope is not None:
            scope.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def scope(self, key: object) -> AsyncGenerator[None]:
        """Run a block that ``end`` can stop; the block then raises Error.

        Raises:
            playwright.async_api.Error: also if the page is closed already.
            ConfigurationError: the context runs a service worker.
        """
        if self.page.is_closed():
            raise Error("the page was closed")
        if self.page.context.service_workers:
            problem = "runs a service worker, whose requests no route sees"
            raise ConfigurationError(f"the context of the page {problem}: make it with service_workers='block'")
        try:
            async with asyncio.timeout(None) as self._scopes[key]:
                yield
        except TimeoutError:
            raise Error("the page was closed, or the navigation has ended") from None
        finally:
            self._scopes.pop(key, None)

    async def _turn(self, url: str, granted: Turn | None) -> Turn:
        """Return the turn that was granted, if it is for this URL; otherwise take a new turn."""
        if granted is not None and granted.under_way:
            if spelt(granted.url) == url and granted.verdict.agent == self.gate.name:
                return granted
            granted.give_back()  # the browser may spell the URL differently
        return await turn_for(self.gate, url, spelt, max_wait_s=self._max_wait_s)

    async def _answer(self, route: Route, visit: _Visit | None) -> None:
        """Request each hop in a turn, and give the answer to the browser."""
        request = route.request
        headers = {**request.headers, "user-agent": self.gate.identity.user_agent}
        headers.pop("cookie", None)  # ``route.fetch`` adds all cookies, including cookies that a redirect has set
        url = request.url.partition("#")[0]
        hop = Hop(url, cast("Method", request.method), headers, request.post_data_buffer)
        if (lost := _EMPTY_FILE.search(hop.payload or b"")) is not None:
            # Chromium passes a file on disk to the network by its path, so the body here lacks the content of the file.
            raise Error(
                f"the upload of {lost[1].decode(errors='replace')!r:.100}: Playwright hands over no file that the page "
                "reads from disk, and no empty file. Give set_input_files a dict with name, mimeType and buffer"
            )
        limit = None if visit is None else 0  # the timeout of ``goto`` ends the request
        for _ in range(_MAX_HOPS + 1):
            hop.check()
            turn = await self._turn(hop.url, None if visit is None else visit.turn)
            turn.claim()
            if visit is not None:
                visit.turn = None
            with turn:
                data = hop.payload or (b"" if request.post_data_buffer else None)  # None sends the first hop's body
                response = await route.fetch(
                    url=hop.url, method=hop.method, headers=hop.headers, post_data=data, max_redirects=0, timeout=limit
                )
                turn.observe(response.status, response.headers)
            location = response.headers.get("location", "")
            if not hop.follows(response.status, location):
                self._redirects = 0 if request.is_navigation_request() else self._redirects
                # The browser might follow a Location that ``follows`` refuses.
                headers = {name: value for name, value in response.headers.items() if name != "location"}
                await route.fulfill(response=response, headers=headers if response.status in REDIRECTS else None)
                return
            if request.is_navigation_request():
                await self._redirect(route, hop, location.partition("#")[2], visit)
                return
            if request.resource_type in {"fetch", "xhr"} and Origin.of(hop.url) != Origin.of(url):
                raise Error(f"a redirect to another origin, {hop.url:.200}, which the browser could not check")
        raise _too_many(hop.url)

    async def _redirect(self, route: Route, hop: Hop, fragment: str, visit: _Visit | None) -> None:
        """Send the browser to the next hop of a document, by another navigation."""
        target = f"{hop.url}#{escaped(fragment)}" if fragment else hop.url
        if hop.method != "GET":
            raise Error(f"the {hop.method} is redirected to {hop.url:.200}, and no navigation can repeat it there")
        if visit is not None:
            visit.target = target
            await route.abort("aborted")
            return
        self._redirects += 1
        if self._redirects > _MAX_HOPS:
            self._redirects = 0
            raise _too_many(hop.url)
        refresh = {"refresh": f"0;url={target}"}
        await route.fulfill(headers=refresh, content_type="text/html", body='<link rel="icon" href="data:,">')


def _too_many(url: str) -> Error:
    return Error(f"{_MAX_HOPS} redirects end at a redirect to {printable(url):.200}")
