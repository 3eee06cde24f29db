"""The runner: fuzzes targets one behind the other, or tries one input again.

``python -m tests.fuzz [TARGET...] [--seconds N] [--output DIR]`` needs atheris, and for the target ``native`` gcc or cc
with sanitizers; ``python -m tests.fuzz TARGET FILE...`` does without atheris. The exit code is 1 if an invariant was
broken, and 0 otherwise.
"""

import argparse
import importlib.util
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.fuzz import body, document, headers, lint, matching, native, native_reference, page, urls
from tests.fuzz.campaign import fuzz
from tests.fuzz.native import compiler
from tests.fuzz.target import Target

TARGETS: Final[Mapping[str, Target]] = {
    module.TARGET.name: module.TARGET
    for module in (document, matching, headers, urls, body, lint, page, native_reference, native)
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description="Fuzzes politesse, guided by coverage; or, given a target and files, tries those inputs again.",
    )
    parser.add_argument("names", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--seconds", type=int, default=600, metavar="N", help="for each target; default: 600")
    parser.add_argument("--output", type=Path, metavar="DIR", help="for new inputs and findings; default: a new one")
    given = parser.parse_args(arguments)
    targets = [TARGETS[name] for name in given.names if name in TARGETS] or list(TARGETS.values())
    files = [Path(name) for name in given.names if name not in TARGETS]
    if unknown := [str(file) for file in files if not file.is_file()]:
        parser.error(f"neither a target nor a file: {', '.join(unknown)}; the targets are {', '.join(TARGETS)}")
    if files and len(given.names) - len(files) != 1:
        parser.error("to try an input again, name one target")
    if given.seconds < 1:
        parser.error(f"--seconds is {given.seconds}; give 1 or more")
    own = [target for target in targets if target.fuzz is not None]
    if not files and own and compiler() is None:
        parser.error(f"fuzzing {own[0].name} needs gcc or cc with their sanitizers")
    if not files and len(own) < len(targets) and importlib.util.find_spec("atheris") is None:
        parser.error(
            "fuzzing needs atheris, which has wheels for Linux on x86_64; in the checkout, run: pip install '.[test]'"
        )
    if files:
        return _try_again(targets[0], files)
    return _fuzz(targets, given.seconds, given.output or Path(tempfile.mkdtemp(prefix="politesse-fuzz-")))


def _try_again(target: Target, files: Sequence[Path]) -> int:
    for file in files:
        target.check(file.read_bytes())  # its error is the answer
        print(f"{file}: holds")
    return 0


def _fuzz(targets: Sequence[Target], seconds: int, output: Path) -> int:
    broken = False
    for target in targets:
        print(f"{target.name}: {seconds} s, into {output / target.name}", flush=True)
        outcome = (target.fuzz or fuzz)(target, seconds, output / target.name)
        reached = f"{outcome.coverage} edges, {outcome.features} features, {outcome.new} new inputs, "
        print(
            f"{target.name}: {outcome.runs:,} runs, {'' if target.fuzz else reached}{len(outcome.findings)} findings",
            flush=True,
        )
        for finding in outcome.findings:
            print(f"  {finding}\n  reproduce: python -m tests.fuzz {target.name} {finding}", flush=True)
        if outcome.failed and not outcome.findings:
            print(f"  the fuzzer failed, and left no input: see {outcome.log}", flush=True)
        broken = broken or outcome.failed or bool(outcome.findings)
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
