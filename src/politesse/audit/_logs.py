"""Reads the requests of the audited crawlers from logs, in the order of their starts.

A server writes a line at the end of a request, so lines of requests that overlap are out of order. A window of five
minutes puts them in order: a request leaves the window when a line is five minutes newer. If a line is older than the
window, the clock of the server was set back. In this case the window is emptied first, and the audit starts anew.

A parser turns each line into fields, which have the names of nginx's variables. ``Common`` and ``Combined`` are formats
of nginx, too. A parser returns None for a line that is not a request, and raises a ValueError for a line that it cannot
read.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import zlib
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from email.utils import parsedate_to_datetime
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

from politesse._base.checks import check_choice, check_least, check_wait
from politesse._base.constants import DAY_S, ROBOTS_TXT
from politesse._base.text import needing, public_url, shortened
from politesse._http.fields import joined_fields
from politesse._http.freshness import retry_after_s
from politesse._judge import CLOSING, Exchange, token_finder
from politesse.errors import ConfigurationError, PolitesseError
from politesse.origin import Origin, escaped, split
from politesse.robots.agents import BROWSER, product_token
from politesse.verdict import utc

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Fields = Mapping[str, str]
    Parse = Callable[[Any], Fields | None]

COMMON: Final = '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent'
COMBINED: Final = f'{COMMON} "$http_referer" "$http_user_agent"$further_fields'
TIMES: Final = ("msec", "time_iso8601", "time_local")
_NEEDED: Final = (TIMES, ("request", "request_uri", "uri"), ("status",))

# The usual names in JSON logs, in Caddy's log, and in the records of ``politesse crawl --out``.
_ALIASES: Final = {
    "http_user_agent": "user_agent useragent user-agent agent",
    "time_iso8601": "time timestamp @timestamp ts started",
    "request_method": "method",
    "request_time": "duration request_s",
    "request_uri": "path target",
    "sent_http_location": "location",
    "sent_http_retry_after": "retry_after retry-after",
    "status": "status_code",
}
_NAMES: Final = {alias: name for name, aliases in _ALIASES.items() for alias in aliases.split()}
# Names count only at their place. Caddy also logs the request headers, whose names the audited crawler chooses, and the
# records of a crawl also have the members that the handler returned.
_CADDY_REQUEST: Final = {"method": "request_method", "host": "host", "uri": "request_uri"}
_CADDY_SENT: Final = {"user-agent": "http_user_agent"}
_CADDY_ANSWER: Final = {"retry-after": "sent_http_retry_after", "location": "sent_http_location"}
_OF_A_RECORD: Final = ("url", "status", "started", "request_s", "location")

_REQUEST = re.compile(r"([A-Za-z]+) ((?:/|https?:).*?)(?: HTTP/[\d.]*)?", re.DOTALL)
_PLAIN = re.compile(r"[!#-\[\]-~]*")  # neither quotes, backslashes nor blanks
_ESCAPE = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|([\"\\]))")  # of nginx and Apache
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'")
_NUMBER = re.compile(r"\d{9,13}(?:\.\d{1,9})?")
_MILLISECONDS: Final = 1e11  # a greater Unix time is in milliseconds
_LOCAL_TIME = re.compile(r"(\d\d)/(\w{3})/([1-9]\d{3}):(\d\d:\d\d:\d\d [+-]\d{4})")

# Scrapy logs an answer when it arrives. It logs a retry or a redirect in a line of another kind. If it gives up a
# request after an answer, it also writes the line "Crawled".
SCRAPY_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d+)? \[scrapy[.\w]*\] [A-Z]+: (.*)", re.DOTALL)
_SENT = re.compile(
    r"(?:(?:Crawled|Redirecting) \((?P<status>\d*)[^)]*\)(?: to <[A-Z]+ (?P<sent_http_location>[^>]*)> from)?|Retrying"
    r"|Gave up retrying(?=.*times\): \D)) <(?P<request_method>[A-Z]+) (?P<url>[^>]*)>"
    r"(?: \(failed \d+ times\): (?P<failed>\d*))?(?!.*'cached')"
)


def line_parser(template: str) -> Parse:
    """Return the parser of a format string of nginx, with or without its directive ``log_format``.

    Parsing a line takes linear time, because no variable matches the character that follows it in the format.

    Raises:
        ConfigurationError: the format lacks the time, the request or the status, or two variables are adjacent.
    """
    if template.lstrip().startswith(("log_format", "'")):
        template = "".join(_QUOTED.findall(template))
    pattern, names, end = "", set[str](), 0
    for place in _VARIABLE.finditer(template):
        name, following = place[1] or place[2], template[place.end() : place.end() + 1]
        if following == "$":
            raise ConfigurationError(f"format {template!r:.300}: nothing divides ${name} from the next variable")
        octets = r'[^"\\]*(?:\\.[^"\\]*)*' if following == '"' else f"[^{re.escape(following)}]*" if following else ".*"
        group = octets if name in names else f"(?P<{name}>{octets})"
        pattern += re.escape(template[end : place.start()]) + group
        names.add(name)
        end = place.end()
    for choice in _NEEDED:
        if names.isdisjoint(choice):
            raise ConfigurationError(f"format {template!r:.300}: it lacks {' or '.join(f'${one}' for one in choice)}")
    match = re.compile(pattern + re.escape(template[end:]), re.DOTALL).fullmatch

    def parse(line: str) -> Fields:
        if (found := match(line)) is None:
            raise ValueError("not of the format")
        fields = found.groupdict()
        return {name: _unescaped(value) for name, value in fields.items()} if "\\" in line else fields

    return parse


def _unescaped(text: str) -> str:
    """Return a text without the escapes of nginx and Apache, each of which stands for an octet."""
    octets = text.encode("utf-8", "surrogateescape")
    octets = _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()) if found[1] else found[2], octets)
    return octets.decode("utf-8", "surrogateescape")


def parse_json(line: str) -> Fields | None:
    """Return the fields of a JSON object; None for a record of a URL that was not requested."""
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 - as for other lines
    if "outcome" in record:  # of ``politesse crawl --out``
        if "started" not in record:
            return None
        record = {name: record.get(name) for name in _OF_A_RECORD}
    fields = _named(record, lambda key: _NAMES.get(key, key))
    if isinstance(request := record.get("request"), dict):
        fields |= _named(request, _CADDY_REQUEST.get) | _named(request.get("headers"), _CADDY_SENT.get)
    fields |= _named(record.get("resp_headers"), _CADDY_ANSWER.get)
    if "started" in record:  # other logs have the time of the end
        fields["msec"] = repr(unix_time(str(record["started"]), UTC) + float(fields.get("request_time", 0)))
    if fields.keys().isdisjoint(TIMES):
        raise ValueError("no time")
    return fields


def _named(members: object, name_of: Callable[[str], str | None]) -> dict[str, str]:
    """Return the members of a JSON object as texts, by the names of nginx's variables."""
    fields: dict[str, str] = {}
    for key, given in members.items() if isinstance(members, dict) else ():
        value = ", ".join(map(str, given)) if isinstance(given, list) else given  # RFC 9110 5.3: lines of a field
        if isinstance(value, str | int | float) and (name := name_of(key.lower())):
            fields.setdefault(name, str(value))
    return fields


