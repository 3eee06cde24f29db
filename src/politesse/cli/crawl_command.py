"""``politesse crawl``: follows the links of pages, and requests each page in a turn of its host."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import sys
import time
import warnings
from collections import Counter, deque
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated, Any, Final

import aiohttp
import typer
from typer.core import TyperCommand

from politesse._base import __version__
from politesse._base.text import counted, printable, public_url, shortened
from politesse._gate.gatekeeper import Gatekeeper
from politesse._gate.identity import Identity
from politesse.cli.console import (
    BROKEN_PIPE,
    STANDARD,
    OutputWriter,
    descriptor,
    errors,
    output,
    record_of,
    say,
    say_json,
    write_all,
)
from politesse.cli.progress import LONG_S, CrawlView, bar_with_notes, notes_of, rough
from politesse.cli.running import (
    DEFAULT_PREFIX,
    Config,
    FleetPrefix,
    FleetURL,
    GateOptions,
    StoreFile,
    checked_arguments,
    file_option,
    number_option,
    read_body,
    seconds_option,
)
from politesse.errors import ConfigurationError, PolitesseWarning, StoreError
from politesse.fetch import PublicResolver
from politesse.fetch._addresses import SystemResolver, is_public
from politesse.integrations.aiohttp import PoliteSession
from politesse.options import FetchOptions, PacingOptions
from politesse.origin import Origin
from politesse.page import followable_links, may_be_html
from politesse.page.html import MAX_BYTES
from politesse.queue import CrawlReport, PoliteQueue
from politesse.queue._journal import JOURNAL
from politesse.queue._results import MAX_LOSSES, CrawlCounts, finished_words
from politesse.queue._signals import gets_signals
from politesse.queue._web import Limits, normal_form
from politesse.stores._sqlite_file import SqliteFile
from politesse.watch import serve
from politesse.watch._app import DEFAULT_PORT

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncGenerator, Callable, Container, Generator, Iterable, Mapping, Sequence

    from aiohttp import ClientResponse
    from rich.console import Console

    from politesse.integrations.warc import WarcFile
    from politesse.queue import CrawlPage, CrawlProgress
    from politesse.status import HostStatus

    Shown = Callable[[CrawlProgress], None]

DEFAULT_MAX_PAGES: Final = 1_000
CRAWLER: Final = f"politesse/{__version__} (crawl)"

_MAX_ARCHIVED_BYTES: Final = 8 * 1024 * 1024
_ERRORS: Final = 400  # an answer with this status or above is an error page, whose links are not followed
_START: Final = ""  # the queue item of a start URL; a link's queue item is the host of the link, also after redirects
_SITEMAP: Final = "sitemap:"  # the queue item of a sitemap file and of its URLs; no host has this name
_NAMED: Final = "allow:"  # the queue item of a link to another host, if a pattern in allow names the host
_PRIVATE: Final = "private:"  # begins the queue items of a crawl that may request private addresses
_BATCH: Final = 100
_LAST_WRITE_S: Final = 1.0
_REFUSED: Final = 3  # the exit code if a site refuses the crawler
_MAX_NAMED: Final = 10  # the summary names at most this many losses
_MAX_HOST: Final = 40
_RECENT: Final = 10
_INTERRUPTED: Final = "interrupted"
_GIVEN: Final = "politesse.given"


class WatchableCommand(TyperCommand):
    """A command whose ``--watch`` needs no port, and that can say which options it was given.

    typer itself knows no option with a value that may be missing.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - the context of click
        """Add the port that is missing, and keep the options for ``given_options``."""
        given: list[str] = []
        for place, word in enumerate(args):
            given.append(word)
            follows = args[place + 1] if place + 1 < len(args) else ""
            if word == "--watch" and "--" not in given and not follows.isdecimal():
                given.append(str(DEFAULT_PORT))
        valued = {name for option in self.params if not getattr(option, "is_flag", True) for name in option.opts}
        ctx.meta[_GIVEN] = _options_of(given, valued)
        parsed: list[str] = super().parse_args(ctx, given)
        return parsed


def _options_of(words: list[str], valued: Container[str]) -> list[list[str]]:
    """Return the options among the words of a command line, each with its value; ``valued`` are those with a value."""
    options, rest = list[list[str]](), iter(words)
    for word in rest:
        if word == "--":
            break
        if word.startswith("-") and word != "-":
            options.append([word, next(rest, "")] if word in valued else [word])
    return options


