"""A program that is forked, as by gunicorn: ``python -m tests.wire.clients.fork_program KIND PLACE USED ...``.

It makes each part of politesse, uses it if ``USED`` is 1, and forks twice. Each child uses the part and prints a line:
the spans of its requests or ``ok``, or the type and the text of its error.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Final, Protocol

from politesse import Gatekeeper, PacingOptions, PoliteQueue
from politesse.errors import PolitesseError
from politesse.options import FleetOptions
from politesse.stores import SqliteStore
from politesse.stores.redis import RedisStore
from politesse.testing import ScriptedFetcher

if TYPE_CHECKING:
    from politesse.ports import Store

_CHILDREN: Final = 2
_REQUESTS: Final = 4
INTERVAL_S: Final = 0.2
_UA: Final = "ExampleBot/1.0 (+https://example.org/bot)"


class Part(Protocol):
    """What is made before the fork."""

    async def use(self) -> object:
        """Use it; return what its child reports."""


class GatePart:
    """A gate, of a fleet if there is a place of its Redis."""

    def __init__(self, place: str) -> None:
        self._gate = Gatekeeper(
            _UA,
            fetcher=ScriptedFetcher({"https://a.example": 404}),
            fleet=FleetOptions(place, prefix="fork:") if place else None,
            pacing=PacingOptions(min_delay_s=INTERVAL_S, adaptive_factor=0.0),
        )

    async def use(self) -> object:
        spans = []
        for _ in range(_REQUESTS):
            async with self._gate.turn("https://a.example/", max_wait_s=30.0):
                began_mono = time.monotonic()
                await asyncio.sleep(0.05)
                spans.append((began_mono, time.monotonic()))
        await asyncio.sleep(0.1)  # until Redis knows that the last one has ended: its child ends without a close
        return spans


class StorePart:
    """A store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def use(self) -> object:
        key = f"https://host{os.getpid()}.example"
        await self._store.put(key, b"record")
        assert await self._store.get(key) == b"record"
        return "ok"


class QueuePart:
    """A queue with a journal."""

    def __init__(self, place: str) -> None:
        fetcher = ScriptedFetcher({"https://a.example": 404})
        gate = Gatekeeper(_UA, fetcher=fetcher, pacing=PacingOptions(min_delay_s=0.0))
        self._queue: PoliteQueue[None] = PoliteQueue(gate, journal=place)

    async def use(self) -> object:
        await self._queue.put(f"https://a.example/{os.getpid()}")
        async with self._queue.turn() as turn:
            turn.observe(200)
        began_mono = time.monotonic()
        await asyncio.sleep(0.5)  # the other child comes meanwhile
        return began_mono, time.monotonic()


def made(kind: str, place: str) -> Part:
    match kind:
        case "gate" | "fleet":
            return GatePart(place)
        case "sqlite":
            return StorePart(SqliteStore(place))
        case "redis":
            return StorePart(RedisStore(place, prefix="fork:"))
        case "queue":
            return QueuePart(place)
        case _:
            raise ValueError(kind)


def report(part: Part) -> None:
    try:
        found = asyncio.run(part.use())
    except PolitesseError as error:
        found = f"{type(error).__name__}: {error}"
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def main(kind: str, place: str, used: str) -> None:
    part = made(kind, place)
    if used == "1":
        with asyncio.Runner() as runner:
            runner.run(part.use())
            children = [_forked(part) for _ in range(_CHILDREN)]
    else:
        children = [_forked(part) for _ in range(_CHILDREN)]
    for child in children:
        os.waitpid(child, 0)


def _forked(part: Part) -> int:
    child = os.fork()
    if not child:
        asyncio.events._set_running_loop(None)
        report(part)
        os._exit(0)
    return child


if __name__ == "__main__":
    for first in range(1, len(sys.argv), 3):
        main(*sys.argv[first : first + 3])
