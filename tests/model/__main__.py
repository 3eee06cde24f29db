"""Runs many random crawls and prints what the judge finds."""

import argparse
import faulthandler
import logging
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.model.runs import Result, run

REAL_S = 60.0
"""A run that takes longer in real time hangs; the process then shows where, and ends."""


def run_within_limit(seed: int) -> Result:
    faulthandler.dump_traceback_later(REAL_S, exit=True)
    try:
        return run(seed)
    finally:
        faulthandler.cancel_dump_traceback_later()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--runs", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--trace", action="store_true", help="print everything that happened")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    begun, pages, fetches, found = time.monotonic(), 0, 0, 0
    seeds = range(given.seed, given.seed + given.runs)
    with ProcessPoolExecutor(given.jobs) as pool:
        results = map(run_within_limit, seeds) if given.jobs == 1 else pool.map(run_within_limit, seeds, chunksize=10)
        for number, result in enumerate(results, start=1):
            pages, fetches = pages + result.pages, fetches + result.fetches
            if given.trace:
                print("\n".join(result.trace))
            if result.findings:
                found += 1
                print(f"seed {result.seed}: {result.findings[0][:600]}", flush=True)
                for more in result.findings[1:4]:
                    print(f"    {more[:300]}", flush=True)
            if number % 200 == 0 or number == given.runs:
                seconds = time.monotonic() - begun
                print(
                    f"{number} runs, {pages:,} pages, {fetches:,} robots.txt, {found} with findings, {seconds:.0f} s",
                    flush=True,
                )
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
