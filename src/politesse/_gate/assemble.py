"""Building the parts of a gatekeeper, from the bottom up: each is handed what it needs, and nothing is set later."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import aiohttp

from politesse._cache.admission import Admission
from politesse._cache.files import SiteFiles
from politesse._cache.guarded_store import GuardedStore
from politesse._cache.host_memory import StoredHosts
from politesse._cache.options import CacheOptions
from politesse._cache.robots import RobotsCache
from politesse._cache.robots_fetcher import PacedFetcher
from politesse._checks import check_choice, check_types, wrong_type
from politesse._gate.agent import Agent
from politesse._gate.enforcement import EnforcingAgent, checked_purposes
from politesse._gate.identity import Identity
from politesse._gate.policy_tokens import PolicyTokens
from politesse._gate.state import GateState
from politesse._log import EventLog
from politesse._pacing.fleet.options import FleetOptions
from politesse._pacing.pace import PER_PROCESS, PacingOptions
from politesse._pacing.sharing import membership_of, pacer_for
from politesse._sites.pages import PageFetcher
from politesse._sites.reservations import Reservations
from politesse._text import type_name
from politesse.clock import Clock, SystemClock
from politesse.errors import ConfigurationError, ConfigurationTypeError
from politesse.events import Publisher
from politesse.fetch.addresses import SystemResolver
from politesse.fetch.aiohttp import AiohttpFetcher
from politesse.fetch.options import FetchOptions
from politesse.robots import Dialect
from politesse.stores._location import store_at

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from politesse.ports import Fetcher, Resolver, Store
    from politesse.usage.model import Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class GatekeeperOptions:
    """The arguments of Gatekeeper, checked; see there.

    Raises:
        ConfigurationError: for arguments of the wrong type, and for those that exclude each other.
    """

    user_agent: str
    token: str | Sequence[str] | None
    dialect: Dialect
    cache: CacheOptions | None
    fetch: FetchOptions | None
    pacing: PacingOptions | None
    store: Store | str | os.PathLike[str] | None
    fleet: FleetOptions | str | None
    session: aiohttp.ClientSession | None
    fetcher: Fetcher | None
    resolver: Resolver | None
    clock: Clock | None
    mode: Literal["enforce", "report"]
    enforce_usage: Collection[str]
    policy_tokens: Mapping[str, str] | None

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, ("enforce", "report"), "'enforce' or 'report'")
        check_types({"user_agent": (self.user_agent, str)}, required=True)
        check_types({"dialect": (self.dialect, Dialect)}, required=True)
        check_types({"cache": (self.cache, CacheOptions), "fetch": (self.fetch, FetchOptions)})
        check_types({"pacing": (self.pacing, PacingOptions), "session": (self.session, aiohttp.ClientSession)})
        if not isinstance(self.store, str | os.PathLike):
            _check_methods({"store": (self.store, "get put delete aclose")})
        _check_fleet(self.fleet)
        if self.fleet is not None and self.pacing is not None and self.pacing.scope == PER_PROCESS:
            raise ConfigurationError(
                f"fleet= and PacingOptions(scope={PER_PROCESS!r}) contradict each other: with that scope each process "
                "has a pace of its own. Give the scope another name, or leave it out"
            )
        _check_methods({"fetcher": (self.fetcher, "fetch aclose")})
        _check_methods({"resolver": (self.resolver, "resolve"), "policy_tokens": (self.policy_tokens, "items")})
        _check_methods({"clock": (self.clock, "monotonic wall sleep call_later")})
        if self.fetcher is not None and (self.fetch is not None or self.session is not None):
            raise ConfigurationError(
                "fetcher= cannot be combined with fetch= or session=: they configure the built-in fetcher"
            )


@dataclass(frozen=True, slots=True)
class GateParts:
    """The parts of a gatekeeper.

    Attributes:
        state: what all agents share.
        identity: the gatekeeper's own.
        files: files of sites that are fetched as pages, as data.txt.
        reservations: what the tdmrep.json files of sites say.
        tdm_files: where they come from.
        purposes: the uses to enforce preferences for; empty for none.
    """

    state: GateState
    identity: Identity
    files: SiteFiles
    tdm_files: SiteFiles
    reservations: Reservations
    purposes: frozenset[Purpose]

    def agent(self, identity: Identity) -> Agent:
        """Return the agent of an identity, enforcing usage preferences where the gatekeeper does."""
        return _agent(self.state, identity, self.purposes, self.reservations)

    async def aclose(self) -> None:
        """Close all parts, each even if another one raises."""
        async with AsyncExitStack() as closing:  # in reverse order
            for part in (self.state.cache, self.files, self.tdm_files, self.reservations):
                closing.push_async_callback(part.aclose)
            for aclose in tuple(self.state.closed_with):
                closing.push_async_callback(aclose)
            await self.state.pacer.aclose()  # before anything is waited for: meanwhile no turn is granted


def assemble(options: GatekeeperOptions) -> GateParts:
    """Build the parts of a gatekeeper.

    Raises:
        ConfigurationError: for invalid options.
    """
    identity = Identity.of(options.user_agent, options.token)
    purposes = checked_purposes(options.enforce_usage)
    clock = options.clock or SystemClock()
    publisher = Publisher(EventLog())
    pacing = options.pacing or PacingOptions()
    resolver = SystemResolver() if options.resolver is None and pacing.is_scoped else options.resolver
    policy_tokens = PolicyTokens(options.policy_tokens) if options.policy_tokens else None
    cache_options = options.cache or CacheOptions()
    fetcher = options.fetcher or AiohttpFetcher(
        options.user_agent, options.fetch, session=options.session, resolver=resolver
    )
    admission = Admission(clock, max_concurrent=cache_options.max_concurrent_fetches)
    fleet = FleetOptions(options.fleet) if isinstance(options.fleet, str) else options.fleet
    membership = None if fleet is None else membership_of(fleet, clock)
    store = _store(options.store, fleet, timeout_s=cache_options.store_timeout_s, clock=clock)
    if store is not None and store.leasing is not None and fleet is None and pacing.scope != PER_PROCESS:
        raise ConfigurationError(
            f"store={options.store!r}: several processes share it, and each would have a pace of its own: a site would "
            "meet them all at once. Give fleet= as well, or PacingOptions(scope='process') if that is intended"
        )
    memory = None
    if store is not None and store.outlives:
        memory = partial(StoredHosts, store=store, clock=clock, publisher=publisher)
    # The last that may raise: it joins the scope, which only the close of the gate leaves.
    pacer = pacer_for(pacing, clock=clock, publisher=publisher, resolver=resolver, memory=memory, membership=membership)
    total_timeout_s = (options.fetch or FetchOptions()).total_timeout_s
    cache = RobotsCache(
        PacedFetcher(fetcher, pacer, clock, admission=admission, total_timeout_s=total_timeout_s),
        store,
        dialect=options.dialect,
        options=cache_options,
        clock=clock,
        publisher=publisher,
        max_wait_s=total_timeout_s,
    )
    state = GateState(
        cache,
        pacer,
        pacing,
        clock,
        publisher,
        own_name=identity.agent,
        reports=options.mode == "report",
        policy_tokens=policy_tokens,
    )

    def files_for(agent: Agent, max_days: int) -> SiteFiles:
        pages = PageFetcher(agent, fetcher, pacer, clock, publisher=publisher, admission=admission)
        return SiteFiles(pages, options=cache_options, clock=clock, publisher=publisher, max_days=max_days)

    # tdmrep.json is fetched without usage enforcement; enforcing it here would deadlock.
    tdm_files = files_for(Agent(state, identity), max_days=1)
    reservations = Reservations(tdm_files, cache.reading)
    files = files_for(_agent(state, identity, purposes, reservations), max_days=7)
    return GateParts(state, identity, files, tdm_files, reservations, purposes)


def _store(
    given: Store | str | os.PathLike[str] | None, fleet: FleetOptions | None, *, timeout_s: float, clock: Clock
) -> GuardedStore | None:
    """Return the store to keep records in, by default that of the fleet; None for the memory of this process."""
    if given is not None:
        store = store_at(given, clock=clock) if isinstance(given, str | os.PathLike) else given
    elif fleet is not None:
        from politesse.stores.redis import RedisStore  # noqa: PLC0415 - an extra

        store = RedisStore(fleet.url, prefix=fleet.prefix)
    else:
        return None
    return GuardedStore(store, timeout_s=timeout_s, clock=clock)


def _agent(state: GateState, identity: Identity, purposes: frozenset[Purpose], reservations: Reservations) -> Agent:
    return EnforcingAgent(state, identity, purposes, reservations) if purposes else Agent(state, identity)


def _check_fleet(given: object) -> None:
    if given is not None and not isinstance(given, str | FleetOptions):
        wanted = "a URL, as 'redis://host:6379/0', or FleetOptions"  # the value may hold a password
        raise ConfigurationTypeError(f"fleet: give {wanted}, no {type_name(given)}")


def _check_methods(options: Mapping[str, tuple[object, str]]) -> None:
    for name, (value, wanted) in options.items():
        missing = [method for method in wanted.split() if not callable(getattr(value, method, None))]
        if value is not None and missing:
            raise wrong_type(name, value, f"an object with {', '.join(wanted.split())}; see politesse.ports")
