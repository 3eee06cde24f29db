"""A request waits for its host and for whatever shares an address or a domain with it; by which key hosts are paced."""

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import pytest

from politesse import Gatekeeper, HostPolicy, PacingOptions
from politesse.errors import ClosedError, ConfigurationError, TooFar
from politesse.events import AddressNotFound, Event, Publisher
from politesse.options import Limit, SharedPacer
from politesse.robots import RuleSet
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.verdict import Bound, NotYet
from tests.support.pacing import HOST, MIDNIGHT, Permit, Resolving, fetching, finish, rules, share_of, wants
from tests.support.tasks import ended, pass_time, settle

SHARED = {"a.example": ["192.0.2.1"], "b.example": ["192.0.2.1"], "c.example": ["192.0.2.2"]}
UA = "ExampleBot/1.0 (+https://example.com/bot)"


class Desk:
    def __init__(self, options: PacingOptions, addresses: Resolving | None = None) -> None:
        self.clock = ManualClock(MIDNIGHT)
        self.started: dict[Permit, float] = {}
        self.resolver = addresses or Resolving(SHARED)
        publisher, self.events = Publisher(), list[Event]()
        publisher.subscribe(self.events.append)
        shared = SharedPacer(options, clock=self.clock, resolver=self.resolver, jitter=lambda: 0.0)
        self.pacer = share_of(shared, publisher).pacer

    async def know(self, *hosts: str) -> None:
        """Have their addresses looked up."""
        for host in hosts:
            self.pacer.try_start(wants(host=host))
            await settle()

    def now(self, host: str, said: RuleSet | None = None) -> Permit | NotYet:
        return self.pacer.try_start(wants(said, host))

    def take(self, host: str, said: RuleSet | None = None) -> Permit:
        permit = self.now(host, said)
        assert not isinstance(permit, NotYet), permit
        return permit

    def refused(self, host: str) -> tuple[float, Bound]:
        answer = self.now(host)
        assert isinstance(answer, NotYet)
        return round(answer.not_before - self.clock.wall(), 3), answer.bound_by

    def ask(self, host: str, max_wait_s: float | None = None) -> asyncio.Task[Permit]:
        return asyncio.get_running_loop().create_task(self._start(host, max_wait_s), name=host)

    async def _start(self, host: str, max_wait_s: float | None) -> Permit:
        permit = await self.pacer.start(wants(host=host), max_wait_s)
        self.started[permit] = self.clock.monotonic()
        return permit

    async def pass_time(self, seconds: float) -> None:
        await pass_time(self.clock, seconds)

    def known(self, host: str = HOST) -> str | None:
        """Return the key by which a request is paced at once; None if it has to wait for the address."""
        answer = self.now(host)
        return None if isinstance(answer, NotYet) else self._key(answer)

    async def find(self, host: str = HOST) -> str:
        """Return the key by which a request is paced that waits."""
        return self._key(await self.pacer.start(wants(host=host)))

    def _key(self, permit: Permit) -> str:
        [key] = self.pacer.hosts()
        permit.end()
        return key


def by_address(min_delay_s: float = 2.0, max_concurrent: int = 1) -> PacingOptions:
    limit = Limit(min_delay_s=min_delay_s, max_concurrent=max_concurrent)
    return PacingOptions(min_delay_s=1.0, adaptive_factor=0.0, address=limit)


async def neighbours(min_delay_s: float = 2.0) -> Desk:
    """Return a desk that knows the common address of two hosts."""
    desk = Desk(by_address(min_delay_s))
    await desk.know("a.example", "b.example")
    return desk


def by_key(key: Literal["address", "domain"], addresses: Sequence[str] | Exception = ()) -> Desk:
    """Return a desk without pauses, of which only the keys are asked."""
    return Desk(PacingOptions(key=key, min_delay_s=0.0, max_concurrent=100), Resolving({HOST: addresses}))


async def test_hosts_at_one_address_wait_for_each_other_and_for_nobody_else() -> None:
    desk = Desk(by_address())
    await desk.know("a.example", "b.example", "c.example")
    first = desk.take("a.example")
    await desk.pass_time(10.0)
    assert desk.refused("b.example") == (0.0, Bound.IN_FLIGHT)
    other = desk.take("c.example")
    finish(first, 200)
    assert desk.refused("b.example") == (2.0, Bound.FLOOR)
    waiting = desk.ask("b.example")
    await desk.pass_time(1.99)
    assert not waiting.done()
    await desk.pass_time(0.02)
    assert desk.started[await waiting] == pytest.approx(12.0, abs=0.01)
    finish(other)
    assert desk.refused("c.example") == (2.0, Bound.FLOOR)


