"""A day of a crawl on a clock that jumps: 200 hosts, 1,000 tasks, windows, delays, 429s and slow answers.

The rules of each host are worked out here a second time, literally, and the log is held to them.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import pytest

from politesse import PacingOptions
from politesse.events import Publisher
from politesse.options import SharedPacer
from politesse.testing import ManualClock
from tests.support.pacing import MIDNIGHT, finish, rules, wants

HOSTS: Final = 200
TASKS: Final = 1_000
TURNS: Final = 40
"""For each task. The fast hosts are done after some hours, the slow ones have work for more than the day."""

DAY_S: Final = 86_400.0
ANSWER_S: Final = 3.0
SLACK_S: Final = 0.01  # a timer's
CLOSED_SLACK_S: Final = 1e-6  # a closing is kept as a Unix time, whose last digit is a quarter of a microsecond


@dataclass
class Request:
    asked: int
    asked_mono: float
    started_mono: float
    ended_mono: float
    closed_s: float


@dataclass
class Site:
    name: str
    robots_txt: tuple[str, ...]
    interval_at: Callable[[float], float]
    open_at: Callable[[float], bool]
    refuses: int
    """Every so many requests it answers 429; 0 for never."""
    log: list[Request] = field(default_factory=list)
    asked: int = 0

    def earliest(self, before: Request) -> float:
        """The first second after ``before`` at which another may start."""
        moment = max(before.ended_mono, before.ended_mono + before.closed_s)
        while not (self.open_at(moment) and moment >= before.ended_mono + self.interval_at(moment)):
            moment += 1.0
        return moment


def _always(_: float) -> bool:
    return True


def _between(first: int, last: int) -> Callable[[float], bool]:
    """In hours of the day; past midnight where the last is less than the first."""

    def within(moment: float) -> bool:
        hour = moment % DAY_S / 3600
        return first <= hour < last if first < last else hour >= first or hour < last

    return within


def _sites() -> list[Site]:
    sites = []
    for number in range(HOSTS):
        name, refuses = f"host{number}.example", 9 if number % 4 == 0 else 0
        match number % 5:
            case 0:
                site = Site(name, (), lambda _: ANSWER_S, _always, refuses)
            case 1:
                delay_s = 30.0 + number
                site = Site(name, (f"Crawl-delay: {delay_s}",), lambda _, s=delay_s: s, _always, refuses)  # type: ignore[misc]
            case 2:
                site = Site(name, ("Request-rate: 6/1h", "Crawl-delay: 10"), lambda _: 600.0, _between(20, 4), refuses)
                site.robots_txt += ("Visit-time: 2000-0359",)
            case 3:
                slow, line = _between(8, 18), "Request-rate: 1/40m 0800-1759"
                site = Site(
                    name,
                    (line, "Crawl-delay: 300"),
                    lambda moment, slow=slow: 2400.0 if slow(moment) else 300.0,  # type: ignore[misc]
                    _always,
                    refuses,
                )
            case _:
                site = Site(name, ("Visit-time: 0600-0659", "Crawl-delay: 60"), lambda _: 60.0, _between(6, 7), refuses)
        sites.append(site)
    return sites


async def _crawl(sites: list[Site]) -> int:
    """Return how many tasks were not done when the day was over."""
    clock = ManualClock(MIDNIGHT, autojump=True)
    shared = SharedPacer(PacingOptions(min_delay_s=1.0), clock=clock, jitter=lambda: 0.0)
    pacer = shared.join(Publisher(), None, None).pacer
    said = {site.name: rules(*site.robots_txt) for site in sites}
    lots = random.Random(3)

    async def work(number: int) -> None:
        site = sites[number % HOSTS]
        for _ in range(TURNS):
            asked, site.asked = site.asked, site.asked + 1
            asked_mono = clock.monotonic()
            permit = await pacer.start(wants(said[site.name], site.name))
            started_mono = clock.monotonic()
            refused = site.refuses > 0 and len(site.log) % site.refuses == site.refuses - 1
            await clock.sleep(0.002 if refused else ANSWER_S)
            asked_s = lots.randrange(5, 900) if refused else 0
            # Logged before it is said, as the next may start at the same moment.
            now = clock.monotonic()
            # Our own backoff never doubles: eight answers between two refusals have halved it away.
            backoff_s = min(max(10.0, 4.0 * site.interval_at(now)), 900.0) if refused else 0.0
            site.log.append(Request(asked, asked_mono, started_mono, now, max(asked_s, backoff_s)))
            headers = {"retry-after": str(asked_s)} if refused else {}
            finish(permit, 429 if refused else 200, headers)

    tasks = [asyncio.create_task(work(number)) for number in range(TASKS)]
    await clock.sleep(DAY_S)
    unfinished = [task for task in tasks if not task.done()]
    for task in unfinished:
        task.cancel()
    await asyncio.gather(*unfinished, return_exceptions=True)
    assert pacer.waiting == 0
    await pacer.aclose()
    return len(unfinished)


@pytest.mark.full
async def test_a_day_is_kept_to_the_letter() -> None:
    sites = _sites()
    unfinished = await _crawl(sites)
    assert sum(len(site.log) for site in sites) > 20_000
    for site in sites:
        log = site.log
        assert [request.asked for request in log] == list(range(len(log))), f"{site.name}: somebody was passed"
        for request in log:
            assert site.open_at(request.started_mono + SLACK_S), site
        for before, after in pairwise(log):
            started, ended = after.started_mono, before.ended_mono
            assert started >= ended, f"{site.name}: two at once"
            assert started >= ended + before.closed_s - CLOSED_SLACK_S, f"{site.name}: closed"
            assert started >= ended + site.interval_at(started + SLACK_S), f"{site.name}: early"
            earliest = max(site.earliest(before), after.asked_mono)
            assert started <= earliest + site.interval_at(earliest), f"{site.name}: idle with work to do"
        # Whoever is left had no time left: the last request is as late as the day permits.
        if len(log) < TASKS // HOSTS * TURNS:
            assert site.earliest(log[-1]) + site.interval_at(log[-1].ended_mono) + ANSWER_S > DAY_S, site.name
    assert 0 < unfinished < TASKS
