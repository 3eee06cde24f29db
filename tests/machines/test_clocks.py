"""Walks of both clocks, and restarts: no robots.txt is used for too long, and no request starts at another time.

However both clocks walk, no copy is used that is older than RFC 9309 and its headers permit, and the hot path of a
question returns what the plain way returns. A crawler that is restarted again and again asks a host exactly when one
that runs on would.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from politesse import Gatekeeper, HostPolicy, InvalidURL, PacingOptions, Reason
from politesse._cache.records import decode_state, encode_state
from politesse._pacing.host_state import HostState
from politesse._pacing.hosts import Hosts
from politesse.ports import FetchRequest, FetchResponse, FetchResult
from politesse.stores import MemoryStore
from politesse.testing import ManualClock, ScriptedFetcher
from politesse.verdict import NotYet
from tests.support.examples import examples
from tests.support.pacing import HOST, MIDNIGHT, Permit, rules, wants
from tests.support.tasks import settle

UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"
PAGE: Final = "https://example.com/page"
HOUR: Final = 3_600.0
DAY: Final = 86_400.0
SLACK_S: Final = 0.1  # of the floats, and of both clocks, which are read one after the other


class Confirmed(NamedTuple):
    """The last answer that settled something, by the clocks of the crawler at that moment."""

    status: int
    lifetime_s: float
    run: str
    mono: float
    wall: float


class Site:
    """A server that answers every request in the way that the test sets, and notes when it settled something."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.status = 200
        self.max_age_s = DAY
        self.last: Confirmed | None = None
        self.failed = 0  # the status of a failure since then
        self.ahead_s = 0.0  # how far the wall clock was ahead of the monotonic one, at most, in the present process

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        headers = {"cache-control": f"max-age={self.max_age_s:.0f}", "etag": '"1"'}
        conditional = request.validators is not None
        if self.status in {429, 503}:
            self.failed = self.status
            return FetchResponse(self.status, request.url, conditional=conditional)
        lifetime_s = min(max(self.max_age_s, 60.0), DAY)
        self.last = Confirmed(self.status, lifetime_s, self.clock.run, self.clock.monotonic(), self.clock.wall())
        self.failed = 0
        status = 304 if conditional and self.status == 200 else self.status
        body = b"User-agent: *\nAllow: /\n" if status == 200 else b""
        return FetchResponse(status, request.url, headers, body, conditional=conditional)

    async def aclose(self) -> None:
        pass

    def look(self, *, is_first: bool = False) -> None:
        """Note both clocks, as the crawler does at its start and at each question."""
        ahead_s = self.clock.wall() - self.clock.monotonic()
        self.ahead_s = ahead_s if is_first else max(self.ahead_s, ahead_s)

    def age_s(self, last: Confirmed) -> float:
        """Return the age of the last answer by the clock that says more.

        The monotonic clock does not know the age of an answer to another process. But it knows by how much the wall
        clock was set back since this process began.
        """
        mono, wall = self.clock.monotonic(), self.clock.wall()
        by_mono = mono - last.mono if last.run == self.clock.run else self.ahead_s + mono - last.wall
        return max(by_mono, wall - last.wall)

    def longest_s(self, last: Confirmed) -> float:
        """Return for how long the decisions let the last answer open the site."""
        if not self.failed or self.failed == 429:
            return last.lifetime_s
        return DAY if last.status == 200 else 0.0


class Step(NamedTuple):
    """The events between two questions.

    Attributes:
        passed_s: the advance of the monotonic clock, and of the wall clock with it.
        jump_s: by how much the wall clock is set, or moves on while the machine sleeps.
        status: of the server from then on.
        max_age_s: of its answers.
        restarts: whether another process goes on with the store.
    """

    passed_s: float
    jump_s: float
    status: int
    max_age_s: float
    restarts: bool


