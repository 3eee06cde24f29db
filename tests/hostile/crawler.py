"""A crawler in a process of its own, so that what it needs of memory is its own and not that of the servers.

Reads a JSON object from standard input: ``origins`` and ``harmless`` by name, ``addresses`` by host, ``authority`` in
PEM. Writes what it made of each origin to standard output.
"""

from __future__ import annotations

import asyncio
import json
import resource
import ssl
import sys
import time
from typing import Final

from politesse import AiohttpFetcher, FetchOptions, Gatekeeper, Origin, RobotsFetched
from politesse.ports import FetchFault, FetchRequest, FetchResult
from politesse.testing import ScriptedResolver

# A busy machine keeps them for every server that answers at all.
CONNECT_TIMEOUT_S: Final = 2.0
TOTAL_TIMEOUT_S: Final = 4.0
AT_ONCE: Final = 8
UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"


class Witness:
    """A fetcher that remembers what another one returned at the last hop, and how long all hops took."""

    def __init__(self, fetcher: AiohttpFetcher) -> None:
        self._fetcher = fetcher
        self.results: dict[str, tuple[FetchResult, float]] = {}

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        started = time.monotonic()
        result = await self._fetcher.fetch(request)
        origin = str(Origin.of(request.first_url or request.url))
        _, before_s = self.results.get(origin, (result, 0.0))
        self.results[origin] = result, before_s + time.monotonic() - started
        return result

    async def aclose(self) -> None:
        await self._fetcher.aclose()


async def crawl(given: dict[str, dict[str, str]], authority: str) -> dict[str, dict[str, object]]:
    """Ask about a page and a private page of each origin."""
    context = ssl.create_default_context(cadata=authority)
    options = FetchOptions(connect_timeout_s=CONNECT_TIMEOUT_S, total_timeout_s=TOTAL_TIMEOUT_S, ssl_context=context)
    names = ScriptedResolver({host: addresses.split() for host, addresses in given["addresses"].items()})
    witness = Witness(AiohttpFetcher(UA, options, resolver=names))
    at_once = asyncio.Semaphore(AT_ONCE)
    found: dict[str, dict[str, object]] = {}
    failed: list[str] = []
    async with Gatekeeper(UA, fetcher=witness) as gate:
        gate.subscribe(lambda event: None if isinstance(event, RobotsFetched) else failed.append(repr(event)))

        async def ask(name: str, origin: str) -> None:
            async with at_once:
                page = await gate.check(f"{origin}/page")
                private = await gate.check(f"{origin}/private")
            assert page.source is not None
            result, elapsed_s = witness.results[str(Origin.of(origin))]
            found[name] = {
                "result": page.source.result,
                "kind": result.kind if isinstance(result, FetchFault) else None,
                "page": bool(page),
                "private": bool(private),
                "elapsed_s": elapsed_s,
                "explanation": page.explain(),
                "not_before": page.not_before,
            }

        await asyncio.gather(*(ask(name, origin) for name, origin in given["origins"].items()))
    return found


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Crawl twice: first what is harmless, so that what any fetch and any large file needs is there already."""
    given = json.load(sys.stdin)
    authority = given.pop("authority")
    harmless = {**given, "origins": given.pop("harmless")}
    asyncio.run(crawl(harmless, authority), debug=False)
    before_kib = peak_kib()
    started = time.monotonic()
    found = asyncio.run(crawl(given, authority))
    elapsed_s = time.monotonic() - started
    json.dump({"found": found, "grown_kib": peak_kib() - before_kib, "elapsed_s": elapsed_s}, sys.stdout)


if __name__ == "__main__":
    main()
