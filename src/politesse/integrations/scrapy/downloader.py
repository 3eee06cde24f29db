"""When a request may start: a downloader that takes a turn for each, and a queue that hands out what is ready.

Scrapy's slots count a delay from the start of a request, with jitter, and forget it after a minute; AutoThrottle and
the spider change it, and ``download_slot`` evades it. So the slots do not set the pace: whenever Scrapy releases a
request from its slot, the request takes its turn at its host immediately before it is sent, and a slot can only add to
the wait.

A request that waits in the downloader takes up one of ``CONCURRENT_REQUESTS`` places, and enough slow hosts would hold
up all others. So requests wait in the scheduler: its queue hands out one request per host, and none of a resting host
until the pacer reports that the host is ready. Requests that do not come from the scheduler, such as those of
``engine.download_async``, wait in the downloader.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakSet

from scrapy import Request, Spider, signals
from scrapy.core.downloader import Downloader, Slot
from scrapy.exceptions import IgnoreRequest
from scrapy.pqueues import DownloaderAwarePriorityQueue, DownloaderInterface, QueueProtocol

from politesse._gate.view import AgentView, agent_of
from politesse._text import printable
from politesse.errors import ClosedError, ConfigurationError, Disallowed, InvalidURL, TooFar
from politesse.integrations.scrapy.engine import CLOSING, count, patiently, wake
from politesse.integrations.scrapy.engine_fetcher import ROBOTS_TXT
from politesse.integrations.scrapy.gate import make_gate, max_wait_s
from politesse.integrations.scrapy.middleware import RobotsTxtMiddleware
from politesse.integrations.scrapy.page_reader import PAGE
from politesse.origin import Origin
from politesse.verdict import NotYet, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.internet.defer import Deferred

    from politesse._gate.gatekeeper import Gatekeeper
    from politesse._pacing.held import Turn

logger = logging.getLogger(__name__)

T = TypeVar("T")

_DONT_FILTER: Final = "politesse_dont_filter"


class PoliteDownloader(Downloader):
    """Scrapy's downloader, but every http(s) request takes a turn at its host; for the setting ``DOWNLOADER``.

    The pause before the next request to a host counts from the end of the previous one, and one request is sent at a
    time, whatever slot, delay, jitter or ``download_slot`` says; a 429 or 503 closes the host. A request's slot is its
    host.

    A request that would wait longer than ``POLITESSE_MAX_WAIT`` seconds is ignored (stat ``politesse/too_far``).

    Example::

        DOWNLOADER = "politesse.integrations.scrapy.PoliteDownloader"  # PolitesseAddon sets it
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self.handed_out: WeakSet[Request] = WeakSet()
        self._robots = next((one for one in self.middleware.middlewares if isinstance(one, RobotsTxtMiddleware)), None)
        self._max_wait_s = max_wait_s(self.settings)
        self._under_way: Counter[str] = Counter()
        self._resting: set[str] = set()
        self._deferred_mono: dict[str, float] = {}
        self._gate: Gatekeeper
        if self._robots is None:
            self._gate = make_gate(crawler)
            crawler.signals.connect(self._spider_closed, signals.spider_closed)
        else:
            self._gate = self._robots.gate
            self._robots.waits = self
        self._clock = agent_of(self._gate).clock

    def get_slot_key(self, request: Request) -> str:
        """Return the host as the pacer names it; a redirect still carries the slot of the previous host."""
        if ROBOTS_TXT not in request.meta and (origin := _origin(request)) is not None:
            return origin.pacing_host
        return super().get_slot_key(request)

    def fetch(self, request: Request, spider: Spider | None = None) -> Deferred[Response | Request]:  # noqa: ARG002 - Scrapy's signature
        """Pass ``request`` through the middlewares and send it."""
        key = self.get_slot_key(request)
        self._under_way[key] += 1
        fetched: Deferred[Response | Request] = super().fetch(request)
        return fetched.addBoth(self._left, key, request)

    def is_ready(self, key: str) -> bool:
        """Return whether a request of a slot may be handed out now."""
        return not self._under_way[key] and key not in self._resting

    def postpone(self, request: Request, verdict: Verdict) -> Request | None:
        """Make ``request`` wait in the scheduler, if it came from there and its host is not ready.

        Returns the request to schedule instead, or None to continue with ``request``. If a site has deferred its
        robots.txt, the request waits until it may be fetched again, for at most ``POLITESSE_MAX_WAIT`` in all.
        """
        origin = _origin(request)
        if request not in self.handed_out or origin is None:
            return None
        if verdict:
            self._deferred_mono.pop(str(origin), None)
            waits = self._rest(origin, request)
        else:
            waits = self._rest_until(origin, verdict)
        if not waits:
            return None
        later = request.replace(dont_filter=True)  # otherwise dropped as its own duplicate
        later.meta[_DONT_FILTER] = request.dont_filter
        return later

    async def _download(self, slot: Slot, request: Request) -> Response:
        origin = None if ROBOTS_TXT in request.meta else _origin(request)
        if origin is None:
            return await super()._download(slot, request)
        with await self._turn(request, origin) as turn:
            response = await super()._download(slot, request)
            headers = {name.decode("latin-1"): response.headers[name] for name in response.headers}
            turn.observe(response.status, {name: value.decode("latin-1") for name, value in headers.items() if value})
            return response

    async def _turn(self, request: Request, origin: Origin) -> Turn:
        view = self._view(request)
        if self._robots is not None and view is not None:
            self._robots.check_sent(request)  # again: a later middleware may have changed the request
        # A request that is not judged is still paced: robots.txt itself is always allowed.
        url = origin.robots_url if view is None else request.url
        agent = agent_of(view or self._gate)
        try:
            turn = agent.try_turn(url)  # the middleware has counted the verdict
            if isinstance(turn, NotYet):
                turn = await patiently(self.crawler, agent.take_turn(url, self._max_wait_s))
        except TooFar as error:
            why = f"No turn at {origin.pacing_host} within {self._max_wait_s:g} s: {error.not_yet!r}"
            logger.info("Ignoring %s: %s", printable(str(request)), why, extra={"spider": self.crawler.spider})
            count(self.crawler, "politesse/too_far")
            raise IgnoreRequest(why) from error
        except Disallowed as error:
            if error.verdict.reason is not Reason.TOO_SLOW:  # the agent has counted that, for the origin
                agent.counted(error.verdict)
            if self._robots is None:
                raise IgnoreRequest(str(error)) from error
            raise self._robots.forbidden(request, error.verdict) from error
        except ClosedError as error:
            raise IgnoreRequest(CLOSING) from error
        return turn

    def _left(self, result: T, key: str, request: Request) -> T:
        self._under_way[key] -= 1
        if not self._under_way[key]:
            del self._under_way[key]
            if ROBOTS_TXT not in request.meta and (origin := _origin(request)) is not None:
                self._rest(origin, request)
        return result

    def _view(self, request: Request) -> AgentView | None:
        return None if self._robots is None else self._robots.judge(request)

    def _rest(self, origin: Origin, request: Request) -> bool:
        """Let a host rest until it is ready; return False if it is ready now, or later than the longest wait."""
        key = origin.pacing_host
        if key in self._resting:
            return True
        agent = agent_of(self._view(request) or self._gate)
        try:
            turn = agent.try_turn(origin.robots_url)
        except (ClosedError, Disallowed):
            return False  # the next turn raises it
        if not isinstance(turn, NotYet):
            turn.give_back()
            return False
        if turn.not_before - self._clock.wall() > self._max_wait_s:
            return False
        self._resting.add(key)
        agent.when_ready(origin, partial(self._rested, key))
        return True

    def _rest_until(self, origin: Origin, verdict: Verdict) -> bool:
        """Let a host rest until its robots.txt may be fetched again; return False if it was deferred for too long."""
        clock = self._clock
        now_mono = clock.monotonic()
        wait_s = max(0.0, (verdict.not_before or 0.0) - clock.wall())
        since_mono = self._deferred_mono.setdefault(str(origin), now_mono)
        if now_mono + wait_s - since_mono > self._max_wait_s:
            return False
        self._resting.add(origin.pacing_host)
        clock.call_later(wait_s, partial(self._rested, origin.pacing_host))
        return True

    async def _spider_closed(self) -> None:
        await self._gate.aclose()

    def _rested(self, key: str) -> None:
        self._resting.discard(key)
        wake(self.crawler)


