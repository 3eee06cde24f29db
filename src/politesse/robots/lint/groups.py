"""Checks which crawler obeys which group, and where other parsers end groups."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse.robots.agents import BROWSER, EVERYBODY, product_token
from politesse.robots.lexer import blank_lines
from politesse.robots.lint.diagnostics import Report, shown

if TYPE_CHECKING:
    from politesse.robots.document import RobotsTxt
    from politesse.robots.line import Group
    from politesse.robots.lint.lines import Rows

_MAX_COMPARED: Final = 2_000_000  # limits the comparisons, in dialects that compare all names with each other


class Binding(NamedTuple):
    """A crawler, and the groups that it obeys together.

    Attributes:
        agent: the name in the file, ``*`` for all crawlers without a group.
        groups: the groups in the order of the file.
    """

    agent: str
    groups: list[Group]


def bindings(robots: RobotsTxt) -> tuple[list[Binding], bool]:
    """Return a Binding for each set of groups that a crawler obeys, and whether all names in the file were tried."""
    names = dict.fromkeys(_crawler(name) for group in robots.groups for name in group.agents)
    compares = robots.dialect.traits.grouping.names
    whole = compares is None or len(names) ** 2 <= _MAX_COMPARED
    some = list(names) if whole else list(names)[: _MAX_COMPARED // len(names)]
    chosen: dict[tuple[int, ...], Binding] = {}
    for name in some:
        groups = robots.groups_for(name)
        chosen.setdefault(tuple(map(id, groups)), Binding(name, groups))
    return list(chosen.values()), whole


def _crawler(name: str) -> str:
    """Return the crawler that a name in the file means; for a browser's User-Agent string, ``mozilla``."""
    return BROWSER if product_token(name) == BROWSER else name


def check_groups(robots: RobotsTxt, rows: Rows, report: Report) -> None:
    """Report groups that other parsers split, that no crawler obeys, or that have no rules."""
    _check_several(robots, rows, report)
    numbers = [line.number for line in robots.lines]
    blanks = [] if robots.dialect.traits.syntax.blank_lines else blank_lines(rows.all)
    for group in robots.groups:
        if not group.heads:
            continue  # in this dialect, rules before any user-agent line bind all crawlers
        head = group.heads[0]
        if not group.rules:
            message = f"no rule follows: {_names(group)} may request everything"
            report.add("empty-group", message, head.number, rows.of_name(head))
        else:
            place = bisect_right(blanks, head.number)
            if place < len(blanks) and blanks[place] < group.rules[-1].number:
                message = f"a blank line in the group of {_names(group)}; some parsers end it here"
                report.add("blank-line-in-group", message, blanks[place])
        last = group.heads[-1].number
        for line in robots.lines[bisect_right(numbers, head.number) : bisect_right(numbers, last)]:
            if line.field != "user-agent":
                message = f"{shown(line.name)} between user-agent lines; some parsers start another group behind it"
                report.add("field-between-agents", message, line.number, rows.of_name(line))
                break


def _names(group: Group) -> str:
    first, *more = group.agents or ["nobody"]
    name = "everybody" if first == EVERYBODY else shown(first)
    return f"{name} and {len(more)} more" if more else name


def _check_several(robots: RobotsTxt, rows: Rows, report: Report) -> None:
    first: dict[str, Group] = {}
    several: dict[str, list[Group]] = {}
    for group in robots.groups:
        for name in group.agents:
            if first.setdefault(name, group) is not group:
                several.setdefault(name, [first[name]]).append(group)
    left = _MAX_COMPARED
    grouping = robots.dialect.traits.grouping
    names = grouping.names
    heads = {(id(group), grouping.name(line.value)): line for group in robots.groups for line in reversed(group.heads)}
    for name, groups in several.items():
        left -= 1 if names is None else len(first)
        if left < 0:
            report.give_up("group-ignored", "there are too many names to compare each with each")
            return
        obeyed = {id(group) for group in robots.groups_for(_crawler(name))}
        for group in groups:
            head = heads.get((id(group), name))
            if head is None or (group is groups[0] and id(group) in obeyed):
                continue
            whom = "everybody" if name == EVERYBODY else shown(name)
            where = f"line {_line_of(groups[0])}"
            if id(group) not in obeyed:
                code, message = "group-ignored", f"in this dialect {whom} obeys another group only, see {where}"
            else:
                code = "several-star-groups" if name == EVERYBODY else "several-groups"
                message = f"a further group for {whom}, see {where}; merged here, others obey the first only"
            report.add(code, message, head.number, rows.of_value(head))


def _line_of(group: Group) -> int:
    return group.heads[0].number if group.heads else group.rules[0].number
