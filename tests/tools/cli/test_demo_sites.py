"""The demo's sites, how it judges their logs, and its table; test_demo runs it."""

import io
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from politesse.cli.demo.report import OWN_FLOOR, Row, audit, exit_code, table
from politesse.cli.demo.sites import BLUEPRINTS, TOKEN, Blueprint, Page, Site, make_sites
from politesse.robots import RobotsTxt
from politesse.testing import Exchange
from tests.rules.properties import reference
from tests.support.violations import (
    BEFORE_ROBOTS,
    FORBIDDEN,
    GAP,
    RETRIED_EARLY,
    RETRY_AFTER,
    STALE,
    WHILE_CLOSED,
)

ADDRESS = "http://127.0.0.1:4000"
OTHER = "http://127.0.0.2:4000"
FLOOR_S = 0.25  # a power of two, like all times here: the gaps come out to the bit
WORK_S = 0.0625

Request = tuple[float, str, int] | tuple[float, str, int, int]
Log = tuple[Site, list[Exchange]]
OPENED: list[Request] = [(0, "/robots.txt", 200), (1, "/", 200)]


def log_of(requests: list[Request], robots: bytes = b"", **plan: Any) -> Log:
    """A site with a front page that links to an allowed page and to a forbidden one, and its log."""
    site = Site(Blueprint("test", (robots,), (), {"/shared/robots.txt": ()}, **plan), ADDRESS)
    allowed = Page(site, "/a", "/a")
    forbidden = Page(site, "/f", "/f", "Disallow: /f")
    front = Page(site, "/", "/", links=[allowed, forbidden])
    site.pages = {page.target: page for page in (front, allowed, forbidden)}
    return site, [
        Exchange(ADDRESS + target, started, started + WORK_S, status, retry_after_s=wait_s[0] if wait_s else None)
        for started, target, status, *wait_s in requests
    ]


def row_of(requests: list[Request], **plan: Any) -> Row:
    (row,) = audit([log_of(requests, **plan)], FLOOR_S)
    return row


ROBOTS, FRONT = OPENED
REST: Request = (2, "/a", 200)
BUSY: Request = (0, "/robots.txt", 503, 2)

# The kinds of violations that the log of one site shows; the judge itself is tested elsewhere.
LOGS: dict[str, tuple[list[Request], list[str]]] = {
    "polite and complete": ([*OPENED, REST], []),
    "forbidden page": ([*OPENED, REST, (3, "/f", 200)], [FORBIDDEN]),
    "page before robots.txt": ([(0, "/", 200), (1, "/robots.txt", 200), REST], [BEFORE_ROBOTS]),
    "page while robots.txt fails": (
        [(0, "/robots.txt", 503), FRONT, (2, "/robots.txt", 200), (3, "/a", 200)],
        [WHILE_CLOSED],
    ),
    "robots.txt before its Retry-After": (
        [BUSY, (1, "/robots.txt", 200), (3, "/", 200), (4, "/a", 200)],
        [RETRIED_EARLY],
    ),
    "unlinked URL": ([*OPENED, REST, (3, "/elsewhere", 404)], [FORBIDDEN]),
    "file beside the pages": ([*OPENED, (1.25, "/shared/robots.txt", 200), (1.3125, "/a", 200)], []),
    "gap too short": ([*OPENED, (1 + FLOOR_S, "/a", 200)], [GAP]),
    "gap after robots.txt too short": ([ROBOTS, (WORK_S * 2, "/", 200), REST], [GAP]),
    "page before Retry-After": ([ROBOTS, (1, "/", 429, 2), REST, (5, "/", 200)], [RETRY_AFTER]),
    "page without an answer": ([ROBOTS, (1, "/", 0), (2, "/", 200), (3, "/a", 200)], []),
}


def test_violations_of_a_site_are_found_in_its_log() -> None:
    polite = row_of(LOGS["polite and complete"][0])
    for name, (requests, kinds) in LOGS.items():
        row = row_of(requests)
        assert [violation.kind for violation in row.violations] == kinds, name
        assert exit_code([row]) == exit_code([polite, row]) == (1 if kinds else 0), name


def test_a_violation_names_the_page_and_the_rule() -> None:
    (violation,) = row_of([*OPENED, (2, "/a", 200), (3, "/f", 200)]).violations
    assert str(violation) == f"forbidden page requested: {ADDRESS}/f (Disallow: /f)"


def test_an_allowed_page_that_was_not_served_is_a_fault() -> None:
    not_served: list[list[Request]] = [[], [(2, "/a", 0)], [(2, "/a", 429, 1)]]
    for last in not_served:
        row = row_of([*OPENED, *last])
        assert (row.served, row.missed, row.violations) == (1, 1, ())
        assert exit_code([row]) == 1


def test_pace_of_the_origin_counts_if_it_is_slower_than_the_floor() -> None:
    for asks, asks_s, pace_s, pace_by in (
        ("", 0.0, FLOOR_S, OWN_FLOOR),
        ("Crawl-delay: 0.125", 0.125, FLOOR_S, OWN_FLOOR),
        ("Crawl-delay: 0.5", 0.5, 0.5, "Crawl-delay"),
        ("Request-rate: 1/1s", 1.0, 1.0, "Request-rate"),
    ):
        assert row_of([], asks=asks, asks_s=asks_s).least_gap_s is None
        for early_s, kinds in ((0.0, []), (2**-20, [GAP])):
            requests: list[Request] = [ROBOTS, (3, "/", 200), (3 + WORK_S + pace_s - early_s, "/a", 200)]
            row = row_of(requests, asks=asks, asks_s=asks_s)
            assert (row.pace_s, row.pace_by, row.least_gap_s) == (pace_s, pace_by, pace_s - early_s)
            assert [violation.kind for violation in row.violations] == kinds


