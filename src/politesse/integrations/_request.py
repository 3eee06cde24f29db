"""What every integration does with a request: check what will be sent, name the crawler, keep track of its turn."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from politesse._gate.turn_context import TurnContext
from politesse._gate.view import AgentView, agent_of
from politesse._pacing.held import ENTERED, claim_turn, in_turn
from politesse._text import shortened
from politesse.errors import ConfigurationTypeError, Disallowed, InvalidURL
from politesse.origin import Origin
from politesse.robots.pattern import has_dot_segments
from politesse.verdict import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, MutableMapping

    from politesse._gate.agent import Agent
    from politesse._gate.identity import Identity
    from politesse._pacing.held import Turn

_LOGGER: Final = logging.getLogger("politesse.integrations")
_MAX_LOGGED: Final = 100
_NO_AUTHORITY: Final = frozenset("/?#@")  # RFC 9110 7.2: Host is host and port alone


class OpenTurns(set["Turn"]):
    """The turns of one client whose requests have not ended.

    Attributes:
        logged: the User-Agents of this client that were logged; see ``introduce``.
    """

    __slots__ = ("logged",)

    def __init__(self) -> None:
        super().__init__()
        self.logged: set[str] = set()

    def begin(self, turn: Turn) -> None:
        """Add a turn whose request is about to be sent."""
        turn.claim()  # unless the caller's turn was claimed for this request already
        self.add(turn.enter_here())

    def end(self, turn: Turn) -> None:
        """End a turn; has no effect on a turn that has ended."""
        turn.__exit__(None, None, None)  # ``end`` alone leaves it to the next request to find out that it has ended
        self.discard(turn)

    def drop(self, turn: Turn) -> None:
        """End a turn whose response was dropped before its end."""
        turn.report_drop()
        self.end(turn)

    def end_all(self) -> None:
        """End every turn: the client was closed, and with it the connections of open responses."""
        for turn in tuple(self):
            self.end(turn)


def turn_for(
    gate: AgentView, url: str, spelt: Callable[[str], str], *, max_wait_s: float | None, exempt: str | None = None
) -> Coroutine[object, object, Turn]:
    """Return the turn that the task holds for ``url`` and has not used yet, or else wait for one; to be awaited.

    No coroutine itself: most tasks hold none, and wait in that of the new turn alone.

    Args:
        gate: judges and paces.
        url: as it will be sent.
        spelt: returns a URL as the client would send it: the caller may have queued another spelling of ``url``.
        max_wait_s: see ``AgentView.take_turn``.
        exempt: see there; a turn that the task holds needs no exemption.

    Raises:
        Disallowed, InvalidURL, TooFar, TurnHeld, ClosedError: as ``AgentView.turn`` says.
    """
    agent = agent_of(gate)
    if ENTERED.get() and in_turn():
        agent.state.check_usable()
        turn = claim_turn(agent.state.pacer, agent.name, lambda held: held == url or spelt(held) == url)
        if turn is not None:
            return _claimed(agent, turn, url)
    return TurnContext(agent, url, max_wait_s, exempt).taken()


async def _claimed(agent: Agent, turn: Turn, url: str) -> Turn:
    """Return a turn that the task holds, if ``url`` may be requested in it; raises Disallowed."""
    if turn.url.partition("#")[0] != url and turn.verdict.reason is not Reason.POLICY_EXEMPT:
        verdict = await agent.learn(url)  # what is sent may match other rules than what was judged
        if not verdict:
            raise Disallowed(agent.counted(verdict))
    return turn


def check_gate(gate: object, user: str, *, takes_user_agent: bool = False) -> None:
    """Raise ConfigurationError, in the name of the class ``user``, if ``gate`` is no Gatekeeper and no view of one."""
    if not isinstance(gate, AgentView):
        wanted = (
            "a User-Agent, a Gatekeeper, or a view of one" if takes_user_agent else "a Gatekeeper, or a view of one"
        )
        hint = f", as {user}(Gatekeeper({gate!r:.100}))" if isinstance(gate, str) else ""
        raise ConfigurationTypeError(f"{user}({gate!r:.100}): give {wanted}{hint}")


def introduce(
    headers: MutableMapping[str, str], defaults: Collection[str | None], identity: Identity, logged: set[str]
) -> None:
    """Replace a library's default User-Agent by the crawler's own, and keep one that the caller has set.

    RFC 9309 2.2.1: the product token that selects the rules should be part of the User-Agent that the server sees. One
    that contains no token is logged, unless ``logged`` has it, to which it is added then; the first hundred are.
    """
    sent = headers.get("User-Agent")
    if sent in defaults:
        headers["User-Agent"] = identity.user_agent
    elif sent is not None and sent != identity.user_agent and sent not in logged and len(logged) < _MAX_LOGGED:
        lower = sent.lower()
        if not any(token in lower for token in identity.tokens):
            logged.add(sent)
            tokens = ", ".join(identity.tokens)
            _LOGGER.warning("requests are sent as %s, but robots.txt is judged for %s", shortened(sent, 200), tokens)


def check_sent(url: str, path: str, hosts: Iterable[str], authority: str | None = None) -> None:
    """Raise InvalidURL if the request would reach another resource than the one that ``url`` is judged as.

    Args:
        url: what is judged.
        path: as it is sent, escaped.
        hosts: the Host headers of the request; empty if the client derives the header from the URL.
        authority: host and port of ``url``, if known: an equal Host header needs no comparison of origins.
    """
    # A dot segment follows a slash, as "." or "%2e": the split is worth its time only where there is one.
    if ("/." in path or "/%2" in path) and has_dot_segments(path):
        # RFC 3986 5.2.4: servers remove dot segments, so the path that is matched must not contain any.
        raise InvalidURL(url, "would be sent with dot segments; resolve them first")
    other = other_site(url, hosts, authority)
    if other is not None:
        raise InvalidURL(url, f"would be sent with the Host header {other!r:.100}: the rules of that site would apply")


def other_site(url: str, hosts: Iterable[str], authority: str | None = None) -> str | None:
    """Return the first Host header that names another site than ``url``; None if there is none.

    RFC 9112 3.2: a request with several Host headers is invalid; servers that accept it may choose any of them.
    """
    for host in hosts:
        if host != authority and not _same_site(host, url):
            return host
    return None


def _same_site(host: str, url: str) -> bool:
    """Return whether a Host header names the site of ``url`` (RFC 9309 2.3: one robots.txt for each authority)."""
    if not _NO_AUTHORITY.isdisjoint(host):
        return False
    scheme, _, _ = url.partition(":")
    try:
        return Origin.of(f"{scheme}://{host}") == Origin.of(url)
    except InvalidURL as error:
        return error.url == url  # the URL itself is invalid, and is refused for that
