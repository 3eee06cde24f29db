from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from politesse.errors import InvalidURL
from politesse.origin import Origin
from politesse.robots import Dialect, RobotsTxt
from politesse.robots.lexer import decode, split_rows
from politesse.robots.lint import CODES, MAX_OCTETS, Diagnostic, Severity, lint
from politesse.robots.lint.diagnostics import Report
from politesse.robots.lint.lines import Rows
from politesse.robots.lint.rules import check_rules, covers
from politesse.verdict import Reason
from tests.rules.properties.strategies import DIALECT_GROUPS, MANY_GROUPS, ONE_GROUP, Case
from tests.support.calls import calls_of
from tests.support.tiers import first_of

if TYPE_CHECKING:
    from collections.abc import Iterable

BOM: Final = "\ufeff"
FILLING: Final = "User-agent: *\nDisallow: /a\n"
TOO_LONG: Final = FILLING + "# a long comment\n" * (MAX_OCTETS // 17 + 1)
FIRST_UNREAD: Final = 3 + (MAX_OCTETS - len(FILLING)) // 17  # two lines, and as many comments as fit

# Each code: a file that shows it, the line and column of the first, and the dialect where it is not RFC 9309.
EXAMPLES: Final[dict[str, tuple[str | bytes, int, int] | tuple[str | bytes, int, int, Dialect]]] = {
    "looks-like-html": ("<!DOCTYPE html>\n<p>Disallow: /\n", 1, 1),
    "rules-cut-off": (f"{TOO_LONG}Disallow: /b\n", FIRST_UNREAD, 1),
    "file-too-long": (TOO_LONG, FIRST_UNREAD, 1),
    "byte-order-mark": (f"{BOM}{FILLING}", 1, 1),
    "transcoded": (FILLING.encode("utf-16"), 1, 1),
    "bare-cr": ("User-agent: *\r\nDisallow: /a\rDisallow: /b", 2, 13),
    "odd-line-end": ("User-agent: *\nDisallow: /a # b\u2028Disallow: /\n", 2, 17),
    "too-many-rules": ("User-agent: *\n" + "".join(f"Disallow: /{n}\n" for n in range(2_049)), 2_050, 1),
    "mid-file-bom": (f"{FILLING}{BOM}User-agent: b\nDisallow: /\n", 3, 1),
    "odd-blank": ("User-agent: *\nDisallow: /a\u00a0\n", 2, 13),
    "not-utf-8": (b"User-agent: *\nDisallow: /caf\xe9\n", 2, 15),
    "control-character": ("User-agent: *\nDisallow: /a\0b\n", 2, 13),
    "lost-line": (f"{FILLING} Disalowed: /b\n", 3, 2),
    "before-any-group": ("\n Disallow: /\n", 2, 2),
    "outside-group": ("User-agent: *\nDisallow: /a\n\nDisallow: /b\n", 4, 1, Dialect.KOSTER_1994),
    "names-nobody": ("User-agent:\nDisallow: /a\n", 1, 12),
    "invalid-value": (f"{FILLING}Crawl-delay: soon\n", 3, 14),
    "misplaced-version": (f"{FILLING}Robot-version: 2.0.0\n", 3, 1, Dialect.CONNER_2),
    "line-cut": (f"User-agent: *\nDisallow: /{'a' * 17_000}\n", 2, 1, Dialect.GOOGLE),
    "no-leading-slash": ("User-agent: *\nDisallow:\ta.html\n", 2, 11),
    "matches-nothing": ("User-agent: *\nDisallow: /a/../b\n", 2, 11),
    "misspelled-field": ("User-agent: *\n Dissallow: /a\n", 2, 2),
    "missing-colon": ("User-agent: *\nDisallow  /a\n", 2, 11),
    "no-separator": (f"{FILLING}welcome, robots\n", 3, 1),
    "unknown-field": (f"{FILLING}Colour: red\n", 3, 1),
    "other-dialect": ("User-agent: *\nAllow: /a\n", 2, 1, Dialect.KOSTER_1994),
    "foreign-field": (f"{FILLING}Clean-param: a\n", 3, 1),
    "empty-allow": ("User-agent: *\nAllow:\n", 2, 7),
    "name-cut": ("User-agent: Foo Bar\nDisallow: /a\n", 1, 13),
    "comment-in-path": ("User-agent: *\nDisallow: /#!/a\n", 2, 12),
    "blank-in-path": ("User-agent: *\nDisallow: /a /b\n", 2, 13),
    "escaped-reserved": ("User-agent: *\nDisallow: /a%2fb\n", 2, 13),
    "long-rule": (f"User-agent: *\nDisallow: /{'a' * 1_024}\n", 2, 11),
    "relative-sitemap": ("Sitemap: /s.xml\n", 1, 10),
    "group-ignored": (f"{FILLING}\n{FILLING}", 4, 13, Dialect.KOSTER_1996),
    "several-star-groups": (f"{FILLING}{FILLING}", 3, 13),
    "several-groups": ("User-agent: a\nDisallow: /\nUser-agent: b\nUser-agent: A\nDisallow: /b\n", 4, 13),
    "empty-group": (f"{FILLING}User-agent: b\n", 3, 1),
    "blank-line-in-group": ("User-agent: *\n \nDisallow: /a\n", 2, 1),
    "field-between-agents": ("User-agent: a\nCrawl-delay: 5\nUser-agent: b\nDisallow: /\n", 2, 1),
    "never-wins": ("User-agent: *\nDisallow: /a*\nDisallow: /a\n", 3, 11),
    "dialects-disagree": ("User-agent: *\nDisallow: /*.gif$\n", 2, 11),
    "capped": ("User-agent: *\n" + "what\n" * 101, 103, 1),
}


def found(body: str | bytes, code: str, dialect: Dialect = Dialect.RFC9309) -> list[Diagnostic]:
    return [one for one in lint(body, dialect) if one.code == code]


def codes(body: str | bytes, dialect: Dialect = Dialect.RFC9309) -> set[str]:
    return {one.code for one in lint(body, dialect)}


def test_every_code_has_an_example() -> None:
    assert EXAMPLES.keys() == CODES.keys()


@pytest.mark.parametrize("code", EXAMPLES)
def test_code_is_reported_at_its_place(code: str) -> None:
    body, line, column, *dialect = EXAMPLES[code]
    first = found(body, code, *dialect)[0]
    assert (first.line, first.column, first.severity) == (line, column, CODES[code].severity)
    assert first.message.isprintable()


@pytest.mark.parametrize(
    "body",
    [
        *("", "\n\n# nothing but comments: Disallow: /\n", "User-agent: *\nDisallow:\n"),
        "User-agent: *\nDisallow: /a\nDisallow: /b/c.html\n\nSitemap: https://example.com/s.xml\n",
        "User-agent: FooBot\r\nUser-agent: bar_bot\r\nCrawl-delay: 5\r\nDisallow: /\r\n",
        "License: https://h/l\nUser-agent: *\nDisallow: /a\nContent-Signal: search=no\nContent-Usage: /b search=n\n",
    ],
)
def test_plain_file_is_clean(body: str) -> None:
    assert lint(body) == []


@pytest.mark.parametrize("field", ["Disallow", "Dissallow", "\u00a0Disallow"])
def test_rule_that_never_wins_is_reported_however_its_field_is_spelled(field: str) -> None:
    (told,) = found(f"User-agent: *\nDisallow: /a*\n{field}: /a\n", "never-wins")
    assert told.line == 3


def test_report_says_that_not_all_unknown_names_were_compared_with_fields() -> None:
    body = FILLING + "".join(f"x{number}: a\n" for number in range(5_001))
    assert not any(one.message.startswith("lost-line: ") for one in found(body[: body.index("x5000")], "capped"))
    assert any(one.message.startswith("lost-line: ") for one in found(body, "capped"))


def test_relative_license_is_reported() -> None:
    (told,) = lint(f"{FILLING}License: /l.xml\n")
    assert (told.code, told.line, told.column) == ("invalid-value", 3, 10)


def test_content_usage_is_reported_as_a_field_of_another_dialect() -> None:
    told = found(f"{FILLING}Content-Usage: train-ai=n\n", "other-dialect", Dialect.PERL)
    assert [one.line for one in told] == [3]


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("Disalow2: /a", "disallow"),
        ("Dis-allow: /a", "disallow"),
        ("Alow: /a", "allow"),
        ("User. agent: a", "user-agent"),
        ("User_Agents: a", "user-agent"),
        ("Sitemaps: https://example.com/", "sitemap"),
        ("Crawldelay: 5", "crawl-delay"),
    ],
)
def test_unknown_field_is_reported_with_a_suggestion(line: str, meant: str) -> None:
    told = [one for one in lint(f"{FILLING}{line}\n") if one.line == 3]
    assert [one.message.endswith(f"did you mean {meant}?") for one in told] == [True]
    serious = meant in {"allow", "disallow", "user-agent"}
    assert (told[0].code, told[0].severity) == (
        ("lost-line", Severity.ERROR) if serious else ("unknown-field", Severity.WARNING)
    )


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("Disallow / a", "lost-line"),
        ("dissalow * b", "lost-line"),
        ("allow robots to come in", "no-separator"),
        ("Disallow", "no-separator"),
        ("hello world", "no-separator"),
    ],
)
def test_line_without_a_colon_is_lost_only_if_a_path_follows(line: str, code: str) -> None:
    assert [one.code for one in lint(f"{FILLING}{line}\n")] == [code]