def parse_scrapy(line: str) -> Fields | None:
    """Return the fields of a request in Scrapy's log."""
    head = SCRAPY_LINE.match(line)
    found = _SENT.match(head[2]) if head else None
    if head is None or found is None:
        return None
    fields = found.groupdict("")
    return {**fields, "time_iso8601": head[1], "status": fields["status"] or fields["failed"] or "0"}


def parse_warc(record: Any) -> Fields | None:  # noqa: ANN401 - warcio has no types
    """Return the fields of an answer in a WARC file."""
    head, answer = record.rec_headers, record.http_headers
    if record.rec_type not in {"response", "revisit"} or answer is None:
        return None
    sent = joined_fields(answer.headers)
    fields = {"sent_http_retry_after": sent.get("retry-after"), "url": head.get_header("WARC-Target-URI")}
    fields |= {"time_iso8601": head.get_header("WARC-Date"), "status": answer.get_statuscode()}
    fields |= {"sent_http_location": sent.get("location")}
    return {name: value for name, value in fields.items() if value}


@lru_cache(maxsize=4_096)
def unix_time(text: str, zone: tzinfo) -> float:
    """Return the Unix time of a number, of a time in the Common format, or of a time in ISO 8601.

    A time that states no time zone is in ``zone``.

    Raises:
        ValueError: the text is not a time, or its time zone is wrong.
    """
    if _NUMBER.fullmatch(text):
        return float(text) / (1_000 if float(text) > _MILLISECONDS else 1)
    if found := _LOCAL_TIME.fullmatch(text):
        return parsedate_to_datetime(" ".join(found.groups())).timestamp()
    date = datetime.fromisoformat(text.replace(",", "."))
    return (date.replace(tzinfo=zone) if date.tzinfo is None else date).timestamp()


def target_of(fields: Fields) -> tuple[str, str]:
    """Return the method, and the URL or the target of a request."""
    written = fields.get("request")
    if written is None:
        uri, args = fields.get("uri", ""), fields.get("args", "-").removeprefix("-")
        target = fields.get("url") or fields.get("request_uri") or (f"{uri}?{args}" if args else uri)
        written = f"{fields.get('request_method', 'GET')} {target}"
    found = _REQUEST.fullmatch(written)
    if found is None:
        raise ValueError("no method and URL")
    method, target = found.groups()
    return method, target if _PLAIN.fullmatch(target) else escaped(target)


def of_answer(fields: Fields, header: str) -> str:
    """Return a header of the answer; empty if the log does not have it."""
    return (fields.get(f"sent_http_{header}") or fields.get(f"upstream_http_{header}") or "").removeprefix("-")


def written_time(fields: Fields) -> str:
    """Return the time of a line, as written."""
    return next((fields[name] for name in TIMES if fields.get(name)), "")


