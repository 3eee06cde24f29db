"""Programs that are forked or interrupted, or end without a close: ``python -m tests.wire.clients.programs KIND ...``.

``forked KIND PLACE USED ...`` makes each part of politesse, uses it if ``USED`` is 1, and forks twice, as gunicorn.
Each child uses the part and prints a line: the spans of its requests or ``ok``, or the type and the text of its error.
``putting`` puts URLs with numbers into a journal until it is killed, and prints each number when its put has returned.

The other kinds have a gate for threads. ``waiting`` takes turns at a URL in its main thread, while another thread takes
turns there, too. It prints a line for each turn, and after Ctrl-C a line if the host grants another turn. ``fetching``
does the same with a session of requests and a server of its own. ``open``, ``dropped`` and ``atexit`` end without a
close of their gate; its store is a file in a folder. ``fork`` forks, and the child prints its error.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import requests

from politesse import ClosedError, Gatekeeper, PacingOptions, PoliteQueue
from politesse.errors import PolitesseError
from politesse.integrations.requests import PoliteAdapter
from politesse.options import FleetOptions
from politesse.stores import SqliteStore
from politesse.stores.redis import RedisStore
from politesse.sync import Gate
from politesse.testing import ScriptedFetcher
from tests.support.sites import EAGER, UA, Site, served

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from politesse.ports import Store

INTERVAL_S: Final = 0.2
URL: Final = "https://a.example/"


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def gate_of(min_delay_s: float, url: str = URL, **options: Any) -> Gatekeeper:
    pacing = PacingOptions(min_delay_s=min_delay_s, adaptive_factor=0.0)
    return Gatekeeper(UA, fetcher=ScriptedFetcher({url.rstrip("/"): 404}), pacing=pacing, **options)


# What is made before a fork


def gate_used(place: str) -> Callable[[], Awaitable[object]]:
    """Make a gate, of a fleet if there is a place of its Redis; return what uses it."""
    gate = gate_of(INTERVAL_S, fleet=FleetOptions(place, prefix="fork:") if place else None)

    async def use() -> object:
        spans = []
        for _ in range(4):
            async with gate.turn(URL, max_wait_s=30.0):
                began_mono = time.monotonic()
                await asyncio.sleep(0.05)
                spans.append((began_mono, time.monotonic()))
        await asyncio.sleep(0.1)  # until Redis knows that the last one has ended: its child ends without a close
        return spans

    return use


def store_used(store: Store) -> Callable[[], Awaitable[object]]:
    async def use() -> object:
        key = f"https://host{os.getpid()}.example"
        await store.put(key, b"record")
        assert await store.get(key) == b"record"
        return "ok"

    return use


def queue_used(place: str) -> Callable[[], Awaitable[object]]:
    queue: PoliteQueue[None] = PoliteQueue(gate_of(0.0), journal=place)

    async def use() -> object:
        await queue.put(f"{URL}{os.getpid()}")
        async with queue.turn() as turn:
            turn.observe(200)
        began_mono = time.monotonic()
        await asyncio.sleep(0.5)  # the other child comes meanwhile
        return began_mono, time.monotonic()

    return use


PARTS: Final[dict[str, Callable[[str], Callable[[], Awaitable[object]]]]] = {
    "gate": gate_used,
    "fleet": gate_used,
    "sqlite": lambda place: store_used(SqliteStore(place)),
    "redis": lambda place: store_used(RedisStore(place, prefix="fork:")),
    "queue": queue_used,
}


def forked(kind: str, place: str, used: str) -> None:
    use = PARTS[kind](place)

    async def reported() -> object:
        try:
            return await use()
        except PolitesseError as error:
            return f"{type(error).__name__}: {error}"

    def child() -> int:
        number = os.fork()
        if not number:
            asyncio.events._set_running_loop(None)
            say(json.dumps(asyncio.run(reported())))
            os._exit(0)
        return number

    with asyncio.Runner() as runner:
        if used == "1":
            runner.run(reported())
        children = [child(), child()]
    for number in children:
        os.waitpid(number, 0)


async def putting(journal: str, first: int) -> None:
    queue: PoliteQueue[None] = PoliteQueue(gate_of(0.0), journal=journal)
    for number in count(first):
        await queue.put(f"{URL}{number}")
        say(str(number))


# A gate for threads


def waiting(url: str) -> None:
    def take(gate: Gate) -> None:
        with suppress(ClosedError):
            while True:
                gate.take_turn(url).end()

    with Gate(gate_of(0.002, url)) as gate:
        threading.Thread(target=take, args=(gate,)).start()
        with suppress(KeyboardInterrupt):
            while True:
                with gate.turn(url):
                    say("turn")
        # The traceback of the error, and with it the turn, is garbage. The host is free, or soon will be.
        gate.take_turn(url, max_wait_s=20.0).end()
        say("free")


def fetching() -> None:
    logging.getLogger("aiohttp.server").disabled = True  # the server reports the connection that Ctrl-C closes
    with served(Site()) as site, Gate(Gatekeeper(UA, pacing=EAGER)) as gate, requests.Session() as session:
        session.mount("http://", PoliteAdapter(gate))
        site.redirects["/moved"] = (302, "/page")
        with suppress(KeyboardInterrupt):
            while True:
                session.get(f"{site.base}/moved")
                say("turn")
        gate.take_turn(f"{site.base}/page", max_wait_s=20.0).end()
        say("free")


class SayingStore(SqliteStore):
    """Says when it is closed."""

    async def aclose(self) -> None:
        await super().aclose()
        say("closed")


def ending(kind: str, url: str, folder: str) -> None:
    gate = Gate(gate_of(0.0, url, store=SayingStore(Path(folder) / "robots.db")))
    with gate.turn(url):
        pass
    if kind == "atexit":
        atexit.register(gate.close)
    elif kind == "open":
        globals()["kept"] = gate
    say("end")


def fork(url: str) -> None:
    with Gate(gate_of(0.0, url)) as gate, gate.turn(url):
        child = os.fork()
        if not child:
            try:
                gate.check(url)
            except RuntimeError as error:
                say(f"{type(error).__name__}: {error}")
            return  # the end of both blocks, and of the interpreter
        os.waitpid(child, 0)
        say(f"{gate.check(url).allowed}")


if __name__ == "__main__":
    # A shell without job control lets its background jobs ignore Ctrl-C, and the tests may be such a job.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    match sys.argv[1:]:
        case "waiting", given:
            waiting(given)
        case "fetching", _:
            fetching()
        case "fork", given:
            fork(given)
        case "putting", journal, first:
            asyncio.run(putting(journal, int(first)))
        case "forked", *parts:
            for place in range(0, len(parts), 3):
                if not (one := os.fork()):  # a process for each part: no thread of another part holds a lock
                    forked(*parts[place : place + 3])
                    os._exit(0)
                os.waitpid(one, 0)
        case kind, given, folder:
            ending(kind, given, folder)
