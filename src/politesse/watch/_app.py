"""The application: who may ask, the routes, the stream of events, the orders of watchers, and a server for it.

Theory of operation. Each request passes ``_Watch.guard``, which asks four questions. Is the Host header a name of this
server? (Otherwise a site whose name leads to this machine could read the answers: DNS rebinding.) Are the Origin header
and, except for the page, the Sec-Fetch-Site header of this server, if any? Without a token: does the request come from
this machine? With a token: does the request have it? The page itself needs no token, because it says nothing about the
crawl.

An event stream looks every two seconds, and sends what has changed. It ends when its reader has left, when the gate
closes, or when the server ends.

Each order is carried out at once. It is noted with its reason: in the log, in the ledger if the gate has one, and in
the report of the crawl.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
from base64 import b64encode
from collections import deque
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from importlib.resources import files
from ipaddress import ip_address
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Self

from aiohttp import web

from politesse._base import __version__
from politesse._base.checks import AsyncOnly, check_choice, check_range, check_types, checked_names, wrong_type
from politesse._base.text import counted, printable, shortened
from politesse._cache.options import HostPolicy
from politesse._gate.gatekeeper import Gatekeeper
from politesse.clock import ends_within
from politesse.errors import ClosedError, ConfigurationError, InvalidURL, WrongEventLoop
from politesse.origin import Origin, paced_host
from politesse.queue import PoliteQueue
from politesse.robots.explain import matching_alone
from politesse.watch._table import HostTable, Message, Slices, View, encode, plain, policy_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from ipaddress import IPv4Address, IPv6Address

    from aiohttp.typedefs import Handler

    from politesse.verdict import Rule, Verdict

DEFAULT_PORT: Final = 8900
_MAX_BODY: Final = 64 * 1024
_MAX_PORT: Final = 65_535
_TICK_S: Final = 2.0
_SILENCE_S: Final = 15.0
_SHUTDOWN_S: Final = 1.0
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_COUNTS: Final = ("allowed", "fetches", "in_flight", "origins", "entries_bytes", "waiting", "turns")
_MAX_REFUSALS: Final = 50
_MAX_URL: Final = 2_000
_MAX_RULES: Final = 1_000
_LOGGER: Final = logging.getLogger("politesse.watch")
_LIMITS: Final = ("min_delay_s", "max_concurrent")
_MEMBERS: Final = ("action", "host", "reason", *_LIMITS)
_OF_HOST: Final = ("pace", "deny", "exempt", "clear", "forget", "give_up")
_OF_CRAWL: Final = ("pause", "continue", "stop")
_OF_QUEUE: Final = ("give_up", *_OF_CRAWL)
_MAX_REASON: Final = 200


def app(
    gate: Gatekeeper, queue: PoliteQueue[Any] | None = None, token: str | None = None, names: Collection[str] = ()
) -> web.Application:
    """Return an application that shows a gate until the gate closes, and steers it. Serve it in the gate's event loop.

    ``add_subapp("/watch/", app(gate))`` mounts it in another application.

    Args:
        gate: the gatekeeper.
        queue: the queue of its crawl, to show the URLs that wait, and to pause, continue and stop the crawl.
        token: a secret of printable ASCII characters, which a request needs as ``Authorization: Bearer TOKEN``. Without
            a token, only this machine may read, and nobody may steer.
        names: the names by which browsers reach this server, such as ``"crawler.example"``. Names of loopback and
            addresses are always permitted.

    Raises:
        ConfigurationError: an argument is invalid.
    """
    check_types({"gate": (gate, Gatekeeper)}, required=True)
    check_types({"queue": (queue, PoliteQueue), "token": (token, str)})
    if token is not None and not (token and token.isascii() and token.isprintable() and token == token.strip()):
        raise ConfigurationError("token: give printable ASCII characters, as secrets.token_urlsafe() returns them")
    try:
        known = {paced_host(name) for name in checked_names("names", names)}
    except InvalidURL as error:
        raise ConfigurationError(f"names: {error}") from error
    watch = _Watch(gate, queue, token, known)
    application = web.Application(middlewares=[watch.guard])
    application.on_response_prepare.append(watch.add_headers)
    application.on_shutdown.append(watch.end)
    get = partial(web.get, allow_head=False)
    application.add_routes(
        [
            get("", watch.page),  # mounted at a prefix, and asked without its last slash
            get("/", watch.page),
            get("/hosts", watch.hosts),
            get("/explain", watch.explain),
            get("/statistics", watch.statistics),
            get("/events", watch.events),
            web.post("/steer", watch.steer),
        ]
    )
    return application


async def serve(
    gate: Gatekeeper,
    queue: PoliteQueue[Any] | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    token: str | None = None,
    names: Collection[str] = (),
) -> WatchServer:
    """Serve ``app`` until the gate is closed; return the server, which knows its URL.

    Args:
        gate: see ``app``.
        queue: see ``app``.
        host: the name or address to listen at; without a token, of loopback.
        port: the port; 0 for any free port.
        token: see ``app``.
        names: see ``app``.

    Raises:
        ConfigurationError: an argument is invalid.
        ClosedError: the gate is closed.
        OSError: the port is in use, or the address is not of this machine.
    """
    check_types({"host": (host, str)}, required=True)
    check_range("port", port, 0, _MAX_PORT)
    if token is None and not _is_loopback(host):
        raise ConfigurationError(f"host={host!r:.100} is open to other machines: give a token, or listen at 127.0.0.1")
    runner = web.AppRunner(app(gate, queue, token, names), access_log=None, shutdown_timeout=_SHUTDOWN_S)
    gate.state.check_usable()
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except BaseException:
        await runner.cleanup()
        raise
    return WatchServer(gate, runner)


class WatchServer(AsyncOnly):
    """A server that ``serve`` has started. ``async with`` or ``aclose`` ends it, and so does the close of the gate.

    Attributes:
        url: the URL of the page. To open the page with the token, append ``#token=TOKEN``.

    Example:
        >>> from politesse.testing import ScriptedFetcher
        >>> async def main():
        ...     async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=ScriptedFetcher()) as gate:
        ...         server = await serve(gate, port=0)
        ...         print(server.url.startswith("http://127.0.0.1:"))
        >>> asyncio.run(main())
        True
    """

    def __init__(self, gate: Gatekeeper, runner: web.AppRunner) -> None:
        host, port = runner.addresses[0][:2]
        self.url: str = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        self._runner = runner
        self._closed_with = gate.state.closed_with
        self._closed_with.add(self.aclose)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End all streams, and stop listening."""
        self._closed_with.discard(self.aclose)
        await self._runner.cleanup()

    def __repr__(self) -> str:
        return f"<WatchServer {self.url}>"


