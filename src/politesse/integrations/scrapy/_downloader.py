"""A downloader that takes a turn for each request before it starts.

Scrapy's slots do not ensure a pace: a slot counts the delay from the start of a request, with jitter, and forgets the
last request after a minute. AutoThrottle, the spider and ``download_slot`` change the delay, or evade it. So politesse
does not rely on the slots. When Scrapy releases a request from its slot, the request takes its turn at its host
immediately before it is sent. A slot can only lengthen the wait.

Each request that waits in the downloader counts towards ``CONCURRENT_REQUESTS``, so many slow hosts would delay all
other hosts. So requests wait in the scheduler. Its queue hands out one request per host, and no requests of sites that
wait (``_waits``). If a request of the scheduler gets no turn, or if the spider is being closed, the request goes back
to the scheduler, so that JOBDIR keeps it. Requests that bypass the scheduler, such as requests of
``engine.download_async``, wait in the downloader.

A scheduler without PolitePriorityQueue, such as the scheduler of scrapy-redis, hands out all its requests. All these
requests wait here, or in the middleware if robots.txt is unreachable. When the spider closes, these requests go back to
the scheduler, because only the scheduler knows whether another run follows.

In a fleet, a check whether a host has a turn now would reserve that turn in Redis. So the downloader makes no such
check. A request of the scheduler waits here for its turn, perhaps behind requests of other processes. After 30 seconds
without a turn, it goes back to the scheduler. Each host has at most one such request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest

from politesse._base.text import printable
from politesse._gate.turns import TurnWait, try_turn
from politesse._http.signing import RequestSignature
from politesse.errors import ClosedError, ConfigurationError, Disallowed, TooFar
from politesse.integrations.scrapy import _internals
from politesse.integrations.scrapy._middleware import RobotsTxtMiddleware
from politesse.integrations.scrapy._robots import ROBOTS_TXT, EngineFetcher, RobotsTxtFailed
from politesse.integrations.scrapy._settings import fleet_of, make_gate, seconds_of
from politesse.integrations.scrapy._waits import DEFERRING, CrawlTally, Waits, host_of, origin_of
from politesse.origin import Origin
from politesse.verdict import Bound, NotYet, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.python.failure import Failure

    from politesse._gate.turn import Turn
    from politesse._gate.view import AgentView
    from politesse.integrations.scrapy._queue import PolitePriorityQueue

logger = logging.getLogger(__name__)

_DONT_FILTER: Final = "politesse_dont_filter"
_LEAST_WAIT_S: Final = 0.1
_MOMENT_S: Final = 30.0  # in a fleet, a request of the scheduler waits at most this long for its turn


class PutBack(IgnoreRequest):
    """A request goes back to the scheduler, because its site is not ready."""


class ServedStale(OSError):
    """The request is not sent, and HttpCacheMiddleware answers with its stale response, as after an OSError."""


class PoliteDownloader(_internals.SteppedDownloader):
    """Scrapy's downloader with a turn for every request that has a host; for the setting ``DOWNLOADER``.

    Requests to a host never overlap. The pause before the next request counts from the end of the previous request; no
    slot, delay, jitter or ``download_slot`` can shorten it. A 429, 502, 503 or 504 closes the host. The slot of a
    request is its host. URLs of other schemes are paced as well: ``ftp://example.com/`` takes its turn at example.com.
    ``data:`` and ``file:`` have no host, and no delay. A request that does not come from the scheduler, and would wait
    longer than ``POLITESSE_MAX_WAIT`` seconds, is ignored (stat ``politesse/too_far``). PolitesseAddon sets
    ``DOWNLOADER = "politesse.integrations.scrapy.PoliteDownloader"``.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._max_wait_s = seconds_of("POLITESSE_MAX_WAIT", crawler.settings.get("POLITESSE_MAX_WAIT", 3600.0))
        name = "POLITESSE_MAX_UNREACHABLE"
        max_unreachable_s = seconds_of(name, crawler.settings.get(name, 300.0))
        super().__init__(crawler)
        self.queues: list[PolitePriorityQueue] = []  # each queue adds itself
        self._handed_out: WeakSet[Request] = WeakSet()
        self._last: WeakSet[Request] = WeakSet()  # requests that were handed out although their site was given up
        self._bounced: WeakSet[Request] = WeakSet()  # requests that were put back while the spider was closing
        self._under_way: Counter[str] = Counter()
        self._closing: asyncio.Future[None] | None = None
        directory = _internals.job_directory(crawler.settings)
        self._has_job_dir = directory is not None
        if directory is not None:
            _internals.discard_cut_state(directory)
        self._robots = self.find_middleware(RobotsTxtMiddleware)
        if self._robots is None:
            self._fetcher = EngineFetcher(crawler)
            self._gate = make_gate(crawler, self._fetcher)
        else:
            self._robots.downloader = self
            self._fetcher, self._gate = self._robots.fetcher, self._robots.gate
        self._clock = self._gate.clock
        self.tally: CrawlTally = CrawlTally(crawler)
        self.waits: Waits = Waits(self._clock, self._max_wait_s, max_unreachable_s, self.tally, self._wake)
        self._in_fleet = fleet_of(crawler.settings) is not None
        self._gate.subscribe(self.waits.note)
        crawler.signals.connect(self._spider_opened, signals.spider_opened)
        crawler.signals.connect(self._spider_closed, signals.spider_closed)

    def host_slot(self, request: Request) -> str | None:
        """Return the host as the pacer names it; the meta of a redirect still names the previous host."""
        origin = None if ROBOTS_TXT in request.meta else origin_of(request.url)
        return None if origin is None else origin.pacing_host

    def entered(self, request: Request, slot: str) -> None:
        """Record that ``request`` is under way."""
        # ``dont_filter`` is restored, because a redirect must pass the filters for duplicates and for other sites.
        request.dont_filter = request.meta.pop(_DONT_FILTER, request.dont_filter)
        self._under_way[slot] += 1

    async def send(
        self, request: Request, transmit: Callable[[], Awaitable[Response]], signature: RequestSignature | None = None
    ) -> Response:
        """Send ``request`` in its turn, with its signature."""
        origin = None if ROBOTS_TXT in request.meta else origin_of(request.url)
        if origin is None:
            return await transmit()
        signer = self._gate.state.signer
        signature = signature or RequestSignature(signer, request.method, request.url, request.headers)
        with await self._turn(request, origin) as turn:
            await self._fetcher.check_host(origin.host.strip("[]"))
            with signature.added_to(request.headers):
                response = await transmit()
            if not signature.is_asked(response.status, response.headers):
                self.waits.note_status(origin.pacing_host, response.status)
                turn.observe(response.status, response.headers)
                return response
        return await self.send(request, transmit, signature)

    def failed(self, failure: Failure, request: Request) -> Request | Failure:
        """If a request got no turn, return a copy to schedule again; otherwise the failure for its errback."""
        if isinstance(failure.value, PutBack):
            return self._put_back(request)
        if isinstance(failure.value, _internals.SpiderClosing) and (later := self.keep(request)) is not None:
            return later
        if isinstance(failure.value, RobotsTxtFailed):
            raise failure.value.as_in_scrapy()  # raising bypasses all middlewares; RetryMiddleware would retry
        return failure

    def left(self, request: Request, slot: str) -> None:
        """Wake the sleeping slots of a host when its last request has ended."""
        self._under_way[slot] -= 1
        if not self._under_way[slot]:
            del self._under_way[slot]
            if ROBOTS_TXT not in request.meta:
                if request not in self._last and (origin := origin_of(request.url)):
                    self._rest(origin, request, has_ended=True)
                self._wake(slot)

    @property
    def is_bypassed(self) -> bool:
        """Whether the scheduler hands out requests without a PolitePriorityQueue."""
        return not self.queues

    def is_ready(self, slot: str, *, is_last: bool) -> bool:
        """Return whether a request of a slot may be handed out now.

        With ``is_last``, a request may also be handed out if its site waits or is given up.
        """
        return not self._under_way[host_of(slot)] and (is_last or not self.waits.holds(slot))

    def hand_out(self, request: Request, *, is_last: bool) -> None:
        """Record that ``request`` comes from the scheduler; with ``is_last`` it never goes back to the scheduler."""
        (self._last if is_last else self._handed_out).add(request)

    def postpone(self, request: Request, verdict: Verdict) -> Request | None:
        """If ``request`` came from the scheduler and its site is not ready, return a copy to schedule, else None."""
        origin = origin_of(request.url)
        if request not in self._handed_out or origin is None:
            return None
        if not verdict:
            self.waits.wait_for_robots(origin, verdict)
        elif not self._rest(origin, request):
            return None
        return self._put_back(request)

    def keep(self, request: Request) -> Request | None:
        """If another run may follow, return a copy of ``request`` to schedule again, else None."""
        # A request of ``engine.download_async`` is not kept, because it would come back to this downloader at once.
        may_be_kept = self._has_job_dir if request in self._handed_out else self.is_bypassed
        if not may_be_kept or request in self._bounced:
            return None
        later = self._put_back(request)
        self._bounced.add(later)
        return later

    async def has_waited(self, request: Request, verdict: Verdict) -> bool:
        """Wait to judge ``request`` once more; return False if the scheduler keeps it, or its site is given up."""
        origin = origin_of(request.url)
        if not self.is_bypassed or origin is None:
            return False
        if str(origin) not in self.waits:
            self.waits.wait_for_robots(origin, verdict)
        if self.waits.given_up(str(origin)) or verdict.not_before is None:
            return False
        wait_s = max(_LEAST_WAIT_S, verdict.not_before - self._clock.wall())
        await _internals.patiently(self.crawler, self._clock.sleep(wait_s))
        return True

    def note_ignored(self, request: Request) -> None:
        """Count ``request`` if it ends because its site was given up."""
        origin = origin_of(request.url)
        if (self.is_bypassed or request in self._last) and origin is not None:
            self.tally.left(self.waits.given_up(str(origin)) or origin.pacing_host, 1, on_disk=False)

    def _put_back(self, request: Request) -> Request:
        self.tally.add("requests/deferred")
        later = request.replace(dont_filter=True)  # otherwise the filter for duplicates would drop it
        later.meta[_DONT_FILTER] = request.dont_filter
        return later

    async def _turn(self, request: Request, origin: Origin) -> Turn:
        view = self._view(request)
        if self._robots is not None and view is not None:
            self._robots.check_sent(request)  # judged again, because a later middleware may have changed the request
        # A request that is not judged is still paced: it takes a turn for the URL of robots.txt, which is always
        # allowed.
        url = origin.robots_url if view is None else request.url
        agent = view or self._gate
        host = origin.pacing_host
        given_up = self.waits.answer_of(host) if request in self._last else self.waits.fleet_lost
        if given_up is not None:
            raise self._too_far(request, origin, TooFar(host, given_up, self._max_wait_s))
        longest_s = self._max_wait_s
        if self._in_fleet and request in self._handed_out:
            longest_s = min(_MOMENT_S, max(1.0, longest_s))
        try:
            # counts=False, because the middleware has counted the verdict.
            return await _internals.patiently(self.crawler, TurnWait(agent, url, longest_s, counts=False).take())
        except TooFar as error:
            raise self._too_far(request, origin, error) from error
        except ConfigurationError as error:
            raise self._refused(error) from error
        except Disallowed as error:
            raise self._disallowed(request, agent, error.verdict) from error
        except ClosedError as error:
            raise IgnoreRequest(_internals.CLOSING) from error

    def _too_far(self, request: Request, origin: Origin, error: TooFar) -> IgnoreRequest:
        host, answer = origin.pacing_host, error.not_yet
        if answer.bound_by is Bound.FLEET and answer.not_before <= self._clock.wall():
            self.waits.note_fleet_away(str(answer))
        if request in self._handed_out:
            if self._in_fleet and host not in self.waits:
                self.waits.wait_until(host, answer, _LEAST_WAIT_S)
            if self._rest(origin, request):
                return PutBack(str(error))
        why = f"No turn at {host} within {self._max_wait_s:g} s: {answer}"
        logger.info("Ignoring %s: %s", printable(str(request)), why, extra={"spider": self.crawler.spider})
        self.tally.add("too_far")
        self.note_ignored(request)
        return IgnoreRequest(why)

    def _refused(self, error: ConfigurationError) -> _internals.SpiderClosing:
        """Close the spider, because the fleet cannot be used; return the exception for its requests."""
        if self._closing is None:
            logger.error("The spider is closed: POLITESSE_FLEET cannot be used: %s", printable(str(error)))
            self._closing = asyncio.ensure_future(_internals.close_spider(self.crawler, "politesse_fleet_refused"))
        return _internals.SpiderClosing(str(error))

    def _disallowed(self, request: Request, agent: AgentView, verdict: Verdict) -> IgnoreRequest:
        if verdict.reason is not Reason.TOO_SLOW:  # ``turn_request`` has already counted TOO_SLOW for the origin
            agent.counted(verdict)
        if self._robots is None:
            return IgnoreRequest(str(Disallowed(verdict)))
        if verdict.reason in DEFERRING and _internals.STALE in request.meta:
            raise ServedStale(str(verdict))
        if verdict.reason in DEFERRING and (self.is_bypassed or request in self._handed_out):
            self.waits.wait_for_robots(Origin.of(request.url), verdict)
            return PutBack(str(verdict))
        return self._robots.forbidden(request, verdict)

    def _view(self, request: Request) -> AgentView | None:
        return None if self._robots is None else self._robots.judge(request)

    def _rest(self, origin: Origin, request: Request, *, has_ended: bool = False) -> bool:
        """Let a host wait until the pacer has a turn; return False if the pacer may have a turn now.

        Args:
            origin: the origin of the request.
            request: the request, whose User-Agent names the agent.
            has_ended: whether the request has just ended. In a fleet, the method asks the pacer only if this is true.
        """
        host = origin.pacing_host
        if host in self.waits:
            return True
        if self._in_fleet and not has_ended:
            return False
        agent = self._view(request) or self._gate
        try:
            turn = try_turn(agent, origin.robots_url, agent.judged(origin.robots_url))
        except (ClosedError, ConfigurationError, Disallowed):
            return False  # the next turn raises this error
        if not isinstance(turn, NotYet):
            turn.give_back()
            return False
        if not self._in_fleet:
            self.waits.wait_for_turn(host, turn)
            agent.when_ready(origin, partial(self.waits.end, host))
        elif turn.not_before > self._clock.wall():
            self.waits.wait_until(host, turn)
        return True

    def _wake(self, site: str | None) -> None:
        for queue in self.queues:
            queue.ready.wake(site)
        _internals.wake(self.crawler)

    def _spider_opened(self) -> None:
        if self.is_bypassed:
            logger.warning(
                "The scheduler does not use PolitePriorityQueue: requests wait in the downloader, where slow or closed "
                "hosts may take up all %d places of CONCURRENT_REQUESTS and hold up the others",
                self.crawler.settings.getint("CONCURRENT_REQUESTS"),
            )

    async def _spider_closed(self) -> None:
        for queue in self.queues:
            queue.note_left()  # the scheduler closes only the queue on disk, not the queue in memory
        self.waits.close()
        self.tally.log_summary()
        if self._robots is None:
            await self._gate.aclose()
