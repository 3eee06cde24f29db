import pytest

from tests.tools.audit.conftest import SENT, Judge, combined

PAGES = [combined(10 * n, f"/{n % 20}") for n in range(40)]
ERRORS = [combined(100 * n, f"/e{n}", 500) for n in range(3)]


def kinds(judge: Judge, *lines: str) -> list[str]:
    return [kind for kind, _ in judge(*lines, profile="cbcp")[1]]


def test_practices_are_judged_only_if_asked(judge: Judge) -> None:
    assert judge(*PAGES)[1] == []


def test_pages_that_are_fetched_again_without_a_condition_are_a_fault(judge: Judge) -> None:
    assert kinds(judge, *PAGES) == ["pages are often fetched again, and never with a condition"]
    assert kinds(judge, *PAGES, combined(400, "/1", 304)) == []
    assert kinds(judge, *PAGES[:20]) == []


def test_methods_other_than_get_and_head_are_a_fault_if_frequent(judge: Judge) -> None:
    posts = [line.replace("GET", "POST") for line in PAGES[:3]]
    assert kinds(judge, *posts, *PAGES[3:20]) == ["methods other than GET and HEAD are frequent"]
    assert kinds(judge, *posts[:2], *PAGES[2:20]) == []


@pytest.mark.parametrize(("second", "found"), [(205, 1), (215, 0)])
def test_page_soon_after_three_server_errors_is_a_fault(second: int, found: int, judge: Judge) -> None:
    expected = ["page requested too soon after three server errors in a row"] * found
    assert kinds(judge, *ERRORS, combined(second, "/")) == expected
    assert kinds(judge, ERRORS[0], combined(90, "/ok"), *ERRORS[1:], combined(second, "/")) == []


def test_user_agent_without_a_url_is_a_fault_told_once_for_a_host(judge: Judge) -> None:
    assert SENT.endswith("(+https://bot.example/)")
    bare = [line.replace(SENT, "ExampleBot/1.0") for line in PAGES[:3]]
    assert kinds(judge, *bare) == ["User-Agent without the URL of a page about the crawler"]
