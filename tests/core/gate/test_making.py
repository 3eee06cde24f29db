"""How a gate is made, and what a newcomer gives wrong; its one event loop, and its end."""

# ruff: noqa: ASYNC240 - the files of these tests are small
import asyncio
import re
import sys
import warnings
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import httpx
import httpx2
import pytest

from politesse import AgentView, Gatekeeper, HostPolicy, NotYet, Origin, PacingOptions, PoliteQueue, PoliteSession
from politesse.errors import (
    ClosedError,
    ConfigurationError,
    ConfigurationTypeError,
    PolitesseWarning,
    StoreError,
    TooFar,
    TurnHeld,
    WrongEventLoop,
)
from politesse.integrations.httpx import PoliteTransport
from politesse.options import FleetOptions, SharedPacer
from politesse.ports import FetchRequest, FetchResult
from politesse.stores import SqliteStore
from politesse.stores.redis import RedisStore
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.gate.gates import DAY, PAGE, PRIVATE, SITE, ScriptedGate
from tests.support.ports import free_port
from tests.support.programs import run_code
from tests.support.scripted import UA, SlowFetcher
from tests.support.stores import KeptStore
from tests.support.tasks import settle

# Identity


@pytest.mark.clause("RFC 9309 2.2.1")
def test_token_is_the_first_product_of_the_user_agent_unless_tokens_are_given() -> None:
    assert Gatekeeper(UA).identity.tokens == ("examplebot",)
    identity = Gatekeeper(UA, token=["ExampleBot-Image", "ExampleBot"]).identity
    assert identity.tokens == ("examplebot-image", "examplebot")
    assert identity.agent == "examplebot-image,examplebot"


def test_invalid_user_agents_and_tokens_are_refused_with_the_reason() -> None:
    browser = "Mozilla/5.0 (compatible; ExampleBot/0.1; https://www.example.com/bot.html)"
    headers = ["", " ", "Bot/1.0\r\nX-Evil: y", "Bot/1.0\n", "Böt/1.0", " Bot/1.0", "Bot/1.0 ", "Bot\t/1.0"]
    libraries = ["Python/3.11 aiohttp/3.14.5", "python-requests/2.32", "Scrapy/2.14 (+https://scrapy.org)"]
    libraries += ["curl/8.0", "httpx/1", "python-httpx2/2.16.2"]
    words = ["*", "/1.0", "[x]/1.0", "(compatible)"]
    rows: list[tuple[Any, Any, str]] = [
        (browser, None, "token="),
        (UA, [], "at least one"),
        *((user_agent, None, "user_agent=") for user_agent in headers),
        *((user_agent, "MyBot", r"library's default; .*, as in 'ExampleBot/1\.0 \(") for user_agent in libraries),
        *((UA, token, "token=") for token in ("", "Foo Bar", "Foobot/2.1", "Foobot*", " Foobot ", "ツ", "a,b", "*")),
        *((word, None, rf"user_agent={re.escape(repr(word))}: its first word") for word in words),
    ]
    for user_agent, token, message in rows:
        with pytest.raises(ConfigurationError, match=message) as raised:
            Gatekeeper(user_agent, token=token)
        assert not isinstance(raised.value, TypeError)
    for tokens in ([3], ["ExampleBot", None]):
        with pytest.raises(ConfigurationTypeError, match="token="):
            Gatekeeper(UA, token=tokens)  # type: ignore[arg-type]
    for user_agent in (browser, *(f"{word} ExampleBot" for word in words)):
        assert Gatekeeper(user_agent, token="ExampleBot").identity.tokens == ("examplebot",)