_PARSERS: Final[dict[str | None, Parse]] = {
    "json": parse_json,
    "combined": line_parser(COMBINED),
    "common": line_parser(COMMON),
    "scrapy": parse_scrapy,
    "warc": parse_warc,
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
    politesse.audit._logs.LogError: /dev/null is empty: it proves nothing
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    r"""The crawlers to judge, the rules, and the form of the logs.

    >>> options = AuditOptions(agents=("ExampleBot",), site="https://example.com", robots={
    ...     "https://example.com": "User-agent: *\nDisallow: /private\n"})
    >>> options.back_off_s
    10.0

    Attributes:
        agents: the product tokens of the crawlers to judge.
        site: the origin of all requests, for logs without a host.
        robots: maps origins to robots.txt files, which are in force for the whole time.
        ledger: the path of a ledger. Each recorded copy is in force from the time of its record.
        format: ``common``, ``combined``, ``json``, ``scrapy``, ``warc``, or a format string of nginx. By default the
            format is detected.
        zone: the time zone of times without a zone, such as ``Europe/Berlin``.
        min_delay_s: the required pause at hosts that state no pace, in seconds; 0 to judge only stated paces.
        min_refetch_s: the least time between two requests for a robots.txt, in seconds.
        back_off_s: for how long a 429 or 503 without a logged Retry-After closes its host, in seconds.
        slack_s: the possible error of the times, in seconds. By default 1 if the logs have whole seconds, otherwise
            0.05.
        is_whole: whether the logs begin with the first request of the crawl. If so, a page that is requested before
            robots.txt is a violation.
        profile: ``"cbcp"`` to judge the crawler best practices, too.

    Raises:
        ConfigurationError: a value is invalid.
    """

    agents: tuple[str, ...]
    site: str | None = None
    robots: Mapping[str, str | bytes] = field(default_factory=dict)
    ledger: str | os.PathLike[str] | None = None
    format: str | None = None
    zone: str = "UTC"
    min_delay_s: float = 0.0
    min_refetch_s: float = 54.0
    back_off_s: float = 10.0
    slack_s: float | None = None
    is_whole: bool = False
    profile: str | None = None

    def __post_init__(self) -> None:
        check_least("the number of agents", len(self.agents), 1)
        for agent in self.agents:
            if product_token(agent) != agent.lower() or agent.lower() in {"", BROWSER}:
                raise ConfigurationError(f"agent {agent!r:.100}: give the product token of a crawler, as 'ExampleBot'")
        for name in ("min_delay_s", "min_refetch_s", "back_off_s", "slack_s"):
            check_wait(name, getattr(self, name))
        check_choice("profile", self.profile, (None, "cbcp"), "'cbcp' or None")


class LogReader:
    """Reads requests from logs.

    Args:
        options: the options of the audit.

    Attributes:
        lines: the number of lines so far, or of records of a WARC file.
        others: how often each User-Agent of another crawler occurs.
        notes: how often each note applies, and its first example.
        slack_s: the possible error of the times, in seconds.

    Raises:
        ConfigurationError: an option is invalid.
    """

    def __init__(self, options: AuditOptions) -> None:
        self.lines = 0
        self.others: Counter[str] = Counter()
        self.notes: dict[Note, tuple[int, str]] = {}
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
            self._parse = line_parser(options.format)

    def note(self, note: Note, example: str) -> None:
        """Count a note; keep its first example."""
        count, first = self.notes.get(note) or (0, shortened(example, 300))
        self.notes[note] = count + 1, first

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
        if self._parse is parse_warc or (self._parse is None and magic.startswith(_WARC)):
            warc = _imported("warcio", f"{name}: a WARC file", "warc")
            faults = (*faults, warc.exceptions.ArchiveLoadFailed)
            return self._guarded(name, _records(stream, warc.ArchiveIterator), faults), parse_warc
        lines = self._guarded(name, _lines(stream), faults)
        sample = list(islice(lines, _SAMPLE))
        return chain(sample, lines), self._parser(name, sample)

    def _parser(self, name: str, sample: Sequence[str]) -> Parse:
        """Choose the parser of a log from its first lines."""
        if self._parse is None and any(map(SCRAPY_LINE.match, sample)):
            return parse_scrapy
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
            if is_first and _FRACTION.search(written_time(fields)) is None:
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
        method, url = target_of(fields)
        url = self._base(fields) + url if url[0] == "/" else url
        origin, target = split(url)
        ended = unix_time(written_time(fields), self._zone)
        duration = fields.get("request_time", "-")
        duration_s = 0.0 if duration == "-" else float(duration)
        if not 0 <= duration_s < DAY_S:
            raise ValueError(f"{duration_s} s is no duration")
        status, wait_s = int(fields.get("status", "0")), None
        if wait := of_answer(fields, "retry_after"):
            wait_s = retry_after_s({"retry-after": wait}, ended)
        if wait_s is None and status in CLOSING:
            wait_s = self._options.back_off_s
            self.note(Note.CLOSING, place)
        location = of_answer(fields, "location") or None
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
