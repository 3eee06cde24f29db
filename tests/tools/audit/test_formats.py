"""The formats of logs: the same crawl in each, and logs as programs wrote them."""

import json
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from politesse.audit import Audit, AuditOptions, LogError
from politesse.errors import ConfigurationError
from tests.support.violations import FORBIDDEN, GAP
from tests.support.violations import RETRY_AFTER as EARLY
from tests.tools.audit.conftest import ROBOTS, SENT, SITE, Judge, combined

_RETRY, _REDIRECT = "scrapy.downloadermiddlewares.retry", "scrapy.downloadermiddlewares.redirect"
AT = 1_800_000_000  # 2027-01-15T08:00:00Z
MINUTE = "2026-11-26T10:00"
WARCS = ("crawl.warc", "crawl.warc.gz")


def caddy(at: float, uri: str, status: int = 200, sent: Any = None, **answered: str) -> str:
    headers = {**(sent or {}), "User-Agent": [SENT]}
    request = {"method": "GET", "host": "example.com", "uri": uri, "headers": headers}
    answer = {name.replace("_", "-").title(): [value] for name, value in answered.items()}
    return json.dumps({"ts": at, "request": request, "duration": 0.25, "status": status, "resp_headers": answer})


def warc(name: str, responses: Iterable[tuple[int, str | None, str, list[tuple[str, str]]]]) -> list[bytes]:
    """Return the records of a WARC file."""
    octets, records = BytesIO(), []
    writer = WARCWriter(octets, gzip=name.endswith(".gz"))
    for second, url, status, headers in responses:
        start = octets.tell()
        record = writer.create_warc_record(
            url,
            "response",
            payload=BytesIO(b"\r\n\r\n1"),
            length=5,
            http_headers=StatusAndHeaders(status, headers, protocol="HTTP/1.1"),
            warc_headers_dict={"WARC-Date": f"{MINUTE}:{second:02}Z"},
        )
        writer.write_record(record)
        records.append(octets.getvalue()[start:])
    return records


# The same crawl in each format, beside the real logs below: a forbidden page, one 2 s after the end of the last, and
# one during a Retry-After of 60 s.
CRAWL = ((0, "/private", 200), (2, "/b", 503), (12, "/c", 200))
COMBINED = [combined(*one) for one in CRAWL]
RECORD = {"outcome": "page", "elapsed_s": 20.5, "request_s": 0.5}
LOGS: dict[str, tuple[list[str] | list[bytes], dict[str, Any]]] = {
    "combined with more fields": ([f"{COMBINED[0]} 0.1", f'{COMBINED[1]} "x"', f"{COMBINED[2]} -"], {"back_off_s": 60}),
    "nginx": (
        [
            f'{AT}.250 example.com "GET /private HTTP/1.1" 200 0.250 "{SENT}" -',
            f'{AT}.500 example.com "GET /\\x22 HTTP/2.0" 200 0.100 "Other" -',
            f'{AT + 2}.500 example.com "GET /b HTTP/1.1" 503 0.250 "{SENT}" 60',
            f'{AT + 12}.000 example.com "GET /c HTTP/1.1" 200 0.000 "{SENT}" -',
        ],
        {
            "format": "log_format audit '$msec ${host} \"$request\" $status '\n"
            "'$request_time \"$http_user_agent\" $sent_http_retry_after';",
            "site": None,
        },
    ),
    "json of nginx": (
        [
            json.dumps(
                {
                    "time_iso8601": f"{MINUTE}:{at:02}+00:00",
                    "request_uri": uri,
                    "status": status,
                    "http_user_agent": SENT,
                }
                | {"sent_http_retry_after": "60" if status == 503 else "-"}
            )
            for at, uri, status in CRAWL
        ],
        {},
    ),
    "json of politesse crawl": (
        [
            json.dumps({"url": f"{SITE}/x", "outcome": "disallowed", "reason": "disallow-rule"}),
            *(
                json.dumps(RECORD | {"url": SITE + path, "status": status, "started": f"{MINUTE}:{at:02}.000Z"})
                for at, path, status in CRAWL
            ),
        ],
        {"back_off_s": 60},
    ),
    "Scrapy": (
        [
            "2026-11-26 09:59:59 [scrapy.utils.log] INFO: Scrapy 2.19.0 started (bot: x)",
            f"2026-11-26 10:00:00 [scrapy.core.engine] DEBUG: Crawled (200) <GET {SITE}/private> (referer: None)",
            "Traceback (most recent call last):",
            f"2026-11-26 10:00:01 [scrapy.core.engine] DEBUG: Crawled (200) <GET {SITE}/private/x> (r: x) ['cached']",
            f"2026-11-26 10:00:02 [{_RETRY}] DEBUG: Retrying <GET {SITE}/b> (failed 1 times): 503 Service Unavailable",
            f"2026-11-26 10:00:12 [{_REDIRECT}] DEBUG: Redirecting (301) to <GET {SITE}/private> from <GET {SITE}/c>",
            f"2026-11-26 10:02:00 [{_RETRY}] ERROR: Gave up retrying <GET {SITE}/d> (failed 3 times): 503 No Service",
        ],
        {"back_off_s": 60, "site": None},
    ),
}
ANSWERS: list[tuple[int, str, str, list[tuple[str, str]]]] = [
    (0, "/private", "200 OK", []),
    (2, "/b", "503 No", [("Retry-After", "60")]),
    (12, "/c", "200 OK", []),
]
for _name in WARCS:
    _responses = [(at, SITE + path, status, headers) for at, path, status, headers in ANSWERS]
    LOGS[_name] = (warc(_name, _responses), {"site": None})


