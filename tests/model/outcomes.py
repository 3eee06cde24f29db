"""Follows each URL of a queue from ``put`` to its one outcome."""

from collections import Counter
from typing import Any

from politesse import Reason, Verdict
from politesse.queue import CrawlReport, PoliteQueue
from tests.model.judge import Judge
from tests.model.reading import forbids_training, permits
from tests.model.world import split

_BUSY = frozenset({429, 502, 503, 504})


class Outcomes:
    """What became of the URLs of a queue."""

    def __init__(self, judge: Judge, name: str, agent: str) -> None:
        self.judge, self.name, self.tokens, self.gate = judge, name, judge.tokens[agent], judge.gates[agent]
        self.put: set[str] = set()
        self.done: Counter[str] = Counter()
        self.cancelled = 0
        self.full: set[str] = set()  # hosts with ``max_pages_per_host`` pages

    def ends(self, url: str, how: str) -> None:
        self.judge.note(f"{self.name}: {url} {how}")
        if url not in self.put:
            self.judge.find(f"{self.name}: {url}, which nobody has put, {how}")
        self.done[url] += 1
        if self.done[url] > 1:
            self.judge.find(f"{self.name}: {url} has a second outcome, {how}")

    def refused(self, item: Any, verdict: Verdict) -> None:
        """Check the reason of a refusal; for ``on_disallowed``."""
        url, reason = verdict.url, verdict.reason
        if reason is not Reason.TOO_SLOW and item != url:
            self.judge.find(f"{self.name}: {item} is refused for {url}")
        origin, host, target = split(url)
        states = self.judge.origin(self.gate, origin).states
        bodies = [state.copy.body for state in states if state.copy is not None and state.copy.body is not None]
        policies = [policy for _, policy in self.judge.host(host).policies]
        facts = {
            Reason.DISALLOW_RULE: any(not permits(body, self.tokens, target) for body in bodies),
            Reason.POLICY_DENY: any(policy is not None and policy.deny for policy in policies),
            Reason.UNREACHABLE: any(state.trouble == "down" for state in states),
            Reason.TOO_MANY_REQUESTS: any(known.closed for known in self.judge.hosts.values()),  # of any hop
            Reason.USAGE_DISALLOWED: self.judge.enforces
            and any(forbids_training(body, self.tokens) for body in bodies),
            Reason.TOO_SLOW: self.judge.pacing.on_long_crawl_delay == "skip",
        }
        in_report = {Reason.WAIT_TOO_LONG, Reason.REFUSED, Reason.TOO_SLOW}
        if not facts.get(reason, True) or (self.judge.reports and reason not in in_report):
            self.judge.find(f"{self.name}: {url} is refused as {reason} without cause")
        self.ends(str(item), f"is refused: {reason}")

    def check_end(self, queue: PoliteQueue[Any], requests: dict[str, list[int]]) -> None:
        """Check that each URL has one outcome, or is still queued. ``requests`` has the statuses for each URL."""
        left = Counter(item if item is not None else url for url, item, _ in queue.left())
        for url in self.put | left.keys():
            many = self.done[url] + left[url]
            if many != 1 and not (many == 0 and split(url)[1] in self.full):
                self.judge.find(f"{self.name}: {url} has {self.done[url]} outcomes, and is queued {left[url]} times")
        for url, statuses in requests.items():
            if (
                len(statuses) > 1 + sum(status in _BUSY for status in statuses) + self.cancelled
                or len(statuses) > 5 + self.cancelled
            ):
                self.judge.find(f"{self.name}: {url} is requested {len(statuses)} times, with {statuses}")

    def check_report(self, report: CrawlReport, records: Counter[str], queue: PoliteQueue[Any]) -> None:
        """Check the counts of a crawl against its records."""
        counts = {
            "page": report.pages,
            "failed": report.failed,
            "redirect": report.redirects,
            "sitemap": report.sitemaps,
            "disallowed": report.disallowed,
        }
        for name, count in counts.items():
            if records[name] != count:
                self.judge.find(f"{self.name}: the report has {count} x {name}, and {records[name]} were recorded")
        if records["given-up"] + records["refused"] != report.given_up or report.left != queue.qsize():
            self.judge.find(f"{self.name}: the report {report} differs from {records} and {queue.qsize()} left")
