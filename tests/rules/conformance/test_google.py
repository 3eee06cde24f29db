import pytest

from politesse.robots import Dialect, Quirk, RobotsTxt


@pytest.mark.clause("google/robotstxt, robots_test.cc")
def test_pattern_of_a_cut_line_matches_by_its_rest() -> None:
    # GoogleOnly_LineTooLong: kMaxLineLen = 2083 * 8; the line with its field name is cut to one octet less.
    line = f"disallow: /{'a' * (2083 * 8)}/qux"
    robots = RobotsTxt.parse(f"user-agent: FooBot\n{line}\n", Dialect.GOOGLE)
    kept = 2083 * 8 - 1 - len("disallow: /")
    assert robots.lines[1].quirks == (Quirk.LINE_CUT,)
    rules = robots.rules_for("FooBot")
    assert not rules.allowed("/" + "a" * kept)
    assert not rules.allowed("/" + "a" * kept + "bcd")
    assert rules.allowed("/" + "a" * (kept - 1))


@pytest.mark.clause("google/robotstxt, robots_test.cc")
def test_line_of_the_greatest_length_in_octets_is_whole() -> None:
    for path in ("a" * (16_663 - len("disallow: /")), "é" * ((16_663 - len("disallow: /")) // 2)):
        robots = RobotsTxt.parse(f"user-agent: *\ndisallow: /{path}\ndisallow: /{path}aa\n", Dialect.GOOGLE)
        assert [line.quirks for line in robots.lines] == [(), (), (Quirk.LINE_CUT,)]
        assert robots.lines[1].value == f"/{path}"


@pytest.mark.clause("google/robotstxt, robots.cc")
@pytest.mark.parametrize(("character", "kept"), [("é", 1), ("ツ", 1), ("ツ", 2), ("😀", 3)])
def test_line_that_is_cut_within_a_character_keeps_its_first_octets(character: str, kept: int) -> None:
    # Parse: a line is octets, its buffer takes the first kMaxLineLen of them, and MaybeEscapePattern escapes each.
    plain = "a" * (16_663 - len("disallow: /") - kept)
    robots = RobotsTxt.parse(f"user-agent: *\ndisallow: /{plain}{character}b\nallow: /{plain}\n", Dialect.GOOGLE)
    assert robots.lines[1].quirks == (Quirk.LINE_CUT,)
    assert robots.lines[1].value.encode("utf-8", "surrogateescape") == f"/{plain}".encode() + character.encode()[:kept]
    rules = robots.rules_for("ExampleBot")
    octets = [f"%{octet:02X}" for octet in character.encode()]
    assert not rules.allowed(f"/{plain}{character}")
    assert not rules.allowed(f"/{plain}{''.join(octets[:kept])}%80")
    assert rules.allowed(f"/{plain}{''.join(octets[: kept - 1])}x")
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
