"""The requests of one fetch: where a redirect leads, and whether it may be followed. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from politesse.errors import InvalidURL
from politesse.origin import escaped, split
from politesse.ports import FaultKind, FetchFault
from politesse.robots.pattern import without_dot_segments

if TYPE_CHECKING:
    from politesse.origin import Origin
    from politesse.ports import FetchRequest

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
"""The statuses whose Location is followed."""

_MAX_DETAIL: Final = 300  # what an exception quotes of a hostile answer may be megabytes
# A scheme or "//" without the authority that has to follow: joined, it would name the page that we come from.
_WITHOUT_AUTHORITY = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:(?!//[^/?#])|//(?:[/?#]|$))")
# RFC 3986 appendix B: scheme, authority, path, and all behind it. Matches everything, and is linear.
_REFERENCE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)?(//[^/?#]*)?([^?#]*)(.*)", re.DOTALL)


class Hops:
    """The requests of one fetch; the last of ``seen`` is the one under way.

    Attributes:
        request: what was asked for.
        seen: the URLs so far.
    """

    __slots__ = ("request", "seen")

    def __init__(self, request: FetchRequest) -> None:
        self.request = request
        self.seen = [request.url]

    @property
    def url(self) -> str:
        """The URL of the request under way."""
        return self.seen[-1]

    @property
    def conditions(self) -> dict[str, str]:
        """The headers that make the request under way conditional; none where the copy came from another URL."""
        validators = self.request.validators
        if validators is None or validators.url != self.url:
            return {}
        conditions = {"If-None-Match": validators.etag, "If-Modified-Since": validators.last_modified}
        return {name: value for name, value in conditions.items() if value}

    def redirect(self, status: int, location: str) -> tuple[Origin, str] | FetchFault:
        """Return where an answer points, or why it is not followed. To follow it, add the URL to ``seen``."""
        location = location.strip(" \t")  # RFC 9110 5.5: blanks around a value are none of it
        if not location or _WITHOUT_AUTHORITY.match(location) is not None:
            return self.fault(FaultKind.REDIRECT_TARGET, f"a redirect to {location!r:.100}, which is no URL", status)
        try:
            origin, target = split(_join(self.url, location))
            path, question, query = target.partition("?")
            target = without_dot_segments(path) + question + query  # RFC 3986 5.2.2, of an absolute URL too
            url = f"{origin}{escaped(target)}"
        except ValueError as error:  # InvalidURL is one, and so is text that has no octets
            problem = error.problem if isinstance(error, InvalidURL) else str(error)
            return self.fault(FaultKind.REDIRECT_TARGET, f"a redirect to {location!r:.100}, which {problem}", status)
        if len(self.seen) > self.request.max_redirects:
            detail = f"more than {self.request.max_redirects} redirects"
            return self.fault(FaultKind.REDIRECT_LIMIT, detail, status, location=url)
        if url in self.seen:
            return self.fault(FaultKind.REDIRECT_LIMIT, f"a redirect loop through {url:.100}", status)
        return origin, url

    def fault(self, kind: FaultKind, detail: str, status: int | None = None, *, location: str = "") -> FetchFault:
        """Return that the request under way came to nothing."""
        return FetchFault(kind, detail[:_MAX_DETAIL], self.url, status, location=location)


def _join(base: str, location: str) -> str:
    """Return what a reference stands for at an URL, its dot segments unresolved (RFC 3986 5.2.2).

    That tells an empty query from none. The standard library's urljoin drops it, and a last semicolon as well: a
    redirect to the very same URL but for these would seem a loop, and open the site.
    """
    scheme, authority, path, rest = _REFERENCE.match(location).groups()  # type: ignore[union-attr] # it always matches
    if scheme:
        return location
    if authority:
        return f"{base.partition('//')[0]}{location}"
    origin, target = split(base)
    base_path, question, query = target.partition("?")
    if not path:
        return f"{origin}{base_path}{rest if rest.startswith('?') else question + query}"
    if not path.startswith("/"):
        path = base_path[: base_path.rfind("/") + 1] + path  # RFC 3986 5.2.3
    return f"{origin}{path}{rest}"
