import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from politesse.audit import Audit, AuditOptions, LogError
from politesse.errors import ConfigurationError
from tests.tools.audit.conftest import ROBOTS, SENT, SITE, Judge, combined

FORBIDDEN = "forbidden page requested"
GAP = "page requested too soon after the request before"
EARLY = "page requested before Retry-After was over"
_RETRY, _REDIRECT = "scrapy.downloadermiddlewares.retry", "scrapy.downloadermiddlewares.redirect"
AT = 1_800_000_000  # 2027-01-15T08:00:00Z


def caddy(at: float, uri: str, status: int = 200, sent: Any = None, **answered: str) -> str:
    headers = {**(sent or {}), "User-Agent": [SENT]}
    request = {"method": "GET", "host": "example.com", "uri": uri, "headers": headers}
    answer = {name.replace("_", "-").title(): [value] for name, value in answered.items()}
    return json.dumps({"ts": at, "request": request, "duration": 0.25, "status": status, "resp_headers": answer})


# The same crawl in each format: a forbidden page, one 2 s after the end of the last, one during a Retry-After of 60 s.
LOGS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "combined": ([combined(0, "/private"), combined(2, "/b", 503), combined(12, "/c")], {"back_off_s": 60}),
    "combined with more fields": (
        [f"{combined(0, '/private')} 0.1", f'{combined(2, "/b", 503)} "x"', f"{combined(12, '/c')} -"],
        {"back_off_s": 60},
    ),
    "common": (
        [
            combined(at, target, status).partition(' "-"')[0]
            for at, target, status in ((0, "/private", 200), (2, "/b", 503), (12, "/c", 200))
        ],
        {"back_off_s": 60},
    ),
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
                    "time_iso8601": f"2026-11-26T10:00:{at:02}+00:00",
                    "request_uri": uri,
                    "status": status,
                    "http_user_agent": SENT,
                    "sent_http_retry_after": wait,
                }
            )
            for at, uri, status, wait in ((0, "/private", 200, "-"), (2, "/b", 503, "60"), (12, "/c", 200, "-"))
        ],
        {},
    ),
    "json of Caddy": (
        [caddy(AT + 0.25, "/private"), caddy(AT + 2.5, "/b", 503, retry_after="60"), caddy(AT + 12.5, "/c")],
        {"site": None},
    ),
    "json of politesse crawl": (
        [
            json.dumps({"url": f"{SITE}/x", "outcome": "disallowed", "reason": "disallow-rule"}),
            *(
                json.dumps(
                    {
                        "url": SITE + path,
                        "outcome": "page",
                        "status": status,
                        "started": f"2026-11-26T10:00:{at:02}.000Z",
                        "elapsed_s": 20.5,
                        "request_s": 0.5,
                    }
                )
                for at, path, status in ((0, "/private", 200), (2, "/b", 503), (12, "/c", 200))
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


@pytest.mark.parametrize(("lines", "options"), LOGS.values(), ids=LOGS)
def test_each_format_shows_the_same_violations(lines: list[str], options: dict[str, Any], judge: Judge) -> None:
    audit, found = judge(*lines, **options)
    assert found == [(FORBIDDEN, "/private"), (GAP, "/b"), (EARLY, "/c")]
    assert audit.counts()["requests"] == 3
    assert "lines that cannot be read" not in audit.counts()


_FORGED = ("Url", "Uri", "Path", "Target", "Request", "Request_uri", "Args", "Host", "Http_host", "Scheme", "Method")
_TIMES = ("Ts", "Time", "Msec", "Started", "Duration", "Request_time", "Status", "Status_code", "Outcome")
_ANSWER = ("Retry-After", "Retry_after", "Location", "Resp_headers", "User_agent", "Useragent", "Agent", "Headers")


@pytest.mark.parametrize("name", [*_FORGED, *_TIMES, *_ANSWER])
def test_request_header_replaces_no_other_field_of_caddys_log(name: str, judge: Judge) -> None:
    first = caddy(AT + 0.5, "/a", 503, {name: ["0"]}, retry_after="60")
    audit, found = judge(first, caddy(AT + 9, "/private?x", sent={name: ["/b"]}), site=None)
    assert found == [(EARLY, "/private?x"), (FORBIDDEN, "/private?x")]
    [host] = audit.hosts()
    assert host.worst(FORBIDDEN)[0].started_wall == AT + 8.75
    assert set(audit.counts()) == {"lines", "requests"}


@pytest.mark.parametrize("name", ["request", "path", "time", "msec", "agent", "host", "location", "Status", "duration"])
def test_result_of_handle_replaces_no_field_of_a_record(name: str, judge: Judge) -> None:
    record = {"url": f"{SITE}/private", "outcome": "page", "status": 200, "started": "2026-11-26T10:00:00.000Z"}
    audit, found = judge(json.dumps({**record, name: "GET /b"}), site=None)
    assert found == [(FORBIDDEN, "/private")]
    assert audit.hosts()[0].worst(FORBIDDEN)[0].started_wall == 1_795_687_200.0


@pytest.mark.parametrize(
    ("written", "target"),
    [
        (r"/caf\xC3\xA9", "/caf%C3%A9"),
        ("/café", "/caf%C3%A9"),
        (r"/caf\xe9", "/caf%E9"),
        (r"/\x22\"\\x41", "/%22%22%5Cx41"),
    ],
)
def test_escapes_of_a_log_are_octets(written: str, target: str, judge: Judge) -> None:
    robots = {SITE: f"User-agent: *\nDisallow: {target}\n"}
    assert judge(combined(0, written), robots=robots)[1] == [(FORBIDDEN, target)]


def test_backslashes_in_json_are_no_escapes_of_a_log(judge: Judge) -> None:
    assert judge(caddy(AT, r"/\x70rivate"), site=None)[1] == []


@pytest.mark.parametrize("name", ["crawl.warc", "crawl.warc.gz"])
def test_warc_file_shows_its_requests(name: str, judge: Judge) -> None:
    octets = BytesIO()
    writer = WARCWriter(octets, gzip=name.endswith(".gz"))
    writer.write_record(writer.create_warcinfo_record(name, {"software": "test"}))
    for at, path, status, headers in (
        (0, "/private", "200 OK", []),
        (2, "/b", "503 No", [("Retry-After", "60")]),
        (12, "/c", "200 OK", []),
    ):
        record = writer.create_warc_record(
            SITE + path,
            "response",
            payload=BytesIO(b"x" * 10_000),
            length=10_000,
            http_headers=StatusAndHeaders(status, headers, protocol="HTTP/1.1"),
            warc_headers_dict={"WARC-Date": f"2026-11-26T10:00:{at:02}Z"},
        )
        writer.write_record(record)
    audit, found = judge(octets.getvalue(), name=name, site=None)
    assert found == [(FORBIDDEN, "/private"), (GAP, "/b"), (EARLY, "/c")]
    assert audit.counts()["lines"] == 4


@pytest.mark.parametrize("name", ["crawl.warc", "crawl.warc.gz"])
def test_warc_file_that_is_cut_anywhere_is_judged_up_to_its_end_and_then_an_error(name: str, tmp_path: Path) -> None:
    octets, ends = BytesIO(), [0]
    writer = WARCWriter(octets, gzip=name.endswith(".gz"))
    for path in ("/private", "/private/b"):
        head = StatusAndHeaders("200 OK", [("Server", "x")], protocol="HTTP/1.1")
        body: dict[str, Any] = {"payload": BytesIO(b"\r\n\r\n1"), "length": 5}
        writer.write_record(writer.create_warc_record(SITE + path, "response", http_headers=head, **body))
        ends.append(octets.tell())
    options = AuditOptions(agents=("ExampleBot",), robots={SITE: ROBOTS}, slack_s=60)
    wrong = []
    for end in range(1, ends[-1] + 1):
        (tmp_path / name).write_bytes(octets.getvalue()[:end])
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
            wrong.append((end, found, problem))
    assert wrong == []


@pytest.mark.parametrize("name", ["crawl.warc", "crawl.warc.gz"])
def test_warc_record_without_a_url_is_a_line_that_cannot_be_read(name: str, judge: Judge) -> None:
    octets = BytesIO()
    writer = WARCWriter(octets, gzip=name.endswith(".gz"))
    head = StatusAndHeaders("200 OK", [], protocol="HTTP/1.1")
    for url in (None, f"{SITE}/private"):
        writer.write_record(writer.create_warc_record(url, "response", http_headers=head, payload=BytesIO(), length=0))
    audit, found = judge(octets.getvalue(), name=name, site=None)
    assert found == [(FORBIDDEN, "/private")]
    assert audit.counts()["lines that cannot be read"] == 1


@pytest.mark.clause("RFC 9110 5.3")
def test_all_lines_of_retry_after_in_a_warc_file_count(judge: Judge) -> None:
    octets = BytesIO()
    writer = WARCWriter(octets, gzip=False)
    for at, path, headers in ((0, "/b", [("Retry-After", "2"), ("retry-after", "60")]), (12, "/c", [])):
        answer = StatusAndHeaders("503 No", headers, protocol="HTTP/1.1")
        dated = {"WARC-Date": f"2026-11-26T10:00:{at:02}Z"}
        writer.write_record(
            writer.create_warc_record(
                SITE + path,
                "response",
                payload=BytesIO(b"x"),
                length=1,
                http_headers=answer,
                warc_headers_dict=dated,
            )
        )
    _, found = judge(octets.getvalue(), name="crawl.warc", site=None)
    assert found == [(EARLY, "/c")]


@pytest.mark.parametrize(
    ("time", "second"),
    [
        ("26/Nov/2026:11:00:30 +0100", 30),
        ("26/Nov/2026:04:30:30 -0530", 30),
        ("26/Nov/2026:10:00:30 +0000", 30),
    ],
)
def test_time_zone_of_a_line_counts(time: str, second: int, judge: Judge) -> None:
    line = combined(second, "/private").replace(f"26/Nov/2026:10:00:{second} +0000", time)
    audit, _ = judge(combined(0, "/a"), line)
    [host] = audit.hosts()
    assert [one.started_wall for one in host.worst(FORBIDDEN)] == [1_795_687_230.0]


def test_zone_is_that_of_times_that_name_none(judge: Judge) -> None:
    line = f"2026-11-26 11:00:30 [scrapy.core.engine] DEBUG: Crawled (200) <GET {SITE}/private> (referer: None)"
    audit, _ = judge(line, zone="Europe/Berlin")
    assert audit.hosts()[0].worst(FORBIDDEN)[0].started_wall == 1_795_687_230.0
    with pytest.raises(ConfigurationError, match="Europe/Berlin"):
        judge(line, zone="Nowhere/Town")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("clf", "is unknown. Give json, combined, common, scrapy, warc, or a format of nginx"),
        ("$remote_addr $status", r"lacks \$msec or \$time_iso8601 or \$time_local"),
        ("$msec $status", r"lacks \$request or"),
        ("$msec $request", r"lacks \$status"),
        ("$msec$status $request", r"nothing divides \$msec"),
    ],
)
def test_unknown_format_is_refused(given: str, problem: str, judge: Judge) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        judge(combined(0, "/a"), format=given)


def test_a_finding_shows_no_userinfo_and_fragment_that_a_log_has(judge: Judge) -> None:
    url = SITE.replace("https://", "https://crawler:pa55w0rd@") + "/private#t0ken"
    audit, found = judge(f"2026-11-26 10:00:00 [scrapy.core.engine] DEBUG: Crawled (200) <GET {url}> (referer: None)")
    assert found == [(FORBIDDEN, "/private")]
    assert audit.hosts()[0].worst(FORBIDDEN)[0].url == f"{SITE}/private"
