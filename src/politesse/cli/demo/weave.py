"""The links between the pages of the demo's web."""

from __future__ import annotations

from collections import defaultdict
from itertools import cycle
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from politesse.cli.demo.pages import Page, Site

_AT_HOME: Final = 0.8


def weave(sites: Sequence[Site], rng: random.Random) -> None:
    """Link every page from one that a polite crawl reaches, forbidden ones twice; and point the redirects somewhere.

    A page that is linked becomes one that links, if it is allowed and has a text: so all allowed pages can be reached
    from the front pages. Forbidden pages are offered as any other.
    """
    linking = defaultdict(list, {site.address: [site.front] for site in sites if not site.front.forbidden})
    everywhere = [page for pages in linking.values() for page in pages]
    pages = [page for site in sites for page in site.pages.values() if page is not site.front]
    rng.shuffle(pages)
    for page in pages:
        at_home = linking[page.site.address]
        for _ in range(1 + page.forbidden):
            parent = rng.choice(at_home if at_home and rng.random() < _AT_HOME else everywhere)
            parent.links.append(page)
        if not page.forbidden and not page.redirects:
            at_home.append(page)
            everywhere.append(page)
    _point_redirects(pages, rng)


def _point_redirects(pages: Sequence[Page], rng: random.Random) -> None:
    """Point every redirect to a forbidden or an allowed page, at home or elsewhere, in turn."""
    with_text = [page for page in pages if not page.redirects]
    turns: Iterator[tuple[bool, bool]] = cycle([(True, True), (True, False), (False, True), (False, False)])
    for page in pages:
        if not page.redirects:
            continue
        forbidden, at_home = next(turns)
        fitting = [
            other for other in with_text if other.forbidden is forbidden and (other.site is page.site) is at_home
        ]
        # A site without rules has no forbidden page of its own to send to.
        page.redirect = rng.choice(fitting or with_text)