async def test_a_slow_host_does_not_slow_its_neighbours() -> None:
    desk = await neighbours()
    finish(desk.take("a.example", rules("Crawl-delay: 10")), 429)
    slow = desk.ask("a.example")
    await desk.pass_time(2.0)
    neighbour = desk.take("b.example")
    finish(neighbour, 200)
    await desk.pass_time(37.0)
    assert not slow.done()
    await desk.pass_time(1.1)
    assert slow.done()


async def test_pacing_by_address_lets_any_site_there_bind_all() -> None:
    desk = Desk(PacingOptions(key="address", adaptive_factor=0.0))
    await desk.know("a.example", "b.example", "c.example")
    finish(desk.take("a.example", rules("Crawl-delay: 20")), 200)
    assert desk.refused("b.example") == (20.0, Bound.CRAWL_DELAY)
    desk.pacer.close_host("b.example", MIDNIGHT + 50, Bound.RETRY_AFTER)
    assert await desk.pacer.closed_until("a.example") == MIDNIGHT + 50
    assert await desk.pacer.closed_until("c.example") is None


async def test_what_is_said_before_the_address_is_known_counts_once_it_is() -> None:
    desk = Desk(PacingOptions(key="address", adaptive_factor=0.0))
    desk.pacer.close_host("a.example", MIDNIGHT + 50, Bound.RETRY_AFTER)
    await settle()
    assert await desk.pacer.closed_until("b.example") == MIDNIGHT + 50


async def test_a_robots_txt_counts_at_its_address_from_its_end_and_from_the_opening_of_its_site() -> None:
    for status in (200, 404, 503, None):
        desk = await neighbours(min_delay_s=7.0)
        fetch = await desk.pacer.start_fetch(fetching("a.example"))
        await desk.pass_time(0.5)
        fetch.end(status)
        assert desk.refused("b.example") == (7.0, Bound.FLOOR)
        await desk.pass_time(0.5)
        fetch.opened()
        assert desk.refused("a.example")[0] >= desk.refused("b.example")[0] == 7.0


# Waiting in two lines


async def test_who_gives_up_in_the_wider_line_gives_the_host_back_at_no_cost() -> None:
    desk = await neighbours(min_delay_s=50.0)
    finish(desk.take("b.example"), 200)
    with pytest.raises(TooFar):
        await desk.ask("a.example", max_wait_s=10.0)
    assert desk.pacer.in_flight == 0
    waiting = desk.ask("a.example")
    await desk.pass_time(1.0)
    assert (desk.pacer.in_flight, desk.pacer.waiting) == (0, 1)  # no scope is held while another is waited for
    waiting.cancel()
    await settle()
    assert (desk.pacer.in_flight, desk.pacer.waiting) == (0, 0)
    await desk.pass_time(49.1)
    desk.take("a.example")


async def test_a_wait_that_is_too_long_in_any_line_is_refused_at_once() -> None:
    desk = await neighbours(min_delay_s=6.0)
    finish(desk.take("a.example", rules("Crawl-delay: 4")), 200)
    with pytest.raises(TooFar):  # four seconds for the host, but six for the address
        await desk.ask("a.example", max_wait_s=5.0)


async def test_a_host_that_closes_while_the_address_is_waited_for_is_not_requested() -> None:
    desk = await neighbours(min_delay_s=5.0)
    finish(desk.take("b.example"), 200)
    first, second = desk.ask("a.example"), desk.ask("a.example")
    await desk.pass_time(1.0)
    desk.pacer.close_host("a.example", MIDNIGHT + 20, Bound.RETRY_AFTER)
    await desk.pass_time(5.0)
    neighbour = desk.take("b.example")  # the address was given back, too
    finish(neighbour, 200)
    await desk.pass_time(13.9)
    assert not first.done()
    assert not second.done()
    await desk.pass_time(0.2)
    assert desk.started[await first] == pytest.approx(20.0, abs=0.01)  # nobody has passed it
    assert first.result().waited
    assert not second.done()


