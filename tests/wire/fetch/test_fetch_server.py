"""AiohttpFetcher against servers on loopback: the outcome table, faults, limits."""

import asyncio
import gzip
import tracemalloc
from collections.abc import Sequence

import pytest

from politesse import FetchOptions, Gatekeeper, PacingOptions, Reason
from politesse.errors import ClosedError
from politesse.fetch import AiohttpFetcher
from politesse.fetch import _aiohttp as fetch_module
from politesse.fetch._addresses import AddressGuard
from politesse.origin import Origin
from politesse.ports import FaultKind, FetchRequest
from politesse.verdict import AccessResult
from tests.support.ports import free_port
from tests.wire.fetch.fetching import CHUNKED, HEAD, PUBLIC, UA, faulted, fetch_from, responded
from tests.wire.fetch.outcomes import ROWS, Row
from tests.wire.fetch.servers import (
    FILE,
    Answer,
    Names,
    Request,
    Server,
    bomb,
    chunked,
    endless,
    gzipped,
    in_pieces,
    response,
    silence,
)

MIN_BODY_BYTES = FetchOptions().max_body_bytes


REASON_OF = {
    AccessResult.UNAVAILABLE: Reason.UNAVAILABLE,
    AccessResult.UNREACHABLE: Reason.UNREACHABLE,
    AccessResult.TOO_MANY_REQUESTS: Reason.TOO_MANY_REQUESTS,
}

REFUSING = {AccessResult.UNREACHABLE, AccessResult.TOO_MANY_REQUESTS}


@pytest.mark.clause("RFC 9309 2.3.1")
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
async def test_the_gatekeeper_decides_what_the_outcome_table_says(row: Row) -> None:
    async with Server(row.answer) as server, Gatekeeper(UA, pacing=PacingOptions(min_delay_s=0)) as gate:
        private, public, robots = [
            await gate.check(server.url(path)) for path in ("/private", "/public", "/robots.txt")
        ]
        assert {verdict.url for verdict in (private, public) if verdict} == {server.url(path) for path in row.open}
        assert robots.allowed
        assert robots.reason is Reason.ROBOTS_TXT
        assert private.source is not None
        assert private.source.result is row.result
        assert private.source.status == row.status
        assert private.source.robots_url == server.url()
        if row.result is AccessResult.SUCCESSFUL:
            assert public.reason is Reason.NO_RULE
            assert private.reason is (Reason.DISALLOW_RULE if row.denies else Reason.NO_RULE)
        else:
            assert private.reason is public.reason is REASON_OF[row.result]
        assert (private.source.fault != "") == (row.fault is not None or row.result in REFUSING)
        if row.fault is not None and row.result is AccessResult.UNREACHABLE:
            assert private.source.fault.startswith(f"{row.fault}: ")
        assert gate.statistics().fetches == 1


async def test_a_refused_connection_is_a_connect_fault() -> None:
    origin = Origin.of(f"http://127.0.0.1:{free_port()}/")
    fault = faulted(await AiohttpFetcher(UA).fetch(FetchRequest(origin, 5)))
    assert (fault.kind, fault.status, fault.final_url) == (FaultKind.CONNECT, None, origin.robots_url)
    assert fault.detail.startswith(f"Cannot connect to host 127.0.0.1:{origin.port} [Connect call failed")
    async with Gatekeeper(UA) as gate:
        verdict = await gate.check(f"{origin}/")
        assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)


@pytest.mark.parametrize("addresses", [None, ()], ids=["no such name", "a name without addresses"])
async def test_a_name_that_does_not_resolve_is_a_dns_fault(addresses: Sequence[str] | None) -> None:
    names = Names() if addresses is None else Names(**{"nowhere.example": addresses})
    origin = Origin.of("http://nowhere.example/")
    fault = faulted(await AiohttpFetcher(UA, resolver=names).fetch(FetchRequest(origin, 5)))
    assert (fault.kind, fault.status) == (FaultKind.DNS, None)
    assert names.asked == ["nowhere.example"]
    async with Gatekeeper(UA, fetcher=AiohttpFetcher(UA, resolver=names)) as gate:
        assert (await gate.check("http://nowhere.example/")).reason is Reason.UNREACHABLE


