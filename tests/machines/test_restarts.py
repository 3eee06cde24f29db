"""A crawler that is restarted again and again asks a host exactly when one that runs on would."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from politesse import PacingOptions
from politesse._cache.codec import decode_state, encode_state
from politesse._pacing.host_state import HostState
from politesse._pacing.local import LocalPacer
from politesse.ports import Permit
from politesse.testing import ManualClock
from politesse.verdict import NotYet
from tests.support.pacing import HOST, MIDNIGHT, rules, wants
from tests.support.tasks import settle

OPTIONS = PacingOptions(min_delay_s=1.0)


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


_HEADERS_OF_QUOTA = {"x-ratelimit-limit": "100", "x-ratelimit-remaining": "10", "x-ratelimit-reset": "300"}
_HEADERS = st.sampled_from(
    [
        {},
        {},
        {"retry-after": "30"},
        {"retry-after": "3600"},
        _HEADERS_OF_QUOTA,
        {"x-ratelimit-limit": "100", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "90"},
    ]
)
_REQUESTS = st.lists(
    st.builds(
        Request,
        st.sampled_from([200, 404, 429, 503, 503, 500]),
        _HEADERS,
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

    def make() -> LocalPacer:
        if restarts:
            pacer = LocalPacer(OPTIONS, clock=clock, jitter=lambda: 0.0)
            pacer.remember(lambda _: disk)
            return pacer
        return LocalPacer(OPTIONS, clock=clock, jitter=lambda: 0.0)

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


def _request(
    status: int, *, took_s: float = 0.0, quiet_s: float = 0.0, crawl_delay: int = 0, restarts: bool = True
) -> Request:
    return Request(status, {}, took_s, quiet_s, crawl_delay, restarts)


@given(_REQUESTS)
@example(
    # The process forgets the idle host after 600 s and recalls it: the disk must know the last request by then.
    [
        *[_request(200)] * 4,
        _request(429, crawl_delay=200),
        _request(200, quiet_s=650.0, restarts=False),
        _request(429),
        _request(200),
    ]
)
@example(
    # The end of the backoff keeps the host for longer than its response times count.
    [_request(200), _request(429), _request(200), _request(200, took_s=5.0), _request(200)]
)
@example(
    # The Crawl-delay that an earlier request stated keeps the host for longer than its response times count.
    [_request(200, took_s=5.0, quiet_s=15.0, crawl_delay=200), _request(200), _request(200)]
)
@example(
    # The check of the idle host is set for long after the end of the backoff.
    [_request(200), _request(429, crawl_delay=200), _request(200, quiet_s=650.0), _request(429), _request(200)]
)
@example([_request(200, quiet_s=2.0, crawl_delay=10), _request(200, took_s=5.0), _request(200)])
# The quota ends between later requests, counted from its answer and not from the restart.
@example([_request(200, quiet_s=100.0)._replace(headers=_HEADERS_OF_QUOTA), *[_request(200, restarts=False)] * 12])
def test_a_restart_changes_no_start(requests: list[Request]) -> None:
    ran_on = asyncio.run(started(requests, restarts=False))
    restarted = asyncio.run(started(requests, restarts=True))
    assert restarted == pytest.approx(ran_on, rel=0.0, abs=0.05)
