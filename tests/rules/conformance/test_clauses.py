"""The clauses of the standards: the rows of their tables, and what is more than an answer of a file about a URL.

All rows of a clause are one test, as a test for each would cost more in pytest than in the library.

The tables are TOML files that carry their source, each entry with the clause it comes from.

``[[example]]``
    a file, and which URLs (or targets) it allows and denies to which agents.
``[[matrix]]``
    the same in the form in which old texts print it: a row for each URL, a column for each agent.
``[[path]]``
    the path of a rule, and the targets that it matches and misses.
``[[usage]]``
    a file, and for each row an agent, a URL, whether it may be requested, and what is said about its use: the
    purposes that are stated, nothing where it may not be requested.
``[[address]]``
    a URL, and where the robots.txt that speaks for it lives.

``dialects``, of a table or of an entry, names the dialects in which it holds, or ``all``; RFC 9309 unless told.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from politesse.errors import ConfigurationError
from politesse.origin import Origin
from politesse.page.preferences import header_usage
from politesse.robotrules import RobotRules, RobotRulesAnswer
from politesse.robots import Dialect, Quirk, RobotsTxt
from politesse.usage.model import Preference, Purpose, combine
from politesse.verdict import Reason

DATA: Final = Path(__file__).with_name("data")
ANSWERED_IN_PERL: Final = "robot-rules-vectors"
TABLES: Final = sorted(path.stem for path in DATA.glob("*.toml") if path.stem != ANSWERED_IN_PERL)
ANSWERS: Final = {"Yes": True, "No": False}
LINE: Final = 2083 * 8 - 1
"""GoogleOnly_LineTooLong: kMaxLineLen = 2083 * 8; the line with its field name is cut to one less."""

# An Allow beside a Disallow that decides if the Allow does not match; dialects that are not here know no such Allow.
ALLOWING: Final = {
    **dict.fromkeys([Dialect.RFC9309, Dialect.GOOGLE, Dialect.KOSTER_2019], "User-agent: *\nDisallow: *\nAllow: {}"),
    Dialect.KOSTER_1996: "User-agent: *\nAllow: {}\nDisallow: /",
}

Row: TypeAlias = tuple[Callable[..., object], tuple[Any, ...], object]
"""A function of the library, its arguments, and what it has to return."""

Entries: TypeAlias = dict[str, list[Row]]


def clauses(*names: str) -> list[Any]:
    """Return the clauses of some tables as parameters of a test: the rows of each entry by its title, and the mark."""
    return [param for name in names for param in _clauses(name)]


def _clauses(name: str) -> list[Any]:
    table = tomllib.loads((DATA / f"{name}.toml").read_text(encoding="utf-8"))
    clause = table.pop("clause")
    assert table.pop("source"), f"{name} has no source"
    dialects = table.pop("dialects", ["rfc9309"])
    found: dict[str, Entries] = {}
    for kind, listed in table.items():
        for number, entry in enumerate(listed):
            title = next((entry[key] for key in ("behaviour", "path", "url") if key in entry), kind)
            entry_dialects = _dialects(entry.get("dialects", dialects))
            rows = [row for dialect in entry_dialects for row in _READERS[kind](entry, dialect)]
            assert rows, f"{title} of {name} has no rows"
            found.setdefault(entry.get("clause", clause), {})[f"{kind} {number}: {title}"] = rows
    assert found, f"{name} has no entries"
    return [pytest.param(rows, id=f"{name}-{one}", marks=pytest.mark.clause(one)) for one, rows in found.items()]


def _dialects(names: Sequence[str]) -> list[Dialect]:
    return [dialect for dialect in Dialect if dialect.value in names or names == ["all"]]


def _example(entry: Mapping[str, Any], dialect: Dialect) -> Iterator[Row]:
    _know(entry, {"behaviour", "robots_txt"}, {"clause", "dialects", "encoding", "site", "allowed", "denied"})
    origin = Origin.of(entry["site"]) if "site" in entry else None
    octets = entry["robots_txt"].encode(entry.get("encoding", "utf-8"))
    for answer, allowed in (("allowed", True), ("denied", False)):
        for agent, urls in entry.get(answer, {}).items():
            for url in urls:
                yield _allowed, (octets, agent, url, dialect, origin), allowed


def _matrix(entry: Mapping[str, Any], dialect: Dialect) -> Iterator[Row]:
    _know(entry, {"robots_txt", "agents", "rows"}, {"clause", "dialects"})
    for url, *answers in entry["rows"]:
        for agent, answer in zip(entry["agents"], answers, strict=True):
            yield _allowed, (entry["robots_txt"].encode(), agent, url, dialect, None), ANSWERS[answer]


def _path(entry: Mapping[str, Any], dialect: Dialect) -> Iterator[Row]:
    _know(entry, {"path"}, {"clause", "dialects", "matches", "misses"})
    for answer, matches in (("matches", True), ("misses", False)):
        for target in entry.get(answer, ()):
            yield _matches, (entry["path"], target, dialect), matches


def _usage(entry: Mapping[str, Any], dialect: Dialect) -> Iterator[Row]:
    _know(entry, {"behaviour", "robots_txt", "rows"}, {"clause", "dialects"})
    for agent, url, answer, *stated in entry["rows"]:
        yield _stated, (entry["robots_txt"].encode(), agent, url, dialect), stated[0] if ANSWERS[answer] else None


def _address(entry: Mapping[str, Any], _: Dialect) -> Iterator[Row]:
    _know(entry, {"url", "robots_url"}, {"clause"})
    yield lambda url: Origin.of(url).robots_url, (entry["url"],), entry["robots_url"]


def _know(entry: Mapping[str, Any], required: set[str], optional: set[str]) -> None:
    missing, unknown = required - entry.keys(), entry.keys() - required - optional
    assert not missing, f"{entry} lacks {missing}"
    assert not unknown, f"{entry} has the unknown {unknown}"


_READERS: Final = {"example": _example, "matrix": _matrix, "path": _path, "usage": _usage, "address": _address}


def _allowed(robots_txt: bytes | str, agent: str, url: str, dialect: Dialect, origin: Origin | None = None) -> bool:
    return RobotsTxt.parse(robots_txt, dialect, origin=origin).rules_for(agent).allowed(url)


def _matches(path: str, target: str, dialect: Dialect) -> bool | None:
    """Return whether the path of a rule matches a target; None if a Disallow and an Allow differ."""
    disallowed = not _allowed(f"User-agent: *\nDisallow: {path}", "ExampleBot", target, dialect)
    if dialect not in ALLOWING or _allowed(ALLOWING[dialect].format(path), "ExampleBot", target, dialect) is disallowed:
        return disallowed
    return None


def _stated(robots_txt: bytes, agent: str, url: str, dialect: Dialect) -> dict[str, str] | None:
    """Return the stated preferences about a URL and its use; None where it may not be requested."""
    rules = RobotsTxt.parse(robots_txt, dialect).rules_for(agent)
    usage = rules.usage(url)
    assert (usage is not None) is rules.allowed(url)
    if usage is None:
        return None
    preferences = {purpose: usage.preference(purpose) for purpose in Purpose}
    return {purpose: stated for purpose, stated in preferences.items() if stated is not Preference.UNSTATED}


def failing(entries: Entries) -> list[object]:
    """Return the rows that the library does not hold, with the title of their entry."""
    return [(title, *row[1:]) for title, rows in entries.items() for row in rows if row[0](*row[1]) != row[2]]


@pytest.mark.parametrize("entries", clauses(*TABLES))
def test_rows_of_a_clause_hold(entries: Entries) -> None:
    assert failing(entries) == []


@pytest.mark.parametrize("entries", clauses(ANSWERED_IN_PERL))
def test_vectors_of_the_tests_of_www_robot_rules_hold(entries: Entries) -> None:
    """What is true there is not false here: questions about another site, whose answer is -1 in Perl, are UNKNOWN."""
    rows: list[Row] = [(_allowed_in_perl, *row[1:]) for listed in entries.values() for row in listed]
    assert failing({"in Perl": rows}) == []


def _allowed_in_perl(robots_txt: bytes, agent: str, url: str, *_: object) -> bool | None:
    rules = RobotRules(agent, perl_exact=True)
    rules.parse("http://foo/robots.txt", robots_txt)
    answer = rules.allowed(url)
    if url.startswith("http://bar/"):
        return True if answer is RobotRulesAnswer.UNKNOWN else None
    return None if answer is RobotRulesAnswer.UNKNOWN else bool(answer)


@pytest.mark.clause("RFC 9309 2.2.1")
def test_product_token_is_found_in_the_identification_string_of_figure_1() -> None:
    # Figure 1: the token is a part of the header; a crawler that sends a browser's header tells its token itself.
    robots = RobotsTxt.parse("user-agent: ExampleBot\ndisallow: /\n")
    header = "Mozilla/5.0 (compatible; ExampleBot/0.1; https://www.example.com/bot.html)"
    assert not robots.rules_for("ExampleBot").allowed("/a")
    with pytest.raises(ConfigurationError, match="Mozilla"):
        robots.rules_for(header)
    with pytest.raises(ConfigurationError, match="Mozilla"):
        robots.rules_for(["ExampleBot", header])


@pytest.mark.clause("draft-ietf-aipref-attach 3.1")
def test_preference_denies_no_request() -> None:
    rules = RobotsTxt.parse("User-agent: *\nContent-Usage: train-ai=n\n").rules_for("ExampleBot")
    assert (rules.allowed("/page"), len(rules)) == (True, 0)


@pytest.mark.clause("draft-ietf-aipref-vocab 5.1")
def test_header_and_file_are_joined_by_the_most_restrictive_word() -> None:
    allowed, disallowed = Preference.ALLOWED, Preference.DISALLOWED
    expected = {
        ("y", "n"): disallowed,
        ("n", "y"): disallowed,
        ("y", "y"): allowed,
        ("y", "x"): allowed,
        ("x", "n"): disallowed,
        ("x", "x"): Preference.UNSTATED,
    }
    for (header, file), preference in expected.items():
        of_file = RobotsTxt.parse(f"User-agent: *\nContent-Usage: train-ai={file}\n").rules_for("x").usage("/")
        assert of_file is not None
        of_header = header_usage({"Content-Usage": f"train-ai={header}"}, "https://example.com/")
        assert combine([of_header, of_file]).preference(Purpose.AI_TRAIN) is preference, (header, file)


@pytest.mark.clause("google/robotstxt, robots_test.cc")
def test_pattern_of_a_cut_line_matches_by_its_rest() -> None:
    line = f"disallow: /{'a' * (2083 * 8)}/qux"
    robots = RobotsTxt.parse(f"user-agent: FooBot\n{line}\n", Dialect.GOOGLE)
    kept = LINE - len("disallow: /")
    assert robots.lines[1].quirks == (Quirk.LINE_CUT,)
    rules = robots.rules_for("FooBot")
    paths = ("a" * kept, "a" * kept + "bcd", "a" * (kept - 1))
    assert [rules.allowed(f"/{path}") for path in paths] == [False, False, True]


@pytest.mark.clause("google/robotstxt, robots_test.cc")
def test_line_of_the_greatest_length_in_octets_is_whole() -> None:
    room = LINE - len("disallow: /")
    for path in ("a" * room, "é" * (room // 2)):
        robots = RobotsTxt.parse(f"user-agent: *\ndisallow: /{path}\ndisallow: /{path}aa\n", Dialect.GOOGLE)
        assert [line.quirks for line in robots.lines] == [(), (), (Quirk.LINE_CUT,)]
        assert robots.lines[1].value == f"/{path}"


@pytest.mark.clause("google/robotstxt, robots.cc")
def test_line_that_is_cut_within_a_character_keeps_its_first_octets() -> None:
    # Parse: a line is octets, its buffer takes the first kMaxLineLen of them, and MaybeEscapePattern escapes each.
    for character, kept in (("é", 1), ("ツ", 1), ("ツ", 2), ("😀", 3)):
        plain = "a" * (LINE - len("disallow: /") - kept)
        robots = RobotsTxt.parse(f"user-agent: *\ndisallow: /{plain}{character}b\nallow: /{plain}\n", Dialect.GOOGLE)
        octets = character.encode()
        assert robots.lines[1].quirks == (Quirk.LINE_CUT,)
        assert robots.lines[1].value.encode("utf-8", "surrogateescape") == f"/{plain}".encode() + octets[:kept]
        rules, escapes = robots.rules_for("ExampleBot"), [f"%{octet:02X}" for octet in octets]
        assert not rules.allowed(f"/{plain}{character}")
        assert not rules.allowed(f"/{plain}{''.join(escapes[:kept])}%80")
        assert rules.allowed(f"/{plain}{''.join(escapes[: kept - 1])}x")
        assert rules.allowed(f"/{plain}b")


@pytest.mark.clause("Google robots.txt specification, File format")
def test_octets_beyond_500_kib_are_ignored() -> None:
    start = b"user-agent: *\n"
    rule = b"disallow: /last"
    filling = b"#" * (500 * 1024 - len(start) - len(rule) - 1) + b"\n"
    whole = RobotsTxt.parse(start + filling + rule + b"\ndisallow: /beyond\n", Dialect.GOOGLE)
    assert whole.quirks == (Quirk.FILE_CUT,)
    rules = whole.rules_for("x")
    assert not rules.allowed("/last")
    assert rules.allowed("/beyond")
    # A line that goes on behind the limit is half a rule, and dropped.
    assert RobotsTxt.parse(start + filling + rule + b"ing\n", Dialect.GOOGLE).rules_for("x").allowed("/last")


@pytest.mark.clause("Google robots.txt specification, Order of precedence for user agents")
def test_a_crawler_with_several_tokens_obeys_the_most_specific_group() -> None:
    news, both, everybody = (
        "user-agent: googlebot-news\ndisallow: /n\n",
        "user-agent: googlebot\ndisallow: /g\n",
        "user-agent: *\ndisallow: /e\n",
    )
    tokens = ["Googlebot-News", "Googlebot"]
    for body, denied in ((everybody + both + news, "/n"), (both + everybody, "/g"), (everybody, "/e")):
        rules = RobotsTxt.parse(body, Dialect.GOOGLE).rules_for(tokens)
        assert [path for path in ("/n", "/g", "/e") if not rules.allowed(path)] == [denied]


@pytest.mark.clause("Google robots.txt specification, Handling of errors: 3xx")
def test_a_redirect_in_html_is_not_followed() -> None:
    """What a robots.txt of HTML refreshes to is a page: the body at hand is read as it is."""
    body = b'<html><meta http-equiv="refresh" content="0; url=/other.txt">\n<script>location = "/other.txt"</script>\n'
    robots = RobotsTxt.parse(body, Dialect.GOOGLE)
    assert (robots.groups, robots.sitemaps) == ([], [])
    assert robots.rules_for("Googlebot").allowed("/other.txt")


def read(*lines: str) -> RobotsTxt:
    return RobotsTxt.parse("\n".join(lines), Dialect.CONNER_2)


@pytest.mark.clause("Conner 2.0, Robot-version")
def test_versions_are_kept_with_their_groups_and_faults_with_their_lines() -> None:
    robots = read(
        *("User-agent: a", "Robot-version: 2.2.1", "Robot-version: 2.0.0", "Disallow: /x"),
        *("User-agent: b", "Robot-version: two", "Disallow: /x"),
        *("User-agent: c", "Disallow: /x", "Robot-version: 2.0.0"),
    )
    assert [group.version for group in robots.groups] == [(2, 2, 1), (1, 0, 0), (1, 0, 0)]
    quirks = [line.quirks for line in robots.lines if line.field == "robot-version"]
    assert quirks == [(), (Quirk.MISPLACED_VERSION,), (Quirk.INVALID_VALUE,), (Quirk.MISPLACED_VERSION,)]


@pytest.mark.clause("Conner 2.0, Allow and Disallow")
def test_deciding_line_is_reported() -> None:
    lines = ("Robot-version: 2.0.0", "Allow: /a*", "Allow: /b", "Disallow: /a/c*", "Disallow: /a/c")
    rules = read("User-agent: x", *lines).rules_for("x")
    for target, reason, line in (
        ("/ab", Reason.ALLOW_RULE, 3),
        ("/b", Reason.ALLOW_RULE, 4),
        ("/a/cd", Reason.DISALLOW_RULE, 5),
        ("/a/c", Reason.DISALLOW_RULE, 6),
        ("/other", Reason.NOT_ALLOWED, 3),
    ):
        match = rules.match(target)
        assert match.rule is not None
        assert (match.reason, match.rule.line) == (reason, line), target
        assert match.allowed is (reason is Reason.ALLOW_RULE)
