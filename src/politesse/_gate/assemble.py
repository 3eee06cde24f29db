"""Builds the parts of a gatekeeper, from the bottom up: each part gets the parts that it needs in its constructor."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from weakref import ref

import aiohttp

from politesse._base.checks import check_choice, check_types, wrong_type
from politesse._base.text import type_name
from politesse._cache.cache import RobotsCache
from politesse._cache.fetching import Admission, PacedFetcher
from politesse._cache.options import AccessPolicy, CacheOptions, HostPolicy
from politesse._cache.records import GuardedStore, ReadingThreads, StoredHosts, StoredRecords
from politesse._gate.identity import Identity
from politesse._gate.state import GateState
from politesse._gate.turn import soon
from politesse._gate.usage import Reservations, checked_policy_tokens, checked_purposes
from politesse._gate.view import AgentView, no_rules
from politesse._log import EventLog
from politesse._pacing.fleet.options import FleetOptions
from politesse._pacing.pace import PER_PROCESS, PacingOptions
from politesse._pacing.shared import GateShare, SharedPacer, different_options, pacer_of_loop, wire_of
from politesse._sites.files import PageFetcher, SiteFiles
from politesse.clock import Clock, SystemClock, run_of
from politesse.errors import ConfigurationError, ConfigurationTypeError
from politesse.events import ComponentFailed, Publisher
from politesse.fetch._addresses import PublicResolver, SystemResolver
from politesse.fetch._aiohttp import AiohttpFetcher
from politesse.fetch._options import FetchOptions
from politesse.origin import Origin
from politesse.robots import Dialect
from politesse.stores.sqlite import store_at
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from politesse.errors import StoreError
    from politesse.ledger import Ledger
    from politesse.ports import Fetcher, Resolver, Signer, Store
    from politesse.verdict import Source

Mode: TypeAlias = Literal["enforce", "report"]
"""Whether verdicts deny, or only report; see ``Gatekeeper``."""

_OPEN: Final = frozenset({AccessResult.SUCCESSFUL, AccessResult.UNAVAILABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class GatekeeperOptions:
    """The checked arguments of Gatekeeper; see Gatekeeper.

    Raises:
        ConfigurationError: for arguments of the wrong type, and for arguments that exclude each other.
    """

    user_agent: str
    token: str | Sequence[str] | None
    dialect: Dialect
    cache: CacheOptions | None
    fetch: FetchOptions | None
    pacing: PacingOptions | None
    pacer: SharedPacer | None
    store: Store | str | os.PathLike[str] | None
    fleet: FleetOptions | str | None
    ledger: Ledger | str | os.PathLike[str] | None
    session: aiohttp.ClientSession | None
    fetcher: Fetcher | None
    resolver: Resolver | None
    clock: Clock | None
    mode: Mode
    enforce_usage: Collection[str]
    policy_tokens: Mapping[str, str] | None
    signer: Signer | None
    policies: Mapping[str, HostPolicy] | None

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, ("enforce", "report"), "'enforce' or 'report'")
        check_types({"user_agent": (self.user_agent, str), "dialect": (self.dialect, Dialect)}, required=True)
        check_types({"cache": (self.cache, CacheOptions), "fetch": (self.fetch, FetchOptions)})
        check_types({"pacing": (self.pacing, PacingOptions), "pacer": (self.pacer, SharedPacer)})
        check_types({"session": (self.session, aiohttp.ClientSession)})
        if not isinstance(self.store, str | os.PathLike):
            _check_methods({"store": (self.store, "get put delete aclose")})
        _check_fleet(self.fleet)
        self._check_pace()
        if not isinstance(self.ledger, str | os.PathLike):
            _check_methods({"ledger": (self.ledger, "record record_file record_turn note aclose")})
        _check_methods({"fetcher": (self.fetcher, "fetch aclose"), "resolver": (self.resolver, "resolve")})
        _check_methods({"policy_tokens": (self.policy_tokens, "items"), "policies": (self.policies, "items")})
        _check_methods({"signer": (self.signer, "sign heeds")})
        _check_methods({"clock": (self.clock, "monotonic wall sleep call_later")})
        if self.fetcher is not None and (self.fetch is not None or self.session is not None):
            raise ConfigurationError(
                "fetcher= cannot be combined with fetch= or session=: they configure the built-in fetcher"
            )

    def _check_pace(self) -> None:
        scope = "" if self.pacing is None else self.pacing.scope
        if self.fleet is not None and scope == PER_PROCESS:
            raise ConfigurationError(
                f"fleet= and PacingOptions(scope={PER_PROCESS!r}) contradict each other: with that scope each process "
                "has a pace of its own. Leave the scope out"
            )
        if scope not in {"", PER_PROCESS}:
            raise ConfigurationError(
                f"PacingOptions(scope={scope!r}): only Scrapy's spiders share a pace by its name. Give the same "
                "pacer=SharedPacer(...) to each gate that is to share it"
            )
        if self.pacer is None:
            return
        if self.fleet is not None and self.fleet != self.pacer.fleet:
            raise ConfigurationError("fleet= and pacer=: give the fleet to the SharedPacer")
        if self.pacing is not None and (differing := different_options(self.pacing, self.pacer.options)):
            raise ConfigurationError(
                f"pacing= and pacer= may differ in min_delay_s alone, not in {differing}: all else is the pacer's"
            )
        if self.clock not in {None, self.pacer.clock} and run_of(self.clock) != run_of(self.pacer.clock):
            raise ConfigurationError("clock= and pacer=: a gate and its pacer must have the same clock")


def check_unknown(call: str, unknown: Iterable[str]) -> None:
    """Raise ConfigurationTypeError for the first argument that ``call`` does not have, and say where it belongs."""
    kinds = {"pacing": PacingOptions, "cache": CacheOptions, "fetch": FetchOptions, "fleet": FleetOptions}
    for name in unknown:
        hint = f"{call}() has no such argument"
        if hasattr(GatekeeperOptions, name):
            hint = f"give it to the gate, as in Gatekeeper(..., {name}=...)"
        for option, kind in kinds.items():
            if hasattr(kind, name):
                hint = f"it is one of the {kind.__name__}; write {call}(..., {option}={kind.__name__}({name}=...))"
        raise ConfigurationTypeError(f"{name}=: {hint}")


def assemble(options: GatekeeperOptions) -> GateState:
    """Build the parts of a gatekeeper.

    Raises:
        ConfigurationError: for invalid options.
    """
    identity, purposes = Identity.of(options.user_agent, options.token), checked_purposes(options.enforce_usage)
    policy_tokens = checked_policy_tokens(options.policy_tokens)
    shared, cache_options, fetch = options.pacer, options.cache or CacheOptions(), options.fetch or FetchOptions()
    clock = options.clock or (SystemClock() if shared is None else shared.clock)
    pacing = options.pacing or (PacingOptions() if shared is None else shared.options)
    publisher = Publisher(EventLog())
    policies: dict[str, HostPolicy] = {}
    resolver = SystemResolver() if options.resolver is None and pacing.is_scoped else options.resolver
    fetcher = options.fetcher or _fetcher(options, resolver)
    limit_s = fetch.total_timeout_s
    admission = Admission(clock, max_concurrent=cache_options.max_concurrent_fetches)
    policy = _policy(options, cache_options, fetcher)
    ledger = _ledger(options.ledger, clock)
    store, pacer = _store_and_pacer(options, pacing, resolver, clock, publisher)
    paced = PacedFetcher(
        fetcher,
        pacer,
        clock,
        admission,
        policy,
        publisher,
        policies if options.mode == "enforce" else {},
        total_timeout_s=limit_s,
        signer=options.signer,
    )
    reading, keeps_bodies = ReadingThreads(), ledger is not None or bool(purposes or policy_tokens)
    cache = RobotsCache(
        paced,
        policy,
        cache_options.max_entries_bytes,
        clock,
        publisher,
        None if store is None else StoredRecords(store, reading, publisher, limit_s, clock),
        keeps_bodies and store is None,
        dialect=options.dialect,
        reading=reading,
    )
    state = GateState(
        identity=identity,
        cache=cache,
        pacer=pacer,
        pacing=pacing,
        clock=clock,
        publisher=publisher,
        policies=policies,
        purposes=purposes,
        policy_tokens=policy_tokens,
        no_rules=no_rules(options.dialect),
        public_resolver=PublicResolver(resolver) if policy.private_addresses == "deny" else None,
        signer=options.signer,
        reports=options.mode == "report",
        ledger=ledger,
    )
    _with_files(state, fetcher, admission, cache_options)
    if ledger is not None:
        _record_files(state, ledger)
    return state


def _with_files(state: GateState, fetcher: Fetcher, admission: Admission, options: CacheOptions) -> None:
    """Add the caches of files that are requested like pages, in turns of this gate."""

    def files_for(agent: AgentView, max_days: int) -> SiteFiles:
        policy = options.file_policy(max_days)
        pages = PageFetcher(agent, fetcher, admission, state.publisher, state.signer, policy.outcomes.max_redirects)
        return SiteFiles(pages, policy, options.max_site_files_bytes, state.clock, state.publisher)

    # The agent that fetches tdmrep.json must not enforce usage: it would need tdmrep.json first.
    tdm_files = files_for(AgentView(state, state.identity, enforces=False), max_days=1)
    state.reservations = Reservations(tdm_files, state.cache.reading)
    state.files = files_for(AgentView(state, state.identity), max_days=7)


def _record_files(state: GateState, ledger: Ledger) -> None:
    """Let the ledger record each new copy, and publish the failures of the ledger."""
    gate, clock = ref(state), state.clock

    def report(error: StoreError) -> None:
        if (reached := gate()) is not None:
            soon(reached.loop, partial(reached.publisher.publish, ComponentFailed(None, "ledger", error)))

    def record(source: Source, body: bytes, headers: Mapping[str, str]) -> None:
        ledger.record_file(source, body, headers, clock.wall())

    def record_robots(source: Source, body: bytes, headers: Mapping[str, str]) -> None:
        record(source, body, headers)
        if source.result in _OPEN and (reached := gate()) is not None:
            for path in ledger.options.files:
                reached.files.ask_ahead(Origin.of(source.robots_url), path)

    ledger.report = report
    state.cache.kept = record_robots
    state.files.kept = state.reservations.files.kept = record


def _fetcher(options: GatekeeperOptions, resolver: Resolver | None) -> AiohttpFetcher:
    """Return the built-in fetcher. With a borrowed session, the fetcher uses the session's resolver by default."""
    own = resolver if options.session is None else options.resolver
    return AiohttpFetcher(options.user_agent, options.fetch, session=options.session, resolver=own)