def test_each_format_shows_the_same_violations(judge: Judge) -> None:
    for name, (lines, options) in LOGS.items():
        audit, found = judge(*lines, name=name, **options)
        assert found == [(FORBIDDEN, "/private"), (GAP, "/b"), (EARLY, "/c")], name
        assert audit.counts()["requests"] == 3, name
        assert "lines that cannot be read" not in audit.counts(), name


FIELDS = """Url Uri Path Target Request Request_uri Args Host Http_host Scheme Method Ts Time Msec Started Duration
Request_time Status Status_code Outcome Retry-After Retry_after Location Resp_headers
User_agent Useragent Agent Headers"""


def test_request_header_replaces_no_other_field_of_caddys_log(judge: Judge) -> None:
    for name in FIELDS.split():
        first = caddy(AT + 0.5, "/a", 503, {name: ["0"]}, retry_after="60")
        audit, found = judge(first, caddy(AT + 9, "/private?x", sent={name: ["/b"]}), site=None)
        assert found == [(EARLY, "/private?x"), (FORBIDDEN, "/private?x")], name
        [host] = audit.hosts()
        assert host.worst(FORBIDDEN)[0].started_wall == AT + 8.75, name
        assert set(audit.counts()) == {"lines", "requests"}, name


def test_result_of_handle_replaces_no_field_of_a_record(judge: Judge) -> None:
    record = {"url": f"{SITE}/private", "outcome": "page", "status": 200, "started": f"{MINUTE}:00.000Z"}
    for name in ("request", "path", "time", "msec", "agent", "host", "location", "Status", "duration"):
        audit, found = judge(json.dumps({**record, name: "GET /b"}), site=None)
        assert found == [(FORBIDDEN, "/private")], name
        assert audit.hosts()[0].worst(FORBIDDEN)[0].started_wall == 1_795_687_200.0, name


def test_escapes_of_a_log_are_octets_and_backslashes_in_json_are_no_escapes(judge: Judge) -> None:
    escapes = {
        r"/caf\xC3\xA9": "/caf%C3%A9",
        "/café": "/caf%C3%A9",
        r"/caf\xe9": "/caf%E9",
        r"/\x22\"\\x41": "/%22%22%5Cx41",
    }
    for written, target in escapes.items():
        robots = {SITE: f"User-agent: *\nDisallow: {target}\n"}
        assert judge(combined(0, written), robots=robots)[1] == [(FORBIDDEN, target)]
    assert judge(caddy(AT, r"/\x70rivate"), site=None)[1] == []


