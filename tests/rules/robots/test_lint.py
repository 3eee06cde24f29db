"""The diagnostics of a file: which are told, where, and that none of them is wrong."""

import re
from collections.abc import Iterable
from typing import Final

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

BOM: Final = "\ufeff"
HEAD: Final = "User-agent: *\n"
FILLING: Final = f"{HEAD}Disallow: /a\n"
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
    "odd-line-end": (f"{HEAD}Disallow: /a # b\u2028Disallow: /\n", 2, 17),
    "too-many-rules": (HEAD + "".join(f"Disallow: /{n}\n" for n in range(2_049)), 2_050, 1),
    "mid-file-bom": (f"{FILLING}{BOM}User-agent: b\nDisallow: /\n", 3, 1),
    "odd-blank": (f"{HEAD}Disallow: /a\u00a0\n", 2, 13),
    "not-utf-8": (b"User-agent: *\nDisallow: /caf\xe9\n", 2, 15),
    "control-character": (f"{HEAD}Disallow: /a\0b\n", 2, 13),
    "lost-line": (f"{FILLING} Disalowed: /b\n", 3, 2),
    "before-any-group": ("\n Disallow: /\n", 2, 2),
    "outside-group": (f"{FILLING}\nDisallow: /b\n", 4, 1, Dialect.KOSTER_1994),
    "names-nobody": ("User-agent:\nDisallow: /a\n", 1, 12),
    "invalid-value": (f"{FILLING}Crawl-delay: soon\n", 3, 14),
    "misplaced-version": (f"{FILLING}Robot-version: 2.0.0\n", 3, 1, Dialect.CONNER_2),
    "line-cut": (f"{HEAD}Disallow: /{'a' * 17_000}\n", 2, 1, Dialect.GOOGLE),
    "no-leading-slash": (f"{HEAD}Disallow:\ta.html\n", 2, 11),
    "matches-nothing": (f"{HEAD}Disallow: /a/../b\n", 2, 11),
    "misspelled-field": (f"{HEAD} Dissallow: /a\n", 2, 2),
    "missing-colon": (f"{HEAD}Disallow  /a\n", 2, 11),
    "no-separator": (f"{FILLING}welcome, robots\n", 3, 1),
    "unknown-field": (f"{FILLING}Colour: red\n", 3, 1),
    "other-dialect": (f"{HEAD}Allow: /a\n", 2, 1, Dialect.KOSTER_1994),
    "foreign-field": (f"{FILLING}Clean-param: a\n", 3, 1),
    "empty-allow": (f"{HEAD}Allow:\n", 2, 7),
    "name-cut": ("User-agent: Foo Bar\nDisallow: /a\n", 1, 13),
    "comment-in-path": (f"{HEAD}Disallow: /#!/a\n", 2, 12),
    "blank-in-path": (f"{HEAD}Disallow: /a /b\n", 2, 13),
    "escaped-reserved": (f"{HEAD}Disallow: /a%2fb\n", 2, 13),
    "long-rule": (f"{HEAD}Disallow: /{'a' * 1_024}\n", 2, 11),
    "relative-sitemap": ("Sitemap: /s.xml\n", 1, 10),
    "group-ignored": (f"{FILLING}\n{FILLING}", 4, 13, Dialect.KOSTER_1996),
    "several-star-groups": (f"{FILLING}{FILLING}", 3, 13),
    "several-groups": ("User-agent: a\nDisallow: /\nUser-agent: b\nUser-agent: A\nDisallow: /b\n", 4, 13),
    "empty-group": (f"{FILLING}User-agent: b\n", 3, 1),
    "blank-line-in-group": (f"{HEAD} \nDisallow: /a\n", 2, 1),
    "field-between-agents": ("User-agent: a\nCrawl-delay: 5\nUser-agent: b\nDisallow: /\n", 2, 1),
    "never-wins": (f"{HEAD}Disallow: /a*\nDisallow: /a\n", 3, 11),
    "dialects-disagree": (f"{HEAD}Disallow: /*.gif$\n", 2, 11),
    "capped": (HEAD + "what\n" * 101, 103, 1),
}
CLEAN: Final = [
    "",
    "\n\n# nothing but comments: Disallow: /\n",
    f"{HEAD}Disallow:\n",
    f"{HEAD}Disallow: /a\nDisallow: /b/c.html\n\nSitemap: https://example.com/s.xml\n",
    "User-agent: FooBot\r\nUser-agent: bar_bot\r\nCrawl-delay: 5\r\nDisallow: /\r\n",
    "License: https://h/l\nUser-agent: *\nDisallow: /a\nContent-Signal: search=no\nContent-Usage: /b search=n\n",
]
# A line after FILLING, and what is told of it. A line without a colon is lost only if a path follows.
LOST, UNKNOWN = ("lost-line", Severity.ERROR), ("unknown-field", Severity.WARNING)
MEANT: Final = {
    "Disalow2: /a": (*LOST, "did you mean disallow?"),
    "Dis-allow: /a": (*LOST, "did you mean disallow?"),
    "Alow: /a": (*LOST, "did you mean allow?"),
    "User. agent: a": (*LOST, "did you mean user-agent?"),
    "User_Agents: a": (*LOST, "did you mean user-agent?"),
    "Sitemaps: https://example.com/": (*UNKNOWN, "did you mean sitemap?"),
    "Crawldelay: 5": (*UNKNOWN, "did you mean crawl-delay?"),
}
WITHOUT_A_COLON: Final = {
    "Disallow / a": ["lost-line"],
    "dissalow * b": ["lost-line"],
    "allow robots to come in": ["no-separator"],
    "Disallow": ["no-separator"],
    "hello world": ["no-separator"],
}
# RFC 9309 2.2.2: the longest wins, and of two as long the Allow. Two rules, which loses always, and to which.
LOSING: Final[dict[tuple[str, str], dict[int, int]]] = {
    ("Disallow: /a", "Disallow: /a"): {3: 2},
    ("Disallow: /a", "Allow: /a"): {2: 3},
    ("Disallow: /%61", "Disallow: /a"): {3: 2},
    ("Disallow: /a", "Disallow: /a/"): {},
    ("Allow: /a", "Disallow: /a/"): {},
    ("Disallow: /ab", "Allow: /a*b"): {2: 3},
    ("Disallow: /ab", "Disallow: /a*b*"): {2: 3},
    ("Disallow: /a$", "Disallow: /a"): {},
    ("Disallow: /a/b", "Allow: /*b"): {},  # shorter
    ("Disallow: /a/b", "Allow: /*/b"): {2: 3},  # as long, and an Allow
    ("Disallow: /abb", "Allow: /*/b"): {},  # there a slash has to stand before the b
    ("Disallow: /ab", "Allow: /*b"): {2: 3},  # as long, and an Allow
    ("Disallow: /a/b", "Disallow: /*/*b"): {2: 3},  # longer
    ("Disallow: /x/y/z", "Disallow: /*x*y*z"): {2: 3},
    ("Disallow: /x/y/z$", "Disallow: /*x*y*z"): {},  # as long, and the same: who decides makes no difference
    ("Disallow: /x/y/z$", "Disallow: /*x*y*z*"): {2: 3},  # longer by the star
    ("Disallow: /a", "Allow: /a*"): {2: 3},
    ("Disallow: /%22", "Disallow: /*%*"): {},
    ("Disallow: /%2", "Disallow: /*%*"): {2: 3},
    ("Disallow: /x/y/z", "Disallow: /*x*y*z$"): {},  # not at the end only
}


