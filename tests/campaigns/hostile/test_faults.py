"""For each fault of a server, the gate answers as the table of outcomes says, in time."""

import asyncio
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

import pytest

from politesse import FetchOptions, Gatekeeper, Origin
from politesse.fetch import AiohttpFetcher
from politesse.ports import FetchFault, FetchRequest, FetchResult
from politesse.testing import FAULTS, Fault, HostileServer, ScriptedResolver
from politesse.testing.faults import PUBLIC_NAME, authority_pem
from politesse.verdict import Verdict
from tests.support.scripted import UA

SLACK_S: Final = 15.0
"""The delay that a loaded machine may add to a timeout."""

LOOPBACK: Final = "127.0.0.1"
# Stands behind it in the answer of the resolver, so that a name counts as public; it is never connected to.
PUBLIC: Final = "93.184.216.34"

CONNECT_TIMEOUT_S: Final = 2.0
TOTAL_TIMEOUT_S: Final = 4.0
"""The timeouts for servers that go on until the client gives up."""

PATIENT_TIMEOUT_S: Final = 45.0
"""The timeout for servers whose answers end: a loaded machine keeps it, too."""


class Witness:
    """A fetcher that remembers the results of another fetcher at the last hop, and the duration of all hops."""

    def __init__(self, fetcher: AiohttpFetcher) -> None:
        self._fetcher = fetcher
        self.results: dict[str, tuple[FetchResult, float]] = {}
        self.aclose = fetcher.aclose

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        started = time.monotonic()
        result = await self._fetcher.fetch(request)
        origin = str(Origin.of(request.first_url or request.url))
        _, before_s = self.results.get(origin, (result, 0.0))
        self.results[origin] = result, before_s + time.monotonic() - started
        return result


@dataclass
class Found:
    """The verdicts on a page and on a private page of an origin, and the fetch of its robots.txt."""

    page: Verdict
    private: Verdict
    result: FetchResult
    elapsed_s: float


async def crawl(servers: Mapping[str, HostileServer], timeouts_s: tuple[float, float]) -> dict[str, Found]:
    """Check a page and a private page of each origin."""
    context = ssl.create_default_context(cadata=authority_pem().decode())
    options = FetchOptions(connect_timeout_s=timeouts_s[0], total_timeout_s=timeouts_s[1], ssl_context=context)
    names = ScriptedResolver({PUBLIC_NAME: [LOOPBACK, PUBLIC]})
    witness = Witness(AiohttpFetcher(UA, options, resolver=names))
    at_once = asyncio.Semaphore(8)
    found: dict[str, Found] = {}
    async with Gatekeeper(UA, fetcher=witness) as gate:

        async def ask(name: str, server: HostileServer) -> None:
            async with at_once:
                page, private = [await gate.check(server.url(path)) for path in ("/page", "/private")]
            found[name] = Found(page, private, *witness.results[str(Origin.of(server.origin))])

        await asyncio.gather(*(ask(name, server) for name, server in servers.items()))
    return found


REFUSED: Final = [name for name in FAULTS if name.startswith("redirect-to-") and name != "redirect-to-itself"]


def _problems(fault: Fault, found: Found, asked: list[str]) -> Iterator[str]:
    """Yield how the outcome of a fault differs from the table."""
    source, explanation = found.page.source, found.page.explain()
    kind = found.result.kind if isinstance(found.result, FetchFault) else None
    if source is None or (source.result, kind) != (fault.result, fault.kind):
        yield f"{source}, {kind}: {explanation}"
    if (found.page.allowed, found.private.allowed) != (fault.allows_page, fault.allows_private):
        yield f"page {found.page.allowed}, private {found.private.allowed}: {explanation}"
    timeout_s = TOTAL_TIMEOUT_S if fault.waits else PATIENT_TIMEOUT_S
    least_s = TOTAL_TIMEOUT_S if fault.accepts else CONNECT_TIMEOUT_S
    if not (least_s - 0.05 if fault.waits else 0.0) <= found.elapsed_s < timeout_s + SLACK_S:
        yield f"took {found.elapsed_s} s"
    if not fault.allows_page and found.page.not_before is None:
        yield "a closed site is fetched again at once"
    if fault.name in REFUSED:
        if [url.rpartition("/")[2] for url in asked] != ["robots.txt"]:
            yield "the forbidden target of a redirect was requested"
        if fault.name.endswith("-from-public") and "which is private" not in explanation:
            yield f"the private address is not named: {explanation}"


@pytest.mark.full
@pytest.mark.realtime
@pytest.mark.timeout(300)
async def test_each_fault_has_the_outcome_of_the_table_in_time() -> None:
    # One test, because a crawl meets all of the faults.
    async with AsyncExitStack() as stack:
        servers = {
            # Requests for robots.txt to one host wait for each other, so each has a host of its own if possible.
            name: await stack.enter_async_context(
                HostileServer(fault, address=LOOPBACK if fault.host or fault.certificate else f"127.0.2.{place}")
            )
            for place, (name, fault) in enumerate(FAULTS.items(), 1)
        }
        waiting = {name: server for name, server in servers.items() if FAULTS[name].waits}
        ending = {name: server for name, server in servers.items() if name not in waiting}
        found = await crawl(ending, (PATIENT_TIMEOUT_S, PATIENT_TIMEOUT_S))
        found |= await crawl(waiting, (CONNECT_TIMEOUT_S, TOTAL_TIMEOUT_S))
    asked = {name: [exchange.url for exchange in server.log] for name, server in servers.items()}
    problems = {name: list(_problems(fault, found[name], asked[name])) for name, fault in FAULTS.items()}
    assert {name: some for name, some in problems.items() if some} == {}


def test_names_of_faults_are_lower_case_words() -> None:
    assert [fault.name for fault in FAULTS.values()] == [*FAULTS]
    assert [name for name in FAULTS if not (name.replace("-", "").isalnum() and name == name.lower())] == []
