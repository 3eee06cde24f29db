"""Gatekeeper: the gate with all its parts, and the view of its own agent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Never, Self

from politesse._base.checks import AsyncOnly, check_types, checked_names, wrong_type
from politesse._cache.options import HostPolicy
from politesse._gate.assemble import GatekeeperOptions, Mode, assemble, check_unknown
from politesse._gate.hosts_known import held_longest
from politesse._gate.identity import Identity
from politesse._gate.view import AgentView
from politesse.origin import Origin, StrOrURL, paced_host
from politesse.robots import Dialect
from politesse.status import Statistics

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Mapping, Sequence

    import aiohttp

    from politesse._cache.options import CacheOptions
    from politesse._pacing.fleet.options import FleetOptions
    from politesse._pacing.pace import PacingOptions
    from politesse._pacing.shared import SharedPacer
    from politesse.clock import Clock
    from politesse.events import Event
    from politesse.fetch._options import FetchOptions
    from politesse.ledger import Ledger
    from politesse.ports import Fetcher, Resolver, Signer, Store


class Gatekeeper(AsyncOnly, AgentView):
    r"""An async cache of robots.txt files, and the gate that crawl workers ask before each request.

    A gatekeeper belongs to the event loop of its first use: in another one, the methods that ask about a site or set a
    policy raise WrongEventLoop. ``peek`` also works without an event loop. ``async with`` or ``aclose`` closes the
    gatekeeper.

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
        user_agent: the User-Agent of the crawler, sent with every request for robots.txt; send the same User-Agent with
            pages.
        token: the product token that chooses the groups of robots.txt, or several tokens, the most specific first. By
            default the first product of ``user_agent``.
        dialect: how robots.txt is read.
        cache: how long answers are used.
        fetch: how robots.txt is fetched.
        pacing: how fast hosts are requested.
        pacer: a SharedPacer, which gives its gates a pace apart from all others. ``pacing`` may then differ from the
            options of the pacer only in ``min_delay_s``, the shortest pause of this gate. By default, all gates of an
            event loop with the same clock, fleet and scopes (``key``, ``address``, ``domain``) share the pace of each
            host, and a closed gate leaves its pace to the later gates of the process. Each gate keeps its own
            ``min_delay_s``; of the other PacingOptions, the strictest value of the open gates counts.
        store: keeps the records: a Store, or the path of a file for a SqliteStore. The path may be a URL:
            ``"sqlite:///robots.db"`` is relative, and ``"sqlite:////var/lib/robots.db"`` is absolute. Without a store,
            the gate keeps only compiled rules. A store that outlives the process also keeps the last request, the
            closure and the backoff of each host. The gatekeeper closes the store. A LeasingStore, such as a RedisStore,
            needs a ``fleet``, because each process would otherwise have its own pace. To permit a pace for each
            process, set ``PacingOptions(scope="process")``.
        fleet: a Redis or Valkey: its URL, such as ``"redis://host:6379/0"``, or FleetOptions. All processes and
            machines with the same fleet behave as a single crawler. A fleet needs the extra ``redis``, and connects
            when it is first needed. Redis paces the requests of all processes together, and keeps the demands of hosts.
            While Redis is unavailable, no request starts. Redis is the store as well: each robots.txt is fetched once
            for all processes, and a process answers from its memory while Redis is unavailable. If you also give
            ``store``, Redis only sets the pace, and ``store`` keeps the records, for example in a file on each machine,
            or in a RedisStore on a server that may evict records.
        ledger: records each decision, each turn, and each copy of robots.txt: a Ledger, or the path of its file. The
            gatekeeper closes it. By default, nothing is recorded.
        session: an aiohttp session. The gate uses only the connector of the session, and does not close it.
        fetcher: fetches robots.txt instead of aiohttp; not together with ``fetch`` or ``session``.
        resolver: finds the addresses of hosts, for the fetcher and for pacing by address. With ``session``, the fetcher
            uses this resolver only to check redirects. The default is the resolver of the connector of ``session``, or
            of the system.
        clock: the clocks; by default the clocks of the system.
        mode: ``"enforce"`` or ``"report"``. In report mode, every verdict allows its URL. The reason of the verdict and
            the events state the denial that would apply. In both modes turns keep the pace, and sites with too slow a
            pace are refused. So are private addresses with ``FetchOptions(private_addresses="deny")``.
        enforce_usage: the purposes for which you use the content of sites, such as ``{"ai-train"}``: ``search``,
            ``ai-train``, ``ai-input``, ``tdm``. If a site disallows one of these purposes, the gate denies its pages.
            The gate reads the preferences in robots.txt. For ``tdm``, ``check`` also fetches
            ``/.well-known/tdmrep.json`` of each site, in a separate turn. Empty by default: preferences are only
            reported, in ``verdict.usage``.
        policy_tokens: the product token of each purpose, such as ``{"ai-train": "ExampleBot-Extended"}``. Sites allow
            or disallow the purpose in the groups of that token in robots.txt.
        signer: signs the requests for robots.txt, and the requests of the integrations, for example a WebBotAuth of
            ``politesse.signing``.
        policies: maps hosts to their HostPolicy, as ``set_policy`` sets them.

    Raises:
        ConfigurationError: for invalid options.
        InvalidURL: a key of ``policies`` is not the name or address of a host.
    """

    __slots__ = ()

    def __init__(  # noqa: PLR0913 - the options of the whole gate
        self,
        user_agent: str,
        *,
        token: str | Sequence[str] | None = None,
        dialect: Dialect = Dialect.RFC9309,
        cache: CacheOptions | None = None,
        fetch: FetchOptions | None = None,
        pacing: PacingOptions | None = None,
        pacer: SharedPacer | None = None,
        store: Store | str | os.PathLike[str] | None = None,
        fleet: FleetOptions | str | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        session: aiohttp.ClientSession | None = None,
        fetcher: Fetcher | None = None,
        resolver: Resolver | None = None,
        clock: Clock | None = None,
        mode: Mode = "enforce",
        enforce_usage: Collection[str] = (),
        policy_tokens: Mapping[str, str] | None = None,
        signer: Signer | None = None,
        policies: Mapping[str, HostPolicy] | None = None,
        **unknown: Never,
    ) -> None:
        check_unknown("Gatekeeper", unknown)
        options = GatekeeperOptions(
            user_agent=user_agent,
            token=token,
            dialect=dialect,
            cache=cache,
            fetch=fetch,
            pacing=pacing,
            pacer=pacer,
            store=store,
            fleet=fleet,
            ledger=ledger,
            session=session,
            fetcher=fetcher,
            resolver=resolver,
            clock=clock,
            mode=mode,
            enforce_usage=enforce_usage,
            policy_tokens=policy_tokens,
            signer=signer,
            policies=policies,
        )
        state = assemble(options)
        super().__init__(state, state.identity)
        for host, policy in (policies or {}).items():
            self.set_policy(host, policy)

    async def __aenter__(self) -> Self:
        self.state.check_usable()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End all fetches, and close the fetcher and the store. Waiting and later calls raise ClosedError.

        If the caller is cancelled, the gatekeeper still closes. If closing a part raises an error, the other parts are
        still closed, and then the error is raised. A second call waits for the first.

        Raises:
            WrongEventLoop: in another event loop than the gatekeeper's, unless the gatekeeper's loop is closed.
        """
        state = self.state
        if state.loop is not None and not state.loop.is_closed():  # a gate whose loop is closed may close in another
            state.check_loop()
        if state.ending is None:
            state.close()
            state.ending = asyncio.ensure_future(state.aclose())
        if not state.ending.done():
            await asyncio.shield(state.ending)  # if the caller is cancelled, the close goes on

    def agent(self, *, tokens: str | Sequence[str], user_agent: str | None = None) -> AgentView:
        """Return a view of this gatekeeper for other product tokens; all views share the cache.

        Make the views before the first check: without a store, a robots.txt that was read for fewer agents is fetched
        once more when another agent needs it.

        Args:
            tokens: the product token, or several tokens, the most specific first.
            user_agent: the User-Agent that this agent sends with page requests; the gatekeeper's own by default.
                Requests for robots.txt always send the gatekeeper's User-Agent.

        Raises:
            ConfigurationError: for an invalid token or User-Agent.
            ClosedError: if the gatekeeper is closed.
        """
        self.state.check_open()
        names = checked_names("tokens", tokens)
        self.state.cache.keep_bodies()  # the rules of each agent are then read from the body, without a new fetch
        return AgentView(self.state, Identity.of(user_agent or self.identity.user_agent, names))

    def set_policy(self, host: str, policy: HostPolicy | None) -> None:
        """Set the policy for ``host`` at all schemes and ports; None removes the policy.

        Raises:
            InvalidURL: if ``host`` is not the name or address of a host.
            ConfigurationError: if ``policy`` sets ``min_delay_s`` or ``max_concurrent``, but ``PacingOptions(key=...)``
                paces by address or domain.
            ClosedError: if the gatekeeper is closed.
        """
        self.state.check_usable()
        key = paced_host(host)
        check_types({"policy": (policy, HostPolicy)})
        state = self.state
        limits = (None, None) if policy is None else (policy.min_delay_s, policy.max_concurrent)
        state.pacer.set_limits(key, *limits)  # first, because it may refuse the policy
        if policy is None:
            state.policies.pop(key, None)
        else:
            state.policies[key] = policy

    async def forget(self, origin: Origin | StrOrURL) -> None:
        """Drop the cached files of an origin, or of the origin of a URL. The next check fetches them again.

        The demands of the host, such as a Retry-After, stay in force.

        Raises:
            InvalidURL: if ``origin`` is a str but not a URL.
            TypeError: if ``origin`` is neither an Origin nor a URL.
            ClosedError: if the gatekeeper is closed.
        """
        self.state.check_usable()
        origin = Origin.given(origin)
        self.state.files.forget(origin)
        self.state.reservations.files.forget(origin)
        await self.state.cache.forget(origin)

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``subscriber`` with every event, for example Decided, RobotsFetched, ComponentFailed.

        The call is synchronous, so ``subscriber`` must be quick. Errors of ``subscriber`` are logged.

        Returns:
            A function that ends the subscription.

        Raises:
            ConfigurationTypeError: if ``subscriber`` is not callable.
            ClosedError: if the gatekeeper is closed.
        """
        self.state.check_open()
        if not callable(subscriber):
            raise wrong_type("subscriber", subscriber, "a function")
        return self.state.publisher.subscribe(subscriber)

    def statistics(self) -> Statistics:
        """Return a snapshot of the counters. A closed gatekeeper still returns its counters."""
        state = self.state
        return Statistics(
            allowed=state.allowed,
            denied=dict(state.denied),
            fetches=state.cache.fetches,
            in_flight=len(state.cache.flights),
            origins=len(state.cache.entries),
            entries_bytes=state.cache.weight_bytes,
            waiting=state.pacer.waiting,
            turns=state.pacer.in_flight,
            recorded=0 if state.ledger is None else state.ledger.written,
            unrecorded=0 if state.ledger is None else state.ledger.dropped,
        )

    def __repr__(self) -> str:
        cache, mode = self.state.cache, "report" if self.state.reports else "enforce"
        known = f"{len(cache.entries)} origins known, {len(cache.flights)} being fetched"
        return f"<Gatekeeper {self.name} ({mode}): {known}{held_longest(self.state.pacer)}>"
