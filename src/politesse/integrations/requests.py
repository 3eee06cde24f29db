"""requests with politeness: an adapter that takes a turn for each request that it sends.

::

    with Gate(Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)")) as gate, requests.Session() as session:
        session.mount("https://", PoliteAdapter(gate))
        session.mount("http://", PoliteAdapter(gate))
        response = session.get("https://example.com/page")

Theory of operation. requests passes one hop at a time to its adapter, and reads the body of a redirect to its end
before it follows the redirect. The adapter gets a connection pool of urllib3 for the hop, and calls only ``urlopen`` of
that pool. ``_Attempts`` takes the place of the pool: it sends each attempt in a turn of its own, and repeats the
attempt by the rules of the adapter's ``Retry``, as the pool would do.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from politesse._base.checks import check_wait
from politesse._base.text import needing, printable
from politesse._http.signing import RequestSignature
from politesse.errors import ConfigurationTypeError, Disallowed, InvalidURL, TooFar
from politesse.integrations._request import SWITCHING_PROTOCOLS, StatedAgents, check_sent, refusal, turn_for
from politesse.origin import Origin
from politesse.sync import ThreadView

with needing("politesse.integrations.requests", "requests"):
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3 import HTTPResponse
    from urllib3.exceptions import MaxRetryError, ProtocolError, ProxyError, SSLError, TimeoutError  # noqa: A004
    from urllib3.util import parse_url
    from urllib3.util.request import set_file_position

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from urllib3 import HTTPConnectionPool, Retry

    from politesse._gate.turn import Turn
    from politesse._gate.view import AgentView
    from politesse.ports import Signer

    Headers = MutableMapping[str, str]

_REPEATED: Final = (TimeoutError, ProtocolError, SSLError, ProxyError)  # urllib3 may try again after these errors


class RequestDisallowed(Disallowed, requests.RequestException):
    """A request or a redirect is not permitted, and was not sent; also a ``requests.RequestException``.

    Attributes:
        verdict: the answer, with its reason, rule and source.
        request: the request that was not sent.

    Example:
        >>> from politesse import Reason, Verdict
        >>> from politesse.verdict import Match
        >>> verdict = Verdict("http://example.com/", "examplebot", allowed=False, match=Match(Reason.POLICY_DENY))
        >>> isinstance(RequestDisallowed(verdict), requests.RequestException)
        True
    """


class RequestInvalidURL(InvalidURL, requests.RequestException):
    """A request or a redirect has a URL that no robots.txt covers; also a ``requests.RequestException``.

    Attributes:
        url: the URL that was not requested.
        problem: the fault of the URL, as a phrase.
        request: the request that was not sent.

    Example:
        >>> print(RequestInvalidURL("http://example.com/a b", "would be sent with a blank"))
        'http://example.com/a b' would be sent with a blank
    """


class RequestTooFar(TooFar, requests.RequestException):
    """No turn comes within ``max_wait_s``; also a ``requests.RequestException``, but not a ``requests.Timeout``.

    Attributes:
        request: the request that was not sent.

    Example:
        >>> from politesse import Bound, NotYet
        >>> far = RequestTooFar("example.com", NotYet(1_800_000_000.0, Bound.CRAWL_DELAY), 60.0)
        >>> far.host, far.max_wait_s
        ('example.com', 60.0)
    """


class PoliteAdapter(HTTPAdapter):
    """An adapter that checks and paces every request: ``session.mount("https://", PoliteAdapter(gate))``.

    Every hop of every request is checked and has a turn, including redirects and the requests that an auth handler
    repeats. Mount a PoliteAdapter for ``https://`` and ``http://``: other adapters send requests without a check. The
    gate fetches robots.txt with its own client, which shares no connections, cookies, proxies or credentials with the
    session.

    ``max_retries`` may be a ``Retry`` of urllib3. Each attempt has a turn, and its answer is recorded: a 429 or 503
    closes the host. The next attempt waits for its turn, ``max_wait_s`` at most; the adapter does not sleep for
    Retry-After.

    The timeouts of requests (connect, read) start after the wait for the turn. ``response.elapsed`` includes the wait.

    If the thread holds a turn for the URL (``with gate.turn(url) as turn``, and then ``session.get(turn.url)``), the
    request uses that turn, and the turn ends with the response. After a redirect, the next hop takes a new turn.

    A turn ends when the body was read to its end, or the response was closed; at an upgrade (101) it ends at once.
    ``session.get`` reads the body, unless ``stream=True``. A streamed response that stays open blocks every other
    request to its host, even after ``session.close()``, because its connection stays open. A second request of the same
    thread to the host raises TurnHeld at once. If a streamed response is dropped but not closed, the garbage collector
    closes it, with a ResourceWarning.

    The gate's User-Agent replaces requests' default or a missing User-Agent, because the server must see the name that
    selected the rules (RFC 9309 2.2.1). A request with another User-Agent is judged for that crawler.

    Threads may share an adapter. Give each thread its own Session, because requests does not promise that threads can
    share one.

    Args:
        gate: a Gate or one of its views; not closed with the session.
        max_wait_s: the longest wait for a turn, for each attempt, in seconds, or None for no limit.
        options: the options of ``requests.adapters.HTTPAdapter``: ``pool_connections``, ``pool_maxsize``,
            ``max_retries``, ``pool_block``.

    Attributes:
        gate: the gate that judges and paces.

    Raises:
        ConfigurationError: ``gate`` is not a gate for threads, or ``max_wait_s`` is not a number.

    A request raises, besides requests' own errors:
        ConfigurationError: the User-Agent of a request names no crawler.
        RequestDisallowed: the URL of a hop is not allowed; this hop is not sent.
        RequestInvalidURL: no robots.txt covers the URL of a hop; or the request would have dot segments, which servers
            resolve, or a Host header that names another site.
        RequestTooFar: no turn comes within ``max_wait_s``.
        TurnHeld: this thread already holds the turn of the host, for another URL or an open response.
        ClosedError: the gate is closed, or was closed while the request waited.
        WrongEventLoop: an event loop runs in this thread, or the process was forked since the gate was made.

    Example:
        >>> from politesse import Gatekeeper
        >>> from politesse.sync import Gate
        >>> with Gate(Gatekeeper("ExampleBot/1.0 (+https://example.com/bot)")) as gate, requests.Session() as session:
        ...     session.mount("https://", PoliteAdapter(gate, max_wait_s=60, pool_maxsize=20))
        ...     session.get_adapter("https://example.com/").gate is gate
        True
    """

    def __init__(self, gate: ThreadView, *, max_wait_s: float | None = None, **options: Any) -> None:  # noqa: ANN401 - of requests
        if not isinstance(gate, ThreadView):
            raise ConfigurationTypeError(f"PoliteAdapter({gate!r:.100}): give a politesse.sync.Gate, or a view of one")
        check_wait("max_wait_s", max_wait_s)
        self.gate = gate
        self._max_wait_s = max_wait_s
        self.signer: Signer | None = None
        self._agents: StatedAgents | None = None
        super().__init__(**options)

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:  # noqa: ANN401 - as above
        """Send a request within its turn. Raises the errors that the class lists."""
        try:
            return super().send(request, *args, **options)
        except (Disallowed, InvalidURL, TooFar) as error:
            raise refusal(error, request, (RequestDisallowed, RequestInvalidURL, RequestTooFar)) from None

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> HTTPConnectionPool:  # noqa: ANN401 - as above
        """Return the stand-in for the connection pool of a request; ``send`` calls this method."""
        pool = super().get_connection_with_tls_context(*args, **options)
        return _Attempts(self, pool)  # type: ignore[return-value]  # it has the method that ``send`` calls

    def cert_verify(self, conn: Any, *args: Any, **options: Any) -> None:  # noqa: ANN401 - as above
        """Set the certificates of the connection pool; ``send`` calls this method."""
        super().cert_verify(conn.pool, *args, **options)

    def take_turn(self, url: str, headers: Headers) -> Turn:
        """Wait for the turn of a request to ``url``, name the crawler in its headers, and enter the turn."""

        async def take(view: AgentView) -> Turn:  # runs in the event loop of the gate
            self.signer = view.state.signer
            self._agents = self._agents or StatedAgents(view, requests.utils.default_user_agent())
            agent = self._agents.introduce(headers, _lines(headers, "User-Agent"))
            return await turn_for(agent, url, _spelt, max_wait_s=self._max_wait_s)

        return self.gate.call(take).__enter__()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a PoliteAdapter cannot be pickled: create it in each process, with a Gate of that process")


class _Attempts(NamedTuple):
    """Takes the place of the connection pool of one request, and sends each attempt in a turn of its own."""

    adapter: PoliteAdapter
    pool: HTTPConnectionPool

    def urlopen(self, *, method: str, url: str, headers: Headers, retries: Retry, **options: Any) -> object:  # noqa: ANN401
        """Call ``urlopen`` of the pool for each attempt, and return the last response."""
        judged = self._url_to_judge(url, headers)
        start = set_file_position(options["body"], None)
        signature = None
        while True:
            turn = self.adapter.take_turn(judged, headers)
            signature = signature or RequestSignature(self.adapter.signer, method, judged, headers)
            try:
                with signature.added_to(headers):
                    response: Any = self.pool.urlopen(method, url, headers=headers, retries=False, **options)
                if signature.is_asked(response.status, response.headers):
                    response.close()  # not read, because the body may be endless
                    response.release_conn()
                    turn.end()
                    continue
                turn.observe(response.status, response.headers)
                if response.status == SWITCHING_PROTOCOLS:
                    turn.end()
                response.turn = turn
                response.__class__ = _TurnResponse
            except BaseException as error:
                turn.end()
                if not isinstance(error, _REPEATED):
                    raise
                retries = retries.increment(method, url, error=error, _pool=self.pool, _stacktrace=error.__traceback__)
            else:
                response.retries = retries
                if not retries.is_retry(method, response.status, "Retry-After" in response.headers):
                    return response
                try:
                    retries = retries.increment(method, url, response=response, _pool=self.pool)
                except MaxRetryError:
                    if not retries.raise_on_status:
                        return response
                    response.drain_conn()
                    raise
                response.drain_conn()
            retries.sleep()  # this sleeps for the backoff only; the turn waits for Retry-After
            options["body_pos"] = start

    def _url_to_judge(self, url: str, headers: Headers) -> str:
        """Return the URL that the server reads from the request; raises InvalidURL if the rules of another site apply.

        ``url`` is a path, or an absolute URL if a proxy gets the request over plain http.
        """
        if url.startswith("/"):
            host = f"[{self.pool.host}]" if ":" in self.pool.host else self.pool.host
            sent, target = Origin.of(f"{self.pool.scheme}://{host}:{self.pool.port}"), url
        else:
            parsed = parse_url(url)  # the pool sends the URL in this form
            sent, target = Origin.of(parsed.url), parsed.request_uri
        check_sent(judged := f"{sent}{target}", target.partition("?")[0], _lines(headers, "Host"))
        return judged


class _TurnResponse(HTTPResponse):
    """A response that ends its turn when its connection becomes free or is closed."""

    turn: Turn

    def release_conn(self) -> None:
        super().release_conn()
        self.turn.end()

    def close(self) -> None:
        super().close()
        self.turn.end()

    def __del__(self) -> None:
        message = f"a response of {printable(self.turn.verdict.url)} was dropped without being closed"
        is_dropped = self.turn.under_way
        self.turn.report_drop()
        super().__del__()  # closes the connection
        if is_dropped:  # comes last, because a filter may raise the warning
            warnings.warn(message, ResourceWarning, stacklevel=2)


def _lines(headers: Mapping[str, str | bytes], name: str) -> list[str]:
    """Return the values of a header, decoded; requests permits bytes as a value, too."""
    values = [headers[name]] if name in headers else []
    return [value.decode("latin-1") if isinstance(value, bytes) else value for value in values]


def _spelt(url: str) -> str:
    """Return the URL that requests sends if it gets ``url``, the URL of a turn."""
    request = requests.Request("GET", url).prepare()
    return f"{Origin.of(str(request.url))}{request.path_url}"