def test_rules_beyond_the_limit_are_an_error_and_comments_are_none() -> None:
    assert codes(f"{TOO_LONG}\tALLOW : /b\n") == {"rules-cut-off"}
    assert codes(f"{TOO_LONG}# Disallow: /b\n") == {"file-too-long"}
    assert codes(FILLING + "#" * (MAX_OCTETS - len(FILLING))) == set()


def test_rules_after_an_overlong_line_are_not_checked() -> None:
    assert codes(f"User-agent: *\nDisallow: /{'a' * MAX_OCTETS}\nDisallow: b\n") == {"rules-cut-off", "empty-group"}


def test_byte_order_mark_in_a_comment_or_alone_is_harmless() -> None:
    assert codes(f"{FILLING}# {BOM}\n{BOM}\n") == set()


@pytest.mark.parametrize("dialect", Dialect)
def test_file_that_names_browsers_is_read(dialect: Dialect) -> None:
    body = "User-agent: Mozilla/4.0 (compatible; BullsEye; Windows 95)\nDisallow: /\n\n"
    told = lint(f"{body}User-agent: mozilla/4\nUser-agent: Mozilla FooBot\nDisallow: /a\n{body}", dialect)
    assert {one.line for one in told} <= {1, 2, 3, 4, 5, 6, 7, 8}


