"""Fuzz a target for some time: libFuzzer in a process of its own, and its outcome.

``python -m tests.fuzz.campaign MODULE [libFuzzer options and directories]`` is that process: atheris never returns.
"""

import importlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fuzz.target import Target

MAX_S_PER_INPUT: Final = 5
_MAX_RSS_MB: Final = 1024
_START_AND_END_S: Final = 120  # to instrument, to read the corpus, to write the last input

_PROGRESS = re.compile(r"cov: ([0-9]+) ft: ([0-9]+)")
_RUNS = re.compile(r"stat::number_of_executed_units:\s+([0-9]+)")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a campaign.

    Attributes:
        runs: inputs that were tried; 0 if libFuzzer ended without a count.
        coverage: edges of politesse that were seen.
        features: those, and how often each was taken.
        new: inputs that were kept because they reached new code.
        findings: inputs that broke the invariant, took too long or too much memory.
        failed: whether libFuzzer ended before its time, with or without a finding.
        log: its output.
    """

    runs: int
    coverage: int
    features: int
    new: int
    findings: tuple[Path, ...]
    failed: bool
    log: Path


def fuzz(target: Target, seconds: int, output: Path) -> Outcome:
    """Fuzz a target; new inputs, findings and the log go to ``output``."""
    fresh, found, words, log = (output / name for name in ("corpus", "findings", "words.dict", "log.txt"))
    for directory in (fresh, found):
        directory.mkdir(parents=True, exist_ok=True)
    before, earlier = set(fresh.iterdir()), set(found.iterdir())
    words.write_text("".join(f'"{_quoted(word)}"\n' for word in target.words), encoding="ascii")
    options = {
        "max_total_time": seconds,
        "timeout": MAX_S_PER_INPUT,
        "max_len": target.max_octets,
        "rss_limit_mb": _MAX_RSS_MB,
        "dict": words,
        "artifact_prefix": f"{found}{os.sep}",
        "print_final_stats": 1,
    }
    command = [
        *(sys.executable, "-m", __name__, target.check.__module__),
        *(f"-{name}={value}" for name, value in options.items()),
        *(str(directory) for directory in (fresh, target.directory) if directory.is_dir()),
    ]
    with log.open("wb") as sink:
        try:
            done = subprocess.run(  # noqa: S603 - this very program
                command,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                timeout=seconds + _START_AND_END_S,
                check=False,
            )
            failed = done.returncode != 0
        except subprocess.TimeoutExpired:
            failed = True
    said = log.read_text(encoding="utf-8", errors="replace")
    coverage, features = map(int, (_PROGRESS.findall(said) or [(0, 0)])[-1])
    runs = int((_RUNS.findall(said) or [0])[0])
    new, findings = len(set(fresh.iterdir()) - before), tuple(sorted(set(found.iterdir()) - earlier))
    return Outcome(runs, coverage, features, new, findings, failed, log)


def _quoted(word: bytes) -> str:
    """Return a word as libFuzzer's dictionaries write it."""
    return "".join(chr(octet) if chr(octet).isalnum() and octet < 128 else f"\\x{octet:02X}" for octet in word)


def _engine() -> None:
    """Fuzz the target of a module until libFuzzer ends."""
    import atheris

    module, *arguments = sys.argv[1:]
    with atheris.instrument_imports(include=["politesse"]):
        target = importlib.import_module(module).TARGET
    atheris.Setup([module, *arguments], target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    _engine()
