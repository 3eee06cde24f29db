"""Requests, rules and times of the tests of pacing."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from politesse._pacing.hosts import Hosts, LocalFetch, Permit, TurnRequest
from politesse._pacing.shared import GateShare
from politesse.events import Publisher
from politesse.options import SharedPacer
from politesse.robots import RobotsTxt, RuleSet

__all__ = [
    "AGENT",
    "HOST",
    "MIDNIGHT",
    "ORIGIN",
    "LocalFetch",
    "Pacer",
    "Permit",
    "Resolving",
    "TurnRequest",
    "at",
    "fetching",
    "finish",
    "rules",
    "share_of",
    "wants",
]

Pacer: TypeAlias = Hosts | GateShare

MIDNIGHT: Final = 1_799_971_200.0
"""A Unix time at 00:00 UTC."""

HOST: Final = "example.com"
ORIGIN: Final = "https://example.com"
AGENT: Final = "ExampleBot"


def wants(pace: RuleSet | None = None, host: str = HOST, agent: str = AGENT) -> TurnRequest:
    """Return a request to the https origin of a host."""
    return TurnRequest(host, f"https://{host}", agent, pace)


def finish(permit: Permit, status: int | None = None, headers: Mapping[str, str] | None = None) -> None:
    """End a request; None for no answer."""
    if status is not None:
        permit.observe(status, headers or {})
    permit.end()


def rules(*lines: str) -> RuleSet:
    """Return the rules of a robots.txt with these lines for all agents."""
    return RobotsTxt.parse("\n".join(["User-agent: *", *lines])).rules_for("ExampleBot")


def at(hhmm: str, second: float = 0.0) -> float:
    """Return the Unix time of a time of day; ``24`` and more hours are the day after."""
    return MIDNIGHT + int(hhmm[:2]) * 3600 + int(hhmm[2:]) * 60 + second


def share_of(shared: SharedPacer, publisher: Publisher | None = None) -> GateShare:
    """Return the share of a gate without a memory."""
    return GateShare(lambda: shared, shared.options, publisher or Publisher(), None, None)


class Resolving:
    """A Resolver with the given addresses, once ``gate`` is set; an exception among them is raised."""

    def __init__(self, addresses: Mapping[str, Sequence[str] | Exception]) -> None:
        self.addresses = dict(addresses)
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def resolve(self, host: str, port: int, /) -> Sequence[str]:
        self.asked.append(host)
        await self.gate.wait()
        found = self.addresses.get(host, OSError("no such host"))
        if isinstance(found, Exception):
            raise found
        return found


def fetching(host: str) -> TurnRequest:
    """Return the request of a robots.txt."""
    return TurnRequest(host, f"https://{host}", "", None, f"https://{host}/robots.txt")
