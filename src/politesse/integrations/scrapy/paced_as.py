"""What a request is paced as: its origin, and the slot of the scheduler's queue in which it waits."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from politesse.errors import InvalidURL
from politesse.origin import Origin

if TYPE_CHECKING:
    from scrapy import Request

_HTTP: Final = ("http://", "https://")
_WITHOUT_HOST: Final = frozenset({"data", "file"})


def origin_of(request: Request) -> Origin | None:
    """Return the origin that ``request`` is paced by; None if there is none.

    It is that of an http(s) URL. A URL of another scheme has a stand-in, because it is paced by its host alone.
    """
    return _origin_of(request.url)


@lru_cache(maxsize=10_000)
def _origin_of(url: str) -> Origin | None:
    if not url.startswith(_HTTP):
        scheme, _, rest = url.partition(":")
        if scheme in _WITHOUT_HOST:
            return None
        url = f"http:{rest}"
    try:
        return Origin.of(url)
    except InvalidURL:
        return None


def slot_of(request: Request) -> str | None:
    """Return the name of the scheduler's slot for ``request``; None if nothing paces it.

    Only requests of http(s) URLs wait for the robots.txt of their origin, so those of other schemes have other slots.
    """
    origin = origin_of(request)
    if origin is None:
        return None
    if request.url.startswith(_HTTP):
        return str(origin)
    return f"{request.url.partition(':')[0]}://{origin.pacing_host}"
