"""What holds for every client: each hop is judged once and for the stated agent, has its turn, and keeps the pace."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest

from politesse import (
    AgentView,
    Bound,
    ConfigurationError,
    Disallowed,
    Gatekeeper,
    HostPolicy,
    InvalidURL,
    NotYet,
    PoliteQueue,
    PoliteSession,
    Reason,
)
from politesse.events import Decided
from politesse.integrations.playwright import polite_page
from tests.support.events import events_of
from tests.support.programs import run_code
from tests.support.sites import EAGER, UA, Site, slow_gate, turns, until
from tests.support.tasks import apart
from tests.wire.clients.browsers import HtmlSite, browsing, context_of
from tests.wire.clients.clients import CLIENTS, SESSIONS, Aiohttp, Client, judge

pytestmark = pytest.mark.timeout(30)

ASKING: dict[str, Callable[..., Client]] = CLIENTS | {
    "RobotsMiddleware without a pace": lambda gate, **options: Aiohttp(SESSIONS["permission"](gate, **options))
}
IN_A_CHECKOUT = "in a checkout of politesse, run: pip install"
however_it_asks = pytest.mark.parametrize("kind", ASKING)


@pytest.fixture(params=CLIENTS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def client(kind: str, gate: Gatekeeper) -> AsyncIterator[Client]:
    made = ASKING[kind](gate)
    yield made
    await made.aclose()


async def get(kind: str, gate: AgentView, url: str, headers: Any = None, own: Any = None) -> int:
    """Return the status of a page: ``headers`` are those of the request, ``own`` those of the client."""
    client = ASKING[kind](gate, headers=own)
    try:
        return await client.get(url, headers=headers)
    finally:
        await client.aclose()


@however_it_asks
async def test_disallowed_redirect_is_not_followed(site: Site, other: Site, client: Client, gate: Gatekeeper) -> None:
    other.robots = "User-agent: *\nDisallow: /shop\n"
    site.redirects = {"/a": (302, "/private/a"), "/b": (302, f"{other.base}/shop")}
    for path in ("/private/page", *site.redirects):
        with pytest.raises(Disallowed) as caught:
            await client.get(f"{site.base}{path}")
        assert caught.value.verdict.rule is not None
    assert (site.paths, other.paths) == (["/robots.txt", "/a", "/b"], ["/robots.txt"])
    assert turns(gate) == 0
    site.redirects["/c"] = (302, f"{other.base}/private")  # by the rules of its own origin
    assert await client.get(f"{site.base}/c") == 200


async def test_report_mode_lets_everything_through(site: Site) -> None:
    for kind in ASKING:
        async with Gatekeeper(UA, mode="report") as gate:
            assert await get(kind, gate, f"{site.base}/private/x") == 200
            assert gate.statistics().denied == {Reason.DISALLOW_RULE: 1}, kind


async def test_answer_that_closes_the_host_ends_its_turn(site: Site, client: Client, gate: Gatekeeper) -> None:
    assert await client.get(f"{site.base}/429") == 429
    refused = gate.try_turn(f"{site.base}/page")
    assert isinstance(refused, NotYet)
    assert (refused.bound_by, turns(gate)) == (Bound.RETRY_AFTER, 0)


@pytest.mark.clause("RFC 9110 5.3")
async def test_all_lines_of_a_header_set_the_pace(site: Site, client: Client, gate: Gatekeeper) -> None:
    for line in ('"burst";r=0;t=100', '"daily";r=1000;t=3600'):
        site.fields.add("RateLimit", line)
    assert await client.get(f"{site.base}/page") == 200
    refused = gate.try_turn(f"{site.base}/page")
    assert isinstance(refused, NotYet)
    assert refused.bound_by is Bound.RATE_LIMIT
    assert refused.not_before - time.time() > 90


async def test_crossed_redirects_do_not_deadlock(site: Site, other: Site, client: Client, gate: Gatekeeper) -> None:
    site.redirects["/cross"] = (302, f"{other.base}/page")
    other.redirects["/cross"] = (302, f"{site.base}/page")
    async with asyncio.timeout(10):
        await asyncio.gather(*(client.get(f"{base}/cross") for base in (site.base, other.base) * 4))
    assert site.pages.count("/page") == other.pages.count("/page") == 4
    assert turns(gate) == 0


@pytest.mark.realtime
async def test_requests_of_one_host_keep_their_distance(site: Site, kind: str) -> None:
    site.work_s = 0.01
    site.redirects["/moved"] = (302, "/after")
    async with slow_gate(0.05) as gate:
        client = CLIENTS[kind](gate)
        await asyncio.gather(*(client.get(f"{site.base}{path}") for path in ("/1", "/moved", "/2", "/3")))
        await client.aclose()
    assert len(site.pages) == 5
    judge(site, min_delay_s=0.05)


async def test_cancelled_requests_give_their_turns_back(site: Site, client: Client, gate: Gatekeeper) -> None:
    chance = random.Random(9309)
    site.work_s = 0.005
    for _ in range(5):
        tasks = [apart(client.get(f"{site.base}/{n}")) for n in range(6)]
        await asyncio.sleep(chance.uniform(0.0, 0.02))
        for task in chance.sample(tasks, 4):
            task.cancel()
        await asyncio.wait(tasks)
    await until(lambda: (turns(gate), gate.statistics().waiting) == (0, 0))
    assert await client.get(f"{site.base}/page") == 200


def test_without_its_library_the_import_of_an_integration_says_what_to_install() -> None:
    extras = {"httpx": "httpx", "httpx2": "httpx2", "crawlee": "crawlee", "playwright": "playwright"}
    extras |= {"requests": "requests", "warc": "warcio"}
    program = """
