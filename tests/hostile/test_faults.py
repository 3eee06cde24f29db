"""Whatever a server does when it is asked for robots.txt, the gate is what the outcome table says, in time."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest

from politesse.testing import FAULTS, Fault, HostileServer
from politesse.testing.answers import FILE, response
from politesse.testing.certificates import authority_pem
from politesse.testing.faults import PUBLIC_NAME
from politesse.verdict import AccessResult
from tests.hostile import crawler

GROWTH_KIB: Final = 20 * 1024
SLACK_S: Final = 15.0
"""What a loaded machine may add to a timeout before the event loop acts on it."""

CRAWL_S: Final = 110.0
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
            # One that says 429 closes all ports of its host, so each of them has a host of its own.
            name: await stack.enter_async_context(
                HostileServer(fault, address=f"127.0.2.{place}" if name.startswith("429-") else LOOPBACK)
            )
            for place, (name, fault) in enumerate(FAULTS.items(), 1)
        }
        harmless = [await stack.enter_async_context(HostileServer(LARGE)) for _ in range(crawler.AT_ONCE)]
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


@pytest.fixture(scope="module")
def crawled() -> dict[str, Any]:
    """What a crawler in another process made of all of them."""
    return asyncio.run(_crawl())


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_has_the_outcome_of_the_table(fault: Fault, crawled: dict[str, Any]) -> None:
    found = crawled["found"][fault.name]
    assert (found["result"], found["kind"]) == (fault.result, fault.kind), found["explanation"]
    assert (found["page"], found["private"]) == (fault.allows_page, fault.allows_private), found["explanation"]


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_no_fault_takes_longer_than_the_timeout(fault: Fault, crawled: dict[str, Any]) -> None:
    timeout_s = crawler.TOTAL_TIMEOUT_S if fault.waits else crawler.PATIENT_TIMEOUT_S
    assert crawled["found"][fault.name]["elapsed_s"] < timeout_s + SLACK_S


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.waits])
def test_a_fault_that_never_ends_is_waited_for_until_a_timeout(name: str, crawled: dict[str, Any]) -> None:
    least_s = crawler.TOTAL_TIMEOUT_S if FAULTS[name].accepts else crawler.CONNECT_TIMEOUT_S
    assert crawled["found"][name]["elapsed_s"] >= least_s - 0.05


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if not fault.allows_page])
def test_robots_txt_of_a_closed_site_is_fetched_again_later_and_not_at_once(name: str, crawled: dict[str, Any]) -> None:
    assert crawled["found"][name]["not_before"] is not None


def test_all_faults_together_take_less_than_20_mb(crawled: dict[str, Any]) -> None:
    assert 0 <= crawled["grown_kib"] < GROWTH_KIB


REFUSED: Final = [name for name in FAULTS if name.startswith("redirect-to-") and name != "redirect-to-itself"]


@pytest.mark.parametrize("name", REFUSED)
def test_forbidden_target_of_a_redirect_is_not_requested(name: str, crawled: dict[str, Any]) -> None:
    assert [url.rpartition("/")[2] for url in crawled["asked"][name]] == ["robots.txt"]


def test_the_refusal_of_a_redirect_names_the_private_address(crawled: dict[str, Any]) -> None:
    for name in REFUSED:
        if name.endswith("-from-public"):
            assert "which is private" in crawled["found"][name]["explanation"]


def test_names_of_faults_are_lower_case_words() -> None:
    for name, fault in FAULTS.items():
        assert fault.name == name
        assert name.replace("-", "").isalnum()
        assert name == name.lower()
