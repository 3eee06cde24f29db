"""Turns in several scopes at once: a request waits for its host and for all that shares an address or a domain with it.

What a site says (Crawl-delay, 429, its slowness) binds in the first scope, the key; the others bear a Limit. Leave is
taken in the order of the scopes, always the same, so that no two requests can wait for each other, and given back when
a later one fails. Whoever waits in a wider scope keeps his place in the narrower one: nobody of the same host could
start before him. What he was granted first is stamped anew when he has them all, and if it no longer holds by then,
because the host has closed, he gives all back and waits again, at the head of the line.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from politesse._pacing.local import LocalPacer
from politesse._pacing.pace import PacingOptions
from politesse._pacing.scopes import ByAddress, ByDomain, ByHost
from politesse._pacing.slot import Permit
from politesse._tasks import ends_within
from politesse.errors import ConfigurationError
from politesse.verdict import Bound, NotYet, TooFar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from politesse._pacing.pace import Limit
    from politesse._pacing.scopes import Finder
    from politesse.clock import Clock
    from politesse.events import Publisher
    from politesse.ports import Resolver
    from politesse.robots import RuleSet


class ScopedPacer:
    """Spaces requests by key and by limits; with the methods of LocalPacer, which see, but for hosts instead of keys.

    Args:
        options: see PacingOptions.
        clock: the clocks and the timer.
        resolver: finds the addresses of hosts.
        publisher: hears of HeaderOverruled and AddressNotFound.
        jitter: see LocalPacer.
    """

    def __init__(
        self,
        options: PacingOptions,
        *,
        clock: Clock,
        resolver: Resolver,
        publisher: Publisher,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._options = options
        self._clock = clock
        self._closed = False
        finders: dict[str, Callable[[], Finder]] = {
            "host": ByHost,
            "domain": ByDomain,
            "address": lambda: ByAddress(resolver, clock, publisher),
        }
        self._first = LocalPacer(options, clock=clock, jitter=jitter, publisher=publisher)
        self._finders = [finders[options.key]()]
        self._pacers = [self._first]
        for name, limit in (("domain", options.domain), ("address", options.address)):
            if limit is not None:
                self._finders.append(finders[name]())
                self._pacers.append(LocalPacer(_bearing(limit), clock=clock))

    def try_start(self, host: str, origin: str, rules: RuleSet | None) -> Permit | NotYet:
        """Return leave in all scopes, or when that may be; an address that is not known is looked up meanwhile."""
        keys = self._known(host, lambda: None)
        if keys is None:
            return NotYet(self._clock.wall(), Bound.ADDRESS)
        answers = [
            pacer.try_start(key, origin, rules if pacer is self._first else None)
            for pacer, key in zip(self._pacers, keys, strict=True)
        ]
        permits = [answer for answer in answers if isinstance(answer, Permit)]
        if len(permits) == len(answers):
            return _joined(permits)
        for pacer, answer in zip(self._pacers, answers, strict=True):
            if isinstance(answer, Permit):
                pacer.give_back(answer)
        refusals = [answer for answer in answers if isinstance(answer, NotYet)]
        return max(refusals, key=lambda refusal: refusal.not_before)

    async def start(self, host: str, origin: str, rules: RuleSet | None, max_wait_s: float | None = None) -> Permit:
        """Wait for leave in all scopes. The lookup of an address counts for the wait; it goes on for others."""
        deadline_mono = None if max_wait_s is None else self._clock.monotonic() + max_wait_s
        keys = await self._keys(host, max_wait_s)
        again = False
        while True:
            taken: list[Permit] = []
            try:
                for pacer, key in zip(self._pacers, keys, strict=True):
                    left_s = None if deadline_mono is None else max(0.0, deadline_mono - self._clock.monotonic())
                    said = None if taken else rules
                    taken.append(await pacer.start(key, origin, said, left_s, again=again))
            except BaseException:
                self._give_back(taken)
                raise
            waited = [permit.waited for permit in taken]
            if not any(waited[1:]) or all(
                pacer.renew(permit) for pacer, permit in zip(self._pacers, taken, strict=True)
            ):
                permit = _joined(taken)
                permit.waited = any(waited) or again
                return permit
            self._give_back(taken)
            again = True

    def when_ready(self, host: str, origin: str, rules: RuleSet | None, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, when a request may start in all scopes and nobody waits there; or at the close."""

        def look() -> None:
            if self._closed or not watch(even_if_ready=False):
                callback()

        def watch(*, even_if_ready: bool) -> bool:
            keys = self._known(host, look)
            if keys is None:
                return True
            places = list(zip(self._pacers, keys, strict=True))
            busy = [(pacer, key) for pacer, key in places if not pacer.is_ready(key)]
            if not busy and not even_if_ready:
                return False
            pacer, key = busy[0] if busy else places[0]
            pacer.when_ready(key, origin, rules if pacer is self._first else None, look)
            return True

        watch(even_if_ready=True)

    def observe(self, permit: Permit, status: int, headers: Mapping[str, str] | None = None) -> None:
        """Take in the answer; it speaks for the key."""
        self._first.observe(permit, status, headers)

    def finish(self, permit: Permit, status: int | None = None, headers: Mapping[str, str] | None = None) -> None:
        """End a request in all scopes."""
        self._first.finish(permit, status, headers)
        for pacer, other in zip(self._pacers[1:], permit.beside, strict=True):
            pacer.finish(other)

    def give_back(self, permit: Permit) -> None:
        """End a permit with which nothing was requested, in all scopes."""
        self._give_back([permit, *permit.beside])

    def close(self, host: str, until_wall: float, bound_by: Bound) -> None:
        """Let nothing start at the key of ``host`` before ``until_wall``."""
        finder = self._finders[0]
        key = finder.known(host)
        if key is not None:
            self._first.close(key, until_wall, bound_by)
        elif not self._closed:
            finder.when_found(host, lambda: self.close(host, until_wall, bound_by))

    async def closed_until(self, host: str) -> float | None:
        """Return the Unix time until which the key of ``host`` is to be left alone; None if it is not."""
        return await self._first.closed_until(await self._finders[0].find(host))

    def spend(
        self, host: str, status: int | None = None, headers: Mapping[str, str] | None = None, elapsed_s: float = 0.0
    ) -> None:
        """Count a request that waited for no turn, in all scopes; its answer speaks for the key."""
        if self._closed:
            return
        keys = self._known(host, lambda: self.spend(host, status, headers, elapsed_s))
        if keys is not None:
            first, *others = keys
            self._first.spend(first, status, headers, elapsed_s)
            for pacer, key in zip(self._pacers[1:], others, strict=True):
                pacer.spend(key)

    def set_options(self, host: str, options: PacingOptions | None) -> None:
        """Pace one host by options of its own; raises ConfigurationError where hosts are not what is paced."""
        if self._options.key == "host":
            self._first.set_options(host, options)
        elif options is not None and options != self._options:
            raise ConfigurationError(
                f"min_delay_s= or max_concurrent= of {host} alone: not with PacingOptions(key={self._options.key!r})"
            )

    async def aclose(self) -> None:
        """End all lookups, and tell everybody who waits that no turn will come: ClosedError."""
        self._closed = True
        for pacer in self._pacers:
            await pacer.aclose()
        for finder in self._finders:
            await finder.aclose()

    @property
    def waiting(self) -> int:
        """How many wait for a turn, in whichever scope."""
        return sum(pacer.waiting for pacer in self._pacers)

    @property
    def in_flight(self) -> int:
        """How many requests are under way, or are held back by a wider scope alone."""
        return self._first.in_flight

    def __len__(self) -> int:
        """How many keys and limits are busy."""
        return sum(map(len, self._pacers))

    def __repr__(self) -> str:
        return f"<ScopedPacer: {self._pacers!r}>"

    async def _keys(self, host: str, max_wait_s: float | None) -> list[str]:
        """Return the key of each scope, looking it up if need be; raises TooFar if that takes too long."""
        finding = [finder.find(host) for finder in self._finders]
        if max_wait_s is None:
            return [await key for key in finding]
        keys = asyncio.gather(*finding)
        if not await ends_within(self._clock, max_wait_s, keys):
            raise TooFar(host, NotYet(self._clock.wall(), Bound.ADDRESS), max_wait_s)
        return keys.result()

    def _known(self, host: str, found: Callable[[], None]) -> list[str] | None:
        """Return the key of each scope; None where one has to be looked up, after which ``found`` is called."""
        keys = []
        for finder in self._finders:
            key = finder.known(host)
            if key is None:
                finder.when_found(host, found)
                return None
            keys.append(key)
        return keys

    def _give_back(self, permits: Sequence[Permit]) -> None:
        for pacer, permit in zip(self._pacers, permits, strict=False):
            pacer.give_back(permit)


def _joined(permits: list[Permit]) -> Permit:
    first, *others = permits
    first.beside = tuple(others)
    return first


def _bearing(limit: Limit) -> PacingOptions:
    return PacingOptions(min_delay_s=limit.min_delay_s, max_concurrent=limit.max_concurrent, adaptive_factor=0.0)


Pacer = LocalPacer | ScopedPacer
"""Whatever says whose turn it is."""
