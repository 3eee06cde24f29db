from __future__ import annotations

import ast
from pathlib import Path

import pytest

import politesse
from politesse.origin import Origin
from politesse.robots import Dialect, Quirk, RobotsTxt
from politesse.robots.pattern import allowed_directory, is_plain
from politesse.verdict import Reason

SOURCES = Path(politesse.__file__).parent
CHOOSING = {"robotrules.py": ["Dialect.PERL", "Dialect.KOSTER_1996"]}
"""Where a dialect is chosen: an interface that is one dialect's own."""
BLANKS_END_RECORDS = {Dialect.KOSTER_1994, Dialect.KOSTER_1996, Dialect.PERL}


def _asks(node: ast.AST) -> bool:
    """Whether a node compares a dialect, or names one that is not the default."""
    if isinstance(node, ast.Compare | ast.Match):
        subject = node.subject if isinstance(node, ast.Match) else node
        return any(getattr(one, "id", getattr(one, "attr", "")).lower() == "dialect" for one in ast.walk(subject))
    named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Dialect"
    return named and isinstance(node, ast.Attribute) and node.attr != "RFC9309"


def test_only_the_table_distinguishes_dialects() -> None:
    paths = [path for path in SOURCES.rglob("*.py") if path.name != "dialect.py"]
    assert len(paths) > 50
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert [ast.unparse(node) for node in ast.walk(tree) if _asks(node)] == CHOOSING.get(path.name, []), path


def test_every_dialect_has_a_row_of_its_own() -> None:
    assert len({id(dialect.traits) for dialect in Dialect}) == len(Dialect) == 7


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("target", ["/", "/a?b=c/d", "/a.b/~c;d=e,f:@!&'()+[]", "//", "/a?/b?c"])
def test_plain_target_is_in_the_normal_form_of_every_dialect(dialect: Dialect, target: str) -> None:
    assert is_plain(target) is not None
    assert dialect.traits.matching.normalise_target(target) == target
    assert dialect.traits.matching.query_as_written(target) is None


@pytest.mark.parametrize("dialect", Dialect)
def test_every_target_of_robots_txt_is_exempt_in_every_dialect(dialect: Dialect) -> None:
    rules = RobotsTxt.parse("User-agent: *\nDisallow: /\nDisallow: /robots.txt\nDisallow: *\n", dialect).rules_for("x")
    for target in ("/robots.txt", "/a/../robots.txt", "/robots.txt#a", "https://example.com/robots.txt"):
        match = rules.match(target)
        assert (match.allowed, match.rule, match.reason) == (True, None, Reason.ROBOTS_TXT), target
    for target in ("/robots.txt?a", "//robots.txt", "/x/robots.txt"):
        assert not rules.allowed(target)


@pytest.mark.parametrize("dialect", Dialect)
def test_repr_of_a_rule_set_has_its_dialect_and_number_of_rules(dialect: Dialect) -> None:
    rules = RobotsTxt.parse("User-agent: *\nDisallow: /a\nDisallow: /a\nDisallow: /b\n", dialect).rules_for("x")
    assert len(rules) == 2
    assert repr(rules) == f"<RuleSet {dialect.value}: 2 rules, crawl_delay=None>"
    body = f"User-agent: *\nCrawl-delay: 2\nDisallow: /{'b' * 10_000}\n"
    more = RobotsTxt.parse(body, dialect).rules_for("x")
    assert repr(more) == f"<RuleSet {dialect.value}: 1 rules, crawl_delay=2.0>"
    assert more.weight_bytes > rules.weight_bytes + 9_000


@pytest.mark.parametrize("dialect", Dialect)
def test_first_of_equal_rules_is_reported_as_written(dialect: Dialect) -> None:
    match = RobotsTxt.parse("User-agent: *\nDISALLOW : /a # b\nDisallow: /a\n", dialect).rules_for("x").match("/a")
    assert match.rule is not None
    assert (match.rule.line, match.rule.field, match.rule.value) == (2, "DISALLOW", "/a")


