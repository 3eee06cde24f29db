"""Fuzz a target for some time: libFuzzer in a process of its own, and its outcome."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

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
    fresh, found = output / "corpus", output / "findings"
    for directory in (fresh, found):
        directory.mkdir(parents=True, exist_ok=True)
    before = _files(fresh)
    earlier = _files(found)
    words = output / "words.dict"
    words.write_text("".join(f'"{_quoted(word)}"\n' for word in target.words), encoding="ascii")
    log = output / "log.txt"
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
        *(sys.executable, "-m", "tests.fuzz.engine", target.check.__module__),
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
    runs = _RUNS.search(said)
    return Outcome(
        runs=int(runs[1]) if runs is not None else 0,
        coverage=coverage,
        features=features,
        new=len(_files(fresh) - before),
        findings=tuple(sorted(_files(found) - earlier)),
        failed=failed,
        log=log,
    )


def _files(directory: Path) -> set[Path]:
    return set(directory.iterdir())


def _quoted(word: bytes) -> str:
    """Return a word as libFuzzer's dictionaries write it."""
    return "".join(chr(octet) if chr(octet).isalnum() and octet < 128 else f"\\x{octet:02X}" for octet in word)
