"""When a request may start: a downloader that takes a turn for each, and knows which sites are waited for.

Scrapy's slots count a delay from the start of a request, with jitter, and forget it after a minute; AutoThrottle and
the spider change it, and ``download_slot`` evades it. So the slots do not set the pace: whenever Scrapy releases a
request from its slot, the request takes its turn at its host immediately before it is sent, and a slot can only add to
the wait.

A request that waits in the downloader takes up one of ``CONCURRENT_REQUESTS`` places, and enough slow hosts would hold
up all others. So requests wait in the scheduler: its queue hands out one request per host, and none of a site that
waits (closures.py). A request of the scheduler that finds no turn, or whose spider is being closed, is put back there,
so that JOBDIR keeps it. Requests that do not come from the scheduler, such as those of ``engine.download_async``, wait
in the downloader.

A scheduler without PolitePriorityQueue, such as that of scrapy-redis, hands out whatever it has: then all requests wait
here, those of a robots.txt that is unreachable in the middleware. When the spider is being closed they go back to the
scheduler, because only it knows whether there is another run.

In a fleet a turn is reserved in Redis, where it may wait behind those of other processes: a question whether there is
one now would reserve it. So none is asked there: a request of the scheduler waits for its turn in the downloader, and
goes back to the scheduler if that takes more than a moment. Each host has one request there at the most.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakSet

from scrapy import Request, Spider, signals
from scrapy.core.downloader import Downloader, Slot
from scrapy.exceptions import DontCloseSpider, IgnoreRequest
from scrapy.utils.job import job_dir
from scrapy.utils.misc import load_object
from scrapy.utils.python import global_object_name

from politesse._gate.view import AgentView, agent_of
from politesse._text import printable
from politesse.errors import ClosedError, ConfigurationError, Disallowed, TooFar
from politesse.integrations.scrapy.absence import FleetAbsence
from politesse.integrations.scrapy.closures import DEFERRING, Closures
from politesse.integrations.scrapy.engine import CLOSING, SpiderClosing, count, patiently, wake
from politesse.integrations.scrapy.engine_fetcher import ROBOTS_TXT
from politesse.integrations.scrapy.gate import errors_logged_in_one_line, make_gate, max_wait_s
from politesse.integrations.scrapy.http_cache import STALE
from politesse.integrations.scrapy.journal import discard_cut_state
from politesse.integrations.scrapy.middleware import RobotsTxtMiddleware
from politesse.integrations.scrapy.paced_as import origin_of
from politesse.integrations.scrapy.ready_slots import host_of
from politesse.integrations.scrapy.store import fleet_of
from politesse.integrations.scrapy.tally import CrawlTally
from politesse.origin import Origin
from politesse.verdict import Bound, NotYet, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.internet.defer import Deferred
    from twisted.python.failure import Failure

    from politesse._gate.agent import Agent
    from politesse._gate.gatekeeper import Gatekeeper
    from politesse._pacing.held import Turn

logger = logging.getLogger(__name__)

T = TypeVar("T")

_DONT_FILTER: Final = "politesse_dont_filter"
_SCHEDULING: Final = ("SCHEDULER", "SCHEDULER_PRIORITY_QUEUE")
_LEAST_WAIT_S: Final = 0.1
_MOMENT_S: Final = 30.0  # as long as a request may wait for its robots.txt


class PutBack(IgnoreRequest):
    """A request goes back to the scheduler: its site is not ready."""


class ServedStale(OSError):
    """A request is not sent, and HttpCacheMiddleware answers it with its stale response, as after an OSError."""


class PoliteDownloader(Downloader):
    """Scrapy's downloader, but every request takes a turn at its host, if it has one; for the setting ``DOWNLOADER``.

    The pause before the next request to a host counts from the end of the previous one, and one request is sent at a
    time, whatever slot, delay, jitter or ``download_slot`` says; a 429 or 503 closes the host. A request's slot is its
    host. URLs of other schemes are paced as well: ``ftp://example.com/`` takes its turn at example.com. Those of
    ``data:`` and ``file:`` have no host, and no delay.

    A request that does not come from the scheduler, and would wait longer than ``POLITESSE_MAX_WAIT`` seconds, is
    ignored (stat ``politesse/too_far``).

    Example::

        DOWNLOADER = "politesse.integrations.scrapy.PoliteDownloader"  # PolitesseAddon sets it
    """

    def __init__(self, crawler: Crawler) -> None:
        with errors_logged_in_one_line():
            self._max_wait_s = max_wait_s(crawler.settings)
        super().__init__(crawler)
        self.on_idle: Callable[[], bool] | None = None
        self.on_change: list[Callable[[str], None]] = []  # called with a site at which a request or a wait has ended
        self.on_closed: Callable[[], None] | None = None  # counts what is left in memory
        self._handed_out: WeakSet[Request] = WeakSet()
        self._last: WeakSet[Request] = WeakSet()  # handed out although their site was given up
        self._robots = next((one for one in self.middleware.middlewares if isinstance(one, RobotsTxtMiddleware)), None)
        self.is_bypassed = True  # until a PolitePriorityQueue is made
        self._bounced: WeakSet[Request] = WeakSet()  # put back while the spider was being closed
        self._under_way: Counter[str] = Counter()
        directory = job_dir(self.settings)
        self._has_job_dir = directory is not None
        self._is_refused = False
        if directory is not None:
            discard_cut_state(directory)
        self._gate: Gatekeeper = make_gate(crawler) if self._robots is None else self._robots.gate
        if self._robots is not None:
            self._robots.waits = self
        self._clock = agent_of(self._gate).clock
        self._tally = CrawlTally(crawler)
        self._closures = Closures(self._clock, self._max_wait_s, self._tally)
        self._in_fleet = fleet_of(crawler.settings) is not None
        self._absence = FleetAbsence(self._clock, self._max_wait_s, self._rested)
        self._gate.subscribe(self._tally.heard)
        self._gate.subscribe(self._absence.heard)
        crawler.signals.connect(self._spider_opened, signals.spider_opened)
        crawler.signals.connect(self._spider_idle, signals.spider_idle)
        crawler.signals.connect(self._spider_closed, signals.spider_closed)

    def get_slot_key(self, request: Request) -> str:
        """Return the host as the pacer names it; a redirect still carries the slot of the previous host."""
        if ROBOTS_TXT not in request.meta and (origin := origin_of(request)) is not None:
            return origin.pacing_host
        return super().get_slot_key(request)

    def fetch(self, request: Request, spider: Spider | None = None) -> Deferred[Response | Request]:  # noqa: ARG002 - Scrapy's signature
        """Pass ``request`` through the middlewares and send it."""
        # Restored: the target of a redirect must pass the filters for duplicates and for other sites.
        request.dont_filter = request.meta.pop(_DONT_FILTER, request.dont_filter)
        key = self.get_slot_key(request)
        self._under_way[key] += 1
        fetched: Deferred[Response | Request] = super().fetch(request)
        return fetched.addErrback(self._kept, request).addBoth(self._left, key, request)

    def is_ready(self, slot: str, *, is_last: bool = False) -> bool:
        """Return whether a request of a slot, an origin or not, may be handed out now.

        Args:
            slot: the slot.
            is_last: whether its requests are to be handed out although their site is given up.
        """
        host = host_of(slot)
        if self._under_way[host]:
            return False
        if is_last:
            return True
        return slot not in self._closures and host not in self._closures and not self._absence.holds_up(host)

    def is_given_up(self, slot: str) -> bool:
        """Return whether the spider does not stay open for the requests of a slot."""
        if self._absence.answer is not None:
            return True
        return self._closures.is_given_up(slot) or self._closures.is_given_up(host_of(slot))

    def hand_out(self, request: Request, *, is_last: bool) -> None:
        """Note that ``request`` comes from the scheduler; with ``is_last`` it is not waited for any more."""
        (self._last if is_last else self._handed_out).add(request)

    def note_left(self, slot: str, number: int, *, on_disk: bool) -> None:
        """Count requests of a site that was given up, which were still in the scheduler when the spider was closed."""
        site = slot if self._closures.is_given_up(slot) else host_of(slot)
        self._tally.left(site, number, on_disk=on_disk)

    def postpone(self, request: Request, verdict: Verdict) -> Request | None:
        """Make ``request`` wait in the scheduler, if it came from there and its site is not ready.

        Returns the request to schedule instead, or None to continue with ``request``.
        """
        origin = origin_of(request)
        if request not in self._handed_out or origin is None:
            return None
        if verdict:
            if not self._rest(origin, request):
                return None
        else:
            self._rest_for_robots(origin, verdict)
        return self._put_back(request)

    def keep(self, request: Request) -> Request | None:
        """Return the request to schedule instead of ``request`` if there may be another run for it, else None."""
        # What ``engine.download_async`` is returned comes here again at once, and must end.
        may_be_kept = self._has_job_dir if request in self._handed_out else self.is_bypassed
        if not may_be_kept or request in self._bounced:
            return None
        later = self._put_back(request)
        self._bounced.add(later)
        return later

    def wait_here_s(self, request: Request, verdict: Verdict) -> float | None:
        """Return after how many seconds to judge ``request`` again, if the scheduler would hand it out at once.

        None if the scheduler knows better, or if its site is given up.
        """
        origin = origin_of(request)
        if not self.is_bypassed or origin is None:
            return None
        if str(origin) not in self._closures:
            self._rest_for_robots(origin, verdict)
        if self._closures.is_given_up(str(origin)) or verdict.not_before is None:
            return None
        return max(_LEAST_WAIT_S, verdict.not_before - self._clock.wall())

    def ignored(self, request: Request) -> None:
        """Count ``request`` if it ends because its site was given up."""
        origin = origin_of(request)
        if (self.is_bypassed or request in self._last) and origin is not None:
            site = str(origin) if self._closures.is_given_up(str(origin)) else origin.pacing_host
            self._tally.left(site, 1, on_disk=False)

    def _put_back(self, request: Request) -> Request:
        self._tally.deferred()
        later = request.replace(dont_filter=True)  # otherwise dropped as its own duplicate
        later.meta[_DONT_FILTER] = request.dont_filter
        return later

    def _kept(self, failure: Failure, request: Request) -> Request | Failure:
        """Return the request to schedule instead of one that found no turn."""
        if isinstance(failure.value, PutBack):
            return self._put_back(request)
        if isinstance(failure.value, SpiderClosing) and (later := self.keep(request)) is not None:
            return later
        return failure

    def _get_slot(self, request: Request, spider: Spider | None = None) -> tuple[str, Slot]:  # noqa: ARG002 - Scrapy's signature
        key, slot = super()._get_slot(request)
        if not key:
            slot.delay = 0.0  # no host: there is nothing to be polite to
        return key, slot

    async def _download(self, slot: Slot, request: Request) -> Response:
        origin = None if ROBOTS_TXT in request.meta else origin_of(request)
        if origin is None:
            return await super()._download(slot, request)
        with await self._turn(request, origin) as turn:
            response = await super()._download(slot, request)
            headers = {name.decode("latin-1"): response.headers[name] for name in response.headers}
            self._closures.note_answer(origin.pacing_host, response.status)
            turn.observe(response.status, {name: value.decode("latin-1") for name, value in headers.items() if value})
            return response

    async def _turn(self, request: Request, origin: Origin) -> Turn:
        view = self._view(request)
        if self._robots is not None and view is not None:
            self._robots.check_sent(request)  # again: a later middleware may have changed the request
        # A request that is not judged is still paced: robots.txt itself is always allowed.
        url = origin.robots_url if view is None else request.url
        agent = agent_of(view or self._gate)
        given_up = self._absence.answer
        if given_up is None and request in self._last:
            given_up = self._closures.answer_of(origin.pacing_host)
        if given_up is not None:
            raise self._too_far(request, origin, TooFar(origin.pacing_host, given_up, self._max_wait_s))
        try:
            # The middleware has counted the verdict.
            turn = NotYet(self._clock.wall(), Bound.FLEET) if self._in_fleet else agent.try_turn(url)
            if isinstance(turn, NotYet):
                turn = await patiently(self.crawler, agent.take_turn(url, self._longest_wait_s(request)))
        except TooFar as error:
            raise self._too_far(request, origin, error) from error
        except ConfigurationError as error:
            raise self._refused(error) from error
        except Disallowed as error:
            raise self._disallowed(request, agent, error.verdict) from error
        except ClosedError as error:
            raise IgnoreRequest(CLOSING) from error
        return turn

    def _longest_wait_s(self, request: Request) -> float:
        """Return for how many seconds a request may wait for its turn here."""
        if self._in_fleet and request in self._handed_out:
            return min(_MOMENT_S, max(1.0, self._max_wait_s))
        return self._max_wait_s

    def _too_far(self, request: Request, origin: Origin, error: TooFar) -> IgnoreRequest:
        if error.not_yet.bound_by is Bound.FLEET and error.not_yet.not_before <= self._clock.wall():
            self._absence.note(str(error.not_yet))
        if request in self._handed_out:
            if self._in_fleet and origin.pacing_host not in self._closures:
                self._rest_until(origin.pacing_host, error.not_yet, _LEAST_WAIT_S)
            if self._rest(origin, request):
                return PutBack(str(error))
        why = f"No turn at {origin.pacing_host} within {self._max_wait_s:g} s: {error.not_yet}"
        logger.info("Ignoring %s: %s", printable(str(request)), why, extra={"spider": self.crawler.spider})
        count(self.crawler, "politesse/too_far")
        self.ignored(request)
        return IgnoreRequest(why)

    def _refused(self, error: ConfigurationError) -> SpiderClosing:
        """Close the spider, because the fleet cannot be used; return the exception for its requests."""
        if not self._is_refused:
            self._is_refused = True
            logger.error("The spider is closed: POLITESSE_FLEET cannot be used: %s", printable(str(error)))
            closing = self.crawler.engine.close_spider_async(reason="politesse_fleet_refused")
            self._closing = asyncio.ensure_future(closing)
        return SpiderClosing(str(error))

    def _disallowed(self, request: Request, agent: Agent, verdict: Verdict) -> IgnoreRequest:
        if verdict.reason is not Reason.TOO_SLOW:  # the agent has counted that, for the origin
            agent.counted(verdict)
        if self._robots is None:
            return IgnoreRequest(str(Disallowed(verdict)))
        if verdict.reason in DEFERRING and STALE in request.meta:
            raise ServedStale(str(verdict))
        if verdict.reason in DEFERRING and (self.is_bypassed or request in self._handed_out):
            self._rest_for_robots(Origin.of(request.url), verdict)
            return PutBack(str(verdict))
        return self._robots.forbidden(request, verdict)

    def _left(self, result: T, key: str, request: Request) -> T:
        self._under_way[key] -= 1
        if not self._under_way[key]:
            del self._under_way[key]
            if ROBOTS_TXT not in request.meta:
                if request not in self._last and (origin := origin_of(request)):
                    self._rest(origin, request, after_it=True)
                self._changed(key)
        return result

    def _view(self, request: Request) -> AgentView | None:
        return None if self._robots is None else self._robots.judge(request)

    def _rest(self, origin: Origin, request: Request, *, after_it: bool = False) -> bool:
        """Let a host wait until there is a turn; return False if there is one now, or that is not known.

        Args:
            origin: of the request.
            request: it names the agent.
            after_it: whether it has just ended. In a fleet only then is its pacer asked: it knows the interval.
        """
        host = origin.pacing_host
        if host in self._closures:
            return True
        if self._in_fleet and not after_it:
            return False
        agent = agent_of(self._view(request) or self._gate)
        try:
            turn = agent.try_turn(origin.robots_url)
        except (ClosedError, ConfigurationError, Disallowed):
            return False  # the next turn raises it
        if not isinstance(turn, NotYet):
            turn.give_back()
            return False
        if not self._in_fleet:
            self._closures.wait_for_turn(host, turn)
            agent.when_ready(origin, partial(self._rested, host))
        elif turn.not_before > self._clock.wall():
            self._rest_until(host, turn)
        return True

    def _rest_until(self, host: str, answer: NotYet, least_s: float = 0.0) -> None:
        """Let a host wait until the time that the pacer has named."""
        self._closures.wait_for_turn(host, answer)
        self._clock.call_later(max(least_s, answer.not_before - self._clock.wall()), partial(self._rested, host))

    def _rest_for_robots(self, origin: Origin, verdict: Verdict) -> None:
        """Let an origin wait until its robots.txt may be fetched again."""
        wait_s = self._closures.wait_for_robots(origin, verdict)
        self._clock.call_later(wait_s, partial(self._rested, str(origin)))

    def _rested(self, site: str) -> None:
        self._closures.end(site)
        self._changed(site)
        wake(self.crawler)

    def _spider_opened(self) -> None:
        if self.is_bypassed:
            logger.warning(
                "The scheduler does not use PolitePriorityQueue (SCHEDULER=%s, SCHEDULER_PRIORITY_QUEUE=%s): requests "
                "wait in the downloader, where slow or closed hosts may take up all %d places of CONCURRENT_REQUESTS "
                "and hold up the others",
                *(global_object_name(load_object(self.settings[name])) for name in _SCHEDULING),
                self.total_concurrency,
            )
            count(self.crawler, "politesse/scheduler_bypassed")

    def _changed(self, site: str) -> None:
        for changed in self.on_change:
            changed(site)

    def _spider_idle(self) -> None:
        if self.on_idle is not None and self.on_idle():
            wake(self.crawler)
            raise DontCloseSpider

    async def _spider_closed(self) -> None:
        if self.on_closed is not None:
            self.on_closed()
        self._closures.end_all()
        self._absence.close()
        self._tally.log_summary()
        if self._robots is None:
            await self._gate.aclose()