@pytest.mark.parametrize("step", [41, pytest.param(1, marks=pytest.mark.full)])
def test_warc_file_that_is_cut_anywhere_is_judged_up_to_its_end_and_then_an_error(tmp_path: Path, step: int) -> None:
    options = AuditOptions(agents=("ExampleBot",), robots={SITE: ROBOTS}, slack_s=60)
    wrong = []
    for name in WARCS:
        first, second = warc(
            name, [(0, SITE + path, "200 OK", [("Server", "x")]) for path in ("/private", "/private/b")]
        )
        ends = [0, len(first), len(first + second)]
        near = {end + n for end in ends for n in range(-8, 9)}
        for end in sorted({*range(1, ends[-1] + 1, step), *near} & {*range(1, ends[-1] + 1)}):
            (tmp_path / name).write_bytes((first + second)[:end])
            audit, problem = Audit(options), ""
            try:
                found = len(list(audit.findings([tmp_path / name])))
            except LogError as error:
                found, problem = sum(host.found for host in audit.hosts()), str(error)
            whole = sum(end >= one for one in ends[1:])
            # An empty line after a plain record may be missing. A record may be judged before its end is reached.
            least = 1 if name.endswith(".gz") else 5
            is_cut = min([one - end for one in ends if one >= end]) >= least
            if bool(problem) != is_cut or not whole <= found <= whole + 1:
                wrong.append((name, end, found, problem))
    assert wrong == []


def test_warc_record_without_a_url_is_a_line_that_cannot_be_read(judge: Judge) -> None:
    for name in WARCS:
        records = warc(name, [(0, url, "200 OK", []) for url in (None, f"{SITE}/private")])
        audit, found = judge(*records, name=name, site=None)
        assert (found, audit.counts()["lines that cannot be read"]) == ([(FORBIDDEN, "/private")], 1)


@pytest.mark.clause("RFC 9110 5.3")
def test_all_lines_of_retry_after_in_a_warc_file_count(judge: Judge) -> None:
    twice = [("Retry-After", "2"), ("retry-after", "60")]
    records = warc("crawl.warc", [(0, f"{SITE}/b", "503 No", twice), (12, f"{SITE}/c", "503 No", [])])
    assert judge(*records, name="crawl.warc", site=None)[1] == [(EARLY, "/c")]


def test_time_zone_of_a_line_counts(judge: Judge) -> None:
    for time in ("26/Nov/2026:11:00:30 +0100", "26/Nov/2026:04:30:30 -0530", "26/Nov/2026:10:00:30 +0000"):
        line = combined(30, "/private").replace("26/Nov/2026:10:00:30 +0000", time)
        [host] = judge(combined(0, "/a"), line)[0].hosts()
        assert [one.started_wall for one in host.worst(FORBIDDEN)] == [1_795_687_230.0], time


def test_zone_is_that_of_times_that_name_none(judge: Judge) -> None:
    line = f"2026-11-26 11:00:30 [scrapy.core.engine] DEBUG: Crawled (200) <GET {SITE}/private> (referer: None)"
    audit, _ = judge(line, zone="Europe/Berlin")
    assert audit.hosts()[0].worst(FORBIDDEN)[0].started_wall == 1_795_687_230.0
    with pytest.raises(ConfigurationError, match="Europe/Berlin"):
        judge(line, zone="Nowhere/Town")


def test_unknown_format_is_refused(judge: Judge) -> None:
    for given, problem in {
        "clf": "is unknown. Give json, combined, common, scrapy, warc, or a format of nginx",
        "$remote_addr $status": r"lacks \$msec or \$time_iso8601 or \$time_local",
        "$msec $status": r"lacks \$request or",
        "$msec $request": r"lacks \$status",
        "$msec$status $request": r"nothing divides \$msec",
    }.items():
        with pytest.raises(ConfigurationError, match=problem):
            judge(combined(0, "/a"), format=given)


