"""Lexer and document.

Invariant: no octets make the parser raise, in any dialect. The reading of a line depends on that line and on the
lines before it only. So the lines and their numbers are those of a literal reading, text is read as its octets are,
and a file that is cut at the end of a line is read as the start of the whole file.

Input: one octet for the dialect, and the file.
"""

import re
from collections.abc import Sequence
from typing import Final

from politesse.robots import Dialect, Group, Line, Quirk, RobotsTxt, product_token
from tests.fuzz import rows
from tests.fuzz.target import Target, choose, dictionary, text

_YEAR_S: Final = 365 * 86_400
_DELAY: Final = re.compile(rb"[0-9]{1,10}(?:\.[0-9]{0,20})?|\.[0-9]{1,20}")


def check(octets: bytes) -> None:
    """Hold the parser to the invariant."""
    dialect, body = choose(octets[:1], tuple(Dialect)), octets[1:]
    robots = RobotsTxt.parse(body, dialect)
    _check_lines(robots, body)
    _check_said(robots)
    if dialect is Dialect.RFC9309:
        _check_delays(robots, body)
    said = _said(robots)
    assert _said(RobotsTxt.parse(text(body), dialect)) == said, "octets and text differ"
    if not rows.transcoded(body):
        for end in _line_ends(body):
            _check_prefix(RobotsTxt.parse(body[:end], dialect), robots)


def _check_lines(robots: RobotsTxt, body: bytes) -> None:
    found = [(line.number, *map(_octets, (line.name, line.value))) for line in robots.lines]
    expected = rows.rows(body, robots.dialect)
    assert found == [(row.number, row.name, row.value) for row in expected], "these are other lines"
    for line, row in zip(robots.lines, expected, strict=True):
        assert (Quirk.CONTROL_CHARACTER in line.quirks) is row.control, line
        assert (Quirk.NO_SEPARATOR in line.quirks) is (not row.field and line.name != ""), line


def _check_said(robots: RobotsTxt) -> None:
    """Check that each line belongs to at most one group, and that all stated values are valid."""
    lines = set(map(id, robots.lines))
    mine = [line for group in robots.groups for line in (*group.heads, *group.rules, *_directives(group))]
    assert len(mine) == len(set(map(id, mine))), "a line in two groups"
    assert lines.issuperset(map(id, mine)), "a line from nowhere"
    # A browser is refused as an agent, but not its bare name.
    names = [name for group in robots.groups for name in group.agents if product_token(name) != "mozilla"]
    for agent in ("*", "ExampleBot", "mozilla", *names):
        rules = robots.rules_for(agent)
        assert rules.match("/robots.txt").allowed
        assert 0.0 <= (rules.crawl_delay or 0.0) <= _YEAR_S
        assert all(0.0 < rate.interval_s <= _YEAR_S for rate in rules.request_rates)


def _check_delays(robots: RobotsTxt, body: bytes) -> None:
    """Check that a Crawl-delay binds the agents that its group has named so far, and that the longest counts."""
    delays: dict[bytes, float | None] = {}
    group: list[bytes] = []
    ended = True
    for row in rows.rows(body, robots.dialect):
        if row.field == b"user-agent":
            group = [] if ended else group
            ended = False
            group.append(rows.agent_on_line(row, robots.dialect))
            delays.setdefault(group[-1], None)
        elif row.field in {b"allow", b"disallow"}:
            ended = True
        elif row.field == b"crawl-delay" and not row.control and _DELAY.fullmatch(row.value) is not None:
            delay_s = float(row.value)
            for name in group if delay_s <= _YEAR_S else ():
                delays[name] = max(delay_s, delays[name] or 0.0)
    for agent in ("*", "ExampleBot", *(agent for one in robots.groups for agent in one.agents)):
        token = agent.lower().encode()
        assert robots.rules_for(agent).crawl_delay == delays.get(token if token in delays else b"*"), agent


def _check_prefix(cut: RobotsTxt, whole: RobotsTxt) -> None:
    assert _lines(cut.lines) == _lines(whole.lines[: len(cut.lines)]), "later lines changed earlier ones"
    assert cut.sitemaps == whole.sitemaps[: len(cut.sitemaps)]
    for group, later in zip(cut.groups, whole.groups, strict=False):
        assert list(group.agents.items()) == list(later.agents.items())[: len(group.agents)]
        assert _lines(group.rules) == _lines(later.rules[: len(group.rules)])
        assert _lines(_directives(group)) == _lines(_directives(later)[: len(group.directives)])
    assert len(cut.groups) <= len(whole.groups)
    assert list(map(_group, cut.groups[:-1])) == list(map(_group, whole.groups[: max(len(cut.groups) - 1, 0)]))


def _line_ends(body: bytes) -> set[int]:
    """Return places after line ends: the first, one in the middle, the last."""
    ends = [place + 1 for place, octet in enumerate(body) if octet in b"\r\n"]
    return {ends[0], ends[len(ends) // 2], ends[-1]} if ends else set()


def _said(robots: RobotsTxt) -> tuple[object, ...]:
    return robots.quirks, _lines(robots.lines), robots.sitemaps, list(map(_group, robots.groups))


def _group(group: Group) -> tuple[object, ...]:
    values = [(before, value) for before, _, value in group.directives]
    parts = map(_lines, (group.heads, group.rules, _directives(group)))
    return list(group.agents.items()), *parts, values, group.version


def _directives(group: Group) -> list[Line]:
    return [line for _, line, _ in group.directives]


def _lines(lines: Sequence[Line]) -> list[tuple[object, ...]]:
    return [(line.number, line.name, line.field, line.value, line.quirks) for line in lines]


def _octets(part: str) -> bytes:
    return part.encode("utf-8", "surrogateescape")


TARGET: Final = Target("document", check, dictionary("document"), 2048)