import importlib, sys
for names in sys.argv[1:]:
    name, library = names.split()
    sys.modules[library] = None
    try:
        importlib.import_module(f"politesse.integrations.{name}")
    except ImportError as error:
        print(error)
"""
    told = run_code(program, *(f"{name} {library}" for name, library in extras.items())).stdout.splitlines()
    assert [line.partition(" (")[0] for line in told] == [
        f"politesse.integrations.{name} needs the extra '{name}'; {IN_A_CHECKOUT} '.[{name}]'" for name in extras
    ]


@pytest.mark.realtime
@pytest.mark.parametrize("site_class", [HtmlSite])
async def test_page_of_a_browser_is_loaded_unless_it_is_disallowed(site: HtmlSite, gate: Gatekeeper) -> None:
    async with browsing() as browser:
        page = await (await context_of(browser)).new_page()
        tab = await polite_page(page, gate)
        response = await tab.goto(f"{site.base}/a")
        assert response is not None
        assert (response.status, await page.title(), page.url) == (200, "/a", f"{site.base}/a")
        with pytest.raises(Disallowed) as refused:
            await tab.goto(f"{site.base}/private/x")
        assert refused.value.verdict.reason is Reason.DISALLOW_RULE
        assert await page.title() == "/a"
    assert (site.paths, turns(gate)) == (["/robots.txt", "/a"], 0)
    judge(site)


async def test_host_header_of_another_site_is_not_sent(site: Site, gate: Gatekeeper) -> None:
    own = site.base.removeprefix("http://")
    wrong = ["other.example", "127.0.0.1", "127.0.0.1:1", "[::1", "", "user@127.0.0.1", f"user@{own}"]
    wrong += [f"{own}{tail}" for tail in ("/x", "?other.example", "#other.example", f", {own}")]
    for kind in ASKING:
        for host in wrong:
            with pytest.raises(InvalidURL, match=r"Host header .*: the rules of that site would apply"):
                await get(kind, gate, f"{site.base}/page", {"Host": host})
        with pytest.raises(InvalidURL, match=r"Host header '.*other\.example'"):
            await get(kind, gate, f"{site.base}/page", [("Host", own), ("Host", "other.example")])
        assert site.pages == []
        assert await get(kind, gate, f"{site.base}/page", {"Host": own.upper()}) == 200
        site.seen.clear()


async def test_headers_of_the_client_reach_its_pages_and_no_robots_txt(site: Site, other: Site) -> None:
    site.redirects["/moved"] = (302, f"{other.base}/page")
    secrets = {"X-Secret": "1", "Authorization": "Bearer 1", "Cookie": "login=1"}
    for kind in ASKING:
        async with Gatekeeper(UA, pacing=EAGER) as gate:
            await get(kind, gate, f"{site.base}/moved", own=secrets)
            asked, sent = site.seen
            robots = [asked, other.seen[0]]
            assert [(one.path, one.headers["User-Agent"]) for one in robots] == [("/robots.txt", UA)] * 2
            assert not any(secrets.keys() & one.headers.keys() for one in robots), kind
            assert (sent.path, {name: sent.headers[name] for name in secrets}) == ("/moved", secrets), kind
            site.seen.clear()
            other.seen.clear()


# One decision is counted for each question


async def by_turn(gate: Gatekeeper, url: str, **options: Any) -> None:
    async with gate.turn(url, **options):
        pass


async def by_session(gate: Gatekeeper, url: str) -> None:
    async with PoliteSession(gate, max_wait_s=60) as web, web.get(url) as response:
        await response.read()


async def by_turn_that_a_client_uses(gate: Gatekeeper, url: str) -> None:
    for kind in ("PoliteSession", "PoliteTransport"):
        async with gate.turn(url):
            await get(kind, gate, url)


async def by_filter(gate: Gatekeeper, url: str) -> None:
    assert [item async for item, _ in gate.filter([url])] == [url]


async def test_question_is_counted_once(site: Site) -> None:
    ways: dict[str, Callable[[Gatekeeper, str], Awaitable[object]]] = {
        **{kind: partial(get, kind) for kind in ASKING},
        "a session that would not wait for ever": by_session,
        "a turn": by_turn,
        "a turn within a limit": lambda gate, url: by_turn(gate, url, max_wait_s=60),
        "two turns that clients use": by_turn_that_a_client_uses,
        "check": lambda gate, url: gate.check(url),
        "check_batch": lambda gate, url: gate.check_batch([url]),
        "filter": by_filter,
    }
    for way, ask in ways.items():
        for known in (False, True):
            for path in ("/page", "/private"):
                async with slow_gate(0.0) as gate:
                    if known:
                        await gate.check(f"{site.base}/")
                    before, decided = gate.statistics().decisions, events_of(gate, Decided)
                    try:
                        await ask(gate, f"{site.base}{path}")
                    except Disallowed:
                        assert path == "/private"
                    expected = 2 if ask is by_turn_that_a_client_uses and path == "/page" else 1
                    assert gate.statistics().decisions - before == expected, way
                    assert [event.verdict.url for event in decided] == [f"{site.base}{path}"] * expected


@however_it_asks
async def test_each_hop_is_a_question(site: Site, gate: Gatekeeper, client: Client) -> None:
    site.redirects["/moved"] = (302, "/page")
    await client.get(f"{site.base}/moved")
    assert gate.statistics().decisions == 2


@pytest.mark.realtime
@pytest.mark.parametrize("max_wait_s", [None, 60.0])
async def test_question_that_is_judged_again_after_a_wait_is_counted_once(site: Site, max_wait_s: float | None) -> None:
    for denied in (False, True):
        async with slow_gate(0.1) as gate, PoliteSession(gate, max_wait_s=max_wait_s) as web:
            waiting = asyncio.create_task(web.get(f"{site.base}/page"))
            await until(lambda: gate.statistics().waiting == 1)
            gate.set_policy(site.host, HostPolicy(deny=denied))  # so it is judged again
            with pytest.raises(Disallowed) if denied else nullcontext():
                (await waiting).close()
            assert gate.statistics().decisions == 1
            assert bool(gate.statistics().allowed) is not denied
        assert turns(gate) == 0


# A request that states another User-Agent than the gate's is judged for that one, or refused


OF_AGENTS = "User-agent: EvilBot\nDisallow: /\n\nUser-agent: ExampleBot-Special\nDisallow: /special\n"
EVIL = "evilbot/1.0"


async def test_view_of_another_agent_is_judged_and_named_as_such(site: Site, gate: Gatekeeper) -> None:
    site.robots = "User-agent: ExampleBot-Image\nDisallow: /images\n"
    image = gate.agent(tokens="ExampleBot-Image", user_agent="ExampleBot-Image/1.0")
    for kind in ASKING:
        with pytest.raises(Disallowed):
            await get(kind, image, f"{site.base}/images/1")
        await get(kind, image, f"{site.base}/page")
    agents = [UA, *["ExampleBot-Image/1.0"] * len(ASKING)]
    assert [seen.headers["User-Agent"] for seen in site.seen] == agents


@however_it_asks
async def test_stated_agent_is_judged_and_sent_as_it_is(site: Site, other: Site, gate: Gatekeeper, kind: str) -> None:
    site.robots = other.robots = OF_AGENTS
    for own, stated in (({"User-Agent": EVIL}, None), ({"User-Agent": UA}, EVIL), (None, EVIL)):
        with pytest.raises(Disallowed) as caught:
            await get(kind, gate, f"{site.base}/page", stated and {"user-agent": stated}, own)
        assert caught.value.verdict.agent == "evilbot"
    with pytest.raises(Disallowed):
        await get(kind, gate, f"{site.base}/special", {"User-Agent": "ExampleBot-Special/1.0"})
    assert site.pages == []
    for stated, path in (
        (UA, "/special"),
        ("examplebot/2.0", "/special"),
        ("Mozilla/5.0 (compatible; ExampleBot/1.0)", "/special"),
        ("ExampleBot-Special/1.0", "/page"),
        ("AnyBot/1.0 (+https://any.example)", "/page"),
        ("AnyBot/1.0 (+https://any.example)", "/special"),
    ):
        assert await get(kind, gate, f"{site.base}{path}", {"User-Agent": stated}) == 200
        assert site.seen[-1].headers["User-Agent"] == stated
    site.robots, site.redirects["/moved"] = "", (302, f"{other.base}/page")
    await gate.forget(site.base)
    with pytest.raises(Disallowed):  # so is the target of a redirect
        await get(kind, gate, f"{site.base}/moved", {"User-Agent": EVIL})
    assert other.pages == []
    other.robots = "User-agent: ExampleBot\nDisallow: /\n"  # which binds a name that contains the token of the gate
    await gate.forget(other.base)
    with pytest.raises(Disallowed):
        await get(kind, gate, f"{other.base}/page", {"User-Agent": "ExampleBot-Special/1.0"})


@however_it_asks
async def test_user_agent_that_names_no_crawler_is_refused(site: Site, gate: Gatekeeper, kind: str) -> None:
    x11 = r"^user_agent='Mozilla/5\.0 \(X11\)': (?!.*token=).*; leave this header out"
    for stated, problem in (
        ({"User-Agent": "Mozilla/5.0 (X11)"}, x11),
        ({"User-Agent": "curl/8.5"}, "library's default"),
        ({"User-Agent": "(none)"}, "its first word has to be the crawler's name"),
        ([("User-Agent", UA), ("User-Agent", EVIL)], "2 User-Agents are stated"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            await get(kind, gate, f"{site.base}/page", stated)
    assert site.pages == []
    if kind in {"PoliteSession", "PoliteTransport"}:
        await get(kind, gate, f"{site.base}/page", {"User-Agent": ""})
        assert site.seen[-1].headers["User-Agent"] == UA


async def test_agent_that_a_middleware_states_is_judged(site: Site, gate: Gatekeeper) -> None:
    site.robots = OF_AGENTS

    async def rename(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        request.headers["User-Agent"] = EVIL
        return await handler(request)

    async with PoliteSession(gate, middlewares=[rename]) as session:
        with pytest.raises(Disallowed):
            await session.get(f"{site.base}/page")
    assert site.pages == []


async def test_crawl_by_a_client_that_states_another_agent_is_refused(site: Site, gate: Gatekeeper) -> None:
    site.robots = OF_AGENTS
    headers = {"User-Agent": EVIL}
    clients: list[Any] = [PoliteSession(gate, headers=headers)]
    clients += [kind(headers=headers) for kind in (aiohttp.ClientSession, httpx.AsyncClient, httpx2.AsyncClient)]

    async def handle(page: object, response: object) -> None:
        pass

    for client in clients:
        async with client as web:
            queue = PoliteQueue[object](gate)
            await queue.put(f"{site.base}/page")
            with pytest.raises(ConfigurationError, match=r"evilbot.*gate\.agent"):
                await queue.crawl(web, handle)
    assert site.pages == []