def test_a_page_with_a_robots_txt_that_is_older_than_its_max_age_is_a_violation() -> None:
    for min_lifetime_s in (1.0, 60.0):
        oldest_s = max(2.0, min_lifetime_s) + 1.5  # for the request to arrive
        for age_s, found in ((oldest_s, []), (oldest_s + WORK_S, [STALE])):
            log = log_of([*OPENED, (WORK_S + age_s, "/a", 200)], max_age_s=2)
            (row,) = audit([log], FLOOR_S, min_lifetime_s)
            assert [violation.kind for violation in row.violations] == found


def test_a_copy_that_replaces_an_expired_copy_does_not_restart_the_pace() -> None:
    log = log_of([*OPENED, (10, "/robots.txt", 200), (10.125, "/a", 200)], max_age_s=2)
    assert audit([log], FLOOR_S, 1.0)[0].violations == ()


def test_a_page_while_the_target_of_the_redirect_of_robots_txt_says_429_is_a_violation() -> None:
    for at, found in ((1.0, [WHILE_CLOSED]), (5.0, [])):
        site, log = log_of([(0, "/robots.txt", 301), (3, "/robots.txt", 301), (at, "/", 200), (6, "/a", 200)])
        log[:2] = [replace(one, location=f"{OTHER}/shared.txt") for one in log[:2]]
        target = Site(Blueprint("other", (b"",), (), {"/shared.txt": ()}), OTHER)
        target.pages["/"] = Page(target, "/", "/", "Disallow: /")
        elsewhere = [
            Exchange(f"{OTHER}/shared.txt", 0.125, 0.125 + WORK_S, 429, 2),
            Exchange(f"{OTHER}/shared.txt", 3.125, 3.125 + WORK_S),
        ]
        row, other = audit([(site, log), (target, elsewhere)], FLOOR_S)
        assert [violation.kind for violation in row.violations] == found
        assert other.violations == ()


def test_the_pages_of_a_site_add_up() -> None:
    for requests, sums in (([], (3, 0, 0, 0, 3)), (OPENED, (3, 1, 1, 0, 1))):
        row = row_of(requests)
        assert (row.pages, row.served, row.disallowed, row.unreachable, row.left) == sums
    silent = Site(Blueprint("silent", (), ()), ADDRESS)
    silent.pages["/"] = Page(silent, "/", "/")
    (row,) = audit([(silent, [Exchange(f"{ADDRESS}/robots.txt", 0.0, 1.5, 0)])], FLOOR_S)
    assert (row.answers, row.pages, row.disallowed, row.unreachable, row.left) == ((0,), 1, 0, 1, 0)


# The sites.

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


def test_every_rule_that_binds_the_demo_has_its_pages_and_stands_in_the_file(sites: list[Site]) -> None:
    for site in [*sites, *make_sites(ADDRESSES, 200, seed=1)]:
        rules = {page.rule for page in site.pages.values()} - {""}
        assert rules <= set((_robots(site) or "").splitlines())
        if site in sites:
            records = reference.records_for((_robots(site) or "").encode(), TOKEN.lower().encode())
            assert {record.path for record in records} <= {rule.partition(": ")[2].encode() for rule in rules} | {b""}


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


def test_there_are_as_many_pages_as_promised_and_every_kind_of_robots_txt(sites: list[Site]) -> None:
    pages = _pages(sites)
    assert abs(len(pages) - PAGES) < PAGES / 50
    assert sum(not page.forbidden for page in pages) >= 2_000
    assert sum(page.forbidden for page in pages) >= 200
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


def test_the_smallest_web_has_everything() -> None:
    for seed in range(5):
        sites = make_sites(ADDRESSES, 200, seed)
        assert all(len(site.pages) > 1 for site in sites)
        assert {page.rule for page in _pages(sites) if page.forbidden} >= {"Disallow: /private/", "Disallow: /*.pdf$"}


# The table.

ROWS = [
    Row("wildcards", (200,), 1_900, served=1_100, missed=400, disallowed=300, pace_s=0.015, least_gap_s=0.0157),
    Row("recovers", (503, 503, 200), 300, served=210, disallowed=90, pace_s=0.025, pace_by="Request-rate"),
    Row("black hole", (0,) * 7, pages=25, unreachable=25, pace_s=0.015),
]


def test_the_table_fits_nothing_is_cut_and_its_rows_add_up() -> None:
    for width in (80, 200):
        out = io.StringIO()
        Console(file=out, width=width).print(table(ROWS))
        lines = out.getvalue().splitlines()
        assert len(lines) == 3 + len(ROWS) + 1
        assert max(map(len, lines)) <= width
        assert "…" not in "".join(lines)
        assert "25 site" in lines[4]
        place = lines[1].index("pages")
        for line in lines[3:]:
            pages, fetched, disallowed, given_up, left, *_, broken = line[place:].replace(",", "").split()
            assert int(pages) == sum(map(int, (fetched, disallowed, given_up, left)))
            assert broken == "0"
