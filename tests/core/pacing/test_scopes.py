"""By which key a host is paced in each scope."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Literal

import pytest

from politesse import PacingOptions
from politesse.errors import ClosedError, ConfigurationError
from politesse.events import AddressNotFound, Event, Publisher
from politesse.options import SharedPacer
from politesse.ports import Permit
from politesse.testing import ManualClock
from politesse.verdict import Bound, NotYet
from tests.support.pacing import HOST, Resolving, share_of, wants
from tests.support.tasks import ended, settle


class Desk:
    """A pacer without pauses, with its key of each host."""

    def __init__(self, key: Literal["address", "domain"], addresses: Sequence[str] | Exception = ()) -> None:
        self.clock = ManualClock()
        self.resolver = Resolving({HOST: addresses})
        publisher, self.events = Publisher(), list[Event]()
        publisher.subscribe(self.events.append)
        options = PacingOptions(key=key, min_delay_s=0.0, max_concurrent=100)
        shared = SharedPacer(options, clock=self.clock, resolver=self.resolver)
        self.pacer = share_of(shared, publisher).pacer

    def known(self, host: str = HOST) -> str | None:
        """Return the key by which a request is paced at once; None if it has to wait for the address."""
        answer = self.pacer.try_start(wants(host=host))
        return None if isinstance(answer, NotYet) else self._end(answer)

    async def find(self, host: str = HOST) -> str:
        """Return the key by which a request is paced that waits."""
        return self._end(await self.pacer.start(wants(host=host)))

    def _end(self, permit: Permit) -> str:
        [key] = self.pacer.hosts()
        permit.end()
        return key


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
    assert Desk("domain").known(host) == domain


def test_pacing_by_domain_names_the_extra_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "publicsuffixlist", None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[psl\]'"):
        Desk("domain")


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
    desk = Desk("address", addresses)
    assert desk.known() is None
    assert await desk.find() == key
    assert desk.known() == key


@pytest.mark.parametrize(
    ("host", "key"), [("192.0.2.9", "192.0.2.9"), ("[2001:db8::1]", "2001:db8::1"), ("[::ffff:192.0.2.9]", "192.0.2.9")]
)
async def test_a_literal_is_not_looked_up(host: str, key: str) -> None:
    desk = Desk("address")
    assert desk.known(host) == await desk.find(host) == key
    assert not desk.resolver.asked


async def test_one_lookup_for_all_who_ask_and_a_cancelled_one_harms_nobody() -> None:
    desk = Desk("address", ["192.0.2.9"])
    desk.resolver.gate.clear()
    asking = [asyncio.create_task(desk.find()) for _ in range(5)]
    await settle()
    asking[0].cancel()
    await settle()
    desk.resolver.gate.set()
    assert await asyncio.gather(*asking[1:]) == ["192.0.2.9"] * 4
    assert asking[0].cancelled()
    assert desk.resolver.asked == [HOST]


async def test_an_address_is_kept_for_an_hour() -> None:
    desk = Desk("address", ["192.0.2.9"])
    await desk.find()
    desk.clock.advance(3_599)
    await desk.find()
    assert desk.resolver.asked == [HOST]
    desk.clock.advance(2)
    assert desk.known() is None
    await desk.find()
    assert desk.resolver.asked == [HOST] * 2


@pytest.mark.parametrize("found", [OSError("no such host"), RuntimeError("broken"), [], ["soon"]])
async def test_a_host_without_an_address_is_its_own_key_for_a_minute_and_that_is_told(
    found: Sequence[str] | Exception,
) -> None:
    desk = Desk("address", found)
    assert await desk.find() == HOST
    [event] = desk.events
    assert isinstance(event, AddressNotFound)
    assert event.host == HOST
    assert event.error
    desk.clock.advance(59)
    assert desk.known() == HOST
    desk.clock.advance(2)
    desk.resolver.addresses[HOST] = ["192.0.2.9"]
    assert await desk.find() == "192.0.2.9"


async def test_a_closure_holds_for_a_host_whose_address_is_looked_up_later() -> None:
    desk = Desk("address", ["192.0.2.9"])
    desk.resolver.addresses["other.example"] = ["192.0.2.9"]
    await desk.find()
    until_wall = desk.clock.wall() + 60.0
    desk.pacer.close_host(HOST, until_wall, Bound.RETRY_AFTER)
    assert await desk.pacer.closed_until("other.example") == until_wall


async def test_the_close_ends_lookups() -> None:
    desk = Desk("address")
    desk.resolver.gate.clear()
    asking = asyncio.create_task(desk.find())
    await settle()
    await desk.pacer.aclose()
    with pytest.raises(ClosedError, match=r"example\.com"):
        await asking
    assert not desk.events
    with pytest.raises(ClosedError):
        await desk.find()


@pytest.mark.parametrize("steps", [1, 5])
async def test_an_address_whose_lookup_is_cancelled_by_others_is_looked_up_again(steps: int) -> None:
    desk = Desk("address", ["192.0.2.9"])
    desk.resolver.gate.clear()
    asking = asyncio.create_task(desk.find())
    await settle(steps)  # after the first step the lookup has not begun
    [lookup] = [task for task in asyncio.all_tasks() if task.get_name() == f"address of {HOST}"]
    await ended([lookup])
    assert lookup.cancelled()
    desk.resolver.gate.set()
    assert await asking == "192.0.2.9"
