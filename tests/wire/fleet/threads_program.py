"""A crawler with threads: ``python -m tests.wire.fleet.threads_program FLEET PREFIX DELAY URL...``.

50 threads share one gate of a fleet. Each requests every URL that is its turn: every fifth, from another place on. Half
of the threads use PoliteAdapter, half take the turns themselves.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import requests

from politesse import Gatekeeper, PacingOptions
from politesse.options import FleetOptions
from politesse.sync import Gate, PoliteAdapter
from tests.support.sites import UA

THREADS: Final = 50
STEP: Final = 5


def crawl(gate: Gate, number: int, urls: list[str]) -> None:
    with requests.Session() as session:
        is_polite = number % 2 == 0
        if is_polite:
            session.mount("http://", PoliteAdapter(gate))
        for url in urls[number % STEP :: STEP]:
            if is_polite:
                session.get(f"{url}/{number}").raise_for_status()
            else:
                with gate.turn(f"{url}/{number}") as turn:
                    response = session.get(turn.url, headers={"User-Agent": UA})
                    turn.observe(response.status_code, response.headers)


if __name__ == "__main__":
    server, prefix, delay, *sites = sys.argv[1:]
    fleet = FleetOptions(server, prefix=prefix)
    pacing = PacingOptions(min_delay_s=float(delay), adaptive_factor=0.0)
    with Gate(Gatekeeper(UA, fleet=fleet, pacing=pacing)) as shared, ThreadPoolExecutor(THREADS) as pool:
        for crawled in [pool.submit(crawl, shared, number, sites) for number in range(THREADS)]:
            crawled.result()
