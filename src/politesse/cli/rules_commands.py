"""The commands that judge by robots.txt: check, filter, explain, lint and diff.

``check`` explains a few URLs, pages and hosts; ``filter`` copies the allowed URLs of a list. ``explain`` and ``lint``
show which lines of a robots.txt decide, and its mistakes; ``diff`` shows the differences between two.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, aclosing, closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Final

import aiohttp
import typer
from rich.text import Text

from politesse._base.text import counted, printable
from politesse.cli.console import (
    BROKEN_PIPE,
    MAX_LINE_BYTES,
    STANDARD,
    OutputWriter,
    as_lines,
    descriptor,
    errors,
    lines,
    output,
    read_start,
    record_of,
    say,
    say_json,
    say_record,
)
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
    file_option,
    read_body,
)
from politesse.errors import ConfigurationError, Disallowed, InvalidURL
from politesse.integrations.aiohttp import PoliteSession
from politesse.origin import Origin
from politesse.page import PageDirectives, followable_links, is_html, response_usage
from politesse.page.html import MAX_BYTES
from politesse.robots import Dialect, RobotsTxt
from politesse.robots.agents import EVERYBODY
from politesse.robots.changes import RobotsChange, RobotsDiff
from politesse.robots.explain import Explanation, explain
from politesse.robots.lexer import cut_at_line_end, decode, split_rows
from politesse.robots.line import Quirk
from politesse.robots.lint import CODES, MAX_OCTETS, Severity, lint
from politesse.usage import Purpose, Usage
from politesse.usage.model import NOTHING_STATED, combine
from politesse.verdict import UNDECIDED, AccessResult, Reason, Verdict, url_to_request

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from rich.console import Console

    from politesse._gate.view import AgentView
    from politesse.robots import Group
    from politesse.status import HostStatus

_ERRORS: Final = 400  # this status and above are errors
_SHOWN: Final = 10  # the text shows at most this many links and sitemaps; --json lists all


async def check(
    urls: Annotated[list[str], typer.Argument(metavar="URL", help="Absolute http or https URLs.")],
    *,
    page: Annotated[
        bool,
        typer.Option(
            "--page",
            help="Fetch each allowed page, in its turn. Report its directives for robots, its links to follow and its "
            "usage preferences, and the sitemaps, tdmrep.json and data.txt of its site.",
        ),
    ] = False,
    host: Annotated[
        bool,
        typer.Option(
            "--host",
            help="Then report for each host: its pace and the source of the pace, the time until which it is closed, "
            "its waiting requests, the holder of its turn, and the state and age of its robots.txt.",
        ),
    ] = False,
    options: GateOptions,
    as_json: AsJson = False,
) -> int:
    """Report whether robots.txt allows each URL, which line decides, and how long the answer is valid.

    Exit code: 0 if all URLs are allowed, 1 if one is disallowed, 2 if an argument is not a URL, or if a robots.txt or a
    page cannot be fetched.

    With --json: url, allowed, reason, agent, rule {line, field, value}, source {robots_url, result, status, final_url,
    fetched, fresh_until, fault}, age_s, not_before, note; with --page also page. With --host, another object for each
    host: host, interval_s, bound_by, not_before, closed_until, closed_by, waiting, in_flight, held_by, held_s, robots
    [{origin, result, status, fault, age_s, fetching, next_fetch}], fleet_wait {not_before, bound_by, held_by}.
    """
    out, err, faults = output(), errors(), 0
    async with options.gate() as gate:
        with err.status("fetching robots.txt") if err.is_terminal else nullcontext():
            verdicts = await gate.check_batch(urls)
        pages = [asyncio.ensure_future(_page(gate, verdict, options, with_page=page)) for verdict in verdicts]
        try:
            for verdict, task in zip(verdicts, pages, strict=True):
                if not as_json:
                    _explain(verdict, out)  # the verdict comes first, because the page may take a long time
                with err.status("fetching pages") if err.is_terminal and not task.done() else nullcontext():
                    record = await task
                faults += record is not None and bool(record["fault"])
                if as_json:
                    say_json(out, verdict_record(verdict) | ({"page": record} if page else {}))
                elif record is not None:
                    shown = {name: record[name][:_SHOWN] for name in ("links", "sitemaps")}
                    say(out, "\n".join(as_lines({"page": record | shown})))
        finally:
            for task in pages:
                task.cancel()
            await asyncio.gather(*pages, return_exceptions=True)
        for verdict in verdicts if host else ():
            if verdict.reason is not Reason.INVALID_URL:  # the store may keep a closure of a host that was not asked
                await gate.state.pacer.closed_until(Origin.of(verdict.url).pacing_host)
        for status in gate.hosts().values() if host else ():
            _print_host(status, out, as_json=as_json)
    if faults or any(verdict.reason in UNDECIDED for verdict in verdicts):
        return 2
    return 0 if all(verdicts) else 1


async def _page(gate: AgentView, verdict: Verdict, options: GateOptions, *, with_page: bool) -> dict[str, Any] | None:
    return await page_record(gate, url_to_request(verdict), options) if with_page and verdict else None


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as ``--json`` prints it; the help of the command lists the keys.

    ``source.status`` is null if there was no answer, and ``source`` is null if robots.txt was not fetched.
    """
    rule, source = verdict.rule, verdict.source
    return {
        **record_of(verdict, "url allowed reason agent"),
        "rule": None if rule is None else record_of(rule, "line field value"),
        "source": source
        and record_of(source, "robots_url result status final_url fetched_wall fresh_until_wall fault"),
        **record_of(verdict, "age_s not_before note"),
    }


