"""How many examples Hypothesis draws: each profile scales the number that a test names."""

from functools import partial
from typing import Final

from hypothesis import HealthCheck, settings

_USUAL: Final = 100  # of a test that names no number
_LEAST: Final = _USUAL // 4

# How much of its number each profile draws; `quick` draws no less than _LEAST.
_SHARES: Final = {"quick": 0.05, "full": 0.5, "random": 0.2, "deep": 20.0}


def register_profiles() -> None:
    """Register the four profiles and load ``quick``; ``--hypothesis-profile`` chooses another."""
    # A slow machine is no wrong answer: neither an example nor the drawing of one is timed.
    same = partial(settings, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
    for name in _SHARES:
        is_new = name in {"random", "deep"}
        # A finding is printed so that @reproduce_failure repeats it.
        profile = same(max_examples=_scaled(_USUAL, name), derandomize=not is_new, print_blob=is_new)
        settings.register_profile(name, profile)
    settings.load_profile("quick")


def examples(named: int) -> int:
    """Return how many examples the current profile draws where a test names this number."""
    return _scaled(named, settings.get_current_profile_name())


def _scaled(number: int, profile: str) -> int:
    scaled = max(1, round(number * _SHARES[profile]))
    return max(scaled, min(number, _LEAST)) if profile == "quick" else scaled