SPANS = st.sampled_from([0.0, 30.0, 600.0, HOUR, 6 * HOUR, 0.95 * DAY, DAY, 3 * DAY]) | st.floats(0.0, 2 * DAY)
STEPS: Final = st.lists(
    st.builds(
        Step,
        passed_s=SPANS,
        jump_s=st.just(0.0) | SPANS | SPANS.map(lambda span: -span),
        status=st.sampled_from([200, 200, 404, 429, 503, 503]),
        max_age_s=st.sampled_from([0.0, 600.0, 12 * HOUR, 7 * DAY]),
        restarts=st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(400))
@given(STEPS)
@example(
    [
        Step(0.0, -HOUR, 503, DAY, restarts=False),
        Step(0.0, 0.0, 503, DAY, restarts=True),  # the copy is dated in the future
        Step(DAY, 0.0, 503, DAY, restarts=False),
        Step(0.0, -30.0, 503, DAY, restarts=False),
        Step(0.0, 0.0, 503, DAY, restarts=True),  # the failure is dated in the near future
    ]
)
@example(
    [
        Step(0.0, 0.0, 200, 0.0, restarts=False),
        Step(600.0, 0.0, 404, DAY, restarts=False),
        Step(0.0, 0.95 * DAY, 429, DAY, restarts=False),
        Step(0.0, 6 * HOUR, 503, DAY, restarts=True),
        Step(0.0, -6 * HOUR, 503, DAY, restarts=False),
        Step(0.0, 0.0, 503, DAY, restarts=True),  # the failure is dated in the future, and the 404 is not
    ]
)
def test_no_copy_is_used_that_is_too_old_by_either_clock(steps: list[Step]) -> None:
    asyncio.run(_walk(steps))


async def _walk(steps: list[Step]) -> None:
    store, clock = MemoryStore(), ManualClock()
    site = Site(clock)
    gate = Gatekeeper(UA, fetcher=site, store=store, clock=clock)
    site.look(is_first=True)
    try:
        for step in [Step(0.0, 0.0, 200, steps[0].max_age_s, restarts=False), *steps]:
            site.status, site.max_age_s = step.status, step.max_age_s
            if step.restarts:
                await gate.aclose()
                clock = site.clock = ManualClock(clock.wall())
                gate = Gatekeeper(UA, fetcher=site, store=store, clock=clock)
                site.look(is_first=True)
            clock.advance(step.passed_s)
            clock.set_wall(clock.wall() + step.jump_s)
            await settle()
            site.look()
            asking = asyncio.create_task(gate.check(PAGE))
            while not asking.done():
                clock.advance(0.01)
                await asyncio.sleep(0)
            _check(asking.result().reason, site)
            await settle()
    finally:
        await gate.aclose()


def _check(reason: Reason, site: Site) -> None:
    last = site.last
    if reason in {Reason.UNREACHABLE, Reason.TOO_MANY_REQUESTS}:
        return
    assert last is not None
    assert reason is (Reason.ALLOW_RULE if last.status == 200 else Reason.UNAVAILABLE)
    assert site.age_s(last) < site.longest_s(last) + SLACK_S, (last, site.failed)


# The hot path

ROBOTS: Final = [
    "User-agent: *\nDisallow: /a\nAllow: /a/b\nDisallow: /*?\nDisallow: /%C3%A9\n",
    "User-agent: ExampleBot\nDisallow: /*.gif$\nContent-Usage: train-ai=n\n",
    *("", 404, 403, 429, 503),
]
NAMED: Final = ("/robots.txt", "/%72obots.txt", "/./robots.txt", "", "?", "/a", "/a/b?q", "/é", "/%c3%a9", "/x.gif")
ATTRIBUTES: Final = ("url", "agent", "allowed", "source", "age_s", "note", "site_usage")


def told(gate: Gatekeeper, url: str) -> object:
    try:
        verdict = gate.peek(url)
    except InvalidURL as error:
        return str(error)
    if verdict is None:
        return None
    match = verdict.match
    facts = match.allowed, match.reason, match.rule, match.bound_reached
    return facts, [getattr(verdict, name) for name in ATTRIBUTES]


@example(ROBOTS[0], "https://example.com", "/a/../a", 0.0)
@example(ROBOTS[0], "https://example.com", "/A", 0.0)
@settings(max_examples=1_000)
@given(
    st.sampled_from(ROBOTS),
    st.sampled_from(
        ["https://example.com", "HTTPS://Example.COM:443", "https://other.example", "http://example.com", "x:"]
    ),
    st.sampled_from(NAMED) | st.text("/ab.?%é$*2E#", max_size=12).map("/{}".format),
    st.sampled_from([0.0, 100.0, 80_000.0, 86_399.0, 86_400.0]),
)
def test_the_hot_path_of_a_question_returns_what_the_plain_way_returns(
    robots: str | int, origin: str, target: str, later_s: float
) -> None:
    async def ask() -> None:
        clock = ManualClock()
        async with Gatekeeper(UA, fetcher=ScriptedFetcher({"https://example.com": robots}), clock=clock) as gate:
            await gate.check("https://example.com/")
            clock.advance(later_s)
            by_hot_path = told(gate, origin + target)
            gate.set_policy("example.com", HostPolicy())  # a host with a policy is judged in the plain way
            assert told(gate, origin + target) == by_hot_path

    asyncio.run(ask())


# Restarts


class Request(NamedTuple):
    """One request, and what happens after it.

    Attributes:
        status: of its answer.
        headers: of its answer.
        took_s: how long it takes.
        quiet_s: for how long after that nothing is requested.
        crawl_delay: what robots.txt states from then on; 0 for nothing.
        restarts: whether the process ends then.
    """

    status: int
    headers: dict[str, str]
    took_s: float
    quiet_s: float
    crawl_delay: int
    restarts: bool


def of_quota(remaining: int, reset_s: int) -> dict[str, str]:
    quota = {"limit": 100, "remaining": remaining, "reset": reset_s}
    return {f"x-ratelimit-{name}": str(value) for name, value in quota.items()}


PRICE: Final = {"crawler-price": "USD 1"}
REQUESTS: Final = st.lists(
    st.builds(
        Request,
        st.sampled_from([200, 404, 402, 429, 503, 503, 500]),
        st.sampled_from([{}, PRICE, {"retry-after": "30"}, {"retry-after": "3600"}, of_quota(9, 300), of_quota(0, 90)]),
        st.sampled_from([0.0, 0.25, 5.0, 90.0]),
        st.sampled_from([0.0, 0.0, 0.5, 2.0, 15.0, 100.0, 650.0, 4_000.0]),
        st.sampled_from([0, 0, 10, 200]),
        st.sampled_from([True, True, False]),
    ),
    min_size=3,
    max_size=8,
)


class Disk:
    """Keeps the state of the host as octets, written as soon as a request has ended."""

    def __init__(self) -> None:
        self.take: Callable[[], HostState] | None = None
        self.kept: bytes | None = None

    async def recall(self, key: str, /) -> HostState | None:
        return None if self.kept is None else decode_state(self.kept, key)

    def note(self, key: str, take: Callable[[], HostState], /) -> None:
        self.take = take

    def write(self) -> None:
        if self.take is not None:
            self.kept = encode_state(self.take(), HOST)


async def started(requests: list[Request], *, restarts: bool) -> list[float]:
    """Return when each request starts, by the wall clock."""
    disk, clock, moments = Disk(), ManualClock(MIDNIGHT), list[float]()

    def make() -> Hosts:
        pacer = Hosts(PacingOptions(min_delay_s=1.0), clock=clock, jitter=lambda: 0.0)
        if restarts:
            pacer.remember(lambda _: disk)
        return pacer

    async def start() -> Permit:
        """As a crawler that polls: it waits for as long as it is told."""
        pace = rules(f"Crawl-delay: {request.crawl_delay}") if request.crawl_delay else rules()
        while True:
            answer = pacer.try_start(wants(pace))
            await settle(3)
            if not isinstance(answer, NotYet):
                return answer
            if answer.bound_by != "store":
                clock.advance(max(0.001, answer.not_before - clock.wall()))

    pacer = make()
    for request in requests:
        permit = await start()
        moments.append(clock.wall())
        clock.advance(request.took_s)
        permit.observe(request.status, request.headers)
        permit.end()
        disk.write()
        clock.advance(request.quiet_s)
        if restarts and request.restarts:
            await pacer.aclose()
            clock = ManualClock(clock.wall())
            pacer = make()
    await pacer.aclose()
    return moments


def asked(status: int, took_s: float = 0.0, quiet_s: float = 0.0, delay: int = 0, *, restarts: bool = True) -> Request:
    return Request(status, {}, took_s, quiet_s, delay, restarts)


@given(REQUESTS)
@example(
    # The process forgets the idle host after 600 s and recalls it: the disk must know the last request by then.
    [
        *[asked(200)] * 4,
        asked(429, delay=200),
        asked(200, quiet_s=650.0, restarts=False),
        asked(429),
        asked(200),
    ]
)
@example(
    # The end of the backoff keeps the host for longer than its response times count.
    [asked(200), asked(429), asked(200), asked(200, took_s=5.0), asked(200)]
)
@example(
    # The Crawl-delay that an earlier request stated keeps the host for longer than its response times count.
    [asked(200, took_s=5.0, quiet_s=15.0, delay=200), asked(200), asked(200)]
)
@example(
    # The check of the idle host is set for long after the end of the backoff.
    [asked(200), asked(429, delay=200), asked(200, quiet_s=650.0), asked(429), asked(200)]
)
@example([asked(200, quiet_s=2.0, delay=10), asked(200, took_s=5.0), asked(200)])
# The quota ends between later requests, counted from its answer and not from the restart.
@example([asked(200, quiet_s=100.0)._replace(headers=of_quota(10, 300)), *[asked(200, restarts=False)] * 12])
def test_a_restart_changes_no_start(requests: list[Request]) -> None:
    ran_on = asyncio.run(started(requests, restarts=False))
    restarted = asyncio.run(started(requests, restarts=True))
    assert restarted == pytest.approx(ran_on, rel=0.0, abs=0.05)
