"""The JSON file of a run: every figure, every series, the machine and the settings."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from benchmarks.budgets import BUDGETS
from benchmarks.engines import machine
from benchmarks.figures import Figure, Series

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from benchmarks.figures import Reported
    from benchmarks.settings import Settings


def figures_of(reported: Iterable[Reported]) -> list[Figure]:
    return [one for one in reported if isinstance(one, Figure)]


def write(path: Path, reported: Sequence[Reported], settings: Settings) -> None:
    """Write the results of a run."""
    results = {
        "machine": machine(),
        "settings": asdict(settings) | {"corpus": None if settings.corpus is None else str(settings.corpus)},
        "figures": [
            asdict(one) | ({"budget": asdict(BUDGETS[one.name])} if one.name in BUDGETS else {})
            for one in figures_of(reported)
        ],
        "series": [asdict(one) for one in reported if isinstance(one, Series)],
        "text": [one for one in reported if isinstance(one, str)],
    }
    path.write_text(json.dumps(results, indent=2) + "\n")
