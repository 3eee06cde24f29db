"""What tells the dialects apart, and what is the same in all of them."""

import ast
from pathlib import Path
from typing import Final

import politesse
from politesse.origin import Origin
from politesse.robots import Dialect, Quirk, RequestRate, RobotsTxt
from politesse.robots.pattern import allowed_directory, is_plain

SOURCES: Final = Path(politesse.__file__).parent
CHOOSING: Final = {"robotrules.py": ["Dialect.PERL", "Dialect.KOSTER_1996"]}
"""Where a dialect is chosen: an interface that is one dialect's own."""
BLANKS_END_RECORDS: Final = {Dialect.KOSTER_1994, Dialect.KOSTER_1996, Dialect.PERL}


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
        source = path.read_text(encoding="utf-8")
        if "dialect" in source.lower():  # it takes a second to parse all others, too
            tree = ast.parse(source)
            assert [ast.unparse(node) for node in ast.walk(tree) if _asks(node)] == CHOOSING.get(path.name, []), path


def test_every_dialect_has_a_row_of_its_own() -> None:
    assert len({id(dialect.traits) for dialect in Dialect}) == len(Dialect) == 7


def test_plain_target_is_in_the_normal_form_of_every_dialect() -> None:
    for target in ("/", "/a?b=c/d", "/a.b/~c;d=e,f:@!&'()+[]", "//", "/a?/b?c"):
        assert is_plain(target) is not None
        for dialect in Dialect:
            assert dialect.traits.matching.form.of_target(target) == (target,), dialect


def test_repr_of_a_rule_set_has_its_dialect_and_number_of_rules() -> None:
    for dialect in Dialect:
        rules = RobotsTxt.parse("User-agent: *\nDisallow: /a\nDisallow: /a\nDisallow: /b\n", dialect).rules_for("x")
        assert (len(rules), repr(rules)) == (2, f"<RuleSet {dialect.value}: 2 rules, crawl_delay=None>")
        body = f"User-agent: *\nCrawl-delay: 2\nDisallow: /{'b' * 10_000}\n"
        more = RobotsTxt.parse(body, dialect).rules_for("x")
        assert repr(more) == f"<RuleSet {dialect.value}: 1 rules, crawl_delay=2.0>"
        assert more.weight_bytes > rules.weight_bytes + 9_000, dialect


def test_first_of_equal_rules_is_reported_as_written() -> None:
    for dialect in Dialect:
        body = "User-agent: *\nDISALLOW : /a # b\nDisallow: /a\n"
        rule = RobotsTxt.parse(body, dialect).rules_for("x").match("/a").rule
        assert rule is not None
        assert (rule.line, rule.field, rule.value) == (2, "DISALLOW", "/a"), dialect


def test_rules_outside_of_any_record_have_a_quirk() -> None:
    for dialect in Dialect:
        robots = RobotsTxt.parse("User-agent: a\nDisallow: /a\n\nDisallow: /b\nCrawl-delay: 5\n", dialect)
        outside = (Quirk.OUTSIDE_GROUP,) if dialect in BLANKS_END_RECORDS else ()
        assert [line.quirks for line in robots.lines] == [(), (), outside, outside], dialect
        rules = robots.rules_for("a")
        assert rules.allowed("/b") is (rules.crawl_delay is None) is (dialect in BLANKS_END_RECORDS), dialect


def test_pacing_fields_and_sitemaps_are_read_in_every_dialect() -> None:
    fields = ("Crawl-delay: 5", "Visit-time: 0600-0845", "Request-rate: 10/10m", "Comment: hi", "Request-rate: 0/5")
    for dialect in Dialect:
        for version in ((), ("Robot-version: 2.0.0",)):
            lines = (
                "Sitemap: https://h/s.xml",
                "User-agent: x",
                *version,
                *fields,
                "Disallow: /a",
                "",
                "Comment: more",
            )
            robots = RobotsTxt.parse("\n".join((*lines, "User-agent: *", "Comment: not you")), dialect)
            rules = robots.rules_for("x")
            assert (robots.sitemaps, rules.crawl_delay) == (["https://h/s.xml"], 5.0), dialect
            assert ([str(window) for window in rules.visit_times], rules.request_rates) == (
                ["0600-0845"],
                (RequestRate(10, 600),),
            ), dialect
            assert rules.comments == (("hi",) if dialect in BLANKS_END_RECORDS else ("hi", "more")), dialect


def test_prefix_of_a_field_has_the_quirk_of_a_misspelling() -> None:
    robots = RobotsTxt.parse("user-agents: a\ndisallowed: /x\nsite-mapping: /s\ncrawl-delays: 5\n", Dialect.GOOGLE)
    assert [(line.name, line.field, line.quirks) for line in robots.lines] == [
        ("user-agents", "user-agent", (Quirk.MISSPELLED_FIELD,)),
        ("disallowed", "disallow", (Quirk.MISSPELLED_FIELD,)),
        ("site-mapping", "sitemap", (Quirk.MISSPELLED_FIELD,)),
        ("crawl-delays", "crawl-delays", ()),
    ]


def test_allowed_index_page_stands_for_its_directory() -> None:
    implied = {
        "/a/index.html": "/a/$",
        "/index.htm": "/$",
        "/a/index.htmlx?y": "/a/$",
        "/a/Index.html": None,
        "/a/xindex.html": None,
        "index.html": None,
        "/a/index.html/": None,
        "*/index.html$": "*/$",
    }
    assert {pattern: allowed_directory(pattern) for pattern in implied} == implied


def test_directory_of_an_index_page_does_not_outrank_a_longer_rule() -> None:
    body = "User-agent: *\nAllow: /a/index.html\nDisallow: /a/$\nDisallow: /\nDisallow: /*/b/$\nAllow: /b/index.html\n"
    rules = RobotsTxt.parse(body, Dialect.GOOGLE).rules_for("x")
    assert rules.allowed("/a/")  # as long as the Disallow: the Allow counts
    assert not rules.allowed("/c/b/")
    rule = rules.match("/b/").rule
    assert rule is not None
    assert (rule.line, rule.value) == (6, "/b/index.html")


def test_rule_that_is_a_url_shows_its_line_and_path() -> None:
    for site in (None, Origin.of("http://foo")):
        robots = RobotsTxt.parse("User-agent: *\nDisallow: http://FOO:80/a b\n", Dialect.PERL, origin=site)
        rule = robots.rules_for("x").match("http://foo/a%20b/c").rule
        assert rule is not None
        assert (rule.line, rule.value, rule.pattern) == (2, "http://FOO:80/a b", "/a%20b")
        assert robots.rules_for("x").allowed("http://foo/")


def test_rules_of_the_site_of_a_url_need_an_url() -> None:
    rules = RobotsTxt.parse("User-agent: *\nDisallow: http://foo/a\n", Dialect.PERL).rules_for("x")
    assert not rules.allowed("/a")  # whose it is was not told: it may be meant
    assert rules.allowed("https://foo/a")
