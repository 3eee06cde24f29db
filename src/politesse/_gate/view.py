"""The gate for one agent, AgentView; what it may do at one origin, Permission; how it takes a turn, TurnWait.

Theory of operation.

Permission. A Permission is made once for an agent, a copy of robots.txt, a host policy and the usage preferences that
the agent enforces. All answers of the gate begin with it: ``AgentView.judged`` finds it by the origin's text,
``verdict`` judges a URL, and a turn waits in the line of its ``host`` with its ``pace``. These questions decide which
function ``match`` is, in this order:

1. Does a policy of this crawler deny or exempt the host? The answer is the same for each URL.
2. Is robots.txt unknown? Only robots.txt itself may be requested (RFC 9309 2.2.2).
3. Could robots.txt be fetched? An unavailable robots.txt allows the whole site (RFC 9309 2.3.1.3), an unreachable
   robots.txt disallows it (RFC 9309 2.3.1.4). A 429 disallows the site, too. A 401 or 403 disallows the site if the
   dialect or ``on_forbidden`` says so. robots.txt itself may be requested, unless the fetcher refuses the address of
   its host.
4. Do the rules of robots.txt allow the URL? In RFC 9309 the most specific match decides (2.2.2).
5. Does the site permit the use of the content? This question is asked only with ``enforce_usage``, about an allowed
   URL (``usage.py``).

Where a Permission is kept, and when it is made anew:

    kept in                  the attribute ``permission`` of the copy: the Permission of the agent that asked last
    the copy is replaced,    the Permission goes with its copy. A Permission does not refer to its copy, so that an
    evicted or forgotten     evicted copy is dropped at once; a task that waits with a Permission keeps the copy, too
    the copy is due          the deadlines of the copy are compared at each look-up; a refresh makes another copy
    the wall clock set back  ``offset_s`` is compared at each look-up; the copy drops its Permission
    a policy is set          ``policy`` is compared at each look-up
    tdmrep.json changes      an agent that enforces ``tdm`` makes a Permission for each answer
    another agent asks       it makes its own Permission

A Permission without a copy, such as that of an exempt host, is made for each answer.

AgentView. Each answer begins with ``judged``, which finds the permission of this agent at the origin of a URL, and
makes the verdict. The result is None if a file has to be fetched first; then ``fetched`` fetches the file. ``check``
answers "may I?" with the verdict; ``turn`` answers "may I, and when?", and hands the permission to the pacer as a
TurnRequest; ``peek`` answers from the cache.

A queue judges a URL several times: when the URL is put, and each time its host is not ready. So the methods for queues
and integrations, which follow after those for users, do not count the verdict. A method that returns a verdict to the
user passes the verdict to ``counted``, which counts and publishes the verdict. Of the methods for queues and
integrations, only three call ``counted``: ``invalid``, ``site_file``, and ``turn_request`` for a TOO_SLOW verdict.

TurnWait. Taking a turn means to check the URL, to wait for the permit, and to check again if the permission is no
longer current. A turn covers one hop. A task takes the turn of the next hop only after its turn of the last hop has
ended. So two tasks that follow redirects to each other's host cannot wait for each other.

A verdict is made before the wait, and the wait may be long. The URL is judged again only if its permission is no longer
current: the copy of robots.txt, the host policy, or a tdmrep.json that is enforced was replaced. The expiry of a copy
during the wait does not count. Otherwise a robots.txt with a lifetime shorter than the pause of its host would
postpone the turn for ever. The verdict is also made again if the copy is older than a day (RFC 9309 2.4), or stands for
a failure that has expired. (Only in report mode does such a copy permit pages.)

    check -> wait -> current, copy younger than a day, no expired failure ----------------------> turn
                  -> new permission in the cache, with the same file --------------------------> turn
                  -> new permission with another file: give the permit back, wait again --------> as above
                  -> new permission denies: give the permit back, raise Disallowed
                  -> none is known: give the permit back, check (fetch), wait again ------------> as above

A waiter that gives its permit back keeps its place in line. If no permission is known again after a further wait,
the verdict holds for a day. Otherwise files with short lifetimes would postpone the turn for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from logging import DEBUG
from math import inf
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias, TypeVar

from yarl import URL

from politesse._base.checks import AsyncOnly, check_least, check_wait, wrong_type
from politesse._base.constants import AGREE_S, DAY_S, ROBOTS_TXT
from politesse._base.tasks import running_loop
from politesse._base.text import public_url, type_name
from politesse._cache.outcome import Kept, is_fault_of_kind
from politesse._gate.hosts_known import hosts_known
from politesse._gate.turn import HELD, Turn, held_turns, holds_turn_at
from politesse._gate.usage import (
    NOT_ENFORCED,
    NOTHING_RESERVED,
    OUT_OF_TURN,
    TDMREP_JSON,
    match_of_use,
    objection,
    usage_with_tokens,
    with_reserved,
)
from politesse._log import GATE
from politesse._pacing.hosts import TurnRequest
from politesse._pacing.pace import PACES_HELD, longest_stated_s
from politesse._sites.data_txt import DATA_TXT
from politesse._sites.files import DataTxtAnswer, Sitemaps, denied_file, read_data_txt, read_sitemaps
from politesse._sites.filtering import ItemFilter
from politesse.clock import ends_within
from politesse.errors import ConfigurationError, ConfigurationTypeError, Disallowed, InvalidURL, TooFar, TurnHeld
from politesse.events import Decided, Event, LongDelay, MatchingBounded, TurnGranted
from politesse.origin import Origin, StrOrURL, split, url_text
from politesse.ports import FaultKind
from politesse.robots import Dialect, RobotsTxt, RuleSet
from politesse.usage.model import Purpose
from politesse.verdict import (
    BY_USAGE,
    CLOSED,
    WITHOUT_RULE,
    AccessResult,
    Bound,
    Match,
    NotYet,
    Reason,
    Verdict,
    VerdictBasis,
    url_to_request,
    utc,
    verdict_of_basis,
)

if TYPE_CHECKING:
    from politesse._cache.options import HostPolicy
    from politesse._cache.outcome import Copy
    from politesse._gate.identity import Identity
    from politesse._gate.state import GateState
    from politesse._gate.usage import MatchTarget, Reserved
    from politesse._pacing.hosts import Permit
    from politesse._pacing.shared import GateShare
    from politesse._sites.data_txt import FieldNames
    from politesse._sites.files import SiteFile, SiteFiles
    from politesse.clock import Clock
    from politesse.robots import RuleSet
    from politesse.status import HostStatus
    from politesse.usage.model import Usage
    from politesse.verdict import StatesUsage

_NEVER: Final = -inf
_WHOLE_SITE: Final = {
    AccessResult.UNAVAILABLE: WITHOUT_RULE[Reason.UNAVAILABLE],
    AccessResult.FORBIDDEN: WITHOUT_RULE[Reason.FORBIDDEN],
    AccessResult.UNREACHABLE: WITHOUT_RULE[Reason.UNREACHABLE],
    AccessResult.TOO_MANY_REQUESTS: WITHOUT_RULE[Reason.TOO_MANY_REQUESTS],
}
Item = TypeVar("Item")


class Permission(Kept):
    """What one agent may do at one origin; see the module. It never changes.

    Attributes:
        agent: the agent that may request.
        origin: where the agent may request.
        host: the host name under which requests to the origin are paced.
        match: returns the match of a request target of the origin.
        basis: the attributes that the verdicts at this origin share.
        policy: the policy of this crawler for the host, if any.
        pace: the rules that state the pace: empty rules if there is no robots.txt, None if robots.txt is unknown or
            could not be fetched.
        longest_s: the longest interval that ``pace`` states, in seconds; infinite if it depends on the time of day.
        floor_s: the least time between two requests of this gate to the host, in seconds.
        offset_s: if the wall clock minus the monotonic clock is at most this, the wall clock was set back. This matters
            only for a copy with a ``not_before``; otherwise it is minus infinity, and the test never succeeds.
        is_plain: whether the copy alone decides, and demands nothing before a turn. If not, a denial may have a basis
            of its own, a 429 may close the host before a turn, and the stated pace may be too slow.
        is_allowing: whether URLs are allowed in spite of a match that denies: in report mode, except for private
            addresses.
        reserved: the reservations of tdmrep.json that are enforced, or None.
        tdm_file: the cache entry of tdmrep.json if its reservations are enforced, else None.
    """

    __slots__ = (
        *("agent", "basis", "floor_s", "host", "is_allowing", "is_plain", "longest_s", "match"),
        *("offset_s", "origin", "pace", "policy", "reserved", "tdm_file"),
    )

    def __init__(
        self,
        agent: AgentView,
        origin: Origin,
        pace: RuleSet | None,
        match: MatchTarget,
        basis: VerdictBasis,
        reserved: Reserved | None = None,
    ) -> None:
        state, source, host = agent.state, basis.source, origin.pacing_host
        self.agent: AgentView = agent
        self.origin: Origin = origin
        self.host: str = host
        self.match: MatchTarget = match
        self.basis: VerdictBasis = basis
        self.policy: HostPolicy | None = state.policies.get(host)
        self.pace: RuleSet | None = pace
        self.floor_s: float = state.pacer.options_of.get(host, state.pacing).min_delay_s
        self.reserved: Reserved | None = reserved
        self.tdm_file: object = agent.tdm_file(origin) if agent.purposes else None
        self.is_allowing: bool = state.reports and not state.is_private(origin)
        self.longest_s: float = 0.0
        # Without Visit-time: it has no interval, so it never makes a pace too slow (``GateState.too_long_s``).
        has_interval = pace is not None and bool(pace.crawl_delay or pace.request_rates)
        if pace is not None and (has_interval or pace.timetable.is_timed):
            self.longest_s = inf if pace.timetable.is_timed else longest_stated_s((pace,))
        self.is_plain: bool = not has_interval and not agent.purposes
        self.offset_s: float = _NEVER
        if source is not None and source.not_before is not None:
            self.is_plain, self.offset_s = False, source.fetched_wall - basis.confirmed_mono - AGREE_S

    def verdict(self, url: str, target: str, now_mono: float, now_wall: float) -> Verdict:
        """Return the verdict on a URL of the origin, whose request target is ``target``; it is not counted.

        Raises:
            InvalidURL: if the target has no normal form.
        """
        try:
            match = self.match(target)
        except InvalidURL as error:
            raise InvalidURL(url, error.problem) from None  # the message quotes the URL as the caller gave it
        basis, allowed = self.basis, match.allowed
        if not allowed:
            if not self.is_plain:
                basis = self.agent.denial_basis(self, match, target)
            allowed = self.is_allowing
        return verdict_of_basis(url, allowed, match, basis, now_mono, now_wall)

    def has_pace_of(self, other: Permission) -> bool:
        """Return whether both rest on the same file, and so on the same stated pace."""
        # Without a file the digest is empty: then only the same rules state the same pace.
        return self.pace is other.pace or b"" != self.basis.digest == other.basis.digest


Judged: TypeAlias = "tuple[Verdict, Permission, Copy | None]"
"""A verdict, the permission from which it was made, and the copy of robots.txt behind the permission.

