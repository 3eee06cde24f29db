"""``politesse check``: verdicts, hosts, and with ``--page`` the statements of a page and its site."""

import json
import re
import subprocess
import time
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web

import politesse as package
from politesse import Gatekeeper
from politesse.cli import running
from tests.support.sites import EAGER
from tests.tools.cli.command import COMMAND, Origin, politesse, serving

ITSELF = f"politesse/{package.__version__} (robots.txt check)"


async def test_exit_code_says_whether_all_are_allowed_and_decided() -> None:
    async with serving(Origin(headers={"Retry-After": "7"})) as origin:
        for status, paths, code, told in (
            (200, ["/", "/public"], 0, ["allowed: {}/\n", "allowed: {}/public\n"]),
            (200, ["/", "/private/a"], 1, ["disallowed: {}/private/a", "line 2, 'Disallow: /private/'"]),
            (200, ["/"], 0, ["source: {}/robots.txt, successful, status 200"]),
            (503, ["/"], 2, ["not before: "]),
            (429, ["/"], 2, ["not before: "]),
        ):
            origin.status = status
            done = await politesse("check", *(origin.base + path for path in paths))
            assert (done.code, done.err) == (code, "")
            assert [words for words in told if words.format(origin.base) not in done.out] == []


async def test_verdicts_come_in_the_order_of_the_urls() -> None:
    async with serving(Origin()) as one, serving(Origin()) as other:
        urls = [f"{site.base}/{n}" for n in range(5) for site in (one, other)]
        done = await politesse("check", *urls, "--json")
    assert [record["url"] for record in done.records] == urls


async def test_what_is_no_url_exits_2_and_the_others_are_judged() -> None:
    async with serving(Origin()) as origin:
        done = await politesse("check", "ftp://example.com/", f"{origin.base}/")
    assert (done.code, f"\nallowed: {origin.base}/" in done.out) == (2, True)
    done = await politesse("check", "example.com", "localhost:8000/a", "no url", "--host")
    assert (done.code, "disallowed" in done.out, "host: " in done.out) == (2, False, False)
    assert ["".join(pair) for pair in re.findall("no URL: (.*)|write '(.*)'", done.out)] == [
        "example.com",
        "https://example.com",
        "localhost:8000/a",
        "https://localhost:8000/a",
        "no url",
        "https://example.com/page",
    ]


async def test_json_has_its_documented_keys() -> None:
    async with serving(Origin(headers={"Cache-Control": "max-age=600"})) as origin:
        [told] = (await politesse("check", f"{origin.base}/private/a", "--json")).records
    assert list(told) == ["url", "allowed", "reason", "agent", "rule", "source", "age_s", "not_before", "note"]
    assert (told["url"], told["allowed"], told["reason"]) == (f"{origin.base}/private/a", False, "disallow-rule")
    assert (told["agent"], told["not_before"], told["note"]) == ("politesse", None, "")
    assert told["rule"] == {"line": 2, "field": "Disallow", "value": "/private/"}
    source = told["source"]
    assert source.keys() == {"robots_url", "result", "status", "final_url", "fetched", "fresh_until", "fault"}
    assert (source["result"], source["status"], source["fault"]) == ("successful", 200, "")
    assert source["robots_url"] == source["final_url"] == f"{origin.base}/robots.txt"
    assert source["fetched"] < source["fresh_until"]


async def test_agent_chooses_the_group_and_is_not_impersonated() -> None:
    async with serving(Origin("User-agent: ExampleBot\nDisallow: /\n\nUser-agent: *\nAllow: /\n")) as origin:
        for agent in ("ExampleBot", "examplebot", "ExampleBot/2.1 (+https://example.com/bot)"):
            assert (await politesse("check", f"{origin.base}/", "--agent", agent)).code == 1
        assert (await politesse("check", f"{origin.base}/")).code == 0
    assert {request.headers["User-Agent"] for request in origin.requests} == {ITSELF}


