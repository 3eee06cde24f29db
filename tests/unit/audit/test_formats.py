import json
from io import BytesIO
from typing import Any

import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from politesse.errors import ConfigurationError
from tests.unit.audit.conftest import SENT, SITE, Judge, combined

FORBIDDEN = "forbidden page requested"
GAP = "page requested too soon after the request before"
EARLY = "page requested before Retry-After was over"
_RETRY, _REDIRECT = "scrapy.downloadermiddlewares.retry", "scrapy.downloadermiddlewares.redirect"
AT = 1_800_000_000  # 2027-01-15T08:00:00Z


def caddy(at: float, uri: str, status: int = 200, **answer: str) -> str:
    request = {"method": "GET", "host": "example.com", "uri": uri, "headers": {"User-Agent": [SENT]}}
    return json.dumps({"ts": at, "request": request, "duration": 0.25, "status": status, **answer})


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
                        "elapsed_s": 0.5,
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
    cut = judge(octets.getvalue()[:20_000], name="plain.warc", site=None) if name == "crawl.warc" else None
    assert cut is None or cut[1][:2] == found[:2]


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
