from __future__ import annotations

import pytest

from politesse.cli.demo.pages import Blueprint, Page, Site, SiteAnswer
from politesse.cli.demo.report import OWN_FLOOR, WALL_SLACK_S, Row, audit, exit_code
from politesse.cli.demo.server import Hit, SiteServer
from politesse.testing.violations import Kind, Violation

ADDRESS = "http://127.0.0.1:4000"
OTHER = "http://127.0.0.2:4000"
FLOOR_S = 0.25  # as all times here a power of two: the gaps come out to the bit
WORK_S = 0.0625
EARLY = "1.062 s before"


def _server(*answers: SiteAnswer, asks: str = "", asks_s: float = 0.0) -> SiteServer:
    """A site with a front page that links to an allowed page and to a forbidden one, and an empty log."""
    site = Site(Blueprint("test", answers, (), asks=asks, asks_s=asks_s), ADDRESS)
    allowed = Page(site, "/a", "/a", forbidden=False, rule="")
    forbidden = Page(site, "/f", "/f", forbidden=True, rule="Disallow: /f")
    front = Page(site, "/", "/", forbidden=False, rule="", links=[allowed, forbidden])
    site.pages = {page.target: page for page in (front, allowed, forbidden)}
    return SiteServer(site, {})


def _log(server: SiteServer, *requests: tuple[float, str, int | None] | tuple[float, str, int | None, int]) -> None:
    """Log requests by start, target, status and Retry-After; each that is answered takes WORK_S."""
    for started_mono, target, status, *retry_after_s in requests:
        ended_mono = None if status is None else started_mono + WORK_S
        page = server.site.pages.get(target)
        server.log.append(
            Hit(started_mono, target, page, status, retry_after_s[0] if retry_after_s else None, ended_mono)
        )


def _row(server: SiteServer) -> Row:
    (row,) = audit([server], FLOOR_S)
    return row


def _violations(server: SiteServer) -> tuple[Violation, ...]:
    return _row(server).violations


def test_a_polite_and_complete_crawl_has_no_faults() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 200), (2, "/a", 200))
    row = _row(server)
    assert (row.served, row.missed, row.forbidden_offered) == (2, 0, 1)
    assert (row.answers, row.violations) == ((200,), ())
    assert exit_code([row]) == 0


def test_an_allowed_page_that_was_not_served_is_a_fault() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 200))
    row = _row(server)
    assert (row.served, row.missed, row.violations) == (1, 1, ())
    assert exit_code([row]) == 1


def test_a_page_request_without_an_answer_does_not_count_as_served() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 200), (2, "/a", None))
    row = _row(server)
    assert row.missed == 1


def test_a_forbidden_request_is_a_violation_and_names_the_rule() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 200), (2, "/a", 200), (3, "/f", 200))
    (violation,) = _violations(server)
    assert violation == Violation(Kind.FORBIDDEN, f"{ADDRESS}/f", "Disallow: /f")
    assert str(violation) == f"forbidden page requested: {ADDRESS}/f (Disallow: /f)"
    assert exit_code(audit([server], FLOOR_S)) == 1


def test_a_page_before_robots_txt_is_a_violation() -> None:
    server = _server()
    _log(server, (0, "/", 200), (1, "/robots.txt", 200), (2, "/a", 200))
    assert _violations(server) == (Violation(Kind.BEFORE_ROBOTS, f"{ADDRESS}/", f"before {ADDRESS}/robots.txt"),)
    assert exit_code(audit([server], FLOOR_S)) == 1


def test_a_page_without_any_robots_txt_is_a_violation() -> None:
    server = _server()
    _log(server, (0, "/", 200), (2, "/a", 200))
    row = _row(server)
    assert row.count(Kind.BEFORE_ROBOTS) == 2
    assert row.answers == ()


def test_a_page_while_robots_txt_cannot_be_had_is_a_violation() -> None:
    for status in (503, 429, None):
        server = _server()
        _log(server, (0, "/robots.txt", status), (1, "/", 200), (2, "/robots.txt", 200), (3, "/a", 200))
        assert _violations(server) == (Violation(Kind.WHILE_CLOSED, f"{ADDRESS}/"),)


def test_robots_txt_before_its_retry_after_is_a_violation() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 503, 2), (1, "/robots.txt", 200), (3, "/", 200), (4, "/a", 200))
    assert _violations(server) == (Violation(Kind.RETRIED_EARLY, f"{ADDRESS}/robots.txt", EARLY),)


