"""``politesse check``: explains a few URLs, fetches their pages as in a crawl, and reports their hosts."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from politesse import AgentView, Disallowed, InvalidURL, Origin, PoliteSession, Verdict
from politesse._base.text import printable
from politesse.cli.console import as_lines, plain, record_of, say, say_json, say_record
from politesse.cli.running import GateOptions, read_body
from politesse.page import PageAnswer, PageDirectives, followable_links, is_html, response_usage
from politesse.page.html import MAX_BYTES
from politesse.usage import Purpose, Usage
from politesse.usage.model import NOTHING_STATED, combine
from politesse.verdict import UNDECIDED, Reason, url_to_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from politesse.status import HostStatus

_ERRORS: Final = 400  # this status and above are errors
_SHOWN: Final = 10  # the text shows at most this many links and sitemaps; --json lists all


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
    faults = 0
    async with options.gate() as gate:
        with err.status("fetching robots.txt") if err.is_terminal else nullcontext():
            verdicts = await gate.check_batch(urls)
        pages = [asyncio.ensure_future(_page(gate, verdict, options, with_page=with_page)) for verdict in verdicts]
        try:
            for verdict, page in zip(verdicts, pages, strict=True):
                if not as_json:
                    _explain(verdict, out)  # the verdict comes first, because the page may take a long time
                with err.status("fetching pages") if err.is_terminal and not page.done() else nullcontext():
                    record = await page
                faults += record is not None and bool(record["fault"])
                if as_json:
                    say_json(out, verdict_record(verdict) | ({"page": record} if with_page else {}))
                elif record is not None:
                    shown = {name: record[name][:_SHOWN] for name in ("links", "sitemaps")}
                    say(out, "\n".join(as_lines({"page": record | shown})))
        finally:
            for page in pages:
                page.cancel()
            await asyncio.gather(*pages, return_exceptions=True)
        for verdict in verdicts if with_hosts else ():
            if verdict.reason is not Reason.INVALID_URL:  # the store may keep a closure of a host that was not asked
                await gate.state.pacer.closed_until(Origin.of(verdict.url).pacing_host)
        for status in gate.hosts().values() if with_hosts else ():
            _print_host(_host_record(status), out, as_json=as_json)
    if faults or any(verdict.reason in UNDECIDED for verdict in verdicts):
        return 2
    return 0 if all(verdicts) else 1


def _print_host(record: dict[str, object], out: Console, *, as_json: bool) -> None:
    if not as_json:
        say(out, f"host: {printable(str(record.pop('host')))}", "bold")
    say_record(out, record, as_json=as_json)


async def _page(gate: AgentView, verdict: Verdict, options: GateOptions, *, with_page: bool) -> dict[str, Any] | None:
    return await page_record(gate, url_to_request(verdict), options.timeout_s) if with_page and verdict else None


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


async def page_record(gate: AgentView, url: str, timeout_s: float) -> dict[str, Any]:
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
    page = await _fetched(gate, url, timeout_s)
    sitemaps, data_txt = await gate.sitemaps(url), None
    if page.closed_until is None or page.closed_until - time.time() <= timeout_s:
        stated = await gate.usage(url)
        data_txt = await gate.datatxt(url)
    else:  # the host is closed for a long time, so no file of the site may be requested
        stated = (await gate.check(url)).usage
    usage = combine([NOTHING_STATED if stated is None else stated, *page.usages])
    directives = page.directives
    return page.record | {
        "answers": {} if page.record["fault"] else dict(map(_answer, _answers(directives))),
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


async def _fetched(gate: AgentView, url: str, timeout_s: float) -> _Page:
    """Fetch a page. If the fetch fails, the member ``fault`` of the page's record says why."""
    record: dict[str, Any] = {"status": None, "final_url": "", "fault": "", "not_before": None, "closed_by": None}
    page = _Page(record)
    try:
        async with PoliteSession(gate, timeout=aiohttp.ClientTimeout(total=timeout_s)) as web, web.get(url) as response:
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


def _answers(page: PageDirectives) -> list[PageAnswer]:
    """Return the permissions of a page at the present time."""
    return [
        page.may_index(time.time()),
        page.may_follow,
        page.may_archive,
        page.may_snippet,
        page.may_translate,
        page.may_index_images,
    ]


def _answer(answer: PageAnswer) -> tuple[str, dict[str, Any]]:
    return answer.to.replace(" ", "_"), {"allowed": answer.allowed, "against": [str(one) for one in answer.against]}