def test_user_agent_without_its_hyphen_is_reported() -> None:
    [told] = found("User agent: *\nDisallow: /a\n", "misspelled-field")
    assert (told.line, told.column) == (1, 1)
    assert "is read as user-agent" in told.message


def test_utf_16_mark_before_octets_is_reported() -> None:
    told = codes(b"\xff\xfeUser-agent: *\nDisallow: /a\n")
    assert "byte-order-mark" in told
    assert "transcoded" not in told


def test_name_that_ends_within_a_word_is_reported() -> None:
    [told] = found("User-agent: Baiduspider+(+http://www.baidu.com/search/spider.htm)\nDisallow: /a\n", "name-cut")
    assert told.message.endswith('is read as "baiduspider"')


def test_url_in_place_of_a_path_is_reported() -> None:
    [told] = found("User-agent: *\nDisallow: https://example.com/a\n", "no-leading-slash")
    assert "is a URL" in told.message
    assert "no-leading-slash" not in codes("User-agent: *\nDisallow: https://example.com/a\n", Dialect.PERL)


def test_web_page_is_reported_once_without_its_lines() -> None:
    assert codes("<html>\n<p>a: b\nc\n") == {"looks-like-html"}
    assert codes(f"<html>\n{FILLING}Colour: red\n") == {"looks-like-html", "no-separator", "unknown-field"}


