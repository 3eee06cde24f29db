"""The cache of other well-known files, such as data.txt: fetched as politely as pages, and kept in memory.

The content of these files does not decide whether a site may be crawled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from politesse._cache.cache import FileCache
from politesse.errors import PolitesseError
from politesse.events import SiteFileFetched
from politesse.page.encoding import decoded
from politesse.page.html import is_html
from politesse.verdict import AccessResult, FileOutcome, Source, Verdict

if TYPE_CHECKING:
    from politesse._cache.cache import Flight
    from politesse._cache.outcome import Copy
    from politesse.origin import Origin
    from politesse.ports import FetchResult

_SNIFFED_BYTES: Final = 4_096


@dataclass(frozen=True, slots=True)
class SiteFile:
    """A file of a site, or the reason why there is none. The content is untrusted.

    Attributes:
        url: the URL of the file.
        outcome: the outcome of the fetch.
        body: the file, decoded from its content encoding; empty unless FOUND.
        truncated: whether the body was longer than the fetcher's limit, so that its last lines are missing.
        status: the HTTP status; after too many redirects, the status of the last redirect; None without an answer.
        final_url: the URL of the answer, after redirects.
        fault: the failure, as a phrase; else empty. If the outcome is FOUND, a non-empty ``fault`` is the reason why
            ``body`` is an older copy.
        age_s: seconds since the answer came, or was last confirmed by a 304.
        not_before: for RETRY, the Unix time before which the file is not fetched again; None if unknown.
        verdict: the verdict of the gate that denied the request; else None.
        content_type: the Content-Type header; empty unless FOUND.

    >>> SiteFile("https://example.com/data.txt", FileOutcome.FOUND, b"<!doctype html><title>404").is_web_page
    True
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
        """Whether the server sent a web page in place of the file, judged by media type or first characters."""
        start = decoded(self.body[:_SNIFFED_BYTES])[0].lstrip("\ufeff\0 \t\n\f\r")
        return start.startswith("<") or is_html(self.body, self.content_type)


class SiteFiles(FileCache):
    """Keeps files by their URL, in memory only; see FileCache.

    The fetcher fetches files as politely as pages, and is not closed with the cache. If the fetcher raises Disallowed,
    the cache keeps no copy. The publisher receives SiteFileFetched and ComponentFailed.
    """

    what = "a file of a site"
    component = "files"
    refusals: ClassVar[tuple[type[Exception], ...]] = (PolitesseError,)

    async def get(self, origin: Origin, path: str) -> SiteFile:
        """Return the file of ``origin`` at ``path``; fetch it if necessary.

        Near the end of its lifetime a copy is fetched again in the background.

        Raises:
            ClosedError: if the cache is closed, also if it is closed during the fetch.
            WrongEventLoop: if the file is being fetched in another event loop.
            PolitesseError: the fetcher refuses to fetch.
        """
        return self._file(await self.entry(origin.text + path, origin, path))

    def ask_ahead(self, origin: Origin, path: str) -> None:
        """Start to fetch a file that is unknown or due, and do not wait for it."""
        key = origin.text + path
        if not self._closed and self.valid(key) is None:
            self._flight(key, origin, path)

    def peek(self, origin: Origin, path: str, *, late_s: float = 0.0) -> SiteFile | None:
        """Return the file of ``origin`` at ``path``; None if the file must be fetched first.

        A file still counts for ``late_s`` seconds beyond its lifetime; a failure counts only during its lifetime.
        """
        copy = self.held(origin.text + path)
        if copy is None:
            return None
        now_mono, now_wall = self._clock.monotonic(), self._clock.wall()
        if not copy.holds(now_mono, now_wall):
            # The deadline is not extended by more than the age of the copy.
            late_s = 0.0 if copy.trouble is not None else min(late_s, copy.age_s(now_mono, now_wall))
            if not copy.holds(now_mono - late_s, now_wall - late_s):
                return None
        copy.set_back(now_mono, now_wall)
        copy.used = True
        return self._file(copy)

    def forget(self, origin: Origin) -> None:
        """Drop the files of ``origin``."""
        for key in [key for key in self.entries if key.startswith(f"{origin}/")]:
            self._drop(key)

    def _file(self, copy: Copy) -> SiteFile:
        source, outcome = copy.source, _OUTCOMES[copy.result]
        found = copy.answer if outcome is FileOutcome.FOUND else None
        return SiteFile(
            url=source.robots_url,
            outcome=outcome,
            body=b"" if found is None else copy.body or b"",
            truncated=found is not None and found.cut_bytes is not None,
            status=source.status,
            final_url=source.final_url,
            fault=source.fault,
            age_s=max(0.0, copy.age_s(self._clock.monotonic(), self._clock.wall())),
            not_before=source.not_before if outcome is FileOutcome.RETRY else None,
            content_type="" if found is None else found.content_type,
        )

    def _publish(self, flight: Flight, result: FetchResult, source: Source, elapsed_s: float) -> None:
        del flight, elapsed_s
        self._publisher.publish(
            SiteFileFetched(source.robots_url, result.status, source.fault, _OUTCOMES[source.result])
        )


_OUTCOMES: Final = {
    AccessResult.SUCCESSFUL: FileOutcome.FOUND,
    AccessResult.UNAVAILABLE: FileOutcome.UNKNOWN,
    AccessResult.UNREACHABLE: FileOutcome.RETRY,
    AccessResult.TOO_MANY_REQUESTS: FileOutcome.RETRY,
}