class PolitePriorityQueue(DownloaderAwarePriorityQueue):
    """Scrapy's queue by slots, but without the requests of hosts that are not ready.

    For the setting ``SCHEDULER_PRIORITY_QUEUE``, with PoliteDownloader.

    Raises:
        ConfigurationError: the setting ``DOWNLOADER`` is not a PoliteDownloader.

    Example::

        SCHEDULER_PRIORITY_QUEUE = "politesse.integrations.scrapy.PolitePriorityQueue"  # PolitesseAddon sets it
    """

    def __init__(
        self,
        crawler: Crawler,
        downstream_queue_cls: type[QueueProtocol],
        key: str,
        slot_startprios: dict[str, Iterable[int]] | None = None,
        *,
        start_queue_cls: type[QueueProtocol] | None = None,
    ) -> None:
        super().__init__(crawler, downstream_queue_cls, key, slot_startprios, start_queue_cls=start_queue_cls)
        downloader = crawler.engine.downloader
        if not isinstance(downloader, PoliteDownloader):
            raise ConfigurationError(
                f"SCHEDULER_PRIORITY_QUEUE: PolitePriorityQueue needs a PoliteDownloader, not {downloader!r}"
            )
        self._handed_out = downloader.handed_out
        self._downloader_interface = _ReadySlots(crawler, downloader)

    def push(self, request: Request) -> None:
        """Store ``request``, without the directives of a page whose meta it was given."""
        request.meta.pop(PAGE, None)  # not every queue on disk could store it
        super().push(request)

    def pop(self) -> Request | None:
        """Return the next request whose host is ready, or None."""
        request = super().pop()
        if request is not None:
            self._handed_out.add(request)
            # Restored: the target of a redirect must pass the filters for duplicates and for other sites.
            request.dont_filter = request.meta.pop(_DONT_FILTER, request.dont_filter)
        return request


class _ReadySlots(DownloaderInterface):
    def __init__(self, crawler: Crawler, downloader: PoliteDownloader) -> None:
        super().__init__(crawler)
        self._polite = downloader

    def stats(self, possible_slots: Iterable[str]) -> list[tuple[int, str]]:
        return super().stats(slot for slot in possible_slots if self._polite.is_ready(slot))


def _origin(request: Request) -> Origin | None:
    """Return the origin of ``request``; None if its URL is not http or https."""
    try:
        return Origin.of(request.url)
    except InvalidURL:
        return None
