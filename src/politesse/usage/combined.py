"""Usage preferences that are combined when they are read: computing them for each verdict would cost more than it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from politesse.usage.model import Usage, combine

if TYPE_CHECKING:
    from collections.abc import Callable


class CombinedUsage:
    """What several places state about the use of a URL: the sources are called when ``usage`` is, and combined.

    Args:
        sources: each returns what one place states about a URL; they may raise InvalidURL.
    """

    __slots__ = ("_sources",)

    def __init__(self, *sources: Callable[[str], Usage]) -> None:
        self._sources = sources

    def usage(self, url: str, /) -> Usage:
        """Return what is stated about ``url``.

        Raises:
            InvalidURL: if ``url`` is none.
        """
        return combine(source(url) for source in self._sources)
