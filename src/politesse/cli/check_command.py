"""``politesse check``: a few URLs, each explained."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from rich.table import Table

from politesse.cli.console import plain
from politesse.cli.host_report import host_lines, host_record
from politesse.cli.page_report import PageReport, as_lines, page_record, read_page
from politesse.verdict import UNDECIDED, utc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from politesse import AgentView, Verdict
    from politesse.cli.gate_options import GateOptions
    from politesse.verdict import Source


async def print_verdicts(
    options: GateOptions,
    urls: Sequence[str],
    out: Console,
    err: Console,
    *,
    as_json: bool,
    with_page: bool,
    with_hosts: bool,
) -> int:
    """Print the verdicts on ``urls`` in their order, then their hosts, and return the exit code."""
    async with options.gate() as gate:
        with err.status("fetching robots.txt") if err.is_terminal else nullcontext():
            verdicts = await gate.check_batch(urls)
        pages = [asyncio.ensure_future(_page(gate, verdict, options, with_page=with_page)) for verdict in verdicts]
        faults = 0
        for verdict, page in zip(verdicts, pages, strict=True):
            if not as_json:
                _explain(verdict, out)  # before its page, which may take long
            with err.status("fetching pages") if err.is_terminal and not page.done() else nullcontext():
                report = await page
            if as_json:
                record = verdict_record(verdict)
                if with_page:
                    record["page"] = None if report is None else page_record(report)
                out.print(plain(json.dumps(record)), soft_wrap=True)
            elif report is not None:
                out.print(plain("\n".join(f"  {line}" for line in as_lines(report))), soft_wrap=True)
            faults += report is not None and bool(report.fault)
        if with_hosts:
            _print_hosts(gate, out, as_json=as_json)
    if faults or any(verdict.reason in UNDECIDED for verdict in verdicts):
        return 2
    return 0 if all(verdicts) else 1


async def _page(gate: AgentView, verdict: Verdict, options: GateOptions, *, with_page: bool) -> PageReport | None:
    return await read_page(gate, verdict.url, options.timeout_s) if with_page and verdict else None


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as ``--json`` prints it.

    ::

        url         as it was given
        allowed     true or false
        reason      why: a value of politesse.Reason, as in "disallow-rule"
        agent       the product token that the URL was judged for
        rule        {line, field, value}: the line of robots.txt that decided; or null
        source      {robots_url, result, status, final_url, fetched, fresh_until, fault}: what robots.txt answered;
                    status is null if there was no answer; or null if it was not fetched
        age_s       how old that answer is, in seconds
        not_before  no request before this time; or null
        note        more about the reason, or ""
        page        with --page: see ``politesse.cli.page_report.page_record``; or null if the page was not requested

    Times are ISO 8601 in UTC. Text of a server is escaped as in JSON: the output is ASCII.
    """
    rule = verdict.rule
    return {
        "url": verdict.url,
        "allowed": verdict.allowed,
        "reason": verdict.reason.value,
        "agent": verdict.agent,
        "rule": None if rule is None else {"line": rule.line, "field": rule.field, "value": rule.value},
        "source": None if verdict.source is None else _source_record(verdict.source),
        "age_s": round(verdict.age_s, 3),
        "not_before": None if verdict.not_before is None else utc(verdict.not_before),
        "note": verdict.note,
    }


def _source_record(source: Source) -> dict[str, Any]:
    return {
        "robots_url": source.robots_url,
        "result": source.result.value,
        "status": source.status,
        "final_url": source.final_url,
        "fetched": utc(source.fetched_wall),
        "fresh_until": utc(source.fresh_until_wall),
        "fault": source.fault,
    }


def _explain(verdict: Verdict, out: Console) -> None:
    answer, *details = verdict.explain().splitlines()  # printable already
    word, colon, url = answer.partition(":")
    undecided = verdict.reason in UNDECIDED
    line = plain(word + colon, "bold green" if verdict.allowed else "bold yellow" if undecided else "bold red")
    line.append(url, style="bold")
    out.print(line, soft_wrap=True)
    _print_details(details, out)


def _print_hosts(gate: AgentView, out: Console, *, as_json: bool) -> None:
    for status in gate.hosts().values():
        if as_json:
            out.print(plain(json.dumps(host_record(status))), soft_wrap=True)
        else:
            name, *details = host_lines(status)
            out.print(plain(name, "bold"), soft_wrap=True)
            _print_details(details, out)


def _print_details(details: Sequence[str], out: Console) -> None:
    if not out.is_terminal:  # not wrapped, for grep and diff
        out.print(plain("\n".join(details)), soft_wrap=True)
        return
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for detail in details:
        label, colon, value = detail.strip().partition(":")
        grid.add_row(plain(f"  {label}{colon}"), plain(value.strip()))
    out.print(grid)
