"""Origins without end: files of the corpus, or small ones, each a little different.

A rule path occurs here as often as in the corpus: so origins share as many rules as on the web.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from politesse.ports import FetchResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.corpus import RobotsFile
    from politesse.ports import FetchRequest, FetchResult

_RULE: Final = re.compile(rb"^([ \t]*(?:dis)?allow[ \t]*:[ \t]*/?)([^\s#]*)", re.IGNORECASE | re.MULTILINE)
_SMALL: Final = b"User-agent: *\nDisallow: /private-%d/\nDisallow: /cgi-bin/\nAllow: /private-%d/terms\n"


class Bodies:
    """The robots.txt of any number of origins.

    Args:
        files: the corpus.
    """

    def __init__(self, files: Sequence[RobotsFile]) -> None:
        self._files = files
        self._found: Counter[bytes] = Counter()
        for file in files:
            self._found.update({found[2] for found in _RULE.finditer(file.body)})

    def body(self, number: int) -> bytes:
        """Return the body of an origin; the first origins have the bodies of the corpus."""
        copy, place = divmod(number, len(self._files))
        if not copy:
            return self._files[place].body
        own = f"{copy}-".encode()

        def renamed(found: re.Match[bytes]) -> bytes:
            path = found[2]
            return found[1] + (own + path if path and self._found[path] == 1 else path)

        return _RULE.sub(renamed, self._files[place].body) + b"\n# %d\n" % number


class SmallBodies(Bodies):
    """Small files, each with rules of its own."""

    def __init__(self) -> None:
        super().__init__(())

    def body(self, number: int) -> bytes:
        return _SMALL % (number, number)


class NumberedFetcher:
    """Answers for the origins ``https://site0.example``, ``https://site1.example`` and so on, and keeps nothing.

    Attributes:
        fetches: how many there were.
    """

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.fetches = 0

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Answer at once."""
        self.fetches += 1
        number = int(str(request.origin).removeprefix("https://site").partition(".")[0])
        return FetchResponse(200, request.url, body=self._bodies.body(number))

    async def aclose(self) -> None:
        """Hold nothing."""


def url_of(number: int, path: str = "/") -> str:
    return f"https://site{number}.example{path}"
