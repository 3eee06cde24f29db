"""The web of the demo: nine origins, their answers for robots.txt, pages for each rule, and links.

Each page states the rule that decides about it, and each origin states its pace, both written by hand. This module uses
no parser and no matcher.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Final

from politesse._base.constants import ROBOTS_TXT
from politesse.testing.hostile import response

TOKEN: Final = "PolitesseDemo"  # noqa: S105 - a product token is no secret
FRONT: Final = "/"
_AT_HOME: Final = 0.8


@dataclass(frozen=True, slots=True)
class Family:
    """Pages that are made for one line of a robots.txt.

    Attributes:
        target: the target as the server gets it, with ``{n}`` for a number.
        rule: the line that decides about these pages, or empty.
        href: the spelling in links, if it differs from the target.
        weight: the share of the family in all pages.
        redirects: whether the pages redirect to another page.
    """

    target: str
    rule: str = ""
    href: str = ""
    weight: int = 2
    redirects: bool = False


@dataclass(frozen=True, slots=True)
class Blueprint:
    """An origin before it has an address.

    Attributes:
        name: the name in the output.
        robots: the answers for robots.txt, one after the other; the last answer is repeated. The name of an origin in
            braces stands for the address of that origin. If ``robots`` is empty, the server does not answer, so all
            pages are forbidden.
        families: the families of its pages.
        files: maps each other target to its answers, which are sent one after the other; the last answer is repeated.
        asks: the line of robots.txt that states a pace; empty without such a line.
        asks_s: the pause that the line in ``asks`` requires between two requests, in seconds.
        max_age_s: how long robots.txt may be used, in seconds, or None if the origin does not state this.
        busy_at: the numbers, from 1, of the page requests that the origin answers with 429 and Retry-After.
        beside: the name of another origin, on another port of the same host; empty if the origin has its own host.
    """

    name: str
    robots: tuple[bytes, ...]
    families: tuple[Family, ...]
    files: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    asks: str = ""
    asks_s: float = 0.0
    max_age_s: int | None = None
    busy_at: frozenset[int] = frozenset()
    beside: str = ""


@dataclass(slots=True, eq=False, repr=False)
class Page:
    """One page.

    Attributes:
        site: the site of the page.
        target: the target as the server gets it.
        href: the spelling in links, without the origin.
        rule: the line for which the page was made; empty without a line.
        redirects: whether the page answers with a redirect.
        links: the pages to which it links.
        redirect: the page to which it redirects, or None.
    """

    site: Site
    target: str
    href: str
    rule: str = ""
    redirects: bool = False
    links: list[Page] = field(default_factory=list)
    redirect: Page | None = None

    @property
    def forbidden(self) -> bool:
        """Whether a crawler must not request the page."""
        return self.rule.startswith("Disallow:") or not self.site.blueprint.robots

    def __repr__(self) -> str:
        return f"<Page {self.site.address}{self.target}{', forbidden' if self.forbidden else ''}>"


@dataclass(slots=True, eq=False, repr=False)
class Site:
    """An origin with its pages. A Site gives the rules and the pace of the origin to the judge of the crawl.

    Attributes:
        blueprint: the plan of the site.
        address: scheme, host and port.
        pages: maps each target to its page.
    """

    blueprint: Blueprint
    address: str
    pages: dict[str, Page] = field(default_factory=dict)

    @property
    def robots_url(self) -> str:
        """The URL of the site's robots.txt."""
        return self.address + ROBOTS_TXT

    @property
    def front(self) -> Page:
        """The page at which a crawl starts."""
        return self.pages[FRONT]

    def page_at(self, url: str) -> Page | None:
        """Return the page at a URL of this site, or None."""
        return self.pages.get(url.removeprefix(self.address))

    def against(self, target: str, wall: float) -> str | None:  # noqa: ARG002 - it is the same at any time
        """Return the rule that forbids a request target, or None."""
        page = self.pages.get(target)
        if page is None:
            return "nothing links to it"
        return page.rule if page.forbidden else None

    def interval(self, wall: float) -> tuple[float, str]:  # noqa: ARG002 - the same
        """Return the pause that robots.txt states between two requests, in seconds, and the name of the field."""
        return self.blueprint.asks_s, self.blueprint.asks.partition(":")[0]

    def open_at(self, wall: float) -> bool:  # noqa: ARG002 - the same
        """Return True, because the sites permit visits at any time."""
        return True


WILDCARDS_TXT: Final = """\
# Everybody but the crawler of the demo is to stay away.
User-agent: *
Disallow: /

User-agent: politessedemo
Disallow: /private/
Allow: /private/press/
Disallow: /*?session=
Disallow: /*.pdf$
Disallow: /archive/*/raw/
Disallow: /caf%C3%A9/
Disallow: /files%2Fold
"""

SHARED_TXT: Final = """\
User-agent: *
Disallow: /members/
Allow: /members/join
Disallow: /*/edit$
Request-rate: 40/1s
"""

RECOVERS_TXT: Final = """\
User-agent: PolitesseDemoX
Disallow: /

User-agent: *
Disallow: /cgi-bin/
Disallow: /search
Allow: /search/help
"""

SLOW_DOWN_TXT: Final = """\
User-agent: OtherBot
User-agent: PolitesseDemo
Disallow: /drafts/
Crawl-delay: 0.04

User-agent: *
Disallow: /notes/
Crawl-delay: 3600

User-agent: politessedemo
Disallow: /*/print$
"""

EXPIRES_TXT: Final = """\
User-agent: *
Disallow: /old/
"""

HTML: Final = b"""\
<!doctype html><title>Welcome</title>
<p>We have no such file, but we like to answer 200.
<p>User-agent: * Disallow: /
"""


