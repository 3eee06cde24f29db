"""``politesse audit``: judges the requests of crawlers by access logs and request logs.

The HTML report is a single file that loads no other file. All remote text is escaped.
"""

from __future__ import annotations

import os
import signal
import stat
from dataclasses import replace
from html import escape
from importlib.resources import files
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from string import Template
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.progress import Progress

from politesse._base.text import counted, printable, shortened
from politesse.audit import Audit, AuditOptions, HostAudit, LogError
from politesse.cli.console import errors, output, record_of, say, say_json
from politesse.cli.running import AsJson, checked_arguments, file_option
from politesse.errors import ConfigurationError
from politesse.queue._signals import handled
from politesse.verdict import utc

if TYPE_CHECKING:
    from io import FileIO
    from typing import BinaryIO

    from rich.console import Console


_MOST_HOSTS: Final = 20
_INTERRUPTED: Final = 130
_ROBOTS = file_option("The robots.txt of --site during the whole log.")
_LEDGER = typer.Option(metavar="DB", dir_okay=False, help="A ledger with the robots.txt of each time.")
_FORMATS: Final = "common, combined, json, scrapy, warc or a format of nginx; by default detected from the first lines."


async def audit(  # noqa: PLR0913 - the options of the command
    logs: Annotated[
        list[str], typer.Argument(metavar="LOG...", help="Files, also .gz and .zst; - for standard input.")
    ],
    agent: Annotated[list[str], typer.Option(metavar="TOKEN", help="The product token of a crawler; may be repeated.")],
    robots: Annotated[Path | None, _ROBOTS] = None,
    ledger: Annotated[Path | None, _LEDGER] = None,
    site: Annotated[str | None, typer.Option(metavar="URL", help="The origin, if the log names no host.")] = None,
    format: Annotated[str | None, typer.Option(metavar="FORMAT", help=_FORMATS)] = None,  # noqa: A002 - the option
    zone: Annotated[str, typer.Option(metavar="NAME", help="The time zone of times without a zone.")] = "UTC",
    html: Annotated[Path | None, file_option("Write the report as a page.")] = None,
    *,
    min_delay: Annotated[float, typer.Option(metavar="SECONDS", help="The least pause at hosts without a pace.")] = 0.0,
    profile: Annotated[str | None, typer.Option(metavar="cbcp", help="Judge crawler best practices, too.")] = None,
    as_json: AsJson = False,
) -> int:
    """Find the requests of a crawler that broke the rules, in access logs or in the crawler's own logs.

    Findings: pages that robots.txt forbids, pauses shorter than the pace, requests while a host is closed by 429, 503
    or Retry-After, robots.txt requested too often or used for too long. The hosts with the most findings come first.

    Exit code: 0 without findings; 1 with findings; 2 if a log cannot be read to its end, or has no request of the
    crawler; 130 after Ctrl-C.

    With --json, an object for each finding, in the order of the requests: agent, host, kind, url, started, detail,
    missing_s, place. Then for each crawler and host: agent, host, found, requests, robots_requests, kinds. The last
    object has counts and notes.
    """
    with checked_arguments():
        if robots is not None and site is None:
            raise ConfigurationError(f"--robots {robots} is the file of a site: give its origin with --site")
        files = {site: robots.read_bytes()} if robots is not None and site is not None else {}
        options = AuditOptions(agents=tuple(agent), site=site, robots=files, ledger=ledger, format=format)
        report = Audit(replace(options, zone=zone, min_delay_s=min_delay, profile=profile))
        code, problem = _print_findings(report, logs, as_json=as_json)
    _print_sums(report, output(), as_json=as_json)
    if html is not None:
        html.write_text(report_page(report, problem), "utf-8")
    if problem:
        say(errors(), f"politesse: {printable(problem)}", "red")
    return code


def _print_findings(report: Audit, logs: list[str], *, as_json: bool) -> tuple[int, str]:
    """Judge the logs; return the exit code, and the reason if a log was not read to its end."""
    code, out, err = 0, output(), errors()
    progress = Progress(console=err, transient=True, disable=not err.is_terminal)
    with progress as bar, handled(signal.default_int_handler):  # after Ctrl-C, the findings so far are printed

        def watched(file: FileIO) -> FileIO | BinaryIO:
            facts = os.fstat(file.fileno())
            return bar.wrap_file(file, facts.st_size) if stat.S_ISREG(facts.st_mode) else file

        try:
            for finding in report.findings(logs, watched):
                code = 1
                if as_json:
                    say_json(out, record_of(finding, "agent host kind url started_wall detail missing_s place"))
        except LogError as error:
            return 2, str(error)
        except KeyboardInterrupt:
            return _INTERRUPTED, "interrupted: these are the findings so far"
    return code, ""


