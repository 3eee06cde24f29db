"""Programs that write a ledger: ``python -m tests.tools.ledger.ledger_program KIND PATH NAME``.

``write`` records decisions until it is killed, and prints the number of each one that was acknowledged. ``fork`` uses a
gate, forks, records a decision in parent and child, and closes in the parent.
"""

import asyncio
import logging
import os
import sys
from itertools import count

from politesse import Gatekeeper
from politesse.errors import StoreError
from politesse.ledger import Ledger, LedgerOptions
from politesse.testing import ScriptedFetcher

SITE = "https://example.com"
_ROBOTS = "User-agent: *\nDisallow: /*1\n"


def _gate(ledger: Ledger) -> Gatekeeper:
    return Gatekeeper(
        "ExampleBot/1.0 (+https://example.org/bot)", fetcher=ScriptedFetcher({SITE: _ROBOTS}), ledger=ledger
    )


async def write(path: str, name: str) -> None:
    ledger = Ledger(path, LedgerOptions(max_file_bytes=300_000))
    async with _gate(ledger) as gate:
        for number in count():
            await gate.check(f"{SITE}/{name}/{number}")
            if number % 7 == 0:
                await ledger.flush()
                sys.stdout.write(f"{number}\n")
                sys.stdout.flush()


async def _flushed(ledger: Ledger) -> str:
    try:
        await ledger.flush()
    except StoreError as error:
        return str(error)
    return "flushed"


def fork(path: str, name: str) -> None:
    logging.basicConfig()
    ledger = Ledger(path)
    gate = _gate(ledger)
    with asyncio.Runner() as runner:
        if name == "used":
            runner.run(gate.check(f"{SITE}/before"))
            runner.run(ledger.flush())
        child = os.fork()
        if not child:
            asyncio.events._set_running_loop(None)
            if name == "used":
                gate.peek(f"{SITE}/child")
            else:
                asyncio.run(gate.check(f"{SITE}/child"))
            sys.stdout.write(f"{asyncio.run(_flushed(ledger))}; {ledger.dropped} dropped\n")
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        runner.run(gate.check(f"{SITE}/after"))
        runner.run(gate.aclose())


if __name__ == "__main__":
    if sys.argv[1] == "write":
        asyncio.run(write(*sys.argv[2:]))
    else:
        fork(*sys.argv[2:])
