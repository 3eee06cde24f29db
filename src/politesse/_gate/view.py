"""The gate for one agent, with the methods for users: AgentView.

``check`` answers "may I?", ``turn`` answers "may I, and when?", and ``peek`` answers from the cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from yarl import URL

from politesse._base.checks import check_least, wrong_type
from politesse._base.text import type_name
from politesse._gate.agent import Agent
from politesse._gate.data_txt import DATA_TXT
from politesse._gate.filtering import ItemFilter
from politesse._gate.hosts_known import hosts_known
from politesse._gate.judge import settle
from politesse._gate.pages import DataTxtAnswer, Sitemaps, read_data_txt, read_sitemaps
from politesse._gate.turns import TurnWait, granted, try_turn, try_turns
from politesse._gate.usage import AgentUsage, with_reserved
from politesse.errors import InvalidURL
from politesse.origin import Origin, StrOrURL, url_text

if TYPE_CHECKING:
    from politesse._gate.data_txt import FieldNames
    from politesse._gate.identity import Identity
    from politesse._gate.state import GateState
    from politesse._gate.turn import Turn
    from politesse.status import HostStatus
    from politesse.usage.model import Usage
    from politesse.verdict import NotYet, Verdict

Item = TypeVar("Item")


class AgentView(Agent):
    r"""The gate for one agent. ``Gatekeeper.agent`` makes a view; a Gatekeeper is itself the view of its own agent.

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

    Attributes:
        identity: the User-Agent and the product tokens to judge for.
    """

    __slots__ = ("_usage",)

    def __init__(self, state: GateState, identity: Identity) -> None:
        self._usage = AgentUsage(Agent(state, identity))
        super().__init__(state, identity, self._usage if state.purposes else None)

    async def check(self, url: StrOrURL) -> Verdict:
        """Return the verdict on ``url``; fetch robots.txt first if necessary. Takes no turn.

        With ``enforce_usage={"tdm"}``, an unknown tdmrep.json is fetched first, and that request waits for its own
        turn. Within a turn of the same host (at any scheme or port), this wait would deadlock. In that case the reason
        is USAGE_UNKNOWN, and the file is fetched in the background.

        Raises:
            InvalidURL: if ``url`` is not an absolute http(s) URL.
            TypeError: if ``url`` is neither a str nor a yarl.URL.
            ClosedError: if the gatekeeper is closed.
            WrongEventLoop: if another event loop is running than the gatekeeper's.
        """
        return self.counted(await self.learn(url_text(url)))

    def peek(self, url: StrOrURL) -> Verdict | None:
        """Return the verdict on ``url`` from the cache, or None. Never waits.

        A copy near the end of its lifetime is refreshed in the background.

        Raises:
            InvalidURL: if ``url`` is not an absolute http(s) URL.
            TypeError: if ``url`` is neither a str nor a yarl.URL.
            ClosedError: if the gatekeeper is closed.
            WrongEventLoop: if another event loop is running than the gatekeeper's.
        """
        verdict = self.judged(url_text(url))
        return None if verdict is None else self.counted(verdict)

    async def check_batch(self, urls: Iterable[StrOrURL]) -> list[Verdict]:
        """Return the verdicts on ``urls`` in their order; the robots.txt files are fetched at the same time.

        Any value that is not a URL gets a verdict with the reason INVALID_URL, and the other URLs are still checked.

        Raises:
            TypeError: if ``urls`` is one URL, or not iterable.
            ClosedError: if the gatekeeper is closed.
        """
        _check_several("urls", urls, Iterable)
        self.state.check_usable()
        asked: list[StrOrURL] = list(urls)
        verdicts = [self.peek_or_invalid(url) for url in asked]

        async def check(place: int) -> None:
            verdicts[place] = await self.check(asked[place])

        await asyncio.gather(*(check(place) for place, verdict in enumerate(verdicts) if verdict is None))
        return [verdict for verdict in verdicts if verdict is not None]

    def filter(
        self,
        source: Iterable[Item] | AsyncIterable[Item],
        *,
        key: Callable[[Item], StrOrURL] | None = None,
        max_pending: int = 10_000,
    ) -> AsyncGenerator[tuple[Item, Verdict], None]:
        """Yield every item of ``source`` with its verdict, as soon as its robots.txt is known. The order changes.

        Args:
            source: an iterable or asynchronous iterable, which may be endless; an item is read only when there is room
                for it.
            key: returns the URL of an item; without ``key`` the items are URLs. ``filter`` raises the errors of
                ``key``.
            max_pending: how many items may wait for a robots.txt at once; positive.

        An item whose URL is invalid, or neither a str nor a yarl.URL, gets a verdict with the reason INVALID_URL. If
        the source or ``key`` raises an error, the earlier items are yielded first.

        Raises:
            TypeError: if ``source`` is one URL, or not iterable.
            ConfigurationError: if ``max_pending`` is not positive, or if ``key`` is not callable.
            ClosedError: if the gatekeeper is closed.
        """
        _check_several("source", source, Iterable, AsyncIterable)
        if key is not None and not callable(key):
            raise wrong_type("key", key, "a function that returns the URL of an item")
        self.state.check_usable()
        check_least("max_pending", max_pending, 1)
        return ItemFilter(self, key, max_pending).run(source)

    def turn(self, url: StrOrURL, *, max_wait_s: float | None = None, exempt: str | None = None) -> TurnWait:
        """Wait until one request to ``url`` may be made, and hold that turn while the block runs.

        A turn covers one hop: make a request that follows no redirects, and take the next turn after leaving this turn.
        The pause before the next request counts from the end of the block, even after an error. Within the block,
        PoliteSession, PoliteTransport and RobotsMiddleware make the request to ``url`` in this turn, in child tasks as
        well. The end of the response ends the turn. These clients record the answer; with any other client, call
        ``turn.observe``.

        Args:
            url: the URL to request.
            max_wait_s: the longest wait in seconds, for robots.txt and for the turn, or None for no limit.
            exempt: the reason not to check robots.txt for this request, such as ``"by agreement"``, or None to check
                it. The pace still applies, and a host policy may still deny ``url``.

        Raises:
            Disallowed: if the check before or after the wait denies ``url``.
            TooFar: if no turn starts within ``max_wait_s``; ``bound_by`` is ROBOTS_TXT if the fetch of robots.txt alone
                takes longer than that.
            TurnHeld: at once, if this task already holds the turn of the same host (with ``max_concurrent``, all its
                turns). If addresses or domains are paced, the same applies to the address or domain of the host.
            InvalidURL: if ``url`` is not an absolute http(s) URL.
            TypeError: if ``url`` is neither a str nor a yarl.URL.
            ClosedError: if the gatekeeper is closed.
            ConfigurationError: if an exemption has no reason, or if ``max_wait_s`` is negative or not a number.
        """
        return TurnWait(self, url, max_wait_s, exempt)

    async def take_turn(self, url: StrOrURL, *, max_wait_s: float | None = None, exempt: str | None = None) -> Turn:
        """Wait for a turn that is not bound to a block, and return it; the caller has to end the turn.

        The turn belongs to no task until a task enters it with ``with``, so a task can take turns for other tasks. The
        arguments and the errors are the same as for ``turn``.
        """
        return await TurnWait(self, url, max_wait_s, exempt).take()

    def try_turn(self, url: StrOrURL) -> Turn | NotYet:
        """Return a turn if the host grants a turn now, else NotYet, with the time to ask again. Never waits.

        In a fleet this method returns NotYet (``Bound.FLEET``): only ``turn`` and ``try_turns`` can ask the Redis of
        the fleet. The robots.txt of an unknown origin is fetched in the background. If a turn is garbage-collected
        before its end, its host becomes free, and a ResourceWarning is issued.

        Raises:
            Disallowed: if ``url`` may not be requested.
            InvalidURL: if ``url`` is not an absolute http(s) URL.
            TypeError: if ``url`` is neither a str nor a yarl.URL.
            ClosedError: if the gatekeeper is closed.
        """
        text = url_text(url)
        answer = try_turn(self, text, self.peek(text))
        granted(self, answer)
        return answer

    async def try_turns(self, urls: Iterable[StrOrURL]) -> list[Turn | NotYet | Verdict]:
        """Return an answer for each URL, in order: a turn if the URL may be requested now.

        One call asks for many hosts at once. A URL without a turn gets a NotYet, or the verdict that denies it. Any
        value that is not a URL gets a verdict with the reason INVALID_URL, and the other URLs still get their turns. If
        several URLs have the same host, the host grants its free turns to the first of these URLs. A URL without a turn
        keeps no place in line: ask again. The robots.txt of an unknown origin is fetched in the background.

        In one process the call does not wait at all. A fleet asks its Redis for all hosts together. If the caller is
        cancelled during this call, no turn is lost.

        Use each Turn with ``with``, or call its ``give_back()``: until it ends, the turn occupies its host.

        Raises:
            TypeError: if ``urls`` is one URL, or not iterable.
            ClosedError: if the gatekeeper is closed.
            ConfigurationError: if the Redis of a fleet refuses this client.
        """
        _check_several("urls", urls, Iterable)
        self.state.check_usable()
        answers = await try_turns(self, [(str(url), self.peek_or_invalid(url)) for url in urls])
        granted(self, *answers)
        return answers

    async def datatxt(self, origin: Origin | StrOrURL, *, fields: FieldNames | None = None) -> DataTxtAnswer:
        """Return the data.txt of an origin, which describes its datasets.

        The file is fetched like a page: robots.txt has to allow it, and the fetch waits for a turn of the host. Each
        hop of a redirect is checked and has a turn. The file is cached, and concurrent callers share one request. The
        request has the gatekeeper's own User-Agent. The content of the file has no effect on any verdict.

        Args:
            origin: the origin, or a URL at this origin.
            fields: new names for the fields of the file; see ``DataTxt.parse``.

        Raises:
            InvalidURL: if ``origin`` is a str but not a URL.
            TurnHeld: at once, if the file has to be fetched and this task holds the turn of its host.
            TypeError: if ``origin`` is neither an Origin nor a URL.
            ClosedError: if the gatekeeper is closed.
        """
        self.state.check_usable()
        file = await self.site_file(self.state.files, Origin.given(origin), DATA_TXT)
        return await read_data_txt(file, self.state.cache.reading, fields)

    async def sitemaps(self, origin: Origin | StrOrURL) -> Sitemaps:
        """Return the sitemaps that the robots.txt of an origin lists; fetch robots.txt first if necessary.

        ``origin`` may be a URL at the origin. The list is the same for every agent.

        Raises:
            InvalidURL: if ``origin`` is a str but not a URL.
            TypeError: if ``origin`` is neither an Origin nor a URL.
            ClosedError: if the gatekeeper is closed.
        """
        self.state.check_usable()
        origin = Origin.given(origin)
        policy = self.state.policy(origin)
        settled = None if policy is None else settle(policy)
        verdict = None if settled is None else self.counted(self._made(origin.robots_url, settled))
        if verdict is not None and not verdict.allowed:
            return Sitemaps(verdict=verdict)
        cache = self.state.cache
        return await read_sitemaps(await cache.entry(origin, self.name), cache.reading, self.name)

    async def usage(self, url: StrOrURL) -> Usage | None:
        """Return the statements of robots.txt and tdmrep.json about the use of a page.

        tdmrep.json is fetched like a page. If the caller holds a turn of the same host, the call does not wait for an
        unknown tdmrep.json. The result names the files that could not be read. ``politesse.page.response_usage`` reads
        the response of the page, and ``politesse.usage.combine`` combines both results.

        Returns None if the page may not be requested.

        Raises:
            InvalidURL: if ``url`` is not an absolute http(s) URL.
            TypeError: if ``url`` is neither a str nor a yarl.URL.
            ClosedError: if the gatekeeper is closed.
        """
        url = url_text(url)
        verdict = await self.check(url)
        if verdict.usage is None:
            return None
        reserved = await self._usage.reserved(Origin.of(url))
        return with_reserved(verdict.site_usage, reserved).usage(url)

    def hosts(self) -> Mapping[str, HostStatus]:
        r"""Return the status of each host: its pace, its waiters, its holder, and the robots.txt of its origins.

        The pace is the common pace of all agents; before the first turn at a host, it is the pace that robots.txt
        states for this agent. The call changes nothing, and takes longer with more hosts. A host is listed while its
        robots.txt is in memory, and while it is busy. A host is busy while a request waits or is under way, and until
        the pause after the last request is over. A closed gatekeeper lists busy hosts only.

        Returns:
            A mapping from the name of each paced host to its status. The name is the host name without scheme and port,
            or the address or registered domain if addresses or domains are paced.

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
        return hosts_known(self.state, self.name)

    def peek_or_invalid(self, url: object) -> Verdict | None:
        """Return the answer of ``peek``, or a verdict with INVALID_URL for any value that is not a URL."""
        if not isinstance(url, str | URL):
            problem = f"is of type {type_name(url)}; give a str or yarl.URL"
            return self.invalid(InvalidURL(f"{url!r:.200}", problem))
        try:
            return self.peek(url)
        except InvalidURL as error:
            return self.invalid(error)


def _check_several(name: str, given: object, *kinds: type) -> None:
    """Raise TypeError if ``given`` is a single URL, or is not an instance of one of ``kinds``."""
    if isinstance(given, str | bytes) or not isinstance(given, kinds):
        raise TypeError(f"{name}={given!r:.100}: give an iterable of URLs, or use check for one")