def test_a_finding_shows_no_userinfo_and_fragment_that_a_log_has(judge: Judge) -> None:
    url = SITE.replace("https://", "https://crawler:pa55w0rd@") + "/private#t0ken"
    audit, found = judge(f"2026-11-26 10:00:00 [scrapy.core.engine] DEBUG: Crawled (200) <GET {url}> (referer: None)")
    assert found == [(FORBIDDEN, "/private")]
    assert audit.hosts()[0].worst(FORBIDDEN)[0].url == f"{SITE}/private"


# Logs as programs wrote them: nginx 1.22, Apache 2.4, Caddy 2.6, Scrapy, wget 1.21 and `politesse crawl`.
#
# A client sent the same ten requests to each of the three servers: a robots.txt, then every six seconds the next page
# of ExampleBot, but `/b/` two seconds after `/a/`. A browser requested `/private/x`, and ExampleBot-Image
# `/private/z`. The request for `/private/y` had header fields such as `Url: http://shop.test/a/` and `Status: 404`.
# The answer to `/busy` had the status 503 and `Retry-After: 60`, and `/c/` came twelve seconds later. Scrapy and wget
# requested nearly the same pages of the same nginx.

DATA: Final = Path(__file__).parent / "data"
SHOP, LOCAL = "http://shop.test", "http://127.0.0.1:8091"
SHOP_ROBOTS = 'User-agent: ExampleBot\nDisallow: /private/\nDisallow: /café/\nDisallow: /search?q="\nCrawl-delay: 5\n'
AUDIT_FORMAT = """log_format audit '$msec $scheme://$http_host "$request" $status '
                 '$request_time "$http_user_agent" $sent_http_retry_after';"""

MENU, SEARCH, ORDER = (FORBIDDEN, "/caf%C3%A9/menu"), (FORBIDDEN, "/search?q=%22x%22"), (FORBIDDEN, "/private/y")

# Without Retry-After, the audit assumes that a 503 closes the host for ten seconds.
WITHOUT_RETRY_AFTER = [MENU, (GAP, "/b/"), SEARCH, ORDER]
COMPLETE = [*WITHOUT_RETRY_AFTER, (EARLY, "/c/")]
FOUND: dict[str, tuple[int, dict[str, Any], list[tuple[str, str]]]] = {
    "nginx-combined.log": (8, {}, WITHOUT_RETRY_AFTER),
    "nginx-audit.log": (8, {"site": None, "format": AUDIT_FORMAT}, COMPLETE),
    "nginx-json.log": (8, {}, COMPLETE),
    "apache-combined.log": (8, {}, WITHOUT_RETRY_AFTER),
    # The Common format has no User-Agents: the requests of the browser and of ExampleBot-Image count, too.
    "apache-common.log": (
        10,
        {},
        [MENU, (GAP, "/b/"), SEARCH, ORDER, *((kind, f"/private/{x}") for kind in (FORBIDDEN, GAP) for x in "xz")],
    ),
    "caddy.log": (8, {}, COMPLETE),
    # Scrapy does not wait after robots.txt and redirects, and it repeats a request at once after a 503.
    "scrapy.log": (
        12,
        {"site": None, "is_whole": True},
        [(GAP, "/a/"), MENU, (GAP, "/new"), (GAP, "/b/"), SEARCH, ORDER, (EARLY, "/busy"), (GAP, "/busy")],
    ),
    "wget.warc": (10, {"site": None}, COMPLETE),
    "politesse-crawl.jsonl": (7, {"site": None}, []),
}


def test_log_of_a_real_program_shows_what_a_person_expects() -> None:
    assert {path.name for path in DATA.iterdir()} == set(FOUND)
    robots = {SHOP: SHOP_ROBOTS, LOCAL: SHOP_ROBOTS}
    for name, (requests, given, expected) in FOUND.items():
        audit = Audit(AuditOptions(**{"agents": ("ExampleBot",), "site": SHOP, "robots": robots, **given}))
        found = [(one.kind, one.url.removeprefix(SHOP).removeprefix(LOCAL)) for one in audit.findings([DATA / name])]
        assert (sorted(found), audit.counts()["requests"]) == (sorted(expected), requests), name
        assert "lines that cannot be read" not in audit.counts(), name
