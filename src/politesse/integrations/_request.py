"""The steps of a request that all integrations share.

The functions check the URL, name the crawler, take and end the turn, and follow redirects. They also choose the part of
a response from which the directives of a page are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from cachetools import LRUCache

from politesse._gate.turn import HELD, Turn, claim_turn, held_turns
from politesse._gate.view import AgentView, TurnWait
from politesse._http.fields import header_pairs
from politesse._http.redirects import REDIRECTS, resolved
from politesse.errors import ConfigurationError, ConfigurationTypeError, Disallowed, InvalidURL
from politesse.origin import Origin, sent_exactly
from politesse.page import Headers, PageDirectives, may_be_html
from politesse.page.directives import content_type
from politesse.queue._web import resolved_location
from politesse.robots.pattern import has_dot_segments
from politesse.verdict import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, MutableMapping

    from politesse.errors import TooFar

    Refusals = tuple[Callable[..., Exception], Callable[..., Exception], Callable[..., Exception]]

# RFC 9110 15.2.2: the request is over. Its connection speaks another protocol, for hours perhaps: end the turn.
SWITCHING_PROTOCOLS: Final = 101
_USER_AGENT: Final = "User-Agent"
_MAX_VIEWS: Final = 100
_NO_AUTHORITY: Final = frozenset("/?#@")  # RFC 9110 7.2: a Host header has only a host and a port
# The same methods as in Crawlee, whose own type is in a private module.
Method = Literal["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"]
# The redirect statuses whose target is requested by GET: first for all methods except POST, then for POST.
_MOVED: Final = (frozenset({303}), frozenset({301, 302, 303}))
_OF_ORIGIN: Final = frozenset({"authorization", "cookie", "host", "proxy-authorization"})
_BODILESS: Final = frozenset({204, 304})  # RFC 9110 6.4.1: these statuses never have content
_AS_IT_IS: Final = frozenset({"", "identity"})


class StatedAgents:
    """The views of a gate, one for each User-Agent that a client sends.

    RFC 9309 2.2.1: the product token that selects the rules should be part of the User-Agent that the server sees. So
    the gate's User-Agent replaces the library's default, and a missing User-Agent. A request with another User-Agent is
    judged for that crawler.

    Args:
        gate: the view for all requests that state no other User-Agent.
        default: the User-Agent that the client's library sends by itself.

    Attributes:
        gate: see above.
        own: the header of a request that states the gate's own User-Agent, as nearly all do: such a request needs
            neither ``view`` nor ``introduce``.
    """

    def __init__(self, gate: AgentView, default: str) -> None:
        self.gate: AgentView = gate
        self.own: list[str] = [gate.identity.user_agent]
        self._default = default
        self._own = frozenset({"", default, gate.identity.user_agent})
        self._views: LRUCache[str, AgentView] = LRUCache(_MAX_VIEWS)

    def view(self, stated: Sequence[str]) -> AgentView:
        """Return the view for a request that has these User-Agent headers.

        Raises:
            ConfigurationError: if the headers name no crawler, or two crawlers.
        """
        if self._own.issuperset(stated):
            return self.gate
        if len(stated) > 1:
            raise ConfigurationError(f"headers: {len(stated)} User-Agents are stated; give one")
        (user_agent,) = stated
        view = self._views.get(user_agent)
        if view is None:
            own = self.gate.identity
            identity = own.of_request(user_agent)
            view = self.gate if identity is own else AgentView(self.gate.state, identity)
            self._views[user_agent] = view
        return view

    def introduce(self, headers: MutableMapping[str, str], stated: Sequence[str]) -> AgentView:
        """Return the same as ``view``, and replace a missing, empty or default User-Agent by the gate's."""
        view = self.view(stated)
        if not stated or stated[0] in {"", self._default}:
            headers[_USER_AGENT] = view.identity.user_agent
        return view


class OpenTurns(set["Turn"]):
    """Keeps each turn of a client until the request of the turn has ended."""

    def begin(self, turn: Turn) -> None:
        """Add a turn whose request is about to be sent."""
        turn.claim()  # a turn that the caller held was claimed before
        self.add(turn.__enter__())

    def end(self, turn: Turn) -> None:
        """End a turn; has no effect on a turn that has ended."""
        turn.end()
        self.discard(turn)

    def drop(self, turn: Turn) -> None:
        """End a turn whose response was dropped before its end."""
        turn.report_drop()
        self.end(turn)

    def end_all(self) -> None:
        """End every turn, because the client was closed with the connections of its open responses."""
        for turn in tuple(self):
            self.end(turn)


def turn_for(
    gate: AgentView, url: str, spelt: Callable[[str], str], *, max_wait_s: float | None, exempt: str | None = None
) -> Coroutine[object, object, Turn]:
    """Return the unused turn that the task holds for ``url``, or wait for a new turn; to be awaited.

    This is not an ``async`` function, for speed: if the task holds no turn, as usual, it returns the coroutine that
    takes a new turn, without another coroutine around it.

    Args:
        gate: judges and paces.
        url: the URL, as it will be sent.
        spelt: returns a URL as the client would send it: the caller may have queued another spelling of ``url``.
        max_wait_s: see ``AgentView.take_turn``.
        exempt: see ``AgentView.take_turn``; a turn that the task holds needs no exemption.

    Raises:
        Disallowed, InvalidURL, TooFar, TurnHeld, ClosedError: see ``AgentView.turn``.
    """
    if HELD.get() and (held := held_turns()):
        gate.state.check_usable()
        turn = claim_turn(held, gate.state, gate.name, lambda of: url == of or url in {spelt(of), sent_exactly(of)})
        if turn is not None:
            return _claimed(gate, turn, url)
    return TurnWait(gate, url, max_wait_s, exempt).take()


