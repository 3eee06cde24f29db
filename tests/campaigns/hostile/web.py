"""A web of many origins, some of which misbehave, in a process of its own, with the logs of its servers.

Reads ``[origins, seed]`` as a line of JSON from standard input, writes its sites as another line, and its
logs when its input ends.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from politesse.testing import FAULTS, Fault, HostileServer
from politesse.testing.answers import FILE, closes_at_once, never_answers, repeats, resets, response
from politesse.testing.hostile import PAGE
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from politesse.testing.answers import Reply

_IDLE_S: Final = 30.0

CLOSED: Final = "User-agent: *\nDisallow: /\n"
FLAPPING: Final = "5xx-flapping"

ROBOTS_FAULTS: Final = [fault for fault in FAULTS.values() if fault.certificate is None and not fault.host]
PAGE_FAULTS: Final[dict[str, Reply]] = {
    "page-429": response(429, Retry_After="1"),
    "page-503": response(503, Retry_After="2"),
    "page-503-without-retry-after": response(503),
    "page-reset": resets(PAGE[:-5]),
    "page-closes": closes_at_once,
    "page-never-answers": never_answers,
    "page-endless": repeats(PAGE[:15] + b"\r\n\r\n", b"<p>more</p>" * 1000),
}
PACES: Final = ("", "", "", "Crawl-delay: 0.5\n", "Crawl-delay: 2\n", "Request-rate: 2/1\n")


@dataclass(frozen=True)
class Site:
    """An origin, with its fault and its rules.

    Attributes:
        origin: as in ``http://127.1.2.3:8081``.
        fault: its name; empty for a good one.
        robots: its rules, or an equivalent of its fault.
        answers: whether it answers requests for robots.txt.
    """

    origin: str
    fault: str
    robots: str
    answers: bool


def _choose(chance: random.Random) -> tuple[str, Fault, Reply, str]:
    """Return the name of a fault, the answers for robots.txt and for pages, and the equivalent rules."""
    if chance.random() < 1 / 3:
        if chance.random() < 1 / 2:
            fault = chance.choice(ROBOTS_FAULTS)
            return fault.name, fault, PAGE, _meaning(fault)
        name = chance.choice(list(PAGE_FAULTS))
        return name, _good(FILE.decode()), PAGE_FAULTS[name], FILE.decode()
    robots = f"User-agent: *\n{chance.choice(PACES)}Disallow: /private\n"
    return "", _good(robots), PAGE, robots


def _good(robots: str) -> Fault:
    return Fault(name="none", robots=response(200, robots.encode()), result=AccessResult.SUCCESSFUL)


def _meaning(fault: Fault) -> str:
    if fault.name == FLAPPING:
        return FILE.decode()
    if not fault.allows_page:
        return CLOSED
    return "" if fault.allows_private else FILE.decode()


async def main() -> None:
    number, seed = json.loads(sys.stdin.readline())
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        sites, servers = [], []
        for n in range(number):
            name, fault, page, robots = _choose(chance)
            address = f"127.{1 + n // 62_500}.{n // 250 % 250}.{1 + n % 250}"
            server = await stack.enter_async_context(HostileServer(fault, address=address, every_page=page))
            servers.append((server, fault))
            sites.append(Site(server.origin, name, robots, fault.listens and fault.accepts))
        _write([asdict(site) for site in sites])
        await asyncio.to_thread(sys.stdin.read)
        await _until_idle([server for server, _ in servers])
        logs = {
            server.origin: [asdict(exchange) for exchange in server.log if exchange.url not in _hops(server, fault)]
            for server, fault in servers
        }
        _write([logs, sum(server.open_connections for server, _ in servers)])


async def _until_idle(servers: list[HostileServer]) -> None:
    """Wait until the connections end; a slow answer, too, notices within that time that its client has gone."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_IDLE_S):
            while any(server.open_connections for server in servers):
                await asyncio.sleep(0.05)


def _write(said: object) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def _hops(server: HostileServer, fault: Fault) -> set[str]:
    return {server.url(target) for target in fault.hops}


if __name__ == "__main__":
    asyncio.run(main())
