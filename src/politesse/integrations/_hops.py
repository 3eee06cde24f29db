"""The requests of a chain of redirects, for the integrations that follow redirects themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from politesse._http.redirects import REDIRECTS, resolved
from politesse.origin import Origin
from politesse.queue._web import resolved_location

# The same methods as in Crawlee, whose own type is in a private module.
Method = Literal["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"]

# The statuses after which the target is requested by GET: for all methods except POST, and for POST.
_MOVED: Final = (frozenset({303}), frozenset({301, 302, 303}))
_OF_ORIGIN: Final = frozenset({"authorization", "cookie", "host", "proxy-authorization"})


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

    def follows(self, status: int, location: str | None) -> bool:
        """Return whether the answer is a redirect to an http(s) URL; if so, become the request of its target."""
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


def path_of(url: str) -> str:
    """Return the path of an absolute URL as it is sent, without its query."""
    return "/" + url.partition("//")[2].partition("/")[2].partition("?")[0]


def spelt(url: str) -> str:
    """Return a URL as it is sent: escaped, without dot segments and fragment; raises InvalidURL."""
    return str(resolved(url, url)[1])
