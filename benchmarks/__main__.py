"""The runner: chooses benchmarks, prints their reports, and compares their figures with the budgets.

If answers disagree, the run ends with exit code 1. A missed budget is reported, and is no error.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks import (
    audit,
    clients,
    cold,
    crawl,
    decide,
    faults,
    fleet,
    fleet_members,
    growth,
    json_results,
    ledger,
    origin_memory,
    parse,
    peek,
    plot,
    scrapy,
    session,
    signing,
    stalls,
    stores,
    turn,
    watch,
)
from benchmarks.agreement import Disagreement
from benchmarks.budgets import against_budgets
from benchmarks.engines import machine
from benchmarks.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from benchmarks.figures import Reported

BENCHMARKS: Final[Mapping[str, Callable[[Settings], Iterable[Reported]]]] = {
    "decide": decide.run,
    "peek": peek.run,
    "parse": parse.run,
    "turn": turn.run,
    "session": session.run,
    "cold": cold.run,
    "memory": origin_memory.run,
    "stalls": stalls.run,
    "growth": growth.run,
    "stores": stores.run,
    "ledger": ledger.run,
    "signing": signing.run,
    "crawl": crawl.run,
    "scrapy": scrapy.run,
    "faults": faults.run,
    "clients": clients.run,
    "watch": watch.run,
    "fleet": fleet.run,
    "members": fleet_members.run,
    "audit": audit.run,
}


_ALL: Final = "all"
_ON_REQUEST: Final = frozenset({"audit", "clients", "faults", "scrapy"})  # they take minutes each, and two time nothing


def main(arguments: Sequence[str] | None = None) -> None:
    given = _arguments(arguments)
    settings = Settings(
        given.corpus,
        given.rounds,
        given.seed,
        given.hosts,
        given.memory,
        given.origins,
        simulate=given.simulate,
        quick=given.quick,
    )
    reported: list[Reported] = []
    print(machine())
    try:
        for name in _names(given.names):
            for one in BENCHMARKS[name](settings):
                reported.append(one)
                if isinstance(one, str):
                    print(f"\n{one}", flush=True)
    except Disagreement as error:
        sys.exit(f"benchmarks: {error}; the run ends here")
    if (judged := against_budgets(json_results.figures_of(reported))) is not None:
        print(f"\n{judged}")
    if given.json is not None:
        json_results.write(given.json, reported, settings)
    if given.plot is not None:
        print(f"\nplots: {', '.join(map(str, plot.draw(given.plot, reported)))}")


def _names(given: Sequence[str]) -> list[str]:
    """Return the chosen benchmarks, each once, in the order of the table."""
    every = not given or _ALL in given
    return [name for name in BENCHMARKS if name in given or (every and name not in _ON_REQUEST)]


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Times politesse beside its peers.")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"one of {', '.join(BENCHMARKS)}; default, and {_ALL}: all but {', '.join(_ON_REQUEST)}",
    )
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="a directory of robots.txt files; default: made up")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often all are timed; default: 15, 2 if quick")
    parser.add_argument("--seed", type=int, default=9309, metavar="N", help="of URLs and made-up files; default: 9309")
    parser.add_argument("--hosts", type=int, default=5_000, metavar="N", help="that are crawled; default: 5000")
    parser.add_argument("--memory", action="store_true", help="of a crawl of 100,000 pages; takes four minutes")
    parser.add_argument(
        "--origins", type=int, default=1_000_000, metavar="N", help="that growth caches at most; default: 1000000"
    )
    parser.add_argument(
        "--simulate", action="store_true", help="of fleet: the load of 100 million hosts, instead of its race"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, measures nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--plot", type=Path, metavar="DIR", help="draw plots there; needs matplotlib")
    given = parser.parse_args(arguments)
    if given.rounds is None:
        given.rounds = 2 if given.quick else 15
    _check(parser, given)
    return given


def _check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    if unknown := [name for name in given.names if name not in BENCHMARKS and name != _ALL]:
        parser.error(f"no benchmark is called {', '.join(unknown)}; choose from {', '.join(BENCHMARKS)} or {_ALL}")
    for name in ("rounds", "hosts", "origins"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} is {getattr(given, name)}; give 1 or more")
    if given.corpus is not None and not given.corpus.is_dir():
        parser.error(f"--corpus is {given.corpus}, which is no directory")
    if given.json is not None and not given.json.absolute().parent.is_dir():
        parser.error(f"--json is {given.json}, whose directory does not exist")
    if given.plot is not None and not plot.available():
        parser.error("--plot needs matplotlib: pip install '.[bench]'")


if __name__ == "__main__":
    main()
