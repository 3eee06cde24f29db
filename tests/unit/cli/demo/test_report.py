from __future__ import annotations

from politesse.cli.demo.pages import Answer, Blueprint, Page, Site
from politesse.cli.demo.report import Kind, Violation, audit, exit_code
from politesse.cli.demo.server import Hit, SiteServer

ADDRESS = "http://127.0.0.1:4000"


def _server(*answers: Answer) -> SiteServer:
    """A site with a front page that links to an allowed page and to a forbidden one, and an empty log."""
    site = Site(Blueprint("test", answers, ()), ADDRESS)
    allowed = Page(site, "/a", "/a", forbidden=False, rule="")
    forbidden = Page(site, "/f", "/f", forbidden=True, rule="Disallow: /f")
    front = Page(site, "/", "/", forbidden=False, rule="", links=[allowed, forbidden])
    site.pages = {page.target: page for page in (front, allowed, forbidden)}
    return SiteServer(site, {})


def _log(server: SiteServer, *requests: tuple[float, str, int | None] | tuple[float, str, int | None, int]) -> None:
    for at_mono, target, status, *retry_after_s in requests:
        page = server.site.pages.get(target)
        server.log.append(Hit(at_mono, target, page, status, retry_after_s[0] if retry_after_s else None))


def _violations(server: SiteServer) -> tuple[Violation, ...]:
    (row,) = audit([server])
    return row.violations


def test_a_polite_and_complete_crawl_has_no_faults() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 200), (2, "/a", 200))
    (row,) = audit([server])
    assert (row.offered, row.served, row.missed, row.forbidden_offered) == (2, 2, 0, 1)
    assert (row.answers, row.access, row.violations) == ((200,), "successful", ())
    assert exit_code([row]) == 0


def test_an_allowed_page_that_was_not_served_is_a_fault() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 200))
    (row,) = audit([server])
    assert (row.served, row.missed, row.violations) == (1, 1, ())
    assert exit_code([row]) == 1


def test_a_page_that_was_asked_for_in_vain_was_not_served() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 200), (2, "/a", None))
    (row,) = audit([server])
    assert row.missed == 1


def test_a_forbidden_request_is_a_violation_and_names_the_rule() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 200), (2, "/a", 200), (3, "/f", 200))
    (violation,) = _violations(server)
    assert violation == Violation(Kind.FORBIDDEN, f"{ADDRESS}/f", "Disallow: /f")
    assert str(violation) == f"forbidden page requested: {ADDRESS}/f (Disallow: /f)"
    assert exit_code(audit([server])) == 1


def test_a_page_before_robots_txt_is_a_violation() -> None:
    server = _server()
    _log(server, (0, "/", 200), (1, "/robots.txt", 200), (2, "/a", 200))
    assert _violations(server) == (Violation(Kind.BEFORE_ROBOTS, f"{ADDRESS}/"),)
    assert exit_code(audit([server])) == 1


def test_a_page_without_any_robots_txt_is_a_violation() -> None:
    server = _server()
    _log(server, (0, "/", 200), (2, "/a", 200))
    (row,) = audit([server])
    assert row.count(Kind.BEFORE_ROBOTS) == 2
    assert row.access == "not asked"


def test_a_page_while_robots_txt_cannot_be_had_is_a_violation() -> None:
    for status in (503, 429, None):
        server = _server()
        _log(server, (0, "/robots.txt", status), (1, "/", 200), (2, "/robots.txt", 200), (3, "/a", 200))
        assert _violations(server) == (Violation(Kind.WHILE_CLOSED, f"{ADDRESS}/"),)


def test_robots_txt_before_its_retry_after_is_a_violation() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 503, 2), (1, "/robots.txt", 200), (2, "/", 200), (3, "/a", 200))
    assert _violations(server) == (Violation(Kind.RETRIED_EARLY, f"{ADDRESS}/robots.txt"),)


def test_robots_txt_after_its_retry_after_is_none() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 503, 2), (2, "/robots.txt", 200), (3, "/", 200), (4, "/a", 200))
    assert _violations(server) == ()


def test_what_nothing_links_to_is_a_violation() -> None:
    server = _server()
    _log(server, (0, "/robots.txt", 200), (1, "/", 200), (2, "/a", 200), (3, "/elsewhere", 404))
    assert _violations(server) == (Violation(Kind.UNKNOWN, f"{ADDRESS}/elsewhere"),)


def test_a_file_beside_the_pages_is_none() -> None:
    server = _server()
    _log(server, (0, "/shared/robots.txt", 200), (1, "/robots.txt", 404), (2, "/", 200), (3, "/a", 200))
    (row,) = audit([server])
    assert (row.answers, row.access, row.violations) == ((404,), "unavailable", ())


def test_one_bad_origin_spoils_the_whole() -> None:
    good, bad = _server(), _server()
    for server in (good, bad):
        _log(server, (0, "/robots.txt", 200), (1, "/", 200), (2, "/a", 200))
    assert exit_code(audit([good, bad])) == 0
    _log(bad, (3, "/f", 200))
    assert exit_code(audit([good, bad])) == 1