def test_unprintable_text_is_escaped_in_messages_and_cut() -> None:
    for one in lint("User-agent: *\nDisallow: \x1b[31m\u202e" + "x" * 500 + "\n\x9bDisallow\x9b: /\n"):
        assert one.message.isprintable()
        assert len(one.message) < 300


# RFC 9309 2.2.2: the longest wins, and of two as long the Allow.
@pytest.mark.parametrize(
    ("rules", "losing"),
    [
        (("Disallow: /a", "Disallow: /a"), {3: 2}),
        (("Disallow: /a", "Allow: /a"), {2: 3}),
        (("Disallow: /%61", "Disallow: /a"), {3: 2}),
        (("Disallow: /a", "Disallow: /a/"), {}),
        (("Allow: /a", "Disallow: /a/"), {}),
        (("Disallow: /ab", "Allow: /a*b"), {2: 3}),
        (("Disallow: /ab", "Disallow: /a*b*"), {2: 3}),
        (("Disallow: /a$", "Disallow: /a"), {}),
        (("Disallow: /a/b", "Allow: /*b"), {}),  # shorter
        (("Disallow: /a/b", "Allow: /*/b"), {2: 3}),  # as long, and an Allow
        (("Disallow: /abb", "Allow: /*/b"), {}),  # there a slash has to stand before the b
        (("Disallow: /ab", "Allow: /*b"), {2: 3}),  # as long, and an Allow
        (("Disallow: /a/b", "Disallow: /*/*b"), {2: 3}),  # longer
        (("Disallow: /x/y/z", "Disallow: /*x*y*z"), {2: 3}),
        (("Disallow: /x/y/z$", "Disallow: /*x*y*z"), {}),  # as long, and the same: who decides makes no difference
        (("Disallow: /x/y/z$", "Disallow: /*x*y*z*"), {2: 3}),  # longer by the star
        (("Disallow: /a", "Allow: /a*"), {2: 3}),
        (("Disallow: /%22", "Disallow: /*%*"), {}),
        (("Disallow: /%2", "Disallow: /*%*"), {2: 3}),
        (("Disallow: /x/y/z", "Disallow: /*x*y*z$"), {}),  # not at the end only
    ],
)
def test_rule_that_another_one_always_goes_before_never_wins(rules: tuple[str, ...], losing: dict[int, int]) -> None:
    told = found("\n".join(("User-agent: *", *rules)), "never-wins")
    assert {one.line: int(re.findall(r"line (\d+)", one.message)[0]) for one in told} == losing


def test_earlier_prefix_shadows_later_rules() -> None:
    body = "User-agent: *\nAllow: /a\nDisallow: /a/b\nDisallow: /c/d\nDisallow: /c\nDisallow:\nDisallow: /e\n"
    assert [one.line for one in found(body, "never-wins", Dialect.KOSTER_1996)] == [3, 7]
    assert found(body, "never-wins") == []


def test_time_grows_with_the_crawlers_that_several_groups_name() -> None:
    def calls_for(crawlers: int) -> int:
        body = 2 * ("".join(f"User-agent: bot{number}\n" for number in range(crawlers)) + "Disallow: /a\n")
        return calls_of(lambda: lint(body))

    assert calls_for(1_000) < 8 * calls_for(250)


def test_rule_of_several_crawlers_is_reported_only_if_it_wins_for_none() -> None:
    shared = "User-agent: a\nUser-agent: b\nDisallow: /x\n\nUser-agent: a\nAllow: /x\n"
    assert found(shared, "never-wins") == []
    assert [one.line for one in found(f"{shared}\nUser-agent: b\nAllow: /x\n", "never-wins")] == [3]


