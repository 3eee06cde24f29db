"""``politesse explain``, ``lint`` and ``diff``: show which lines of a robots.txt decide, its mistakes, and changes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from politesse import Dialect, RobotsTxt, Verdict
from politesse._base.text import printable
from politesse.cli.check_command import reason_of, url_lines, url_of, verdict_record
from politesse.cli.console import STANDARD, errors, output, plain, read_start, record_of, say, say_json
from politesse.cli.running import (
    MAX_READ_BYTES,
    Agent,
    AsJson,
    Config,
    GateOptions,
    InDialect,
    OneFetch,
    Timeout,
    checked_arguments,
)
from politesse.errors import ConfigurationError, InvalidURL
from politesse.origin import Origin
from politesse.robots.agents import EVERYBODY
from politesse.robots.changes import RobotsChange, RobotsDiff
from politesse.robots.explain import Explanation, explain
from politesse.robots.lexer import cut_at_line_end, decode, split_rows
from politesse.robots.line import Quirk
from politesse.robots.lint import CODES, MAX_OCTETS, Severity, lint
from politesse.usage.model import NOTHING_STATED, Purpose
from politesse.verdict import UNDECIDED, AccessResult

if TYPE_CHECKING:
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
    url: Annotated[str, typer.Argument(metavar="URL", help="An absolute http or https URL.")],
    agent: Agent = "politesse",
    file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Read this file instead of the site's robots.txt; - for standard input."),
    ] = None,
    dialect: InDialect = Dialect.RFC9309,
    timeout_s: Timeout = 30.0,
    *,
    config: Config = None,
    all_dialects: Annotated[
        bool,
        typer.Option(
            "--all-dialects", help="Print one line for each dialect, with a star if it differs from --dialect."
        ),
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Show robots.txt with the groups that apply, the rules that match, the deciding rule, and why.

    Exit code: 0 if the URL is allowed, 1 if it is disallowed, 2 if the answer could not be decided.

    With --json, for each dialect: the keys of politesse check, then dialect, groups [{agents, lines}], matches [{line,
    field, value, length}], usage, licenses.
    """
    options = GateOptions(agent, timeout_s, config=config)
    dialects = list(dict.fromkeys([dialect, *Dialect])) if all_dialects else [dialect]
    out = output()
    answers, body = await _answers(options, url, file, dialects)
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


async def _answers(
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


def _show_codes(wanted: bool) -> None:  # noqa: FBT001 - typer passes it by position
    if wanted:
        widest = max(map(len, CODES))
        for name, code in CODES.items():
            say(output(), f"{name:{widest}}  {code.severity:7}  {code.meaning}")
        raise typer.Exit


async def lint_all(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|URL",
            help="Files, - for standard input, or http(s) URLs of sites, whose robots.txt is fetched.",
        ),
    ],
    dialect: InDialect = Dialect.RFC9309,
    timeout_s: Timeout = 30.0,
    *,
    config: Config = None,
    as_json: AsJson = False,
    codes: Annotated[
        bool, typer.Option("--codes", callback=_show_codes, is_eager=True, help="List the codes and what they mean.")
    ] = False,
) -> int:
    """Report mistakes in robots.txt, rules that never take effect, and lines that other parsers would misread.

    Exit code: 0 without errors, even with warnings; 1 with errors; 2 if a file or a site could not be read.

    With --json: file, line, column, severity, code, message.
    """
    del codes  # handled by _show_codes, the callback of the option
    options = GateOptions(timeout_s=timeout_s, config=config)
    out, err = output(), errors()
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


_MAX_AGENTS: Final = 10

Source = Annotated[str, typer.Argument(metavar="FILE|URL", help="A file, - for standard input, or the URL of a site.")]
Agents = Annotated[
    list[str] | None,
    typer.Option(
        "--agent", metavar="TOKEN", help="Only for this crawler; may be repeated. * for all that no group names."
    ),
]
Urls = Annotated[
    typer.FileBinaryRead | None,
    typer.Option("--urls", metavar="FILE", help="Also judge each URL of this list by both files."),
]


async def diff(
    before: Source,
    after: Source,
    agents: Agents = None,
    urls: Urls = None,
    *,
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Show the rules, delays and sitemaps that differ between two robots.txt, and the URLs with different answers.

    The order and the repetition of rules do not matter. A rule that changes no answer is shown with "no effect".
    Without --agent, the files are compared for each crawler that they name, and for all others (*).

    Exit code: 0 if the files are equal in effect, 1 if they differ, 2 if a file, or a URL of the list, cannot be read.

    With --json: kind (rule, directive or decision), agents, subject, before {text, line}, after {text, line},
    has_effect, times.
    """
    with checked_arguments():
        if before == after == STANDARD:
            raise ConfigurationError("standard input (-) can be read only once")
        tokens = tokens_of(agents)
    files: list[RobotsTxt] = []
    options = GateOptions(config=config)
    for source in (before, after):
        try:
            _, body, _ = await read_robots(options, source, Dialect.RFC9309)
        except (OSError, InvalidURL) as error:
            raise ConfigurationError(f"{source}: {problem_of(source, error)}") from error
        files.append(RobotsTxt.parse(body))
    compared = RobotsDiff(files[0], files[1], tokens)
    changes = list(compared.changes())
    print_changes(changes, as_json=as_json)
    code = int(any(change.has_effect for change in changes))
    if urls is not None:
        async with aclosing(url_lines(urls.fileno())) as lines:
            async for line in lines:
                try:
                    print_changes(compared.decisions(url_of(line)), as_json=as_json)
                except InvalidURL as error:
                    say(errors(), f"politesse: {printable(str(error))}", "red")
                    code = 2
    if not code and not as_json:
        say(output(), "equal in effect")
    return code


def tokens_of(agents: Iterable[str] | None) -> list[str]:
    """Return the product tokens of ``--agent``; raises BadParameter."""
    return [name if name == EVERYBODY else GateOptions(name).token for name in agents or ()]


def print_changes(changes: Iterable[RobotsChange], *, as_json: bool) -> None:
    """Print changes as lines of JSON, or as text below the names of their crawlers."""
    out = output()
    for agents, alike in groupby(changes, attrgetter("agents")):
        if not as_json:
            names = ", ".join(agents[:_MAX_AGENTS]) + (", ..." if len(agents) > _MAX_AGENTS else "")
            say(out, f"{printable(names) or 'all crawlers'}:", "bold")
        for change in alike:
            say_json(out, asdict(change)) if as_json else say(out, f"  {printable(str(change))}")
