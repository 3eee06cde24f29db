"""``politesse check`` explains a few URLs, pages and hosts; ``politesse filter`` copies the allowed URLs of a list."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from contextlib import ExitStack, aclosing, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Final

import aiohttp
import typer

from politesse import AgentView, Disallowed, InvalidURL, Origin, PoliteSession, Verdict
from politesse._base.text import counted, printable
from politesse.cli.console import (
    BROKEN_PIPE,
    MAX_LINE_BYTES,
    OutputWriter,
    as_lines,
    descriptor,
    errors,
    lines,
    output,
    plain,
    record_of,
    say,
    say_json,
    say_record,
)
from politesse.cli.running import AsJson, GateOptions, file_option, read_body
from politesse.page import PageDirectives, followable_links, is_html, response_usage
from politesse.page.html import MAX_BYTES
from politesse.usage import Purpose, Usage
from politesse.usage.model import NOTHING_STATED, combine
from politesse.verdict import UNDECIDED, Reason, url_to_request

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from rich.console import Console
    from rich.text import Text

    from politesse.status import HostStatus

_ERRORS: Final = 400  # this status and above are errors
_SHOWN: Final = 10  # the text shows at most this many links and sitemaps; --json lists all


async def check(
    urls: Annotated[list[str], typer.Argument(metavar="URL", help="Absolute http or https URLs.")],
    options: GateOptions,
    *,
    as_json: AsJson = False,
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
            _print_host(_host_record(status), out, as_json=as_json)
    if faults or any(verdict.reason in UNDECIDED for verdict in verdicts):
        return 2
    return 0 if all(verdicts) else 1


def _print_host(record: dict[str, object], out: Console, *, as_json: bool) -> None:
    if not as_json:
        say(out, f"host: {printable(str(record.pop('host')))}", "bold")
    say_record(out, record, as_json=as_json)


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
    line = plain(word + colon, "bold green" if verdict.allowed else "bold yellow" if undecided else "bold red")
    say(out, line.append(url, style="bold"))
    say(out, "\n".join(details))


def _host_record(status: HostStatus) -> dict[str, Any]:
    names = "host interval_s bound_by not_before closed_until closed_by waiting in_flight held_by held_s"
    wait = status.fleet_wait
    return record_of(status, names) | {
        "robots": [record_of(one, "origin result status fault age_s fetching next_fetch") for one in status.robots],
        "fleet_wait": None if wait is None else record_of(wait, "not_before bound_by held_by"),
    }


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
        "answers": {} if page.record["fault"] else _answers(directives),
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
            page.directives, page.links = _directives(response, body, gate.identity.tokens)
            page.usages.append(response_usage(response.headers, page.directives, response.url))
    return page


def _directives(
    response: aiohttp.ClientResponse, body: bytes, tokens: tuple[str, ...]
) -> tuple[PageDirectives, list[str]]:
    """Return the directives of a page for the crawler, and its links that may be followed."""
    headers, start, url = response.headers, body[:MAX_BYTES], str(response.url)
    html = start if is_html(start, ", ".join(headers.getall("Content-Type", ()))) else None
    page = PageDirectives.from_response(headers, html, tokens)
    links = [] if html is None else followable_links(html, url, headers=headers, token=tokens)
    return replace(page, truncated=page.truncated or len(body) > MAX_BYTES), links


def _answers(page: PageDirectives) -> dict[str, Any]:
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

    def summary(self) -> Text:
        """Return the tally as one line, and below it the reasons why some URLs could not be decided."""
        elapsed_s = time.monotonic() - self.started_mono
        counts = ", ".join(f"{self.counts[answer]:,} {answer}" for answer in (_ALLOWED, _DISALLOWED, _UNDECIDED))
        judged, ending = counted(self.counts.total(), "URL"), self.ending and f"; {self.ending}"
        reasons = [f"\n  {where}: {reason}" for where, reason in self.reasons.items()]
        more = ["\n  ..."] if len(reasons) == _MAX_REASONS else []
        return plain("".join([f"{judged} in {elapsed_s:.1f} s: {counts}{ending}", *reasons, *more]))


async def filter_urls(
    options: GateOptions,
    rejected: Annotated[
        Path | None,
        file_option("Write the other URLs here, each with a tab and the reason."),
    ] = None,
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