async def test_a_host_that_waits_for_its_address_holds_up_no_other_host_of_its_domain() -> None:
    """Six hosts share a domain; one of them shares its address with fifty others."""
    crowd, family = [f"c{number}.example" for number in range(50)], [f"h{number}.site.example" for number in range(6)]
    addresses = {host: ["192.0.2.1"] for host in (*crowd, family[0])}
    addresses |= {host: [f"192.0.2.{number + 10}"] for number, host in enumerate(family[1:])}
    domain, address = Limit(min_delay_s=1.0), Limit(min_delay_s=1.0)
    options = PacingOptions(min_delay_s=1.0, adaptive_factor=0.0, domain=domain, address=address)
    desk = Desk(options, Resolving(addresses))
    await desk.know(*addresses)
    starts: Counter[str] = Counter()

    async def request_again_and_again(host: str) -> None:
        while True:
            permit = await desk.pacer.start(wants(host=host))
            starts[host] += 1
            permit.end()

    requesting = [asyncio.create_task(request_again_and_again(host)) for host in addresses]
    await desk.pass_time(120.0)
    await ended(requesting)
    # The address serves 51 hosts in turn, so the domain is free for the five others for most of the time.
    assert sum(starts[host] for host in family[1:]) >= 110
    assert 2 <= starts[family[0]] <= 4
    assert max(starts[host] for host in crowd) - min(starts[host] for host in crowd) <= 1


async def test_a_scope_without_a_pause_lets_the_next_host_start_when_its_request_ends() -> None:
    desk = await neighbours(min_delay_s=0.0)
    permit, waiting = desk.take("a.example"), desk.ask("b.example")
    await desk.pass_time(5.0)
    assert not waiting.done()
    finish(permit, 200)
    await desk.pass_time(0.01)
    assert waiting.done()


# Without waiting


async def test_an_address_that_is_not_known_is_looked_up_meanwhile() -> None:
    desk = Desk(by_address())
    desk.resolver.gate.clear()
    assert desk.refused("a.example") == (0.0, Bound.ADDRESS)
    called: list[bool] = []
    desk.pacer.when_ready(wants(host="a.example"), lambda: called.append(True))
    await desk.pass_time(1.0)
    assert not called
    desk.resolver.gate.set()
    await desk.pass_time(0.1)
    assert called == [True]
    desk.take("a.example")
    assert desk.resolver.asked == ["a.example"]


async def test_a_watcher_is_called_when_all_scopes_are_ready() -> None:
    desk = await neighbours(min_delay_s=5.0)
    finish(desk.take("a.example"), 200)
    called: list[float] = []
    desk.pacer.when_ready(wants(host="a.example"), lambda: called.append(desk.clock.monotonic()))
    await desk.pass_time(10.0)
    assert called == [pytest.approx(5.0, abs=0.02)]
    desk.pacer.when_ready(wants(host="a.example"), lambda: called.append(0.0))
    assert len(called) == 1  # not from within the call
    await desk.pass_time(0.1)
    assert len(called) == 2


# The end, and wrong use


async def test_the_close_tells_everybody() -> None:
    desk = await neighbours(min_delay_s=50.0)
    finish(desk.take("b.example"), 200)
    called: list[bool] = []
    desk.pacer.when_ready(wants(host="b.example"), lambda: called.append(True))
    desk.resolver.gate.clear()
    desk.pacer.when_ready(wants(host="c.example"), lambda: called.append(True))
    in_line, looking_up = desk.ask("a.example"), desk.ask("c.example")
    robots = asyncio.ensure_future(desk.pacer.start_fetch(fetching("c.example")))
    await settle()
    async with asyncio.timeout(5.0):  # a lookup may take twice as long
        await desk.pacer.aclose()
    await settle()
    for task in (in_line, looking_up, robots):
        with pytest.raises(ClosedError):
            await task
    assert called == [True, True]
    assert not desk.events
    with pytest.raises(ClosedError):
        desk.now("b.example")
    with pytest.raises(ClosedError):
        await desk.pacer.start_fetch(fetching("b.example"))


async def test_fetches_that_wait_in_line_end_after_the_pacer_has_closed() -> None:
    desk = Desk(by_address())
    await desk.know("a.example")
    under_way = await desk.pacer.start_fetch(fetching("a.example"))
    waiting = [asyncio.ensure_future(desk.pacer.start_fetch(fetching("a.example"))) for _ in range(2)]
    await settle()
    await desk.pacer.aclose()
    under_way.end(200)
    await desk.pass_time(120.0)
    ended, _ = await asyncio.wait(waiting, timeout=1.0)
    assert ended == set(waiting)
    for fetch in ended:
        assert isinstance(fetch.exception(), ClosedError)


