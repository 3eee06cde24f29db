"""The limits of a crawl: the links that it follows, the number of pages that it takes from each host, and its time.

A pattern of ``allow`` or ``deny`` has a host, a path, or both, as in ``example.com/docs/``. Hosts are compared in their
normal form. A host with a leading dot matches this domain and all hosts below it. A host with a port matches only this
port. The path is a pattern as in robots.txt: the target must begin with it, ``*`` matches any octets, and a final ``$``
matches the end of the target.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from politesse._base.checks import check_least, check_positive, wrong_type
from politesse.errors import ConfigurationError, InvalidURL
from politesse.origin import Origin, split
from politesse.robots.pattern import matcher, normalise_pattern, normalise_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PORT: Final = re.compile(r":\d+\Z")


class Limits:
    """The limits of one crawl; see ``PoliteQueue.crawl`` for their meaning.

    Raises:
        ConfigurationError: a pattern or a number is invalid.

    Attributes:
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
        target = normalise_target(target)
        if self._allow is not None and not any(pattern.matches(origin, target) for pattern in self._allow):
            return False
        return not any(pattern.matches(origin, target) for pattern in self._deny)

    def note_page(self, origin: Origin) -> None:
        """Count a page that is handed to ``handle``; needed only if ``places`` has a limit."""
        self._pages[origin.pacing_host] += 1
        if self.places is not None and self.is_full(origin):
            self.places[origin.pacing_host].release()  # the workers that wait for a place find the host full

    def is_full(self, origin: Origin) -> bool:
        """Return whether ``handle`` has got ``max_pages_per_host`` pages of the origin's host."""
        return self._max_pages_per_host is not None and self._pages[origin.pacing_host] >= self._max_pages_per_host


class _Pattern:
    """One pattern, such as ``.example.com/docs/``."""

    __slots__ = ("_begins", "_domain", "_port", "_site")

    def __init__(self, text: str) -> None:
        host, slash, path = text.partition("/")
        origin = Origin.of(f"http://{host.removeprefix('.')}") if host else None
        self._site = None if origin is None else origin.host
        self._domain = f".{self._site}" if host.startswith(".") else None
        self._port = origin.port if origin is not None and _PORT.search(host) else None
        self._begins: Callable[[str], bool] | None = matcher(normalise_pattern(f"/{path}")) if slash else None

    def matches(self, origin: Origin, target: str) -> bool:
        """Return whether the pattern matches a URL, given as its origin and its target in normal form."""
        if self._site is not None:
            is_below = self._domain is not None and origin.host.endswith(self._domain)
            if not (origin.host == self._site or is_below) or self._port not in {None, origin.port}:
                return False
        return self._begins is None or self._begins(target)


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
            patterns.append(_Pattern(text))
        except InvalidURL as error:
            raise ConfigurationError(f"{name}={text!r:.100}: its host {error.problem}") from None
    return tuple(patterns)
