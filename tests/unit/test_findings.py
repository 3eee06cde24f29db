"""What reviewers and fuzzers found once; each stays found."""

from __future__ import annotations

import asyncio
import sys
import unicodedata
from typing import TYPE_CHECKING, Any, cast

import aiohttp
import pytest
from yarl import URL

from politesse import (
    CacheOptions,
    ConfigurationError,
    FetchOptions,
    Gatekeeper,
    HostPolicy,
    InvalidURL,
    MemoryStore,
    Origin,
    PoliteQueue,
    Reason,
)
from politesse._gate.gatekeeper import agent_of
from politesse.integrations.aiohttp import RobotsMiddleware
from politesse.origin import MAX_URL_LENGTH, split
from politesse.ports import FetchResponse
from politesse.robots import RobotsTxt
from politesse.robots.crawl_directives import parse_request_rate, parse_visit_time
from politesse.testing import ManualClock, ScriptedFetcher, ScriptedResolver

if TYPE_CHECKING:
    from politesse.ports import FetchRequest, FetchResult

SITE = "https://example.com"
UA = "ExampleBot/1.0 (+https://example.com/bot)"


def test_blanks_in_a_directive_cost_no_more_than_their_number() -> None:
    blanks = " " * 500_000  # quadratic, this would take an hour
    assert parse_visit_time(f"0600{blanks}x") is None
    assert parse_request_rate(f"1/1{blanks}x") is None


@pytest.mark.parametrize(
    ("host", "known_as"),
    [
        ("\u00ad" * 244 + "example.com.evil.org", "example.com.evil.org"),
        (
            ".".join([unicodedata.normalize("NFD", "각" * 20)] * 4) + ".example.com.evil.org",
            ".".join([("각" * 20).encode("idna").decode()] * 4) + ".example.com.evil.org",
        ),
    ],
)
def test_long_host_is_never_cut_to_another(host: str, known_as: str) -> None:
    assert split(f"http://{host}/")[0].host == known_as


def test_host_of_absurd_length_is_refused() -> None:
    with pytest.raises(InvalidURL, match="characters"):
        split("http://" + "각" * 2_000 + "/")


@pytest.mark.parametrize("host", ["good.example\\@evil.example", "good.example\\.evil.example", "\\example.com"])
def test_backslash_before_the_path_is_refused(host: str) -> None:
    with pytest.raises(InvalidURL, match="backslash"):
        split(f"http://{host}/")


def test_undecodable_octets_in_a_text_body_are_the_octets_that_they_were() -> None:
    rules = RobotsTxt.parse(b"User-agent: *\nDisallow: /caf\xe9".decode("utf-8", "surrogateescape")).rules_for("x")
    assert not rules.allowed("/caf%E9")


def test_lone_surrogate_in_a_url_is_refused() -> None:
    with pytest.raises(InvalidURL, match="surrogate"):
        RobotsTxt.parse("User-agent: *\nDisallow: /x").rules_for("x").allowed("/caf\udce9")


def test_sitemap_with_a_control_character_is_not_handed_on() -> None:
    assert RobotsTxt.parse("Sitemap: https://h/a\x1b[2J\nSitemap: https://h/b").sitemaps == ["https://h/b"]


@pytest.mark.parametrize("url", ["https://example.com/a\nb", "https://example.com/a\udce9"])
async def test_error_names_the_whole_url_that_was_given(url: str) -> None:
    async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate:
        await gate.check("https://example.com/")
        with pytest.raises(InvalidURL) as caught:
            gate.peek(url)
    assert caught.value.url == url


@pytest.mark.parametrize(("written", "sent"), [("/a?", "/a"), ("/a%26b", "/a&b")])
def test_urls_that_aiohttp_rewrites_are_judged_as_sent_when_asked_through_yarl(written: str, sent: str) -> None:
    rules = RobotsTxt.parse(f"User-agent: *\nDisallow: {sent}$\n").rules_for("x")
    assert rules.allowed(f"https://example.com{written}")
    assert not rules.allowed(str(URL(f"https://example.com{written}")))