def given_options(ctx: typer.Context, *but: str) -> list[str]:
    """Return the options of a command line as they were given, except those in ``but``; URLs lose their passwords."""
    options: list[list[str]] = ctx.meta[_GIVEN]
    kept = [option for option in options if option[0].partition("=")[0] not in but]
    return [public_url(word) if "://" in word else word for option in kept for word in option]


@asynccontextmanager
async def watched(gate: Gatekeeper, queue: PoliteQueue[Any], port: int | None, err: Console) -> AsyncGenerator[None]:
    """Serve the watch of a crawl during the block, unless ``port`` is None, and print its URL; raises OSError."""
    if port is None:
        yield
        return
    token = token_urlsafe()
    async with await serve(gate, queue, port=port, token=token) as server:
        say(err, f"watch this crawl at {server.url}#token={token}")
        yield


class RecordFile(OutputWriter):
    """A file of records. Each record is written before the crawl continues, so a killed process loses no record."""

    def add(self, octets: bytes) -> None:
        """Write octets; raises OSError."""
        write_all(self._fd, octets)


class CrawlRecords:
    """Writes and counts the records of ``queue.crawl``, and a record "left" for each remaining URL.

    Args:
        file: gets the records, or None. It is an attribute, too.
        watched: the URLs that ``denied`` may list.

    Attributes:
        counts: the records by outcome.
        denied: the URLs of ``watched`` that were disallowed, given up or refused.
        first_failure: the first URL that has failed, and why; empty if none has.
        recent: the last outcomes, the newest first, each as a word and a URL.
    """

    def __init__(self, file: OutputWriter | None, watched: Iterable[str] = ()) -> None:
        self.file = file
        self._watched = frozenset(watched)
        self._error: OSError | None = None  # the error of an earlier write to the archive
        self.counts: Counter[str] = Counter()
        self.denied: list[str] = []
        self.first_failure: str = ""
        self.recent: deque[tuple[str, str]] = deque(maxlen=_RECENT)

    async def add_to(self, archive: WarcFile, response: ClientResponse, body: bytes, *, truncated: bool) -> None:
        """Write a page to the archive. An OSError ends the crawl, like a record that cannot be written."""
        try:
            await archive.add(response, body, truncated=truncated)
        except OSError as error:
            self._error = error
            raise

    def add(self, record: dict[str, Any]) -> None:
        """Write and count a record; raises OSError, including an earlier error of the archive."""
        if self._error is not None:
            raise self._error
        if self.file is not None:
            self.file.add(json.dumps(record).encode() + b"\n")
        url, outcome = record["url"], record["outcome"]
        if outcome == "failed":
            self.first_failure = self.first_failure or f"{printable(url):.200} {record['error']}"
        if "reason" in record and url in self._watched:
            self.denied.append(url)
        self.counts[outcome] += 1
        word = record["status"] if outcome in {"page", "redirect"} else outcome.replace("-", " ")
        self.recent.appendleft((str(word), url))


def archive_of(path: Path | None) -> AbstractAsyncContextManager[WarcFile | None]:
    """Return a context manager that yields the new archive of the pages, or None without a path.

    Raises:
        ConfigurationError: the file exists.
        ImportError: the extra ``warc`` is missing.
        OSError: the file cannot be created.
    """
    if path is None:
        return nullcontext()
    from politesse.integrations.warc import WarcFile  # noqa: PLC0415 - needs an extra

    return WarcFile(path)


@contextmanager
def opened(path: Path | None, *, append: bool = False) -> Generator[OutputWriter | None, None, None]:
    """Open the file of the records, or standard output for ``-``; empty the file unless ``append``. Raises OSError."""
    if path is None:
        yield None
    elif str(path) == STANDARD:
        with closing(OutputWriter(descriptor(sys.stdout))) as writer:
            yield writer
    else:
        with path.open("ab" if append else "wb", buffering=0) as file:
            yield RecordFile(file.fileno())


