"""The hosts of the crawl: their pages, links and robots.txt.

The crawl starts at the first ``STARTS`` hosts. The front page of each host links to the front pages of ``FAN_OUT``
others, so every host is found after a few steps; each page links to the front page and to its neighbours. Host names
end in a label that the client chooses: with a new label, nothing is cached of any host.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from benchmarks.generator import generate
from benchmarks.words import word

if TYPE_CHECKING:
    from collections.abc import Iterator

STARTS: Final = 20
FAN_OUT: Final = 16
FORBIDDEN: Final = "/geheim/akte.html"
"""Linked from every ``FORBIDDEN_EVERY``-th front page. The generator's rules match no word of these paths."""

FORBIDDEN_EVERY: Final = 100

_FILLERS: Final = 64
_RULE: Final = b"Disallow: /geheim/\n"
_FIRST_LINE: Final = b"User-agent: *\n"


@dataclass(frozen=True, slots=True)
class Size:
    """Attributes:
    hosts: how many there are.
    pages_each: how many pages each of them has, without the forbidden one.
    page_bytes: of the text of the largest page; the smallest has a tenth of it.
    """

    hosts: int
    pages_each: int
    page_bytes: int

    @property
    def pages(self) -> int:
        return self.hosts * self.pages_each

    @property
    def forbidden(self) -> int:
        """How many forbidden pages are linked."""
        return -(-self.hosts // FORBIDDEN_EVERY)

    def starts(self, ending: str) -> list[str]:
        """Return the URLs to start with; ``ending`` of the host names includes the port."""
        return [f"http://site{host}{ending}/" for host in range(min(STARTS, self.hosts))]


class Web:
    """Bodies, the same for the same size and seed.

    Args:
        size: how many hosts and pages, and how large.
        seed: of the texts and of the robots.txt files.
    """

    def __init__(self, size: Size, seed: int) -> None:
        random = Random(seed)
        self._size = size
        self._robots = [body.removeprefix(_FIRST_LINE) for body in generate(size.hosts, seed)]
        random.shuffle(self._robots)  # the generator yields them by size
        self._texts = [self._text(place / (_FILLERS - 1), random) for place in range(_FILLERS)]

    def robots(self, host: int, ending: str) -> bytes:
        """Return a robots.txt; each host has another file, so that no parsed copy serves for two."""
        return b"".join((b"# %d%b\n" % (host, ending.encode()), _FIRST_LINE, _RULE, self._robots[host]))

    def page(self, host: int, ending: str, path: str) -> bytes | None:
        """Return a page; None for an unknown path."""
        number = _page_number(path)
        if path != FORBIDDEN and not 0 <= number < self._size.pages_each:
            return None
        anchors = "\n".join(f'<li><a href="{link}">{link}</a></li>' for link in self._links(host, ending, number))
        text = self._texts[(host * self._size.pages_each + number) % _FILLERS]
        return f"<!doctype html>\n<title>{host} {path}</title>\n<ul>\n{anchors}\n</ul>\n{text}\n".encode()

    def _links(self, host: int, ending: str, number: int) -> Iterator[str]:
        for other in dict.fromkeys((0, number - 1, *range(number + 1, number + 4))):
            if 0 <= other < self._size.pages_each:
                yield _path(other)
        if number == 0:
            first = STARTS + FAN_OUT * host
            for other in range(first, min(first + FAN_OUT, self._size.hosts)):
                yield f"http://site{other}{ending}/"
            if host % FORBIDDEN_EVERY == 0:
                yield FORBIDDEN

    def _text(self, share: float, random: Random) -> str:
        least = self._size.page_bytes * (0.1 + 0.9 * share)
        words = [word(random)]
        while sum(map(len, words)) + len(words) < least:
            words += (word(random) for _ in range(10))
        return f"<p>{' '.join(words)}</p>"


def _path(number: int) -> str:
    return f"/artikel-{number}.html" if number else "/"


def _page_number(path: str) -> int:
    """Return the number of a page; -1 for a path that is none."""
    if path == "/":
        return 0
    number = path.removeprefix("/artikel-").removesuffix(".html")
    return int(number) if number.isdecimal() else -1
