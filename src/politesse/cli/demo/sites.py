"""The little web of the demo: nine origins, what they answer for robots.txt, and pages made for their rules.

Whether a page is forbidden is written down here, by hand, where its family is made for a line of a robots.txt; so is
the pace that an origin states. No parser and no matcher is involved.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from politesse.cli.demo.pages import FRONT, Blueprint, Family, Page, Site, SiteAnswer, weave

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TOKEN: Final = "PolitesseDemo"  # noqa: S105 - a product token is no secret


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

HTML: Final = """\
<!doctype html><title>Welcome</title>
<p>We have no such file, but we like to answer 200.
<p>User-agent: * Disallow: /
"""

_ARTICLES: Final = Family("", forbidden=False, target="/articles/{n}", weight=8)
_FEW_ARTICLES: Final = Family("", forbidden=False, target="/articles/{n}", weight=3)
_MOVED: Final = Family("", forbidden=False, target="/moved/{n}", weight=1, redirects=True)
_TEMPTING: Final = Family("", forbidden=False, target="/private/{n}.pdf?session={n}")

BLUEPRINTS: Final = (
    Blueprint(
        "wildcards",
        (SiteAnswer(200, WILDCARDS_TXT),),
        (
            _ARTICLES,
            _MOVED,
            Family("Disallow: /private/", forbidden=True, target="/private/{n}"),
            Family("Allow: /private/press/", forbidden=False, target="/private/press/{n}"),
            Family("Disallow: /*?session=", forbidden=True, target="/shop/{n}?session={n}"),
            Family("", forbidden=False, target="/shop/{n}?page=2&session={n}"),
            Family("Disallow: /*.pdf$", forbidden=True, target="/papers/{n}.pdf"),
            Family("", forbidden=False, target="/papers/{n}.pdf?view=html"),
            Family("Disallow: /archive/*/raw/", forbidden=True, target="/archive/{n}/raw/scan"),
            Family("", forbidden=False, target="/archive/{n}/raw"),
            Family("Disallow: /caf%C3%A9/", forbidden=True, target="/caf%C3%A9/{n}", href="/café/{n}"),
            Family("", forbidden=False, target="/cafe/{n}"),
            Family("Disallow: /files%2Fold", forbidden=True, target="/files%2Fold/{n}"),
            Family("", forbidden=False, target="/files/old/{n}"),
        ),
    ),
    Blueprint("not found", (SiteAnswer(404, "no such file"),), (_ARTICLES, _MOVED, _TEMPTING)),
    Blueprint(
        "forbidden",
        (SiteAnswer(403, "not for you"),),
        (_ARTICLES, _MOVED, _TEMPTING),
        # A 429 of another host: it closes the site that redirects here, whose own host stays open.
        {"/shared/robots.txt": (SiteAnswer(429, retry_after_s=2), SiteAnswer(200, SHARED_TXT))},
    ),
    Blueprint(
        "recovers",
        (SiteAnswer(503, retry_after_s=1), SiteAnswer(503, retry_after_s=2), SiteAnswer(200, RECOVERS_TXT)),
        (
            _ARTICLES,
            _MOVED,
            Family("Disallow: /cgi-bin/", forbidden=True, target="/cgi-bin/run?id={n}"),
            Family("Disallow: /search", forbidden=True, target="/search?q={n}"),
            Family("Allow: /search/help", forbidden=False, target="/search/help/{n}"),
            Family("", forbidden=False, target="/Search?q={n}"),
        ),
    ),
    Blueprint(
        "slow down",
        (SiteAnswer(429, retry_after_s=2), SiteAnswer(200, SLOW_DOWN_TXT)),
        (
            _FEW_ARTICLES,
            _MOVED,
            Family("Disallow: /drafts/", forbidden=True, target="/drafts/{n}"),
            Family("Disallow: /*/print$", forbidden=True, target="/articles/{n}/print"),
            Family("", forbidden=False, target="/articles/{n}/print/large"),
            Family("", forbidden=False, target="/notes/{n}"),
        ),
        asks="Crawl-delay: 0.04",
        asks_s=0.04,
    ),
    Blueprint(
        "redirects",
        (SiteAnswer(301, location="{forbidden}/shared/robots.txt"),),
        (
            _ARTICLES,
            _MOVED,
            Family("Disallow: /members/", forbidden=True, target="/members/{n}"),
            Family("Allow: /members/join", forbidden=False, target="/members/join?by={n}"),
            Family("Disallow: /*/edit$", forbidden=True, target="/wiki/{n}/edit"),
            Family("", forbidden=False, target="/wiki/{n}/editors"),
        ),
        asks="Request-rate: 40/1s",
        asks_s=0.025,
    ),
    Blueprint(
        "expires",
        (SiteAnswer(200, EXPIRES_TXT, max_age_s=2),),
        (_ARTICLES, _MOVED, Family("Disallow: /old/", forbidden=True, target="/old/{n}")),
        busy_at=frozenset({5, 15}),
    ),
    Blueprint("html", (SiteAnswer(200, HTML, "text/html"),), (_ARTICLES, _MOVED, _TEMPTING)),
    Blueprint("black hole", (), (Family("", forbidden=True, target="/void/{n}", weight=1),), beside="not found"),
)


def make_sites(addresses: Mapping[str, str], pages: int, seed: int) -> list[Site]:
    """Make the web with about ``pages`` pages; the same seed makes the same web.

    ``addresses`` holds scheme, host and port of each blueprint by its name.
    """
    rng = random.Random(seed)  # noqa: S311 - a web that can be made again is wanted
    sites = [Site(blueprint, addresses[blueprint.name]) for blueprint in BLUEPRINTS]
    weights = sum(family.weight for blueprint in BLUEPRINTS for family in blueprint.families)
    for site in sites:
        site.pages[FRONT] = Page(site, FRONT, FRONT, forbidden=not site.blueprint.robots, rule="")
        for family in site.blueprint.families:
            count = max(1, round((pages - len(sites)) * family.weight / weights))
            site.pages |= {page.target: page for page in _members(site, family, count, rng)}
    weave(sites, rng)
    return sites


def _members(site: Site, family: Family, count: int, rng: random.Random) -> Iterator[Page]:
    for n in sorted(rng.sample(range(1, 10 * count + 1), count)):
        target = family.target.format(n=n)
        href = (family.href or family.target).format(n=n)
        yield Page(site, target, href, family.forbidden, family.rule, redirects=family.redirects)
