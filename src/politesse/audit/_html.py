"""Makes the HTML report of an audit, a single file that loads no other file. All remote text is escaped."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Final

from politesse._base.text import counted, printable, shortened
from politesse.verdict import utc

if TYPE_CHECKING:
    from politesse.audit._audit import Audit, HostAudit

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
    page = Template(files("politesse.audit").joinpath("report.html").read_text(encoding="utf-8"))
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