def test_unusual_token_is_accepted_with_a_warning_at_the_line_of_the_caller() -> None:
    with pytest.warns(PolitesseWarning, match="'bot_2' before '2'") as caught:
        gate = Gatekeeper("bot_2/1.0")
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(PolitesseWarning, match="'bot.x' before '.'") as caught:
        gate.agent(tokens="bot.x", user_agent="bot.x/1.0")
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(PolitesseWarning, match="mj12bot"):
        assert Gatekeeper("MJ12bot/1.0 (+https://example.com)").identity.tokens == ("mj12bot",)
    with pytest.warns(PolitesseWarning, match="occurs in the User-Agent"):
        Gatekeeper(UA, token="OtherBot")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Gatekeeper(UA, token="examplebot")


# The location of the store


async def asks(store: object) -> list[str]:
    """Return what a gate with this store requests to judge a page, which robots.txt disallows."""
    async with ScriptedGate({SITE: PRIVATE}, store=store) as gate:
        assert not await gate.check(f"{SITE}/private")
        return gate.asked


async def test_gate_keeps_its_records_at_a_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    there = f"{tmp_path}/robots.db"
    spellings = ["./robots.db", "sub/../robots.db", "sqlite:///robots.db", f"sqlite:///{there}", there]
    assert await asks("robots.db") == [f"{SITE}/robots.txt"]
    for location in (*spellings, Path("robots.db")):
        assert await asks(location) == []
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["robots.db"]
    store = SqliteStore(there)  # dated by the clock of the gate
    assert {record.stored_wall async for record in store.records()} == {1_800_000_000}
    await store.aclose()
    await asks(f"sqlite:///{tmp_path}/sub/a%20b.db")
    names = ["a b%20?mode=memory#x.db", "c:d?e#f.db", "ü.db"]
    for name in names:
        await asks(tmp_path / "sub" / name)
    assert {file.name for file in (tmp_path / "sub").iterdir()} == {"a%20b.db", *names}


def test_location_that_is_none_is_a_configuration_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    locations = {
        **dict.fromkeys((":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:"), "in memory is the default"),
        "sqlite:robots.db": "no such kind of file; give the path of a file, 'sqlite:///relative.db'",
        **dict.fromkeys(("sqlite:/robots.db", "sqlite://robots.db"), "no such kind of file"),
        **dict.fromkeys(("redis://localhost/0", "file:///robots.db"), "no such kind of file"),
        "sqlite:///robots.db?timeout=5": "make a SqliteStore",
        "": "give the path of a file",
        **dict.fromkeys(("sqlite:///nowhere/robots.db", "nowhere/robots.db"), "there is no folder"),
        ".": "not a regular file",
    }
    for location, problem in locations.items():
        with pytest.raises(ConfigurationError, match=problem) as caught:
            Gatekeeper(UA, store=location)
        assert str(caught.value).startswith(f"store={location!r}: ")
    with pytest.raises(ConfigurationError, match=r"^store='rediss://cache\.example/0': no such kind of file"):
        Gatekeeper(UA, store="rediss://crawler:pa55w0rd@cache.example/0")
    assert list(tmp_path.iterdir()) == []


# The fleet


def fleet_gate(fleet: Any, **options: Any) -> Gatekeeper:
    return Gatekeeper(UA, fetcher=ScriptedFetcher(), fleet=fleet, **options)


def test_gate_loads_neither_redis_nor_requests_and_missing_extra_of_a_fleet_is_named_when_the_gate_is_made() -> None:
    program = (
        "import sys\n"
        "from politesse import ConfigurationError, Gatekeeper\n"
        f"Gatekeeper('{UA}')\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'redis'], 'politesse._redis' in sys.modules)\n"
        "import politesse.sync\n"
        "print('politesse._pacing.fleet.link' in sys.modules, 'requests' in sys.modules)\n"
        "sys.modules['redis'] = None\n"
        "try:\n"
        f"    Gatekeeper('{UA}', fleet='redis://crawler:secret@localhost/0')\n"
        "except ConfigurationError as error:\n"
        "    print(error)"
    )
    printed = run_code(program).stdout
    assert printed.startswith("[] False\nFalse False\n")
    assert "pip install '.[redis]'" in printed
    assert "redis://***@localhost/0" in printed
    assert "secret" not in printed