A task that waits with a permission keeps the copy, too: the cache finds an evicted copy as long as somebody keeps it.
"""


@cache
def no_rules(dialect: Dialect) -> RuleSet:
    """Return the rules of a site without a robots.txt: its matches are ROBOTS_TXT for robots.txt itself, or NO_RULE."""
    return RobotsTxt.parse(b"", dialect).rules_for("*")


def match_of(copy: Copy, agent: str, empty: RuleSet) -> MatchTarget:
    """Return the function that matches targets for the product tokens ``agent``; ``copy`` answers for them.

    Args:
        copy: the copy of robots.txt, or the reason why there is none.
        agent: the product tokens, joined by commas.
        empty: the empty rules of the dialect.
    """
    if copy.result is AccessResult.SUCCESSFUL:
        return copy.rules[agent].judge
    whole = _WHOLE_SITE[copy.result]
    # The fetcher refuses a private address, so that robots.txt itself cannot be requested either.
    is_private = is_fault_of_kind(copy.source, FaultKind.ADDRESS)
    return partial(_match_of_whole_site, empty, whole, whole if is_private else WITHOUT_RULE[Reason.ROBOTS_TXT])


def _match_of_whole_site(empty: RuleSet, whole: Match, of_robots_txt: Match, target: str) -> Match:
    return of_robots_txt if empty.judge(target).reason is Reason.ROBOTS_TXT else whole


class AgentView:
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
        name: the product tokens as one name, the key of the rules in each copy of robots.txt.
        state: the parts that all agents of a gatekeeper share.
        purposes: the uses for which this agent enforces preferences.
    """

    __slots__ = (
        *("_all_names", "_copies", "_plain", "_reads_tdm"),
        *("clock", "identity", "name", "pacer", "purposes", "state"),
    )

    def __init__(self, state: GateState, identity: Identity, *, enforces: bool = True) -> None:
        """Make a view; private. Without ``enforces``, the view ignores ``enforce_usage``."""
        self.state: GateState = state
        self.identity: Identity = identity
        self.name: str = identity.agent
        self.pacer: GateShare = state.pacer
        self.clock: Clock = state.clock
        # The groups of policy tokens state usage preferences, so a copy needs the rules of these tokens as well.
        self._all_names = (self.name, *state.policy_tokens.values())
        self.purposes: frozenset[Purpose] = state.purposes if enforces else frozenset()
        self._reads_tdm = Purpose.TDM in self.purposes
        # The agent that fetches tdmrep.json must not need tdmrep.json first.
        self._plain = AgentView(state, identity, enforces=False) if self.purposes else self
        # An agent that enforces ``tdm`` makes a permission for each answer: tdmrep.json may have changed.
        self._copies: Mapping[str, Copy] = {} if self._reads_tdm else state.cache.entries

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
        text = url if isinstance(url, str) else url_text(url)
        verdict, _, _ = self.judged(text) or await self.fetched(text)
        return self.counted(verdict)

    def peek(self, url: StrOrURL) -> Verdict | None:
        """Return the verdict on ``url`` from the cache, or None. Never waits.

        A copy near the end of its lifetime is refreshed in the background.

        Raises:
            InvalidURL: if ``url`` is not an absolute http(s) URL.
            TypeError: if ``url`` is neither a str nor a yarl.URL.
            ClosedError: if the gatekeeper is closed.
            WrongEventLoop: if another event loop is running than the gatekeeper's.
        """
        text = url if isinstance(url, str) else url_text(url)
        judged = self.judged(text)
        return None if judged is None else self.counted(judged[0])

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
        return [verdict for verdict in verdicts if verdict is not None]  # all of them, as the type checker cannot know

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
        return ItemFilter(self, self.state.when_closed, key, max_pending).run(source)

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

        In a fleet this method grants no turn, because only ``turn`` and ``try_turns`` can ask the Redis of the fleet:
        NotYet tells why the host cannot grant a turn as far as this process knows, and is ``Bound.FLEET`` if it can.
        The robots.txt of an unknown origin is fetched in the background. If a turn is garbage-collected before its
        end, its host becomes free, and a ResourceWarning is issued.

        Raises:
            Disallowed: if ``url`` may not be requested.
            InvalidURL: if ``url`` is not an absolute http(s) URL.
            TypeError: if ``url`` is neither a str nor a yarl.URL.
            ClosedError: if the gatekeeper is closed.
        """
        text = url_text(url)
        judged = self.judged(text)
        if judged is not None:
            self.counted(judged[0])
        answer = try_turn(self, text, judged)
        publish_granted(self, answer)
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
        # The text is used only to fetch an unknown robots.txt; any value that is not a URL has a verdict already.
        answers = await try_turns(self, [(str(url), self._judged_or_invalid(url)) for url in urls])
        publish_granted(self, *answers)
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
        settled = self._settled(origin, None)
        verdict = None if settled is None else self._judged_by(settled, None, origin.robots_url, ROBOTS_TXT)[0]
        if verdict is not None and not self.counted(verdict).allowed:
            return Sitemaps(verdict=verdict)
        cache = self.state.cache
        copy = await cache.entry(origin.text, origin, ROBOTS_TXT, self.name)
        return await read_sitemaps(copy, cache.reading, self.name)

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
        reserved = await self._reserved(Origin.of(url))
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
        judged = self._judged_or_invalid(url)
        return judged[0] if isinstance(judged, tuple) else judged

    # For queues and integrations; the verdicts are not counted.

    def judged(self, url: str) -> Judged | None:
        """Return the verdict on ``url``, with its permission and copy; None if a fetch is needed.

        The part of ``url`` before the third slash is the key of the copy. This part needs no validation, because every
        key in the cache is a valid origin. A URL without a path, or whose origin is written in another form, takes the
        slow way (``_looked_up``).

        Raises:
            InvalidURL: if ``url`` is not an absolute http(s) URL.
            ClosedError: if the gatekeeper is closed.
            WrongEventLoop: if another event loop is running than the gatekeeper's.
        """
        state = self.state
        if state.loop is not running_loop():
            state.check_usable()  # a gate that was closed has no copies, and takes the slow way
        place = url.find("/", 8)  # the host begins after "https://" or "http://"
        copy = self._copies.get(url[:place]) if place > 0 else None
        if copy is not None:
            now_mono, now_wall = self.clock.monotonic(), self.clock.wall()
            if now_mono < copy.refresh_mono and now_wall < copy.refresh_wall:
                permission = copy.permission
                # The copy keeps the permission of the agent that asked last; see the table of the module.
                if (
                    not isinstance(permission, Permission)
                    or permission.agent is not self
                    or permission.policy is not state.policies.get(permission.host)
                ):
                    permission = self._made(copy) if self._is_answered_by(copy) else None
                # Otherwise the wall clock was set back, and the slow way moves the times of the copy.
                if permission is not None and (permission.is_plain or now_wall - now_mono > permission.offset_s):
                    copy.used = True
                    return permission.verdict(url, url[place:], now_mono, now_wall), permission, copy
        return self._looked_up(url)

    async def learn(self, url: str) -> Judged:
        """Return the same as ``judged``; fetch robots.txt if needed."""
        return self.judged(url) or await self.fetched(url)

    async def fetched(self, url: str) -> Judged:
        """Fetch the files that a verdict on ``url`` needs, and return the same as ``judged``."""
        origin, target = split(url)
        reserved = None
        if self._reads_tdm and target not in NOT_ENFORCED:
            reserved = await self._reserved(origin)
        copy = await self.copy_of(origin)
        return self._judged_by(self._made(copy, reserved), copy, url, target)

    def exempted(self, url: str, reason: str) -> Judged:
        """Return the verdict on a URL that is exempt for ``reason``: it is allowed, unless a policy denies the host.

        Raises:
            InvalidURL: if ``url`` is not an absolute http(s) URL.
            ClosedError: if the gatekeeper is closed.
        """
        self.state.check_usable()
        origin, target = split(url)
        copy = self.state.cache.held(origin.text)
        settled = self._settled(origin, copy)
        if settled is None or settled.match(target).allowed:
            settled = self._fixed(origin, copy, Reason.POLICY_EXEMPT, reason)
        return self._judged_by(settled, copy, url, target)

    def is_current(self, permission: Permission, copy: Copy | None) -> bool:
        """Return whether the copy, the policy and the tdmrep.json behind a permission were not replaced.

        A copy that has expired, but was not replaced, is current.
        """
        state, origin = self.state, permission.origin
        return (  # ``entries`` first: that saves the call of ``held`` in each turn
            (state.cache.entries.get(origin.text) or state.cache.held(origin.text)) is copy
            and state.policies.get(permission.host) is permission.policy
            and (not self.purposes or self.tdm_file(origin) is permission.tdm_file)
        )

    def still_holds(self, url: str, judged: Judged) -> bool:
        """Return whether ``judged`` is about ``url``, its copy is valid, and its permission is current."""
        verdict, permission, copy = judged
        is_same = url_to_request(verdict) == url and self.known_copy(permission.origin) is copy
        return is_same and self.is_current(permission, copy)

    def known_copy(self, origin: Origin) -> Copy | None:
        """Return the valid copy of ``origin`` if it has the rules of this agent; start a refresh that is due."""
        copy = self.state.cache.valid(origin.text)
        return copy if copy is not None and self._is_answered_by(copy) else None

    def _is_answered_by(self, copy: Copy) -> bool:
        return all(map(copy.answers, self._all_names))

    async def copy_of(self, origin: Origin) -> Copy:
        """Return a valid copy with the rules of this agent and the policy tokens; fetch robots.txt if needed."""
        cache = self.state.cache
        while True:
            copy = await cache.entry(origin.text, origin, ROBOTS_TXT, self.name)
            for name in self._all_names[1:]:
                copy = await cache.entry(origin.text, origin, ROBOTS_TXT, name)
            # The fetch for one name may have replaced the copy with the rules of another name.
            if len(self._all_names) == 1 or self._is_answered_by(copy):
                return copy

    def ask_ahead(self, origin: Origin) -> None:
        """Start to fetch the files that a verdict needs, and do not wait for them."""
        if self.known_copy(origin) is None:
            for name in self._all_names:
                self.state.cache.ask_ahead(origin, name)
        elif self._reads_tdm:
            self.state.reservations.ask_ahead(origin, self._reserved_by_fetch)

    def counted(self, verdict: Verdict) -> Verdict:
        """Count and publish ``verdict``, and return it."""
        state, match = self.state, verdict.match
        if match.allowed:
            state.allowed += 1
        else:
            state.denied[match.reason] += 1
            for tell in state.on_denied:
                tell(verdict)
        if state.ledger is not None:
            state.ledger.record(verdict)
        if state.publisher.subscribers or (not match.allowed and GATE.isEnabledFor(DEBUG)) or match.bound_reached:
            self.publish(Decided(verdict))
            if match.bound_reached:
                self.publish(MatchingBounded(verdict))
        return verdict

    def invalid(self, error: InvalidURL) -> Verdict:
        """Return the verdict on an invalid URL; it is counted."""
        verdict = self._denied(error.url, Reason.INVALID_URL, error.problem)
        verdict.allowed = self.state.reports
        return self.counted(verdict)

    def given_up(self, url: str, answer: NotYet | str) -> Verdict:
        """Return the verdict on a URL that is given up because of an answer of the pacer, or for the given reason."""
        if isinstance(answer, str):
            return self._denied(url, Reason.GIVEN_UP, answer)
        reason, note = Reason.WAIT_TOO_LONG, f"{answer.bound_by} until {utc(answer.not_before)}"
        if answer.refusal is not None:
            reason, note = Reason.REFUSED, str(answer.refusal)
        return self._denied(url, reason, note, split(url)[0], answer.not_before)

    def turn_request(
        self, permission: Permission, verdict: Verdict, check: Callable[[], None] | None = None
    ) -> TurnRequest:
        """Return the request for the pacer. If the host answered robots.txt with 429, close the host first.

        Raises:
            Disallowed: if ``verdict`` denies, or if the pace is too slow and ``on_long_crawl_delay`` is ``"skip"``.
        """
        if not verdict.allowed:
            raise Disallowed(verdict)
        if not permission.is_plain:
            self._heed(permission, verdict.match)
        url = url_to_request(verdict)
        shown = url if "@" not in url and "#" not in url else public_url(url)  # without userinfo and fragment
        host, origin = permission.host, permission.origin.text
        return TurnRequest(host, origin, self.name, permission.pace, shown, permission.floor_s, check)

    def when_ready(self, origin: Origin, callback: Callable[[], None], pace: RuleSet | None = None) -> None:
        """Let ``callback`` wait in line at the host of ``origin``; call it once, when it is first and a turn may start.

        The event loop also calls ``callback`` when the gatekeeper closes. The turn is not taken yet: call ``try_turn``
        in the callback or later. Without a ``pace``, the pace that the origin has stated last stays in force.

        Raises:
            ClosedError: if the gatekeeper is closed.
        """
        state, host = self.state, origin.pacing_host
        if state.closing is None or state.loop is not running_loop():  # mostly, the call is saved
            state.check_usable()
        floor_s = state.pacer.options_of.get(host, state.pacing).min_delay_s
        self.pacer.when_ready(TurnRequest(host, origin.text, self.name, pace, min_delay_s=floor_s), callback)

    def blocking_turn(self, host: str) -> Turn | None:
        """Return a turn of the current task that has to end before the task gets another turn at a paced host."""
        held = held_turns()
        for line in self.pacer.lines(host) if held else ():
            in_line = [turn for turn in held if turn.is_in(line)]
            if len(in_line) >= line.max_concurrent:
                return in_line[-1]
        return None

    async def site_file(self, files: SiteFiles, origin: Origin, path: str) -> SiteFile:
        """Return the file of ``origin`` at ``path``, or the verdict that denies it to this agent.

        RFC 9309 2.2.2 exempts only /robots.txt itself. Any other file that robots.txt denies is neither fetched nor
        returned from the cache.

        Raises:
            TurnHeld: if the file has to be fetched, and the fetch would wait for a turn that this task holds.
            ClosedError: if the gatekeeper is closed.
        """
        url = f"{origin}{path}"
        verdict, _, _ = await self.learn(url)
        if not self.counted(verdict).allowed:
            return denied_file(url, verdict)
        held = self.blocking_turn(origin.pacing_host)
        if held is not None and files.peek(origin, path) is None:
            raise TurnHeld(verdict.url, held_by=held.url)
        try:
            return await files.get(origin, path)
        except Disallowed as error:  # robots.txt may deny the file to the gatekeeper's own agent
            return denied_file(url, error.verdict)

    def checked_origin(self, url: str) -> Origin:
        """Return the origin of ``url``; raise InvalidURL for each URL that ``check`` could reject as invalid."""
        origin, target = split(url)
        self._match_without_file(url, target)
        return origin

    def publish(self, event: Event) -> None:
        """Log and publish an event; for integrations."""
        self.state.publisher.publish(event)

    # Making permissions.

    def _looked_up(self, url: str) -> Judged | None:
        """Answer as ``judged`` does, without its short way: split the URL, find the copy, and make a new permission."""
        state = self.state
        if state.closing is None:  # the gate is closed
            state.check_open()
        origin, target = split(url)
        held = state.cache.held(origin.text)
        settled = self._settled(origin, held) if state.policies or state.public_resolver is not None else None
        # In report mode the pages of a denied host are requested, so robots.txt is fetched for their pace.
        if settled is not None and (not settled.is_allowing or settled.match(target).allowed):
            return self._judged_by(settled, held, url, target)
        copy = None if held is None else self.known_copy(origin)
        if copy is None:
            # RFC 9309 2.2.2: robots.txt itself may be requested. An invalid URL raises here, not after a fetch.
            is_robots_txt = self._match_without_file(url, target).reason is Reason.ROBOTS_TXT
            if not is_robots_txt or state.public_resolver is not None:
                return None  # only a fetch shows whether the host has a private address
            return self._judged_by(self._fixed(origin, held, Reason.ROBOTS_TXT), held, url, target)
        reserved = None
        if self._reads_tdm and target not in NOT_ENFORCED:
            reserved = self._known_reserved(copy)
            if reserved is None:
                return None
        return self._judged_by(self._made(copy, reserved), copy, url, target)

    def _judged_by(self, permission: Permission, copy: Copy | None, url: str, target: str) -> Judged:
        return permission.verdict(url, target, self.clock.monotonic(), self.clock.wall()), permission, copy

    def _made(self, copy: Copy, reserved: Reserved | None = None) -> Permission:
        """Return a new permission of a copy that answers this agent; the copy keeps it if it may be used again."""
        state, rules = self.state, copy.rules.get(self.name)
        usage: StatesUsage | None = None if rules is None else rules.site_usage
        if state.policy_tokens:
            usage = usage_with_tokens(state.policy_tokens, usage, copy.rules)
        settled = None
        if state.policies or state.public_resolver is not None:
            settled = self._settled(copy.origin, copy, usage)
        if settled is not None:
            return settled
        match = match_of(copy, self.name, state.no_rules)
        if reserved is not None:
            usage = with_reserved(usage, reserved)
        if self.purposes:
            match = partial(match_of_use, match, partial(objection, self.purposes, usage, reserved))
        basis = VerdictBasis(self.name, copy.source, copy.confirmed_mono, usage, digest=copy.rules.digest)
        pace = rules
        if rules is None:  # while robots.txt cannot be fetched, the pace of the last file stays in force
            pace = copy.file.get(self.name) if copy.result in CLOSED else state.no_rules
        permission = Permission(self, copy.origin, pace, match, basis, reserved)
        if not self._reads_tdm:  # a permission that the copy kept would keep its tdmrep.json as well
            copy.permission = permission
        return permission

    def _settled(self, origin: Origin, copy: Copy | None, usage: StatesUsage | None = None) -> Permission | None:
        """Return the permission of a host that a policy denies or exempts, or whose address is private; else None."""
        policy = self.state.policies.get(origin.pacing_host)
        if self.state.is_private(origin):  # before the policies: an exemption opens no private address
            note = f"{origin.host} is a private address, and private_addresses='deny'"
            return self._fixed(origin, copy, Reason.POLICY_DENY, note)
        if policy is None or not (policy.deny or policy.exempt):
            return None
        reason = Reason.POLICY_DENY if policy.deny else Reason.POLICY_EXEMPT
        return self._fixed(origin, copy, reason, policy.reason, usage)

    def _fixed(
        self, origin: Origin, copy: Copy | None, reason: Reason, note: str = "", usage: StatesUsage | None = None
    ) -> Permission:
        """Return a permission with the same match for each URL; ``copy`` only states the pace."""
        basis = VerdictBasis(self.name, None, self.clock.monotonic(), usage, note)
        pace = None if copy is None else copy.rules.get(self.name)
        # Without a file no pace is stated: empty rules end the pace of an earlier file, None would keep it in force.
        if pace is None and copy is not None and copy.answers(self.name):
            pace = self.state.no_rules
        return Permission(self, origin, pace, lambda _: WITHOUT_RULE[reason], basis)

    def _known_reserved(self, copy: Copy) -> Reserved | None:
        """Return the reservations of the origin of ``copy``; None if it must be fetched or parsed in a thread."""
        state, own_name = self.state, self.state.identity.agent
        for name in {self.name, own_name}:
            if copy.answers(name) and not match_of(copy, name, state.no_rules)(TDMREP_JSON).allowed:
                return NOTHING_RESERVED  # None would ask for a fetch, but a denied file is never fetched
        if state.pacing.on_long_crawl_delay == "skip" and state.too_long_s(copy.rules.get(own_name)) is not None:
            return NOTHING_RESERVED
        # The file was fetched in a turn, and the turn of the page follows an interval later: the file must stay valid
        # until then.
        return state.reservations.known(copy.origin, min(PACES_HELD * longest_stated_s(copy.rules.values()), DAY_S))

    async def _reserved(self, origin: Origin) -> Reserved:
        """Return the reservations of ``origin``, fetched if necessary; OUT_OF_TURN if the fetch would deadlock.

        Raises:
            ClosedError: if the gatekeeper is closed.
        """
        if not holds_turn_at(origin.pacing_host):
            return await self._reserved_by_fetch(origin)
        # Waiting for a turn would deadlock: the caller holds the turn of this host.
        reserved = self._known_reserved(await self._plain.copy_of(origin))
        if reserved is None:
            self.state.reservations.ask_ahead(origin, self._reserved_by_fetch)
            return OUT_OF_TURN
        return reserved

    async def _reserved_by_fetch(self, origin: Origin) -> Reserved:
        reservations = self.state.reservations
        return await reservations.read(origin, await self._plain.site_file(reservations.files, origin, TDMREP_JSON))

    def tdm_file(self, origin: Origin) -> object:
        """Return the cache entry of tdmrep.json if this agent enforces its reservations, else None."""
        return self.state.reservations.files.held(f"{origin}{TDMREP_JSON}") if self._reads_tdm else None

    def _match_without_file(self, url: str, target: str) -> Match:
        """Return the match of a URL if no rules are known: ROBOTS_TXT or NO_RULE; raises InvalidURL."""
        try:
            return self.state.no_rules.judge(target)
        except InvalidURL as error:
            raise InvalidURL(url, error.problem) from None

    # Denials, and demands of hosts.

    def denial_basis(self, permission: Permission, match: Match, target: str) -> VerdictBasis:
        """Return the basis of a denial: that of the permission, or one that states the denial's own end and cause."""
        basis, reserved = permission.basis, permission.reserved
        note, not_before = basis.note, None if reserved is None else reserved.not_before
        if match.reason not in BY_USAGE:
            not_before = None
        # ``judged`` takes the target from the URL as it is, so the target may have a fragment.
        elif objected := objection(self.purposes, basis.site_usage, reserved, target.partition("#")[0]):
            _, note = objected
        return self._until(basis, permission.host, note, not_before)

    def _until(self, basis: VerdictBasis, host: str, note: str, not_before: float | None = None) -> VerdictBasis:
        """Return the basis of a denial that ends at ``not_before`` or, if that is later, when the host opens again."""
        source = basis.source
        if source is None:
            return basis  # a host policy
        if (retry_wall := source.not_before) is not None:
            # An answer to another origin of the host may have closed the host for longer.
            closure = self.pacer.closure(host)
            closed_wall = retry_wall if closure is None else closure.not_before
            not_before = max(retry_wall, closed_wall, not_before or retry_wall)
        if not_before is not None:
            source = replace(source, not_before=not_before)
        return VerdictBasis(basis.agent, source, basis.confirmed_mono, basis.site_usage, note, basis.digest)

    def _denied(
        self, url: str, reason: Reason, note: str, origin: Origin | None = None, not_before: float | None = None
    ) -> Verdict:
        """Return a verdict that denies ``url``, in report mode as well; its source is the copy of ``origin``."""
        copy, now_mono = None if origin is None else self.state.cache.held(origin.text), self.clock.monotonic()
        basis = VerdictBasis(self.name, None, now_mono, None, note)
        if copy is not None:
            basis = VerdictBasis(self.name, copy.source, copy.confirmed_mono, None, digest=copy.rules.digest)
            basis = self._until(basis, copy.origin.pacing_host, note, not_before)
        return verdict_of_basis(url, False, WITHOUT_RULE[reason], basis, now_mono, self.clock.wall())  # noqa: FBT003

    def _heed(self, permission: Permission, match: Match) -> None:
        """Before a turn, close a host that answered robots.txt with 429, and check a pace that is too slow."""
        origin, source, pacing = permission.origin, permission.basis.source, self.state.pacing
        if source is not None and source.of_host and source.not_before is not None and match.allowed:
            # The match allows the URL in spite of the 429: an older copy is still used, or it is robots.txt itself.
            self.pacer.close_host(permission.host, source.not_before, Bound.RETRY_AFTER)
        delay_s = self.state.too_long_s(permission.pace)
        if delay_s is None:
            return
        self.publish(LongDelay(origin, delay_s, pacing.on_long_crawl_delay))
        if pacing.on_long_crawl_delay == "skip":
            note = f"{delay_s:g} s between requests, where max_crawl_delay_s={pacing.max_crawl_delay_s:g}"
            # Counted here, because the verdict is about the origin, and no caller has it.
            raise Disallowed(self.counted(self._denied(origin.robots_url, Reason.TOO_SLOW, note, origin)))

    def _judged_or_invalid(self, url: object) -> Judged | Verdict | None:
        """Return the same as ``judged``, or INVALID_URL for any value that is not a URL; the verdict is counted."""
        if not isinstance(url, str | URL):
            problem = f"is of type {type_name(url)}; give a str or yarl.URL"
            return self.invalid(InvalidURL(f"{url!r:.200}", problem))
        try:
            judged = self.judged(url_text(url))
        except InvalidURL as error:
            return self.invalid(error)
        if judged is not None:
            self.counted(judged[0])
        return judged


