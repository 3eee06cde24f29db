"""The table of outcomes, each row as a server shows it."""

import gzip
import zlib
from dataclasses import dataclass
from itertools import pairwise

from politesse.ports import FaultKind
from politesse.verdict import AccessResult
from tests.wire.fetch.servers import FILE, Answer, bomb, chunked, endless, gzipped, reset_after, response

SUCCESSFUL = AccessResult.SUCCESSFUL
UNAVAILABLE = AccessResult.UNAVAILABLE
UNREACHABLE = AccessResult.UNREACHABLE
TOO_MANY_REQUESTS = AccessResult.TOO_MANY_REQUESTS

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
_FILL = b"#" * 1023 + b"\n"


@dataclass(frozen=True)
class Row:
    """An answer of a server, and its meaning.

    Attributes:
        name: for the test's id.
        answer: the answer of the server.
        result: the access result.
        status: the expected ``Verdict.source.status``.
        fault: the fault that the fetcher returns, None for a response.
        denies: of ``/private`` and ``/public``, which are denied.
    """

    name: str
    answer: Answer | dict[str, Answer]
    result: AccessResult
    status: int | None
    fault: FaultKind | None = None
    denies: str = ""

    @property
    def open(self) -> frozenset[str]:
        """Which of the two pages may be requested."""
        both = frozenset({"/private", "/public"})
        if self.result in {UNREACHABLE, TOO_MANY_REQUESTS}:
            return frozenset()
        return both - {self.denies}


def _file(name: str, answer: Answer | dict[str, Answer], status: int = 200) -> Row:
    return Row(name, answer, SUCCESSFUL, status, denies="/private")


def _closed(name: str, answer: Answer | dict[str, Answer], kind: FaultKind, status: int | None = None) -> Row:
    return Row(name, answer, UNREACHABLE, status, kind)


def _chain(redirects: int) -> dict[str, Answer]:
    """Return a file behind so many redirects."""
    targets = ["/robots.txt", *(f"/hop/{number}" for number in range(1, redirects + 1))]
    answers: dict[str, Answer] = {here: response(302, Location=there) for here, there in pairwise(targets)}
    answers[targets[-1]] = response(200, FILE)
    return answers


def _to(location: str) -> Answer:
    return response(302, Location=location)


