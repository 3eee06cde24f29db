"""A crawler in a process of its own, so that its memory is measured without that of the servers.

Reads a JSON object from standard input: ``waiting``, ``ending`` and ``harmless`` origins by name, ``addresses`` by
host, ``authority`` in PEM. Writes its findings about each origin to standard output.
"""

from __future__ import annotations

import asyncio
import json
import resource
import ssl
import sys
import time
from typing import Final

from politesse import FetchOptions, Gatekeeper, Origin
from politesse.events import RobotsFetched
from politesse.fetch import AiohttpFetcher
from politesse.ports import FetchFault, FetchRequest, FetchResult
from politesse.testing import ScriptedResolver

CONNECT_TIMEOUT_S: Final = 2.0
TOTAL_TIMEOUT_S: Final = 4.0
"""The timeouts for servers that go on until the client gives up."""

PATIENT_TIMEOUT_S: Final = 45.0
"""The timeout for servers whose answers end: a loaded machine keeps it, too."""

AT_ONCE: Final = 8
UA: Final = "ExampleBot/1.0 (+https://example.com/bot)"


class Witness:
    """A fetcher that remembers the results of another fetcher at the last hop, and the duration of all hops."""

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


async def crawl(
    origins: dict[str, str], addresses: dict[str, str], authority: str, timeouts_s: tuple[float, float]
) -> dict[str, dict[str, object]]:
    """Check a page and a private page of each origin."""
    context = ssl.create_default_context(cadata=authority)
    options = FetchOptions(connect_timeout_s=timeouts_s[0], total_timeout_s=timeouts_s[1], ssl_context=context)
    names = ScriptedResolver({host: given.split() for host, given in addresses.items()})
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

        await asyncio.gather(*(ask(name, origin) for name, origin in origins.items()))
    return found


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Crawl the harmless origins first, so that the memory that each fetch needs is allocated already."""
    given = json.load(sys.stdin)
    known = given["addresses"], given["authority"]
    patient = PATIENT_TIMEOUT_S, PATIENT_TIMEOUT_S
    asyncio.run(crawl(given["harmless"], *known, patient), debug=False)
    before_kib = peak_kib()
    found = asyncio.run(crawl(given["ending"], *known, patient))
    found |= asyncio.run(crawl(given["waiting"], *known, (CONNECT_TIMEOUT_S, TOTAL_TIMEOUT_S)))
    json.dump({"found": found, "grown_kib": peak_kib() - before_kib}, sys.stdout)


if __name__ == "__main__":
    main()