def test_mistake_in_the_url_is_an_error_when_the_gate_is_made() -> None:
    urls = {
        "": "it is no URL",
        "localhost": "it is no URL",
        "http://:secret@localhost/0": "Redis URL must specify one of the following schemes",
        "redis://:secret@localhost:port/0": "give a URL",
        "redis://:secret@localhost/robots": "is no number of a database",
        "redis://:secret@localhost/0?sokcet_timeout=3": "sokcet_timeout",
        "redis+sentinel://:secret@localhost": "the service is missing",
        "redis+proxy://:secret@localhost": "give a URL",
        "redis+cluster://:secret@,": "a host is missing",
    }
    for url, problem in urls.items():
        for make in (fleet_gate, lambda url: fleet_gate(None, pacer=SharedPacer(fleet=url))):
            with pytest.raises(ConfigurationError, match=problem) as raised:
                make(url)
            assert str(raised.value).startswith("fleet=")
            assert "secret" not in str(raised.value)
    assert fleet_gate("redis+cluster://127.0.0.1:1").peek(PAGE) is None
    for value in (b"redis://:secret@localhost/0", 6379, PacingOptions()):
        message = "fleet: give a URL, as 'redis://host:6379/0', or FleetOptions"
        with pytest.raises(ConfigurationTypeError, match=message) as raised:
            fleet_gate(value)
        assert "secret" not in str(raised.value)


def test_repr_of_the_options_hides_what_is_secret() -> None:
    url = "redis://crawler:s@c:re/t?@cache.example:6379/0?ssl_password=hidden"
    shown = "FleetOptions('redis://***@cache.example:6379/0?...', prefix='politesse:', lease_s=60.0, timeout_s=1.0,"
    assert repr(FleetOptions(url)).startswith(shown)
    assert "prefix='crawl-2:'" in repr(FleetOptions(url, prefix="crawl-2:"))
    assert all(secret not in repr(FleetOptions(url)) for secret in ("crawler", "s@c", "re/t", "hidden"))


async def test_gate_whose_redis_is_away_is_made_and_starts_nothing(tmp_path: Path) -> None:
    for url in (
        "redis://127.0.0.1:{port}/0",
        "rediss://127.0.0.1:{port}/0",
        "unix:///tmp/no-such-socket-{port}",
        "redis+sentinel://127.0.0.1:{port}/crawl/0",
        "redis+cluster://127.0.0.1:{port}",
    ):
        async with fleet_gate(url.format(port=free_port())) as gate:
            assert (await gate.check(PAGE)).allowed
            assert isinstance(gate.try_turn(PAGE), NotYet)
    async with fleet_gate("redis://127.0.0.1:1/0", store=tmp_path / "robots.db") as gate:
        await gate.check(PAGE)
    kept = SqliteStore(tmp_path / "robots.db")
    assert [record.key async for record in kept.records()] == [SITE]
    await kept.aclose()


async def test_store_that_processes_share_goes_with_a_fleet_or_a_pace_that_is_meant_to_be_of_each() -> None:
    with pytest.raises(ConfigurationError, match=r"fleet= and PacingOptions\(scope='process'\) contradict each other"):
        fleet_gate("redis://127.0.0.1:1/0", pacing=PacingOptions(scope="process"))
    with pytest.raises(ConfigurationError, match="several processes share it, and each would have a pace") as raised:
        fleet_gate(None, store=RedisStore("redis://:secret@127.0.0.1:1/0"))
    assert "secret" not in str(raised.value)
    for fleet, pacing in ((None, PacingOptions(scope="process")), ("redis://127.0.0.1:1/0", PacingOptions(scope=""))):
        async with fleet_gate(fleet, store=RedisStore("redis://127.0.0.1:1/0"), pacing=pacing) as gate:
            assert (await gate.check(PAGE)).allowed


# What a newcomer gives wrong: the error names the argument, and what to give


async def handle(page: object, response: object) -> None:
    pass


