"""What crawlers request when the server of robots.txt misbehaves: politesse, Scrapy and Crawlee.

Each crawler meets each fault of ``politesse.testing`` in a process of its own, with a server of its own. Its task is a
page and a private page, which the file disallows if it can be read. The result is the list of the server's requests;
if the fault lets no request through to the server, the requests that the crawler tried to make.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from enum import StrEnum
from importlib.util import find_spec
from textwrap import fill
from typing import TYPE_CHECKING, Final

from benchmarks.fault_crawls.leeway import BY_THE_FILE, EVERYTHING, NOTHING, right
from benchmarks.fault_crawls.peers import PEERS
from benchmarks.fault_crawls.run import outcome
from benchmarks.fault_crawls.task import MEMORY_BYTES, PAGE, PRIVATE
from benchmarks.table import table
from benchmarks.timing import counted
from politesse.testing import FAULTS, Fault
from politesse.testing.hostile import FILE, response
from politesse.verdict import AccessResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.fault_crawls.leeway import Opened
    from benchmarks.fault_crawls.peers import Peer
    from benchmarks.fault_crawls.run import Outcome
    from benchmarks.settings import Settings

    Results = Mapping[str, Mapping[str, Outcome | None]]
    """By fault, by package; None if the crawler cannot meet the fault."""

TIMEOUT_S: Final = 3.0
LIMIT_S: Final = 30.0
"""More than three attempts at robots.txt and three at a page may take."""

SECRET: Final = "/secret"  # noqa: S105 - the target of redirects that must not be followed
_AT_ONCE: Final = 2
_LONG_S: Final = 2 * TIMEOUT_S
_LARGE_MIB: Final = 50.0
_NO_FAULT: Final = Fault(name="no-fault", robots=response(200, FILE), result=AccessResult.SUCCESSFUL)

_LEAVE_THE_MACHINE: Final = frozenset(
    f"redirect-to-{address}-from-public"
    for address in ("translated-loopback", "private", "metadata", "link-local-6", "multicast")
)
"""A crawler that follows one of these sends a request to a foreign server."""

_OPENED: Final[Mapping[Opened, str]] = {
    NOTHING: "denied",
    BY_THE_FILE: "allowed",
    EVERYTHING: "allowed, private too",
    (False, True): "private only",
}


class Judgement(StrEnum):
    """The judgement of a crawler's requests by the standards; the value marks it in the table."""

    RIGHT = " "
    OPENS = "!"
    CLOSES = "<"
    ENDS_BADLY = "?"


def run(settings: Settings) -> Iterator[str]:
    """Yield the report; of every tenth fault, if it is to be quick."""
    peers = [peer for peer in PEERS if peer.installed]
    every = shown()
    faults = {name: every[name] for name in list(every)[:: settings.size(1, 10)]}
    yield (
        f"faults: requests to servers at fault; {TIMEOUT_S:g} s for a request if the crawler has a timeout, "
        f"{LIMIT_S:g} s and {MEMORY_BYTES / 1024**3:g} GiB for a crawl"
    )
    yield "\n".join(
        [
            *(f"{peer.title}: {peer.means}" for peer in peers),
            *(f"{peer.package} is not installed, and has no column" for peer in PEERS if not peer.installed),
            fill(f"not shown: {', '.join(sorted(FAULTS.keys() - every.keys()))}", 120, break_on_hyphens=False),
        ]
    )
    results = asyncio.run(crawl(peers, [_NO_FAULT, *faults.values()]))
    _same_control(results[_NO_FAULT.name])
    yield _table(peers, faults, results)
    yield _LEGEND
    yield from _notes(peers, faults)
    yield _summary(peers, faults, results)


def shown() -> dict[str, Fault]:
    """Return the faults that can be shown here."""
    certified = find_spec("trustme") is not None
    return {
        name: fault
        for name, fault in FAULTS.items()
        if name not in _LEAVE_THE_MACHINE and (certified or fault.certificate is None)
    }


async def crawl(
    peers: Sequence[Peer], faults: Sequence[Fault], timeout_s: float = TIMEOUT_S, limit_s: float = LIMIT_S
) -> dict[str, dict[str, Outcome | None]]:
    """Let every crawler meet every fault, a few at once."""
    at_once = asyncio.Semaphore(_AT_ONCE)
    results: dict[str, dict[str, Outcome | None]] = {fault.name: {} for fault in faults}

    async def meet(peer: Peer, fault: Fault) -> None:
        async with at_once:
            results[fault.name][peer.package] = await outcome(peer.module, fault, timeout_s, limit_s)

    tasks = []
    async with asyncio.TaskGroup() as group:
        for fault in faults:
            for peer in peers:
                if peer.cannot(fault):
                    results[fault.name][peer.package] = None
                else:
                    tasks.append(group.create_task(meet(peer, fault)))
        for task in counted("crawl", tasks):
            await task
    return results


