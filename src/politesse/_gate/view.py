"""The gate for one agent: AgentView.

``check`` answers "may I?", ``turn`` answers "may I, and when?", and ``peek`` answers what is known now. The plain way
of a question is in ``Agent``; ``AgentView.peek`` is the hot path, a shortcut of ``Agent.peek`` for the usual case: the
origin's key is the slice before the third slash, looked up in a dict whose keys were validated when they were put in,
and a target without special characters is matched as it is. What is unusual (another spelling of the origin, a host
policy, an expired entry, enforced usage preferences) takes the plain way.
"""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop
from collections.abc import AsyncIterable, Iterable
from logging import DEBUG
from typing import TYPE_CHECKING, Final, TypeVar

from yarl import URL

from politesse._checks import check_least, wrong_type
from politesse._gate.filtering import ItemFilter
from politesse._gate.hosts_known import hosts_known
from politesse._gate.judge import match_rules
from politesse._gate.tdm import AgentReservations, with_reserved
from politesse._gate.turn_context import TurnContext
from politesse._log import GATE
from politesse._pacing.turns import take_all_now, take_now
from politesse._sites.pages import DataTxtAnswer, Sitemaps, read_data_txt, read_sitemaps
from politesse._text import type_name
from politesse.errors import InvalidURL
from politesse.origin import Origin, StrOrURL, url_text
from politesse.robots.pattern import is_plain
from politesse.verdict import NotYet, Reason, Verdict, verdict_of_hit

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from politesse._gate.agent import Agent
    from politesse._gate.assemble import GateParts
    from politesse._gate.identity import Identity
    from politesse._pacing.held import Turn
    from politesse._sites.data_txt import FieldNames
    from politesse.status import HostStatus
    from politesse.usage.model import Usage

Item = TypeVar("Item")

_DISALLOW_RULE: Final = Reason.DISALLOW_RULE
_is_logged: Final = GATE.isEnabledFor  # for denials


