"""What the tests of pacing share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from politesse.robots import RobotsTxt

if TYPE_CHECKING:
    from politesse.robots import RuleSet

MIDNIGHT: Final = 1_799_971_200.0
"""A Unix time at 00:00 UTC."""

HOST: Final = "example.com"
ORIGIN: Final = "https://example.com"


def rules(*lines: str) -> RuleSet:
    """Return the rules of a robots.txt that says this to everybody."""
    return RobotsTxt.parse("\n".join(["User-agent: *", *lines])).rules_for("ExampleBot")


def at(hhmm: str, second: float = 0.0) -> float:
    """Return the Unix time of a time of day; ``24`` and more hours are the day after."""
    return MIDNIGHT + int(hhmm[:2]) * 3600 + int(hhmm[2:]) * 60 + second


async def settle() -> None:
    """Let every task run that can."""
    for _ in range(10):
        await asyncio.sleep(0)