@dataclass(slots=True)
class CrawlPlan:
    """The arguments and the options of the command; the texts of the help describe them.

    Attributes:
        options: the options of the gate.
        starts: the URLs to start from, each once.

    Raises:
        BadParameter: one of the URLs cannot be crawled, the User-Agent cannot be sent, a pattern is invalid, or options
            exclude each other.
    """

    urls: Annotated[
        list[str] | None, typer.Argument(metavar="URL", help="Absolute http or https URLs to start from.")
    ] = None
    agent: Annotated[
        str,
        typer.Option(
            metavar="UA",
            help="The User-Agent of your crawler: it is sent with every request, and its product token selects the "
            "rules. Name a way to reach you, as in 'ExampleBot/1.0 (+https://example.com/bot)'.",
        ),
    ] = CRAWLER
    timeout_s: Annotated[float, seconds_option("For one page, and for one robots.txt.", "--timeout")] = 30.0
    max_pages: Annotated[
        int | None,
        number_option(
            f"Stop after N pages.  [default: no limit; {DEFAULT_MAX_PAGES:,} with --any-host]", show_default=False
        ),
    ] = None
    workers: Annotated[int, number_option("Request N hosts at once.", max=1_000)] = 20
    out: Annotated[Path | None, file_option("Write one JSON object per URL here; - for stdout.", allow_dash=True)] = (
        None
    )
    journal: Annotated[
        Path | None,
        file_option("Keep the URLs in this file: the same command continues a crawl that was stopped or killed."),
    ] = None
    resume: Annotated[
        Path | None, file_option("Go on with the crawl of this journal; URLs are not needed. Repeat the other options.")
    ] = None
    warc: Annotated[
        Path | None, file_option("Keep the pages in this new WARC file, compressed if it ends with .gz.")
    ] = None
    depth: Annotated[
        int | None,
        number_option(
            "Follow at most N links from a start URL to a page.  [default: no limit]", least=0, show_default=False
        ),
    ] = None
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Follow only links and redirects to this host (example.com), to a domain with all its hosts "
            "(.example.com), or to a path as in robots.txt (/docs/*.html$, example.com/docs/). May be repeated: one of "
            "the patterns must match.",
        ),
    ] = None
    deny: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Follow no links that match this pattern. May be repeated."),
    ] = None
    max_per_host: Annotated[int | None, number_option("Request N pages of each host at most.")] = None
    time_s: Annotated[float | None, seconds_option("Begin no more requests after this time.", "--time")] = None
    min_delay: Annotated[
        float,
        seconds_option(
            "Pause between two requests to a host at least this long; longer if its robots.txt or its answers require "
            "it.",
            least=0.0,
        ),
    ] = 1.0
    store: StoreFile = None
    fleet: FleetURL = None
    fleet_prefix: FleetPrefix = DEFAULT_PREFIX
    same_host: Annotated[
        bool,
        typer.Option(
            "--same-host/--any-host",
            help="Follow only links to the hosts of the URLs, to the hosts that the URLs redirect to, and to the "
            "hosts that --allow names; or follow links to any host. Redirects are followed to any host, unless --allow "
            "or --deny forbids it.",
        ),
    ] = True
    allow_private: Annotated[
        bool,
        typer.Option(
            "--allow-private",
            help="Request private addresses, too, such as those of your own network. Without this option they are "
            "requested only if the host of one of the URLs has a private address, or if the crawl that goes on was "
            "permitted to request them.",
        ),
    ] = False
    sitemaps: Annotated[
        list[str] | None,
        typer.Option(
            "--sitemaps",
            metavar="URL",
            help="Start from the pages in the sitemaps of this site, too: the sitemaps that its robots.txt lists, or "
            "/sitemap.xml. A URL with a path is a sitemap file. May be given several times.",
        ),
    ] = None
    ledger: Annotated[Path | None, file_option("Record each decision and each request in this ledger.")] = None
    config: Config = None
    watch: Annotated[
        int | None,
        typer.Option(
            "--watch",
            metavar="[PORT]",
            min=0,
            max=65_535,
            help="Show the hosts of the crawl on a page at this port of this machine, and steer the crawl from there. "
            f"The command prints the URL of the page, with a secret token.  [default port: {DEFAULT_PORT}]",
            show_default=False,
        ),
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as one JSON object instead, with the keys named above.")
    ] = False
    options: GateOptions = field(init=False)
    starts: list[str] = field(init=False)

    @property
    def origins(self) -> set[Origin]:
        """The origins of all URLs to start from."""
        return {Origin.of(url) for url in (*(self.urls or ()), *(self.sitemaps or ()))}

    @property
    def to_output(self) -> bool:
        """Whether the records go to standard output."""
        return self.out is not None and str(self.out) == STANDARD

    def __post_init__(self) -> None:
        fleet = self.fleet, self.fleet_prefix
        self.options = GateOptions(self.agent, self.timeout_s, self.store, *fleet, self.config)
        with checked_arguments():
            if self.as_json and self.to_output:
                raise ConfigurationError("--json and --out -: both print to standard output; give --out a file")
            if self.journal is not None and self.resume is not None:
                raise ConfigurationError("--journal and --resume name the same file: give one of them")
            if self.resume is not None and not self.resume.exists():
                raise ConfigurationError(f"--resume {self.resume}: there is no such file; --journal begins one")
            if not (self.urls or self.sitemaps or self.resume):
                raise ConfigurationError(
                    "Missing argument URL: give one, or --sitemaps, or --resume with the journal of an earlier crawl"
                )
            self._check_files()
            self.journal = self.journal or self.resume
            _ = self.origins  # checks the URLs
            Limits(self.depth, self.allow, self.deny or ())  # checks the patterns
            self.starts = list({normal_form(url): url for url in reversed(self.urls or ())}.values())[::-1]
            with warnings.catch_warnings(action="ignore", category=PolitesseWarning):  # as all commands do
                Identity.of(self.agent, self.options.token)
        if self.max_pages is None and not self.same_host:
            self.max_pages = DEFAULT_MAX_PAGES  # otherwise the crawl could follow links through the whole web

    def _check_files(self) -> None:
        """Raise ConfigurationError if two options name one file; only a journal and a store may share a file."""
        out = None if self.to_output else self.out
        journals = {"--journal": self.journal, "--resume": self.resume, "--store": self.store}
        used: dict[str, str] = {}
        for name, path in (journals | {"--ledger": self.ledger, "--warc": self.warc, "--out": out}).items():
            if path is None:
                continue
            other = used.setdefault(os.path.realpath(path), name)
            if name not in {other, "--store"}:
                raise ConfigurationError(f"{other} and {name} name the same file, {path}: give each its own file")

    def gate(self, fetch: FetchOptions) -> Gatekeeper:
        """Return a gate that sends the User-Agent."""
        options, pace = self.options, self.options.settings.get("pacing")
        floor_s = self.min_delay
        pacing = PacingOptions(min_delay_s=floor_s) if pace is None else replace(pace, min_delay_s=floor_s)
        given = options.arguments(user_agent=self.agent, fetch=fetch, pacing=pacing, ledger=self.ledger)
        if self.agent != options.settings["user_agent"]:
            given.pop("token", None)  # the token of another crawler
        with warnings.catch_warnings(action="ignore", category=PolitesseWarning):
            return Gatekeeper(**given)

    async def denies_private(self) -> bool:
        """Return whether private addresses are refused: true unless an option, a start URL or the journal permits them.

        The hosts of the journal's URLs permit nothing, because pages may have named them.

        Raises:
            StoreError: the journal cannot be read.
        """
        if self.allow_private:
            return False
        resolver = SystemResolver()
        for origin in self.origins:
            with suppress(OSError):  # a name without an address does not permit private addresses
                addresses = await resolver.resolve(origin.host.strip("[]"), origin.port)
                if not all(is_public(ip_address(address.partition("%")[0])) for address in addresses):
                    return False
        return self.journal is None or not await _permits_private(self.journal)


