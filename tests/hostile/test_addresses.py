"""Where private addresses are denied nothing leads to one, whatever it is called and whenever it changes."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

import aiohttp
import pytest

from politesse import FetchOptions, Gatekeeper, InvalidURL, PacingOptions, PoliteSession, Reason
from politesse.fetch import PublicResolver
from politesse.testing import Fault, HostileServer, ScriptedResolver
from politesse.testing.answers import FILE, response
from politesse.testing.faults import ODD_LOOPBACKS, PRIVATE_LITERALS
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from collections.abc import Sequence

UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"
DENY: Final = FetchOptions(private_addresses="deny", connect_timeout_s=2, total_timeout_s=5)
NO_FAULT: Final = Fault(name="none", robots=response(200, FILE), result=AccessResult.SUCCESSFUL)


async def _verdict(url: str, names: ScriptedResolver, options: FetchOptions | None = DENY) -> tuple[Reason, str]:
    async with Gatekeeper(UA, fetch=options, resolver=names) as gate:
        verdict = await gate.check(url)
        assert verdict.source is not None
        return verdict.reason, verdict.source.fault


@pytest.mark.parametrize("address", PRIVATE_LITERALS.values(), ids=PRIVATE_LITERALS.keys())
async def test_a_literal_is_denied(address: str) -> None:
    async with HostileServer(NO_FAULT) as server:
        port = server.origin.rpartition(":")[2]
        reason, fault = await _verdict(f"http://{address}:{port}/page", ScriptedResolver({}))
        assert reason is Reason.UNREACHABLE
        assert fault.startswith("address: ")
        assert "which is private" in fault
        assert server.log == []


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["::1", "127.0.0.1"], ["::ffff:127.0.0.1"], ["64:ff9b::7f00:1"], ["fe80::1%lo", "127.0.0.1"]],
)
async def test_a_name_of_private_addresses_only_is_denied(addresses: Sequence[str]) -> None:
    async with HostileServer(Fault(name="inside", robots=response(200, FILE), host="inside.example")) as server:
        reason, fault = await _verdict(server.url("/page"), ScriptedResolver({"inside.example": addresses}))
        assert reason is Reason.UNREACHABLE
        assert "which is private" in fault
        assert server.log == []


async def test_a_name_of_a_private_address_is_allowed_by_default() -> None:
    async with HostileServer(Fault(name="inside", robots=response(200, FILE), host="inside.example")) as server:
        names = ScriptedResolver({"inside.example": ["127.0.0.1"]})
        reason, _ = await _verdict(server.url("/page"), names, None)
        assert reason is Reason.NO_RULE


@pytest.mark.parametrize("spelling", ODD_LOOPBACKS.values(), ids=ODD_LOOPBACKS.keys())
@pytest.mark.parametrize("options", [DENY, None], ids=["denied", "default"])
async def test_an_odd_spelling_of_an_address_is_an_invalid_url(spelling: str, options: FetchOptions | None) -> None:
    async with Gatekeeper(UA, fetch=options, resolver=ScriptedResolver({})) as gate:
        with pytest.raises(InvalidURL, match="write an IPv4 address as four numbers"):
            await gate.check(f"http://{spelling}/")


async def test_a_page_is_not_fetched_from_a_name_that_became_private_after_its_robots_txt() -> None:
    fault = Fault(name="rebinds", robots=response(200, FILE), host="rebound.example")
    async with HostileServer(fault) as server:
        names = ScriptedResolver({"rebound.example": ["127.0.0.1"]})
        pacing = PacingOptions(min_delay_s=0.0)
        async with Gatekeeper(UA, resolver=names, pacing=pacing) as gate:
            assert await gate.check(server.url("/page"))
            connector = aiohttp.TCPConnector(resolver=PublicResolver(names))
            async with PoliteSession(gate, connector=connector) as web:
                with pytest.raises(aiohttp.ClientConnectorError, match=r"rebound\.example has no address"):
                    await web.get(server.url("/page"))
        assert server.pages == []


async def test_a_public_resolver_gives_a_connector_usable_addresses() -> None:
    names = ScriptedResolver({"mixed.example": ["127.0.0.1", "93.184.216.34"]})
    found = await PublicResolver(names).resolve("mixed.example", 80, socket.AF_UNSPEC)
    assert [result["host"] for result in found] == ["93.184.216.34"]