def test_robots_txt_after_its_retry_after_is_none() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 503, 2), (2.0625, "/robots.txt", 200), (3, "/", 200), (4, "/a", 200))
    assert _violations(server) == ()


def test_request_for_an_unlinked_url_is_a_violation() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 200), (2, "/a", 200), (3, "/elsewhere", 404))
    assert _violations(server) == (Violation(Kind.UNKNOWN, f"{ADDRESS}/elsewhere"),)


def test_a_file_beside_the_pages_is_none() -> None:
    server = _server()
    _log(server, (0, "/shared/robots.txt", 200), (1, "/robots.txt", 404), (2, "/", 200), (3, "/a", 200))
    row = _row(server)
    assert (row.answers, row.violations) == ((404,), ())


def test_one_bad_origin_spoils_the_whole() -> None:
    good, bad = _server(), _server()
    for server in (good, bad):
        _log(server, (0, "/robots.txt", 200), (1, "/", 200), (2, "/a", 200))
    assert exit_code(audit([good, bad], FLOOR_S)) == 0
    _log(bad, (3, "/f", 200))
    assert exit_code(audit([good, bad], FLOOR_S)) == 1


def test_a_page_that_was_answered_with_429_was_not_served() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 200), (2, "/a", 429, 1))
    row = _row(server)
    assert (row.served, row.missed, row.told_to_wait, row.violations) == (1, 1, 1, ())


def test_a_page_while_robots_txt_is_under_way_is_a_violation() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (WORK_S / 2, "/", 200), (2, "/a", 200))
    assert _violations(server) == (Violation(Kind.WHILE_CLOSED, f"{ADDRESS}/"),)


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
    row = _row(_server(asks=asks, asks_s=asks_s))
    assert (row.pace_s, row.pace_by, row.least_gap_s) == (pace_s, pace_by, None)


@pytest.mark.parametrize("asks_s", [0.0, 0.5])
def test_a_gap_of_the_pace_is_none_and_a_shorter_one_is_a_violation(asks_s: float) -> None:
    pace_s = max(asks_s, FLOOR_S)
    for short_s, count in ((0.0, 0), (2**-20, 1)):
        server = _server(asks="Crawl-delay: 0.5", asks_s=asks_s)
        _log(server, (0, "/robots.txt", 200), (2, "/", 200), (2 + WORK_S + pace_s - short_s, "/a", 200))
        row = _row(server)
        assert row.least_gap_s == pace_s - short_s
        assert [violation.kind for violation in row.violations] == [Kind.GAP] * count
        assert exit_code([row]) == count


def test_a_gap_counts_from_the_end_of_the_request_before_and_is_reported_with_the_pace() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (2, "/", 200), (2 + FLOOR_S, "/a", 200))  # from start to start it would do
    (violation,) = _violations(server)
    assert violation == Violation(Kind.GAP, f"{ADDRESS}/a", "0.1875 s after its end, not 0.25 (floor)")


def test_the_gap_after_robots_txt_is_judged() -> None:
    for short_s, found in ((0.0, ()), (2**-20, (Kind.GAP,))):
        server = _server()
        _log(server, (0, "/robots.txt", 200), (WORK_S + FLOOR_S - short_s, "/", 200), (2, "/a", 200))
        assert tuple(violation.kind for violation in _violations(server)) == found


def test_a_robots_txt_that_is_fetched_again_waits_for_no_gap_and_shortens_none() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 200), (1.125, "/robots.txt", 200), (2, "/a", 200))
    row = _row(server)
    assert row.violations == ()
    assert row.least_gap_s == 2 - (1 + WORK_S)


def test_another_origins_robots_txt_is_no_part_of_the_pace() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 200), (1.25, "/shared/robots.txt", 200), (1.3125, "/a", 200))
    row = _row(server)
    assert (row.violations, row.least_gap_s) == ((), 0.25)


def test_two_page_requests_under_way_at_once_are_a_violation() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 200), (1 + WORK_S / 2, "/a", 200))
    row = _row(server)
    assert row.violations == (
        Violation(Kind.OVERLAP, f"{ADDRESS}/a", "0.0312 s before its end, not 0.25 (floor) after"),
    )
    assert row.least_gap_s == -WORK_S / 2