def _print_sums(report: Audit, out: Console, *, as_json: bool) -> None:
    hosts = report.hosts()
    if as_json:
        for host in hosts:
            say_json(out, record_of(host, "agent host found requests robots_requests kinds"))
        say_json(out, {"counts": report.counts(), "notes": report.notes()})
        return
    bad = [host for host in hosts if host.found]
    for host in bad[:_MOST_HOSTS]:
        say(out, str(host), "bold")
        for kind, count in host.kinds.most_common():
            say(out, f"  {kind}: {count:,}", "red")
            for one in host.worst(kind):
                detail = one.detail and f" ({one.detail})"
                say(out, printable(f"    {utc(one.started_wall)} {shortened(one.url)}{detail}, {one.place}"))
    if len(bad) > _MOST_HOSTS:
        say(out, f"and {counted(len(bad) - _MOST_HOSTS, 'more host')}; --json lists all findings")
    say(out, str(report), "bold")
    for note in report.notes():
        say(out, printable(note))


_MAX_HOSTS: Final = 200
_WIDTH, _HEIGHT, _MARK = 600, 48, 10


def report_page(audit: Audit, problem: str = "") -> str:
    """Return the page: the hosts with the most findings first, each with a timeline and its worst findings.

    Args:
        audit: an audit that has read its logs.
        problem: why the logs were not read to their ends, if they were not.
    """
    hosts = audit.hosts()
    bad = [host for host in hosts if host.found]
    more = f"<p>and {counted(len(bad) - _MAX_HOSTS, 'more host')} with findings</p>" if len(bad) > _MAX_HOSTS else ""
    page = Template(files("politesse.cli").joinpath("audit_report.html").read_text(encoding="utf-8"))
    return page.substitute(
        agents=_text(", ".join(dict.fromkeys(host.agent for host in hosts))),
        verdict="bad" if bad or problem else "good",
        summary=str(audit),
        notes="".join(f"<li>{_text(note)}</li>" for note in [*audit.notes(), *filter(None, [problem])]),
        hosts="\n".join(map(_section, bad[:_MAX_HOSTS])) + more,
    )


def _text(text: str) -> str:
    return escape(printable(text))


def _section(host: HostAudit) -> str:
    kinds = "\n".join(_kind(host, kind, count) for kind, count in host.kinds.most_common())
    return f"<section><h2>{_text(host.host)}</h2>\n<p>{_text(str(host))}</p>\n{_timeline(host)}\n{kinds}</section>"


def _kind(host: HostAudit, kind: str, count: int) -> str:
    rows = "".join(
        f"<li><time>{utc(one.started_wall)}</time> <code>{_text(shortened(one.url, 300))}</code> "
        f"{_text(one.detail)} <small>{_text(one.place)}</small></li>"
        for one in host.worst(kind)
    )
    return f"<details open><summary>{_text(kind)}: {count:,}</summary><ul>{rows}</ul></details>"


def _timeline(host: HostAudit) -> str:
    """Return a chart with a bar for the requests in each interval, and a mark above intervals with findings."""
    first, last = min(host.bars), max(host.bars) + 1
    width, most = _WIDTH / (last - first), max(requests for requests, _ in host.bars.values())
    shapes = ""
    for bar, (requests, found) in host.bars.items():
        box = f'x="{(bar - first) * width:.2f}" width="{max(width, 1):.2f}"'
        height = requests / max(most, 1) * (_HEIGHT - _MARK - 2)
        shapes += f'<rect {box} y="{_HEIGHT - height:.1f}" height="{height:.1f}"/>'
        shapes += f'<rect class="found" {box} y="0" height="{_MARK}"/>' if found else ""
    rate = f"at most {counted(most, 'request')} in {host.width_s:g} s"
    name = _text(f"Requests to {host.host} over time, {rate}, with {counted(host.found, 'finding')}")
    box = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none"'
    picture = f'<svg role="img" aria-label="{name}" {box}>{shapes}</svg>'
    times = "".join(f"<time>{utc(bar * host.width_s)}</time>" for bar in (first, last))
    return f"<figure>{picture}<figcaption>{times}</figcaption></figure>"
