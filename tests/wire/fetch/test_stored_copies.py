"""A stored copy is used only under the settings under which it was fetched."""

import asyncio
from typing import Any

import pytest

from politesse import FetchOptions, Gatekeeper, Reason, Verdict
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResult, Store
from politesse.robots import Dialect
from politesse.stores import MemoryStore
from politesse.testing import ManualClock, ScriptedFetcher
from tests.support.sites import EAGER, UA
from tests.wire.fetch.servers import FILE, PUBLIC, Answer, Names, Request, Server, response

OTHER_UA = "OtherBot/1.0 (+https://example.com/other)"
NAMES = Names("inside.example", public_example=(PUBLIC, "127.0.0.1"))
ALLOWS = b"User-agent: *\nAllow: /\n"


async def ask(store: Store, url: str, user_agent: str = UA, **options: Any) -> Verdict:
    """Return the verdict of a process of its own, which has nothing but the store."""
    async with Gatekeeper(user_agent, store=store, resolver=NAMES, pacing=EAGER, **options) as gate:
        return await gate.check(url)


async def test_copy_that_was_cut_is_fetched_anew_once_the_limit_is_raised() -> None:
    lines = b"".join(b"Disallow: /%07d\n" % number for number in range(38_000))
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
        assert not await ask(store, private, clock=clock, fetch=raised)
        clock.advance(90_000)
        assert not await ask(store, private, clock=clock, fetch=raised)
        # It is revalidated under the limit that cut it, fetched anew under another, and then complete.
        conditional = ["if-none-match" in request.headers for request in server.requests]
        assert conditional == [False, True, False, True]


async def test_copy_that_varies_by_user_agent_is_used_by_that_user_agent_only() -> None:
    answers: dict[str, bytes] = {}

    async def answer(request: Request, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answers[request.headers["user-agent"]])

    for status in (200, 404):
        for vary in ("User-Agent", "accept-encoding, user-agent", "*", "Accept\r\nVary: User-Agent"):
            answers |= {UA: response(status, ALLOWS, Vary=vary), OTHER_UA: response(200, FILE, Vary=vary)}
            store = MemoryStore()
            async with Server(answer) as server:
                private = server.url("/private")
                allowed = [bool(await ask(store, private, user_agent)) for user_agent in (UA, UA, OTHER_UA, UA)]
                assert allowed == [True, True, False, True], (status, vary)
                assert [one.headers["user-agent"] for one in server.requests[:2]] == [UA, OTHER_UA], (status, vary)


async def test_copy_that_varies_by_nothing_is_used_by_all() -> None:
    store = MemoryStore()
    async with Server(response(200, FILE, Vary="Accept-Encoding")) as server:
        assert not await ask(store, server.url("/private"))
        assert not await ask(store, server.url("/private"), OTHER_UA)
        assert len(server.requests) == 1


async def test_redirect_loop_that_opened_a_site_does_not_open_it_in_another_dialect() -> None:
    async with Server(response(301, Location="/robots.txt")) as server:
        for dialect in (Dialect.KOSTER_1996, Dialect.KOSTER_1994):
            store = MemoryStore()
            assert (await ask(store, server.url("/"))).reason is Reason.UNAVAILABLE
            assert (await ask(MemoryStore(), server.url("/"), dialect=dialect)).reason is Reason.UNREACHABLE
            assert (await ask(store, server.url("/"), dialect=dialect)).reason is Reason.UNREACHABLE


@pytest.mark.parametrize("host", ["127.0.0.1", "inside.example"])
async def test_copy_from_a_private_address_is_not_used_where_those_are_denied(host: str) -> None:
    made_by: list[FetchOptions] = [FetchOptions(), FetchOptions(private_addresses="allow")]
    for answer in (response(200, ALLOWS), response(404)):
        for options in made_by:
            store = MemoryStore()
            async with Server(answer) as server:
                url = server.url("/page", host=host)
                assert await ask(store, url, fetch=options)
                verdict = await ask(store, url, fetch=FetchOptions(private_addresses="deny"))
                assert not verdict
                assert "private" in verdict.explain()
                assert len(server.requests) == 1


async def test_copy_that_a_redirect_to_a_private_address_led_to_is_not_used_where_that_is_refused() -> None:
    store, answers = MemoryStore(), dict[str, Answer]({"/r": response(200, ALLOWS)})
    async with Server(answers) as server:
        answers["/robots.txt"] = response(301, Location=server.url("/r", host="inside.example"))
        url = server.url("/", host="public_example")
        assert await ask(store, url, fetch=FetchOptions(private_addresses="allow"))
        assert not await ask(store, url)


class Excusing(ScriptedFetcher):
    """Reports each fault as the lack of a file, as Scrapy's fetcher does with POLITESSE_ON_ERROR = "allow"."""

    excuses_faults = True

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        return FetchFault(FaultKind.REDIRECT_LIMIT, "excused", request.url, final=True)


async def test_fault_that_another_program_excuses_opens_no_site() -> None:
    store = MemoryStore()
    for fetcher, allowed in ((Excusing(), True), (ScriptedFetcher({"https://example.com": 503}), False)):
        async with Gatekeeper(UA, store=store, fetcher=fetcher) as gate:
            assert bool(await gate.check("https://example.com/")) is allowed
