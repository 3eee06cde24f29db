"""Reads the lines of logs: the formats of access logs, and the logs of crawlers.

A parser turns each line into fields, which have the names of nginx's variables. ``Common`` and ``Combined`` are formats
of nginx, too. A parser returns None for a line that is not a request, and raises a ValueError for a line that it cannot
read.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, tzinfo
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from politesse._http.fields import joined_fields
from politesse.errors import ConfigurationError
from politesse.origin import escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