@dataclass(slots=True, eq=False, repr=False)
class TurnWait(AsyncOnly, AbstractAsyncContextManager["Turn", None]):
    """The wait for one turn. ``async with`` waits, enters the turn, and ends it; ``take`` only waits.

    Args:
        agent: judges the URL.
        url: the URL to request.
        max_wait_s: how long to wait at the most, in seconds, or None for no limit.
        exempt: the reason not to check robots.txt, or None to check it.
        counts: whether to count and publish the verdict; a TOO_SLOW verdict is always counted.
    """

    agent: AgentView
    url: StrOrURL
    max_wait_s: float | None = None
    exempt: str | None = None
    counts: bool = field(default=True, kw_only=True)
    _url: str = field(init=False)
    _is_used: bool = field(default=False, init=False)
    _checked_again: bool = field(default=False, init=False)
    _turn: Turn | None = field(default=None, init=False)
    _judge: Callable[[str], Judged | None] = field(init=False)
    # The verdict to count, its permission, and its copy, which the cache finds while it is kept here.
    _judged: Judged | None = field(default=None, init=False)

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report the mistake

        def __await__(self) -> NoReturn:
            raise TypeError("a turn needs 'async with gate.turn(url) as turn', or 'turn = await gate.take_turn(url)'")

    async def __aenter__(self) -> Turn:
        if self._is_used:
            raise RuntimeError("this turn was waited for already: call turn() for each 'async with'")
        self._is_used = True
        self._turn = turn = await self.take()
        return turn.__enter__()

    async def __aexit__(self, *_: object) -> None:
        if self._turn is not None:
            self._turn.end()

    async def take(self) -> Turn:
        """Wait for the turn, and return it. Raises the same errors as ``AgentView.turn``."""
        agent, max_wait_s, clock = self.agent, self.max_wait_s, self.agent.clock
        self._judge = agent.judged
        if max_wait_s is not None or self.exempt is not None:
            self._check_arguments()
        self._url = self.url if isinstance(self.url, str) else url_text(self.url)
        since_mono = clock.monotonic()
        deadline_mono = None if max_wait_s is None else since_mono + max_wait_s
        check_lines = None
        permit: Permit | None = None  # the permit that was given back, whose place in line is kept
        turn: Turn | None = None
        try:
            if HELD.get() and held_turns():
                check_lines = self._refuse_to_wait_for_itself
                check_lines()
            while True:  # once more if the permission has changed during the wait; see the diagram of the module
                judged = self._judge(self._url) or await self._learned(deadline_mono)
                self._judged = verdict, permission, _ = judged
                request = agent.turn_request(permission, verdict, check_lines)
                left_s = None if deadline_mono is None else max(0.0, deadline_mono - clock.monotonic())
                permit = await agent.pacer.start(request, left_s, permit)
                turn = self._turn_after_wait(judged, permit) if permit.waited else Turn(verdict, permit, agent.state)
                if turn is not None:
                    return turn
        except TooFar as far:
            # The error names the caller's limit, not the time that was left after the fetch of robots.txt.
            raise TooFar(far.host, far.not_yet, far.max_wait_s if max_wait_s is None else max_wait_s) from None
        except Disallowed as error:
            if self._judged is not None and error.verdict is not self._judged[0]:
                self._judged = None  # a TOO_SLOW verdict, which was counted already
            raise
        finally:
            if self.counts and self._judged is not None:
                agent.counted(self._judged[0])
            if agent.state.publisher.subscribers:
                publish_granted(agent, turn, since_mono=since_mono)

    def _check_arguments(self) -> None:
        if self.max_wait_s is not None:
            check_wait("max_wait_s", self.max_wait_s)
        given: object = self.exempt  # callers may pass exempt=True by mistake
        if given is not None and (not isinstance(given, str) or not given.strip()):
            kind = ConfigurationError if isinstance(given, str) else ConfigurationTypeError
            raise kind(f"exempt={given!r:.100}: give the reason, as in exempt='our own server'")
        if self.exempt is not None:
            self._judge = partial(self.agent.exempted, reason=self.exempt)

    async def _learned(self, deadline_mono: float | None) -> Judged:
        """Fetch robots.txt, and return the verdict with its permission and copy; raises TooFar at the deadline."""
        agent = self.agent
        if deadline_mono is None:
            return await agent.fetched(self._url)
        # A task of its own, which is cancelled at the deadline. The cache itself goes on to fetch robots.txt, because
        # other requests may wait for it.
        learning = asyncio.get_running_loop().create_task(agent.fetched(self._url))
        if not await ends_within(agent.clock, max(0.0, deadline_mono - agent.clock.monotonic()), learning):
            host = Origin.of(self._url).pacing_host
            raise TooFar(host, NotYet(agent.clock.wall(), Bound.ROBOTS_TXT), 0.0)  # ``take`` names the caller's limit
        judged = learning.result()
        if agent.is_current(*judged[1:]):
            return judged
        # The copy was replaced after the task of the fetch had ended, and before this task resumed.
        return self._judge(self._url) or judged

    def _turn_after_wait(self, judged: Judged, permit: Permit) -> Turn | None:
        """Return the turn after a wait. If the verdict or pace has changed, give the permit back and return None."""
        agent, (verdict, permission, copy) = self.agent, judged
        now = agent.clock.monotonic(), agent.clock.wall()
        usable, is_over = True, False
        # The age counts only if the copy is due: before that, a fetch would not be made.
        if copy is not None and not (now[0] < copy.refresh_mono and now[1] < copy.refresh_wall):
            # RFC 9309 2.4: a copy SHOULD NOT be used for more than 24 hours.
            usable = copy.age_s(*now) < DAY_S
            # In report mode a failure permits the URL, but robots.txt is fetched again before the page.
            is_over = copy.source.result in CLOSED and not copy.holds(*now)
        if usable and not is_over and agent.is_current(permission, copy):
            return Turn(verdict, permit, agent.state)
        try:
            again = self._judge(self._url)
            if again is not None:
                self._judged = verdict, other, _ = again
                agent.turn_request(other, verdict)  # raises Disallowed
                holds = other.has_pace_of(permission)
            else:
                holds = usable and self._checked_again  # it has already waited again once
        except BaseException:
            permit.give_back()
            raise
        if holds:
            return Turn(verdict, permit, agent.state)
        permit.give_back()
        self._checked_again = True
        return None

    def _refuse_to_wait_for_itself(self) -> None:
        """Raise TurnHeld if this task already holds as many turns of the host as the host grants at once.

        If the verdict on the URL is known and denies it, raise Disallowed instead.
        """
        origin, _ = split(self._url)
        held = self.agent.blocking_turn(origin.pacing_host)
        if held is None:
            return
        judged = self._judged = self._judge(self._url) or self._judged
        if judged is not None and not judged[0].allowed:
            raise Disallowed(judged[0])
        raise TurnHeld(self._url, held_by=held.url)