def _text(status: int, body: str = "", **headers: str) -> bytes:
    return response(status, body.encode(), Content_Type="text/plain; charset=utf-8", **headers)


_ARTICLES: Final = Family("/articles/{n}", weight=8)
_FEW_ARTICLES: Final = Family("/articles/{n}", weight=3)
_MOVED: Final = Family("/moved/{n}", weight=1, redirects=True)
_TEMPTING: Final = Family("/private/{n}.pdf?session={n}")

BLUEPRINTS: Final = (
    Blueprint(
        "wildcards",
        (_text(200, WILDCARDS_TXT),),
        (
            _ARTICLES,
            _MOVED,
            Family("/private/{n}", "Disallow: /private/"),
            Family("/private/press/{n}", "Allow: /private/press/"),
            Family("/shop/{n}?session={n}", "Disallow: /*?session="),
            Family("/shop/{n}?page=2&session={n}"),
            Family("/papers/{n}.pdf", "Disallow: /*.pdf$"),
            Family("/papers/{n}.pdf?view=html"),
            Family("/archive/{n}/raw/scan", "Disallow: /archive/*/raw/"),
            Family("/archive/{n}/raw"),
            Family("/caf%C3%A9/{n}", "Disallow: /caf%C3%A9/", href="/café/{n}"),
            Family("/cafe/{n}"),
            Family("/files%2Fold/{n}", "Disallow: /files%2Fold"),
            Family("/files/old/{n}"),
        ),
    ),
    Blueprint("not found", (_text(404, "no such file"),), (_ARTICLES, _MOVED, _TEMPTING)),
    Blueprint(
        "forbidden",
        (_text(403, "not for you"),),
        (_ARTICLES, _MOVED, _TEMPTING),
        # This 429 of another host closes the site that redirects here, but not the host of that site.
        {"/shared/robots.txt": (_text(429, Retry_After="2"), _text(200, SHARED_TXT))},
    ),
    Blueprint(
        "recovers",
        (_text(503, Retry_After="1"), _text(503, Retry_After="2"), _text(200, RECOVERS_TXT)),
        (
            _ARTICLES,
            _MOVED,
            Family("/cgi-bin/run?id={n}", "Disallow: /cgi-bin/"),
            Family("/search?q={n}", "Disallow: /search"),
            Family("/search/help/{n}", "Allow: /search/help"),
            Family("/Search?q={n}"),
        ),
    ),
    Blueprint(
        "slow down",
        (_text(429, Retry_After="2"), _text(200, SLOW_DOWN_TXT)),
        (
            _FEW_ARTICLES,
            _MOVED,
            Family("/drafts/{n}", "Disallow: /drafts/"),
            Family("/articles/{n}/print", "Disallow: /*/print$"),
            Family("/articles/{n}/print/large"),
            Family("/notes/{n}"),
        ),
        asks="Crawl-delay: 0.04",
        asks_s=0.04,
    ),
    Blueprint(
        "redirects",
        (_text(301, Location="{forbidden}/shared/robots.txt"),),
        (
            _ARTICLES,
            _MOVED,
            Family("/members/{n}", "Disallow: /members/"),
            Family("/members/join?by={n}", "Allow: /members/join"),
            Family("/wiki/{n}/edit", "Disallow: /*/edit$"),
            Family("/wiki/{n}/editors"),
        ),
        asks="Request-rate: 40/1s",
        asks_s=0.025,
    ),
    Blueprint(
        "expires",
        (_text(200, EXPIRES_TXT, Cache_Control="max-age=2"),),
        (_ARTICLES, _MOVED, Family("/old/{n}", "Disallow: /old/")),
        max_age_s=2,
        busy_at=frozenset({5, 15}),
    ),
    Blueprint(
        "html",
        (response(200, HTML, Content_Type="text/html; charset=utf-8"),),
        (_ARTICLES, _MOVED, _TEMPTING),
    ),
    Blueprint("black hole", (), (Family("/void/{n}", weight=1),), beside="not found"),
)


def make_sites(addresses: Mapping[str, str], pages: int, seed: int) -> list[Site]:
    """Make the web with about ``pages`` pages; the same seed makes the same web.

    ``addresses`` maps the name of each blueprint to the scheme, host and port of its site.
    """
    rng = random.Random(seed)  # noqa: S311 - a web that can be made again is wanted
    sites = [Site(blueprint, addresses[blueprint.name]) for blueprint in BLUEPRINTS]
    weights = sum(family.weight for blueprint in BLUEPRINTS for family in blueprint.families)
    for site in sites:
        site.pages[FRONT] = Page(site, FRONT, FRONT)
        for family in site.blueprint.families:
            count = max(1, round((pages - len(sites)) * family.weight / weights))
            for n in sorted(rng.sample(range(1, 10 * count + 1), count)):
                target, href = family.target.format(n=n), (family.href or family.target).format(n=n)
                site.pages[target] = Page(site, target, href, family.rule, family.redirects)
    _weave(sites, rng)
    return sites


def _weave(sites: Sequence[Site], rng: random.Random) -> None:
    """Add one link to each allowed page and two links to each forbidden page, and choose the targets of redirects.

    Only pages that a polite crawl reaches have links, so a crawl from the front pages reaches all allowed pages.
    Redirects lead alternately to a forbidden and an allowed page, of the same or another site.
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
    with_text = [page for page in pages if not page.redirects]
    turns = cycle([(True, True), (True, False), (False, True), (False, False)])
    for page in pages:
        if page.redirects:
            forbidden, home = next(turns)
            fitting = [one for one in with_text if one.forbidden is forbidden and (one.site is page.site) is home]
            # If no page fits, any page will do: a site without rules, for example, has no forbidden page.
            page.redirect = rng.choice(fitting or with_text)