@pytest.mark.parametrize(
    ("pattern", "target"),
    [
        ("/*%2Fadmin", "/login?next=%2Fadmin"),
        ("*%5B", "/q?a%5B0%5D=1"),
        ("/*%3Ax", "/?%3Ax"),
        ("/*/foo", "/x?y=%2Ffoo"),
    ],
)
def test_star_that_reaches_into_the_query_meets_its_escapes(pattern: str, target: str) -> None:
    assert not RobotsTxt.parse(f"User-agent: *\nDisallow: {pattern}").rules_for("x").allowed(target)


async def test_host_that_is_denied_while_its_robots_txt_is_waited_for_is_denied() -> None:
    fetcher = ScriptedFetcher()
    fetcher.gate.clear()
    async with Gatekeeper(UA, fetcher=fetcher) as gate:
        asking = asyncio.ensure_future(gate.check("https://example.com/x"))
        while not fetcher.requests:
            await asyncio.sleep(0)
        gate.set_policy("example.com", HostPolicy(deny=True))
        fetcher.gate.set()
        assert (await asking).reason is Reason.POLICY_DENY


async def test_wall_clock_that_is_set_back_while_a_record_is_saved_keeps_nothing_fresh_for_years() -> None:
    clock = ManualClock()

    class Slow(MemoryStore):
        async def put(self, key: str, record: bytes, /) -> None:
            clock.set_wall(clock.wall() - 3_650 * 86_400)
            await super().put(key, record)

    fetcher = ScriptedFetcher()
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, store=Slow()) as gate:
        await gate.check("https://example.com/")
        clock.advance(86_401)
        assert gate.peek("https://example.com/") is None


@pytest.mark.parametrize(("status", "option"), [(403, {"on_forbidden": "disallow"}), (429, {})])
async def test_record_is_read_by_the_policy_of_its_reader(status: int, option: dict[str, str]) -> None:
    store = MemoryStore()
    lenient = CacheOptions(on_too_many_requests="allow")
    gate = Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: status}), store=store, cache=lenient)
    assert await gate.check(f"{SITE}/")
    strict = CacheOptions(**option)  # type: ignore[arg-type]
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({SITE: status}), store=store, cache=strict) as other:
        assert not await other.check(f"{SITE}/")


async def test_forget_is_not_undone_by_a_flight_that_reads_the_store() -> None:
    reading, go_on = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def get(self, key: str, /) -> bytes | None:
            kept = await super().get(key)
            reading.set()
            await go_on.wait()
            return kept

    store = Slow()
    go_on.set()
    fetcher = ScriptedFetcher()
    async with Gatekeeper(UA, fetcher=fetcher, store=store) as gate:
        await gate.check(f"{SITE}/")
        fetcher.answers[SITE] = "User-agent: *\nDisallow: /"
        go_on.clear()
        reading.clear()
        agent_of(gate).ask_ahead(Origin.of("https://other.example/"))
        other = gate.agent(tokens="OtherBot", user_agent="OtherBot/1")
        await gate.forget(SITE)
        asking = asyncio.ensure_future(other.check(f"{SITE}/"))
        await reading.wait()
        await gate.forget(SITE)
        go_on.set()
        assert not await asking
    assert fetcher.count(SITE) == 2


async def test_flight_that_is_cancelled_before_its_first_step_blocks_nobody() -> None:
    async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate:
        first = asyncio.ensure_future(gate.check(f"{SITE}/"))
        await asyncio.sleep(0)
        for task in asyncio.all_tasks():
            if task.get_name().startswith("robots.txt of"):
                task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await gate.check(f"{SITE}/")


if sys.version_info >= (3, 12):  # which brought eager tasks

    async def test_eager_tasks_ask_once_for_each_agent() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate:
            assert await gate.check(f"{SITE}/")
            assert await gate.agent(tokens="OtherBot", user_agent="OtherBot/1").check(f"{SITE}/")


