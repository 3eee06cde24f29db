"""The short run has the first few of many parameters, the full run has them all."""

from collections.abc import Iterable

import pytest
from _pytest.mark import ParameterSet


def first_of(number: int, values: Iterable[object]) -> list[ParameterSet]:
    """Return the values as parameters; those behind the first ``number`` are marked ``full``."""
    return [pytest.param(value, marks=[pytest.mark.full] * (place >= number)) for place, value in enumerate(values)]
