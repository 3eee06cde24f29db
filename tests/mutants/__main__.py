"""``python -m tests.mutants draw`` makes a list of mutants, and ``python -m tests.mutants judge`` judges them.

``judge`` takes the mutants that are not judged yet, and with ``--tier full`` those that survived the quick tests. It
saves each result at once, so it may be stopped, and ends with a table. A mutant with a note is not judged again.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tests.mutants.drawing import Mutant, draw
from tests.mutants.judging import TIERS, Judge

ROOT: Final = Path(__file__).parents[2]
LIST: Final = Path(__file__).with_name("list.jsonl")


def main(arguments: Sequence[str] | None = None, root: Path = ROOT, file: Path = LIST) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Draws and judges mutants.")
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw", help="draw a new list")
    drawing.add_argument("--seed", type=int, default=9309, metavar="N")
    drawing.add_argument("--number", type=int, default=200, metavar="N")
    drawing.add_argument("--in", dest="within", default="src", metavar="DIR", help="for example src/politesse/queue")
    judging = commands.add_parser("judge", help="run the tests for each mutant of the list")
    judging.add_argument("--tier", choices=TIERS, default="quick", help="default: quick")
    judging.add_argument("--only", choices=("new", "survivors", "all"), default="new", help="default: new")
    judging.add_argument("--jobs", type=int, default=1, metavar="N", help="processes of tests; default: 1")
    given = parser.parse_args(arguments)
    if given.command == "draw":
        _save(file, draw(root, root / given.within, given.number, given.seed))
        return
    mutants = [Mutant(**json.loads(line)) for line in file.read_text().splitlines()]
    states = [_state(mutant, root) for mutant in mutants]
    new = {"not judged", *(["survived quick"] if given.tier == "full" else ())}
    wanted = {"new": new, "survivors": {"survived quick", "survived full"}, "all": set(states) - {"gone"}}[given.only]
    places = [place for place, state in enumerate(states) if state in wanted and not mutants[place].note]
    for mutant in Judge(root, mutants, given.tier).judge(places, given.jobs) if places else ():
        print(f"{mutant.path}: {mutant.before}\n    {mutant.after}\n    {mutant.test or 'survived'}", flush=True)
        _save(file, mutants)
    for state, number in sorted(Counter(_state(mutant, root) for mutant in mutants).items()):
        print(f"{number:5d} {state}")


def _state(mutant: Mutant, root: Path) -> str:
    source = root / mutant.path
    if not source.exists() or mutant.place(source.read_text()) is None:
        return "gone"
    if not mutant.tier:
        return "not judged"
    return f"caught by {mutant.tier}" if mutant.test else mutant.note.partition(":")[0] or f"survived {mutant.tier}"


def _save(file: Path, mutants: Sequence[Mutant]) -> None:
    file.write_text("".join(f"{json.dumps(asdict(mutant))}\n" for mutant in mutants))


if __name__ == "__main__":
    main()
