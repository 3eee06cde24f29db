"""A program with threads: ``python -m tests.wire.clients.sync_program KIND URL [FOLDER]``.

``waiting`` takes turns at a URL in its main thread, while another thread takes turns there, too. It prints a line for
each turn, and after Ctrl-C a line if the host grants another turn.
``fetching`` does the same with a session of requests and a server of its own.
``open``, ``dropped`` and ``atexit`` end without a close of their gate; its store is a file in FOLDER.
``fork`` forks, and the child prints its error.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

import requests

from politesse import ClosedError, Gatekeeper, PacingOptions
from politesse.stores import SqliteStore
from politesse.sync import Gate, PoliteAdapter
from politesse.testing import ScriptedFetcher
from tests.support.sites import EAGER, UA, Site, served


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def waiting(url: str) -> None:
    gatekeeper = Gatekeeper(UA, fetcher=ScriptedFetcher({url: 404}), pacing=PacingOptions(min_delay_s=0.002))

    def take(gate: Gate) -> None:
        with suppress(ClosedError):
            while True:
                gate.take_turn(url).end()

    with Gate(gatekeeper) as gate:
        other = threading.Thread(target=take, args=(gate,))
        other.start()
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
    gate = Gate(Gatekeeper(UA, fetcher=ScriptedFetcher({url: 404}), store=SayingStore(Path(folder) / "robots.db")))
    with gate.turn(url):
        pass
    if kind == "atexit":
        atexit.register(gate.close)
    elif kind == "open":
        globals()["kept"] = gate
    say("end")


def fork(url: str) -> None:
    with Gate(Gatekeeper(UA, fetcher=ScriptedFetcher({url: 404}))) as gate, gate.turn(url):
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
    match sys.argv[1]:
        case "waiting":
            waiting(sys.argv[2])
        case "fetching":
            fetching()
        case "fork":
            fork(sys.argv[2])
        case kind:
            ending(kind, *sys.argv[2:])