SHARED: Final = "User-agent: a\nUser-agent: b\nDisallow: /x\n\nUser-agent: a\nAllow: /x\n"
PREFIXES: Final = f"{HEAD}Allow: /a\nDisallow: /a/b\nDisallow: /c/d\nDisallow: /c\nDisallow:\nDisallow: /e\n"
VERSION_2: Final = "User-agent: a\nRobot-version: 2.0.0\nAllow: /a\nDisallow: /a\nAllow: /a\nDisallow: /b*\n"
NEVER_WINS: Final = [
    *((Dialect.RFC9309, f"{HEAD}Disallow: /a*\n{field}: /a\n", [3]) for field in ("Dissallow", "\u00a0Disallow")),
    (Dialect.RFC9309, SHARED, []),  # it wins for one of its crawlers
    (Dialect.RFC9309, f"{SHARED}\nUser-agent: b\nAllow: /x\n", [3]),
    (Dialect.RFC9309, PREFIXES, []),
    (Dialect.KOSTER_1996, PREFIXES, [3, 7]),  # the first match decides
    (Dialect.GOOGLE, f"{HEAD}Allow: /a/index.html\nAllow: /*/index.html*\nDisallow: /a/\n", []),
    (Dialect.CONNER_2, f"{VERSION_2}Disallow: /b/c*\n", [5, 7]),
    (Dialect.PERL, f"{HEAD}Disallow: http://one.example/\nDisallow: http://other.example/a\nDisallow: /a\n", []),
]
MISTAKES: Final = {
    f"{FILLING}License: /l.xml\n": {"invalid-value"},
    f"{TOO_LONG}\tALLOW : /b\n": {"rules-cut-off"},
    f"{TOO_LONG}# Disallow: /b\n": {"file-too-long"},
    FILLING + "#" * (MAX_OCTETS - len(FILLING)): set(),
    f"{HEAD}Disallow: /{'a' * MAX_OCTETS}\nDisallow: b\n": {"rules-cut-off", "empty-group"},
    f"{FILLING}# {BOM}\n{BOM}\n": set(),
    "<html>\n<p>a: b\nc\n": {"looks-like-html"},
    f"<html>\n{FILLING}Colour: red\n": {"looks-like-html", "no-separator", "unknown-field"},
}


