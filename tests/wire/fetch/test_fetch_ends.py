"""How a connection ends decides about a body that nothing else delimits."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack

import aiohttp
import pytest
import trustme

from politesse import Gatekeeper, Reason, Verdict
from politesse.fetch import AiohttpFetcher
from politesse.verdict import AccessResult
from tests.wire.fetch.fetching import UA, server_context, trusting
from tests.wire.fetch.servers import FILE, Answer, Names, Request, Server, in_pieces, reset_after

HEADS = {
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n",
    "HTTP/1.1": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n",
}


async def _check(answer: Answer, *, borrowed: bool) -> Verdict:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Server(answer))
        session = await stack.enter_async_context(aiohttp.ClientSession()) if borrowed else None
        gate = await stack.enter_async_context(Gatekeeper(UA, session=session))
        return await gate.check(server.url("/public"))


def _is_truncated(verdict: Verdict) -> bool:
    assert verdict.source is not None
    assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE), verdict.explain()
    assert verdict.source.result is AccessResult.UNREACHABLE
    return verdict.source.fault.startswith("truncated: ")


@pytest.mark.clause("RFC 9112 8")
@pytest.mark.parametrize("borrowed", [False, True], ids=["own connector", "borrowed connector"])
@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
@pytest.mark.parametrize("body", [b"", b"User-agent: *\n", FILE], ids=["no octet", "half a file", "a whole file"])
async def test_a_body_without_length_that_ends_in_a_reset_is_truncated(
    head: bytes, body: bytes, *, borrowed: bool
) -> None:
    assert _is_truncated(await _check(reset_after(head + body), borrowed=borrowed))


@pytest.mark.clause("RFC 9112 6.3")
@pytest.mark.parametrize("borrowed", [False, True], ids=["own connector", "borrowed connector"])
@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
async def test_a_body_without_length_that_ends_in_a_fin_is_complete(head: bytes, *, borrowed: bool) -> None:
    verdict = await _check(head + FILE, borrowed=borrowed)
    assert (verdict.allowed, verdict.reason) == (True, Reason.NO_RULE)
    verdict = await _check(in_pieces(head, FILE[:9], FILE[9:]), borrowed=borrowed)
    assert (verdict.allowed, verdict.reason) == (True, Reason.NO_RULE)


async def test_a_body_without_length_whose_session_is_closed_meanwhile_is_truncated() -> None:
    begun = asyncio.Event()

    async def answer(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEADS["HTTP/1.1"] + b"User-agent: *\n")
        await writer.drain()
        begun.set()
        await reader.read()

    async with Server(answer) as server, aiohttp.ClientSession() as session, Gatekeeper(UA, session=session) as gate:
        task = asyncio.create_task(gate.check(server.url("/public")))
        await begun.wait()
        await asyncio.sleep(0.02)  # so that the head has been read
        await session.close()
        verdict = await task
        assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)


def _answer_over_tls(listener: socket.socket, context: ssl.SSLContext, end: Callable[[ssl.SSLSocket], object]) -> None:
    connection, _ = listener.accept()
    with context.wrap_socket(connection, server_side=True) as wrapped:
        wrapped.recv(65_536)
        wrapped.sendall(HEADS["HTTP/1.1"] + FILE)
        end(wrapped)


@pytest.mark.clause("RFC 9112 9.8")
@pytest.mark.parametrize("borrowed", [False, True], ids=["own connector", "borrowed connector"])
@pytest.mark.parametrize("notifies", [False, True], ids=["FIN alone", "close_notify"])
async def test_over_tls_a_body_without_length_is_complete_only_behind_a_close_notify(
    authority: trustme.CA, *, notifies: bool, borrowed: bool
) -> None:
    context = server_context(authority.issue_cert("localhost"))
    options = trusting(authority)
    async with AsyncExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        session = await stack.enter_async_context(aiohttp.ClientSession()) if borrowed else None
        fetcher = AiohttpFetcher(UA, options, session=session, resolver=Names("localhost"))
        gate = await stack.enter_async_context(Gatekeeper(UA, fetcher=fetcher))
        end = ssl.SSLSocket.unwrap if notifies else ssl.SSLSocket.close  # close sends no close_notify
        serving = asyncio.create_task(asyncio.to_thread(_answer_over_tls, listener, context, end))
        verdict = await gate.check(f"https://localhost:{listener.getsockname()[1]}/public")
        await serving
        if notifies:
            assert (verdict.allowed, verdict.reason) == (True, Reason.NO_RULE), verdict.explain()
        else:
            assert _is_truncated(verdict)


@pytest.mark.parametrize("coding", ["gzip", "gzip, chunked", "x-gzip", "chunked, chunked", "identity"])
async def test_unrequested_transfer_encoding_closes_the_site(coding: str) -> None:
    body = b"21\r\n" + FILE + b"\r\n0\r\n\r\n" if coding.endswith("chunked") else FILE
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + coding.encode() + b"\r\n\r\n" + body
    verdict = await _check(answer, borrowed=False)
    assert verdict.source is not None
    assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)
    assert verdict.source.fault.startswith("encoding: ")


def _of(lines: int, total_bytes: int) -> bytes:
    """Return an answer with a head of so many octets, in so many filling lines."""
    start, end = b"HTTP/1.1 200 OK\r\n", b"Content-Length: %d\r\n\r\n" % len(FILE)
    room = total_bytes - len(start) - len(end)
    line = room // lines
    filling = [b"X-Policy: " + b"v" * (line - 12) + b"\r\n"] * (lines - 1)
    last = room - line * (lines - 1)
    return start + b"".join(filling) + b"X-Policy: " + b"v" * (last - 12) + b"\r\n" + end + FILE


@pytest.mark.parametrize("borrowed", [False, True], ids=["own connector", "borrowed connector"])
@pytest.mark.parametrize(
    ("lines", "total_bytes"), [(1, 9_000), (1, 64 * 1024), (10, 60_000), (4_000, 60_000), (4_000, 64 * 1024)]
)
async def test_headers_of_64_kib_are_read(lines: int, total_bytes: int, *, borrowed: bool) -> None:
    verdict = await _check(_of(lines, total_bytes), borrowed=borrowed)
    assert (verdict.allowed, verdict.reason) == (True, Reason.NO_RULE), verdict.explain()


@pytest.mark.parametrize(("lines", "total_bytes"), [(1, 64 * 1024 + 1), (10, 70_000), (4_000, 70_000), (20, 900_000)])
async def test_headers_of_more_than_64_kib_in_all_close_the_site(lines: int, total_bytes: int) -> None:
    for answer in (
        _of(lines, total_bytes),
        in_pieces(_of(lines, total_bytes)[:50_000], _of(lines, total_bytes)[50_000:]),
    ):
        verdict = await _check(answer, borrowed=False)
        assert verdict.source is not None
        assert (verdict.allowed, verdict.reason) == (False, Reason.UNREACHABLE)
        assert verdict.source.fault.startswith("protocol: ")


@pytest.mark.parametrize("before", [b"\r\n\r\n", b"\n\n", b"\r\n" * 40_000], ids=["CRLF", "LF", "many"])
async def test_empty_lines_before_a_head_are_none_of_it(before: bytes) -> None:
    verdict = await _check(before + _of(3, 60_000), borrowed=False)
    assert (verdict.allowed, verdict.reason) == (True, Reason.NO_RULE), verdict.explain()
    verdict = await _check(before + _of(3, 70_000), borrowed=False)
    assert verdict.source is not None
    assert verdict.source.fault.startswith("protocol: ")


async def test_trailers_without_end_close_the_site_before_the_timeout() -> None:
    async def answer(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n21\r\n" + FILE + b"\r\n0\r\n")
        while True:
            writer.write(b"X-Trailer: " + b"v" * 60_000 + b"\r\n")
            await writer.drain()

    assert _is_truncated(await _check(answer, borrowed=False))


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
async def test_an_empty_chunked_body_is_an_empty_file_whatever_its_encoding(encoding: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nTransfer-Encoding: chunked\r\n\r\n"
    verdict = await _check(head.encode() + b"0\r\n\r\n", borrowed=False)
    assert verdict.reason is Reason.NO_RULE


async def test_two_equal_lengths_close_the_site_and_the_verdict_says_so() -> None:
    answer = b"HTTP/1.1 200 OK\r\n" + b"Content-Length: %d\r\n" % len(FILE) * 2 + b"\r\n" + FILE
    verdict = await _check(answer, borrowed=False)
    assert verdict.reason is Reason.UNREACHABLE
    assert verdict.source is not None
    assert "Content-Length" in verdict.source.fault
