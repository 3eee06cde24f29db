"""A stored copy is used only under the settings under which it was fetched."""

import asyncio

import pytest

from politesse import CacheOptions, FetchOptions, Gatekeeper, PacingOptions, Reason, Verdict
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResult, Store
from politesse.robots import Dialect
from politesse.stores import MemoryStore
from politesse.testing import ManualClock, ScriptedFetcher
from tests.wire.fetch.servers import FILE, Names, Request, Server, response

UA = "ExampleBot/1.0 (+https://example.com/bot)"
OTHER_UA = "OtherBot/1.0 (+https://example.com/other)"
NAMES = Names("inside.example")
ALLOWS = b"User-agent: *\nAllow: /\n"


async def ask(
    store: Store,
    url: str,
    *,
    user_agent: str = UA,
    dialect: Dialect = Dialect.RFC9309,
    fetch: FetchOptions | None = None,
    clock: ManualClock | None = None,
) -> Verdict:
    """Return the verdict of a process of its own, which has nothing but the store."""
    pacing = PacingOptions(min_delay_s=0.0)
    async with Gatekeeper(
        user_agent, store=store, dialect=dialect, fetch=fetch, clock=clock, resolver=NAMES, pacing=pacing
    ) as gate:
        return await gate.check(url)


async def test_a_copy_that_was_cut_is_fetched_anew_once_the_limit_is_raised() -> None:
    filling = b"Disallow: /%07d\n"
    lines = b"".join(filling % number for number in range(700_000 // len(filling % 0)))
    file = response(200, b"User-agent: *\n" + lines + b"Disallow: /private\n", ETag='"1"')
    raised = FetchOptions(max_body_bytes=1_000_000)
    store, clock = MemoryStore(), ManualClock()

    async def answer(request: Request, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response(304, ETag='"1"') if "if-none-match" in request.headers else file)

    async with Server(answer) as server:
        private = server.url("/private")
        assert (await ask(store, private, clock=clock)).reason is Reason.NO_RULE
        clock.advance(90_000)
        assert (await ask(store, private, clock=clock)).reason is Reason.NO_RULE
        assert "if-none-match" in server.requests[1].headers, "under the limit that cut it, it is revalidated"
        assert not await ask(store, private, clock=clock, fetch=raised)
        assert "if-none-match" not in server.requests[2].headers
        clock.advance(90_000)
        assert not await ask(store, private, clock=clock, fetch=raised)
        assert "if-none-match" in server.requests[3].headers, "it is complete now"


@pytest.mark.parametrize("vary", ["User-Agent", "accept-encoding, user-agent", "*"])
@pytest.mark.parametrize("status", [200, 404])
async def test_a_copy_that_varies_by_user_agent_is_used_by_that_user_agent_only(vary: str, status: int) -> None:
    async def answer(request: Request, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = request.headers["user-agent"] == UA
        writer.write(response(status, ALLOWS, Vary=vary) if own else response(200, FILE, Vary=vary))

    store = MemoryStore()
    async with Server(answer) as server:
        assert await ask(store, server.url("/private"))
        assert await ask(store, server.url("/private"))
        assert len(server.requests) == 1
        assert not await ask(store, server.url("/private"), user_agent=OTHER_UA)
        assert await ask(store, server.url("/private"))


async def test_each_line_of_vary_counts() -> None:
    head = b"HTTP/1.1 200 OK\r\nVary: Accept\r\nVary: User-Agent\r\nContent-Length: %d\r\n\r\n"
    store = MemoryStore()
    async with Server(head % len(FILE) + FILE) as server:
        for user_agent in (UA, OTHER_UA):
            await ask(store, server.url("/private"), user_agent=user_agent)
        assert len(server.requests) == 2


async def test_a_copy_that_varies_by_nothing_is_used_by_all() -> None:
    store = MemoryStore()
    async with Server(response(200, FILE, Vary="Accept-Encoding")) as server:
        for user_agent in (UA, OTHER_UA):
            assert not await ask(store, server.url("/private"), user_agent=user_agent)
        assert len(server.requests) == 1


@pytest.mark.parametrize("dialect", [Dialect.KOSTER_1996, Dialect.KOSTER_1994])
async def test_a_redirect_loop_that_opened_a_site_does_not_open_it_in_another_dialect(dialect: Dialect) -> None:
    store = MemoryStore()
    async with Server(response(301, Location="/robots.txt")) as server:
        assert (await ask(store, server.url("/"))).reason is Reason.UNAVAILABLE
        assert (await ask(MemoryStore(), server.url("/"), dialect=dialect)).reason is Reason.UNREACHABLE
        assert (await ask(store, server.url("/"), dialect=dialect)).reason is Reason.UNREACHABLE


@pytest.mark.parametrize("host", ["127.0.0.1", "inside.example"])
@pytest.mark.parametrize("answer", [response(200, ALLOWS), response(404)], ids=["file", "none"])
@pytest.mark.parametrize("made", ["redirects", "allow"])
async def test_a_copy_from_a_private_address_is_not_used_where_those_are_denied(
    host: str, answer: bytes, made: str
) -> None:
    store, made_by = MemoryStore(), FetchOptions(private_addresses=made)  # type: ignore[arg-type]
    async with Server(answer) as server:
        url = server.url("/page", host=host)
        assert await ask(store, url, fetch=made_by)
        verdict = await ask(store, url, fetch=FetchOptions(private_addresses="deny"))
        assert not verdict
        assert "private" in verdict.explain()
        assert len(server.requests) == 1


async def test_a_copy_that_a_redirect_to_a_private_address_led_to_is_not_used_where_that_is_refused() -> None:
    store, lenient = MemoryStore(), FetchOptions(private_addresses="allow")
    names = Names("inside.example", public_example=["93.184.216.34", "127.0.0.1"])
    async with Server({"/robots.txt": response(301, Location="/r"), "/r": response(200, ALLOWS)}) as server:
        server.answers["/robots.txt"] = response(301, Location=server.url("/r", host="inside.example"))
        for options, allowed in ((lenient, True), (None, False)):
            async with Gatekeeper(UA, store=store, fetch=options, resolver=names) as gate:
                assert bool(await gate.check(server.url("/", host="public_example"))) is allowed


async def test_a_gate_that_reads_429_as_open_leaves_no_open_site_to_others() -> None:
    store = MemoryStore()
    async with Server(response(429)) as server:
        options = CacheOptions(on_too_many_requests="allow")
        async with Gatekeeper(UA, store=store, cache=options) as gate:
            assert await gate.check(server.url("/"))
        assert not await ask(store, server.url("/"))


class Excusing(ScriptedFetcher):
    """Reports each fault as the lack of a file, as Scrapy's fetcher does with POLITESSE_ON_ERROR = "allow"."""

    excuses_faults = True

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        return FetchFault(FaultKind.REDIRECT_LIMIT, "excused", request.url, final=True)


async def test_a_fault_that_another_program_excuses_opens_no_site() -> None:
    store = MemoryStore()
    for fetcher, allowed in ((Excusing(), True), (ScriptedFetcher({"https://example.com": 503}), False)):
        async with Gatekeeper(UA, store=store, fetcher=fetcher) as gate:
            assert bool(await gate.check("https://example.com/")) is allowed