async def test_fetcher_that_raises_a_cancellation_of_its_own_closes_the_gate() -> None:
    class Confused(ScriptedFetcher):
        async def fetch(self, request: FetchRequest, /) -> FetchResult:
            raise asyncio.CancelledError

    async with Gatekeeper(UA, fetcher=Confused()) as gate:
        assert (await gate.check(f"{SITE}/")).reason is Reason.UNREACHABLE


def test_what_is_kept_beside_the_rules_weighs_too() -> None:
    for line in ("Comment: x\n", "Request-rate: 1/5\n", "Visit-time: 0000-2359\n"):
        rules = RobotsTxt.parse("User-agent: *\n" + line * 1_000).rules_for("x")
        assert rules.weight_bytes > 100_000


async def test_closing_that_is_given_up_goes_on() -> None:
    release = asyncio.Event()

    class Stubborn(ScriptedFetcher):
        async def aclose(self) -> None:
            await release.wait()
            await super().aclose()

    fetcher = Stubborn()
    gate = Gatekeeper(UA, fetcher=fetcher)
    closing = asyncio.ensure_future(gate.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    release.set()
    await gate.aclose()
    assert fetcher.closed


async def test_key_that_raises_loses_nothing_that_was_taken_before() -> None:
    async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate:
        judged = gate.filter([f"{SITE}/", ""], key=lambda item: item[:99] if item else str(1 / 0))
        assert (await anext(judged))[0] == f"{SITE}/"
        with pytest.raises(ZeroDivisionError):
            await anext(judged)


@pytest.mark.parametrize(
    "wrong",
    [
        {"store": object()},
        {"store": "sqlite:///x"},
        {"fetcher": object()},
        {"session": object()},
        {"cache": {}},
        {"fetch": {}},
        {"pacing": 5},
        {"dialect": "RFC9309"},
    ],
)
def test_option_of_the_wrong_kind_is_refused_at_once(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Gatekeeper(UA, **wrong)  # type: ignore[arg-type]


async def test_policy_of_the_wrong_kind_is_refused_at_once() -> None:
    async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate:
        with pytest.raises(ConfigurationError, match="HostPolicy"):
            gate.set_policy("a.example", "deny")  # type: ignore[arg-type]
        for host in ("u@a.example", "a.example#x", "a.example:80", "::1"):
            with pytest.raises(InvalidURL):
                gate.set_policy(host, HostPolicy(deny=True))
        gate.set_policy("[::1]", HostPolicy(deny=True))
        assert not await gate.check("http://[::1]/")


def test_middleware_for_no_gate_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="Gatekeeper"):
        RobotsMiddleware("ExampleBot/1.0")  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/private/../a", "/private/%2e%2e/a", "/x/."])
async def test_dot_segments_that_would_be_sent_are_refused(path: str) -> None:
    async with (
        Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate,
        aiohttp.ClientSession(middlewares=(RobotsMiddleware(gate),)) as session,
    ):
        with pytest.raises(aiohttp.ClientError, match="dot segments"):
            await session.get(URL(f"http://127.0.0.1:9{path}", encoded=True))


async def test_429_defers_though_an_older_copy_served_while_robots_txt_was_unreachable() -> None:
    clock = ManualClock()
    url = f"{SITE}/robots.txt"
    answers: list[FetchResponse | int] = [
        FetchResponse(200, url, {"cache-control": "max-age=600"}, b"User-agent: *\nDisallow: /x"),
        503,
        FetchResponse(429, url, {"retry-after": "3000"}),
    ]
    fetcher = ScriptedFetcher({SITE: answers})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        assert await gate.check(f"{SITE}/a")
        clock.advance(700)
        assert await gate.check(f"{SITE}/a")  # unreachable: the copy serves within a day
        clock.advance(70)
        gate.peek(f"{SITE}/a")
        while gate.statistics().in_flight:
            await asyncio.sleep(0)
        assert fetcher.count(SITE) == 3
        assert (await gate.check(f"{SITE}/a")).reason is Reason.TOO_MANY_REQUESTS


@pytest.mark.parametrize(("passed", "reason"), [(550, Reason.NO_RULE), (700, Reason.TOO_MANY_REQUESTS)])
async def test_store_that_forgot_makes_a_429_no_more_lenient(passed: float, reason: Reason) -> None:
    clock, store = ManualClock(), MemoryStore()
    url = f"{SITE}/robots.txt"
    fresh = FetchResponse(200, url, {"cache-control": "max-age=600"}, b"User-agent: *\nDisallow: /x")
    fetcher = ScriptedFetcher({SITE: [fresh, 503, FetchResponse(429, url, {"retry-after": "3000"})]})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock, store=store) as gate:
        await gate.check(f"{SITE}/a")
        clock.advance(passed - 70)
        if passed > 600:
            await gate.check(f"{SITE}/a")
        else:
            fetcher.answers[SITE] = FetchResponse(429, url, {"retry-after": "3000"})
        clock.advance(70)
        await store.delete(SITE)
        gate.peek(f"{SITE}/a")
        while gate.statistics().in_flight:
            await asyncio.sleep(0)
        assert (await gate.check(f"{SITE}/a")).reason is reason