async def _claimed(agent: AgentView, turn: Turn, url: str) -> Turn:
    """Return a turn that the task holds, if ``url`` may be requested in it; raises Disallowed."""
    if turn.url.partition("#")[0] != url and turn.verdict.reason is not Reason.POLICY_EXEMPT:
        verdict, _, _ = await agent.learn(url)  # the URL as it is sent may match other rules
        if not verdict:
            raise Disallowed(agent.counted(verdict))
    return turn


def refusal(error: Disallowed | InvalidURL | TooFar, request: object, errors: Refusals) -> Exception:
    """Return the error of an integration for a request that is not sent."""
    disallowed, invalid_url, too_far = errors
    if isinstance(error, Disallowed):
        made = disallowed(error.verdict)
    elif isinstance(error, InvalidURL):
        made = invalid_url(error.url, error.problem)
    else:
        made = too_far(error.host, error.not_yet, error.max_wait_s)
    made.request = request  # type: ignore[attr-defined] # an attribute of the library's own base
    return made


def check_gate(gate: object, user: str, wanted: str = "a Gatekeeper, or a view of one") -> None:
    """Raise ConfigurationError if ``gate`` is not a Gatekeeper or AgentView; the message names ``user``, the class."""
    if not isinstance(gate, AgentView):
        hint = f", as {user}(Gatekeeper({gate!r:.100}))" if isinstance(gate, str) else ""
        raise ConfigurationTypeError(f"{user}({gate!r:.100}): give {wanted}{hint}")


def check_sent(url: str, path: str, hosts: Iterable[str], authority: str | None = None) -> None:
    """Raise InvalidURL if the request would reach another resource than the judged ``url``.

    Args:
        url: the judged URL.
        path: the path as it is sent, escaped.
        hosts: the Host headers of the request; empty if the client derives the header from the URL.
        authority: host and port of ``url``, if known; a Host header that equals it needs no further check.
    """
    if " " in url:  # RFC 9112 3.2: for a server, the target ends at the blank
        raise InvalidURL(url, "would be sent with a blank; percent-encode it as %20")
    # A dot segment follows a slash, as "." or "%2e". Other paths are not split, because splitting takes time.
    if ("/." in path or "/%2" in path) and has_dot_segments(path):
        # RFC 3986 5.2.4: servers remove dot segments, so the path that is matched must not contain any.
        raise InvalidURL(url, "would be sent with dot segments; resolve them first")
    other = other_site(url, hosts, authority)
    if other is not None:
        raise InvalidURL(url, f"would be sent with the Host header {other!r:.100}: the rules of that site would apply")


def other_site(url: str, hosts: Iterable[str], authority: str | None = None) -> str | None:
    """Return the first Host header that names another site than ``url``, or None.

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
        return error.url == InvalidURL(url, "").url  # if ``url`` itself is invalid, it is refused for that reason


@dataclass(slots=True)
class Hop:
    """The next request of a chain of redirects.

    Attributes:
        url: the URL, as it is sent.
        method: the method.
        headers: the headers; their names are in lower case.
        payload: the body, or None.
    """

    url: str
    method: Method
    headers: dict[str, str]
    payload: bytes | None

    def check(self) -> None:
        """Raise InvalidURL if the request would reach another resource than ``url``."""
        path = "/" + self.url.partition("//")[2].partition("/")[2].partition("?")[0]
        check_sent(self.url, path, [self.headers["host"]] if "host" in self.headers else [])

    def follows(self, status: int, location: str | None) -> bool:
        """Return whether the answer is a redirect to an http(s) URL; if so, change this hop to its target."""
        target = resolved_location(self.url, location or "") if status in REDIRECTS else None
        if target is None:
            return False
        headers = self.headers.items()
        # RFC 9110 15.4: after 303, and by custom after a POST with 301 or 302, the target is requested by GET.
        if status in _MOVED[self.method == "POST"] and self.method != "HEAD":
            headers = {name: value for name, value in headers if not name.startswith("content-")}.items()
            self.method, self.payload = "GET", None
        is_foreign = Origin.of(target) != Origin.of(self.url)
        self.headers = {name: value for name, value in headers if not is_foreign or name not in _OF_ORIGIN}
        self.url = target
        return True


def spelt(url: str) -> str:
    """Return a URL as it is sent: escaped, without dot segments and fragment; raises InvalidURL."""
    return str(resolved(url, url)[1])


def may_have_page(method: str, status: int, headers: Headers) -> bool:
    """Return whether the body may be a page; if not, only the headers are read.

    RFC 9110 15.4: the content of a redirect is a short note with a link, not the page.
    """
    if method == "HEAD" or status in _BODILESS or status in REDIRECTS:
        return False
    return may_be_html(content_type(header_pairs(headers)))


def content_codings(headers: Headers) -> set[str]:
    """Return the content codings of a response in lower case, without ``identity`` (RFC 9110 8.4.1)."""
    lines = (value for name, value in header_pairs(headers) if name == "content-encoding")
    return {coding.strip().lower() for line in lines for coding in line.split(",")} - _AS_IT_IS


def headers_alone(headers: Headers, tokens: Sequence[str]) -> PageDirectives:
    """Return the directives in the headers, marked as truncated because the body cannot be read."""
    return replace(PageDirectives.from_response(headers, None, tokens), truncated=True)
