"""The audit: judges the requests in logs, and sums up the findings by crawler and host, in bounded memory.

The expectations of a site come from the copies of a site's robots.txt, as ``politesse.robots`` reads them. The
practices come from draft-illyes-webbotauth-cbcp.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from operator import add
from typing import TYPE_CHECKING, Any, Final

from politesse._base.text import counted, printable, shortened
from politesse._judge import Promises, TraceJudge
from politesse.audit._logs import LATE_S, AuditOptions, LogError, LogReader, Note
from politesse.errors import InvalidURL
from politesse.ledger import LedgerReader
from politesse.origin import Origin
from politesse.robots import RobotsTxt
from politesse.robots.crawl_directives import next_open
from politesse.verdict import CLOSED, utc

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence
    from io import FileIO

    from politesse.audit._logs import Request
    from politesse.robots import RuleSet
    from politesse.robots.crawl_directives import Timetable

    File = tuple[float, RobotsTxt | None]

ALWAYS: Final = float("-inf")
_UNREACHABLE: Final = RobotsTxt.parse(b"User-agent: *\nDisallow: /").rules_for("*")
_ERRORS_IN_A_ROW: Final = 3
_MAX_SHARE: Final = 0.1
_ENOUGH: Final = 20  # at hosts with fewer requests, shares of the requests are not judged
_MAX_PAGES: Final = 10_000  # how many pages of a host are remembered, to notice repetitions
_READS: Final = frozenset({"GET", "HEAD"})


def files_of(options: AuditOptions) -> dict[Origin, list[File]]:
    """Return the copies of each robots.txt with their times, in order. A copy is None if the site was unreachable.

    Raises:
        InvalidURL: a key of ``options.robots`` is not an origin.
        StoreError: the ledger cannot be read.
    """
    files: dict[Origin, list[File]] = {}
    if options.ledger is not None:
        with LedgerReader(options.ledger) as ledger:
            for one in ledger.snapshots():
                robots = None if one.result in CLOSED else RobotsTxt.parse(one.body, origin=one.origin)
                files.setdefault(one.origin, []).append((one.recorded_wall, robots))
    return files | {Origin.of(url): [(ALWAYS, RobotsTxt.parse(body))] for url, body in options.robots.items()}


class Copies:
    """The expectations of a site, for the judge of traces.

    A time in the log is not exact, so several copies may have been in force. A request is against the rules only if all
    of these copies forbid it.

    Args:
        files: pairs in order: the time from which a copy is in force, and the copy. The copy is None if the site was
            unreachable.
        agent: the product token of the crawler.
        slack_s: the possible error of the times of the requests, in seconds.
    """

    def __init__(self, files: Sequence[File], agent: str, slack_s: float) -> None:
        self._times = [since for since, _ in files]
        self._rules = [_UNREACHABLE if robots is None else robots.rules_for(agent) for _, robots in files]
        self._slack_s = slack_s

    def _in_force(self, wall: float) -> Sequence[RuleSet]:
        """Return the copies that may have been in force; empty at a time before the first copy."""
        first = bisect_right(self._times, wall - self._slack_s) - 1
        return self._rules[first : bisect_right(self._times, wall + self._slack_s)] if first >= 0 else ()

    def against(self, target: str, wall: float) -> str | None:
        """See ``Expectation``."""
        found = [_against(rules, target) for rules in self._in_force(wall)]
        return found[-1] if found and None not in found else None

    def interval(self, wall: float) -> tuple[float, str]:
        """See ``Expectation``."""
        return min([_interval(rules, wall) for rules in self._in_force(wall)], default=(0.0, ""))

    def open_at(self, wall: float) -> bool:
        """See ``Expectation``."""
        copies = self._in_force(wall)
        return not copies or any([_is_open(one.timetable, wall) for one in copies])  # noqa: C419 - faster


def _against(rules: RuleSet, target: str) -> str | None:
    if rules is _UNREACHABLE:
        return "robots.txt was unreachable"  # RFC 9309 2.3.1.4
    with suppress(InvalidURL):  # clients send such a target in different ways
        match = rules.match(target)
        if not match.allowed:
            return match.reason.value if match.rule is None else f"line {match.rule.line}: {match.rule}"
    return None


def _is_open(timetable: Timetable, wall: float) -> bool:
    return not timetable.is_timed or next_open(timetable.open_minutes, wall) <= wall


def _interval(rules: RuleSet, wall: float) -> tuple[float, str]:
    delay_s, rate_s = rules.crawl_delay or 0.0, rules.timetable.interval_s(wall)
    return (rate_s, "request-rate") if rate_s > delay_s else (delay_s, "crawl-delay")


class Practice(StrEnum):
    """The practices that a crawler may lack."""

    NO_URL = "User-Agent without the URL of a page about the crawler"
    NO_BACK_OFF = "page requested too soon after three server errors in a row"
    METHODS = "methods other than GET and HEAD are frequent"
    NO_CACHE = "pages are often fetched again, and never with a condition"


class HostPractices:
    """Judges the practices of a crawler at a host.

    Args:
        back_off_s: the least time until the next page after three server errors in a row.
    """

    def __init__(self, back_off_s: float) -> None:
        self._back_off_s = back_off_s
        self._errors = 0
        self._ended = 0.0
        self._conditional = self._unnamed = False
        self._pages: set[int] = set()
        self._shares: dict[Practice, tuple[int, Request]] = {}

    def judge(self, request: Request) -> Iterator[tuple[Practice, str, float]]:
        """Yield the practice, the detail and the missing seconds of each fault of a request."""
        exchange, agent = request.exchange, request.exchange.agent
        if agent is not None and "://" not in agent and not self._unnamed:
            self._unnamed = True  # reported once for a host
            yield Practice.NO_URL, f"{agent!r:.100}", 0.0
        gap_s = exchange.started - self._ended
        if self._errors >= _ERRORS_IN_A_ROW and gap_s < self._back_off_s:
            yield Practice.NO_BACK_OFF, f"{gap_s:.3f} s after, not {self._back_off_s:g}", self._back_off_s - gap_s
        self._errors = self._errors + 1 if exchange.status // 100 == 5 else 0  # noqa: PLR2004 - RFC 9110 15.6
        self._ended = exchange.ended
        self._conditional = self._conditional or exchange.status == 304  # noqa: PLR2004 - Not Modified
        if request.method not in _READS:
            self._count(Practice.METHODS, request)
        elif exchange.status == 200:  # noqa: PLR2004 - OK
            page = hash(exchange.url)
            if page in self._pages:
                self._count(Practice.NO_CACHE, request)
            elif len(self._pages) < _MAX_PAGES:
                self._pages.add(page)

    def conclude(self, requests: int) -> Iterator[tuple[Practice, Request, str]]:
        """Yield the practice, an example and the detail of each fault that only all requests together show."""
        for practice, (count, example) in self._shares.items():
            excused = practice is Practice.NO_CACHE and self._conditional
            if requests >= _ENOUGH and count > _MAX_SHARE * requests and not excused:
                yield practice, example, f"{count:,} of {requests:,} requests"

    def _count(self, practice: Practice, request: Request) -> None:
        count, example = self._shares.get(practice, (0, request))
        self._shares[practice] = count + 1, example


_MAX_HOSTS: Final = 100_000
OTHER_HOSTS: Final = "(other hosts)"
_MAX_BARS: Final = 120
_EXAMPLES: Final = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """A request that a crawler should not have made, or a practice that the crawler lacks.

    >>> print(Finding("ExampleBot", "a.test", "forbidden page requested", "https://a.test/", 0.0, "Disallow: /"))
    1970-01-01T00:00:00Z forbidden page requested: https://a.test/ (Disallow: /)

    Attributes:
        agent: the product token.
        host: the host.
        kind: the kind of violation, in words.
        url: the URL of the request.
        started_wall: when the request started, as Unix time.
        detail: the rule, or the gap and the pace.
        missing_s: by how many seconds the request came too early; 0 for other kinds.
        place: the log and the number of the line.
    """

    agent: str
    host: str
    kind: str
    url: str
    started_wall: float
    detail: str = ""
    missing_s: float = 0.0
    place: str = ""

    def __str__(self) -> str:
        detail = self.detail and f" ({self.detail})"
        return printable(f"{utc(self.started_wall)} {self.kind}: {self.url:.200}{detail}")


@dataclass(slots=True)
class HostAudit:
    """The findings about one crawler at one host.

    >>> HostAudit("ExampleBot", "a.test").found
    0

    Attributes:
        agent: the product token.
        host: the host.
        requests: the number of requests.
        robots_requests: how many of these were for robots.txt.
        kinds: the number of findings by kind.
        bars: maps each interval of ``width_s`` seconds to the numbers of its requests and findings. The key is the
            start of the interval divided by ``width_s``.
        width_s: the length of these intervals, in seconds; it doubles when there would be more than 120 intervals.
    """

    agent: str
    host: str
    requests: int = 0
    robots_requests: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    bars: dict[int, list[int]] = field(default_factory=dict)
    width_s: float = 1.0
    practices: HostPractices | None = field(default=None, repr=False)
    _worst: dict[str, list[Finding]] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        sums = f"{counted(self.found, 'finding')} in {counted(self.requests, 'request')}"
        return printable(f"{self.agent} at {self.host}: {sums}, {self.robots_requests:,} for robots.txt")

    @property
    def found(self) -> int:
        """The number of findings."""
        return self.kinds.total()

    def worst(self, kind: str) -> list[Finding]:
        """Return up to five findings of a kind, the worst first."""
        return list(self._worst.get(kind, ()))

    def count(self, request: Request) -> None:
        """Count a request."""
        self.requests += 1
        self.robots_requests += request.is_robots
        self._mark(request.exchange.started, 0)

    def note(self, request: Request, kind: str, detail: str, missing_s: float) -> Finding:
        """Return a finding, and count it."""
        started = request.exchange.started
        url = request.exchange.url
        finding = Finding(self.agent, self.host, str(kind), url, started, detail, missing_s, request.place)
        self.kinds[finding.kind] += 1
        self._mark(started, 1)
        found = [*self._worst.get(finding.kind, ()), finding]
        self._worst[finding.kind] = sorted(found, key=lambda one: -one.missing_s)[:_EXAMPLES]
        return finding

    def _mark(self, wall: float, place: int) -> None:
        """Add one to the requests (``place`` is 0) or the findings (``place`` is 1) at a Unix time."""
        self.bars.setdefault(int(wall // self.width_s), [0, 0])[place] += 1
        while len(self.bars) > _MAX_BARS:
            self.width_s *= 2
            narrow, self.bars = self.bars, {}
            for bar, numbers in narrow.items():
                wide = self.bars.setdefault(bar // 2, [0, 0])
                wide[:] = map(add, wide, numbers)


class Audit:
    r"""Judges the requests of crawlers in logs.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> line = '192.0.2.1 - - [26/Nov/2026:10:00:00 +0000] "GET /private/a HTTP/1.1" 200 10 "-" "ExampleBot/1.0"\n'
    >>> options = AuditOptions(agents=("ExampleBot",), site="https://example.com", robots={
    ...     "https://example.com": "User-agent: *\nDisallow: /private\n"})
    >>> with TemporaryDirectory() as folder:
    ...     log = Path(folder, "access.log")
    ...     _ = log.write_text(line)
    ...     for finding in Audit(options).findings([log]):
    ...         print(finding)
    2026-11-26T10:00:00Z forbidden page requested: https://example.com/private/a (line 2: Disallow: /private)

    Args:
        options: the crawlers and the rules.

    Raises:
        ConfigurationError: an option is invalid.
        InvalidURL: a site is not an origin.
        StoreError: the ledger cannot be read.
    """

    def __init__(self, options: AuditOptions) -> None:
        self._options = options
        self._reader = LogReader(options)
        self._files = files_of(options)
        self._hosts: dict[tuple[str, str], HostAudit] = {}
        self._is_whole = options.is_whole

    def findings(
        self, logs: Sequence[str | os.PathLike[str]], wrap: Callable[[FileIO], Any] = lambda file: file
    ) -> Iterator[Finding]:
        """Judge logs, which may overlap in time; yield each finding in the order of the requests.

        Args:
            logs: the paths; ``-`` for standard input.
            wrap: is called with each open log, and returns the file to read; it may report the progress.

        Raises:
            LogError: a log cannot be opened or occurs twice, its format is unknown, or no line is by an audited
                crawler. If a log is damaged, this error is raised after the findings in all readable lines.
            ConfigurationError: a package that a log needs is not installed.
        """
        judges: dict[str, TraceJudge] = {}
        last = ALWAYS
        for request in self._reader.requests([str(log) for log in logs], wrap):
            exchange = request.exchange
            if exchange.started < last:  # the clock was set back
                judges.clear()
                self._is_whole = False
            last = exchange.started
            judge = judges.get(request.agent) or judges.setdefault(request.agent, self._judge(request.agent))
            host = self._host(request.agent, request.host)
            host.count(request)
            for found in judge.judge(exchange):
                yield host.note(request, found.kind, found.detail, found.missing_s)
            for kind, detail, missing_s in host.practices.judge(request) if host.practices else ():
                yield host.note(request, kind, detail, missing_s)
        for host in self._hosts.values():
            for kind, example, detail in host.practices.conclude(host.requests) if host.practices else ():
                yield host.note(example, kind, detail, 0.0)
        self._check(", ".join(map(str, logs)))

    def __str__(self) -> str:
        counts, found = self.counts(), sum(host.found for host in self._hosts.values())
        numbers = counted(counts["lines"], "line"), counted(len(self._hosts), "host")
        return f"{counted(found, 'finding')} in {counted(counts['requests'], 'request')}, {', '.join(numbers)}"

    def hosts(self) -> list[HostAudit]:
        """Return the sums by crawler and host, the worst first."""
        return sorted(self._hosts.values(), key=lambda one: (-one.found, one.agent, one.host))

    def counts(self) -> dict[str, int]:
        """Return the number of lines and requests that were read, and how often each note applies."""
        sums = {"lines": self._reader.lines, "requests": sum(host.requests for host in self._hosts.values())}
        return sums | {str(note): count for note, (count, _) in self._reader.notes.items()}

    def notes(self) -> list[str]:
        """Return the limits of the logs, each with its count and first example."""
        return [f"{note}: {count:,}, first {first}" for note, (count, first) in self._reader.notes.items()]

    def _judge(self, agent: str) -> TraceJudge:
        options, slack_s = self._options, self._reader.slack_s
        promises = Promises(
            min_delay_s=options.min_delay_s,
            min_refetch_s=options.min_refetch_s,
            slack_s=slack_s,
            wall_slack_s=max(slack_s, LATE_S),
            one_at_a_time=options.min_delay_s > 0,
            max_hosts=_MAX_HOSTS,
        )
        return TraceJudge(partial(self._expected, agent), promises, is_whole=self._is_whole)

    def _expected(self, agent: str, origin: Origin) -> Copies | None:
        if origin in self._files:
            return Copies(self._files[origin], agent, self._reader.slack_s)
        self._reader.note(Note.NO_RULES, origin.text)
        return None

    def _host(self, agent: str, name: str) -> HostAudit:
        found = self._hosts.get((agent, name))
        if found is None:
            name = name if len(self._hosts) < _MAX_HOSTS else OTHER_HOSTS
            practices = HostPractices(self._options.back_off_s) if self._options.profile else None
            found = self._hosts.setdefault((agent, name), HostAudit(agent, name, practices=practices))
        return found

    def _check(self, names: str) -> None:
        """Raise LogError if the logs prove nothing, or were not read to their ends."""
        reader = self._reader
        if Note.FAULT in reader.notes:
            raise LogError(reader.notes[Note.FAULT][1])
        if not reader.lines:
            raise LogError(f"{names} is empty: it proves nothing")
        if not self._hosts:
            agents = " or ".join(self._options.agents)
            others = ", ".join(shortened(repr(name), 80) for name, _ in reader.others.most_common(_EXAMPLES))
            read = counted(reader.lines, "line")
            raise LogError(
                f"no request by {agents} in {read}: it proves nothing. Other User-Agents: {others or 'none'}"
            )
