"""The gatekeeper: one cache, one pacer, and the gate that all workers of a crawler ask before each request."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self, TypeVar

import aiohttp

from politesse._cache.admission import Admission
from politesse._cache.files import SiteFiles
from politesse._cache.options import CacheOptions
from politesse._cache.robots import RobotsCache
from politesse._cache.robots_fetcher import PacedFetcher
from politesse._constants import DAY_S
from politesse._gate.agent import AgentView
from politesse._gate.enforcement import Enforcement
from politesse._gate.host_policy import HostPolicy
from politesse._gate.identity import Identity
from politesse._gate.policy_tokens import PolicyTokens
from politesse._gate.state import Shared
from politesse._pacing.pace import PACES_HELD, PacingOptions
from politesse._pacing.sharing import pacer_for
from politesse._sites.pages import PageFetcher
from politesse._sites.reservations import TDMREP_JSON, Reservations
from politesse.clock import SystemClock
from politesse.errors import ConfigurationError, InvalidURL
from politesse.events import Event, Publisher
from politesse.fetch.addresses import SystemResolver
from politesse.fetch.aiohttp import AiohttpFetcher, FetchOptions
from politesse.origin import Origin, split
from politesse.robots import Dialect
from politesse.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from types import TracebackType

    from politesse.clock import Clock
    from politesse.ports import Fetcher, Resolver, Store
    from politesse.verdict import Reason

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a gatekeeper has done so far, all its views together.

    Attributes:
        allowed: how many verdicts allowed.
        denied: how many denied, by reason; in report mode those that would have.
        fetches: how often robots.txt was asked for.
        in_flight: how many origins are being asked now.
        origins: of how many something is known now.
        entries_bytes: about how much memory that takes.
        waiting: how many wait for a turn now.
        turns: how many turns are under way now.
    """

    allowed: int
    denied: Mapping[Reason, int]
    fetches: int
    in_flight: int
    origins: int
    entries_bytes: int
    waiting: int
    turns: int

    @property
    def decisions(self) -> int:
        """How many verdicts there were."""
        return self.allowed + sum(self.denied.values())