async def no_arguments() -> None:
    pass


async def three_arguments(page: object, response: object, more: object) -> None:
    pass


async def test_wrong_client_or_handle_of_a_crawl_is_refused_before_the_crawl() -> None:
    classes: list[Any] = [aiohttp.ClientSession, httpx.AsyncClient, httpx2.AsyncClient]
    handles: list[Any] = [no_arguments, three_arguments, partial(handle, page=None)]
    async with ScriptedGate() as gate, httpx.AsyncClient() as client:
        for web in classes:
            with pytest.raises(ConfigurationError, match=r"^web=<class .*: give a PoliteSession, an aiohttp"):
                await PoliteQueue[str](gate).crawl(web, handle)
        for wrong in handles:
            with pytest.raises(ConfigurationError, match="give an asynchronous function of a page and a response"):
                await PoliteQueue[str](gate).crawl(client, wrong)


async def test_wrong_url_status_user_agent_or_second_turn_names_the_argument(clock: ManualClock) -> None:
    nothing: Any = None
    status: Any = "200"
    user_agent: Any = UA
    async with ScriptedGate(fetcher=SlowFetcher(clock), clock=clock) as gate:
        async with PoliteSession(gate) as web:
            with pytest.raises(TypeError, match=r"^url=None: give a str or yarl\.URL, not NoneType"):
                await web.get(nothing)
        with pytest.raises(TooFar, match=r"within 0\.5 s") as far:
            await gate.turn(SITE, max_wait_s=0.5).__aenter__()
        assert far.value.max_wait_s == 0.5
        async with gate.turn(SITE) as turn:
            with pytest.raises(TypeError, match=r"^status='200': give an int"):
                turn.observe(status)
            with pytest.raises(TurnHeld, match="holds a turn for it already, and a turn serves one request"):
                await gate.turn(SITE).__aenter__()
    with pytest.raises(ConfigurationError, match=r"give a Gatekeeper, or .*, as PoliteTransport\(Gatekeeper\('Example"):
        PoliteTransport(user_agent)


# A gatekeeper belongs to one event loop, is closed in one step that nothing stops half-way, and says so after both


UNKNOWN: Final = "https://unknown.example/"
URLS: Final = (PAGE, UNKNOWN, "https://partner.example/", f"{SITE}/robots.txt")  # a partner is exempt by policy

Use = Callable[[AgentView, str], Coroutine[object, object, object]]
Wrong = type[ClosedError] | type[WrongEventLoop]


