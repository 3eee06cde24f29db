"""By which key a host is paced in each scope."""

import asyncio
import sys
from collections.abc import Sequence

import pytest

from politesse._pacing.scopes import Addresses, by_domain
from politesse.errors import ClosedError, ConfigurationError
from politesse.events import AddressNotFound, Event, Publisher
from politesse.testing import ManualClock
from tests.support.pacing import Resolving
from tests.support.tasks import ended, settle


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("example.com", "example.com"),
        ("www.a.example.com", "example.com"),
        ("www.example.co.uk", "example.co.uk"),
        ("one.github.io", "one.github.io"),  # a private suffix: its sites have nothing in common
        ("www.xn--55qx5d.cn", "www.xn--55qx5d.cn"),  # the suffix is in the list in its other form
        ("a.www.xn--55qx5d.cn", "www.xn--55qx5d.cn"),
        ("co.uk", "co.uk"),
        ("localhost", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("[2001:db8::1]", "[2001:db8::1]"),
    ],
)
def test_a_domain_is_what_is_registered(host: str, domain: str) -> None:
    assert by_domain()(host) == domain


def test_pacing_by_domain_names_the_extra_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "publicsuffixlist", None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[psl\]'"):
        by_domain()


def finder(resolver: Resolving, clock: ManualClock | None = None) -> tuple[Addresses, list[Event]]:
    publisher, events = Publisher(), list[Event]()
    publisher.subscribe(events.append)
    return Addresses(resolver, clock or ManualClock(), publisher), events


@pytest.mark.parametrize(
    ("addresses", "key"),
    [
        (["192.0.2.9"], "192.0.2.9"),
        (["192.0.2.9", "192.0.2.10"], "192.0.2.9"),
        (["192.0.2.10", "192.0.2.9"], "192.0.2.9"),  # by number, not by letter
        (["2001:db8::1", "192.0.2.9"], "192.0.2.9"),
        (["2001:DB8:0::1"], "2001:db8::1"),
        (["fe80::1%eth0"], "fe80::1"),
        (["::ffff:192.0.2.9"], "192.0.2.9"),
    ],
)
async def test_a_host_is_its_lowest_address(addresses: Sequence[str], key: str) -> None:
    by_address, _ = finder(Resolving({"example.com": addresses}))
    assert by_address.known("example.com") is None
    assert await by_address.find("example.com") == key
    assert by_address.known("example.com") == key


@pytest.mark.parametrize(
    ("host", "key"), [("192.0.2.9", "192.0.2.9"), ("[2001:db8::1]", "2001:db8::1"), ("[::ffff:192.0.2.9]", "192.0.2.9")]
)
async def test_a_literal_is_not_looked_up(host: str, key: str) -> None:
    resolver = Resolving({})
    by_address, _ = finder(resolver)
    assert by_address.known(host) == await by_address.find(host) == key
    assert not resolver.asked


async def test_one_lookup_for_all_who_ask_and_a_cancelled_one_harms_nobody() -> None:
    resolver = Resolving({"example.com": ["192.0.2.9"]})
    resolver.gate.clear()
    by_address, _ = finder(resolver)
    asking = [asyncio.create_task(by_address.find("example.com")) for _ in range(5)]
    await settle()
    asking[0].cancel()
    await settle()
    resolver.gate.set()
    assert await asyncio.gather(*asking[1:]) == ["192.0.2.9"] * 4
    assert asking[0].cancelled()
    assert resolver.asked == ["example.com"]


async def test_an_address_is_kept_for_an_hour() -> None:
    clock = ManualClock()
    resolver = Resolving({"example.com": ["192.0.2.9"]})
    by_address, _ = finder(resolver, clock)
    await by_address.find("example.com")
    clock.advance(3_599)
    await by_address.find("example.com")
    assert resolver.asked == ["example.com"]
    clock.advance(2)
    assert by_address.known("example.com") is None
    await by_address.find("example.com")
    assert resolver.asked == ["example.com"] * 2


@pytest.mark.parametrize("found", [OSError("no such host"), RuntimeError("broken"), [], ["soon"]])
async def test_a_host_without_an_address_is_its_own_key_for_a_minute_and_that_is_told(
    found: Sequence[str] | Exception,
) -> None:
    clock = ManualClock()
    resolver = Resolving({"example.com": found})
    by_address, events = finder(resolver, clock)
    assert await by_address.find("example.com") == "example.com"
    [event] = events
    assert isinstance(event, AddressNotFound)
    assert event.host == "example.com"
    assert event.error
    clock.advance(59)
    assert by_address.known("example.com") == "example.com"
    clock.advance(2)
    resolver.addresses["example.com"] = ["192.0.2.9"]
    assert await by_address.find("example.com") == "192.0.2.9"


async def test_the_close_ends_lookups() -> None:
    resolver = Resolving({})
    resolver.gate.clear()
    by_address, events = finder(resolver)
    called: list[bool] = []
    asking = asyncio.create_task(by_address.find("example.com"))
    by_address.lookup("example.com").add_done_callback(lambda _: called.append(True))
    await settle()
    await by_address.aclose()
    with pytest.raises(ClosedError, match=r"example\.com"):
        await asking
    assert called
    assert not events
    with pytest.raises(ClosedError):
        await by_address.find("example.com")


@pytest.mark.parametrize("steps", [1, 5])
async def test_an_address_whose_lookup_is_cancelled_by_others_is_looked_up_again(steps: int) -> None:
    resolver = Resolving({"example.com": ["192.0.2.9"]})
    resolver.gate.clear()
    by_address, _ = finder(resolver)
    others = asyncio.all_tasks()
    asking = asyncio.create_task(by_address.find("example.com"))
    await settle(steps)  # after the first step the lookup has not begun
    await ended(asyncio.all_tasks() - others - {asking})
    resolver.gate.set()
    assert await asking == "192.0.2.9"
