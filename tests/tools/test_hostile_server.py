"""The hostile server does what it says; what crawlers make of it is tested elsewhere."""

import asyncio
import gc
import gzip

import aiohttp
import pytest

from politesse.testing import FAULTS, Call, Fault, HostileServer, assert_polite
from politesse.testing.answers import FILE, gzip_bomb, response
from politesse.testing.faults import chain
from politesse.verdict import AccessResult


async def _raw(server: HostileServer, target: str = "/robots.txt") -> bytes:
    host, _, port = server.origin.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_pages_are_answered_and_logged() -> None:
    async with HostileServer(FAULTS["status-503"]) as server:
        async with aiohttp.ClientSession(headers={"User-Agent": "ExampleBot/1.0"}) as session:
            async with session.get(server.url()) as robots:
                assert robots.status == 503
            async with session.get(server.url("/page?q")) as page:
                assert await page.text() == "<p>a page</p>\n"
        assert server.pages == ["/page?q"]
        assert server.robots_requests == 1
        assert [exchange.status for exchange in server.log] == [503, 200]
        assert all(exchange.started <= exchange.ended for exchange in server.log)
        with pytest.raises(AssertionError, match="against line 2"):
            assert_polite(server.log, {server.origin: "User-agent: *\nDisallow: /page"}, agent="ExampleBot")


async def test_status_and_retry_after_of_an_answer_are_logged() -> None:
    async with HostileServer(FAULTS["429-seconds"]) as server:
        assert b"429" in await _raw(server)
        assert [(exchange.status, exchange.retry_after_s) for exchange in server.log] == [(429, 120.0)]


async def test_a_bomb_decodes_to_its_stated_size() -> None:
    bomb = Fault(name="bomb", robots=gzip_bomb(3 * 1024 * 1024), result=AccessResult.SUCCESSFUL)
    async with HostileServer(bomb) as server:
        body = (await _raw(server)).partition(b"\r\n\r\n")[2]
    assert len(body) < 5_000
    assert gzip.decompress(body) == FILE + b"\n" * (3 * 1024 * 1024)


async def test_flapping_fault_alternates_between_bad_and_good() -> None:
    async with HostileServer(FAULTS["5xx-flapping"]) as server:
        statuses = [(await _raw(server)).split()[1] for _ in range(4)]
    assert statuses == [b"503", b"200", b"503", b"200"]


async def test_a_chain_ends_in_a_file_after_so_many_redirects() -> None:
    async with HostileServer(chain(20)) as server, aiohttp.ClientSession() as session:
        async with session.get(server.url(), max_redirects=21) as response_:
            assert await response_.read() == FILE
            assert len(response_.history) == 20
        assert server.pages == []


async def test_a_connection_that_is_never_accepted_waits() -> None:
    async with HostileServer(FAULTS["never-accepts"]) as server:
        port = int(server.origin.rpartition(":")[2])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.04):
                await asyncio.open_connection("127.0.0.1", port)


async def test_a_port_at_which_nobody_listens_refuses_and_is_given_to_nobody_else() -> None:
    async with HostileServer(FAULTS["refuses-connections"]) as server:
        port = int(server.origin.rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises(OSError, match="address already in use"):
            await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", port)


@pytest.mark.parametrize("name", ["refuses-connections", "never-accepts"])
async def test_an_address_of_another_machine_leaves_no_socket(name: str) -> None:
    with pytest.raises(OSError, match="assign requested address"):
        await HostileServer(FAULTS[name], address="192.0.2.1").__aenter__()
    gc.collect()  # an open socket would warn


async def test_a_custom_handler_sees_the_request_and_its_count() -> None:
    seen: list[tuple[str, str, int]] = []

    async def handler(call: Call) -> None:
        seen.append((call.method, call.headers["host"], call.number))
        await call.send(response(204))

    async with HostileServer(FAULTS["status-404"], {"/page": handler}) as server:
        await _raw(server, "/page")
        await _raw(server, "/page")
    assert seen == [("GET", "127.0.0.1", 1), ("GET", "127.0.0.1", 2)]


async def test_leaving_a_server_ends_unfinished_answers() -> None:
    async with HostileServer(FAULTS["endless-body"]) as server:
        host, _, port = server.origin.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /robots.txt HTTP/1.1\r\n\r\n")
        await reader.readexactly(1000)
        assert server.open_connections == 1
    assert server.open_connections == 0
    writer.close()


class _KeepsUp(asyncio.StreamWriter):
    """To a client that takes in whatever is written, at once."""

    def __init__(self, written: list[bytes]) -> None:
        self.written = written

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    async def drain(self) -> None:
        pass

    def __del__(self) -> None:
        pass


async def test_endless_answer_does_not_block_other_connections() -> None:
    events: list[bytes] = []
    call = Call("GET", "/robots.txt", {}, 1, asyncio.StreamReader(), _KeepsUp(events))

    async def other() -> None:
        events.append(b"other")

    task = asyncio.create_task(other())
    await call.send(b"first", b"second", b"third")
    await task
    assert events == [b"first", b"other", b"second", b"third"]
