"""Fetches a file for the cache hop by hop, so that each hop is permitted, paced and limited.

The parts, in the order of this file: ``Admission`` limits how many requests are under way; functions for a fetch, which
the PageFetcher of ``_sites/files.py`` uses as well; ``RedirectTargets`` keeps the answers of the targets of redirects;
``PacedFetcher`` fetches robots.txt.

Thousands of sites of a hosting provider may redirect to one robots.txt. The first site requests the file, and the
answer is kept for the other sites:

    a request is under way    the other sites wait for its answer
    the answer is fresh       each origin gets the answer once, with its age
    an origin asks again      the origin's own copy is due or was forgotten, so the URL is requested again

Only definite answers are kept: 2xx, 304, most 4xx, and further redirects. Requests with different validators share no
answer, because a 304 is about one copy. Some requests must not reach a private address. They share answers only with
each other.

``Admission`` limits how many requests for files of sites are under way at once, so that slow hosts do not delay fast
hosts. A place is the right to have a request under way. A request takes a place for one hop. Each request starts in one
of the ``max_concurrent`` quick places. Requests that find no free place wait in one line for all hosts. A waiting
request may hold the turn of its host. In its place a request waits for no turn, and ends within the time limit of its
fetcher. So two requests never wait for each other for ever.

A server that accepts a connection and never answers would hold a quick place until the time limit. A hundred such
servers would hold all places. So a request that has taken longer than ``_MOMENT_S`` loses its quick place if another
request waits. The request then counts as slow. The number of slow requests is limited, too, because each holds a
socket. At that limit, the slow request that started first is given up if it started at least ``_MIN_SLOW_S`` ago: its
``work`` is cancelled.

    waits for a quick place -> quick -> slow -> given up
                                 |        |         |
                                 +--------+---------+--> ended

Free places go to the newest and to the oldest waiter alternately. If the oldest always came first, a healthy host would
wait behind a thousand stalled hosts that came earlier. If the newest always came first, the oldest would starve.

A place is granted before its waiter resumes. If the waiter is cancelled before it resumes, it releases its place. A
timer runs only while a request waits.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast

from cachetools import LRUCache

from politesse._base.constants import AGREE_S
from politesse._base.tasks import is_ended_from_outside
from politesse._base.text import described
from politesse._cache.outcome import shared_lifetime_s
from politesse._http.redirects import follow
from politesse._http.signing import RequestSignature
from politesse._pacing.hosts import TurnRequest
from politesse.errors import InvalidURL
from politesse.events import ComponentFailed, Publisher
from politesse.origin import Origin
from politesse.ports import FaultKind, Fetcher, FetchFault, FetchRequest, FetchResponse, FetchResult, Signer
from politesse.verdict import AccessResult

if sys.platform != "win32":
    import resource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping

    from politesse._cache.options import AccessPolicy, HostPolicy
    from politesse._pacing.hosts import Hosts, LocalFetch
    from politesse._pacing.shared import GateShare
    from politesse.clock import Clock, Timer

CLOSING: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, *range(500, 1_000)})
"""The statuses of robots.txt or another file after which the pacer may close the host."""

_TARGETS_BYTES: Final = 4 * 1024 * 1024  # limits the size of all kept answers; a larger answer is not kept
_ANSWER_BYTES: Final = 1_500
_ORIGIN_BYTES: Final = 150
_SOON_S: Final = 2.0 * AGREE_S  # a host that opens so soon is waited for: a failure would hold for at least as long

_MOMENT_S: Final = 0.05  # most fetches of robots.txt end within this time
_MIN_SLOW_S: Final = 1.0
_SLOW_FOR_EACH_QUICK: Final = 20  # 2,000 slow requests if 100 may be quick


@dataclass(slots=True, eq=False)
class _Request:
    """A request on its way through ``Admission``.

    Attributes:
        task: makes the request.
        granted: the future that is done when the request gets its quick place; None if the request did not wait.
        started_mono: when the request got its quick place.
        reason: why the request was given up; empty if the request was not given up.
    """

    task: asyncio.Task[object]
    granted: asyncio.Future[None] | None = None
    started_mono: float = 0.0
    reason: str = ""

    def give_up(self, reason: str) -> None:
        """Cancel the request."""
        if not self.reason:
            self.reason = reason
            self.task.cancel()


class Admission:
    """Limits the requests; see the module. Belongs to one event loop.

    Args:
        clock: measures the time of a request.
        max_concurrent: how many requests may be quick at once; positive. Up to twenty times as many may be slow, but no
            more than half of the file descriptors of this process.
    """

    def __init__(self, clock: Clock, *, max_concurrent: int) -> None:
        self._clock = clock
        self._max_quick = max_concurrent
        self._max_slow = max(1, int(min(_SLOW_FOR_EACH_QUICK * max_concurrent, _file_descriptors() / 2)))
        # Each dict is in the order in which the requests came or started: the oldest is first.
        self._waiting: OrderedDict[_Request, None] = OrderedDict()
        self._newest_next = True
        self._quick: OrderedDict[_Request, None] = OrderedDict()
        self._slow: OrderedDict[_Request, None] = OrderedDict()
        self._ending: set[_Request] = set()  # slow requests that were given up; each keeps its socket until it ends
        self._timer: Timer | None = None

    async def run(
        self, url: str, work: Callable[[bool], Awaitable[FetchResult]], limit_s: float | None = None
    ) -> FetchResult:
        """Wait for a place, and hold it while ``work`` makes one request; return the result.

        The result is a fault if ``work`` took longer than ``limit_s``, or if another request needed its socket. In both
        cases ``work`` was cancelled.

        Args:
            url: the URL of the request.
            work: makes the request; it is called with True if the request has waited for its place, else False.
            limit_s: how many seconds ``work`` may take; None for no limit.
        """
        # An asyncio.timeout would do the same, but cost each request ten calls.
        request, limit = _Request(cast("asyncio.Task[object]", asyncio.current_task())), None
        cancelling, is_given_up = request.task.cancelling(), False
        try:
            try:
                if len(self._quick) < self._max_quick:
                    request.started_mono = self._clock.monotonic()
                    self._quick[request] = None
                else:
                    request.granted = asyncio.get_running_loop().create_future()
                    self._waiting[request] = None
                    self._serve()
                    await request.granted
                if limit_s is not None:
                    late = partial(request.give_up, "no answer within the time limit")
                    limit = self._clock.call_later(limit_s, late)
                return await work(request.granted is not None)
            finally:
                if limit is not None:
                    limit.cancel()
                if request in self._quick:
                    del self._quick[request]
                else:
                    self._waiting.pop(request, None)
                    self._slow.pop(request, None)
                    self._ending.discard(request)
                if self._waiting or self._timer is not None:
                    self._serve()
                if request.reason:  # otherwise only the outside has cancelled the task
                    is_given_up = request.task.uncancel() <= cancelling
        except (asyncio.CancelledError, TimeoutError):
            if not is_given_up:
                raise
            return FetchFault(FaultKind.TIMEOUT, request.reason, url)

    def __repr__(self) -> str:
        slow = len(self._slow) + len(self._ending)
        return f"<Admission: {len(self._quick)} quick, {slow} slow, {len(self._waiting)} waiting>"

    def _serve(self) -> None:
        """Grant the free quick places to waiting requests, and set a timer for when the next place may become free."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            if len(self._quick) >= self._max_quick:
                now_mono = self._clock.monotonic()
                again_mono = self._hand_on(now_mono)
                if again_mono is not None:
                    self._timer = self._clock.call_later(again_mono - now_mono, self._serve)
                    return
                if len(self._quick) >= self._max_quick:
                    return  # requests that were given up make room when they end
            request, _ = self._waiting.popitem(last=self._newest_next)
            if request.granted is not None and not request.granted.done():  # a done future means a cancelled request
                self._newest_next = not self._newest_next
                request.granted.set_result(None)
                request.started_mono = self._clock.monotonic()
                self._quick[request] = None

    def _hand_on(self, now_mono: float) -> float | None:
        """Move the oldest quick request to the slow requests if it is late; return when to try again, or None."""
        oldest = next(iter(self._quick))
        slow_mono = oldest.started_mono + _MOMENT_S
        if now_mono < slow_mono:
            return slow_mono
        if len(self._slow) + len(self._ending) < self._max_slow:
            del self._quick[oldest]
            self._slow[oldest] = None
            return None
        return self._give_up(now_mono)

    def _give_up(self, now_mono: float) -> float | None:
        """Give up as many slow requests as waiters need; return when to try again, or None."""
        for _ in range(min(len(self._waiting), self._max_quick) - len(self._ending)):
            if not self._slow:
                break
            oldest = next(iter(self._slow))
            old_mono = oldest.started_mono + _MIN_SLOW_S
            if now_mono < old_mono:
                return old_mono
            del self._slow[oldest]
            self._ending.add(oldest)
            oldest.give_up(f"no answer within {now_mono - oldest.started_mono:.1f} s, and others need its connection")
        return None