async def test_remote_text_steers_neither_the_terminal_nor_rich_and_a_long_url_is_not_folded() -> None:
    hostile = "/[bold red]:smile:[/bold red]\u009b31m\u202e"
    async with serving(Origin(f"User-agent: *\nDisallow: {hostile}*\nDisallow: /\nAllow: /long/\n")) as origin:
        done = await politesse("check", f"{origin.base}{hostile}", FORCE_COLOR="1")
        assert done.code == 1
        assert r"/[bold red]:smile:[/bold red]\x9b31m\u202e" in done.out
        assert ("\u009b" in done.out, "\u202e" in done.out) == (False, False)
        url = f"{origin.base}/{'long/' * 100}"
        assert f"allowed: {url}\n" in (await politesse("check", url)).out


async def test_characters_that_the_encoding_lacks_are_escaped() -> None:
    async with serving(Origin()) as origin:
        done = await politesse("check", f"{origin.base}/é", PYTHONIOENCODING="ascii")
    assert (done.code, f"allowed: {origin.base}/\\xe9\n" in done.out) == (0, True)


@pytest.mark.full
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_disk_exits_2_and_is_reported() -> None:
    for options in ([], ["--json"]):
        with Path("/dev/full").open("wb") as full:
            command = [*COMMAND, "check", "no url", *options]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)  # noqa: S603
        assert (done.returncode, done.stderr) == (2, b"politesse: [Errno 28] No space left on device\n")


async def test_host_is_reported_after_the_verdicts() -> None:
    async with serving(Origin("User-agent: *\nCrawl-delay: 7\nDisallow: /private/\n")) as origin:
        done = await politesse("check", f"{origin.base}/", f"{origin.base}/private/a", "--host")
        verdicts, _, host = done.out.partition("host: ")
        assert (done.code, verdicts.count("allowed: ")) == (1, 2)
        name, *facts = host.splitlines()
        assert (name, facts[facts.index("  robots:") + 1]) == ("127.0.0.1", f"    origin: {origin.base}")
        told = dict(fact.strip().split(": ", 1) for fact in facts if not fact.endswith(":"))
        shown = {"interval_s": "7.0", "bound_by": "crawl-delay", "in_flight": "0", "waiting": "0"}
        assert told.items() >= (shown | {"result": "successful", "status": "200"}).items()
        assert told["not_before"][:2] == told["next_fetch"][:2] == "20"
        assert "closed_until" not in told

        origin.status, origin.headers = 503, {"Retry-After": "700"}
        done = await politesse("check", f"{origin.base}/", "--host")
        assert done.code == 2
        assert "\n  closed_until: 20" in done.out
        assert "\n  closed_by: retry-after\n" in done.out
        robots = f"origin: {origin.base}\n    result: unreachable\n    status: 503\n"
        assert f"\n    {robots}    fault: the server answered with status 503\n" in done.out


async def test_host_as_json_has_its_documented_keys() -> None:
    async with serving(Origin("User-agent: OtherBot\nCrawl-delay: 7\n")) as origin:
        done = await politesse("check", f"{origin.base}/", "--host", "--json", "--agent", "OtherBot")
    verdict, host = done.records
    assert verdict["url"] == f"{origin.base}/"
    keys = (
        "host interval_s bound_by not_before closed_until closed_by waiting in_flight held_by held_s robots fleet_wait"
    )
    assert list(host) == keys.split()
    assert (host["host"], host["interval_s"], host["bound_by"]) == ("127.0.0.1", 7.0, "crawl-delay")
    [robots] = host["robots"]
    assert list(robots) == ["origin", "result", "status", "fault", "age_s", "fetching", "next_fetch"]
    assert (robots["origin"], robots["result"], robots["status"]) == (origin.base, "successful", 200)


# With --page, it requests as politely as a crawl does.

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


def _pages() -> dict[str, tuple[int, str, dict[str, str]]]:
    return {
        "/page": (200, PAGE, {"X-Robots-Tag": "noindex", "tdm-reservation": "1"}),
        "/follow": (200, FOLLOWED, {}),
        "/data.txt": (200, "Dataset: /d.csv\n", {}),
        "/moved": (302, "", {"Location": "/private/a"}),
        "/loop": (302, "", {"Location": "/loop"}),
    }


