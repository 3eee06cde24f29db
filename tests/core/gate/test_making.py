"""How a gate is made: its identity, the location of its store, its fleet; and what a newcomer gives wrong.

What a fleet does is in tests/wire/fleet.
"""

# ruff: noqa: ASYNC240 - the files of these tests are small

import re
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest

from politesse import ConfigurationError, Gatekeeper, NotYet, PacingOptions, PoliteQueue, PoliteSession, TooFar
from politesse.errors import ConfigurationTypeError, PolitesseWarning, TurnHeld
from politesse.integrations.httpx import PoliteTransport
from politesse.options import FleetOptions, SharedPacer
from politesse.stores import SqliteStore
from politesse.stores.redis import RedisStore
from politesse.testing import ManualClock, ScriptedFetcher
from tests.core.gate.gates import PAGE, PRIVATE, SITE, ScriptedGate
from tests.support.ports import free_port
from tests.support.programs import run_code
from tests.support.scripted import UA, SlowFetcher

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
        with pytest.raises(ConfigurationError, match=message):
            Gatekeeper(user_agent, token=token)
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
        **dict.fromkeys(
            (":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:"), "a store in memory is the default"
        ),
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


def gate_of(fleet: Any, **options: Any) -> Gatekeeper:
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
        for make in (gate_of, lambda url: gate_of(None, pacer=SharedPacer(fleet=url))):
            with pytest.raises(ConfigurationError, match=problem) as raised:
                make(url)
            assert str(raised.value).startswith("fleet=")
            assert "secret" not in str(raised.value)
    assert gate_of("redis+cluster://127.0.0.1:1").peek(PAGE) is None
    for value in (b"redis://:secret@localhost/0", 6379, PacingOptions()):
        message = "fleet: give a URL, as 'redis://host:6379/0', or FleetOptions"
        with pytest.raises(ConfigurationTypeError, match=message) as raised:
            gate_of(value)
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
        async with gate_of(url.format(port=free_port())) as gate:
            assert (await gate.check(PAGE)).allowed
            assert isinstance(gate.try_turn(PAGE), NotYet)
    async with gate_of("redis://127.0.0.1:1/0", store=tmp_path / "robots.db") as gate:
        await gate.check(PAGE)
    kept = SqliteStore(tmp_path / "robots.db")
    assert [record.key async for record in kept.records()] == [SITE]
    await kept.aclose()


async def test_store_that_processes_share_goes_with_a_fleet_or_a_pace_that_is_meant_to_be_of_each() -> None:
    with pytest.raises(ConfigurationError, match=r"fleet= and PacingOptions\(scope='process'\) contradict each other"):
        gate_of("redis://127.0.0.1:1/0", pacing=PacingOptions(scope="process"))
    with pytest.raises(ConfigurationError, match="several processes share it, and each would have a pace") as raised:
        gate_of(None, store=RedisStore("redis://:secret@127.0.0.1:1/0"))
    assert "secret" not in str(raised.value)
    for fleet, pacing in ((None, PacingOptions(scope="process")), ("redis://127.0.0.1:1/0", PacingOptions(scope=""))):
        async with gate_of(fleet, store=RedisStore("redis://127.0.0.1:1/0"), pacing=pacing) as gate:
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
            with pytest.raises(
                ConfigurationError, match=r"^web=<class .*: give a PoliteSession, an aiohttp\.ClientSes"
            ):
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
