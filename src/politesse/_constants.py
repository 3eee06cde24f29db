"""Constants that several rooms share."""

from __future__ import annotations

from typing import Final

DAY_S: Final = 86_400.0

ROBOTS_TXT: Final = "/robots.txt"
"""Path of the file, at the root of its origin (RFC 9309 2.3)."""

PACE_KEYS: Final = "pace/"
"""What the keys of what hosts have asked for begin with, in a store; no key of a robots.txt does: that is an origin."""

SUCCESSFUL: Final = range(200, 300)
"""The statuses of a successful response: RFC 9110 15.3 (2xx)."""

AGREE_S: Final = 0.01
"""Seconds by which two clocks may differ and still agree: they are read one after the other, and floats are rounded."""
