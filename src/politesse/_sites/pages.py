"""Files that are fetched as pages are, permitted and paced hop by hop: data.txt; and the sitemaps of a robots.txt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from politesse._cache.fetching import fetch_guarded, follow
from politesse._cache.files import SiteFile, SiteFiles
from politesse._pacing.turns import Basis, Gate, Judging, Taking
from politesse._sites.data_txt import DATA_TXT, DataRecord, DataTxt
from politesse.errors import Disallowed, TurnHeld
from politesse.ports import FaultKind, Fetcher, FetchFault, FetchRequest, FetchResponse, FetchResult, Pacer
from politesse.robots.sitemaps import NO_SITEMAPS
from politesse.verdict import UNDECIDED, AccessResult, FileOutcome, Source, Verdict

if TYPE_CHECKING:
    from politesse._cache.admission import Admission
    from politesse._cache.entry import Entry
    from politesse._cache.reading import ReadingThreads
    from politesse._sites.data_txt import FieldNames
    from politesse.clock import Clock
    from politesse.events import Publisher
    from politesse.origin import Origin
    from politesse.robots import RejectedSitemap

# Larger files are read in threads: they would block the event loop for longer than some milliseconds.
_READ_IN_THREAD_BYTES: Final = 8 * 1024
_CHECK_IN_THREAD_BYTES: Final = 4 * 1024
_MAX_DETAIL: Final = 300  # characters of an exception that are quoted


@dataclass(frozen=True, slots=True)
class DataTxtAnswer:
    """The data.txt of a site, or the lack of one.

    Attributes:
        file: the file, or the lack of one.
        content: the parsed file; empty unless it was FOUND.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper
        >>> from politesse.testing import ManualClock, ScriptedFetcher
        >>> site = ScriptedFetcher({"https://example.com/data.txt": 404})
        >>> clock = ManualClock(autojump=True)
        >>> async def ask():
        ...     async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=site, clock=clock) as gate:
        ...         answer = await gate.datatxt("https://example.com")
        ...         print(answer.outcome, answer.status)
        >>> asyncio.run(ask())
        unknown 404
    """

    file: SiteFile
    content: DataTxt

    @property
    def outcome(self) -> FileOutcome:
        """Whether there is one. UNKNOWN does not say that the site has no datasets."""
        return self.file.outcome

    @property
    def status(self) -> int | None:
        """The HTTP status of the answer; None for none."""
        return self.file.status

    @property
    def records(self) -> tuple[DataRecord, ...]:
        """Its records, in the order of the file."""
        return self.content.records

    @property
    def text(self) -> str:
        """The file as people may read it, safe to print."""
        return self.content.text


@dataclass(frozen=True, slots=True)
class Sitemaps:
    """The sitemaps that a robots.txt lists. They may be on any host: ask about each before it is requested.

    Attributes:
        urls: absolute http(s) URLs as written, in the order of the file, each once.
        rejected: the first hundred of the lines that name no such URL.
        source: the copy of robots.txt that was read, or the lack of one; None if it was not needed.
        verdict: the verdict of a host policy that kept robots.txt from being fetched; else None.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper
        >>> from politesse.testing import ScriptedFetcher
        >>> site = ScriptedFetcher({"https://example.com": "Sitemap: https://example.com/sitemap.xml"})
        >>> async def ask():
        ...     async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=site) as gate:
        ...         return await gate.sitemaps("https://example.com")
        >>> asyncio.run(ask()).urls
        ('https://example.com/sitemap.xml',)
    """

    urls: tuple[str, ...] = ()
    rejected: tuple[RejectedSitemap, ...] = ()
    source: Source | None = None
    verdict: Verdict | None = None

    @property
    def known(self) -> bool:
        """Whether it is known what is listed: robots.txt could be read, or there is none. Else nothing is known."""
        return self.source is not None and self.source.result in {AccessResult.SUCCESSFUL, AccessResult.UNAVAILABLE}


class GateAndBasis(Gate, Judging, Basis, Protocol):
    """Answers whether a URL may be requested, and knows the pace of its site."""


async def read_data_txt(
    gate: GateAndBasis, files: SiteFiles, reading: ReadingThreads, origin: Origin, fields: FieldNames | None
) -> DataTxtAnswer:
    """Do what ``AgentView.datatxt`` says."""
    file = await get_file(gate, files, origin, DATA_TXT)
    if file.outcome is FileOutcome.FOUND and file.is_web_page:
        fault = "a web page was sent in its place"
        file = replace(file, outcome=FileOutcome.UNKNOWN, body=b"", truncated=False, content_type="", fault=fault)
    if len(file.body) > _READ_IN_THREAD_BYTES:
        return DataTxtAnswer(file, await reading.run(lambda: DataTxt.parse(file.body, fields=fields)))
    return DataTxtAnswer(file, DataTxt.parse(file.body, fields=fields))


async def read_sitemaps(entry: Entry, reading: ReadingThreads, agent: str) -> Sitemaps:
    """Return the sitemaps that the robots.txt of ``entry`` lists; the entry must answer ``agent``."""
    rules = entry.rules.get(agent)
    lines = NO_SITEMAPS if rules is None else rules.sitemap_lines
    if lines.weight_bytes > _CHECK_IN_THREAD_BYTES:
        urls, rejected = await reading.run(lines.check)
    else:
        urls, rejected = lines.check()
    return Sitemaps(urls, rejected, entry.source)


async def get_file(gate: GateAndBasis, files: SiteFiles, origin: Origin, path: str) -> SiteFile:
    """Return the file of ``origin`` at ``path`` as the agent of ``gate`` may see it.

    RFC 9309 2.2.2 exempts only /robots.txt itself: a file that ``gate`` denies is neither fetched nor returned from the
    cache.

    Raises:
        TurnHeld: if it has to be fetched, and this task holds the turn of the host for which the fetch would wait.
        ClosedError: if the gatekeeper is closed.
    """
    verdict = await gate.check(f"{origin}{path}")
    if not verdict.allowed:
        return _denied(verdict)
    held = gate.turn_in_the_way(origin.pacing_host)
    if held is not None and files.peek(origin, path) is None:
        raise TurnHeld(verdict.url, held_by=held.url)
    try:
        return await files.get(origin, path)
    except Disallowed as error:  # denied to the gatekeeper's own agent, which makes the request, or since the check
        return _denied(error.verdict)


def _denied(verdict: Verdict) -> SiteFile:
    undecided = verdict.reason in UNDECIDED
    return SiteFile(
        url=verdict.url,
        outcome=FileOutcome.RETRY if undecided else FileOutcome.DISALLOWED,
        fault=str(verdict),
        not_before=verdict.not_before if undecided else None,
        verdict=verdict,
    )


class PageFetcher:
    """A Fetcher that fetches files as pages: each hop of a redirect is checked, and waits for its turn at its host.

    ``fetch`` raises Disallowed if the first hop may not be requested; a later one that may not is a fault.

    Args:
        agent: the agent whose permission and pace count.
        fetcher: makes the requests, one for each hop; it is not closed here.
        pacer: grants the turns.
        clock: the clocks.
        publisher: receives ComponentFailed when the fetcher raises.
        admission: limits the requests under way; waiting for a turn does not count.
    """

    def __init__(
        self,
        agent: GateAndBasis,
        fetcher: Fetcher,
        pacer: Pacer,
        clock: Clock,
        *,
        publisher: Publisher,
        admission: Admission,
    ) -> None:
        self._agent = agent
        self._fetcher = fetcher
        self._pacer = pacer
        self._clock = clock
        self._publisher = publisher
        self._admission = admission

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Fetch once, redirects included."""

        async def fetch_hop(hop: FetchRequest) -> FetchResult:
            try:
                result = await self._request(hop)
            except Disallowed as error:
                if not hop.first_url:
                    raise
                detail = f"a redirect to what may not be requested: {error}"
                return FetchFault(FaultKind.REDIRECT_TARGET, detail[:_MAX_DETAIL], hop.url)
            if isinstance(result, FetchFault) and result.private:
                result = replace(result, private=None)  # no page leads to the private address of another host
            return result

        result = await follow(request, fetch_hop)
        if result is None:  # it must not follow redirects by itself: the gate has not permitted them
            result = FetchFault(
                FaultKind.REDIRECT_TARGET, "a redirect, and the fetcher does not say where", request.url
            )
        return result

    async def aclose(self) -> None:
        """Do nothing: the fetcher within is not owned."""

    async def _request(self, hop: FetchRequest) -> FetchResult:
        """Make one request in its turn."""
        with await Taking(self._agent, self._agent, hop.url, None).take() as turn:
            result = await self._admission.run(hop, lambda: fetch_guarded(self._fetcher, hop, self._publisher))
            if result.status is not None:
                turn.observe(result.status, result.headers if isinstance(result, FetchResponse) else None)
            return result
