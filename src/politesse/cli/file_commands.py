"""``politesse explain`` and ``politesse lint``: show which lines of a robots.txt decide, and its mistakes."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from politesse import Dialect, RobotsTxt, Verdict
from politesse._base.text import printable
from politesse.cli.check_command import reason_of, verdict_record
from politesse.cli.console import plain, read_start, record_of, say, say_json
from politesse.cli.running import MAX_READ_BYTES, GateOptions, OneFetch
from politesse.errors import InvalidURL
from politesse.origin import Origin
from politesse.robots.explain import Explanation, explain
from politesse.robots.lexer import cut_at_line_end, decode, split_rows
from politesse.robots.line import Quirk
from politesse.robots.lint import CODES, MAX_OCTETS, Severity, lint
from politesse.usage.model import NOTHING_STATED, Purpose
from politesse.verdict import UNDECIDED, AccessResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.text import Text

    from politesse.robots import Group

_MAX_ROW: Final = 160  # a line of the file is cut to this many characters
_IN_GROUP, _MATCHES, _DECIDES = "|", "*", ">"
_MAX_NAMES: Final = 5
_WIDEST: Final = max(len(dialect.value) for dialect in Dialect)
_LEGEND: Final = f"{_IN_GROUP} in a group that counts   {_MATCHES} matches   {_DECIDES} decides"
_STYLES: Final = {_IN_GROUP: "", _MATCHES: "yellow", _DECIDES: "bold"}

_URL = re.compile(r"https?://", re.IGNORECASE)
_SEVERITIES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold"}


@dataclass(frozen=True, slots=True)
class _Explained:
    """The verdict in one dialect, with its explanation if there is a file."""

    dialect: Dialect
    verdict: Verdict
    explanation: Explanation | None


async def explain_url(
    options: GateOptions, url: str, file: str | None, dialects: list[Dialect], out: Console, *, as_json: bool
) -> int:
    """Print the verdict on ``url`` in a dialect, or a line for each of several dialects.

    The robots.txt is read from ``file``, or fetched once.

    Returns:
        The exit code, which the first dialect decides.

    Raises:
        InvalidURL: ``url`` is not an absolute http or https URL.
        OSError: the file cannot be read.
    """
    answers, body = await _judge(options, url, file, dialects)
    first = answers[0]
    if as_json:
        for answer in answers:
            say_json(out, _as_record(answer))
    elif len(answers) > 1:
        for answer in answers:
            say(out, _in_one_line(answer, first))
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
    """Return the verdict in each dialect, and the robots.txt that all dialects read."""
    origin = Origin.of(url)
    answers: list[_Explained] = []
    if file is not None:
        body = await read_start(file, MAX_READ_BYTES)
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
        robots = RobotsTxt.parse(fetch.body, dialect, origin=origin)
        answers.append(
            _Explained(dialect, verdict, explain(robots, url, options.token) if _has_file(verdict) else None)
        )
    return answers, fetch.body


def _has_file(verdict: Verdict) -> bool:
    return verdict.source is not None and verdict.source.result is AccessResult.SUCCESSFUL


def _print_file(explanation: Explanation, body: bytes, out: Console) -> None:
    """Print each line of the file with its number; a line that has an effect gets a mark and a remark."""
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
        say(out, line)
    say(out, _LEGEND, "dim")
    out.print()


def _print_answer(answer: _Explained, out: Console) -> None:
    first, *details = answer.verdict.explain().splitlines()  # explain() has escaped these lines
    say(out, first, "bold green" if answer.verdict else "bold red")
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
    say(out, "\n".join(details))


def _group(group: Group) -> str:
    numbers = [line.number for line in (*group.heads, *group.rules)]
    names = printable(", ".join(list(group.agents)[:_MAX_NAMES])) + (", ..." if len(group.agents) > _MAX_NAMES else "")
    return f"{names} (lines {min(numbers)} to {max(numbers)})"


def _in_one_line(answer: _Explained, first: _Explained) -> Text:
    """Return the verdict in a dialect as one line, with a star if it differs from the verdict in the first dialect."""
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
        usage    {search, ai-train, ai-input, tdm}: the preference for each use, "allowed", "disallowed" or
                 "unstated"; or null if the URL may not be requested
        licenses [url, ...]: the licenses that robots.txt names; or null, like usage

    Groups and matches are null without a file.
    """
    explanation = answer.explanation
    groups = matches = None
    if explanation is not None:
        groups = [
            {"agents": list(group.agents), "lines": [line.number for line in (*group.heads, *group.rules)]}
            for group in explanation.groups
        ]
        matches = [record_of(rule, "line field value") | {"length": len(rule.pattern)} for rule in explanation.matches]
    usage = answer.verdict.usage
    return verdict_record(answer.verdict) | {
        "dialect": answer.dialect.value,
        "groups": groups,
        "matches": matches,
        "usage": None if usage is None else {purpose: usage.preference(purpose) for purpose in Purpose},
        "licenses": None if usage is None else [license_.url for license_ in usage.licenses],
    }


async def lint_all(
    options: GateOptions, sources: Sequence[str], dialect: Dialect, out: Console, err: Console, *, as_json: bool
) -> int:
    """Print the mistakes in files and sites, in the order of ``sources``, and return the exit code.

    With ``as_json`` each diagnostic is one object on one line::

        file      the argument; for a site the URL of its robots.txt
        line      from 1
        column    from 1, in characters
        severity  "error", "warning" or "note"
        code      as --codes lists it
        message   a sentence
    """
    counts: Counter[Severity] = Counter()
    unread = False
    for source in sources:
        try:
            name, body, origin = await read_robots(options, source, dialect)
        except (OSError, InvalidURL) as error:
            say(err, f"politesse: {printable(source)}: {printable(problem_of(source, error))}", "red")
            unread = True
            continue
        for found in lint(body, dialect, origin=origin):
            counts[found.severity] += 1
            if as_json:
                say_json(out, {"file": name} | asdict(found))
                continue
            line = plain(f"{printable(name)}:{found.line}:{found.column}: ")
            line.append(f"{found.severity}:", _SEVERITIES[found.severity])
            line.append(f" {found.message} [{found.code}]")
            say(out, line)
    if not as_json:
        err.print(plain(", ".join(f"{severity}s: {counts[severity]}" for severity in Severity)))
    if unread:
        return 2
    return 1 if counts[Severity.ERROR] else 0


def print_codes(out: Console) -> None:
    """Print every code with its severity and meaning."""
    widest = max(map(len, CODES))
    for name, code in CODES.items():
        say(out, f"{name:{widest}}  {code.severity:7}  {code.meaning}")


async def read_robots(options: GateOptions, source: str, dialect: Dialect) -> tuple[str, bytes, Origin | None]:
    """Return the name, the robots.txt and the origin of a source; raises OSError and InvalidURL."""
    if _URL.match(source) is None:
        return source, await read_start(source, MAX_READ_BYTES), None
    origin = Origin.of(source)
    fetch = OneFetch(options, max_body_bytes=MAX_READ_BYTES)
    async with options.gate(fetch, dialect) as gate:
        verdict = await gate.check(f"{origin}/")
    if not _has_file(verdict):
        raise OSError(reason_of(verdict))
    return origin.robots_url, fetch.body, origin


def problem_of(source: str, error: OSError | InvalidURL) -> str:
    """Return why a source cannot be read."""
    if isinstance(error, FileNotFoundError):
        return f"no such file; for the robots.txt of a site, write https://{source}"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
