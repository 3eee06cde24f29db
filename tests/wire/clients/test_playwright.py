"""Pages of a real Chromium through ``politesse.integrations.playwright``, judged by the logs of the servers."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from aiohttp import web
from playwright import sync_api
from playwright.async_api import Browser, BrowserContext, Error, Page
from playwright.async_api import TimeoutError as PageTimeout

from politesse import ClosedError, ConfigurationError, Disallowed, Gatekeeper, InvalidURL
from politesse.errors import TooFar, TurnHeld, WrongEventLoop
from politesse.integrations.playwright import PolitePage, polite_page
from tests.support.sites import UA, slow_gate, turns, until
from tests.support.tasks import apart, ended
from tests.wire.clients.browsers import NO_ICON, HtmlSite, browsing, context_of
from tests.wire.clients.clients import judge

pytestmark = [pytest.mark.realtime, pytest.mark.full]  # test_clients.py has a short test of the browser

Log = pytest.LogCaptureFixture


@pytest.fixture(autouse=True)
def _logged(caplog: Log) -> None:
    caplog.set_level(logging.INFO, "politesse.integrations.playwright")


@pytest.fixture
def site_class() -> type[HtmlSite]:
    return HtmlSite


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as browser:
        yield browser


@pytest.fixture
async def context(browser: Browser) -> BrowserContext:
    return await context_of(browser)


@pytest.fixture
async def page(context: BrowserContext) -> Page:
    return await context.new_page()


@pytest.fixture
async def tab(page: Page, gate: Gatekeeper) -> PolitePage:
    return await polite_page(page, gate)


async def visit(tab: PolitePage, url: str, status: int = 200, **options: Any) -> str:
    """Load a page; return the URL of its response."""
    response = await tab.goto(url, **options)
    assert response is not None
    assert response.status == status
    return response.url


def busy(_: web.Request) -> web.Response:
    return web.Response(status=429, headers={"Retry-After": "60"}, text=NO_ICON, content_type="text/html")


def script(request: web.Request) -> web.Response:
    return web.Response(text=f"self.loaded = '{request.method} {request.path}'", content_type="text/javascript")


# Redirects


async def test_redirects_are_followed_in_turns_with_their_cookies(site: HtmlSite, other: HtmlSite, page: Page) -> None:
    site.redirects |= {"/moved": (302, f"{other.base}/here"), "/start": (301, "moved#part")}
    other.redirects["/here"] = (308, "/there")
    async with slow_gate(0.2) as gate:
        assert await visit(await polite_page(page, gate), f"{site.base}/start?x=1") == f"{other.base}/there"
        assert turns(gate) == 0
    assert page.url == f"{other.base}/there#part"
    assert (site.pages, other.pages) == (["/start?x=1", "/moved"], ["/here", "/there"])
    assert (site.seen[-1].cookies, other.seen[-1].cookies) == ({"from-start": "yes"}, {"from-here": "yes"})
    assert {cookie["name"] for cookie in await page.context.cookies()} == {"from-start", "from-moved", "from-here"}
    judge(site, other, min_delay_s=0.2)


async def test_disallowed_target_is_not_followed(site: HtmlSite, other: HtmlSite, page: Page, tab: PolitePage) -> None:
    site.redirects |= {"/a": (302, "/b"), "/b": (307, f"{other.base}/private/c"), "/c": (302, "/d")}
    for goto in (tab.goto, page.goto):  # frameworks call that of the page
        with pytest.raises(Disallowed) as refused:
            await goto(f"{site.base}/a")
        assert refused.value.verdict.url == f"{other.base}/private/c"
    response = await page.goto(f"{site.base}/c", timeout=5_000)
    assert response is not None
    assert response.url == f"{site.base}/d"
    await page.route("**/*", lambda route: route.continue_())  # a later route lets no document of goto through
    with pytest.raises(Disallowed):
        await tab.goto(f"{site.base}/b")
    assert len(page._impl_obj._routes) == 2
    assert (site.pages, other.pages) == (["/a", "/b", "/a", "/b", "/c", "/d", "/b"], [])
    judge(site, other)


async def test_redirect_loop_ends_after_20_hops(site: HtmlSite, page: Page, gate: Gatekeeper, caplog: Log) -> None:
    tab = await polite_page(page, gate, subresources=True)
    site.redirects["/loop"] = (302, "/loop")
    with pytest.raises(Error, match=r"^20 redirects end at a redirect to http://\S+/loop$"):
        await tab.goto(f"{site.base}/loop")
    assert site.pages == ["/loop"] * 21
    for html in ("<a id=x href=/loop>x</a>", "<a id=x>x</a><img src=/loop>"):
        site.seen.clear()
        caplog.clear()
        site.html["/"] = html
        await tab.goto(f"{site.base}/")
        await page.click("#x")
        await until(lambda: "20 redirects end at a redirect to" in caplog.text)
        assert site.pages == ["/", *["/loop"] * 21]


async def test_redirects_count_from_the_last_document(site: HtmlSite, page: Page, tab: PolitePage, caplog: Log) -> None:
    site.redirects |= {"/loop": (302, "/loop"), "/moved": (302, "/target")}
    await tab.goto(f"{site.base}/")
    await page.evaluate("setTimeout(() => location = '/loop')")
    await until(lambda: "not loaded" in caplog.text)
    for number in range(22):
        site.seen.clear()
        await page.evaluate(f"setTimeout(() => location = '/moved?{number}')")
        await until(lambda: site.pages[-1:] == ["/target"])
        await page.wait_for_url("**/target")
        await tab.goto(f"{site.base}/")


async def test_redirect_to_nowhere_shows_its_body(site: HtmlSite, other: HtmlSite, page: Page, tab: PolitePage) -> None:
    site.redirects |= {"/none": (302, ""), "/odd": (302, f"ftp://{other.host}/x"), "/data": (302, "data:text/html,x")}
    for path in site.redirects:
        await visit(tab, site.base + path, 302)
        assert await page.inner_text("body") == "moved"
    assert site.pages == [*site.redirects]


async def test_cookie_of_a_redirect_replaces_the_header(site: HtmlSite, browser: Browser, gate: Gatekeeper) -> None:
    context = await context_of(browser, extra_http_headers={"X-Test": "1"})
    await context.add_cookies([{"name": "from-a", "value": "no", "url": site.base}])
    site.redirects["/a"] = (302, "/b")
    site.html["/"] = "<script src=/a></script>"
    await (await polite_page(await context.new_page(), gate, subresources=True)).goto(f"{site.base}/")
    sent = [(seen.path, seen.cookies["from-a"], seen.headers["X-Test"]) for seen in site.seen[1:]]
    assert sent == [("/", "no", "1"), ("/a", "no", "1"), ("/b", "yes", "1")]


# Pace


async def test_wait_that_is_longer_than_the_timeout_does_not_time_out(site: HtmlSite, page: Page) -> None:
    site.redirects["/b"] = (302, "/c")
    async with slow_gate(1.5) as gate:
        tab = await polite_page(page, gate)
        for path in ("/a", "/b"):
            await tab.goto(site.base + path, timeout=1_000)
    assert (page.url, site.pages) == (f"{site.base}/c", ["/a", "/b", "/c"])
    judge(site, min_delay_s=1.5)


async def test_timeout_is_that_of_goto_or_of_the_context(
    site: HtmlSite, page: Page, gate: Gatekeeper, tab: PolitePage, caplog: Log
) -> None:
    page.context.set_default_timeout(500)
    site.work_s = 1.5
    await tab.goto(f"{site.base}/a", timeout=30_000)
    await page.evaluate("setTimeout(() => location = '/silent')")
    await until(lambda: "not loaded" in caplog.text)
    assert "Timeout 500ms exceeded" in caplog.text
    assert (site.pages, turns(gate)) == (["/a", "/silent"], 0)


async def test_ten_pages_keep_the_gaps_of_their_host(site: HtmlSite, other: HtmlSite, context: BrowserContext) -> None:
    site.redirects["/3"] = (302, f"{other.base}/3")

    async def load(number: int) -> str:
        page = await context.new_page()
        await (await polite_page(page, gate)).goto(f"{site.base}/{number}")
        return await page.title()

    async with slow_gate(0.1) as gate:
        titles = await asyncio.gather(*map(load, range(10)))
    assert titles == [f"/{number}" for number in range(10)]
    judge(site, other, min_delay_s=0.1)


async def test_two_visits_at_once_use_no_turn_twice(site: HtmlSite, page: Page) -> None:
    async with slow_gate(0.2) as gate:
        tab = await polite_page(page, gate)
        visits = [apart(tab.goto(f"{site.base}/{number % 3}")) for number in range(6)]
        results = await asyncio.gather(*visits, return_exceptions=True)
        await until(lambda: turns(gate) == 0)
    assert all(isinstance(result, Error) for result in results[:-1] if isinstance(result, Exception))
    judge(site, min_delay_s=0.2)


async def test_navigation_within_the_document_gives_its_turn_back(site: HtmlSite, page: Page) -> None:
    async with slow_gate(2.0) as gate:
        tab = await polite_page(page, gate)
        await tab.goto(f"{site.base}/a")
        assert await tab.goto(f"{site.base}/a#part") is None
        assert (turns(gate), site.pages, page.url) == (0, ["/a"], f"{site.base}/a#part")
        site.redirects["/moved"] = (302, "/b")
        await page.evaluate("setTimeout(() => location = '/moved')")
        await page.wait_for_url("**/b")


# Navigations of the page itself


async def test_navigation_of_the_page_is_paced_with_its_redirects(site: HtmlSite, other: HtmlSite, page: Page) -> None:
    site.redirects["/moved"] = (302, f"{other.base}/here")
    other.redirects["/here"] = (302, "/there#part")
    clicks = {
        "<a id=x href=/moved>x</a>": ("GET", ""),
        "<form action=/moved><input type=submit id=x></form>": ("GET", ""),
        "<form action=/moved method=post><input name=q value=1><input type=submit id=x></form>": ("POST", "q=1"),
        "<button id=x onclick='location = \"/moved\"'>x</button>": ("GET", ""),
    }
    async with slow_gate(0.2) as gate:
        tab = await polite_page(page, gate)
        for html, sent in clicks.items():
            site.html["/"] = html
            await tab.goto(f"{site.base}/")
            await page.click("#x")
            await page.wait_for_url("**/there*")
            await until(lambda: turns(gate) == 0)
            assert (await page.title(), page.url.partition("?")[0]) == ("/there", f"{other.base}/there#part")
            assert (site.seen[-1].method, site.seen[-1].body) == sent
            last = [(seen.method, seen.path.rstrip("?"), seen.body) for seen in other.seen[-2:]]
            assert last == [("GET", "/here", ""), ("GET", "/there", "")]
    judge(site, other, min_delay_s=0.2)


async def test_navigation_of_the_page_itself_never_requests_a_disallowed_page(
    site: HtmlSite, page: Page, tab: PolitePage, caplog: Log
) -> None:
    site.redirects["/moved"] = (302, "/private/x")
    site.html |= {"/1": "<a id=x href=/private/x>x</a>", "/2": "<a id=x href=/moved>x</a>"}
    site.html["/3"] = '<meta http-equiv=refresh content="0;url=/private/x">'
    site.headers["/4"] = {"Refresh": "0;url=/private/x"}
    for path in ("/1", "/2", "/3", "/4"):
        caplog.clear()
        await tab.goto(f"{site.base}{path}")
        if path in {"/1", "/2"}:
            await page.click("#x")
        await until(lambda: f"not loaded: {site.base}/private/x: " in caplog.text)
    await tab.goto(f"{site.base}/a")
    assert site.pages == ["/1", "/2", "/moved", "/3", "/4", "/a"]
    judge(site)


async def test_post_is_not_repeated_after_a_redirect(site: HtmlSite, page: Page, tab: PolitePage, caplog: Log) -> None:
    site.html["/"] = "<form action=/moved method=post><input type=submit id=x></form>"
    for status in (307, 308):
        site.redirects["/moved"] = (status, "/target")
        caplog.clear()
        await tab.goto(f"{site.base}/")
        await page.click("#x")
        await until(lambda: "not loaded" in caplog.text)
        assert f"the POST is redirected to {site.base}/target, and no navigation can repeat it there" in caplog.text
    assert site.pages == ["/", "/moved"] * 2


# Frames and subresources


async def test_frames_are_checked_and_paced(site: HtmlSite, other: HtmlSite, page: Page) -> None:
    site.html["/"] = f"<iframe src=/private/a></iframe><iframe src=/moved></iframe><iframe src={other.base}/c></iframe>"
    site.redirects["/moved"] = (302, "/b")
    async with slow_gate(0.2) as gate:
        await (await polite_page(page, gate)).goto(f"{site.base}/")
        await until(lambda: {frame.url for frame in page.frames} >= {f"{site.base}/b", f"{other.base}/c"})
    assert (site.pages, other.pages) == (["/", "/moved", "/b"], ["/c"])
    judge(site, other, min_delay_s=0.2)


async def test_frame_that_the_browser_gives_up_is_not_requested(site: HtmlSite, page: Page) -> None:
    async with slow_gate(1.0) as gate:
        tab = await polite_page(page, gate)
        await tab.goto(f"{site.base}/")
        await page.evaluate("document.body.innerHTML = '<iframe src=/b></iframe>'")
        await until(lambda: gate.statistics().waiting == 1)
        await page.evaluate("document.body.innerHTML = ''")
        await until(lambda: gate.statistics().waiting == 0)
        await tab.goto(f"{site.base}/c")
    assert site.pages == ["/", "/c"]


async def test_subresources_are_checked_and_paced_if_it_is_asked_for(site: HtmlSite, page: Page) -> None:
    site.html["/"] = (
        "<img src=/a.png><script src=/private/b.js></script><script src=/moved.js></script>"
        "<link rel=stylesheet href=/c>"
    )
    site.redirects["/moved.js"] = (302, "/private/d.js")
    async with slow_gate(0.2) as gate:
        await (await polite_page(page, gate, subresources=True)).goto(f"{site.base}/")
        assert turns(gate) == 0
    assert sorted(site.pages) == ["/", "/a.png", "/c", "/moved.js"]
    judge(site, min_delay_s=0.2)
    site.seen.clear()
    async with slow_gate(10.0) as gate:  # neither by default
        await (await polite_page(page, gate)).goto(f"{site.base}/")
    assert sorted(site.pages) == ["/", "/a.png", "/c", "/moved.js", "/private/b.js", "/private/d.js"]
    assert [seen.headers["User-Agent"] for seen in site.seen] == [UA] * 7  # that of the context


FETCH = "(path) => fetch(path, {method: 'POST', body: 'q'}).then(r => r.text(), String)"


async def test_redirected_part_reaches_the_page(site: HtmlSite, other: HtmlSite, page: Page, gate: Gatekeeper) -> None:
    site.html["/"] = "<script src=/moved.js></script>"
    site.redirects |= {"/moved.js": (302, f"{other.base}/d.js"), "/foreign": (302, f"{other.base}/c")}
    site.redirects |= {"/302": (302, "/c"), "/307": (307, "/c")}
    other.answers["/d.js"] = site.answers["/c"] = script
    await (await polite_page(page, gate, subresources=True)).goto(f"{site.base}/")
    assert await page.evaluate("self.loaded") == "GET /d.js"
    for path, asked, body in (("/302", "GET /c", ""), ("/307", "POST /c", "q")):
        assert asked in await page.evaluate(FETCH, path)
        assert site.seen[-1].body == body
    assert await page.evaluate(FETCH, "/foreign") == "TypeError: Failed to fetch"  # only within its origin
    assert other.pages == ["/d.js"]


@pytest.mark.parametrize(
    "script", ["document.forms[0].submit()", "fetch('/up', {method: 'POST', body: new FormData(document.forms[0])})"]
)
async def test_upload_from_disk_is_sent_with_its_content_or_not_at_all(
    site: HtmlSite, page: Page, gate: Gatekeeper, tmp_path: Path, caplog: Log, script: str
) -> None:
    tab = await polite_page(page, gate, subresources=True)
    site.html["/"] = "<form action=/up method=post enctype=multipart/form-data><input type=file name=u></form>"
    (tmp_path / "a.txt").write_text("on disk")
    await tab.goto(f"{site.base}/")
    await page.set_input_files("input", tmp_path / "a.txt")
    await page.evaluate(f"() => {{ {script} }}")
    await until(lambda: "not loaded" in caplog.text)
    assert "the upload of 'a.txt': Playwright hands over no file that the page reads from disk" in caplog.text
    assert site.pages == ["/"]
    await page.set_input_files("input", {"name": "b.txt", "mimeType": "text/plain", "buffer": b"in memory"})
    await page.evaluate(f"() => {{ {script} }}")
    await until(lambda: len(site.pages) == 2 and turns(gate) == 0)
    assert site.pages == ["/", "/up"]


async def test_a_body_with_many_names_of_files_is_sent_at_once(site: HtmlSite, page: Page, gate: Gatekeeper) -> None:
    await (await polite_page(page, gate, subresources=True)).goto(f"{site.base}/")
    before_s = time.thread_time()
    await page.evaluate("""() => { fetch('/up', {method: 'POST', body: '; filename="a"\\r\\n'.repeat(10000)}) }""")
    await until(lambda: site.pages == ["/", "/up"])
    assert time.thread_time() - before_s < 1.0  # a search that is quadratic takes 6 s


# On a busy machine a navigation takes longer than the 50 ms between two calls: the next one begins after its end, or
# after 3 s if it was broken off.
MOVES_FRAME = """
const frame = document.querySelector('iframe');
frame.onload = () => { frame.began = 0; };
if (!(Date.now() - frame.began < 3000)) { frame.began = Date.now(); frame.src = '/moved?' + Math.random(); }
"""


async def test_requests_of_the_page_before_do_not_disturb_goto(site: HtmlSite, page: Page, gate: Gatekeeper) -> None:
    tab = await polite_page(page, gate, subresources=True)
    site.redirects |= {"/moved": (302, "/f"), "/start": (302, "/")}
    for does in ("fetch('/f')", MOVES_FRAME):
        site.html["/"] = f"<iframe></iframe><script>onload = () => setInterval(() => {{ {does} }}, 50)</script>"
        for _ in range(5):
            assert await visit(tab, f"{site.base}/start") == f"{site.base}/"
            await until(lambda: "/f" in site.pages)
            site.seen.clear()


# What is asked for


async def test_url_is_checked_as_the_browser_sends_it(site: HtmlSite, browser: Browser, gate: Gatekeeper) -> None:
    tab = await polite_page(await (await context_of(browser, base_url=site.base)).new_page(), gate)
    with pytest.raises(Disallowed):
        await tab.goto(f"{site.base}/a/..\\private/x")
    assert await tab.goto("about:blank") is None
    for url in (f"{site.base}/a/..\\b", "/a"):
        await visit(tab, url)
    with pytest.raises(Error, match="ERR_ABORTED"):
        await tab.goto("/private/a")
    with pytest.raises(InvalidURL):
        await tab.goto("http://")
    assert (site.pages, turns(gate)) == (["/b", "/a"], 0)
    tab = await polite_page(
        await (await context_of(browser, extra_http_headers={"Host": "example.com"})).new_page(), gate
    )
    with pytest.raises(InvalidURL, match=r"Host header 'example\.com'"):
        await tab.goto(f"{site.base}/a")
    assert (site.pages, turns(gate)) == (["/b", "/a"], 0)


async def test_browser_requests_no_icon_by_itself(site: HtmlSite, context: BrowserContext, gate: Gatekeeper) -> None:
    for number in range(10):
        site.answers[f"/{number}"] = lambda _: web.Response(text="<title>no icon</title>", content_type="text/html")
        page = await context.new_page()
        await (await polite_page(page, gate)).goto(f"{site.base}/{number}")
        await page.unroute_all()  # as at its end
        await asyncio.sleep(0.2)
        await page.close()
    assert site.pages == [f"/{number}" for number in range(10)]


GUIDE = (Path(__file__).parents[3] / "src/politesse/guides/browsers.md").read_text()


async def test_route_of_the_guide_refuses_requests_of_pages_that_are_not_polite_and_nothing_else(
    site: HtmlSite, context: BrowserContext, page: Page, tab: PolitePage
) -> None:
    [code] = [
        code for code in re.findall(r"^```py\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE) if "polite_pages" in code
    ]
    names: dict[str, Any] = {}
    exec(compile(code, "browsers.md", "exec"), names)  # noqa: S102 - our own guide
    await names["prepare"](context)
    site.html["/"] = """<img src=/a.png>
        <a id=blank target=_blank href=/b>x</a> <a id=noopener target=_blank rel=noopener href=/b>x</a>
        <a id=open onclick="window.open('/b')">x</a>
        <a id=later onclick="const w = window.open(); w.location = '/b'; w.document.write('<img src=/b>')">x</a>"""
    names["polite_pages"].add(page)
    await tab.goto(f"{site.base}/")
    for opens in ("blank", "noopener", "open", "later"):
        await page.click(f"#{opens}")
    await asyncio.sleep(2.5)  # Chromium loads the error page of a failed navigation again after 1.5 s
    opened = await context.new_page()  # as a tab that a click with Ctrl has opened
    with pytest.raises(Error, match="ERR_ABORTED"):
        await opened.goto(f"{site.base}/b")
    await tab.goto(f"{site.base}/c")
    assert site.pages == ["/", "/a.png", "/c"]


# When a turn ends


async def test_network_error_is_raised_and_ends_the_turn(site: HtmlSite, gate: Gatekeeper, tab: PolitePage) -> None:
    site.drops = 1
    with pytest.raises(Error, match=r"Route\.fetch"):
        await tab.goto(f"{site.base}/drop")
    assert turns(gate) == 0
    await visit(tab, f"{site.base}/a")


@pytest.mark.parametrize("where", ["goto", "route"])
async def test_page_closed_during_the_wait_leaves_no_turn_and_no_task(
    site: HtmlSite, page: Page, gate: Gatekeeper, tab: PolitePage, where: str
) -> None:
    site.answers["/busy"] = busy
    await tab.goto(f"{site.base}/busy")
    if where == "goto":
        waiting = apart(tab.goto(f"{site.base}/c"))
    else:
        waiting = apart(page.evaluate("() => { setTimeout(() => location = '/b'); return new Promise(() => 0) }"))
    await until(lambda: gate.statistics().waiting == 1)
    await page.close()
    with pytest.raises(Error, match="the page was closed" if where == "goto" else "closed"):
        await waiting
    await until(lambda: not tab._scopes)
    assert (gate.statistics().waiting, turns(gate)) == (0, 0)
    with pytest.raises(Error, match="the page was closed"):
        await tab.goto(f"{site.base}/c")
    assert site.pages == ["/busy"]


async def test_end_during_the_request_ends_the_turn(site: HtmlSite, context: BrowserContext, gate: Gatekeeper) -> None:
    for end in ("cancel", "timeout", "close", "kill"):
        site.seen.clear()
        page = await context.new_page()
        tab = await polite_page(page, gate)
        going = apart(tab.goto(f"{site.base}/silent", timeout=2_000 if end == "timeout" else 60_000))
        await until(lambda: site.pages == ["/silent"])
        assert turns(gate) == 1
        if end == "cancel":
            going.cancel()
        elif end == "close":
            await page.close()
        elif end == "kill":
            assert context.browser is not None
            with suppress(Error):
                await (await context.browser.new_browser_cdp_session()).send("Browser.crash")
        with pytest.raises((asyncio.CancelledError, Error)) as raised:
            await going
        assert isinstance(raised.value, asyncio.CancelledError) == (end == "cancel")
        assert isinstance(raised.value, PageTimeout) == (end == "timeout")
        await until(lambda: turns(gate) == 0)
        assert not tab._scopes


async def test_crash_of_a_page_ends_its_requests(site: HtmlSite, page: Page, gate: Gatekeeper) -> None:
    page.context.set_default_timeout(60_000)
    tab = await polite_page(page, gate, subresources=True)
    await tab.goto(f"{site.base}/")
    await page.evaluate("() => { fetch('/silent') }")
    await until(lambda: site.pages == ["/", "/silent"])
    crashing = apart((await page.context.new_cdp_session(page)).send("Page.crash"))  # a crashed page does not answer
    await until(lambda: turns(gate) == 0)
    await ended([crashing])
    assert not tab._scopes


async def test_cancelled_goto_takes_no_turn_and_a_pause_follows_a_request(site: HtmlSite, page: Page) -> None:
    async with slow_gate(2.0) as gate:
        tab = await polite_page(page, gate)
        await tab.goto(f"{site.base}/a")
        waiting = apart(tab.goto(f"{site.base}/b"))
        await until(lambda: gate.statistics().waiting == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (gate.statistics().waiting, turns(gate)) == (0, 0)
        going = apart(tab.goto(f"{site.base}/silent"))
        await until(lambda: site.pages == ["/a", "/silent"])
        over = time.monotonic()
        await ended([going])
        await tab.goto(f"{site.base}/c")
    assert site.pages == ["/a", "/silent", "/c"]
    assert site.seen[-1].started - over >= 2.0
    assert site.seen[-2].started - site.seen[-3].ended >= 2.0


async def test_gate_closed_during_the_wait_raises_closed_error(site: HtmlSite, page: Page) -> None:
    site.answers["/busy"] = busy
    gate = Gatekeeper(UA)
    tab = await polite_page(page, gate)
    await tab.goto(f"{site.base}/busy")
    await page.evaluate("setTimeout(() => location = '/b')")
    await until(lambda: gate.statistics().waiting == 1)
    waiting = apart(tab.goto(f"{site.base}/c"))
    await until(lambda: gate.statistics().waiting == 2)
    await gate.aclose()
    for refused in (waiting, tab.goto(f"{site.base}/d"), polite_page(page, gate)):
        with pytest.raises(ClosedError):
            await refused
    await until(lambda: not tab._scopes)
    assert site.pages == ["/busy"]


# Turns of the caller


async def test_held_and_given_turns_are_used(site: HtmlSite, other: HtmlSite, page: Page, gate: Gatekeeper) -> None:
    tab = await polite_page(page, gate, max_wait_s=5)
    async with gate.turn(f"{site.base}/a") as held:
        with pytest.raises(TurnHeld):
            await tab.goto(f"{site.base}/b")
        await tab.goto(f"{site.base}/a")
        assert not held.under_way
    given = await gate.take_turn(f"{other.base}/b")
    await (await polite_page(page, gate, turn=given, max_wait_s=5)).goto(f"{other.base}/b")
    assert (given.under_way, site.pages, other.pages) == (False, ["/a"], ["/b"])
    given = await gate.take_turn(f"{site.base}/silent")
    going = apart((await polite_page(page, gate, turn=given)).goto(f"{site.base}/silent"))
    await until(lambda: site.pages == ["/a", "/silent"])
    assert (given.under_way, given.is_unused) == (True, False)  # claimed while its document is requested
    await ended([going])


async def test_given_turn_that_was_used_or_has_ended_is_not_used(site: HtmlSite, page: Page) -> None:
    async with slow_gate(1.0) as gate:
        given = await gate.take_turn(f"{site.base}/a")
        given.observe(200)
        with pytest.raises(TooFar):
            await (await polite_page(page, gate, turn=given, max_wait_s=0.5)).goto(f"{site.base}/a")
        assert site.pages == []
        tab = await polite_page(page, gate, turn=given)
        given.end()
        over = time.monotonic()
        await tab.goto(f"{site.base}/a")
    assert site.seen[-1].started - over >= 1.0


async def test_given_turn_of_another_url_or_crawler_is_given_back(site: HtmlSite, page: Page, gate: Gatekeeper) -> None:
    site.robots = "User-agent: *\nDisallow: /private\n\nUser-agent: ImageBot\nDisallow: /a\n"
    tab = await polite_page(page, gate, turn=await gate.take_turn(f"{site.base}/b"), max_wait_s=5)
    with pytest.raises(Disallowed):
        await tab.goto(f"{site.base}/private/b")
    await tab.goto(f"{site.base}/a")
    images = gate.agent(tokens=["ImageBot"], user_agent="ImageBot/1.0")
    tab = await polite_page(page, images, turn=await gate.take_turn(f"{site.base}/a"), max_wait_s=5)
    with pytest.raises(Disallowed):
        await tab.goto(f"{site.base}/a")
    await tab.goto(f"{site.base}/b")
    assert turns(gate) == 0
    pages = [(seen.path, seen.headers["User-Agent"]) for seen in site.seen if seen.path != "/robots.txt"]
    assert pages == [("/a", UA), ("/b", "ImageBot/1.0")]


# Wrong use


async def test_second_call_replaces_the_first(site: HtmlSite, other: HtmlSite, page: Page, gate: Gatekeeper) -> None:
    first = await polite_page(page, gate)
    async with slow_gate(0.0) as second:
        tab = await polite_page(page, second)
        await page.unroute("**")
        await page.goto(f"{site.base}/a")
        assert len(page._impl_obj._routes) == 1
        await first.goto(f"{other.base}/b")
        assert page.goto == tab.goto
    assert (site.pages, other.pages) == (["/a"], ["/b"])
    assert gate.statistics().origins == 1
    with pytest.raises(ClosedError):
        await page.goto(f"{site.base}/c")
    await polite_page(page, gate)
    await page.goto(f"{site.base}/d")
    assert site.pages == ["/a", "/d"]


async def test_context_that_runs_service_workers_is_refused(site: HtmlSite, browser: Browser, gate: Gatekeeper) -> None:
    site.answers["/worker.js"] = script
    context = await context_of(browser, service_workers="allow")
    page = await context.new_page()
    tab = await polite_page(page, gate)
    await tab.goto(f"{site.base}/")
    await page.evaluate("navigator.serviceWorker.register('/worker.js').then(() => navigator.serviceWorker.ready)")
    await until(lambda: bool(context.service_workers))
    with pytest.raises(ConfigurationError, match="make it with service_workers='block'"):
        await tab.goto(f"{site.base}/a")
    with pytest.raises(ConfigurationError, match="service_workers"):
        await polite_page(await context.new_page(), gate)
    assert turns(gate) == 0


async def test_wrong_arguments_are_refused(site: HtmlSite, page: Page, gate: Gatekeeper) -> None:
    wrong: Any
    for wrong in (None, "page", page.context, MagicMock(spec=sync_api.Page)):
        with pytest.raises(ConfigurationError, match=r"page=.*: give a Page of playwright\.async_api"):
            await polite_page(wrong, gate)
    for wrong in (None, UA):
        with pytest.raises(ConfigurationError, match=r"polite_page\(.*: give a Gatekeeper"):
            await polite_page(page, wrong)
    for wrong in (-1, "1"):
        with pytest.raises(ConfigurationError, match="max_wait_s"):
            await polite_page(page, gate, max_wait_s=wrong)
    elsewhere = Gatekeeper(UA)

    async def use() -> None:
        await elsewhere.check(f"{site.base}/a")

    await asyncio.to_thread(asyncio.run, use())
    with pytest.raises(WrongEventLoop):
        await polite_page(page, elsewhere)
    await page.close()
    with pytest.raises(Error, match="closed"):
        await polite_page(page, gate)
