"""Logs as programs wrote them: nginx 1.22, Apache 2.4, Caddy 2.6, Scrapy, wget 1.21 and ``politesse crawl``.

A client sent the same ten requests to each of the three servers: a robots.txt, then every six seconds the next page of
ExampleBot, but ``/b/`` two seconds after ``/a/``. A browser requested ``/private/x``, and ExampleBot-Image
``/private/z``. The request for ``/private/y`` had header fields such as ``Url: http://shop.test/a/`` and
``Status: 404``. The answer to ``/busy`` had the status 503 and ``Retry-After: 60``, and ``/c/`` came twelve seconds
later. Scrapy and wget requested nearly the same pages of the same nginx.
"""

from pathlib import Path
from typing import Any, Final

import pytest

from politesse.audit import Audit, AuditOptions

DATA: Final = Path(__file__).parent / "data"
SHOP, LOCAL = "http://shop.test", "http://127.0.0.1:8091"
ROBOTS = 'User-agent: ExampleBot\nDisallow: /private/\nDisallow: /café/\nDisallow: /search?q="\nCrawl-delay: 5\n'
AUDIT_FORMAT = """log_format audit '$msec $scheme://$http_host "$request" $status '
                 '$request_time "$http_user_agent" $sent_http_retry_after';"""

FORBIDDEN = "forbidden page requested"
GAP = "page requested too soon after the request before"
EARLY = "page requested before Retry-After was over"
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
        [
            *(MENU, (FORBIDDEN, "/private/x"), (GAP, "/private/x"), (GAP, "/b/"), SEARCH),
            *((FORBIDDEN, "/private/z"), (GAP, "/private/z"), ORDER),
        ],
    ),
    "caddy.log": (8, {}, COMPLETE),
    # Scrapy does not wait after robots.txt and redirects, and it repeats a request at once after a 503.
    "scrapy.log": (
        12,
        {"site": None, "is_whole": True},
        [
            *((GAP, "/a/"), MENU, (GAP, "/new"), (GAP, "/b/"), SEARCH, ORDER),
            *((EARLY, "/busy"), (GAP, "/busy")),
        ],
    ),
    "wget.warc": (10, {"site": None}, COMPLETE),
    "politesse-crawl.jsonl": (7, {"site": None}, []),
}


@pytest.mark.parametrize("name", FOUND)
def test_log_of_a_real_program_shows_what_a_person_expects(name: str) -> None:
    requests, given, expected = FOUND[name]
    options: dict[str, Any] = {"agents": ("ExampleBot",), "site": SHOP, "robots": {SHOP: ROBOTS, LOCAL: ROBOTS}}
    audit = Audit(AuditOptions(**{**options, **given}))
    found = [(one.kind, one.url.removeprefix(SHOP).removeprefix(LOCAL)) for one in audit.findings([DATA / name])]
    assert sorted(found) == sorted(expected)
    assert audit.counts()["requests"] == requests
    assert "lines that cannot be read" not in audit.counts()


def test_each_format_of_the_guide_has_a_real_log() -> None:
    assert {path.name for path in DATA.iterdir()} == set(FOUND)
