"""Reads the requests of the audited crawlers from logs, in the order of their starts.

A server writes a line at the end of a request, so lines of requests that overlap are out of order. A window of five
minutes puts them in order: a request leaves the window when a line is five minutes newer. If a line is older than the
window, the clock of the server was set back. In this case the window is emptied first, and the audit starts anew.
"""

from __future__ import annotations

import gzip
import re
import sys
import zlib
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from heapq import heappop, heappush, merge
from importlib import import_module
from io import BufferedReader, FileIO
from itertools import chain, islice
from os.path import realpath
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from politesse._base.constants import DAY_S, ROBOTS_TXT
from politesse._base.text import needing, public_url, shortened
from politesse._http.freshness import retry_after_s
from politesse._judge import CLOSING, Exchange, token_finder
from politesse.audit import _formats
from politesse.errors import ConfigurationError, PolitesseError
from politesse.origin import Origin, split
from politesse.verdict import utc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from politesse.audit._audit import AuditOptions
    from politesse.audit._formats import Fields, Parse

_PARSERS: Final[dict[str | None, Parse]] = {
    "json": _formats.parse_json,
    "combined": _formats.line_parser(_formats.COMBINED),
    "common": _formats.line_parser(_formats.COMMON),
    "scrapy": _formats.parse_scrapy,
    "warc": _formats.parse_warc,
}
_DETECTED: Final = ("json", "combined", "common")  # Common would also match a line in Combined, so it comes last
_FORMATS: Final = f"""Give {", ".join(map(str, _PARSERS))}, or a format of nginx, as '$msec "$request" $status'."""
_WARC, _GZIP, _ZSTD = b"WARC/", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_ZSTD_MODULE: Final = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
_BLOCK_BYTES: Final = 256 * 1024
_MAX_LINE_BYTES: Final = 64 * 1024
_WINDOW_S: Final = 300.0
_MAX_WINDOW: Final = 100_000
_SAMPLE: Final = 100  # the format of a log is detected from this many lines
_MAX_AGENTS: Final = 10_000  # User-Agents that are kept
_WHOLE_S = 1.0
LATE_S: Final = 0.05
"""A server may write a line this much later than the client gets the answer, in seconds."""

_FRACTION = re.compile(r"\d[.,]\d")


class LogError(PolitesseError):
    """A log cannot be read, or proves nothing.

    >>> from politesse.audit import Audit, AuditOptions
    >>> list(Audit(AuditOptions(agents=("ExampleBot",))).findings(["/dev/null"]))
    Traceback (most recent call last):
    politesse.audit._requests.LogError: /dev/null is empty: it proves nothing
    """


class Note(StrEnum):
    """Limits of the logs, which a reader of the findings has to know."""

    UNREADABLE = "lines that cannot be read"
    CLOCK = "times that the clock was set back (times before and after are not compared)"
    CLOSING = "answers of 429 or 503 without a logged Retry-After (each closes its host for the back-off)"
    UNNAMED = "requests without a logged User-Agent (they count for the audited agent)"
    WHOLE = "logs with whole seconds (a pause is too short only if it lacks more than a second)"
    NO_RULES = "sites without a known robots.txt (forbidden pages and stated paces are not judged there)"
    FAULT = "logs that cannot be read to their ends"


class Request(NamedTuple):
    """A request of an audited crawler.

    Attributes:
        exchange: the request and its answer.
        agent: the product token of the crawler.
        host: the host.
        is_robots: whether the request is for a robots.txt.
        method: the method; GET if the log does not state it.
        place: the log and the number of the line.
    """

    exchange: Exchange
    agent: str
    host: str
    is_robots: bool
    method: str
    place: str


