"""``politesse explain``: the file with its line numbers, and which of them decide."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from politesse import Dialect, RobotsTxt, Verdict
from politesse._text import printable
from politesse.cli.check_command import verdict_record
from politesse.cli.console import plain
from politesse.cli.gate_options import GateOptions, OneFetch, read_file
from politesse.origin import split
from politesse.robots.explain import Explanation, explain
from politesse.robots.lexer import cut_at_line_end, decode, split_rows
from politesse.robots.line import Quirk
from politesse.robots.lint import MAX_OCTETS
from politesse.usage.model import NOTHING_STATED, Purpose
from politesse.verdict import UNDECIDED, AccessResult

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from politesse.robots import Group

_MAX_ROW: Final = 160  # characters of a line of the file
_IN_GROUP, _MATCHES, _DECIDES = "|", "*", ">"
_MAX_NAMES: Final = 5
_WIDEST: Final = max(len(dialect.value) for dialect in Dialect)
_LEGEND: Final = f"{_IN_GROUP} in a group that counts   {_MATCHES} matches   {_DECIDES} decides"
_STYLES: Final = {_IN_GROUP: "", _MATCHES: "yellow", _DECIDES: "bold"}


@dataclass(frozen=True, slots=True)
class _Explained:
    """The verdict in one dialect, with its explanation if there is a file."""

    dialect: Dialect
    verdict: Verdict
    explanation: Explanation | None


async def explain_url(
    options: GateOptions, url: str, file: str | None, dialects: list[Dialect], out: Console, *, as_json: bool
) -> int:
    """Print the verdict on ``url`` in a dialect, or in several with one line each.

    The robots.txt is read from ``file``, or fetched once.

    Returns:
        the exit code, by the first dialect.

    Raises:
        InvalidURL: ``url`` is not an absolute http or https URL.
        OSError: the file cannot be read.
    """
    answers, body = await _judge(options, url, file, dialects)
    first = answers[0]
    if as_json:
        for answer in answers:
            out.print(plain(json.dumps(_as_record(answer))), soft_wrap=True)
    elif len(answers) > 1:
        for answer in answers:
            out.print(_in_one_line(answer, first), soft_wrap=True)
    else:
        if first.explanation is not None:
            _print_file(first.explanation, body, out)
        _print_answer(first, out)
    if first.verdict.reason in UNDECIDED:
        return 2
    return 0 if first.verdict else 1


async def _judge(
    options: GateOptions, url: str, file: str | None, dialects: list[Dialect]
) -> tuple[list[_Explained], bytes]:
    """Return the verdict in each dialect, and the robots.txt that they share."""
    origin, _ = split(url)
    answers: list[_Explained] = []
    if file is not None:
        body = read_file(file)
        body = body if len(body) <= MAX_OCTETS else cut_at_line_end(body, MAX_OCTETS)
        for dialect in dialects:
            robots = RobotsTxt.parse(body, dialect, origin=origin)
            explanation = explain(robots, url, options.token)
            match, site_usage = explanation.match, robots.rules_for(options.token).site_usage
            verdict = Verdict(url, options.token, match.allowed, match, site_usage=site_usage)
            answers.append(_Explained(dialect, verdict, explanation))
        return answers, body
    fetch = OneFetch(options)
    for dialect in dialects:
        async with options.gate(fetch, dialect) as gate:
            verdict = await gate.check(url)
        is_file = verdict.source is not None and verdict.source.result is AccessResult.SUCCESSFUL
        explained = (
            explain(RobotsTxt.parse(fetch.body, dialect, origin=origin), url, options.token) if is_file else None
        )
        answers.append(_Explained(dialect, verdict, explained))
    return answers, fetch.body


def _print_file(explanation: Explanation, body: bytes, out: Console) -> None:
    """Print the file, each line with its number, and a mark and a remark if it has an effect."""
    marks: dict[int, str] = {}
    remarks: dict[int, str] = {}
    for group in explanation.groups:
        lines = [*group.heads, *group.rules, *(line for _, line, _ in group.directives)]
        lines += [line for _, line in group.usage]
        marks |= dict.fromkeys((line.number for line in lines), _IN_GROUP)
        remarks |= {line.number: f"read as {line.field}" for line in lines if Quirk.MISSPELLED_FIELD in line.quirks}
    for rule in explanation.matches:
        marks[rule.line] = _MATCHES
        remarks[rule.line] = f"matches, length {len(rule.pattern)}"
    if explanation.winner is not None:
        marks[explanation.winner.line] = _DECIDES
        remarks[explanation.winner.line] = f"decides, length {len(explanation.winner.pattern)}"
    if explanation.ended_by is not None:
        marks[explanation.ended_by.number] = _DECIDES
        remarks[explanation.ended_by.number] = "decides: later rules are not tried"
    rows = split_rows(decode(body, None)[0])
    if rows[-1] == "":
        rows.pop()
    for number, row in enumerate(rows, 1):
        mark = marks.get(number, " ")
        shown = printable(row[:_MAX_ROW].replace("\t", " ")) + ("..." if len(row) > _MAX_ROW else "")
        line = plain(f"{mark} {number:>{len(str(len(rows)))}}  {shown}".rstrip(), _STYLES.get(mark, "dim"))
        if number in remarks:
            line.append(f"   <- {remarks[number]}")
        out.print(line, soft_wrap=True)
    out.print(plain(_LEGEND, "dim"), soft_wrap=True)
    out.print()


def _print_answer(answer: _Explained, out: Console) -> None:
    first, *details = answer.verdict.explain().splitlines()  # printable already
    out.print(plain(first, "bold green" if answer.verdict else "bold red"), soft_wrap=True)
    explanation = answer.explanation
    if explanation is not None:
        groups = "none binds this agent" if not explanation.groups else " + ".join(map(_group, explanation.groups))
        details.append(f"  groups: {groups}")
        if len(explanation.matches) > 1:
            details.append(f"  of {len(explanation.matches)} matches: {explanation.precedence}")
        if explanation.ended_by is not None:
            details.append(f"  line {explanation.ended_by.number}: an empty Disallow; later rules are not tried")
    details.append(f"  dialect: {answer.dialect.value}")
    usage = answer.verdict.usage
    if usage is not None and usage != NOTHING_STATED:
        details += ["  usage preferences:", *(f"    {line}" for line in usage.explain().splitlines())]
    out.print(plain("\n".join(details)), soft_wrap=True)


def _group(group: Group) -> str:
    numbers = [line.number for line in (*group.heads, *group.rules)]
    names = printable(", ".join(list(group.agents)[:_MAX_NAMES])) + (", ..." if len(group.agents) > _MAX_NAMES else "")
    return f"{names} (lines {min(numbers)} to {max(numbers)})"


def _in_one_line(answer: _Explained, first: _Explained) -> Text:
    """Return the verdict in a dialect as one line, with a star if it differs from the first."""
    verdict = answer.verdict
    mark = " " if verdict.allowed is first.verdict.allowed else "*"
    word = "allowed" if verdict else "disallowed"
    line = plain(f"{mark} {answer.dialect.value:<{_WIDEST}}  ")
    line.append(f"{word:<10}", "bold green" if verdict else "bold red")
    rule = verdict.rule
    why = verdict.reason.value if rule is None else f"line {rule.line}, {printable(str(rule)[:_MAX_ROW])}"
    return line.append(f"  {why}")


def _as_record(answer: _Explained) -> dict[str, Any]:
    """Return a verdict as ``--json`` prints it: the keys of ``check``, then the explanation.

    ::

        dialect  the dialect
        groups   [{agents, lines}]: the groups that apply, with the numbers of their user-agent lines and rules
        matches  [{line, field, value, length}]: every rule that matches, with its length in octets
        usage    {search, ai-train, ai-input, tdm}: what robots.txt says about each use, "allowed", "disallowed" or
                 "unstated"; or null if the URL may not be requested
        licenses [url, ...]: the licenses that robots.txt names; or null as usage is

    Groups and matches are null if there is no file.
    """
    explanation = answer.explanation
    groups = matches = None
    if explanation is not None:
        groups = [
            {"agents": list(group.agents), "lines": [line.number for line in (*group.heads, *group.rules)]}
            for group in explanation.groups
        ]
        matches = [
            {"line": rule.line, "field": rule.field, "value": rule.value, "length": len(rule.pattern)}
            for rule in explanation.matches
        ]
    usage = answer.verdict.usage
    return verdict_record(answer.verdict) | {
        "dialect": answer.dialect.value,
        "groups": groups,
        "matches": matches,
        "usage": None if usage is None else {purpose: usage.preference(purpose) for purpose in Purpose},
        "licenses": None if usage is None else [license_.url for license_ in usage.licenses],
    }