def test_one_that_is_still_under_way_overlaps_with_what_comes() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 200), (2, "/a", 200))
    server.log[1].ended_mono = None
    assert [violation.kind for violation in _violations(server)] == [Kind.OVERLAP]


def test_a_long_request_overlaps_with_all_that_come_meanwhile() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 200), (2, "/a", 200), (3, "/a", 200))
    server.log[1].ended_mono = 4
    assert [violation.kind for violation in _violations(server)] == [Kind.OVERLAP] * 2


def test_a_request_without_an_answer_ends_at_no_known_time() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", None), (2, "/", 200), (3, "/a", 200))
    assert _violations(server) == ()


def test_the_next_request_at_the_end_of_the_one_before_is_no_overlap_but_too_soon() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 200), (1 + WORK_S, "/a", 200))
    assert [violation.kind for violation in _violations(server)] == [Kind.GAP]


def test_any_page_before_the_retry_after_of_a_429_is_a_violation() -> None:
    over_mono = 1 + WORK_S + 2
    for early_s, found in ((0.0, ()), (WALL_SLACK_S - 0.001, ()), (WALL_SLACK_S + 0.001, (Kind.RETRY_AFTER,))):
        server = _server()
        _log(server, (0, "/robots.txt", 200), (1, "/", 429, 2), (over_mono - early_s, "/a", 200), (5, "/", 200))
        row = _row(server)
        assert tuple(violation.kind for violation in row.violations) == found
        assert exit_code([row]) == len(found)


def test_robots_txt_before_the_retry_after_of_a_page_is_a_violation() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 429, 2), (2, "/robots.txt", 200), (5, "/", 200), (6, "/a", 200))
    assert _violations(server) == (Violation(Kind.RETRIED_EARLY, f"{ADDRESS}/robots.txt", EARLY),)


def test_the_longest_retry_after_holds() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 429, 4), (2, "/", 429, 1), (4, "/a", 200))
    assert [violation.kind for violation in _violations(server)] == [Kind.RETRY_AFTER] * 2


def test_a_page_with_a_robots_txt_that_is_older_than_its_max_age_is_a_violation() -> None:
    for age_s, found in ((3.5, ()), (3.5625, (Kind.STALE,))):  # 2 s, and 1.5 s for the request to arrive
        server = _server(SiteAnswer(200, max_age_s=2))
        fetched_mono = WORK_S
        _log(server, (0, "/robots.txt", 200), (1, "/", 200), (fetched_mono + age_s, "/a", 200))
        (row,) = audit([server], FLOOR_S, 1.0)
        assert tuple(violation.kind for violation in row.violations) == found
        (row,) = audit([server], FLOOR_S, 60.0)
        assert row.violations == ()


def test_a_page_while_the_target_of_the_redirect_of_robots_txt_says_429_is_a_violation() -> None:
    location = f"{OTHER}/shared.txt"
    for at, found in ((1.0, (Kind.WHILE_CLOSED,)), (5.0, ())):
        server = _server()
        _log(server, (0, "/robots.txt", 301), (3, "/robots.txt", 301), (at, "/", 200), (6, "/a", 200))
        for hit in server.log[:2]:
            hit.location = location
        target = Site(Blueprint("other", (), (), {"/shared.txt": ()}), OTHER)
        target.pages["/"] = Page(target, "/", "/", forbidden=True, rule="")
        other = SiteServer(target, {})
        _log(other, (0.125, "/shared.txt", 429, 2), (3.125, "/shared.txt", 200))
        row, _ = audit([server, other], FLOOR_S)
        assert tuple(violation.kind for violation in row.violations) == found


def test_the_pages_of_a_site_add_up() -> None:
    server = _server(SiteAnswer(200))
    row = _row(server)
    assert (row.pages, row.served, row.disallowed, row.unreachable, row.left) == (3, 0, 0, 0, 3)
    _log(server, (0, "/robots.txt", 200), (1, "/", 200))
    row = _row(server)
    assert (row.pages, row.served, row.disallowed, row.unreachable, row.left) == (3, 1, 1, 0, 1)


def test_all_pages_of_a_site_without_an_answer_for_robots_txt_are_unreachable() -> None:
    row = _row(_server())
    assert (row.pages, row.disallowed, row.unreachable, row.left) == (3, 0, 3, 0)
