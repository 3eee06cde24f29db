"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# A slow machine is no wrong answer: no example is timed.
settings.register_profile("politesse", deadline=None)
settings.load_profile("politesse")
