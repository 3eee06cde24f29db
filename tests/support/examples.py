"""How many examples Hypothesis draws: each profile scales the number that a test names."""

from typing import Final

from hypothesis import HealthCheck, settings

USUAL: Final = 100
"""Of a test that names no number, in the profile ``full``."""

_FEW: Final = USUAL // 5
_MANY: Final = USUAL * 20
_LEAST: Final = USUAL // 4

# Examples of a test that names USUAL, by profile: all others in proportion, but `quick` takes no number below _LEAST.
_EXAMPLES: Final = {"quick": USUAL // 20, "full": USUAL, "random": _FEW, "deep": _MANY}


def register_profiles() -> None:
    """Register the four profiles and load ``quick``; ``--hypothesis-profile`` chooses another."""
    # A slow machine is no wrong answer: neither an example nor the drawing of one is timed.
    same = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("quick", same, max_examples=_LEAST)
    settings.register_profile("full", same, max_examples=USUAL)
    # A finding is printed so that @reproduce_failure repeats it.
    settings.register_profile("random", same, derandomize=False, print_blob=True, max_examples=_FEW)
    settings.register_profile("deep", same, derandomize=False, print_blob=True, max_examples=_MANY)
    settings.load_profile("quick")


def examples(named: int) -> int:
    """Return how many examples the current profile draws where a test names this number."""
    profile = settings.get_current_profile_name()
    scaled = max(1, round(named * _EXAMPLES[profile] / USUAL))
    return max(scaled, min(named, _LEAST)) if profile == "quick" else scaled
