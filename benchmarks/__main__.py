"""The runner: chooses benchmarks, prints what they report. It judges nobody: the exit code tells of errors only."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks import aiohttp, crawl, decide, faults, hostile, pacing, parse, peek, scrapy
from benchmarks.engines import machine
from benchmarks.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

BENCHMARKS: Final[Mapping[str, Callable[[Settings], Iterable[str]]]] = {
    "decide": decide.run,
    "peek": peek.run,
    "parse": parse.run,
    "hostile": hostile.run,
    "pacing": pacing.run,
    "aiohttp": aiohttp.run,
    "crawl": crawl.run,
    "scrapy": scrapy.run,
    "faults": faults.run,
}


_ON_REQUEST: Final = "faults"  # it times nothing, and takes ten minutes


def main() -> None:
    names, settings = _arguments()
    print(machine())
    for name in names:
        for paragraph in BENCHMARKS[name](settings):
            print(f"\n{paragraph}", flush=True)


def _arguments() -> tuple[list[str], Settings]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Times politesse beside its peers.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}; default: all but {_ON_REQUEST}"
    )
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="a directory of robots.txt files; default: made up")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="how often all are timed; default: 15")
    parser.add_argument("--seed", type=int, default=9309, metavar="N", help="of URLs and made-up files; default: 9309")
    parser.add_argument("--hosts", type=int, default=5_000, metavar="N", help="that are crawled; default: 5000")
    parser.add_argument("--memory", action="store_true", help="of a crawl of 100,000 pages; takes four minutes")
    given = parser.parse_args()
    names: list[str] = given.names or [name for name in BENCHMARKS if name != _ON_REQUEST]
    if unknown := [name for name in names if name not in BENCHMARKS]:
        parser.error(f"no benchmark is called {', '.join(unknown)}; choose from {', '.join(BENCHMARKS)}")
    for name in ("rounds", "hosts"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} is {getattr(given, name)}; give 1 or more")
    if given.corpus is not None and not given.corpus.is_dir():
        parser.error(f"--corpus is {given.corpus}, which is no directory")
    return names, Settings(given.corpus, given.rounds, given.seed, given.hosts, given.memory)


if __name__ == "__main__":
    main()
