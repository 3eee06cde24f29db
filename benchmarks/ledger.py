"""What a ledger adds to a decision: on its caller, and in all, with the thread that writes.

The same URLs are asked of a gate without a ledger and of one with a ledger, 500 by 500, and the best of five counts.
The time of the caller is the processor time of its thread; the whole cost is that of the process, until all rows are in
the file.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from math import inf
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.corpus import describe, load
from benchmarks.engines import AGENT
from benchmarks.figures import figure
from benchmarks.table import table
from benchmarks.urls import fresh_urls
from politesse import Gatekeeper
from politesse.ledger import Ledger, LedgerOptions, verify
from politesse.testing import ScriptedFetcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.corpus import RobotsFile
    from benchmarks.figures import Reported
    from benchmarks.settings import Settings

_WITHOUT: Final = "without a ledger"
_WITH: Final = "with a ledger"
_TIMES: Final = 5
_TOGETHER: Final = 500  # so few decisions take less than the 20 ms after which the thread begins to write


def run(settings: Settings) -> Iterator[Reported]:
    """Yield the report."""
    files = load(settings)[: settings.size(100, 10)]
    yield f"ledger: {describe(files, settings.corpus)}; {settings.rounds} interleaved rounds, processor time"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ledger.db")
        caller, whole = asyncio.run(_timed(files, path, settings))
        found = verify(path)
        octets = path.stat().st_size / found.rows
    caller_us = [1e6 * (a - b) for a, b in zip(caller[_WITH], caller[_WITHOUT], strict=True)]
    whole_us = [1e6 * (a - b) for a, b in zip(whole[_WITH], whole[_WITHOUT], strict=True)]
    figures = figure("ledger/caller", caller_us, "us"), figure("ledger/whole", whole_us, "us")
    rows = [
        ("added on the caller", figures[0].text, figures[0].spread),
        ("added in all", figures[1].text, figures[1].spread),
        ("bytes of a row", f"{octets:.0f}", ""),
        ("rows that were dropped", f"{found.dropped}", ""),
    ]
    yield table("ledger: a decision on a cached origin", ("", "", "quartiles"), rows)
    yield from figures


async def _timed(
    files: list[RobotsFile], path: Path, settings: Settings
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the seconds of a decision in each round, of the caller's thread and of the process."""
    ledger = Ledger(path, LedgerOptions(max_queued_rows=1_000_000))
    caller: dict[str, list[float]] = {_WITHOUT: [], _WITH: []}
    whole: dict[str, list[float]] = {_WITHOUT: [], _WITH: []}
    async with AsyncExitStack() as stack:
        gates = {}
        for name, one in ((_WITHOUT, None), (_WITH, ledger)):
            fetcher = ScriptedFetcher({f"https://{file.host}": file.body for file in files})
            gate = Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", token=AGENT, fetcher=fetcher, ledger=one)
            gates[name] = await stack.enter_async_context(gate)
            await gate.check_batch(f"https://{file.host}/" for file in files)
        await ledger.flush()
        for number in range(settings.rounds + 1):
            urls = [url for file in files for url in fresh_urls(file, settings.seed, number)]
            spent = {name: [0.0, 0.0] for name in gates}
            for start in range(0, len(urls), _TOGETHER):
                best = {name: [inf, inf] for name in gates}
                for _ in range(_TIMES):
                    for name, gate in gates.items():
                        took = await _took(gate, urls[start : start + _TOGETHER], ledger)
                        best[name] = [*map(min, best[name], took)]
                for name, seconds in best.items():
                    spent[name] = [*map(add, spent[name], seconds)]
            for name in gates if number else ():  # the first round only warms up
                caller[name].append(spent[name][0] / len(urls))
                whole[name].append(spent[name][1] / len(urls))
    return caller, whole


async def _took(gate: Gatekeeper, urls: list[str], ledger: Ledger) -> tuple[float, float]:
    """Return the seconds of the caller's thread, and of the process until all rows are written."""
    thread, process = time.thread_time(), time.process_time()
    for url in urls:
        gate.peek(url)
    thread = time.thread_time() - thread
    await ledger.flush()  # returns at once after the gate without a ledger
    return thread, time.process_time() - process