def reason_of(verdict: Verdict) -> str:
    """Return the reason of a verdict as one line."""
    return verdict.explain().partition("reason: ")[2].partition("\n")[0]


def _explain(verdict: Verdict, out: Console) -> None:
    answer, *details = verdict.explain().splitlines()  # explain() has escaped these lines
    word, colon, url = answer.partition(":")
    undecided = verdict.reason in UNDECIDED
    line = Text(word + colon, "bold green" if verdict.allowed else "bold yellow" if undecided else "bold red")
    say(out, line.append(url, style="bold"))
    say(out, "\n".join(details))


def _print_host(status: HostStatus, out: Console, *, as_json: bool) -> None:
    names = "host interval_s bound_by not_before closed_until closed_by waiting in_flight held_by held_s"
    wait = status.fleet_wait
    record = record_of(status, names) | {
        "robots": [record_of(one, "origin result status fault age_s fetching next_fetch") for one in status.robots],
        "fleet_wait": None if wait is None else record_of(wait, "not_before bound_by held_by"),
    }
    if not as_json:
        say(out, f"host: {printable(str(record.pop('host')))}", "bold")
    say_record(out, record, as_json=as_json)


async def page_record(gate: AgentView, url: str, options: GateOptions) -> dict[str, Any]:
    """Fetch a page and the files of its site, and return their statements as ``--json`` prints them.

    ::

        status      of the answer, or null
        final_url   after redirects; "" if no page was fetched
        fault       why no page was fetched, or ""
        not_before  the answer closes the host until this time; or null
        closed_by   the source of that time: a value of politesse.Bound, as in "retry-after"; or null
        answers     {index, follow, archive, show_a_snippet, translate, index_images}: {allowed, against: [the
                    statements that forbid it]}
        statements  [every directive for this crawler, with its header or META]
        description, keywords, revisit_after_days: as the METAs of these names say, or null
        links       [the URLs of the links that may be followed]
        usage       {search, ai-train, ai-input, tdm}: {preference, by: [the statements that decide]}
        licenses    [url]
        sitemaps    [url]
        data_txt    {outcome, records: [[[field, value], ...], ...]}
        truncated   whether the page was longer than the part that is read
    """
    page, timeout_s = await _fetched(gate, url, options), options.timeout_s
    sitemaps, data_txt = await gate.sitemaps(url), None
    if page.closed_until is None or page.closed_until - time.time() <= timeout_s:
        stated = await gate.usage(url)
        data_txt = await gate.datatxt(url)
    else:  # the host is closed for a long time, so no file of the site may be requested
        stated = (await gate.check(url)).usage
    usage = combine([NOTHING_STATED if stated is None else stated, *page.usages])
    directives = page.directives
    return page.record | {
        "answers": {} if page.record["fault"] else _permissions(directives),
        "statements": list(dict.fromkeys(map(str, directives.statements))),
        "description": directives.description or None,
        "keywords": ", ".join(directives.keywords) or None,
        "revisit_after_days": directives.revisit_after_days,
        "links": page.links,
        "usage": {
            purpose: {"preference": usage.preference(purpose), "by": [str(one) for one in usage.deciding(purpose)]}
            for purpose in Purpose
        },
        "licenses": [license_.url for license_ in usage.licenses],
        "sitemaps": list(sitemaps.urls),
        "data_txt": data_txt
        and {
            "outcome": data_txt.outcome,
            "records": [[list(pair) for pair in one.fields] for one in data_txt.records],
        },
        "truncated": directives.truncated,
    }


@dataclass(slots=True)
class _Page:
    """A page that was fetched.

    Attributes:
        record: the members of the page's JSON record that describe the answer.
        closed_until: the answer closes the host until this time, in seconds since 1970; or None.
        directives: the directives of the page for the crawler; none for an error page.
        links: the URLs of the links that may be followed.
        usages: the statements of the page about the use of its content.
    """

    record: dict[str, Any]
    closed_until: float | None = None
    directives: PageDirectives = field(default_factory=PageDirectives)
    links: list[str] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)


