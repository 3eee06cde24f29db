"""The parts of the demo's web: sites with scripted answers, families of pages made for one rule each, and links."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import cycle
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping, Sequence


FRONT: Final = "/"
_AT_HOME: Final = 0.8


@dataclass(frozen=True, slots=True)
class SiteAnswer:
    """What a server answers for one request.

    Attributes:
        status: the HTTP status.
        body: of type ``content_type``.
        retry_after_s: sent as Retry-After; None for none.
        location: sent as Location, ``{name}`` in it for the address of an origin; empty for none.
        max_age_s: sent as Cache-Control; None for none.
    """

    status: int
    body: str = ""
    content_type: str = "text/plain"
    retry_after_s: int | None = None
    location: str = ""
    max_age_s: int | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """Pages that are made for one line of a robots.txt.

    Attributes:
        rule: the line that decides about them; empty where none is to.
        forbidden: whether it forbids them.
        target: as it arrives at the server, ``{n}`` in it for a number.
        href: as links spell it, where that is not the target.
        weight: how many there are of it, compared with others.
        redirects: whether they answer with a redirect to some other page.
    """

    rule: str
    forbidden: bool
    target: str
    href: str = ""
    weight: int = 2
    redirects: bool = False


@dataclass(frozen=True, slots=True)
class Blueprint:
    """An origin before it has an address.

    Attributes:
        name: for people.
        robots: the answers for robots.txt, one after the other; the last one stays; none at all for no answer.
        families: its pages; all forbidden where there is never an answer for robots.txt.
        files: what else it answers, by target: one answer after the other; the last one stays.
        asks: the line of its robots.txt that states a pace; empty for none.
        asks_s: the pause between two requests that this line means, in seconds.
        busy_at: which page requests, counted from 1, it answers with 429 and Retry-After.
        beside: the origin with which it shares a host, each on a port of its own; empty for a host of its own.
    """

    name: str
    robots: tuple[SiteAnswer, ...]
    families: tuple[Family, ...]
    files: Mapping[str, tuple[SiteAnswer, ...]] = field(default_factory=dict)
    asks: str = ""
    asks_s: float = 0.0
    busy_at: frozenset[int] = frozenset()
    beside: str = ""

    @property
    def max_age_s(self) -> int | None:
        """For how many seconds its robots.txt may be used; None where it does not say."""
        return self.robots[-1].max_age_s if self.robots else None


@dataclass(slots=True, eq=False, repr=False)
class Page:
    """One page.

    Attributes:
        site: whose.
        target: as it arrives at the server.
        href: as links spell it, without the origin.
        forbidden: whether a crawler must not request it.
        rule: the line that it was made for; empty for none.
        links: to the pages that it offers.
        redirects: whether it answers with a redirect.
        redirect: where that leads to.
    """

    site: Site
    target: str
    href: str
    forbidden: bool
    rule: str
    links: list[Page] = field(default_factory=list)
    redirects: bool = False
    redirect: Page | None = None

    def __repr__(self) -> str:
        return f"<Page {self.site.address}{self.target}{', forbidden' if self.forbidden else ''}>"


@dataclass(slots=True, eq=False, repr=False)
class Site:
    """An origin with its pages.

    Attributes:
        blueprint: what it was made from.
        address: scheme, host and port.
        pages: by target.
    """

    blueprint: Blueprint
    address: str
    pages: dict[str, Page] = field(default_factory=dict)

    @property
    def front(self) -> Page:
        """The page that a crawl starts from."""
        return self.pages[FRONT]

    def __repr__(self) -> str:
        return f"<Site {self.blueprint.name} at {self.address}: {len(self.pages)} pages>"


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
