"""Gates and crawlers that cheat, for the demo to catch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from urllib.parse import urlsplit

from politesse import Dialect, Gatekeeper, Reason, Verdict
from politesse._gate.agent import Agent
from politesse._pacing import sharing
from politesse._pacing.local import LocalPacer
from politesse.cli.demo import CACHE, PACING
from politesse.cli.demo.crawl import Crawler
from politesse.fetch import AiohttpFetcher
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResponse, FetchResult
from politesse.testing.violations import Kind
from politesse.verdict import Match

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import aiohttp

    from politesse._pacing.permit import LocalPermit
    from politesse._pacing.slot import Slot
    from politesse.ports import TurnRequest
    from politesse.verdict import NotYet


class WrongAgent(Agent):
    """Judges as its gate says; it is what a queue asks."""

    __slots__ = ("say",)

    say: Callable[[str, Verdict | None], Verdict | None]

    def judged(self, url: str) -> Verdict | None:
        return self.say(url, super().judged(url))

    async def learn(self, url: str) -> Verdict:
        verdict = await super().learn(url)
        said = self.say(url, verdict)
        return verdict if said is None else said


class WrongGate(Gatekeeper):
    """Says something else than it should."""

    __slots__ = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._agent = WrongAgent(self._agent.state, self._agent.identity)
        self._agent.say = self.say

    def say(self, url: str, verdict: Verdict | None) -> Verdict | None:
        """Return what to say instead; ``verdict`` is None while robots.txt was not asked for."""
        raise NotImplementedError


class OpenGate(WrongGate):
    """Asks for robots.txt, and allows everything all the same."""

    __slots__ = ()

    def say(self, url: str, verdict: Verdict | None) -> Verdict | None:
        return None if verdict is None else _allowed(url)


class LateGate(WrongGate):
    """Lets the first page of an origin through before it asks."""

    __slots__ = ()

    def say(self, url: str, verdict: Verdict | None) -> Verdict | None:
        return _allowed(url) if url.count("/") == 3 and url.endswith("/") else verdict


class HastyGate(WrongGate):
    """Takes a robots.txt that cannot be had now for one that allows everything."""

    __slots__ = ()

    def say(self, url: str, verdict: Verdict | None) -> Verdict | None:
        unknown = {Reason.TOO_MANY_REQUESTS, Reason.UNREACHABLE}
        return _allowed(url) if verdict is not None and verdict.reason in unknown else verdict


class EagerGate(WrongGate):
    """Allows everything from a 429 to robots.txt until its Retry-After is over."""

    __slots__ = ()

    def say(self, url: str, verdict: Verdict | None) -> Verdict | None:
        return _allowed(url) if verdict is not None and verdict.reason is Reason.TOO_MANY_REQUESTS else verdict


class ClosedGate(WrongGate):
    """Denies everything."""

    __slots__ = ()

    def say(self, url: str, verdict: Verdict | None) -> Verdict | None:
        return None if verdict is None else _denied(url)


class TimidGate(WrongGate):
    """Denies one sort of pages that are allowed."""

    __slots__ = ()

    def say(self, url: str, verdict: Verdict | None) -> Verdict | None:
        return verdict if verdict is None or "/private/press/" not in url else _denied(url)


def _allowed(url: str) -> Verdict:
    return Verdict(url, "test", allowed=True, match=Match(Reason.NO_RULE))


def _denied(url: str) -> Verdict:
    return Verdict(url, "test", allowed=False, match=Match(Reason.DISALLOW_RULE))


class PushyPacer(LocalPacer):
    """Grants at once."""

    def try_start(self, request: TurnRequest, /, *, ahead_s: float = 0.0) -> LocalPermit | NotYet:
        now_mono = self._clock.monotonic()
        return self._stamp(*self._enter(request, now_mono), request.url, now_mono)

    def when_ready(self, request: TurnRequest, callback: Callable[[], None], /, *, ahead_s: float = 0.0) -> None:
        self._clock.call_later(0, callback)


class FloorPacer(LocalPacer):
    """Ignores what robots.txt states about pace."""

    def _enter(self, request: TurnRequest, now_mono: float) -> Any:
        return super()._enter(request._replace(pace=None), now_mono)


class FromStartPacer(LocalPacer):
    """Counts the pause from the start of a request."""

    def ended(self, permit: LocalPermit, slot: Slot) -> None:
        super().ended(permit, slot)
        slot.last_mono = permit.started_mono
        slot.ready_for = None
        self._arm(slot)


class DeafPacer(LocalPacer):
    """Ignores that a server wants to be left alone."""

    def answered(self, permit: LocalPermit, slot: Slot, status: int | None, headers: Mapping[str, str]) -> None:
        pass


class HostAgent(Agent):
    """Takes the robots.txt of the first port of a host for that of all its ports."""

    __slots__ = ("first",)

    first: dict[str | None, str]

    def judged(self, url: str) -> Verdict | None:
        verdict = super().judged(self._at_first_port(url))
        if verdict is not None:
            verdict.url = url
        return verdict

    async def learn(self, url: str) -> Verdict:
        verdict = await super().learn(self._at_first_port(url))
        verdict.url = url
        return verdict

    def _at_first_port(self, url: str) -> str:
        parts = urlsplit(url)
        return url.replace(parts.netloc, self.first.setdefault(parts.hostname, parts.netloc), 1)


class HostGate(Gatekeeper):
    """Keys robots.txt by host only."""

    __slots__ = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._agent = HostAgent(self._agent.state, self._agent.identity)
        self._agent.first = {}


class FollowingGate(Gatekeeper):
    """Is used by a crawler that follows redirects without a question."""

    __slots__ = ()


class _FollowingSession:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    def get(self, url: str, **_: object) -> object:
        return self._session.get(url, allow_redirects=True)


def crawler_for(gate: Gatekeeper, session: aiohttp.ClientSession, **options: Any) -> Crawler:
    """The crawler of the demo, sabotaged for a FollowingGate."""
    sabotaged: Any = _FollowingSession(session) if isinstance(gate, FollowingGate) else session
    return Crawler(gate, sabotaged, **options)


def _paced_by(pacer_class: type[LocalPacer]) -> type[Gatekeeper]:
    class Gate(Gatekeeper):
        """Paces by another pacer, robots.txt too."""

        __slots__ = ()

        def __init__(self, *args: Any, **options: Any) -> None:
            with patch.object(sharing, "LocalPacer", pacer_class):
                super().__init__(*args, **options)

    return Gate


def _with(**changes: object) -> type[Gatekeeper]:
    """Other options than those of the demo."""

    class Gate(Gatekeeper):
        """Has other options."""

        __slots__ = ()

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options | changes)

    return Gate


def _reading(tamper: Callable[[FetchResult], FetchResult], **changes: object) -> type[Gatekeeper]:
    """A gate that reads each answer for robots.txt as another one."""

    class Fetcher(AiohttpFetcher):
        async def fetch(self, request: FetchRequest, /) -> FetchResult:
            return tamper(await super().fetch(request))

    class Gate(Gatekeeper):
        """Has another fetcher."""

        __slots__ = ()

        def __init__(self, user_agent: str, *, fetch: Any, **options: Any) -> None:
            super().__init__(user_agent, fetcher=Fetcher(user_agent, fetch), **options | changes)

    return Gate


def _absent(*statuses: int) -> Callable[[FetchResult], FetchResult]:
    return lambda result: FetchResponse(404, result.final_url) if result.status in statuses else result


def _without_answer_is_absent(result: FetchResult) -> FetchResult:
    failed = isinstance(result, FetchFault) and result.kind is not FaultKind.REDIRECT_LIMIT
    return FetchResponse(404, result.final_url) if failed else result


def _redirect_is_absent(result: FetchResult) -> FetchResult:
    return FetchResponse(404, result.final_url) if isinstance(result, FetchFault) and result.location else result


def _without_header(name: str) -> Callable[[FetchResult], FetchResult]:
    def tamper(result: FetchResult) -> FetchResult:
        if not isinstance(result, FetchResponse):
            return result
        return replace(result, headers={field: value for field, value in result.headers.items() if field != name})

    return tamper


def _with_max_age_0(result: FetchResult) -> FetchResult:
    if not isinstance(result, FetchResponse):
        return result
    return replace(result, headers={**result.headers, "cache-control": "max-age=0"})


def _body(change: Callable[[bytes], bytes]) -> Callable[[FetchResult], FetchResult]:
    return lambda result: replace(result, body=change(result.body)) if isinstance(result, FetchResponse) else result


def _without_lines(start: bytes) -> Callable[[FetchResult], FetchResult]:
    return _body(lambda body: b"\n".join(line for line in body.split(b"\n") if not line.startswith(start)))


UNFETCHED = "allowed pages not fetched"
"""Beside the kinds of violations: a gate that denies what is allowed is no success."""

CLOSED = {Kind.FORBIDDEN, Kind.WHILE_CLOSED}
SABOTAGES: dict[str, tuple[type[Gatekeeper], set[str]]] = {
    # permission
    "open": (OpenGate, {*CLOSED}),
    "late": (LateGate, {Kind.FORBIDDEN, Kind.BEFORE_ROBOTS}),
    "hasty": (HastyGate, {*CLOSED}),  # the pacer keeps to Retry-After all the same
    "closed": (ClosedGate, {UNFETCHED}),
    "timid": (TimidGate, {UNFETCHED}),
    "opens on 5xx": (_reading(_absent(503)), {*CLOSED}),
    "opens on 429": (_reading(_absent(429)), {*CLOSED}),
    "opens on 429 by an option": (_with(cache=replace(CACHE, on_too_many_requests="allow")), {*CLOSED}),
    "opens on 429, and fetches it again": (EagerGate, {*CLOSED}),
    "opens on timeouts": (_reading(_without_answer_is_absent), {*CLOSED}),
    "closes on 403": (_with(cache=replace(CACHE, on_forbidden="disallow")), {UNFETCHED}),
    "another agent's group": (_with(token="OtherBot"), {Kind.FORBIDDEN, UNFETCHED}),
    "first group of the agent only": (_reading(_without_lines(b"Disallow: /*/print$")), {Kind.FORBIDDEN}),
    "first match, no wildcards": (_with(dialect=Dialect.KOSTER_1996), {Kind.FORBIDDEN, UNFETCHED}),
    "no Allow": (_reading(_without_lines(b"Allow:")), {UNFETCHED}),
    "no wildcards": (_reading(_without_lines(b"Disallow: /*")), {Kind.FORBIDDEN}),
    "decodes %2F": (_reading(_body(lambda body: body.replace(b"%2F", b"/"))), {Kind.FORBIDDEN, UNFETCHED}),
    "no redirect of robots.txt": (_reading(_redirect_is_absent), {Kind.FORBIDDEN}),
    "redirects of pages unchecked": (FollowingGate, {Kind.FORBIDDEN}),
    "by host only": (HostGate, {Kind.FORBIDDEN, Kind.BEFORE_ROBOTS}),
    "expired copy": (_reading(_without_header("cache-control")), {Kind.STALE}),
    "fetches robots.txt each time": (
        _reading(_with_max_age_0, cache=replace(CACHE, min_lifetime_s=0.0)),
        {Kind.REFETCHED},
    ),
    "no Retry-After of robots.txt": (_reading(_without_header("retry-after")), {Kind.RETRIED_EARLY}),
    # pace
    "pushy": (_paced_by(PushyPacer), {Kind.OVERLAP, Kind.RETRY_AFTER}),
    "floor": (_paced_by(FloorPacer), {Kind.GAP}),
    "from start": (_paced_by(FromStartPacer), {Kind.GAP}),
    "deaf": (_paced_by(DeafPacer), {Kind.RETRY_AFTER}),
    "no pause": (_with(pacing=replace(PACING, min_delay_s=0.0)), {Kind.GAP}),
    "eight at once": (_with(pacing=replace(PACING, max_concurrent=8, min_delay_s=0.0)), {Kind.OVERLAP}),
    "no Crawl-delay": (
        _with(pacing=replace(PACING, on_long_crawl_delay="cap", max_crawl_delay_s=0.001)),
        {Kind.GAP},
    ),
    "waits half of Retry-After": (_with(pacing=replace(PACING, backoff_max_s=1.0)), {Kind.RETRY_AFTER}),
}