def judge(fault: Fault, done: Outcome) -> Judgement:
    """Return the judgement of a crawler's requests by the standards."""
    if done.opened in right(fault) and done.ended:
        return Judgement.RIGHT
    if done.opened not in right(fault) and (
        (done.page and not fault.allows_page) or (done.private and not fault.allows_private)
    ):
        return Judgement.OPENS
    return Judgement.CLOSES if done.ended else Judgement.ENDS_BADLY


def _same_control(done: Mapping[str, Outcome | None]) -> None:
    """Raise RuntimeError unless all crawlers obey a file without any fault: a broken crawl proves nothing."""
    for package, one in done.items():
        if one is None or one.opened != BY_THE_FILE or not one.ended:
            raise RuntimeError(f"{package} was to request {PAGE} and not {PRIVATE}, but: {one}")


def _table(peers: Sequence[Peer], faults: Mapping[str, Fault], results: Results) -> str:
    rows = [[name, _expected(fault), *_cells(peers, fault, results[name])] for name, fault in faults.items()]
    return table("faults: requests", ("", "expected", *(peer.title for peer in peers)), rows)


def _expected(fault: Fault) -> str:
    mark = " *" if len(right(fault)) > 1 else "  "
    return _OPENED[fault.allows_page, fault.allows_private] + mark


def _cells(peers: Sequence[Peer], fault: Fault, done: Mapping[str, Outcome | None]) -> Iterator[str]:
    for peer in peers:
        one = done[peer.package]
        yield "-" if one is None else f"{_cell(one)} {judge(fault, one)}"


def _cell(done: Outcome) -> str:
    words = ["deferred" if done.deferred and done.opened == NOTHING else _OPENED[done.opened]]
    if (done.page and PAGE not in done.seen) or (done.private and PRIVATE not in done.seen):
        words.append("tried")
    if SECRET in done.seen:
        words.append(SECRET)
    if done.robots_requests > 1:
        words.append(f"{done.robots_requests}x")
    if done.grown_mib >= _LARGE_MIB:
        words.append(f"{done.grown_mib:.0f} MiB")
    if done.elapsed_s is None:
        words.append("dies" if done.died else "hangs")
    elif done.elapsed_s >= _LONG_S:
        words.append(f"{done.elapsed_s:.0f} s")
    return ", ".join(words)


_JUDGED: Final = ("permitted", "opened\nwrongly", "closed\nwrongly", "come to\nno end")  # as Judgement has them
_LEGEND: Final = f"""\
expected: of a page, and of a private page; * the standards permit other answers, too, and none of them is marked
! opens a page that the standards close, < closes a page that they open, ? does not end
tried: it did not get through; {SECRET}: followed a redirect to there; 3x: so often it asked for robots.txt
s, MiB of memory: where there are many; hangs: until it is killed, dies: by itself; -: cannot be shown to it"""


def _notes(peers: Sequence[Peer], faults: Mapping[str, Fault]) -> Iterator[str]:
    for peer in peers:
        lines = []
        for prefixes, text in peer.notes.items():
            if any(name.startswith(prefixes) for name in faults):
                where = ", ".join(f"{prefix}..." for prefix in prefixes)
                lines.append(
                    fill(f"{where}: {text}", 120, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
                )
        if lines:
            yield "\n".join([f"{peer.title}:", *lines])


def _summary(peers: Sequence[Peer], faults: Mapping[str, Fault], results: Results) -> str:
    header = ("", "faults", "as\nexpected", *_JUDGED, f"led to\n{SECRET}")
    rows = []
    for peer in peers:
        done = [(fault, one) for name, fault in faults.items() if (one := results[name][peer.package]) is not None]
        judged = Counter(judge(fault, one) for fault, one in done)
        exact = sum(one.ended and one.opened == (fault.allows_page, fault.allows_private) for fault, one in done)
        secrets = sum(SECRET in one.seen for _, one in done)
        figures = [len(done), exact, *(judged[one] for one in Judgement), secrets]
        rows.append([peer.title, *map(str, figures)])
    return table("faults: in all", header, rows)
