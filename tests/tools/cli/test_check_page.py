"""``politesse check --page`` requests as politely as a crawl does, and prints the statements of page and site."""

import json
import time
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

import pytest
from aiohttp import web

from politesse import Gatekeeper
from politesse.cli import running
from tests.support.sites import EAGER
from tests.tools.cli.command import Origin, politesse, run_process, serving

PAGE = """<!doctype html><html><head>
<meta name="robots" content="nofollow, noai"><meta name="examplebot" content="noarchive">
<meta name="description" content="A \x1b[2Jpage"></head>
<body><a href="/a">a</a><a href="/b" rel="nofollow">b</a></body></html>"""
FOLLOWED = '<title>t</title><a href="/a">a</a><a href="/b" rel="ugc nofollow">b</a><a href="/a#x">again</a>'
ROBOTS = """User-agent: *
Content-Signal: search=yes, ai-train=no
Disallow: /private
Sitemap: https://maps.example/s.xml
License: https://example.com/license.xml
"""


@dataclass
class Site(Origin):
    robots: str = ROBOTS
    pages: dict[str, tuple[int, str, dict[str, str]]] = field(default_factory=dict)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        if request.path == "/robots.txt":
            return web.Response(text=self.robots)
        status, text, headers = self.pages.get(request.path, (404, "", {}))
        content_type = "text/plain" if request.path == "/data.txt" else "text/html"
        return web.Response(status=status, text=text, headers=headers, content_type=content_type)

    @property
    def asked(self) -> list[str]:
        return [request.path for request in self.requests]


@pytest.fixture(autouse=True)
def _no_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing between the requests of a command in this process; one in its own keeps its pace."""
    monkeypatch.setattr(running, "Gatekeeper", partial(Gatekeeper, pacing=EAGER))


def _site() -> Site:
    return Site(
        pages={
            "/page": (200, PAGE, {"X-Robots-Tag": "noindex", "tdm-reservation": "1"}),
            "/follow": (200, FOLLOWED, {}),
            "/data.txt": (200, "Dataset: /d.csv\n", {}),
            "/moved": (302, "", {"Location": "/private/a"}),
        }
    )


async def test_report_of_a_page_that_closes_its_host_says_until_when_and_does_not_wait_for_that() -> None:
    site = _site()
    site.pages["/page"] = (503, "", {"Retry-After": "7200"})
    async with serving(site) as origin:
        before_wall = time.time()
        done = await politesse("check", "--page", f"{origin.base}/page")
        as_json = await politesse("check", "--page", "--json", f"{origin.base}/page")
    assert done.code == as_json.code == 2
    assert "  page:\n    status: 503\n" in done.out
    assert "    not_before: 20" in done.out
    assert "    closed_by: retry-after\n" in done.out
    page = json.loads(as_json.out)["page"]
    assert page["closed_by"] == "retry-after"
    assert 7190 <= datetime.fromisoformat(page["not_before"]).timestamp() - before_wall <= 7260
    assert page["usage"]["ai-train"]["preference"] == "disallowed"  # said by robots.txt
    assert page["data_txt"] is None
    assert site.asked == ["/robots.txt", "/page"] * 2


async def test_a_page_is_reported_with_the_sources_of_what_it_says() -> None:
    async with serving(site := _site()) as origin:
        assert isinstance(site, Site)
        done = await run_process("check", "--page", f"{origin.base}/page")
    assert done.code == 0
    assert done.err == ""
    for line in (
        "  page:\n    status: 200",
        "      index:\n        allowed: False\n        against: X-Robots-Tag 1: noindex",
        "      follow:\n        allowed: False\n        against: META robots 1: nofollow, noai",
        "      archive:\n        allowed: True\n      ",
        "    description: A \\x1b[2Jpage",
        "      ai-train:\n        preference: disallowed\n",
        "        by: meta: robots: nofollow, noai",
        "      tdm:\n        preference: disallowed\n",
        "    licenses: https://example.com/license.xml",
        "    sitemaps: https://maps.example/s.xml",
        "    data_txt:\n      outcome: found",
    ):
        assert f"\n{line}" in done.out, line
    assert "    links: " not in done.out
    assert site.asked == ["/robots.txt", "/page", "/.well-known/tdmrep.json", "/data.txt"]


async def test_json_has_the_page_under_its_own_key() -> None:
    async with serving(_site()) as origin:
        done = await politesse("check", "--page", "--json", f"{origin.base}/follow", f"{origin.base}/private/a")
    assert done.code == 1
    followed, denied = map(json.loads, done.out.splitlines())
    page = followed["page"]
    assert list(page) == [
        "status", "final_url", "fault", "not_before", "closed_by", "answers", "statements", "description", "keywords",
        "revisit_after_days", "links", "usage", "licenses", "sitemaps", "data_txt", "truncated",
    ]  # fmt: skip
    assert page["links"] == [f"{origin.base}/a"]
    assert page["answers"]["index"] == {"allowed": True, "against": []}
    assert page["usage"]["ai-train"] == {
        "preference": "disallowed",
        "by": ["robots.txt line 2: Content-Signal: search=yes, ai-train=no"],
    }
    assert page["usage"]["search"]["preference"] == "allowed"
    assert page["data_txt"] == {"outcome": "found", "records": [[["Dataset", "/d.csv"]]]}
    assert denied["page"] is None


async def test_a_denied_page_is_not_fetched() -> None:
    async with serving(site := _site()) as origin:
        assert isinstance(site, Site)
        done = await politesse("check", "--page", f"{origin.base}/private/a")
    assert done.code == 1
    assert "page:" not in done.out
    assert site.asked == ["/robots.txt"]


async def test_a_redirect_to_a_denied_page_is_reported_and_not_followed() -> None:
    async with serving(site := _site()) as origin:
        assert isinstance(site, Site)
        done = await politesse("check", "--page", f"{origin.base}/moved")
    assert done.code == 2
    assert "    fault: a redirect leads to what may not be requested" in done.out
    assert "/private/a" not in site.asked


async def test_directives_of_an_error_page_do_not_count_for_the_page() -> None:
    async with serving(_site()) as origin:
        done = await politesse("check", "--page", f"{origin.base}/missing")
    assert done.code == 2
    assert "    fault: status 404\n" in done.out
    assert "    answers:" not in done.out


async def test_a_redirect_loop_is_reported_in_words() -> None:
    site = Site(pages={"/loop": (302, "", {"Location": "/loop"})})
    async with serving(site) as origin:
        done = await politesse("check", "--page", f"{origin.base}/loop", "--timeout", "60")
    assert done.code == 2
    assert "    fault: too many redirects\n" in done.out
