"""Follows the chain of requests of a fetch: resolves and checks the target of each redirect. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from politesse._base.checks import InvalidURL
from politesse._base.text import BLANKS, public_url
from politesse.origin import Origin, escaped, split
from politesse.ports import FaultKind, FetchFault, FetchRequest, FetchResult
from politesse.robots.pattern import without_dot_segments

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from politesse.ports import Validators

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
"""The statuses whose Location is followed."""

_MAX_DETAIL: Final = 300  # the text is cut, because an exception may quote megabytes of a hostile response
# Matches a scheme or "//" without an authority. Joined to the base, such a reference would name the redirecting page.
_WITHOUT_AUTHORITY = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:(?!//[^/?#])|//(?:[/?#]|$))")
# RFC 3986 appendix B: scheme, authority, path, and the rest. Matches any text, in linear time.
_REFERENCE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)?(//[^/?#]*)?([^?#]*)(.*)", re.DOTALL)


class Hops:
    """The chain of requests of a fetch; the last URL of ``seen`` is the current URL.

    >>> from politesse import Origin
    >>> from politesse.ports import FetchRequest
    >>> hops = Hops(FetchRequest(Origin.of("https://example.com"), max_redirects=5))
    >>> origin, url = hops.redirect(301, "//www.example.com/robots.txt")
    >>> hops.seen.append(url)  # follow it
    >>> hops.url
    'https://www.example.com/robots.txt'

    Attributes:
        request: the request of the fetch.
        seen: the URLs so far.
    """

    __slots__ = ("request", "seen")

    def __init__(self, request: FetchRequest) -> None:
        self.request: FetchRequest = request
        self.seen: list[str] = [request.url]

    @property
    def url(self) -> str:
        """The URL of the current request."""
        return self.seen[-1]

    @property
    def conditions(self) -> dict[str, str]:
        """The conditional headers of the current request; empty if the copy came from another URL."""
        return conditions_of(self.request.validators, self.url)

    @property
    def signature(self) -> dict[str, str]:
        """The headers that sign the current request; empty after a redirect."""
        return dict(self.request.signature or ()) if len(self.seen) == 1 else {}

    def redirect(self, status: int, location: str) -> tuple[Origin, str] | FetchFault:
        """Return the target of a redirect, or the reason not to follow it. To follow it, append the URL to ``seen``."""
        try:
            origin, url = resolved(self.url, location)
        except ValueError as error:  # includes InvalidURL, and text with lone surrogates
            problem = error.problem if isinstance(error, InvalidURL) else str(error)
            detail = f"a redirect to {public_url(location.strip(BLANKS))!r:.100}, which {problem}"
            return self.fault(FaultKind.REDIRECT_TARGET, detail, status)
        if len(self.seen) > self.request.max_redirects:
            detail = f"more than {self.request.max_redirects} redirects"
            return self.fault(FaultKind.REDIRECT_LIMIT, detail, status, location=url)
        if url in self.seen:
            return self.fault(FaultKind.REDIRECT_LIMIT, f"a redirect loop through {url:.100}", status)
        return origin, url

    def fault(self, kind: FaultKind, detail: str, status: int | None = None, *, location: str = "") -> FetchFault:
        """Return a fault of the current request."""
        return fault_at(self.url, kind, detail, status, location=location)


def fault_at(url: str, kind: FaultKind, detail: str, status: int | None = None, *, location: str = "") -> FetchFault:
    """Return a fault of the request to ``url``."""
    return FetchFault(kind, detail[:_MAX_DETAIL], url, status, location=location)


def conditions_of(validators: Validators | None, url: str) -> dict[str, str]:
    """Return the conditional headers of a request to ``url``; empty if the copy came from another URL."""
    if validators is None or validators.url != url:
        return {}
    conditions = {"If-None-Match": validators.etag, "If-Modified-Since": validators.last_modified}
    return {name: value for name, value in conditions.items() if value}


def unfollowed(request: FetchRequest, status: int, location: str) -> FetchFault:
    """Return the fault for a redirect that a fetcher leaves to its caller; it names the target."""
    hops = Hops(request)
    target = hops.redirect(status, location)
    if isinstance(target, FetchFault):
        return target
    return hops.fault(FaultKind.REDIRECT_LIMIT, "a redirect that was not followed", status, location=target[1])


async def follow(
    request: FetchRequest,
    result: FetchResult,
    max_redirects: int,
    ask: Callable[[FetchRequest], Awaitable[FetchResult]],
) -> FetchResult | None:
    """Return the answer at the end of a chain of redirects; None if the fetcher does not report a target.

    Args:
        request: the first request, with ``max_redirects=0``.
        result: the answer to it.
        max_redirects: how many redirects to follow.
        ask: makes a request to the target of a redirect.
    """
    hop, hops = request, None
    while isinstance(result, FetchFault) and result.kind is FaultKind.REDIRECT_LIMIT and not result.final:
        if not result.location:
            return None
        hops = hops or Hops(replace(request, max_redirects=max_redirects))
        target = hops.redirect(result.status or 0, result.location)
        if isinstance(target, FetchFault):
            return target
        origin, url = target
        hops.seen.append(url)
        # After a public host, no hop may reach a private address. If it is unknown whether the host was public, it may
        # redirect to itself, but not to a private address of another host.
        was_public = origin.host != hop.origin.host if result.private is None else not result.private
        hop = replace(
            hop,
            origin=origin,
            path=url.removeprefix(str(origin)),
            redirected=hop.redirected or was_public,
            first_url=request.first_url or request.url,
            last=len(hops.seen) > max_redirects,
        )
        result = await ask(hop)
    return result


def resolved(base: str, reference: str) -> tuple[Origin, str]:
    """Return the origin and the URL of a reference relative to a URL (RFC 3986 5.2.2), without a fragment.

    >>> resolved("https://example.com/a/b?c", "../d#e")[1]
    'https://example.com/d'

    Raises:
        ValueError: if UTF-8 cannot encode the reference; an InvalidURL if the reference is not an http(s) URL.
    """
    reference = reference.strip(BLANKS)  # RFC 9110 5.5: surrounding whitespace is not part of a value
    if not reference or _WITHOUT_AUTHORITY.match(reference) is not None:
        raise InvalidURL(reference, "is no URL")
    origin, target = split(_join(base, reference))
    path, question, query = target.partition("?")
    target = without_dot_segments(path) + question + query  # RFC 3986 5.2.2, also for an absolute URL
    return origin, f"{origin}{escaped(target)}"


def _join(base: str, location: str) -> str:
    """Return the target of a reference relative to a URL, without resolving dot segments (RFC 3986 5.2.2).

    The standard library's urljoin would drop an empty query and a trailing semicolon. A redirect that only adds one of
    these would then look like a loop, and a loop allows the whole site.
    """
    scheme, authority, path, rest = _REFERENCE.match(location).groups()  # type: ignore[union-attr] # it always matches
    if scheme:
        return location
    if authority:
        return f"{base.partition('//')[0]}{location}"
    # The base is an http(s) URL; ``split`` later brings the authority of the result to normal form.
    scheme, authority, base_path, base_rest = _REFERENCE.match(base).groups()  # type: ignore[union-attr] # likewise
    base_path = base_path or "/"  # RFC 3986 6.2.3: an empty path is "/"
    if not path:
        return f"{scheme}{authority}{base_path}{rest if rest.startswith('?') else base_rest.partition('#')[0]}"
    if not path.startswith("/"):
        path = base_path[: base_path.rfind("/") + 1] + path  # RFC 3986 5.2.3
    return f"{scheme}{authority}{path}{rest}"