STATUSES = [
    *(_file(f"{status}", response(status, FILE), status) for status in (200, 201, 202, 203, 226, 299)),
    Row("200 without a body", response(200), SUCCESSFUL, 200),
    Row("204", b"HTTP/1.1 204 No Content\r\n\r\n", SUCCESSFUL, 204),
    Row("205", response(205), SUCCESSFUL, 205),
    Row("200 with a page instead of a file", response(200, b"<html>\n<body>Not found</body>\n"), SUCCESSFUL, 200),
    _file("100 and then 200", b"HTTP/1.1 100 Continue\r\n\r\n" + response(200, FILE)),
    _file("103 and then 200", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + response(200, FILE)),
    Row("101", b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", UNREACHABLE, 101),
    Row("206", response(206, FILE, Content_Range="bytes 0-32/33"), UNREACHABLE, 206),
    Row("304 without a condition", b"HTTP/1.1 304 Not Modified\r\n\r\n", UNREACHABLE, 304),
    *(
        Row(f"{status}", response(status, b"<html></html>"), UNAVAILABLE, status)
        for status in (400, 401, 402, 403, 404, 405, 406, 410, 418, 421, 428, 431, 451, 499)
    ),
    Row("401 with a challenge", response(401, WWW_Authenticate='Basic realm="x"'), UNAVAILABLE, 401),
    Row("404 with a file", response(404, b"User-agent: *\nDisallow: /\n"), UNAVAILABLE, 404),
    Row("404 with a broken body", response(404, b"x", length=99), UNAVAILABLE, 404),
    Row("429", response(429), TOO_MANY_REQUESTS, 429),
    Row("429 with Retry-After", response(429, Retry_After="120"), TOO_MANY_REQUESTS, 429),
    *(
        Row(f"{status}", response(status, FILE), UNREACHABLE, status)
        for status in (500, 501, 502, 503, 504, 511, 520, 599)
    ),
    Row("503 with a broken body", response(503, b"x", length=99), UNREACHABLE, 503),
    *(Row(f"{status}", response(status, FILE), UNREACHABLE, status) for status in (300, 305, 306, 399, 600, 999)),
]

BODIES = [
    _file("chunked", chunked(b"21\r\n" + FILE + b"\r\n0\r\n\r\n")),
    _file("chunked in pieces", chunked(b"10\r\n" + FILE[:16], b"\r\n11\r\n", FILE[16:] + b"\r\n", b"0\r\n\r\n")),
    _file("until the connection closes", _HEAD + b"\r\n" + FILE),
    _file("gzip", gzipped(gzip.compress(FILE))),
    _file("gzip in members", gzipped(gzip.compress(FILE[:14]) + gzip.compress(FILE[14:]))),
    _file("deflate", response(200, zlib.compress(FILE), Content_Encoding="deflate")),
    _file("raw deflate", response(200, zlib.compress(FILE)[2:-4], Content_Encoding="deflate")),
    _file("endless", endless(_HEAD + b"\r\n" + FILE, _FILL * 64)),
    _file(
        "endless and chunked",
        endless(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n21\r\n" + FILE + b"\r\n", b"400\r\n" + _FILL + b"\r\n"),
    ),
    _file("larger than the limit", response(200, FILE + _FILL * 1000)),
    Row("gzip bomb", gzipped(bomb()), SUCCESSFUL, 200),
    _closed("shorter than Content-Length", response(200, FILE, length=len(FILE) + 1), FaultKind.TRUNCATED, 200),
    _closed("no octet of Content-Length", response(200, b"", length=33), FaultKind.TRUNCATED, 200),
    _closed("chunked without an end", chunked(b"21\r\n" + FILE + b"\r\n"), FaultKind.TRUNCATED, 200),
    _closed("cut inside a chunk", chunked(b"21\r\n" + FILE[:20]), FaultKind.TRUNCATED, 200),
    _closed("cut before the first chunk", chunked(), FaultKind.TRUNCATED, 200),
    _closed("gzip shorter than it is", gzipped(gzip.compress(FILE)[:-1]), FaultKind.TRUNCATED, 200),
    _closed("gzip cut in half", gzipped(gzip.compress(FILE)[:20]), FaultKind.TRUNCATED, 200),
    _closed("gzip that is none", gzipped(FILE), FaultKind.ENCODING, 200),
    _closed("gzip with a wrong checksum", gzipped(gzip.compress(FILE)[:-8] + bytes(8)), FaultKind.ENCODING, 200),
    _closed("an encoding not asked for", response(200, b"x", Content_Encoding="br"), FaultKind.ENCODING, 200),
    _closed(
        "encodings in two lines",
        _HEAD + b"Content-Encoding: gzip\r\nContent-Encoding: br\r\n\r\n" + gzip.compress(FILE),
        FaultKind.ENCODING,
        200,
    ),
    _closed("reset in mid-body", reset_after(response(200, FILE, length=99)), FaultKind.TRUNCATED, 200),
]

CONNECTIONS = [
    _closed("closed without a word", b"", FaultKind.CONNECT),
    _closed("reset without a word", reset_after(b""), FaultKind.CONNECT),
    _closed("closed in mid-head", b"HTTP/1.1 200 OK\r\nContent-", FaultKind.CONNECT),
    _closed("garbage instead of HTTP", b"\x00\xff SSH-2.0-OpenSSH_9.9\r\n\r\n", FaultKind.PROTOCOL),
    _closed("HTTP/2 without being asked", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", FaultKind.PROTOCOL),
    _closed("a status that is no number", b"HTTP/1.1 abc OK\r\n\r\n", FaultKind.PROTOCOL),
    _closed("a status of four digits", b"HTTP/1.1 2000 OK\r\n\r\n", FaultKind.PROTOCOL),
    _closed("a length that is no number", _HEAD + b"Content-Length: x\r\n\r\n" + FILE, FaultKind.PROTOCOL),
    _closed("a header of a megabyte", _HEAD + b"X: " + b"x" * 1_000_000 + b"\r\n\r\n" + FILE, FaultKind.PROTOCOL),
    _closed("endless headers", endless(_HEAD, b"X-Filler: " + b"x" * 1000 + b"\r\n"), FaultKind.PROTOCOL),
    _closed("an endless header", endless(_HEAD + b"X: ", b"x" * 1000), FaultKind.PROTOCOL),
]

REDIRECTS = [
    *(
        _file(f"{status}", {"/robots.txt": response(status, Location="/r"), "/r": response(200, FILE)})
        for status in (301, 302, 303, 307, 308)
    ),
    _file("in octets of UTF-8", {"/robots.txt": _to("/r\xc3\xa9.txt"), "/r%C3%A9.txt": response(200, FILE)}),
    _file("five redirects", _chain(5)),
    Row("six redirects", _chain(6), UNAVAILABLE, 302, FaultKind.REDIRECT_LIMIT),
    Row("a redirect to itself", _to("/robots.txt"), UNAVAILABLE, 302, FaultKind.REDIRECT_LIMIT),
    Row(
        "a loop",
        {"/robots.txt": _to("/a"), "/a": _to("/b"), "/b": _to("/a")},
        UNAVAILABLE,
        302,
        FaultKind.REDIRECT_LIMIT,
    ),
    Row("a redirect to 404", {"/robots.txt": _to("/a"), "/a": response(404)}, UNAVAILABLE, 404),
    Row("a redirect to 503", {"/robots.txt": _to("/a"), "/a": response(503)}, UNREACHABLE, 503),
    Row("a redirect to 429", {"/robots.txt": _to("/a"), "/a": response(429)}, TOO_MANY_REQUESTS, 429),
    Row("a redirect to 304", {"/robots.txt": _to("/a"), "/a": response(304)}, UNREACHABLE, 304),
    _closed("without Location", response(302), FaultKind.REDIRECT_TARGET, 302),
    _closed("with an empty Location", response(302, Location=""), FaultKind.REDIRECT_TARGET, 302),
    *(
        _closed(f"to {location}", _to(location), FaultKind.REDIRECT_TARGET, 302)
        for location in (
            "ftp://127.0.0.1/robots.txt",
            "file:///etc/passwd",
            "data:text/plain,User-agent:*",
            "javascript:alert(1)",
            "gopher://127.0.0.1/",
            "http://[::1/",
            "http://127.0.0.1:99999/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://exa mple/",
        )
    ),
]

ROWS = STATUSES + BODIES + CONNECTIONS + REDIRECTS
