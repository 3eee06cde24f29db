"""Constants that several rooms share."""

from __future__ import annotations

from typing import Final

DAY_S: Final = 86_400.0

SUCCESSFUL: Final = range(200, 300)
"""The statuses of a successful response: RFC 9110 15.3 (2xx)."""

AGREE_S: Final = 0.01
"""Seconds by which two clocks may differ and still agree: they are read one after the other, and floats are rounded."""
