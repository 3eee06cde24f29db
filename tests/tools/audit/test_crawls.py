"""What the audit and a ledger say of real crawls, and how the report of the audit looks in a browser."""

import gzip
import html
import re
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from playwright.async_api import Page
from typer.testing import CliRunner

from politesse import Gatekeeper, PoliteQueue, PoliteSession
from politesse.audit import Audit, AuditOptions
from politesse.cli.app import app
from politesse.cli.demo import CACHE, FETCH, PACING, UNREACHABLE_S, USER_AGENT
from politesse.cli.demo.report import RETRY_MIN_S
from politesse.cli.demo.sites import TOKEN
from politesse.cli.demo.web import LittleWeb
from politesse.ledger import LedgerReader
from politesse.queue import CrawlPage
from politesse.testing import Exchange
from tests.tools.ledger.test_crawls import check_proof
from tests.wire.clients.browsers import browsing, context_of

FORMAT = (
    '$msec $scheme://$http_host "$request" $status $request_time "$http_user_agent" '
    "$sent_http_retry_after $sent_http_location"
)
HREF = re.compile(r'href="([^"#]*)"')


async def follow_links(page: CrawlPage[None], response: aiohttp.ClientResponse) -> None:
    for link in map(html.unescape, HREF.findall(await response.text(errors="replace"))):
        page.put(link)


def line(one: Exchange) -> str:
    """A line of nginx's log, with microseconds, because the demo is as fast as milliseconds."""
    scheme, _, rest = one.url.partition("://")
    host, _, target = rest.partition("/")
    wait = "-" if one.retry_after_s is None else f"{one.retry_after_s:g}"
    times = f"{one.ended:.6f}", f"{one.ended - one.started:.6f}"
    head = f'{times[0]} {scheme}://{host} "GET /{target} HTTP/1.1" {one.status} {times[1]}'
    return f'{head} "{one.agent}" {wait} {one.location or "-"}'


def audited(web: LittleWeb, folder: Path) -> Audit:
    """Judge the logs of all sites by the robots.txt that they serve."""
    robots: dict[str, bytes] = {}
    names = []
    for place, (site, log) in enumerate(web.logs()):
        head, _, body = (site.blueprint.robots or (b"",))[-1].partition(b"\r\n\r\n")
        robots[site.address] = body if b" 200 " in head[:14] else b""
        if b" 301 " in head[:14]:
            answers = next(other.blueprint.files for other, _ in web.logs() if other.blueprint.files)
            robots[site.address] = answers["/shared/robots.txt"][-1].partition(b"\r\n\r\n")[2]
        # A request that was given up, because no answer came, is missing in the log of a server.
        (folder / str(place)).write_text("\n".join(line(one) for one in log if one.status))
        names.append(folder / str(place))
    options = AuditOptions(
        agents=(TOKEN,),
        robots=robots,
        format=FORMAT,
        min_delay_s=PACING.min_delay_s,
        min_refetch_s=RETRY_MIN_S,
        back_off_s=PACING.backoff_min_s,
        slack_s=1e-5,
        is_whole=True,
    )
    audit = Audit(options)
    list(audit.findings(names))
    return audit


def kinds(audit: Audit) -> Counter[str]:
    return sum((host.kinds for host in audit.hosts()), Counter[str]())


@pytest.mark.full
@pytest.mark.realtime
async def test_polite_crawl_of_the_demo_breaks_no_rule_and_its_ledger_proves_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with (
        LittleWeb(600) as web,
        Gatekeeper(USER_AGENT, fetch=FETCH, cache=CACHE, pacing=PACING, ledger=path) as gate,
        PoliteSession(gate, timeout=aiohttp.ClientTimeout(total=10.0)) as session,
    ):
        queue = PoliteQueue[None](gate, max_unreachable_s=UNREACHABLE_S)
        for url in web.front_pages:
            await queue.put(url)
        report = await queue.crawl(session, follow_links, workers=20)
        assert gate.statistics().unrecorded == 0
        audit = audited(web, tmp_path)
        seen = Counter(one.url for _, log in web.logs() for one in log if not one.url.endswith("/robots.txt"))
    assert kinds(audit) == Counter()
    assert audit.counts()["requests"] > report.pages > 250
    assert Counter(check_proof(path)) == seen
    with LedgerReader(path) as ledger:
        copies = {(one.origin, one.digest) for one in ledger.snapshots()}
    assert max(Counter(origin for origin, _ in copies).values()) > 1  # a robots.txt of the demo changes


async def check_page(page: Page, url: str, width: int, scheme: str, found: str) -> None:
    """Assert that a report fits, loads nothing and runs nothing, in the colours of the scheme."""
    seen: list[Any] = []
    page.on("console", lambda message: seen.append(message.text))
    page.on("pageerror", lambda error: seen.append(str(error)))
    page.on("request", lambda request: seen.append(request.url))
    await page.goto(url)
    assert seen == [url]
    assert await page.evaluate("document.documentElement.scrollWidth") == width
    style = await page.evaluate(
        "(({color, backgroundColor}) => [color, backgroundColor])(getComputedStyle(document.body))"
    )
    dark, light = ["rgb(230, 237, 243)", "rgb(20, 24, 28)"], ["rgb(27, 31, 35)", "rgb(255, 255, 255)"]
    assert style == (dark if scheme == "dark" else light)
    picture = re.compile(f"Requests to h+.test over time, at most .* with {found} findings")
    assert await page.get_by_role("img", name=picture).count() == 1
    assert await page.locator("script, b, i").count() == 0


@pytest.fixture
def reports(tmp_path: Path) -> dict[str, str]:
    """Write the reports of a log and of a cut log; return how many findings the report at each URL has."""
    bot = "ExampleBot/1.0 <script>console.error(1)</script>"
    lines = [
        f'{1_800_000_000 + n}.000 https://{"h" * 60}.test "GET /<script>console.error({n})</script>/{"x" * 400} HTTP/1"'
        f' 200 "{bot}"'
        for n in range(300)
    ]
    whole = gzip.compress("\n".join(lines).encode())
    form = '$msec $scheme://$host "$request" $status "$http_user_agent"'
    options = ["--agent", "ExampleBot", "--format", form, "--min-delay", "5", "--profile", "cbcp"]
    found_at = {}
    for octets, exit_code, found in ((whole, 1, r"3\d\d"), (whole[:-8], 2, "299")):
        log, report = tmp_path / "<b><i>.log.gz", tmp_path / f"{exit_code}.html"
        log.write_bytes(octets)
        assert CliRunner().invoke(app, ["audit", str(log), *options, "--html", str(report)]).exit_code == exit_code
        found_at[report.as_uri()] = found
    return found_at


@pytest.mark.full
async def test_report_fits_the_screen_and_loads_nothing(reports: dict[str, str]) -> None:
    async with browsing() as browser:
        for width in (390, 1280):
            for scheme in ("light", "dark"):
                context = await context_of(browser, viewport={"width": width, "height": 800}, color_scheme=scheme)
                for url, found in reports.items():
                    await check_page(await context.new_page(), url, width, scheme, found)