def test_implied_directory_of_an_index_page_keeps_its_rule_alive() -> None:
    body = "User-agent: *\nAllow: /a/index.html\nAllow: /*/index.html*\nDisallow: /a/\n"
    assert found(body, "never-wins", Dialect.GOOGLE) == []


def test_version_2_reports_duplicates_only() -> None:
    body = "User-agent: a\nRobot-version: 2.0.0\nAllow: /a\nDisallow: /a\nAllow: /a\nDisallow: /b*\nDisallow: /b/c*\n"
    assert [one.line for one in found(body, "never-wins", Dialect.CONNER_2)] == [5, 7]


def test_rule_that_is_a_url_is_compared_with_no_other_rule() -> None:
    body = "User-agent: *\nDisallow: http://one.example/\nDisallow: http://other.example/a\nDisallow: /a\n"
    assert found(body, "never-wins", Dialect.PERL) == []


def losing_lines(body: bytes, dialect: Dialect) -> tuple[RobotsTxt, set[int]]:
    robots = RobotsTxt.parse(body, dialect, origin=Origin.of("http://example.com"))
    report = Report(1_000)
    text, _ = decode(body, None)
    check_rules(robots, Rows(text, split_rows(text)), report)
    told = report.finish(1)
    assert {one.code for one in told} <= {"never-wins", "matches-nothing"}
    return robots, {one.line for one in told}


AGENTS: Final = ("FooBot", "BAR-bot", "baz_bot", "Other", "FooBot-News", "Fo")


def _neighbours(targets: Iterable[str], body: bytes) -> set[str]:
    """Targets near those that were drawn, and near the rules, so that every rule has some that it matches."""
    values = re.findall(r"(?i)allow[ :]+([/*][^\s#]*)", body.decode("utf-8", "replace"))
    made = {
        f"/{value.removesuffix('$').lstrip('/').replace('*', fill)}" for value in values for fill in ("", "a", "/b")
    }
    return {near for one in (*targets, *made) for near in (one, f"{one}/", f"{one}a", f"{one}?b=/a")}


@pytest.mark.parametrize("dialect", Dialect)
@settings(max_examples=300, deadline=None)
@given(case=st.one_of(ONE_GROUP, MANY_GROUPS, DIALECT_GROUPS))
def test_rule_that_never_wins_decides_about_nothing(dialect: Dialect, case: Case) -> None:
    for body in (case.robots_txt, case.robots_txt.replace(b"\n", b"\nRobot-version: 2.0.0\n", 1)):
        robots, losing = losing_lines(body, dialect)
        if not losing:
            continue
        targets = _neighbours(case.targets, body)
        for agent in AGENTS:
            rules = robots.rules_for(agent)
            for target in targets:
                try:
                    match = rules.match(target)
                except InvalidURL:
                    continue
                if match.rule is not None and match.reason is not Reason.NOT_ALLOWED:
                    assert match.rule.line not in losing, (agent, target)


PIECES = st.lists(st.text("ab/", max_size=3), min_size=1, max_size=5)


@given(pieces=PIECES, others=PIECES, fillings=st.lists(st.text("ab/", max_size=3), min_size=5, max_size=5))
def test_covered_rule_matches_for_every_value_of_its_stars(
    pieces: list[str], others: list[str], fillings: list[str]
) -> None:
    if covers(tuple(pieces), "\n".join(others)):
        text = "".join(
            piece + filling for piece, filling in zip(others, [*fillings[: len(others) - 1], ""], strict=True)
        )
        assert re.fullmatch(".*".join(map(re.escape, pieces)), text, re.DOTALL)


SAMPLE = re.compile(r'"(.*?)" is (allowed|disallowed)(?: to "(.*?)")?, but (?:allowed|disallowed) by ([a-z0-9, -]+)')