async def _fetched(gate: AgentView, url: str, options: GateOptions) -> _Page:
    """Fetch a page. If the fetch fails, the member ``fault`` of the page's record says why."""
    record: dict[str, Any] = {"status": None, "final_url": "", "fault": "", "not_before": None, "closed_by": None}
    page, timeout = _Page(record), aiohttp.ClientTimeout(total=options.timeout_s)
    try:
        session = PoliteSession(gate, timeout=timeout, proxy=options.fetch_options().proxy)
        async with session as web, web.get(url) as response:
            record |= {"status": response.status, "final_url": str(response.url)}
            body = await read_body(response.content)
            if (host := gate.hosts().get(Origin.of(record["final_url"]).pacing_host)) is not None:
                page.closed_until, record["closed_by"] = host.closed_until, host.closed_by
                record["not_before"] = record_of(host, "closed_until")["closed_until"]
    except (Disallowed, InvalidURL) as error:
        record["fault"] = f"a redirect leads to what may not be requested: {error}"
    except aiohttp.TooManyRedirects:
        record["fault"] = "too many redirects"
    except (aiohttp.ClientError, TimeoutError) as error:
        record["fault"] = f"{type(error).__name__} {error}".strip()
    else:
        if response.status >= _ERRORS:  # the directives in an error page do not apply to the page at this URL
            record["fault"] = f"status {response.status}"
        else:
            headers, start, tokens = response.headers, body[:MAX_BYTES], gate.identity.tokens
            html = start if is_html(start, ", ".join(headers.getall("Content-Type", ()))) else None
            found = PageDirectives.from_response(headers, html, tokens)
            page.directives = replace(found, truncated=found.truncated or len(body) > MAX_BYTES)
            if html is not None:
                page.links = followable_links(html, str(response.url), headers=headers, token=tokens)
            page.usages.append(response_usage(headers, page.directives, response.url))
    return page


def _permissions(page: PageDirectives) -> dict[str, Any]:
    """Return the permissions of a page at the present time, by what they permit."""
    may_use = (page.may_archive, page.may_snippet, page.may_translate, page.may_index_images)
    return {
        one.to.replace(" ", "_"): {"allowed": one.allowed, "against": [str(said) for said in one.against]}
        for one in (page.may_index(time.time()), page.may_follow, *may_use)
    }


_ALLOWED, _DISALLOWED, _UNDECIDED = "allowed", "disallowed", "could not be decided"
_LAST_FLUSH_S: Final = 1.0
_MAX_REASONS: Final = 10
_MAX_SHOWN: Final = 200  # the URL or line of a reason is cut to this many characters


@dataclass(slots=True)
class Tally:
    """The number of URLs for each answer.

    Attributes:
        counts: maps each answer to its number of URLs; a line that is not a URL counts as undecided.
        reasons: the reasons for the first ten undecided answers. The key is the URL of the robots.txt, or the line if
            the line is not a URL.
        ending: why the command ended before the end of the input; else empty.
    """

    counts: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    ending: str = ""
    started_mono: float = field(default_factory=time.monotonic)

    def count(self, verdict: Verdict) -> None:
        """Add a verdict."""
        answer = _ALLOWED if verdict else _UNDECIDED if verdict.reason in UNDECIDED else _DISALLOWED
        self.counts[answer] += 1
        if answer is _UNDECIDED and len(self.reasons) < _MAX_REASONS:
            where = verdict.url if verdict.source is None else verdict.source.robots_url
            self.reasons[printable(where[:_MAX_SHOWN])] = reason_of(verdict)

    def summary(self) -> str:
        """Return the tally as one line, and below it the reasons why some URLs could not be decided."""
        elapsed_s = time.monotonic() - self.started_mono
        counts = ", ".join(f"{self.counts[answer]:,} {answer}" for answer in (_ALLOWED, _DISALLOWED, _UNDECIDED))
        judged, ending = counted(self.counts.total(), "URL"), self.ending and f"; {self.ending}"
        reasons = [f"\n  {where}: {reason}" for where, reason in self.reasons.items()]
        more = ["\n  ..."] if len(reasons) == _MAX_REASONS else []
        return "".join([f"{judged} in {elapsed_s:.1f} s: {counts}{ending}", *reasons, *more])


