"""Gatekeeper: the gate with all its parts, and the view of its own agent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, Self

from politesse._checks import check_types, checked_names, wrong_type
from politesse._gate.assemble import GatekeeperOptions, assemble
from politesse._gate.host_policy import HostPolicy
from politesse._gate.hosts_known import held_longest
from politesse._gate.identity import Identity
from politesse._gate.view import AgentView
from politesse.errors import InvalidURL
from politesse.origin import Origin, StrOrURL, split
from politesse.robots import Dialect
from politesse.status import Statistics

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Mapping, Sequence
    from types import TracebackType

    import aiohttp

    from politesse._cache.options import CacheOptions
    from politesse._pacing.fleet.options import FleetOptions
    from politesse._pacing.pace import PacingOptions
    from politesse.clock import Clock
    from politesse.events import Event
    from politesse.fetch.options import FetchOptions
    from politesse.ports import Fetcher, Resolver, Store


class Gatekeeper(AgentView):
    r"""An async cache of robots.txt files, and the gate that crawl workers ask before each request.

    It belongs to the event loop in which it is used first: in another one every method raises WrongEventLoop. Where no
    event loop runs, ``peek`` answers what is known. ``async with`` or ``aclose`` closes it.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper
        >>> from politesse.testing import ScriptedFetcher
        >>> site = ScriptedFetcher({"https://example.com": "User-agent: *\nDisallow: /private"})
        >>> async def crawl():
        ...     async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=site) as gate:
        ...         verdict = await gate.check("https://example.com/private/diary")
        ...         print(verdict.allowed, verdict.rule)
        ...         async with gate.turn("https://example.com/") as turn:
        ...             turn.observe(200)
        >>> asyncio.run(crawl())
        False Disallow: /private

    Args:
        user_agent: the User-Agent of the crawler, sent with every robots.txt request; send the same with pages.
        token: the product token that chooses the groups, or several, the most specific first; else the first
            product of ``user_agent``.
        dialect: how robots.txt is read.
        cache: how long answers hold.
        fetch: how robots.txt is fetched.
        pacing: how fast hosts are requested.
        store: where records are kept: a Store; or the path of a file for a SqliteStore, also as
            ``"sqlite:///robots.db"``, relative, and ``"sqlite:////var/lib/robots.db"``, absolute. By default they are
            kept in the memory of this process, up to 64 MiB. A store that outlives the process also keeps what hosts
            have asked for: until when they are closed, and when each was last asked. It is closed with the gatekeeper.
            A store that processes share, as a RedisStore, needs a ``fleet``, because each process would have a pace of
            its own; ``PacingOptions(scope="process")`` says that this is intended.
        fleet: the Redis or Valkey by which all processes and machines that name it behave as one polite crawler: its
            URL, as ``"redis://host:6379/0"``, or FleetOptions. It needs the extra ``redis``, and connects when it is
            first needed. It paces the requests of all of them together, so nothing starts while it is away, and keeps
            what hosts have asked for. It is the store as well: each robots.txt is fetched once for all, and what is in
            the memory of a process is answered while it is away. With ``store`` it sets the pace only: records are kept
            there, as in a file of each machine, or in a RedisStore at a server that may evict them.
        session: an aiohttp session whose connector to borrow; nothing else of it is used.
        fetcher: fetches robots.txt instead of aiohttp; then neither ``fetch`` nor ``session`` may be given.
        resolver: finds the addresses of hosts, for the fetcher (with ``session``, which has its own, only of those
            that redirects lead to) and for pacing by address; that of the system by default.
        clock: the clocks; those of the system by default.
        mode: ``"enforce"``; or ``"report"``, in which every verdict allows, and reason and events report what
            would have been denied. Turns keep the pace all the same, and what is too slow for it is refused.
        enforce_usage: the purposes, as ``{"ai-train"}``, for which the content of a site is used, so that pages of
            sites which do not want that are denied: ``search``, ``ai-train``, ``ai-input``, ``tdm``. The preferences
            in robots.txt count; for ``tdm``, ``check`` also fetches ``/.well-known/tdmrep.json`` of each site, in a
            turn of its own. None by default: preferences are reported only, as ``verdict.usage``.
        policy_tokens: by purpose, the product token by which sites allow or disallow it in groups of robots.txt, as
            ``{"ai-train": "ExampleBot-Extended"}``.

    Raises:
        ConfigurationError: for invalid options.
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
        store: Store | str | os.PathLike[str] | None = None,
        fleet: FleetOptions | str | None = None,
        session: aiohttp.ClientSession | None = None,
        fetcher: Fetcher | None = None,
        resolver: Resolver | None = None,
        clock: Clock | None = None,
        mode: Literal["enforce", "report"] = "enforce",
        enforce_usage: Collection[str] = (),
        policy_tokens: Mapping[str, str] | None = None,
    ) -> None:
        options = GatekeeperOptions(
            user_agent=user_agent,
            token=token,
            dialect=dialect,
            cache=cache,
            fetch=fetch,
            pacing=pacing,
            store=store,
            fleet=fleet,
            session=session,
            fetcher=fetcher,
            resolver=resolver,
            clock=clock,
            mode=mode,
            enforce_usage=enforce_usage,
            policy_tokens=policy_tokens,
        )
        parts = assemble(options)
        super().__init__(parts, parts.identity)
        self._mode = mode
        self._closing: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        self._state.check_usable()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End all fetches, and close the fetcher and the store. Pending and later calls raise ClosedError.

        Cancelling the caller does not stop it. If a part raises, all others are closed, and then the error is raised.
        Calling it again waits for the same end.

        Raises:
            WrongEventLoop: in another event loop than its own, unless its own is closed.
        """
        state = self._state
        if state.loop is not None and not state.loop.is_closed():
            state.check_loop()
        if self._closing is None:
            state.close()
            self._closing = asyncio.ensure_future(self._parts.aclose())
        if not self._closing.done():
            await asyncio.shield(self._closing)

    def agent(self, *, tokens: str | Sequence[str], user_agent: str | None = None) -> AgentView:
        """Return a view that judges for other product tokens, the most specific first, over the same cache.

        Args:
            tokens: see ``token`` of Gatekeeper.
            user_agent: the User-Agent that this agent sends with page requests; the gatekeeper's own by default.
                robots.txt is always fetched with the gatekeeper's.

        Raises:
            ConfigurationError: for an invalid token or User-Agent.
            ClosedError: if the gatekeeper is closed.
        """
        self._state.check_open()
        names = checked_names("tokens", tokens)
        return AgentView(self._parts, Identity.of(user_agent or self.identity.user_agent, names))

    def set_policy(self, host: str, policy: HostPolicy | None) -> None:
        """Set the policy for ``host``, all its schemes and ports; None removes it.

        Raises:
            InvalidURL: if ``host`` is no host.
            ConfigurationError: for ``min_delay_s`` or ``max_concurrent`` of one host where ``PacingOptions(key=...)``
                paces by address or domain.
            ClosedError: if the gatekeeper is closed.
        """
        self._state.check_usable()
        check_types({"host": (host, str)}, required=True)
        check_types({"policy": (policy, HostPolicy)})
        origin, _ = split(f"https://{host}")
        if any(character in host for character in "/?#@") or (":" in host and not host.startswith("[")):
            raise InvalidURL(host, "is not a bare host; give it as in 'partner.example' or '[2001:db8::1]'")
        state = self._state
        limits = (None, None) if policy is None else (policy.min_delay_s, policy.max_concurrent)
        state.pacer.set_limits(origin.pacing_host, *limits)
        if policy is None:
            state.policies.pop(origin.pacing_host, None)
        else:
            state.policies[origin.pacing_host] = policy

    async def forget(self, origin: Origin | StrOrURL) -> None:
        """Drop what is known about an origin, given as such or as a URL of it: the next check fetches it again.

        What its host has asked for, as a Retry-After, holds on.

        Raises:
            InvalidURL: if ``origin`` is none.
            TypeError: if ``origin`` is neither an Origin nor a URL.
            ClosedError: if the gatekeeper is closed.
        """
        self._state.check_usable()
        origin = Origin.given(origin)
        self._parts.files.forget(origin)
        self._parts.tdm_files.forget(origin)
        await self._state.cache.forget(origin)

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``subscriber`` with every event, as Decided, RobotsFetched, ComponentFailed.

        It is called synchronously, so it must be quick. What it raises is logged.

        Returns:
            A function that ends the subscription.

        Raises:
            ConfigurationTypeError: if ``subscriber`` is not callable.
            ClosedError: if the gatekeeper is closed.
        """
        self._state.check_open()
        if not callable(subscriber):
            raise wrong_type("subscriber", subscriber, "a function")
        return self._state.publisher.subscribe(subscriber)

    def statistics(self) -> Statistics:
        """Return a snapshot of the counters; also when the gatekeeper is closed."""
        state = self._state
        return Statistics(
            allowed=state.allowed,
            denied=state.denials(),
            fetches=state.cache.fetches,
            in_flight=state.cache.in_flight,
            origins=len(state.cache.entries),
            entries_bytes=state.cache.weight_bytes,
            waiting=state.pacer.waiting,
            turns=state.pacer.in_flight,
        )

    def __repr__(self) -> str:
        cache = self._state.cache
        asked = f"{len(cache.entries)} origins known, {cache.in_flight} being fetched"
        return f"<Gatekeeper {self._name} ({self._mode}): {asked}{held_longest(self._state.pacer)}>"