def _store_and_pacer(
    options: GatekeeperOptions, pacing: PacingOptions, resolver: Resolver | None, clock: Clock, publisher: Publisher
) -> tuple[GuardedStore | None, GateShare]:
    """Return the store, or None without one, and the pacer.

    If the store outlives the process, and there is no fleet, the pacer keeps the states of hosts in the store.
    """
    shared, cache_options = options.pacer, options.cache or CacheOptions()
    fleet_given = options.fleet if shared is None else shared.fleet
    fleet = FleetOptions(fleet_given) if isinstance(fleet_given, str) else fleet_given
    if fleet is not None:
        wire_of(fleet)  # raises ConfigurationError before the store is opened
    store = _store(options.store, fleet, timeout_s=cache_options.store_timeout_s, clock=clock)
    lasting = store if store is not None and store.outlives else None
    if lasting is not None and lasting.leasing is not None and fleet is None and pacing.scope != PER_PROCESS:
        raise ConfigurationError(
            f"store={options.store!r}: several processes share it, and each would have a pace of its own: a site would "
            "meet them all at once. Give fleet= as well, or PacingOptions(scope='process') if that is intended"
        )
    memory = None if lasting is None else cache(partial(StoredHosts, store=lasting, clock=clock, publisher=publisher))

    def find() -> SharedPacer:
        return pacer_of_loop(pacing, fleet, options.resolver, clock) if shared is None else shared

    return store, GateShare(find, pacing, publisher, memory, resolver)