def test_proxy_without_a_host_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="proxy"):
        FetchOptions(proxy="http://")


async def test_a_url_beyond_all_servers_holds_no_loop_whether_its_origin_is_known_or_not() -> None:
    hostile = "User-agent: *\n" + "Disallow: /" + "*a" * 100_000 + "b\n"
    url = "https://example.com/" + "a" * MAX_URL_LENGTH
    async with Gatekeeper(UA, fetcher=ScriptedFetcher({"https://example.com": hostile})) as gate:
        for _ in range(2):
            with pytest.raises(InvalidURL, match="are more than servers take"):
                gate.peek(url)
            with pytest.raises(InvalidURL, match="are more than servers take"):
                await gate.check(url)
            assert await gate.check("https://example.com/a")


@pytest.mark.parametrize("answer", [503, ConnectionError("refused")])
async def test_a_robots_txt_that_is_unreachable_at_one_port_holds_up_no_other_port_of_the_host(
    answer: int | Exception,
) -> None:
    dead, live = "http://host.example:1", "http://host.example"
    clock = ManualClock(autojump=True)
    fetcher = ScriptedFetcher({dead: answer, live: ""})
    async with Gatekeeper(UA, fetcher=fetcher, clock=clock) as gate:
        assert not await gate.check(f"{dead}/page")
        before = clock.monotonic()
        async with gate.turn(f"{dead}/robots.txt"):  # which is always allowed
            pass
        async with gate.turn(f"{live}/page"):
            assert clock.monotonic() - before < 5.0


@pytest.mark.parametrize("given", [None, 5, b"ExampleBot/1.0"])
def test_a_user_agent_that_is_no_text_is_named(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"user_agent=.*: give a str"):
        Gatekeeper(given)


async def test_what_is_no_text_is_no_url() -> None:
    given: Any = URL("https://example.com/")
    async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate:
        with pytest.raises(TypeError, match="is no str: give the URL as text"):
            await gate.check(given)
        with pytest.raises(TypeError, match="is no str"):
            gate.peek(given)
        with pytest.raises(ConfigurationError, match="subscriber=None"):
            gate.subscribe(cast("Any", None))


async def test_a_queue_names_what_it_cannot_use() -> None:
    async def later(item: object, verdict: object) -> None:
        """Never be awaited."""

    async with Gatekeeper(UA, fetcher=ScriptedFetcher()) as gate:
        for wrong in (later, "x"):
            with pytest.raises(ConfigurationError, match="on_disallowed="):
                PoliteQueue(gate, on_disallowed=cast("Any", wrong))
    with pytest.raises(ConfigurationError, match=r"gate='ExampleBot/1\.0'"):
        PoliteQueue(cast("Any", "ExampleBot/1.0"))


def test_one_address_is_no_list_of_them() -> None:
    with pytest.raises(ConfigurationError, match=r"give a list, as in \['127.0.0.1'\]"):
        ScriptedResolver({"a.example": "127.0.0.1"})