def _file_descriptors() -> float:
    """Return how many file descriptors this process may have open; infinity if there is no limit."""
    if sys.platform == "win32":
        return float("inf")  # on Windows, sockets are not file descriptors
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return float("inf") if soft == resource.RLIM_INFINITY else soft


def fault_of_fetcher(error: BaseException, request: FetchRequest, publisher: Publisher) -> FetchFault:
    """Publish an exception of a fetcher as ComponentFailed, and return it as a fault.

    KeyboardInterrupt, SystemExit and the cancellation of the current task are raised. A user's fetcher may raise any
    other exception, even its own CancelledError. Any exception closes the site.
    """
    ends = isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)
    if ends or is_ended_from_outside(error, asyncio.current_task()):
        raise error
    publisher.publish(ComponentFailed(request.origin, "fetcher", error))
    return internal_fault("the fetcher", error, request.url)


def signed(hop: FetchRequest, signature: RequestSignature) -> FetchRequest:
    """Return a request with its signature."""
    made = signature.made()
    return replace(hop, signature=made) if made else hop


def is_challenge(result: FetchResult, signature: RequestSignature) -> bool:
    """Return whether an answer asks for the request with another signature; such an answer does not set the pace."""
    if not isinstance(result, FetchResponse) or result.final_url != signature.url:
        return False
    return signature.is_asked(result.status, result.headers)