def try_turn(agent: AgentView, url: str, judged: Judged | None) -> Turn | NotYet:
    """Return a turn at ``url`` if it may start now. Raises the same errors as ``AgentView.try_turn``.

    Args:
        agent: the agent that requests the turn.
        url: the URL to request.
        judged: the verdict on ``url``, with its permission and copy; None if it is unknown.
    """
    if judged is None:
        return _unknown(agent, url)
    verdict, permission, _ = judged
    permit = agent.pacer.try_start(agent.turn_request(permission, verdict))
    return permit if isinstance(permit, NotYet) else Turn(verdict, permit, agent.state)


async def try_turns(
    agent: AgentView, asked: Iterable[tuple[str, Judged | Verdict | None]]
) -> list[Turn | NotYet | Verdict]:
    """Return the answer of ``try_turn`` for each URL; a denying verdict is returned, not raised.

    The pacer grants all turns in one call, which may wait for the Redis of a fleet. If the copy of a verdict is
    replaced during this call, the turn of the verdict is given back.

    Args:
        agent: the agent that requests the turns.
        asked: each URL, with its verdict and permission, with a verdict without permission, or with None if the
            verdict is unknown.
    """
    answers: list[Turn | NotYet | Verdict] = []
    placed: list[tuple[int, Judged]] = []
    requests: list[TurnRequest] = []
    for url, judged in asked:
        if judged is None:
            answers.append(_unknown(agent, url))
        elif isinstance(judged, Verdict):
            answers.append(judged)
        else:
            verdict, permission, _ = judged
            try:
                requests.append(agent.turn_request(permission, verdict))
            except Disallowed as disallowed:
                answers.append(disallowed.verdict)
            else:
                placed.append((len(answers), judged))
                answers.append(verdict)  # a placeholder until the pacer has answered
    permits = await agent.pacer.try_starts(requests)
    for (place, (verdict, permission, copy)), permit in zip(placed, permits, strict=True):
        if isinstance(permit, NotYet):
            answers[place] = permit
        elif agent.is_current(permission, copy):
            answers[place] = Turn(verdict, permit, agent.state)
        else:
            permit.give_back()
            answers[place] = NotYet(agent.clock.wall(), Bound.ROBOTS_TXT)
    return answers


def publish_granted(agent: AgentView, *answers: object, since_mono: float | None = None) -> None:
    """Publish each turn among ``answers``; ``since_mono`` is when the caller began to wait, None if it did not wait."""
    publisher = agent.state.publisher
    for answer in answers if publisher.subscribers else ():
        if isinstance(answer, Turn):
            waited_s = 0.0 if since_mono is None else agent.clock.monotonic() - since_mono
            publisher.forward(TurnGranted(answer.verdict, waited_s))


def _unknown(agent: AgentView, url: str) -> NotYet:
    """Start to fetch robots.txt, and return a NotYet."""
    agent.ask_ahead(Origin.of(url))
    return NotYet(agent.clock.wall(), Bound.ROBOTS_TXT)


def _check_several(name: str, given: object, *kinds: type) -> None:
    """Raise TypeError if ``given`` is a single URL, or is not an instance of one of ``kinds``."""
    if isinstance(given, str | bytes) or not isinstance(given, kinds):
        raise TypeError(f"{name}={given!r:.100}: give an iterable of URLs, or use check for one")
