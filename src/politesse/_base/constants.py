"""Constants that several packages share."""

from __future__ import annotations

from typing import Final

DAY_S: Final = 86_400.0

ROBOTS_TXT: Final = "/robots.txt"
"""Path of the file, at the root of its origin (RFC 9309 2.3)."""

PACE_KEYS: Final = "pace/"
"""Prefix of the keys under which a store keeps the states of hosts. The key of a robots.txt is its origin."""

SUCCESSFUL: Final = range(200, 300)
"""The statuses of a successful response: RFC 9110 15.3 (2xx)."""

AGREE_S: Final = 0.01
"""The clocks agree if their measures of the elapsed time differ by at most this many seconds.

The clocks are read one after the other, so a small difference does not mean that the wall clock was set.
"""
