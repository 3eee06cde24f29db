"""The other files that a site keeps at well-known paths, as data.txt: asked for once, kept while they hold.

They are got as politely as pages, and known about as robots.txt is: the table of outcomes says what an answer means and
for how long, and each file has one flight, shared by all who wait. Nothing that they say opens or closes a site.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from politesse._cache.outcome import Moment, advance, classify, elapsed_s, reckoned, standing
from politesse._cache.revalidation import revalidate
from politesse._cache.single_flight import Flight, Flights
from politesse._tasks import is_ended_from_outside
from politesse.clock import run_of
from politesse.errors import ClosedError, PolitesseError
from politesse.events import ComponentFailed, Event
from politesse.page.encoding import decoded
from politesse.page.html import is_html
from politesse.ports import FetchRequest, FetchResponse
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from politesse._cache.options import CacheOptions
    from politesse._cache.outcome import AccessPolicy, Record, Standing
    from politesse.clock import Clock
    from politesse.events import Publisher
    from politesse.origin import Origin
    from politesse.ports import Fetcher
    from politesse.verdict import Verdict

_KNOWN_BYTES: Final = 1_000
_MAX_TYPE: Final = 256  # characters of a media type
_SNIFFED_BYTES: Final = 4_096
_MAX_REDIRECTS: Final = 5  # as many as for robots.txt: RFC 9309 2.3.1.2


class FileOutcome(StrEnum):
    """What asking for a file of a site came to ("A Method for Web Data Discovery" 3.1)."""

    FOUND = "found"
    """2xx: there is a body."""
    UNKNOWN = "unknown"
    """404, any other 4xx but 429, too many redirects, or a web page in place of a data.txt: the site may have what the
    file would tell of all the same."""
    RETRY = "retry"
    """5xx, 429, a fault of the network, or no usable answer: it is asked for again, not before ``not_before``."""
    DISALLOWED = "disallowed"
    """The site's robots.txt or a host policy forbids the request, so it was not made."""


@dataclass(frozen=True, slots=True)
class SiteFile:
    """A file of a site, or the lack of it. What it says is untrusted.

    Attributes:
        url: what was asked for.
        outcome: what that came to.
        body: the file, decoded from its content encoding; empty unless FOUND.
        truncated: whether the body was longer than the fetcher's limit: then its last lines are missing.
        status: the HTTP status, of the last redirect where there were too many; None where there was no answer.
        final_url: where the answer came from, after redirects.
        fault: what went wrong, as a phrase; empty where nothing did. Of a file that was FOUND: why an older copy
            still serves.
        age_s: seconds since the answer was got, or last confirmed by a 304.
        not_before: of RETRY, the Unix time before which it is not asked for again, where that is known.
        verdict: the answer of the gate, where it has kept the request from being made; else None.
        content_type: the value of the header of that name; empty unless FOUND.
    """

    url: str
    outcome: FileOutcome
    body: bytes = b""
    truncated: bool = False
    status: int | None = None
    final_url: str = ""
    fault: str = ""
    age_s: float = 0.0
    not_before: float | None = None
    verdict: Verdict | None = None
    content_type: str = ""

    @property
    def is_web_page(self) -> bool:
        """Whether a web page was sent in its place, by its media type or its start, as by servers that have no 404."""
        start = decoded(self.body[:_SNIFFED_BYTES])[0].lstrip("\ufeff\0 \t\n\f\r")
        return start.startswith("<") or is_html(self.body, self.content_type)


