"""The clients of a crawl (aiohttp, httpx and httpx2), its links and their normal forms, and the URLs that it has seen.

The queue imports no client library: it recognises a client by its methods. In each turn, a client requests the URL,
and follows no redirect. It reports the answer to the pacer as soon as the headers have come, and ends the turn with
the response. With httpx, the crawl then reads the body, and ends the turn before it calls the handler; with aiohttp,
the handler reads the body within the turn. The body of a sitemap file is read as a stream, within the turn.

``Limits`` are the links that a crawl follows, the number of pages that it takes from each host, and its time. A pattern
of ``allow`` or ``deny`` has a host, a path, or both, as in ``example.com/docs/``. Hosts are compared in their normal
form. A host with a leading dot matches this domain and all hosts below it. A host with a port matches only this port.
The path is a pattern as in robots.txt: the target must begin with it, ``*`` matches any octets, and a final ``$``
matches the end of the target.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections import Counter, defaultdict
from contextlib import aclosing, asynccontextmanager, nullcontext
from functools import partial
from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from yarl import URL

from politesse._base.checks import check_least, check_positive, wrong_type
from politesse._base.text import has_utf_8
from politesse._gate.view import AgentView
from politesse._http.redirects import REDIRECTS, resolved
from politesse._pacing.refusals import BUSY_STATUSES
from politesse.errors import ConfigurationError, InvalidURL
from politesse.fetch._http2 import resetting
from politesse.origin import DEFAULT_PORTS, Origin, sent_exactly, split
from politesse.robots.pattern import NORMALISED, cut_at_stars, has_dot_segments, normalise_pattern
from politesse.verdict import url_to_request

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from aiohttp import ClientResponse
    from httpx import Response as HttpxResponse

    from politesse._gate.turn import Turn

    Answer: TypeAlias = tuple[int, str | None]
    # Whether a pattern matches a URL, given as its origin and its target in normal form.
    _Pattern: TypeAlias = Callable[[Origin, str], bool]


_PORT: Final = re.compile(r":\d+\Z")


class Limits:
    """The limits of one crawl; see ``PoliteQueue.crawl`` for their meaning.

    Raises:
        ConfigurationError: a pattern or a number is invalid.

    Attributes:
        restrict_links: whether ``follow`` may leave out a link.
        max_time_s: after how many seconds no more requests begin, or None.
        places: how many more visits of each paced host may begin; None for any number. Each visit takes a place,
            because it may become a page. A page keeps its place, another visit releases it.

    Example:
        >>> limits = Limits(depth=2, allow=[".example.com"], deny=["/*.pdf$", "blog.example.com/drafts/"])
        >>> urls = "https://www.example.com/a", "https://example.com/a.pdf", "https://example.org/"
        >>> [limits.follow(url, depth=2) for url in urls]
        [True, False, False]
    """

    def __init__(
        self,
        depth: int | None = None,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] = (),
        max_pages_per_host: int | None = None,
        max_time_s: float | None = None,
    ) -> None:
        if depth is not None:
            check_least("depth", depth, 0)
        if max_pages_per_host is not None:
            check_least("max_pages_per_host", max_pages_per_host, 1)
        if max_time_s is not None:
            check_positive("max_time_s", max_time_s)
        self._depth = inf if depth is None else depth
        self._allow = None if allow is None else _patterns("allow", allow)
        self._deny = _patterns("deny", deny)
        self.restrict_links: bool = depth is not None or allow is not None or bool(self._deny)
        self._max_pages_per_host = max_pages_per_host
        self.max_time_s = max_time_s
        self._pages: Counter[str] = Counter()  # pages per paced host; counted only if their number is limited
        self.places: defaultdict[str, asyncio.Semaphore] | None = None
        if max_pages_per_host is not None:
            self.places = defaultdict(partial(asyncio.Semaphore, max_pages_per_host))

    def follow(self, url: str, depth: int) -> bool:
        """Return whether the crawl follows a link or a redirect to a valid URL at this depth."""
        if depth > self._depth:
            return False
        if self._allow is None and not self._deny:
            return True
        origin, target = split(url)
        target = NORMALISED.of_target(target)[0]
        if self._allow is not None and not any(matches(origin, target) for matches in self._allow):
            return False
        return not any(matches(origin, target) for matches in self._deny)

    def note_page(self, origin: Origin) -> None:
        """Count a page that is handed to ``handle``; needed only if ``places`` has a limit."""
        self._pages[origin.pacing_host] += 1
        if self.places is not None and self.is_full(origin):
            self.places[origin.pacing_host].release()  # the workers that wait for a place find the host full

    def is_full(self, origin: Origin) -> bool:
        """Return whether ``handle`` has got ``max_pages_per_host`` pages of the origin's host."""
        return self._max_pages_per_host is not None and self._pages[origin.pacing_host] >= self._max_pages_per_host


