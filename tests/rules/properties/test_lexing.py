"""The two readers of a file, held to each other and to a literal reading of its octets.

``rules_for`` reads a file in one pass that makes no lines; ``lines`` and ``groups`` are for lint, explain and people.
What is grouped here is grouped line by line.
"""

from collections.abc import Sequence
from itertools import product

from hypothesis import example, given, settings
from hypothesis import strategies as st

from politesse.errors import ConfigurationError
from politesse.robots import Dialect, Line, Quirk, RobotsTxt
from tests.fuzz import rows
from tests.fuzz.document import TARGET
from tests.rules.properties.reference import BLANK, split_lines

Numbers = list[tuple[list[int], list[int]]]
"""The line numbers of the user-agent lines and of the rules of each group."""

DIALECTS = tuple(Dialect)
MOST_SPECIFIC = (Dialect.RFC9309, Dialect.GOOGLE, Dialect.KOSTER_2019)
VOID = {Quirk.CONTROL_CHARACTER, Quirk.NO_LEADING_SLASH, Quirk.EMPTY_ALLOW}
PIECES = (
    *(b"\r", b"\n", b"\r\n", b"\n\r", b" ", b"\t", b":", b"#", b"/", b"*", b"$", b"a"),
    *(b"Disallow", b"allow ", b"User-Agent: x", b"Comment:", b"Crawl-delay ", b"foo: bar", b"Disallow: /a"),
    # What str.splitlines splits at, and what is no UTF-8 at all.
    *(b"\x0b", b"\x0c", b"\x1c", b"\x1d", b"\x1e", b"\x1f", b"\x85", b"\0", b"\x7f", b"\xe9", b"\xff"),
    *("\x85".encode(), "\u2028".encode(), "\u2029".encode(), "\ufeff".encode(), "é".encode()),
    *("\u00a0".encode(), b"\xa0", "\u00e0".encode()),  # the last octet of the last one is A0, too
)
ROWS = (
    *(b"User-agent: *", b"user-agent : FooBot/1", b"\tUSER-AGENT:bar", b"useragent: x", b"User-agent:"),
    *(b"User-agent: \x07", b"Disallow: /a", b"Disallow:/b*c$", b"disallow : ", b"Allow: /a/%41", b"allow:"),
    *(b"dissallow: /m", b"DISALLOW: x", b"disallow /x", b"disallow\t/x y", b"Disallowed: /g", b"Allow: /\xc3\xa9"),
    *(b"Disallow: /\xff", b"Disallow: /\x00", b"", b" \t", b"# note", b"Disallow: /a#b", b"prose", b"two words"),
    *(b": /v", b"Foo: bar", b"Disallow: http://e.com/z", b"Sitemap: http://e/s", b"Sitemap: \x01"),
    *(b"Crawl-delay: 3", b"Crawl-delay: x", b"Robot-version: 2.0", b"Content-Usage: train-ai=n", b"Content-Usage:"),
    *(b"Content-Signal: ai-train=no", b"License: http://l/x", b"License: x"),
)
ENDED = st.lists(st.tuples(st.sampled_from(ROWS), st.sampled_from((b"\n", b"\r", b"\r\n"))), max_size=16)
FILES = st.one_of(
    ENDED.map(lambda lines: b"".join(row + end for row, end in lines)),
    st.lists(st.sampled_from((*ROWS, *TARGET.words)), max_size=24).map(b"".join),
    st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join),
    st.binary(max_size=80) | st.text(max_size=60).map(str.encode),
)


def _grouped(lines: Sequence[Line], blank: set[int], dialect: Dialect) -> Numbers:
    """Group lines one by one (RFC 9309 2.1; for WWW::RobotRules also the rules before any user-agent line)."""
    grouping = dialect.traits.grouping
    groups: Numbers = []
    group: tuple[list[int], list[int]] | None = None
    ended, last = False, 0
    for line in lines:
        if any(last < number < line.number for number in blank):
            group, ended = None, False
        last = line.number
        if line.field == "user-agent":
            if group is None or ended:
                group = ([], [])
                groups.append(group)
            group[0].append(line.number)
            ended = False
        elif line.field in grouping.rules:
            if group is None and grouping.unnamed_group and not any(heads for heads, _ in groups):
                groups = groups or [([], [])]
                group = groups[0]
            if group is not None:
                group[1].append(line.number)
            ended = True
        elif line.field:
            usage = line.field in grouping.usage_rules and line.value and Quirk.CONTROL_CHARACTER not in line.quirks
            ended = ended or grouping.any_field_is_a_rule or bool(usage)
    return groups


def _check(body: bytes, dialect: Dialect) -> None:
    robots = RobotsTxt.parse(body, dialect)
    agents = [name for group in robots.groups for name in group.agents][:8]
    # The rules first, from a parse of its own: nothing of what makes lines has run.
    fused = {agent: _rules(RobotsTxt.parse(body, dialect), agent) for agent in ("*", "ExampleBot", *agents)}
    blank = set()
    if dialect.traits.syntax.blank_lines:
        texts = enumerate(split_lines(rows.utf_8(body)), start=1)
        blank = {number for number, text in texts if not text.strip(BLANK)}
    numbers = [([line.number for line in one.heads], [line.number for line in one.rules]) for one in robots.groups]
    assert numbers == _grouped(robots.lines, blank, dialect)
    for agent, rules in fused.items():
        if rules is not None:
            _check_rules(robots, agent, rules)


def _rules(robots: RobotsTxt, agent: str) -> list[tuple[int, str, str, str]] | None:
    try:
        return [(rule.line, rule.field, rule.value, rule.pattern) for rule in robots.rules_for(agent).rules]
    except ConfigurationError:
        return None  # a browser's name


def _check_rules(robots: RobotsTxt, agent: str, rules: list[tuple[int, str, str, str]]) -> None:
    """The rules of a crawler are lines of its groups, and each line that means something is among them."""
    lines = {line.number: line for group in robots.groups_for(agent) for line in group.rules}
    for number, field, value, _ in rules:
        assert (lines[number].name, lines[number].value) == (field, value)
        assert VOID.isdisjoint(lines[number].quirks)
    if robots.dialect in MOST_SPECIFIC:
        said = [line.value for line in lines.values() if line.value and VOID.isdisjoint(line.quirks)]
        patterns = set(map(robots.dialect.traits.matching.normalise_pattern, said))
        implied = robots.dialect.traits.matching.implied_allow is not None
        assert patterns <= {pattern for *_, pattern in rules}
        assert implied or len(rules) == len(patterns)


@settings(max_examples=6_000)
@given(FILES, st.sampled_from(DIALECTS))
@example(b"Disallow: /a\n\nDisallow: /b\nUser-agent: x\nDisallow: /c", Dialect.PERL)
@example(b"User-agent: x\nDisallow: /\x00\nUser-agent: y\nDisallow: /b", Dialect.RFC9309)
def test_both_readers_read_each_line_alike(body: bytes, dialect: Dialect) -> None:
    TARGET.check(b"%c" % (ord("0") + DIALECTS.index(dialect)) + body)
    _check(body, dialect)


def test_both_readers_read_the_kept_inputs_of_the_fuzzer_alike() -> None:
    for path, dialect in product(TARGET.corpus, DIALECTS):
        _check(path.read_bytes()[1:], dialect)
