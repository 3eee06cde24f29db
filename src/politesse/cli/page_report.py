"""``politesse check --page``: what a page, its headers and its site say, fetched as in a crawl."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from politesse import AgentView, Disallowed, InvalidURL, Origin, PoliteSession
from politesse._text import printable
from politesse.page import PageAnswer, PageDirectives, followable_links, is_html, response_usage
from politesse.page.html import MAX_BYTES
from politesse.usage import Purpose, Usage
from politesse.usage.model import NOTHING_STATED, combine
from politesse.verdict import utc

if TYPE_CHECKING:
    from politesse import Bound
    from politesse.sites import DataTxtAnswer, Sitemaps

_ERRORS: Final = 400  # and above
_SHOWN: Final = 10  # links and sitemaps that are printed; --json has them all


@dataclass(slots=True)
class PageReport:
    """What was found out about a page.

    Attributes:
        url: of the page.
        final_url: after redirects; empty if no page was fetched.
        status: of the answer; None if there was none.
        fault: why no page was fetched; empty if one was.
        not_before: the Unix time until which the answer, a 429 or 503, closes the host; None if it does not.
        closed_by: RETRY_AFTER, BACKOFF or RATE_LIMIT; None without a ``not_before``.
        directives: what the page says to the crawler.
        links: the URLs of its links that may be followed.
        usage: what site and page say about the use of the page.
        sitemaps: listed in the site's robots.txt.
        data_txt: the site's data.txt.
        truncated: whether the page was longer than the part that is read.
    """

    url: str
    final_url: str = ""
    status: int | None = None
    fault: str = ""
    not_before: float | None = None
    closed_by: Bound | None = None
    directives: PageDirectives = field(default_factory=PageDirectives)
    links: list[str] = field(default_factory=list)
    usage: Usage = NOTHING_STATED
    sitemaps: Sitemaps | None = None
    data_txt: DataTxtAnswer | None = None
    truncated: bool = False

    @property
    def answers(self) -> list[PageAnswer]:
        """The permissions of the page now."""
        page = self.directives
        return [
            page.may_index(time.time()),
            page.may_follow,
            page.may_archive,
            page.may_snippet,
            page.may_translate,
            page.may_index_images,
        ]


async def read_page(gate: AgentView, url: str, timeout_s: float) -> PageReport:
    """Fetch a page and the files of its site; a fault is part of the report."""
    report = PageReport(url)
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    try:
        async with PoliteSession(gate, timeout=timeout) as web, web.get(url) as response:
            report.final_url, report.status = str(response.url), response.status
            body = await _read_body(response.content)
            headers = list(response.headers.items())
            _read_closing(report, gate)
    except (Disallowed, InvalidURL) as error:
        report.fault = f"a redirect leads to what may not be requested: {error}"
    except aiohttp.TooManyRedirects:
        report.fault = "too many redirects"
    except (aiohttp.ClientError, TimeoutError) as error:
        report.fault = f"{type(error).__name__} {error}".strip()
    else:
        if report.status >= _ERRORS:  # an error page says nothing about this one
            report.fault = f"status {report.status}"
        else:
            report.truncated = len(body) > MAX_BYTES
            _read_directives(report, headers, body[:MAX_BYTES], gate.identity.tokens)
    report.sitemaps = await gate.sitemaps(url)
    if report.not_before is None or report.not_before - time.time() <= timeout_s:
        stated = await gate.usage(url)
        report.data_txt = await gate.datatxt(url)
    else:  # no file of the site may be requested for long
        stated = (await gate.check(url)).usage
    report.usage = combine([NOTHING_STATED if stated is None else stated, report.usage])
    return report


def _read_closing(report: PageReport, gate: AgentView) -> None:
    host = gate.hosts().get(Origin.of(report.final_url).pacing_host)
    if host is not None:
        report.not_before, report.closed_by = host.closed_until, host.closed_by


async def _read_body(content: aiohttp.StreamReader) -> bytes:
    body = bytearray()
    while len(body) <= MAX_BYTES and (octets := await content.readany()):
        body += octets
    return bytes(body)


def _read_directives(report: PageReport, headers: list[tuple[str, str]], body: bytes, tokens: tuple[str, ...]) -> None:
    types = [value for name, value in headers if name.lower() == "content-type"]
    html = body if is_html(body, ", ".join(types)) else None
    report.directives = PageDirectives.from_response(headers, html, tokens)
    report.usage = response_usage(headers, report.directives, report.final_url)
    if html is not None:
        report.links = followable_links(html, report.final_url, headers=headers, token=tokens)


def as_lines(report: PageReport) -> list[str]:
    """Return a report as text, one fact per line, with all remote text made printable."""
    lines = [f"page: {printable(report.fault)}" if report.fault else f"page: status {report.status}"]
    if report.not_before is not None:
        lines.append(f"no request before: {utc(report.not_before)}, by {report.closed_by}")
    if report.final_url not in {"", report.url}:
        lines.append(f"after redirects: {printable(report.final_url)}")
    if not report.fault:
        lines += map(str, report.answers)
        page = report.directives
        texts = {"description": page.description, "keywords": ", ".join(page.keywords)}
        lines += [f"{name}: {printable(text)}" for name, text in texts.items() if text]
        if page.revisit_after_days is not None:
            lines.append(f"revisit after: {page.revisit_after_days} days")
        lines += _listed("links to follow", report.links)
        if report.truncated or page.truncated:
            lines.append("truncated: only a part of the page was read; the rest may say more")
    lines += ["usage preferences:", *(f"  {line}" for line in report.usage.explain().splitlines())]
    if report.sitemaps is not None:
        lines += _listed("sitemaps", list(report.sitemaps.urls))
        lines += [f"  not a URL: line {one.line}, {printable(one.value)}" for one in report.sitemaps.rejected]
    if report.data_txt is not None:
        number = len(report.data_txt.records)
        lines.append(f"data.txt: {report.data_txt.outcome}, {number} record{'' if number == 1 else 's'}")
    return lines


def _listed(what: str, urls: list[str]) -> list[str]:
    more = [f"  and {len(urls) - _SHOWN} more"] if len(urls) > _SHOWN else []
    return [f"{what}: {len(urls)}", *(f"  {printable(url)}" for url in urls[:_SHOWN]), *more]


def page_record(report: PageReport) -> dict[str, Any]:
    """Return a report as ``--json`` prints it.

    ::

        status      of the answer; or null if there was none
        final_url   after redirects; "" if no page was fetched
        fault       why no page was fetched, or ""
        not_before  the answer closes the host until this time; or null
        closed_by   what sets that time: a value of politesse.Bound, as in "retry-after"; or null
        answers     {index, follow, archive, show_a_snippet, translate, index_images}: {allowed, against: [the
                    statements that forbid it]}
        statements  [every directive for this crawler, with its header or META]
        links       [the URLs of the links that may be followed]
        usage       {search, ai-train, ai-input, tdm}: {preference, by: [the statements that decide]}
        licenses    [url]
        sitemaps    [url]
        data_txt    {outcome, records: [[[field, value], ...], ...]}
        truncated   whether the page was longer than the part that is read
    """
    usage, data_txt = report.usage, report.data_txt
    return {
        "status": report.status,
        "final_url": report.final_url,
        "fault": report.fault,
        "not_before": None if report.not_before is None else utc(report.not_before),
        "closed_by": report.closed_by,
        "answers": {
            answer.to.replace(" ", "_"): {"allowed": answer.allowed, "against": [str(one) for one in answer.against]}
            for answer in ([] if report.fault else report.answers)
        },
        "statements": list(dict.fromkeys(map(str, report.directives.statements))),
        "links": report.links,
        "usage": {
            purpose: {"preference": usage.preference(purpose), "by": [str(one) for one in usage.deciding(purpose)]}
            for purpose in Purpose
        },
        "licenses": [license_.url for license_ in usage.licenses],
        "sitemaps": [] if report.sitemaps is None else list(report.sitemaps.urls),
        "data_txt": None
        if data_txt is None
        else {
            "outcome": data_txt.outcome,
            "records": [[list(pair) for pair in one.fields] for one in data_txt.records],
        },
        "truncated": report.truncated or report.directives.truncated,
    }