async def test_a_private_address_beside_a_public_one_is_no_refusal() -> None:
    names = Names(**{"mixed.example": ("127.0.0.1", PUBLIC), "inside.example": ("127.0.0.1",)})
    guard = AddressGuard(names, private_addresses="deny")
    assert [found["host"] for found in await guard.resolve("mixed.example", 80)] == [PUBLIC]
    assert guard.refusal == ""
    with pytest.raises(OSError, match="no address that may be connected to"):
        await guard.resolve("inside.example", 80)
    assert "127.0.0.1" in guard.refusal


class Hanging:
    """A Resolver that never answers."""

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()


@pytest.mark.parametrize("options", [FetchOptions(connect_timeout_s=0.04), FetchOptions(total_timeout_s=0.04)])
async def test_a_resolver_that_never_answers_is_a_timeout(options: FetchOptions) -> None:
    fetcher = AiohttpFetcher(UA, options, resolver=Hanging())
    fault = faulted(await fetcher.fetch(FetchRequest(Origin.of("http://nowhere.example/"), 5)))
    assert (fault.kind, fault.status) == (FaultKind.TIMEOUT, None)


@pytest.mark.clause("RFC 9309 2.3.1.4")
@pytest.mark.parametrize("host", ["127.0.0.1", "site.example"])
async def test_a_tls_handshake_that_never_ends_is_a_connect_timeout(host: str) -> None:
    async with Server() as server, asyncio.timeout(15):  # speaks no TLS, and waits for a head that never comes
        origin = Origin.of(f"https://{host}:{server.port}/")
        fetcher = AiohttpFetcher(UA, FetchOptions(connect_timeout_s=0.04), resolver=Names("site.example"))
        fault = faulted(await fetcher.fetch(FetchRequest(origin, 5)))
    assert (fault.kind, fault.status) == (FaultKind.TIMEOUT, None)


@pytest.mark.realtime
@pytest.mark.parametrize("host", ["127.0.0.1", "site.example"])
async def test_an_answer_may_take_longer_than_connecting(host: str) -> None:
    async def answer(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.8)
        writer.write(response(200, FILE))

    async with Server(answer) as server:
        options = FetchOptions(connect_timeout_s=0.5)
        assert responded(await fetch_from(server, options, host=host, resolver=Names("site.example"))).body == FILE


@pytest.mark.clause("RFC 9309 2.3.1.4")
@pytest.mark.parametrize(
    "answer",
    [
        silence,
        endless(b"HTTP/1.1 200 OK\r\nX: ", b"x", pause_s=0.005),
        endless(HEAD + b"Content-Length: 9999\r\n\r\n", b"#", pause_s=0.005),
        endless(CHUNKED, b"1\r\n#\r\n", pause_s=0.005),
        endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", pause_s=0.005),
    ],
    ids=["silence", "trickling head", "trickling body", "trickling chunks", "endless 1xx"],
)
async def test_a_server_that_takes_too_long_is_a_timeout(answer: Answer) -> None:
    async with Server(answer) as server:
        fault = faulted(await fetch_from(server, FetchOptions(total_timeout_s=0.04)))
    assert fault.kind is FaultKind.TIMEOUT


async def test_the_total_timeout_counts_all_redirects_together() -> None:
    hops: dict[str, Answer] = {"/robots.txt": response(302, Location="/0")}
    for number in range(20):  # of 10 ms each
        hops[f"/{number}"] = in_pieces(b"", b"", response(302, Location=f"/{number + 1}"))
    async with Server(hops) as server:
        fault = faulted(await fetch_from(server, FetchOptions(total_timeout_s=0.04), max_redirects=20))
    assert fault.kind is FaultKind.TIMEOUT


