"""Puts the sitemaps of a site into a queue, and queues the URLs of each file when the crawl has requested it.

Theory of operation. A sitemap file waits in the queue like any URL, with a SitemapMark in its trail, and the crawl
requests it like any URL: in a turn, with redirects, further attempts and the journal. Then SitemapReader reads the file
as a stream, and queues each entry: a URL as a page of depth 0, a file of an index as another sitemap file.

The files of a host wait behind its pages, and behind the file that is being read. So the URLs of two files of a host
are never queued together, unless the files list URLs of another host. ``maxsize`` does not limit these URLs, because
otherwise the crawl would wait for itself.

A file may list URLs at its own origin below its own folder, and an index may list files at its own origin. Two kinds of
files may list any URL and any file of an origin: the files that its robots.txt lists, and the files of such indexes
(sitemaps.org, "Sitemap file location", "Submitting Sitemaps via robots.txt"). If a robots.txt lists no sitemap, the
``/sitemap.xml`` of its origin counts as listed. After redirects, the folder and the origin of the first URL count. All
other entries are refused, counted and logged.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, Generic

from politesse._base.checks import wrong_type
from politesse._base.text import counted, printable, public_url, shortened
from politesse.errors import InvalidURL
from politesse.origin import Origin, StrOrURL, split, url_text
from politesse.queue._hosts import LOGGER, NO_TRAIL, SitemapMark, Trail
from politesse.queue._results import Item, PageFailed
from politesse.queue._sitemap_file import SitemapEntry, SitemapFile, latest_wall
from politesse.queue._web import normal_form, resolved_link

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import AsyncIterable, Callable, Iterable

    from politesse._gate.view import AgentView
    from politesse.queue._dispatch import Dispatcher, TimeSlice
    from politesse.queue._hosts import QueuedUrl
    from politesse.queue._web import Limits

_MISSING: Final = frozenset({404, 410})
_SUCCESSFUL: Final = range(200, 206)  # not 206 (Partial Content), because the rest of the file would be missing


async def put_sitemaps(
    gate: AgentView,
    dispatcher: Dispatcher[Item],
    url: StrOrURL,
    since: datetime | None,
    item: Item | None,
    priority: float,
) -> int:
    """Queue the sitemaps of a site, or one file; see ``PoliteQueue.put_sitemaps``."""
    given: object = since
    if given is not None and not (isinstance(given, datetime) and given.utcoffset() is not None):
        raise wrong_type("since", since, "a datetime with a zone, as datetime(2026, 11, 1, tzinfo=UTC)")
    origin, target = split(url)
    listed = await gate.sitemaps(origin)
    files = [url_text(url)] if target != "/" else listed.urls or [f"{origin}/sitemap.xml"]
    if target == "/" and not listed.known:
        LOGGER.warning("%s/robots.txt could not be read, so its sitemaps are unknown; trying /sitemap.xml", origin)
    if target == "/" and listed.rejected:
        line, value, problem = listed.rejected[0]
        many, place = counted(len(listed.rejected), "sitemap"), f"{origin}/robots.txt, line {line}"
        LOGGER.warning("refused %s of %s: %s %s", many, place, shortened(value), printable(problem))
    queued = 0
    for file in files:
        listed_by = origin.text if target == "/" or file in listed.urls else ""
        since_wall = None if since is None else since.timestamp()
        mark = SitemapMark(listed_by, since_wall=since_wall, is_guess=target == "/" and not listed.urls)
        queued += await dispatcher.put(file, item, priority, Trail(sitemap=mark))
        await asyncio.sleep(0)  # a robots.txt may list thousands of files
    return queued


@dataclass(slots=True, eq=False, repr=False)
class SitemapReader(Generic[Item]):
    """Reads one sitemap file of a crawl, and queues its URLs; the module says which URLs the file may list.

    Args:
        agent: the agent of the crawl.
        dispatcher: gets the URLs.
        limits: the limits of the crawl; they apply to URLs, not to files.
        admit: returns whether a URL is new, and marks it as seen.
        counts: the counts of the crawl.
        time_slice: the time that all files together may take in one round of the event loop.
        queued: the file.
        mark: its mark.
    """

    _agent: AgentView
    _dispatcher: Dispatcher[Item]
    _limits: Limits
    _admit: Callable[[str], bool]
    _counts: Counter[str]
    _time_slice: TimeSlice
    _queued: QueuedUrl[Item]
    _mark: SitemapMark
    _origin: Origin = field(init=False)
    _folder: str = field(init=False)  # the folder of the file, as a URL in normal form
    _refused: int = field(default=0, init=False)
    _first_refusal: str = field(default="", init=False)

    def __post_init__(self) -> None:
        asked = (*self._queued.trail.hops, self._queued.url)[0]
        self._origin = Origin.of(asked)
        path = normal_form(asked).partition("?")[0]
        self._folder = path[: path.rfind("/") + 1]

    async def read(self, status: int, body: AsyncIterable[bytes]) -> None:
        """Queue the URLs of the file.

        Raises:
            PageFailed: the file cannot be read, or only in part; the URLs of that part are queued.
            Exception: an error of the client, of ``seen``, or of the journal.
        """
        url = self._queued.url
        shown = printable(public_url(url))
        if self._mark.is_guess and status in _MISSING:
            LOGGER.info("%s: robots.txt lists no sitemap, and there is no such file", shown)
            return
        if status not in _SUCCESSFUL:
            raise PageFailed(url, status, f"is a sitemap file, and was answered with {status}")
        file = SitemapFile(is_in_index=self._mark.is_in_index)
        try:
            async for octets in body:
                await self._add_all(file.feed(octets), file)
                if file.fault:
                    break
            await self._add_all(file.feed(b"", is_end=True), file)
        finally:
            if self._refused:
                many = counted(self._refused, "URL")
                LOGGER.warning("%s: %s refused; the first, %s", shown, many, self._first_refusal)
        if file.fault:
            raise PageFailed(url, status, file.fault)

    async def _add_all(self, slices: Iterable[list[SitemapEntry]], file: SitemapFile) -> None:
        for entries in slices:
            await self._dispatcher.ready()  # this waits while the journal has too many unwritten changes
            for entry in (*entries, None):
                if entry is not None:
                    self._add(entry, is_file=file.is_index)
                if not self._time_slice.is_open():
                    await asyncio.sleep(0)

    def _add(self, entry: SitemapEntry, *, is_file: bool) -> None:
        """Queue the URL of an entry, unless it is invalid, refused, too old, left out by the limits, or seen."""
        counts, queued, mark = self._counts, self._queued, self._mark
        url = resolved_link(entry.url, entry.url)  # None for a relative URL
        try:
            origin = None if url is None else self._agent.checked_origin(url)
        except InvalidURL:
            origin = None
        if url is None or origin is None:
            counts["bad_links"] += 1
            self._refuse(entry.url, "is no http(s) URL")
        elif not self._permits(url, origin, is_file=is_file):
            counts["skipped"] += 1
            self._refuse(url, "is not below the folder of the file, or at another site")
        elif self._is_too_old(entry) or not (is_file or self._limits.follow(url, 0)):
            counts["skipped"] += 1
        elif self._admit(url):
            trail = Trail(sitemap=mark._replace(is_in_index=True, is_guess=False)) if is_file else NO_TRAIL
            self._dispatcher.add(origin, url, queued.item, queued.priority, trail)

    def _permits(self, url: str, origin: Origin, *, is_file: bool) -> bool:
        """Return whether the file may list a URL."""
        if origin.text == self._mark.listed_by:
            return True
        return origin == self._origin and (is_file or normal_form(url).startswith(self._folder))

    def _is_too_old(self, entry: SitemapEntry) -> bool:
        """Return whether an entry was surely last changed before ``since``."""
        since_wall = self._mark.since_wall
        return since_wall is not None and (wall := latest_wall(entry.date)) is not None and wall < since_wall

    def _refuse(self, url: str, problem: str) -> None:
        """Count a refused entry."""
        self._refused += 1
        self._first_refusal = self._first_refusal or f"{public_url(url)!r:.200}, {problem}"
