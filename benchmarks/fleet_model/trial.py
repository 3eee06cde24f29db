"""A small real crawl: several processes for a minute, with keys that are kept for a shorter time; against the model."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.fleet_model.crawl import Crawl, demand
from benchmarks.fleet_model.server import running

if TYPE_CHECKING:
    from benchmarks.fleet_model.crawl import Costs
    from benchmarks.fleet_model.server import Observed
    from benchmarks.settings import Settings

PROCESSES: Final = 3
SMALL: Final = Crawl(
    pages_s=300.0,
    interval_s=0.5,
    response_s=0.2,
    most_pages=10,
    closed=0.0,
    kept_s=10.0,
)
_LOOK_S: Final = 1.0
_PATIENCE_S: Final = 60.0


class Compared(NamedTuple):
    """The predicted and the measured load."""

    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """By which share of the measured value the prediction is above it."""
        return self.predicted / self.measured - 1.0


class Trial(NamedTuple):
    """Attributes:
    keys: that live at once.
    scripts_s: a second.
    cpu_share: of a processor, of the server.
    network_bytes_s: of both directions.
    """

    keys: Compared
    scripts_s: Compared
    cpu_share: Compared
    network_bytes_s: Compared


def trial(settings: Settings, costs: Costs) -> Trial:
    """Crawl, once keys expire as fast as they are made."""
    # The longest visit and the keys of its time have to be over before the looks begin.
    warm_s, looks_s = settings.size(35, 4), settings.size(40, 2)
    crawl = SMALL if not settings.quick else replace(SMALL, pages_s=60.0, most_pages=5, kept_s=2.0)
    one = replace(crawl, pages_s=crawl.pages_s / PROCESSES)
    with running() as server:
        workers = [
            subprocess.Popen(  # noqa: S603 - it is ours
                [
                    *(sys.executable, "-m", "benchmarks.fleet_model.member", server.url),
                    json.dumps([member, asdict(one)]),
                ],
                cwd=Path(__file__).parents[2],
            )
            for member in range(PROCESSES)
        ]
        try:
            _wait_for_all(server)
            time.sleep(warm_s)
            before, began_s = server.read(), time.monotonic()
            keys = []
            while (lasted_s := time.monotonic() - began_s) < looks_s:
                time.sleep(_LOOK_S)
                keys.append(server.read().keys)
            added, lasted_s = server.read().since(before), time.monotonic() - began_s
            failed = [worker.poll() for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    if any(code is not None for code in failed):
        raise RuntimeError(f"processes of the small crawl have ended with {failed}")
    predicted = demand(crawl, costs, crawl.keys_back_to_back, scripts_a_trip=1.0, long_urls=False)
    return Trial(
        Compared(crawl.keys_back_to_back, sum(keys) / len(keys)),
        Compared(predicted.scripts_s, added.scripts / lasted_s),
        Compared(predicted.cpu, added.cpu_s / lasted_s),
        Compared(predicted.network_bytes_s, (added.bytes_in + added.bytes_out) / lasted_s),
    )


def _wait_for_all(server: Observed) -> None:
    """Wait until each process is connected; raises TimeoutError."""
    until_s = time.monotonic() + _PATIENCE_S
    while server.members() < PROCESSES:
        if time.monotonic() > until_s:
            raise TimeoutError(f"{server.members()} of {PROCESSES} processes are connected")
        time.sleep(0.1)