async def with_closure(result: FetchResult, pacer: GateShare, clock: Clock) -> FetchResult:
    """Return a result; a refusal states for how long its host is closed, so that the cache does not ask earlier."""
    if not isinstance(result, FetchResponse) or result.status not in CLOSING:
        return result
    try:
        host = Origin.of(result.final_url).pacing_host
    except InvalidURL:  # the fetcher has followed a redirect to a URL without an origin
        return result
    until_wall = await pacer.closed_until(host)
    return result if until_wall is None else replace(result, closed_s=until_wall - clock.wall())


def internal_fault(component: str, error: BaseException, url: str) -> FetchFault:
    """Return the fault for an unexpected exception; never raises, even if ``str(error)`` does."""
    return FetchFault(FaultKind.INTERNAL, f"{component} failed with {described(error)}", url)


@dataclass(slots=True, eq=False)
class _Answer:
    """A kept answer.

    Attributes:
        result: the answer.
        fetched_mono: when the answer came.
        lifetime_s: how long the answer is fresh, in seconds.
        served: the URLs whose redirects this answer has served.
    """

    result: FetchResult
    fetched_mono: float
    lifetime_s: float
    served: set[str]

    @property
    def size_bytes(self) -> int:
        """About how much memory the answer takes."""
        body_bytes = len(self.result.body) if isinstance(self.result, FetchResponse) else 0
        return _ANSWER_BYTES + body_bytes + _ORIGIN_BYTES * len(self.served)