@dataclass
class Site(Origin):
    robots: str = ROBOTS
    pages: dict[str, tuple[int, str, dict[str, str]]] = field(default_factory=_pages)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        if request.path == "/robots.txt":
            return web.Response(text=self.robots)
        status, text, headers = self.pages.get(request.path, (404, "", {}))
        content_type = "text/plain" if request.path == "/data.txt" else "text/html"
        return web.Response(status=status, text=text, headers=headers, content_type=content_type)


@pytest.fixture
def no_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "Gatekeeper", partial(Gatekeeper, pacing=EAGER))


@pytest.mark.usefixtures("no_pace")
async def test_report_of_a_page_that_closes_its_host_says_until_when_and_does_not_wait_for_that() -> None:
    site = Site()
    site.pages["/page"] = (503, "", {"Retry-After": "7200"})
    async with serving(site) as origin:
        before_wall = time.time()
        done = await politesse("check", "--page", f"{origin.base}/page")
        as_json = await politesse("check", "--page", "--json", f"{origin.base}/page")
    assert done.code == as_json.code == 2
    for words in ("  page:\n    status: 503\n", "    not_before: 20", "    closed_by: retry-after\n"):
        assert words in done.out
    page = json.loads(as_json.out)["page"]
    assert (page["closed_by"], page["data_txt"]) == ("retry-after", None)
    assert 7190 <= datetime.fromisoformat(page["not_before"]).timestamp() - before_wall <= 7260
    assert page["usage"]["ai-train"]["preference"] == "disallowed"  # said by robots.txt
    assert site.paths == ["/robots.txt", "/page"] * 2


@pytest.mark.usefixtures("no_pace")
async def test_a_page_is_reported_with_the_sources_of_what_it_says() -> None:
    async with serving(Site()) as origin:
        done = await politesse("check", "--page", f"{origin.base}/page")
    assert (done.code, done.err) == (0, "")
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
    assert origin.paths == ["/robots.txt", "/page", "/.well-known/tdmrep.json", "/data.txt"]


@pytest.mark.usefixtures("no_pace")
async def test_json_has_the_page_under_its_own_key() -> None:
    async with serving(Site()) as origin:
        done = await politesse("check", "--page", "--json", f"{origin.base}/follow", f"{origin.base}/private/a")
    assert done.code == 1
    followed, denied = done.records
    page = followed["page"]
    keys = "status final_url fault not_before closed_by answers statements description keywords revisit_after_days"
    assert list(page) == f"{keys} links usage licenses sitemaps data_txt truncated".split()
    assert page["links"] == [f"{origin.base}/a"]
    assert page["answers"]["index"] == {"allowed": True, "against": []}
    by = ["robots.txt line 2: Content-Signal: search=yes, ai-train=no"]
    assert page["usage"]["ai-train"] == {"preference": "disallowed", "by": by}
    assert page["usage"]["search"]["preference"] == "allowed"
    assert page["data_txt"] == {"outcome": "found", "records": [[["Dataset", "/d.csv"]]]}
    assert denied["page"] is None


@pytest.mark.usefixtures("no_pace")
async def test_a_page_that_cannot_be_read_is_reported_with_its_fault() -> None:
    async with serving(Site()) as origin:
        denied = await politesse("check", "--page", f"{origin.base}/private/a")
        assert (denied.code, "page:" in denied.out, origin.paths) == (1, False, ["/robots.txt"])
        for path, fault in {
            "/moved": "a redirect leads to what may not be requested",
            "/missing": "status 404\n",
            "/loop": "too many redirects\n",
        }.items():
            done = await politesse("check", "--page", f"{origin.base}{path}", "--timeout", "60")
            assert (done.code, f"    fault: {fault}" in done.out, "    answers:" in done.out) == (2, True, False), path
    assert "/private/a" not in origin.paths