@dataclass(frozen=True, slots=True)
class SiteFileFetched(Event):
    """A file of a site, not its robots.txt, was asked for.

    Attributes:
        url: which.
        status: of the answer, None where there was none.
        fault: what went wrong, as a phrase, or empty.
        outcome: what holds now.
    """

    url: str
    status: int | None
    fault: str
    outcome: FileOutcome


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known about a file."""

    record: Record
    policy: AccessPolicy
    truncated: bool
    content_type: str

    @property
    def weight_bytes(self) -> int:
        """About how much memory it takes."""
        copy = self.record.copy
        return _KNOWN_BYTES if copy is None else _KNOWN_BYTES + len(copy.body) + 2 * len(copy.final_url)


class SiteFiles:
    """Keeps files by their URL. Not thread-safe: it belongs to one event loop.

    Args:
        fetcher: asks, as politely as for a page; not closed with it. It may raise Disallowed instead of asking, and
            that is not kept.
        options: see CacheOptions.
        clock: both clocks.
        publisher: receives SiteFileFetched and ComponentFailed.
        jitter: returns 0 to 1, to spread retries.
        max_days: for how many days a file holds at most; 1 as for robots.txt, or up to 7.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        options: CacheOptions,
        clock: Clock,
        publisher: Publisher,
        jitter: Callable[[], float] = random.random,
        max_days: int = 7,
    ) -> None:
        self._fetcher = fetcher
        self._policy = options.file_policy(max_days)
        self._max_bytes = options.max_site_files_bytes
        self._clock = clock
        self._run = run_of(clock)
        self._publisher = publisher
        self._jitter = jitter
        self._known: OrderedDict[str, _Known] = OrderedDict()  # the least recently used first
        self._weight_bytes = 0
        self._flights: Flights[Flight[SiteFile]] = Flights()
        self._closed = False

    @property
    def in_flight(self) -> int:
        """How many files are being asked for."""
        return len(self._flights)

    @property
    def weight_bytes(self) -> int:
        """About how much memory the files take."""
        return self._weight_bytes

    async def get(self, origin: Origin, path: str) -> SiteFile:
        """Return what is known about the file of ``origin`` at ``path``, asking for it if need be.

        Near the end of its lifetime a copy is asked for again behind the answer. Raises what the fetcher raises
        instead of asking, ClosedError, WrongEventLoop.
        """
        if self._closed:
            raise ClosedError(f"{origin}{path} was asked for after the gatekeeper was closed")
        url = f"{origin}{path}"
        known = self._known.get(url)
        held = None if known is None else self._standing(url, known)
        flight = self._flights.get(url)
        if known is None or held is None:
            flight = flight or self._take_off(origin, path)
            return await flight.wait()
        if flight is None and held.at_wall >= held.refresh_wall:
            self._take_off(origin, path)
        self._known.move_to_end(url)
        return _site_file(url, known, held)

    def peek(self, origin: Origin, path: str, *, late_s: float = 0.0) -> SiteFile | None:
        """Return what is known now about the file of ``origin`` at ``path``; None where it has to be asked for.

        ``late_s`` is for how many seconds beyond its end a lifetime counts; what is to be retried is so at once.
        """
        url = f"{origin}{path}"
        known = self._known.get(url)
        if known is None:
            return None
        held = self._standing(url, known)
        if held is None and known.record.trouble is None:
            held = self._standing(url, known, late_s)
        if held is None:
            return None
        self._known.move_to_end(url)
        return _site_file(url, known, held)

    def forget(self, origin: Origin) -> None:
        """Drop what is known about the files of ``origin``."""
        for url in [url for url in self._known if url.startswith(f"{origin}/")]:
            self._weight_bytes -= self._known.pop(url).weight_bytes

    async def aclose(self) -> None:
        """End all flights; whoever waits for one gets ClosedError."""
        self._closed = True
        self._known.clear()
        self._weight_bytes = 0
        tasks = self._flights.close("the gatekeeper was closed while a file of a site was asked for")
        await asyncio.gather(*tasks, return_exceptions=True)

    def _standing(self, url: str, known: _Known, late_s: float = 0.0) -> Standing | None:
        now, record = self._now(), known.record
        if record.moment is not None:
            late_s = min(late_s, elapsed_s(record.moment, now))  # it is not judged as of before it was known
        return standing(reckoned(record, now), url, now.wall - late_s, known.policy)

    def _now(self) -> Moment:
        return Moment(self._run, self._clock.wall(), self._clock.monotonic())

    def _take_off(self, origin: Origin, path: str) -> Flight[SiteFile]:
        flight: Flight[SiteFile] = Flight()
        url = f"{origin}{path}"
        return self._flights.take_off(url, flight, self._fly(origin, path, flight), url)

    async def _fly(self, origin: Origin, path: str, flight: Flight[SiteFile]) -> None:
        url = f"{origin}{path}"
        task = asyncio.current_task()
        try:
            file = await self._ask(origin, path)
        except PolitesseError as error:  # nothing was to be asked
            self._flights.end(url, flight)
            flight.fail(error)
        except BaseException as error:
            if is_ended_from_outside(error, task):
                raise
            self._flights.end(url, flight)
            flight.land(SiteFile(url, FileOutcome.RETRY, fault=f"it could not be asked for: {error!r:.200}"))
            self._publisher.publish(ComponentFailed(origin, "files", error))
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise  # asyncio raises these out of the event loop: they stop the program
        else:
            self._flights.end(url, flight)
            flight.land(file)

    async def _ask(self, origin: Origin, path: str) -> SiteFile:
        url = f"{origin}{path}"
        before = self._known.get(url)
        record = None if before is None else before.record
        validators = None if record is None else record.validators
        result = await revalidate(self._fetcher.fetch, FetchRequest(origin, _MAX_REDIRECTS, validators, path))
        now = self._now()
        record = None if record is None else reckoned(record, now)
        policy = self._policy
        record = replace(advance(record, result, now.wall, policy, self._jitter()), moment=now)
        truncated, content_type = (False, "") if before is None else (before.truncated, before.content_type)
        if isinstance(result, FetchResponse) and classify(result, policy) is AccessResult.SUCCESSFUL:
            # else the copy at hand stays as it is
            truncated, content_type = result.truncated, result.headers.get("content-type", "")[:_MAX_TYPE]
        known = _Known(record, policy, truncated, content_type)
        held = standing(record, url, now.wall, policy)
        if held is None:
            raise AssertionError(f"{record} stands for nothing")
        self._keep(url, known)
        file = _site_file(url, known, held)
        self._publisher.publish(SiteFileFetched(url, result.status, file.fault, file.outcome))
        return file

    def _keep(self, url: str, known: _Known) -> None:
        """Put ``known`` in place of what was; let go of others, the least recently used first, if need be."""
        if self._closed:
            return
        before = self._known.pop(url, None)
        self._weight_bytes += known.weight_bytes - (0 if before is None else before.weight_bytes)
        self._known[url] = known
        while self._weight_bytes > self._max_bytes and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._weight_bytes -= oldest.weight_bytes


_OUTCOMES: Final = {
    AccessResult.SUCCESSFUL: FileOutcome.FOUND,
    AccessResult.UNAVAILABLE: FileOutcome.UNKNOWN,
    AccessResult.UNREACHABLE: FileOutcome.RETRY,
    AccessResult.TOO_MANY_REQUESTS: FileOutcome.RETRY,
}


def _site_file(url: str, known: _Known, held: Standing) -> SiteFile:
    source, copy = held.source, known.record.copy
    outcome = _OUTCOMES[source.result]
    found = outcome is FileOutcome.FOUND
    return SiteFile(
        url=url,
        outcome=outcome,
        body=copy.body if found and copy is not None else b"",
        truncated=found and known.truncated,
        status=source.status,
        final_url=source.final_url,
        fault=source.fault,
        age_s=max(0.0, held.at_wall - source.fetched_wall),
        not_before=source.not_before if outcome is FileOutcome.RETRY else None,
        content_type=known.content_type if found else "",
    )
