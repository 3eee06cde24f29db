"""A crawl that stops on signals: ``python -m tests.wire.clients.stopping URL JOURNAL [KIND]``.

It crawls ``/0`` to ``/3`` of a site, and prints each page, the report, and whether the earlier handlers are back. The
handlers of the kinds: ``default``, ``own`` ones of the module signal, ``loop`` for those of the event loop. ``failing``
ends with an error of ``handle``. In ``thread``, a thread gets SIGTERM while the event loop sleeps. In ``echo``, SIGINT
follows SIGTERM at once. In ``added``, the program adds a handler to the event loop meanwhile.
"""

import asyncio
import logging
import signal
import sys
import threading
from types import FrameType

from aiohttp import ClientResponse

from politesse import Gatekeeper, PoliteQueue, PoliteSession
from politesse.queue import CrawlPage
from tests.support.sites import EAGER, UA

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def own(number: int, _: FrameType | None) -> None:
    say(f"own handler of {signal.Signals(number).name}")


def start(kind: str) -> None:
    """Send the signals of a kind."""
    if kind == "echo":
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    if kind == "thread":
        threading.Timer(0.3, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)).start()
    if kind == "added":
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, say, "added handler")
        signal.raise_signal(signal.SIGTERM)


async def main(base: str, journal: str, kind: str = "default") -> None:
    for number in SIGNALS if kind == "own" else ():
        signal.signal(number, own)
    for number in SIGNALS if kind == "loop" else ():
        asyncio.get_running_loop().add_signal_handler(number, own, number, None)
    before = [signal.getsignal(number) for number in SIGNALS]

    async def handle(page: CrawlPage[None], response: ClientResponse) -> None:
        say(f"begun {page.url.removeprefix(base)}")
        if kind == "failing":
            raise LookupError
        start(kind)
        await response.read()
        say(f"read {page.url.removeprefix(base)}")

    gate = Gatekeeper(UA, pacing=EAGER)
    async with gate, PoliteSession(gate) as web, PoliteQueue[None](gate, journal=journal) as queue:
        for place in range(4):
            await queue.put(f"{base}/{place}")
        try:
            report = await queue.crawl(web, handle, workers=1, stop_on_signals=True, stop_on_error=kind == "failing")
            say(f"{report.pages} pages, {report.left} left, stopped by {report.stopped_by}, {report.notes}")
        except LookupError:
            say("failed")
        except asyncio.CancelledError:
            say("cancelled")
            raise
    after = [signal.getsignal(number) for number in SIGNALS]
    say(f"restored: {after == before}")
    if kind in {"own", "loop", "added"}:
        signal.raise_signal(signal.SIGUSR1 if kind == "added" else signal.SIGTERM)
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    asyncio.run(main(*sys.argv[1:]))
