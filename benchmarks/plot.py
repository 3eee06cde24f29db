"""Plots of a run: bars of the ratios, and costs against rules, octets and origins. Needs matplotlib."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from benchmarks.budgets import BUDGETS
from benchmarks.figures import Figure, Series

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from benchmarks.figures import Reported

_COLOUR: Final = "#31688e"
_KEPT: Final = "#35b779"
_MISSED: Final = "#c44e52"


def available() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw(directory: Path, reported: Sequence[Reported]) -> list[Path]:
    """Draw the figures and series of a run; return the files."""
    directory.mkdir(parents=True, exist_ok=True)
    figures = [one for one in reported if isinstance(one, Figure)]
    series = [one for one in reported if isinstance(one, Series)]
    drawn = [*_budgets(directory, figures), *_bars(directory, figures)]
    subjects = dict.fromkeys(one.name.partition(",")[0] for one in series)
    return drawn + [
        _curves(directory, subject, [one for one in series if one.name.startswith(f"{subject},")])
        for subject in subjects
    ]


def _saved(path: Path, axes: Axes) -> Path:
    canvas = axes.get_figure(root=True)
    if canvas is None:
        raise TypeError(f"{axes} are of no figure")
    canvas.savefig(path, dpi=120, bbox_inches="tight")
    return path


def _axes(height: float) -> Axes:
    # matplotlib is not there but with the extra, and takes a second to import.
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415

    axes: Axes = Canvas(figsize=(9, height), layout="constrained").subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _budgets(directory: Path, figures: Sequence[Figure]) -> Iterator[Path]:
    """Draw how far each figure is, as a share of its budget."""
    judged = [(BUDGETS[one.name], one) for one in figures if one.name in BUDGETS]
    if not judged:
        return
    axes = _axes(1 + 0.4 * len(judged))
    for place, (budget, one) in enumerate(reversed(judged)):
        share = budget.share(one.value)
        axes.barh(place, share, color=_KEPT if budget.is_kept(one.value) else _MISSED)
        axes.text(share, place, f" {one.text} ({budget})", va="center", fontsize=8)
    axes.set_yticks(range(len(judged)), [budget.label for budget, _ in reversed(judged)], fontsize=8)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xlabel("share of the budget; 1 and more: met")
    axes.margins(x=0.25)
    yield _saved(directory / "budgets.png", axes)


def _bars(directory: Path, figures: Sequence[Figure]) -> Iterator[Path]:
    """Draw the ratios of each benchmark, with their quartiles."""
    ratios = [one for one in figures if one.unit == "x" and not one.name.startswith("growth/")]
    for benchmark in dict.fromkeys(one.name.partition("/")[0] for one in ratios):
        some = [one for one in ratios if one.name.startswith(f"{benchmark}/")][::-1]
        axes = _axes(1 + 0.4 * len(some))
        values = [one.value for one in some]
        errors = [[one.value - one.low for one in some], [one.high - one.value for one in some]]
        axes.barh([one.name.partition("/")[2] for one in some], values, xerr=errors, color=_COLOUR, capsize=3)
        axes.axvline(1.0, color="black", linewidth=1)
        axes.set_xlabel(f"{benchmark}: ratio, median and quartiles")
        yield _saved(directory / f"{benchmark}.png", axes)


def _curves(directory: Path, subject: str, series: Sequence[Series]) -> Path:
    """Draw costs against sizes, both on logarithmic scales, beside proportional growth."""
    axes = _axes(5)
    for one in series:
        sizes, costs = zip(*one.points, strict=True)
        [line] = axes.plot(sizes, costs, marker="o", markersize=3, label=one.y_label)
        proportional = [costs[0] * size / sizes[0] for size in sizes]
        axes.plot(sizes, proportional, color=line.get_color(), linestyle=":", linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,g}")
    axes.set_title("dotted: in proportion", fontsize=9, loc="right")
    axes.set_xlabel(series[0].x_label)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    return _saved(directory / f"{subject.replace('/', '-')}.png", axes)
