"""For each fault of a server, the gate answers as the table of outcomes says, in time."""

import asyncio
import json
import resource
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest

from politesse import FetchOptions, Gatekeeper, Origin
from politesse.fetch import AiohttpFetcher
from politesse.ports import FetchFault, FetchRequest, FetchResult
from politesse.testing import FAULTS, Fault, HostileServer, ScriptedResolver
from politesse.testing.answers import FILE, response
from politesse.testing.faults import PUBLIC_NAME, authority_pem
from politesse.verdict import AccessResult
from tests.support.scripted import UA

GROWTH_KIB: Final = 20 * 1024
SLACK_S: Final = 15.0
"""The delay that a loaded machine may add to a timeout."""

CRAWL_S: Final = 240.0
"""A bound for the whole crawl, within the time limit of a test."""

LOOPBACK: Final = "127.0.0.1"
# Stands behind it in the answer of the resolver, so that a name counts as public; it is never connected to.
PUBLIC: Final = "93.184.216.34"

LARGE: Final = Fault(
    name="large", robots=response(200, FILE + b"Disallow: /a/path\n" * 25_000), result=AccessResult.SUCCESSFUL
)


# The crawler: in a process of its own, so that its memory is measured without that of the servers.

CONNECT_TIMEOUT_S: Final = 2.0
TOTAL_TIMEOUT_S: Final = 4.0
"""The timeouts for servers that go on until the client gives up."""

PATIENT_TIMEOUT_S: Final = 45.0
"""The timeout for servers whose answers end: a loaded machine keeps it, too."""

AT_ONCE: Final = 8


class Witness:
    """A fetcher that remembers the results of another fetcher at the last hop, and the duration of all hops."""

    def __init__(self, fetcher: AiohttpFetcher) -> None:
        self._fetcher = fetcher
        self.results: dict[str, tuple[FetchResult, float]] = {}

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        started = time.monotonic()
        result = await self._fetcher.fetch(request)
        origin = str(Origin.of(request.first_url or request.url))
        _, before_s = self.results.get(origin, (result, 0.0))
        self.results[origin] = result, before_s + time.monotonic() - started
        return result

    async def aclose(self) -> None:
        await self._fetcher.aclose()


async def crawl(
    origins: dict[str, str], addresses: dict[str, str], authority: str, timeouts_s: tuple[float, float]
) -> dict[str, dict[str, object]]:
    """Check a page and a private page of each origin."""
    context = ssl.create_default_context(cadata=authority)
    options = FetchOptions(connect_timeout_s=timeouts_s[0], total_timeout_s=timeouts_s[1], ssl_context=context)
    names = ScriptedResolver({host: given.split() for host, given in addresses.items()})
    witness = Witness(AiohttpFetcher(UA, options, resolver=names))
    at_once = asyncio.Semaphore(AT_ONCE)
    found: dict[str, dict[str, object]] = {}
    async with Gatekeeper(UA, fetcher=witness) as gate:

        async def ask(name: str, origin: str) -> None:
            async with at_once:
                page = await gate.check(f"{origin}/page")
                private = await gate.check(f"{origin}/private")
            assert page.source is not None
            result, elapsed_s = witness.results[str(Origin.of(origin))]
            found[name] = {
                "result": page.source.result,
                "kind": result.kind if isinstance(result, FetchFault) else None,
                "page": bool(page),
                "private": bool(private),
                "elapsed_s": elapsed_s,
                "explanation": page.explain(),
                "not_before": page.not_before,
            }

        await asyncio.gather(*(ask(name, origin) for name, origin in origins.items()))
    return found


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def crawl_by_itself() -> None:
    """Crawl the harmless origins first, so that the memory that each fetch needs is allocated already."""
    given = json.load(sys.stdin)
    known = given["addresses"], given["authority"]
    patient = PATIENT_TIMEOUT_S, PATIENT_TIMEOUT_S
    asyncio.run(crawl(given["harmless"], *known, patient), debug=False)
    before_kib = peak_kib()
    found = asyncio.run(crawl(given["ending"], *known, patient))
    found |= asyncio.run(crawl(given["waiting"], *known, (CONNECT_TIMEOUT_S, TOTAL_TIMEOUT_S)))
    json.dump({"found": found, "grown_kib": peak_kib() - before_kib}, sys.stdout)