class AgentView:
    r"""The gate for one agent: made by ``Gatekeeper.agent``; a Gatekeeper is the view of its own agent.

    Example:
        >>> import asyncio
        >>> from politesse import Gatekeeper
        >>> from politesse.testing import ScriptedFetcher
        >>> site = ScriptedFetcher({"https://example.com": "User-agent: ExampleBot-Image\nDisallow: /"})
        >>> async def ask():
        ...     async with Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)", fetcher=site) as gate:
        ...         images = gate.agent(tokens=["ExampleBot-Image", "ExampleBot"])
        ...         for view in gate, images:
        ...             print(bool(await view.check("https://example.com/cat.png")))
        >>> asyncio.run(ask())
        True
        False

    Args:
        parts: the parts of the gatekeeper.
        identity: the agent.

    Attributes:
        identity: the User-Agent and the product tokens to judge for.
    """

    __slots__ = (
        "_agent",
        "_at_once",
        "_monotonic",
        "_name",
        "_parts",
        "_policies",
        "_publisher",
        "_state",
        "_wall",
        "identity",
    )

    def __init__(self, parts: GateParts, identity: Identity) -> None:
        self.identity = identity
        self._parts = parts
        self._agent = parts.agent(identity)
        # Held here as well, because the hot path would pay for each step on the way to them.
        self._state = state = parts.state
        self._name = self._agent.name
        # Where usage preferences are enforced or policy tokens are read, everything takes the plain way.
        self._at_once = {} if parts.purposes or state.policy_tokens else state.cache.entries
        self._policies = state.policies
        self._publisher = state.publisher
        self._monotonic = state.clock.monotonic
        self._wall = state.clock.wall

    async def check(self, url: StrOrURL) -> Verdict:
        """Return the verdict on ``url``, fetching robots.txt first if need be. It waits for no turn of the page.

        With ``enforce_usage={"tdm"}``, an unknown tdmrep.json is fetched first, and that request waits for a turn of
        its own. Within a turn of the same host, of whatever scheme or port, waiting would deadlock: then the reason is
        USAGE_UNKNOWN, and the file is fetched in the background.

        Raises:
            InvalidURL: if ``url`` is no absolute http(s) URL.
            TypeError: if ``url`` is neither a str nor a yarl.URL.
            ClosedError: if the gatekeeper is closed.
            WrongEventLoop: if another event loop is running than the gatekeeper's.
        """
        verdict = self.peek(url)
        if verdict is None:
            verdict = self._agent.counted(await self._agent.fetched(url_text(url)))
        return verdict

    def peek(self, url: StrOrURL) -> Verdict | None:
        """Return the verdict on ``url`` if it is known now, else None. It waits for nothing.

        A copy near the end of its lifetime is refreshed in the background.

        Raises:
            InvalidURL: if ``url`` is no absolute http(s) URL.
            TypeError: if ``url`` is neither a str nor a yarl.URL.
            ClosedError: if the gatekeeper is closed.
            WrongEventLoop: if another event loop is running than the gatekeeper's.
        """
        text: str = url  # type: ignore[assignment] # what is none is found by the next step, which costs a str nothing
        try:
            place = text.find("/", 8)  # the third slash: behind "https://" and "http://" there is a host
        except (AttributeError, TypeError):
            return self.peek(url_text(url))
        if (
            place > 0
            and (entry := self._at_once.get(text[:place])) is not None
            and (not self._policies or entry.origin.pacing_host not in self._policies)
        ):
            if (grounds := entry.grounds).agent is self._name:
                rules = entry.deciding
            else:
                rules, grounds = entry.turn_to(self._name), entry.grounds
            now_mono, now_wall = self._monotonic(), self._wall()
            state = self._state
            loop = _get_running_loop()  # None where none is running: what is known may be reported all the same
            if (
                rules is not None
                and now_mono < entry.refresh_mono
                and now_wall < entry.refresh_wall
                and (loop is state.loop or loop is None)
            ):
                target = text[place:]
                if is_plain(target) is not None and "/." not in target:
                    match = rules.decide(target)
                else:
                    match = match_rules(text, target, rules)
                entry.used = True
                allowed = match.allowed
                heard: object = self._publisher.subscribers or match.bound_reached
                if allowed:
                    state.allowed += 1
                else:
                    heard = heard or _is_logged(DEBUG)
                    if match.reason is _DISALLOW_RULE:
                        state.disallowed += 1
                        allowed = state.reports
                    else:
                        allowed = state.count(match.reason)
                verdict = verdict_of_hit(text, allowed, match, grounds, now_mono, now_wall)
                if heard:
                    self._agent.publish_verdict(verdict)
                return verdict
        return self._agent.peek(text)

    async def check_batch(self, urls: Iterable[StrOrURL]) -> list[Verdict]:
        """Return the verdicts on ``urls`` in their order; the robots.txt files are fetched at the same time.

        What is no URL, of whatever type, gets a verdict with the reason INVALID_URL, so that the others are answered.

        Raises:
            TypeError: if ``urls`` is one URL, or not iterable.
            ClosedError: if the gatekeeper is closed.
        """
        _check_several("urls", urls, Iterable)
        self._state.check_usable()
        asked: list[StrOrURL] = list(urls)
        verdicts: dict[int, Verdict] = {}
        unknown: dict[Origin, list[int]] = {}
        for place, url in enumerate(asked):
            verdict = self._peek_or_invalid(url)
            if verdict is None:
                unknown.setdefault(Origin.of(url), []).append(place)
            else:
                verdicts[place] = verdict

        async def ask(places: list[int]) -> None:
            for place in places:
                verdicts[place] = await self.check(asked[place])

        await asyncio.gather(*(ask(places) for places in unknown.values()))
        return [verdicts[place] for place in range(len(asked))]

    def filter(
        self,
        source: Iterable[Item] | AsyncIterable[Item],
        *,
        key: Callable[[Item], StrOrURL] | None = None,
        max_pending: int = 10_000,
    ) -> AsyncGenerator[tuple[Item, Verdict], None]:
        """Yield every item of ``source`` with its verdict, each as soon as it is known, not in order.

        Args:
            source: an iterable or asynchronous iterable, endless ones included; read only as far as there is room.
            key: returns the URL of an item; without it the items are URLs. What it raises, ``filter`` raises.
            max_pending: how many items may wait for a robots.txt at once; positive.

        An item without a valid URL, of whatever type, comes with the reason INVALID_URL. If the source or ``key``
        raises, the items before are yielded first.

        Raises:
            TypeError: if ``source`` is one URL, or not iterable.
            ConfigurationError: if ``max_pending`` is not positive, or ``key`` not callable.
            ClosedError: if the gatekeeper is closed.
        """
        _check_several("source", source, Iterable, AsyncIterable)
        if key is not None and not callable(key):
            raise wrong_type("key", key, "a function that returns the URL of an item")
        self._state.check_usable()
        check_least("max_pending", max_pending, 1)
        when_closed = self._agent.when_closed
        return ItemFilter(self._peek_or_invalid, self.check, key, max_pending, when_closed).run(source)

    def turn(self, url: StrOrURL, *, max_wait_s: float | None = None, exempt: str | None = None) -> TurnContext:
        """Wait until one request to ``url`` may be made, and hold that turn while the block runs.

        It covers one hop: request without following redirects, and take the next turn after leaving this one. The
        pause to the next request counts from the end of the block, however it ends. Within the block, PoliteSession,
        PoliteTransport and RobotsMiddleware make the request to ``url`` in this turn, in child tasks as well, and end
        it with their response. They record the answer; for any other client call ``turn.observe``.

        Args:
            url: what to request.
            max_wait_s: how long to wait at the most, for robots.txt and for the turn; None for no limit.
            exempt: why this one is made without checking robots.txt, as in ``"by agreement"``; None where it is not.
                The pace is kept, and a policy that denies holds, all the same.

        Raises:
            Disallowed: if it may not be requested, even if that is found out after the wait.
            TooFar: if no turn comes within ``max_wait_s``; ``bound_by`` is ROBOTS_TXT if not even the verdict does.
            TurnHeld: at once, if this task holds a turn of the same host (``max_concurrent`` of them) already, or of
                its address or domain where those are paced.
            InvalidURL: if ``url`` is no absolute http(s) URL.
            TypeError: if ``url`` is neither a str nor a yarl.URL.
            ClosedError: if the gatekeeper is closed.
            ConfigurationError: for an exemption without a reason, and a ``max_wait_s`` that is no number or negative.
        """
        return TurnContext(self._agent, url, max_wait_s, exempt)

    async def take_turn(self, url: StrOrURL, *, max_wait_s: float | None = None, exempt: str | None = None) -> Turn:
        """Wait as ``turn`` does, for a turn that outlives a block; the caller has to end it.

        No task holds it before it is entered, so that one task can take turns for others. Raises what ``turn`` raises.
        """
        return await TurnContext(self._agent, url, max_wait_s, exempt).taken()

    def try_turn(self, url: StrOrURL) -> Turn | NotYet:
        """Return a turn if there is one now, else when there may be one. It waits for nothing.

        The robots.txt of an unknown origin is fetched in the background. A turn that is dropped before its end gives
        its host back with a ResourceWarning.

        Raises:
            Disallowed: if ``url`` may not be requested.
            InvalidURL: if ``url`` is no absolute http(s) URL.
            TypeError: if ``url`` is neither a str nor a yarl.URL.
            ClosedError: if the gatekeeper is closed.
        """
        self._state.check_usable()
        return take_now(self.peek, self._agent, url_text(url))

    async def try_turns(self, urls: Iterable[StrOrURL]) -> list[Turn | NotYet | Verdict]:
        """Return, in the order of ``urls``, a turn at each where there is one now; for many hosts at once.

        A URL without a turn has a NotYet, or, where ``try_turn`` raises, the verdict that denies it: its reason is
        INVALID_URL for what is no URL, of whatever type. So no URL costs another one its turn. Several URLs of one host
        get as many turns as may be under way there at once, the first ones first. What gets none is not waited for and
        holds nothing: ask again. The robots.txt of an unknown origin is fetched in the background.

        In one process it does not wait at all. A fleet is asked for all hosts in one round trip to its Redis, where
        ``try_turn`` would answer NotYet first. A caller that is cancelled during that trip loses no turn.

        Use each Turn with ``with``, or call its ``give_back()``: until then its host is kept from all others.

        Raises:
            TypeError: if ``urls`` is one URL, or not iterable.
            ClosedError: if the gatekeeper is closed.
            ConfigurationError: if the Redis of a fleet refuses this client.
        """
        _check_several("urls", urls, Iterable)
        self._state.check_usable()
        texts: dict[int, str] = {}
        invalid: dict[int, Turn | NotYet | Verdict] = {}
        for place, url in enumerate(urls):
            try:
                text = url_text(url)
                self._agent.checked_origin(text)
            except InvalidURL as error:
                invalid[place] = self._agent.invalid(error)
            except TypeError:
                invalid[place] = self._no_url(url)
            else:
                texts[place] = text
        answers = invalid | await take_all_now(self.peek, self._agent, texts)
        return [answers[place] for place in range(len(answers))]

    async def datatxt(self, origin: Origin | StrOrURL, *, fields: FieldNames | None = None) -> DataTxtAnswer:
        """Return what an origin says in its data.txt about its datasets.

        The file is fetched as a page is: only if robots.txt allows it, and in its turn, which may take as long as the
        pace of the host does. It is kept, and concurrent callers share one request, which bears the gatekeeper's own
        User-Agent; each hop of a redirect is checked and has a turn. What it says has no effect on any verdict.

        Args:
            origin: the origin, or a URL of it.
            fields: names for its fields; see ``DataTxt.parse``.

        Raises:
            InvalidURL: if ``origin`` is none.
            TurnHeld: at once, if it has to be fetched and this task holds the turn of its host.
            TypeError: if ``origin`` is neither an Origin nor a URL.
            ClosedError: if the gatekeeper is closed.
        """
        self._state.check_usable()
        reading = self._state.cache.reading
        return await read_data_txt(self._agent, self._parts.files, reading, Origin.given(origin), fields)

    async def sitemaps(self, origin: Origin | StrOrURL) -> Sitemaps:
        """Return the sitemaps that the robots.txt of an origin lists, fetching robots.txt first if need be.

        The origin is given as such or as a URL of it. Sitemaps are listed for every agent alike.

        Raises:
            InvalidURL: if ``origin`` is none.
            TypeError: if ``origin`` is neither an Origin nor a URL.
            ClosedError: if the gatekeeper is closed.
        """
        self._state.check_usable()
        origin = Origin.given(origin)
        verdict = self._agent.by_policy(origin.robots_url, origin)
        if verdict is not None and not verdict.allowed:
            return Sitemaps(verdict=verdict)
        cache = self._state.cache
        return await read_sitemaps(await cache.entry(origin, self._name), cache.reading, self._name)

    async def usage(self, url: StrOrURL) -> Usage | None:
        """Return what a site states about the use of a page in its robots.txt and its tdmrep.json.

        tdmrep.json is fetched as a page is; within a turn of the same host an unknown one cannot be waited for. Files
        that could not be read are reported in the statements. ``politesse.page.response_usage`` returns what the
        response of the page states, and ``politesse.usage.combine`` combines the two.

        Returns None if the page may not be requested.

        Raises:
            InvalidURL: if ``url`` is no absolute http(s) URL.
            TypeError: if ``url`` is neither a str nor a yarl.URL.
            ClosedError: if the gatekeeper is closed.
        """
        url = url_text(url)
        verdict = await self.check(url)
        if verdict.usage is None:
            return None
        reserved = await AgentReservations(self._agent, self._parts.reservations).learn(Origin.of(url))
        return with_reserved(verdict.site_usage, reserved).usage(url)

    def hosts(self) -> Mapping[str, HostStatus]:
        r"""Return what is known of each host: its pace, what waits, what holds it, and the robots.txt of its origins.

        The pace is that of all agents together; before the first turn at a host, what its robots.txt states for this
        one. It changes nothing, and takes time for each host that is known. A host is in it while its robots.txt is in
        memory, or while it is busy: a request waits or is under way, or its last one still sets a pace. Also when the
        gatekeeper is closed; then no robots.txt is known any more.

        Returns:
            By pacing host: the name without scheme and port; an address or a registered domain where those are paced.

        Example:
            >>> import asyncio
            >>> from politesse import Gatekeeper
            >>> from politesse.testing import ManualClock, ScriptedFetcher
            >>> site = ScriptedFetcher({"https://example.com": "User-agent: *\nCrawl-delay: 10"})
            >>> clock = ManualClock(autojump=True)  # no need to wait for the Crawl-delay here
            >>> async def show():
            ...     async with Gatekeeper("ExampleBot/1.0", fetcher=site, clock=clock) as gate:
            ...         async with gate.turn("https://example.com/page"):
            ...             for status in gate.hosts().values():
            ...                 print(status.interval_s, status.bound_by, status.held_by, status.robots[0].result)
            >>> asyncio.run(show())
            10.0 crawl-delay https://example.com/page successful
        """
        return hosts_known(self._state, self._name)

    def _peek_or_invalid(self, url: StrOrURL) -> Verdict | None:
        """Do as ``peek`` does, with a verdict of the reason INVALID_URL instead of the error."""
        try:
            return self.peek(url)
        except InvalidURL as error:
            return self._agent.invalid(error)
        except TypeError:
            given: object = url
            if isinstance(given, str | URL):
                raise
            return self._no_url(given)

    def _no_url(self, given: object) -> Verdict:
        """Return the verdict on what is neither a str nor a yarl.URL."""
        problem = f"is of type {type_name(given)}; give a str or yarl.URL"
        return self._agent.invalid(InvalidURL(f"{given!r:.200}", problem))


def _check_several(name: str, given: object, *kinds: type) -> None:
    """Raise TypeError unless ``given`` is of one of the iterable ``kinds``, and no single URL."""
    if isinstance(given, str | bytes) or not isinstance(given, kinds):
        raise TypeError(f"{name}={given!r:.100}: give an iterable of URLs, or use check for one")


def agent_of(view: AgentView) -> Agent:
    """Return the agent of a view: what queues and integrations need of the gate, and users do not."""
    return view._agent  # noqa: SLF001 - the one way from the public interface to the plumbing