async def _permits_private(journal: Path) -> bool:
    """Return whether URLs are left of a crawl that was permitted to request private addresses; raises StoreError."""
    file = SqliteFile(journal, [JOURNAL])
    try:
        return await file.read(_has_private, None)
    finally:
        await file.aclose()


def _has_private(connection: sqlite3.Connection, _: None) -> bool:
    items = f'"{_PRIVATE}*'  # the column has JSON
    query = "SELECT 1 FROM queued WHERE attempt AND item GLOB ?"  # a URL that has failed has the attempt 0
    return connection.execute(query, [items]).fetchone() is not None


def _kind(item: object) -> str:
    return str(item).removeprefix(_PRIVATE)


async def crawl(ctx: typer.Context, plan: CrawlPlan) -> int:
    """Crawl a site: follow the links of each page, and request each URL once, in its turn, if robots.txt allows it.

    Links are read in the first 512 KiB of an HTML page; links and pages that say nofollow are respected. In a terminal
    a table shows the progress. After Ctrl-C the crawl still finishes the pages that are under way, and writes its
    records and its summary; a second Ctrl-C ends the program at once.

    Exit code: 0 if all URLs, or --max-pages pages, are done, or --time is over. 1 if a URL failed or was given up, if a
    URL on the command line is disallowed, or if a watcher has stopped the crawl. (A URL is given up if its robots.txt
    is unreachable, or if its site makes the crawl wait too long.) 3 if a site refuses the crawler. 2 if an option is
    invalid or a file cannot be written. 130 after Ctrl-C, 143 after SIGTERM.

    With --out: url and outcome; page: status, content_type, bytes, truncated, hops, attempt, depth, started, request_s,
    elapsed_s, links, queued; redirect: status, location, started, request_s, elapsed_s; sitemap: status, started,
    request_s, elapsed_s; failed: error, status, hops, attempt, depth, started, request_s, elapsed_s; disallowed,
    given-up, refused: reason, rule {line, field, value}, robots_url, note; left: no other keys. request_s lasts until
    the answer was read, elapsed_s until the URL was done. With a journal, the remaining URLs (outcome left) are not
    recorded, and a continued crawl appends to the file of --out. --warc keeps the first 8 MiB of each page.

    The summary names the sites whose URLs were given up, or are left while the site is closed. With --json: pages,
    failed, redirects, disallowed, given_up, sitemaps, left, lost, losses [{host, left, reason, detail, since}], ending,
    notes.
    """
    err = errors()
    goes_on = plan.journal is not None and plan.journal.exists()
    with opened(plan.out, append=goes_on) as file, notes_of("politesse.queue", console=err, level=logging.WARNING):
        records = CrawlRecords(file, plan.starts)
        given = given_options(ctx, "--journal", "--resume", "--sitemaps", "--max-pages", "--time")
        run = CrawlRun(plan, err, records, given)
        code = 0
        try:
            code = await run.crawl()
        except asyncio.CancelledError:
            run.ending = _INTERRUPTED
            with suppress(OSError):
                await run.record_left()
            raise
        except BrokenPipeError:
            code, run.ending = BROKEN_PIPE, "stopped, because the output was closed"
        except (OSError, StoreError, ConfigurationError) as error:
            code, run.ending = 2, f"stopped by an error: {printable(str(error))}"
        finally:
            if plan.as_json:
                say_json(output(), run.report())
            else:
                say(err, run.summary())
        return code