def _pattern(text: str) -> _Pattern:
    """Return the function of one pattern, such as ``.example.com/docs/``."""
    host, slash, path = text.partition("/")
    site = Origin.of(f"http://{host.removeprefix('.')}") if host else None
    port = site.port if site is not None and _PORT.search(host) else None
    begins = cut_at_stars(normalise_pattern(f"/{path}")).matches if slash else None

    def matches(origin: Origin, target: str) -> bool:
        if site is not None:
            is_below = host.startswith(".") and origin.host.endswith(f".{site.host}")
            if not (origin.host == site.host or is_below) or port not in {None, origin.port}:
                return False
        return begins is None or begins(target)

    return matches


def _patterns(name: str, given: Iterable[str]) -> tuple[_Pattern, ...]:
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise wrong_type(name, given, "several patterns, as in ['.example.com', '/docs/']")
    patterns = []
    for text in given:
        if not isinstance(text, str):
            raise wrong_type(name, text, "patterns of type str")
        if "://" in text or not text or text == ".":
            raise ConfigurationError(
                f"{name}={text!r:.100}: give a host or a path, as in 'example.com:8080' or '/docs/'"
            )
        try:
            patterns.append(_pattern(text))
        except InvalidURL as error:
            raise ConfigurationError(f"{name}={text!r:.100}: its host {error.problem}") from None
    return tuple(patterns)


Item = TypeVar("Item")
Response = TypeVar("Response")
Response_co = TypeVar("Response_co", covariant=True)

DIGEST_OCTETS: Final = 16  # with a billion URLs, the probability that two share a digest is 10**-21
_BLANKS: Final = " \t\n\r\f"  # the ASCII whitespace of HTML, which pages may have around links
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")  # RFC 3986 3.1
# A path that continues a site, and a URL, both in their normal form already: without escapes, dot segments, a default
# port, an empty query or a fragment. Most links are such.
_PLAIN_PATH: Final = r"(?:/(?!\.)[A-Za-z0-9_~=:@,;+&.-]*)+(?:\?[A-Za-z0-9_~=:@,;&./-]+)?"
_PLAIN_SITE: Final = r"https?://[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::(?!80/|443/)[1-9][0-9]{0,4})?"
is_plain_path: Final = re.compile(rf"(?!//){_PLAIN_PATH}").fullmatch
is_plain: Final = re.compile(_PLAIN_SITE + _PLAIN_PATH).fullmatch
_HANDLE: Final = "an asynchronous function of a page and a response, as in 'async def handle(page, response)'"
_WEB: Final = "a PoliteSession, an aiohttp.ClientSession, an httpx.AsyncClient or an httpx2.AsyncClient"
_USER_AGENT: Final = "User-Agent"
_HTTPX_DEFAULTS: Final = ("python-httpx/", "python-httpx2/")


@runtime_checkable
class AiohttpStyle(Protocol[Response_co]):
    """A session of aiohttp, or a PoliteSession."""

    @property
    def closed(self) -> bool:
        """Whether the client was closed."""

    @property
    def get(self) -> Callable[..., AbstractAsyncContextManager[Response_co]]:
        """The method that makes a GET request."""


@runtime_checkable
class HttpxStyle(Protocol[Response_co]):
    """An ``httpx.AsyncClient`` or ``httpx2.AsyncClient``."""

    @property
    def is_closed(self) -> bool:
        """Whether the client was closed."""

    @property
    def stream(self) -> Callable[..., AbstractAsyncContextManager[Response_co]]:
        """The method that makes a request and does not read the body."""

    async def aclose(self) -> None:
        """Close the client."""


class _AiohttpClient(Generic[Response]):
    """Requests the URLs of a crawl with an aiohttp session, or a PoliteSession."""

    def __init__(self, session: AiohttpStyle[Response], headers: Mapping[str, str]) -> None:
        self._session = session
        self._options: dict[str, object] = {"allow_redirects": False, "headers": headers}
        self._raises: bool | Callable[[ClientResponse], Awaitable[None]] = getattr(session, "raise_for_status", False)
        if self._raises:  # an error for the status would hide a refusal from the pacer; ``observe`` raises it
            self._options["raise_for_status"] = False

    @property
    def is_closed(self) -> bool:
        return self._session.closed

    def request(self, turn: Turn) -> AbstractAsyncContextManager[Response]:
        exact = URL(_sent(turn), encoded=True)  # otherwise yarl would decode some escapes
        return self._session.get(exact, **self._options)

    async def observe(self, turn: Turn, response: Response, *, is_file: bool) -> Answer:  # noqa: ARG002 - for httpx
        """Report a response to the pacer, let the turn end with the response, and return the answer."""
        answer = cast("ClientResponse", response)
        turn.observe(answer.status, answer.headers)
        if answer.connection is None:
            turn.end()
        else:
            answer.connection.add_callback(turn.end)
        if self._raises and answer.status not in BUSY_STATUSES:  # the crawl requests the others again
            if callable(self._raises):
                await self._raises(answer)
            else:
                answer.raise_for_status()
        return _answer(answer.status, answer.headers)

    def body(self, response: Response) -> AbstractAsyncContextManager[AsyncIterable[bytes]]:
        """Return the body of a file, without its Content-Encoding."""
        return nullcontext(cast("ClientResponse", response).content.iter_any())


