"""How much work PoliteSession is for each request, in calls of its own: a change that doubles it fails here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse import Gatekeeper, PoliteSession
from politesse.testing import ManualClock
from tests.integration.sites import EAGER, UA
from tests.support.work import assert_work, counted_calls

if TYPE_CHECKING:
    from tests.integration.sites import Site

REQUESTS = 20


async def test_work_of_a_request(site: Site) -> None:
    # By a clock that stands still: the timers of the pacer would fire as often as the machine is slow.
    async with Gatekeeper(UA, pacing=EAGER, clock=ManualClock()) as gate, PoliteSession(gate) as polite:
        await gate.check(site.base)
        async with polite.get(f"{site.base}/first") as response:  # opens the connection
            await response.read()
        with counted_calls() as calls:
            for number in range(REQUESTS):
                async with polite.get(f"{site.base}/page?number={number}") as response:
                    await response.read()
    assert_work(calls, REQUESTS, calls_each=49)
