from collections import Counter

import pytest

from politesse.cli.demo.sites import BLUEPRINTS, TOKEN, Page, Site, make_sites
from politesse.robots import RobotsTxt
from tests.rules.properties import reference

ADDRESSES = {blueprint.name: f"http://127.0.0.1:{4000 + n}" for n, blueprint in enumerate(BLUEPRINTS)}
PAGES = 3_000


@pytest.fixture(scope="module")
def sites() -> list[Site]:
    return make_sites(ADDRESSES, PAGES, seed=1)


def _pages(sites: list[Site]) -> list[Page]:
    return [page for site in sites for page in site.pages.values()]


def _status(answer: bytes) -> int:
    return int(answer.split()[1])


def _robots(site: Site) -> str | None:
    """The file that holds in the end; None for none."""
    answers = site.blueprint.robots
    if not answers or _status(answers[-1]) in {403, 404}:
        return None
    if _status(answers[-1]) == 301:
        (other,) = (blueprint for blueprint in BLUEPRINTS if blueprint.files)
        answers = next(iter(other.files.values()))
    return answers[-1].partition(b"\r\n\r\n")[2].decode()


def test_labels_are_those_of_a_literal_reading_of_the_rules(sites: list[Site]) -> None:
    for site in sites:
        robots = _robots(site)
        if robots is None:
            assert {page.forbidden for page in site.pages.values()} == {not site.blueprint.robots}
            continue
        records = reference.records_for(robots.encode(), TOKEN.lower().encode())
        for page in site.pages.values():
            assert reference.decide(records, page.target.encode()).allowed is not page.forbidden, page.target
            assert reference.decide(records, page.href.encode()).allowed is not page.forbidden, page.href


def test_rules_that_pages_are_made_for_stand_in_the_file() -> None:
    for site in make_sites(ADDRESSES, 200, seed=1):
        lines = (_robots(site) or "").splitlines()
        assert {page.rule for page in site.pages.values()} - {""} <= set(lines)


def test_every_rule_that_binds_the_demo_has_its_pages(sites: list[Site]) -> None:
    for site in sites:
        records = reference.records_for((_robots(site) or "").encode(), TOKEN.lower().encode())
        made_for = {page.rule.partition(": ")[2].encode() for page in site.pages.values()}
        assert {record.path for record in records} <= made_for


def test_stated_pace_is_in_the_group_of_the_demo(sites: list[Site]) -> None:
    asked = {}
    for site in sites:
        rules = RobotsTxt.parse((_robots(site) or "").encode()).rules_for(TOKEN)
        stated_s = [rules.crawl_delay or 0.0, *(rate.interval_s for rate in rules.request_rates)]
        assert max(stated_s) == site.blueprint.asks_s
        if site.blueprint.asks:
            assert site.blueprint.asks in (_robots(site) or "").splitlines()
            asked[site.blueprint.asks] = site.blueprint.asks_s
    assert asked == {"Crawl-delay: 0.04": 0.04, "Request-rate: 40/1s": 1 / 40}


def test_some_origin_is_busy_twice_even_in_the_smallest_web() -> None:
    for site in make_sites(ADDRESSES, 200, seed=1):
        allowed = sum(not page.forbidden for page in site.pages.values())
        assert max(site.blueprint.busy_at, default=0) <= allowed
    assert sum(len(blueprint.busy_at) for blueprint in BLUEPRINTS) == 2


def test_there_are_as_many_pages_as_promised(sites: list[Site]) -> None:
    pages = _pages(sites)
    assert abs(len(pages) - PAGES) < PAGES / 50
    assert sum(not page.forbidden for page in pages) >= 2_000
    assert sum(page.forbidden for page in pages) >= 200


def test_every_kind_of_answer_for_robots_txt_occurs() -> None:
    statuses = {tuple(map(_status, blueprint.robots)) for blueprint in BLUEPRINTS}
    assert statuses == {(200,), (404,), (403,), (503, 503, 200), (429, 200), (301,), ()}
    assert any(b"text/html" in answer for blueprint in BLUEPRINTS for answer in blueprint.robots)


def test_a_polite_crawl_reaches_every_page_by_ordinary_links(sites: list[Site]) -> None:
    reached = {site.front for site in sites}
    frontier = list(reached)
    while frontier:
        page = frontier.pop()
        new = set() if page.forbidden or page.redirects else set(page.links) - reached
        reached |= new
        frontier += new
    assert reached == set(_pages(sites))


def test_forbidden_pages_are_offered_and_redirected_to_at_home_and_from_elsewhere(sites: list[Site]) -> None:
    pages = _pages(sites)
    offers = Counter(
        link.site is page.site for page in pages if not page.forbidden for link in page.links if link.forbidden
    )
    assert min(offers[True], offers[False]) > 50
    targets = [(page.site, page.redirect) for page in pages if page.redirect is not None]
    led = {(target.forbidden, target.site is site) for site, target in targets}
    assert led == {(True, True), (True, False), (False, True), (False, False)}
    assert not any(target.redirects for _, target in targets)


def test_the_same_seed_makes_the_same_web(sites: list[Site]) -> None:
    shown = [(repr(page), repr(page.links), repr(page.redirect)) for page in _pages(sites)]
    for seed, same in ((1, True), (2, False)):
        again = _pages(make_sites(ADDRESSES, PAGES, seed))
        assert ([(repr(page), repr(page.links), repr(page.redirect)) for page in again] == shown) is same


@pytest.mark.parametrize("seed", range(5))
def test_the_smallest_web_has_everything(seed: int) -> None:
    sites = make_sites(ADDRESSES, 200, seed)
    assert all(len(site.pages) > 1 for site in sites)
    assert {page.rule for page in _pages(sites) if page.forbidden} >= {"Disallow: /private/", "Disallow: /*.pdf$"}
