"""What holds for every client: each hop is judged once, for the stated agent, in one turn, which its task may hold."""

import asyncio
import gc
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
from yarl import URL

from politesse import (
    AgentView,
    Bound,
    ConfigurationError,
    Disallowed,
    Gatekeeper,
    HostPolicy,
    InvalidURL,
    NotYet,
    PacingOptions,
    PoliteQueue,
    PoliteSession,
    Reason,
    Turn,
)
from politesse.errors import TurnHeld
from politesse.events import Decided, TurnDropped
from politesse.integrations.playwright import polite_page
from politesse.options import SharedPacer
from politesse.queue import CrawlPage
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.events import events_of
from tests.support.programs import run_code
from tests.support.sites import EAGER, UA, Site, slow_gate, turns, until
from tests.support.tasks import apart
from tests.wire.clients.browsers import HtmlSite, browsing, context_of
from tests.wire.clients.clients import CLIENTS, SESSIONS, Aiohttp, Client, Httpx, Session, judge

pytestmark = pytest.mark.timeout(30)

ASKING: dict[str, Callable[..., Client]] = CLIENTS | {
    "RobotsMiddleware without a pace": lambda gate, **options: Aiohttp(SESSIONS["permission"](gate, **options))
}
Dropped = list[TurnDropped]
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
    extras |= {"requests": "requests", "scrapy": "scrapy", "warc": "warcio"}
    program = """
import importlib, sys
for names in sys.argv[1:]:
    name, library = names.split()
    sys.modules[library] = None
    try:
        importlib.import_module(f"politesse.integrations.{name}")
    except ImportError as error:
        assert error.name == error.__cause__.name
        assert error.name.partition(".")[0] == library
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


async def test_host_header_of_another_site_is_not_sent(other: Site, gate: Gatekeeper) -> None:
    own = other.base.removeprefix("http://")
    wrong = ["other.example", "localhost", "localhost:1", "[::1", "", "user@localhost", f"user@{own}"]
    wrong += [f"{own}{tail}" for tail in ("/x", "?other.example", "#other.example", f", {own}")]
    for kind in ASKING:
        for host in wrong:
            with pytest.raises(InvalidURL, match=r"Host header .*: the rules of that site would apply"):
                await get(kind, gate, f"{other.base}/page", {"Host": host})
        with pytest.raises(InvalidURL, match=r"Host header '.*other\.example'"):
            await get(kind, gate, f"{other.base}/page", [("Host", own), ("Host", "other.example")])
        assert other.pages == []
        assert await get(kind, gate, f"{other.base}/page", {"Host": own.upper()}) == 200
        other.seen.clear()


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


async def test_question_is_counted_once(site: Site) -> None:
    ways: dict[str, Callable[[Gatekeeper, str], Awaitable[object]]] = {
        **{kind: partial(get, kind) for kind in ASKING},
        "a session that would not wait for ever": by_session,
        "a turn": by_turn,
        "a turn within a limit": lambda gate, url: by_turn(gate, url, max_wait_s=60),
        "two turns that clients use": by_turn_that_a_client_uses,
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


# The turn that the task holds


async def test_request_within_a_turn_uses_that_turn(site: Site, gate: Gatekeeper, client: Client) -> None:
    queue: PoliteQueue[str] = PoliteQueue(gate)
    for path in ("/1", "/2"):
        await queue.put(f"{site.base}{path}")
    for _ in range(2):
        async with queue.turn() as turn:
            assert await client.get(turn.url) == 200
            assert turns(gate) == 0  # it has ended with its response
    async with gate.turn(f"{site.base}/3") as turn:
        assert await client.get(turn.url) == 200
    while not (tried := gate.try_turn(f"{site.base}/4")):
        await asyncio.sleep(0.001)
    with tried as turn:
        assert await client.get(turn.url) == 200
    assert site.pages == ["/1", "/2", "/3", "/4"]


async def test_child_task_uses_the_turn_of_its_parent_alone(site: Site, gate: Gatekeeper, client: Client) -> None:
    async with gate.turn(f"{site.base}/1") as turn:
        assert await asyncio.wait_for(client.get(turn.url), 5) == 200
    async with gate.turn(f"{site.base}/2") as turn:
        first, second = await asyncio.gather(*(client.get(turn.url) for _ in range(2)), return_exceptions=True)
    assert first == 200
    assert isinstance(second, TurnHeld)
    assert site.pages == ["/1", "/2"]


@pytest.mark.parametrize("is_open", [False, True])
async def test_answer_is_recorded_once(site: Site, gate: Gatekeeper, client: Client, *, is_open: bool) -> None:
    async with gate.turn(f"{site.base}/{'slow' if is_open else '503'}") as turn:
        release = await client.open(turn.url)
        if not is_open:
            release()
            await until(lambda: turns(gate) == 0)
        turn.observe(503, {"Retry-After": "86400"})  # out of place: the integration has recorded the answer
        release()
        await until(lambda: turns(gate) == 0)
    if is_open:
        (await gate.take_turn(f"{site.base}/page", max_wait_s=10)).give_back()
    else:
        refused = gate.try_turn(f"{site.base}/page")
        assert isinstance(refused, NotYet)
        assert refused.bound_by is Bound.RETRY_AFTER
        assert refused.not_before - gate.state.clock.wall() == pytest.approx(3_600, abs=60)


async def test_each_hop_takes_a_turn_of_its_own(site: Site, other: Site, gate: Gatekeeper, client: Client) -> None:
    site.redirects["/moved"] = (302, f"{other.base}/page")
    other.redirects["/back"] = (302, f"{site.base}/page")
    async with gate.turn(f"{site.base}/moved") as turn:
        assert await client.get(turn.url) == 200
    async with gate.turn(f"{other.base}/back") as turn:
        assert await client.get(turn.url) == 200
    assert (site.pages, other.pages) == (["/moved", "/page"], ["/page", "/back"])
    async with gate.turn(f"{site.base}/held") as held:
        with pytest.raises(TurnHeld) as caught:
            await client.get(f"{other.base}/back")
    assert (caught.value.url, caught.value.held_by) == (f"{site.base}/page", held.url)


async def test_turn_is_used_whatever_the_client_makes_of_its_url(site: Site, gate: Gatekeeper, client: Client) -> None:
    tails = ["/ü?q=ä", "/page#fragment", "/a b"]
    for tail in tails:
        async with gate.turn(f"{site.base}{tail}") as turn:
            assert await client.get(turn.url) == 200
    assert site.pages == [URL(f"{site.base}{tail}").raw_path_qs for tail in tails]
    for path in ("/private", "/private/1#part", "/private/ä"):
        async with gate.turn(f"{site.base}{path}", exempt="by agreement") as turn:
            assert await client.get(turn.url) == 200
    decisions = gate.statistics().decisions
    async with gate.turn(f"{site.base}/429?ä b%7E#part") as turn:
        assert await client.get(turn.url) == 429
        assert turn.may_close
    assert gate.statistics().decisions == decisions + 1


async def test_url_that_the_client_rewrites_is_judged_as_it_is_sent(site: Site, gate: Gatekeeper) -> None:
    site.robots = "User-agent: *\nDisallow: /a$\n"
    async with PoliteSession(gate) as web, gate.turn(f"{site.base}/a?") as turn:
        with pytest.raises(Disallowed):
            await web.get(turn.url)  # aiohttp sends /a
    assert site.pages == []


async def test_turn_of_another_or_that_was_used_is_not_used(site: Site, gate: Gatekeeper, client: Client) -> None:
    other = gate.agent(tokens="OtherBot", user_agent="OtherBot/1.0 (+https://example.com/bot)")
    async with other.turn(f"{site.base}/page") as turn:
        with pytest.raises(ConfigurationError, match=r"as examplebot, .* for otherbot: .*gate\.agent"):
            await client.get(turn.url)
    async with Gatekeeper(UA, pacing=EAGER) as another, another.turn(f"{site.base}/page") as turn:
        with pytest.raises(TurnHeld):
            await client.get(turn.url)
    async with gate.turn(f"{site.base}/page") as turn:
        turn.observe(200)  # of another client
        with pytest.raises(TurnHeld):
            await client.get(turn.url)
    assert site.pages == []
    async with Gatekeeper(UA, pacer=SharedPacer(EAGER)) as another, another.turn(f"{site.base}/page") as turn:
        assert await client.get(turn.url) == 200  # a pace of its own
        assert turns(another) == 1
        turn.observe(200)


async def test_cancelled_request_ends_the_turn_that_it_used(site: Site, gate: Gatekeeper, client: Client) -> None:
    async with gate.turn(f"{site.base}/silent") as turn:
        request = asyncio.create_task(client.get(turn.url))
        await until(lambda: site.pages == ["/silent"])
        request.cancel()
        await asyncio.wait([request])
        assert turns(gate) == 0
        assert await client.get(f"{site.base}/page") == 200


async def test_dead_connection_costs_a_turn_for_each_attempt(site: Site, gate: Gatekeeper, client: Client) -> None:
    await client.get(f"{site.base}/page")
    site.drops = 1
    async with gate.turn(f"{site.base}/drop") as turn:
        try:
            assert await client.get(turn.url) == 200  # aiohttp repeats it, in a turn of its own
        except (httpx.RemoteProtocolError, httpx2.RemoteProtocolError):  # these libraries do not
            assert isinstance(client, Httpx)
        assert turns(gate) == 0


# A second turn of the host


async def test_nested_turn_of_a_host_is_an_error_at_once(site: Site, gate: Gatekeeper) -> None:
    async with gate.turn(f"{site.base}/1"):
        with pytest.raises(
            TurnHeld, match=r"/2: this task, or one that started it, holds the turn of its host for .*/1\."
        ):
            async with gate.turn(f"{site.base}/2"):
                pytest.fail("a second turn")
        with pytest.raises(TurnHeld):
            await gate.take_turn(f"{site.base}/1")
        with pytest.raises(Disallowed):
            await gate.take_turn(f"{site.base}/private")
        assert not gate.try_turn(f"{site.base}/2")  # it never waits: an answer, and no error


async def test_other_page_within_a_turn_is_an_error(site: Site, other: Site, gate: Gatekeeper, client: Client) -> None:
    async with gate.turn(f"{site.base}/1") as turn:
        children = asyncio.gather(*(client.get(f"{site.base}/{n}") for n in (2, 3)), return_exceptions=True)
        for error in await asyncio.wait_for(children, 5):
            assert isinstance(error, TurnHeld)
            assert error.held_by == turn.url
        with pytest.raises(TurnHeld) as caught:
            await client.get(f"{site.base}/2")
        assert caught.value.held_by == turn.url
        assert await client.get(f"{other.base}/page") == 200
    assert site.pages == []
    assert await asyncio.create_task(client.get(f"{site.base}/2")) == 200


@pytest.mark.parametrize("has_turn", [False, True])
async def test_second_response_is_an_error(site: Site, gate: Gatekeeper, client: Client, *, has_turn: bool) -> None:
    async def request() -> None:
        release = await client.open(f"{site.base}/slow")
        for path in ("/page", "/slow"):  # the turn of the open response is used up
            with pytest.raises(TurnHeld) as caught:
                await client.get(f"{site.base}{path}")
            assert caught.value.held_by == f"{site.base}/slow"
        release()
        await until(lambda: turns(gate) == 0)
        assert await client.get(f"{site.base}/page") == 200

    if has_turn:
        async with gate.turn(f"{site.base}/slow"):
            await request()
    else:
        await request()


async def test_task_that_began_before_the_turn_waits_for_it(site: Site, gate: Gatekeeper, client: Client) -> None:
    begin = asyncio.Event()

    async def get() -> int:
        await begin.wait()
        return await client.get(f"{site.base}/2")

    waiting = asyncio.create_task(get())
    await asyncio.sleep(0)
    async with gate.turn(f"{site.base}/1"):
        begin.set()
        await until(lambda: gate.statistics().waiting == 1)
    assert await waiting == 200


async def test_page_of_a_crawl_that_requests_its_own_host_fails_at_once(site: Site, gate: Gatekeeper) -> None:
    queue = PoliteQueue[object](gate)
    await queue.put(f"{site.base}/slow")
    errors: list[BaseException] = []
    async with PoliteSession(gate) as web:

        async def handle(page: CrawlPage[object], response: aiohttp.ClientResponse) -> None:
            await asyncio.gather(*(web.get(f"{site.base}/{n}") for n in (2, 3)))

        report = await asyncio.wait_for(queue.crawl(web, handle, on_error=lambda _, error: errors.append(error)), 5)
    assert (report.pages, report.failed) == (0, 1)
    assert isinstance(errors[0], TurnHeld)


async def test_task_may_hold_as_many_turns_as_its_host_grants(site: Site) -> None:
    async with Gatekeeper(UA, pacing=PacingOptions(min_delay_s=0, max_concurrent=2)) as gate:
        async with gate.turn(f"{site.base}/1"), gate.turn(f"{site.base}/2"):
            with pytest.raises(TurnHeld):
                await gate.take_turn(f"{site.base}/3")
        gate.set_policy(site.host, HostPolicy(max_concurrent=1))
        async with gate.turn(f"{site.base}/1"):
            with pytest.raises(TurnHeld):
                await gate.take_turn(f"{site.base}/2")


async def test_turns_that_are_for_or_end_in_other_tasks_are_not_held(site: Site, gate: Gatekeeper) -> None:
    async def request(turn: Turn) -> None:
        with turn:
            await asyncio.sleep(0)

    async def end(turn: Turn) -> None:
        turn.end()

    async def held() -> AsyncGenerator[str, None]:
        async with gate.turn(f"{site.base}/1") as turn:
            yield turn.url

    tasks = [asyncio.create_task(request(await gate.take_turn(f"{site.base}/{n}"))) for n in range(3)]
    await asyncio.gather(*tasks)
    await apart(end((await gate.take_turn(f"{site.base}/1")).__enter__()))
    async with gate.turn(f"{site.base}/2"):
        pass
    fixture = held()
    assert await apart(anext(fixture)) == f"{site.base}/1"
    await apart(fixture.aclose())  # entered in one context, ended in another
    async with gate.turn(f"{site.base}/2"):
        pass


# Turns and responses that are dropped before their end


@pytest.fixture
def dropped(gate: Gatekeeper) -> Dropped:
    """The events of turns that were dropped."""
    return events_of(gate, TurnDropped)


async def test_turn_that_is_dropped_within_its_request_counts_as_a_request_and_gives_its_host_back() -> None:
    url, clock = "https://a.example/page", ManualClock()
    fetcher, pacing = ScriptedFetcher({"https://a.example": 404}), PacingOptions(min_delay_s=5.0)
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, pacing=pacing) as gate:
        dropped = events_of(gate, TurnDropped)
        await gate.check(url)
        clock.advance(10.0)
        with pytest.warns(ResourceWarning, match=r"<Turn .*/page: under way> was dropped"):
            (await gate.take_turn(url)).__enter__()
        assert turns(gate) == 0
        answer = gate.try_turn(url)
        assert isinstance(answer, NotYet)
        assert answer.not_before == clock.wall() + 5.0
        await until(lambda: dropped == [TurnDropped("a.example", url)])


async def turn_of(polite: PoliteSession, gate: Gatekeeper, url: str) -> object:
    return (await gate.take_turn(url)).__enter__()


async def response_of(polite: PoliteSession, gate: Gatekeeper, url: str) -> object:
    return await polite.get(url)


@pytest.mark.parametrize("request_page", [turn_of, response_of])
async def test_turn_or_response_that_another_thread_collects_gives_its_host_back(
    site: Site,
    gate: Gatekeeper,
    polite: PoliteSession,
    dropped: Dropped,
    request_page: Callable[[PoliteSession, Gatekeeper, str], Awaitable[object]],
) -> None:
    cycle: list[object] = [await request_page(polite, gate, f"{site.base}/slow")]
    cycle.append(cycle)
    gc.disable()
    try:
        del cycle
        with pytest.warns(ResourceWarning, match="/slow.* was dropped"):
            await asyncio.get_running_loop().run_in_executor(None, gc.collect)
    finally:
        gc.enable()
    await until(lambda: turns(gate) == 0)
    assert len(dropped) == 1


async def test_unread_response_frees_its_host(site: Site, gate: Gatekeeper, session: Session, dropped: Dropped) -> None:
    with pytest.warns(ResourceWarning, match=r"a response of http://.*/slow was dropped"):
        await session.get(f"{site.base}/slow")
    assert turns(gate) == 0
    async with session.get(f"{site.base}/page") as response:
        assert await response.text() == "page /page"
    assert dropped == [TurnDropped(site.host, f"{site.base}/slow")]
    async with gate.turn(f"{site.base}/slow") as turn:
        with pytest.warns(ResourceWarning, match="/slow was dropped"):
            await session.get(turn.url)
        assert turns(gate) == 0
    await until(lambda: len(dropped) == 2)


async def test_content_outlives_its_response(site: Site, gate: Gatekeeper, session: Session, dropped: Dropped) -> None:
    content = (await session.get(f"{site.base}/slow")).content
    gc.collect()
    assert turns(gate) == 1
    site.go_on.set()
    assert await content.read() == b"first last"
    await until(lambda: turns(gate) == 0)
    site.go_on.clear()
    await (await session.get(f"{site.base}/slow")).content.readany()
    gc.collect()
    assert turns(gate) == 1  # the server is still at it
    site.go_on.set()
    await until(lambda: turns(gate) == 0)
    assert dropped == []


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("limit", "problem"), [("total", "neither read to its end nor released"), ("sock_read", "dropped")]
)
async def test_response_that_is_dropped_partly_read_is_closed_after_a_timeout(
    site: Site, gate: Gatekeeper, polite: PoliteSession, dropped: Dropped, limit: str, problem: str
) -> None:
    options: dict[str, Any] = {limit: 1.0}
    response = await polite.get(f"{site.base}/slow", timeout=aiohttp.ClientTimeout(**options))
    await response.content.readany()
    del response
    assert turns(gate) == 1
    await asyncio.sleep(0.9)
    with pytest.warns(ResourceWarning, match=f"/slow was {problem}"):
        await until(lambda: gc.collect() >= 0 and not turns(gate))
    await until(lambda: len(dropped) == 1)  # the event may come a step after the end
    await polite.get(f"{site.base}/page")


def test_turn_that_is_dropped_as_the_interpreter_exits_is_reported() -> None:
    program = """
import asyncio
from politesse import Gatekeeper, NotYet, PacingOptions
from politesse.testing import ScriptedFetcher
async def take():
    gate = Gatekeeper("ExampleBot/1.0", fetcher=ScriptedFetcher())
    kept.append((await gate.take_turn("https://example.com/\\u202e")).__enter__())
kept = []
asyncio.run(take())
"""
    told = run_code(program, warnings="always").stderr
    assert r"<Turn https://example.com/\u202e: under way> was dropped" in told
    assert "Exception ignored" not in told