class CrawlRun:
    """One crawl at the command line.

    Args:
        plan: the URLs and the options.
        err: shows the progress.
        records: gets a record of each URL.
        given: the options of the command line with which the crawl of a journal goes on.

    Attributes:
        ending: why the crawl has ended before all URLs were done; else empty.
    """

    def __init__(self, plan: CrawlPlan, err: Console, records: CrawlRecords, given: Sequence[str]) -> None:
        self._plan = plan
        self._err = err
        self._records = records
        self._given = given
        self._hosts = {origin.host for origin in plan.origins}
        self._named = Limits(allow=[pattern for pattern in plan.allow or () if not pattern.startswith("/")])
        self._left = list(plan.starts)  # the URLs without a record
        self._left_hosts = len({origin.pacing_host for origin in plan.origins})
        self._slowest = ""  # a sentence about the host whose remaining URLs take longest
        self._started_mono = time.monotonic()
        self._denies_private = True
        self._prefix = ""  # begins each queue item
        self._archive: WarcFile | None = None
        self._queue: PoliteQueue[str] | None = None
        self._report = CrawlReport()
        self.ending: str = ""

    async def crawl(self) -> int:
        """Crawl to the end, and return the exit code; raises OSError if a record cannot be written."""
        plan = self._plan
        fetch, resolver = plan.options.fetch_options(), None
        # The addresses behind a proxy cannot be checked.
        self._denies_private = fetch.proxy is None and await plan.denies_private()
        if self._denies_private:
            fetch, resolver = replace(fetch, private_addresses="deny"), PublicResolver()
        elif fetch.proxy is None:
            self._prefix = _PRIVATE
        async with plan.gate(fetch) as gate:
            self._queue = queue = PoliteQueue(gate, journal=plan.journal)
            # One connection for each worker, and no cookies, so that each request is like the first request of a new
            # visitor.
            session = PoliteSession(
                gate,
                timeout=aiohttp.ClientTimeout(total=plan.options.timeout_s),
                connector=aiohttp.TCPConnector(limit=plan.workers, resolver=resolver),
                cookie_jar=aiohttp.DummyCookieJar(),
                proxy=fetch.proxy,
            )
            async with session as web, queue, archive_of(plan.warc) as self._archive:
                try:
                    for url in plan.starts:
                        await queue.put(url, item=self._prefix + _START)
                    for url in plan.sitemaps or ():
                        await queue.put_sitemaps(url, item=self._prefix + _SITEMAP)
                    self._add_hosts(queue)
                    self._report = await self._crawl_queue(gate, queue, web)
                finally:
                    self._left = [url for url, *_ in queue.left()]
                    self._note_hosts(queue.sizes(), gate.hosts())
        endings = {
            "": f"stopped at --max-pages {plan.max_pages}",
            "max_time_s": f"stopped at --time {plan.time_s or 0:g}",
        }
        if self._report.stopped_by.startswith("SIG"):
            self.ending = _INTERRUPTED
        elif self._left:
            self.ending = endings.get(self._report.stopped_by, "stopped")
        await self.record_left()
        counts, is_stopped = self._records.counts, self._report.stopped_by == "stop"
        if counts["refused"]:
            return _REFUSED
        return int(bool(counts["failed"] or counts["given-up"] or self._records.denied or is_stopped))

    async def _crawl_queue(self, gate: Gatekeeper, queue: PoliteQueue[str], web: PoliteSession) -> CrawlReport:
        """Crawl the pages of the queue within the plan's limits."""
        plan = self._plan
        async with watched(gate, queue, plan.watch, self._err), self._shown(gate, queue) as show:
            return await queue.crawl(
                web,
                self._handle,
                workers=plan.workers,
                max_pages=plan.max_pages,
                depth=plan.depth,
                allow=plan.allow,
                deny=plan.deny or (),
                max_pages_per_host=plan.max_per_host,
                max_time_s=plan.time_s,
                out=self._records.add,
                on_progress=show,
                stop_on_signals=gets_signals(),
            )

    def _add_hosts(self, queue: PoliteQueue[str]) -> None:
        """Add the hosts of links that an earlier run followed, and the hosts to which start URLs were redirected."""
        for url, item, _ in queue.left():
            host = Origin.of(url).host
            if _kind(item) in {_START, host}:
                self._hosts.add(host)

    def _note_hosts(self, sizes: Mapping[str, int], hosts: Mapping[str, HostStatus]) -> None:
        """Store two facts for the summary: the number of the remaining hosts, and the host that takes longest."""
        self._left_hosts = len(sizes)
        needs_s = {host: size * hosts[host].interval_s for host, size in sizes.items() if host in hosts}
        slowest = max(needs_s, key=needs_s.__getitem__, default="")
        if slowest and needs_s[slowest] >= LONG_S:
            pace = f"one each {hosts[slowest].interval_s:g} s, by {hosts[slowest].bound_by}"
            self._slowest = f"{slowest} needs {rough(needs_s[slowest])} more ({counted(sizes[slowest], 'URL')}, {pace})"

    async def record_left(self) -> None:
        """Record the remaining URLs once, unless a journal keeps them; raises OSError."""
        while self._left and self._plan.journal is None:
            self._records.add({"url": self._left.pop(), "outcome": "left"})
        if self._records.file is not None:
            with suppress(TimeoutError):  # if nobody reads the output
                async with asyncio.timeout(_LAST_WRITE_S if self.ending == _INTERRUPTED else None):
                    await self._records.file.flush()

    def _finished(self) -> tuple[CrawlCounts, int]:
        """Return the counts of the outcomes, and how many URLs are left."""
        counts = self._records.counts
        given_up = counts["given-up"] + counts["refused"]
        done = CrawlCounts(counts["page"], counts["failed"], counts["redirect"], counts["disallowed"], given_up)
        return replace(done, sitemaps=counts["sitemap"]), counts["left"] + len(self._left)

    def report(self) -> dict[str, Any]:
        """Return the summary for ``--json``."""
        done, left = self._finished()
        losses = [record_of(loss, "host left reason detail since") for loss in self._report.losses]
        more = {"left": left, "lost": self._report.lost, "losses": losses, "ending": self.ending}
        counts = record_of(done, "pages failed redirects disallowed given_up sitemaps")
        return {**counts, **more, "notes": self._report.notes}

    def summary(self) -> str:
        """Return the counts of all outcomes in one line, and more lines if URLs remain, or the crawl ended early."""
        done, left = self._finished()
        elapsed_s = time.monotonic() - self._started_mono
        lines = [f"{finished_words(done)} in {elapsed_s:.1f} s"]
        if left:
            lines.append(f"{counted(left, 'URL')} left at {counted(self._left_hosts, 'host')}; {self.ending}")
            lines += filter(None, [self._slowest])
            if self._plan.journal is not None and self._plan.journal.exists():
                private = [] if self._denies_private or self._plan.allow_private else ["--allow-private"]
                words = "crawl", *private, *self._given, "--resume", str(self._plan.journal)
                lines.append(f"go on with: politesse {shlex.join(words)}")
        elif self.ending:
            lines.append(self.ending)
        if self._plan.watch is not None:
            lines += self._report.notes[-_MAX_NAMED:]  # the orders of watchers
        if self._records.first_failure:
            lines.append(f"failed first: {self._records.first_failure}")
        losses = self._report.losses
        if losses:
            lines.append(f"{counted(self._report.lost, 'URL')} given up, or left at closed sites:")
            rows = [(shortened(loss.host, _MAX_HOST), loss) for loss in losses[:_MAX_NAMED]]
            width = max(len(host) for host, _ in rows)
            lines += [f"  {host:<{width}}  {loss.left:>9,}  {loss.why}" for host, loss in rows]
            if len(losses) > _MAX_NAMED:
                lines.append(f"  and {len(losses) - _MAX_NAMED:,} more; --json lists up to {MAX_LOSSES:,}")
        return "\n".join(lines)

    def _shown(self, gate: Gatekeeper, queue: PoliteQueue[str]) -> AbstractAsyncContextManager[Shown]:
        """Return the view of the progress: a table in a terminal, lines elsewhere.

        If the records go to standard output, no table is shown, because it would mix with the records. A bar is shown
        instead, or nothing if standard output is a terminal.
        """
        to_output = self._plan.to_output
        if to_output and os.isatty(descriptor(sys.stdout)):
            return nullcontext(lambda _: None)
        if to_output or not self._err.is_terminal:
            return bar_with_notes(self._err)
        return CrawlView(self._err, gate, queue, self._records.recent).shown()

    async def _handle(self, page: CrawlPage[str], response: aiohttp.ClientResponse) -> dict[str, object]:
        """Queue the links of a page, and return the members of the page's record that describe its content."""
        await self._make_room()
        is_html = may_be_html(", ".join(response.headers.getall("Content-Type", ())))
        limit = MAX_BYTES if self._archive is None else _MAX_ARCHIVED_BYTES
        body = await read_body(response.content, limit) if is_html or self._archive is not None else None
        if self._archive is not None and body is not None:
            await self._records.add_to(self._archive, response, body[:limit], truncated=len(body) > limit)
        kind = _kind(page.item)
        if kind == _START or (kind == _SITEMAP and not page.hops):
            self._hosts.add(Origin.of(page.url).host)  # a start URL or its redirect target, or a URL in a sitemap
        links = await self._links(page.url, response, body) if is_html and body and response.status < _ERRORS else []
        queued = 0
        for number, link in enumerate(links):
            if not number % _BATCH:
                await asyncio.sleep(0)  # thousands of links must not delay the other pages
            host = Origin.of(link).host
            if not self._plan.same_host or host in self._hosts:
                queued += page.put(link, item=self._prefix + host)
            elif self._named.follow(link, depth=0):
                queued += page.put(link, item=self._prefix + _NAMED)
        return {
            "content_type": response.headers.get("Content-Type", ""),
            "bytes": None if body is None else min(len(body), limit),
            "truncated": body is not None and len(body) > limit,
            "links": len(links),
            "queued": queued,
        }

    async def _make_room(self) -> None:
        """Wait for a slow reader of the records, until the crawl is stopped: perhaps nobody reads them."""
        file = self._records.file
        while file is not None and self._queue is not None and not self._queue.is_stopping:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WRITE_S):
                    await file.make_room()
                    break

    async def _links(self, url: str, response: aiohttp.ClientResponse, body: bytes) -> list[str]:
        """Return the links of a page; a thread parses the page, because a hostile page can take a second."""
        headers, token = list(response.headers.items()), self._plan.options.token
        return await asyncio.to_thread(followable_links, body[:MAX_BYTES], url, headers=headers, token=token)