async def _bad_chunk_and_hold(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(CHUNKED)
    await writer.drain()
    await asyncio.sleep(0.01)
    writer.write(b"zz\r\n")
    await writer.drain()
    await reader.read()


@pytest.mark.realtime
async def test_a_bad_chunk_size_behind_the_head_is_noticed_before_the_total_timeout() -> None:
    async with Server(chunked(b"21\r\n" + FILE + b"\r\n", b"zz\r\n")) as server:
        fault = faulted(await fetch_from(server))
    assert fault.kind is FaultKind.TRUNCATED  # not TIMEOUT, the result of waiting for the limit
    assert fault.status == 200


@pytest.mark.parametrize(
    "answer",
    [
        chunked(b"zz\r\n"),
        chunked(b"21\r\n" + FILE + b"\r\n", b"zz\r\n"),
        chunked(b"21\r\n" + FILE + b"\r\n", b"-1\r\n"),
        chunked(b"21\r\n" + FILE + b"XX", b"0\r\n\r\n"),
        chunked(b"21\r\n" + FILE + b"\r\n", b"fffffffffffffffff\r\n"),
        _bad_chunk_and_hold,
    ],
    ids=["first chunk", "second chunk", "negative", "no line end", "huge", "connection held open"],
)
async def test_a_broken_chunk_behind_the_head_is_truncated(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "_INSPECT_S", 0.02)
    async with Server(answer) as server:
        fault = faulted(await fetch_from(server))
    assert (fault.kind, fault.status) == (FaultKind.TRUNCATED, 200)


@pytest.mark.clause("RFC 9309 2.5")
async def test_a_body_of_the_limit_is_whole_and_one_beyond_it_is_cut_at_a_line() -> None:
    line = b"Disallow: /0123\n"
    whole = line * (MIN_BODY_BYTES // len(line))
    assert len(whole) == MIN_BODY_BYTES
    async with Server({"/robots.txt": response(200, whole)}) as server:
        result = responded(await fetch_from(server))
        assert (result.body, result.truncated) == (whole, False)
        server.answers["/robots.txt"] = response(200, b"##" + whole)
        result = responded(await fetch_from(server))
        assert (result.body, result.truncated) == (b"##" + whole[: -len(line)], True)


@pytest.mark.parametrize(
    "answer",
    [
        gzipped(bomb()),
        endless(HEAD + b"\r\n", b"Disallow: /a\n" * 1000),
        endless(CHUNKED, b"d\r\nDisallow: /a\n\r\n" * 1000),
        endless(HEAD + b"Content-Encoding: gzip\r\n\r\n", gzip.compress(b"Disallow: /a\n" * 100)),
    ],
    ids=["gzip bomb", "endless", "endless chunks", "endless gzip members"],
)
async def test_a_body_without_end_is_read_to_the_limit_in_bounded_memory_and_the_connection_closed(
    answer: Answer,
) -> None:
    async with Server(answer) as server:
        await fetch_from(server)  # imports and caches are not counted
        server.closed_by_client.clear()
        tracemalloc.start()
        try:
            result = responded(await fetch_from(server))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert result.truncated
        assert MIN_BODY_BYTES - 20 < len(result.body) <= MIN_BODY_BYTES
        assert peak < 8 * MIN_BODY_BYTES
        async with asyncio.timeout(5):
            await server.closed_by_client.wait()


async def test_the_body_of_what_is_no_file_is_not_read() -> None:
    async with Server(endless(b"HTTP/1.1 404 Not Found\r\n\r\n", b"x" * 1000)) as server:
        result = responded(await fetch_from(server))
        assert (result.status, result.body) == (404, b"")
        async with asyncio.timeout(5):
            await server.closed_by_client.wait()


async def test_closing_the_gate_with_a_fetch_under_way_closes_its_connection() -> None:
    async with Server(silence) as server:
        gate = Gatekeeper(UA)
        task = asyncio.create_task(gate.check(server.url("/public")))
        async with asyncio.timeout(5):
            while not server.requests:
                await asyncio.sleep(0.001)
        await gate.aclose()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(outcome, ClosedError)
        async with asyncio.timeout(5):
            await server.closed_by_client.wait()
