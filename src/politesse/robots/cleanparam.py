"""Reads ``Clean-param``, with which a site tells Yandex the query parameters that do not change a page. Pure.

Yandex Webmaster, "Clean-param directive": ``Clean-param: p0[&p1&p2&..&pn] [path]``, anywhere in the file, for
all crawlers. Clean-param does not restrict access, but saves requests for identical pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from politesse.origin import StrOrURL, url_text
from politesse.robots.pattern import matcher, normalise_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from politesse.robots.line import Line

_FIELD: Final = "clean-param"


class _CleanParam(NamedTuple):
    names: frozenset[str]
    matches: Callable[[str], bool]


class CleanParams:
    """The Clean-param lines of a file.

    >>> from politesse import RobotsTxt
    >>> params = RobotsTxt.parse("Clean-param: sid&ref /shop").clean_params
    >>> params.canonical("https://example.com/shop/1?id=7&sid=x")
    'https://example.com/shop/1?id=7'

    Args:
        lines: all lines of a robots.txt.
    """

    __slots__ = ("_params",)

    def __init__(self, lines: Iterable[Line]) -> None:
        parsed = (_parse(line.value) for line in lines if line.name.lower() == _FIELD)
        self._params = tuple(param for param in parsed if param is not None)

    def __len__(self) -> int:
        return len(self._params)

    def canonical(self, url: StrOrURL) -> str:
        """Return ``url`` without the parameters that do not change the page; other parameters keep their order.

        Names of parameters are compared as they are written. The cost is at most the octets of all lines times the
        octets of ``url``.

        Args:
            url: absolute URL, or target that starts with ``/``; its fragment is kept.

        Raises:
            TypeError: ``url`` is neither a str nor a yarl.URL.
        """
        url = url_text(url)
        whole, hash_, fragment = url.partition("#")
        before, question, query = whole.partition("?")
        if not question or not self._params:
            return url
        path = "/" + before.partition("://")[2].partition("/")[2] if "://" in before else before
        meaningless = frozenset[str]().union(*(param.names for param in self._params if param.matches(path)))
        kept = [pair for pair in query.split("&") if pair.partition("=")[0] not in meaningless]
        return before + ("?" + "&".join(kept) if kept else "") + hash_ + fragment


def _parse(value: str) -> _CleanParam | None:
    names, *paths = value.split(maxsplit=1)[:2] or [""]
    known = frozenset(name for name in names.split("&") if name)
    pattern = normalise_pattern(paths[0].strip()) if paths else "/"
    return _CleanParam(known, matcher(pattern)) if known else None