def found(body: str | bytes, code: str, dialect: Dialect = Dialect.RFC9309) -> list[Diagnostic]:
    return [one for one in lint(body, dialect) if one.code == code]


def lines(body: str, code: str, dialect: Dialect = Dialect.RFC9309) -> list[int]:
    return [one.line for one in found(body, code, dialect)]


def codes(body: str | bytes, dialect: Dialect = Dialect.RFC9309) -> set[str]:
    return {one.code for one in lint(body, dialect)}


def test_every_code_is_reported_at_its_place() -> None:
    assert EXAMPLES.keys() == CODES.keys()
    told = {code: found(body, code, *dialect)[0] for code, (body, _, _, *dialect) in EXAMPLES.items()}
    assert {code: (one.line, one.column, one.severity) for code, one in told.items()} == {
        code: (line, column, CODES[code].severity) for code, (_, line, column, *_) in EXAMPLES.items()
    }
    assert all(one.message.isprintable() for one in told.values())


def test_files_have_the_codes_of_their_mistakes_and_no_others() -> None:
    assert {body: codes(body) for body in MISTAKES} == MISTAKES
    [license_] = lint(f"{FILLING}License: /l.xml\n")
    assert (license_.line, license_.column) == (3, 10)
    assert lines(f"{FILLING}Content-Usage: train-ai=n\n", "other-dialect", Dialect.PERL) == [3]


def test_plain_file_is_clean() -> None:
    assert {body: lint(body) for body in CLEAN} == {body: [] for body in CLEAN}


def test_report_says_that_not_all_unknown_names_were_compared_with_fields() -> None:
    body = FILLING + "".join(f"x{number}: a\n" for number in range(5_001))
    assert not any(one.message.startswith("lost-line: ") for one in found(body[: body.index("x5000")], "capped"))
    assert any(one.message.startswith("lost-line: ") for one in found(body, "capped"))


def test_unknown_field_is_reported_with_a_suggestion() -> None:
    def told(line: str) -> list[tuple[str, Severity, str]]:
        of_line = [one for one in lint(f"{FILLING}{line}\n") if one.line == 3]
        return [(one.code, one.severity, one.message[one.message.rfind("did you") :]) for one in of_line]

    assert {line: told(line) for line in MEANT} == {line: [meant] for line, meant in MEANT.items()}


