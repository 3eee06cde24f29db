"""What a process and the Redis of its fleet say to each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from enum import StrEnum
from functools import cached_property
from hashlib import sha1
from importlib.resources import files
from typing import Final, NamedTuple, TypeVar

from politesse.verdict import Bound

T = TypeVar("T")

_US: Final = 1_000_000

VERSION: Final = "2:"
"""Begins all keys, after the prefix: processes with another version of the scripts are another fleet."""


class WireLost(Exception):
    """Redis cannot be reached, does not answer in time, or cannot serve now."""


async def bounded(work: Awaitable[T], timeout_s: float) -> T:
    """Return the result of ``work``; raise WireLost if it takes longer than ``timeout_s``."""
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except TimeoutError as error:
        raise WireLost(f"no answer within {timeout_s:g} s") from error


class Script(StrEnum):
    """A script. Its value is the name of its file, without ``.lua``."""

    STEP = "step"
    MEMBER = "member"
    STATUS = "status"

    @cached_property
    def source(self) -> str:
        """The text of the script; of a script about a host, ``state.lua`` comes first."""
        names = [self.value] if self is Script.MEMBER else ["state", self.value]
        here = files("politesse._pacing.fleet") / "scripts"
        return "\n".join(here.joinpath(f"{name}.lua").read_text("utf-8") for name in names)

    @cached_property
    def sha(self) -> str:
        """The SHA-1 of the source, with which EVALSHA runs the script."""
        return sha1(self.source.encode(), usedforsecurity=False).hexdigest()


class ScriptCall(NamedTuple):
    """A script to run.

    Attributes:
        script: the script.
        keys: its keys, which are all in one slot.
        args: its arguments.
    """

    script: Script
    keys: tuple[str, ...]
    args: tuple[str | int, ...]


Reply = list[str]
"""The words that a script returns."""


class FleetAnswer(NamedTuple):
    """The answer to a step.

    Attributes:
        kind: ``granted``, ``wait``, or ``told`` if no start was asked for; ``late`` if the call came so late that it
            has changed nothing.
        at_us: the time of Redis when the answer was made.
        wait_s: how long to wait: for the start (``granted``), before the next wish (``wait``), or until the host opens
            (``told``), in seconds.
        bound_by: the reason of the wait: ``interval`` for the interval of the request; empty for none.
        backoff_s: the backoff of pages, in seconds; 0 for none. See ``Demand``.
        fetch_backoff_s: the backoff of robots.txt.
        refusal_s: the backoff after answers that mean REFUSED.
        held_by: the URL of a request that is under way.
        is_own: whether the start counts from the end of a request of this process.
    """

    kind: str
    at_us: int
    wait_s: float
    bound_by: str
    backoff_s: float = 0.0
    fetch_backoff_s: float = 0.0
    refusal_s: float = 0.0
    held_by: str = ""
    is_own: bool = False

    @classmethod
    def of(cls, reply: Reply | Exception) -> FleetAnswer | Exception:
        """Parse a reply of ``step.lua``; return the error of the script, or a ValueError for any other reply."""
        if isinstance(reply, Exception):
            return reply
        try:
            kind, at, wait, bound_by, backoff, fetch_backoff, refusal, held_by, own = reply
            times = int(wait) / _US, int(backoff) / _US, int(fetch_backoff) / _US, int(refusal) / _US
            answer = cls(kind, int(at), times[0], bound_by, *times[1:], held_by, own == "1")
        except ValueError:
            return ValueError("the answer is not of politesse")
        is_known = kind in _KINDS and bound_by in _BOUNDS
        return answer if is_known else ValueError("the answer is not of politesse")


_KINDS: Final = frozenset({"granted", "wait", "told", "late"})
_BOUNDS: Final = frozenset({"", "interval", *(bound.value for bound in Bound)})