class LogReader:
    """Reads requests from logs.

    Args:
        options: the options of the audit.

    Attributes:
        lines: the number of lines so far, or of records of a WARC file.
        others: how often each User-Agent of another crawler occurs.
        notes: how often each note applies.
        examples: the first example of each note.
        slack_s: the possible error of the times, in seconds.

    Raises:
        ConfigurationError: an option is invalid.
    """

    def __init__(self, options: AuditOptions) -> None:
        self.lines = 0
        self.others: Counter[str] = Counter()
        self.notes: Counter[Note] = Counter()
        self.examples: dict[Note, str] = {}
        self.slack_s = LATE_S if options.slack_s is None else options.slack_s
        self._options = options
        self._token_of = lru_cache(_MAX_AGENTS)(token_finder(options.agents))
        self._site = None if options.site is None else Origin.of(options.site)
        try:
            self._zone = ZoneInfo(options.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ConfigurationError(f"zone={options.zone!r:.100}: give a name as in 'Europe/Berlin'") from None
        self._parse = _PARSERS.get(options.format)
        if self._parse is None and options.format is not None:
            if "$" not in options.format:
                raise ConfigurationError(f"format={options.format!r:.100} is unknown. {_FORMATS}")
            self._parse = _formats.line_parser(options.format)

    def note(self, note: Note, example: str) -> None:
        """Count a note; keep its first example."""
        self.notes[note] += 1
        self.examples.setdefault(note, shortened(example, 300))

    def requests(self, names: Sequence[str], wrap: Callable[[FileIO], Any]) -> Iterator[Request]:
        """Yield the requests of all logs, merged in the order of their starts.

        Args:
            names: the paths, or ``-`` for standard input.
            wrap: is called with each open file, and returns the file to read; it may report the progress.

        Raises:
            LogError: a log cannot be opened or occurs twice, its format is unknown, or it does not state the hosts.
            ConfigurationError: a package that a log needs is not installed.
        """
        if len(set(map(realpath, names))) < len(names):
            raise LogError(f"{', '.join(names)}: a log is given twice, so its requests would count twice")
        with ExitStack() as stack:
            streams = []
            for name in names:
                try:
                    source = sys.stdin.fileno() if name == "-" and sys.stdin is not None else name
                    raw = FileIO(source, closefd=source is name)
                except OSError as error:
                    raise LogError(f"{name} cannot be read: {error.strerror or error}") from error
                file = stack.enter_context(BufferedReader(wrap(stack.enter_context(raw)), _BLOCK_BYTES))
                streams.append(self._in_order(self._parsed(name, *self._rows(name, file))))
            yield from merge(*streams, key=lambda one: one.exchange.started)

    def _rows(self, name: str, file: BufferedReader) -> tuple[Iterator[Any], Parse]:
        """Return the lines or records of a log, and their parser."""
        faults: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error)
        stream: BufferedReader | gzip.GzipFile = file
        magic = file.peek(len(_ZSTD))
        if magic.startswith(_GZIP):
            stream = gzip.GzipFile(fileobj=file)
        elif magic.startswith(_ZSTD):
            zstd = _imported(_ZSTD_MODULE, f"{name}: a log that is packed with zstd", "zstd")
            faults, stream = (*faults, zstd.ZstdError), zstd.ZstdFile(file)
        with suppress(*faults):  # the fault is raised again, and noted, when the lines are read
            magic = stream.peek(len(_WARC))
        if self._parse is _formats.parse_warc or (self._parse is None and magic.startswith(_WARC)):
            warc = _imported("warcio", f"{name}: a WARC file", "warc")
            faults = (*faults, warc.exceptions.ArchiveLoadFailed)
            return self._guarded(name, _records(stream, warc.ArchiveIterator), faults), _formats.parse_warc
        lines = self._guarded(name, _lines(stream), faults)
        sample = list(islice(lines, _SAMPLE))
        return chain(sample, lines), self._parser(name, sample)

    def _parser(self, name: str, sample: Sequence[str]) -> Parse:
        """Choose the parser of a log from its first lines."""
        if self._parse is None and any(map(_formats.SCRAPY_LINE.match, sample)):
            return _formats.parse_scrapy
        choices = [self._parse] if self._parse else [_PARSERS[one] for one in _DETECTED]
        readable = [sum(_is_readable(one, line) for line in sample) for one in choices]
        if sample and not any(readable):
            example = f"none of its first {len(sample)} lines has the format, as {shortened(sample[0])!r}"
            raise LogError(f"{name}: {example}. {_FORMATS}")
        return next(one for one, count in zip(choices, readable, strict=True) if 2 * count >= max(readable))

    def _guarded(self, name: str, source: Iterator[Any], faults: tuple[type[Exception], ...]) -> Iterator[Any]:
        """Yield the items of an iterator that reads a log. A fault of the log is noted, and ends the iteration."""
        try:
            yield from source
        except faults as error:
            is_cut = isinstance(error, EOFError)
            problem = "truncated: it ends within its packed data" if is_cut else f"damaged: {error}"
            self.note(Note.FAULT, f"{name} is {problem}")

    def _parsed(self, name: str, rows: Iterator[Any], parse: Parse) -> Iterator[Request]:
        """Yield the requests of a log by audited crawlers, in the order of the lines."""
        is_first = self._options.slack_s is None
        for number, row in enumerate(rows, 1):
            self.lines += 1
            place = f"{name}:{number}"
            try:
                fields = parse(row)
                request = None if fields is None else self._request(fields, place)
            except (ValueError, RecursionError) as error:
                self.note(Note.UNREADABLE, f"{place}: {error}: {row}")
                continue
            if request is None or fields is None:
                continue
            if is_first and _FRACTION.search(_formats.written_time(fields)) is None:
                self.slack_s = _WHOLE_S
                self.note(Note.WHOLE, name)
            is_first = False
            yield request

    def _in_order(self, requests: Iterator[Request]) -> Iterator[Request]:
        """Yield the requests of a log in the order of their starts."""
        newest = released = float("-inf")
        window: list[tuple[float, int, Request]] = []
        for number, request in enumerate(requests):
            ended = request.exchange.ended
            if ended < newest - _WINDOW_S:
                self.note(Note.CLOCK, f"{request.place}, from {utc(newest)} to {utc(ended)}")
                newest = released = float("-inf")
                while window:
                    yield heappop(window)[2]
            newest = max(newest, ended)
            # A request that took longer than the window gets a later start. This makes no gap shorter.
            started = max(request.exchange.started, newest - _WINDOW_S, released)
            if started > request.exchange.started:
                request = request._replace(exchange=replace(request.exchange, started=started))  # noqa: PLW2901
            heappush(window, (started, number, request))
            while window and (window[0][0] < newest - _WINDOW_S or len(window) > _MAX_WINDOW):
                released, _, due = heappop(window)
                yield due
        while window:
            yield heappop(window)[2]

    def _request(self, fields: Fields, place: str) -> Request | None:
        """Return the request of a line; None if it is not by an audited crawler. Raises ValueError."""
        user_agent = fields.get("http_user_agent")
        if user_agent is None:
            self.note(Note.UNNAMED, place)
        agent = self._options.agents[0] if user_agent is None else self._token_of(user_agent)
        if agent is None:
            if len(self.others) < _MAX_AGENTS:
                self.others[user_agent or ""] += 1
            return None
        method, url = _formats.target_of(fields)
        url = self._base(fields) + url if url[0] == "/" else url
        origin, target = split(url)
        ended = _formats.unix_time(_formats.written_time(fields), self._zone)
        duration = fields.get("request_time", "-")
        duration_s = 0.0 if duration == "-" else float(duration)
        if not 0 <= duration_s < DAY_S:
            raise ValueError(f"{duration_s} s is no duration")
        status, wait_s = int(fields.get("status", "0")), None
        if wait := _formats.of_answer(fields, "retry_after"):
            wait_s = retry_after_s({"retry-after": wait}, ended)
        if wait_s is None and status in CLOSING:
            wait_s = self._options.back_off_s
            self.note(Note.CLOSING, place)
        location = _formats.of_answer(fields, "location") or None
        exchange = Exchange(public_url(url), ended - duration_s, ended, status, wait_s, user_agent, location)
        return Request(exchange, agent, origin.pacing_host, target == ROBOTS_TXT, method, place)

    def _base(self, fields: Fields) -> str:
        """Return the origin for a logged URL without an origin, from other fields or from the options."""
        host = fields.get("http_host") or fields.get("host") or fields.get("server_name") or "-"
        if host not in {"-", "_"}:
            return f"{fields.get('scheme') or (self._site.scheme if self._site else 'https')}://{host}"
        if self._site is None:
            raise LogError("the log names no host: give the origin of its site, as --site https://example.com")
        return self._site.text