def test_line_without_a_colon_is_lost_only_if_a_path_follows() -> None:
    told = {line: [one.code for one in lint(f"{FILLING}{line}\n")] for line in WITHOUT_A_COLON}
    assert told == WITHOUT_A_COLON


def test_file_that_names_browsers_is_read_in_every_dialect() -> None:
    body = "User-agent: Mozilla/4.0 (compatible; BullsEye; Windows 95)\nDisallow: /\n\n"
    for dialect in Dialect:
        told = lint(f"{body}User-agent: mozilla/4\nUser-agent: Mozilla FooBot\nDisallow: /a\n{body}", dialect)
        assert {one.line for one in told} <= {1, 2, 3, 4, 5, 6, 7, 8}, dialect


def test_user_agent_without_its_hyphen_is_reported() -> None:
    [told] = found("User agent: *\nDisallow: /a\n", "misspelled-field")
    assert (told.line, told.column) == (1, 1)
    assert "is read as user-agent" in told.message


def test_utf_16_mark_before_octets_is_reported() -> None:
    told = codes(b"\xff\xfeUser-agent: *\nDisallow: /a\n")
    assert ("byte-order-mark" in told, "transcoded" in told) == (True, False)


def test_name_that_ends_within_a_word_is_reported() -> None:
    [told] = found("User-agent: Baiduspider+(+http://www.baidu.com/search/spider.htm)\nDisallow: /a\n", "name-cut")
    assert told.message.endswith('is read as "baiduspider"')


def test_url_in_place_of_a_path_is_reported() -> None:
    [told] = found(f"{HEAD}Disallow: https://example.com/a\n", "no-leading-slash")
    assert "is a URL" in told.message
    assert "no-leading-slash" not in codes(f"{HEAD}Disallow: https://example.com/a\n", Dialect.PERL)


def test_unprintable_text_is_escaped_in_messages_and_cut() -> None:
    for one in lint(f"{HEAD}Disallow: \x1b[31m\u202e{'x' * 500}\n\x9bDisallow\x9b: /\n"):
        assert one.message.isprintable()
        assert len(one.message) < 300


def test_rule_that_another_one_always_goes_before_never_wins() -> None:
    def losing(*rules: str) -> dict[int, int]:
        told = found("\n".join(("User-agent: *", *rules)), "never-wins")
        return {one.line: int(re.findall(r"line (\d+)", one.message)[0]) for one in told}

    assert {rules: losing(*rules) for rules in LOSING} == LOSING


def test_time_grows_with_the_crawlers_that_several_groups_name() -> None:
    def calls_for(crawlers: int) -> int:
        body = 2 * ("".join(f"User-agent: bot{number}\n" for number in range(crawlers)) + "Disallow: /a\n")
        return calls_of(lambda: lint(body))

    assert calls_for(400) < 8 * calls_for(100)


def test_lines_of_rules_that_never_win_are_told() -> None:
    for dialect, rules, expected in NEVER_WINS:
        assert lines(rules, "never-wins", dialect) == expected, (dialect, rules)


def losing_lines(body: bytes, dialect: Dialect) -> tuple[RobotsTxt, set[int]]:
    report = Report(1_000)
    text, _ = decode(body, None)
    robots = RobotsTxt.parse(body, dialect, origin=Origin.of("http://example.com"))
    check_rules(robots, Rows(text, split_rows(text)), report)
    told = report.finish(1)
    assert {one.code for one in told} <= {"never-wins", "matches-nothing"}
    return robots, {one.line for one in told}


def _neighbours(targets: Iterable[str], body: bytes) -> set[str]:
    """Targets near those that were drawn, and near the rules, so that every rule has some that it matches."""
    values = re.findall(r"(?i)allow[ :]+([/*][^\s#]*)", body.decode("utf-8", "replace"))
    made = {
        f"/{value.removesuffix('$').lstrip('/').replace('*', fill)}" for value in values for fill in ("", "a", "/b")
    }
    return {near for one in (*targets, *made) for near in (one, f"{one}/", f"{one}a", f"{one}?b=/a")}