class Lingering(ScriptedFetcher):
    """Takes its time to be cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.release = asyncio.Event()
        self.fetching = asyncio.Event()

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        self.fetching.set()
        try:
            await asyncio.Event().wait()
        finally:
            await self.release.wait()
        raise AssertionError("it was cancelled")


async def now(ask: Callable[[], object]) -> object:
    return ask()


async def turn(view: AgentView, url: str, exempt: str | None = None) -> None:
    async with view.turn(url, exempt=exempt):
        pass


async def sifted(view: AgentView, *urls: str) -> None:
    async for _ in view.filter(urls):
        pass


async def from_queue(view: AgentView, _: str = "") -> None:
    async with PoliteQueue[None](view).turn():
        pass


USES: Final[dict[str, Use]] = {  # each with a URL
    "peek": lambda view, url: now(lambda: view.peek(url)),
    "check": lambda view, url: view.check(url),
    "check_batch": lambda view, url: view.check_batch([url]),
    "filter": sifted,
    "turn": turn,
    "turn, exempt": lambda view, url: turn(view, url, "our own"),
    "take_turn": lambda view, url: view.take_turn(url),
    "try_turn": lambda view, url: now(lambda: view.try_turn(url)),
    "try_turns": lambda view, url: view.try_turns([url]),
    "usage": lambda view, url: view.usage(url),
    "datatxt": lambda view, url: view.datatxt(url),
    "sitemaps": lambda view, url: view.sitemaps(url),
    "when_ready": lambda view, _: now(lambda: view.when_ready(Origin.of(SITE), lambda: None)),
    "queue.put": lambda view, _: PoliteQueue[None](view).put(PAGE),
    "queue.turn": from_queue,
}
IN_A_LOOP: Final[dict[str, Use]] = {
    "queue.put_nowait": lambda view, url: now(lambda: PoliteQueue[None](view).put_nowait(url)),
    "queue.join": lambda view, _: PoliteQueue[None](view).join(),
}
OF_NOTHING: Final[dict[str, Use]] = {
    "check_batch of nothing": lambda view, _: view.check_batch([]),
    "try_turns of nothing": lambda view, _: view.try_turns([]),
    "filter of nothing": lambda view, _: sifted(view),
}
CHANGES: Final[dict[str, Callable[[ScriptedGate], Coroutine[object, object, object]]]] = {
    "set_policy": lambda gate: now(lambda: gate.set_policy("partner.example", HostPolicy(deny=True, reason="no"))),
    "withdraw a policy": lambda gate: now(lambda: gate.set_policy("partner.example", None)),
    "forget": lambda gate: gate.forget(SITE),
    "agent": lambda gate: now(lambda: gate.agent(tokens="OtherBot")),
    "subscribe": lambda gate: now(lambda: gate.subscribe(lambda _: None)),
}


async def used() -> tuple[ScriptedGate, AgentView]:
    """Return a gate and a view of it, which have answered and wait for the pace of a host."""
    gate = ScriptedGate()
    gate.set_policy("partner.example", HostPolicy(exempt=True, reason="a partner"))
    view = gate.agent(tokens="OtherBot", user_agent="OtherBot/1.0")
    for one in (gate, view):
        assert await one.check(f"{SITE}/")
        assert one.peek(f"{SITE}/")
    gate.refused(PAGE)  # it arms a timer
    return gate, view


async def unrefused(views: Sequence[AgentView], uses: dict[str, Use], *urls: str, error: Wrong) -> list[object]:
    """Return the uses that do not raise the error."""
    others: list[object] = []
    for view in views:
        for url in urls:
            for name, use in uses.items():
                try:
                    async with asyncio.timeout(1):
                        others.append((view, name, url, await use(view, url)))
                except error:
                    pass
                except Exception as other:  # noqa: BLE001 - the test reports it
                    others.append((view, name, url, other))
    return others


async def test_closed_gate_answers_nothing_but_its_statistics_and_cannot_be_changed() -> None:
    gate, view = await used()
    await gate.aclose()
    urls = (*URLS, "mailto:someone")
    assert await unrefused((gate, view), USES | OF_NOTHING, *urls, error=ClosedError) == []
    for change in CHANGES.values():
        with pytest.raises(ClosedError):
            await change(gate)
    assert gate.statistics().decisions == 5
    assert "0 origins known" in repr(gate)


async def test_gate_is_closed_before_aclose_waits_and_a_cancelled_close_closes_everything() -> None:
    fetcher, store = Lingering(), KeptStore({})
    gate = ScriptedGate(fetcher=fetcher, store=store)
    pending = asyncio.ensure_future(gate.check(UNKNOWN))
    await fetcher.fetching.wait()
    closing = asyncio.ensure_future(gate.aclose())
    await asyncio.sleep(0)
    for ask in (gate.try_turn, gate.peek):
        with pytest.raises(ClosedError):
            ask(PAGE)
    with pytest.raises(ClosedError):
        await pending
    assert not closing.done()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    fetcher.release.set()
    await gate.aclose()  # waits for the end of the first
    assert (fetcher.closed, store.closed) == (True, True)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_part_that_fails_to_close_leaves_no_other_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> None:
        raise OSError("a fetcher that cannot be closed")

    store = KeptStore({}, fails={"aclose": StoreError("the disk is full")})
    gate = ScriptedGate(store=store, enforce_usage={"tdm"})
    monkeypatch.setattr(gate.fetcher, "aclose", broken)
    with pytest.raises(StoreError):
        await gate.aclose()
    assert store.calls[-1] == ("aclose", "")
    with pytest.raises(ClosedError):
        await gate.check(f"{SITE}/")


def test_tearing_down_the_loop_during_the_close_leaves_nothing_open() -> None:
    fetchers: list[Lingering] = []
    store = KeptStore({})

    async def main() -> None:
        fetchers.append(fetcher := Lingering())
        gate = ScriptedGate(fetcher=fetcher, store=store)
        pending = asyncio.ensure_future(gate.check(UNKNOWN))
        await fetcher.fetching.wait()
        closing = asyncio.ensure_future(gate.aclose())
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.01, fetcher.release.set)
        for task in (pending, closing):
            task.cancel()
        await asyncio.gather(closing, pending, return_exceptions=True)

    asyncio.run(main())
    assert (fetchers[0].closed, store.closed) == (True, True)


async def test_closing_the_gate_raises_closed_error_in_waiting_turns() -> None:
    gate = ScriptedGate(pacing=PacingOptions(min_delay_s=1_000))
    await gate.check(PAGE)
    assert isinstance(gate.try_turn(PAGE), NotYet)
    queue = PoliteQueue[None](gate)
    await queue.put(PAGE)
    waiting = [asyncio.ensure_future(gate.take_turn(PAGE)), asyncio.ensure_future(queue.turn().__aenter__())]
    await asyncio.sleep(0)
    await asyncio.gather(gate.aclose(), gate.aclose())
    for task in waiting:
        with pytest.raises(ClosedError):
            await task


def test_every_use_in_another_loop_raises_whether_the_first_runs_or_has_ended() -> None:
    views = asyncio.run(used())
    gate, _ = views
    uses = USES | IN_A_LOOP
    assert asyncio.run(unrefused(views, uses, *URLS, error=WrongEventLoop)) == []
    for name in ("forget", "set_policy"):
        with pytest.raises(WrongEventLoop, match="one for each"):
            asyncio.run(CHANGES[name](gate))

    async def ask_from_a_thread() -> None:
        running = await used()
        async with running[0] as gate:
            for name in ("peek", "check"):
                with pytest.raises(WrongEventLoop):
                    await asyncio.to_thread(asyncio.run, USES[name](gate, PAGE))
            gate.clock.advance(0.95 * DAY)  # it would be refreshed in the event loop
            before = len(gate.asked)
            assert await asyncio.to_thread(gate.peek, PAGE)
            await settle()
            assert len(gate.asked) == before
            with pytest.raises(WrongEventLoop):
                await asyncio.to_thread(asyncio.run, gate.aclose())
            gate.fetcher.gate.clear()
            asking = asyncio.ensure_future(gate.check("https://slow.example/"))
            await settle()
            with pytest.raises(WrongEventLoop):  # it would wait for the fetch of this loop
                await asyncio.to_thread(asyncio.run, gate.check("https://slow.example/"))
            gate.fetcher.gate.set()
            assert await asking

    asyncio.run(ask_from_a_thread())


def test_gate_whose_loop_is_gone_still_returns_known_verdicts_and_can_be_closed_in_another() -> None:
    gate, _ = asyncio.run(used())
    assert gate.peek(PAGE)
    assert gate.peek(UNKNOWN) is None
    asyncio.run(gate.aclose())
    asyncio.run(gate.aclose())
    assert gate.fetcher.closed
    entered = ScriptedGate()
    asyncio.run(entered.__aenter__())
    with pytest.raises(WrongEventLoop):
        asyncio.run(entered.check(PAGE))


if sys.version_info >= (3, 12):  # which brought eager tasks

    async def test_eager_tasks_ask_once_for_each_agent() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        async with ScriptedGate() as gate:
            assert await gate.check(f"{SITE}/")
            assert await gate.agent(tokens="OtherBot", user_agent="OtherBot/1").check(f"{SITE}/")