def _is_readable(parse: Parse, line: str) -> bool:
    """Return whether a parser can read a line."""
    with suppress(ValueError, RecursionError):
        parse(line)
        return True
    return False


def _lines(stream: BufferedReader | gzip.GzipFile) -> Iterator[str]:
    """Yield the lines. A long line is cut, so that memory stays bounded, and the rest of the line is skipped."""
    while octets := stream.readline(_MAX_LINE_BYTES):
        yield octets.decode("utf-8", "surrogateescape").rstrip("\r\n")
        while len(octets) == _MAX_LINE_BYTES and octets[-1:] != b"\n":
            octets = stream.readline(_MAX_LINE_BYTES)


def _records(stream: BufferedReader | gzip.GzipFile, iterator: Callable[..., Any]) -> Iterator[Any]:
    """Yield the records of a WARC file. At the end of a file that is cut, raise EOFError or OSError.

    warcio takes each end of a file, also an EOFError, for the end of the records. ``read1`` returns the octets before
    the cut, and raises the error in the next call.
    """
    archive = iterator(SimpleNamespace(read=stream.read1), no_record_parse=True)
    for record in archive:
        length, url = record.rec_headers.get_header("Content-Length"), record.rec_headers.get_header("WARC-Target-URI")
        with suppress(EOFError):  # if the file is cut here, reading the rest of the record fails, too
            load = archive.loader.load_http_headers  # warcio fails on a record without a URL
            record.http_headers = load(record.rec_type, url or "http:", record.raw_stream, record.length)
        yield record
        archive.read_to_end()
        if length != str(record.length) or record.raw_stream.limit:
            raise OSError("its last record is cut")
    stream.read(1)


def _imported(module: str, feature: str, extra: str) -> Any:  # noqa: ANN401 - a module
    with needing(feature, extra, ConfigurationError):
        return import_module(module)
