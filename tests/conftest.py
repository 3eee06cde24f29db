"""What all tests share.

The ordinary run is the same every time: Hypothesis draws the same examples, and the jitter of the library is seeded.
``--hypothesis-profile deep`` draws others each time, twenty times as many; ``random`` draws others and a fifth as many.
"""

from __future__ import annotations

import random
from typing import Final

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

_USUAL_EXAMPLES: Final = 100  # of Hypothesis where a test names no number

# A slow machine is no wrong answer: neither an example nor the drawing of one is timed.
settings.register_profile(
    "politesse", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("politesse")
# What is found is printed so that @reproduce_failure finds it again.
settings.register_profile("random", derandomize=False, print_blob=True, max_examples=_USUAL_EXAMPLES // 5)
settings.register_profile("deep", derandomize=False, print_blob=True, max_examples=_USUAL_EXAMPLES * 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the profile scale the number of examples of tests that name one, which would outweigh it otherwise."""
    usual = settings.get_profile(settings.get_current_profile_name()).max_examples
    scale = usual / _USUAL_EXAMPLES
    if scale == 1:
        return
    for test in {getattr(item, "obj", None) for item in items}:  # each once: its parameters make items of their own
        if test is not None and is_hypothesis_test(test):
            own = test._hypothesis_internal_use_settings  # there is no public name for it
            if own.max_examples != usual:
                count = max(1, round(own.max_examples * scale))
                test._hypothesis_internal_use_settings = settings(own, max_examples=count)


@pytest.fixture(autouse=True)
def _seeded_jitter() -> None:
    """Seed the chance that the library spreads its retries by."""
    random.seed(9309)