class Gatekeeper(AgentView):
    """An async cache of robots.txt files, and the gate that crawl workers ask before each request.

    It belongs to the event loop in which it is used first: in another one every method raises WrongEventLoop. Where no
    event loop runs, ``peek`` answers what is known. It is closed by ``async with`` or ``aclose``.

    Args:
        user_agent: the User-Agent of the crawler, sent with every robots.txt request; send the same with pages.
        token: the product token that chooses the groups, or several, the most specific first; else the first
            product of ``user_agent``.
        dialect: the reading of robots.txt.
        cache: how long answers hold.
        fetch: how robots.txt is fetched.
        pacing: how slow is polite.
        store: where records are kept; a MemoryStore unless given. Closed with the gatekeeper.
        session: an aiohttp session whose connector to borrow; nothing else of it is used.
        fetcher: asks for robots.txt instead of aiohttp; then neither ``fetch`` nor ``session`` may be given.
        resolver: finds the addresses of hosts, for the fetcher (with ``session``, which has its own, only of those
            that redirects lead to) and for pacing by address; that of the system unless given.
        clock: the clocks.
        mode: ``"enforce"``; or ``"report"``, in which every verdict allows, and reason and events tell what
            would have been denied.
        enforce_usage: the purposes, as ``{"ai-train"}``, for which the content of a site is used, so that pages of
            sites which do not want that are denied: ``search``, ``ai-train``, ``ai-input``, ``tdm``. What robots.txt
            states is heeded; for ``tdm`` each site's ``/.well-known/tdmrep.json`` is asked for, too, in its turn, which
            ``check`` waits for. None unless given: then preferences are only reported, as ``verdict.usage``.
        policy_tokens: by purpose, the product token by which sites allow or disallow it in groups of robots.txt, as
            ``{"ai-train": "ExampleBot-Extended"}``.

    Raises:
        ConfigurationError: for options that cannot be meant.
    """

    __slots__ = ("_closing", "_mode")

    def __init__(  # noqa: PLR0913 - the options of the whole gate
        self,
        user_agent: str,
        *,
        token: str | Sequence[str] | None = None,
        dialect: Dialect = Dialect.RFC9309,
        cache: CacheOptions | None = None,
        fetch: FetchOptions | None = None,
        pacing: PacingOptions | None = None,
        store: Store | None = None,
        session: aiohttp.ClientSession | None = None,
        fetcher: Fetcher | None = None,
        resolver: Resolver | None = None,
        clock: Clock | None = None,
        mode: Literal["enforce", "report"] = "enforce",
        enforce_usage: Collection[str] = (),
        policy_tokens: Mapping[str, str] | None = None,
    ) -> None:
        _check_types({"user_agent": (user_agent, str)}, required=True)
        identity = Identity.of(user_agent, token)
        if mode not in {"enforce", "report"}:
            raise ConfigurationError(f"mode={mode!r}: give 'enforce' or 'report'")
        _check_types({"dialect": (dialect, Dialect), "cache": (cache, CacheOptions), "fetch": (fetch, FetchOptions)})
        _check_types({"pacing": (pacing, PacingOptions), "session": (session, aiohttp.ClientSession)})
        _check_methods({"store": (store, "get put delete aclose"), "fetcher": (fetcher, "fetch aclose")})
        _check_methods({"resolver": (resolver, "resolve"), "policy_tokens": (policy_tokens, "items")})
        if fetcher is not None and (fetch is not None or session is not None):
            raise ConfigurationError("fetcher= replaces the fetcher that fetch= and session= are options of")
        clock = clock or SystemClock()
        publisher = Publisher()
        pacing = pacing or PacingOptions()
        if pacing.is_scoped:
            resolver = resolver or SystemResolver()
        pacer = pacer_for(pacing, clock=clock, publisher=publisher, resolver=resolver)
        options = _for_pace(cache or CacheOptions(), pacing)
        fetcher = fetcher or AiohttpFetcher(user_agent, fetch, session=session, resolver=resolver)
        admission = Admission(clock, max_concurrent=options.max_concurrent_fetches)
        total_timeout_s = (fetch or FetchOptions()).total_timeout_s
        robots_cache = RobotsCache(
            PacedFetcher(fetcher, pacer, clock, admission=admission, total_timeout_s=total_timeout_s),
            store if store is not None else MemoryStore(),
            dialect=dialect,
            options=options,
            clock=clock,
            publisher=publisher,
        )
        shared = Shared(
            robots_cache,
            pacer,
            pacing,
            clock,
            publisher,
            agent=identity.agent,
            reports=mode == "report",
            enforcement=Enforcement(enforce_usage) if enforce_usage else None,
            policy_tokens=PolicyTokens(policy_tokens) if policy_tokens else None,
        )
        pages = PageFetcher(
            self,
            fetcher,
            pacer,
            clock,
            publisher=publisher,
            admission=admission,
            # Wherever it redirects to: what is read to learn what may be used cannot wait for itself.
            gates={TDMREP_JSON: AgentView(shared, identity, enforces=False)},
        )
        shared.files = SiteFiles(pages, options=options, clock=clock, publisher=publisher, daily={TDMREP_JSON})
        shared.reservations = Reservations(shared.files, robots_cache.reading)
        super().__init__(shared, identity)
        self._mode = mode
        self._closing: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        self._shared.check_usable()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End all fetches, close fetcher and store. Pending and later calls raise ClosedError.

        A caller that is cancelled does not stop it, nor does a part that raises: all others are closed, and then the
        error is raised. Calling it again waits for the same end. Raises WrongEventLoop in another event loop than its
        own, unless that one is closed.
        """
        shared = self._shared
        if shared.loop is not None and not shared.loop.is_closed():
            shared.check_loop()
        if self._closing is None:
            shared.tell_closed()
            self._closing = asyncio.ensure_future(self._close())
        if not self._closing.done():
            await asyncio.shield(self._closing)

    async def _close(self) -> None:
        shared = self._shared
        async with AsyncExitStack() as closing:  # the last one first, whatever the ones before raise
            for part in (shared.cache, shared.files, shared.reservations):
                closing.push_async_callback(part.aclose)
            await shared.pacer.aclose()  # before anything is waited for: meanwhile no turn is granted

    def agent(self, *, tokens: str | Sequence[str], user_agent: str | None = None) -> AgentView:
        """Return a view that judges for other product tokens, the most specific first, over the same cache.

        Args:
            tokens: see ``token`` of Gatekeeper.
            user_agent: what that agent sends with its pages; the gatekeeper's own unless given. robots.txt is
                still asked for with the gatekeeper's.

        Raises ConfigurationError, ClosedError.
        """
        self._shared.check_open()
        return AgentView(self._shared, Identity.of(user_agent or self.identity.user_agent, tokens))

    def set_policy(self, host: str, policy: HostPolicy | None) -> None:
        """Settle ``host``, all its schemes and ports, by a policy from now on; None for robots.txt again.

        Raises InvalidURL if ``host`` is no host, ConfigurationError for a pace of its own where hosts are not what is
        paced, and ClosedError.
        """
        self._shared.check_usable()
        _check_types({"host": (host, str), "policy": (policy, HostPolicy)})
        origin, _ = split(f"https://{host}")
        if any(character in host for character in "/?#@") or (":" in host and not host.startswith("[")):
            raise InvalidURL(host, "is not a bare host; give it as in 'partner.example' or '[2001:db8::1]'")
        shared = self._shared
        limits = (None, None) if policy is None else (policy.min_delay_s, policy.max_concurrent)
        shared.pacer.set_limits(origin.pacing_host, *limits)
        if policy is None:
            shared.policies.pop(origin.pacing_host, None)
        else:
            shared.policies[origin.pacing_host] = policy

    async def forget(self, origin: Origin | str) -> None:
        """Drop what is known about an origin, given as such or as an URL of it: the next question asks again.

        Raises InvalidURL, ClosedError.
        """
        self._shared.check_usable()
        origin = Origin.given(origin)
        self._shared.files.forget(origin)
        await self._shared.cache.forget(origin)

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``subscriber`` with every event, as Decided, RobotsFetched, ComponentFailed. Returns what ends it.

        It is called in the midst of the work, so it must be quick. What it raises is logged. Raises ConfigurationError
        for what cannot be called, and ClosedError.
        """
        self._shared.check_open()
        if not callable(subscriber):
            raise ConfigurationError(f"subscriber={subscriber!r:.100}: give a function")
        return self._shared.publisher.subscribe(subscriber)

    def statistics(self) -> Statistics:
        """Return what was done so far; also of a gatekeeper that was closed."""
        shared = self._shared
        return Statistics(
            allowed=shared.allowed,
            denied=shared.denials(),
            fetches=shared.cache.fetches,
            in_flight=shared.cache.in_flight,
            origins=len(shared.cache.entries),
            entries_bytes=shared.cache.weight_bytes,
            waiting=shared.pacer.waiting,
            turns=shared.pacer.in_flight,
        )

    def __repr__(self) -> str:
        cache = self._shared.cache
        asked = f"{len(cache.entries)} origins known, {cache.in_flight} being asked"
        return f"<Gatekeeper {self._agent} ({self._mode}): {asked}>"


def _for_pace(options: CacheOptions, pacing: PacingOptions) -> CacheOptions:
    """Return options by which answers hold at least until a turn at our own pace can come."""
    least_s = min(PACES_HELD * pacing.min_delay_s, DAY_S)
    return replace(options, min_lifetime_s=max(options.min_lifetime_s, least_s))


def _check_types(options: Mapping[str, tuple[object, type]], *, required: bool = False) -> None:
    for name, (value, wanted) in options.items():
        if (value is not None or required) and not isinstance(value, wanted):
            raise ConfigurationError(f"{name}={value!r:.100}: give a {wanted.__name__}")


def _check_methods(options: Mapping[str, tuple[object, str]]) -> None:
    for name, (value, wanted) in options.items():
        missing = [method for method in wanted.split() if not callable(getattr(value, method, None))]
        if value is not None and missing:
            raise ConfigurationError(f"{name}={value!r:.100}: it has no {', '.join(missing)}; see politesse.ports")
