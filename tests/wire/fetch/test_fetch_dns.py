"""Names that never resolve do not delay others."""

import asyncio
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any, Final

import pytest

from politesse import CacheOptions, FetchOptions, Gatekeeper, Reason, Verdict
from politesse.fetch import PublicResolver
from tests.wire.fetch.fetching import PUBLIC, UA
from tests.wire.fetch.servers import FILE, Server, response

MANY: Final = CacheOptions(max_concurrent_fetches=10_000)
PATIENT: Final = FetchOptions(connect_timeout_s=5, total_timeout_s=20)
MAX_LOOKUPS: Final = 256


class Dns:
    """Stands in for the system's getaddrinfo: names of hangs.example have no answer until ``release``."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.threads: set[threading.Thread] = set()
        self._answer = threading.Event()

    def release(self) -> None:
        self._answer.set()

    def getaddrinfo(self, host: str, port: object, *args: object, **kwargs: object) -> list[tuple[Any, ...]]:
        self.asked[host] += 1
        self.threads.add(threading.current_thread())
        if host.endswith("hangs.example"):
            self._answer.wait(30)
            raise socket.gaierror(socket.EAI_AGAIN, "no name server answers")
        address = PUBLIC if host.startswith("public") else "127.0.0.1"
        if "slow" in host:
            time.sleep(0.05)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port or 0))]


@pytest.fixture
def dns(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dns]:
    dns = Dns()
    monkeypatch.setattr(socket, "getaddrinfo", dns.getaddrinfo)
    yield dns
    dns.release()
    until = time.monotonic() + 20
    while any(thread.name.startswith("politesse") for thread in threading.enumerate()):
        assert time.monotonic() < until, "a thread is left"
        time.sleep(0.005)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    # The sockets of a server are bound by address, before any name is looked up.
    async with Server(response(200, FILE)) as server:
        yield server


def _ask_hanging(gate: Gatekeeper, number: int) -> list[asyncio.Task[Verdict]]:
    return [asyncio.create_task(gate.check(f"http://n{n}.hangs.example/")) for n in range(number)]


async def _end(tasks: list[asyncio.Task[Verdict]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _until_asked(dns: Dns, number: int) -> None:
    async with asyncio.timeout(20):
        while dns.asked.total() < number:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("hanging", [8, 200])
async def test_names_that_never_resolve_make_no_healthy_site_unreachable(
    dns: Dns, server: Server, hanging: int
) -> None:
    async with Gatekeeper(UA, cache=MANY, fetch=PATIENT) as gate:
        tasks = _ask_hanging(gate, hanging)
        await asyncio.sleep(0.05)
        urls = [server.url("/public", host=f"h{n}.healthy.example") for n in range(20)]
        verdicts = await asyncio.gather(*map(gate.check, urls))
        assert {verdict.reason for verdict in verdicts} == {Reason.NO_RULE}
        assert not any(task.done() for task in tasks), "healthy names waited for the others"
        await _end(tasks)


@pytest.mark.realtime
async def test_waiting_for_a_thread_does_not_count_as_connecting(dns: Dns, server: Server) -> None:
    options = FetchOptions(connect_timeout_s=0.2, total_timeout_s=25)
    async with Gatekeeper(UA, cache=MANY, fetch=options) as gate:
        tasks = _ask_hanging(gate, MAX_LOOKUPS)
        await _until_asked(dns, 6)  # the fewest threads that an executor has
        verdicts = await asyncio.gather(*tasks)  # which have been given up, but keep their threads
        assert {verdict.reason for verdict in verdicts} == {Reason.UNREACHABLE}
        healthy = asyncio.create_task(gate.check(server.url("/public", host="healthy.example")))
        await asyncio.sleep(0.6)  # three times as long as connecting may take
        dns.release()
        assert (await healthy).reason is Reason.NO_RULE


async def test_lookups_beyond_the_limit_wait_and_a_cancelled_one_leaves_the_queue(dns: Dns) -> None:
    resolver = PublicResolver()
    tasks = [asyncio.create_task(resolver.resolve(f"n{n}.hangs.example", 80)) for n in range(MAX_LOOKUPS)]
    await _until_asked(dns, MAX_LOOKUPS)
    given_up, kept = (asyncio.create_task(resolver.resolve(f"public-{name}.example", 80)) for name in ("one", "two"))
    await asyncio.sleep(0.05)
    assert dns.asked.total() == MAX_LOOKUPS
    given_up.cancel()
    await asyncio.sleep(0)
    dns.release()
    async with asyncio.timeout(20):
        (found,) = await kept
    assert found["host"] == PUBLIC
    await asyncio.gather(*tasks, given_up, return_exceptions=True)
    assert (dns.asked["public-one.example"], dns.asked["public-two.example"]) == (0, 1)


async def test_concurrent_lookups_of_a_name_are_one_lookup(dns: Dns) -> None:
    resolver = PublicResolver()
    found = await asyncio.gather(*(resolver.resolve("public-slow.example", port) for port in range(10)))
    assert [result["host"] for [result] in found] == [PUBLIC] * 10
    assert dns.asked["public-slow.example"] == 1


async def test_a_public_resolver_finds_addresses_beside_names_that_never_resolve(dns: Dns) -> None:
    resolver = PublicResolver()
    tasks = [asyncio.create_task(resolver.resolve(f"n{n}.hangs.example", 80)) for n in range(50)]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(10):
        (found,) = await resolver.resolve("public.example", 80)
    assert found["host"] == PUBLIC
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


SCRIPT: Final = """
import asyncio, socket, time
from politesse import FetchOptions, Gatekeeper

socket.getaddrinfo = lambda *args, **kwargs: time.sleep(120)

async def main():
    options = FetchOptions(connect_timeout_s=0.1, total_timeout_s=1)
    async with Gatekeeper("ExampleBot/1.0", fetch=options) as gate:
        print((await gate.check("http://n.hangs.example/")).reason)

asyncio.run(main())
"""


async def test_a_lookup_that_hangs_does_not_keep_the_interpreter_from_ending() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SCRIPT, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(30):
            out, _ = await process.communicate()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    assert out.decode().strip() == "unreachable"