class _HttpxClient(Generic[Response]):
    """Requests the URLs of a crawl with an ``AsyncClient`` of httpx or httpx2."""

    def __init__(self, client: HttpxStyle[Response], headers: Mapping[str, str]) -> None:
        self._client = client
        self._headers = headers

    @property
    def is_closed(self) -> bool:
        return self._client.is_closed

    @asynccontextmanager
    async def request(self, turn: Turn) -> AsyncGenerator[Response]:
        sent = self._client.stream("GET", _sent(turn), follow_redirects=False, headers=self._headers)
        async with resetting(lambda: [self._client]), sent as response:
            yield response

    async def observe(self, turn: Turn, response: Response, *, is_file: bool) -> Answer:
        answer = cast("HttpxResponse", response)
        turn.observe(answer.status_code, answer.headers)
        if not is_file:
            await answer.aread()
            turn.end()
        return _answer(answer.status_code, answer.headers)

    def body(self, response: Response) -> AbstractAsyncContextManager[AsyncIterable[bytes]]:
        return aclosing(cast("AsyncGenerator[bytes, None]", cast("HttpxResponse", response).aiter_bytes()))


CrawlClient = _AiohttpClient[Response] | _HttpxClient[Response]


def _sent(turn: Turn) -> str:
    """Return the URL of a turn as it is sent: as it was judged, with blanks and all that is not ASCII escaped.

    Raises:
        InvalidURL: the path has dot segments. Servers resolve them, so the rules of another path would apply.
    """
    url = url_to_request(turn.verdict)
    if "/." in url or "/%2" in url:
        path, _, _ = url.partition("#")[0].partition("?")
        if has_dot_segments(path[path.find("/", 8) :]):
            raise InvalidURL(url, "would be sent with dot segments; resolve them first")
    return sent_exactly(url)


def _answer(status: int, headers: Mapping[str, str]) -> Answer:
    """Return the status of an answer, and the Location of a redirect; None for any other answer."""
    return status, headers.get("Location") if status in REDIRECTS else None


def client_of(web: AiohttpStyle[Response] | HttpxStyle[Response], gate: AgentView) -> CrawlClient[Response]:
    """Return the client that requests with ``web``, and with the gate's User-Agent if ``web`` has no User-Agent.

    Raises:
        ConfigurationError: ``web`` is not a client of aiohttp, httpx or httpx2, is a PoliteSession of another
            gatekeeper, or has another User-Agent than the gate.
    """
    given: object = web
    if isinstance(given, type) or not isinstance(given, AiohttpStyle | HttpxStyle):  # the class itself is not a client
        raise wrong_type("web", web, _WEB)
    headers: Mapping[str, str] = getattr(getattr(web, "session", web), "headers", {})
    stated = headers.get(_USER_AGENT, "")
    is_default = stated.startswith(_HTTPX_DEFAULTS)
    if stated and not is_default and gate.identity.of_request(stated) is not gate.identity:
        raise ConfigurationError(
            f"web={web!r:.100} states the User-Agent {stated!r:.200}, but the queue judges for {gate.identity.agent}: "
            "create the queue with a view for it, as gate.agent(tokens=..., user_agent=...) returns"
        )
    own_gate = getattr(web, "gate", None)
    if own_gate is not None and (not isinstance(own_gate, AgentView) or own_gate.state is not gate.state):
        raise ConfigurationError(
            f"web={web!r:.100}: its gate is not that of the queue; create the queue with PoliteQueue(web.gate)"
        )
    # A PoliteSession sends its User-Agent itself.
    sent = {_USER_AGENT: gate.identity.user_agent} if own_gate is None and (is_default or not stated) else {}
    return _HttpxClient(web, sent) if isinstance(web, HttpxStyle) else _AiohttpClient(web, sent)