# The servers, and the judgement.


async def _crawl() -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        servers = {
            # Requests for robots.txt to one host wait for each other, so each has a host of its own if possible.
            name: await stack.enter_async_context(
                HostileServer(fault, address=LOOPBACK if fault.host or fault.certificate else f"127.0.2.{place}")
            )
            for place, (name, fault) in enumerate(FAULTS.items(), 1)
        }
        harmless = [
            await stack.enter_async_context(HostileServer(LARGE, address=f"127.0.3.{place}"))
            for place in range(1, AT_ONCE + 1)
        ]
        given = {
            "waiting": {name: server.origin for name, server in servers.items() if FAULTS[name].waits},
            "ending": {name: server.origin for name, server in servers.items() if not FAULTS[name].waits},
            "harmless": {server.origin: server.origin for server in harmless},
            "addresses": {PUBLIC_NAME: f"127.0.0.1 {PUBLIC}"},
            "authority": authority_pem().decode(),
        }
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", "-m", __name__, stdin=pipe, stdout=pipe
        )
        async with asyncio.timeout(CRAWL_S):
            out, _ = await process.communicate(json.dumps(given).encode())
        assert process.returncode == 0
        crawled: dict[str, Any] = json.loads(out)
        crawled["asked"] = {name: [exchange.url for exchange in server.log] for name, server in servers.items()}
        return crawled


REFUSED: Final = [name for name in FAULTS if name.startswith("redirect-to-") and name != "redirect-to-itself"]


def _problems(fault: Fault, crawled: dict[str, Any]) -> Iterator[str]:
    """Yield how the outcome of a fault differs from the table."""
    found = crawled["found"][fault.name]
    if (found["result"], found["kind"]) != (fault.result, fault.kind):
        yield f"{found['result']}, {found['kind']}: {found['explanation']}"
    if (found["page"], found["private"]) != (fault.allows_page, fault.allows_private):
        yield f"page {found['page']}, private {found['private']}: {found['explanation']}"
    timeout_s = TOTAL_TIMEOUT_S if fault.waits else PATIENT_TIMEOUT_S
    least_s = TOTAL_TIMEOUT_S if fault.accepts else CONNECT_TIMEOUT_S
    if not (least_s - 0.05 if fault.waits else 0.0) <= found["elapsed_s"] < timeout_s + SLACK_S:
        yield f"took {found['elapsed_s']} s"
    if not fault.allows_page and found["not_before"] is None:
        yield "a closed site is fetched again at once"
    if fault.name in REFUSED:
        if [url.rpartition("/")[2] for url in crawled["asked"][fault.name]] != ["robots.txt"]:
            yield "the forbidden target of a redirect was requested"
        if fault.name.endswith("-from-public") and "which is private" not in found["explanation"]:
            yield f"the private address is not named: {found['explanation']}"


@pytest.mark.full
@pytest.mark.realtime
@pytest.mark.timeout(300)
def test_each_fault_has_the_outcome_of_the_table_in_time_and_in_little_memory() -> None:
    # One test, because a crawl meets all of the faults.
    crawled = asyncio.run(_crawl())
    found = {name: list(_problems(fault, crawled)) for name, fault in FAULTS.items()}
    assert {name: problems for name, problems in found.items() if problems} == {}
    assert 0 <= crawled["grown_kib"] < GROWTH_KIB


def test_names_of_faults_are_lower_case_words() -> None:
    assert [fault.name for fault in FAULTS.values()] == [*FAULTS]
    assert [name for name in FAULTS if not (name.replace("-", "").isalnum() and name == name.lower())] == []


if __name__ == "__main__":
    crawl_by_itself()