async def filter_urls(
    *,
    rejected: Annotated[
        Path | None,
        file_option("Write the other URLs here, each with a tab and the reason."),
    ] = None,
    options: GateOptions,
) -> int:
    """Copy each allowed URL from standard input, one per line, to standard output, as soon as it is decided.

    The order of the URLs changes. Empty lines, and lines that begin with #, are skipped.

    Exit code: 0 if each URL was decided, allowed or not; 2 if a URL could not be decided.
    """
    err, tally = errors(), Tally()
    with ExitStack() as stack:
        stack.callback(lambda: say(err, tally.summary()))
        try:
            others = nullcontext() if rejected is None else _opened(rejected)
            stdin, stdout = descriptor(sys.stdin), descriptor(sys.stdout)
            out, aside = stack.enter_context(closing(OutputWriter(stdout))), stack.enter_context(others)
            async with options.gate() as gate:
                await filter_lines(gate, stdin, out, aside, tally)
        except BrokenPipeError:
            tally.ending = "stopped, because the output was closed"
            return BROKEN_PIPE
        except OSError as error:
            tally.ending = f"stopped by an error: {printable(str(error))}"
            return 2
        except asyncio.CancelledError:
            tally.ending = "interrupted"
            raise
    return 2 if tally.counts[_UNDECIDED] else 0


async def filter_lines(
    gate: AgentView, source_fd: int, out: OutputWriter, rejected: OutputWriter | None, tally: Tally
) -> None:
    """Judge every line of ``source_fd``, and write it to ``out`` or ``rejected`` when decided; raises OSError."""
    writers = [writer for writer in (out, rejected) if writer is not None]
    try:
        async with aclosing(gate.filter(url_lines(source_fd), key=url_of)) as judged:
            async for line, verdict in judged:
                tally.count(verdict)
                if verdict.allowed:
                    await out.write(line + b"\n")
                elif rejected is not None:
                    await rejected.write(b"%b\t%b\n" % (line, verdict.reason.encode()))
    except BaseException:  # try for a short time to write the verdicts so far
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LAST_FLUSH_S):
                await _flush(writers)
        raise
    await _flush(writers)


async def url_lines(source_fd: int) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a list of URLs, without the comments, which begin with ``#``."""
    async with aclosing(lines(source_fd)) as given:
        async for line in given:
            if not line.startswith(b"#"):
                yield line


async def _flush(writers: list[OutputWriter]) -> None:
    for writer in writers:
        await writer.flush()


def url_of(line: bytes) -> str:
    """Return the line as text; empty for a line that was cut off, because such a line is not a URL."""
    return line.decode("utf-8", "surrogateescape") if len(line) <= MAX_LINE_BYTES else ""


@contextmanager
def _opened(path: Path) -> Generator[OutputWriter, None, None]:
    with path.open("wb", buffering=0) as file, closing(OutputWriter(file.fileno())) as writer:
        yield writer


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
        line = Text(f"{mark} {number:>{len(str(len(rows)))}}  {shown}".rstrip(), _STYLES.get(mark, "dim"))
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
    line = Text(f"{mark} {answer.dialect.value:<{_WIDEST}}  ")
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
        except OSError as error:
            say(err, f"politesse: {printable(str(error))}", "red")
            unread = True
            continue
        for found in lint(body, dialect, origin=origin):
            counts[found.severity] += 1
            if as_json:
                say_json(out, {"file": name} | asdict(found))
                continue
            line = Text(f"{printable(name)}:{found.line}:{found.column}: ")
            line.append(f"{found.severity}:", _SEVERITIES[found.severity])
            line.append(f" {found.message} [{found.code}]")
            say(out, line)
    if not as_json:
        err.print(Text(", ".join(f"{severity}s: {counts[severity]}" for severity in Severity)))
    if unread:
        return 2
    return 1 if counts[Severity.ERROR] else 0


async def read_robots(options: GateOptions, source: str, dialect: Dialect) -> tuple[str, bytes, Origin | None]:
    """Return the name, the robots.txt and the origin of a source; raises OSError with the source and the problem."""
    try:
        if _URL.match(source) is None:
            return source, await read_start(source, MAX_READ_BYTES), None
        origin = Origin.of(source)
        fetch = OneFetch(options, max_body_bytes=MAX_READ_BYTES)
        async with options.gate(fetch, dialect) as gate:
            verdict = await gate.check(f"{origin}/")
    except FileNotFoundError as error:
        problem = f"no such file; for the robots.txt of a site, write https://{source}"
        raise OSError(f"{source}: {problem}") from error
    except (OSError, InvalidURL) as error:
        raise OSError(f"{source}: {getattr(error, 'strerror', None) or error}") from error
    if not _has_file(verdict):
        raise OSError(f"{source}: {reason_of(verdict)}")
    return origin.robots_url, fetch.body, origin


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
        reads = [before, after].count(STANDARD)
        if reads and urls is not None and urls.fileno() == descriptor(sys.stdin):
            reads += 1
        if reads > 1:
            raise ConfigurationError("standard input (-) can be read only once")
        tokens = tokens_of(agents)
    files: list[RobotsTxt] = []
    options = GateOptions(config=config)
    for source in (before, after):
        _, body, _ = await read_robots(options, source, Dialect.RFC9309)
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