@settings(max_examples=2_000)
@given(dialect=st.sampled_from(Dialect), case=st.one_of(ONE_GROUP, MANY_GROUPS, DIALECT_GROUPS))
def test_rule_that_never_wins_decides_about_nothing(dialect: Dialect, case: Case) -> None:
    for body in (case.robots_txt, case.robots_txt.replace(b"\n", b"\nRobot-version: 2.0.0\n", 1)):
        robots, losing = losing_lines(body, dialect)
        if not losing:
            continue
        targets = _neighbours(case.targets, body)
        for agent in ("FooBot", "BAR-bot", "baz_bot", "Other", "FooBot-News", "Fo"):
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
        filled = zip(others, [*fillings[: len(others) - 1], ""], strict=True)
        text = "".join(piece + filling for piece, filling in filled)
        assert re.fullmatch(".*".join(map(re.escape, pieces)), text, re.DOTALL)


SAMPLE = re.compile(r'"(.*?)" is (allowed|disallowed)(?: to "(.*?)")?, but (?:allowed|disallowed) by ([a-z0-9, -]+)')


@settings(max_examples=300)
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


def test_disagreement_is_not_reported_if_the_rule_decides_in_neither_dialect() -> None:
    body = f"{HEAD}Disallow: /c/\nAllow: /c/x\nDisallow: /c\n"
    assert lines(body, "dialects-disagree") == [2, 3]  # "/c/x", which is near the last one, too


def test_disagreement_names_every_dialect_that_differs() -> None:
    [told] = found(f"{HEAD}Disallow: /*.gif$\n", "dialects-disagree")
    named = SAMPLE.findall(told.message)[0]
    assert (named[:2], named[3]) == (("/x.gif", "disallowed"), "koster-1996, koster-1994, conner-2, perl")


def test_disagreement_is_reported_at_the_rule_that_causes_it() -> None:
    assert lines(f"{HEAD}Allow: /a/b\nDisallow: /a\nDisallow: /c\n", "dialects-disagree") == [2]


HOSTILE = [
    b"User-agent: *\nDisallow: /" + b"*a" * 200_000,
    b"".join(b"f%d: x\n" % n for n in range(8_000)),
    b"User-agent: *\nDisallow: /" + b"a" * 20_000_000,
    b"User-agent: *\n" + b"".join(b"Disallow: /*%d*a\n" % n for n in range(3_000)),
    b"".join(b"User-agent: a%d\nDisallow: /\n" % n for n in range(3_000)),
    bytes(range(256)) * 500,
    b"User-agent: *\n" + b"Disallow: /a\n" * 100_000,
]


@pytest.mark.parametrize("body", first_of(1, HOSTILE), ids=lambda body: repr(body[:20]))
@pytest.mark.parametrize("dialect", first_of(1, [Dialect.RFC9309, Dialect.KOSTER_1996, Dialect.CONNER_2]))
def test_hostile_file_has_a_bounded_number_of_diagnostics(body: bytes, dialect: Dialect) -> None:
    told = lint(body, dialect, most_per_code=10)
    assert 0 < len(told) <= 11 * len(CODES)
    numbers = [one.line for one in told if one.code != "capped"]
    assert numbers == sorted(numbers)


@settings(max_examples=600)
@given(
    dialect=st.sampled_from([Dialect.RFC9309, Dialect.GOOGLE, Dialect.KOSTER_1996]),
    body=st.one_of(st.binary(max_size=300), DIALECT_GROUPS.map(lambda case: case.robots_txt)),
)
def test_every_diagnostic_is_within_the_file(dialect: Dialect, body: bytes) -> None:
    rows = split_rows(decode(body, None)[0])
    for one in lint(body, dialect):
        assert 1 <= one.line <= len(rows)
        assert 1 <= one.column <= len(rows[one.line - 1]) + 1, one
        assert one.message.isprintable()
