"""Reads the requests of the audited crawlers from logs, in the order of their starts.

A server writes a line at the end of a request, so lines of requests that overlap are out of order. A window of five
minutes puts them in order: a request leaves the window when a line is five minutes newer. If a line is older than the
window, the clock of the server was set back. Then the window is emptied first, and the audit starts anew.
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
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from politesse._base.constants import DAY_S, ROBOTS_TXT
from politesse._base.text import needs_extra, shortened
from politesse._http.freshness import retry_after_s
from politesse._judge import CLOSING, Exchange
from politesse.audit import _formats
from politesse.errors import ConfigurationError, PolitesseError
from politesse.origin import Origin, escaped, split
from politesse.verdict import utc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from politesse.audit._audit import AuditOptions
    from politesse.audit._formats import Fields, Parse

_PARSERS: Final[dict[str | None, Parse]] = {
    "json": _formats.parse_json,
    "combined": _formats.line_parser(_formats.COMBINED, has_tail=True),
    "common": _formats.line_parser(_formats.COMMON),
    "scrapy": _formats.parse_scrapy,
    "warc": _formats.parse_warc,
}
_DETECTED: Final = ("json", "combined", "common")  # a line in Combined must not count as Common with other text
_FORMATS: Final = f"""Give {", ".join(map(str, _PARSERS))}, or a format of nginx, as '$msec "$request" $status'."""
_WARC, _GZIP, _ZSTD = b"WARC/", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_ZSTD_MODULE: Final = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
_BLOCK_BYTES: Final = 256 * 1024
_MAX_LINE_BYTES: Final = 64 * 1024  # a longer line is read in pieces, so that memory stays bounded
_WINDOW_S: Final = 300.0
_MAX_WINDOW: Final = 100_000
_SAMPLE: Final = 100  # lines that show the format and the resolution of a log
_MAX_AGENTS: Final = 10_000  # User-Agents that are kept
_WHOLE_S = 1.0
LATE_S: Final = 0.05
"""A server may write a line so much later than the client has the answer."""

_FRACTION = re.compile(r"\d[.,]\d")
_PLAIN = re.compile(r"[!#-\[\]-~]*")  # neither quotes, backslashes nor blanks
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|([\"\\]))")  # of nginx and Apache


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
        method: the method; GET if the log does not say.
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
        requests_read: the number of requests of the audited crawlers so far.
        others: how often other User-Agents occur.
        notes: how often each note applies.
        examples: the first example of each note.
        slack_s: how exact the times are.

    Raises:
        ConfigurationError: an option is invalid.
    """

    def __init__(self, options: AuditOptions) -> None:
        self.lines = self.requests_read = 0
        self.others: Counter[str] = Counter()
        self.notes: Counter[Note] = Counter()
        self.examples: dict[Note, str] = {}
        self.slack_s = LATE_S if options.slack_s is None else options.slack_s
        self._options = options
        self._tokens = {token.lower(): token for token in options.agents}
        names = "|".join(map(re.escape, options.agents))
        self._named = re.compile(rf"(?<![\w.-])(?:{names})(?![\w.-])", re.IGNORECASE)
        self._token_of = lru_cache(_MAX_AGENTS)(self._token)
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
        """Yield the requests of all logs together.

        Args:
            names: the paths, or ``-`` for standard input.
            wrap: returns the file to read instead of an open file, to watch the progress.

        Raises:
            LogError: a log cannot be opened, its format is unknown, or it has no host.
            ConfigurationError: a package is missing.
        """
        with ExitStack() as stack:
            streams = []
            for name in names:
                try:
                    raw = FileIO(sys.stdin.fileno() if name == "-" else name, closefd=name != "-")
                except OSError as error:
                    raise LogError(f"{name} cannot be read: {error.strerror or error}") from error
                file = stack.enter_context(BufferedReader(wrap(stack.enter_context(raw)), _BLOCK_BYTES))
                streams.append(self._in_order(self._parsed(name, *self._rows(name, file))))
            yield from streams[0] if len(streams) == 1 else merge(*streams, key=lambda one: one.exchange.started)

    def _rows(self, name: str, file: BufferedReader) -> tuple[Iterator[Any], Parse]:
        """Return the lines or records of a log, and their parser; look at the first ones."""
        faults: tuple[type[Exception], ...] = (OSError, zlib.error)
        stream: BufferedReader | gzip.GzipFile = file
        magic = file.peek(len(_ZSTD))
        if magic.startswith(_GZIP):
            stream = gzip.GzipFile(fileobj=file)
        elif magic.startswith(_ZSTD):
            try:
                zstd = import_module(_ZSTD_MODULE)
            except ImportError as error:
                raise ConfigurationError(f"{name}: {needs_extra('a log that is packed with zstd', 'zstd')}") from error
            faults, stream = (*faults, zstd.ZstdError), zstd.ZstdFile(file)
        with suppress(EOFError, *faults):  # the fault is noted below
            magic = stream.peek(len(_WARC))
        parse = self._parse or (_PARSERS["warc"] if magic.startswith(_WARC) else None)
        if parse is _PARSERS["warc"]:
            self._note_resolution(name, [])
            records, others = _formats.warc_records(stream, name)
            return self._guarded(name, records, (*faults, *others)), parse
        octets = self._guarded(name, iter(lambda: stream.readline(_MAX_LINE_BYTES), b""), faults)
        lines = (line.decode("utf-8", "surrogateescape").rstrip("\r\n") for line in octets)
        sample = list(islice(lines, _SAMPLE))
        if parse is None and any(map(_formats.is_scrapy, sample)):
            parse = _PARSERS["scrapy"]
        choices = [parse] if parse else [_PARSERS[one] for one in _DETECTED]
        readable = [list(_readable(one, sample)) for one in choices]
        best = max(map(len, readable))
        if sample and not best:
            example = f"none of its first {len(sample)} lines has the format, as {shortened(sample[0])!r}"
            raise LogError(f"{name}: {example}. {_FORMATS}")
        chosen = next(place for place, found in enumerate(readable) if 2 * len(found) >= best)
        self._note_resolution(name, readable[chosen])
        return chain(sample, lines), choices[chosen]

    def _note_resolution(self, name: str, sample: Sequence[Fields]) -> None:
        if self._options.slack_s is None and not any(
            _FRACTION.search(fields[one]) for fields in sample for one in _formats.TIMES if one in fields
        ):
            self.slack_s = _WHOLE_S
            self.note(Note.WHOLE, name)

    def _guarded(self, name: str, source: Iterator[Any], faults: tuple[type[Exception], ...]) -> Iterator[Any]:
        """Yield from an iterator that reads a log, up to a fault, which is noted."""
        try:
            yield from source
        except EOFError:
            self.note(Note.FAULT, f"{name} is truncated: it ends within its packed data")
        except faults as error:
            self.note(Note.FAULT, f"{name} is damaged: {getattr(error, 'strerror', None) or error}")

    def _parsed(self, name: str, rows: Iterator[Any], parse: Parse) -> Iterator[Request]:
        """Yield the requests of a log by audited crawlers, in the order of the lines."""
        for number, row in enumerate(rows, 1):
            self.lines += 1
            place = f"{name}:{number}"
            try:
                fields = parse(row)
                request = None if fields is None else self._request(fields, place)
            except (ValueError, RecursionError) as error:
                self.note(Note.UNREADABLE, f"{place}: {error}: {row}")
                continue
            if request is not None:
                self.requests_read += 1
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
            # A request that was longer than the window counts from a later start, which makes no gap shorter.
            started = max(request.exchange.started, newest - _WINDOW_S, released)
            if started > request.exchange.started:
                request = request._replace(exchange=replace(request.exchange, started=started))  # noqa: PLW2901
            heappush(window, (started, number, request))
            while window and (window[0][0] < newest - _WINDOW_S or len(window) > _MAX_WINDOW):
                released, _, due = heappop(window)
                yield due
        while window:
            yield heappop(window)[2]

    def _token(self, user_agent: str) -> str | None:
        found = self._named.search(user_agent)
        return found and self._tokens[found[0].lower()]

    def _request(self, fields: Fields, place: str) -> Request | None:
        """Return the request of a line; None if it is not by an audited crawler. Raises ValueError."""
        user_agent = fields.get("http_user_agent")
        if user_agent is None:
            agent: str | None = self._options.agents[0]
            self.note(Note.UNNAMED, place)
        else:
            agent = self._token_of(user_agent)
        if agent is None:
            if len(self.others) < _MAX_AGENTS:
                self.others[user_agent or ""] += 1
            return None
        method, url = self._target(fields)
        origin, target = split(url)
        written = fields.get("msec") or fields.get("time_iso8601") or fields.get("time_local") or ""
        ended = _formats.unix_time(written, self._zone)
        duration = fields.get("request_time", "-")
        duration_s = 0.0 if duration == "-" else float(duration)
        if not 0 <= duration_s < DAY_S:
            raise ValueError(f"{duration_s} s is no duration")
        status, wait_s = int(fields.get("status", "0")), None
        if wait := _of_answer(fields, "retry_after"):
            wait_s = retry_after_s({"retry-after": wait}, ended)
        if wait_s is None and status in CLOSING:
            wait_s = self._options.back_off_s
            self.note(Note.CLOSING, place)
        location = _of_answer(fields, "location") or None
        exchange = Exchange(url, ended - duration_s, ended, status, wait_s, user_agent, location)
        return Request(exchange, agent, origin.pacing_host, target == ROBOTS_TXT, method, place)

    def _target(self, fields: Fields) -> tuple[str, str]:
        """Return the method and the URL of a request."""
        if "request" in fields:
            method, _, rest = fields["request"].partition(" ")
            target, _, protocol = rest.rpartition(" ")
            target = target if protocol.startswith("HTTP/") else rest
        else:
            method = fields.get("request_method", "GET")
            target = fields.get("url") or fields.get("request_uri") or fields.get("uri", "")
            if target == fields.get("uri") and fields.get("args", "-") not in {"", "-"}:
                target = f"{target}?{fields['args']}"
        if not (method.isalpha() and target.startswith(("/", "http:", "https:"))):
            raise ValueError("no method and URL")
        if _PLAIN.fullmatch(target) is None:
            target = escaped(_ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else found[2], target))
        if target[0] != "/":
            return method, target
        host = fields.get("http_host") or fields.get("host") or fields.get("server_name") or "-"
        if host not in {"-", "_"}:
            scheme = fields.get("scheme") or (self._site.scheme if self._site else "https")
            return method, f"{scheme}://{host}{target}"
        if self._site is None:
            raise LogError("the log names no host: give the origin of its site, as --site https://example.com")
        return method, self._site.text + target


def _of_answer(fields: Fields, header: str) -> str:
    """Return a header of the answer, if the log has it."""
    return (fields.get(f"sent_http_{header}") or fields.get(f"upstream_http_{header}") or "").removeprefix("-")


def _readable(parse: Parse, lines: Sequence[str]) -> Iterator[Fields]:
    """Yield the fields of the lines that have a format."""
    for line in lines:
        with suppress(ValueError, RecursionError):
            yield parse(line) or {}