def _store(
    given: Store | str | os.PathLike[str] | None, fleet: FleetOptions | None, *, timeout_s: float, clock: Clock
) -> GuardedStore | None:
    """Return the store of records, by default the store of the fleet, or None."""
    store: Store
    if given is not None:
        store = store_at(given, clock=clock) if isinstance(given, str | os.PathLike) else given
    elif fleet is not None:
        from politesse.stores.redis import RedisStore  # noqa: PLC0415 - an extra

        store = RedisStore(fleet.url, prefix=fleet.prefix)
    else:
        return None
    return GuardedStore(store, timeout_s=timeout_s, clock=clock)


def _ledger(given: Ledger | str | os.PathLike[str] | None, clock: Clock) -> Ledger | None:
    if not isinstance(given, str | os.PathLike):
        return given
    from politesse.ledger import Ledger  # noqa: PLC0415 - loaded only if it is used

    return Ledger(given, clock=clock)


def _policy(options: GatekeeperOptions, cache: CacheOptions, fetcher: Fetcher) -> AccessPolicy:
    """Return the policy for the answers of a fetcher. A user's own fetcher may have no ``options``."""
    excuses_faults = bool(getattr(fetcher, "excuses_faults", False))
    policy = replace(cache.policy(options.dialect), user_agent=options.user_agent, excuses_faults=excuses_faults)
    fetch = getattr(fetcher, "options", None)
    if not isinstance(fetch, FetchOptions):
        return policy
    return replace(policy, max_body_bytes=fetch.max_body_bytes, private_addresses=fetch.private_addresses)


def _check_fleet(given: object) -> None:
    if given is not None and not isinstance(given, str | FleetOptions):
        wanted = "a URL, as 'redis://host:6379/0', or FleetOptions"  # the error omits the value, which may be a secret
        raise ConfigurationTypeError(f"fleet: give {wanted}, no {type_name(given)}")


def _check_methods(options: Mapping[str, tuple[object, str]]) -> None:
    for name, (value, wanted) in options.items():
        missing = [method for method in wanted.split() if not callable(getattr(value, method, None))]
        if value is not None and missing:
            raise wrong_type(name, value, f"an object with {', '.join(wanted.split())}; see politesse.ports")
