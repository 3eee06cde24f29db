"""The audit: judges the requests in logs, and sums up the findings by crawler and host, in bounded memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from operator import add
from typing import TYPE_CHECKING, Any, Final

from politesse._base.checks import check_choice, check_least, check_wait
from politesse._base.text import counted, printable, shortened
from politesse._judge import Promises, TraceJudge
from politesse.audit._requests import LATE_S, LogError, LogReader, Note
from politesse.audit._rules import ALWAYS, Copies, HostPractices, files_of
from politesse.errors import ConfigurationError
from politesse.robots.agents import BROWSER, product_token
from politesse.verdict import utc

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from io import FileIO

    from politesse.audit._requests import Request
    from politesse.origin import Origin

_MAX_HOSTS: Final = 100_000
OTHER_HOSTS: Final = "(other hosts)"
_MAX_BARS: Final = 120
_EXAMPLES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    r"""The crawlers to judge, the rules, and the form of the logs.

    >>> options = AuditOptions(agents=("ExampleBot",), site="https://example.com", robots={
    ...     "https://example.com": "User-agent: *\nDisallow: /private\n"})
    >>> options.back_off_s
    10.0

    Attributes:
        agents: the product tokens of the crawlers to judge.
        site: the origin of all requests, for logs without a host.
        robots: maps origins to robots.txt files, which are in force for the whole time.
        ledger: the path of a ledger. Each recorded copy is in force from the time of its record.
        format: ``common``, ``combined``, ``json``, ``scrapy``, ``warc``, or a format string of nginx. By default the
            format is detected.
        zone: the time zone of times without a zone, such as ``Europe/Berlin``.
        min_delay_s: the required pause at hosts that state no pace, in seconds; 0 to judge only stated paces.
        min_refetch_s: the least time between two requests for a robots.txt, in seconds.
        back_off_s: for how long a 429 or 503 without a logged Retry-After closes its host, in seconds.
        slack_s: the possible error of the times, in seconds. By default 1 if the logs have whole seconds, otherwise
            0.05.
        is_whole: whether the logs begin with the first request of the crawl. If so, a page that is requested before
            robots.txt is a violation.
        profile: ``"cbcp"`` to judge the crawler best practices, too.

    Raises:
        ConfigurationError: a value is invalid.
    """

    agents: tuple[str, ...]
    site: str | None = None
    robots: Mapping[str, str | bytes] = field(default_factory=dict)
    ledger: str | os.PathLike[str] | None = None
    format: str | None = None
    zone: str = "UTC"
    min_delay_s: float = 0.0
    min_refetch_s: float = 54.0
    back_off_s: float = 10.0
    slack_s: float | None = None
    is_whole: bool = False
    profile: str | None = None

    def __post_init__(self) -> None:
        check_least("the number of agents", len(self.agents), 1)
        for agent in self.agents:
            if product_token(agent) != agent.lower() or agent.lower() in {"", BROWSER}:
                raise ConfigurationError(f"agent {agent!r:.100}: give the product token of a crawler, as 'ExampleBot'")
        for name in ("min_delay_s", "min_refetch_s", "back_off_s", "slack_s"):
            check_wait(name, getattr(self, name))
        check_choice("profile", self.profile, (None, "cbcp"), "'cbcp' or None")


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
        return sums | {str(note): count for note, count in self._reader.notes.items()}

    def notes(self) -> list[str]:
        """Return the limits of the logs, each with its count and first example."""
        return [f"{note}: {count:,}, first {self._reader.examples[note]}" for note, count in self._reader.notes.items()]

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
        if reader.notes[Note.FAULT]:
            raise LogError(reader.examples[Note.FAULT])
        if not reader.lines:
            raise LogError(f"{names} is empty: it proves nothing")
        if not self._hosts:
            agents = " or ".join(self._options.agents)
            others = ", ".join(shortened(repr(name), 80) for name, _ in reader.others.most_common(_EXAMPLES))
            read = counted(reader.lines, "line")
            raise LogError(
                f"no request by {agents} in {read}: it proves nothing. Other User-Agents: {others or 'none'}"
            )