def test_options_that_cannot_be_meant() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"key": "ip"}, "host"),
        ({"key": "address", "address": Limit()}, "address"),
        ({"domain": 3}, "Limit"),
    ]
    for options, match in wrong:
        with pytest.raises(ConfigurationError, match=match):
            PacingOptions(**options)


async def test_a_host_has_no_pace_of_its_own_where_hosts_are_not_paced() -> None:
    gate = Gatekeeper(UA, fetcher=ScriptedFetcher(), pacing=PacingOptions(key="domain"))
    async with gate:
        with pytest.raises(ConfigurationError, match="key='domain'"):
            gate.set_policy("a.example", HostPolicy(min_delay_s=0.1))
        gate.set_policy("a.example", HostPolicy(deny=True))
        assert not await gate.check("https://a.example/")
        gate.set_policy("a.example", None)
        assert await gate.check("https://a.example/")


# The keys


def test_a_domain_is_what_is_registered() -> None:
    domains: dict[str, str | None] = {
        "example.com": "example.com",
        "www.a.example.com": "example.com",
        "www.example.co.uk": "example.co.uk",
        "one.github.io": "one.github.io",  # a private suffix: its sites have nothing in common
        "www.xn--55qx5d.cn": "www.xn--55qx5d.cn",  # the suffix is in the list in its other form
        "a.www.xn--55qx5d.cn": "www.xn--55qx5d.cn",
        "co.uk": "co.uk",
        "localhost": "localhost",
        "127.0.0.1": "127.0.0.1",
        "[2001:db8::1]": "[2001:db8::1]",
    }
    assert {host: by_key("domain").known(host) for host in domains} == domains


def test_pacing_by_domain_names_the_extra_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "publicsuffixlist", None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[psl\]'"):
        by_key("domain")


async def test_a_host_is_its_lowest_address_and_a_literal_is_not_looked_up() -> None:
    lowest = [
        (["192.0.2.9"], "192.0.2.9"),
        (["192.0.2.9", "192.0.2.10"], "192.0.2.9"),
        (["192.0.2.10", "192.0.2.9"], "192.0.2.9"),  # by number, not by letter
        (["2001:db8::1", "192.0.2.9"], "192.0.2.9"),
        (["2001:DB8:0::1"], "2001:db8::1"),
        (["fe80::1%eth0"], "fe80::1"),
        (["::ffff:192.0.2.9"], "192.0.2.9"),
    ]
    for addresses, key in lowest:
        desk = by_key("address", addresses)
        assert desk.known() is None
        assert await desk.find() == desk.known() == key, addresses
    literals = {"192.0.2.9": "192.0.2.9", "[2001:db8::1]": "2001:db8::1", "[::ffff:192.0.2.9]": "192.0.2.9"}
    for host, key in literals.items():
        desk = by_key("address")
        assert desk.known(host) == await desk.find(host) == key, host
        assert not desk.resolver.asked


async def test_one_lookup_for_all_who_ask_and_a_cancelled_one_harms_nobody() -> None:
    desk = by_key("address", ["192.0.2.9"])
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
    desk = by_key("address", ["192.0.2.9"])
    await desk.find()
    desk.clock.advance(3_599)
    await desk.find()
    assert desk.resolver.asked == [HOST]
    desk.clock.advance(2)
    assert desk.known() is None
    await desk.find()
    assert desk.resolver.asked == [HOST] * 2


async def test_a_host_without_an_address_is_its_own_key_for_a_minute_and_that_is_told() -> None:
    failures: list[Sequence[str] | Exception] = [OSError("no such host"), RuntimeError("broken"), [], ["soon"]]
    for found in failures:
        desk = by_key("address", found)
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


async def test_an_address_whose_lookup_is_cancelled_by_others_is_looked_up_again() -> None:
    for steps in (1, 5):  # after the first step the lookup has not begun
        desk = by_key("address", ["192.0.2.9"])
        desk.resolver.gate.clear()
        asking = asyncio.create_task(desk.find())
        await settle(steps)
        [lookup] = [task for task in asyncio.all_tasks() if task.get_name() == f"address of {HOST}"]
        await ended([lookup])
        assert lookup.cancelled()
        desk.resolver.gate.set()
        assert await asking == "192.0.2.9"