@settings(max_examples=300, deadline=None)
@given(case=DIALECT_GROUPS)
def test_samples_of_disagreement_are_true(case: Case) -> None:
    for one in found(case.robots_txt, "dialects-disagree"):
        samples = SAMPLE.findall(one.message)
        assert samples, one
        for path, answer, agent, names in samples:
            for dialect in Dialect:
                rules = RobotsTxt.parse(case.robots_txt, dialect).rules_for(agent or "*")
                if dialect.value in names.split(", "):
                    assert rules.allowed(path) is (answer == "disallowed")
            assert RobotsTxt.parse(case.robots_txt).rules_for(agent or "*").allowed(path) is (answer == "allowed")


@pytest.mark.parametrize(
    ("pieces", "text", "covered"),
    [
        (("/a", "a"), "/a", False),  # one letter cannot be both
        (("/a", "a"), "/aa", True),
        (("/", "b", "b"), "/ab", False),
        (("/a",), "/a\n", False),
        (("/a", ""), "/a\n", True),
        (("/", "ab", ""), "/a\nb", False),  # what a star stands for may lie between
        (("/", "b", ""), "/a\nb", True),
    ],
)
def test_pieces_cover_a_text_end_to_end(pieces: tuple[str, ...], text: str, *, covered: bool) -> None:
    assert covers(pieces, text) is covered


def test_disagreement_is_not_reported_if_the_rule_decides_in_neither_dialect() -> None:
    body = "User-agent: *\nDisallow: /c/\nAllow: /c/x\nDisallow: /c\n"
    assert [one.line for one in found(body, "dialects-disagree")] == [2, 3]  # "/c/x", which is near the last one, too


def test_disagreement_names_every_dialect_that_differs() -> None:
    [told] = found("User-agent: *\nDisallow: /*.gif$\n", "dialects-disagree")
    named = SAMPLE.findall(told.message)[0]
    assert named[:2] == ("/x.gif", "disallowed")
    assert named[3] == "koster-1996, koster-1994, conner-2, perl"


def test_disagreement_is_reported_at_the_rule_that_causes_it() -> None:
    body = "User-agent: *\nAllow: /a/b\nDisallow: /a\nDisallow: /c\n"
    assert [one.line for one in found(body, "dialects-disagree")] == [2]


@pytest.mark.parametrize("dialect", first_of(1, [Dialect.RFC9309, Dialect.KOSTER_1996, Dialect.CONNER_2]))
@pytest.mark.parametrize(
    "body",
    first_of(
        2,
        [
            b"User-agent: *\nDisallow: /" + b"a" * 20_000_000,
            b"User-agent: *\nDisallow: /" + b"*a" * 200_000,
            b"User-agent: *\n" + b"".join(b"Disallow: /*%d*a\n" % n for n in range(3_000)),
            b"".join(b"User-agent: a%d\nDisallow: /\n" % n for n in range(3_000)),
            b"".join(b"f%d: x\n" % n for n in range(8_000)),
            bytes(range(256)) * 500,
            b"User-agent: *\n" + b"Disallow: /a\n" * 100_000,
        ],
    ),
    ids=["line", "stars", "wildcards", "agents", "fields", "octets", "lines"],
)
def test_hostile_file_has_a_bounded_number_of_diagnostics(body: bytes, dialect: Dialect) -> None:
    told = lint(body, dialect, most_per_code=10)
    assert 0 < len(told) <= 11 * len(CODES)
    numbers = [one.line for one in told if one.code != "capped"]
    assert numbers == sorted(numbers)


@settings(max_examples=200, deadline=None)
@given(body=st.one_of(st.binary(max_size=300), DIALECT_GROUPS.map(lambda case: case.robots_txt)))
@pytest.mark.parametrize("dialect", [Dialect.RFC9309, Dialect.GOOGLE, Dialect.KOSTER_1996])
def test_every_diagnostic_is_within_the_file(dialect: Dialect, body: bytes) -> None:
    text, _ = decode(body, None)
    rows = split_rows(text)
    for one in lint(body, dialect):
        assert 1 <= one.line <= len(rows)
        assert 1 <= one.column <= len(rows[one.line - 1]) + 1, one
        assert one.message.isprintable()