def check_callback(name: str, callback: object) -> None:
    """Raise ConfigurationTypeError unless ``callback`` is None, or a function that is not asynchronous."""
    if callback is not None and (not callable(callback) or inspect.iscoroutinefunction(callback)):
        raise wrong_type(name, callback, "a function that is not asynchronous")


def check_handle(handle: object) -> None:
    """Raise ConfigurationTypeError unless ``handle`` is asynchronous and takes two arguments."""
    call = getattr(handle, "__call__", None)  # noqa: B004 - of an object: its method is asynchronous
    if not inspect.iscoroutinefunction(handle) and not inspect.iscoroutinefunction(call):
        raise wrong_type("handle", handle, _HANDLE)
    try:
        inspect.signature(cast("Callable[..., object]", handle)).bind(None, None)
    except TypeError:
        raise wrong_type("handle", handle, _HANDLE) from None


class Seen(Protocol):
    """The interface of ``seen``: a set, or an object such as a Bloom filter or a table of a database.

    Two URLs are the same if their normal forms are equal (RFC 3986 6.2.2 and 6.2.3, by yarl): scheme and host in lower
    case, no default port, escapes decoded where that is safe, dot segments resolved, ``/`` for an empty path, no
    fragment, no empty query. The order of a query and a trailing slash matter.
    """

    def __contains__(self, url: object, /) -> bool:
        """Return whether a URL, in its normal form, was added."""

    def add(self, url: str, /) -> object:
        """Add a URL in its normal form."""


class SeenUrls:
    """The default of ``seen``: the 16-octet digest of each URL.

    A digest takes about 80 octets in the set, for a URL of any length. The URL itself would take more than twice as
    much.

    Attributes:
        earlier: the digests of the URLs that earlier runs have put into a journal.

    >>> seen = SeenUrls()
    >>> seen.add("https://example.com/")
    >>> "https://example.com/" in seen, "https://example.com/a" in seen
    (True, False)
    """

    __slots__ = ("_digests", "earlier")

    def __init__(self) -> None:
        self.earlier: set[int] = set()
        self._digests: set[int] = set()  # an int of 16 octets takes 20 octets less than bytes

    def __contains__(self, url: object, /) -> bool:
        if not isinstance(url, str):
            return False
        digest = digest_of(url)
        return digest in self._digests or digest in self.earlier

    def add(self, url: str, /) -> None:
        """Add a URL in its normal form."""
        self._digests.add(digest_of(url))

    def is_new(self, url: str) -> bool:
        """Return whether a URL was not added before, and add it."""
        digest = digest_of(url)
        if digest in self._digests or digest in self.earlier:
            return False
        self._digests.add(digest)
        return True

    def __len__(self) -> int:
        return len(self._digests) + len(self.earlier)


def resolved_link(base: str, link: str) -> str | None:
    """Return the http(s) URL of a link on the page ``base``, without a fragment; None if the link has no such URL."""
    if not has_utf_8(link):
        return None
    return resolved_location(base, link.strip(_BLANKS) or "#")  # RFC 3986 4.4: an empty reference is the page itself


def has_other_scheme(link: str) -> bool:
    """Return whether a link has another scheme than http(s). Such a link may be valid, but a crawl cannot follow it.

    >>> [has_other_scheme(link) for link in ("mailto:us@example.com", " JavaScript:void(0)", "http://", "a/b:c")]
    [True, True, False, False]
    """
    stated = _SCHEME.match(link.strip(_BLANKS))
    return stated is not None and stated[1].lower() not in DEFAULT_PORTS


def resolved_location(base: str, location: str) -> str | None:
    """Return the http(s) URL of a Location header; None if it has no such URL."""
    try:
        return str(resolved(base, location)[1])
    except ValueError:  # InvalidURL, or the error of text that UTF-8 cannot encode
        return None


def normal_form(url: str) -> str:
    """Return the normal form of a URL for comparisons (RFC 3986 6.2.2 and 6.2.3, as yarl applies them).

    >>> normal_form("HTTP://Example.COM:80/%7euser/./a/../b?z=1&a=%31#part")
    'http://example.com/~user/b?z=1&a=1'
    """
    if is_plain(url):
        return url
    try:
        text = str(URL(url).with_fragment(None))
    except ValueError:  # yarl rejects some hosts that the gate accepts
        text = url.partition("#")[0]
    before, question, query = text.partition("?")
    if "/" not in before.partition("://")[2]:
        before += "/"  # RFC 3986 6.2.3: an empty path is "/"
    return before + question + query


def digest_of(url: str) -> int:
    """Return the digest of a URL in its normal form: a number of 16 octets."""
    return int.from_bytes(blake2b(url.encode(errors="surrogatepass"), digest_size=DIGEST_OCTETS).digest())