@pytest.mark.parametrize("dialect", Dialect)
def test_rules_outside_of_any_record_have_a_quirk(dialect: Dialect) -> None:
    robots = RobotsTxt.parse("User-agent: a\nDisallow: /a\n\nDisallow: /b\nCrawl-delay: 5\n", dialect)
    outside = (Quirk.OUTSIDE_GROUP,) if dialect in BLANKS_END_RECORDS else ()
    assert [line.quirks for line in robots.lines] == [(), (), outside, outside]
    assert robots.rules_for("a").allowed("/b") is (dialect in BLANKS_END_RECORDS)
    assert (robots.rules_for("a").crawl_delay is None) is (dialect in BLANKS_END_RECORDS)


@pytest.mark.parametrize("dialect", Dialect)
def test_pacing_fields_and_sitemaps_are_read_in_every_dialect(dialect: Dialect) -> None:
    robots = RobotsTxt.parse(
        "Sitemap: https://h/s.xml\nUser-agent: *\nCrawl-delay: 5\nVisit-time: 0600-0845\nDisallow: /a\n", dialect
    )
    rules = robots.rules_for("x")
    assert robots.sitemaps == ["https://h/s.xml"]
    assert rules.crawl_delay == 5.0
    assert [str(window) for window in rules.visit_times] == ["0600-0845"]


def test_prefix_of_a_field_has_the_quirk_of_a_misspelling() -> None:
    robots = RobotsTxt.parse("user-agents: a\ndisallowed: /x\nsite-mapping: /s\ncrawl-delays: 5\n", Dialect.GOOGLE)
    assert [(line.name, line.field, line.quirks) for line in robots.lines] == [
        ("user-agents", "user-agent", (Quirk.MISSPELLED_FIELD,)),
        ("disallowed", "disallow", (Quirk.MISSPELLED_FIELD,)),
        ("site-mapping", "sitemap", (Quirk.MISSPELLED_FIELD,)),
        ("crawl-delays", "crawl-delays", ()),
    ]


@pytest.mark.parametrize(
    ("pattern", "implied"),
    [
        ("/a/index.html", "/a/$"),
        ("/index.htm", "/$"),
        ("/a/index.htmlx?y", "/a/$"),
        ("/a/Index.html", None),
        ("/a/xindex.html", None),
        ("index.html", None),
        ("/a/index.html/", None),
        ("*/index.html$", "*/$"),
    ],
)
def test_allowed_index_page_stands_for_its_directory(pattern: str, implied: str | None) -> None:
    assert allowed_directory(pattern) == implied


def test_directory_of_an_index_page_does_not_outrank_a_longer_rule() -> None:
    rules = RobotsTxt.parse(
        "User-agent: *\nAllow: /a/index.html\nDisallow: /a/$\nDisallow: /\nDisallow: /*/b/$\nAllow: /b/index.html\n",
        Dialect.GOOGLE,
    ).rules_for("x")
    assert rules.allowed("/a/")  # as long as the Disallow: the Allow counts
    assert not rules.allowed("/c/b/")
    match = rules.match("/b/")
    assert match.rule is not None
    assert (match.rule.line, match.rule.value) == (6, "/b/index.html")


@pytest.mark.parametrize("site", [None, Origin.of("http://foo")])
def test_rule_that_is_a_url_shows_its_line_and_path(site: Origin | None) -> None:
    robots = RobotsTxt.parse("User-agent: *\nDisallow: http://FOO:80/a b\n", Dialect.PERL, origin=site)
    match = robots.rules_for("x").match("http://foo/a%20b/c")
    assert match.rule is not None
    assert (match.rule.line, match.rule.value, match.rule.pattern) == (2, "http://FOO:80/a b", "/a%20b")
    assert robots.rules_for("x").allowed("http://foo/")


def test_rules_of_the_site_of_a_url_need_an_url() -> None:
    rules = RobotsTxt.parse("User-agent: *\nDisallow: http://foo/a\n", Dialect.PERL).rules_for("x")
    assert not rules.allowed("/a")  # whose it is was not told: it may be meant
    assert rules.allowed("https://foo/a")