class _Watch:
    """The handlers of one application; see ``app``."""

    def __init__(
        self, gate: Gatekeeper, queue: PoliteQueue[Any] | None, token: str | None, names: Collection[str]
    ) -> None:
        self._gate = gate
        self._queue = queue
        self._authorization = None if token is None else f"Bearer {token}".encode()
        self._names = names
        self._table = HostTable(gate, queue)
        self._refusals = _Refusals(gate)
        self._ended = asyncio.Event()
        self._page = (files("politesse.watch") / "page.html").read_text(encoding="utf-8")
        self._policy = _content_policy(self._page)
        gate.state.when_closed(self._when_closed)

    def _when_closed(self, _: ClosedError) -> None:
        self._ended.set()

    async def end(self, _: web.Application) -> None:
        self._ended.set()

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse a request that may not ask, and answer errors as JSON."""
        headers: Mapping[str, str] = {}
        try:
            self._check(request, needs_token=request.match_info.handler != self.page)
            return await handler(request)
        except web.HTTPRedirection:
            raise
        except web.HTTPException as error:
            status, text = error.status, error.text
            headers = {name: error.headers[name] for name in ("Allow", "WWW-Authenticate") if name in error.headers}
        except (ConfigurationError, InvalidURL) as error:
            status, text = 400, str(error)
        except WrongEventLoop as error:
            status, text = 503, str(error)
        except ClosedError as error:
            status, text = 410, str(error)  # RFC 9110 15.5.11: for good, because a gate never opens again
        return web.json_response({"error": text}, status=status, headers=headers, dumps=encode)

    def _check(self, request: web.Request, *, needs_token: bool) -> None:
        host, origin = request.headers.get("Host", "").lower(), request.headers.get("Origin")
        name = re.sub(r":[0-9]*$", "", host)
        if not (name in self._names or _is_loopback(name) or _address_of(name) is not None):
            raise web.HTTPForbidden(text=f"{host!r:.200} is not a name of this server; to permit it, see names= of app")
        if origin is not None and origin.lower() not in {f"http://{host}", f"https://{host}"}:
            raise web.HTTPForbidden(text=f"the request comes from another site, {origin!r:.200}")
        if not needs_token:
            return
        if request.headers.get("Sec-Fetch-Site", "none").lower() not in {"none", "same-origin"}:
            raise web.HTTPForbidden(text="the request comes from another site")  # it could not read the answer
        if self._authorization is None:
            if request.remote and not _is_loopback(request.remote):
                raise web.HTTPForbidden(text="without a token, only this machine may read; see token= of app")
            return
        given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        if not hmac.compare_digest(given, self._authorization):
            raise web.HTTPUnauthorized(text="the token is wrong or missing", headers={"WWW-Authenticate": "Bearer"})

    def _check_steering(self) -> None:
        if self._authorization is None:
            raise web.HTTPForbidden(text="without a token, this watch can only read; see token= of app")

    async def add_headers(self, _: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(_HEADERS)

    async def page(self, request: web.Request) -> web.Response:
        if not request.path.endswith("/"):  # the page's own requests are relative to the slash
            raise web.HTTPFound(f"{request.path}/")
        headers = {"Content-Security-Policy": self._policy}
        return web.Response(text=self._page, content_type="text/html", headers=headers)

    async def hosts(self, request: web.Request) -> web.Response:
        self._gate.state.check_usable()
        page = await self._table.page(View.of(request.query))
        self._gate.state.check_usable()  # the gate may have closed meanwhile
        return web.json_response(text=page.text)

    async def statistics(self, _: web.Request) -> web.Response:
        self._gate.state.check_loop()
        return web.json_response(self._statistics(), dumps=encode)

    def _statistics(self) -> dict[str, Any]:
        gate, queue, crawl = self._gate, self._queue, None
        counts = gate.statistics()
        if queue is not None:
            queued = queue.statistics()
            crawl = {name: getattr(queued, name) for name in ("queued", "under_way", "hosts")}
            crawl |= {"paused": queue.is_paused, "stopping": queue.is_stopping}
        about = {"time": plain(gate.clock.wall()), "agent": gate.identity.user_agent, "version": __version__}
        numbers = {name: getattr(counts, name) for name in _COUNTS}
        can_steer = self._authorization is not None
        return about | numbers | {"denied": counts.denied, "can_steer": can_steer, "crawl": crawl}

    async def explain(self, request: web.Request) -> web.Response:
        fetches = request.query.get("fetch") == "1"
        if fetches:
            self._check_steering()  # another server gets a request
        gate, url = self._gate, request.query.get("url", "")
        judged = gate.judged(url) or (await gate.fetched(url) if fetches else None)  # the verdict is not counted
        if judged is None:
            raise web.HTTPNotFound(text="robots.txt is not known yet; with fetch=1 it is fetched")
        verdict, _, copy = judged
        rule, rules, lines = verdict.rule, None if copy is None else copy.rules.get(gate.name), []
        text = verdict.explain()
        if rules is not None:
            lines = await asyncio.to_thread(matching_alone, rules, url, _MAX_RULES)
            if rule is not None and all(one != rule for one, _ in lines):
                lines.append((rule, True))
            matching = sum(matches for _, matches in lines)
            text += f"\n  of {matching} matches: {rules.precedence}" if matching > 1 else ""
            text += f"\n  {_MAX_RULES:,} of {len(rules):,} rules are shown" if len(rules) > _MAX_RULES else ""
        found = {
            "url": shortened(verdict.url, _MAX_URL),
            "allowed": verdict.allowed,
            "reason": verdict.reason,
            "text": text,
            "rule": _rule(rule),
            "line": None if rule is None else rule.line,
            "lines": [
                {"line": one.line, "text": _rule(one), "matches": matches, "wins": one == rule}
                for one, matches in lines
            ],
        }
        return web.json_response(found, dumps=encode)

    async def steer(self, request: web.Request) -> web.Response:
        self._check_steering()
        body = await request.clone(client_max_size=_MAX_BODY).read()
        try:
            order = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"the body is not JSON: {error}") from error
        self._gate.state.check_usable()
        done = await self._carry_out(order, request.remote or "a socket of this machine")
        self._table.look_again()
        return web.json_response({"done": done}, dumps=encode)

    async def _carry_out(self, order: object, by: str) -> str:
        """Carry out an order of the watcher at this address, as it was read from JSON; return what was done."""
        gate, queue, (action, host, reason, limits) = self._gate, self._queue, _checked(order)
        if action in _OF_QUEUE:
            if queue is None:
                raise ConfigurationError(
                    f"action={action!r}: this watch has no crawl; give watch.app or serve its queue"
                )
            if queue.is_stopping and action in {"pause", "continue"}:
                raise ConfigurationError(f"action={action!r}: the crawl is stopping")
            done = _steer_queue(queue, action, host, reason)
        elif action == "forget":
            done = await _forget(gate, host)
        else:
            done = _set_policy(gate, action, host, reason, limits)
        note = f"{done}, by a watcher at {by}: {reason}"
        if gate.state.ledger is not None:
            gate.state.ledger.note(note, gate.clock.wall())
        if queue is not None:
            queue.note(note)  # logs it as well
        else:
            _LOGGER.warning("%s", note)
        return done

    async def events(self, request: web.Request) -> web.StreamResponse:
        view, clock = View.of(request.query), self._gate.clock
        self._gate.state.check_usable()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        sent: dict[str, str] = {}
        number, spoke_mono = 0, clock.monotonic()
        with self._refusals, suppress(ConnectionError, ClosedError):
            await response.prepare(request)
            while not self._ended.is_set() and request.transport is not None and not request.transport.is_closing():
                statistics, page = Message.of(self._statistics(), clock.wall()), await self._table.recent(view)
                number, refusals = self._refusals.since(number)
                messages = {"statistics": statistics, "hosts": page, "refusals": Message.of(refusals, clock.wall())}
                sent["refusals"] = "[]"  # each refusal is sent once
                new = [name for name, message in messages.items() if message.facts != sent.get(name)]
                sent = {name: message.facts for name, message in messages.items()}
                text = "".join(f"event: {name}\ndata: {messages[name].text}\n\n" for name in new)
                if not text and clock.monotonic() - spoke_mono >= _SILENCE_S:
                    text = ": nothing has changed\n\n"
                if text:
                    await response.write(text.encode())
                    spoke_mono = clock.monotonic()
                await ends_within(clock, _TICK_S, asyncio.ensure_future(self._ended.wait()))
        return response


def _address_of(name: str) -> IPv4Address | IPv6Address | None:
    with suppress(ValueError):
        return ip_address(name.removeprefix("[").removesuffix("]"))
    return None


def _is_loopback(name: str) -> bool:
    address = _address_of(name)
    return name == "localhost" or name.endswith(".localhost") or (address is not None and address.is_loopback)


def _content_policy(page: str) -> str:
    """Return the Content-Security-Policy that permits the script and the style of the page, and this server."""
    hashes = {}
    for tag in ("script", "style"):
        texts: list[str] = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        hashes[tag] = " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in texts)
    return (
        f"default-src 'none'; script-src {hashes['script']}; style-src {hashes['style']}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class _Refusals:
    """The last refusals. The gate tells of them only within ``with``, which several readers may enter."""

    def __init__(self, gate: Gatekeeper) -> None:
        self._listeners = gate.state.on_denied
        self._last: deque[Verdict] = deque(maxlen=_MAX_REFUSALS)
        self._count = self._readers = 0

    def __enter__(self) -> Self:
        if not self._readers:
            self._listeners.append(self._note)
        self._readers += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._readers -= 1
        if not self._readers:
            self._listeners.remove(self._note)

    def _note(self, verdict: Verdict) -> None:
        self._count += 1
        self._last.append(verdict)

    def since(self, number: int) -> tuple[int, list[dict[str, Any]]]:
        """Return the number of the last refusal, and the refusals after ``number``, the newest first."""
        return self._count, [
            {
                "time": plain(one.decided_wall),
                "url": shortened(one.url, _MAX_URL),
                "reason": one.reason,
                "rule": _rule(one.rule),
            }
            for one in islice(reversed(self._last), self._count - number)
        ]


def _rule(rule: Rule | None) -> str | None:
    return None if rule is None else shortened(str(rule))


def _checked(order: object) -> tuple[str, str, str, dict[str, Any]]:
    """Return the action, the host, the reason and the limits of an order; raises ConfigurationError."""
    if not isinstance(order, dict):
        raise wrong_type("order", order, "an object, as {'action': 'deny', 'host': 'example.com', 'reason': '...'}")
    for name in order:
        check_choice("member", name, _MEMBERS, f"one of {', '.join(_MEMBERS)}")
    action, host, reason = (order.get(name) for name in _MEMBERS[:3])
    check_choice("action", action, (*_OF_HOST, *_OF_CRAWL), f"one of {', '.join((*_OF_HOST, *_OF_CRAWL))}")
    if not isinstance(reason, str) or not 1 <= len(reason.strip()) <= _MAX_REASON:
        raise ConfigurationError(f"reason={reason!r:.100}: give a reason of 1 to {_MAX_REASON} characters")
    if isinstance(host, str) != (action in _OF_HOST):
        raise ConfigurationError(f"host={host!r:.100}: give a host with {', '.join(_OF_HOST)}, and only with these")
    limits = {name: order[name] for name in _LIMITS if order.get(name) is not None}
    if any(isinstance(limit, list | dict) for limit in limits.values()):  # perhaps nested too deeply for an error
        raise ConfigurationError("give min_delay_s and max_concurrent as numbers")
    if bool(limits) != (action == "pace"):
        raise ConfigurationError("give min_delay_s, max_concurrent or both with pace, and only with pace")
    return str(action), str(host or ""), printable(reason.strip()), limits


def _steer_queue(queue: PoliteQueue[Any], action: str, host: str, reason: str) -> str:
    if action == "give_up":
        count = queue.give_up(paced_host(host), reason)
        return f"{paced_host(host)}: given up, {counted(count, 'URL')}"
    carry_out, done = {
        "pause": (queue.pause, "The crawl is paused"),
        "continue": (queue.resume, "The crawl continues"),
        "stop": (queue.stop, "The crawl is stopping"),
    }[action]
    carry_out()
    if action == "stop" and not queue.is_stopping:
        raise ConfigurationError("action='stop': no crawl is running")
    return done


def _set_policy(gate: Gatekeeper, action: str, host: str, reason: str, limits: dict[str, Any]) -> str:
    policy = gate.state.policies.get(paced_host(host), HostPolicy())
    if action in {"deny", "exempt"}:
        limits = {"deny": action == "deny", "exempt": action == "exempt", "reason": reason}
    policy = replace(policy, **limits)
    gate.set_policy(host, None if action == "clear" else policy)
    return f"{paced_host(host)}: {'no policy' if action == 'clear' else policy_text(policy, has_reason=False)}"


async def _forget(gate: Gatekeeper, given: str) -> str:
    """Forget the files of an origin, or of all known origins of a host."""
    slices, origins = Slices(), []
    if "://" in given:
        origins.append(Origin.of(given))
    else:
        host = paced_host(given)
        for copy in list(gate.state.cache.entries.values()):
            if copy.origin.pacing_host == host:
                origins.append(copy.origin)
            await slices.rest()
        origins = origins or [Origin.of(f"https://{host}")]
    for origin in origins:
        await gate.forget(origin)
        await slices.rest()
    return f"{shortened(', '.join(origin.text for origin in origins))}: robots.txt is forgotten"