class RedirectTargets:
    """Keeps the answers of redirect targets; see the module. Belongs to one event loop.

    Args:
        policy: decides how long an answer is fresh.
        clock: measures the age of an answer.
    """

    def __init__(self, policy: AccessPolicy, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self._answers: LRUCache[Hashable, _Answer] = LRUCache(
            _TARGETS_BYTES, getsizeof=lambda answer: answer.size_bytes
        )
        self._under_way: dict[Hashable, asyncio.Future[FetchResult]] = {}

    async def fetch(self, hop: FetchRequest, ask: Callable[[FetchRequest], Awaitable[FetchResult]]) -> FetchResult:
        """Return the answer to ``hop``, the target of a redirect; call ``ask`` if no kept answer can be used."""
        key = (hop.url, hop.redirected, hop.last, hop.validators)
        result = self._kept(key, hop)
        if result is not None:
            return result
        while (under_way := self._under_way.get(key)) is not None:
            await asyncio.wait((under_way,))  # a cancelled waiter does not cancel the other waiters
            if not under_way.cancelled():  # after a cancellation, the first waiter repeats the request
                return self._kept(key, hop) or under_way.result()
        answered = self._under_way[key] = asyncio.get_running_loop().create_future()
        try:
            result = await ask(hop)
            lifetime_s = shared_lifetime_s(result, self._clock.wall(), self._policy)
            if lifetime_s > 0.0:
                self._put(key, _Answer(result, self._clock.monotonic(), lifetime_s, {hop.first_url}))
            answered.set_result(result)
        except Exception as error:
            answered.set_exception(error)
            answered.exception()  # without this call, asyncio would log the exception if no other request waits for it
            raise
        finally:
            del self._under_way[key]
            answered.cancel()  # without effect if the future has a result
        return result

    def _kept(self, key: Hashable, hop: FetchRequest) -> FetchResult | None:
        """Return a fresh answer that has not served this origin yet."""
        answer = self._answers.pop(key, None)
        if answer is None:
            return None
        age_s = self._clock.monotonic() - answer.fetched_mono
        if age_s >= answer.lifetime_s or hop.first_url in answer.served:
            return None
        answer.served.add(hop.first_url)
        self._put(key, answer)
        result = answer.result
        return replace(result, age_s=result.age_s + age_s) if isinstance(result, FetchResponse) else result

    def _put(self, key: Hashable, answer: _Answer) -> None:
        if answer.size_bytes <= _TARGETS_BYTES:
            self._answers[key] = answer


@dataclass(slots=True, eq=False)
class _Trip:
    """One fetch with its redirects.

    Attributes:
        pacer: grants its requests.
        seconds: how long its requests were under way; the wait for a place in Admission does not count.
        permits: the permits of its requests.
    """

    pacer: Hosts
    seconds: float = 0.0
    permits: list[LocalFetch] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class PacedFetcher:
    """Fetches robots.txt within the pace of its host; see ``Hosts.start_fetch``.

    It follows redirects itself, and each hop is paced at its own host. A closed host gets no request for robots.txt
    either. A host is closed when it answers 429, 503 with Retry-After, or 503 as the target of a redirect. If the
    answer opens its site, the next page waits for one interval at each host of the hops.

    Args:
        fetcher: makes a request for each hop.
        pacer: knows which hosts are closed, and grants the requests.
        clock: the clocks.
        admission: limits how many requests are under way.
        policy: decides which answers open a site, and how long they are fresh.
        publisher: receives ComponentFailed when the fetcher raises.
        policies: the policies of this crawler by host, as far as they are enforced.
        total_timeout_s: how many seconds a fetch with redirects may take; the first hop is limited by the fetcher
            itself.
        signer: signs the requests, or None.
    """

    fetcher: Fetcher
    pacer: GateShare
    clock: Clock
    admission: Admission
    policy: AccessPolicy
    publisher: Publisher
    policies: Mapping[str, HostPolicy]
    total_timeout_s: float
    signer: Signer | None = None
    _targets: RedirectTargets = field(init=False)
    _opening: frozenset[AccessResult | None] = field(init=False)  # the meanings of the answers that open a site

    def __post_init__(self) -> None:
        self._targets = RedirectTargets(self.policy, self.clock)
        self._opening = frozenset(filter(self.policy.opens, (*AccessResult, None)))

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Fetch, unless the host of a hop is closed."""
        limit = self.policy.outcomes.max_redirects
        try:
            trip = _Trip(self.pacer.pacer)
            result = await self._request(trip, request)
            if isinstance(result, FetchFault):
                # A fetcher that does not report the target of a redirect has to follow redirects itself.
                ask = partial(self._targets.fetch, ask=partial(self._request, trip))
                result = await follow(request, result, limit, ask) or (
                    await self._request(trip, replace(request, max_redirects=limit))
                )
            if not request.refresh and self.policy.meaning_of(result) in self._opening:
                for permit in trip.permits:
                    permit.opened()
            if result.status in CLOSING:
                result = await with_closure(result, self.pacer, self.clock)
        except BaseException as error:  # noqa: BLE001 - a user's fetcher may raise any exception
            return fault_of_fetcher(error, request, self.publisher)
        return result

    async def aclose(self) -> None:
        """Close the wrapped fetcher."""
        await self.fetcher.aclose()

    async def _request(self, trip: _Trip, hop: FetchRequest) -> FetchResult:
        """Make one request in its turn, and repeat it once if the answer asks for a signature."""
        host, signature, is_limited = hop.origin.pacing_host, None, bool(hop.first_url) or hop.max_redirects > 0
        if self.signer is not None:
            signature = RequestSignature(self.signer, "GET", hop.url)
        is_again = False
        while True:
            floor_s = self.pacer.options_of.get(host, self.pacer.options).min_delay_s
            turn = TurnRequest(host, hop.origin.text, "", None, hop.url, floor_s)
            permit = await trip.pacer.start_fetch(turn)
            limit_s = max(0.0, self.total_timeout_s - trip.seconds) if is_limited else None
            try:
                # This comes before the wait for a place, because it may wait for the store.
                if (closed := await self._closed(trip, hop)) is not None:
                    return closed
                send = partial(self._send, trip, hop, permit, signature)
                result = await self.admission.run(hop.url, send, limit_s)
            finally:
                if permit not in trip.permits:
                    permit.give_back()
            if is_again or signature is None or not signature.is_repeated:
                return result
            is_again = is_limited = True

    async def _closed(self, trip: _Trip, hop: FetchRequest) -> FetchFault | None:
        host = hop.origin.pacing_host
        policy = self.policies.get(host)
        if policy is not None and policy.deny and not hop.first_url:  # it was set while this request waited
            return FetchFault(FaultKind.HOST_CLOSED, f"a policy denies all requests to {host}", hop.url)
        while (closed_until_wall := await trip.pacer.closed_until(host)) is not None:
            wait_s = closed_until_wall - self.clock.wall()
            if wait_s > _SOON_S:
                detail = f"no request is sent to {host} until it opens again"
                return FetchFault(FaultKind.HOST_CLOSED, detail, hop.url, retry_after_s=wait_s)
            await self.clock.sleep(max(wait_s, 0.001))
        return None

    async def _send(
        self,
        trip: _Trip,
        hop: FetchRequest,
        permit: LocalFetch,
        signature: RequestSignature | None,
        waited: bool,  # noqa: FBT001 - for Admission
    ) -> FetchResult:
        """Make one request, unless the host was closed while the request ``waited`` for its place.

        The permit of the request ends before another request to that host gets a permit.
        """
        if waited and (closed := await self._closed(trip, hop)) is not None:
            return closed
        started_mono = self.clock.monotonic()
        trip.permits.append(permit)
        last = hop.origin
        host = last.pacing_host
        status, headers = None, None
        try:
            result = await self.fetcher.fetch(hop if signature is None else signed(hop, signature))
            if result.final_url != hop.url:  # the fetcher has followed a redirect itself
                with suppress(InvalidURL):  # the redirect may lead to a URL without an origin
                    last = Origin.of(result.final_url)
            if signature is not None and is_challenge(result, signature):
                return result
            if isinstance(result, FetchResponse) and (
                result.status != HTTPStatus.SERVICE_UNAVAILABLE or _speaks_for_host(hop, result, last.pacing_host)
            ):
                status, headers = result.status, result.headers
        finally:
            trip.seconds += self.clock.monotonic() - started_mono
            if last.pacing_host == host:
                permit.end(status, headers)
            else:
                permit.end()
        if last.pacing_host != host:
            turn = TurnRequest(last.pacing_host, last.text, "", None, result.final_url)
            answered = await trip.pacer.start_fetch(turn, made=True)
            answered.end(status, headers)
            trip.permits.append(answered)
        return result


def _speaks_for_host(hop: FetchRequest, response: FetchResponse, host: str) -> bool:
    """Return whether a 503 may close its whole host, not only the origin of the robots.txt.

    A 503 without Retry-After from the host of the robots.txt closes only the origin (see ``outcome``), and the other
    ports of the host stay open. A 503 from another host, after a redirect, closes that host, because many origins may
    redirect to it.
    """
    return "retry-after" in response.headers or host != Origin.of(hop.first_url or hop.url).pacing_host
