"""Words that paths are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

_WORDS: Final = (  # noqa: SIM905 - as literals it would be seventy lines
    "about account admin ajax api archive article assets author basket blog browse cart category cgi-bin checkout "
    "comment content css data default directory download en event feed file forum gallery help home image includes "
    "index item js list login mail media member misc modules news node page photo post print private product profile "
    "public report review rss scripts search service shop sitemap static stats store tag temp theme topic upload user "
    "video view vote wp-admin wp-content"
).split()


def word(random: Random) -> str:
    """Return a word, every third with a number, so that few URLs come twice."""
    chosen = random.choice(_WORDS)
    return f"{chosen}-{random.randrange(100_000)}" if random.random() < 1 / 3 else chosen


def trail(random: Random, least: int, most: int) -> str:
    """Return between ``least`` and ``most`` segments of a path, the last one with an extension now and then."""
    joined = "/".join(word(random) for _ in range(random.randint(least, most)))
    return joined + random.choice(("", "", "/", ".html", ".php", ".jpg")) if joined else ""
