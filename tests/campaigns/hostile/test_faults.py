"""For each fault of a server, the gate answers as the table of outcomes says, in time."""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest

from politesse.testing import FAULTS, Fault, HostileServer
from politesse.testing.answers import FILE, response
from politesse.testing.faults import PUBLIC_NAME, authority_pem
from politesse.verdict import AccessResult
from tests.campaigns.hostile import crawler

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
            for place in range(1, crawler.AT_ONCE + 1)
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
            sys.executable, "-W", "error", "-m", crawler.__name__, stdin=pipe, stdout=pipe
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
    timeout_s = crawler.TOTAL_TIMEOUT_S if fault.waits else crawler.PATIENT_TIMEOUT_S
    least_s = crawler.TOTAL_TIMEOUT_S if fault.accepts else crawler.CONNECT_TIMEOUT_S
    if not (least_s - 0.05 if fault.waits else 0.0) <= found["elapsed_s"] < timeout_s + SLACK_S:
        yield f"took {found['elapsed_s']} s"
    if not fault.allows_page and found["not_before"] is None:
        yield "a closed site is fetched again at once"
    if fault.name in REFUSED:
        if [url.rpartition("/")[2] for url in crawled["asked"][fault.name]] != ["robots.txt"]:
            yield "the forbidden target of a redirect was requested"
        if fault.name.endswith("-from-public") and "which is private" not in found["explanation"]:
            yield f"the private address is not named: {found['explanation']}"


@pytest.mark.timeout(300)
def test_each_fault_has_the_outcome_of_the_table_in_time_and_in_little_memory() -> None:
    # One test, because a crawl meets all of the faults.
    crawled = asyncio.run(_crawl())
    found = {name: list(_problems(fault, crawled)) for name, fault in FAULTS.items()}
    assert {name: problems for name, problems in found.items() if problems} == {}
    assert 0 <= crawled["grown_kib"] < GROWTH_KIB


def test_names_of_faults_are_lower_case_words() -> None:
    for name, fault in FAULTS.items():
        assert fault.name == name
        assert name.replace("-", "").isalnum()
        assert name == name.lower()
