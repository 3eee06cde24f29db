from __future__ import annotations

import pytest

from politesse.robots import Dialect, RobotsTxt

BOOK = "https://example.com/some_dir/get_book.pl"


def _canonical(line: str, url: str) -> str:
    return RobotsTxt.parse(f"User-agent: *\nDisallow: /x\n{line}\n").clean_params.canonical(url)


@pytest.mark.parametrize(
    ("line", "url", "canonical"),
    [
        # Yandex Webmaster, "Clean-param directive"
        ("Clean-param: ref /some_dir/get_book.pl", f"{BOOK}?ref=site_1&book_id=123", f"{BOOK}?book_id=123"),
        ("Clean-param: ref /some_dir/get_book.pl", f"{BOOK}?book_id=123", f"{BOOK}?book_id=123"),
        ("Clean-param: ref /other", f"{BOOK}?ref=site_1&book_id=123", f"{BOOK}?ref=site_1&book_id=123"),
        ("Clean-param: sid&sort /forum/*.php", "/forum/showthread.php?sid=1&t=8&sort=d", "/forum/showthread.php?t=8"),
        ("clean-PARAM: sid", "https://example.com/?sid=1", "https://example.com/"),
        ("Clean-param: sid", "https://example.com?sid=1&a", "https://example.com?a"),
        ("Clean-param: sid", "/a?SID=1", "/a?SID=1"),
        ("Clean-param: sid", "/a?x=sid&sidx=2", "/a?x=sid&sidx=2"),
        ("Clean-param: sid", "/a?sid#b?sid=1", "/a#b?sid=1"),
        ("Clean-param: sid", "/a", "/a"),
        ("Clean-param:", "/a?sid=1", "/a?sid=1"),
        ("Clean-param: & /a", "/a?=1&sid=1", "/a?=1&sid=1"),
    ],
)
def test_parameters_that_do_not_matter_are_left_out(line: str, url: str, canonical: str) -> None:
    assert _canonical(line, url) == canonical


def test_lines_add_up_and_stand_anywhere() -> None:
    robots = RobotsTxt.parse("Clean-param: a /x\nUser-agent: *\nClean-param: b /\nDisallow:\nClean-param: c&d /x/y\n")
    assert len(robots.clean_params) == 3
    assert robots.clean_params.canonical("/x/y?a&b&c&d&e") == "/x/y?e"
    assert robots.clean_params.canonical("/x?a&b&c&d&e") == "/x?c&d&e"
    assert robots.clean_params.canonical("/z?a&b&c&d&e") == "/z?a&c&d&e"


@pytest.mark.parametrize("dialect", Dialect)
def test_clean_param_restricts_nothing_and_is_read_in_every_dialect(dialect: Dialect) -> None:
    robots = RobotsTxt.parse("User-agent: *\nClean-param: ref /a\nDisallow: /b\n", dialect)
    rules = robots.rules_for("ExampleBot")
    assert rules.allowed("/a?ref=1")
    assert robots.clean_params.canonical("/a?ref=1") == "/a"


@pytest.mark.parametrize("field", ["Host: example.com", "Noindex: /a", "Host: /a"])
def test_fields_that_are_no_longer_read_are_kept_and_change_nothing(field: str) -> None:
    # Yandex no longer reads Host since 2018, Google no longer Noindex since 2019.
    robots = RobotsTxt.parse(f"User-agent: *\n{field}\nDisallow: /b\n")
    name, _, value = field.partition(": ")
    assert (robots.lines[1].name, robots.lines[1].value) == (name, value)
    rules = robots.rules_for("ExampleBot")
    assert rules.allowed("/a")
    assert not rules.allowed("/b")
