from dataclasses import replace
from typing import Any

import pytest

from politesse.cli.demo.report import OWN_FLOOR, Row, audit, exit_code
from politesse.cli.demo.sites import Blueprint, Page, Site
from politesse.testing import Exchange
from tests.support.violations import (
    BEFORE_ROBOTS,
    FORBIDDEN,
    GAP,
    OVERLAP,
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


# The kinds of violations that the log of one site shows; the judge itself is tested elsewhere.
LOGS: dict[str, tuple[list[Request], list[str]]] = {
    "polite and complete": ([*OPENED, (2, "/a", 200)], []),
    "forbidden page": ([*OPENED, (2, "/a", 200), (3, "/f", 200)], [FORBIDDEN]),
    "page before robots.txt": ([(0, "/", 200), (1, "/robots.txt", 200), (2, "/a", 200)], [BEFORE_ROBOTS]),
    "no robots.txt": ([(0, "/", 200), (2, "/a", 200)], [BEFORE_ROBOTS] * 2),
    "page while robots.txt fails": (
        [(0, "/robots.txt", 503), (1, "/", 200), (2, "/robots.txt", 200), (3, "/a", 200)],
        [WHILE_CLOSED],
    ),
    "page while robots.txt is under way": (
        [(0, "/robots.txt", 200), (WORK_S / 2, "/", 200), (2, "/a", 200)],
        [WHILE_CLOSED],
    ),
    "robots.txt before its Retry-After": (
        [(0, "/robots.txt", 503, 2), (1, "/robots.txt", 200), (3, "/", 200), (4, "/a", 200)],
        [RETRIED_EARLY],
    ),
    "robots.txt after its Retry-After": (
        [(0, "/robots.txt", 503, 2), (2.0625, "/robots.txt", 200), (3, "/", 200), (4, "/a", 200)],
        [],
    ),
    "unlinked URL": ([*OPENED, (2, "/a", 200), (3, "/elsewhere", 404)], [FORBIDDEN]),
    "file beside the pages": ([*OPENED, (1.25, "/shared/robots.txt", 200), (1.3125, "/a", 200)], []),
    "gap too short": ([*OPENED, (1 + FLOOR_S, "/a", 200)], [GAP]),
    "gap after robots.txt too short": ([(0, "/robots.txt", 200), (WORK_S * 2, "/", 200), (2, "/a", 200)], [GAP]),
    "overlap": ([*OPENED, (1 + WORK_S / 2, "/a", 200)], [OVERLAP]),
    "page before Retry-After": ([*OPENED[:1], (1, "/", 429, 2), (2, "/a", 200), (5, "/", 200)], [RETRY_AFTER]),
    "page without an answer": ([*OPENED[:1], (1, "/", 0), (2, "/", 200), (3, "/a", 200)], []),
}


@pytest.mark.parametrize(("requests", "kinds"), LOGS.values(), ids=LOGS)
def test_violations_of_a_site_are_found_in_its_log(requests: list[Request], kinds: list[str]) -> None:
    row = row_of(requests)
    assert [violation.kind for violation in row.violations] == kinds
    assert exit_code([row]) == (1 if kinds else 0)
    assert exit_code([row_of(LOGS["polite and complete"][0]), row]) == exit_code([row])


def test_a_violation_names_the_page_and_the_rule() -> None:
    (violation,) = row_of([*OPENED, (2, "/a", 200), (3, "/f", 200)]).violations
    assert str(violation) == f"{FORBIDDEN}: {ADDRESS}/f (Disallow: /f)"
    assert str(violation) == f"forbidden page requested: {ADDRESS}/f (Disallow: /f)"


@pytest.mark.parametrize("last", [[], [(2, "/a", 0)], [(2, "/a", 429, 1)]])
def test_an_allowed_page_that_was_not_served_is_a_fault(last: list[Request]) -> None:
    row = row_of([*OPENED, *last])
    assert (row.served, row.missed, row.violations) == (1, 1, ())
    assert exit_code([row]) == 1


@pytest.mark.parametrize(
    ("asks", "asks_s", "pace_s", "pace_by"),
    [
        ("", 0.0, FLOOR_S, OWN_FLOOR),
        ("Crawl-delay: 0.125", 0.125, FLOOR_S, OWN_FLOOR),
        ("Crawl-delay: 0.5", 0.5, 0.5, "Crawl-delay"),
        ("Request-rate: 1/1s", 1.0, 1.0, "Request-rate"),
    ],
)
def test_pace_of_the_origin_counts_if_it_is_slower_than_the_floor(
    asks: str, asks_s: float, pace_s: float, pace_by: str
) -> None:
    assert row_of([], asks=asks, asks_s=asks_s).least_gap_s is None
    for early_s, kinds in ((0.0, []), (2**-20, [GAP])):
        requests: list[Request] = [OPENED[0], (3, "/", 200), (3 + WORK_S + pace_s - early_s, "/a", 200)]
        row = row_of(requests, asks=asks, asks_s=asks_s)
        assert (row.pace_s, row.pace_by, row.least_gap_s) == (pace_s, pace_by, pace_s - early_s)
        assert [violation.kind for violation in row.violations] == kinds


@pytest.mark.parametrize("min_lifetime_s", [1.0, 60.0])
def test_a_page_with_a_robots_txt_that_is_older_than_its_max_age_is_a_violation(min_lifetime_s: float) -> None:
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
