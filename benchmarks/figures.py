"""Figures: the results of a benchmark, with their spread, for the table of budgets, the JSON file and the plots."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Figure:
    """Attributes:
    name: the benchmark, a slash, and the subject.
    value: the median of the rounds.
    low: the lower quartile.
    high: the upper quartile.
    unit: ``x`` for a ratio.
    """

    name: str
    value: float
    low: float
    high: float
    unit: str = "x"

    @property
    def spread(self) -> str:
        return "" if self.low == self.high else f"{self.low:,.2f} to {self.high:,.2f}"

    @property
    def text(self) -> str:
        return f"{self.value:,.{0 if self.unit == 'origins' else 2}f} {self.unit}"


@dataclass(frozen=True, slots=True)
class Series:
    """How a cost grows; for the plots.

    Attributes:
        name: the benchmark, a slash, and the subject.
        x_label: the size that is doubled.
        y_label: the cost, and its unit.
        points: pairs of both.
    """

    name: str
    x_label: str
    y_label: str
    points: tuple[tuple[float, float], ...]


Reported = str | Figure | Series


def figure(name: str, values: Sequence[float], unit: str = "x") -> Figure:
    """Return the median and the quartiles of one value a round."""
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return Figure(name, median(values), low, high, unit)
