"""However both clocks walk, no copy of robots.txt is used that is older than RFC 9309 and its headers permit."""

import asyncio
from typing import Final, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from politesse import Gatekeeper, Reason
from politesse.ports import FetchRequest, FetchResponse, FetchResult
from politesse.stores import MemoryStore
from politesse.testing import ManualClock
from tests.support.examples import examples
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


_SPANS = st.sampled_from([0.0, 30.0, 600.0, HOUR, 6 * HOUR, 0.95 * DAY, DAY, 3 * DAY]) | st.floats(0.0, 2 * DAY)
_STEPS = st.lists(
    st.builds(
        Step,
        passed_s=_SPANS,
        jump_s=st.just(0.0) | _SPANS | _SPANS.map(lambda span: -span),
        status=st.sampled_from([200, 200, 404, 429, 503, 503]),
        max_age_s=st.sampled_from([0.0, 600.0, 12 * HOUR, 7 * DAY]),
        restarts=st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(400))
@given(_STEPS)
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
